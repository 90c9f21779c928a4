"""Probabilities from scores, without labels; and what becomes of them where another share is positive.

A network's scores rank rows well long before their size means anything: `fit_scaling` finds the line a·g + b that
makes them log-odds, from held-out rows of two unlabeled sets. `shift_log_odds` then moves them to any class prior, and
`bayes_threshold` says where to cut when the two kinds of error do not cost the same. `calibration_error` checks
probabilities against labels, for those who have some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from uulearn.metrics.estimates import Floats, read_scores
from uulearn.risk.coefficients import check_set_priors, check_target_prior

USUAL, DOUBT = math.log(3.0), 1.0
"""Logarithm of the usual change of the log-odds over the spread of the scores, and how sure that is: as good as one row
of evidence, it decides only where rows are few, priors close or classes separate, and keeps the slope above zero."""
MIDDLE_DOUBT = 3.0
"""How far from zero the log-odds of a middling score may be."""
STARTS = (-1.0, 1.0, 3.0)


@dataclass(frozen=True)
class Scaling:
    """Log-odds of the positive class as a line in the score, at class prior ``prior``.

    Examples
    --------
    >>> Scaling(2.0, 0.5, prior=0.5).log_odds(np.array([-1.0, 0.0, 1.0])).tolist()
    [-1.5, 0.5, 2.5]
    """

    slope: float
    intercept: float
    prior: float

    def log_odds(self, scores: Any, target_prior: float | None = None) -> Floats:
        """Log-odds of the positive class, at another class prior if one is given."""
        straight = self.slope * np.asarray(scores, dtype=np.float64) + self.intercept
        return straight if target_prior is None else shift_log_odds(straight, self.prior, target_prior)


def fit_scaling(scores: Any, sets: Any, set_priors: Sequence[float], target_prior: float) -> Scaling:
    """Scale scores to log-odds by held-out rows of two unlabeled sets: Platt's method without labels.

    Which set a row came from is all that is known of it, and its probability follows from the class's: where the
    positive class has probability t (at the share of positives among all rows, π̄), a row is of set 0 with probability
    ρ·(θ/π̄·t + (1 − θ)/(1 − π̄)·(1 − t)), ρ being the share of set 0 among the rows. The line is the rising one under
    which the sets that were seen are most likely, with a weak prior on its slope for when the rows say little. Unlike
    a minimum of the unbiased risk, whose rows may have negative weights, it exists for any priors.

    Parameters
    ----------
    scores : array of shape (n,)
        Of held-out rows of both sets.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1.
    set_priors : (θ, θ′)
    target_prior : float
        π, the class prior of the log-odds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 20_000)
    >>> y = rng.random(40_000) < np.where(sets == 0, 0.8, 0.2)  # what nobody knows
    >>> g = rng.normal(2.0 * y - 1.0)  # its log-odds are 2g where half are positive
    >>> scaling = fit_scaling(g, sets, (0.8, 0.2), 0.5)
    >>> round(scaling.slope, 1), round(scaling.intercept, 1)
    (2.0, 0.0)
    """
    priors, pi = np.array(check_set_priors(set_priors)), check_target_prior(target_prior)
    first, second = read_scores(scores, sets)
    values = np.concatenate([first, second])
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite to be scaled; see what the model does on these rows.")
    sizes = np.array([len(first), len(second)])
    centre, spread = _spread(values)
    standard = (values - centre) / spread
    shares = sizes / sizes.sum()
    pooled = float(shares @ priors)
    # P(set) of a negative and of a positive, for every row's own set.
    at_negative, at_positive = (
        np.repeat(ends, sizes) for ends in (shares * (1 - priors) / (1 - pooled), shares * priors / pooled)
    )

    def surprise(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Mean of −ln P(set), prior included, and its gradient, for the logarithm of the slope and the middle."""
        slope = math.exp(line[0])
        gain, pull = set_log_likelihood(slope * standard + line[1], at_negative, at_positive)
        doubts = np.array([(line[0] - USUAL) / DOUBT, line[1] / MIDDLE_DOUBT])
        gradient = -np.array([(pull * standard).mean() * slope, pull.mean()])
        gradient += doubts / np.array([DOUBT, MIDDLE_DOUBT]) / len(standard)
        return -float(gain.mean()) + float(doubts @ doubts) / (2 * len(standard)), gradient

    bounds = [(-10.0, 10.0), (-50.0, 50.0)]
    found = [minimize(surprise, (start, 0.0), jac=True, method="L-BFGS-B", bounds=bounds) for start in STARTS]
    log_slope, middle = min(found, key=lambda result: float(result.fun)).x
    slope = math.exp(log_slope) / spread
    return Scaling(slope, float(shift_log_odds(middle - slope * centre, pooled, pi)), pi)


