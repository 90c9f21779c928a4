"""What is counted of a column while its rows go by: bounded memory, the same for any chunks."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uulearn.tabular.cells import DATE, KINDS, NUMBER, SEPARATED_PATTERN, WORD, Cells
from uulearn.tabular.dates import EITHER

SKETCHED = 512
"""So many distinct values are counted exactly."""

Hashes = NDArray[np.uint64]
Integers = NDArray[np.int64]


class Example(NamedTuple):
    """A cell and where it stands; rows count from 1."""

    row: int
    value: str


class Sketch:
    """The distinct values with the smallest hashes, each with its exact number of rows in either set.

    While there are at most ``SKETCHED`` distinct values it holds all of them. Beyond, they are a random sample of the
    distinct values (Bar-Yossef et al., 2002), and how small their hashes are tells how many there are: the standard
    error is about 1/√SKETCHED, 4%. A value in the sketch has been in it since its first row, so its count is exact.
    """

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)
        self.counts: Integers = np.empty((2, 0), dtype=np.int64)
        self.values: NDArray[np.object_] = np.empty(0, dtype=object)
        self.full = False

    def add(self, hashes: Hashes, counts: Integers, values: Any, which: int) -> None:
        """Count values by their hashes; ``values(i)`` gives those at positions i."""
        small = np.flatnonzero(counts > 0)
        if self.full:
            small = small[hashes[small] <= self.hashes[-1]]
        if not len(small):
            return
        own, first, at = np.unique(hashes[small], return_index=True, return_inverse=True)
        added = np.zeros((2, len(own)), dtype=np.int64)
        np.add.at(added[which], at, counts[small])
        known = np.isin(own, self.hashes)
        self.counts[:, np.searchsorted(self.hashes, own[known])] += added[:, known]
        new = np.flatnonzero(~known)[:SKETCHED]
        merged = np.concatenate([self.hashes, own[new]])
        order = np.argsort(merged)[:SKETCHED]
        self.full = self.full or len(self.hashes) + int((~known).sum()) > SKETCHED
        self.hashes = merged[order]
        self.counts = np.concatenate([self.counts, added[:, new]], axis=1)[:, order]
        self.values = np.concatenate([self.values, values(small[first[new]])])[order]

    @property
    def distinct(self) -> float:
        """Number of distinct values, exact while not ``full``."""
        return (SKETCHED - 1) / (float(self.hashes[-1]) / 2**64) if self.full else float(len(self.hashes))

    @property
    def all_different(self) -> bool:
        """Whether no value came twice in a file, as far as the sketch can tell; files may number their rows alike."""
        return bool((self.counts <= 1).all())


class Tally:
    """One column of both files, counted."""

    def __init__(self) -> None:
        self.rows = np.zeros(2, dtype=np.int64)
        self.missing = np.zeros(2, dtype=np.int64)
        self.kinds = np.zeros((2, len(KINDS)), dtype=np.int64)
        self.orders = np.zeros((2, EITHER + 1), dtype=np.int64)
        self.examples: list[dict[int, Example]] = [{}, {}]
        self.order_examples: list[dict[int, Example]] = [{}, {}]
        self.separated = 0
        self.sketch = Sketch()
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self.clock = False
        self.rising = [True, True]
        self.last = [-np.inf, -np.inf]
        self.letters = 0
        self.spaced = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, cells: Cells, which: int) -> None:
        """Count a chunk."""
        start = int(self.rows[which])
        counts = cells.counts()
        self.rows[which] += len(cells.codes)
        self.missing[which] += int((cells.codes < 0).sum())
        self.kinds[which] += np.bincount(cells.kinds, weights=counts, minlength=len(KINDS)).astype(np.int64)
        dated = cells.kinds == DATE
        self.orders[which] += np.bincount(cells.orders[dated], weights=counts[dated], minlength=EITHER + 1).astype(int)
        hashes = _hashes(cells)
        self.sketch.add(hashes, counts, lambda at: _some(cells, at).labels, which)
        self._digest.update(np.append(hashes, np.uint64(0))[cells.codes].tobytes())
        self._note_examples(cells, which, start)
        self._count_numbers(cells, which)
        self._count_words(cells, counts)
        self.clock = self.clock or bool((cells.dates[dated] != cells.dates[dated].astype("datetime64[D]")).any())

    @property
    def digest(self) -> bytes:
        """Equal for columns with equal cells in equal order."""
        return self._digest.digest()

    @property
    def known(self) -> Integers:
        """Number of cells that are not missing, in each set."""
        known: Integers = self.rows - self.missing
        return known

    def _note_examples(self, cells: Cells, which: int, start: int) -> None:
        for labels, seen in ((cells.kinds, self.examples[which]), (cells.orders, self.order_examples[which])):
            for label in np.unique(labels).tolist():
                rows = np.append(labels == label, False)[cells.codes]
                if label not in seen and rows.any():
                    position = int(rows.argmax())
                    word = _some(cells, cells.codes[[position]]).words[0]
                    seen[label] = Example(start + position + 1, word)

    def _count_numbers(self, cells: Cells, which: int) -> None:
        numbers = np.append(cells.numbers, np.nan)[cells.codes]
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.whole = self.whole and bool((np.isfinite(numbers) & (numbers == np.rint(numbers))).all())
        before = np.concatenate([[self.last[which]], numbers[:-1]])
        self.rising[which] = self.rising[which] and bool((numbers > before).all())
        self.last[which] = float(numbers[-1])

    def _count_words(self, cells: Cells, counts: Integers) -> None:
        own = np.flatnonzero((cells.kinds == WORD) & (counts > 0))
        if not len(own):
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pa.array(cells.words[own], type=pa.large_string())
        self.letters += int(pc.utf8_length(words).to_numpy(zero_copy_only=False) @ counts[own])
        spaced = pc.match_substring(words, " ").to_numpy(zero_copy_only=False).astype(bool)
        separated = pc.match_substring_regex(words, SEPARATED_PATTERN).to_numpy(zero_copy_only=False).astype(bool)
        self.spaced += int(counts[own][spaced].sum())
        self.separated += int(counts[own][separated].sum())


def _some(cells: Cells, at: Any) -> Cells:
    """Some of the values, so that only they are written as words."""
    return Cells(cells.codes, cells.kinds[at], cells.numbers[at], cells.dates[at], cells.orders[at], cells.raw[at])


def _hashes(cells: Cells) -> Hashes:
    """A hash of each value, never 0: numbers by what they are, as in `Cells.labels`, all else as it stands."""
    import pandas as pd

    hashes = np.empty(len(cells.kinds), dtype=np.uint64)
    number = cells.kinds == NUMBER
    hashes[number] = _mixed(cells.numbers[number].view(np.uint64))
    others = np.flatnonzero(~number)
    if cells.raw.dtype.kind == "M":
        hashes[others] = _mixed(cells.raw[others].view(np.uint64))
    elif len(others):
        hashes[others] = pd.util.hash_array(cells.words[others], categorize=False)
    return np.maximum(hashes, np.uint64(1))


def _mixed(bits: Hashes) -> Hashes:
    """SplitMix64 (Steele, Lea and Flood, 2014), a bijection that spreads close numbers over all 64 bits."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
