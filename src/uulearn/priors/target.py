"""The share of positives in unlabeled rows from where the classifier will be used.

If the target rows are a mixture of the same two classes, the mean of any function of the scores is linear in their
share of positives: with m the mean over the target rows and m₀, m₁ the means over the two sets,

    m = ((π − θ′)·m₀ + (θ − π)·m₁)/(θ − θ′),   so   π = θ + (m − m₀)(θ′ − θ)/(m₁ − m₀).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from uulearn.exceptions import NotAMixtureWarning, UnidentifiedPriorsWarning
from uulearn.priors.intervals import Interval, check_confidence
from uulearn.priors.mixture import Floats
from uulearn.priors.two_sets import read_scores
from uulearn.risk.coefficients import check_set_priors

NAMES = ("scores_target", "scores0", "scores1")
FEWEST_ROWS = 20
MOST_BINS = 10
ROWS_A_BIN = 10
MISFIT = 0.01
OUTSIDE = 3.0
"""Standard errors outside [0, 1] at which an estimate is no longer put down to noise."""


@dataclass(frozen=True)
class TargetPriorEstimate:
    """Share of positives among unlabeled target rows."""

    target_prior: float
    """π̂ as estimated; noise can carry it outside [0, 1]."""
    interval: Interval
    """Clipped to [0, 1]."""
    standard_error: float
    confidence: float
    misfit_p_value: float
    """Of the hypothesis that the target rows are a mixture of the same classes."""


def estimate_target_prior(
    scores_target: Any, scores0: Any, scores1: Any, set_priors: Sequence[float], *, confidence: float = 0.95
) -> TargetPriorEstimate:
    """Estimate π from the scores of unlabeled target rows and of rows of the two sets.

    The function of the scores is their rank among all rows. No label is needed to choose it, it does not depend on the
    scale of the scores, and nothing is selected that noise could bias. The best combination of ten thresholds has a
    smaller standard error, by 2% to a third (docs/priors.md), but its interval fails where the sets are much alike. The
    interval is Fieller's for a ratio: for distinct sets that of the delta method, and as wide as it must be for others.

    Parameters
    ----------
    scores_target, scores0, scores1 : arrays of shape (m,), (n,) and (n′,)
        Scores of target rows, of rows of set 0 and of rows of set 1, at least 20 of each: all by one and the same
        model, none of rows that it was trained on. Any scores that tell the sets apart will do; the better they tell
        the classes apart, the less noise.
    set_priors : (θ, θ′)
        Shares of positives in set 0 and in set 1, taken as known. Where they are estimates, call again with the ends of
        their intervals: π̂ moves with them.
    confidence : float
        Of the interval.

    Warns
    -----
    NotAMixtureWarning
        When the scores of the three sets disagree beyond noise (p < 0.01), or no share in [0, 1] is within three
        standard errors.
    UnidentifiedPriorsWarning
        When the sets are so much alike that any share is possible.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, share):
    ...     return rng.normal(np.where(rng.random(n) < share, 1, -1), 1)
    >>> found = estimate_target_prior(draw(2000, 0.4), draw(3000, 0.8), draw(3000, 0.3), (0.8, 0.3))
    >>> print("{:.2f} in [{:.2f}, {:.2f}]".format(found.target_prior, *found.interval))
    0.41 in [0.37, 0.44]
    """
    priors = check_set_priors(set_priors)
    check_confidence(confidence)
    scores = [read_scores(s, name) for s, name in zip((scores_target, scores0, scores1), NAMES, strict=True)]
    for values, name in zip(scores, NAMES, strict=True):
        if len(values) < FEWEST_ROWS:
            raise ValueError(f"{name} has {len(values)} rows; at least {FEWEST_ROWS} of each are needed.")
    sizes = [len(values) for values in scores]
    ranks = np.split(stats.rankdata(np.concatenate(scores)) / sum(sizes), np.cumsum(sizes)[:2])
    means = np.array([values.mean() for values in ranks])
    variances = np.array([values.var(ddof=1) / len(values) for values in ranks])
    if means[1] == means[2]:
        raise ValueError("the scores rank set 0 and set 1 alike, so they say nothing about the target; pass others.")
    pi = priors[0] + (means[0] - means[1]) * (priors[1] - priors[0]) / (means[2] - means[1])
    slope = (means[1] - means[2]) / (priors[0] - priors[1])
    error = math.sqrt(_mixing(pi, priors) ** 2 @ variances) / abs(slope)
    reach = float(stats.t.ppf((1 + confidence) / 2, min(sizes) - 1))
    low, high = _fieller(pi, slope, variances, priors, reach)
    p_value = _misfit(scores, pi, priors)
    _warn(pi, error, math.isinf(low), p_value)
    interval = Interval(float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1)))
    return TargetPriorEstimate(float(pi), interval, float(error), confidence, p_value)


def _mixing(pi: float, priors: tuple[float, float]) -> Floats:
    """How target, set 0 and set 1 enter the deviation of the target from a mixture with the share π."""
    theta, theta_prime = priors
    return np.array([1.0, (theta_prime - pi) / (theta - theta_prime), (pi - theta) / (theta - theta_prime)])


def _fieller(
    pi: float, slope: float, variances: Floats, priors: tuple[float, float], reach: float
) -> tuple[float, float]:
    """All shares at which the deviation of the means is within ``reach`` standard errors; infinite ends if unbounded.

    The deviation at π + x is x·slope and its variance a quadratic in x, so the ends are roots of a quadratic.
    """
    weights, step = _mixing(pi, priors), _mixing(pi + 1, priors) - _mixing(pi, priors)
    a = slope**2 - reach**2 * float(step**2 @ variances)
    b = -2 * reach**2 * float(weights * step @ variances)
    c = -(reach**2) * float(weights**2 @ variances)
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(b * b - 4 * a * c)  # real, since c ≤ 0 < a
    return pi + (-b - root) / (2 * a), pi + (-b + root) / (2 * a)


def _misfit(scores: list[Floats], pi: float, priors: tuple[float, float]) -> float:
    """p-value of the counts in bins of the scores, if the target were a mixture with the share π.

    χ² with one degree of freedom for each bin but the last: one more than is left after π was estimated, so that a
    small value is not an artefact.
    """
    bins = int(np.clip(min(map(len, scores)) // ROWS_A_BIN, 2, MOST_BINS))
    together = np.concatenate(scores)
    cuts = np.unique(np.quantile(together, np.arange(1, bins) / bins, method="lower"))
    cuts = cuts[cuts < together.max()]
    weights = _mixing(pi, priors)
    deviation, covariance = np.zeros(len(cuts)), np.zeros((len(cuts), len(cuts)))
    for weight, values in zip(weights, scores, strict=True):
        share = np.bincount(np.searchsorted(cuts, values), minlength=len(cuts) + 1)[:-1] / len(values)
        deviation += weight * share
        covariance += weight**2 * (np.diag(share) - np.outer(share, share)) / len(values)
    distance = float(deviation @ np.linalg.pinv(covariance, hermitian=True) @ deviation)
    return float(stats.chi2.sf(distance, len(cuts)))


def _warn(pi: float, error: float, unbounded: bool, p_value: float) -> None:
    if unbounded:
        warnings.warn(
            "the two sets are so much alike in their scores that the target rows may hold any share of positives; use "
            "sets whose shares differ more, more rows, or a better model, or label a sample of target rows.",
            UnidentifiedPriorsWarning,
            stacklevel=3,
        )
        return
    reason = None
    if p_value < MISFIT:
        reason = f"at no share of positives do the scores of the three sets agree (p = {p_value:.2g})"
    elif not -OUTSIDE * error <= pi <= 1 + OUTSIDE * error:
        reason = f"the estimated share is {pi:.3f} with a standard error of {error:.3f}"
    if reason is not None:
        warnings.warn(
            f"the target rows are not a mixture of the classes in the two sets: {reason}. Their classes differ, or the "
            "scores are of rows that the model was trained on, or set_priors are wrong; label a sample of target rows.",
            NotAMixtureWarning,
            stacklevel=3,
        )
