"""Correct out-of-fold estimates for the difference between an ensemble and its models.

Out-of-fold scores come from one model per row, so they measure the performance of single models. The ensemble is
usually more accurate, because averaging reduces the noise of the models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from uulearn.metrics.calibration import shift_log_odds
from uulearn.metrics.estimates import Floats


@dataclass(frozen=True)
class EnsembleGain:
    """Expected differences between the metrics of an ensemble and the mean metrics of its models, for new rows.

    No labels are used. On rows where a model and the ensemble disagree, the calibrated probability of the ensemble
    estimates how often the ensemble is right. The rows are training rows, scored by the models that were trained on
    them. Training on a row shifts the scores of all these models in the same direction, so that they disagree about as
    often as on new rows.
    """

    log_odds: NDArray[np.float32]
    """Log-odds of each row from the models that were trained on it, of shape (n, K − 1) for K models."""
    positive: Floats
    """Probability that each row is positive, at the class prior of the rows."""

    @classmethod
    def from_scores(
        cls,
        log_odds: NDArray[np.float32],
        sizes: tuple[int, int],
        set_priors: Sequence[float],
        target_prior: float,
    ) -> "EnsembleGain | None":
        """Compute the gain from log-odds at the target prior, of shape (n, K − 1); return None if K is less than 3.

        ``sizes`` contains the number of rows of set 0 and of set 1.
        """
        if log_odds.shape[1] < 2:
            return None
        pooled = float(np.average(set_priors, weights=sizes))
        mean = log_odds.mean(axis=1, dtype=np.float64)
        return cls(log_odds, np.asarray(expit(shift_log_odds(mean, target_prior, pooled))))

    def rates(self, threshold: float) -> tuple[float, float]:
        """Return the expected changes in the true-positive rate and in the false-positive rate."""
        together = self.log_odds.mean(axis=1) > threshold
        change = self._scale * (together - (self.log_odds > threshold).mean(axis=1))
        return float(np.average(change, weights=self.positive)), float(np.average(change, weights=1 - self.positive))

    def auc(self) -> float:
        """Return the expected change in the AUC."""
        single = np.mean([_weighted_auc(own, self.positive) for own in self.log_odds.T])
        return float(self._scale * (_weighted_auc(self.log_odds.mean(axis=1), self.positive) - single))

    @property
    def _scale(self) -> float:
        """Ratio of the variance removed by averaging K models to the variance removed by averaging K − 1 models."""
        others = int(self.log_odds.shape[1])
        return (1 - 1 / (others + 1)) / (1 - 1 / others)


def _weighted_auc(scores: NDArray[np.float32], positive: Floats) -> float:
    """Return the probability that a random positive has a higher score than a random negative; ties count as ½."""
    _, place = np.unique(scores, return_inverse=True)
    wins, losses = np.bincount(place, positive), np.bincount(place, 1 - positive)
    below = np.cumsum(losses) - losses
    return float(wins @ (below + losses / 2) / (wins.sum() * losses.sum()))
