"""From the probability of each set to the probability of the positive class, and back: pure functions.

Set j = 0 … m − 1 is the mixture θ_j·P + (1 − θ_j)·N of the two classes and makes up a share ρ_j of the rows. Where a
share π is positive, Bayes' rule with η(x) = P(y = 1 | x) gives

    P(set = j | x)  ∝  ρ_j·(θ_j/π·η + (1 − θ_j)/(1 − π)·(1 − η)),

once normalised the ratio of two linear functions of η (Lu, Lei, Niu, Sato and Sugiyama, Binary Classification from
Multiple Unlabeled Datasets via Surrogate Set Classification, ICML 2021). Among all rows together a share
π̄ = Σ ρ_j·θ_j is positive, and at π = π̄ the denominator is 1: with t for η at π̄, the probabilities of the sets lie on
the straight segment

    (1 − t)·u + t·v,    u_j = ρ_j·(1 − θ_j)/(1 − π̄),    v_j = ρ_j·θ_j/π̄.

So everything is inverted at π̄ and then moved to π, which shifts the log-odds (`uulearn.metrics.calibration.shift_log_odds`).
Two sets determine t; for more, t is the maximum-likelihood estimate, argmax Σ_j q_j·ln((1 − t)·u_j + t·v_j) for
predicted probabilities q. A sum of logarithms of linear functions is concave, strictly so unless all θ_j are equal:
there is one maximum, and the sign of the slope tells on which side of it one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from uulearn.metrics.calibration import shift_log_odds
from uulearn.risk.coefficients import EQUAL_PRIORS, check_target_prior

Floats = NDArray[np.float64]
Priors = Sequence[float] | Floats

LARGEST_EXPONENT = 700.0
"""Log-odds are looked for in ±700, as far as exp can go without leaving the normal numbers."""
HALVINGS = 60
"""1,400 halved so often is less than the spacing of floats around 1."""
EDGE = 1e-9
"""Probabilities this little beyond the ends of the segment are rounding, not clipping."""


class Inversion(NamedTuple):
    """Log-odds of the positive class, and where they had to be clipped; both of shape (n,)."""

    log_odds: Floats
    """ln(η/(1 − η)); −∞ and ∞ where η is 0 and 1."""
    clipped: NDArray[np.bool_]
    """Rows whose set probabilities no η in [0, 1] explains: more certain about the set than the priors allow."""

    @property
    def positive(self) -> Floats:
        """η, shape (n,)."""
        return np.asarray(expit(self.log_odds))

    @property
    def clipped_share(self) -> float:
        """Share of the rows that were clipped."""
        return float(self.clipped.mean())


# -------------------------------------------------------------------------------------------------------------- checks


def check_priors(set_priors: Priors) -> Floats:
    """Return θ as an array of shape (m,), m ≥ 2, or raise a ValueError that names the offending value."""
    try:
        values = tuple(set_priors)
    except TypeError:
        values = ()
    if len(values) < 2 or not all(isinstance(value, Real) for value in values):
        raise ValueError(
            f"set_priors must be two or more numbers, the share of positives in each set, got {set_priors!r}; pass for "
            "example set_priors=(0.8, 0.5, 0.2)."
        )
    priors = np.array(values, dtype=np.float64)
    for which, value in enumerate(priors.tolist()):
        if not 0.0 <= value <= 1.0:
            raise ValueError(
                f"the share of positives in set {which} must lie in [0, 1], got {value!r}; "
                "give it as a fraction, 80% as 0.8."
            )
    if np.ptp(priors) < EQUAL_PRIORS:
        raise ValueError(
            f"set_priors must differ, got {set_priors!r}: sets with the same share of positives say nothing about the "
            "classes; collect a set with another share."
        )
    return priors


def check_shares(set_shares: ArrayLike, n_sets: int) -> Floats:
    """Return ρ, scaled to sum to 1, shape (m,); numbers of rows will do."""
    shares = np.asarray(set_shares, dtype=np.float64)
    if shares.shape != (n_sets,) or not (np.isfinite(shares) & (shares > 0)).all():
        raise ValueError(
            f"set_shares must be {n_sets} numbers above 0, one for each of the set_priors, got {set_shares!r}; pass "
            "the number of rows of each set."
        )
    return np.asarray(shares / shares.sum())


def check_probabilities(probabilities: ArrayLike, n_sets: int) -> Floats:
    """Return set probabilities as a float64 array of shape (n, m) whose rows are probabilities."""
    q = np.asarray(probabilities, dtype=np.float64)
    if q.ndim != 2 or q.shape[1] != n_sets:
        raise ValueError(
            f"set probabilities must have shape (n, {n_sets}), one column for each of the set_priors, got shape "
            f"{q.shape}."
        )
    bad = np.flatnonzero(~((q >= 0).all(1) & (np.abs(q.sum(1) - 1) < 1e-3)))
    if len(bad):
        raise ValueError(
            f"every row of the set probabilities must be non-negative and sum to 1, got {q[bad[0]].tolist()} in row "
            f"{bad[0]}."
        )
    return q


# ------------------------------------------------------------------------------------------------------------- forward


def segment_ends(theta: Floats, rho: Floats) -> tuple[Floats, Floats]:
    """u and v, the probabilities of the sets for a row that is surely negative and surely positive; shape (m,) each."""
    pooled = rho @ theta
    return rho * (1 - theta) / (1 - pooled), rho * theta / pooled


def set_posterior(positive: ArrayLike, set_priors: Priors, set_shares: ArrayLike, target_prior: float) -> Floats:
    """P(set = j | x) from η(x), shape (n, m).

    Parameters
    ----------
    positive : array of shape (n,)
        η(x) = P(y = 1 | x) where a share ``target_prior`` is positive.
    set_priors : sequence of m numbers
        θ_j, the share of positives in each set.
    set_shares : array of shape (m,)
        ρ_j, the share of each set among the rows, or its number of rows.
    target_prior : float
        π.

    Examples
    --------
    >>> set_posterior([0.0, 0.5, 1.0], (0.9, 0.1), (100, 100), 0.5)
    array([[0.1, 0.9],
           [0.5, 0.5],
           [0.9, 0.1]])
    """
    theta = check_priors(set_priors)
    rho = check_shares(set_shares, len(theta))
    pi = check_target_prior(target_prior)
    eta = np.asarray(positive, dtype=np.float64)[:, None]
    joint = rho * (theta * (1 - pi) * eta + (1 - theta) * pi * (1 - eta))
    return np.asarray(joint / joint.sum(1, keepdims=True))


# ------------------------------------------------------------------------------------------------------------- inverse


def invert_set_posterior(
    probabilities: ArrayLike, set_priors: Priors, set_shares: ArrayLike, target_prior: float
) -> Inversion:
    """η(x) from P(set = j | x), as log-odds: the closed form for two sets, maximum likelihood for more.

    Parameters
    ----------
    probabilities : array of shape (n, m)
        Probability of each set, as a classifier of set membership predicts it.
    set_priors, set_shares, target_prior
        As in `set_posterior`; ``set_shares`` as that classifier saw them.

    Examples
    --------
    >>> q = set_posterior([0.2, 0.7], (0.9, 0.5, 0.1), (100, 300, 50), 0.4)
    >>> invert_set_posterior(q, (0.9, 0.5, 0.1), (100, 300, 50), 0.4).positive.round(6)
    array([0.2, 0.7])
    >>> invert_set_posterior([[0.95, 0.05]], (0.9, 0.1), (100, 100), 0.5)  # surer than the priors allow
    Inversion(log_odds=array([inf]), clipped=array([ True]))
    """
    theta = check_priors(set_priors)
    rho = check_shares(set_shares, len(theta))
    pi = check_target_prior(target_prior)
    q = check_probabilities(probabilities, len(theta))
    pooled = invert_two(q, theta, rho) if len(theta) == 2 else invert_many(q, theta, rho)
    return Inversion(shift_log_odds(pooled.log_odds, float(rho @ theta), pi), pooled.clipped)


def invert_two(q: Floats, theta: Floats, rho: Floats) -> Inversion:
    """Two sets, at class prior π̄: two linear equations for the densities of the classes, each clipped at 0.

    q_j/ρ_j is proportional to the density θ_j·P + (1 − θ_j)·N of set j, so that up to a common factor
    P = (1 − θ₁)·q₀/ρ₀ − (1 − θ₀)·q₁/ρ₁ and N = θ₀·q₁/ρ₁ − θ₁·q₀/ρ₀ for θ₀ > θ₁. At most one of them is negative.
    """
    pooled = float(rho @ theta)
    rich, poor = (0, 1) if theta[0] > theta[1] else (1, 0)
    positive = (1 - theta[poor]) * q[:, rich] / rho[rich] - (1 - theta[rich]) * q[:, poor] / rho[poor]
    negative = theta[rich] * q[:, poor] / rho[poor] - theta[poor] * q[:, rich] / rho[rich]
    clipped = np.minimum(positive, negative) < -EDGE
    with np.errstate(divide="ignore"):
        log_ratio = np.log(positive.clip(0)) - np.log(negative.clip(0))
    return Inversion(log_ratio + logit(pooled), clipped)


def invert_many(q: Floats, theta: Floats, rho: Floats) -> Inversion:
    """Two or more sets, at class prior π̄: the maximum of the likelihood, found by halving an interval of log-odds.

    The log-odds rather than t itself are halved, because near the ends a set with θ_j in {0, 1} tells t = 10⁻¹² from
    10⁻¹³, and so can the result.
    """
    pooled = float(rho @ theta)
    # The segment with ρ_j divided out, which changes neither the maximum nor the slope.
    v, u = theta / pooled, (1 - theta) / (1 - pooled)

    def slope(log_odds: Floats) -> Floats:
        mixture = expit(-log_odds)[:, None] * u + expit(log_odds)[:, None] * v
        with np.errstate(divide="ignore", over="ignore"):  # an infinite slope has a sign like any other
            # A set of probability 0 has no part in the likelihood, even where its own share of the mixture is 0.
            return np.asarray(np.divide(q * (v - u), mixture, out=np.zeros_like(q), where=q > 0).sum(1))

    n = len(q)
    below, above = slope(np.full(n, -np.inf)), slope(np.full(n, np.inf))
    low, high = np.full(n, -LARGEST_EXPONENT), np.full(n, LARGEST_EXPONENT)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        rising = slope(middle) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    log_odds = np.where(below <= 0, -np.inf, np.where(above >= 0, np.inf, (low + high) / 2))
    # Where a set is pure, one end of the segment is on the border of the simplex, and nothing lies beyond.
    clipped = ((below < -EDGE) & bool((u > 0).all())) | ((above > EDGE) & bool((v > 0).all()))
    return Inversion(log_odds, clipped)


# ----------------------------------------------------------------------------------------------------- another prior π


def with_target_prior(positive: ArrayLike, from_prior: float, to_prior: float) -> Floats:
    """η at one class prior from η at another, for the same two classes (label shift).

    Parameters
    ----------
    positive : array of any shape
        P(y = 1 | x) where a share ``from_prior`` is positive.
    from_prior, to_prior : float
        Shares of positives, strictly between 0 and 1.

    Examples
    --------
    >>> with_target_prior([0.0, 0.5, 1.0], 0.5, 0.8)
    array([0. , 0.8, 1. ])
    """
    return np.asarray(expit(shift_log_odds(logit(np.asarray(positive, dtype=np.float64)), from_prior, to_prior)))
