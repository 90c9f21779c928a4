"""The choice of λ without labels, and how much of the leaky ReLU's advantage comes from choosing.

The paper does not say how it selected λ. Here 9% of each unlabeled set is held out of extra runs, one per λ, without
copies of these rows among the training rows. The λ with the lowest zero-one risk on the held-out rows is chosen, and
its run on the whole sets counts. No label is used. "Hindsight" is the choice by the labels of the test data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uulearn.report.html import render_page
from uulearn.reproduction.experiments import FIXED_SLOPE, RELU, SELECTION_HOLD_OUT, Configuration, TableRow
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.render import markdown_grid, signed
from uulearn.reproduction.tables import ResultRow, slope_column

Record = Mapping[str, Any]
Find = Callable[[Configuration], Record | None]
"""Returns the record of a configuration, None if there is none."""

LAST_EPOCHS = 10
"""Epochs over which the held-out risk is averaged: the noise of a single epoch exceeds the effect of λ."""


def held_out_risk(record: Record) -> float:
    """Mean zero-one risk on held-out rows over the last ten epochs; infinite for a run that ended early."""
    curve = record["curves"].get("validation_zero_one", [])
    if len(curve) < record["configuration"]["epochs"]:
        return math.inf
    mean = float(np.mean(curve[-LAST_EPOCHS:]))
    return mean if math.isfinite(mean) else math.inf


def choose(risks: Mapping[float, float]) -> float:
    """The λ with the lowest risk; the one closest to 0 in case of a tie.

    Examples
    --------
    >>> choose({-1.0: 0.12, -0.1: 0.10, -0.01: 0.10})
    -0.01
    """
    return min(risks, key=lambda slope: (risks[slope], abs(slope)))


def chosen_slope(row: TableRow, seed: int, find: Find) -> float | None:
    """The λ chosen for a trial without labels; None if runs are missing."""
    found = {slope: find(row.run(slope, seed, SELECTION_HOLD_OUT)) for slope in row.candidates}
    risks = {slope: held_out_risk(record) for slope, record in found.items() if record is not None}
    return choose(risks) if found and len(risks) == len(found) else None


@dataclass(frozen=True)
class SlopeTrial:
    """One trial of one row: the λ chosen without labels, and the last accuracy of each λ in percent."""

    row: TableRow
    seed: int
    chosen: float
    accuracies: Mapping[float, float]

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values of λ to choose from."""
        return self.row.candidates

    @property
    def hindsight(self) -> float:
        """The candidate with the highest accuracy on the labeled test data; the one closest to 0 if tied."""
        return max(self.candidates, key=lambda slope: (self.accuracies[slope], -abs(slope)))


def trials_of(rows: Iterable[TableRow], find: Find) -> list[SlopeTrial]:
    """All trials with complete runs."""
    trials = []
    for row in rows:
        for seed in row.seeds:
            chosen = chosen_slope(row, seed, find)
            if chosen is None:
                continue
            found = {slope: last_accuracy(find(row.run(slope, seed))) for slope in row.slopes}
            accuracies = {slope: value for slope, value in found.items() if value is not None}
            if len(accuracies) == len(found):
                trials.append(SlopeTrial(row, seed, chosen, accuracies))
    return trials


def last_accuracy(record: Record | None) -> float | None:
    """Test accuracy at the last epoch in percent; None without a record or a finite value."""
    curve = [] if record is None else [v for v in record["curves"].get("test_accuracy", ()) if math.isfinite(v)]
    return 100 * curve[-1] if curve else None


@dataclass(frozen=True)
class SlopeComparison:
    """Mean accuracies of one row in percent, by the way λ is set."""

    row: TableRow
    trials: int
    relu: float
    fixed: float
    chosen: float
    hindsight_row: float
    hindsight_trial: float
    best_slope: float
    """The best λ of the row in hindsight."""


