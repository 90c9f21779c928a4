"""Facts of docs/any-classifier.md and docs/studies/any-classifier.md: comparisons of `SurrogateSetClassifier`."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "study"))

import contenders as field  # noqa: E402
import records  # noqa: E402
import tables  # noqa: E402
from comparison import Comparison, compare  # noqa: E402
from study_tables import table  # noqa: E402

COLUMNS = {
    "UUClassifier": "`UUClassifier`, one MLP",
    "default, mixture": "default",
    "forest, mixture": "forest",
    "logistic, mixture": "logistic regression",
    "logistic, None": "logistic regression, `calibration=None`",
    "sets for classes": "logistic regression, sets as classes",
    "labels": "default, with labels",
}
SET_PRIORS = ([0.8, 0.2], [0.6, 0.4])
FIVE = ("ten squares", "clusters", "skewed clusters")
Record = dict[str, Any]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    stored = json.loads((ROOT / "benchmarks" / "results" / "any_classifier.json").read_text(encoding="utf-8"))
    versions = ", ".join(f"{package} {version}" for package, version in stored["versions"].items())
    two = [run for run in stored["runs"] if len(run["settings"]["set_priors"]) == 2]
    five = [run for run in stored["runs"] if len(run["settings"]["set_priors"]) == 5]
    halves = [[run for run in two if run["settings"]["set_priors"] == priors] for priors in SET_PRIORS]
    seconds = {name: average(two, name, "seconds") for name in ("UUClassifier", "default, mixture", "forest, mixture")}
    mlp, linear = tabular()
    boosting = next(one for one in mlp.columns if one.name == field.BOOSTING)
    accuracy = {name: [100 * average(half, name, "accuracy") for half in halves] for name in two[0]["contenders"]}
    restrained = [a - b for a, b in zip(accuracy["default, mixture"], accuracy["boosting, mixture"], strict=True)]
    close = [
        cells_mean(mlp, mlp.default, name, (0.6, 0.4)) - cells_mean(mlp, boosting, name, (0.6, 0.4))
        for name in names_of(mlp)
    ]
    best = [
        name.replace("_", " ")
        for name in names_of(mlp)
        if cells_mean(mlp, boosting, name, (0.8, 0.2))
        > max(cells_mean(model, model.default, name, (0.8, 0.2)) for model in (mlp, linear))
    ]
    return {
        "tabular": tabular_table(mlp, linear),
        "boosting-best": " and ".join(best),
        "seconds-boosting": f"{mlp.seconds[boosting.key]:.1f}",
        "seconds-mlp": f"{mlp.seconds[mlp.default.key]:.0f}",
        "close-ahead": f"{sum(value > 0 for value in close)} of {len(close)}",
        "close-gain": f"{min(close):.0f} to {max(close):.0f}",
        "contenders": contender_table(two),
        "calibrations": calibration_table(halves),
        "five": five_table(five),
        "seeds": str(len({run["settings"]["seed"] for run in two})),
        "seconds-default": f"{seconds['default, mixture']:.1f}",
        "seconds-forest": f"{seconds['forest, mixture']:.1f}",
        "seconds-uu": f"{seconds['UUClassifier']:.1f}",
        "restrained": " and ".join(f"{value:.1f}" for value in restrained),
        "environment": f"{versions}; {stored['machine']['processor']}",
    }


def average(runs: list[Record], name: str, key: str) -> float:
    """Return the mean over runs."""
    return statistics.fmean(run["contenders"][name][key] for run in runs)


def percent(runs: list[Record], name: str) -> str:
    """Return the mean and standard deviation of the accuracy over seeds."""
    values = [100 * run["contenders"][name]["accuracy"] for run in runs]
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def contender_table(runs: list[Record]) -> str:
    """Return the accuracy of each contender by dataset, size and priors."""
    cases: dict[tuple[str, int, tuple[float, ...]], list[Record]] = {}
    order = list(dict.fromkeys(run["settings"]["dataset"] for run in runs))
    for run in sorted(runs, key=lambda run: (order.index(run["settings"]["dataset"]), run["settings"]["rows_a_set"])):
        settings = run["settings"]
        case = settings["dataset"], settings["rows_a_set"], tuple(settings["set_priors"])
        cases.setdefault(case, []).append(run)
    lines = [
        [dataset, f"{rows:,}", "{:g}, {:g}".format(*priors), *(percent(own, name) for name in COLUMNS)]
        for (dataset, rows, priors), own in cases.items()
    ]
    return table(["data", "rows per set", "θ, θ′", *COLUMNS.values()], lines)


def calibration_table(halves: list[list[Record]]) -> str:
    """Return means over all data by classifier and calibration."""
    lines = []
    for name in halves[0][0]["contenders"]:
        if name in ("labels", "sets for classes"):
            continue
        cells = [f"{100 * average(half, name, 'accuracy'):.1f}" for half in halves]
        cells += [f"{average(half, name, 'log_loss'):.3f}" for half in halves]
        cells += [f"{100 * average(half, name, 'clipped'):.0f}%" for half in halves]
        lines.append(["`UUClassifier`, one MLP" if name == "UUClassifier" else name, *cells])
    heads = ["", "accuracy at (0.8, 0.2)", "at (0.6, 0.4)", "log loss at (0.8, 0.2)", "at (0.6, 0.4)",
             "clipped at (0.8, 0.2)", "at (0.6, 0.4)"]  # fmt: skip
    return table(heads, lines)


def five_table(runs: list[Record]) -> str:
    """Return the results for five separate sets and for two combined sets."""
    lines = []
    for name in (name for name in runs[0]["contenders"] if name != "labels"):
        cells = [percent([run for run in runs if run["settings"]["dataset"] == data], name) for data in FIVE]
        lines.append([name.replace("UUClassifier", "`UUClassifier`"), *cells, f"{average(runs, name, 'log_loss'):.3f}"])
    return table(["", *FIVE, "log loss"], lines)


def tabular() -> tuple[Comparison, Comparison]:
    """Return the study of small tables for the MLP and for the linear model."""
    stored = records.read([ROOT / "results" / "study" / "tabular.jsonl.gz"])
    found = [compare(stored.fits.values(), model) for model in ("mlp", "linear")]
    mlp, linear = found
    assert mlp is not None
    assert linear is not None
    return mlp, linear


def names_of(comparison: Comparison) -> list[str]:
    """Return the tables in the order of the study."""
    return [name for name in tables.NAMES if any(cell.dataset == name for cell in comparison.trials)]


def cells_mean(comparison: Comparison, who: field.Contender, dataset: str, priors: tuple[float, float]) -> float:
    """Return the mean accuracy in percent over the set sizes of one table and pair of priors."""
    cells = [cell for cell in comparison.trials if (cell.dataset, cell.set_priors) == (dataset, priors)]
    return 100 * statistics.fmean(statistics.fmean(comparison.trials[cell][who.key].values()) for cell in cells)


def tabular_table(mlp: Comparison, linear: Comparison) -> str:
    """Return the mean accuracy of the defaults and of boosting on the sets, over sizes and seeds."""
    boosting = next(one for one in mlp.columns if one.name == field.BOOSTING)
    lines = []
    for name in names_of(mlp):
        sizes = sorted({cell.rows for cell in mlp.trials if cell.dataset == name})
        cells = [name.replace("_", " "), ", ".join(f"{rows:,}" for rows in sizes)]
        for priors in ((0.8, 0.2), (0.6, 0.4)):
            means = [
                cells_mean(mlp, mlp.default, name, priors),
                cells_mean(linear, linear.default, name, priors),
                cells_mean(mlp, boosting, name, priors),
            ]
            cells += [f"**{value:.1f}**" if value == max(means) else f"{value:.1f}" for value in means]
        lines.append(cells)
    heads = ["table", "rows per set"]
    heads += [f"{who}, ({t}, {u})" for t, u in ((0.8, 0.2), (0.6, 0.4)) for who in ("MLP", "linear", "boosting")]
    return table(heads, lines)