def set_log_likelihood(log_odds: Floats, at_negative: Floats, at_positive: Floats) -> tuple[Floats, Floats]:
    """ln P(set) of every row and its derivative, for log-odds of the positive class at the share among all rows.

    ``at_negative`` and ``at_positive`` are the probabilities of the row's set were it negative, and were it positive;
    in between, the probability of the set is linear in that of the class.

    Examples
    --------
    >>> value, slope = set_log_likelihood(np.array([0.0]), np.array([0.2]), np.array([0.8]))
    >>> round(float(np.exp(value[0])), 3), round(float(slope[0]), 3)
    (0.5, 0.3)
    """
    t, rest = expit(log_odds), expit(-log_odds)
    likely = np.maximum(rest * at_negative + t * at_positive, 1e-300)
    return np.log(likely), t * rest * (at_positive - at_negative) / likely


def _spread(values: Floats) -> tuple[float, float]:
    """Middle and spread of the scores, by quantiles, since a few may be far out."""
    low, middle, high = np.quantile(values, [0.16, 0.5, 0.84])
    spread = float(high - low) / 2 or float(values.std())
    if not spread > 0:
        raise ValueError(f"all scores are {values[0]:g}, so that they say nothing about the class; train the model.")
    return float(middle), spread


def shift_log_odds(log_odds: Any, from_prior: float, to_prior: float) -> Any:
    """Log-odds of the positive class where another share is positive: the density ratio stays, the prior odds change.

    Examples
    --------
    >>> round(float(shift_log_odds(0.0, 0.5, 0.1)), 3)  # ln(0.1/0.9)
    -2.197
    """
    if not 0 < from_prior < 1:  # a share of 0 or 1 leaves nothing to tell apart
        raise ValueError(f"from_prior must lie strictly between 0 and 1, got {from_prior!r}.")
    return log_odds + (logit(check_target_prior(to_prior)) - logit(from_prior))


def bayes_threshold(false_positive_cost: float, false_negative_cost: float) -> float:
    """The probability above which to say positive, so that the expected cost of errors is lowest.

    Examples
    --------
    >>> bayes_threshold(1.0, 1.0), bayes_threshold(1.0, 9.0)  # missing a positive costs nine times as much
    (0.5, 0.1)
    """
    for name, cost in (("false_positive_cost", false_positive_cost), ("false_negative_cost", false_negative_cost)):
        if not (math.isfinite(cost) and cost > 0):
            raise ValueError(f"{name} must be a number above 0, got {cost!r}; only the ratio of the two costs matters.")
    return false_positive_cost / (false_positive_cost + false_negative_cost)


def calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> float:
    """Expected calibration error, from labels: how far the probabilities are from the shares they promise.

    Rows are sorted into bins of equal numbers of rows by their probability; the error is the mean over the bins of the
    distance between the mean probability and the share of positives.

    Examples
    --------
    >>> calibration_error([0.2] * 10, [1, 1] + [0] * 8, bins=1)
    0.0
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels) == 1
    if p.ndim != 1 or p.shape != y.shape or not len(p):
        raise ValueError(f"probabilities and labels must have one value a row, got shapes {p.shape} and {y.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probabilities must lie in [0, 1], got {p[~((p >= 0) & (p <= 1))][0]:g}.")
    parts = np.array_split(np.argsort(p, kind="stable"), min(bins, len(p)))
    return float(sum(abs(p[part].mean() - y[part].mean()) * len(part) for part in parts) / len(p))


def decision_values(scores: NDArray[np.float32], scaling: Scaling | None) -> NDArray[np.float32]:
    """Log-odds of the scores if there is a calibration, else the scores themselves."""
    return scores if scaling is None else scaling.log_odds(scores).astype(np.float32)
