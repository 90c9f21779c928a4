"""Runs what a store does not hold yet: dense models in stacks, convolutional ones one after another.

A finished stack or run is in the store at once, so that whatever ends the process loses only what was being trained.
Several processes may work on one store; each looks again before it begins a stack.
"""

from __future__ import annotations

import contextlib
import functools
import math
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uulearn._version import __version__
from uulearn.datasets import BinaryTask, UnlabeledSets, make_sets
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import build_model
from uulearn.paper.experiments import CONVOLUTIONAL, Configuration
from uulearn.paper.sampling import hold_out, shortened_sets
from uulearn.paper.store import RunStore
from uulearn.risk import UURisk
from uulearn.risk.corrections import DEFAULT_SLOPE
from uulearn.training import DenseRows, History, Trainer, TrainingOptions, TwoSets
from uulearn.training.stack import Run, StackTrainer

Record = dict[str, Any]

TOGETHER = (
    "dataset", "model", "loss", "optimizer", "momentum", "batch_size", "epochs", "sizes", "held_out", "test_rows",
    "sampling", "initialiser",
)  # fmt: skip
"""What all runs of a stack must have in common."""
SAME_SETS = ("set_priors", "seed")
"""What they have in common beside it on the CPU, where a stack gains little by being large and loses more when cut."""
MOST_RUNS = 150
"""Of a stack on CUDA."""
COSTS = {"linear": 1.0, "mlp": 7.0, "resnet32": 1_800.0, "allconvnet": 2_700.0}
"""Rough relative times of an epoch, for the time left."""
KERAS_MOMENTUM = 0.01
"""Keras's batch normalisation keeps 0.99 of its statistics each step; torch states the share that is replaced."""
KERAS_EPSILON = 1e-7  # of Adam
PIXEL_SCALE = 1 / 255
KEPT = (
    "positive", "negative", "unbiased", "objective", "zero_one", "positive_below_zero", "negative_below_zero",
    "test_accuracy", "test_risk", "validation_unbiased", "validation_corrected", "validation_zero_one",
)  # fmt: skip
"""Curves of a record. ``corrected`` is ``objective``, but for the biased method, where it is ``unbiased``."""


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


class Outcome(NamedTuple):
    """How many runs were done now, how many were in the store before, and how many of the former ended early."""

    done: int
    found: int
    not_finite: int


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
        As `uulearn.paper.experiments` makes them.
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
    found = len({_frozen(configuration) for configuration in wanted}) - len(missing)
    reporter.begin(jobs, found)
    done = not_finite = 0
    for dataset in dict.fromkeys(job.first["dataset"] for job in jobs):
        reporter.load(dataset)
        bench = _Bench(tasks(dataset), place, reporter)
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


# Which runs are trained together


