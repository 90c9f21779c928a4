"""Find columns that distinguish the sets better than their class priors allow, such as a clinic name or an export date.

Training on two sets assumes that positives have the same distribution in both sets, and negatives as well. Then an
event, such as "the color is red", has probability q = θt + (1 − θ)f in the first set and q′ = θ′t + (1 − θ′)f in the
second, where t and f are its rates among positives and negatives. Both rates lie in [0, 1]. For θ > θ′, this implies

    (1 − θ)/(1 − θ′) ≤ q/q′ ≤ θ/θ′.

At priors of 0.8 and 0.2, no event can be more than four times as frequent in one set as in the other. If an event
violates these bounds, the sets differ for a reason other than the class, and a classifier would learn this difference.

The rows are split into two halves. Values that violate a bound are chosen on one half and counted on the other half,
and vice versa. Exact intervals (Clopper and Pearson, 1934) have a joint confidence of 99.9% for all columns, so at most
one pair of tables in a thousand causes a false alarm. Small differences are harmless, so a column is reported only if a
rate is outside [0, 1] by at least `MARGIN`, or if the column distinguishes the sets completely.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta

from uulearn.tabular.cells import format_value
from uulearn.tabular.schema import OTHER, Schema, TableColumn, quote_value
from uulearn.tabular.survey import FILE_NAMES
from uulearn.tabular.text import count_groups

LEAKAGE_CONFIDENCE = 0.999  # joint confidence of all statements about a pair of sets
MARGIN = 0.02  # minimum distance between an implausible rate and [0, 1]
MAX_COMPARED_ROWS = 20_000  # number of rows of each set to compare; more rows would reveal irrelevant differences
MIN_COMPARED_ROWS = 10  # with fewer rows, different constant values in the two files are not evidence
PERFECT = 0.999  # a column that identifies the set of this fraction of rows distinguishes the sets completely
N_RANGES = 32  # number of ranges, with the same number of rows, for comparing numbers
ROWS_PER_VALUE = 10  # numbers that repeat this often on average are also compared value by value
LABEL_CONFIDENCE = 0.99  # of the intervals in which the frequencies of a label must contain the class priors
ROUNDED_PRIOR = 0.005  # class priors are often rounded to two decimals
LABEL_SEPARATION = 0.7  # difference of the rates in positives and negatives that a column must exceed to be a label
NAMED_LABEL_LEVEL = 0.05  # one-sided level at which the frequencies in a column with a label name must differ
LABEL_VALUES = 0.99  # fraction of the known cells that have one of two values
LABEL_NAMES = {"label", "labels", "class", "target", "y", "outcome", "positive", "is_positive", "truth", "ground_truth"}

Pair = tuple[float, float]
Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LeakingColumn:
    """A column that differs between the sets by more than their class priors allow."""

    column: str
    auc: float
    """AUC for distinguishing the sets by this column alone, on held-out rows; 0.5 is chance level, 1 is perfect."""
    reason: str
    depends_on_priors: bool = False
    """Whether other class priors would allow the difference."""


def find_leaking_columns(
    frame0: pd.DataFrame,
    frame1: pd.DataFrame,
    schema: Schema,
    set_priors: Pair,
    *,
    files: Sequence[str] = FILE_NAMES,
    noun: str = "file",
    seed: int = 0,
) -> list[LeakingColumn]:
    """Return the columns that differ between two sets by more than their class priors allow, highest AUC first.

    Each frame is a random sample of the rows of one set, converted by `uulearn.tabular.schema.apply_schema`. ``files``
    contains the file names to mention in the reasons, and ``noun`` is the word for a file. Class priors of (1, 0) allow
    any difference, so only columns with a different constant value in each set are found.

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
    frames = [frame.iloc[:: -(-len(frame) // MAX_COMPARED_ROWS) or 1] for frame in (frame0, frame1)]
    rng = np.random.default_rng(seed)
    halves = [rng.permutation(len(frame)) % 2 for frame in frames]
    alpha = (1 - LEAKAGE_CONFIDENCE) / len(schema.columns)
    found = []
    for column in schema.columns:
        cells = [_column_cells(frame[column.name], column) for frame in frames]
        leak = _one_value_each(column, cells, files, noun) or _beyond_bounds(
            column, cells, halves, set_priors, alpha, files, noun
        )
        if leak is not None:
            found.append(leak)
    return sorted(found, key=lambda leak: -leak.auc)


def find_label_columns(
    frame0: pd.DataFrame, frame1: pd.DataFrame, schema: Schema, set_priors: Pair, *, files: Sequence[str] = FILE_NAMES
) -> list[LeakingColumn]:
    """Return the columns that are probably the label, because the frequencies of a value match the class priors.

    By the equations above, a value with frequencies θ and θ′ occurs in all positives and in no negatives. Exact
    intervals of both frequencies must contain the class priors. With few rows, a good feature can look like a label, so
    a lower bound of t − f must also reach `LABEL_SEPARATION`. In a column with a typical label name, it is enough that
    the value is significantly more frequent in the set with the higher class prior. See `find_leaking_columns` for the
    parameters. ``benchmarks/label_column.py`` measures false alarms and power.

    >>> schema = Schema((TableColumn("sick", "boolean"), TableColumn("smokes", "boolean")))
    >>> in_a = pd.DataFrame({"sick": [1.0] * 160 + [0.0] * 40, "smokes": [1.0] * 100 + [0.0] * 100})
    >>> in_b = pd.DataFrame({"sick": [1.0] * 42 + [0.0] * 158, "smokes": [1.0] * 80 + [0.0] * 120})
    >>> [found] = find_label_columns(in_a, in_b, schema, (0.8, 0.2))
    >>> print(found.reason)  # doctest: +NORMALIZE_WHITESPACE
    Column 'sick' is probably the label: true occurs in 80% of the rows of the first file and 21% of the rows of the
    second file, which matches the priors 0.8 and 0.2.
    """
    found = []
    for column in schema.columns:
        if column.kind not in ("number", "boolean", "category"):
            continue
        cells = [_column_cells(frame[column.name], column) for frame in (frame0, frame1)]
        known = [own.values[own.known] for own in cells]
        values, totals = np.unique(np.concatenate(known), return_counts=True)
        common = np.argsort(-totals, kind="stable")[:2]
        if min(map(len, known)) < MIN_COMPARED_ROWS or totals[common].sum() < LABEL_VALUES * totals.sum():
            continue
        for value in values[common]:
            counts = [int((own == value).sum()) for own in known]
            sizes = [len(own) for own in known]
            if _has_class_priors(column, counts, sizes, set_priors):
                q, q_prime = counts[0] / sizes[0], counts[1] / sizes[1]
                reason = (
                    f"Column {column.name!r} is probably the label: {show_value(value, column)} occurs in {q:.0%} of "
                    f"the rows of {files[0]} and {q_prime:.0%} of the rows of {files[1]}, which matches the priors "
                    f"{set_priors[0]:g} and {set_priors[1]:g}."
                )
                found.append(LeakingColumn(column.name, 0.5 + abs(q - q_prime) / 2, reason))
                break
    return found


def _has_class_priors(column: TableColumn, counts: Sequence[int], sizes: Sequence[int], priors: Pair) -> bool:
    """Return whether the frequencies of a value match the class priors, and the value is rare in negatives."""
    low, high = _intervals(counts, sizes, (1 - LABEL_CONFIDENCE) / 2)
    if (priors < low - ROUNDED_PRIOR).any() or (priors > high + ROUNDED_PRIOR).any():
        return False
    named = column.name.lower() in LABEL_NAMES
    if named:
        low, high = _intervals(counts, sizes, NAMED_LABEL_LEVEL)
    q, own, other = np.divide(counts, sizes), int(np.argmax(priors)), int(np.argmin(priors))
    separation = q[own] - q[other] - math.hypot(q[own] - low[own], high[other] - q[other])
    return bool(separation > 0 if named else separation >= LABEL_SEPARATION * (priors[own] - priors[other]))


def _intervals(counts: Sequence[int], sizes: Sequence[int], level: float) -> tuple[Floats, Floats]:
    """Return the lower and the upper ends of the exact intervals of the frequencies in both sets."""
    low, high = np.transpose([exact_interval(*pair, level) for pair in zip(counts, sizes, strict=True)])
    return low, high


class ColumnCells(NamedTuple):
    """Values of a column in one set, with a mask of the values that are not missing."""

    values: NDArray[Any]
    known: Mask


def _column_cells(series: pd.Series, column: TableColumn) -> ColumnCells:
    known = series.notna().to_numpy()
    if column.kind == "date":
        return ColumnCells(series.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64), known)
    return ColumnCells(series.to_numpy(dtype=np.float64 if column.kind in ("number", "boolean") else object), known)


class Coding(NamedTuple):
    """Mapping of cells to integer codes: 0 for missing cells, one per value or range, and the last for other values."""

    column: TableColumn
    values: NDArray[Any]
    """Sorted values, or the boundaries between ranges."""
    ranges: bool
    score: Callable[[NDArray[Any]], Floats] | None = None  # for text: a function from cells to numbers

    def count_rows(self, cells: ColumnCells) -> Codes:
        """Return the number of rows with each code."""
        size = len(self.values) + 2
        codes = np.zeros(len(cells.known), dtype=np.int64)
        known = cells.values[cells.known]
        if self.score is not None and len(known):
            known = self.score(known)
        if self.ranges:
            codes[cells.known] = 1 + np.searchsorted(self.values, known.astype(np.float64), side="right")
        else:
            places = pd.Index(self.values).get_indexer(known)
            codes[cells.known] = np.where(places < 0, size - 1, places + 1)
        return np.bincount(codes, minlength=size)

    def describe(self, chosen: Mask, counts: Codes) -> str:
        """Describe the chosen codes in words, for example "values below 3 occur"."""
        codes = np.flatnonzero(chosen & (counts > 0))
        if codes.tolist() == [0]:
            return "missing cells occur"
        if self.ranges:
            return "certain words or letters occur" if self.score is not None else self._describe_ranges(codes)
        largest = codes[np.argsort(-counts[codes], kind="stable")]
        names = ["no value" if code == 0 else self._show(code - 1) for code in largest.tolist()]
        if len(names) == 1:
            return f"{names[0]} occurs"
        if len(names) > 3:
            names = [*names[:3], f"{len(names) - 3} more values"]
        return f"{', '.join(names[:-1])} and {names[-1]} occur"

    def _describe_ranges(self, codes: Codes) -> str:
        ranges = codes[codes > 0]
        if len(ranges) < len(codes) or ranges[-1] - ranges[0] >= len(ranges):
            return "certain ranges of values occur"
        low, high = int(ranges[0]) - 2, int(ranges[-1]) - 1
        if low < 0:
            if high == len(self.values):
                return "any value occurs"
            return f"values below {self._show(high)} occur"
        until = f" to {self._show(high)}" if high < len(self.values) else ""
        return f"values from {self._show(low)}{until} occur"

    def _show(self, at: int) -> str:
        return show_value(self.values[at], self.column)


def make_codings(column: TableColumn, cells: Sequence[ColumnCells]) -> list[Coding]:
    """Return the codings for comparing a column between the sets: by value, by range, or both."""
    if column.kind == "category":
        return [Coding(column, np.array([*column.values, OTHER], dtype=object), ranges=False)]
    if column.kind == "boolean":
        return [Coding(column, np.array([0.0, 1.0]), ranges=False)]
    known = np.concatenate([own.values[own.known] for own in cells])
    if column.kind == "text":
        return [_text_coding(column, known, np.repeat([0, 1], [int(own.known.sum()) for own in cells]))]
    values = np.unique(known)
    by_value = Coding(column, values, ranges=False)
    if len(values) <= N_RANGES:
        return [by_value]
    bounds = np.unique(np.quantile(known, np.linspace(0, 1, N_RANGES + 1)[1:-1], method="inverted_cdf"))
    by_range = Coding(column, bounds, ranges=True)
    return [by_range, by_value] if len(known) >= ROWS_PER_VALUE * len(values) else [by_range]


def _text_coding(column: TableColumn, texts: NDArray[Any], sets: Codes) -> Coding:
    """Code text by ranges of naive Bayes scores; the model and the ranges use different halves of the rows."""
    fitted = np.arange(len(texts)) % 2 == 0
    if min(np.bincount(sets[fitted], minlength=2)) == 0 or fitted.all():
        return Coding(column, np.empty(0), ranges=True, score=lambda some: np.zeros(len(some)))

    def count(some: NDArray[Any]) -> Any:
        codes, distinct = pd.factorize(some)  # cells may repeat
        return count_groups(distinct, long=column.long)[codes]

    from sklearn.naive_bayes import MultinomialNB  # slow to import

    model = MultinomialNB().fit(count(texts[fitted]), sets[fitted])

    def score(some: NDArray[Any]) -> Floats:
        return np.asarray(model.predict_joint_log_proba(count(some)) @ [-1.0, 1.0])

    bounds = np.unique(np.quantile(score(texts[~fitted]), np.linspace(0, 1, N_RANGES + 1)[1:-1]))
    return Coding(column, bounds, ranges=True, score=score)


def show_value(value: Any, column: TableColumn) -> str:
    """Format a value for display."""
    if column.kind == "boolean":
        return "true" if value else "false"
    if column.kind == "date":
        return str(np.datetime64(int(value), "us"))[: 19 if column.clock else 10].replace("T", " ")
    if column.kind == "number":
        return format_value(value) if value == round(value) else f"{value:.6g}"
    return "a rare value" if value == OTHER else quote_value(value)


def _one_value_each(
    column: TableColumn, cells: Sequence[ColumnCells], files: Sequence[str], noun: str
) -> LeakingColumn | None:
    """Detect a column with a different constant value in each file, such as the file name."""
    if min(len(own.known) for own in cells) < MIN_COMPARED_ROWS:
        return None
    values = []
    for own in cells:
        distinct = set(own.values[own.known].tolist())
        if len(distinct) > 1 or (distinct and not own.known.all()):
            return None
        values.append(f"{show_value(distinct.pop(), column)} in every row" if distinct else "no value in any row")
    if values[0] == values[1]:
        return None
    return _identifies_file(column, 1.0, f"{values[0]} of {files[0]}, {values[1]} of {files[1]}", noun)


def _identifies_file(column: TableColumn, auc: float, how: str, noun: str) -> LeakingColumn:
    reason = (
        f"Column {column.name!r} identifies the {noun} of a row ({how}), so a classifier would learn to distinguish "
        f"the {noun}s instead of the classes."
    )
    return LeakingColumn(column.name, auc, reason)


class PriorBound(NamedTuple):
    """A bound on the frequencies of an event: the set in which it may be too frequent, and the weights of the sets.

    The bound is (few·q_other − many·q_own)/|θ − θ′| ≥ 0, because the left side is the rate of the event in one class.
    """

    own: int
    many: float
    few: float


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
    noun: str,
) -> LeakingColumn | None:
    """Check both bounds for a column; values are chosen on one half of the rows and counted on the other half."""
    gap = abs(priors[0] - priors[1])
    events: list[tuple[float, Pair, PriorBound, str]] = []
    areas = []
    for held in (0, 1):
        learned, evaluated = (
            [
                ColumnCells(own.values[half == part], own.known[half == part])
                for own, half in zip(cells, halves, strict=True)
            ]
            for part in (1 - held, held)
        )
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
                if excess > (0 if _is_perfect(shares, side) else MARGIN * gap):
                    events.append((excess, shares, side, coding.describe(chosen, before[side.own])))
        areas.append(max(own_areas))
    if not events:
        return None
    _, shares, side, words = max(events)
    auc, own, other = float(np.mean(areas)), side.own, 1 - side.own
    q = [f"{100 * share:.{0 if share >= 0.0995 or share == 0 else 1}f}%" for share in shares]
    how = f"{words} in {q[own]} of the rows of {files[own]} and {q[other]} of those of {files[other]}"
    if _is_perfect(shares, side):
        return _identifies_file(column, auc, how, noun)
    reason = (
        f"Column {column.name!r} differs between the {noun}s by more than the class priors allow: {how}, but at priors "
        f"of {priors[0]:g} and {priors[1]:g} no value can be more than {side.few / side.many:.2g} times as frequent."
    )
    return LeakingColumn(column.name, auc, reason, depends_on_priors=True)


def _is_perfect(shares: Pair, side: PriorBound) -> bool:
    return shares[side.own] >= PERFECT and shares[1 - side.own] <= 1 - PERFECT


def _choose(counts: Sequence[Codes], side: PriorBound) -> Mask:
    """Return the codes that violate the bound by more than one standard error."""
    sizes = [max(1, int(counts[which].sum())) for which in (side.own, 1 - side.own)]
    own, other = counts[side.own] / sizes[0], counts[1 - side.own] / sizes[1]
    error = np.sqrt(side.many**2 * own / sizes[0] + side.few**2 * other / sizes[1])
    chosen: Mask = side.many * own - side.few * other > error
    return chosen


def _excess(counts: Sequence[Codes], chosen: Mask, side: PriorBound, level: float) -> tuple[float, Pair]:
    """Return a lower confidence bound for the violation, and the fraction of rows with the codes in each set."""
    inside = [int(own[chosen].sum()) for own in counts]
    sizes = [int(own.sum()) for own in counts]
    own, other = side.own, 1 - side.own
    lowest, _ = exact_interval(inside[own], sizes[own], level)
    _, highest = exact_interval(inside[other], sizes[other], level)
    return side.many * lowest - side.few * highest, (inside[0] / sizes[0], inside[1] / sizes[1])


def exact_interval(count: int, size: int, level: float) -> Pair:
    """Return the Clopper–Pearson interval of a proportion; each end has an error probability of ``level``."""
    low = float(beta.ppf(level, count, size - count + 1)) if count else 0.0
    return low, float(beta.ppf(1 - level, count + 1, size - count)) if count < size else 1.0


def _area(before: Sequence[Codes], after: Sequence[Codes]) -> float:
    """Return the AUC on one half of the rows; the codes are ordered by their frequencies in the other half."""
    order = np.argsort((before[0] + 1) / (before[1] + 1), kind="stable")
    first, second = (own[order] / own.sum() for own in after)
    return float(first @ (np.cumsum(second) - second / 2))
