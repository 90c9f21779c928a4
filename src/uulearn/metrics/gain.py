"""Which of two classifiers is better, without labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from uulearn.metrics.estimates import CONFIDENCE, Estimate, check_confidence, clipped, quantile, read_scores
from uulearn.risk.coefficients import check_target_prior, uu_coefficients


def uu_gain(
    scores: Any,
    baseline: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    threshold: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Accuracy of one classifier minus that of another at class prior π, on the same rows of two unlabeled sets.

    Only rows on which the two disagree count, so that the difference is known far more precisely than either accuracy:
    two classifiers that agree on nine rows of ten are compared with about a third of the noise.

    Parameters
    ----------
    scores, baseline : arrays of shape (n,)
        Scores of the two classifiers for the same held-out rows; above the threshold is predicted positive.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1.
    set_priors, target_prior
        (θ, θ′) and π.

    Examples
    --------
    >>> sets, old, new = [0, 0, 0, 0, 1, 1, 1, 1], [1, 1, -1, -1, 1, 1, -1, -1], [1, 1, 1, -1, 1, -1, -1, -1]
    >>> uu_gain(new, old, sets, (0.75, 0.25), 0.5).value
    0.5
    """
    a, b, c, d = uu_coefficients(set_priors, check_target_prior(target_prior))
    confidence = check_confidence(confidence)
    changes = [
        (new > threshold).astype(float) - (old > threshold).astype(float)
        for new, old in zip(read_scores(scores, sets), read_scores(baseline, sets), strict=True)
    ]
    weights = (a + b, -(c + d))
    value = sum(weight * float(change.mean()) for weight, change in zip(weights, changes, strict=True))
    variance = sum(
        weight**2 * float(change.var()) / len(change) for weight, change in zip(weights, changes, strict=True)
    )
    error = math.sqrt(variance)
    half = quantile(confidence) * error
    return Estimate(value, error, clipped((value - half, value + half), (-1.0, 1.0)), confidence)
