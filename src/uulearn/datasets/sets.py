"""Two unlabeled sets from labelled data, for experiments and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing, check_random_state

from uulearn.risk.coefficients import check_set_priors

SCHEMES = ("without_replacement", "independent")

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class UnlabeledSets:
    """Two unlabeled sets and what is known about them because they were made.

    Unpacks as ``X0, X1 = make_sets(…)``. ``realised_priors`` are the shares of positives actually drawn: hand them
    to the classifier where exact priors are meant, as in the paper's experiments.
    """

    X0: Any
    X1: Any
    indices: tuple[Indices, Indices]
    """Which rows of the labelled data form each set."""
    realised_priors: tuple[float, float]
    overlap: int
    """Number of distinct rows of the labelled data that are in both sets."""
    repeats: tuple[int, int]
    """Number of rows in each set that are there already."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of rows of each set."""
        return len(self.indices[0]), len(self.indices[1])

    @property
    def sets(self) -> NDArray[np.int64]:
        """Set memberships, for `UUClassifier.fit` on the rows of X0 followed by those of X1."""
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
    """Draw two unlabeled sets with the given shares of positives from labelled rows.

    Parameters
    ----------
    X : array, DataFrame, sparse matrix or tensor
        Rows.
    y : array of shape (n,)
        Labels: 1 for positive; 0 or −1 for negative.
    set_priors : (θ, θ′)
        Share of positives in set 0 and in set 1.
    sizes : (n, n′)
        Number of rows of each set.
    scheme : str
        ``"without_replacement"``, as in the paper's experiments: exactly round(n·θ) positives; set 1 takes what set 0
        left. Rows are used again only where a class runs out: first rows of set 0 in set 1 and, only where a class has
        fewer rows than one set needs (Kuzushiji-MNIST has 18,000 positives, 30,000 rows at θ = 0.8 need 24,000), rows
        twice in a set.
        ``"independent"``, as in the theory: every row of a set is an independent draw from the mixture, with
        replacement, so the realised share of positives varies around θ.
    allow_reuse : bool
        Whether ``"without_replacement"`` may use rows again where a class runs out; an error otherwise.
    random_state : int, RandomState or None
        Seeds the draw.

    Examples
    --------
    >>> y = np.array([1] * 60 + [0] * 60)
    >>> drawn = make_sets(np.arange(120)[:, None], y, (0.8, 0.2), (50, 50), random_state=0)
    >>> drawn.realised_priors, drawn.overlap
    ((0.8, 0.2), 0)
    >>> make_sets(np.arange(120)[:, None], y, (0.8, 0.2), (70, 70), random_state=0).overlap
    20
    """
    theta, theta_prime = check_set_priors(set_priors)
    positives, negatives = _class_members(X, y)
    n, n_prime = _check_sizes(sizes)
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
            _share_out(members, counts, name, allow_reuse, rng)
            for members, counts, name in zip((positives, negatives), wanted, ("positive", "negative"), strict=True)
        ]
        first, second = (rng.permutation(np.concatenate([drawn[0][k], drawn[1][k]])) for k in (0, 1))
    is_positive = np.zeros(_n_rows(X), dtype=bool)
    is_positive[positives] = True
    return UnlabeledSets(
        X0=_take(X, first),
        X1=_take(X, second),
        indices=(first, second),
        realised_priors=(float(is_positive[first].mean()), float(is_positive[second].mean())),
        overlap=len(np.intersect1d(first, second)),
        repeats=(len(first) - len(np.unique(first)), len(second) - len(np.unique(second))),
    )


def _share_out(
    members: Indices, counts: tuple[int, int], name: str, allow_reuse: bool, rng: np.random.RandomState
) -> tuple[Indices, Indices]:
    """Deal out the rows of a class to set 0 and then to set 1, always those that were used least so far."""
    available = len(members)
    if sum(counts) > available and not allow_reuse:
        raise ValueError(
            f"the two sets need {counts[0]:,} + {counts[1]:,} {name} rows but the data have {available:,}, and "
            "allow_reuse=False forbids using a row again; ask for smaller sets, other shares of positives, or allow it."
        )
    used = np.zeros(available, dtype=np.int64)
    dealt = []
    for count in counts:
        rounds, rest = divmod(count, available)
        order = rng.permutation(available)
        chosen = order[np.argsort(used[order], kind="stable")][:rest]
        dealt.append(np.concatenate([np.repeat(members, rounds), members[chosen]]))
        used[chosen] += 1
    return dealt[0], dealt[1]


def _independent(
    positives: Indices, negatives: Indices, size: int, prior: float, rng: np.random.RandomState
) -> Indices:
    from_positives = rng.random_sample(size) < prior
    return np.where(from_positives, rng.choice(positives, size), rng.choice(negatives, size))


def _class_members(X: Any, y: Any) -> tuple[Indices, Indices]:
    labels = np.asarray(y.cpu() if isinstance(y, torch.Tensor) else y).reshape(-1)
    if len(labels) != _n_rows(X):
        raise ValueError(f"y must have one label per row, got {len(labels):,} labels for {_n_rows(X):,} rows.")
    found = set(np.unique(labels).tolist())
    if not (found == {0, 1} or found == {-1, 1}):
        raise ValueError(
            f"y must hold both classes, 1 for positive and 0 (or -1) for negative, got the values "
            f"{sorted(found, key=str)[:5]}; turn classes into two first, for example y = (digit % 2 == 0)."
        )
    return np.flatnonzero(labels == 1), np.flatnonzero(labels != 1)


def _check_sizes(sizes: Sequence[int]) -> tuple[int, int]:
    values = list(sizes) if isinstance(sizes, Sequence | np.ndarray) else [sizes]
    if len(values) != 2 or not all(isinstance(v, int | np.integer) and v >= 1 for v in values):
        raise ValueError(f"sizes must be two whole numbers of rows, at least 1 each, got {sizes!r}.")
    return int(values[0]), int(values[1])


def _n_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _take(X: Any, index: Indices) -> Any:
    return X[torch.from_numpy(index)] if isinstance(X, torch.Tensor) else _safe_indexing(X, index)
