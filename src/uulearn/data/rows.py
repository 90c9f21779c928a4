"""The rows to learn from: dense or sparse, in the type they came in, on the device or streamed to it.

Nothing is copied or widened as a whole: a batch is gathered into a buffer that is used again, and only there turned
into float32.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from uulearn.data.batches import BatchPlan

RESIDENT_SHARE = 0.6
"""Share of an accelerator's free memory that the rows may take before they are streamed instead."""


STAGED_BYTES = 2**20
HASHED_VALUES = 2**20


class Rows(ABC):
    """A table of rows that can be gathered by index into a buffer."""

    n_rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``, converting type and device."""

    @abstractmethod
    def slice(self, start: int, stop: int) -> Tensor:
        """Rows from ``start`` to ``stop`` as a dense tensor of the stored type (a view where it can be)."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Size in memory."""


class DenseRows(Rows):
    """Rows of a tensor of shape (n, …), used in place."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self.n_rows, self.row_shape = len(tensor), tuple(tensor.shape[1:])
        self.dtype, self.device = tensor.dtype, tensor.device
        self._staging: Tensor | None = None

    @property
    def n_bytes(self) -> int:
        """Size in memory."""
        return self.tensor.numel() * self.tensor.element_size()

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        if out.dtype == self.dtype and out.device == self.device:
            torch.index_select(self.tensor, 0, index, out=out)
            return
        # Through a buffer that stays in the processor's cache, or in one go where launches cost more than memory.
        step = len(index) if self.device.type != "cpu" else max(1, STAGED_BYTES * self.n_rows // max(1, self.n_bytes))
        for part, converted in zip(torch.split(index, step), torch.split(out, step), strict=True):
            if self._staging is None or len(self._staging) < len(part):
                self._staging = torch.empty((len(part), *self.row_shape), dtype=self.dtype, device=self.device)
            staged = self._staging[: len(part)]
            torch.index_select(self.tensor, 0, part, out=staged)
            converted.copy_(staged)

    def slice(self, start: int, stop: int) -> Tensor:
        """A view of the rows from ``start`` to ``stop``."""
        return self.tensor[start:stop]

    def to(self, device: torch.device) -> DenseRows:
        """The rows on another device; float64 is narrowed on the way, since training runs in float32."""
        dtype = torch.float32 if self.dtype == torch.float64 else self.dtype
        return DenseRows(self.tensor.to(device=device, dtype=dtype))


class SparseRows(Rows):
    """Rows of a SciPy CSR matrix or array; only the batch at hand is ever dense."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.n_rows, self.row_shape = matrix.shape[0], (matrix.shape[1],)
        self.dtype, self.device = torch.float32, torch.device("cpu")

    @property
    def n_bytes(self) -> int:
        """Size in memory."""
        return int(self.matrix.data.nbytes + self.matrix.indices.nbytes + self.matrix.indptr.nbytes)

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        out.copy_(torch.from_numpy(self.matrix[index.numpy()].toarray()))

    def slice(self, start: int, stop: int) -> Tensor:
        """The rows from ``start`` to ``stop``, dense."""
        return torch.from_numpy(self.matrix[start:stop].toarray()).float()


class PickedRows(Rows):
    """Some rows of a table, by number; nothing is copied before it is asked for."""

    def __init__(self, rows: Rows, index: Tensor) -> None:
        self.rows, self.index = rows, index.to(rows.device)
        self.n_rows, self.row_shape = len(index), rows.row_shape
        self.dtype, self.device = rows.dtype, rows.device

    @property
    def n_bytes(self) -> int:
        """Size in memory that the picked rows have in their table."""
        return self.rows.n_bytes * self.n_rows // max(1, self.rows.n_rows)

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        self.rows.take(self.index[index], out)

    def slice(self, start: int, stop: int) -> Tensor:
        """The rows from ``start`` to ``stop``."""
        out = torch.empty((stop - start, *self.row_shape), dtype=self.dtype, device=self.device)
        self.rows.take(self.index[start:stop], out)
        return out


