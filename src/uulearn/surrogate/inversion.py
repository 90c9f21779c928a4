"""Pure functions that convert between set probabilities and the probability of the positive class.

Set j = 0 … m − 1 is the mixture θ_j·P + (1 − θ_j)·N of the two classes and contains a fraction ρ_j of the rows. At
class prior π, Bayes' rule with η(x) = P(y = 1 | x) gives

    P(set = j | x)  ∝  ρ_j·(θ_j/π·η + (1 − θ_j)/(1 − π)·(1 − η)).

After normalization, this is a ratio of two linear functions of η. At the class prior of all rows, π̄ = Σ ρ_j·θ_j, the
denominator is 1. If t is the value of η at π̄, the set probabilities lie on the segment

    (1 − t)·u + t·v,    u_j = ρ_j·(1 − θ_j)/(1 − π̄),    v_j = ρ_j·θ_j/π̄.

The inversion is computed at π̄, and then the log-odds are shifted to π (`uulearn.metrics.calibration.shift_log_odds`).
For two sets, t has a closed form. For more sets, t maximizes the log-likelihood Σ_j q_j·ln((1 − t)·u_j + t·v_j) of the
predicted probabilities q. The objective is concave, so bisection on its derivative finds the maximum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from uulearn.metrics.calibration import shift_log_odds
from uulearn.risk.coefficients import check_priors, check_target_prior

Floats = NDArray[np.float64]
Priors = Sequence[float] | Floats

LARGEST_EXPONENT = 700.0  # log-odds are searched between −700 and 700, because exp overflows above 709
BISECTIONS = 60  # 1,400/2⁶⁰ is below the spacing of floats near 1
CLIPPING_TOLERANCE = 1e-9  # distance from the segment that is attributed to rounding


class Inversion(NamedTuple):
    """Log-odds of the positive class and a mask of the clipped rows, both of shape (n,).

    >>> found = invert_set_posterior([[0.5, 0.5], [0.9, 0.1]], (0.8, 0.2), (500, 500), 0.5)
    >>> found.positive.round(2), found.clipped  # with these priors no row can be 90% from set 0
    (array([0.5, 1. ]), array([False,  True]))
    """

    log_odds: Floats  # log-odds ln(η/(1 − η)); −∞ for η = 0 and ∞ for η = 1
    clipped: NDArray[np.bool_]  # rows whose set probabilities are more extreme than any η in [0, 1] allows

    @property
    def positive(self) -> Floats:
        """η, shape (n,)."""
        return np.asarray(expit(self.log_odds))

    @property
    def clipped_fraction(self) -> float:
        """Fraction of rows that were clipped."""
        return float(self.clipped.mean())


def read_priors(set_priors: Priors) -> Floats:
    """Return the class priors θ as an array of shape (m,), or raise a ValueError that names the offending value."""
    return np.array(check_priors(set_priors, number="two or more"))


def check_fractions(set_fractions: ArrayLike, n_sets: int) -> Floats:
    """Return the fractions ρ of the sets, scaled to sum to 1, shape (m,); row counts are also accepted."""
    fractions = np.asarray(set_fractions, dtype=np.float64)
    if fractions.shape != (n_sets,) or not (np.isfinite(fractions) & (fractions > 0)).all():
        raise ValueError(f"set_fractions must be {n_sets} positive numbers, one per set, got {set_fractions!r}.")
    return np.asarray(fractions / fractions.sum())


def check_probabilities(probabilities: ArrayLike, n_sets: int) -> Floats:
    """Return set probabilities as a float64 array of shape (n, m) whose rows sum to 1."""
    q = np.asarray(probabilities, dtype=np.float64)
    if q.ndim != 2 or q.shape[1] != n_sets:
        raise ValueError(f"set probabilities must have shape (n, {n_sets}), one column per set, got shape {q.shape}.")
    bad = np.flatnonzero(~((q >= 0).all(1) & (np.abs(q.sum(1) - 1) < 1e-3)))
    if len(bad):
        raise ValueError(
            f"every row of the set probabilities must be non-negative and sum to 1, got {q[bad[0]].tolist()} in row "
            f"{bad[0]}."
        )
    return q


def segment_ends(theta: Floats, rho: Floats) -> tuple[Floats, Floats]:
    """Return u and v, the set probabilities of a negative and of a positive row; shape (m,) each."""
    pooled = rho @ theta
    return rho * (1 - theta) / (1 - pooled), rho * theta / pooled


def set_posterior(positive: ArrayLike, set_priors: Priors, set_fractions: ArrayLike, target_prior: float) -> Floats:
    """Return the set probabilities P(set = j | x) for the given η(x), shape (n, m).

    Parameters
    ----------
    positive : array of shape (n,)
        η(x) = P(y = 1 | x) at class prior ``target_prior``.
    set_priors : sequence of m numbers
        θ_j, the class prior of each set.
    set_fractions : sequence of m numbers
        ρ_j, the fraction of the rows in each set (or number of rows).
    target_prior : float

    Examples
    --------
    >>> set_posterior([0.0, 0.5, 1.0], (0.9, 0.1), (100, 100), 0.5)
    array([[0.1, 0.9],
           [0.5, 0.5],
           [0.9, 0.1]])
    """
    theta = read_priors(set_priors)
    rho = check_fractions(set_fractions, len(theta))
    pi = check_target_prior(target_prior)
    eta = np.asarray(positive, dtype=np.float64)[:, None]
    joint = rho * (theta * (1 - pi) * eta + (1 - theta) * pi * (1 - eta))
    return np.asarray(joint / joint.sum(1, keepdims=True))


def invert_set_posterior(
    probabilities: ArrayLike, set_priors: Priors, set_fractions: ArrayLike, target_prior: float
) -> Inversion:
    """Convert set probabilities P(set = j | x) to the log-odds of the positive class.

    ``probabilities`` has shape (n, m) and is predicted by a classifier of sets. ``set_fractions`` contains the fraction
    of the training rows in each set. The other parameters are described in `set_posterior`.

    >>> q = set_posterior([0.2, 0.7], (0.9, 0.5, 0.1), (100, 300, 50), 0.4)
    >>> invert_set_posterior(q, (0.9, 0.5, 0.1), (100, 300, 50), 0.4).positive.round(6)
    array([0.2, 0.7])
    >>> invert_set_posterior([[0.95, 0.05]], (0.9, 0.1), (100, 100), 0.5)  # impossible with these priors
    Inversion(log_odds=array([inf]), clipped=array([ True]))
    """
    theta = read_priors(set_priors)
    rho = check_fractions(set_fractions, len(theta))
    pi = check_target_prior(target_prior)
    q = check_probabilities(probabilities, len(theta))
    pooled = invert_two(q, theta, rho) if len(theta) == 2 else invert_many(q, theta, rho)
    return Inversion(shift_log_odds(pooled.log_odds, float(rho @ theta), pi), pooled.clipped)


def invert_two(q: Floats, theta: Floats, rho: Floats) -> Inversion:
    """Compute the inversion for two sets at class prior π̄: solve for scaled class densities, clipped at 0."""
    pooled = float(rho @ theta)
    high, low = (0, 1) if theta[0] > theta[1] else (1, 0)
    positive = (1 - theta[low]) * q[:, high] / rho[high] - (1 - theta[high]) * q[:, low] / rho[low]
    negative = theta[high] * q[:, low] / rho[low] - theta[low] * q[:, high] / rho[high]
    clipped = np.minimum(positive, negative) < -CLIPPING_TOLERANCE
    with np.errstate(divide="ignore"):
        log_ratio = np.log(positive.clip(0)) - np.log(negative.clip(0))
    return Inversion(log_ratio + logit(pooled), clipped)


def invert_many(q: Floats, theta: Floats, rho: Floats) -> Inversion:
    """Compute the inversion for any number of sets at class prior π̄: maximize the likelihood by bisection."""
    pooled = float(rho @ theta)
    # The segment divided by ρ_j, which changes neither the maximum nor the derivative.
    v, u = theta / pooled, (1 - theta) / (1 - pooled)

    def slope(log_odds: Floats) -> Floats:
        mixture = expit(-log_odds)[:, None] * u + expit(log_odds)[:, None] * v
        with np.errstate(divide="ignore", over="ignore"):  # an infinite slope has a valid sign
            # A set of probability 0 does not contribute to the likelihood, even if its mixture density is 0.
            return np.asarray(np.divide(q * (v - u), mixture, out=np.zeros_like(q), where=q > 0).sum(1))

    n = len(q)
    below, above = slope(np.full(n, -np.inf)), slope(np.full(n, np.inf))
    low, high = np.full(n, -LARGEST_EXPONENT), np.full(n, LARGEST_EXPONENT)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        rising = slope(middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    log_odds = np.where(below <= 0, -np.inf, np.where(above >= 0, np.inf, (low + high) / 2))
    # If a set is pure, one end of the segment lies on the border of the simplex, and no row can lie beyond it.
    low_end = (below < -CLIPPING_TOLERANCE) & bool((u > 0).all())
    clipped = low_end | ((above > CLIPPING_TOLERANCE) & bool((v > 0).all()))
    return Inversion(log_odds, clipped)


def shift_prior(positive: ArrayLike, from_prior: float, to_prior: float) -> Floats:
    """Convert probabilities of the positive class from one class prior to another (prior shift).

    >>> shift_prior([0.0, 0.5, 1.0], 0.5, 0.8)
    array([0. , 0.8, 1. ])
    """
    return np.asarray(expit(shift_log_odds(logit(np.asarray(positive, dtype=np.float64)), from_prior, to_prior)))
