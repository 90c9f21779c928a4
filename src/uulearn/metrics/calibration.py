"""Convert scores to probabilities without labels, correct for prior shift, and compute decision thresholds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from uulearn.metrics.estimates import Floats, split_by_prior
from uulearn.risk.coefficients import check_priors, check_target_prior

# Maximum number of points that represent the scores in a fit; more scores are averaged in groups of neighbors.
MAX_POINTS = 1000
# Maximum magnitude of standardized scores in a fit; an outlier of 1e30 makes the bisection of the intercept too coarse.
MAX_STANDARDIZED = 1e3
# Slopes that are compared, for standardized scores: their logarithms, and their number in each of three steps.
LOG_SLOPES = (math.log(1e-3), math.log(1e3), 41)
# Slopes whose posterior density is lower than that of the best by this factor are ignored, in logarithms.
NEGLIGIBLE = 15.0


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
        """Return the log-odds of the positive class, at the class prior ``target_prior`` if it is given."""
        log_odds = self.slope * np.asarray(scores, dtype=np.float64) + self.intercept
        return log_odds if target_prior is None else shift_log_odds(log_odds, self.prior, target_prior)


def fit_platt_scaling(scores: Any, sets: Any, set_priors: Sequence[float], target_prior: float) -> PlattScaling:
    """Fit Platt scaling without labels, from held-out rows of two or more unlabeled sets.

    Let π̄ be the class prior of all rows, t the probability of the positive class at this prior, and ρ the fraction of
    rows in a set. A row belongs to this set with probability ρ·(θ/π̄·t + (1 − θ)/(1 − π̄)·(1 − t)), which determines the
    likelihood of a slope. For each slope, the intercept is chosen so that the mean of t is π̄. The likelihood alone
    determines this mean poorly if the priors are close.

    With few rows or close priors, many slopes are plausible. The result is the line closest (in log loss) to the mean
    probability over all plausible slopes, so probabilities are near the class prior if the data cannot calibrate them.
    The prior of the correlation of t and the class is uniform from 0 (uninformative scores) to 1 (separate classes).

    The log-odds refer to the class prior ``target_prior``; see `uulearn.metrics.uu_rates` for the other parameters.

    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 20_000)
    >>> y = rng.random(40_000) < np.where(sets == 0, 0.8, 0.2)  # unknown in practice
    >>> g = rng.normal(2.0 * y - 1.0)  # the log-odds at class prior 0.5 are 2g
    >>> scaling = fit_platt_scaling(g, sets, (0.8, 0.2), 0.5)
    >>> round(scaling.slope, 1), round(scaling.intercept, 1)
    (2.0, 0.0)
    """
    priors, pi = np.array(check_priors(set_priors, number="two or more")), check_target_prior(target_prior)
    parts = split_by_prior(scores, sets, priors.tolist())
    values, sizes = np.concatenate(parts), np.array([len(part) for part in parts])  # sets without rows are ignored
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite, got an infinite score; check the model's output for these rows.")
    center, scale = _center_and_scale(values)
    standardized = ((values - center) / scale).clip(-MAX_STANDARDIZED, MAX_STANDARDIZED)
    points, counts = _group(standardized, np.repeat(np.arange(len(priors)), sizes), len(priors))
    weights, fractions = counts.sum(0) / sizes.sum(), sizes / sizes.sum()
    pooled = float(fractions @ priors)
    start, stop, number = LOG_SLOPES
    for _ in range(3):
        log_slopes = np.linspace(start, stop, number)
        rising = np.exp(log_slopes)[:, None] * points
        positive = expit(rising + solve_intercepts(rising, weights, pooled)[:, None])
        posterior = np.zeros(number)
        for own, fraction, prior in zip(counts, fractions, priors, strict=True):
            at_negative, at_positive = fraction * (1 - prior) / (1 - pooled), fraction * prior / pooled
            posterior += np.log(np.maximum(at_negative + (at_positive - at_negative) * positive, 1e-300)) @ own
        correlation = np.sqrt((positive - pooled) ** 2 @ weights / (pooled * (1 - pooled)))
        posterior += np.log(np.maximum(np.gradient(correlation, log_slopes), 1e-300))
        plausible = np.flatnonzero(posterior > posterior.max() - NEGLIGIBLE)
        start, stop = log_slopes[max(0, plausible[0] - 1)], log_slopes[min(number - 1, plausible[-1] + 1)]
    share = np.exp(posterior - posterior.max())
    slope, intercept = _nearest_line(points, weights, share @ positive / share.sum())
    return PlattScaling(slope / scale, float(shift_log_odds(intercept - slope / scale * center, pooled, pi)), pi)


def calibrate_out_of_fold(
    scores: NDArray[np.float32],
    sets: NDArray[np.int64],
    folds: NDArray[np.int64],
    set_priors: Sequence[float],
    target_prior: float,
) -> tuple[PlattScaling, NDArray[np.float32]]:
    """Return the scaling fitted on all rows, and log-odds of all rows that are suitable for evaluating a model.

    The sign of the log-odds of a row is determined by a scaling fitted on the other folds, so no row influences its own
    threshold. The magnitude comes from the scaling fitted on all rows; log-odds with the wrong sign become (almost)
    zero. (Log-odds from a different scaling in every fold would have a lower AUC than the scores.) See
    `fit_platt_scaling` for the other parameters.

    >>> scores = np.random.default_rng(0).normal(np.repeat([1.0, -1.0], 100)).astype(np.float32)
    >>> sets, folds = np.repeat([0, 1], 100), np.tile([0, 1], 100)
    >>> scaling, log_odds = calibrate_out_of_fold(scores, sets, folds, (0.9, 0.1), 0.5)
    >>> moved = log_odds != decision_values(scores, scaling)  # rows between the thresholds of the folds
    >>> int(moved.sum()), bool(np.abs(log_odds[moved]).max() < 1e-5)
    (1, True)
    """
    scaling = fit_platt_scaling(scores, sets, set_priors, target_prior)
    log_odds = decision_values(scores, scaling)
    for fold in np.unique(folds):
        inside = folds == fold
        own = fit_platt_scaling(scores[~inside], sets[~inside], set_priors, target_prior)
        positive = own.log_odds(scores[inside]) > 0
        log_odds[inside] = np.where(positive, log_odds[inside].clip(min=1e-6), log_odds[inside].clip(max=0.0))
    return scaling, log_odds


def _group(values: Floats, sets: NDArray[np.int64], n_sets: int) -> tuple[Floats, Floats]:
    """Return at most `MAX_POINTS` means of neighboring values, and the number of rows of each set at each mean."""
    order = np.argsort(values, kind="stable")
    starts = np.unique(np.linspace(0, len(values), min(MAX_POINTS, len(values)), endpoint=False).astype(np.int64))
    counts = np.stack([np.add.reduceat(sets[order] == which, starts, dtype=np.float64) for which in range(n_sets)])
    return np.add.reduceat(values[order], starts) / counts.sum(0), counts


def solve_intercepts(rising: Floats, weights: Floats, mean: float) -> Floats:
    """Return the constant to add to each row of log-odds so that its probabilities have the given weighted mean.

    >>> float(solve_intercepts(np.array([[1.0, 1.0]]), np.array([0.5, 0.5]), 0.5)[0])
    -1.0
    """
    low, high = logit(mean) - rising.max(axis=1), logit(mean) - rising.min(axis=1)
    found = (low + high) / 2
    left = np.arange(len(rising))
    for _ in range(60):  # Newton's method, with bisection where it would leave the bounds
        middle = found[left]
        positive = expit(rising[left] + middle[:, None])
        excess, slope = positive @ weights - mean, (positive * (1 - positive)) @ weights
        low, high = np.where(excess < 0, middle, low), np.where(excess < 0, high, middle)
        step = middle - excess / np.maximum(slope, 1e-300)
        found[left] = np.where((step > low) & (step < high), step, (low + high) / 2)
        moving = np.abs(found[left] - middle) > 1e-12 * (1 + np.abs(middle))
        left, low, high = left[moving], low[moving], high[moving]
        if not len(left):
            break
    return np.asarray(found)


def _nearest_line(points: Floats, weights: Floats, probabilities: Floats) -> tuple[float, float]:
    """Return the (positive) slope and the intercept of the line that is closest to the probabilities in log loss."""

    def objective(parameters: Floats) -> tuple[float, Floats]:
        slope = math.exp(parameters[0])
        log_odds = slope * points + parameters[1]
        error = weights * (expit(log_odds) - probabilities)
        loss = weights @ (np.logaddexp(0.0, log_odds) - probabilities * log_odds)
        return float(loss), np.array([error @ points * slope, error.sum()])

    found = minimize(objective, (0.0, 0.0), jac=True, method="BFGS", options={"gtol": 1e-9})
    return math.exp(found.x[0]), float(found.x[1])


def set_log_likelihood(log_odds: Floats, at_negative: Floats, at_positive: Floats) -> tuple[Floats, Floats]:
    """Return the log-likelihood of the set of each row and its derivative, given log-odds at the pooled class prior.

    ``at_negative`` and ``at_positive`` are the probabilities of the observed set for negative and positive rows.

    >>> log_likelihood, _ = set_log_likelihood(np.zeros(1), np.array([0.2]), np.array([0.8]))
    >>> np.exp(log_likelihood)  # both classes are equally likely
    array([0.5])
    """
    positive, negative = expit(log_odds), expit(-log_odds)
    likelihood = np.maximum(negative * at_negative + positive * at_positive, 1e-300)
    return np.log(likelihood), positive * negative * (at_positive - at_negative) / likelihood


def _center_and_scale(values: Floats) -> tuple[float, float]:
    """Return the median and a robust standard deviation of the scores."""
    low, median, high = np.quantile(values, [0.16, 0.5, 0.84])
    scale = float(high - low) / 2 or float(values.std())
    if not scale > 0:
        raise ValueError(f"all scores are {values[0]:g} and carry no information about the class; train the model.")
    return float(median), scale


def shift_log_odds(log_odds: Any, from_prior: float, to_prior: float) -> Any:
    """Convert log-odds of the positive class from one class prior to another (prior shift).

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
            raise ValueError(f"{name} must be a finite number above 0, got {cost!r}; only the ratio of costs matters.")
    return false_positive_cost / (false_positive_cost + false_negative_cost)


def calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> float:
    """Compute the expected calibration error from labels.

    The error is the mean of |mean probability − fraction of positives| over bins with equal numbers of rows.

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
