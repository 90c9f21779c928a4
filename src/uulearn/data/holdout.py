"""Hold out rows of both sets for evaluation; all copies of a row, in either set, are on the same side of the split."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn import defaults
from uulearn.data.groups import set_name
from uulearn.data.rows import Rows, SparseRows, TwoSets

DIGEST_CHUNK_BYTES = 16 * 2**20
"""Number of bytes of float32 rows that are hashed at a time."""
MIXER = -7046029254386353131
"""2⁶⁴ divided by the golden ratio, as an odd signed integer; multiplication by it spreads a word over all 64 bits."""

Positions = NDArray[np.int64]


def hold_out(data: TwoSets, fraction: float, seed: int) -> tuple[TwoSets, TwoSets]:
    """Split two sets into training rows and held-out rows; the held-out fraction is exact if all rows are unique.

    >>> from uulearn.data import DenseRows
    >>> rows = DenseRows(torch.arange(300.0)[:, None])
    >>> data = TwoSets.from_membership(rows, (torch.arange(300) >= 100).long())
    >>> training, held_out = hold_out(data, 0.1, seed=0)
    >>> training.sizes, held_out.sizes
    ((90, 180), (10, 20))
    """
    digests, parts = row_digests(data), strata(data)
    groups = [which for which, _ in parts]
    chosen = choose_held_out([digests[which][own] for which, own in parts], fraction, seed, groups)
    positions = [(which, own[out]) for (which, own), out in zip(parts, chosen, strict=True)]
    held_out = [np.sort(np.concatenate([own for of, own in positions if of == which])) for which in (0, 1)]
    training = [np.setdiff1d(np.arange(size), out) for size, out in zip(data.sizes, held_out, strict=True)]
    for which, (inside, out) in enumerate(zip(training, held_out, strict=True)):
        check_held_out(set_name(data, which), fraction, data.sizes[which], len(inside), len(out))
    return data.pick(*training), data.pick(*held_out)


def strata(data: TwoSets) -> list[tuple[int, Positions]]:
    """Return the positions of the rows of each set; a group of sets has one entry per set: (group, positions)."""
    if data.origins is None:
        return [(which, np.arange(size)) for which, size in enumerate(data.sizes)]
    numbers = [own.cpu().numpy() for own in data.origins]
    return [(which, np.flatnonzero(own == number)) for which, own in enumerate(numbers) for number in np.unique(own)]


def check_held_out(name: str, fraction: float, size: int, n_training: int, n_held_out: int) -> None:
    """Raise an error if the split leaves a set without training rows or without held-out rows."""
    if not n_training or not n_held_out:
        raise ValueError(
            f"a fraction of {fraction:g} cannot be held out of the {size:,} rows of {name}: {n_training} rows "
            f"would be left for training and {n_held_out} held out; use more rows or another fraction."
        )


def has_few_unique_rows(data: TwoSets) -> bool:
    """Return whether a set has so few unique rows that a fold could be empty (copies of a row share a fold)."""
    digests = row_digests(data)
    _, number, counts = np.unique(np.concatenate(digests), return_inverse=True, return_counts=True)
    return any(
        np.count_nonzero(counts[own] == 1) < defaults.N_ESTIMATORS and len(np.unique(own)) < defaults.MIN_UNIQUE_ROWS
        for own in np.split(number, [len(digests[0])])
    )


def choose_held_out(
    digests: Sequence[Positions], fraction: float, seed: int, groups: Sequence[int] | None = None
) -> list[Positions]:
    """Return the positions of held-out rows: some of the rows with copies, and unique rows to reach the fraction.

    ``groups`` contains the group of each set; without groups, each set is a group. The fraction is rounded for the rows
    of each group, so that rows of small sets are held out as well.

    >>> held_out = choose_held_out([np.arange(4 * which, 4 * which + 4) for which in range(5)], 0.1, 0, groups=[0] * 5)
    >>> [len(own) for own in held_out]
    [0, 1, 0, 1, 0]
    """
    rng = np.random.default_rng([seed, 1])
    _, number, counts = np.unique(np.concatenate(digests), return_inverse=True, return_counts=True)
    copied = rng.permutation(np.flatnonzero(counts > 1))
    drawn = np.zeros(len(counts), dtype=bool)
    drawn[copied[: round(fraction * len(copied))]] = True
    held_out = []
    parts = np.split(number, np.cumsum([len(own) for own in digests])[:-1])
    totals: dict[int, int] = {}  # number of rows of each group, over the sets so far
    for group, numbers in zip(range(len(parts)) if groups is None else groups, parts, strict=True):
        before = totals.get(group, 0)
        totals[group] = before + len(numbers)
        wanted = round(fraction * totals[group]) - round(fraction * before)
        with_copies = np.flatnonzero(drawn[numbers])
        unique = rng.permutation(np.flatnonzero(counts[numbers] == 1))
        missing = max(0, wanted - len(with_copies))
        held_out.append(np.sort(np.concatenate([with_copies, unique[:missing]])))
    return held_out


def row_digests(data: TwoSets) -> tuple[Positions, Positions]:
    """Return a hash of every row of each set; equal rows have equal hashes."""
    first, second = data.rows
    tables = digests_of(first), digests_of(second) if second is not first else None
    found = [tables[0] if table is None else table for table in tables]
    picked = [d if i is None else d[i.cpu().numpy()] for d, i in zip(found, data.index, strict=True)]
    return picked[0], picked[1]


def digests_of(rows: Rows) -> Positions:
    """Return a hash of every row of a table, computed from the values of the row in float32."""
    if isinstance(rows, SparseRows):
        return _sparse_digests(rows)
    n_values = torch.Size(rows.row_shape).numel()
    step, weights = max(1, DIGEST_CHUNK_BYTES // max(1, 4 * n_values)), _weights(n_values).to(rows.device)
    parts = []
    for start in range(0, rows.n_rows, step):
        values = rows.slice(start, min(start + step, rows.n_rows)).float().flatten(1)
        words = (values + 0.0).contiguous().view(torch.int32).long()  # + 0 turns −0 into 0
        parts.append((_mixed(words) * weights).sum(1).cpu())
    return torch.cat(parts).numpy()


def _sparse_digests(rows: SparseRows) -> Positions:
    matrix = rows.matrix
    values = torch.from_numpy(np.asarray(matrix.data, dtype=np.float32) + 0.0)
    mixed = _mixed(values.view(torch.int32).long()) * _weights(matrix.shape[1])[torch.from_numpy(matrix.indices).long()]
    mixed[values == 0] = 0  # equivalent to a value that is not stored
    total = torch.cat([torch.zeros(1, dtype=torch.int64), mixed.cumsum(0)])
    ends = torch.from_numpy(matrix.indptr).long()
    return (total[ends[1:]] - total[ends[:-1]]).numpy()


def _mixed(words: Tensor) -> Tensor:
    """Spread each word over 64 bits; zero stays zero, and integer overflow is intended."""
    words = words * MIXER
    return words ^ (words >> 29)


def _weights(columns: int) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (columns,), generator=torch.Generator().manual_seed(0)) | 1
