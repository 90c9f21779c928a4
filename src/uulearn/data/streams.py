"""Sets that do not fit in memory: rows are read in pieces, mixed in a buffer, and returned as batches.

Each epoch reads the pieces in random order and shuffles rows within a buffer of several pieces. Half of the buffer is
returned at a time while the other half stays, so rows of distant pieces can be mixed. Each row is used once per epoch.
"""

from __future__ import annotations

import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import f as f_distribution
from torch import Tensor

from uulearn.data.batches import BatchPlan
from uulearn.data.identity import digest
from uulearn.data.rows import Batches, DenseRows, Rows, TwoSets
from uulearn.exceptions import PoorMixingWarning

MIXING_BYTES = 128 * 2**20
"""Default size of the buffer in which the rows of a set are mixed."""
FEW_PIECES = 8
"""Minimum number of pieces in the buffer; with fewer pieces, sorted rows are mixed poorly."""
MAX_SWING = 0.002
"""Maximum variance of a column's mean over the buffer, relative to the column's variance (500 random rows: 0.002)."""
TESTED_COLUMNS, ROWS_PER_GROUP, P_VALUE = 200, 20, 1e-6
"""F test for similar rows in a piece: maximum number of columns, minimum group size, and maximum p-value."""
PREVIEW_ROWS, PREVIEW_PIECES = 20_000, 16
"""Maximum number of rows of each set for checks before training, and minimum number of pieces to read them from."""

Numbers = NDArray[np.int64]


