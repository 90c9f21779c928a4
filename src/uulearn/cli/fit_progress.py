"""What `uulearn fit` is doing and how long it will take: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import typer

from uulearn.app.formatting import count, duration

if TYPE_CHECKING:
    from rich.progress import Progress

FIRST_LINE = 10.0
"""Seconds of training before it is said, away from a terminal, how far it is."""
RARELY = 300.0
"""Lines come ever less often, the later the hour; but after so many seconds at the latest."""

Clock = Callable[[], float]


class Silent:
    """Counts the epochs of a stage, all its models together, and works out the time left; says nothing.

    It is told of stages by being called, of epochs as the `uulearn.training.progress.Watcher` that it is.

    Examples
    --------
    >>> seconds = iter([0, 0, 60])
    >>> progress = Silent(clock=lambda: next(seconds))
    >>> progress("training", 5)
    >>> progress.begin(epochs=200, models=1, done=0)
    >>> progress.epoch(100)
    >>> progress.described()
    'training: 100 of 1,000 epochs, model 1 of 5, about 9 min 0 s left'
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.started = clock()
        self._training_since: float | None = None
        self._stage("starting", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take away whatever is shown."""

    def __call__(self, what: str, models: int = 0, /) -> None:
        """A stage begins, in which so many models will be trained."""
        self._stage(what, models)
        self.show()

    def begin(self, epochs: int, models: int, done: int) -> None:
        """Models begin; the epochs that they have behind them cost nothing now."""
        self._epochs, self._together, self._at = epochs, models, done
        self._free += done * models
        if self._training_since is None:
            self._training_since = self.clock()
        self.show()

    def epoch(self, done: int) -> None:
        """Models are an epoch further."""
        self._paid += (done - self._at) * self._together
        self._at = done
        self.show()

    def end(self) -> None:
        """Models are trained; epochs that they did not need cost nothing."""
        self._free += (self._epochs - self._at) * self._together
        self._trained += self._together
        self._together = 0

    @property
    def share(self) -> float | None:
        """Of the stage, that which is done; None while nothing is known about it."""
        return (self._free + self._paid) / self._total if self._total else None

    @property
    def seconds_left(self) -> float | None:
        """Of the stage; None before its first epoch."""
        if not self._paid or self._training_since is None:
            return None
        left = self._total - self._free - self._paid
        return (self.clock() - self._training_since) * left / self._paid

    def described(self) -> str:
        """The stage, epochs, model and time left, as far as they are known."""
        if not self._total or not self._together:
            return self.what
        said = [f"{self.what}: {count(self._free + self._paid)} of {count(self._total)} epochs"]
        if self._together > 1:
            said.append(f"{self._together} models at once")
        elif self._models > 1:
            said.append(f"model {self._trained + 1} of {self._models}")
        left = self.seconds_left
        said += [] if left is None else [f"about {duration(left)} left"]
        return ", ".join(said)

    def show(self) -> None:
        """Say it, where there is somebody to say it to."""

    @property
    def _models(self) -> int:
        return max(self._expected, self._trained + self._together)

    @property
    def _total(self) -> int:
        return self._models * self._epochs

    def _stage(self, what: str, models: int) -> None:
        self.what, self._expected = what, models
        self._epochs = self._together = self._at = self._trained = 0
        self._free = self._paid = 0
        self._training_since = None


class Lines(Silent):
    """A plain line on standard error for each stage, and during a long one now and then."""

    def __call__(self, what: str, models: int = 0, /) -> None:
        """Say that a stage begins."""
        super().__call__(what, models)
        self._said(self.what)

    def show(self) -> None:
        """Say how far it is, if nothing was said for a while."""
        if self._paid and self.clock() >= self._next:
            self._said(self.described())

    def _said(self, what: str) -> None:
        now = self.clock()
        elapsed = now - self.started
        self._next = now + min(max(FIRST_LINE, elapsed / 2), RARELY)
        typer.echo(f"{elapsed:6.1f} s  {what}", err=True)


class Display(Silent):
    """A bar on the terminal, gone when there is nothing more to do."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = [BarColumn(bar_width=20), TextColumn("{task.fields[text]}", markup=False)]
        self._bar: Progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task: Any = self._bar.add_task("fit", total=None, text=self.what)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, models: int = 0, /) -> None:
        """Show at once that a stage begins; a short one would be over before the next look."""
        super().__call__(what, models)
        self._bar.refresh()

    def show(self) -> None:
        """Bring the bar up to date; it runs to and fro where nobody knows how long a stage will take."""
        share = self.share
        total = None if share is None else 1.0
        self._bar.update(self._task, total=total, completed=share or 0.0, text=self.described())


def fit_progress(quiet: bool) -> Silent:
    """The one that suits where standard error goes."""
    if quiet:
        return Silent()
    on_terminal = sys.stderr is not None and sys.stderr.isatty()  # there is none where it was closed
    return Display() if on_terminal else Lines()
