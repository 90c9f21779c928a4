"""Train the runs that are missing from a store: dense models in batches, convolutional models one at a time.

A job is stored as soon as it finishes, so only the current job is lost if the process is interrupted. Several processes
can share a store; before each job, a process checks which of its runs are still missing.
"""

import contextlib
import functools
import gc
import math
import platform
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uulearn._version import __version__
from uulearn.data import DenseRows, TwoSets
from uulearn.datasets import BinaryTask, UnlabeledSets, make_sets
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import build_model
from uulearn.reproduction.experiments import CONVOLUTIONAL, Configuration
from uulearn.reproduction.jobs import MAX_BATCHED_RUNS, ExperimentJob, Reporter, halves, plan_jobs
from uulearn.reproduction.sampling import Indices, hold_out, shortened_sets
from uulearn.reproduction.store import Record, RunStore, key
from uulearn.risk import UURisk
from uulearn.risk.corrections import DEFAULT_SLOPE
from uulearn.training import History, RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.randomness import isolated_rng

KERAS_MOMENTUM = 0.01
"""Momentum of batch normalization; 0.99 in Keras corresponds to 0.01 in PyTorch."""
KERAS_EPSILON = 1e-7
"""Epsilon of Keras's Adam."""
PIXEL_SCALE = 1 / 255
RECORDED_CURVES = (
    "positive", "negative", "unbiased", "objective", "zero_one", "positive_below_zero", "negative_below_zero",
    "test_accuracy", "test_risk", "validation_unbiased", "validation_corrected", "validation_zero_one",
)  # fmt: skip
"""Curves in a record. The corrected risk is not stored, because it equals ``objective`` or ``unbiased``."""


class JobTrainer:
    """Trainer for the jobs of one dataset; all jobs share the images and the cached unlabeled sets."""

    def __init__(self, task: BinaryTask, device: torch.device, reporter: Reporter) -> None:
        self.task, self.device, self.reporter = task, device, reporter
        self.images, self.test_images = torch.from_numpy(task.X_train), torch.from_numpy(task.X_test)
        self.test_labels = torch.from_numpy(task.y_test)
        self._sets: dict[Any, UnlabeledSets] = {}

    def train(self, job: ExperimentJob) -> list[Record]:
        """Train a job and return the records of its runs."""
        expected, found = job.first["target_prior"], self.task.prior
        if not math.isclose(expected, found, abs_tol=1e-9):
            place = f"{job.first['dataset']}: expected a class prior of {expected:g} in the test data"
            raise ValueError(f"{place}, found {found:g}; use the published files.")
        batched = job.first["model"] not in CONVOLUTIONAL
        started = time.perf_counter()
        histories, dtype = self._train_batched(job) if batched else self._train_single(job)
        seconds = (time.perf_counter() - started) / len(histories)
        engine = f"stack of {len(histories)}" if batched else "single"  # "stack" is the word of the stored records
        environment = self._environment() | {"engine": engine, "precision": str(dtype).removeprefix("torch.")}
        records = []
        for configuration, history in zip(job.configurations, histories, strict=True):
            names = [name for name in RECORDED_CURVES if not len(history) or name in history[0]]
            record: Record = {"configuration": configuration, "curves": {name: history.column(name) for name in names}}
            record |= {"stop_reason": history.stop_reason, "facts": self._facts(configuration)}
            records.append(record | {"environment": environment, "seconds": round(seconds, 3)})
        return records

    def _train_batched(self, job: ExperimentJob) -> tuple[list[History], torch.dtype]:
        first = job.first
        test_images, test_labels = self._test(first)
        trainer = BatchedTrainer(
            self.images.flatten(1),
            [self._batched_run(configuration) for configuration in job.configurations],
            model=first["model"],
            model_params=model_params(first),
            loss=first["loss"],
            options=self._options(first),
            test=(test_images.flatten(1), test_labels),
            callback=lambda epoch, records: self.reporter.epoch(job, epoch, [r["test_accuracy"] for r in records]),
        )
        return trainer.run(), trainer.dtype

    def _batched_run(self, configuration: Configuration) -> Run:
        rows, held_out = self._rows(configuration)
        entries = {name: configuration[name] for name in ("set_priors", "target_prior", "method", "seed", "lr", "l2")}
        dropout = configuration["dropout"] if configuration["model"] == "mlp" else None
        decay, slope = configuration["lr_decay"], _slope(configuration)
        return Run(rows, **entries, slope=slope, lr_decay=decay, dropout=dropout, held_out=held_out)

    def _train_single(self, job: ExperimentJob) -> tuple[list[History], torch.dtype]:
        first, table = job.first, DenseRows(self.images)
        rows, held_out = self._rows(first)
        with isolated_rng(first["seed"]):
            model = build_model(first["model"], self.task.row_shape, model_params(first))
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
        with contextlib.suppress(NonFiniteRiskError):  # the history records the failure and earlier epochs
            trainer.run()
        return [trainer.history], trainer.dtype

    def _options(self, configuration: Configuration) -> RunOptions:
        single = configuration["model"] in CONVOLUTIONAL
        adam, on_cuda = configuration["optimizer"] == "adam", self.device.type == "cuda"
        decay = configuration["lr_decay"] if single else 0.0  # batched runs have their own decays
        return RunOptions(
            **{name: configuration[name] for name in ("epochs", "batch_size", "lr", "optimizer", "l2", "seed")},
            optimizer_params={"eps": KERAS_EPSILON} if adam else {"momentum": configuration["momentum"]},
            scheduler=functools.partial(_keras_decay, decay=decay) if decay else None,
            scheduler_interval="batch",
            ema=None,
            compile=single and on_cuda,
            graph=single and on_cuda and not decay,
            device=self.device,
            input_scale=PIXEL_SCALE,
            progress=False,
        )

    def _drawn(self, configuration: Configuration) -> UnlabeledSets:
        """Return the unlabeled sets of a run, which do not depend on the method or on the held-out fraction."""
        priors, sizes, seed = tuple(configuration["set_priors"]), tuple(configuration["sizes"]), configuration["seed"]
        place = priors, sizes, seed, configuration.get("sampling", "without_replacement")
        if place not in self._sets:
            numbers = np.arange(len(self.task.y_train))[:, None]  # use indices, because images would be copied
            draw = shortened_sets if place[-1] == "shortened" else functools.partial(make_sets, scheme=place[-1])
            self._sets[place] = draw(numbers, self.task.y_train, priors, sizes, random_state=seed)
        return self._sets[place]

    def _rows(self, configuration: Configuration) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """Return the indices of the training rows and of the held-out rows."""
        sets = self._drawn(configuration).indices
        if not configuration["held_out"]:
            return _as_tensors(sets), None
        training, held_out = hold_out(sets, configuration["held_out"], configuration["seed"])
        return _as_tensors(training), _as_tensors(held_out)

    def _test(self, configuration: Configuration) -> tuple[Tensor, Tensor]:
        """Return the labeled test rows. The quick version uses evenly spaced rows, as files may be sorted by class."""
        n, wanted = len(self.test_labels), configuration.get("test_rows")
        if not wanted or wanted >= n:
            return self.test_images, self.test_labels
        chosen = torch.arange(wanted) * n // wanted
        return self.test_images[chosen], self.test_labels[chosen]

    def _facts(self, configuration: Configuration) -> dict[str, Any]:
        drawn, (rows, held_out) = self._drawn(configuration), self._rows(configuration)
        facts = {"overlap": drawn.overlap, "repeats": list(drawn.repeats), "n_test": len(self._test(configuration)[1])}
        facts |= {"trained_sizes": list(map(len, rows)), "held_out_sizes": list(map(len, held_out or ((), ())))}
        return facts | {"realised_priors": list(drawn.realized_priors)}

    def _environment(self) -> dict[str, str]:
        versions = {"uulearn": __version__, "torch": torch.__version__, "numpy": np.__version__}
        versions["python"] = platform.python_version()
        if self.device.type == "cpu":
            return versions | {"device": platform.machine(), "cuda": "none", "capability": "cpu"}
        capability = ".".join(map(str, torch.cuda.get_device_capability(self.device)))
        name = torch.cuda.get_device_name(self.device)
        return versions | {"device": name, "cuda": str(torch.version.cuda), "capability": capability}


