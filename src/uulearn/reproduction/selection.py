"""The choice of λ without labels, and how much of an advantage of the leaky ReLU is owed to choosing.

The paper does not say how it selected λ. Here 9% of each unlabeled set are held out of extra runs, one for each λ, and
no copy of them is among the rows trained on; the λ whose zero-one risk on the held-out rows, an unbiased estimate of
its error rate, is lowest is the one whose run on the whole sets counts. Labels play no part. What choosing by the
labels of the test part would have given is worked out beside it, and called hindsight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uulearn.reproduction.experiments import FIXED_SLOPE, HELD_OUT, RELU, Configuration, TableRow
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.render import grid, signed
from uulearn.reproduction.tables import Row, slope_column

Record = Mapping[str, Any]
Find = Callable[[Configuration], Record | None]
"""Gives the record of a configuration, or None where there is none yet."""

LAST_EPOCHS = 10
"""Over which the held-out risk is averaged: of one epoch alone it is noisier than λ makes a difference."""


def held_out_risk(record: Record) -> float:
    """Mean zero-one risk on held-out rows over the last ten epochs; infinite for a run that did not end well."""
    curve = record["curves"].get("validation_zero_one", [])
    if len(curve) < record["configuration"]["epochs"]:
        return math.inf
    mean = float(np.mean(curve[-LAST_EPOCHS:]))
    return mean if math.isfinite(mean) else math.inf


def choose(risks: Mapping[float, float]) -> float:
    """The λ of the lowest risk; of several, the one closest to 0.

    Examples
    --------
    >>> choose({-1.0: 0.12, -0.1: 0.10, -0.01: 0.10})
    -0.01
    """
    return min(risks, key=lambda slope: (risks[slope], abs(slope)))


def chosen_slope(row: TableRow, seed: int, find: Find) -> float | None:
    """The λ that is chosen for a trial without labels; None while runs that the choice needs are missing."""
    found = {slope: find(row.run(slope, seed, HELD_OUT)) for slope in row.candidates}
    risks = {slope: held_out_risk(record) for slope, record in found.items() if record is not None}
    return choose(risks) if found and len(risks) == len(found) else None


@dataclass(frozen=True)
class Trial:
    """One trial of one row: the λ chosen without labels, and the last accuracy of the run of each λ, in percent."""

    row: TableRow
    seed: int
    chosen: float
    accuracies: Mapping[float, float]

    @property
    def candidates(self) -> tuple[float, ...]:
        """The λ that could be chosen."""
        return self.row.candidates

    @property
    def hindsight(self) -> float:
        """The λ, among the same, that does best on the labelled test part; of several, the one closest to 0."""
        return max(self.candidates, key=lambda slope: (self.accuracies[slope], -abs(slope)))


def trials_of(rows: Iterable[TableRow], find: Find) -> list[Trial]:
    """Every trial of which all runs are there."""
    trials = []
    for row in rows:
        for seed in row.seeds:
            chosen = chosen_slope(row, seed, find)
            if chosen is None:
                continue
            found = {slope: find(row.run(slope, seed)) for slope in row.slopes}
            known = {slope: last_accuracy(record) for slope, record in found.items()}
            accuracies = {slope: value for slope, value in known.items() if value is not None}
            if len(accuracies) == len(found):
                trials.append(Trial(row, seed, chosen, accuracies))
    return trials


def last_accuracy(record: Record | None) -> float | None:
    """Test accuracy after the last epoch, in percent; None without a record or without a finite value in it."""
    curve = [] if record is None else [v for v in record["curves"].get("test_accuracy", ()) if math.isfinite(v)]
    return 100 * curve[-1] if curve else None


@dataclass(frozen=True)
class Comparison:
    """Mean accuracies of one row, in percent, by how λ is set."""

    row: TableRow
    trials: int
    relu: float
    fixed: float
    chosen: float
    hindsight_row: float
    hindsight_trial: float
    best_slope: float
    """The λ that is best for the row in hindsight."""


def compare(trials: Sequence[Trial]) -> list[Comparison]:
    """One comparison for each row that has trials."""
    rows: dict[TableRow, list[Trial]] = {}
    for trial in trials:
        rows.setdefault(trial.row, []).append(trial)
    comparisons = []
    for row, mine in rows.items():
        means = {slope: _mean(trial.accuracies[slope] for trial in mine) for slope in row.slopes}
        best = max(row.candidates, key=lambda slope: (means[slope], -abs(slope)))
        comparisons.append(
            Comparison(
                row=row,
                trials=len(mine),
                relu=means[RELU],
                fixed=means[FIXED_SLOPE],
                chosen=_mean(trial.accuracies[trial.chosen] for trial in mine),
                hindsight_row=means[best],
                hindsight_trial=_mean(trial.accuracies[trial.hindsight] for trial in mine),
                best_slope=best,
            )
        )
    return comparisons


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


# For readers


def to_markdown(studies: Mapping[str, Sequence[Trial]]) -> str:
    """What the choice of λ is worth, for each table that has trials; ``studies`` are by the table's name."""
    parts = [
        "### The choice of λ",
        "UU-LReLU with λ chosen for each trial *without labels*: 9% of each unlabeled set are held out of extra "
        f"runs, and λ has the lowest zero-one risk on it (mean of the last {LAST_EPOCHS} epochs). *In hindsight* means "
        "by the accuracy on the labelled test part, which a user does not have: for a whole row, one λ for all its "
        "trials, or for each trial its own. All numbers are last-epoch accuracies in percent, means over trials.",
    ]
    for table, trials in studies.items():
        if trials:
            parts += _study(table, trials)
    return "\n\n".join(parts) + "\n"


