"""Progress of training: a bar on a terminal, or callbacks for a program that shows progress itself."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress

BAR_DELAY = 2.0
"""Seconds before the bar of a training appears, so that short trainings stay silent."""


class ProgressCallback(Protocol):
    """Called with a description of each stage of a workflow when the stage starts."""

    def __call__(self, stage: str, models: int = 0, /) -> None:
        """Start a stage that trains at most ``models`` models."""


def no_progress(stage: str, models: int = 0, /) -> None:
    """Ignore a stage; the default `ProgressCallback`."""


class TrainingObserver(Protocol):
    """Receives the progress of models that are trained one after another, or several at once."""

    def begin(self, epochs: int, models: int, done: int) -> None:
        """Training of ``models`` models starts; a checkpoint holds the first ``done`` of their ``epochs``."""

    def epoch(self, done: int) -> None:
        """Each of the models has finished ``done`` epochs."""

    def end(self) -> None:
        """Training stopped: after the last epoch, early, or with an error."""


_OBSERVER: ContextVar[TrainingObserver | None] = ContextVar("training observer", default=None)


@contextlib.contextmanager
def observe_training(observer: TrainingObserver) -> Iterator[None]:
    """Send the progress of all training in this block to an observer instead of showing a bar.

    Training with ``progress=False`` is not observed.
    """
    before = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(before)


class TerminalBar:
    """A bar with one line of text on standard error, removed from the screen by `close`."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: Any = None
        self.text = ""

    def show(self, fraction: float | None, text: str) -> None:
        """Draw the bar at a fraction of its length; None shows a pulsing bar, for work of unknown length."""
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
        """Draw now; otherwise a stage shorter than the refresh interval would never be visible."""
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


class ProgressBar:
    """Shows finished epochs, time left and the current risk on a terminal, or sends them to the observer.

    ``done`` epochs of ``total`` are in a checkpoint already, and ``models`` are trained at once. Other units than
    epochs are not sent.
    """

    def __init__(self, total: int, enabled: bool, *, done: int = 0, models: int = 1, unit: str = "epochs") -> None:
        self.total, self.start, self.models, self.unit = total, done, models, unit
        self.observer = _OBSERVER.get() if enabled and unit == "epochs" else None
        self.enabled = enabled and _OBSERVER.get() is None and sys.stderr is not None and sys.stderr.isatty()
        self.started = time.monotonic()
        self._bar = TerminalBar()

    def __enter__(self) -> Self:
        if self.observer is not None:
            self.observer.begin(self.total, self.models, self.start)
        return self

    def update(self, done: int, record: dict[str, Any]) -> None:
        """Show that ``done`` epochs are finished, with the risk and the test accuracy in ``record``."""
        if self.observer is not None:
            self.observer.epoch(done)
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
        if self.observer is not None:
            self.observer.end()
        self._bar.close()


def format_duration(seconds: float) -> str:
    """A time in seconds, minutes or hours.

    >>> format_duration(3.21), format_duration(12.3), format_duration(90), format_duration(7300)
    ('3.2 s', '12 s', '1 min 30 s', '2 h 1 min')
    """
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
