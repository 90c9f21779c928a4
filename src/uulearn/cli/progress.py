"""Progress of long commands: a bar on a terminal, otherwise plain lines at growing intervals.

A tracker counts the work (`FitProgress` here, `ReproductionProgress` for ``uulearn reproduce``) and passes a fraction
and a line of text to a `ProgressOutput`, which decides whether and how to show them.
"""

import sys
import time
from collections.abc import Callable
from typing import Self

import typer

from uulearn.training.progress import TerminalBar, format_duration

FIRST_LINE = 10.0
"""Seconds of a stage before the first line about its progress is logged."""
LONGEST_PAUSE = 300.0
"""Lines become rarer the longer a command runs, but the pause between two never exceeds this many seconds."""

Clock = Callable[[], float]


class ProgressOutput:
    """Shows nothing."""

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Show the fraction of the work that is done; a milestone, such as a new stage, is always shown."""

    def close(self) -> None:
        """Remove whatever is temporary."""


class LogOutput(ProgressOutput):
    """Prints a plain line for each milestone, and now and then in between."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started = self._next = clock()

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Print a milestone, or any progress if the last line is old enough."""
        now = self._clock()
        if not milestone and (fraction is None or now < self._next):
            return
        elapsed = now - self._started
        self._next = now + min(max(FIRST_LINE, elapsed / 2), LONGEST_PAUSE)
        typer.echo(f"{elapsed:6.1f} s  {text}", err=True)


class TerminalOutput(ProgressOutput):
    """Draws a bar on the terminal."""

    def __init__(self) -> None:
        self.bar = TerminalBar()

    def show(self, fraction: float | None, text: str, *, milestone: bool = False) -> None:
        """Update the bar; a milestone is drawn at once."""
        self.bar.show(fraction, text)
        if milestone:
            self.bar.refresh()

    def close(self) -> None:
        """Remove the bar."""
        self.bar.close()


def progress_output(quiet: bool = False) -> ProgressOutput:
    """A bar if standard error is a terminal, else lines; nothing if quiet."""
    if quiet:
        return ProgressOutput()
    return TerminalOutput() if sys.stderr is not None and sys.stderr.isatty() else LogOutput()


class FitProgress:
    """Counts the epochs of all models of a stage and estimates the time left.

    It is the `uulearn.training.progress.ProgressCallback` and the `TrainingObserver` of a fit.

    >>> seconds = iter([0, 60])
    >>> progress = FitProgress(clock=lambda: next(seconds))
    >>> progress("training", 5)
    >>> progress.begin(epochs=200, models=1, done=0)
    >>> progress.epoch(100)
    >>> progress.text
    'training: 100 of 1,000 epochs, model 1 of 5, about 9 min 0 s left'
    """

    def __init__(self, output: ProgressOutput | None = None, clock: Clock = time.monotonic) -> None:
        self.output = output or ProgressOutput()
        self.clock = clock
        self.text = ""
        self._training_since: float | None = None
        self._start_stage("starting", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.output.close()

    def __call__(self, stage: str, models: int = 0, /) -> None:
        """Start a stage that trains at most ``models`` models."""
        self._start_stage(stage, models)
        self._show(milestone=True)

    def begin(self, epochs: int, models: int, done: int) -> None:
        """Start ``models`` models; epochs from a checkpoint count as done but not for the speed."""
        self._epochs, self._at_once, self._done = epochs, models, done
        self._skipped += done * models
        if self._training_since is None:
            self._training_since = self.clock()
        self._show()

    def epoch(self, done: int) -> None:
        """Count the epochs since the last call."""
        self._trained_epochs += (done - self._done) * self._at_once
        self._done = done
        self._show()

    def end(self) -> None:
        """Finish the models; epochs that early stopping saved count as done."""
        self._skipped += (self._epochs - self._done) * self._at_once
        self._finished_models += self._at_once
        self._at_once = 0
        self.text = self._describe()

    @property
    def fraction(self) -> float | None:
        """Finished fraction of the stage; None before its first training."""
        return (self._skipped + self._trained_epochs) / self._total if self._total else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end of the stage; None before its first epoch."""
        if not self._trained_epochs or self._training_since is None:
            return None
        left = self._total - self._skipped - self._trained_epochs
        return (self.clock() - self._training_since) * left / self._trained_epochs

    def _describe(self) -> str:
        if not self._total or not self._at_once:
            return self.stage
        parts = [f"{self.stage}: {self._skipped + self._trained_epochs:,} of {self._total:,} epochs"]
        if self._at_once > 1:
            parts.append(f"{self._at_once} models at once")
        elif self._models > 1:
            parts.append(f"model {self._finished_models + 1} of {self._models}")
        left = self.seconds_left
        parts += [] if left is None else [f"about {format_duration(left)} left"]
        return ", ".join(parts)

    def _show(self, milestone: bool = False) -> None:
        self.text = self._describe()
        self.output.show(self.fraction, self.text, milestone=milestone)

    @property
    def _models(self) -> int:
        return max(self._expected_models, self._finished_models + self._at_once)

    @property
    def _total(self) -> int:
        return self._models * self._epochs

    def _start_stage(self, stage: str, models: int) -> None:
        self.stage, self._expected_models = stage, models
        self._epochs = self._at_once = self._done = self._finished_models = 0
        self._skipped = self._trained_epochs = 0
        self._training_since = None
