"""Correct estimates from out-of-fold scores, so that they describe the ensemble of the models.

Out-of-fold scores come from one model per row, so they measure single models. The ensemble is usually more accurate,
because averaging removes noise of the models, and its scores are more reliable than the calibration of single models
assumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from uulearn.metrics.calibration import PlattScaling, shift_log_odds, solve_intercepts
from uulearn.metrics.estimates import Floats

MAX_SHARPENING = 1.2
"""Maximum factor of the slope of an ensemble. With few rows, the slope of single models is less certain than this."""
SELECTION_ERROR_SCALE = 1.3
"""Factor of standard errors if held-out rows chose the epochs of their models.

A row is scored at an epoch that other rows of its fold chose, so the errors of rows in the same fold are correlated.
The factor was chosen by simulation (``benchmarks/study/coverage.py``).
"""


@dataclass(frozen=True)
class OutOfFoldCorrection:
    """Expected differences between the metrics of an ensemble and the mean metrics of its models, for new rows.

    No labels are used. On rows where a model and the ensemble disagree, the calibrated probability of the ensemble says
    how often the ensemble is right. The rows are training rows, scored by the models that were trained on them.
    Training on a row shifts the scores of all these models in the same direction, so that they disagree about as often
    as on new rows.
    """

    scaling: PlattScaling
    """Converts scores of the ensemble to log-odds."""
    single: Floats
    """Log-odds of each row by each model that was trained on it, shape (n, K − 1) for K models."""
    ensemble: Floats
    """Log-odds of each row by the ensemble, shape (n,)."""
    positive: Floats
    """Probability that each row is positive, at the class prior of the rows."""
    error_scale: float = 1.0
    """Factor of the standard errors of estimates."""

    @classmethod
    def from_scores(
        cls,
        scores: NDArray[np.float32],
        sizes: tuple[int, int],
        scaling: PlattScaling,
        set_priors: Sequence[float],
        error_scale: float = 1.0,
    ) -> "OutOfFoldCorrection":
        """Return the correction from scores of shape (n, K − 1) and the calibration of single models.

        ``sizes`` are the numbers of rows of set 0 and set 1.

        >>> scores = np.random.default_rng(0).normal(size=(200, 1)) + np.float32([[-0.1, 0.0, 0.1]])
        >>> scaling = PlattScaling(2.0, 0.0, prior=0.5)
        >>> correction = OutOfFoldCorrection.from_scores(scores, (100, 100), scaling, (0.8, 0.2))
        >>> correction.scaling.slope
        2.0
        """
        mean, pooled = scores.mean(axis=1, dtype=np.float64), float(np.average(set_priors, weights=sizes))
        between, total = float(mean.var()), float(scores.var(axis=0, dtype=np.float64).mean())
        factor = min(total / between, MAX_SHARPENING) if between > 0 else 1.0
        # The slope is multiplied, and the mean probability of the rows stays the same.
        slope, single = factor * scaling.slope, scaling.log_odds(scores)
        expected = float(expit(shift_log_odds(single, scaling.prior, pooled)).mean())
        at_pooled = solve_intercepts(slope * mean[None], np.full(len(mean), 1 / len(mean)), expected)[0]
        sharper = PlattScaling(slope, float(shift_log_odds(at_pooled, pooled, scaling.prior)), scaling.prior)
        ensemble = sharper.log_odds(mean)
        positive = np.asarray(expit(shift_log_odds(ensemble, scaling.prior, pooled)))
        return cls(sharper, single, ensemble, positive, error_scale)

    def rates(self, threshold: float) -> tuple[float, float]:
        """Return the expected changes of the true-positive rate and of the false-positive rate."""
        change = (self.ensemble > threshold) - (self.single > threshold).mean(axis=1)
        positive, negative = (float(np.average(change, weights=w)) for w in (self.positive, 1 - self.positive))
        return self._scale * positive, self._scale * negative

    def auc(self) -> float:
        """Return the expected change of the AUC."""
        single = float(np.mean([_weighted_auc(own, self.positive) for own in self.single.T]))
        return self._scale * (_weighted_auc(self.ensemble, self.positive) - single)

    @property
    def _scale(self) -> float:
        """The variance that averaging K models removes, divided by that of K − 1 models; 0 for two models."""
        others = int(self.single.shape[1])
        return (1 - 1 / (others + 1)) / (1 - 1 / others) if others > 1 else 0.0


def _weighted_auc(scores: Floats, positive: Floats) -> float:
    """Return the probability that a random positive has a higher score than a random negative; ties count as ½."""
    _, place = np.unique(scores, return_inverse=True)
    wins, losses = np.bincount(place, positive), np.bincount(place, 1 - positive)
    below = np.cumsum(losses) - losses
    return float(wins @ (below + losses / 2) / (wins.sum() * losses.sum()))
