"""Which rows form which batch (Algorithm 1, lines 4 to 6)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uulearn.exceptions import UnevenSetsWarning


@dataclass(frozen=True)
class BatchPlan:
    """How an epoch over two sets of the given sizes is cut into batches.

    A batch holds about ``batch_size`` rows of both sets together, in proportion to the sizes of the sets: batch i
    takes the rows ⌊i·n/B⌋ to ⌊(i + 1)·n/B⌋ of each shuffled set, so that every row is used exactly once an epoch
    and compositions differ by at most one row of each set. Every batch holds at least one row of each set; where one
    set has fewer rows than there would be batches, batches grow.

    Examples
    --------
    >>> plan = BatchPlan((30_000, 30_000), 3_000)
    >>> plan.n_batches, plan.counts(0)
    (20, (1500, 1500))
    >>> [BatchPlan((7, 3), 4).counts(i) for i in range(3)]
    [(2, 1), (2, 1), (3, 1)]

    One of several workers takes its part of every batch, and all of them the whole:

    >>> [BatchPlan((7, 3), 4, worker, 2).counts(2) for worker in (0, 1)]
    [(1, 1), (2, 0)]
    """

    sizes: tuple[int, int]
    batch_size: int
    worker: int = 0
    workers: int = 1

    @property
    def n_batches(self) -> int:
        """Number of batches an epoch."""
        return max(1, min(math.ceil(sum(self.sizes) / self.batch_size), *self.sizes))

    @property
    def largest(self) -> int:
        """Rows of the largest batch, an upper bound for buffers."""
        return sum(math.ceil(size / self.n_batches) for size in self.sizes)

    def bounds(self, batch: int) -> tuple[slice, slice]:
        """Slices of the two shuffled sets that form the given batch, or this worker's part of it."""
        first, second = self._whole(batch)
        # From opposite ends, so that of few rows no worker is without any that can have one.
        return _part(first, self.worker, self.workers), _part(second, self.workers - 1 - self.worker, self.workers)

    def counts(self, batch: int) -> tuple[int, int]:
        """Number of rows of each set in the given batch, or in this worker's part of it."""
        first, second = self.bounds(batch)
        return first.stop - first.start, second.stop - second.start

    def whole_counts(self, batch: int) -> tuple[int, int]:
        """Number of rows of each set in the given batch, whoever holds them."""
        first, second = self._whole(batch)
        return first.stop - first.start, second.stop - second.start

    def check_workers(self) -> None:
        """Refuse batches in which a worker would have nothing to do."""
        kinds = {self.whole_counts(batch): batch for batch in range(self.n_batches)} if self.workers > 1 else {}
        for batch in kinds.values():
            everyone = (replace(self, worker=worker) for worker in range(self.workers))
            if not all(sum(each.counts(batch)) for each in everyone):
                raise ValueError(
                    f"a batch of {sum(self.whole_counts(batch))} rows leaves some of {self.workers} workers without "
                    "any; raise batch_size, or start fewer workers."
                )

    def _whole(self, batch: int) -> tuple[slice, slice]:
        first, second = (
            slice(batch * size // self.n_batches, (batch + 1) * size // self.n_batches) for size in self.sizes
        )
        return first, second

    def shuffles(self, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
        """Independent permutations of both sets; a function of the seed and the epoch alone."""
        state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
        generator = torch.Generator().manual_seed(int(state) & (2**63 - 1))
        return torch.randperm(self.sizes[0], generator=generator), torch.randperm(self.sizes[1], generator=generator)

    def warn_if_grown(self) -> None:
        """Warn when the smaller set forces batches far beyond the size asked for."""
        if self.largest > 2 * self.batch_size:
            warnings.warn(
                f"the sets have {self.sizes[0]:,} and {self.sizes[1]:,} rows: for every batch to hold a row of each, "
                f"batches grew from {self.batch_size:,} to {self.largest:,} rows; collect more rows of the smaller set "
                "or raise batch_size.",
                UnevenSetsWarning,
                stacklevel=5,
            )


def _part(whole: slice, worker: int, workers: int) -> slice:
    n = whole.stop - whole.start
    return slice(whole.start + worker * n // workers, whole.start + (worker + 1) * n // workers)
