"""Evaluate the estimates of θ and θ′ from unlabeled rows on real data, and compare classifiers of the sets.

First table: two sets are drawn from labeled rows without using a row twice, and `uulearn.priors.estimate_set_priors` is
run with its defaults. Second table: the out-of-fold AUC between the sets, with five folds, for three classifiers.
*Gaussians* are 3 σ apart along the diagonal; *XOR* has clusters at (±2, ±2), positive where the signs agree.

Every estimate is stored when it is finished and is not repeated. Then the page is written next to the store.

    python benchmarks/study/unknown_priors.py [--minutes 3] [--quick]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import records
from numpy.typing import NDArray
from records import Record
from render_tabular import markdown
from resuming import STUDY, add_options, complete, out_of
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uulearn.datasets import load_task, make_sets
from uulearn.exceptions import UUWarning
from uulearn.priors import estimate_set_priors
from uulearn.priors.scoring import default_scorer, out_of_fold_scores
from uulearn.reproduction.store import key, normalized

STORE = STUDY / "unknown_priors.jsonl"
ESTIMATE, SCORER = "estimate", "scorer"
IMAGES = {
    "mnist": "MNIST, even against odd",
    "fashion_mnist": "Fashion-MNIST, the paper's classes",
    "kmnist": "Kuzushiji-MNIST, the paper's classes",
}
NAMES = {
    **IMAGES,
    "digits": "digits, even against odd",
    "breast_cancer": "breast cancer",
    "gaussians_5": "Gaussians, 5 columns",
    "gaussians_20": "Gaussians, 20 columns",
    "xor": "four clusters crosswise (XOR)",
}
ESTIMATED = (
    *((name, 4000, priors) for name in IMAGES for priors in ((0.8, 0.2), (0.6, 0.4))),
    ("digits", 700, (0.8, 0.2)), ("digits", 700, (0.6, 0.4)),
    ("breast_cancer", 200, (0.8, 0.2)), ("breast_cancer", 200, (0.9, 0.4)),
)  # fmt: skip
COMPARED = (
    ("gaussians_5", 1000, (0.8, 0.2)), ("gaussians_20", 5000, (0.6, 0.4)), ("xor", 1000, (0.8, 0.2)),
    ("xor", 5000, (0.6, 0.4)), ("digits", 700, (0.8, 0.2)), ("digits", 700, (0.6, 0.4)),
)  # fmt: skip
SCORERS = ("forest (default)", "gradient boosting", "logistic regression")
SEEDS = 3
LARGE = 5000
"""Number of rows per set from which one seed is enough."""


def planned(quick: bool = False) -> list[Record]:
    """Return the configurations of all estimates and then of all comparisons."""
    estimated = [("digits", 150, (0.8, 0.2))] if quick else ESTIMATED
    compared = [("xor", 100, (0.8, 0.2))] if quick else COMPARED
    return [
        normalized({"part": ESTIMATE, "dataset": name, "rows": rows, "set_priors": priors, "seed": 0})
        for name, rows, priors in estimated
    ] + [
        normalized(
            {"part": SCORER, "dataset": name, "rows": rows, "set_priors": priors, "seed": seed, "scorer": scorer}
        )
        for name, rows, priors in compared
        for scorer in SCORERS
        for seed in range(1 if quick or rows >= LARGE else SEEDS)
    ]


def labelled(name: str, rows: int, seed: int, data_dir: Path | None = None) -> tuple[Any, NDArray[np.int64]]:
    """Return labeled rows, with enough rows of each class for two sets of ``rows`` rows."""
    if name in IMAGES:
        task = load_task(name, data_dir=data_dir).flat()
        return task.X_train, task.y_train
    if name == "digits":
        X, digit = load_digits(return_X_y=True)
        return X, (digit % 2 == 0).astype(np.int64)
    if name == "breast_cancer":
        X, benign = load_breast_cancer(return_X_y=True)
        return X, benign
    rng = np.random.default_rng(seed)
    y = np.repeat([1, 0], 2 * rows)
    if name == "xor":
        signs = rng.choice([-1, 1], size=len(y))
        centers = 2.0 * np.column_stack([signs, np.where(y == 1, signs, -signs)])
    else:
        columns = int(name.removeprefix("gaussians_"))
        centers = np.outer(2 * y - 1, np.full(columns, 1.5 / columns**0.5))
    return centers + rng.normal(size=centers.shape), y


def scorer_of(name: str, seed: int) -> Any:
    """Return an unfitted classifier of the sets."""
    if name == SCORERS[0]:
        return default_scorer(seed)
    if name == SCORERS[1]:
        return HistGradientBoostingClassifier(random_state=seed)
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def fit(configuration: Record, data_dir: Path | None = None) -> Record:
    """Draw two sets, and estimate their priors or train a classifier of the sets."""
    size, seed = configuration["rows"], configuration["seed"]
    X, y = labelled(configuration["dataset"], size, seed, data_dir)
    drawn = make_sets(X, y, configuration["set_priors"], (size, size), allow_reuse=False, random_state=seed)
    if configuration["part"] == SCORER:
        scores = out_of_fold_scores(*drawn, scorer=scorer_of(configuration["scorer"], seed), random_state=seed)
        return {"auc": round(float(roc_auc_score(1 - drawn.sets, np.concatenate(scores))), 5)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        found = estimate_set_priors(*drawn, random_state=seed)
    return {
        "set_priors": [round(value, 5) for value in found.set_priors],
        "intervals": [[round(end, 5) for end in interval] for interval in found.intervals],
        "warned": not found.identified,
    }


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    what = f"{one['scorer']}: AUC {record['auc']:.3f}" if one["part"] == SCORER else f"found {record['set_priors']}"
    return f"{one['dataset']} {one['rows']:,} at {tuple(one['set_priors'])}, seed {one['seed']}: {what}"


# ------------------------------------------------------------------------------------------------------------ the page


def page(stored: records.Stored, wanted: Sequence[Record]) -> str:
    """Return the page with both tables, from the stored results."""
    found = [stored.fits[key(one)] for one in wanted if key(one) in stored.fits]
    estimates = [one for one in found if one["configuration"]["part"] == ESTIMATE]
    return "\n\n".join(
        [
            "# Unknown priors",
            "Made by `python benchmarks/study/unknown_priors.py`, which describes the data.",
            "## Estimated from rows alone",
            markdown(
                ["data", "rows per set", "θ, θ′", "estimate of θ, 95% interval", "of θ′", "warned"],
                [[*_where(one), *_estimates(one), "yes" if one["warned"] else "no"] for one in estimates],
            ),
            "## AUC between the sets",
            comparison([one for one in found if one["configuration"]["part"] == SCORER]),
        ]
    ) + "\n"  # fmt: skip


def comparison(found: Sequence[Record]) -> str:
    """Return a table of means over seeds, with one line per dataset and one column per classifier."""
    lines = {tuple(_where(one)): [""] * len(SCORERS) for one in found}
    for where, cells in lines.items():
        for place, scorer in enumerate(SCORERS):
            own = [
                one["auc"] for one in found if tuple(_where(one)) == where and one["configuration"]["scorer"] == scorer
            ]
            cells[place] = f"{np.mean(own):.3f}" if own else ""
    return markdown(["data", "rows per set", "θ, θ′", *SCORERS], [[*where, *cells] for where, cells in lines.items()])


def _where(record: Record) -> list[str]:
    one = record["configuration"]
    return [NAMES[one["dataset"]], f"{one['rows']:,}", f"{one['set_priors'][0]:g}, {one['set_priors'][1]:g}"]


def _estimates(record: Record) -> list[str]:
    return [
        f"{value:.2f}, {low:.2f} to {high:.2f}"
        for value, (low, high) in zip(record["set_priors"], record["intervals"], strict=True)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing estimates, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    wanted, out = planned(asked.quick), out_of(asked, STORE)
    try:
        for name in IMAGES.keys() & {one["dataset"] for one in wanted}:
            labelled(name, 0, 0, asked.data_dir)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    complete(wanted, lambda one: fit(one, asked.data_dir), tell, out, asked.minutes)
    out.with_suffix(".md").write_text(page(records.read([out]), wanted), encoding="utf-8")
    print(f"written: {out.with_suffix('.md')}")


if __name__ == "__main__":
    main()
