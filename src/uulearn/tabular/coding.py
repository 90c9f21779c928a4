"""Cells of one column in two sets as whole numbers that can be counted: by value, by range, or by how a text reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.naive_bayes import MultinomialNB

from uulearn.tabular.cells import format_value
from uulearn.tabular.encoder import count_groups
from uulearn.tabular.schema import OTHER, TableColumn, quote_value

BINS = 32
"""Numbers are compared by so many ranges with equally many rows."""
ROWS_A_VALUE = 10
"""Numbers that repeat so often on average are compared value by value, too."""

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


class ColumnCells(NamedTuple):
    """One column in one set: what is compared, and whether it is known."""

    values: NDArray[Any]
    known: NDArray[np.bool_]

    def take(self, rows: NDArray[Any]) -> ColumnCells:
        """Some of the rows."""
        return ColumnCells(self.values[rows], self.known[rows])


def column_cells(frame: pd.DataFrame, column: TableColumn) -> ColumnCells:
    """The cells of a column of typed rows."""
    series = frame[column.name]
    known = series.notna().to_numpy()
    if column.kind == "date":
        return ColumnCells(series.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64), known)
    if column.kind in ("number", "boolean"):
        return ColumnCells(series.to_numpy(dtype=np.float64), known)
    return ColumnCells(series.to_numpy(dtype=object), known)


class Coding(NamedTuple):
    """Cells to whole numbers, learned from some of them: 0 for missing, then ranges or values, the last for others."""

    column: TableColumn
    values: NDArray[Any]
    """Values in order, or inner ends of ranges."""
    ranges: bool
    score: Any = None
    """Of text: a function from cells to numbers."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.values) + 2

    def __call__(self, cells: ColumnCells) -> Codes:
        """The code of each cell."""
        codes = np.zeros(len(cells.known), dtype=np.int64)
        known = cells.values[cells.known]
        if self.score is not None and len(known):
            known = self.score(known)
        if self.ranges:
            codes[cells.known] = 1 + np.searchsorted(self.values, known.astype(np.float64), side="right")
        else:
            number = {value: code for code, value in enumerate(self.values.tolist(), 1)}
            codes[cells.known] = [number.get(value, self.size - 1) for value in known.tolist()]
        return codes

    def describe(self, chosen: NDArray[np.bool_], counts: Codes) -> str:
        """The chosen codes in words, with a verb."""
        codes = np.flatnonzero(chosen & (counts > 0))
        if codes.tolist() == [0]:
            return "missing cells stand"
        if self.score is not None:
            return "certain words or letters stand"
        if self.ranges:
            return self._describe_ranges(codes)
        largest = codes[np.argsort(-counts[codes], kind="stable")]
        names = [
            "nothing" if code == 0 else show_value(self.values[code - 1], self.column) for code in largest.tolist()
        ]
        if len(names) == 1:
            return f"{names[0]} stands"
        if len(names) > 3:
            names = [*names[:3], f"{len(names) - 3} more values"]
        return f"{', '.join(names[:-1])} and {names[-1]} stand"

    def _describe_ranges(self, codes: Codes) -> str:
        ranges = codes[codes > 0]
        if len(ranges) < len(codes) or ranges[-1] - ranges[0] >= len(ranges):
            return "certain ranges of values stand"
        low, high = int(ranges[0]) - 2, int(ranges[-1]) - 1
        ends = [
            show_value(self.values[end], self.column) if 0 <= end < len(self.values) else None for end in (low, high)
        ]
        if ends[0] is None:
            return f"values below {ends[1]} stand"
        return f"values from {ends[0]} on stand" if ends[1] is None else f"values from {ends[0]} up to {ends[1]} stand"


def count_codes(coding: Coding, cells: ColumnCells) -> Codes:
    """Number of rows of each code."""
    return np.bincount(coding(cells), minlength=coding.size)


def codings(column: TableColumn, cells: Sequence[ColumnCells]) -> list[Coding]:
    """How to compare a column: by values, by ranges, or both."""
    known = np.concatenate([own.values[own.known] for own in cells])
    if column.kind == "category":
        return [Coding(column, np.array([*column.values, OTHER], dtype=object), ranges=False)]
    if column.kind == "boolean":
        return [Coding(column, np.array([0.0, 1.0]), ranges=False)]
    if column.kind == "text":
        return [_text_coding(column, cells)]
    values = np.unique(known)
    by_value = Coding(column, values, ranges=False)
    if len(values) <= BINS:
        return [by_value]
    ends = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
    by_range = Coding(column, ends, ranges=True)
    return [by_range, by_value] if len(known) >= ROWS_A_VALUE * len(values) else [by_range]


def _text_coding(column: TableColumn, cells: Sequence[ColumnCells]) -> Coding:
    """By how much a cell reads like one set: naive Bayes on half of the rows, ranges of its scores on the other."""
    texts = np.concatenate([own.values[own.known] for own in cells])
    sets = np.repeat([0, 1], [int(own.known.sum()) for own in cells])
    fitted = np.arange(len(texts)) % 2 == 0
    if min(np.bincount(sets[fitted], minlength=2)) == 0 or fitted.all():
        return Coding(column, np.empty(0), ranges=True, score=lambda some: np.zeros(len(some)))

    def count(some: NDArray[Any]) -> Any:
        codes, distinct = pd.factorize(some)  # cells may repeat
        return count_groups(distinct, long=column.long)[codes]

    model = MultinomialNB().fit(count(texts[fitted]), sets[fitted])

    def score(some: NDArray[Any]) -> Floats:
        return np.asarray(model.predict_joint_log_proba(count(some)) @ [-1.0, 1.0])

    return Coding(column, np.unique(np.quantile(score(texts[~fitted]), np.linspace(0, 1, BINS + 1)[1:-1])), True, score)


def show_value(value: Any, column: TableColumn) -> str:
    """A value as a person would write it."""
    if column.kind == "boolean":
        return "true" if value else "false"
    if column.kind == "date":
        return str(np.datetime64(int(value), "us"))[: 19 if column.clock else 10].replace("T", " ")
    if column.kind == "number":
        return format_value(value) if value == round(value) else f"{value:.6g}"
    return "a rare value" if value == OTHER else quote_value(value)
