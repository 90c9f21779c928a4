"""How good are the estimates of a default fit, made without labels? Fits with known labels that only measure.

Each fit is that of `uulearn.UUClassifier` with default parameters on rows encoded as by ``uulearn fit``. Stored per
fit, all at the target prior:

* the accuracy and AUC of the ensemble on labeled test rows (``truth``), with the label-free estimates and intervals;
* the mean accuracy of the models of the folds, used alone (``single``): an out-of-fold estimate measures these models,
  and the ensemble may be better;
* the calibration error of the probabilities on test rows, and their spread.

Datasets are simulated (five kinds), embedded in scikit-learn (two), and images if their files are found (40 principal
components of MNIST, Fashion-MNIST and KMNIST as in the paper). All images of a dataset are first split at random into
rows for the sets and test rows, because KMNIST's own test images are harder than its training images. Fits are
independent, run in ``--jobs`` processes of one thread, and stored when they are finished; none is run twice.
``--summary`` prints a table of the stored fits. Seeds below 200 were used to develop the estimates; the stored seeds
start at 200.

    python benchmarks/study/coverage.py [--jobs 12] [--device cuda] [--minutes 8] [--seeds 15] [--summary] [--quick]
"""

from __future__ import annotations

import argparse
import functools
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import records
import tables
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_options, complete, out_of

from uulearn import UUClassifier
from uulearn.datasets import DatasetNotFoundError, load_task
from uulearn.exceptions import UUWarning
from uulearn.metrics import evaluate_labeled
from uulearn.metrics.calibration import calibration_error
from uulearn.reproduction.store import normalized
from uulearn.tabular import TableEncoder

STORE = STUDY / "coverage.jsonl"
CLOSE, FAR = (0.6, 0.4), (0.8, 0.2)
IMAGES = ("mnist", "fashion_mnist", "kmnist")
COMPONENTS = 40
TEST_ROWS = 20_000
FIRST_SEED, SEEDS = 200, 11

Rows = NDArray[np.float64]
Labels = NDArray[np.bool_]
Pool = Callable[[np.random.Generator, Labels], Rows]


# ------------------------------------------------------------------------------------------------- rows with labels


def _gaussian(distance: float, columns: int) -> Pool:
    """Return a pool of two Gaussian classes whose means are ``distance`` standard deviations apart."""

    def draw(rng: np.random.Generator, y: Labels) -> Rows:
        X = rng.normal(size=(len(y), columns))
        X += (y[:, None] - 0.5) * distance / np.sqrt(columns)
        return X

    return draw


def _rings(rng: np.random.Generator, y: Labels) -> Rows:
    """Draw the positives around the negatives, in six columns."""
    return rng.normal(size=(len(y), 6)) * np.where(y, 1.9, 1.0)[:, None]


def _xor(rng: np.random.Generator, y: Labels) -> Rows:
    """Draw two clusters per class at the corners of a square, with four columns of noise."""
    X = rng.normal(size=(len(y), 6))
    first = rng.choice([-1.0, 1.0], len(y))
    X[:, 0] += 1.6 * first
    X[:, 1] += 1.6 * np.where(y, first, -first)
    return X


def _skewed(rng: np.random.Generator, y: Labels) -> Rows:
    """Draw counts and long-tailed amounts, where only some columns differ between the classes."""
    return np.column_stack(
        [
            rng.lognormal(0.9 * y, 1.0),
            rng.gamma(1.5 + 1.5 * y, 2.0),
            rng.poisson(2.0 + 2.0 * y),
            rng.random(len(y)) < np.where(y, 0.6, 0.35),
            rng.standard_t(3, size=(len(y), 5)),
        ]
    )


SIMULATED: dict[str, Pool] = {
    "gaussian": _gaussian(2.1, 10),
    "weak": _gaussian(1.1, 20),
    "rings": _rings,
    "xor": _xor,
    "skewed": _skewed,
}


