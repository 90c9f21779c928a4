"""The accuracy of a classifier from two or more unlabeled sets.

Among the rows of set j the classifier calls a share s_j positive, with expectation θ_j·TPR + (1 − θ_j)·FPR: a
straight line in θ, from the false-positive rate at θ = 0 to the true-positive rate at θ = 1. The accuracy at class
prior π is π·TPR + (1 − π)·(1 − FPR), so that

    (1 − π) + Σ_j w_j·s_j    with    Σ_j w_j·θ_j = π    and    Σ_j w_j·(1 − θ_j) = −(1 − π)

estimates it without bias, whatever the two rates are. Two sets leave no choice of w: this is one minus the zero-one
UU risk (Eq. 4). More sets do. The variance is Σ w_j²·σ_j²/n_j with σ_j² = E s_j·(1 − E s_j) ≤ ¼, and the w that make it
smallest for equal σ_j,

    w_j = n_j·(2π − 1)/n + n_j·(θ_j − π̄)·(π − (2π − 1)·π̄)/Σ_k n_k·(θ_k − π̄)²,    π̄ = Σ n_k·θ_k/n,

are those of the least-squares line through the points (θ_j, s_j) with weights n_j (Gauss–Markov). They depend on no
row, which keeps the estimate exactly unbiased, and their largest variance over all classifiers, that of a coin, is the
smallest possible. Sets with equal priors are pooled by them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from uulearn.risk import uu_risk
from uulearn.risk.coefficients import check_target_prior
from uulearn.surrogate.inversion import Floats, Priors, check_priors, check_shares


class AccuracyWeights(NamedTuple):
    """What makes an accuracy of the shares of rows called positive: ``offset + weights @ shares``."""

    offset: float
    weights: Floats
    """w, shape (m,)."""
    standard_error: float
    """Largest standard error that the estimate can have, √(Σ w_j²/(4·n_j)): that of a coin."""


def accuracy_weights(set_priors: Priors, set_sizes: ArrayLike, target_prior: float) -> AccuracyWeights:
    """Weights of the unbiased estimate of the accuracy whose largest variance is the smallest.

    Parameters
    ----------
    set_priors : sequence of m numbers
        θ_j, the share of positives in each set.
    set_sizes : array of shape (m,)
        n_j, the number of rows of each set.
    target_prior : float
        π.

    Examples
    --------
    >>> accuracy_weights((0.75, 0.25), (100, 100), 0.5)
    AccuracyWeights(offset=0.5, weights=array([ 1., -1.]), standard_error=0.0707...)
    >>> accuracy_weights((0.75, 0.75, 0.25), (50, 50, 100), 0.5).weights  # equal priors are pooled
    array([ 0.5,  0.5, -1. ])
    """
    theta = check_priors(set_priors)
    rho = check_shares(set_sizes, len(theta))
    pi = check_target_prior(target_prior)
    centred = theta - rho @ theta
    level, tilt = 2 * pi - 1, pi - (2 * pi - 1) * (rho @ theta)
    weights = rho * (level + tilt * centred / (rho @ centred**2))
    sizes = np.asarray(set_sizes, dtype=np.float64)
    return AccuracyWeights(1 - pi, weights, float(0.5 * np.sqrt((weights**2 / sizes).sum())))


def estimate_accuracy(scores: ArrayLike, sets: NDArray[np.int64], set_priors: Priors, target_prior: float) -> float:
    """Accuracy at class prior π of the classes that the scores' signs give, from rows of every set.

    Parameters
    ----------
    scores : array of shape (n,)
        Above 0 for rows called positive, below for negative; 0 counts half as each.
    sets : array of shape (n,)
        The set that each row came from, 0 … m − 1; every set has a row.
    set_priors, target_prior
        θ and π.

    Examples
    --------
    >>> sets = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> estimate_accuracy([1, 1, 1, -1, 1, -1, -1, -1], sets, (0.75, 0.25), 0.5)
    1.0
    """
    theta = check_priors(set_priors)
    g = np.asarray(scores, dtype=np.float64)
    if len(theta) == 2:
        both = torch.from_numpy(g), torch.from_numpy(sets)
        risk = uu_risk(*both, theta.tolist(), target_prior, loss="zero_one", method="unbiased")
        return 1 - risk.unbiased.item()
    sizes = np.bincount(sets, minlength=len(theta))
    shares = np.bincount(sets, weights=(1 + np.sign(g)) / 2, minlength=len(theta)) / sizes
    offset, weights, _ = accuracy_weights(theta, sizes, target_prior)
    return float(offset + weights @ shares)
