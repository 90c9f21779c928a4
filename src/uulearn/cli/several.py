"""Commands of which torchrun has started several: the first process speaks, and none is left waiting for another."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
import typer

from uulearn.engines.ray_cluster import check_engine
from uulearn.training.workers import RANK, FirstWorkerError, Workers, started_by_torchrun

PATIENCE = 10.0
"""Seconds that a process which has failed waits for the first to fail too, and to say why."""
EXIT_WITH_OTHERS = 1


def asks_for_ray(engine: str, address: str | None, workers: int | None) -> bool:
    """Whether Ray is asked for; not under torchrun, whose processes would each start a cluster and disturb the others.

    Examples
    --------
    >>> asks_for_ray("ray", None, 2), asks_for_ray("local", None, None)
    (True, False)
    """
    on_ray = check_engine(engine, address, workers)
    if on_ray and started_by_torchrun():
        raise ValueError("--engine ray starts its own processes; leave torchrun out, or leave --engine out.")
    return on_ray


def first_has_ended() -> bool:
    """Whether the first process ends soon after this one has failed: it then says why, for all of them.

    Returns False in the first process, in one that is alone, and where the first goes on, so that what is wrong is this
    process's own. Where torchrun has started this process it is ended while it waits, should the first have failed.
    """
    if not started_by_torchrun() or os.environ[RANK] == "0":
        return False
    if dist.is_initialized() and dist.get_backend() == "gloo":
        began = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the connection is lost, or time is up
            receiving = dist.irecv(torch.zeros(1), src=0)  # what nobody sends
            if receiving is not None:
                receiving.wait(timedelta(seconds=PATIENCE))
        return time.monotonic() - began < PATIENCE
    time.sleep(PATIENCE)
    return False


@contextlib.contextmanager
def ended_together(workers: Workers | None, kept: Callable[[], str]) -> Iterator[None]:
    """Where another worker fails this one ends too, without what the network says about it.

    The first says that one is gone, if that is all it knows, and what is ``kept``, a remark that goes into a sentence.
    """
    try:
        yield
    except FirstWorkerError:
        first_has_ended()  # torchrun would end it in the middle of its sentence
        raise typer.Exit(EXIT_WITH_OTHERS) from None
    except RuntimeError as error:
        if workers is None or not is_lost_connection(error):
            raise
        if workers.first:
            gone = "another of the processes that train together has ended, or cannot be reached"
            typer.echo(f"error: {gone}{kept()}.", err=True)
        raise typer.Exit(EXIT_WITH_OTHERS) from None


def is_lost_connection(error: RuntimeError) -> bool:
    """Whether it says that another process cannot be reached any more.

    Examples
    --------
    >>> is_lost_connection(RuntimeError("[…/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:152."))
    True
    >>> is_lost_connection(RuntimeError("a stack expects each tensor to be of equal size"))
    False
    """
    return isinstance(error, dist.DistError) or "/gloo/" in str(error)
