"""Group runs into jobs that are trained together, and define the progress callbacks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from uulearn.reproduction.experiments import CONVOLUTIONAL, Configuration
from uulearn.reproduction.store import Record, key

SHARED_ENTRIES = (
    "dataset", "model", "loss", "optimizer", "momentum", "batch_size", "epochs", "sizes", "held_out", "test_rows",
    "sampling", "initialiser", "norm_momentum",  # vocabulary: ok
)  # fmt: skip
"""Configuration entries that must be the same for all runs of a batched job."""
SAME_SETS = ("set_priors", "seed")
"""Entries that must also be the same in a CPU job, because large jobs are not much faster on the CPU."""
MAX_BATCHED_RUNS = 150
"""Maximum number of runs in one job on CUDA."""
EPOCH_COSTS = {"linear": 1.0, "mlp": 7.0, "resnet32": 1_800.0, "allconvnet": 2_700.0}
"""Approximate relative training time of each model, used to estimate the remaining time."""


@dataclass(frozen=True)
class ExperimentJob:
    """Runs that are trained together: many runs of a dense model, or one run of a convolutional model."""

    configurations: tuple[Configuration, ...]

    @property
    def first(self) -> Configuration:
        """The first configuration, used to look up entries that all configurations share."""
        return self.configurations[0]

    @property
    def cost(self) -> float:
        """Approximate training time in arbitrary units."""
        first = self.first
        return float(len(self.configurations) * EPOCH_COSTS[first["model"]] * first["epochs"] * sum(first["sizes"]))


class Reporter:
    """Base class for progress callbacks; its methods do nothing."""

    def begin(self, jobs: Sequence[ExperimentJob], found: int) -> None:
        """Called before training, with the jobs to train and the number of runs already in the store."""

    def load(self, dataset: str) -> None:
        """Called before a dataset is read."""

    def epoch(self, job: ExperimentJob, epoch: int, accuracies: Sequence[float]) -> None:
        """Called after each epoch of a job, with the test accuracy of each run."""

    def finish(self, job: ExperimentJob, records: Sequence[Record], seconds: float) -> None:
        """Called after the records of a job are stored; ``records`` is empty if another process stored them first."""


def plan_jobs(configurations: Iterable[Configuration], max_runs: int | None) -> list[ExperimentJob]:
    """Group configurations into jobs; the jobs of a dataset are consecutive.

    With ``max_runs``, a job has up to this many runs; otherwise, only runs with the same sets and seed share a job.
    """
    alike: dict[Any, list[Configuration]] = {}
    for position, configuration in enumerate(configurations):
        entries = SHARED_ENTRIES if max_runs else (*SHARED_ENTRIES, *SAME_SETS)
        alone = position if configuration["model"] in CONVOLUTIONAL else None
        if configuration.get("sampling") == "shortened":
            entries = (*entries, "set_priors")  # the sizes depend on them
        shared = key({name: configuration.get(name) for name in entries})
        alike.setdefault((shared, alone), []).append(configuration)
    jobs = [ExperimentJob(tuple(part)) for group in alike.values() for part in _split(group, max_runs or len(group))]
    order = {name: place for place, name in enumerate(dict.fromkeys(job.first["dataset"] for job in jobs))}
    return sorted(jobs, key=lambda job: order[job.first["dataset"]])


def _split(configurations: Sequence[Configuration], max_runs: int) -> list[list[Configuration]]:
    """Split configurations into parts of similar size; if possible, runs on the same sets stay in the same part."""
    groups: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(key({name: configuration[name] for name in SAME_SETS}), []).append(configuration)
    total = len(configurations)
    target = math.ceil(total / math.ceil(total / max_runs))
    parts: list[list[Configuration]] = [[]]
    for group in groups.values():
        for piece in (group[start : start + max_runs] for start in range(0, len(group), max_runs)):
            if parts[-1] and (len(parts[-1]) >= target or len(parts[-1]) + len(piece) > max_runs):
                parts.append([])
            parts[-1] += piece
    return parts


def halves(job: ExperimentJob) -> list[ExperimentJob]:
    """Split the job into two smaller jobs."""
    middle = math.ceil(len(job.configurations) / 2)
    return [ExperimentJob(job.configurations[:middle]), ExperimentJob(job.configurations[middle:])]
