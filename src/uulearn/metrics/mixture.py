"""Use a classifier's scores to check whether two sets can be mixtures of the same positives and negatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uulearn.metrics.estimates import combine_proportions, split_scores
from uulearn.risk.coefficients import check_set_priors

CONFIDENCE = 0.999  # confidence level of the interval of each rate
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles of the scores at which the sets are compared

Interval = tuple[float, float]


@dataclass(frozen=True)
class MixtureCheck:
    """Result of checking whether the scores of two sets violate the mixture assumption."""

    differ: bool
    thresholds: tuple[float, ...]
    true_positive: tuple[Interval, ...]
    """For each threshold, an interval for the fraction of positives above it; valid intervals overlap [0, 1]."""
    false_positive: tuple[Interval, ...]
    reason: str | None


def check_mixture(scores: Any, sets: Any, set_priors: Sequence[float]) -> MixtureCheck:
    """Check whether scores distinguish two sets better than the class priors allow.

    All columns together may violate a bound that no single column violates. At each of five thresholds, both rates
    (`uulearn.metrics.uu_rates`) are estimated from the fraction of each set above the threshold. A 99.9% interval
    outside [0, 1] raises an alarm. In simulations of 36 true mixtures, at most 0.13% of the runs raised an alarm.

    Scores must be higher for rows that resemble the set with the higher prior, and must be out-of-fold
    (`uulearn.priors.out_of_fold_scores`). ``sets`` contains the set of each row, 0 or 1.

    >>> scores, sets = np.linspace(1, -1, 2000), np.repeat([0, 1], 1000)  # set 0 is higher
    >>> check_mixture(scores, sets, (0.8, 0.2)).differ
    True
    >>> check_mixture(scores, sets, (1.0, 0.0)).differ
    False
    """
    theta, theta_prime = check_set_priors(set_priors)
    parts = split_scores(scores, sets)
    sizes, gap = [len(part) for part in parts], theta - theta_prime
    thresholds = tuple(float(t) for t in np.quantile(np.concatenate(parts), QUANTILES, method="inverted_cdf"))
    shares = [[float((part > threshold).mean()) for part in parts] for threshold in thresholds]
    weights = ((1 - theta_prime) / gap, (theta - 1) / gap), (-theta_prime / gap, theta / gap)
    unbounded = (-np.inf, np.inf)
    rates = [
        tuple(combine_proportions(own, sizes, pair, 0.0, CONFIDENCE, unbounded).interval for own in shares)
        for pair in weights
    ]
    reason = None
    for which, position in np.ndindex(2, len(thresholds)):
        low, high = rates[which][position]
        if reason is None and (high < 0 or low > 1):
            q = [f"{100 * share:.0f}%" for share in shares[position]]
            reason = (
                f"The sets differ by more than the class priors allow: {q[0]} of the rows of set 0 and {q[1]} of set 1 "
                f"score high. With priors of {theta:g} and {theta_prime:g}, {100 * low:.0f}% to {100 * high:.0f}% "
                f"of the {('positives', 'negatives')[which]} would score high, which is impossible."
            )
    return MixtureCheck(reason is not None, thresholds, rates[0], rates[1], reason)
