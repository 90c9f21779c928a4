"""True- and false-positive rates, and what follows from them, out of two unlabeled sets.

Let q and q′ be the shares of the two sets that are predicted positive. With rates t (of positives) and f (of
negatives) they are q = θt + (1 − θ)f and q′ = θ′t + (1 − θ′)f: two equations with two unknowns. Everything here is
linear in q and q′, hence unbiased, with a standard error in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uulearn.metrics.estimates import CONFIDENCE, Estimate, check_confidence, read_scores, sum_of_shares
from uulearn.risk.coefficients import check_set_priors, check_target_prior


@dataclass(frozen=True)
class Rates:
    """Share of positives, and of negatives, that are predicted positive."""

    true_positive: Estimate
    false_positive: Estimate


@dataclass(frozen=True)
class Predicted:
    """Shares of both sets that are predicted positive, and what they were counted on."""

    shares: tuple[float, float]
    sizes: tuple[int, int]
    set_priors: tuple[float, float]
    confidence: float

    def combine(self, true_positive: float, false_positive: float, constant: float, most: float = 1.0) -> Estimate:
        """constant + weight·t + weight·f, for the two rates; a figure between 0 and ``most``."""
        theta, theta_prime = self.set_priors
        gap = theta - theta_prime
        weights = (
            (true_positive * (1 - theta_prime) - false_positive * theta_prime) / gap,
            (false_positive * theta - true_positive * (1 - theta)) / gap,
        )
        return sum_of_shares(self.shares, self.sizes, weights, constant, self.confidence, (0.0, most))


def predicted_positive(
    scores: Any, sets: Any, set_priors: Sequence[float], threshold: float, confidence: float
) -> Predicted:
    """Count the rows above the threshold in each set."""
    priors, confidence = check_set_priors(set_priors), check_confidence(confidence)
    first, second = read_scores(scores, sets)
    shares = (float((first > threshold).mean()), float((second > threshold).mean()))
    return Predicted(shares, (len(first), len(second)), priors, confidence)


def uu_rates(
    scores: Any, sets: Any, set_priors: Sequence[float], *, threshold: float = 0.0, confidence: float = CONFIDENCE
) -> Rates:
    """True- and false-positive rate estimated from two unlabeled sets.

    Parameters
    ----------
    scores : array of shape (n,)
        Of held-out rows of both sets; above the threshold is predicted positive.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1.
    set_priors : (θ, θ′)
    threshold, confidence : float

    Examples
    --------
    >>> rates = uu_rates([1, 1, 1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1], (0.75, 0.25))
    >>> rates.true_positive.value, rates.false_positive.value
    (1.0, 0.0)
    """
    predicted = predicted_positive(scores, sets, set_priors, threshold, confidence)
    return Rates(predicted.combine(1, 0, 0), predicted.combine(0, 1, 0))


def uu_accuracy(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    threshold: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Accuracy at class prior π estimated from two unlabeled sets: one minus the unbiased zero-one risk (Eq. 4).

    Its standard error grows as 1/|θ − θ′|; see `uu_rates` for the parameters.

    Examples
    --------
    >>> scores, sets = [1, 1, 1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> uu_accuracy(scores, sets, (0.75, 0.25), 0.5).value
    1.0
    """
    pi = check_target_prior(target_prior)
    predicted = predicted_positive(scores, sets, set_priors, threshold, confidence)
    return predicted.combine(pi, pi - 1, 1 - pi)


def uu_balanced_accuracy(
    scores: Any, sets: Any, set_priors: Sequence[float], *, threshold: float = 0.0, confidence: float = CONFIDENCE
) -> Estimate:
    """Mean of the accuracies on positives and on negatives, estimated from two unlabeled sets.

    It is ½ + (q − q′)/(2(θ − θ′)), so that ranking models by it needs no prior at all (Menon et al., 2015); the
    balanced error is one minus it. See `uu_rates` for the parameters.

    Examples
    --------
    >>> uu_balanced_accuracy([1, 1, -1, -1, -1, -1], [0, 0, 0, 1, 1, 1], (0.9, 0.1)).value
    0.9166666666666666
    """
    return predicted_positive(scores, sets, set_priors, threshold, confidence).combine(0.5, -0.5, 0.5)


def uu_cost(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    false_positive_cost: float,
    false_negative_cost: float,
    threshold: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Expected cost of a prediction at class prior π, estimated from two unlabeled sets.

    With both costs 1 it is one minus the accuracy; see `uu_rates` for the other parameters, and
    `uulearn.metrics.calibration.bayes_threshold` for the threshold that makes it lowest.

    Examples
    --------
    >>> scores, sets = [1, 1, -1, -1, -1, 1, -1, -1], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> uu_cost(scores, sets, (0.75, 0.25), 0.5, false_positive_cost=1, false_negative_cost=9).value
    1.75
    """
    pi = check_target_prior(target_prior)
    for name, cost in (("false_positive_cost", false_positive_cost), ("false_negative_cost", false_negative_cost)):
        if not (math.isfinite(cost) and cost >= 0):
            raise ValueError(f"{name} must be a number of at least 0, got {cost!r}.")
    missed, raised = pi * false_negative_cost, (1 - pi) * false_positive_cost
    predicted = predicted_positive(scores, sets, set_priors, threshold, confidence)
    return predicted.combine(-missed, raised, missed, most=missed + raised)
