"""Facts of docs/sensitivity.md and docs/studies/sensitivity.md: effects of wrong priors on the accuracies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from study_tables import read_study, signed, table

STUDY = Path(__file__).resolve().parents[3] / "results" / "study"
LETTERS = {"theta": "θ", "theta_prime": "θ′", "pi": "π"}
DATASETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST", "magic": "magic"}
ORDER = [(name, error) for name in LETTERS for error in (-0.1, -0.05, 0.05, 0.1)]
LARGE = [(name, error) for name, error in ORDER if abs(error) == 0.1]
CLOSE = [("theta", -0.1), ("theta_prime", 0.1)]
APART = [("theta", 0.1), ("theta_prime", -0.1)]
Record = dict[str, Any]
Column = list[Record]
Change = tuple[str, float]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    draws, environment = read_study("sensitivity_draws.jsonl")
    study, study_environment = read_study("sensitivity.jsonl")
    columns: dict[tuple[str, str, str], Column] = {}
    for one in draws:
        parameters = one["configuration"]["parameters"]
        model = "MLP" if parameters["model"] == "mlp" else "linear"
        columns.setdefault((one["configuration"]["task"], model, parameters["loss"]), []).append(one)
    pairs: dict[tuple[float, str], Column] = {}
    for one in study:
        pairs.setdefault((one["configuration"]["set_priors"][0], one["configuration"]["dataset"]), []).append(one)
    small = list(columns.values())
    far = [column for (theta, _), column in pairs.items() if theta == 0.8]
    near = [column for (theta, _), column in pairs.items() if theta == 0.6]
    set_priors = [(column, change) for column in small for change in CLOSE + APART]
    return {
        "even-digits": draws_table(columns, ["even digits"], ORDER),
        "other-tasks": draws_table(columns, ["breast cancer", "digits below 3"], LARGE),
        "study": study_table(pairs),
        "environment": environment,
        "study-environment": study_environment,
        "draws": str(len(small[0])),
        "largest-error-set-priors": largest_error(small, CLOSE + APART),
        "largest-error-pi": largest_error(small, [("pi", -0.1), ("pi", 0.1)]),
        "small-shown": span([abs(mean(column, change, "shown")) for column, change in set_priors]),
        "small-true": f"{max(abs(mean(column, change, 'true')) for column, change in set_priors):.1f}",
        "small-cases": str(len(set_priors)),
        "small-close-worst": extreme(small, CLOSE, "true", min),
        "small-apart-worst": extreme(small, APART, "true", min),
        "far-close-shown": span(means(far, CLOSE, "shown")),
        "far-close-true": extreme(far, CLOSE, "true", min),
        "far-apart-shown": span([-value for value in means(far, APART, "shown")]),
        "near-close-shown": f"{max(means(near, CLOSE, 'shown')):.1f}",
        "near-close-true": span([-value for value in means(near, CLOSE, "true")]),
        "near-apart-shown": span([-value for value in means(near, APART, "shown")]),
        "near-apart-true": extreme(near, APART, "true", min),
        "far-pi-true": largest(far, "true"),
        "near-pi-true": largest(near, "true"),
    }


def points(column: Column, change: Change, measure: str) -> list[float]:
    """Return the change of an accuracy from that with the correct priors, in points, for each draw."""
    found = []
    for one in column:
        baseline = one["rows"][0]
        row = next(row for row in one["rows"] if (row["parameter"], row["error"]) == change)
        found.append(100 * (row[measure][0] - baseline[measure][0]))
    return found


def mean(column: Column, change: Change, measure: str) -> float:
    """Return the mean change in points."""
    return statistics.fmean(points(column, change, measure))


def means(columns: list[Column], changes: list[Change], measure: str) -> list[float]:
    """Return the mean changes of several columns."""
    return [mean(column, change, measure) for column in columns for change in changes]


def standard_error(values: list[float]) -> float:
    """Return the standard error of the mean."""
    return statistics.stdev(values) / math.sqrt(len(values))


def level(column: Column, measure: str) -> float:
    """Return the mean accuracy with the correct priors, in percent."""
    return 100 * statistics.fmean(one["rows"][0][measure][0] for one in column)


def span(values: list[float]) -> str:
    """Return the range of the values as text."""
    return f"{min(values):.1f} to {max(values):.1f}".replace("-", "−")


def extreme(columns: list[Column], changes: list[Change], measure: str, which: Callable[[list[float]], float]) -> str:
    """Return the most extreme mean change."""
    return signed(which(means(columns, changes, measure)))


def largest(columns: list[Column], measure: str) -> str:
    """Return the largest mean change for an error of 0.1 in π."""
    return f"{max(map(abs, means(columns, [('pi', -0.1), ('pi', 0.1)], measure))):.1f}"


def largest_error(columns: list[Column], changes: list[Change]) -> str:
    """Return the largest standard error of a mean change of the true accuracy."""
    return f"{max(standard_error(points(column, change, 'true')) for column in columns for change in changes):.1f}"


def name_of(change: Change) -> str:
    """Return the name of a change, for example "θ − 0.1 (too close)"."""
    parameter, error = change
    kind = " (too close)" if change in CLOSE else " (too far apart)" if change in APART else ""
    return f"{LETTERS[parameter]} {'−' if error < 0 else '+'} {abs(error):g}{kind}"


def draws_table(columns: dict[tuple[str, str, str], Column], tasks: list[str], changes: list[Change]) -> str:
    """Return the change of the true accuracy in points, with one column per task, model and loss."""
    own = {name: column for name, column in columns.items() if name[0] in tasks}
    heads = ["" if len(tasks) == 1 else "task"]
    heads += [f"{model}, {loss}" if len(tasks) == 1 else f"{task}, {model}, {loss}" for task, model, loss in own]
    lines = []
    if len(tasks) > 1:
        configurations = [column[0]["configuration"] for column in own.values()]
        lines.append(["θ, θ′, π", *("{:g}, {:g}, {:g}".format(*c["set_priors"], c["target_prior"]) for c in
                                    configurations)])  # fmt: skip
    lines.append(["correct priors: true accuracy", *(f"{level(column, 'true'):.1f}%" for column in own.values())])
    for change in changes:
        cells = [points(column, change, "true") for column in own.values()]
        lines.append([name_of(change), *(f"{signed(statistics.fmean(c))} ± {standard_error(c):.1f}" for c in cells)])
    return table(heads, lines)


def study_table(pairs: dict[tuple[float, str], Column]) -> str:
    """Return the changes of the estimated and true accuracy on the four larger datasets."""
    lines = []
    target = [f"{pairs[0.8, name][0]['rows'][0]['target_prior']:.2f}" for name in DATASETS]
    lines.append(["π", *target])
    for theta in (0.8, 0.6):
        columns = [pairs[theta, name] for name in DATASETS]
        levels = [f"{level(column, 'shown'):.1f}% / {level(column, 'true'):.1f}%" for column in columns]
        lines.append([f"**({theta:g}, {1 - theta:g})**, correct priors", *levels])
        for change in LARGE:
            cells = [" / ".join(signed(mean(column, change, m)) for m in ("shown", "true")) for column in columns]
            lines.append([name_of(change), *cells])
    return table(["estimated / true", *DATASETS.values()], lines)