def plan_jobs(configurations: Iterable[Configuration], most: int | None) -> list[Job]:
    """Sort configurations into jobs, those of a dataset one after another.

    With ``most``, stacks are as large as they may be; without, only runs on the same sets with the same seed share one.

    Examples
    --------
    >>> from uulearn.paper.experiments import Request, runs_of
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
        shared = _frozen({name: configuration.get(name) for name in dict.fromkeys(entries)})
        alike.setdefault((shared, apart), []).append(configuration)
    jobs = [Job(tuple(part)) for group in alike.values() for part in _parts(group, most or len(group))]
    order = {name: place for place, name in enumerate(dict.fromkeys(job.first["dataset"] for job in jobs))}
    return sorted(jobs, key=lambda job: order[job.first["dataset"]])


def _parts(configurations: Sequence[Configuration], most: int) -> list[list[Configuration]]:
    """As few parts as possible, of about one size; runs that share their sets stay together where that can be."""
    groups: dict[Any, list[Configuration]] = {}
    for configuration in configurations:
        groups.setdefault(_frozen({name: configuration[name] for name in SAME_SETS}), []).append(configuration)
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


def _frozen(configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in configuration.items()))


# How they are trained


class _Bench:
    """One dataset with what its runs share: pixels as tensors, and the sets drawn so far."""

    def __init__(self, task: BinaryTask, device: torch.device, reporter: Reporter) -> None:
        self.task, self.device, self.reporter = task, device, reporter
        self.images, self.test_images = torch.from_numpy(task.X_train), torch.from_numpy(task.X_test)
        self.test_labels = torch.from_numpy(task.y_test)
        self._sets: dict[Any, UnlabeledSets] = {}

    def train(self, job: Job) -> list[Record]:
        """The records of a job's runs."""
        for configuration in job.configurations:
            self._check(configuration)
        stacked = job.first["model"] not in CONVOLUTIONAL
        started = time.perf_counter()
        histories, dtype = self._train_stack(job) if stacked else self._train_alone(job)
        seconds = (time.perf_counter() - started) / len(histories)
        engine = f"stack of {len(histories)}" if stacked else "single"
        environment = self._environment() | {"engine": engine, "precision": str(dtype).removeprefix("torch.")}
        return [
            {
                "configuration": configuration,
                "curves": {name: history.column(name) for name in KEPT if not len(history) or name in history[0]},
                "stop_reason": history.stop_reason,
                "facts": self._facts(configuration),
                "environment": environment,
                "seconds": round(seconds, 3),
            }
            for configuration, history in zip(job.configurations, histories, strict=True)
        ]

    def _check(self, configuration: Configuration) -> None:
        expected, found = configuration["target_prior"], self.task.prior
        if not math.isclose(expected, found, abs_tol=1e-9):
            raise ValueError(
                f"{configuration['dataset']} has a share of {found:g} positives in its test part where the experiments "
                f"have {expected:g}; use the published files."
            )
        if configuration["dropout"] and configuration["model"] != "mlp":
            raise ValueError(f"model {configuration['model']!r} has no dropout, got {configuration['dropout']:g}.")

    # One stack, one run

    def _train_stack(self, job: Job) -> tuple[list[History], torch.dtype]:
        first = job.first
        test_images, test_labels = self._test(first)
        trainer = StackTrainer(
            self.images.flatten(1),
            [self._stacked_run(configuration) for configuration in job.configurations],
            model=first["model"],
            model_params=_model_params(first),
            loss=first["loss"],
            options=self._options(first),
            test=(test_images.flatten(1), test_labels),
            callback=lambda epoch, records: self.reporter.epoch(job, epoch, [r["test_accuracy"] for r in records]),
        )
        return trainer.run(), trainer.dtype

    def _stacked_run(self, configuration: Configuration) -> Run:
        rows, held_out = self._rows(configuration)
        return Run(
            rows,
            configuration["set_priors"],
            configuration["target_prior"],
            method=configuration["method"],
            slope=_slope(configuration),
            seed=configuration["seed"],
            lr=configuration["lr"],
            l2=configuration["l2"],
            lr_decay=configuration["lr_decay"],
            dropout=configuration["dropout"] if configuration["model"] == "mlp" else None,
            held_out=held_out,
        )

    def _train_alone(self, job: Job) -> tuple[list[History], torch.dtype]:
        first = job.first
        rows, held_out = self._rows(first)
        table = DenseRows(self.images)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(first["seed"])
            model = build_model(first["model"], self.task.row_shape, _model_params(first))
        risk = UURisk(first["set_priors"], first["target_prior"], first["loss"], first["method"], _slope(first))
        validation = None
        if held_out is not None:
            sets = torch.repeat_interleave(torch.arange(2), torch.tensor([len(part) for part in held_out]))
            validation = DenseRows(self.images[torch.cat(held_out)]), sets
        test_images, test_labels = self._test(first)
        trainer = Trainer(
            model,
            TwoSets((table, table), rows),
            risk,
            self._options(first),
            validation=validation,
            test=(DenseRows(test_images.to(self.device)), test_labels),
            callback=lambda record, _: self.reporter.epoch(job, record["epoch"], [record["test_accuracy"]]),
        )
        with contextlib.suppress(NonFiniteRiskError):  # the history says so, and what came before is a result
            trainer.run()
        return [trainer.history], trainer.dtype

    def _options(self, configuration: Configuration) -> TrainingOptions:
        alone = configuration["model"] in CONVOLUTIONAL
        adam = configuration["optimizer"] == "adam"
        decay = configuration["lr_decay"] if alone else 0.0  # in a stack each run has its own
        return TrainingOptions(
            epochs=configuration["epochs"],
            batch_size=configuration["batch_size"],
            lr=configuration["lr"],
            optimizer=configuration["optimizer"],
            optimizer_params={"eps": KERAS_EPSILON} if adam else {"momentum": configuration["momentum"]},
            scheduler=_keras_decay(decay) if decay else None,
            scheduler_interval="batch",
            l2=configuration["l2"],
            ema=None,
            compile=alone and self.device.type == "cuda",
            graph=alone and self.device.type == "cuda" and not decay,
            device=self.device,
            input_scale=PIXEL_SCALE,
            seed=configuration["seed"],
            progress=False,
        )

    # Data and facts

    def _drawn(self, configuration: Configuration) -> UnlabeledSets:
        """The sets of a run: the same for all methods, and for runs with and without rows held out."""
        priors, sizes, seed = tuple(configuration["set_priors"]), tuple(configuration["sizes"]), configuration["seed"]
        sampling = configuration.get("sampling", "without_replacement")
        if (priors, sizes, seed, sampling) not in self._sets:
            numbers = np.arange(len(self.task.y_train))[:, None]  # in place of the images, which would be copied
            draw = shortened_sets if sampling == "shortened" else functools.partial(make_sets, scheme=sampling)
            self._sets[priors, sizes, seed, sampling] = draw(
                numbers, self.task.y_train, priors, sizes, random_state=seed
            )
        return self._sets[priors, sizes, seed, sampling]

    def _rows(self, configuration: Configuration) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """Numbers of the rows to train on, and of those held out."""
        drawn = self._drawn(configuration)
        if not configuration["held_out"]:
            first, second = map(torch.from_numpy, drawn.indices)
            return (first, second), None
        kept, held_out = hold_out(drawn.indices, configuration["held_out"], configuration["seed"])
        return (torch.from_numpy(kept[0]), torch.from_numpy(kept[1])), tuple(map(torch.from_numpy, held_out))  # type: ignore[return-value]

    def _test(self, configuration: Configuration) -> tuple[Tensor, Tensor]:
        """The labelled test rows; in a small version some, evenly spread, since a file may be sorted by class."""
        n, wanted = len(self.test_labels), configuration.get("test_rows")
        if not wanted or wanted >= n:
            return self.test_images, self.test_labels
        chosen = torch.arange(wanted) * n // wanted
        return self.test_images[chosen], self.test_labels[chosen]

    def _facts(self, configuration: Configuration) -> dict[str, Any]:
        drawn, (rows, held_out) = self._drawn(configuration), self._rows(configuration)
        return {
            "realised_priors": list(drawn.realised_priors),
            "overlap": drawn.overlap,
            "repeats": list(drawn.repeats),
            "trained_sizes": [len(part) for part in rows],
            "held_out_sizes": [len(part) for part in held_out or ((), ())],
            "n_test": len(self._test(configuration)[1]),
        }

    def _environment(self) -> dict[str, str]:
        on_cuda = self.device.type == "cuda"
        return {
            "uulearn": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(self.device) if on_cuda else platform.machine(),
            "capability": ".".join(map(str, torch.cuda.get_device_capability(self.device))) if on_cuda else "cpu",
        }


def _model_params(configuration: Configuration) -> dict[str, Any] | None:
    if configuration["model"] != "mlp":
        return None
    initialiser = configuration.get("initialiser")
    return {"momentum": KERAS_MOMENTUM} | ({"initialiser": initialiser} if initialiser else {})


def _slope(configuration: Configuration) -> float:
    return DEFAULT_SLOPE if configuration["slope"] is None else float(configuration["slope"])


def _keras_decay(decay: float) -> Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]:
    """lr / (1 + decay·t) at step t."""
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))
