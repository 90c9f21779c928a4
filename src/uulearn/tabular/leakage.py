"""Find columns that distinguish the sets by more than their class priors: a clinic's number, a date of export.

Training on two sets assumes that positives look the same in both sets, and so do negatives. Then an event, such as "the
color is red", has probability q = θt + (1 − θ)f in the first set and q′ = θ′t + (1 − θ′)f in the second, with t and f
its rates among positives and negatives. Both rates must be in [0, 1]. For θ > θ′ this means

    (1 − θ)/(1 − θ′) ≤ q/q′ ≤ θ/θ′:

at priors of 0.8 and 0.2, no event can be more than four times as frequent in one set as in the other (and no total
variation distance can exceed |θ − θ′|). An event beyond these bounds differs between the sets for another reason than
the class, and a classifier would learn that reason.

For each column the rows are halved: one half chooses the values that violate the bound most, the other half counts
them, and vice versa. Exact intervals (Clopper and Pearson, 1934) hold for all columns together with 99.9%: under the
assumption, at most one table in a thousand gives an alarm, whatever its columns are. Small differences do no harm, so a
rate must be outside [0, 1] by at least `MARGIN`, unless the column distinguishes the sets completely.

Measured at (0.8, 0.2) among six columns that follow the assumption: a site that is right in 95% of the rows is found in
83% of the tables with 200 rows per set, and in all with 1,000; a normal column shifted by two standard deviations is
found in all with 1,000; one shifted by one standard deviation is not found, because classes could cause that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

from uulearn.metrics.estimates import combine_proportions, split_scores
from uulearn.risk.coefficients import check_set_priors
from uulearn.tabular.coding import Codes, ColumnCells, column_cells, make_codings, show_value
from uulearn.tabular.schema import Schema, TableColumn

LEAKAGE_CONFIDENCE = 0.999  # of all statements about a pair of sets together
MARGIN = 0.02  # how far outside [0, 1] a rate must be
MAX_COMPARED_ROWS = 20_000  # rows of each set that are compared; more would find differences that do not matter
MIN_COMPARED_ROWS = 10  # with fewer rows, one value in one file and another in the other means nothing
PERFECT = 0.999  # a column that identifies the set of this fraction of rows distinguishes the sets completely
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the scores: thresholds at which the sets are compared
FILE_NAMES = ("the first file", "the second file")

Pair = tuple[float, float]


@dataclass(frozen=True)
class LeakingColumn:
    """A column that differs between the sets by more than their class priors allow."""

    column: str
    auc: float
    """How well the column alone distinguishes the sets, on rows not used to learn it: 0.5 not at all, 1 completely."""
    reason: str
    """One sentence."""


def find_leaking_columns(
    frame0: pd.DataFrame,
    frame1: pd.DataFrame,
    schema: Schema,
    set_priors: Sequence[float],
    *,
    files: Sequence[str] = FILE_NAMES,
    seed: int = 0,
) -> list[LeakingColumn]:
    """Return the columns that differ between two sets by more than their class priors allow, the clearest first.

    Parameters
    ----------
    frame0, frame1 : DataFrames of n and n′ rows
        A random sample of the rows of each set, as `uulearn.tabular.schema.apply_schema` returns them.
    schema : Schema
    set_priors : (θ, θ′)
        Class priors. (1, 0) allows any difference, and finds only columns with one value in all rows of one set and
        another value in all rows of the other.
    files : pair of str
        Names of the sets in the reasons.
    seed : int
        Seed of the halving.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> schema = Schema((TableColumn("age", "number"), TableColumn("ward", "category", values=("a", "b", "c"))))
    >>> in_a = pd.DataFrame({"age": rng.normal(50, 9, 500), "ward": rng.choice(["a", "b"], 500)})
    >>> in_b = pd.DataFrame({"age": rng.normal(50, 9, 500), "ward": rng.choice(["b", "c"], 500)})
    >>> [found] = find_leaking_columns(in_a, in_b, schema, (0.7, 0.3))
    >>> print(found.reason)  # doctest: +NORMALIZE_WHITESPACE
    Column 'ward' differs between the files by more than the class priors allow: 'c' occurs in 55% of the rows of the
    second file and 0% of those of the first file, but at priors of 0.7 and 0.3 no value can be more than 2.3 times as
    frequent.
    """
    priors = check_set_priors(set_priors)
    frames = [frame.iloc[:: -(-len(frame) // MAX_COMPARED_ROWS) or 1] for frame in (frame0, frame1)]
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(len(frame)) % 2 for frame in frames]
    alpha = (1 - LEAKAGE_CONFIDENCE) / len(schema.columns)
    found = []
    for column in schema.columns:
        cells = [column_cells(frame, column) for frame in frames]
        leak = _one_value_each(column, cells, files) or _beyond_bounds(column, cells, halves, priors, alpha, files)
        if leak is not None:
            found.append(leak)
    return sorted(found, key=lambda leak: -leak.auc)


# --------------------------------------------------------------------------------------- one value in each of the files


def _one_value_each(column: TableColumn, cells: Sequence[ColumnCells], files: Sequence[str]) -> LeakingColumn | None:
    """Find a column with one value per file, such as the name of the file, without statistics."""
    if min(len(own.known) for own in cells) < MIN_COMPARED_ROWS:
        return None
    values = []
    for own in cells:
        if own.known.any() and not own.known.all():
            return None
        distinct = set(own.values[own.known].tolist())
        if len(distinct) > 1:
            return None
        values.append(f"{show_value(distinct.pop(), column)} in every row" if distinct else "no value in any row")
    if values[0] == values[1]:
        return None
    reason = (
        f"Column {column.name!r} identifies the file of a row ({values[0]} of {files[0]}, {values[1]} of {files[1]}), "
        "so a classifier would learn the files, not the classes."
    )
    return LeakingColumn(column.name, 1.0, reason)


# ------------------------------------------------------------------------------------------------- beyond the bounds


class PriorBound(NamedTuple):
    """One of the two bounds: the set with too many rows of an event, and the weights of the violation.

    The rate of the event in the class that is rarer in this set is (few·q_other − many·q_own)/|θ − θ′|, at least 0.
    """

    own: int
    many: float
    few: float


class BoundViolation(NamedTuple):
    """A violation of a bound: the fraction of rows of each set, and a description."""

    excess: float
    shares: Pair
    side: PriorBound
    words: str


def _sides(priors: Pair) -> tuple[PriorBound, PriorBound]:
    higher = 0 if priors[0] > priors[1] else 1
    high, low = priors[higher], priors[1 - higher]
    return PriorBound(higher, low, high), PriorBound(1 - higher, 1 - high, 1 - low)


def _beyond_bounds(
    column: TableColumn,
    cells: Sequence[ColumnCells],
    halves: Sequence[Codes],
    priors: Pair,
    alpha: float,
    files: Sequence[str],
) -> LeakingColumn | None:
    """Choose values on one half of the rows and count them on the other half, and vice versa."""
    gap = abs(priors[0] - priors[1])
    events, areas = [], []
    for held in (0, 1):
        learned = [own.take(half != held) for own, half in zip(cells, halves, strict=True)]
        evaluated = [own.take(half == held) for own, half in zip(cells, halves, strict=True)]
        if min(len(own.known) for own in (*learned, *evaluated)) == 0:
            return None
        codings = make_codings(column, learned)
        level = alpha / (2 * 2 * 2 * len(codings))  # two halves, two bounds, two fractions
        own_areas = []
        for coding in codings:
            before, after = ([coding.count_rows(own) for own in part] for part in (learned, evaluated))
            own_areas.append(_area(before, after))
            for side in _sides(priors):
                chosen = _choose(before, side)
                excess, shares = _excess(after, chosen, side, level)
                perfect = shares[side.own] >= PERFECT and shares[1 - side.own] <= 1 - PERFECT
                if excess > (0 if perfect else MARGIN * gap):
                    events.append(BoundViolation(excess, shares, side, coding.describe(chosen, before[side.own])))
        areas.append(max(own_areas))
    if not events:
        return None
    return LeakingColumn(column.name, float(np.mean(areas)), _reason(column, max(events), priors, files))


def _choose(counts: Sequence[Codes], side: PriorBound) -> NDArray[np.bool_]:
    """Return the codes that violate the bound by more than a standard error."""
    own, other = (counts[which] / max(1, counts[which].sum()) for which in (side.own, 1 - side.own))
    sizes = [max(1, int(counts[which].sum())) for which in (side.own, 1 - side.own)]
    error = np.sqrt(side.many**2 * own / sizes[0] + side.few**2 * other / sizes[1])
    chosen: NDArray[np.bool_] = side.many * own - side.few * other > error
    return chosen


def _excess(counts: Sequence[Codes], chosen: NDArray[np.bool_], side: PriorBound, level: float) -> tuple[float, Pair]:
    """Return a lower confidence bound of the violation, and the fraction of rows of each set."""
    inside = [int(own[chosen].sum()) for own in counts]
    sizes = [int(own.sum()) for own in counts]
    own, other = side.own, 1 - side.own
    lowest = float(beta.ppf(level, inside[own], sizes[own] - inside[own] + 1)) if inside[own] else 0.0
    rest = sizes[other] - inside[other]
    highest = float(beta.ppf(1 - level, inside[other] + 1, rest)) if rest else 1.0
    return side.many * lowest - side.few * highest, (inside[0] / sizes[0], inside[1] / sizes[1])


def _area(before: Sequence[Codes], after: Sequence[Codes]) -> float:
    """Return the AUC on one half of the rows, with the codes ordered by the other half."""
    order = np.argsort((before[0] + 1) / (before[1] + 1), kind="stable")
    first, second = (own[order] / own.sum() for own in after)
    return float(first @ (np.cumsum(second) - second / 2))


def _reason(column: TableColumn, event: BoundViolation, priors: Pair, files: Sequence[str]) -> str:
    name, (own, many, few) = column.name, event.side
    other = 1 - own
    q = [f"{100 * share:.{0 if share >= 0.0995 or share == 0 else 1}f}%" for share in event.shares]
    shares = f"{event.words} in {q[own]} of the rows of {files[own]} and {q[other]} of those of {files[other]}"
    if event.shares[own] >= PERFECT and event.shares[other] <= 1 - PERFECT:
        return (
            f"Column {name!r} identifies the file of a row ({shares}), so a classifier would learn the files, not the "
            "classes."
        )
    return (
        f"Column {name!r} differs between the files by more than the class priors allow: {shares}, but at priors of "
        f"{priors[0]:g} and {priors[1]:g} no value can be more than {few / many:.2g} times as frequent."
    )


# ---------------------------------------------------------------------------------------------- all columns together


@dataclass(frozen=True)
class MixtureCheck:
    """Whether the scores of two sets violate the mixture assumption."""

    differ: bool
    thresholds: tuple[float, ...]
    true_positive: tuple[Pair, ...]
    """At each threshold, an interval for the fraction of positives above it; each must overlap [0, 1]."""
    false_positive: tuple[Pair, ...]
    """The same for negatives."""
    reason: str | None
    """One sentence, if they differ."""


def compare_sets_beyond_priors(scores: Any, sets: Any, set_priors: Sequence[float]) -> MixtureCheck:
    """Check whether scores distinguish two sets better than the class priors allow.

    If no single column violates a bound, all of them together may. At five thresholds, the fractions of both sets above
    it imply a true-positive and a false-positive rate (`uulearn.metrics.uu_rates`), with a 99.9% interval each; an
    interval outside [0, 1] is impossible. In simulations of 36 true mixtures at most 0.13% gave an alarm. A shift of
    half a standard deviation, with 1,000 rows per set, gave one in 100% of the cases at (0.6, 0.4), and at (0.8, 0.2)
    in 92% with classes three standard deviations apart, in 21% with classes one standard deviation apart.

    Parameters
    ----------
    scores : array of shape (n,)
        Higher for rows like those of the set with the higher prior, each from a model that has not seen the row
        (`uulearn.priors.out_of_fold_scores`).
    sets : array of shape (n,)
        The set of each row, 0 or 1.
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
    parts = split_scores(scores, sets)
    sizes, gap = [len(part) for part in parts], theta - theta_prime
    thresholds = tuple(float(t) for t in np.quantile(np.concatenate(parts), QUANTILES, method="inverted_cdf"))
    shares = [[float((part > threshold).mean()) for part in parts] for threshold in thresholds]
    rates = [
        tuple(
            combine_proportions(
                own, sizes, (first / gap, second / gap), 0.0, LEAKAGE_CONFIDENCE, (-np.inf, np.inf)
            ).interval
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
            f"The sets differ by more than the class priors allow: {q[0]} of the rows of set 0 and {q[1]} of set 1 "
            f"score high, which at priors of {theta:g} and {theta_prime:g} would take {100 * low:.0f}% to "
            f"{100 * high:.0f}% of the {('positives', 'negatives')[which]}."
        )
    return MixtureCheck(bool(outside), thresholds, rates[0], rates[1], reason)
