"""Sets as the authors' earlier public code draws them, to see what that does to the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.datasets import UnlabeledSets


def shortened_sets(
    X: Any, y: Any, set_priors: Sequence[float], sizes: Sequence[int], *, random_state: int
) -> UnlabeledSets:
    """Sets that are short of rows where a class runs out, so that the priors are not those asked for.

    No row is twice in a set, and set 1 takes rows of set 0 once the others are used up. `make_sets` of
    `uulearn.datasets` never falls short.

    Examples
    --------
    >>> y = np.array([1] * 30 + [0] * 70)
    >>> drawn = shortened_sets(np.arange(100)[:, None], y, (0.8, 0.2), (50, 50), random_state=0)
    >>> drawn.sizes, drawn.realised_priors, drawn.overlap
    ((40, 50), (0.75, 0.2), 10)
    """
    drawn: list[list[NDArray[np.int64]]] = [[], []]
    rng = np.random.default_rng(random_state)
    wanted = [(round(n * prior), n - round(n * prior)) for n, prior in zip(sizes, set_priors, strict=True)]
    for place, members in enumerate((np.flatnonzero(y == 1), np.flatnonzero(y != 1))):
        order = rng.permutation(members)
        first = order[: wanted[0][place]]
        drawn[0].append(first)
        drawn[1].append(np.concatenate([order[len(first) :], first])[: wanted[1][place]])
    first, second = (rng.permutation(np.concatenate(parts)) for parts in drawn)
    positive = np.asarray(y) == 1
    return UnlabeledSets(
        X0=X[first],
        X1=X[second],
        indices=(first, second),
        realised_priors=(float(positive[first].mean()), float(positive[second].mean())),
        overlap=len(np.intersect1d(first, second)),
        repeats=(0, 0),
    )