def _study(table: str, trials: Sequence[Trial]) -> list[str]:
    title = f"**Table {table.removeprefix('table')}**, {len(trials)} trials"
    comparisons = compare(trials)
    parts = [title, _counts_grid(trials), _rows_grid(comparisons)]
    if all(comparison.row.request.is_the_papers for comparison in comparisons):
        parts.append(_verdict(table, comparisons))
    return parts


def _counts_grid(trials: Sequence[Trial]) -> str:
    slopes = sorted({slope for trial in trials for slope in trial.candidates}, reverse=True)
    chosen, best = (Counter(getattr(trial, name) for trial in trials) for name in ("chosen", "hindsight"))
    lines = [["", *(slope_column(slope).label for slope in slopes)]]
    lines.append(["times chosen without labels", *(str(chosen[slope]) for slope in slopes)])
    lines.append(["times best in hindsight", *(str(best[slope]) for slope in slopes)])
    return grid(lines, left=1)


def _rows_grid(comparisons: Sequence[Comparison]) -> str:
    lines = [[
        "Dataset", "θ, θ′", "trials", "ReLU", slope_column(FIXED_SLOPE).label, "chosen without labels",
        "best λ of the row, hindsight", "best λ of each trial, hindsight",
    ]]  # fmt: skip
    for c in comparisons:
        row = Row(c.row.dataset, c.row.set_priors)
        best = f"{c.hindsight_row:.2f} (λ = {c.best_slope:g})".replace("-", "−")
        numbers = [f"{value:.2f}" for value in (c.relu, c.fixed, c.chosen)]
        lines.append([row.dataset_label, row.priors_label, str(c.trials), *numbers, best, f"{c.hindsight_trial:.2f}"])
    return grid(lines, left=2)


def _verdict(table: str, comparisons: Sequence[Comparison]) -> str:
    """What the leaky ReLU gains over ReLU here and in the paper, as means over rows, in points."""
    printed = paper_table(table)
    cells = [printed[c.row.dataset, c.row.set_priors] for c in comparisons]
    paper = _mean(cell["leaky_relu"].accuracy.mean - cell["relu"].accuracy.mean for cell in cells)
    gains = {
        "λ chosen without labels": _mean(c.chosen - c.relu for c in comparisons),
        slope_column(FIXED_SLOPE).label: _mean(c.fixed - c.relu for c in comparisons),
        "the best λ of each row in hindsight": _mean(c.hindsight_row - c.relu for c in comparisons),
        "the best λ of each trial in hindsight": _mean(c.hindsight_trial - c.relu for c in comparisons),
    }
    said = ", ".join(f"{signed(gain)} with {how}" for how, gain in gains.items())
    return (
        f"Over ReLU the leaky ReLU gains, as a mean over these {len(comparisons)} rows and in points: {said}; "
        f"in the paper {signed(paper)}."
    )
