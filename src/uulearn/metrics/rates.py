"""Estimate true- and false-positive rates, accuracy, cost and AUC from two unlabeled sets.

Let q and q′ be the fractions of the two sets that are predicted positive. With true-positive rate t and false-positive
rate f, their expectations are θt + (1 − θ)f and θ′t + (1 − θ′)f: two equations with two unknowns. All estimates are
linear in q and q′ and therefore unbiased, and their standard errors have a closed form.

A row of set 0 has a higher score than a row of set 1 with probability ½ + (θ − θ′)(A − ½), where A is the AUC, the
probability that a positive has a higher score than a negative (Menon et al., 2015).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from uulearn.metrics.estimates import (
    CI_LEVEL,
    Estimate,
    Floats,
    check_confidence,
    clip_estimate,
    combine_proportions,
    split_by_prior,
    two_sided_quantile,
)
from uulearn.metrics.out_of_fold import OutOfFoldCorrection
from uulearn.risk.coefficients import check_priors, check_target_prior, multi_set_coefficients


@dataclass(frozen=True)
class Rates:
    """True-positive rate and false-positive rate, as estimates with intervals."""

    true_positive: Estimate
    false_positive: Estimate


@dataclass(frozen=True)
class PredictedFractions:
    """Fraction of each set that is predicted positive, with the sizes and priors of the sets.

    The fraction of a small set can be outside [0, 1] after a correction for out-of-fold scores. A set without rows does
    not change the estimates.
    """

    fractions: tuple[float, ...]
    sizes: tuple[int, ...]
    set_priors: tuple[float, ...]
    confidence: float
    error_scale: float = 1.0

    def combine(self, true_positive: float, false_positive: float, constant: float, most: float = 1.0) -> Estimate:
        """Estimate constant + true_positive·t + false_positive·f, a metric between 0 and ``most``."""
        weights = self._weights(true_positive, false_positive)
        parts = zip(self.fractions, self.sizes, weights, strict=True)
        known = [(fraction, size / self.error_scale**2, weight) for fraction, size, weight in parts if size]
        fractions, sizes, used = map(np.array, zip(*known, strict=True))
        inside = fractions.clip(0, 1)
        constant += float(used @ (fractions - inside))
        error = self._pooled_error(weights) if len(known) > 2 else 0.0
        return combine_proportions(
            inside.tolist(), sizes.tolist(), used.tolist(), constant, self.confidence, (0.0, most), error
        )

    def _pooled_error(self, weights: Sequence[float]) -> float:
        """Return the standard error of Σ w_j·q_j, if the expectation of q_j is θ_j·t + (1 − θ_j)·f.

        The rates t and f are estimated from all sets. The variance within a set is unknown if the set has few rows, so
        many small sets would have too small an error.
        """
        priors, sizes, fractions = map(np.array, (self.set_priors, self.sizes, self.fractions))
        t, f = (float(np.array(self._weights(*rates)) @ fractions) for rates in ((1, 0), (0, 1)))
        expected = (priors * t + (1 - priors) * f).clip(0, 1)
        variances = np.square(weights) * expected * (1 - expected) / sizes.clip(min=1)
        total = int(sizes.sum())
        factor = total / max(1, total - 2)  # two rates are estimated
        return self.error_scale * math.sqrt(factor * float(variances.sum()))

    def _weights(self, true_positive: float, false_positive: float) -> list[float]:
        """Return w with Σ w_j·θ_j = true_positive and Σ w_j·(1 − θ_j) = false_positive.

        For more than two sets, Σ w_j²/n_j is minimized, as in `uulearn.risk.multi_set_coefficients`.
        """
        if len(self.set_priors) == 2:
            theta, theta_prime = self.set_priors
            gap = theta - theta_prime
            return [
                (true_positive * (1 - theta_prime) - false_positive * theta_prime) / gap,
                (false_positive * theta - true_positive * (1 - theta)) / gap,
            ]
        priors, fractions = np.array(self.set_priors), np.array(self.sizes) / sum(self.sizes)
        mean, total = float(fractions @ priors), true_positive + false_positive
        slope = (true_positive - total * mean) / float(fractions @ (priors - mean) ** 2)
        return [float(weight) for weight in fractions * (total + slope * (priors - mean))]


def predicted_fractions(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    threshold: float,
    confidence: float,
    correction: OutOfFoldCorrection | None = None,
) -> PredictedFractions:
    """Return the fraction of rows above the threshold in each set, corrected if the scores are out-of-fold scores."""
    priors, confidence = check_priors(set_priors, number="two or more"), check_confidence(confidence)
    parts = split_by_prior(scores, sets, priors)
    change, scale = (0.0, 0.0), 1.0
    if correction is not None:
        change, scale = correction.rates(threshold), correction.error_scale
    fractions = tuple(
        float((part > threshold).mean()) + prior * change[0] + (1 - prior) * change[1] if len(part) else 0.0
        for part, prior in zip(parts, priors, strict=True)
    )
    return PredictedFractions(fractions, tuple(map(len, parts)), tuple(priors), confidence, scale)


def uu_rates(
    scores: Any, sets: Any, set_priors: Sequence[float], *, threshold: float = 0.0, confidence: float = CI_LEVEL
) -> Rates:
    """Estimate the true- and false-positive rates from two or more unlabeled sets.

    Parameters
    ----------
    scores : array of shape (n,)
        Scores of held-out rows of all sets.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1; for m sets, 0 to m − 1.
    set_priors : (θ, θ′), or m > 2 numbers
        Class prior of each set. For more than two sets, the returned estimate has the smallest variance if the variance
        of the predictions is the same in all sets. Sets without rows are ignored.
    threshold : float
        Rows with a score above this value are predicted positive.
    confidence : float
        Confidence level of the intervals.

    Examples
    --------
    >>> rates = uu_rates([1, 1, 1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1], (0.75, 0.25))
    >>> rates.true_positive.value, rates.false_positive.value
    (1.0, 0.0)
    """
    predicted = predicted_fractions(scores, sets, set_priors, threshold, confidence)
    return Rates(predicted.combine(1, 0, 0), predicted.combine(0, 1, 0))


def uu_accuracy(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    threshold: float = 0.0,
    confidence: float = CI_LEVEL,
) -> Estimate:
    """Estimate the accuracy at class prior π from two unlabeled sets: one minus the unbiased zero-one risk (Eq. 4).

    See `uu_rates` for the parameters.

    >>> scores, sets = [1, 1, 1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> uu_accuracy(scores, sets, (0.75, 0.25), 0.5).value
    1.0
    """
    pi = check_target_prior(target_prior)
    predicted = predicted_fractions(scores, sets, set_priors, threshold, confidence)
    return predicted.combine(pi, pi - 1, 1 - pi)


def uu_balanced_accuracy(
    scores: Any, sets: Any, set_priors: Sequence[float], *, threshold: float = 0.0, confidence: float = CI_LEVEL
) -> Estimate:
    """Estimate the mean of the accuracies on positives and on negatives from two unlabeled sets.

    The value is ½ + (q − q′)/(2(θ − θ′)), so the ranking of models does not depend on the priors (Menon et al., 2015).

    >>> uu_balanced_accuracy([1, 1, -1, -1, -1, -1], [0, 0, 0, 1, 1, 1], (0.9, 0.1)).value
    0.9166666666666666
    """
    return predicted_fractions(scores, sets, set_priors, threshold, confidence).combine(0.5, -0.5, 0.5)


def uu_cost(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    false_positive_cost: float,
    false_negative_cost: float,
    threshold: float = 0.0,
    confidence: float = CI_LEVEL,
) -> Estimate:
    """Estimate the expected cost per row at class prior π from two unlabeled sets.

    See `uu_rates` for the other parameters, and `uulearn.metrics.calibration.bayes_threshold` for the threshold with
    the lowest cost.

    >>> scores, sets = [1, 1, -1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> uu_cost(scores, sets, (0.75, 0.25), 0.5, false_positive_cost=1, false_negative_cost=9).value
    1.75
    """
    pi = check_target_prior(target_prior)
    for name, cost in (("false_positive_cost", false_positive_cost), ("false_negative_cost", false_negative_cost)):
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f"{name} must be a finite number of at least 0, got {cost!r}.")
    all_negative, all_positive = pi * false_negative_cost, (1 - pi) * false_positive_cost
    predicted = predicted_fractions(scores, sets, set_priors, threshold, confidence)
    return predicted.combine(-all_negative, all_positive, all_negative, most=all_negative + all_positive)


def uu_accuracy_difference(
    scores: Any,
    baseline: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    threshold: float = 0.0,
    confidence: float = CI_LEVEL,
) -> Estimate:
    """Estimate the difference between the accuracies of two classifiers at class prior π from the same unlabeled rows.

    Only rows with different predictions contribute, so the difference is much more precise than either accuracy.
    ``scores`` and ``baseline`` are the scores of the two classifiers for the same held-out rows.

    >>> old, new = [1, 1, -1, -1, 1, 1, -1, -1], [1, 1, 1, -1, 1, -1, -1, -1]
    >>> uu_accuracy_difference(new, old, [0, 0, 0, 0, 1, 1, 1, 1], (0.75, 0.25), 0.5).value
    0.5
    """
    priors, confidence = check_priors(set_priors, number="two or more"), check_confidence(confidence)
    pairs = zip(*(split_by_prior(own, sets, priors) for own in (scores, baseline)), strict=True)
    changes = [(new > threshold).astype(float) - (old > threshold).astype(float) for new, old in pairs]
    used = [prior for prior, change in zip(priors, changes, strict=True) if len(change)]
    changes = [change for change in changes if len(change)]
    coefficients = multi_set_coefficients(used, [len(change) for change in changes], target_prior)
    weighted = [(a - b, change) for a, b, change in zip(*coefficients, changes, strict=True)]
    value = sum(weight * float(change.mean()) for weight, change in weighted)
    variances = [float(change.var(ddof=1)) / len(change) if len(change) > 1 else 0.0 for change in changes]
    if len(used) > 2:
        # In a set with one row, the difference from the expected value is used, a linear function of the class prior.
        sizes = [len(change) for change in changes]
        line = np.polyfit(np.repeat(used, sizes), np.concatenate(changes), 1)
        factor = sum(sizes) / (sum(sizes) - 2)  # the two parameters of the line are estimated
        for which, (prior, change) in enumerate(zip(used, changes, strict=True)):
            if len(change) == 1:
                variances[which] = factor * float(change[0] - np.polyval(line, prior)) ** 2
    terms = zip(weighted, variances, strict=True)
    error = math.sqrt(sum(weight**2 * variance for (weight, _), variance in terms))
    half = two_sided_quantile(confidence) * error
    return clip_estimate(value, error, (value - half, value + half), confidence, (-1.0, 1.0))


def uu_auc(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    *,
    confidence: float = CI_LEVEL,
    correction: OutOfFoldCorrection | None = None,
) -> Estimate:
    """Estimate the area under the ROC curve from two or more unlabeled sets; see `uu_rates` for the parameters.

    The mean rank of the rows of a set, as a fraction of all rows, is a linear function of the class prior of the set,
    with slope AUC − ½. The slope is estimated by least squares; for two sets, this is the AUC between the sets.

    >>> uu_auc([1, 1, 1, 1, -1, 1, -1, -1, -1, -1], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], (0.8, 0.2)).value
    1.0
    """
    priors, confidence = check_priors(set_priors, number="two or more"), check_confidence(confidence)
    change, scale = (0.0, 1.0) if correction is None else (correction.auc(), correction.error_scale)
    parts = split_by_prior(scores, sets, priors)
    if len(priors) > 2:
        value, error = _rank_slope(parts, priors)
        value, error = 0.5 + value + change, scale * error
        half = two_sided_quantile(confidence) * error
        return clip_estimate(value, error, (value - half, value + half), confidence)
    theta, theta_prime = priors
    between_sets = two_sample_auc(parts[0], parts[1], confidence, scale)
    gap = theta - theta_prime

    def between_classes(value: float) -> float:
        return 0.5 + (value - 0.5) / gap + change

    low, high = sorted(map(between_classes, between_sets.interval))
    error = between_sets.standard_error / abs(gap)
    return clip_estimate(between_classes(between_sets.value), error, (low, high), confidence)


def _rank_slope(parts: Sequence[Floats], priors: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the ranks of rows, from 0 to 1, on the class priors of their sets, and its standard error.

    The standard error generalizes that of DeLong et al. (1988). A row contributes its own rank, and it changes the
    ranks of the rows with higher scores. The variance of the sum of both is estimated within each set. In a set with
    one row, it is estimated by the squared difference from the expected value, because the expectations of both parts
    are linear functions of the class prior. The variance is at least that of an AUC half a row away from 0 or 1, for
    the rows with priors above and below the mean; otherwise, it would be zero if the sets do not overlap.
    """
    sizes, scores = [len(part) for part in parts], np.concatenate(parts)
    theta, n = np.repeat(priors, sizes), len(scores)
    centered = theta - theta.mean()
    _, place = np.unique(scores, return_inverse=True)
    equal, weight = np.bincount(place), np.bincount(place, centered)
    below = ((np.cumsum(equal) - equal / 2) / n)[place]  # ties count as ½
    above = ((weight.sum() - np.cumsum(weight) + weight / 2) / n)[place]
    spread = float(centered @ centered)
    slope = float(centered @ below) / spread
    influence = (centered * below + above) / spread
    within = np.split(influence, np.cumsum(sizes)[:-1])
    variance = sum(len(part) * float(part.var(ddof=1)) for part in within if len(part) > 1)
    alone = np.repeat(np.equal(sizes, 1), sizes)
    expected = centered * (0.5 + slope * centered) + above.mean() + centered * float(centered @ above) / spread
    error = (influence - expected / spread)[alone]
    variance += float(error @ error) * n / max(1, n - 2)  # the two parameters of a line are estimated
    higher = centered > 0
    smaller = min(np.count_nonzero(higher), np.count_nonzero(~higher))
    floor = 0.5 / smaller * (1 - 0.5 / smaller) / smaller / float(theta[higher].mean() - theta[~higher].mean()) ** 2
    return slope, math.sqrt(max(variance, floor))


def two_sample_auc(higher: Floats, lower: Floats, confidence: float, error_scale: float = 1.0) -> Estimate:
    """Estimate the probability that a score from the first sample exceeds one from the second; ties count as ½.

    The standard error follows DeLong et al. (1988), and the interval is computed on the log-odds scale. If the samples
    do not overlap, DeLong's variance is zero, so the binomial variance for an AUC half a pair away from 0 or 1 is used.
    """
    m, n = len(higher), len(lower)
    ranks = rankdata(np.concatenate([higher, lower]))
    wins = (ranks[:m] - rankdata(higher)) / n  # for each row, the fraction of the other sample below it
    losses = 1 - (ranks[m:] - rankdata(lower)) / m
    value = float(wins.mean())
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (wins, losses))
    inside = min(max(value, 0.5 / (m * n)), 1 - 0.5 / (m * n))
    if inside != value:
        variance = inside * (1 - inside) / min(m, n)
    variance *= error_scale**2
    log_odds, error = math.log(inside / (1 - inside)), math.sqrt(variance) / (inside * (1 - inside))
    ends = (log_odds + sign * two_sided_quantile(confidence) * error for sign in (-1, 1))
    low, high = (1 / (1 + math.exp(-min(max(end, -500.0), 500.0))) for end in ends)
    return Estimate(value, math.sqrt(variance), (low, high), confidence)
