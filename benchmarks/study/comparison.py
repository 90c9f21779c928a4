"""Compute statistics of the stored fits of the study of tables: which contender is best in each cell, and by how much.

A *cell* is a table, a pair of priors and a size of the sets. Contenders are compared on the seeds that they share, with
which they were trained on the same rows.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import contenders as field
import tables
from contenders import Contender

from uulearn.reproduction.statistics import LEVEL, best_methods, paired_t_test

Trials = dict[int, float]
"""Accuracy by seed."""

LEAST_SEEDS = 3  # minimum number of seeds for a test; with two seeds, even large differences look like noise
LEAST_GAIN = 0.05  # minimum gain of supervised training over guessing; a smaller gap cannot be divided by


class Cell(NamedTuple):
    """A table, a pair of priors and a set size."""

    dataset: str
    set_priors: tuple[float, float]
    rows: int

    @property
    def place(self) -> tuple[int, int, float]:
        """The sort key for the order of the page."""
        return tables.NAMES.index(self.dataset), self.rows, -self.set_priors[0]


class Spread(NamedTuple):
    """A mean over tables and its standard error, None for a single table."""

    mean: float
    error: float | None


class Standing(NamedTuple):
    """Number of cells in which one contender is significantly better, equal, and significantly worse than another."""

    better: int
    level: int
    worse: int


@dataclass(frozen=True)
class Comparison:
    """All contenders with one model, and all contenders without a torch model."""

    columns: list[Contender]
    """The default, then the paper's methods, the classifiers of sets and the variants."""
    supervised: Contender
    trials: dict[Cell, dict[str, Trials]]
    """Results by key of the contender."""
    guessing: dict[str, float]
    """Accuracy of always predicting the more frequent class, by table."""
    seconds: dict[str, float]
    """Mean seconds per fit, by key of the contender."""

    @property
    def default(self) -> Contender:
        """The default, with which all others are compared."""
        return self.columns[0]

    @property
    def rivals(self) -> list[Contender]:
        """The paper's five methods and logistic regression on the sets."""
        return [one for one in self.columns if one.name in (*field.PAPER, field.LOGISTIC)]

    @property
    def everyone(self) -> list[Contender]:
        """Contenders with results in all cells of the default, with as many seeds as the rivals."""
        cells = [cell for cell, found in self.trials.items() if self.default.key in found]
        return [one for one in self.columns if all(self._is_comparable(one, cell) for cell in cells)]

    def _is_comparable(self, who: Contender, cell: Cell) -> bool:
        """Whether a contender has all seeds that the default and its rivals share in a cell."""
        met = [one for one in [self.default, *self.rivals] if one.key in self.trials[cell]]
        needed = next(iter(self.shared(cell, met).values()), {})
        return bool(needed) and needed.keys() <= self.trials[cell].get(who.key, {}).keys()

    def shared(self, cell: Cell, who: Iterable[Contender]) -> dict[str, Trials]:
        """Return the trials of contenders in a cell, by key, on the seeds that all of them have."""
        found = {one.key: self.trials[cell].get(one.key, {}) for one in who}
        seeds = sorted(set.intersection(*(set(trials) for trials in found.values()))) if found else []
        return {key: {seed: trials[seed] for seed in seeds} for key, trials in found.items()} if seeds else {}

    def best(self, cell: Cell) -> set[str]:
        """Return the keys of the best contender in a cell and, with three seeds, of those not significantly worse.

        Supervised training is excluded.
        """
        shared = self.shared(cell, [one for one in self.columns if self._is_comparable(one, cell)])
        if any(len(trials) < LEAST_SEEDS for trials in shared.values()):
            return {max(shared, key=lambda key: statistics.fmean(shared[key].values()))}
        return best_methods(shared)

    def level_with_best(self, who: Contender, among: Collection[Contender]) -> dict[Cell, bool]:
        """Return whether a contender is best or within noise of the best, by cell with at least three shared seeds."""
        verdicts = {}
        for cell in self.trials:
            shared = self.shared(cell, [who, *among])
            if shared and len(shared[who.key]) >= LEAST_SEEDS:
                verdicts[cell] = who.key in best_methods(shared)
        return verdicts

    def seeds(self, who: Iterable[Contender]) -> tuple[int, int]:
        """Return the smallest and the largest number of seeds that the contenders share in a cell."""
        contenders = list(who)
        counts = [len(next(iter(shared.values()))) for cell in self.trials if (shared := self.shared(cell, contenders))]
        return min(counts, default=0), max(counts, default=0)

    def means(self, cell: Cell, *who: Contender) -> list[float]:
        """Return the mean accuracy of each contender in a cell, on the seeds that all of them have."""
        return [statistics.fmean(trials.values()) for trials in self.shared(cell, who).values()]

    def differences(self, who: Contender, other: Contender) -> dict[Cell, list[float]]:
        """Return the differences of accuracy between two contenders by cell, one per seed."""
        found = {}
        for cell in self.trials:
            if shared := self.shared(cell, [who, other]):
                pairs = zip(shared[who.key].values(), shared[other.key].values(), strict=True)
                found[cell] = [own - theirs for own, theirs in pairs]
        return found

    def standing(self, who: Contender, other: Contender) -> Standing:
        """Count the cells (with three shared seeds) in which one is significantly better or worse than the other."""
        signs = [significant_sign(own) for own in self.differences(who, other).values() if len(own) >= LEAST_SEEDS]
        return Standing(*(signs.count(sign) for sign in (1, 0, -1)))

    def mean_difference(
        self, who: Contender, other: Contender, where: Callable[[Cell], bool] = lambda cell: True
    ) -> Spread | None:
        """Return the mean over tables, with equal weight per table; None if the contenders have no cell in common."""
        by_table = defaultdict(list)
        for cell, own in self.differences(who, other).items():
            if where(cell):
                by_table[cell.dataset].append(statistics.fmean(own))
        means = [statistics.fmean(own) for own in by_table.values()]
        if not means:
            return None
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else None
        return Spread(statistics.fmean(means), error)

    def share_of_distance(self, who: Contender) -> float | None:
        """Return the mean of (accuracy − guessing)/(supervised − guessing) over cells in which labels gain 5 points."""
        shares = []
        for cell in self.trials:
            if means := self.means(cell, who, self.supervised):
                gain, most = (mean - self.guessing[cell.dataset] for mean in means)
                if most >= LEAST_GAIN:
                    shares.append(gain / most)
        return statistics.fmean(shares) if shares else None


