"""Show the progress of ``uulearn reproduce``: finished runs, remaining time, and the accuracy of the current runs."""

import time
from collections.abc import Iterable, Sequence
from typing import Self

from uulearn.cli.progress import ProgressOutput
from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.jobs import ExperimentJob, Reporter
from uulearn.reproduction.store import Record
from uulearn.training.progress import format_duration


class ReproductionProgress(Reporter):
    """Reporter that counts runs and estimates the remaining time from the cost of the finished epochs."""

    def __init__(self, output: ProgressOutput) -> None:
        self.output = output
        self.total = self.found = self.done = 0
        self._cost = self._finished = self._current = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.output.close()

    def begin(self, jobs: Sequence[ExperimentJob], found: int) -> None:
        """Count the runs and their total cost."""
        self.found, self.total = found, found + sum(len(job.configurations) for job in jobs)
        self._cost = sum(job.cost for job in jobs)
        self._started = time.monotonic()

    def load(self, dataset: str) -> None:
        """Show which dataset is being read."""
        self.output.show(self.fraction, f"reading {DATASET_NAMES[dataset]}", milestone=True)

    def epoch(self, job: ExperimentJob, epoch: int, accuracies: Sequence[float]) -> None:
        """Show the epoch of the current job; important values come first, as narrow terminals truncate the line."""
        self._current = job.cost * epoch / job.first["epochs"]
        parts = [accuracy_range(accuracies), f"epoch {epoch}/{job.first['epochs']}", describe_job(job)]
        done = f"{self.found + self.done}/{self.total} runs, {self.time_left}"
        self.output.show(self.fraction, f"{done}; {', '.join(filter(None, parts))}")

    def finish(self, job: ExperimentJob, records: Sequence[Record], seconds: float) -> None:
        """Show the result of a finished job."""
        self.done += len(job.configurations)
        self._finished += job.cost
        self._current = 0.0
        result = "done by another process"
        if records:
            last = accuracy_range([value for record in records for value in record["curves"]["test_accuracy"][-1:]])
            result = f"{len(records)} in {format_duration(seconds)}" + (f", accuracy {last}" if last else "")
        done = f"{self.found + self.done} of {self.total} runs"
        self.output.show(self.fraction, f"{done}: {describe_job(job)}: {result}; {self.time_left}", milestone=True)

    @property
    def fraction(self) -> float:
        """Fraction of the work that is finished."""
        return (self._finished + self._current) / self._cost if self._cost else 1.0

    @property
    def time_left(self) -> str:
        """The estimated remaining time as text."""
        if self.fraction == 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._started) * (1 - self.fraction) / self.fraction
        return f"{format_duration(seconds)} left"


def describe_job(job: ExperimentJob) -> str:
    """Return a short description of the runs of a job.

    >>> one = {"dataset": "mnist", "model": "mlp", "set_priors": [0.8, 0.2], "seed": 0, "held_out": 0, "method": "abs",
    ...        "loss": "logistic"}
    >>> other = one | {"set_priors": [0.7, 0.3], "seed": 4}
    >>> describe_job(ExperimentJob((one,))), describe_job(ExperimentJob((one, other)))
    ('MNIST mlp abs (0.8, 0.2) seed 0', 'MNIST mlp (0.8, 0.2) (0.7, 0.3) seeds 0 to 4')
    """
    first = job.first
    priors = dict.fromkeys(f"({', '.join(f'{p:g}' for p in c['set_priors'])})" for c in job.configurations)
    seeds = sorted({c["seed"] for c in job.configurations})
    seed_text = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    method = [first["method"]] if len(job.configurations) == 1 else []
    method += [first["loss"]] if first["loss"] != "logistic" else []
    words = [DATASET_NAMES[first["dataset"]], first["model"], *method, *priors, seed_text]
    return " ".join(words) + (", to choose λ" if first["held_out"] else "")


def accuracy_range(accuracies: Iterable[float]) -> str:
    """Return the lowest and the highest accuracy in percent, or an empty string if there are none.

    >>> accuracy_range([0.5, 0.75, float("nan")]), accuracy_range([0.5]), accuracy_range([])
    ('50.0 to 75.0%', '50.0%', '')
    """
    values = [100 * value for value in accuracies if value == value]
    if not values:
        return ""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low}%" if low == high else f"{low} to {high}%"
