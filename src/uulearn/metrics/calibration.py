"""Convert scores to probabilities without labels, correct for prior shift, and compute decision thresholds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from uulearn.metrics.estimates import Floats, split_scores
from uulearn.risk.coefficients import check_set_priors, check_target_prior

# Normal prior on the logarithm of the slope (for standardized scores) and on the log-odds at the median score, as
# (mean, standard deviation). It weighs as much as one row: it matters only with few rows, close priors or separated
# classes, and it keeps the slope positive.
LOG_SLOPE_PRIOR = (math.log(3.0), 1.0)
INTERCEPT_PRIOR = (0.0, 3.0)
STARTING_LOG_SLOPES = (-1.0, 1.0, 3.0)  # the likelihood can have several maxima


@dataclass(frozen=True)
class PlattScaling:
    """Log-odds of the positive class as a linear function of the score, at class prior ``prior``.

    >>> PlattScaling(2.0, 0.5, prior=0.5).log_odds(np.array([-1.0, 0.0, 1.0])).tolist()
    [-1.5, 0.5, 2.5]
    """

    slope: float
    intercept: float
    prior: float

    def log_odds(self, scores: Any, target_prior: float | None = None) -> Floats:
        """Return the log-odds of the positive class, at another class prior if one is given."""
        log_odds = self.slope * np.asarray(scores, dtype=np.float64) + self.intercept
        return log_odds if target_prior is None else shift_log_odds(log_odds, self.prior, target_prior)


def fit_platt_scaling(scores: Any, sets: Any, set_priors: Sequence[float], target_prior: float) -> PlattScaling:
    """Fit Platt scaling without labels, from held-out rows of two unlabeled sets.

    The fit maximizes the likelihood of the sets. Let t be the probability of the positive class at the class prior of
    all rows, π̄, and ρ the fraction of rows in set 0. A row then belongs to set 0 with probability
    ρ·(θ/π̄·t + (1 − θ)/(1 − π̄)·(1 − t)). The result is the increasing line with the maximum likelihood; a weak
    prior on the slope and intercept stabilizes the fit for small samples.

    The log-odds refer to the class prior ``target_prior``; see `uulearn.metrics.uu_rates` for the other parameters.

    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 20_000)
    >>> y = rng.random(40_000) < np.where(sets == 0, 0.8, 0.2)  # unknown in practice
    >>> g = rng.normal(2.0 * y - 1.0)  # the log-odds at class prior 0.5 are 2g
    >>> scaling = fit_platt_scaling(g, sets, (0.8, 0.2), 0.5)
    >>> round(scaling.slope, 1), round(scaling.intercept, 1)
    (2.0, 0.0)
    """
    priors, pi = np.array(check_set_priors(set_priors)), check_target_prior(target_prior)
    first, second = split_scores(scores, sets)
    values = np.concatenate([first, second])
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite, got an infinite score; check the model's output for these rows.")
    sizes = np.array([len(first), len(second)])
    center, scale = _center_and_scale(values)
    standardized = (values - center) / scale
    fractions = sizes / sizes.sum()
    pooled = float(fractions @ priors)
    # P(set | negative) and P(set | positive) for the set of every row.
    at_negative = np.repeat(fractions * (1 - priors) / (1 - pooled), sizes)
    at_positive = np.repeat(fractions * priors / pooled, sizes)
    means, deviations = np.transpose([LOG_SLOPE_PRIOR, INTERCEPT_PRIOR])

    def objective(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the mean negative log-posterior of (log slope, intercept) on standardized scores, and its gradient."""
        slope = math.exp(parameters[0])
        likelihood, derivative = set_log_likelihood(slope * standardized + parameters[1], at_negative, at_positive)
        distance = (parameters - means) / deviations
        gradient = -np.array([(derivative * standardized).mean() * slope, derivative.mean()])
        gradient += distance / deviations / len(standardized)
        return -float(likelihood.mean()) + float(distance @ distance) / (2 * len(standardized)), gradient

    bounds = [(-10.0, 10.0), (-50.0, 50.0)]
    fits = [
        minimize(objective, (start, 0.0), jac=True, method="L-BFGS-B", bounds=bounds) for start in STARTING_LOG_SLOPES
    ]
    log_slope, intercept = min(fits, key=lambda result: float(result.fun)).x
    slope = math.exp(log_slope) / scale
    return PlattScaling(slope, float(shift_log_odds(intercept - slope * center, pooled, pi)), pi)


