"""Split two sets into training and held-out rows, and draw sets as in the authors' earlier public code."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.datasets import UnlabeledSets

Indices = NDArray[np.int64]
MIN_SPARE, SPARE_DEVIATIONS = 0.01, 5.0
"""Margin for equal sizes in all runs: the minimum fraction of a set, and the number of standard deviations."""


def hold_out(indices: tuple[Indices, Indices], share: float, seed: int) -> tuple[tuple[Indices, Indices], ...]:
    """Split two sets into training rows and held-out rows, with no row in both parts.

    If a row occurs more than once in the sets, all its copies are in the same part. Rows are chosen at random. A few
    rows are dropped so that the sizes do not depend on the seed: a fraction ``share`` of each set is held out, and a
    fraction of 1 − share − 0.02 of a large set is used for training.

    >>> training, held_out = hold_out((np.arange(30_000), np.arange(20_000, 50_000)), 0.09, seed=0)
    >>> [len(part) for part in (*training, *held_out)]
    [26700, 26700, 2700, 2700]
    """
    rng = np.random.default_rng([seed, 1])
    distinct = np.unique(np.concatenate(indices))
    spare = max(MIN_SPARE, SPARE_DEVIATIONS * math.sqrt(share * (1 - share) / min(map(len, indices))))
    chosen = rng.permutation(distinct)[: round((share + spare) * len(distinct))]
    sides: list[tuple[Indices, Indices]] = []
    for side, portion in ((False, 1 - share - 2 * spare), (True, share)):
        parts = []
        for index in indices:
            rows = index[np.isin(index, chosen) == side]
            wanted = round(portion * len(index))
            if len(rows) < wanted:
                raise ValueError(f"cannot hold out a fraction of {share:g} of {len(index):,} rows; use more rows.")
            parts.append(rows[np.sort(rng.permutation(len(rows))[:wanted])])
        sides.append((parts[0], parts[1]))
    return sides[0], sides[1]


def shortened_sets(
    X: Any, y: Any, set_priors: Sequence[float], sizes: Sequence[int], *, random_state: int
) -> UnlabeledSets:
    """Draw two sets; if a class has too few rows, sets are smaller and their priors differ from ``set_priors``.

    No row occurs twice in a set. Set 1 reuses rows of set 0 only if no unused rows are left.
    """
    drawn: list[list[Indices]] = [[], []]
    rng = np.random.default_rng(random_state)
    wanted = [(round(n * prior), n - round(n * prior)) for n, prior in zip(sizes, set_priors, strict=True)]
    for place, rows in enumerate((np.flatnonzero(y == 1), np.flatnonzero(y != 1))):
        order = rng.permutation(rows)
        first = order[: wanted[0][place]]
        drawn[0].append(first)
        drawn[1].append(np.concatenate([order[len(first) :], first])[: wanted[1][place]])
    first, second = (rng.permutation(np.concatenate(parts)) for parts in drawn)
    positive = np.asarray(y) == 1
    priors = float(positive[first].mean()), float(positive[second].mean())
    overlap = len(np.intersect1d(first, second))
    return UnlabeledSets(X[first], X[second], (first, second), priors, overlap, repeats=(0, 0))
