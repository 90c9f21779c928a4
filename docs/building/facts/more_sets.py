"""Facts of docs/more-sets.md: ways to train on more than two sets, compared on four tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from study_tables import read_study, signed, table

Record = dict[str, Any]
VARIANTS = {
    "extremes": "two sets only",
    "merged": "merged",
    "risk": "risk of all sets",
    "surrogate": "surrogate",
    "pairs": "mean of pairs",
}
PRIORS = {"spread": "0.9 to 0.1", "close": "0.65 to 0.35"}
CELLS = [(priors, number) for priors in PRIORS for number in (3, 5, 10)]
Draws = dict[tuple[str, int, str], dict[tuple[str, int], Record]]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    records, environment = read_study("more_sets.jsonl")
    draws: Draws = {}
    for one in records:
        known = one["configuration"]
        cell = draws.setdefault((known["priors"], known["sets"], known["variant"]), {})
        cell[known["dataset"], known["seed"]] = one
    return {
        "accuracy": accuracy_table(draws),
        "coverage": coverage_table(draws),
        "draws": str(len(draws["spread", 3, "risk"])),
        "environment": environment,
        "minutes": f"{sum(one['seconds'] for one in records) / 60:.0f}",
        **{f"gain-{variant}": gain(draws, variant) for variant in VARIANTS if variant != "risk"},
    }


def accuracies(cell: dict[tuple[str, int], Record]) -> dict[tuple[str, int], float]:
    """Return the accuracy of each draw in percent."""
    return {draw: 100 * one["accuracy"] for draw, one in cell.items()}


def accuracy_table(draws: Draws) -> str:
    """Return the mean accuracy of the risk of all sets, and the paired differences of the other variants from it."""
    lines = []
    for priors, number in CELLS:
        risk = accuracies(draws[priors, number, "risk"])
        cells = [f"{statistics.fmean(risk.values()):.1f} ± {seed_deviation(risk):.1f}"]
        for variant in VARIANTS:
            if variant == "risk":
                continue
            own = accuracies(draws[priors, number, variant])
            differences = {draw: own[draw] - risk[draw] for draw in own}
            if len(differences) == 1:
                cells.append(f"{signed(*differences.values())}*")
                continue
            mean, error = mean_and_error(differences)
            cells.append(f"{signed(mean)} ± {error:.1f}")
        lines.append([PRIORS[priors], str(number), *cells])
    heads = ["class priors", "sets", VARIANTS["risk"], *(name for key, name in VARIANTS.items() if key != "risk")]
    return table(heads, lines)


def seed_deviation(values: dict[tuple[str, int], float]) -> float:
    """Return the standard deviation over the seeds of a table, pooled over the tables."""
    names = {name for name, _ in values}
    variances = [statistics.variance([value for (own, _), value in values.items() if own == name]) for name in names]
    return math.sqrt(statistics.fmean(variances))


def mean_and_error(values: Mapping[tuple[Any, ...], float]) -> tuple[float, float]:
    """Return the mean and its standard error over tables, because the draws of a table resemble each other."""
    names = sorted({name for name, *_ in values})
    means = [statistics.fmean(value for (own, *_), value in values.items() if own == name) for name in names]
    return statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means))


def gain(draws: Draws, variant: str) -> str:
    """Return the accuracy of the risk of all sets minus that of a variant, over all lines with all draws, in points."""
    found = {}
    for priors, number in CELLS:
        risk, own = (accuracies(draws[priors, number, name]) for name in ("risk", variant))
        if len(own) == len(risk):
            found |= {(*draw, priors, number): risk[draw] - own[draw] for draw in own}
    mean, error = mean_and_error(found)
    return f"{signed(mean).removeprefix('+')} ± {error:.1f}"


def coverage_table(draws: Draws) -> str:
    """Return how many intervals contain the accuracy on the test rows, and their mean width."""
    lines = []
    for priors, shown in PRIORS.items():
        cells = []
        for variant in VARIANTS:
            if variant == "pairs":
                continue
            found = [one for number in (3, 5, 10) for one in draws[priors, number, variant].values()]
            inside = sum(one["estimate"][1] <= one["accuracy"] <= one["estimate"][2] for one in found)
            width = statistics.fmean(one["estimate"][2] - one["estimate"][1] for one in found)
            cells.append(f"{inside} of {len(found)} ({width:.2f})")
        lines.append([shown, *cells])
    return table(["class priors", *(name for key, name in VARIANTS.items() if key != "pairs")], lines)