def significant_sign(differences: Collection[float]) -> int:
    """Return 1 or −1 if paired differences are significantly above or below zero, else 0.

    Examples
    --------
    >>> significant_sign([0.02, 0.03, 0.025]), significant_sign([0.02, -0.03, 0.01]), significant_sign([-0.1, -0.1])
    (1, 0, -1)
    """
    values = list(differences)
    p = paired_t_test(values, [0.0] * len(values))
    return 0 if p is None or p >= LEVEL else int(math.copysign(1, sum(values)))


def compare(fits: Iterable[Mapping[str, Any]], model: str, base: Mapping[str, Any] | None = None) -> Comparison | None:
    """Compare stored fits; return None without fits of the default with this model; ``base`` is as in the plan."""
    planned = field.planned([model], base=base)
    supervised = next(one for one in planned if one.kind == field.SUPERVISED)
    known = {one.key: one for one in sorted(planned, key=_rank) if one.kind != field.SUPERVISED}
    variants: dict[str, Contender] = {}
    trials: dict[Cell, dict[str, Trials]] = defaultdict(lambda: defaultdict(dict))
    seconds: dict[str, list[float]] = defaultdict(list)
    guessing: dict[str, float] = {}
    for fit in fits:
        one = fit["configuration"]
        contender = field.recognized(one, base)
        if contender.model not in (model, None):
            continue
        if contender.key not in known and contender.kind == field.RISK:
            variants.setdefault(contender.key, contender)
        cell = Cell(one["dataset"], tuple(one["set_priors"]), one["rows"])
        trials[cell][contender.key][one["seed"]] = fit["accuracy"]
        seconds[contender.key].append(fit["seconds"])
        guessing[cell.dataset] = max(fit["target_prior"], 1 - fit["target_prior"])
    default = next(iter(known.values()))
    if default.key not in seconds:
        return None
    columns = [*known.values(), *sorted(variants.values(), key=lambda one: one.name)]
    return Comparison(
        [one for one in columns if one.key in seconds],
        supervised,
        {cell: dict(trials[cell]) for cell in sorted(trials, key=lambda cell: cell.place)},
        guessing,
        {key: statistics.fmean(own) for key, own in seconds.items()},
    )


def _rank(contender: Contender) -> int:
    """Return the sort key: the default is first, and contenders without a torch model follow the paper's methods."""
    return 0 if contender.name == field.DEFAULT else 1 if contender.model else 2
