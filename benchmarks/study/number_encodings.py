"""Compare encodings of numbers for the MLP, without labels, on tables that no page reports.

`auto_fits.py --export` writes the tables. In each cell, an MLP is trained on the same sets with each encoding in
`ENCODINGS`, and boosted trees are trained once. The MLP alone, and its average with the trees (equal weights of the
log-odds, an approximation of ``model="auto"``), are evaluated by the zero-one risk on two held-out sets of other rows
at the priors (0.9, 0.1). Labels are used only to draw the sets.

    python benchmarks/study/number_encodings.py --folder FOLDER [--workers 2] [--minutes 30]
    python benchmarks/study/number_encodings.py
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from auto_fits import draw, load, planned
from numpy.typing import NDArray
from records import Record, read
from resuming import STUDY, complete
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from table_contenders import (
    Frame,
    PiecewiseLinear,
    Transform,
    fit_pipeline,
    fit_table_encoder,
    numbers_and_categories,
    uu_classifier,
)
from tables_study import THREADS

from uulearn import UUClassifier
from uulearn.estimator.auto import decision_weights

STORE = STUDY / "number_encodings.jsonl"
SIZES = (100, 300, 1000)
SEEDS = (400, 401)
DRAWS = ("0.8,0.2", "0.6,0.4")


def piecewise_linear(bins: int) -> Callable[[Frame, Frame], Transform]:
    """Return the encoding of numbers by bins, instead of the features of `TableEncoder`."""
    return fit_pipeline(
        lambda: numbers_and_categories(make_pipeline(PiecewiseLinear(bins), StandardScaler(with_std=False)))
    )


def with_bins(bins: int) -> Callable[[Frame, Frame], Transform]:
    """Return the features of `TableEncoder` and, for those with more than two values, also their encoding by bins."""

    def fit(first: Frame, second: Frame) -> Transform:
        transform = fit_table_encoder(first, second)
        rows = np.concatenate([transform(first), transform(second)])
        numbers = [column for column in range(rows.shape[1]) if len(np.unique(rows[:, column])) > 2]
        if not numbers:
            return transform
        binned = make_pipeline(PiecewiseLinear(bins), StandardScaler(with_std=False)).fit(rows[:, numbers])

        def add_bins(frame: Frame) -> NDArray[Any]:
            features = transform(frame)
            return np.concatenate([features, binned.transform(features[:, numbers])], axis=1).astype(np.float32)

        return add_bins

    return fit


ENCODINGS: dict[str, Callable[[Frame, Frame], Transform]] = {
    "TableEncoder": fit_table_encoder,
    "8 bins": piecewise_linear(8),
    "16 bins": piecewise_linear(16),
    "TableEncoder and 8 bins": with_bins(8),
    "TableEncoder and 16 bins": with_bins(16),
}
BASE = "TableEncoder"


def fit(folder: Path, one: Record) -> Record:
    """Train all models of a cell, and return their risks on the held-out sets."""
    frame, labels = load(one["table"], folder)
    drawn, held_out = draw(labels, one)
    priors, target = drawn.realized_priors, float(labels.mean())
    parts = [frame.iloc[rows].reset_index(drop=True) for rows in drawn.indices]
    unseen = frame.iloc[np.concatenate([held_out.X0[:, 0], held_out.X1[:, 0]])].reset_index(drop=True)
    weights = decision_weights(held_out.sets, held_out.realized_priors, target)

    def risk(decisions: NDArray[Any]) -> float:
        return round(target + float(weights[decisions > 0].sum()), 5)

    train_mlp = functools.partial(uu_classifier, "mlp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trees = UUClassifier(
            priors, target, model="boosting", device="cpu", progress=False, random_state=one["seed"]
        ).fit_sets(*parts)
        of_trees = trees.decision_function(unseen)
        of_networks = {
            name: train_mlp(encode, {})(parts[0], parts[1], priors, target, one["seed"]).decision_function(unseen)
            for name, encode in ENCODINGS.items()
        }
    return {
        "boosting": risk(of_trees),
        "mlp": {name: risk(decisions) for name, decisions in of_networks.items()},
        "average": {name: risk(decisions + of_trees) for name, decisions in of_networks.items()},
    }


class Change(NamedTuple):
    """Change of the risk from `BASE`, in points, and its standard error over tables."""

    mean: float
    error: float


def compare(fits: Iterable[Record], model: str, encoding: str, draws: Sequence[str] = DRAWS) -> Change:
    """Return the change of the risk of ``"mlp"`` or ``"average"``; all cells of a table count as one observation.

    At least two tables are needed.
    """
    changes = defaultdict(list)
    for one in fits:
        if one["configuration"]["draw"] in draws:
            changes[one["configuration"]["table"]].append(100 * (one[model][encoding] - one[model][BASE]))
    means = [statistics.fmean(own) for own in changes.values()]
    return Change(statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means)))


def main() -> None:
    """Run the fits that are not stored, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of tables, written by auto_fits.py --export")
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    asked = parser.parse_args()
    if asked.folder is not None:
        os.environ.update(dict.fromkeys(THREADS, "1"))  # for the child processes, before they import anything
        cells = [cell for cell in planned(asked.folder, SEEDS, SIZES) if cell["draw"] in DRAWS]
        run = functools.partial(fit, asked.folder)
        complete(cells, run, lambda found: str(found["configuration"]), STORE, asked.minutes, asked.workers)
    fits = list(read([STORE]).fits.values())
    if len({one["configuration"]["table"] for one in fits}) < 2:
        print("no comparison yet: it needs fits on two tables")
        return
    for name in ENCODINGS:
        changes = [
            f"{model}, {draws}: {change.mean:+.2f} ± {change.error:.2f}"
            for model in ("mlp", "average")
            for draws in DRAWS
            for change in [compare(fits, model, name, [draws])]
        ]
        print(f"{name:26}{'; '.join(changes)}")


if __name__ == "__main__":
    main()
