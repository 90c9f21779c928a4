"""Dense or sparse rows for training; batches are gathered and converted on demand, in a reused buffer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from uulearn.data.batches import BatchPlan
from uulearn.data.identity import digest

RESIDENT_SHARE = 0.6
"""Maximum fraction of a GPU's free memory for the rows; larger tables are copied to the device batch by batch."""
STAGED_BYTES = 2**20
"""Number of bytes of rows that are gathered and converted at a time, chosen to fit the processor's cache."""
JOINED_BYTES = 64 * 2**20
"""Maximum size, in bytes, of two tables that are copied into one."""
HASHED_VALUES = 2**20
"""Number of values that are hashed at a time to compute the fingerprint of a run."""

Batches = Iterator[tuple[Tensor, tuple[int, int]]]


class Rows(ABC):
    """A table of rows that can be gathered by index into a buffer."""

    n_rows: int
    row_shape: tuple[int, ...]
    n_bytes: int
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``, converting them to its dtype and device."""

    def slice(self, start: int, stop: int) -> Tensor:
        """Return rows ``start`` to ``stop`` as a dense tensor of the stored type (a view if possible)."""
        out = torch.empty((stop - start, *self.row_shape), dtype=self.dtype, device=self.device)
        self.take(torch.arange(start, stop, device=self.device), out)
        return out

    def blocks(self) -> list[Any]:
        """Return the rows as float32 arrays and SciPy CSR matrices; rows that are stored as such are not copied."""
        out = torch.empty((self.n_rows, *self.row_shape))
        step = max(1, STAGED_BYTES // max(4, out[:1].nbytes))
        for index, part in zip(torch.split(torch.arange(self.n_rows), step), torch.split(out, step), strict=True):
            self.take(index.to(self.device), part)
        return [out.numpy()]


class DenseRows(Rows):
    """Rows of a tensor of shape (n, …); the tensor is not copied.

    >>> rows = DenseRows(torch.arange(6.0).reshape(3, 2))
    >>> rows.n_rows, rows.row_shape, rows.slice(1, 2)
    (3, (2,), tensor([[2., 3.]]))
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self.n_rows, self.row_shape = len(tensor), tuple(tensor.shape[1:])
        self.n_bytes = tensor.numel() * tensor.element_size()
        self.dtype, self.device = tensor.dtype, tensor.device
        self._staging: Tensor | None = None

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        if out.dtype == self.dtype and out.device == self.device:
            torch.index_select(self.tensor, 0, index, out=out)
            return
        # A CPU gathers rows in steps that fit its cache; a GPU needs one step, because every kernel launch takes time.
        step = len(index) if self.device.type != "cpu" else max(1, STAGED_BYTES * self.n_rows // max(1, self.n_bytes))
        for part, converted in zip(torch.split(index, step), torch.split(out, step), strict=True):
            if self._staging is None or len(self._staging) < len(part):
                self._staging = torch.empty((len(part), *self.row_shape), dtype=self.dtype, device=self.device)
            staged = self._staging[: len(part)]
            torch.index_select(self.tensor, 0, part, out=staged)
            converted.copy_(staged)

    def slice(self, start: int, stop: int) -> Tensor:
        """Return a view of rows ``start`` to ``stop``."""
        return self.tensor[start:stop]

    def blocks(self) -> list[Any]:
        """Return the tensor as a float32 array."""
        return [self.tensor.float().cpu().numpy()]

    def to(self, device: torch.device) -> DenseRows:
        """Return the rows on another device; float64 is converted to float32, the type used in training."""
        dtype = torch.float32 if self.dtype == torch.float64 else self.dtype
        return DenseRows(self.tensor.to(device=device, dtype=dtype))


class SparseRows(Rows):
    """Rows of a SciPy CSR matrix or array; only the current batch is converted to a dense tensor.

    >>> from scipy.sparse import csr_array
    >>> SparseRows(csr_array([[0.0, 1.0], [2.0, 0.0]])).slice(1, 2)
    tensor([[2., 0.]])
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.n_rows, self.row_shape = matrix.shape[0], (matrix.shape[1],)
        self.n_bytes = int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
        self.dtype, self.device = torch.float32, torch.device("cpu")

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        out.copy_(torch.from_numpy(self.matrix[index.numpy()].toarray()))

    def blocks(self) -> list[Any]:
        """Return the matrix."""
        return [self.matrix]


class PickedRows(Rows):
    """Selected rows of a table, which are copied only when they are read."""

    def __init__(self, rows: Rows, index: Tensor) -> None:
        self.rows, self.index = rows, index.to(rows.device)
        self.n_rows, self.row_shape = len(index), rows.row_shape
        self.n_bytes = rows.n_bytes * self.n_rows // max(1, rows.n_rows)
        self.dtype, self.device = rows.dtype, rows.device

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        self.rows.take(self.index[index], out)

    def blocks(self) -> list[Any]:
        """Return all rows of the table without a copy if all are selected in their order, otherwise a copy of some."""
        if torch.equal(self.index.cpu(), torch.arange(self.rows.n_rows)):
            return self.rows.blocks()
        if not _is_sparse(self.rows):
            return super().blocks()
        from scipy import sparse

        return [sparse.vstack(self.rows.blocks(), format="csr")[self.index.numpy()]]


class JoinedRows(Rows):
    """Two tables that are concatenated without copying."""

    def __init__(self, first: Rows, second: Rows) -> None:
        self.parts = (first, second)
        self.n_rows, self.row_shape = first.n_rows + second.n_rows, first.row_shape
        self.n_bytes = first.n_bytes + second.n_bytes
        self.dtype = first.dtype if first.dtype == second.dtype else torch.float32
        self.device = torch.device("cpu")

    def take(self, index: Tensor, out: Tensor) -> None:
        """Write the rows at ``index`` into ``out``."""
        n_first = self.parts[0].n_rows
        for part, start, inside in zip(self.parts, (0, n_first), (index < n_first, index >= n_first), strict=True):
            positions = inside.nonzero().flatten()
            if len(positions):
                rows = torch.empty((len(positions), *self.row_shape), dtype=out.dtype, device=out.device)
                part.take((index[positions] - start).to(part.device), rows)
                out[positions.to(out.device)] = rows

    def blocks(self) -> list[Any]:
        """Return the blocks of both tables."""
        return [block for part in self.parts for block in part.blocks()]

    def to(self, device: torch.device) -> DenseRows:
        """Return both tables as one table on another device."""
        return DenseRows(torch.cat([part.to(device).tensor for part in self.parts if isinstance(part, DenseRows)]))


class TwoSets:
    """The rows of set 0 and of set 1: two tables, or one table with the row numbers of each set.

    Each of the two sets can be a group of several sets (`uulearn.data.groups`). Then, ``origins`` contains the set of
    every row of each group.

    >>> both = TwoSets.from_membership(DenseRows(torch.eye(4)), torch.tensor([0, 1, 1, 0]))
    >>> both.sizes, both.take(0, torch.tensor([1]))
    ((2, 2), tensor([[0., 0., 0., 1.]]))
    """

    def __init__(
        self,
        rows: tuple[Rows, Rows],
        index: tuple[Tensor | None, Tensor | None] = (None, None),
        origins: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.rows, self.index, self.origins = rows, index, origins
        self.row_shape = rows[0].row_shape
        first, second = (len(i) if i is not None else r.n_rows for r, i in zip(rows, index, strict=True))
        self.sizes: tuple[int, int] = (first, second)

    @classmethod
    def from_membership(cls, rows: Rows, sets: Tensor) -> TwoSets:
        """Return both sets from one table; ``sets`` contains the set of each row, 0 or 1."""
        return cls((rows, rows), ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten()))

    @property
    def set_numbers(self) -> Tensor:
        """The set of every row, with the rows of set 0 (or group 0) first; shape (n,)."""
        if self.origins is not None:
            return torch.cat(self.origins)
        return torch.repeat_interleave(torch.arange(2), torch.tensor(self.sizes))

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Positions of the rows of set 0 and of set 1 in the shared table."""
        first, second = (part for part in self.index if part is not None)
        return first, second

    def take(self, which: int, positions: Tensor) -> Tensor:
        """Return the rows of one set at the given positions, as float32 on the CPU."""
        out = torch.empty((len(positions), *self.row_shape))
        self.rows[which].take(self._locate(which, positions).to(self.rows[which].device), out)
        return out

    def sample(self, which: int, n: int) -> Tensor:
        """Return up to ``n`` evenly spaced rows of one set, as float32 on the CPU."""
        size = self.sizes[which]
        return self.take(which, torch.linspace(0, size - 1, min(n, size), dtype=torch.float64).long())

    def pick(self, positions0: Any, positions1: Any) -> TwoSets:
        """Return the rows of each set at the given positions, without copying."""
        first, second = (torch.as_tensor(positions, dtype=torch.int64) for positions in (positions0, positions1))
        origins = self.origins and (self.origins[0][first], self.origins[1][second])
        return TwoSets(self.rows, (self._locate(0, first), self._locate(1, second)), origins)

    def joined(self) -> TwoSets:
        """Return the same sets as row numbers of one table, so that rows can be moved between the sets."""
        same = self.rows[0] is self.rows[1]
        table, offset = (self.rows[0], 0) if same else (_join(*self.rows), self.rows[0].n_rows)
        index = [torch.arange(size) if i is None else i.cpu() for size, i in zip(self.sizes, self.index, strict=True)]
        return TwoSets((table, table), (index[0], index[1] + offset), self.origins)

    def rows_of(self, which: int, copy_bytes: int = 0) -> Rows:
        """Return the rows of one set; selected dense rows of at most ``copy_bytes`` are copied for faster access."""
        rows, index = self.rows[which], self.index[which]
        if index is None:
            return rows
        picked = PickedRows(rows, index)
        copies = picked.n_bytes <= copy_bytes and not _has_sparse(rows)
        return DenseRows(picked.slice(0, picked.n_rows)) if copies else picked

    def blocks(self) -> list[Any]:
        """Return the rows of set 0 and then of set 1 as float32 arrays and CSR matrices, without a copy if possible."""
        if self.rows[0] is self.rows[1]:
            return PickedRows(self.rows[0], torch.cat(self.positions)).blocks()
        return [block for which in (0, 1) for block in self.rows_of(which).blocks()]

    def preview(self) -> TwoSets:
        """Return the rows used to check the data: all rows, or a sample in `uulearn.data.streams.StreamedSets`."""
        return self

    def identity(self) -> str:
        """Return a hash of all rows, read in chunks, and of their sets."""
        step = max(1, HASHED_VALUES // max(1, math.prod(self.row_shape)))
        chunks = ((which, part) for which in (0, 1) for part in torch.split(torch.arange(self.sizes[which]), step))
        parts = (self.take(which, positions) for which, positions in chunks)
        return digest(parts if self.origins is None else [*parts, *self.origins])

    def to_device(self, device: torch.device, moved: dict[int, Rows] | None = None) -> TwoSets:
        """Move the sets to the device if its memory is large enough; otherwise return them unchanged.

        ``moved`` maps the id of each table to the table on the device, so a shared table is moved only once.
        """
        moved = {} if moved is None else moved
        tables = {id(rows): rows for rows in self.rows if id(rows) not in moved}
        moved |= zip(tables, move_tables(list(tables.values()), device), strict=True)
        first, second = (moved[id(rows)] for rows in self.rows)
        if (first, second) == self.rows:
            return self
        index = [None if i is None else i.to(rows.device) for rows, i in zip((first, second), self.index, strict=True)]
        return TwoSets((first, second), (index[0], index[1]), self.origins)

    def epoch(
        self, plan: BatchPlan, seed: int, epoch: int, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> Batches:
        """Yield the shuffled batches of an epoch: the rows (set 0 first) and the number of rows of each set.

        The next batch may overwrite the tensor of rows.
        """
        shuffles = plan.shuffles(seed, epoch)
        order = [self._locate(which, shuffles[which]).to(self.rows[which].device) for which in (0, 1)]
        if device.type == "cuda" and any(rows.device.type == "cpu" for rows in self.rows):
            yield from self._copied_batches(plan, order, device, dtype)
            return
        buffer = torch.empty((plan.largest, *self.row_shape), dtype=dtype, device=device)
        for batch in range(plan.n_batches):
            counts = self._gather(plan, order, batch, buffer)
            yield buffer[: sum(counts)], counts

    def _gather(self, plan: BatchPlan, order: list[Tensor], batch: int, out: Tensor) -> tuple[int, int]:
        n0, n1 = plan.counts(batch)
        first, second = plan.bounds(batch)
        self.rows[0].take(order[0][first], out[:n0])
        self.rows[1].take(order[1][second], out[n0 : n0 + n1])
        return n0, n1

    def _copied_batches(
        self, plan: BatchPlan, order: list[Tensor], device: torch.device, dtype: torch.dtype
    ) -> Batches:
        """Yield batches copied from host memory to a GPU; two pinned buffers let the GPU compute during a copy."""
        types = {rows.dtype for rows in self.rows}
        narrow = torch.float32 if len(types) > 1 or torch.float64 in types else self.rows[0].dtype
        shape = (plan.largest, *self.row_shape)
        host = [torch.empty(shape, dtype=narrow, pin_memory=True) for _ in range(2)]
        there = [torch.empty(shape, dtype=narrow, device=device) for _ in range(2)]
        copies = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        compute = torch.cuda.current_stream(device)
        copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        used = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

        def send(batch: int) -> tuple[int, int]:
            slot = batch % 2
            copied[slot].synchronize()
            counts = self._gather(plan, order, batch, host[slot])
            with torch.cuda.stream(copies):
                copies.wait_event(used[slot])
                there[slot][: sum(counts)].copy_(host[slot][: sum(counts)], non_blocking=True)
                copied[slot].record(copies)
            return counts

        counts = send(0)
        for batch in range(plan.n_batches):
            slot, here = batch % 2, counts
            if batch + 1 < plan.n_batches:
                counts = send(batch + 1)
            compute.wait_event(copied[slot])
            yield there[slot][: sum(here)].to(dtype, copy=True), here
            used[slot].record(compute)

    def _locate(self, which: int, positions: Tensor) -> Tensor:
        index = self.index[which]
        return positions if index is None else index[positions.to(index.device)]


def move_tables(tables: Sequence[Rows], device: torch.device) -> list[Rows]:
    """Move the tables to the device if its memory is large enough for all of them; otherwise return them unchanged."""
    if device.type != "cuda" or any(_has_sparse(rows) for rows in tables):
        return list(tables)
    free, _ = torch.cuda.mem_get_info(device)
    if sum(rows.n_bytes for rows in tables if rows.device != device) > RESIDENT_SHARE * free:
        return list(tables)
    return [rows.to(device) if isinstance(rows, DenseRows | JoinedRows) else rows for rows in tables]


def _join(first: Rows, second: Rows) -> Rows:
    """Concatenate two tables; small dense tables are copied, because one table is faster to read."""
    dense = isinstance(first, DenseRows) and isinstance(second, DenseRows) and first.dtype == second.dtype
    if dense and first.device == second.device and first.n_bytes + second.n_bytes <= JOINED_BYTES:
        return DenseRows(torch.cat([first.slice(0, first.n_rows), second.slice(0, second.n_rows)]))
    return JoinedRows(first, second)


def _is_sparse(rows: Rows) -> bool:
    return isinstance(rows, SparseRows) or (isinstance(rows, JoinedRows) and all(map(_is_sparse, rows.parts)))


def _has_sparse(rows: Rows) -> bool:
    return isinstance(rows, SparseRows) or (isinstance(rows, JoinedRows) and any(map(_has_sparse, rows.parts)))
