"""Ensembles over folds: every row is scored by the model that was not trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from uulearn.estimator.learners import Folds, FoldScores, Learner, TrainedModel
from uulearn.training import History


@dataclass(frozen=True)
class OutOfFold:
    """The models of all folds, their histories, and out-of-fold scores of all rows.

    ``scores`` are those of set 0 and of set 1. The score of each row is divided by the scale of its model: the mean
    magnitude of the scores on its fold, by which `combine` divides as well.
    """

    models: list[TrainedModel]
    histories: list[History]
    scales: list[float]
    scores: tuple[Tensor, Tensor]

    def combine(self, learner: Learner) -> TrainedModel:
        """The models as one: the mean of their scores."""
        return learner.combine(self.models, self.scales)


def merge_folds(parts: Sequence[FoldScores], folds: Folds) -> OutOfFold:
    """The models of all folds, passed in the order of the folds, with the scores in the order of the rows."""
    scores, scales = [torch.empty(len(part)) for part in folds], []
    for fold, part in enumerate(parts):
        scale = float(torch.cat(part.scores).abs().mean()) or 1.0
        scales.append(scale)
        for which, values in enumerate(part.scores):
            scores[which][torch.from_numpy(folds[which] == fold)] = values / scale
    return OutOfFold([part.model for part in parts], [part.history for part in parts], scales, (scores[0], scores[1]))
