"""Training progress, shown as a progress bar on a terminal or sent to a callback."""

import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress

BAR_DELAY = 2.0
"""Number of seconds before the progress bar appears; shorter training runs show no bar."""


@dataclass(frozen=True)
class StageStarted:
    """Event sent when a stage of a workflow starts; the stage trains at most ``models`` models."""

    name: str
    models: int = 0
    part: str = "model"
    """What one of these models is called, such as "fold"."""


@dataclass(frozen=True)
class TrainingProgress:
    """Event that reports progress: ``models`` models are trained together, and each has finished ``done`` epochs."""

    epochs: int
    done: int
    models: int = 1
    resumed: int = 0
    """Number of epochs that were restored from a checkpoint."""
    stopped: bool = False
    """Whether training has ended (after the last epoch, early, or with an error)."""
    unit: str = "epochs"
    """What an epoch is called: "epochs" or "trees"."""


class ProgressCallback(Protocol):
    """Callback that is called when a stage starts, when training starts, after every epoch, and when training stops."""

    def __call__(self, event: StageStarted | TrainingProgress, /) -> None:
        """Show the event."""


def no_progress(event: StageStarted | TrainingProgress, /) -> None:
    """Ignore an event (the default `ProgressCallback`)."""


TRAINING_OBSERVER: ContextVar[ProgressCallback | None] = ContextVar("training observer", default=None)
"""Callback that replaces the progress bar and receives all progress events, unless ``progress=False``."""


def start_stage(stage: StageStarted) -> None:
    """Send the start of a stage to the observer, if there is one."""
    if (observer := TRAINING_OBSERVER.get()) is not None:
        observer(stage)


class TerminalBar:
    """A progress bar with one line of text on standard error; `close` removes the bar from the screen."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: Any = None
        self.text = ""

    def show(self, fraction: float | None, text: str) -> None:
        """Draw the bar filled to the given fraction, or a pulsing bar if the fraction is None (unknown)."""
        self.text = text
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = [BarColumn(bar_width=20), TextColumn("{task.fields[text]}", markup=False)]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=None, text=text)
            self._bar.start()
        total = None if fraction is None else 1.0
        self._bar.update(self._task, total=total, completed=fraction or 0.0, text=text)

    def refresh(self) -> None:
        """Draw the bar immediately, to show a stage that is shorter than the refresh interval."""
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


class ProgressBar:
    """Display of the finished epochs, the remaining time and the current risk, on a terminal or through the observer.

    ``done`` of ``total`` epochs were restored from a checkpoint, and ``models`` models are trained together. The
    observer receives progress only if it is measured in epochs or trees.
    """

    def __init__(self, total: int, enabled: bool, *, done: int = 0, models: int = 1, unit: str = "epochs") -> None:
        self.total, self.start, self.done, self.models, self.unit = total, done, done, models, unit
        self.observer = TRAINING_OBSERVER.get() if enabled and unit in ("epochs", "trees") else None
        self.enabled = enabled and TRAINING_OBSERVER.get() is None and sys.stderr is not None and sys.stderr.isatty()
        self.started = time.monotonic()
        self._bar = TerminalBar()

    def __enter__(self) -> Self:
        self._notify()
        return self

    def update(self, done: int, record: dict[str, Any]) -> None:
        """Show that ``done`` epochs are finished, with the risk and the test accuracy in ``record``."""
        self.done = done
        self._notify()
        seconds = time.monotonic() - self.started
        if not self.enabled or seconds < BAR_DELAY:
            return
        parts = [f"training {done}/{self.total} {self.unit}"]
        if done > self.start:
            left = seconds * (self.total - done) / (done - self.start)
            parts.append(f"about {format_duration(left)} left")
        if "unbiased" in record:
            parts.append(f"risk {record['unbiased']:+.4f}")
        if "test_accuracy" in record:
            parts.append(f"test accuracy {record['test_accuracy']:.4f}")
        self._bar.show(done / self.total, ", ".join(parts))

    def __exit__(self, *_: object) -> None:
        self._notify(stopped=True)
        self._bar.close()

    def _notify(self, stopped: bool = False) -> None:
        if self.observer is not None:
            self.observer(TrainingProgress(self.total, self.done, self.models, self.start, stopped, self.unit))


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours.

    >>> format_duration(3.21), format_duration(12.3), format_duration(90), format_duration(7300)
    ('3.2 s', '12 s', '1 min 30 s', '2 h 1 min')
    """
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