def _as_tensors(indices: tuple[Indices, Indices]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(indices[0]), torch.from_numpy(indices[1])


def model_params(configuration: Configuration) -> dict[str, Any] | None:
    """Return the model parameters of a run."""
    if configuration["model"] == "linear":
        return None
    initializer = configuration.get("initialiser")  # spelling of the stored records; vocabulary: ok
    momentum = {"momentum": configuration.get("norm_momentum", KERAS_MOMENTUM)}
    return momentum | ({"initializer": initializer} if initializer else {})


def _slope(configuration: Configuration) -> float:
    return DEFAULT_SLOPE if configuration["slope"] is None else float(configuration["slope"])


def _keras_decay(optimizer: torch.optim.Optimizer, decay: float) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a scheduler that sets the learning rate to lr / (1 + decay·t) at step t."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))


class ReproductionOutcome(NamedTuple):
    """Numbers of runs that were trained, that were already stored, and that stopped because of a non-finite risk."""

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
    """Train all configurations that are missing from the store, and store the results.

    ``tasks`` is a function that loads a dataset by name, such as `uulearn.datasets.load_task`; it is called once per
    dataset with missing runs. ``max_runs`` is the maximum number of runs in a job on CUDA.
    """
    wanted = list(configurations)
    missing = [dict(configuration) for configuration in store.missing(wanted)]
    place, reporter = choose_device(device), reporter or Reporter()
    jobs = plan_jobs(missing, max_runs if place.type == "cuda" else None)
    found = len(set(map(key, wanted))) - len(missing)
    reporter.begin(jobs, found)
    done = not_finite = 0
    for dataset in dict.fromkeys(job.first["dataset"] for job in jobs):
        reporter.load(dataset)
        trainer = JobTrainer(tasks(dataset), place, reporter)
        for planned in [job for job in jobs if job.first["dataset"] == dataset]:
            # Another process may have trained some of the runs in the meantime.
            job = ExperimentJob(tuple(map(dict, store.missing(planned.configurations))))
            started = time.perf_counter()
            records = train_in_parts(trainer, job) if job.configurations else []
            done += sum(store.add_all(records))
            not_finite += sum("not finite" in record["stop_reason"] for record in records)
            reporter.finish(planned, records, time.perf_counter() - started)
        del trainer  # frees the dataset before the next one is read
    return ReproductionOutcome(done, found, not_finite)


def train_in_parts(trainer: JobTrainer, job: ExperimentJob) -> list[Record]:
    """Train the runs of a job together, or in halves if they do not fit into GPU memory."""
    try:
        return trainer.train(job)
    except torch.cuda.OutOfMemoryError:
        if len(job.configurations) == 1:
            raise
    gc.collect()  # outside the except block, so that the exception no longer references the memory
    torch.cuda.empty_cache()
    return [record for half in halves(job) for record in train_in_parts(trainer, half)]


def choose_device(device: str) -> torch.device:
    """Return the PyTorch device with this name; ``"auto"`` selects CUDA if it is available."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}.")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but no CUDA device is available; use 'auto'.")
    return torch.device(device)
