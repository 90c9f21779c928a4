"""Assignment of rows to batches (Algorithm 1, lines 4 to 6)."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uulearn.exceptions import UnevenSetsWarning


@dataclass(frozen=True)
class BatchPlan:
    """Plan that divides the rows of two sets into the batches of an epoch, and each batch among workers.

    A batch contains about ``batch_size`` rows, drawn from the two sets in proportion to their sizes. Batch i of B
    contains rows ⌊i·n/B⌋ to ⌊(i + 1)·n/B⌋ of each shuffled set. Every row is used exactly once per epoch. Every batch
    contains at least one row of each set; if a set has fewer rows than there are batches, the batch size is increased.

    >>> [BatchPlan((7, 3), 4).counts(i) for i in range(3)]
    [(2, 1), (2, 1), (3, 1)]
    >>> [BatchPlan((7, 3), 4, worker, 2).counts(2) for worker in (0, 1)]
    [(1, 1), (2, 0)]
    """

    sizes: tuple[int, int]
    batch_size: int
    worker: int = 0
    workers: int = 1

    @property
    def n_batches(self) -> int:
        """Number of batches per epoch."""
        return count_batches(self.sizes, self.batch_size)

    @property
    def largest(self) -> int:
        """Upper bound on the number of rows in a batch."""
        return sum(math.ceil(size / self.n_batches) for size in self.sizes)

    def bounds(self, batch: int) -> tuple[slice, slice]:
        """Return the slices of the two shuffled sets that form this worker's part of the given batch."""
        return self._own_parts(*self._whole(batch))

    def counts(self, batch: int) -> tuple[int, int]:
        """Return the number of rows of each set in this worker's part of the given batch."""
        first, second = self.bounds(batch)
        return first.stop - first.start, second.stop - second.start

    def whole_counts(self, batch: int) -> tuple[int, int]:
        """Return the number of rows of each set in the given batch, over all workers."""
        first, second = self._whole(batch)
        return first.stop - first.start, second.stop - second.start

    def own_rows(self, whole: tuple[int, int]) -> tuple[slice, slice]:
        """Return the slices of a whole batch with ``whole`` rows of each set (set 0 first) that this worker has."""
        return self._own_parts(slice(0, whole[0]), slice(whole[0], sum(whole)))

    def check_workers(self) -> None:
        """Raise an error if a worker would get no rows of a batch."""
        compositions = {self.whole_counts(batch): batch for batch in range(self.n_batches)} if self.workers > 1 else {}
        for batch in compositions.values():
            if not all(sum(replace(self, worker=worker).counts(batch)) for worker in range(self.workers)):
                raise ValueError(
                    f"a batch of {sum(self.whole_counts(batch))} rows leaves some of the {self.workers} workers "
                    "without rows; raise batch_size, or start fewer workers."
                )

    def _own_parts(self, first: slice, second: slice) -> tuple[slice, slice]:
        # Workers are numbered from opposite ends in the two sets, so that small batches leave few workers without rows.
        return _part(first, self.worker, self.workers), _part(second, self.workers - 1 - self.worker, self.workers)

    def _whole(self, batch: int) -> tuple[slice, slice]:
        first, second = (
            slice(batch * size // self.n_batches, (batch + 1) * size // self.n_batches) for size in self.sizes
        )
        return first, second

    def shuffles(self, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
        """Return an independent permutation of each set that depends only on the seed and the epoch."""
        state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(state) & (2**63 - 1))
        return torch.randperm(self.sizes[0], generator=generator), torch.randperm(self.sizes[1], generator=generator)

    def warn_if_grown(self) -> None:
        """Warn if batches are much larger than ``batch_size`` because one set is small."""
        if self.largest > 2 * self.batch_size:
            warnings.warn(
                f"the sets have {self.sizes[0]:,} and {self.sizes[1]:,} rows: every batch needs a row of each set, so "
                f"batches have up to {self.largest:,} rows instead of {self.batch_size:,}; collect more rows of the "
                "smaller set or raise batch_size.",
                UnevenSetsWarning,
                stacklevel=5,
            )


def count_batches(sizes: Sequence[int], batch_size: int) -> int:
    """Return the number of batches per epoch: no more than the rows of the smallest set.

    >>> count_batches((7, 3), 4)
    3
    """
    return max(1, min(math.ceil(sum(sizes) / batch_size), *sizes))


def _part(whole: slice, worker: int, workers: int) -> slice:
    n = whole.stop - whole.start
    return slice(whole.start + worker * n // workers, whole.start + (worker + 1) * n // workers)
