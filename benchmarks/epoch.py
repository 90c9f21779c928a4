"""Time one training epoch of the paper's MLP (784-300-300-300-300-1, batch normalization) and of the linear model.

The data are 60,000 × 784 float32 values, two sets of 30,000 (MNIST, or random pixels of the same sparsity), in batches
of 3,000, trained with Adam. Five contenders run, by default, 7 rounds of one epoch each after one warm-up epoch each.
The results are medians and quartiles of the seconds, and medians of the ratios within a round:

* ``uulearn``: the loop of `UUClassifier` with default settings (``precision="auto"``), except the learning rate
* ``uulearn float32``: the same with ``precision="float32"``
* ``DataLoader loop``: two shuffled `DataLoader`s side by side, one joint forward pass
* ``skorch``: `NeuralNet` with the risk as a custom criterion of scores and set memberships
* ``tight loop``: tensors in memory, index permutations, fused Adam; the speed of carefully written float32 code
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
import torch

from baselines import MODELS, DataLoaderLoop, TightLoop, check_risk, skorch_net
from common import (
    BATCH_SIZE,
    LEAKY,
    LR,
    SET_PRIORS,
    TARGET_PRIOR,
    Bar,
    Section,
    Settings,
    interleave,
    print_table,
    summarize,
)
from pixels import TwoSetsOfPixels, two_sets
from uulearn import UUClassifier, UURisk
from uulearn.data import DenseRows, TwoSets
from uulearn.exceptions import UUWarning
from uulearn.models import build_model
from uulearn.training import RunOptions, Trainer, TrainingOptions
from uulearn.training.precision import cpu_multiplies_bfloat16

PRECISIONS = {"uulearn": "auto", "uulearn float32": "float32"}
BARS = {"mlp": {"DataLoader loop": 1.9, "skorch": 2.2}, "linear": {"DataLoader loop": 4.0}}


class SteppedTrainer(Trainer):
    """The training loop of `UUClassifier`, run one epoch at a time so that contenders can alternate."""

    def one_epoch(self) -> None:
        """Run one epoch as `run` does: shuffle, gather, train, record."""
        self._epoch(len(self.history) + 1)


def stepped(model: str, precision: str, data: TwoSetsOfPixels) -> SteppedTrainer:
    """Return the trainer that `UUClassifier` would create."""
    torch.manual_seed(0)
    return SteppedTrainer(
        build_model(model, data.X.shape[1:]),
        TwoSets((DenseRows(torch.from_numpy(data.first)), DenseRows(torch.from_numpy(data.second)))),
        UURisk(SET_PRIORS, TARGET_PRIOR, LEAKY["loss"], LEAKY["method"]),
        RunOptions(lr=LR, batch_size=BATCH_SIZE, precision=precision),
    )


def check_against_estimator(model: str, precision: str, data: TwoSetsOfPixels, trainer: Trainer) -> dict[str, Any]:
    """Fit the estimator for one epoch; check that it does the same work, and measure its other costs."""
    classifier = UUClassifier(
        SET_PRIORS,
        TARGET_PRIOR,
        model=model,
        **LEAKY | {"lr": LR},
        training=TrainingOptions(precision=precision),
        epochs=1,
        device="cpu",
        random_state=0,
    )
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)  # random pixels have the same distribution in both sets
        classifier.fit_sets(data.first, data.second)
    total = time.perf_counter() - started
    if (used := classifier.fitted_params()["batch_size"]) != BATCH_SIZE:
        raise AssertionError(f"the estimator's default batch size is {used}, not {BATCH_SIZE}")
    resolved = str(trainer.dtype).removeprefix("torch.")
    if classifier.precision_ != resolved or type(classifier.model_) is not type(trainer.model):
        raise AssertionError(f"the estimator used {classifier.precision_}, the timed loop {resolved}")
    epoch = float(classifier.history_[0]["seconds"])
    return {"precision": resolved, "first_epoch_seconds": epoch, "fit_seconds_beside_epochs": total - epoch}


def compare(model: str, data: TwoSetsOfPixels, rounds: int) -> dict[str, Any]:
    """Compare all contenders for one model."""
    trainers = {name: stepped(model, precision, data) for name, precision in PRECISIONS.items()}
    checks = {name: check_against_estimator(model, PRECISIONS[name], data, t) for name, t in trainers.items()}
    sets = np.repeat(np.array([0, 1]), (len(data.first), len(data.second)))
    net = skorch_net(MODELS[model](), batch_size=BATCH_SIZE)
    seconds = interleave(
        {
            **{name: trainer.one_epoch for name, trainer in trainers.items()},
            "DataLoader loop": DataLoaderLoop(MODELS[model](), data.first, data.second).epoch,
            "skorch": partial(net.partial_fit, data.X, sets),
            "tight loop": TightLoop(MODELS[model](), data.first, data.second).epoch,
        },
        rounds,
    )
    return summarize(seconds, list(PRECISIONS)) | {"estimator": checks}


def run(settings: Settings) -> Section:
    """Measure, print and return the results."""
    check_risk()
    n_each = 600 if settings.quick else 30_000
    rounds = settings.repeats(full=7, quick=2)
    data = two_sets(n_each)
    section = Section(
        {"rows": [n_each, n_each], "columns": data.X.shape[1], "data": data.source, "rounds": rounds}
        | {"batch_size": BATCH_SIZE, "lr": LR, "set_priors": SET_PRIORS, "target_prior": TARGET_PRIOR},
        {},
    )
    for model, limits in BARS.items():
        result = section.results[model] = compare(model, data, rounds)
        precision = result["estimator"]["uulearn"]["precision"]
        print_table(f"one epoch, {model}, {2 * n_each:,} rows of {data.source} ('auto' is {precision})", result)
        for rival, limit in limits.items():
            # The bars for the MLP were set for processors with bfloat16 instructions.
            applies = model != "mlp" or cpu_multiplies_bfloat16()
            note = "" if applies else "no bfloat16 instructions"
            name = f"{model} epoch, times as fast as {rival}"
            value = result["speedup"]["uulearn"][rival]
            section.bars.append(Bar(name, value, limit, True, applies and not settings.quick, note))
    return section