class Labeled:
    """Rows of a dataset to draw sets from, and rows with labels to measure on."""

    def __init__(self, name: str, data_dir: Path | None) -> None:
        self.name, self.simulate = name, SIMULATED.get(name)
        if self.simulate is None:
            self.train, self.test = _stored(name, data_dir)

    def sets(self, set_priors: Sequence[float], size: int, rng: np.random.Generator) -> list[Rows]:
        """Draw two sets; the number of positives of each is random, and no row is used twice."""
        labels = [rng.random(size) < prior for prior in set_priors]
        if self.simulate is not None:
            return [self.simulate(rng, y) for y in labels]
        X, y = self.train
        left = [list(rng.permutation(np.flatnonzero(y == which))) for which in (False, True)]
        return [X[[left[int(positive)].pop() for positive in own]] for own in labels]

    def measured(self, target_prior: float, rng: np.random.Generator) -> tuple[Rows, Labels]:
        """Return labeled rows whose fraction of positives is the target prior."""
        if self.simulate is not None:
            y = rng.permutation(np.arange(TEST_ROWS) < round(target_prior * TEST_ROWS))
            return self.simulate(rng, y), y
        X, y = self.test
        positive, negative = np.flatnonzero(y), np.flatnonzero(~y)
        n = min(len(positive) / target_prior, len(negative) / (1 - target_prior), TEST_ROWS)
        chosen = rng.permutation(
            np.concatenate([positive[: int(n * target_prior)], negative[: int(n * (1 - target_prior))]])
        )
        return X[chosen], y[chosen]


@functools.cache
def _stored(name: str, data_dir: Path | None) -> tuple[tuple[Rows, Labels], tuple[Rows, Labels]]:
    if name in tables.EMBEDDED:
        table = tables.load(name)
        return (table.X_train.astype(float), table.y_train == 1), (table.X_test.astype(float), table.y_test == 1)
    task = load_task(name, data_dir=data_dir, download=False)
    order = np.random.default_rng(0).permutation(len(task.X_train) + len(task.X_test))
    X = np.concatenate([task.X_train, task.X_test])[order].reshape(len(order), -1) / np.float32(255)
    y = np.concatenate([task.y_train, task.y_test])[order] == 1
    center = X[:10_000].mean(axis=0)
    axes = np.linalg.svd(X[:10_000] - center, full_matrices=False)[2][:COMPONENTS].T
    X = (X - center) @ axes
    return (X[TEST_ROWS:], y[TEST_ROWS:]), (X[:TEST_ROWS], y[:TEST_ROWS])


# ----------------------------------------------------------------------------------------------------------- fits


def planned(seeds: int = SEEDS, images: Sequence[str] = IMAGES, quick: bool = False) -> list[Record]:
    """Return the configurations of all fits; all cases of one seed come before those of the next."""
    if quick:
        cases = [("gaussian", CLOSE, 60, 0.5), ("breast_cancer", CLOSE, 60, 0.3)]
        return [_configuration(*case, 0) | {"epochs": 5} for case in cases]
    cases = []
    for size in (5000, 1500, 500, 300, 200, 120):
        pools = list(SIMULATED)
        pools += [name for name in images if size >= 500]
        pools += ["digits"] * (200 <= size <= 500) + ["breast_cancer"] * (size == 120)
        cases += [(name, CLOSE, size, 0.3 if i % 2 else 0.5) for i, name in enumerate(pools)]
        cases += [(name, FAR, size, 0.5) for name in pools[:3:2]] if size in (5000, 500, 200) else []
    return [_configuration(*case, seed) for seed in range(FIRST_SEED, FIRST_SEED + seeds) for case in cases]


def _configuration(name: str, set_priors: Sequence[float], size: int, target_prior: float, seed: int) -> Record:
    about = {"dataset": name, "set_priors": set_priors, "size": size, "target_prior": target_prior, "seed": seed}
    return dict(normalized(about))


def fit(configuration: Record, data_dir: Path | None = None, device: str = "cpu") -> Record:
    """Fit once, and compare the estimates with the labels."""
    priors, pi, seed = configuration["set_priors"], configuration["target_prior"], configuration["seed"]
    number = zlib.crc32(configuration["dataset"].encode())
    rng = np.random.default_rng([seed, configuration["size"], int(100 * priors[0]), number])
    data = Labeled(configuration["dataset"], data_dir)
    drawn = data.sets(priors, configuration["size"], rng)
    rows, y_test = data.measured(pi, rng)
    X0, X1, X_test = encode(drawn, rows)
    extra = {"epochs": configuration["epochs"]} if "epochs" in configuration else {}
    classifier = UUClassifier(
        tuple(priors), pi, n_estimators=5, random_state=seed, device=device, progress=False, **extra
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # close priors and few rows are the subject here
        classifier.fit_sets(X0, X1)
        decisions = classifier.decision_function(X_test)
        alone = [classifier.submodel(number).decision_function(X_test) for number in range(5)]
    estimate, truth = classifier.out_of_fold_evaluation_, evaluate_labeled(decisions, y_test, pi)
    assert estimate is not None
    singles = [evaluate_labeled(own, y_test, pi) for own in alone]
    probabilities = classifier.predict_proba(X_test)[:, 1]
    return {
        "accuracy": _compared(truth.accuracy, estimate.accuracy, [one.accuracy for one in singles]),
        "auc": _compared(truth.auc, estimate.auc, [one.auc for one in singles]),
        "calibration_error": round(calibration_error(probabilities, y_test), 4),
        "log_loss": round(float(-np.log(np.where(y_test, probabilities, 1 - probabilities).clip(1e-6)).mean()), 4),
        "probability": [round(float(value), 4) for value in (probabilities.mean(), probabilities.std())],
        "epochs": [history.best_epoch for history in classifier.history_.models],
    }


def encode(drawn: Sequence[Rows], test: Rows) -> list[NDArray[np.float32]]:
    """Encode rows as ``uulearn fit`` does: types of columns and encoder from both sets."""
    frames = [pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])]) for rows in (*drawn, test)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)  # about dropped columns
        encoder = TableEncoder().fit_sets(*frames[:2])
    return [encoder.transform(frame) for frame in frames]


