"""Split the sets into folds: each set is split evenly, and all copies of a row are in the same fold."""

from collections.abc import Sequence

import numpy as np

from uulearn.data.groups import set_name
from uulearn.data.holdout import Positions, row_digests, strata
from uulearn.data.rows import TwoSets


def assign_folds(data: TwoSets, n_folds: int, seed: int) -> tuple[Positions, Positions]:
    """Return the fold (0 to n_folds − 1) of every row of set 0 and of set 1."""
    check_fold_sizes(data.sizes, n_folds)
    digests, parts = row_digests(data), strata(data)
    first, second = (np.empty(size, dtype=np.int64) for size in data.sizes)
    groups = [which for which, _ in parts]
    found = assign_balanced([digests[which][own] for which, own in parts], n_folds, seed, groups)
    for (which, own), folds in zip(parts, found, strict=True):
        (first, second)[which][own] = folds
    for which, folds in enumerate((first, second)):
        if len(np.unique(folds)) < n_folds:
            raise ValueError(
                f"{set_name(data, which)} cannot be split into {n_folds} folds because too many of its rows are copies "
                "of one another; use fewer folds."
            )
    return first, second


def split_fold(data: TwoSets, folds: tuple[Positions, Positions], fold: int) -> tuple[TwoSets, TwoSets]:
    """Return the rows outside a fold, which are used for training, and the rows in the fold."""
    outside, inside = ([np.flatnonzero((part == fold) == side) for part in folds] for side in (False, True))
    return data.pick(*outside), data.pick(*inside)


def check_fold_sizes(sizes: tuple[int, int], n_folds: int) -> None:
    """Raise an error if the smaller set has fewer rows than there are folds."""
    if n_folds < 2 or min(sizes) < n_folds:
        raise ValueError(
            f"{n_folds} folds need at least {max(2, n_folds)} rows of each set, but one set has {min(sizes)}; use "
            "fewer folds or more rows."
        )


def assign_balanced(
    digests: Sequence[Positions], n_folds: int, seed: int, groups: Sequence[int] | None = None
) -> list[Positions]:
    """Return the fold of every row of each set. Copies of a row share a fold; unique rows balance the fold sizes.

    The sizes are balanced within each set and, as far as possible, within each group of sets; ``groups`` contains the
    group of each set. Without groups, each set is a group.

    >>> folds = assign_balanced([np.arange(3 * which, 3 * which + 3) for which in range(4)], 4, 0, groups=[0] * 4)
    >>> np.bincount(np.concatenate(folds)).tolist()
    [3, 3, 3, 3]
    """
    rng = np.random.default_rng([seed, 2])
    _, number, counts = np.unique(np.concatenate(digests), return_inverse=True, return_counts=True)
    fold_of = np.full(len(counts), -1)
    copied = rng.permutation(np.flatnonzero(counts > 1))
    fold_of[copied] = np.arange(len(copied)) % n_folds
    folds = []
    parts = np.split(number, np.cumsum([len(own) for own in digests])[:-1])
    totals: dict[int, Positions] = {}  # fold sizes of each group, over the sets so far
    for group, numbers in zip(range(len(parts)) if groups is None else groups, parts, strict=True):
        total = totals.setdefault(group, np.zeros(n_folds, dtype=np.int64))
        assigned = fold_of[numbers]
        unique = rng.permutation(np.flatnonzero(assigned < 0))
        filled = np.bincount(assigned[assigned >= 0], minlength=n_folds)
        assigned[unique] = _fill_evenly(filled, len(unique), total)
        total += np.bincount(assigned, minlength=n_folds)
        folds.append(assigned.astype(np.int64))
    return folds


def _fill_evenly(filled: Positions, n: int, total: Positions) -> Positions:
    """Assign n more rows so that the fold sizes are as equal as possible; ``filled`` contains the current sizes.

    The remaining rows, fewer than one per fold, go to the folds with the smallest ``total``.
    """
    level = np.sort(filled)
    sums = level.cumsum()
    # The k smallest folds are filled to the same size; k is the largest number for which n rows are enough.
    k = int(np.flatnonzero(level * np.arange(1, len(level) + 1) - sums <= n)[-1]) + 1
    height, spare = divmod(n + int(sums[k - 1]), k)
    order = np.argsort(filled, kind="stable")[:k]
    wanted = np.full(k, height)
    wanted[np.argsort(total[order], kind="stable")[:spare]] += 1
    return np.repeat(order, wanted - filled[order])
