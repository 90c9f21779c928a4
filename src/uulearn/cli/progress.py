"""Show the progress of long commands: a bar on a terminal, otherwise plain lines at growing intervals.

A tracker (`FitProgress`, `ScoringProgress` for ``uulearn predict --engine ray``, or `ReproductionProgress` for
``uulearn reproduce``) counts the work and passes a fraction and a line of text to a `ProgressOutput`, which decides
whether and how to show them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import typer

from uulearn.training.progress import TRAINING_OBSERVER, StageStarted, TerminalBar, TrainingProgress, format_duration

if TYPE_CHECKING:
    from uulearn.engines.ray_scoring import FilesScored

FIRST_LINE = 10.0
"""Number of seconds after which the first progress line of a stage is logged."""
LONGEST_PAUSE = 300.0
"""Maximum number of seconds between two lines; the interval grows with the running time."""

Clock = Callable[[], float]


class ProgressOutput:
    """Base class of progress outputs; shows nothing."""

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Show the finished fraction of the work; a milestone, such as a new stage, is always shown."""

    def close(self) -> None:
        """Remove temporary output."""


class LogOutput(ProgressOutput):
    """Progress output that prints a line per milestone and, after ``delay`` seconds, occasional lines in between."""

    def __init__(self, clock: Clock = time.monotonic, delay: float = 0.0) -> None:
        self._clock = clock
        self._started = clock()
        self._next = self._started + delay

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Print a line for a milestone, or if enough time has passed since the last line."""
        now = self._clock()
        if not milestone and (fraction is None or now < self._next):
            return
        elapsed = now - self._started
        self._next = now + min(max(FIRST_LINE, elapsed / 2), LONGEST_PAUSE)
        typer.echo(f"{elapsed:6.1f} s  {text}", err=True)


class TerminalOutput(ProgressOutput):
    """Progress output that draws a bar in the terminal."""

    def __init__(self) -> None:
        self.bar = TerminalBar()

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Update the bar; a milestone is drawn immediately."""
        self.bar.show(fraction, text)
        if milestone:
            self.bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()


def progress_output(quiet: bool = False, delay: float = 0.0) -> ProgressOutput:
    """Return a progress bar if standard error is a terminal, otherwise log lines; if quiet, show no progress.

    Log lines, except milestones, start after ``delay`` seconds.
    """
    if quiet:
        return ProgressOutput()
    return TerminalOutput() if sys.stderr is not None and sys.stderr.isatty() else LogOutput(delay=delay)


class ScoringProgress:
    """Tracker that counts the scored files and rows on a cluster; it is called with each event in a ``with`` block.

    >>> from uulearn.engines.ray_scoring import FilesScored
    >>> seconds = iter([0, 60])
    >>> progress = ScoringProgress(clock=lambda: next(seconds))
    >>> progress(FilesScored(files=0, rows=0, total_files=8, total_rows=80_000))
    >>> progress(FilesScored(files=2, rows=20_000, total_files=8, total_rows=80_000))
    >>> progress.text
    'scoring: 2 of 8 files, 20,000 of 80,000 rows, about 3 min 0 s left'
    """

    def __init__(self, output: ProgressOutput | None = None, clock: Clock = time.monotonic) -> None:
        self.output = output or ProgressOutput()
        self.clock = clock
        self.text = ""
        self._started = 0.0

    def __enter__(self) -> Self:
        self.output.show(None, "starting Ray")
        return self

    def __exit__(self, *_: object) -> None:
        self.output.close()

    def __call__(self, event: FilesScored, /) -> None:
        """Show the number of scored files and rows, and the estimated remaining time."""
        now = self.clock()
        parts = [f"scoring: {event.files} of {event.total_files} files, {event.rows:,} of {event.total_rows:,} rows"]
        if event.rows:
            left = (now - self._started) * (event.total_rows - event.rows) / event.rows
            parts.append(f"about {format_duration(left)} left")
        else:
            self._started = now
        self.text = ", ".join(parts)
        self.output.show(event.rows / event.total_rows, self.text)


