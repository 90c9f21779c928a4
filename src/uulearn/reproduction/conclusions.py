"""The conclusions of the paper's Section 4, checked against the runs in a store.

1. Corrected methods beat the unbiased and the biased method.
2. The closer the priors, the worse the overfitting.
3. A negative training risk and overfitting occur together.
4. Dropout and weight decay do not prevent it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from uulearn.report.html import render_page
from uulearn.reproduction.experiments import FIXED_SLOPE
from uulearn.reproduction.render import markdown_grid, signed
from uulearn.reproduction.statistics import LEVEL, first_negative_epoch, paired_t_test, turning_epoch
from uulearn.reproduction.tables import DATASET_NAMES, MIN_TESTED_TRIALS, ResultCell, ResultRow, slope_column

Record = Mapping[str, Any]
CellsByModel = Mapping[str, Sequence[ResultCell]]

COMPARED_METHODS = {
    "biased": "UU-Biased",
    "unbiased": "UU-Unbiased",
    "abs": "UU-ABS",
    "relu": "UU-ReLU",
    slope_column(FIXED_SLOPE).name: "UU-LReLU",
}
"""Columns that are compared, by name; the leaky ReLU with λ = −0.1."""
PLAIN, CORRECTED = tuple(COMPARED_METHODS)[:2], tuple(COMPARED_METHODS)[2:]
MODEL_GROUPS = {"linear": "linear models (Table 2)", "mlp": "MLP (Table 3)", "resnet32": "ResNet-32 (Table 3)"}


@dataclass(frozen=True)
class Contest:
    """Two methods on one row: the mean difference of their accuracies in points, and its p value."""

    model: str
    row: ResultRow
    corrected: str
    plain: str
    difference: float
    p: float | None
    trials: int

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``even`` by the paired t-test at 5%; ``not tested`` below three trials."""
        if self.p is None or self.trials < MIN_TESTED_TRIALS:
            return "not tested"
        if self.p >= LEVEL:
            return "even"
        return "better" if self.difference > 0 else "worse"


def contests(cells: CellsByModel) -> list[Contest]:
    """Every corrected method against every plain one, on each row with both."""
    found = []
    for model, own in cells.items():
        trials = {(cell.row, cell.column.name): cell.trials for cell in own}
        rows = dict.fromkeys(cell.row for cell in own)
        for row, corrected, plain in itertools.product(rows, CORRECTED, PLAIN):
            ours, theirs = trials.get((row, corrected), {}), trials.get((row, plain), {})
            seeds = sorted(ours.keys() & theirs.keys())
            if seeds:
                a, b = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
                gain = float(np.mean(a) - np.mean(b))
                found.append(Contest(model, row, corrected, plain, gain, paired_t_test(a, b), len(a)))
    return found


def drops_by_priors(cells: CellsByModel) -> dict[tuple[str, str, str], list[tuple[tuple[float, float], float]]]:
    """Mean drop per pair of priors, farthest first, by (model, dataset, method)."""
    found: dict[tuple[str, str, str], list[tuple[tuple[float, float], float]]] = {}
    for model, own in cells.items():
        for cell in sorted((cell for cell in own if cell.column.name in COMPARED_METHODS), key=_reading_order):
            if cell.drop:
                place = model, cell.row.dataset_label, COMPARED_METHODS[cell.column.name]
                found.setdefault(place, []).append((cell.row.set_priors, cell.drop.mean))
    return found


def _reading_order(cell: ResultCell) -> tuple[int, int, float]:
    theta, theta_prime = cell.row.set_priors
    dataset, method = list(DATASET_NAMES).index(cell.row.dataset), list(COMPARED_METHODS).index(cell.column.name)
    return dataset, method, -abs(theta - theta_prime)


@dataclass(frozen=True)
class CoOccurrence:
    """How often the training risk goes negative and the test error turns, and the rank correlation of the epochs."""

    both: int
    only_negative: int
    only_turns: int
    neither: int
    spearman: float | None

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.both + self.only_negative + self.only_turns + self.neither

    @property
    def together(self) -> float:
        """Fraction of the runs in which both or neither happen."""
        return (self.both + self.neither) / self.runs if self.runs else math.nan


def co_occurrence(records: Iterable[Record]) -> CoOccurrence:
    """Count negative risks and turning test errors; Spearman's correlation is over runs with both.

    Examples
    --------
    >>> overfit = {"curves": {"unbiased": [0.5, 0.1, -0.2] * 20, "test_accuracy": [0.9] * 20 + [0.5] * 40}}
    >>> co_occurrence([overfit]).both
    1
    """
    tally: Counter[tuple[bool, bool]] = Counter()
    pairs = []
    for record in records:
        negative = first_negative_epoch(record["curves"]["unbiased"])
        turn = turning_epoch(record["curves"]["test_accuracy"])
        tally[negative is not None, turn is not None] += 1
        if negative is not None and turn is not None:
            pairs.append((negative, turn))
    spearman = None
    if len(pairs) > 2 and all(len(set(side)) > 1 for side in zip(*pairs, strict=True)):
        spearman = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    return CoOccurrence(tally[True, True], tally[True, False], tally[False, True], tally[False, False], spearman)


