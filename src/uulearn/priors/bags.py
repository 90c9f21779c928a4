"""Merge bags with known label proportions into two sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.defaults import TARGET_PRIOR
from uulearn.metrics.estimates import Floats
from uulearn.risk.coefficients import EQUAL_PRIORS, check_target_prior


@dataclass(frozen=True)
class MergedBags:
    """Assignment of bags to two sets.

    >>> merge_bags([0.2, 0.9], [100, 50]).sets(bags=[0, 0, 1])
    array([1, 1, 0])
    """

    assignment: NDArray[np.int64]  # set of each bag, 0 or 1; −1 for a bag that is not used. Shape (bags,).
    set_priors: tuple[float, float]
    sizes: tuple[int, int]
    standard_error: float  # largest possible standard error of the zero-one risk, see `uulearn.risk.estimation_cost`

    def sets(self, bags: Any) -> NDArray[np.int64]:
        """Map the bag index of each row to the index of its set, 0 or 1; −1 marks rows to drop."""
        return np.asarray(self.assignment[np.asarray(bags)])


def merge_bags(
    proportions: Sequence[float], sizes: Sequence[int], *, target_prior: float = TARGET_PRIOR, drop: bool = True
) -> MergedBags:
    """Merge bags with known label proportions into two sets with the smallest standard error of the risk estimate.

    Set 0 contains the bags with high proportions, and set 1 contains the bags with low proportions. Bags with
    intermediate proportions are excluded if they would increase the standard error; with ``drop=False``, all bags are
    used. `uulearn.UUClassifier` trains on all bags without merging them if you pass the proportions as ``set_priors``.

    ``proportions`` contains the fraction of positives in each bag, and ``sizes`` contains the number of rows.

    >>> merged = merge_bags([0.2, 0.9, 0.5, 0.8], [100, 50, 100, 100])
    >>> merged.assignment, merged.sizes
    (array([ 1,  0, -1,  0]), (150, 100))
    """
    fractions, rows = _check_bags(proportions, sizes)
    pi = check_target_prior(target_prior)
    order = np.argsort(-fractions, kind="stable")
    total = np.concatenate([[0], np.cumsum(rows[order])])
    positives = np.concatenate([[0.0], np.cumsum((fractions * rows)[order])])
    first, last = np.triu_indices(len(fractions) - 1)  # set 0: bags up to `first`; set 1: bags after `last`
    if not drop:
        first = last = np.arange(len(fractions) - 1)
    n, n_prime = total[first + 1], total[-1] - total[last + 1]
    theta = positives[first + 1] / n
    theta_prime = (positives[-1] - positives[last + 1]) / n_prime
    errors = _standard_errors(theta, theta_prime, n, n_prime, pi)
    best = int(np.argmin(errors))
    assignment = np.full(len(fractions), -1)
    assignment[order[: first[best] + 1]] = 0
    assignment[order[last[best] + 1 :]] = 1
    return MergedBags(
        assignment,
        (float(np.clip(theta[best], 0, 1)), float(np.clip(theta_prime[best], 0, 1))),
        (int(n[best]), int(n_prime[best])),
        float(errors[best]),
    )


def _standard_errors(theta: Floats, theta_prime: Floats, n: Any, n_prime: Any, pi: float) -> Floats:
    """Return the standard error of each split (see `uulearn.risk.estimation_cost`), or infinity for equal priors."""
    gap = theta - theta_prime
    a_plus_b = (1 - theta_prime) * pi + theta_prime * (1 - pi)
    c_plus_d = (1 - theta) * pi + theta * (1 - pi)
    error = 0.5 * np.sqrt(a_plus_b**2 / n + c_plus_d**2 / n_prime)
    return np.asarray(np.divide(error, gap, out=np.full(len(gap), np.inf), where=gap > EQUAL_PRIORS))


def _check_bags(proportions: Sequence[float], sizes: Sequence[int]) -> tuple[Floats, NDArray[np.int64]]:
    fractions, rows = np.asarray(proportions, dtype=float), np.asarray(sizes)
    if fractions.ndim != 1 or fractions.shape != rows.shape or len(fractions) < 2:
        raise ValueError(f"expected at least two bags, got arrays of shape {fractions.shape} and {rows.shape}.")
    outside = ~((fractions >= 0) & (fractions <= 1))
    if outside.any():
        raise ValueError(f"proportions must lie in [0, 1], got {fractions[outside][0]:g}; write 80% as 0.8.")
    if not (np.issubdtype(rows.dtype, np.integer) and (rows >= 1).all()):
        raise ValueError(f"sizes must be positive integers, got {np.asarray(sizes).tolist()}.")
    if fractions.max() - fractions.min() < EQUAL_PRIORS:
        raise ValueError(f"all bags have the same class prior ({fractions[0]:g}); add a bag with a different one.")
    return fractions, rows.astype(np.int64)