class FitProgress:
    """Tracker that counts the epochs of all models of a stage and estimates the remaining time.

    It is used as the `uulearn.training.progress.ProgressCallback` of a fit in a ``with`` block.

    >>> seconds = iter([0, 60])
    >>> progress = FitProgress(clock=lambda: next(seconds))
    >>> progress(StageStarted("training mlp", models=5, part="fold"))
    >>> progress(TrainingProgress(epochs=200, done=0))
    >>> progress(TrainingProgress(epochs=200, done=100))
    >>> progress.text
    'training mlp: 100 of 1,000 epochs, fold 1 of 5, at most 9 min 0 s left'
    """

    def __init__(self, output: ProgressOutput | None = None, clock: Clock = time.monotonic) -> None:
        self.output = output or ProgressOutput()
        self.clock = clock
        self.text = ""
        self._training_since: float | None = None
        self._before: tuple[int, int]  # trained and skipped epochs of finished models
        self._start_stage("starting", 0)

    def __enter__(self) -> Self:
        self._observing = TRAINING_OBSERVER.set(self)
        self(StageStarted("checking the settings"))
        return self

    def __exit__(self, *_: object) -> None:
        TRAINING_OBSERVER.reset(self._observing)
        self.output.close()

    def __call__(self, event: StageStarted | TrainingProgress, /) -> None:
        """Start a stage or count epochs; epochs that were restored or skipped do not affect the estimated speed."""
        if isinstance(event, StageStarted):
            self._start_stage(event.name, event.models, event.part)
            self._show(milestone=True)
            return
        if self._training_since is None:
            self._training_since = self.clock()
        models, saved = event.models, (event.epochs - event.done if event.stopped else 0)
        self._epochs, self._at_once, self._done, self._unit = event.epochs, models, event.done, event.unit
        self._trained_epochs = self._before[0] + (event.done - event.resumed) * models
        self._skipped = self._before[1] + (event.resumed + saved) * models
        if not event.stopped:
            self._show()
            return
        self._before = self._trained_epochs, self._skipped
        self._finished_models += models
        self._finished_epochs += event.done * models
        self._at_once = 0
        self.text = self._describe()

    @property
    def fraction(self) -> float | None:
        """Finished fraction of the stage; None before its first model is trained."""
        return (self._skipped + self._trained_epochs) / self._total if self._total else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated number of seconds until the end of the stage; None before its first epoch.

        Each model is assumed to need the mean number of epochs of finished models, or all epochs if there are none.
        """
        if not self._trained_epochs or self._training_since is None:
            return None
        epochs = self._finished_epochs / self._finished_models if self._finished_models else self._epochs
        waiting = self._models - self._finished_models - self._at_once
        left = waiting * epochs + self._at_once * max(0, epochs - self._done)
        return (self.clock() - self._training_since) * left / self._trained_epochs

    def _describe(self) -> str:
        left = self.seconds_left
        if not self._total or not self._at_once:
            return self.stage
        parts = [f"{self.stage}: {self._skipped + self._trained_epochs:,} of {self._total:,} {self._unit}"]
        if self._at_once > 1:
            parts.append(f"{self._at_once} {self._part}s at once")
        elif self._models > 1:
            parts.append(f"{self._part} {self._finished_models + 1} of {self._models}")
        bound = "about" if self._finished_models else "at most"  # early stopping may end the first model sooner
        parts += [] if left is None else [f"{bound} {format_duration(left)} left"]
        return ", ".join(parts)

    def _show(self, milestone: bool = False) -> None:
        self.text = self._describe()
        self.output.show(self.fraction, self.text, milestone=milestone)

    @property
    def _models(self) -> int:
        return max(self._expected_models, self._finished_models + self._at_once)

    @property
    def _total(self) -> int:
        return sum(self._before) + (self._models - self._finished_models) * self._epochs

    def _start_stage(self, stage: str, models: int, part: str = "model") -> None:
        self.stage, self._expected_models, self._part, self._unit = stage, models, part, "epochs"
        self._epochs = self._at_once = self._done = self._finished_models = self._finished_epochs = 0
        self._trained_epochs = self._skipped = 0
        self._before = (0, 0)
        self._training_since = None
