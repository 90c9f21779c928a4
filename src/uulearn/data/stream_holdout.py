"""Hold out rows of streamed sets in one pass over each set.

All copies of a row in both sets are on the same side of the split, as for rows in memory. A pseudorandom key, computed
from the values of a row, determines whether the row is held out. Rows with too many copies are used for training.
"""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.data.holdout import check_held_out, digests_of
from uulearn.data.rows import DenseRows
from uulearn.data.streams import Numbers, RowStream, row_bytes

MAX_HELD_OUT_ROWS, MAX_HELD_OUT_BYTES = 50_000, 128 * 2**20
"""Maximum number of rows and bytes held out of each set; held-out rows are scored every epoch."""
FEW_COPIES = 20
"""Number of copies of a row up to which the row can always be held out."""
SPARE_FACTOR, SPARE_ROWS = 1.5, 100
"""Relative and absolute number of extra candidates, needed because some candidates have too many copies."""

Keys = NDArray[np.uint64]


class _Workers(Protocol):
    """Several processes that read a stream together, such as `uulearn.training.workers.Workers`."""

    @property
    def rank(self) -> int: ...
    @property
    def count(self) -> int: ...
    def gather_objects(self, value: Any) -> list[Any]: ...


@dataclass(frozen=True)
class StreamHoldOut:
    """Held-out rows of each set, their row numbers, and the numbers of all rows (and copies) excluded from training."""

    rows: tuple[Tensor, Tensor]
    numbers: tuple[Numbers, Numbers]
    excluded: tuple[Numbers, Numbers]


