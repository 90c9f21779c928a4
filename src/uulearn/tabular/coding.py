"""Code the cells of a column as integers that can be counted: by value, by range, or by the words of a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.naive_bayes import MultinomialNB

from uulearn.tabular.cells import format_value
from uulearn.tabular.encoder import count_groups
from uulearn.tabular.schema import OTHER, TableColumn, quote_value

N_RANGES = 32  # ranges, with equally many rows, by which numbers are compared
ROWS_PER_VALUE = 10  # numbers that repeat this often on average are also compared value by value

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]


class ColumnCells(NamedTuple):
    """One column of one set: the values, and which of them are known."""

    values: NDArray[Any]
    known: NDArray[np.bool_]

    def take(self, rows: NDArray[Any]) -> ColumnCells:
        """Return some of the rows."""
        return ColumnCells(self.values[rows], self.known[rows])


def column_cells(frame: pd.DataFrame, column: TableColumn) -> ColumnCells:
    """Return the cells of a column of typed rows."""
    series = frame[column.name]
    known = series.notna().to_numpy()
    if column.kind == "date":
        return ColumnCells(series.to_numpy().astype("datetime64[us]").astype(np.int64).astype(np.float64), known)
    if column.kind in ("number", "boolean"):
        return ColumnCells(series.to_numpy(dtype=np.float64), known)
    return ColumnCells(series.to_numpy(dtype=object), known)


class Coding(NamedTuple):
    """A map from cells to integers: 0 for missing, then ranges or values, and the last code for other values."""

    column: TableColumn
    values: NDArray[Any]
    """Values in order, or inner bounds of ranges."""
    ranges: bool
    score: Callable[[NDArray[Any]], Floats] | None = None
    """For text: a function from cells to numbers."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.values) + 2

    def __call__(self, cells: ColumnCells) -> Codes:
        """Return the code of each cell."""
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

    def count_rows(self, cells: ColumnCells) -> Codes:
        """Return the number of rows with each code."""
        return np.bincount(self(cells), minlength=self.size)

    def describe(self, chosen: NDArray[np.bool_], counts: Codes) -> str:
        """Return the chosen codes in words, as the subject and verb of a sentence."""
        codes = np.flatnonzero(chosen & (counts > 0))
        if codes.tolist() == [0]:
            return "missing cells occur"
        if self.score is not None:
            return "certain words or letters occur"
        if self.ranges:
            return self._describe_ranges(codes)
        largest = codes[np.argsort(-counts[codes], kind="stable")]
        names = [
            "no value" if code == 0 else show_value(self.values[code - 1], self.column) for code in largest.tolist()
        ]
        if len(names) == 1:
            return f"{names[0]} occurs"
        if len(names) > 3:
            names = [*names[:3], f"{len(names) - 3} more values"]
        return f"{', '.join(names[:-1])} and {names[-1]} occur"

    def _describe_ranges(self, codes: Codes) -> str:
        ranges = codes[codes > 0]
        if len(ranges) < len(codes) or ranges[-1] - ranges[0] >= len(ranges):
            return "certain ranges of values occur"
        low, high = (
            show_value(self.values[bound], self.column) if 0 <= bound < len(self.values) else None
            for bound in (int(ranges[0]) - 2, int(ranges[-1]) - 1)
        )
        if low is None:
            return f"values below {high} occur"
        return f"values from {low} occur" if high is None else f"values from {low} to {high} occur"


def make_codings(column: TableColumn, cells: Sequence[ColumnCells]) -> list[Coding]:
    """Return the codings by which to compare a column: by values, by ranges, or both."""
    known = np.concatenate([own.values[own.known] for own in cells])
    if column.kind == "category":
        return [Coding(column, np.array([*column.values, OTHER], dtype=object), ranges=False)]
    if column.kind == "boolean":
        return [Coding(column, np.array([0.0, 1.0]), ranges=False)]
    if column.kind == "text":
        return [_text_coding(column, cells)]
    values = np.unique(known)
    by_value = Coding(column, values, ranges=False)
    if len(values) <= N_RANGES:
        return [by_value]
    bounds = np.unique(np.quantile(known, np.linspace(0, 1, N_RANGES + 1)[1:-1], method="inverted_cdf"))
    by_range = Coding(column, bounds, ranges=True)
    return [by_range, by_value] if len(known) >= ROWS_PER_VALUE * len(values) else [by_range]


def _text_coding(column: TableColumn, cells: Sequence[ColumnCells]) -> Coding:
    """Code text by the scores of naive Bayes: fitted on half of the rows, with ranges from the other half."""
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

    return Coding(
        column, np.unique(np.quantile(score(texts[~fitted]), np.linspace(0, 1, N_RANGES + 1)[1:-1])), True, score
    )


def show_value(value: Any, column: TableColumn) -> str:
    """Return a value as a person would write it."""
    if column.kind == "boolean":
        return "true" if value else "false"
    if column.kind == "date":
        return str(np.datetime64(int(value), "us"))[: 19 if column.clock else 10].replace("T", " ")
    if column.kind == "number":
        return format_value(value) if value == round(value) else f"{value:.6g}"
    return "a rare value" if value == OTHER else quote_value(value)