def compare(trials: Sequence[SlopeTrial]) -> list[SlopeComparison]:
    """One comparison per row."""
    rows: dict[TableRow, list[SlopeTrial]] = {}
    for trial in trials:
        rows.setdefault(trial.row, []).append(trial)
    comparisons = []
    for row, own in rows.items():
        means = {slope: _mean(trial.accuracies[slope] for trial in own) for slope in row.slopes}
        best = max(row.candidates, key=lambda slope: (means[slope], -abs(slope)))
        comparisons.append(
            SlopeComparison(
                row=row,
                trials=len(own),
                relu=means[RELU],
                fixed=means[FIXED_SLOPE],
                chosen=_mean(trial.accuracies[trial.chosen] for trial in own),
                hindsight_row=means[best],
                hindsight_trial=_mean(trial.accuracies[trial.hindsight] for trial in own),
                best_slope=best,
            )
        )
    return comparisons


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def to_markdown(studies: Mapping[str, Sequence[SlopeTrial]]) -> str:
    """The page on the choice of λ; ``studies`` has the trials by the name of the table."""
    sections = []
    for table, trials in studies.items():
        if trials:
            comparisons = compare(trials)
            comparable = all(comparison.row.request.is_the_papers for comparison in comparisons)
            gains = _gains(table, comparisons) if comparable else None
            sections.append(
                (table.removeprefix("table"), len(trials), _counts_grid(trials), _rows_grid(comparisons), gains)
            )
    return render_page("selection.md.jinja", "uulearn.reproduction", last_epochs=LAST_EPOCHS, sections=sections)


def _counts_grid(trials: Sequence[SlopeTrial]) -> str:
    slopes = sorted({slope for trial in trials for slope in trial.candidates}, reverse=True)
    chosen, best = (Counter(getattr(trial, name) for trial in trials) for name in ("chosen", "hindsight"))
    lines = [["", *(slope_column(slope).label for slope in slopes)]]
    lines.append(["times chosen without labels", *(str(chosen[slope]) for slope in slopes)])
    lines.append(["times best in hindsight", *(str(best[slope]) for slope in slopes)])
    return markdown_grid(lines, left=1)


def _rows_grid(comparisons: Sequence[SlopeComparison]) -> str:
    lines = [[
        "Dataset", "θ, θ′", "trials", "ReLU", slope_column(FIXED_SLOPE).label, "chosen without labels",
        "best λ of the row, hindsight", "best λ of each trial, hindsight",
    ]]  # fmt: skip
    for c in comparisons:
        row = ResultRow(c.row.dataset, c.row.set_priors)
        best = f"{c.hindsight_row:.2f} (λ = {c.best_slope:g})".replace("-", "−")
        numbers = [f"{value:.2f}" for value in (c.relu, c.fixed, c.chosen)]
        lines.append([row.dataset_label, row.priors_label, str(c.trials), *numbers, best, f"{c.hindsight_trial:.2f}"])
    return markdown_grid(lines, left=2)


def _gains(table: str, comparisons: Sequence[SlopeComparison]) -> str:
    """Gain of the leaky ReLU over ReLU here and in the paper, averaged over rows, in points."""
    printed = paper_table(table)
    cells = [printed[c.row.dataset, c.row.set_priors] for c in comparisons]
    paper = _mean(cell["leaky_relu"].accuracy.mean - cell["relu"].accuracy.mean for cell in cells)
    gains = {
        "λ chosen without labels": _mean(c.chosen - c.relu for c in comparisons),
        slope_column(FIXED_SLOPE).label: _mean(c.fixed - c.relu for c in comparisons),
        "the best λ of each row in hindsight": _mean(c.hindsight_row - c.relu for c in comparisons),
        "the best λ of each trial in hindsight": _mean(c.hindsight_trial - c.relu for c in comparisons),
    }
    listed = ", ".join(f"{signed(gain)} with {how}" for how, gain in gains.items())
    return (
        f"Mean gain of the leaky ReLU over ReLU on these {len(comparisons)} rows, in points: {listed}; in the paper "
        f"{signed(paper)}."
    )
