"""Compare settings of ``model="boosting"`` for sets of 100 and 300 rows, without labels.

The tables are those of `auto_fits.py`, which no page reports. The settings and the rule for the rounds are those of
`boosting_choice.py`, which compares larger sets. The out-of-fold risk of so few rows is too noisy to compare settings.
Therefore, the calibrated ensemble of five folds is evaluated by the zero-one risk on two large held-out sets of other
rows at the priors (0.9, 0.1). Labels are used only to draw the sets.

    python benchmarks/study/boosting_small.py --folder FOLDER [--minutes 30]
    python benchmarks/study/boosting_small.py
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
from auto_fits import HELD_OUT_PRIORS, HELD_OUT_SIZES, TABLES, load
from boosting_choice import BASE, FOLDS, FOREST, Rule, encode, train
from resuming import STUDY

from common import machine, versions
from uulearn.data import DenseRows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.datasets import make_sets
from uulearn.metrics.calibration import calibrate_out_of_fold
from uulearn.reproduction.store import key
from uulearn.risk import UURisk

STORE = STUDY / "boosting_small.jsonl"
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "extra trees": {"extra_trees": True},
    "bags 4": {"bags": 4},
    "bags 4, extra trees": {"bags": 4, "extra_trees": True},
    "leaves 4": {"num_leaves": 4},
    "leaves 2": {"num_leaves": 2},
    "leaf rows 5": {"min_data_in_leaf": 5},
    "columns 0.25": {"feature_fraction": 0.25},
    "rate 0.05": {"learning_rate": 0.05},
    "rate 0.2": {"learning_rate": 0.2},
    "linear leaves": {"linear_tree": True, "linear_lambda": 1.0},
    "components": {"columns": "components"},
    "forest": FOREST,
}
SIZES = (100, 300)
PRIORS = ((0.6, 0.4), (0.8, 0.2))
SEEDS = range(500, 504)
SMOOTHING, PATIENCE = 15, 50

Record = dict[str, Any]


def planned() -> Iterator[Record]:
    """Yield one configuration for each draw, seed by seed; a draw is used by all settings."""
    for seed, rows, priors, name in itertools.product(SEEDS, SIZES, PRIORS, TABLES):
        yield {"table": name, "rows": rows, "set_priors": list(priors), "seed": seed}


def fit(one: Record, folder: Path) -> dict[str, tuple[float, float]] | None:
    """Return the risk and the CPU seconds of each setting, or None if the table is too small."""
    frame, labels = load(one["table"], folder)
    size, options = one["rows"], {"allow_reuse": False, "random_state": one["seed"]}
    if min(np.bincount(labels)) < size + HELD_OUT_SIZES[0]:
        return None
    drawn = make_sets(np.arange(len(labels))[:, None], labels, tuple(one["set_priors"]), (size, size), **options)
    rest = np.setdiff1d(np.arange(len(labels)), np.concatenate(drawn.indices))
    unseen = min(HELD_OUT_SIZES[1], *np.bincount(labels[rest]).tolist()) // 10 * 10
    held_out = make_sets(rest[:, None], labels[rest], HELD_OUT_PRIORS, (unseen, unseen), **options)
    new = np.concatenate([held_out.X0[:, 0], held_out.X1[:, 0]])
    priors, target, sets = drawn.realized_priors, float(labels.mean()), np.repeat([0, 1], size)
    error = UURisk(held_out.realized_priors, target, "zero_one", "unbiased", distributed=False)
    risk = UURisk(priors, target, "sigmoid", "abs", distributed=False)
    found = {}
    for name, changes in SETTINGS.items():
        setting, started = BASE | changes, time.process_time()
        rows, others, categories = encode(
            frame.iloc[np.concatenate(drawn.indices)].reset_index(drop=True),
            frame.iloc[new].reset_index(drop=True),
            setting["columns"],
        )
        two = TwoSets((DenseRows(torch.from_numpy(rows[:size])), DenseRows(torch.from_numpy(rows[size:]))))
        folds = np.concatenate(assign_folds(two, FOLDS, one["seed"]))
        scores, tests = np.empty((setting["rounds"], len(rows)), dtype=np.float32), []
        for fold in range(FOLDS):
            inside = folds == fold
            about = setting, rows[~inside], sets[~inside], [rows[inside], others], categories, risk
            runs = [train(*about, 1000 * one["seed"] + 10 * bag + fold) for bag in range(setting["bags"])]
            scores[:, inside] = np.mean([run[0] for run in runs], axis=0)
            tests.append(np.mean([run[1] for run in runs], axis=0))
        rule = Rule(scores, sets, folds, risk)
        if setting.get("kind") == "forest":
            rounds, honest = rule.fixed(setting["rounds"])
        else:
            rounds, honest = rule.chosen(one["seed"], SMOOTHING, PATIENCE, pooled=True, full=True)
        scales = [np.abs(scores[rounds[fold] - 1, folds == fold]).mean() + 1e-9 for fold in range(FOLDS)]
        scaled = honest / np.array(scales, dtype=np.float32)[folds]
        try:
            scaling, _ = calibrate_out_of_fold(scaled, sets, folds, priors, target)
            decisions = scaling.log_odds(
                np.mean([tests[fold][rounds[fold] - 1] / scales[fold] for fold in range(FOLDS)], axis=0)
            )
        except ValueError:  # the scores do not depend on the set: predict the more frequent class
            decisions = np.full(len(new), target - 0.5)
        value = error(torch.as_tensor(decisions).float(), torch.from_numpy(held_out.sets)).item()
        found[name] = round(value, 5), round(time.process_time() - started, 3)
    return found


def summarize(fits: list[Record], rows: int, priors: tuple[float, float]) -> dict[str, tuple[float, float, float]]:
    """Return for each setting its mean risk, and the change from the base with its standard error over tables."""
    by_table: dict[str, list[dict[str, list[float]]]] = defaultdict(list)
    for one in fits:
        about = one["configuration"]
        if about["rows"] == rows and tuple(about["set_priors"]) == priors:
            by_table[about["table"]].append(one["settings"])
    found = {}
    for name in SETTINGS:
        means = [100 * statistics.fmean(own[name][0] for own in every) for every in by_table.values()]
        changes = [
            100 * statistics.fmean(own[name][0] - own["base"][0] for own in every) for every in by_table.values()
        ]
        error = statistics.stdev(changes) / math.sqrt(len(changes))
        found[name] = statistics.fmean(means), statistics.fmean(changes), error
    return found


def main() -> None:
    """Run the fits that are not stored, and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder of tables, written by auto_fits.py --export")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if asked.folder is not None:
        writer, end = records.Writer(STORE, versions(), machine()), time.monotonic() + 60 * asked.minutes
        stored = records.read([STORE]).fits
        for one in planned():
            if time.monotonic() < end and key(one) not in stored and (found := fit(one, asked.folder)) is not None:
                writer.add({"configuration": one, "settings": found})
    fits = list(records.read([STORE]).fits.values())
    for priors, rows in itertools.product(PRIORS, SIZES):
        print(f"{priors}, {rows} rows")
        try:
            changes = summarize(fits, rows, priors)
        except statistics.StatisticsError:
            print("  too few tables")
            continue
        for name, (mean, change, error) in sorted(changes.items(), key=lambda item: item[1][0]):
            print(f"  {name:<22}{mean:6.2f} {change:+6.2f} ± {error:.2f}")


if __name__ == "__main__":
    main()
