"""Sets that do not fit in memory: rows arrive in pieces, are mixed in a buffer, and leave as batches.

The order of an epoch is a random order of the pieces, and within a window of several pieces a random order of the rows.
Half of the window stays when the other half leaves, so that rows of pieces that are far apart in the order can meet.
Every row is used once an epoch, and batches are those of `BatchPlan`, whatever the sizes of the two sets.
"""

from __future__ import annotations

import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from torch import Tensor

from uulearn.data.batches import BatchPlan
from uulearn.data.rows import DenseRows, Rows, TwoSets
from uulearn.exceptions import PoorMixingWarning

BUFFER_BYTES = 128 * 2**20
"""Of the rows of a set that are mixed with each other."""
FEW_PIECES = 8
"""Where fewer share the buffer, they are poorly mixed if they are sorted."""
LARGEST_SWING = 0.002
"""Of the mean of a column over the buffer, as a variance, in those of the column: as of 500 rows drawn at random."""
LOOKED_AT_COLUMNS, ROWS_A_GROUP, CHANCE = 200, 20, 1e-6
"""How the likeness of the rows of a piece is found out."""
LOOKED_AT, LOOKED_INTO = 20_000, 16
"""Rows of each set for a look at the data before training starts, and pieces they come from."""

Numbers = NDArray[np.int64]


class RowStream(ABC):
    """A set of rows that is read piece by piece; `uulearn.streaming.ParquetSet` is one.

    A piece should be small beside the memory, and large beside a row: some thousand rows.
    """

    row_shape: tuple[int, ...]
    buffer_bytes: int = BUFFER_BYTES
    in_random_order: bool = False
    """Is every piece a random draw of the set?"""

    @property
    @abstractmethod
    def piece_sizes(self) -> Sequence[int]:
        """Rows of each piece, known without reading them."""

    @abstractmethod
    def read(self, piece: int) -> Tensor:
        """The rows of a piece, float32 of shape (rows, …)."""

    @abstractmethod
    def describe(self) -> str:
        """What a checkpoint knows the set by: other sets should give another text."""

    @property
    def n_rows(self) -> int:
        """Rows of all pieces."""
        return int(sum(self.piece_sizes))

    def checked(self, piece: int) -> Tensor:
        """The rows of a piece, refused where they are not as many, or not of the shape, that was announced."""
        rows = self.read(piece)
        if rows.shape != (self.piece_sizes[piece], *self.row_shape):
            raise ValueError(
                f"piece {piece} of {self.describe()} has rows of shape {tuple(rows.shape)} where "
                f"{(self.piece_sizes[piece], *self.row_shape)} was announced; let nobody write to it and fit again."
            )
        return rows


