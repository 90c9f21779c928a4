"""The conclusions of the paper's Section 4, held one by one against the runs in a store.

1. Corrected methods beat the unbiased and the biased one.
2. The closer the priors, the worse the overfitting.
3. A negative training risk and overfitting occur together.
4. Dropout and weight decay do not cure it.
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

from uulearn.reproduction.experiments import FIXED_SLOPE
from uulearn.reproduction.render import grid, signed
from uulearn.reproduction.statistics import LEVEL, first_negative_epoch, paired_t_test, turning_epoch
from uulearn.reproduction.tables import DATASET_NAMES, LEAST_TRIALS

Record = Mapping[str, Any]

PLAIN, CORRECTED = ("biased", "unbiased"), ("abs", "relu", "leaky_relu")
NAMES = {"biased": "UU-Biased", "unbiased": "UU-Unbiased", "abs": "UU-ABS", "relu": "UU-ReLU", "leaky_relu": "UU-LReLU"}
MODELS = {"linear": "linear models (Table 2)", "mlp": "MLP (Table 3)", "resnet32": "ResNet-32 (Table 3)"}


@dataclass(frozen=True)
class Cell:
    """The trials of one method on one dataset with one pair of priors: last accuracy and drop by seed, in percent."""

    dataset: str
    model: str
    set_priors: tuple[float, float]
    method: str
    accuracy: Mapping[int, float]
    drop: Mapping[int, float]

    @property
    def row(self) -> tuple[str, str, tuple[float, float]]:
        """What the cell shares with the other methods."""
        return self.dataset, self.model, self.set_priors


def with_fixed_slope(records: Iterable[Record]) -> list[Record]:
    """Of runs with the leaky ReLU only those with λ = −0.1, so that it counts no more than the other methods."""
    return [
        r for r in records if r["configuration"]["method"] != "leaky_relu" or r["configuration"]["slope"] == FIXED_SLOPE
    ]


def cells_of(records: Iterable[Record]) -> list[Cell]:
    """Cells of Tables 2 and 3 from full runs in the paper's setting; of the leaky ReLU those with λ = −0.1."""
    found: dict[tuple[Any, ...], dict[int, Sequence[float]]] = {}
    for record in with_fixed_slope(records):
        c = record["configuration"]
        curve = [100 * value for value in record["curves"]["test_accuracy"] if math.isfinite(value)]
        if curve:
            place = (c["dataset"], c["model"], tuple(c["set_priors"]), c["method"])
            found.setdefault(place, {})[c["seed"]] = curve
    return [
        Cell(
            dataset,
            model,
            set_priors,
            method,
            accuracy={seed: curve[-1] for seed, curve in trials.items()},
            drop={seed: max(curve) - curve[-1] for seed, curve in trials.items()},
        )
        for (dataset, model, set_priors, method), trials in found.items()
    ]


# ------------------------------------------------------------------------------------------- 1. corrected beats plain


@dataclass(frozen=True)
class Contest:
    """Two methods on one row: the mean difference of their accuracies in points and its p value."""

    row: tuple[str, str, tuple[float, float]]
    corrected: str
    plain: str
    difference: float
    p: float | None
    trials: int

    @property
    def verdict(self) -> str:
        """``"better"``, ``"worse"`` or ``"even"`` by the paired t-test at 5%, ``"not tested"`` below three trials."""
        if self.p is None or self.trials < LEAST_TRIALS:
            return "not tested"
        if self.p >= LEVEL:
            return "even"
        return "better" if self.difference > 0 else "worse"


def contests(cells: Sequence[Cell]) -> list[Contest]:
    """Every corrected method against every plain one, on each row that has both."""
    rows: dict[Any, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.method] = cell
    out = []
    for row, methods in rows.items():
        for corrected, plain in itertools.product(CORRECTED, PLAIN):
            if corrected in methods and plain in methods:
                ours, theirs = methods[corrected].accuracy, methods[plain].accuracy
                seeds = sorted(ours.keys() & theirs.keys())
                a, b = [ours[s] for s in seeds], [theirs[s] for s in seeds]
                if seeds:
                    out.append(
                        Contest(row, corrected, plain, float(np.mean(a) - np.mean(b)), paired_t_test(a, b), len(a))
                    )
    return out


# ------------------------------------------------------------------------------ 2. closer priors, worse overfitting


def drops_by_priors(cells: Sequence[Cell]) -> dict[tuple[str, str, str], list[tuple[tuple[float, float], float]]]:
    """Mean drop for each pair of priors, farthest first, by (model, dataset, method)."""
    out: dict[tuple[str, str, str], list[tuple[tuple[float, float], float]]] = {}
    for cell in sorted(cells, key=lambda cell: -abs(cell.set_priors[0] - cell.set_priors[1])):
        place = cell.model, cell.dataset, cell.method
        out.setdefault(place, []).append((cell.set_priors, float(np.mean(list(cell.drop.values())))))
    return out


# --------------------------------------------------------------------------- 3. negative risk and overfitting together


@dataclass(frozen=True)
class CoOccurrence:
    """How often the training risk goes negative and the test error turns, and the rank correlation of when."""

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
        """Share of the runs in which both happen or neither does."""
        return (self.both + self.neither) / self.runs if self.runs else math.nan


