"""Trains the runs of a job: dense models together in a batch, a convolutional model alone."""

from __future__ import annotations

import contextlib
import functools
import math
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn._version import __version__
from uulearn.data import DenseRows, TwoSets
from uulearn.datasets import BinaryTask, UnlabeledSets, make_sets
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import build_model
from uulearn.reproduction.experiments import CONVOLUTIONAL, Configuration
from uulearn.reproduction.jobs import Record, Reporter, TrainingJob
from uulearn.reproduction.sampling import Indices, hold_out, shortened_sets
from uulearn.risk import UURisk
from uulearn.risk.corrections import DEFAULT_SLOPE
from uulearn.training import History, RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.randomness import isolated_rng

KERAS_MOMENTUM = 0.01
"""Keras's batch normalization keeps 0.99 of its statistics per step; torch specifies the fraction that is replaced."""
KERAS_EPSILON = 1e-7
"""Epsilon of Keras's Adam."""
PIXEL_SCALE = 1 / 255
RECORDED_CURVES = (
    "positive", "negative", "unbiased", "objective", "zero_one", "positive_below_zero", "negative_below_zero",
    "test_accuracy", "test_risk", "validation_unbiased", "validation_corrected", "validation_zero_one",
)  # fmt: skip
"""Curves of a record. ``corrected`` is ``objective``, except for the biased method, where it is ``unbiased``."""


class JobTrainer:
    """Trains jobs of one dataset; the images and the sets drawn so far are shared by its runs."""

    def __init__(self, task: BinaryTask, device: torch.device, reporter: Reporter) -> None:
        self.task, self.device, self.reporter = task, device, reporter
        self.images, self.test_images = torch.from_numpy(task.X_train), torch.from_numpy(task.X_test)
        self.test_labels = torch.from_numpy(task.y_test)
        self._sets: dict[Any, UnlabeledSets] = {}

    def train(self, job: TrainingJob) -> list[Record]:
        """Train a job and return the records of its runs."""
        for configuration in job.configurations:
            self._check(configuration)
        batched = job.first["model"] not in CONVOLUTIONAL
        started = time.perf_counter()
        histories, dtype = self._train_batched(job) if batched else self._train_single(job)
        seconds = (time.perf_counter() - started) / len(histories)
        engine = f"stack of {len(histories)}" if batched else "single"  # "stack" is the word of the stored records
        environment = self._environment() | {"engine": engine, "precision": str(dtype).removeprefix("torch.")}
        return [
            {
                "configuration": configuration,
                "curves": {
                    name: history.column(name) for name in RECORDED_CURVES if not len(history) or name in history[0]
                },
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
                f"{configuration['dataset']}: expected a class prior of {expected:g} in the test data, found "
                f"{found:g}; use the published files."
            )
        if configuration["dropout"] and configuration["model"] != "mlp":
            raise ValueError(f"model {configuration['model']!r} has no dropout, got {configuration['dropout']:g}.")

    def _train_batched(self, job: TrainingJob) -> tuple[list[History], torch.dtype]:
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

    def _train_single(self, job: TrainingJob) -> tuple[list[History], torch.dtype]:
        first = job.first
        rows, held_out = self._rows(first)
        table = DenseRows(self.images)
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
        with contextlib.suppress(NonFiniteRiskError):  # the history records it, and the epochs before it count
            trainer.run()
        return [trainer.history], trainer.dtype

    def _options(self, configuration: Configuration) -> RunOptions:
        single = configuration["model"] in CONVOLUTIONAL
        adam = configuration["optimizer"] == "adam"
        decay = configuration["lr_decay"] if single else 0.0  # batched runs have one each
        return RunOptions(
            epochs=configuration["epochs"],
            batch_size=configuration["batch_size"],
            lr=configuration["lr"],
            optimizer=configuration["optimizer"],
            optimizer_params={"eps": KERAS_EPSILON} if adam else {"momentum": configuration["momentum"]},
            scheduler=_keras_decay(decay) if decay else None,
            scheduler_interval="batch",
            l2=configuration["l2"],
            ema=None,
            compile=single and self.device.type == "cuda",
            graph=single and self.device.type == "cuda" and not decay,
            device=self.device,
            input_scale=PIXEL_SCALE,
            seed=configuration["seed"],
            progress=False,
        )

    def _drawn(self, configuration: Configuration) -> UnlabeledSets:
        """The sets of a run: the same for all methods, with and without held-out rows."""
        priors, sizes, seed = tuple(configuration["set_priors"]), tuple(configuration["sizes"]), configuration["seed"]
        sampling = configuration.get("sampling", "without_replacement")
        if (priors, sizes, seed, sampling) not in self._sets:
            numbers = np.arange(len(self.task.y_train))[:, None]  # instead of the images, which would be copied
            draw = shortened_sets if sampling == "shortened" else functools.partial(make_sets, scheme=sampling)
            self._sets[priors, sizes, seed, sampling] = draw(
                numbers, self.task.y_train, priors, sizes, random_state=seed
            )
        return self._sets[priors, sizes, seed, sampling]

    def _rows(self, configuration: Configuration) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """Indices of the training rows and of the held-out rows."""
        sets = self._drawn(configuration).indices
        if not configuration["held_out"]:
            return _as_tensors(sets), None
        training, held_out = hold_out(sets, configuration["held_out"], configuration["seed"])
        return _as_tensors(training), _as_tensors(held_out)

    def _test(self, configuration: Configuration) -> tuple[Tensor, Tensor]:
        """The labeled test rows; the quick version takes some, evenly spread, because files may be sorted by class."""
        n, wanted = len(self.test_labels), configuration.get("test_rows")
        if not wanted or wanted >= n:
            return self.test_images, self.test_labels
        chosen = torch.arange(wanted) * n // wanted
        return self.test_images[chosen], self.test_labels[chosen]

    def _facts(self, configuration: Configuration) -> dict[str, Any]:
        drawn, (rows, held_out) = self._drawn(configuration), self._rows(configuration)
        return {
            "realised_priors": list(drawn.realized_priors),
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
            "numpy": np.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(self.device) if on_cuda else platform.machine(),
            "cuda": str(torch.version.cuda) if on_cuda else "none",
            "capability": ".".join(map(str, torch.cuda.get_device_capability(self.device))) if on_cuda else "cpu",
        }


def _as_tensors(indices: tuple[Indices, Indices]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(indices[0]), torch.from_numpy(indices[1])


def model_params(configuration: Configuration) -> dict[str, Any] | None:
    """Parameters of the model of a run."""
    if configuration["model"] == "linear":
        return None
    initialiser = configuration.get("initialiser")
    momentum = {"momentum": configuration.get("norm_momentum", KERAS_MOMENTUM)}
    return momentum | ({"initializer": initialiser} if initialiser else {})


def _slope(configuration: Configuration) -> float:
    return DEFAULT_SLOPE if configuration["slope"] is None else float(configuration["slope"])


def _keras_decay(decay: float) -> Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]:
    """Learning rate lr / (1 + decay·t) at step t."""
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + decay * step))