class RowStream(ABC):
    """A set of rows that is read piece by piece, such as `uulearn.streaming.ParquetSet`.

    A piece should be small compared with the available memory but much larger than a row, for example a few thousand
    rows.

    >>> class Zeros(RowStream):
    ...     row_shape, piece_sizes = (2,), (3, 1)
    ...     def read(self, piece):
    ...         return torch.zeros(self.piece_sizes[piece], 2)
    ...     def describe(self):
    ...         return "four rows of zeros"
    >>> Zeros().n_rows, Zeros().read_checked(1)
    (4, tensor([[0., 0.]]))
    """

    row_shape: tuple[int, ...]
    buffer_bytes: int = MIXING_BYTES
    in_random_order: bool = False
    """Whether every piece is a random sample of the set."""

    @property
    @abstractmethod
    def piece_sizes(self) -> Sequence[int]:
        """Number of rows in each piece, known without reading the rows."""

    @abstractmethod
    def read(self, piece: int) -> Tensor:
        """Return the rows of a piece as a float32 tensor of shape (rows, …)."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description that identifies the set in a checkpoint; it should be unique to the set."""

    @property
    def n_rows(self) -> int:
        """Total number of rows in all pieces."""
        return int(sum(self.piece_sizes))

    @property
    def buffer_rows(self) -> int:
        """Number of rows that are mixed at a time."""
        return max(1, self.buffer_bytes // row_bytes(self))

    def read_checked(self, piece: int) -> Tensor:
        """Return the rows of a piece; raise an error if they do not have the expected shape."""
        rows = self.read(piece)
        expected = (self.piece_sizes[piece], *self.row_shape)
        if rows.shape != expected:
            raise ValueError(
                f"piece {piece} of {self.describe()}: expected rows of shape {expected}, found {tuple(rows.shape)}; "
                "the set changed while it was being read; call fit again."
            )
        return rows


class StreamedSets:
    """Two streamed sets, which `Trainer` accepts in place of `TwoSets`.

    For each set, ``excluded`` contains the sorted numbers of the rows that are not used for training, and ``sampled``
    contains random rows for checks of the data.
    """

    def __init__(
        self,
        streams: tuple[RowStream, RowStream],
        excluded: tuple[Numbers, Numbers] | None = None,
        sampled: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.streams, self.row_shape, self._sampled = streams, streams[0].row_shape, sampled
        self._preview: TwoSets | None = None
        self.origins = None
        """Streamed sets are never groups of sets (`uulearn.data.groups`)."""
        self.excluded = excluded or (np.empty(0, np.int64), np.empty(0, np.int64))
        first, second = (stream.n_rows - len(out) for stream, out in zip(streams, self.excluded, strict=True))
        self.sizes: tuple[int, int] = (first, second)
        self._edges = [np.concatenate([[0], np.cumsum(stream.piece_sizes)]) for stream in streams]

    def warn_if_poorly_mixed(self, numbers: tuple[Numbers, Numbers] | None = None) -> None:
        """Warn if the buffer holds too few pieces to mix the rows well; ``numbers`` identifies the sampled rows."""
        for which, stream in enumerate(self.streams):
            window, largest = stream.buffer_rows, max(stream.piece_sizes)
            mixed = max(1, window // largest)
            if numbers is None or self._sampled is None:
                poor, reason = mixed < FEW_PIECES, "if its files are sorted"
            else:
                pieces = np.searchsorted(self._edges[which], numbers[which], side="right") - 1
                similarity = piece_similarity(pieces, len(stream.piece_sizes), self._sampled[which])
                swing = (1 - window / stream.n_rows) * similarity / mixed
                poor, reason = swing > MAX_SWING, "because the rows of a piece are similar"
            if poor and not stream.in_random_order and stream.n_rows > window:
                warnings.warn(
                    f"{stream.describe().partition(':')[0]} has pieces of up to {largest:,} rows, and {mixed} pieces "
                    f"are mixed at a time: {reason}, a batch is not a random sample of the set. Write the set in "
                    "random order with uulearn.streaming.shuffled, make the pieces (row groups) smaller, or raise "
                    "buffer_bytes.",
                    PoorMixingWarning,
                    stacklevel=6,
                )

    def to_device(self, device: torch.device, moved: dict[int, Rows] | None = None) -> StreamedSets:
        """Return the sets unchanged, because rows are copied to the device batch by batch."""
        return self

    def identity(self) -> str:
        """Return a hash of the descriptions of both streams."""
        return digest(stream.describe() for stream in self.streams)

    def sample(self, which: int, n: int) -> Tensor:
        """Return up to ``n`` evenly spaced rows of the `preview` of a set."""
        return self.preview().sample(which, n)

    def preview(self) -> TwoSets:
        """Return some rows of both sets in memory, for checks of the data."""
        if self._preview is None:
            self._preview = TwoSets((DenseRows(self._preview_rows(0)), DenseRows(self._preview_rows(1))))
        return self._preview

    def _preview_rows(self, which: int) -> Tensor:
        if self._sampled is not None:
            return self._sampled[which][:: -(-len(self._sampled[which]) // PREVIEW_ROWS)]
        rng = np.random.default_rng(which)
        sizes, wanted = self.training_sizes(which), min(PREVIEW_ROWS, self.sizes[which])
        order = rng.permutation(np.flatnonzero(sizes))
        ends = np.cumsum(sizes[order])
        n_pieces = max(PREVIEW_PIECES, 1 + int(np.searchsorted(ends, wanted)))
        total = int(ends[:n_pieces][-1])
        parts = []
        for piece in order[:n_pieces]:
            rows = self.read_training_rows(which, int(piece))
            parts.append(rows[torch.from_numpy(rng.permutation(len(rows))[: -(-len(rows) * wanted // total)])])
        return torch.cat(parts)[:wanted]

    def epoch(
        self, plan: BatchPlan, seed: int, epoch: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Batches:
        """Yield the shuffled batches of an epoch, as in `TwoSets.epoch`."""
        buffer = torch.empty((plan.largest, *self.row_shape))
        with ThreadPoolExecutor(2) as pool:
            sides = [_MixedRows(self, which, plan, [seed, epoch, which], pool) for which in (0, 1)]
            try:
                for batch in range(plan.n_batches):
                    n0, n1 = counts = plan.counts(batch)
                    sides[0].take(buffer[:n0])
                    sides[1].take(buffer[n0 : n0 + n1])
                    yield buffer[: n0 + n1].to(device, dtype, copy=device.type != "cpu"), counts
            finally:  # cancel reads that have not started
                pool.shutdown(wait=False, cancel_futures=True)

    def read_training_rows(self, which: int, piece: int) -> Tensor:
        """Return the training rows of a piece."""
        start = int(self._edges[which][piece])
        rows = self.streams[which].read_checked(piece)
        out = self.excluded[which]
        own = out[np.searchsorted(out, start) : np.searchsorted(out, start + len(rows))] - start
        return torch.from_numpy(np.delete(rows.numpy(), own, axis=0)) if len(own) else rows

    def training_sizes(self, which: int) -> Numbers:
        """Return the number of training rows in each piece."""
        edges = self._edges[which]
        return np.diff(edges) - np.diff(np.searchsorted(self.excluded[which], edges))


class _MixedRows:
    """Shuffled rows of one set for one worker in one epoch; a thread reads the next piece in advance."""

    def __init__(
        self, data: StreamedSets, which: int, plan: BatchPlan, seed: list[int], pool: ThreadPoolExecutor
    ) -> None:
        self.data, self.which, self.pool = data, which, pool
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(data.streams[which].piece_sizes))
        sizes = data.training_sizes(which)[order]
        start, stop = _worker_rows(plan, which)
        # The pieces that contain rows of this worker, and the range of these rows in each piece.
        self._remaining = [
            (int(piece), max(0, start - int(end - size)), min(int(size), stop - int(end - size)))
            for piece, end, size in zip(order, np.cumsum(sizes), sizes, strict=True)
            if end > start and end - size < stop
        ]
        self._remaining.reverse()
        self._rng = np.random.default_rng([*seed, plan.worker])
        largest = max((last - first for _, first, last in self._remaining), default=1)
        room = min(max(data.streams[which].buffer_rows, 2 * largest), max(1, stop - start))
        self._buffer = torch.empty((room, *data.row_shape))
        # Positions in the buffer: free positions, positions of rows to be mixed again, and positions of the next rows.
        self._free = [torch.arange(room)]
        self._waiting = torch.arange(0)
        self._ready = torch.arange(0)
        self._next: tuple[int, Future[Tensor]] | None = None
        self._request_piece()

    def take(self, out: Tensor) -> None:
        """Fill ``out`` with the next rows."""
        filled = 0
        while filled < len(out):
            if not len(self._ready):
                self._mix()
            positions = self._ready[: len(out) - filled]
            torch.index_select(self._buffer, 0, positions, out=out[filled : filled + len(positions)])
            self._free.append(positions)
            self._ready = self._ready[len(positions) :]
            filled += len(positions)

    def _mix(self) -> None:
        """Fill free positions with new rows, shuffle, and release half of the rows, or all rows at the end."""
        free = torch.cat(self._free)
        while self._next is not None and self._next[0] <= len(free):
            rows = self._next[1].result()
            positions, free = free[: len(rows)], free[len(rows) :]
            self._buffer[positions] = rows
            self._waiting = torch.cat([self._waiting, positions])
            self._request_piece()
        order = self._waiting[torch.from_numpy(self._rng.permutation(len(self._waiting)))]
        released = len(order) if self._next is None else -(-len(order) // 2)
        self._free, self._ready, self._waiting = [free], order[:released], order[released:]

    def _request_piece(self) -> None:
        if not self._remaining:
            self._next = None
            return
        piece, first, last = self._remaining.pop()
        self._next = last - first, self.pool.submit(self._read, piece, slice(first, last))

    def _read(self, piece: int, own: slice) -> Tensor:
        return self.data.read_training_rows(self.which, piece)[own]


def piece_similarity(pieces: Numbers, n_pieces: int, rows: Tensor) -> float:
    """Return the similarity of rows within a piece: the largest intraclass correlation over all columns.

    The similarity is 0 if F tests find no column whose mean differs significantly between pieces.
    """
    flat = rows.flatten(1).numpy()
    chosen = np.random.default_rng(0).permutation(flat.shape[1])[:TESTED_COLUMNS]
    columns = flat[:, np.sort(chosen)].astype(np.float64)
    # Group neighboring pieces until every group has enough rows; sorted rows also resemble rows of neighboring pieces.
    n = len(columns)
    _, group = np.unique(pieces * max(1, min(n_pieces, n // ROWS_PER_GROUP)) // n_pieces, return_inverse=True)
    sizes = np.bincount(group)
    k = len(sizes)
    columns = columns[:, np.ptp(columns, 0) > 0]
    if k < 2 or n <= k or not columns.size:
        return 0.0
    sums = np.zeros((k, columns.shape[1]))
    columns = columns - columns.mean(0)
    np.add.at(sums, group, columns)
    total, between = (columns**2).sum(0), (sums**2 / sizes[:, None]).sum(0)
    # If all rows of a group are equal, the variance within groups is only rounding error; keep it above zero.
    within = np.maximum(total - between, 1e-12 * total)
    largest = ((between / (k - 1)) / (within / (n - k))).max()
    if largest <= f_distribution.isf(P_VALUE / columns.shape[1], k - 1, n - k):
        return 0.0
    return float((largest - 1) / (largest - 1 + (n - (sizes**2).sum() / n) / (k - 1)))


def row_bytes(stream: RowStream) -> int:
    """Return the number of bytes that a row needs in memory."""
    return 4 * max(1, math.prod(stream.row_shape))


@functools.lru_cache(maxsize=8)
def _worker_rows(plan: BatchPlan, which: int) -> tuple[int, int]:
    """Return the range of this worker's rows in an epoch; its length is the total size of the worker's batches."""
    sizes = np.diff(np.arange(plan.n_batches + 1) * plan.sizes[which] // plan.n_batches)
    # As in `BatchPlan.bounds`, parts of the second set are numbered from the other end.
    parts = [worker if which == 0 else plan.workers - 1 - worker for worker in range(plan.workers)]
    counts = [int(((part + 1) * sizes // plan.workers - part * sizes // plan.workers).sum()) for part in parts]
    before = sum(counts[: plan.worker])
    return before, before + counts[plan.worker]
