"""The area under the ROC curve from two unlabeled sets.

A row of set 0 has a higher score than a row of set 1 with probability A₀₁ = ½ + (θ − θ′)(A − ½). Here A is the AUC, the
probability that a positive has a higher score than a negative (Menon et al., 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from uulearn.metrics.estimates import (
    CONFIDENCE,
    Estimate,
    Floats,
    check_confidence,
    clip_interval,
    split_scores,
    two_sided_quantile,
)
from uulearn.risk.coefficients import check_set_priors


def uu_auc(scores: Any, sets: Any, set_priors: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Area under the ROC curve estimated from two unlabeled sets; see `uulearn.metrics.uu_rates` for the parameters.

    Examples
    --------
    >>> uu_auc([1, 1, 1, 1, -1, 1, -1, -1, -1, -1], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], (0.8, 0.2)).value
    1.0
    """
    theta, theta_prime = check_set_priors(set_priors)
    confidence = check_confidence(confidence)
    between_sets = two_sample_auc(*split_scores(scores, sets), confidence)
    gap = theta - theta_prime

    def between_classes(value: float) -> float:
        return 0.5 + (value - 0.5) / gap

    low, high = sorted(map(between_classes, between_sets.interval))
    interval = clip_interval((low, high), (0.0, 1.0))
    return Estimate(between_classes(between_sets.value), between_sets.standard_error / abs(gap), interval, confidence)


def two_sample_auc(higher: Floats, lower: Floats, confidence: float) -> Estimate:
    """Probability that a score of the first sample exceeds a score of the second; ties count as one half.

    The standard error is that of DeLong et al. (1988), and the interval is computed on the log-odds scale. If the
    samples do not overlap, DeLong's variance is zero; that of an AUC half a pair away from 0 or 1 is used instead.
    """
    m, n = len(higher), len(lower)
    ranks = rankdata(np.concatenate([higher, lower]))
    wins = (ranks[:m] - rankdata(higher)) / n  # per row: the fraction of the other sample below it
    losses = 1 - (ranks[m:] - rankdata(lower)) / m
    value = float(wins.mean())
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (wins, losses))
    inside = min(max(value, 0.5 / (m * n)), 1 - 0.5 / (m * n))
    if inside != value:
        variance = inside * (1 - inside) / min(m, n)
    log_odds, error = math.log(inside / (1 - inside)), math.sqrt(variance) / (inside * (1 - inside))
    ends = (log_odds + sign * two_sided_quantile(confidence) * error for sign in (-1, 1))
    low, high = (1 / (1 + math.exp(-min(max(end, -500.0), 500.0))) for end in ends)
    return Estimate(value, math.sqrt(variance), (low, high), confidence)