@dataclass(frozen=True)
class RegularizedRun:
    """One run of Figure 3: test risk, and accuracy in percent, at its best and at the last epoch."""

    name: str
    lowest_risk: float
    last_risk: float
    best_accuracy: float
    last_accuracy: float


def regularized_runs(records: Iterable[Record], entry: str) -> list[RegularizedRun]:
    """The runs of one panel of Figure 3 by increasing strength; ``entry`` is ``dropout`` or ``l2``."""
    found = []
    for record in sorted(records, key=lambda record: record["configuration"][entry]):
        curves = {n: [v for v in values if math.isfinite(v)] for n, values in record["curves"].items()}
        risk, accuracy = curves["test_risk"], curves["test_accuracy"]
        if risk:  # empty if the run failed in its first epoch
            name = f"{'dropout' if entry == 'dropout' else 'weight decay'} {record['configuration'][entry]:g}"
            found.append(RegularizedRun(name, min(risk), risk[-1], 100 * max(accuracy), 100 * accuracy[-1]))
    return found


def to_markdown(
    cells: CellsByModel,
    records: Sequence[Record],
    dropout: Sequence[Record] = (),
    decay: Sequence[Record] = (),
    caveat: str = "",
) -> str:
    """The page on all four conclusions.

    ``cells`` are those of the tables by model, ``records`` the full runs in them, the others those of Figure 3.
    ``caveat`` is added to the title if the runs are not in the paper's setting.
    """
    regularized = [*regularized_runs(dropout, "dropout"), *regularized_runs(decay, "l2")]
    return render_page(
        "conclusions.md.jinja",
        "uulearn.reproduction",
        caveat=caveat,
        contests=_contests_grid(contests(cells)),
        drops=_drops_grid(cells),
        together=_together_grid(records),
        regularized=_regularized_grid(regularized) if regularized else None,
    )


def _contests_grid(found: Sequence[Contest]) -> str:
    lines = [["", "against", "rows", "better", "even", "worse", "not tested", "mean gain", "smallest gain"]]
    for model, corrected, plain in itertools.product(MODEL_GROUPS, CORRECTED, PLAIN):
        own = [c for c in found if (c.model, c.corrected, c.plain) == (model, corrected, plain)]
        if own:
            tally, gains = Counter(contest.verdict for contest in own), [contest.difference for contest in own]
            counts = [str(tally[verdict]) for verdict in ("better", "even", "worse", "not tested")]
            name = f"{COMPARED_METHODS[corrected]}, {MODEL_GROUPS[model]}"
            gain = [signed(float(np.mean(gains))), signed(min(gains))]
            lines.append([name, COMPARED_METHODS[plain], str(len(own)), *counts, *gain])
    return markdown_grid(lines, left=2)


def _drops_grid(cells: CellsByModel) -> str:
    drops = drops_by_priors(cells)
    columns = list(dict.fromkeys(priors for series in drops.values() for priors, _ in series))
    lines = [["", "dataset", "method", *(f"{a:g}, {b:g}" for a, b in columns), "grows"]]
    for place, series in drops.items():
        values = dict(series)
        shown = [f"{values[priors]:.2f}" if priors in values else "–" for priors in columns]
        grows = "yes" if all(a < b for (_, a), (_, b) in itertools.pairwise(series)) else "no"
        lines.append([*place, *shown, grows if len(series) > 1 else "–"])
    return markdown_grid(lines, left=3)


def _together_grid(records: Sequence[Record]) -> str:
    lines = [["runs of", "runs", "both", "only negative", "only turns", "neither", "together", "rank correlation"]]
    # Only one λ of the leaky ReLU, so that each method counts once.
    records = [r for r in records if r["configuration"]["slope"] in (None, FIXED_SLOPE)]
    groups: list[tuple[str, list[Record]]] = [("all methods, all models", records)]
    for column, name in COMPARED_METHODS.items():
        method = column.partition("(")[0]
        groups.append((name, [r for r in records if r["configuration"]["method"] == method]))
    for model, label in MODEL_GROUPS.items():
        own = [r for r in records if r["configuration"]["model"] == model]
        groups += [(f"all methods, {label}", own)]
        groups += [(f"UU-Unbiased, {label}", [r for r in own if r["configuration"]["method"] == "unbiased"])]
    for label, some in groups:
        if some:
            c = co_occurrence(some)
            rank = "–" if c.spearman is None else signed(c.spearman)
            counts = [str(n) for n in (c.runs, c.both, c.only_negative, c.only_turns, c.neither)]
            lines.append([label, *counts, f"{100 * c.together:.0f}%", rank])
    return markdown_grid(lines, left=1)


def _regularized_grid(runs: Sequence[RegularizedRun]) -> str:
    lines = [["", "test risk, lowest", "last", "accuracy, best", "last", "drop"]]
    for run in runs:
        risks = [f"{value:.3g}" for value in (run.lowest_risk, run.last_risk)]
        accuracies = [run.best_accuracy, run.last_accuracy, run.best_accuracy - run.last_accuracy]
        lines.append([run.name, *risks, *(f"{value:.2f}" for value in accuracies)])
    return markdown_grid(lines, left=1)
