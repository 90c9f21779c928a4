"""Run commands in several torchrun processes: only the first prints, and no process waits for one that has exited."""

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import typer

from uulearn.cli import is_first_process
from uulearn.training.workers import FirstWorkerError

FIRST_PROCESS_SECONDS = 10.0
"""Number of seconds that a failed process waits, in case the first process fails and prints the same error."""
EXIT_WITH_OTHERS = 1


def first_process_ended() -> bool:
    """Return whether the first process exits shortly after this one failed; the first process then prints the reason.

    The result is False in the first process and in a single process. It is also False if the first process continues,
    because the error is then specific to this process. If the first process fails, torchrun stops this one.
    """
    if is_first_process():
        return False
    if dist.is_initialized() and dist.get_backend() == "gloo":
        began = time.monotonic()
        with contextlib.suppress(RuntimeError):  # connection lost, or timeout
            receiving = dist.irecv(torch.zeros(1), src=0)  # waits for a message that is never sent
            if receiving is not None:
                receiving.wait(timedelta(seconds=FIRST_PROCESS_SECONDS))
        return time.monotonic() - began < FIRST_PROCESS_SECONDS
    time.sleep(FIRST_PROCESS_SECONDS)
    return False


@contextlib.contextmanager
def exit_together(out: Path) -> Iterator[None]:
    """Exit silently if another process failed.

    If no other process reports the failure, the first one prints that a process exited and how to continue the fit.
    """
    try:
        yield
    except FirstWorkerError:
        first_process_ended()  # if this process exited earlier, torchrun would kill the first process while it prints
        raise typer.Exit(EXIT_WITH_OTHERS) from None
    except RuntimeError as error:
        if not dist.is_initialized() or not is_lost_connection(error):
            raise
        if dist.get_rank() == 0:
            from uulearn.app.output import OutputFolder

            reason = "another training process has exited or cannot be reached"
            typer.echo(f"error: {reason}{OutputFolder.at(out).resume_hint()}.", err=True)
        raise typer.Exit(EXIT_WITH_OTHERS) from None


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether the error means that another process can no longer be reached.

    >>> is_lost_connection(RuntimeError("[…/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:152."))
    True
    >>> is_lost_connection(RuntimeError("a stack expects each tensor to be of equal size"))
    False
    """
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)
