"""Estimate the class prior of unlabeled target rows from their scores.

If the target rows are a mixture of the same two classes, the mean of any function of the scores is linear in the class
prior π. Let m be the mean over the target rows, and m₀ and m₁ the means over the two sets. Then

    m = ((π − θ′)·m₀ + (θ − π)·m₁)/(θ − θ′),   so   π = θ + (m − m₀)(θ′ − θ)/(m₁ − m₀).
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from uulearn.exceptions import NotAMixtureWarning, UnidentifiedPriorsWarning
from uulearn.markup import notebook
from uulearn.metrics.estimates import Floats, check_confidence
from uulearn.priors.labels import Interval
from uulearn.priors.scoring import read_scores
from uulearn.risk.coefficients import check_set_priors

MIN_SCORES = 20  # minimum number of rows in a sample; with fewer, the interval is not useful
MAX_BINS, MIN_ROWS_PER_BIN = 10, 10  # bins of the χ² test of fit
MISFIT_LEVEL = 0.01  # p-value of the test of fit below which a warning is raised
MAX_ERRORS_OUTSIDE = 3.0  # standard errors outside [0, 1] above which noise does not explain an estimate


@dataclass(frozen=True)
class TargetPriorEstimate:
    """Estimated class prior of unlabeled target rows.

    >>> rng = np.random.default_rng(0)
    >>> found = estimate_target_prior(*rng.random((3, 50)) + [[0.2], [0.4], [0.0]], (0.8, 0.2))
    >>> round(found.target_prior, 1), round(found.standard_error, 1)
    (0.5, 0.1)
    """

    target_prior: float  # estimate of π; noise can move it outside [0, 1]
    interval: Interval  # clipped to [0, 1]
    standard_error: float
    confidence: float
    misfit_p_value: float  # p-value of the hypothesis that the target rows are a mixture of the same classes

    def _repr_html_(self) -> str:
        parts = [notebook.bar_table([self.interval.bar("target prior π", self.target_prior)])]
        parts.append(
            notebook.note(f"{100 * self.confidence:g}% interval; test of the mixture: p = {self.misfit_p_value:.2g}")
        )
        if self.misfit_p_value < MISFIT_LEVEL:
            parts.append(notebook.warning("the target rows do not look like a mixture of the two classes."))
        return notebook.join(*parts)


def estimate_target_prior(
    scores_target: Any, scores0: Any, scores1: Any, set_priors: Sequence[float], *, confidence: float = 0.95
) -> TargetPriorEstimate:
    """Estimate the class prior π of unlabeled target rows from their scores and the scores of two sets.

    π is computed from the mean ranks of the scores, which do not depend on the scale of the scores. The interval is
    Fieller's interval for a ratio, which is valid even if the sets are similar; docs/studies/priors.md reports its
    coverage. A NotAMixtureWarning is issued if the target rows do not look like a mixture of the two classes. An
    UnidentifiedPriorsWarning is issued if the scores are consistent with any class prior.

    Parameters
    ----------
    scores_target : array of shape (m,)
        Scores of at least 20 target rows, computed by a model that was not trained on these rows. The better the scores
        separate the classes, the smaller the standard error.
    scores0 : array of shape (n,)
        Scores of at least 20 rows of set 0, computed by the same model, which was not trained on these rows.
    scores1 : array of shape (n′,)
        The same for set 1.
    set_priors : (θ, θ′)
        Class priors of set 0 and of set 1, assumed to be exact.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, prior):
    ...     return rng.normal(np.where(rng.random(n) < prior, 1, -1), 1)
    >>> found = estimate_target_prior(draw(2000, 0.4), draw(3000, 0.8), draw(3000, 0.3), (0.8, 0.3))
    >>> print("{:.2f} in [{:.2f}, {:.2f}]".format(found.target_prior, *found.interval))
    0.41 in [0.37, 0.44]
    """
    priors = check_set_priors(set_priors)
    check_confidence(confidence)
    given = {"scores_target": scores_target, "scores0": scores0, "scores1": scores1}
    scores = [read_scores(values, name) for name, values in given.items()]
    for values, name in zip(scores, given, strict=True):
        if len(values) < MIN_SCORES:
            raise ValueError(f"{name} has {len(values)} scores; pass at least {MIN_SCORES}.")
    sizes = [len(values) for values in scores]
    ranks = np.split(stats.rankdata(np.concatenate(scores)) / sum(sizes), np.cumsum(sizes)[:2])
    means = np.array([values.mean() for values in ranks])
    variances = np.array([values.var(ddof=1) / len(values) for values in ranks])
    if means[1] == means[2]:
        raise ValueError("the scores do not distinguish the sets (equal mean ranks); pass scores of a better model.")
    pi = priors[0] + (means[0] - means[1]) * (priors[1] - priors[0]) / (means[2] - means[1])
    slope = (means[1] - means[2]) / (priors[0] - priors[1])
    error = math.sqrt(_mixing(pi, priors) ** 2 @ variances) / abs(slope)
    quantile = float(stats.t.ppf((1 + confidence) / 2, min(sizes) - 1))
    low, high = _fieller(pi, slope, variances, priors, quantile)
    p_value = _misfit(scores, pi, priors)
    _warn_if_unreliable(pi, error, math.isinf(low), p_value)
    interval = Interval(float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1)))
    return TargetPriorEstimate(float(pi), interval, float(error), confidence, p_value)


def _mixing(pi: float, priors: tuple[float, float]) -> Floats:
    """Return weights of the target, set 0 and set 1; the weighted mean score is 0 for a mixture with class prior π."""
    theta, theta_prime = priors
    return np.array([1.0, (theta_prime - pi) / (theta - theta_prime), (pi - theta) / (theta - theta_prime)])


def _fieller(
    pi: float, slope: float, variances: Floats, priors: tuple[float, float], quantile: float
) -> tuple[float, float]:
    """Return the interval of priors for which the weighted mean is within ``quantile`` standard errors of 0.

    At prior π + x, the weighted mean is −x·slope, and its variance is quadratic in x. The ends of the interval are
    therefore roots of a quadratic equation, or infinite if the interval is unbounded.
    """
    weights, step = _mixing(pi, priors), _mixing(pi + 1, priors) - _mixing(pi, priors)
    a = slope**2 - quantile**2 * float(step**2 @ variances)
    b = -2 * quantile**2 * float(weights * step @ variances)
    c = -(quantile**2) * float(weights**2 @ variances)
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(b * b - 4 * a * c)  # the roots are real, because c ≤ 0 < a
    return pi + (-b - root) / (2 * a), pi + (-b + root) / (2 * a)


def _misfit(scores: list[Floats], pi: float, priors: tuple[float, float]) -> float:
    """Return the p-value of a χ² test of whether the binned target scores are a mixture with class prior π.

    The degrees of freedom are not reduced for the estimated π, which makes the test conservative.
    """
    bins = int(np.clip(min(map(len, scores)) // MIN_ROWS_PER_BIN, 2, MAX_BINS))
    pooled = np.concatenate(scores)
    cuts = np.unique(np.quantile(pooled, np.arange(1, bins) / bins, method="lower"))
    cuts = cuts[cuts < pooled.max()]
    weights = _mixing(pi, priors)
    deviation, covariance = np.zeros(len(cuts)), np.zeros((len(cuts), len(cuts)))
    for weight, values in zip(weights, scores, strict=True):
        fractions = np.bincount(np.searchsorted(cuts, values), minlength=len(cuts) + 1)[:-1] / len(values)
        deviation += weight * fractions
        covariance += weight**2 * (np.diag(fractions) - np.outer(fractions, fractions)) / len(values)
    distance = float(deviation @ np.linalg.pinv(covariance, hermitian=True) @ deviation)
    return float(stats.chi2.sf(distance, len(cuts)))


def _warn_if_unreliable(pi: float, error: float, unbounded: bool, p_value: float) -> None:
    if unbounded:
        warnings.warn(
            "the scores of the two sets are so similar that any class prior of the target rows is possible. Use sets "
            "whose class priors differ more, use more rows or a better model, or label a sample of target rows.",
            UnidentifiedPriorsWarning,
            stacklevel=3,
        )
        return
    reason = None
    if p_value < MISFIT_LEVEL:
        reason = f"no class prior is consistent with the scores of the three samples (p = {p_value:.2g})"
    elif not -MAX_ERRORS_OUTSIDE * error <= pi <= 1 + MAX_ERRORS_OUTSIDE * error:
        reason = f"the estimated class prior is {pi:.3f} with a standard error of {error:.3f}"
    if reason is not None:
        warnings.warn(
            f"the target rows do not look like a mixture of the two classes: {reason}. The classes may have "
            "shifted, the model may have been trained on these rows, or set_priors may be wrong; label a sample of "
            "target rows.",
            NotAMixtureWarning,
            stacklevel=3,
        )
