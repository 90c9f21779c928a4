"""Runs what a store does not hold yet: dense models in stacks, convolutional ones one after another.

A finished stack or run is in the store at once, so that whatever ends the process loses only what was being trained.
Several processes may work on one store; each looks again before it begins a stack.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from uulearn.datasets import BinaryTask
from uulearn.reproduction.bench import Bench
from uulearn.reproduction.experiments import Configuration
from uulearn.reproduction.jobs import MOST_RUNS, Job, Record, Reporter, frozen, halves, plan_jobs
from uulearn.reproduction.store import RunStore

__all__ = ["Job", "Outcome", "Record", "Reporter", "choose_device", "halves", "plan_jobs", "reproduce"]


class Outcome(NamedTuple):
    """How many runs were done now, how many were in the store before, and how many of the former ended early."""

    done: int
    found: int
    not_finite: int


def reproduce(
    configurations: Iterable[Configuration],
    store: RunStore,
    tasks: Callable[[str], BinaryTask],
    *,
    device: str = "auto",
    reporter: Reporter | None = None,
    most: int = MOST_RUNS,
) -> Outcome:
    """Train every configuration that the store lacks, and store what comes of it.

    Parameters
    ----------
    configurations : iterable of dict
        As `uulearn.reproduction.experiments` makes them.
    store : RunStore
        Where finished runs are and go.
    tasks : callable
        Gives the task of a dataset's name, as `uulearn.datasets.load_task`; called once where there are runs to do.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    reporter : Reporter, optional
    most : int
        Largest number of runs in a stack on CUDA; a stack that does not fit the memory is halved.
    """
    wanted = list(configurations)
    missing = [dict(configuration) for configuration in store.missing(wanted)]
    place, reporter = choose_device(device), reporter or Reporter()
    jobs = plan_jobs(missing, most if place.type == "cuda" else None)
    found = len({frozen(configuration) for configuration in wanted}) - len(missing)
    reporter.begin(jobs, found)
    done = not_finite = 0
    for dataset in dict.fromkeys(job.first["dataset"] for job in jobs):
        reporter.load(dataset)
        bench = Bench(tasks(dataset), place, reporter)
        queue = deque(job for job in jobs if job.first["dataset"] == dataset)
        while queue:
            planned = queue.popleft()
            # Another process may have been here meanwhile.
            job = Job(tuple(map(dict, store.missing(planned.configurations))))
            started, records = time.perf_counter(), None
            try:
                records = bench.train(job) if job.configurations else []
            except torch.cuda.OutOfMemoryError:
                if len(job.configurations) == 1:
                    raise
            if records is None:  # only now, without the error, its memory is free
                gc.collect()
                torch.cuda.empty_cache()
                queue.extendleft(reversed(halves(job)))
                continue
            done += sum(store.add_all(records))
            not_finite += sum("not finite" in record["stop_reason"] for record in records)
            reporter.finish(planned, records, time.perf_counter() - started)
        del bench  # a dataset is freed before the next one is read
    return Outcome(done, found, not_finite)


def choose_device(device: str) -> torch.device:
    """The device of that name; CUDA where there is one with ``"auto"``."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} is asked for but torch finds no CUDA device; use 'auto'.")
    return torch.device(device)
