"""Facts of docs/studies/tables.md: columns per tree, settings for few rows, and the library of ``model="boosting"``."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "study"))

import boosting_columns  # noqa: E402
import boosting_small  # noqa: E402
import records  # noqa: E402
from study_tables import STUDY, Record, signed, table  # noqa: E402


def facts() -> dict[str, str]:
    """Return all facts by name."""
    fits = list(records.read([boosting_columns.STORE]).fits.values())
    lines = []
    for (columns, used), changes in sorted(boosting_columns.differences(fits).items()):
        mean, error, count = boosting_columns.summarize(changes)
        change = "–" if used == boosting_columns.COLUMNS[columns][0] else f"{signed(mean)} ± {error:.1f}"
        lines.append([str(columns), str(used), str(count), change])
    draws = list(records.read([boosting_small.STORE]).fits.values())
    few = [boosting_small.summarize(draws, 100, priors) for priors in boosting_small.PRIORS]
    settings = [
        [name, *("–" if name == "base" else f"{signed(own[name][1])} ± {own[name][2]:.1f}" for own in few)]
        for name in sorted(boosting_small.SETTINGS, key=lambda name: sum(own[name][1] for own in few))
    ]
    libraries = records.read([STUDY / "boosting_libraries.jsonl"]).fits.values()
    words = {"encoded": "encoded by `TableEncoder`", "native": "categories and missing values by the library"}
    compared = [[words[name], *_compare_libraries(own)] for name, own in _by_columns(libraries).items()]
    stored = ROOT / "benchmarks" / "results" / "boosting_libraries.json"
    measured = json.loads(stored.read_text(encoding="utf-8"))["results"]
    xgboost, lightgbm = (measured["speed"]["spread"][name]["median"] for name in ("xgboost", "lightgbm"))
    return {
        "columns": table(["columns", "per tree", "fits", "change of the risk"], lines),
        "small": table(["setting", "at (0.6, 0.4)", "at (0.8, 0.2)"], settings),
        "small-draws": f"{sum(one['configuration']['rows'] == 100 for one in draws)}",
        "libraries": table(
            ["columns", "draws", "risk of XGBoost minus that of LightGBM, points", "CPU time, XGBoost / LightGBM"],
            compared,
        ),
        "libraries-many": f"{xgboost / lightgbm:.1f}",
        **{f"wheel-{name.rpartition('-')[0]}": f"{own['packed']:.0f}" for name, own in measured["wheels"].items()},
    }


def _by_columns(draws: Iterable[Record]) -> dict[str, list[dict[str, Record]]]:
    """Return the fits of both libraries in each draw, by the encoding of the columns."""
    found: dict[str, list[dict[str, Record]]] = defaultdict(list)
    for draw in draws:
        for columns in dict.fromkeys(one["columns"] for one in draw["fits"]):
            own = {one["library"]: one for one in draw["fits"] if one["columns"] == columns}
            found[columns].append({**own, "about": draw["configuration"]})
    return found


def _compare_libraries(draws: Sequence[Mapping[str, Record]]) -> list[str]:
    """Return a line of the table of libraries; standard errors are over tables."""
    by_table: dict[str, list[float]] = defaultdict(list)
    for draw in draws:
        by_table[draw["about"]["table"]].append(100 * (draw["xgboost"]["risk"] - draw["lightgbm"]["risk"]))
    means = [statistics.fmean(own) for own in by_table.values()]
    error = statistics.stdev(means) / math.sqrt(len(means))
    time = statistics.median(draw["xgboost"]["cpu"] / draw["lightgbm"]["cpu"] for draw in draws)
    return [str(len(draws)), f"{signed(statistics.fmean(means))} ± {error:.1f}", f"{time:.1f}"]
