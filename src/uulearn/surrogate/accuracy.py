"""Estimate the accuracy of a classifier from two or more unlabeled sets.

Let s_j be the fraction of set j that is predicted positive. The expectation of s_j is θ_j·TPR + (1 − θ_j)·FPR, which is
linear in θ_j. The accuracy at class prior π is π·TPR + (1 − π)·(1 − FPR). The following estimate of the accuracy is
unbiased:

    (1 − π) + Σ_j w_j·s_j    with    Σ_j w_j·θ_j = π    and    Σ_j w_j·(1 − θ_j) = −(1 − π).

The weights are w_j = a_j − b_j, with the coefficients of `uulearn.risk.multi_set_coefficients`, so the estimate is one
minus the zero-one UU risk (Eq. 4). For more than two sets, the weights minimize Σ w_j²/(4·n_j), the largest variance
over all classifiers. This is equivalent to a weighted least-squares fit through the points (θ_j, s_j). Sets with equal
priors are pooled.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uulearn.risk.coefficients import estimation_cost, multi_set_coefficients
from uulearn.surrogate.inversion import Floats, Priors, read_priors


class AccuracyWeights(NamedTuple):
    """Weights of the estimate ``offset + weights @ fractions``, given the fraction of each set predicted positive."""

    offset: float
    weights: Floats  # w, shape (m,)
    standard_error: float  # largest possible standard error of the estimate, √(Σ w_j²/(4·n_j))


def accuracy_weights(set_priors: Priors, set_sizes: ArrayLike, target_prior: float) -> AccuracyWeights:
    """Return the weights of the unbiased estimate of the accuracy with the smallest worst-case variance.

    ``set_priors`` contains the class priors θ_j of m sets, and ``set_sizes`` contains their sizes n_j.

    >>> accuracy_weights((0.75, 0.25), (100, 100), 0.5)
    AccuracyWeights(offset=0.5, weights=array([ 1., -1.]), standard_error=0.0707...)
    """
    theta, sizes = read_priors(set_priors).tolist(), np.asarray(set_sizes).tolist()
    found = multi_set_coefficients(theta, sizes, target_prior)
    error = estimation_cost(theta, target_prior, sizes).standard_error
    return AccuracyWeights(1 - target_prior, np.subtract(*found), error)


def estimate_accuracy(scores: ArrayLike, sets: NDArray[np.int64], set_priors: Priors, target_prior: float) -> float:
    """Estimate the accuracy at class prior π of predictions given by the sign of the scores.

    Positive scores predict the positive class, and a score of 0 counts as half of each class. Every set must contain at
    least one row.

    >>> sets = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> estimate_accuracy([1, 1, 1, -1, 1, -1, -1, -1], sets, (0.75, 0.25), 0.5)
    1.0
    """
    theta = read_priors(set_priors)
    sizes = np.bincount(sets, minlength=len(theta))
    predicted = (1 + np.sign(np.asarray(scores, dtype=np.float64))) / 2
    fractions = np.bincount(sets, weights=predicted, minlength=len(theta)) / sizes
    offset, weights, _ = accuracy_weights(theta, sizes, target_prior)
    return float(offset + weights @ fractions)