def co_occurrence(records: Iterable[Record]) -> CoOccurrence:
    """Over runs: does the risk go below zero, does the test error turn, and when (Spearman, where both happen)?

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


# --------------------------------------------------------------------------------------- 4. regularisation is no cure


@dataclass(frozen=True)
class Regularised:
    """One run of Figure 3: its setting; test risk, and accuracy in percent, at best and at the end."""

    name: str
    lowest_risk: float
    last_risk: float
    best_accuracy: float
    last_accuracy: float


def regularised(records: Iterable[Record], name: str) -> list[Regularised]:
    """The runs of one panel of Figure 3, by rising strength; ``name`` is the entry that varies."""
    out = []
    for record in sorted(records, key=lambda record: record["configuration"][name]):
        curves = {n: [v for v in values if math.isfinite(v)] for n, values in record["curves"].items()}
        if not curves["test_risk"]:
            continue  # it ended before its first epoch did
        label = {"dropout": "dropout", "l2": "weight decay"}[name]
        out.append(
            Regularised(
                f"{label} {record['configuration'][name]:g}",
                min(curves["test_risk"]),
                curves["test_risk"][-1],
                100 * max(curves["test_accuracy"]),
                100 * curves["test_accuracy"][-1],
            )
        )
    return out


# ---------------------------------------------------------------------------------------------------------- for readers


def to_markdown(
    records: Sequence[Record], dropout: Sequence[Record] = (), decay: Sequence[Record] = (), caveat: str = ""
) -> str:
    """All four, as a page; ``records`` are full runs of the tables, the others those of Figure 3.

    ``caveat`` is added to the title, for runs that are not in the paper's setting.
    """
    cells = cells_of(records)
    parts = [
        f"### The conclusions of Section 4{caveat}",
        "Held against the full runs of Tables 2 and 3 (of the leaky ReLU those with λ = −0.1), the last one against "
        "those of Figure 3.",
    ]
    parts += ["**1. Corrected methods beat the unbiased and the biased one.**", _contests_grid(contests(cells))]
    parts += ["**2. The closer the priors, the worse the overfitting** (mean drop Δ_A in points).", _drops_grid(cells)]
    parts += [
        "**3. Negative risk and overfitting occur together.** Two events of a run: the training risk (mean over an "
        "epoch) goes below zero; the test error, smoothed, turns and ends above its minimum by more than noise. The "
        "rank correlation of their epochs is Spearman's, over the runs in which both happen.",
        _together_grid(records),
    ]
    if dropout or decay:
        parts += ["**4. Dropout and weight decay do not cure it** (UU-Unbiased, MNIST, (0.6, 0.4))."]
        parts += [_regularised_grid([*regularised(dropout, "dropout"), *regularised(decay, "l2")])]
    return "\n\n".join(parts) + "\n"


def _contests_grid(found: Sequence[Contest]) -> str:
    lines = [["", "against", "rows", "better", "even", "worse", "not tested", "mean gain", "smallest gain"]]
    for model in MODELS:
        for corrected, plain in itertools.product(CORRECTED, PLAIN):
            mine = [c for c in found if c.row[1] == model and (c.corrected, c.plain) == (corrected, plain)]
            if mine:
                tally = Counter(contest.verdict for contest in mine)
                gains = [contest.difference for contest in mine]
                counts = [str(tally[verdict]) for verdict in ("better", "even", "worse", "not tested")]
                figures = [signed(float(np.mean(gains))), signed(min(gains))]
                lines.append([f"{NAMES[corrected]}, {MODELS[model]}", NAMES[plain], str(len(mine)), *counts, *figures])
    return grid(lines, left=2)


def _drops_grid(cells: Sequence[Cell]) -> str:
    drops = drops_by_priors(cells)
    columns = list(dict.fromkeys(priors for series in drops.values() for priors, _ in series))
    lines = [["", "dataset", "method", *(f"{a:g}, {b:g}" for a, b in columns), "grows"]]
    for (model, dataset, method), series in sorted(drops.items(), key=_reading_order):
        values = dict(series)
        shown = [f"{values[priors]:.2f}" if priors in values else "–" for priors in columns]
        grows = all(a < b for (_, a), (_, b) in itertools.pairwise(series)) if len(series) > 1 else None
        lines.append(
            [model, DATASET_NAMES[dataset], NAMES[method], *shown, {True: "yes", False: "no", None: "–"}[grows]]
        )
    return grid(lines, left=3)


def _together_grid(records: Sequence[Record]) -> str:
    lines = [["runs of", "runs", "both", "only negative", "only turns", "neither", "together", "rank correlation"]]
    records = with_fixed_slope(records)
    chosen: list[tuple[str, list[Record]]] = [("all methods, all models", records)]
    for method in (*PLAIN, *CORRECTED):
        chosen.append((NAMES[method], [r for r in records if r["configuration"]["method"] == method]))
    for model, label in MODELS.items():
        mine = [r for r in records if r["configuration"]["model"] == model]
        chosen += [(f"all methods, {label}", mine)]
        chosen += [(f"UU-Unbiased, {label}", [r for r in mine if r["configuration"]["method"] == "unbiased"])]
    for label, some in chosen:
        if some:
            c = co_occurrence(some)
            rank = "–" if c.spearman is None else signed(c.spearman)
            counts = [str(n) for n in (c.runs, c.both, c.only_negative, c.only_turns, c.neither)]
            lines.append([label, *counts, f"{100 * c.together:.0f}%", rank])
    return grid(lines, left=1)


def _regularised_grid(runs: Sequence[Regularised]) -> str:
    lines = [["", "test risk, lowest", "last", "accuracy, best", "last", "drop"]]
    for run in runs:
        risks = [f"{value:.3g}" for value in (run.lowest_risk, run.last_risk)]
        accuracies = [run.best_accuracy, run.last_accuracy, run.best_accuracy - run.last_accuracy]
        lines.append([run.name, *risks, *(f"{value:.2f}" for value in accuracies)])
    return grid(lines, left=1)


def _reading_order(item: tuple[tuple[str, str, str], Any]) -> tuple[int, int, int]:
    model, dataset, method = item[0]
    return list(MODELS).index(model), list(DATASET_NAMES).index(dataset), list(NAMES).index(method)
