"""Counts of one column of both files, in bounded memory and independent of the chunks."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uulearn.tabular.cells import DATE, N_KINDS, NUMBER, WORD, Cells
from uulearn.tabular.dates import EITHER

MAX_CATEGORIES = 200  # columns with more distinct values are text, so no more are counted
FIRST_CELLS = 10_000  # cells of each file that show whether a column repeats a value
SEPARATED = r"^[+-]?\d+(?:[,.'’\x{00A0}\x{202F} ]\d{3})*(?:,\d+|[,.'’\x{00A0}\x{202F} ]\d{3}(?:\.\d+)?)$"
"""Numbers with thousands separators or a decimal comma; not parsed, but mentioned in notes."""

MIX = np.uint64(0x9E3779B97F4A7C15)  # makes the bits of the number 0 differ from the hash 0 of a missing cell

Hashes = NDArray[np.uint64]
Integers = NDArray[np.int64]


class Example(NamedTuple):
    """A cell and its row, counted from 1."""

    row: int
    value: str


class ColumnSummary:
    """Counts of one column; arrays have one entry per file."""

    def __init__(self) -> None:
        self.rows = np.zeros(2, dtype=np.int64)
        self.missing = np.zeros(2, dtype=np.int64)
        self.kinds = np.zeros((2, N_KINDS), dtype=np.int64)
        self.orders = np.zeros((2, EITHER + 1), dtype=np.int64)
        self.examples: list[dict[int, Example]] = [{}, {}]
        self.order_examples: list[dict[int, Example]] = [{}, {}]
        self.n_separated = 0  # cells that match `SEPARATED`
        self.value_counts: dict[str, int] | None = {}  # None: more than `MAX_CATEGORIES` values
        self.low, self.high = np.inf, -np.inf
        self.is_integer = True
        self.has_time = False
        self.is_rising = [True, True]
        self.n_letters = 0
        self.n_with_space = 0
        self._hashes: dict[int, str] = {}
        self._last = [-np.inf, -np.inf]
        self._first: list[list[Hashes]] = [[], []]
        self._digest = hashlib.sha256()

    def add(self, cells: Cells, which: int) -> None:
        """Count a chunk of file 0 or 1."""
        start = int(self.rows[which])
        counts = cells.counts()
        self.rows[which] += len(cells.codes)
        self.missing[which] += int((cells.codes < 0).sum())
        self.kinds[which] += np.bincount(cells.kinds, weights=counts, minlength=N_KINDS).astype(np.int64)
        dated = cells.kinds == DATE
        if dated.any():
            orders = np.bincount(cells.orders[dated], weights=counts[dated], minlength=EITHER + 1)
            self.orders[which] += orders.astype(np.int64)
            dates = cells.dates[dated]
            self.has_time = self.has_time or bool((dates != dates.astype("datetime64[D]")).any())
        hashes = _hash_values(cells)
        by_row = np.append(hashes, np.uint64(0))[cells.codes]
        self._digest.update(by_row.data)
        room = FIRST_CELLS - sum(map(len, self._first[which]))
        if room > 0:
            self._first[which].append(by_row[by_row > 0][:room])
        self._count_values(cells, hashes, counts)
        self._keep_examples(cells, which, start)
        self._count_numbers(cells, which)
        self._count_words(cells, counts)

    @property
    def digest(self) -> bytes:
        """Equal for columns with equal cells in equal order."""
        return self._digest.digest()

    @property
    def known(self) -> Integers:
        """Number of cells that are not missing, in each file."""
        known: Integers = self.rows - self.missing
        return known

    @property
    def n_distinct(self) -> float:
        """Number of distinct values, infinite if above `MAX_CATEGORIES`."""
        return np.inf if self.value_counts is None else len(self.value_counts)

    @property
    def all_different(self) -> bool:
        """Whether the first `FIRST_CELLS` cells of each file repeat no value; both files may have the same values."""
        return all(len(np.unique(own)) == len(own) for own in (np.concatenate([*f, []]) for f in self._first))

    def _count_values(self, cells: Cells, hashes: Hashes, counts: Integers) -> None:
        if self.value_counts is None:
            return
        own = np.flatnonzero(counts)
        codes, values = pd.factorize(hashes[own])
        new = [at for at, value in enumerate(values.tolist()) if value not in self._hashes]
        if len(self._hashes) + len(new) > MAX_CATEGORIES:
            self.value_counts, self._hashes = None, {}
            return
        first = np.zeros(len(values), dtype=np.int64)
        first[codes[::-1]] = own[::-1]
        labels = cells.select(first[new]).labels.tolist()
        self._hashes.update(zip(values[new].tolist(), labels, strict=True))
        totals = np.bincount(codes, weights=counts[own]).astype(np.int64).tolist()
        for value, count in zip(values.tolist(), totals, strict=True):
            label = self._hashes[value]
            self.value_counts[label] = self.value_counts.get(label, 0) + count

    def _keep_examples(self, cells: Cells, which: int, start: int) -> None:
        for labels, seen in ((cells.kinds, self.examples[which]), (cells.orders, self.order_examples[which])):
            for label in np.flatnonzero(np.bincount(labels)).tolist():
                if label in seen:
                    continue
                rows = np.append(labels == label, False)[cells.codes]
                if rows.any():
                    position = int(rows.argmax())
                    seen[label] = Example(start + position + 1, cells.select(cells.codes[[position]]).words[0])

    def _count_numbers(self, cells: Cells, which: int) -> None:
        if np.isnan(cells.numbers).all():
            return
        numbers = np.append(cells.numbers, np.nan)[cells.codes]
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.is_integer = self.is_integer and bool((np.isfinite(numbers) & (numbers == np.rint(numbers))).all())
        if self.is_rising[which]:
            self.is_rising[which] = bool(numbers[0] > self._last[which] and (numbers[1:] > numbers[:-1]).all())
        self._last[which] = float(numbers[-1])

    def _count_words(self, cells: Cells, counts: Integers) -> None:
        own = np.flatnonzero((cells.kinds == WORD) & (counts > 0))
        if not len(own):
            return
        words = pa.array(cells.raw[own], type=pa.large_string())
        self.n_letters += int(pc.utf8_length(words).to_numpy(zero_copy_only=False) @ counts[own])
        with_space, separated = (
            int(pc.fill_null(matches, False).to_numpy(zero_copy_only=False).astype(bool) @ counts[own])
            for matches in (pc.match_substring(words, " "), pc.match_substring_regex(words, SEPARATED))
        )
        self.n_with_space += with_space
        self.n_separated += separated


def _hash_values(cells: Cells) -> Hashes:
    """Return a hash of each value, never 0: of numbers by value, as in `Cells.labels`, of all others by text."""
    hashes = np.empty(len(cells.kinds), dtype=np.uint64)
    number = cells.kinds == NUMBER
    hashes[number] = cells.numbers[number].view(np.uint64) ^ MIX
    others = np.flatnonzero(~number)
    if cells.raw.dtype.kind == "M":
        hashes[others] = pd.util.hash_array(cells.raw[others])
    elif len(others):
        hashes[others] = pd.util.hash_array(cells.select(others).words, categorize=False)
    return np.maximum(hashes, np.uint64(1))
