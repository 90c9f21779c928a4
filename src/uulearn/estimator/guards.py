"""Warnings about a trained model: predictions of only one class, and impossible accuracies."""

import warnings
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from uulearn.exceptions import OneSidedPredictionsWarning, SuspiciousScoreWarning
from uulearn.metrics.calibration import shift_log_odds
from uulearn.risk import estimation_cost

# If the class prior is within these bounds, predicting only one class indicates failed training.
MODERATE_PRIOR = (0.1, 0.9)
# An estimated accuracy is suspicious if it is outside [½, 1] by this many standard errors.
SUSPICIOUS_ERRORS = 4


def warn_if_one_sided(
    decisions: NDArray[Any],
    sizes: tuple[int, int],
    set_priors: tuple[float, float],
    target_prior: float,
    *,
    log_odds: bool,
    stacklevel: int = 2,
) -> None:
    """Warn if all rows get the same prediction although the priors imply at least a tenth of each class.

    Log-odds are shifted from the target prior to the class prior of the training rows. Other decision values are
    checked only if the target prior is within `MODERATE_PRIOR`.
    """
    prior = (sizes[0] * set_priors[0] + sizes[1] * set_priors[1]) / sum(sizes)
    low, high = MODERATE_PRIOR
    if not low <= prior <= high or not (log_odds or low <= target_prior <= high):
        return
    positive = (shift_log_odds(decisions, target_prior, prior) if log_odds else decisions) > 0
    if (positive == positive[0]).all():
        side = "positive" if positive[0] else "negative"
        warnings.warn(
            f"the trained model predicts {side} for all of {len(decisions):,} training rows, but about {prior:.0%} "
            "are positive; scale the columns, lower lr, train longer, and use no activation after the last layer.",
            OneSidedPredictionsWarning,
            stacklevel=stacklevel + 1,
        )


def warn_if_suspicious(
    accuracy: float, set_priors: Sequence[float], target_prior: float, sizes: tuple[int, int]
) -> None:
    """Warn if an estimated accuracy is so far below chance or above 1 that the priors or rows must be wrong."""
    noise = SUSPICIOUS_ERRORS * estimation_cost(set_priors, target_prior, sizes).standard_error
    if 0.5 - noise <= accuracy <= 1 + noise:
        return
    explanation = (
        "far below chance: if you passed labels instead of sets, use sklearn.metrics.accuracy_score(y, "
        "clf.predict(X)); otherwise, the priors may be swapped."
        if accuracy < 0.5
        else "significantly above 1: the sets differ in more than their class prior (look for a leaking column), "
        f"set_priors={tuple(set_priors)} are closer than the true priors, or the rows were used for training."
    )
    warnings.warn(f"the estimated accuracy is {accuracy:.3f}, {explanation}", SuspiciousScoreWarning, stacklevel=3)