def _compared(truth: Any, estimate: Any, singles: Sequence[Any]) -> Record:
    low, high = estimate.interval
    return {
        "truth": round(truth.value, 4),
        "single": round(float(np.mean([one.value for one in singles])), 4),
        "estimate": round(estimate.value, 4),
        "interval": [round(low, 4), round(high, 4)],
        "covered": bool(low <= truth.value <= high),
    }


# ------------------------------------------------------------------------------------------------------- reporting


def tell(record: Record) -> str:
    """Return a progress line."""
    one, accuracy = record["configuration"], record["accuracy"]
    return (
        f"{one['dataset']} {one['size']} at {tuple(one['set_priors'])}, prior {one['target_prior']}: accuracy "
        f"{accuracy['truth']:.3f}, single {accuracy['single']:.3f}, estimate {accuracy['estimate']:.3f} in "
        f"{accuracy['interval']}, calibration error {record['calibration_error']:.3f}"
    )


def summary(fits: Sequence[Record]) -> str:
    """Return a Markdown table: one line per priors and size, then all fits at the same priors."""
    lines = [
        "| priors | rows per set | fits | accuracy covered | AUC covered | median error | mean error | against singles "
        "| ensemble gain | AUC error | calibration error, mean (worst tenth) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    frame = pd.DataFrame(
        {
            "priors": str(tuple(one["configuration"]["set_priors"])),
            "size": one["configuration"]["size"],
            "covered": one["accuracy"]["covered"],
            "auc_covered": one["auc"]["covered"],
            "error": one["accuracy"]["estimate"] - one["accuracy"]["truth"],
            "single": one["accuracy"]["estimate"] - one["accuracy"]["single"],
            "gain": one["accuracy"]["truth"] - one["accuracy"]["single"],
            "auc": one["auc"]["estimate"] - one["auc"]["truth"],
            "calibration": one["calibration_error"],
        }
        for one in fits
    )
    for priors, same in frame.groupby("priors", sort=True):
        for size, own in [*same.groupby("size", sort=True), ("all", same)]:
            lines.append(
                f"| {priors} | {size} | {len(own)} | {100 * own.covered.mean():.1f}% "
                f"| {100 * own.auc_covered.mean():.1f}% | {100 * own.error.median():+.1f} "
                f"| {100 * own.error.mean():+.1f} | {100 * own.single.mean():+.1f} | {100 * own.gain.mean():+.1f} "
                f"| {own.auc.mean():+.3f} | {own.calibration.mean():.3f} ({own.calibration.quantile(0.9):.3f}) |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing fits, or summarize the stored ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"number of seeds, from {FIRST_SEED}")
    parser.add_argument("--device", default="cpu", help="device of training, for example cuda")
    parser.add_argument("--dataset", action="append", help="only these datasets")
    parser.add_argument("--size", type=int, action="append", help="only these numbers of rows per set")
    parser.add_argument("--summary", action="store_true", help="print a table of the stored fits, and run nothing")
    asked = parser.parse_args(arguments)
    path = out_of(asked, STORE)
    if asked.summary:
        print(summary(list(records.read([path]).fits.values())))
        return
    images = []
    for name in IMAGES:
        try:
            load_task(name, data_dir=asked.data_dir, download=False)
            images.append(name)
        except DatasetNotFoundError:
            print(f"{name} was not found and is left out; pass its folder as --data-dir")
    wanted = [
        one
        for one in planned(asked.seeds, images, asked.quick)
        if (not asked.dataset or one["dataset"] in asked.dataset) and (not asked.size or one["size"] in asked.size)
    ]
    own_fit = functools.partial(fit, data_dir=asked.data_dir, device=asked.device)
    complete(wanted, own_fit, tell, path, minutes=asked.minutes, jobs=asked.jobs)


if __name__ == "__main__":
    main()
