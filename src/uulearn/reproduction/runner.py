"""Trains the runs that are missing in a store: dense models batched, convolutional ones one by one.

A finished job is stored at once, so an interruption loses only the job in progress. Several processes may work on one
store; each checks again before it starts a job.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from uulearn.datasets import BinaryTask
from uulearn.reproduction.experiments import Configuration
from uulearn.reproduction.job_training import JobTrainer
from uulearn.reproduction.jobs import MAX_BATCHED_RUNS, Reporter, TrainingJob, halves, hashable, plan_jobs
from uulearn.reproduction.store import RunStore


class ReproductionOutcome(NamedTuple):
    """Number of runs trained now, found in the store, and trained now but ended early by a non-finite risk."""

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
    max_runs: int = MAX_BATCHED_RUNS,
) -> ReproductionOutcome:
    """Train every configuration that is missing in the store and add the results.

    Parameters
    ----------
    configurations : iterable of dict
        As made by `uulearn.reproduction.experiments`.
    store : RunStore
    tasks : callable
        Returns the task of a dataset by name, like `uulearn.datasets.load_task`; called once per dataset with runs.
    device : str
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    reporter : Reporter, optional
    max_runs : int
        Largest number of runs in a job on CUDA; a job that does not fit into memory is split in half.
    """
    wanted = list(configurations)
    missing = [dict(configuration) for configuration in store.missing(wanted)]
    place, reporter = choose_device(device), reporter or Reporter()
    jobs = plan_jobs(missing, max_runs if place.type == "cuda" else None)
    found = len({hashable(configuration) for configuration in wanted}) - len(missing)
    reporter.begin(jobs, found)
    done = not_finite = 0
    for dataset in dict.fromkeys(job.first["dataset"] for job in jobs):
        reporter.load(dataset)
        trainer = JobTrainer(tasks(dataset), place, reporter)
        queue = deque(job for job in jobs if job.first["dataset"] == dataset)
        while queue:
            planned = queue.popleft()
            # Another process may have trained some of the runs in the meantime.
            job = TrainingJob(tuple(map(dict, store.missing(planned.configurations))))
            started, records = time.perf_counter(), None
            try:
                records = trainer.train(job) if job.configurations else []
            except torch.cuda.OutOfMemoryError:
                if len(job.configurations) == 1:
                    raise
            if records is None:  # outside the except block, so that the error no longer holds the memory
                gc.collect()
                torch.cuda.empty_cache()
                queue.extendleft(reversed(halves(job)))
                continue
            done += sum(store.add_all(records))
            not_finite += sum("not finite" in record["stop_reason"] for record in records)
            reporter.finish(planned, records, time.perf_counter() - started)
        del trainer  # frees the dataset before the next one is read
    return ReproductionOutcome(done, found, not_finite)


def choose_device(device: str) -> torch.device:
    """The torch device of a name; ``"auto"`` is CUDA if available."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r} but torch finds no CUDA device; use 'auto'.")
    return torch.device(device)
