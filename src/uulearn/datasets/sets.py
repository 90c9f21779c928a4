"""Draw two unlabeled sets from labeled data, for experiments and tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_random_state

from uulearn.risk.coefficients import check_set_priors, check_sizes

SCHEMES = ("without_replacement", "independent")

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class UnlabeledSets:
    """Two unlabeled sets, and information about how they were drawn.

    You can unpack the result as ``X0, X1 = make_sets(…)``. ``realized_priors`` contains the exact fraction of positives
    in each drawn set.

    >>> drawn = make_sets(np.eye(8), [1] * 4 + [0] * 4, (0.75, 0.25), (4, 4), random_state=0)
    >>> drawn.realized_priors, drawn.sets
    ((0.75, 0.25), array([0, 0, 0, 0, 1, 1, 1, 1]))
    """

    X0: Any
    X1: Any
    indices: tuple[Indices, Indices]  # row numbers in the labeled data, for each set
    realized_priors: tuple[float, float]
    overlap: int  # number of distinct labeled rows that are in both sets
    repeats: tuple[int, int]  # number of repeated rows in each set

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of rows in each set."""
        return len(self.indices[0]), len(self.indices[1])

    @property
    def sets(self) -> NDArray[np.int64]:
        """Set labels (0 or 1) for the rows of X0 followed by the rows of X1, for `UUClassifier.fit`."""
        return np.repeat(np.array([0, 1]), self.sizes)

    def __iter__(self) -> Any:
        return iter((self.X0, self.X1))


def make_sets(
    X: Any,
    y: Any,
    set_priors: Sequence[float],
    sizes: Sequence[int],
    *,
    scheme: str = "without_replacement",
    allow_reuse: bool = True,
    random_state: int | np.random.RandomState | None = None,
) -> UnlabeledSets:
    """Draw two unlabeled sets with the given class priors from labeled rows.

    Parameters
    ----------
    X : array, DataFrame, sparse matrix or tensor
    y : array of shape (n,)
        Labels: 1 for positive rows, and 0 or −1 for negative rows.
    set_priors : (θ, θ′)
        Class priors of set 0 and of set 1.
    sizes : (n, n′)
        Number of rows in each set.
    scheme : str
        ``"without_replacement"`` (the paper's experiments) draws exactly round(n·θ) positives for set 0. Set 1 is drawn
        from the remaining rows. If a class has too few rows, set 1 reuses rows of set 0; if necessary, rows are also
        repeated within a set. ``"independent"`` (the paper's theory) draws every row independently from the mixture,
        with replacement, so the realized prior varies around θ.
    allow_reuse : bool
        Whether ``"without_replacement"`` may reuse rows; if False, an error is raised if a class has too few rows.
    random_state : int, RandomState or None
        Seed or random number generator for drawing the sets.

    Examples
    --------
    >>> y = np.array([1] * 60 + [0] * 60)
    >>> drawn = make_sets(np.arange(120)[:, None], y, (0.8, 0.2), (50, 50), random_state=0)
    >>> drawn.realized_priors, drawn.overlap
    ((0.8, 0.2), 0)
    """
    theta, theta_prime = check_set_priors(set_priors)
    positives, negatives = _class_rows(X, y)
    n, n_prime = check_sizes(sizes)
    if scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}, got {scheme!r}.")
    rng = check_random_state(random_state)
    if scheme == "independent":
        first = _independent(positives, negatives, n, theta, rng)
        second = _independent(positives, negatives, n_prime, theta_prime, rng)
    else:
        wanted = [(round(n * theta), round(n_prime * theta_prime))]
        wanted.append((n - wanted[0][0], n_prime - wanted[0][1]))
        drawn = [
            _draw_class(rows, counts, name, allow_reuse, rng)
            for rows, counts, name in zip((positives, negatives), wanted, ("positive", "negative"), strict=True)
        ]
        first, second = (rng.permutation(np.concatenate([drawn[0][k], drawn[1][k]])) for k in (0, 1))
    is_positive = np.zeros(_n_rows(X), dtype=bool)
    is_positive[positives] = True
    return UnlabeledSets(
        X0=_take(X, first),
        X1=_take(X, second),
        indices=(first, second),
        realized_priors=(float(is_positive[first].mean()), float(is_positive[second].mean())),
        overlap=len(np.intersect1d(first, second)),
        repeats=(len(first) - len(np.unique(first)), len(second) - len(np.unique(second))),
    )


def _draw_class(
    rows: Indices, counts: tuple[int, int], name: str, allow_reuse: bool, rng: np.random.RandomState
) -> tuple[Indices, Indices]:
    """Draw the rows of a class for set 0 and then for set 1; the least-used rows are drawn first."""
    available = len(rows)
    if sum(counts) > available and not allow_reuse:
        raise ValueError(
            f"the two sets need {counts[0]:,} + {counts[1]:,} {name} rows, but the data have only {available:,}, and "
            "allow_reuse is False; request smaller sets or other class priors, or pass allow_reuse=True."
        )
    used = np.zeros(available, dtype=np.int64)
    drawn = []
    for count in counts:
        repeats, rest = divmod(count, available)
        order = rng.permutation(available)
        chosen = order[np.argsort(used[order], kind="stable")][:rest]
        drawn.append(np.concatenate([np.repeat(rows, repeats), rows[chosen]]))
        used[chosen] += 1
    return drawn[0], drawn[1]


def _independent(
    positives: Indices, negatives: Indices, size: int, prior: float, rng: np.random.RandomState
) -> Indices:
    from_positives = rng.random_sample(size) < prior
    return np.where(from_positives, rng.choice(positives, size), rng.choice(negatives, size))


def _class_rows(X: Any, y: Any) -> tuple[Indices, Indices]:
    labels = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y).reshape(-1)
    if len(labels) != _n_rows(X):
        raise ValueError(f"y must have one label per row, got {len(labels):,} labels for {_n_rows(X):,} rows.")
    found = set(np.unique(labels).tolist())
    if not (found == {0, 1} or found == {-1, 1}):
        raise ValueError(
            f"y must contain both classes, 1 for positive and 0 (or -1) for negative, got the values "
            f"{sorted(found, key=str)[:5]}; convert to two classes first, for example y = (digit % 2 == 0)."
        )
    return np.flatnonzero(labels == 1), np.flatnonzero(labels != 1)


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _take(X: Any, index: Indices) -> Any:
    return X[torch.from_numpy(index)] if isinstance(X, torch.Tensor) else _safe_indexing(X, index)