class JoinedRows(Rows):
    """Two tables one after the other, without putting them together in memory."""

    def __init__(self, first: Rows, second: Rows) -> None:
        self.parts = (first, second)
        self.n_rows, self.row_shape = first.n_rows + second.n_rows, first.row_shape
        self.dtype = first.dtype if first.dtype == second.dtype else torch.float32
        self.device = torch.device("cpu")

    @property
    def n_bytes(self) -> int:
        """Size in memory."""
        return sum(part.n_bytes for part in self.parts)

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        before = self.parts[0].n_rows
        for part, start, mine in zip(self.parts, (0, before), (index < before, index >= before), strict=True):
            places = mine.nonzero().flatten()
            if len(places):
                rows = torch.empty((len(places), *self.row_shape), dtype=out.dtype, device=out.device)
                part.take((index[places] - start).to(part.device), rows)
                out[places.to(out.device)] = rows

    def slice(self, start: int, stop: int) -> Tensor:
        """The rows from ``start`` to ``stop``."""
        out = torch.empty((stop - start, *self.row_shape), dtype=self.dtype)
        self.take(torch.arange(start, stop), out)
        return out

    def to(self, device: torch.device) -> DenseRows:
        """Both on another device, put together there."""
        parts = [part.to(device).tensor for part in self.parts if isinstance(part, DenseRows)]
        return DenseRows(torch.cat(parts))


