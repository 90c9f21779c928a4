"""Choose λ without labels, and measure how much the accuracy of the leaky ReLU depends on this choice.

The paper does not say how λ was selected. Here, an additional run for each λ holds out 9% of each unlabeled set. Copies
of the held-out rows are not used for training. The λ with the lowest zero-one risk on the held-out rows is chosen, and
its run on the complete sets is reported. "Hindsight" means that λ is chosen with the labels of the test data instead.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uulearn.report.html import render_page
from uulearn.reproduction.experiments import FIXED_SLOPE, RELU, SELECTION_HOLD_OUT, Configuration, TableRow
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.render import signed
from uulearn.reproduction.tables import Record, accuracy_curve, slope_column

Find = Callable[[Configuration], Record | None]
"""Function that returns the record of a configuration, or None if the configuration has no record."""

LAST_EPOCHS = 10
"""Number of last epochs over which the held-out risk is averaged; the risk of a single epoch is too noisy."""


def held_out_risk(record: Record) -> float:
    """Return the mean zero-one risk on held-out rows over the last ten epochs, or infinity if the run ended early."""
    curve = record["curves"].get("validation_zero_one", [])
    if len(curve) < record["configuration"]["epochs"]:
        return math.inf
    mean = float(np.mean(curve[-LAST_EPOCHS:]))
    return mean if math.isfinite(mean) else math.inf


def chosen_slope(row: TableRow, seed: int, find: Find) -> float | None:
    """Return the λ with the lowest held-out risk (for ties, the one closest to 0), or None if runs are missing."""
    found = {slope: find(row.run(slope, seed, SELECTION_HOLD_OUT)) for slope in row.candidates}
    risks = {slope: (held_out_risk(record), abs(slope)) for slope, record in found.items() if record is not None}
    return min(risks, key=risks.__getitem__) if found and len(risks) == len(found) else None


@dataclass(frozen=True)
class SlopeTrial:
    """One trial of a table row: the λ chosen without labels, and the final accuracy for each λ in percent."""

    row: TableRow
    seed: int
    chosen: float
    accuracies: Mapping[float, float]

    @property
    def hindsight(self) -> float:
        """The candidate λ with the highest accuracy on the labeled test data."""
        return best_candidate(self.row, self.accuracies)


def best_candidate(row: TableRow, accuracies: Mapping[float, float]) -> float:
    """Return the λ with the highest accuracy (for ties, the one closest to 0)."""
    return max(row.candidates, key=lambda slope: (accuracies[slope], -abs(slope)))


def trials_of(rows: Iterable[TableRow], find: Find) -> list[SlopeTrial]:
    """Return the trials for which all runs are available."""
    trials = []
    for row, seed in [(each, seed) for each in rows for seed in each.seeds]:
        chosen = chosen_slope(row, seed, find)
        if chosen is not None:
            found = {slope: last_accuracy(find(row.run(slope, seed))) for slope in row.slopes}
            accuracies = {slope: value for slope, value in found.items() if value is not None}
            if len(accuracies) == len(found):
                trials.append(SlopeTrial(row, seed, chosen, accuracies))
    return trials


def last_accuracy(record: Record | None) -> float | None:
    """Return the last finite test accuracy in percent, or None if there is no record or no finite value."""
    return next(reversed(accuracy_curve(record)), None) if record else None


@dataclass(frozen=True)
class SlopeComparison:
    """Mean accuracies of a table row, in percent, for each way of choosing λ."""

    row: TableRow
    trials: int
    relu: float
    fixed: float
    chosen: float
    hindsight_row: float
    hindsight_trial: float
    best_slope: float
    """The λ with the highest mean test accuracy in this row."""


def compare(trials: Sequence[SlopeTrial]) -> list[SlopeComparison]:
    """Return one comparison per table row; ``trials`` must be sorted by row."""
    comparisons = []
    for row, group in itertools.groupby(trials, key=lambda trial: trial.row):
        own = list(group)
        means = {slope: _mean(trial.accuracies[slope] for trial in own) for slope in row.slopes}
        best = best_candidate(row, means)
        chosen = _mean(trial.accuracies[trial.chosen] for trial in own)
        hindsight = _mean(trial.accuracies[trial.hindsight] for trial in own)
        comparisons.append(
            SlopeComparison(row, len(own), means[RELU], means[FIXED_SLOPE], chosen, means[best], hindsight, best)
        )
    return comparisons


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def to_markdown(studies: Mapping[str, Sequence[SlopeTrial]]) -> str:
    """Render the page on the choice of λ; ``studies`` maps the name of each table to its trials."""
    sections = [_section(table, trials) for table, trials in studies.items() if trials]
    values = {"last_epochs": LAST_EPOCHS, "label": slope_column, "fixed_slope": FIXED_SLOPE, "signed": signed}
    return render_page("selection.md.jinja", "uulearn.reproduction", sections=sections, **values)


def _section(table: str, trials: Sequence[SlopeTrial]) -> dict[str, Any]:
    """Return the data for one section of the page: chosen λ, accuracies, and mean gains over ReLU in points."""
    comparisons, printed = compare(trials), paper_table(table)
    cells = [printed[c.row.dataset, c.row.set_priors] for c in comparisons]
    ways = "chosen", "fixed", "hindsight_row", "hindsight_trial"
    gains = {way: _mean(getattr(c, way) - c.relu for c in comparisons) for way in ways}
    gains["paper"] = _mean(cell["leaky_relu"].accuracy.mean - cell["relu"].accuracy.mean for cell in cells)
    return {
        "table": table.removeprefix("table"),
        "trials": len(trials),
        "slopes": sorted({slope for trial in trials for slope in trial.row.candidates}, reverse=True),
        "counts": [Counter(getattr(trial, name) for trial in trials) for name in ("chosen", "hindsight")],
        "comparisons": comparisons,
        "gains": gains if all(c.row.request.is_the_papers for c in comparisons) else None,
    }