def set_log_likelihood(log_odds: Floats, at_negative: Floats, at_positive: Floats) -> tuple[Floats, Floats]:
    """Return ln P(set) of every row and its derivative, for log-odds of the positive class at the pooled class prior.

    ``at_negative`` and ``at_positive`` are the probabilities of the observed set for a negative and for a positive row.

    >>> log_likelihood, _ = set_log_likelihood(np.zeros(1), np.array([0.2]), np.array([0.8]))
    >>> np.exp(log_likelihood)  # both classes are equally likely
    array([0.5])
    """
    positive, negative = expit(log_odds), expit(-log_odds)
    likelihood = np.maximum(negative * at_negative + positive * at_positive, 1e-300)
    return np.log(likelihood), positive * negative * (at_positive - at_negative) / likelihood


def _center_and_scale(values: Floats) -> tuple[float, float]:
    """Return the median of the scores and a robust standard deviation."""
    low, median, high = np.quantile(values, [0.16, 0.5, 0.84])
    scale = float(high - low) / 2 or float(values.std())
    if not scale > 0:
        raise ValueError(f"all scores are {values[0]:g} and carry no information about the class; train the model.")
    return float(median), scale


def shift_log_odds(log_odds: Any, from_prior: float, to_prior: float) -> Any:
    """Move log-odds of the positive class from one class prior to another (prior shift).

    >>> round(float(shift_log_odds(0.0, 0.5, 0.1)), 3)  # ln(0.1/0.9)
    -2.197
    """
    if not 0 < from_prior < 1:
        raise ValueError(f"from_prior must lie strictly between 0 and 1, got {from_prior!r}.")
    return log_odds + (logit(check_target_prior(to_prior)) - logit(from_prior))


def bayes_threshold(false_positive_cost: float, false_negative_cost: float) -> float:
    """Return the probability above which predicting positive minimizes the expected cost.

    >>> bayes_threshold(1.0, 1.0), bayes_threshold(1.0, 9.0)  # misses cost nine times as much
    (0.5, 0.1)
    """
    for name, cost in (("false_positive_cost", false_positive_cost), ("false_negative_cost", false_negative_cost)):
        if not (math.isfinite(cost) and cost > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {cost!r}; only the ratio matters.")
    return false_positive_cost / (false_positive_cost + false_negative_cost)


def calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> float:
    """Compute the expected calibration error from labels.

    The error is the mean of |mean probability − fraction of positives| over bins of equal size.

    >>> calibration_error([0.2] * 10, [1, 1] + [0] * 8, bins=1)
    0.0
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(labels) == 1
    if p.ndim != 1 or p.shape != y.shape or not len(p):
        raise ValueError(f"probabilities and labels must have one value per row, got shapes {p.shape} and {y.shape}.")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"probabilities must lie in [0, 1], got {p[~((p >= 0) & (p <= 1))][0]:g}.")
    parts = np.array_split(np.argsort(p, kind="stable"), min(bins, len(p)))
    return float(sum(abs(p[part].mean() - y[part].mean()) * len(part) for part in parts) / len(p))


def decision_values(scores: NDArray[np.float32], scaling: PlattScaling | None) -> NDArray[np.float32]:
    """Return calibrated log-odds, or the scores themselves if there is no calibration.

    >>> decision_values(np.float32([1, 2]), PlattScaling(2.0, 0.5, prior=0.5))
    array([2.5, 4.5], dtype=float32)
    """
    return scores if scaling is None else scaling.log_odds(scores).astype(np.float32)