class StreamedSets:
    """Two sets that are streamed, as `Trainer` takes them in place of `TwoSets`.

    ``left_out`` are, for each set, the numbers of rows that are not trained on, ascending; ``drawn`` are rows of each
    set, drawn at random, for a look at the data.
    """

    def __init__(
        self,
        streams: tuple[RowStream, RowStream],
        left_out: tuple[Numbers, Numbers] | None = None,
        drawn: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.streams, self._drawn = streams, drawn
        self.left_out = left_out or (np.empty(0, np.int64), np.empty(0, np.int64))
        first, second = (stream.n_rows - len(out) for stream, out in zip(streams, self.left_out, strict=True))
        self.sizes: tuple[int, int] = (first, second)
        self._edges = [np.concatenate([[0], np.cumsum(stream.piece_sizes)]) for stream in streams]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.streams[0].row_shape

    def warn_if_poorly_mixed(self, numbers: tuple[Numbers, Numbers] | None = None) -> None:
        """Warn where so few pieces share the buffer that the order of the rows in their files shows.

        ``numbers`` are those of the rows that were drawn. Without them it is not known whether there is an order.
        """
        for which, stream in enumerate(self.streams):
            window, largest = _window(stream), max(stream.piece_sizes)
            if stream.in_random_order or stream.n_rows <= window:
                continue
            mixed = max(1, window // largest)
            if numbers is None or self._drawn is None:
                poor, order = mixed < FEW_PIECES, "where its files are sorted by something"
            else:
                pieces = np.searchsorted(self._edges[which], numbers[which], side="right") - 1
                alike = likeness(pieces, len(stream.piece_sizes), self._drawn[which])
                swing = (1 - window / stream.n_rows) * alike / mixed
                poor, order = swing > LARGEST_SWING, "since the rows of one resemble each other"
            if poor:
                warnings.warn(
                    f"{stream.describe().partition(':')[0]} comes in pieces of up to {largest:,} rows, of which "
                    f"{mixed} are mixed at a time: {order}, a batch is no random draw of the set. Write it once in "
                    "random order with uulearn.streaming.shuffled, make the pieces (row groups) smaller, or raise "
                    "buffer_bytes.",
                    PoorMixingWarning,
                    stacklevel=4,
                )

    def place(self, device: torch.device, placed: dict[int, Rows] | None = None) -> StreamedSets:
        """The sets as they are: they come to the device batch by batch."""
        return self

    def identity(self) -> list[str]:
        """What a checkpoint knows the sets by."""
        return [stream.describe() for stream in self.streams]

    def sample(self, which: int, n: int) -> Tensor:
        """Up to ``n`` evenly spaced rows of those that are looked at."""
        return self.some().sample(which, n)

    def some(self) -> TwoSets:
        """Rows of both sets in memory, for a look."""
        return self._some

    @functools.cached_property
    def _some(self) -> TwoSets:
        first, second = (DenseRows(self._look(which)) for which in (0, 1))
        return TwoSets((first, second))

    def _look(self, which: int) -> Tensor:
        if self._drawn is not None:
            return self._drawn[which][:: -(-len(self._drawn[which]) // LOOKED_AT)]
        rng = np.random.default_rng(which)
        sizes, wanted = self.kept_sizes(which), min(LOOKED_AT, self.sizes[which])
        order = rng.permutation(np.flatnonzero(sizes))
        held = np.cumsum(sizes[order])
        n_pieces = max(LOOKED_INTO, 1 + int(np.searchsorted(held, wanted)))
        total = int(held[:n_pieces][-1])
        parts = []
        for piece in order[:n_pieces]:
            rows = self._kept(which, int(piece))
            parts.append(rows[torch.from_numpy(rng.permutation(len(rows))[: -(-len(rows) * wanted // total)])])
        return torch.cat(parts)[:wanted]

    def epoch(
        self, plan: BatchPlan, seed: int, epoch: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Iterator[tuple[Tensor, tuple[int, int]]]:
        """The batches of an epoch, rows of set 0 first; the tensor of rows is overwritten by the next batch."""
        buffer = torch.empty((plan.largest, *self.row_shape))
        with ThreadPoolExecutor(2) as pool:
            sides = [_Mixed(self, which, plan, [seed, epoch, which], pool) for which in (0, 1)]
            try:
                for batch in range(plan.n_batches):
                    n0, n1 = counts = plan.counts(batch)
                    sides[0].take(buffer[:n0])
                    sides[1].take(buffer[n0 : n0 + n1])
                    yield buffer[: n0 + n1].to(device, dtype, copy=device.type != "cpu"), counts
            finally:
                for side in sides:
                    side.close()

    def _kept(self, which: int, piece: int) -> Tensor:
        """The rows of a piece that are trained on."""
        start = int(self._edges[which][piece])
        rows = self.streams[which].checked(piece)
        out = self.left_out[which]
        mine = out[np.searchsorted(out, start) : np.searchsorted(out, start + len(rows))] - start
        if not len(mine):
            return rows
        keep = torch.ones(len(rows), dtype=torch.bool)
        keep[torch.from_numpy(mine)] = False
        return rows[keep]

    def kept_sizes(self, which: int) -> Numbers:
        """Rows of each piece that are trained on."""
        edges = self._edges[which]
        return np.diff(edges) - np.diff(np.searchsorted(self.left_out[which], edges))


class _Mixed:
    """One worker's rows of one set in the order of an epoch; pieces are read ahead by a thread."""

    def __init__(
        self, data: StreamedSets, which: int, plan: BatchPlan, seed: list[int], pool: ThreadPoolExecutor
    ) -> None:
        self.data, self.which, self.pool = data, which, pool
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(data.streams[which].piece_sizes))
        ends = np.cumsum(data.kept_sizes(which)[order])
        start, stop = _own_rows(plan, which)
        # Of the pieces in their order, those that hold this worker's rows, and the part of each that is its own.
        self._todo = [
            (int(piece), max(0, start - int(end - size)), min(int(size), stop - int(end - size)))
            for piece, end, size in zip(order, ends, data.kept_sizes(which)[order], strict=True)
            if end > start and end - size < stop
        ]
        self._todo.reverse()
        self._rng = np.random.default_rng([*seed, plan.worker])
        largest = max((last - first for _, first, last in self._todo), default=1)
        room = min(max(_window(data.streams[which]), 2 * largest), max(1, stop - start))
        self._window = torch.empty((room, *data.row_shape))
        self._free = [torch.arange(room)]  # places of the window without a row that is still to come
        self._filled = torch.arange(0)
        self._ready = torch.arange(0)  # places of the rows to come next
        self._next: tuple[int, Future[Tensor]] | None = None
        self._ask()

    def take(self, out: Tensor) -> None:
        """Fill ``out`` with the next rows."""
        filled = 0
        while filled < len(out):
            if not len(self._ready):
                self._mix()
            places = self._ready[: len(out) - filled]
            torch.index_select(self._window, 0, places, out=out[filled : filled + len(places)])
            self._free.append(places)
            self._ready = self._ready[len(places) :]
            filled += len(places)

    def close(self) -> None:
        """Read no more."""
        self._todo.clear()
        if self._next is not None:
            self._next[1].cancel()

    def _mix(self) -> None:
        """Put new rows in the places of those that went, shuffle, and let half go; at the end all."""
        free = torch.cat(self._free)
        while self._next is not None and self._next[0] <= len(free):
            rows = self._next[1].result()
            places, free = free[: len(rows)], free[len(rows) :]
            self._window[places] = rows
            self._filled = torch.cat([self._filled, places])
            self._ask()
        order = self._filled[torch.from_numpy(self._rng.permutation(len(self._filled)))]
        go = len(order) if self._next is None else -(-len(order) // 2)
        self._free, self._ready, self._filled = [free], order[:go], order[go:]

    def _ask(self) -> None:
        if not self._todo:
            self._next = None
            return
        piece, first, last = self._todo.pop()
        self._next = last - first, self.pool.submit(self._read, piece, first, last)

    def _read(self, piece: int, start: int, stop: int) -> Tensor:
        return self.data._kept(self.which, piece)[start:stop]


def likeness(pieces: Numbers, n_pieces: int, rows: Tensor) -> float:
    """How much the rows of a piece resemble each other: the share of a column's variance that lies between pieces.

    Of the column that says most; 0 where no column says more than rows in random order would, by an F test.

    Examples
    --------
    >>> rows = torch.arange(2000.0)[:, None]
    >>> likeness(np.arange(2000) // 100, 20, rows) > 0.99
    True
    >>> likeness(np.arange(2000) // 100, 20, rows[torch.randperm(2000, generator=torch.Generator().manual_seed(0))])
    0.0
    """
    flat = rows.flatten(1).numpy()
    chosen = np.random.default_rng(0).permutation(flat.shape[1])[:LOOKED_AT_COLUMNS]
    columns = flat[:, np.sort(chosen)].astype(np.float64)
    # Neighbours are taken together until every group has some rows; what is sorted is alike beyond one piece.
    n = len(columns)
    _, group = np.unique(pieces * max(1, min(n_pieces, n // ROWS_A_GROUP)) // n_pieces, return_inverse=True)
    sizes = np.bincount(group)
    k = len(sizes)
    if k < 2 or n <= k:
        return 0.0
    sums = np.zeros((k, columns.shape[1]))
    columns = columns - columns.mean(0)
    np.add.at(sums, group, columns)
    between = (sums**2 / sizes[:, None]).sum(0)
    within = (columns**2).sum(0) - between
    total = between + within
    varies = total > 0
    if not varies.any():
        return 0.0
    # Where all rows of a group are the same, rounding alone is within.
    within = np.maximum(within[varies], 1e-12 * total[varies])
    ratios = (between[varies] / (k - 1)) / (within / (n - k))
    if ratios.max() <= f_distribution.isf(CHANCE / len(ratios), k - 1, n - k):
        return 0.0
    usual = (n - (sizes**2).sum() / n) / (k - 1)
    return float((ratios.max() - 1) / (ratios.max() - 1 + usual))


def _window(stream: RowStream) -> int:
    """How many rows are mixed with each other."""
    return max(1, stream.buffer_bytes // row_bytes(stream))


def row_bytes(stream: RowStream) -> int:
    """Of a row in memory."""
    return 4 * max(1, math.prod(stream.row_shape))


@functools.lru_cache(maxsize=8)
def _own_rows(plan: BatchPlan, which: int) -> tuple[int, int]:
    """Which of the rows of an epoch are this worker's: as many as its parts of all batches hold."""
    sizes = np.diff(np.arange(plan.n_batches + 1) * plan.sizes[which] // plan.n_batches)
    # As in `BatchPlan.bounds`, parts of the second set are dealt out from the other end.
    places = [worker if which == 0 else plan.workers - 1 - worker for worker in range(plan.workers)]
    held = [int(((at + 1) * sizes // plan.workers - at * sizes // plan.workers).sum()) for at in places]
    before = sum(held[: plan.worker])
    return before, before + held[plan.worker]
