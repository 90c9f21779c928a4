"""Rows held out of streamed sets, found in one pass over each.

As from memory, all copies of a row are on one side, in both sets: whether a row is held out depends on a number drawn
for what it holds. Rows that occur so often that holding them out would distort the sets stay where they are trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.data.holdout import digests_of
from uulearn.data.rows import DenseRows
from uulearn.data.streams import Numbers, RowStream, row_bytes
from uulearn.training.workers import Workers

HELD_OUT_ROWS, HELD_OUT_BYTES = 50_000, 128 * 2**20
"""Of each set at most so many rows, and so many bytes, evaluate every epoch."""
FEW_COPIES = 20
"""So many copies of a row may always be held out."""
SPARE_SHARE, SPARE_ROWS = 1.5, 100
"""What is collected beyond the rows that are wanted, for those that will not do."""

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class HeldOut:
    """What is held out of two sets: the rows, their numbers, and the numbers of all rows that are not trained on.

    Numbers ascend. Rows that are not trained on and not held out are copies of rows held out of the other set.
    """

    rows: tuple[Tensor, Tensor]
    numbers: tuple[Numbers, Numbers]
    left_out: tuple[Numbers, Numbers]


def hold_out_streams(
    streams: tuple[RowStream, RowStream], fraction: float, seed: int, workers: Workers | None = None
) -> HeldOut:
    """Hold out a share of each set, but no more than memory has room for.

    Of several workers each reads a part of the pieces, and all come to the same.

    Examples
    --------
    >>> class Counted(RowStream):
    ...     row_shape, piece_sizes = (1,), (50, 50)
    ...     def read(self, piece): return torch.arange(50.0)[:, None] + 50 * piece
    ...     def describe(self): return "counted"
    >>> held_out = hold_out_streams((Counted(), Counted()), 0.1, seed=0)
    >>> [len(rows) for rows in held_out.rows], torch.equal(*held_out.rows)
    ([10, 10], True)
    """
    wanted = [_wanted(stream, fraction) for stream in streams]
    # Of this one the larger share is held out, so that what is held out of the other one is looked for there.
    first = int(wanted[1] / streams[1].n_rows > wanted[0] / streams[0].n_rows)
    second = 1 - first
    pool, _ = _collect(streams[first], wanted[first], seed, workers, None)
    held = pool.chosen()
    other, hits = _collect(streams[second], wanted[second], seed, workers, pool.digests[held])
    often, counts = np.unique(hits.digests, return_counts=True)
    held &= ~np.isin(pool.digests, often[counts > other.most_copies])
    theirs = other.chosen() & ~np.isin(other.digests, pool.refused) & (_keys(other.digests, seed) < pool.cut)
    kept = {first: (pool, held), second: (other, theirs)}
    left_out = {
        first: pool.numbers[held | np.isin(pool.digests, other.digests[theirs])],
        second: np.union1d(other.numbers[theirs], hits.numbers[np.isin(hits.digests, pool.digests[held])]),
    }
    for which, (_, mine) in kept.items():
        size, n_left = streams[which].n_rows, len(left_out[which])
        if not mine.any() or n_left == size:
            raise ValueError(
                f"a fraction of {fraction:g} cannot be held out of the {size:,} rows of set {which}, which leaves "
                f"{size - n_left} and {int(mine.sum())}; use more rows, another fraction, or none (0)."
            )
    rows = {which: source.rows[torch.from_numpy(mine)] for which, (source, mine) in kept.items()}
    numbers = {which: source.numbers[mine] for which, (source, mine) in kept.items()}
    order = {which: np.argsort(numbers[which]) for which in (0, 1)}
    return HeldOut(
        (rows[0][torch.from_numpy(order[0])], rows[1][torch.from_numpy(order[1])]),
        (numbers[0][order[0]], numbers[1][order[1]]),
        (np.sort(left_out[0]), np.sort(left_out[1])),
    )


def _wanted(stream: RowStream, fraction: float) -> int:
    return max(1, min(HELD_OUT_ROWS, HELD_OUT_BYTES // row_bytes(stream), round(fraction * stream.n_rows)))


class _Pool:
    """Rows of a set that may be held out: those whose keys are the smallest."""

    def __init__(self, n: int, n_rows: int, row_shape: tuple[int, ...], seed: int) -> None:
        self.n, self.seed = n, seed
        self.room = int(SPARE_SHARE * n) + SPARE_ROWS
        self.most_copies = max(n // 4, FEW_COPIES)
        self.cut = min(2**64 - 1, 2**64 * self.room // n_rows)
        self.refused = np.empty(0, np.int64)
        self.digests, self.numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        self.rows = torch.empty((0, *row_shape))
        self._waiting: list[tuple[Numbers, Numbers, Tensor]] = []
        self._n_waiting = 0

    def add(self, digests: Numbers, start: int, rows: Tensor) -> None:
        """Look at the rows that are numbered from ``start`` on."""
        fitting = np.flatnonzero((_keys(digests, self.seed) < self.cut) & ~np.isin(digests, self.refused))
        self._waiting.append((digests[fitting], start + fitting, rows[torch.from_numpy(fitting)]))
        self._n_waiting += len(fitting)
        if self._n_waiting > 2 * self.room:
            self.settle()

    def settle(self) -> None:
        """Let go of rows that occur too often, and of more than there is room for."""
        digests, numbers, rows = zip((self.digests, self.numbers, self.rows), *self._waiting, strict=True)
        self._waiting, self._n_waiting = [], 0
        self._take(np.concatenate(digests), np.concatenate(numbers), torch.cat(rows))

    def _take(self, digests: Numbers, numbers: Numbers, rows: Tensor) -> None:
        found, counts = np.unique(digests, return_counts=True)
        self.refused = np.union1d(self.refused, found[counts > self.most_copies])
        keys = _keys(digests, self.seed)
        fits = (keys < self.cut) & ~np.isin(digests, self.refused)
        if fits.sum() > self.room:
            self.cut = int(np.partition(keys[fits], self.room)[self.room])
            fits &= keys < self.cut
        self.digests, self.numbers, self.rows = digests[fits], numbers[fits], rows[torch.from_numpy(fits)]

    def joined(self, others: list[Self]) -> Self:
        """This one with what all workers have found."""
        self.cut = min(one.cut for one in others)
        self.refused = np.unique(np.concatenate([one.refused for one in others]))
        self._take(
            np.concatenate([one.digests for one in others]),
            np.concatenate([one.numbers for one in others]),
            torch.cat([one.rows for one in others]),
        )
        return self

    def chosen(self) -> NDArray[np.bool_]:
        """As many as are wanted, those with the smallest keys, and the copies of the last."""
        keys = _keys(self.digests, self.seed)
        if len(keys) <= self.n:
            return np.ones(len(keys), dtype=np.bool_)
        fits: NDArray[np.bool_] = keys <= np.partition(keys, self.n - 1)[self.n - 1]
        return fits


@dataclass(frozen=True)
class _Hits:
    """Rows of a set whose digests were looked for."""

    digests: Numbers
    numbers: Numbers


def _collect(
    stream: RowStream, n: int, seed: int, workers: Workers | None, sought: Numbers | None
) -> tuple[_Pool, _Hits]:
    """One pass over a set, of which each worker makes a part."""
    pool = _Pool(n, stream.n_rows, stream.row_shape, seed)
    sought = np.empty(0, np.int64) if sought is None else np.unique(sought)
    hits: list[tuple[Numbers, Numbers]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for start, rows in _pieces(stream, workers):
        digests = digests_of(DenseRows(rows))
        pool.add(digests, start, rows)
        if len(sought):
            places = np.flatnonzero(np.isin(digests, sought))
            hits.append((digests[places], start + places))
    pool.settle()
    digests, numbers = (np.concatenate(parts) for parts in zip(*hits, strict=True))
    if workers is not None:
        found = workers.gather_objects((pool, digests, numbers))
        pool = pool.joined([one for one, _, _ in found])
        digests, numbers = (np.concatenate([each[place] for each in found]) for place in (1, 2))
    return pool, _Hits(digests, numbers)


def _pieces(stream: RowStream, workers: Workers | None) -> Iterator[tuple[int, Tensor]]:
    """This worker's pieces, each with the number of its first row."""
    starts = np.concatenate([[0], np.cumsum(stream.piece_sizes)])
    step, begin = (1, 0) if workers is None else (workers.count, workers.rank)
    for piece in range(begin, len(stream.piece_sizes), step):
        yield int(starts[piece]), stream.checked(piece)


def _keys(digests: Numbers, seed: int) -> Keys:
    """A number drawn for every digest; what is equal has the same."""
    state = np.random.SeedSequence([seed, 6]).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        keys = digests.astype(np.uint64) ^ state
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
        spread: Keys = keys ^ (keys >> np.uint64(31))
    return spread
