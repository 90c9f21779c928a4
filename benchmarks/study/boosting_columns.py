"""Choose how many columns a tree of ``model="boosting"`` uses in tables with few columns, without labels.

Each table is a random choice of 2 to 12 columns of a table that no page reports (`auto_fits.py --export` writes them),
so the classes depend on several columns together. Two sets of 100 to 1,000 rows are drawn. A fit is evaluated by the
zero-one risk on two held-out sets of other rows at the priors (0.9, 0.1). Labels are used only to draw the sets.

    python benchmarks/study/boosting_columns.py --folder FOLDER [--minutes 30]
    python benchmarks/study/boosting_columns.py
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import records
from auto_fits import HELD_OUT_PRIORS, load
from resuming import STUDY

from common import machine, versions
from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.reproduction.store import key
from uulearn.risk import UURisk

STORE = STUDY / "boosting_columns.jsonl"
TABLES = ("letter", "penbased", "satimage", "texture", "segment", "vehicle", "optdigits", "marketing", "cells")
COLUMNS = {2: (1, 2), 3: (2, 3), 5: (3, 4, 5), 8: (4, 6, 8), 12: (6, 8, 12)}
"""Numbers of columns per tree that are compared, for each number of columns of the table; the first is half of them."""
SIZES = (100, 300, 1000)
PRIORS = ((0.8, 0.2), (0.6, 0.4))
SEEDS = (400, 401)
HELD_OUT = 2000

Record = dict[str, Any]


def planned() -> Iterator[Record]:
    """Yield the configurations of all fits, seed by seed."""
    for seed, rows, name, priors, columns in itertools.product(SEEDS, SIZES, TABLES, PRIORS, COLUMNS):
        for used in COLUMNS[columns]:
            yield {
                "table": name, "rows": rows, "set_priors": list(priors), "seed": seed, "columns": columns, "used": used
            }  # fmt: skip


def fit(one: Record, folder: Path) -> Record | None:
    """Train boosting with one number of columns per tree; return its risk, or None if the table is too small."""
    frame, labels = load(one["table"], folder)
    numeric = [name for name in frame if frame[name].dtype.kind in "iuf" and frame[name].nunique() > 10]
    if len(numeric) < one["columns"] or min(np.bincount(labels)) < one["rows"] + 100:
        return None
    rng = np.random.default_rng([one["seed"], one["columns"]])
    values = frame[sorted(rng.choice(numeric, one["columns"], replace=False))].to_numpy(np.float32)
    index, size = np.arange(len(labels))[:, None], one["rows"]
    options = {"allow_reuse": False, "random_state": one["seed"]}
    drawn = make_sets(index, labels, tuple(one["set_priors"]), (size, size), **options)
    rest = np.setdiff1d(index, np.concatenate(drawn.indices))
    unseen = min(HELD_OUT, *np.bincount(labels[rest]).tolist()) // 10 * 10
    held_out = make_sets(rest[:, None], labels[rest], HELD_OUT_PRIORS, (unseen, unseen), **options)
    target = float(labels.mean())
    classifier = UUClassifier(
        drawn.realized_priors, target, model="boosting",
        model_params={"feature_fraction": one["used"] / one["columns"], "min_features": 1},
        random_state=one["seed"], progress=False,
    )  # fmt: skip
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit_sets(*(values[part] for part in drawn.indices))
        scores = classifier.decision_function(values[np.concatenate([held_out.X0[:, 0], held_out.X1[:, 0]])])
    seconds = time.process_time() - started
    error = UURisk(held_out.realized_priors, target, "zero_one", "unbiased", distributed=False)
    risk = error(torch.as_tensor(scores), torch.from_numpy(held_out.sets)).item()
    return {"configuration": one, "risk": round(risk, 5), "cpu_seconds": round(seconds, 3)}


def differences(fits: list[Record]) -> dict[tuple[int, int], dict[str, list[float]]]:
    """Return the change of the risk from half of the columns, in points, by columns of the table and of a tree."""
    risks: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    for one in fits:
        about = one["configuration"]
        place = about["table"], about["columns"], about["rows"], tuple(about["set_priors"]), about["seed"]
        risks[place][about["used"]] = one["risk"]
    found: dict[tuple[int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (name, columns, *_), own in risks.items():
        if own.keys() == set(COLUMNS[columns]):
            for used in COLUMNS[columns]:
                found[columns, used][name].append(100 * (own[used] - own[COLUMNS[columns][0]]))
    return found


def summarize(changes: dict[str, list[float]]) -> tuple[float, float, int]:
    """Return the mean change, its standard error over tables, and the number of fits."""
    means = [statistics.fmean(own) for own in changes.values()]
    return statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means)), sum(map(len, changes.values()))


def main() -> None:
    """Run the fits that are not stored, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of tables, written by auto_fits.py --export")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.folder is not None:
        writer, end = records.Writer(STORE, versions(), machine()), time.monotonic() + 60 * asked.minutes
        stored = records.read([STORE]).fits
        for one in planned():
            if time.monotonic() < end and key(one) not in stored and (found := fit(one, asked.folder)) is not None:
                writer.add(found)
    for (columns, used), changes in sorted(differences(list(records.read([STORE]).fits.values())).items()):
        mean, error, count = summarize(changes)
        print(f"{used} of {columns} columns per tree: {mean:+.2f} ± {error:.2f} points, {count} fits")


if __name__ == "__main__":
    main()
