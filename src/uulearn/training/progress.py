"""How far training is: a bar of its own on a terminal, or told to whoever watches.

===================  ==================================================================================
`ProgressBar`        shown after the first two seconds, on a terminal, and not when it was turned off
`watch_training`     tells a `Watcher` instead, of every model that is trained meanwhile
===================  ==================================================================================
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0
EPOCHS = "epochs"


class Watcher(Protocol):
    """Whoever is told how training goes: of one model after another, or of several that are trained together."""

    def begin(self, epochs: int, models: int, done: int) -> None:
        """So many models begin together, each with ``done`` of its ``epochs`` behind it, from a checkpoint."""

    def epoch(self, done: int) -> None:
        """They have so many epochs behind them."""

    def end(self) -> None:
        """They are trained, perhaps before the last epoch; or training failed."""


_WATCHER: ContextVar[Watcher | None] = ContextVar("watcher of training", default=None)


@contextlib.contextmanager
def watch_training(watcher: Watcher) -> Iterator[None]:
    """Tell the watcher of all training that is done meanwhile with ``progress=True``, in place of a bar.

    Examples
    --------
    >>> import numpy as np
    >>> from uulearn import UUClassifier
    >>> class Epochs(list):
    ...     def begin(self, epochs, models, done):
    ...         self.append(f"of {epochs}")
    ...     def epoch(self, done):
    ...         self.append(done)
    ...     def end(self):
    ...         self.append("end")
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> classifier = UUClassifier((0.9, 0.1), model="linear", epochs=2, members=2, random_state=0)
    >>> with watch_training(told := Epochs()):
    ...     _ = classifier.fit_sets(X[:20] + 3, X[20:])
    >>> told
    ['of 2', 1, 2, 'end', 'of 2', 1, 2, 'end']
    """
    before = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(before)


class ProgressBar:
    """Shows epochs done, time left and the current risk on standard error, or tells them to the watcher.

    ``done`` epochs are there already, and ``models`` are trained together. Where something else than epochs is
    counted, the watcher hears nothing.
    """

    def __init__(self, total: int, enabled: bool, *, done: int = 0, models: int = 1, unit: str = EPOCHS) -> None:
        self.total = total
        self.done = done
        self.models = models
        self.unit = unit
        self.watcher = _WATCHER.get() if enabled and unit == EPOCHS else None
        self.enabled = enabled and _WATCHER.get() is None and sys.stderr.isatty()
        self.started = time.monotonic()
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        if self.watcher is not None:
            self.watcher.begin(self.total, self.models, self.done)
        return self

    def update(self, done: int, record: dict[str, Any]) -> None:
        """Show that ``done`` epochs are finished."""
        if self.watcher is not None:
            self.watcher.epoch(done)
        if not self.enabled or time.monotonic() - self.started < PATIENCE:
            return
        text = f"risk {record['unbiased']:+.4f}" if "unbiased" in record else ""
        if "test_accuracy" in record:
            text += f"  test accuracy {record['test_accuracy']:.4f}"
        if self._bar is None:
            self._start(done)
        assert self._bar is not None
        self._bar.update(self._task, completed=done, figures=text)

    def _start(self, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(self.unit),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("training", total=self.total, completed=done, figures="")
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self.watcher is not None:
            self.watcher.end()
        if self._bar is not None:
            self._bar.stop()
