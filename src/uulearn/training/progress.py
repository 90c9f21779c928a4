"""A progress bar for long work: on a terminal, after the first two seconds, and not when it was turned off."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0


class ProgressBar:
    """Shows epochs done, time left and the current risk on standard error."""

    def __init__(self, total: int, enabled: bool) -> None:
        self.total = total
        self.enabled = enabled and sys.stderr.isatty()
        self.started = time.monotonic()
        self._bar: Progress | None = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def update(self, done: int, record: dict[str, Any]) -> None:
        """Show that ``done`` epochs are finished."""
        if not self.enabled or time.monotonic() - self.started < PATIENCE:
            return
        text = f"risk {record['unbiased']:+.4f}"
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
            TextColumn("epochs"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("training", total=self.total, completed=done, figures="")
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
