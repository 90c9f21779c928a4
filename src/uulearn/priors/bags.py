"""Bags of known label proportions, merged into two sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.priors.mixture import Floats
from uulearn.risk.coefficients import EQUAL_PRIORS, check_target_prior


@dataclass(frozen=True)
class MergedBags:
    """How bags are put together."""

    assignment: NDArray[np.int64]
    """Set of each bag, 0 or 1; −1 for a bag that is left out. Shape (bags,)."""
    set_priors: tuple[float, float]
    sizes: tuple[int, int]
    standard_error: float
    """Largest standard error of the zero-one risk estimated from the two sets (`uulearn.risk.estimation_cost`)."""

    def sets(self, bags: Any) -> NDArray[np.int64]:
        """Set of each row from the bag of each row, shape (n,); keep the rows where it is not −1."""
        return np.asarray(self.assignment[np.asarray(bags)])


def merge_bags(proportions: Sequence[float], sizes: Sequence[int], *, target_prior: float = 0.5) -> MergedBags:
    """Merge bags with known shares of positives into two sets so that the risk is estimated with the least variance.

    The bags richest in positives go to set 0 and the poorest to set 1; a bag in the middle goes where it helps or, if
    its rows would cost more in distance between the priors than they bring in number, is left out. All pairs of cuts
    in the order of the proportions are tried with the bound of `uulearn.risk.estimation_cost`.

    Parameters
    ----------
    proportions : array of shape (bags,)
        Share of positives in each bag.
    sizes : array of shape (bags,)
        Rows of each bag.
    target_prior : float
        π, the share of positives where the classifier will be used.

    Examples
    --------
    >>> merged = merge_bags([0.2, 0.9, 0.5, 0.8], [100, 50, 100, 100])
    >>> merged.assignment, merged.sizes
    (array([ 1,  0, -1,  0]), (150, 100))
    >>> print("{:.3f} {:.3f}".format(*merged.set_priors))
    0.833 0.200
    """
    shares, rows = _check_bags(proportions, sizes)
    pi = check_target_prior(target_prior)
    order = np.argsort(-shares, kind="stable")
    total = np.concatenate([[0], np.cumsum(rows[order])])
    positives = np.concatenate([[0.0], np.cumsum((shares * rows)[order])])
    first, last = np.triu_indices(len(shares) - 1)  # set 0 takes the bags up to `first`, set 1 those after `last`
    n, n_prime = total[first + 1], total[-1] - total[last + 1]
    theta = positives[first + 1] / n
    theta_prime = (positives[-1] - positives[last + 1]) / n_prime
    errors = _standard_errors(theta, theta_prime, n, n_prime, pi)
    best = int(np.argmin(errors))
    assignment = np.full(len(shares), -1)
    assignment[order[: first[best] + 1]] = 0
    assignment[order[last[best] + 1 :]] = 1
    return MergedBags(
        assignment,
        (float(theta[best]), float(np.clip(theta_prime[best], 0, 1))),
        (int(n[best]), int(n_prime[best])),
        float(errors[best]),
    )


def _standard_errors(theta: Floats, theta_prime: Floats, n: Any, n_prime: Any, pi: float) -> Floats:
    """`uulearn.risk.estimation_cost` for many splits at once; infinite where the priors are equal."""
    gap = theta - theta_prime
    a_plus_b = (1 - theta_prime) * pi + theta_prime * (1 - pi)
    c_plus_d = (1 - theta) * pi + theta * (1 - pi)
    spread = 0.5 * np.sqrt(a_plus_b**2 / n + c_plus_d**2 / n_prime)
    return np.asarray(np.divide(spread, gap, out=np.full(len(gap), np.inf), where=gap > EQUAL_PRIORS))


def _check_bags(proportions: Sequence[float], sizes: Sequence[int]) -> tuple[Floats, NDArray[np.int64]]:
    shares, rows = np.asarray(proportions, dtype=float), np.asarray(sizes)
    if shares.ndim != 1 or shares.shape != rows.shape or len(shares) < 2:
        raise ValueError(
            f"pass one proportion and one size for each of at least two bags, got arrays of shape {shares.shape} and "
            f"{rows.shape}."
        )
    outside = ~((shares >= 0) & (shares <= 1))
    if outside.any():
        raise ValueError(f"proportions must lie in [0, 1], got {shares[outside][0]:g}; give fractions, 80% as 0.8.")
    if not (np.issubdtype(rows.dtype, np.integer) and (rows >= 1).all()):
        raise ValueError(f"sizes must be whole numbers of rows, at least 1 each, got {np.asarray(sizes).tolist()}.")
    if shares.max() - shares.min() < EQUAL_PRIORS:
        raise ValueError(
            f"all bags hold the same share of positives ({shares[0]:g}), which says nothing about the classes; add a "
            "bag with another share."
        )
    return shares, rows.astype(np.int64)
