"""Columns that tell two sets apart by more than their shares of positives: a clinic's number, a date of export.

Learning from two sets rests on one assumption: a positive looks the same in both, and so does a negative. Then an
event, "the colour is red", has probability q = θt + (1 − θ)f in the first set and q′ = θ′t + (1 − θ′)f in the second,
with t and f its rates among positives and negatives. Solved for t and f, both must lie in [0, 1]. For θ > θ′ that means

    (1 − θ)/(1 − θ′) ≤ q/q′ ≤ θ/θ′:

at shares of 0.8 and 0.2 nothing can be more than four times as frequent in one set as in the other (and hence no total
variation distance exceed |θ − θ′|). What is, differs between the sets for another reason than the class, and a
classifier would learn that reason.

For each column the rows are halved; one half chooses the values that break the bound most, the other half counts them,
and the other way round. Exact intervals (Clopper and Pearson, 1934) hold for all columns together with 99.9%: under
the assumption, at most one table in a thousand gives any alarm, whatever its columns are. Slight differences ruin
nothing, so a rate must leave [0, 1] by `MARGIN` at least, unless the column tells the sets apart altogether.

Measured at (0.8, 0.2) among six columns that follow the assumption: a site that is told rightly in 95% of the rows is
found in 83% of the tables with 200 rows a set, and in all with 1,000; a normal column that is shifted by two standard
deviations in all with 1,000; one that is shifted by one standard deviation is not found, for classes could do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

from uulearn.metrics.estimates import read_scores, sum_of_shares
from uulearn.risk.coefficients import check_set_priors
from uulearn.tabular.coding import Codes, ColumnCells, codings, column_cells, count_codes, show_value
from uulearn.tabular.schema import Schema, TableColumn

CONFIDENCE = 0.999
"""Of all statements about a pair of sets together."""
MARGIN = 0.02
"""How far outside of [0, 1] a rate must lie at least."""
MOST_ROWS = 20_000
"""Of each set at most so many rows are looked at, evenly spaced; more would find differences that do not matter."""
FEWEST_ROWS = 10
"""In fewer rows, one value in one file and another in the other means nothing."""
PERFECT = 0.999
"""A column that tells so many rows' set rightly tells the sets apart altogether."""
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
FILES = ("the first file", "the second file")

Pair = tuple[float, float]


@dataclass(frozen=True)
class LeakingColumn:
    """A column that differs between the sets in more than their shares of positives."""

    column: str
    auc: float
    """How well the column alone tells the sets apart, on rows not used to learn it: 0.5 not at all, 1 exactly."""
    reason: str
    """In one sentence."""


