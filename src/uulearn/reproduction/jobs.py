"""Which runs are trained together, and who hears of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uulearn.reproduction.experiments import CONVOLUTIONAL, Configuration

Record = dict[str, Any]

TOGETHER = (
    "dataset", "model", "loss", "optimizer", "momentum", "batch_size", "epochs", "sizes", "held_out", "test_rows",
    "sampling", "initialiser", "norm_momentum",
)  # fmt: skip
"""What all runs of a stack must have in common."""
SAME_SETS = ("set_priors", "seed")
"""What they have in common beside it on the CPU, where a stack gains little by being large and loses more when cut."""
MOST_RUNS = 150
"""Of a stack on CUDA."""
COSTS = {"linear": 1.0, "mlp": 7.0, "resnet32": 1_800.0, "allconvnet": 2_700.0}
"""Rough relative times of an epoch, for the time left."""


@dataclass(frozen=True)
class Job:
    """What is trained in one go: a stack of runs of a dense model, or one run of a convolutional model."""

    configurations: tuple[Configuration, ...]

    @property
    def first(self) -> Configuration:
        """One of the configurations, for what all have in common."""
        return self.configurations[0]

    @property
    def cost(self) -> float:
        """Roughly how long it takes, in no particular unit."""
        first = self.first
        return float(len(self.configurations) * COSTS[first["model"]] * first["epochs"] * sum(first["sizes"]))


class Reporter:
    """Hears how the work goes on; this one keeps it to itself."""

    def begin(self, jobs: Sequence[Job], found: int) -> None:
        """The jobs that are left to do, and the number of runs that the store holds."""

    def load(self, dataset: str) -> None:
        """A dataset is about to be read."""

    def epoch(self, job: Job, epoch: int, accuracies: Sequence[float]) -> None:
        """An epoch of a job is done; test accuracy of each of its runs."""

    def finish(self, job: Job, records: Sequence[Record], seconds: float) -> None:
        """The records of a job are in the store; none where another process was faster."""


def plan_jobs(configurations: Iterable[Configuration], most: int | None) -> list[Job]:
    """Sort configurations into jobs, those of a dataset one after another.

    With ``most``, stacks are as large as they may be; without, only runs on the same sets with the same seed share one.

    Examples
    --------
    >>> from uulearn.reproduction.experiments import Request, runs_of
    >>> runs = runs_of(["table2"], Request(["mnist"]))
    >>> [len(job.configurations) for job in plan_jobs(runs, 150)]
    [120, 75]
    >>> {len(job.configurations) for job in plan_jobs(runs, None)}
    {8, 5}
    """
    alike: dict[Any, list[Configuration]] = {}
    for position, configuration in enumerate(configurations):
        entries = TOGETHER if most else (*TOGETHER, *SAME_SETS)
        apart = position if configuration["model"] in CONVOLUTIONAL else None
        if configuration.get("sampling") == "shortened":
            entries = (*entries, "set_priors")  # on which the sizes depend
        shared = frozen({name: configuration.get(name) for name in dict.fromkeys(entries)})
        alike.setdefault((shared, apart), []).append(configuration)
    jobs = [Job(tuple(part)) for group in alike.values() for part in _parts(group, most or len(group))]
    order = {name: place for place, name in enumerate(dict.fromkeys(job.first["dataset"] for job in jobs))}
    return sorted(jobs, key=lambda job: order[job.first["dataset"]])


def _parts(configurations: Sequence[Configuration], most: int) -> list[list[Configuration]]:
    """As few parts as possible, of about one size; runs that share their sets stay together where that can be."""
    groups: dict[Any, list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(frozen({name: configuration[name] for name in SAME_SETS}), []).append(configuration)
    total = len(configurations)
    target = math.ceil(total / math.ceil(total / most))
    parts: list[list[Configuration]] = [[]]
    for group in groups.values():
        for piece in (group[start : start + most] for start in range(0, len(group), most)):
            if parts[-1] and (len(parts[-1]) >= target or len(parts[-1]) + len(piece) > most):
                parts.append([])
            parts[-1] += piece
    return parts


def halves(job: Job) -> list[Job]:
    """The job as two smaller ones."""
    middle = math.ceil(len(job.configurations) / 2)
    return [Job(job.configurations[:middle]), Job(job.configurations[middle:])]


def frozen(configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    """A configuration, or a part of one, as something that can be a key."""
    return tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in configuration.items()))
