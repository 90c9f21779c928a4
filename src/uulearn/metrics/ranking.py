"""The area under the ROC curve from two unlabeled sets.

A row of set 0 scores higher than one of set 1 with probability A₀₁ = ½ + (θ − θ′)(A − ½), where A is the probability
that a positive scores higher than a negative (Menon et al., 2015): pairs of the same class are won half the time, and
pairs of different classes as often as A says, one way or the other.
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
    clipped,
    quantile,
    read_scores,
)
from uulearn.risk.coefficients import check_set_priors


def uu_auc(scores: Any, sets: Any, set_priors: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """Area under the ROC curve estimated from two unlabeled sets; it needs no threshold and no class prior.

    Parameters
    ----------
    scores : array of shape (n,)
        Of held-out rows of both sets.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1.
    set_priors : (θ, θ′)
    confidence : float

    Examples
    --------
    >>> uu_auc([1, 1, 1, 1, -1, 1, -1, -1, -1, -1], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1], (0.8, 0.2)).value
    1.0
    """
    theta, theta_prime = check_set_priors(set_priors)
    confidence = check_confidence(confidence)
    between = area(*read_scores(scores, sets), confidence)
    gap = theta - theta_prime

    def true_area(value: float) -> float:
        return 0.5 + (value - 0.5) / gap

    low, high = sorted(map(true_area, between.interval))
    return Estimate(
        true_area(between.value), between.standard_error / abs(gap), clipped((low, high), (0.0, 1.0)), confidence
    )


def area(higher: Floats, lower: Floats, confidence: float) -> Estimate:
    """Probability that a score of the first sample exceeds one of the second, ties counting half.

    The standard error is that of DeLong et al. (1988), from ranks; the interval is taken on the scale of the log-odds.
    Where one sample lies wholly above the other, the area is taken half a pair away from the edge, since the ranks
    then show no spread.
    """
    m, n = len(higher), len(lower)
    ranks = rankdata(np.concatenate([higher, lower]))
    wins = (ranks[:m] - rankdata(higher)) / n  # of each row: the share of the other sample below it
    losses = 1 - (ranks[m:] - rankdata(lower)) / m
    value = float(wins.mean())
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (wins, losses))
    inside = min(max(value, 0.5 / (m * n)), 1 - 0.5 / (m * n))
    if inside != value:
        variance = inside * (1 - inside) / min(m, n)
    odds, spread = math.log(inside / (1 - inside)), math.sqrt(variance) / (inside * (1 - inside))
    ends = (odds + sign * quantile(confidence) * spread for sign in (-1, 1))
    low, high = (1 / (1 + math.exp(-min(max(end, -500.0), 500.0))) for end in ends)
    return Estimate(value, math.sqrt(variance), (low, high), confidence)