def find_leaking_columns(
    frame0: pd.DataFrame,
    frame1: pd.DataFrame,
    schema: Schema,
    set_priors: Sequence[float],
    *,
    files: Sequence[str] = FILES,
    seed: int = 0,
) -> list[LeakingColumn]:
    """Columns that differ between two sets in more than their shares of positives, the clearest first.

    Parameters
    ----------
    frame0, frame1 : DataFrames of n and n′ rows
        Rows of each set, drawn at random from all of them, as `uulearn.tabular.schema.apply_schema` returns them.
    schema : Schema
    set_priors : (θ, θ′)
        Shares of positives. With (1, 0) any difference is allowed, and only columns are found that have one value in
        all rows of one set and another one in all rows of the other.
    files : pair of str
        What to call the sets in the reasons.
    seed : int
        Of the halving.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> schema = Schema((TableColumn("age", "number"), TableColumn("ward", "category", values=("a", "b", "c"))))
    >>> in_a = pd.DataFrame({"age": rng.normal(50, 9, 500), "ward": rng.choice(["a", "b"], 500)})
    >>> in_b = pd.DataFrame({"age": rng.normal(50, 9, 500), "ward": rng.choice(["b", "c"], 500)})
    >>> [found] = find_leaking_columns(in_a, in_b, schema, (0.7, 0.3))
    >>> print(found.reason)  # doctest: +NORMALIZE_WHITESPACE
    Column 'ward' differs between the files in more than their shares of positives: 'c' stands in 55% of the rows of
    the second file and 0% of those of the first file, and at shares of 0.7 and 0.3 nothing can be more than 2.3 times
    as frequent.
    """
    priors = check_set_priors(set_priors)
    frames = [frame.iloc[:: -(-len(frame) // MOST_ROWS) or 1] for frame in (frame0, frame1)]
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(len(frame)) % 2 for frame in frames]
    alpha = (1 - CONFIDENCE) / len(schema.columns)
    found = []
    for column in schema.columns:
        cells = [column_cells(frame, column) for frame in frames]
        leak = _one_value_each(column, cells, files) or _beyond_bounds(column, cells, halves, priors, alpha, files)
        if leak is not None:
            found.append(leak)
    return sorted(found, key=lambda leak: -leak.auc)


# --------------------------------------------------------------------------------------- one value in each of the files


def _one_value_each(column: TableColumn, cells: Sequence[ColumnCells], files: Sequence[str]) -> LeakingColumn | None:
    """No statistics: such a column holds the name of the file and nothing else."""
    if min(len(own.known) for own in cells) < FEWEST_ROWS:
        return None
    values = []
    for own in cells:
        if own.known.any() and not own.known.all():
            return None
        different = set(own.values[own.known].tolist())
        if len(different) > 1:
            return None
        values.append(f"{show_value(different.pop(), column)} in every row" if different else "no value in any row")
    if values[0] == values[1]:
        return None
    reason = (
        f"Column {column.name!r} tells exactly which file a row is from ({values[0]} of {files[0]}, {values[1]} of "
        f"{files[1]}): a classifier would learn the files, not the classes."
    )
    return LeakingColumn(column.name, 1.0, reason)


# ------------------------------------------------------------------------------------------------- beyond the bounds


class Side(NamedTuple):
    """One of the two bounds: which set has too many rows of an event, and by what weights that is told.

    The event's rate among the class that the set is poor in is (few·q_other − many·q_own)/|θ − θ′|, at least 0.
    """

    own: int
    many: float
    few: float


class Event(NamedTuple):
    """What breaks a bound: shares of the rows of either set, and what it is in words."""

    excess: float
    shares: Pair
    side: Side
    words: str


def _sides(priors: Pair) -> tuple[Side, Side]:
    richer = 0 if priors[0] > priors[1] else 1
    high, low = priors[richer], priors[1 - richer]
    return Side(richer, low, high), Side(1 - richer, 1 - high, 1 - low)


def _beyond_bounds(
    column: TableColumn,
    cells: Sequence[ColumnCells],
    halves: Sequence[Codes],
    priors: Pair,
    alpha: float,
    files: Sequence[str],
) -> LeakingColumn | None:
    """Choose on one half, count on the other, and the other way round."""
    gap = abs(priors[0] - priors[1])
    events, areas = [], []
    for held in (0, 1):
        learned = [own.take(half != held) for own, half in zip(cells, halves, strict=True)]
        evaluated = [own.take(half == held) for own, half in zip(cells, halves, strict=True)]
        if min(len(own.known) for own in (*learned, *evaluated)) == 0:
            return None
        ways = codings(column, learned)
        level = alpha / (2 * 2 * 2 * len(ways))  # two halves, two bounds, two shares
        own_areas = []
        for coding in ways:
            before, after = ([count_codes(coding, own) for own in part] for part in (learned, evaluated))
            own_areas.append(_area(before, after))
            for side in _sides(priors):
                chosen = _choose(before, side)
                excess, shares = _excess(after, chosen, side, level)
                perfect = shares[side.own] >= PERFECT and shares[1 - side.own] <= 1 - PERFECT
                if excess > (0 if perfect else MARGIN * gap):
                    events.append(Event(excess, shares, side, coding.describe(chosen, before[side.own])))
        areas.append(max(own_areas))
    if not events:
        return None
    return LeakingColumn(column.name, float(np.mean(areas)), _reason(column, max(events), priors, files))


def _choose(counts: Sequence[Codes], side: Side) -> NDArray[np.bool_]:
    """Codes that break the bound by more than a standard error."""
    own, other = (counts[which] / max(1, counts[which].sum()) for which in (side.own, 1 - side.own))
    sizes = [max(1, int(counts[which].sum())) for which in (side.own, 1 - side.own)]
    error = np.sqrt(side.many**2 * own / sizes[0] + side.few**2 * other / sizes[1])
    chosen: NDArray[np.bool_] = side.many * own - side.few * other > error
    return chosen


def _excess(counts: Sequence[Codes], chosen: NDArray[np.bool_], side: Side, level: float) -> tuple[float, Pair]:
    """By how much the bound is broken at least, and the shares of both sets that do."""
    inside = [int(own[chosen].sum()) for own in counts]
    sizes = [int(own.sum()) for own in counts]
    own, other = side.own, 1 - side.own
    lowest = float(beta.ppf(level, inside[own], sizes[own] - inside[own] + 1)) if inside[own] else 0.0
    rest = sizes[other] - inside[other]
    highest = float(beta.ppf(1 - level, inside[other] + 1, rest)) if rest else 1.0
    return side.many * lowest - side.few * highest, (inside[0] / sizes[0], inside[1] / sizes[1])


def _area(before: Sequence[Codes], after: Sequence[Codes]) -> float:
    """AUC on one half of the order of the codes that the other half gives."""
    order = np.argsort((before[0] + 1) / (before[1] + 1), kind="stable")
    first, second = (own[order] / own.sum() for own in after)
    return float(first @ (np.cumsum(second) - second / 2))


def _reason(column: TableColumn, event: Event, priors: Pair, files: Sequence[str]) -> str:
    name, (own, many, few) = column.name, event.side
    other = 1 - own
    q = [f"{100 * share:.{0 if share >= 0.0995 or share == 0 else 1}f}%" for share in event.shares]
    shares = f"{event.words} in {q[own]} of the rows of {files[own]} and {q[other]} of those of {files[other]}"
    if event.shares[own] >= PERFECT and event.shares[other] <= 1 - PERFECT:
        return (
            f"Column {name!r} tells exactly which file a row is from ({shares}): a classifier would learn the files, "
            "not the classes."
        )
    return (
        f"Column {name!r} differs between the files in more than their shares of positives: {shares}, and at shares of "
        f"{priors[0]:g} and {priors[1]:g} nothing can be more than {few / many:.2g} times as frequent."
    )


# ---------------------------------------------------------------------------------------------- all columns together


@dataclass(frozen=True)
class SetComparison:
    """Whether two sets differ in more than their shares of positives, told by scores of their rows."""

    differ: bool
    thresholds: tuple[float, ...]
    true_positive: tuple[Pair, ...]
    """At each threshold an interval for the share of positives above it; [0, 1] must touch all of them."""
    false_positive: tuple[Pair, ...]
    """The same for negatives."""
    reason: str | None
    """In one sentence, if they differ."""


def compare_sets_beyond_priors(scores: Any, sets: Any, set_priors: Sequence[float]) -> SetComparison:
    """Whether scores that tell two sets apart do so better than the shares of positives allow.

    Where no single column breaks a bound, all of them together may. At five thresholds the shares of both sets above
    it give the true- and the false-positive rate that they imply (`uulearn.metrics.uu_rates`), with a 99.9% interval
    each; one that lies outside of [0, 1] cannot be. In simulations of 36 true mixtures at most 0.13% gave an alarm. A
    shift of half a standard deviation, with 1,000 rows a set, gave one in 100% of the cases at (0.6, 0.4), and at
    (0.8, 0.2) in 92% where the classes are three standard deviations apart, in 21% where they are one apart.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher for rows that look like the richer set, each from a model that has not seen the row
        (`uulearn.priors.cross_fitted_scores`).
    sets : array of shape (n,)
        The set that each row came from, 0 or 1.
    set_priors : (θ, θ′)

    Examples
    --------
    >>> scores, sets = np.linspace(1, -1, 2000), np.repeat([0, 1], 1000)  # set 0 is above, set 1 below
    >>> compare_sets_beyond_priors(scores, sets, (0.8, 0.2)).differ
    True
    >>> compare_sets_beyond_priors(scores, sets, (1.0, 0.0)).differ
    False
    """
    theta, theta_prime = check_set_priors(set_priors)
    parts = read_scores(scores, sets)
    sizes, gap = [len(part) for part in parts], theta - theta_prime
    thresholds = tuple(float(t) for t in np.quantile(np.concatenate(parts), QUANTILES, method="inverted_cdf"))
    shares = [[float((part > threshold).mean()) for part in parts] for threshold in thresholds]
    rates = [
        tuple(
            sum_of_shares(own, sizes, (first / gap, second / gap), 0.0, CONFIDENCE, (-np.inf, np.inf)).interval
            for own in shares
        )
        for first, second in ((1 - theta_prime, theta - 1), (-theta_prime, theta))
    ]
    outside = [
        (position, which)
        for which, intervals in enumerate(rates)
        for position, (low, high) in enumerate(intervals)
        if high < 0 or low > 1
    ]
    reason = None
    if outside:
        position, which = outside[0]
        low, high = rates[which][position]
        q = [f"{100 * share:.0f}%" for share in shares[position]]
        reason = (
            f"The sets differ in more than their shares of positives: {q[0]} of the rows of the one and {q[1]} of the "
            f"other score high, which at {theta:g} and {theta_prime:g} would take {100 * low:.0f}% to {100 * high:.0f}"
            f"% of the {('positives', 'negatives')[which]}."
        )
    return SetComparison(bool(outside), thresholds, rates[0], rates[1], reason)