def hold_out_streams(
    streams: tuple[RowStream, RowStream], fraction: float, seed: int, workers: _Workers | None = None
) -> StreamHoldOut:
    """Hold out a fraction of each set, limited by `MAX_HELD_OUT_ROWS` and `MAX_HELD_OUT_BYTES`.

    With several workers, each worker reads a part of the pieces, and all workers get the same result.
    """
    wanted = [
        max(1, min(MAX_HELD_OUT_ROWS, MAX_HELD_OUT_BYTES // row_bytes(stream), round(fraction * stream.n_rows)))
        for stream in streams
    ]
    # Process the set with the larger held-out fraction first: its keys also select the copies in the other set.
    first = int(wanted[1] / streams[1].n_rows > wanted[0] / streams[0].n_rows)
    second = 1 - first
    candidates, _, _ = _collect(streams[first], wanted[first], seed, workers, None)
    held = candidates.chosen()
    others, copied, copies = _collect(streams[second], wanted[second], seed, workers, candidates.digests[held])
    digests, counts = np.unique(copied, return_counts=True)
    held &= ~np.isin(candidates.digests, digests[counts > others.max_copies])
    held_others = (
        others.chosen()
        & ~np.isin(others.digests, candidates.too_frequent)
        & (_keys(others.digests, seed) < candidates.limit)
    )
    chosen = {first: (candidates, held), second: (others, held_others)}
    excluded = {
        first: candidates.numbers[held | np.isin(candidates.digests, others.digests[held_others])],
        second: np.union1d(others.numbers[held_others], copies[np.isin(copied, candidates.digests[held])]),
    }
    for which, (_, mask) in chosen.items():
        size = streams[which].n_rows
        check_held_out(f"set {which}", fraction, size, size - len(excluded[which]), int(mask.sum()))
    # Positions of the held-out rows among the candidates, in the order of the set.
    order = {which: np.flatnonzero(mask)[np.argsort(c.numbers[mask])] for which, (c, mask) in chosen.items()}
    first_rows, second_rows = (chosen[which][0].rows[torch.from_numpy(order[which])] for which in (0, 1))
    first_numbers, second_numbers = (chosen[which][0].numbers[order[which]] for which in (0, 1))
    out = (np.sort(excluded[0]), np.sort(excluded[1]))
    return StreamHoldOut((first_rows, second_rows), (first_numbers, second_numbers), out)


class _Candidates:
    """The rows of a set with the smallest keys, from which the held-out rows are chosen."""

    def __init__(self, n: int, n_rows: int, row_shape: tuple[int, ...], seed: int) -> None:
        self.n, self.seed = n, seed
        self.capacity = int(SPARE_FACTOR * n) + SPARE_ROWS
        self.max_copies = max(n // 4, FEW_COPIES)
        self.limit = min(2**64 - 1, 2**64 * self.capacity // n_rows)  # rows with larger keys are not candidates
        self.too_frequent = np.empty(0, np.int64)
        self.digests, self.numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        self.rows = torch.empty((0, *row_shape))
        self._pending: list[tuple[Numbers, Numbers, Tensor]] = []

    def add(self, digests: Numbers, start: int, rows: Tensor) -> None:
        """Add rows, numbered from ``start``, to the candidates."""
        fitting = np.flatnonzero((_keys(digests, self.seed) < self.limit) & ~np.isin(digests, self.too_frequent))
        self._pending.append((digests[fitting], start + fitting, rows[torch.from_numpy(fitting)]))
        if sum(len(found) for found, _, _ in self._pending) > 2 * self.capacity:
            self.merge_pending()

    def merge_pending(self) -> None:
        """Merge the rows added so far; drop rows with too many copies, then rows with the largest keys."""
        parts = [(self.digests, self.numbers, self.rows), *self._pending]
        self._pending = []
        digests, numbers = (np.concatenate([part[field] for part in parts]) for field in (0, 1))
        rows = torch.cat([part[2] for part in parts])
        found, counts = np.unique(digests, return_counts=True)
        self.too_frequent = np.union1d(self.too_frequent, found[counts > self.max_copies])
        keys = _keys(digests, self.seed)
        fits = (keys < self.limit) & ~np.isin(digests, self.too_frequent)
        if fits.sum() > self.capacity:
            self.limit = int(np.partition(keys[fits], self.capacity)[self.capacity])
            fits &= keys < self.limit
        self.digests, self.numbers, self.rows = digests[fits], numbers[fits], rows[torch.from_numpy(fits)]

    def combine(self, parts: list[Self]) -> Self:
        """Return the candidates of all workers."""
        self.limit = min(part.limit for part in parts)
        self.too_frequent = np.unique(np.concatenate([part.too_frequent for part in parts]))
        self._pending = [(part.digests, part.numbers, part.rows) for part in parts]
        self.digests, self.numbers, self.rows = self.digests[:0], self.numbers[:0], self.rows[:0]
        self.merge_pending()
        return self

    def chosen(self) -> NDArray[np.bool_]:
        """Return a mask of the n candidates with the smallest keys; it includes all copies of the last candidate."""
        keys = _keys(self.digests, self.seed)
        if len(keys) <= self.n:
            return np.ones(len(keys), dtype=np.bool_)
        fits: NDArray[np.bool_] = keys <= np.partition(keys, self.n - 1)[self.n - 1]
        return fits


def _collect(
    stream: RowStream, n: int, seed: int, workers: _Workers | None, wanted: Numbers | None
) -> tuple[_Candidates, Numbers, Numbers]:
    """Read a set once; return its candidates, and the digests and row numbers of all rows with a wanted digest."""
    candidates = _Candidates(n, stream.n_rows, stream.row_shape, seed)
    wanted = np.empty(0, np.int64) if wanted is None else np.unique(wanted)
    copies: list[tuple[Numbers, Numbers]] = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    starts = np.cumsum([0, *stream.piece_sizes])
    own = slice(None) if workers is None else slice(workers.rank, None, workers.count)
    for piece in range(len(stream.piece_sizes))[own]:
        rows, start = stream.read_checked(piece), int(starts[piece])
        digests = digests_of(DenseRows(rows))
        candidates.add(digests, start, rows)
        if len(wanted):
            positions = np.flatnonzero(np.isin(digests, wanted))
            copies.append((digests[positions], start + positions))
    candidates.merge_pending()
    digests, numbers = (np.concatenate(parts) for parts in zip(*copies, strict=True))
    if workers is not None:
        found = workers.gather_objects((candidates, digests, numbers))
        candidates = candidates.combine([part for part, _, _ in found])
        digests, numbers = (np.concatenate([each[position] for each in found]) for position in (1, 2))
    return candidates, digests, numbers


def _keys(digests: Numbers, seed: int) -> Keys:
    """Return a pseudorandom number for every digest (SplitMix64)."""
    state = np.random.SeedSequence([seed, 6]).generate_state(1, np.uint64)[0]
    with np.errstate(over="ignore"):
        keys = digests.astype(np.uint64) ^ state
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
        mixed: Keys = keys ^ (keys >> np.uint64(31))
    return mixed
