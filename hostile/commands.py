"""Run `uulearn` commands in this process, or in a forked copy of it that can be killed or limited."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRESS = re.compile(r" *\d+\.\d s  .*")
FILE_EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.scandir"}
"""Audit events of file-system operations."""
PATIENCE = 100.0
"""Seconds to wait for a forked command."""


@dataclass(frozen=True)
class Ended:
    """The result of a command; ``said`` are its lines on standard error without progress lines."""

    code: int
    out: str
    said: list[str]
    error: str | None = None
    """Class name of the exception behind the error message, if the command ran in this process."""

    def brief(self) -> str:
        """Return the result in one line of limited length."""
        lines = self.said if len(self.said) < 5 else [*self.said[:1], "…", *self.said[-3:]]
        return f"exit code {self.code}, standard error {' | '.join(line[:400] for line in lines)!r}"


def run(*arguments: object) -> Ended:
    """Run a command in this process; an exception that the command line does not handle propagates."""
    from uulearn.cli import app

    out, err, before, errors = io.StringIO(), io.StringIO(), sys.argv, []
    format_error = app.format_error

    def remember(error: Exception) -> str:
        errors.append(type(error).__name__)
        return format_error(error)

    sys.argv = ["uulearn", *map(str, arguments)]
    vars(app)["format_error"] = remember
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _exit_code()
    finally:
        sys.argv = before
        vars(app)["format_error"] = format_error
    return Ended(code, out.getvalue(), _without_progress(err.getvalue()), errors[0] if errors else None)


def _exit_code() -> int:
    from uulearn.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    raise AssertionError("the command line ends in SystemExit")


def _without_progress(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip() and not PROGRESS.fullmatch(line)]


def command(*arguments: object) -> Callable[[], None]:
    """Return a function for `Forked` that runs a command line."""

    def start() -> None:
        from uulearn.cli import main

        sys.argv = ["uulearn", *map(str, arguments)]
        main()

    return start


class Forked:
    """A function that runs in a forked copy of this process, with its output in temporary files."""

    def __init__(self, task: Callable[[], object], *, stdout: Path | None = None) -> None:
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._child(task, stdout)
        self._pidfd = os.pidfd_open(self.pid)

    def _child(self, task: Callable[[], object], stdout: Path | None) -> None:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            target = self._out.fileno() if stdout is None else os.open(stdout, os.O_WRONLY)
            os.dup2(target, 1)
            os.dup2(self._err.fileno(), 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
            code = self._call(task)
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    @staticmethod
    def _call(task: Callable[[], object]) -> int:
        try:
            task()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            traceback.print_exc()
            return 1
        return 0

    def wait(self, seconds: float = PATIENCE) -> bool:
        """Wait until the process ends or the time is over; return whether it ended."""
        return bool(select.select([self._pidfd], [], [], max(0.0, seconds))[0])

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def result(self, patience: float = PATIENCE) -> Ended:
        """Wait for the end and return the result; a process that hangs is killed."""
        hung = not self.wait(patience)
        if hung:
            self.send(signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._pidfd)
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        said = _without_progress(texts[1])
        return Ended(code, texts[0], [*said, *[f"hung for {patience:.0f} s"][: int(hung)]])


def fork(*arguments: object, stdout: Path | None = None) -> Ended:
    """Run a command in a forked process."""
    return Forked(command(*arguments), stdout=stdout).result()


def killed_after(task: Callable[[], object], seconds: float, sent: signal.Signals) -> Ended:
    """Run a function in a forked process and send it a signal after some time."""
    process = Forked(task)
    if not process.wait(seconds):
        process.send(sent)
    return process.result()


def signal_at_step(task: Callable[[], object], folder: Path, number: int, sent: signal.Signals) -> Callable[[], object]:
    """Return the function with a signal at its n-th file-system operation below a folder."""

    def disturbed() -> object:
        steps = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            if event in FILE_EVENTS and arguments and str(arguments[0]).startswith(str(folder)):
                steps += 1
                if steps == number:
                    os.kill(os.getpid(), sent)

        sys.addaudithook(hook)
        return task()

    return disturbed


def count_steps(task: Callable[[], object], folder: Path) -> int:
    """Return the number of file-system operations of a function below a folder, counted in a forked process."""

    def counted() -> None:
        steps = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            steps += event in FILE_EVENTS and bool(arguments) and str(arguments[0]).startswith(str(folder))

        sys.addaudithook(hook)
        try:
            task()
        finally:
            print(f"steps: {steps}", flush=True)

    ended = Forked(counted).result()
    if ended.code:
        raise RuntimeError(f"an undisturbed command failed: {ended.brief()}")
    return int(ended.out.rpartition("steps: ")[2])


def seconds_of(task: Callable[[], object]) -> float:
    """Return the duration of a function in a forked process."""
    process = Forked(task)
    ended = process.result()
    if ended.code:
        raise RuntimeError(f"an undisturbed command failed: {ended.brief()}")
    return time.monotonic() - process.started