class TwoSets:
    """The rows of set 0 and of set 1: two tables, or one table with the indices of each set."""

    def __init__(self, rows: tuple[Rows, Rows], index: tuple[Tensor | None, Tensor | None] = (None, None)) -> None:
        self.rows = rows
        self.index = index
        first, second = (len(i) if i is not None else r.n_rows for r, i in zip(rows, index, strict=True))
        self.sizes: tuple[int, int] = (first, second)

    @classmethod
    def from_membership(cls, rows: Rows, sets: Tensor) -> TwoSets:
        """Both sets in one table; ``sets`` says for each row which set it is of."""
        return cls((rows, rows), ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten()))

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.rows[0].row_shape

    def take(self, which: int, positions: Tensor) -> Tensor:
        """Rows of one set at the given positions, as float32 on the CPU."""
        out = torch.empty((len(positions), *self.row_shape))
        self.rows[which].take(self._locate(which, positions).to(self.rows[which].device), out)
        return out

    def sample(self, which: int, n: int) -> Tensor:
        """Up to ``n`` evenly spaced rows of one set, as float32 on the CPU."""
        size = self.sizes[which]
        return self.take(which, torch.linspace(0, size - 1, min(n, size), dtype=torch.float64).long())

    def pick(self, positions0: Any, positions1: Any) -> TwoSets:
        """The rows of each set at the given positions; nothing is copied."""
        picked = [
            self._locate(which, torch.as_tensor(positions, dtype=torch.int64))
            for which, positions in enumerate((positions0, positions1))
        ]
        return TwoSets(self.rows, (picked[0], picked[1]))

    def joined(self) -> TwoSets:
        """The same sets as row numbers of one table, so that rows can change sides."""
        if self.rows[0] is self.rows[1]:
            table, offset = self.rows[0], 0
        else:
            table, offset = JoinedRows(*self.rows), self.rows[0].n_rows
        index = [torch.arange(size) if i is None else i.cpu() for size, i in zip(self.sizes, self.index, strict=True)]
        return TwoSets((table, table), (index[0], index[1] + offset))

    def side(self, which: int) -> Rows:
        """The rows of one set."""
        index = self.index[which]
        return self.rows[which] if index is None else PickedRows(self.rows[which], index)

    def some(self) -> TwoSets:
        """The rows for a look at the data: all of them, since they are at hand."""
        return self

    def identity(self) -> Iterator[Tensor]:
        """What a checkpoint knows the sets by: all of their rows, in chunks."""
        step = max(1, HASHED_VALUES // max(1, math.prod(self.row_shape)))
        for which in (0, 1):
            for positions in torch.split(torch.arange(self.sizes[which]), step):
                yield self.take(which, positions)

    def place(self, device: torch.device, placed: dict[int, Rows] | None = None) -> TwoSets:
        """The sets on the device if they fit beside the model, otherwise where they are.

        ``placed`` remembers, by identity, what became of each table, so that sets of one table move it once.
        """
        placed = {} if placed is None else placed
        tables = {id(rows): rows for rows in self.rows if id(rows) not in placed}
        placed |= zip(tables, place_tables(list(tables.values()), device), strict=True)
        first, second = (placed[id(rows)] for rows in self.rows)
        if (first, second) == self.rows:
            return self
        indices = [
            None if i is None else i.to(rows.device) for rows, i in zip((first, second), self.index, strict=True)
        ]
        return TwoSets((first, second), (indices[0], indices[1]))

    def batches(
        self,
        plan: BatchPlan,
        shuffles: tuple[Tensor, Tensor],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> BatchStream:
        """The batches of one epoch, rows of set 0 first, in the given floating-point type."""
        return BatchStream(self, plan, shuffles, device, dtype)

    def epoch(
        self, plan: BatchPlan, seed: int, epoch: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> BatchStream:
        """The batches of an epoch, shuffled as the seed says."""
        return self.batches(plan, plan.shuffles(seed, epoch), device, dtype)

    def _locate(self, which: int, positions: Tensor) -> Tensor:
        index = self.index[which]
        return positions if index is None else index[positions.to(index.device)]


def place_tables(tables: Sequence[Rows], device: torch.device) -> list[Rows]:
    """Tables on the device if all of them fit beside the model, otherwise where they are."""
    if device.type != "cuda" or any(_has_sparse(rows) for rows in tables):
        return list(tables)
    free, _ = torch.cuda.mem_get_info(device)
    if sum(rows.n_bytes for rows in tables if rows.device != device) > RESIDENT_SHARE * free:
        return list(tables)
    return [rows.to(device) if isinstance(rows, DenseRows | JoinedRows) else rows for rows in tables]


def _has_sparse(rows: Rows) -> bool:
    return isinstance(rows, SparseRows) or (isinstance(rows, JoinedRows) and any(map(_has_sparse, rows.parts)))


class BatchStream:
    """Iterates over (rows, counts) of an epoch; the tensor of rows is overwritten by the next batch."""

    def __init__(
        self,
        data: TwoSets,
        plan: BatchPlan,
        shuffles: tuple[Tensor, Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.data, self.plan, self.device, self.dtype = data, plan, device, dtype
        self.order = [data._locate(which, shuffles[which]).to(data.rows[which].device) for which in (0, 1)]

    def __iter__(self) -> Iterator[tuple[Tensor, tuple[int, int]]]:
        if self.device.type == "cuda" and any(rows.device.type == "cpu" for rows in self.data.rows):
            return self._streamed()
        return self._resident()

    def _gather(self, batch: int, out: Tensor) -> tuple[int, int]:
        n0, n1 = self.plan.counts(batch)
        first, second = self.plan.bounds(batch)
        self.data.rows[0].take(self.order[0][first], out[:n0])
        self.data.rows[1].take(self.order[1][second], out[n0 : n0 + n1])
        return n0, n1

    def _resident(self) -> Iterator[tuple[Tensor, tuple[int, int]]]:
        buffer = torch.empty((self.plan.largest, *self.data.row_shape), dtype=self.dtype, device=self.device)
        for batch in range(self.plan.n_batches):
            counts = self._gather(batch, buffer)
            yield buffer[: sum(counts)], counts

    def _streamed(self) -> Iterator[tuple[Tensor, tuple[int, int]]]:
        """Host rows to an accelerator: two pinned buffers, so that a copy runs while the last batch is computed."""
        narrow = self.data.rows[0].dtype if self.data.rows[0].dtype == self.data.rows[1].dtype else torch.float32
        if narrow == torch.float64:
            narrow = torch.float32
        shape = (self.plan.largest, *self.data.row_shape)
        host = [torch.empty(shape, dtype=narrow, pin_memory=True) for _ in range(2)]
        there = [torch.empty(shape, dtype=narrow, device=self.device) for _ in range(2)]
        copies = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        compute = torch.cuda.current_stream(self.device)
        copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        used = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

        def send(batch: int) -> tuple[int, int]:
            slot = batch % 2
            copied[slot].synchronize()
            counts = self._gather(batch, host[slot])
            with torch.cuda.stream(copies):
                copies.wait_event(used[slot])
                there[slot][: sum(counts)].copy_(host[slot][: sum(counts)], non_blocking=True)
                copied[slot].record(copies)
            return counts

        counts = send(0)
        for batch in range(self.plan.n_batches):
            slot, here = batch % 2, counts
            if batch + 1 < self.plan.n_batches:
                counts = send(batch + 1)
            compute.wait_event(copied[slot])
            yield there[slot][: sum(here)].to(self.dtype, copy=True), here
            used[slot].record(compute)
