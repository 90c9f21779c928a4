"""Decide without labels whether consistency training is used (``consistency="auto"``).

The network is trained on the same folds without and with consistency training. The two are compared by the zero-one
risk of their calibrated out-of-fold predictions. Consistency training is used if its risk is lower by more than two
standard errors of the difference; otherwise the network without it is used.

The estimated accuracy would be optimistic if a row took part in the choice of its own model. Therefore, the out-of-fold
score of a row comes from the network that the rows of the other folds chose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.estimator.auto import Decisions, compare_risks
from uulearn.estimator.learners import (
    ConsistencyChoice,
    FoldScores,
    Learner,
    ModelFit,
    ModelState,
    ModelTask,
    NetworkLearner,
    NetworkModel,
    Priors,
    TrainedModel,
    merge_folds,
)
from uulearn.estimator.parameters import without_comparison
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.exceptions import NonFiniteRiskError
from uulearn.metrics.calibration import calibrate_out_of_fold
from uulearn.training.out_of_fold import count_folds
from uulearn.training.progress import StageStarted, start_stage

WITHOUT, WITH = "without", "with"
MIN_ERRORS = 2.0
"""Consistency training is used if it lowers the risk by more than this number of standard errors."""


@dataclass(frozen=True)
class ConsistencyLearner(Learner):
    """Learner that trains a network without and with consistency training, and returns one of them."""

    kind: ClassVar[str] = NetworkLearner.kind

    plain: NetworkLearner
    consistent: NetworkLearner

    @classmethod
    def from_parameters(cls, parameters: ResolvedParameters, device: str | None = None) -> ConsistencyLearner:
        """Create the learner for the parameters of a classifier, optionally on another device."""
        options = without_comparison(parameters.consistency, used=True)
        plain = dataclasses.replace(parameters, consistency=None)
        consistent = dataclasses.replace(parameters, consistency=options, **parameters.parameters_with_consistency)
        return cls(*(NetworkLearner.from_parameters(own, device) for own in (plain, consistent)))

    def check(self, sample: Tensor, seed: int) -> None:
        """Raise an error if the module, the augmentation or the strong view does not support these rows."""
        self.consistent.check(sample, seed)

    def train(self, task: ModelTask) -> ModelFit:
        """Raise an error, because the comparison needs folds."""
        raise ValueError("consistency='auto' compares two ensembles on the same folds; set n_estimators=5.")

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train the models of all folds without and with consistency training, and return those that are used."""
        data, folds = task.in_folds()
        if chosen is not None:
            raise ValueError("consistency='auto' compares models on all folds; set it to True or False for a search.")
        stages = {
            name: StageStarted(f"training {name} consistency", count_folds(folds), "fold") for name in (WITHOUT, WITH)
        }
        start_stage(stages[WITHOUT])
        plain = self.plain.train_folds(dataclasses.replace(task, path=(*task.path, WITHOUT)))
        joined, sets = np.concatenate(folds), np.repeat([0, 1], data.sizes)
        trained, decisions = {WITHOUT: plain}, dict[str, Decisions]()
        start_stage(stages[WITH])
        try:
            trained[WITH] = self.consistent.train_folds(dataclasses.replace(task, path=(*task.path, WITH)))
            scores = {name: torch.cat(merge_folds(parts, folds).scores).numpy() for name, parts in trained.items()}
        except NonFiniteRiskError as error:
            return _with_choice(plain, ConsistencyChoice(False, skipped=str(error).rstrip(".")))
        try:
            for name, own in scores.items():
                known = own, sets, joined, task.group_priors, task.target_prior
                decisions[name] = calibrate_out_of_fold(*known)[1]
        except ValueError as error:
            return _with_choice(plain, ConsistencyChoice(False, skipped=str(error).rstrip(".")))
        choice = choose(decisions, sets, task.group_priors, task.target_prior)
        used, found = trained[WITH if choice.used else WITHOUT], []
        for fold, part in enumerate(used):
            others = {name: own[joined != fold] for name, own in decisions.items()}
            crossed = choose(others, sets[joined != fold], task.group_priors, task.target_prior)
            other = trained[WITH if crossed.used else WITHOUT][fold]
            if other is not part:  # the scores of the two networks may have different magnitudes
                scale = torch.cat(part.scores).abs().mean() / torch.cat(other.scores).abs().mean().clamp(min=1e-12)
                part = dataclasses.replace(part, scores=(scale * other.scores[0], scale * other.scores[1]))
            found.append(part)
        return _with_choice(found, choice)

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> NetworkModel:
        """Combine the modules into one ensemble."""
        return self.plain.combine(models, scales)

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> NetworkModel:
        """Restore a network; networks trained without and with consistency training have the same form."""
        return self.plain.restore(state, row_shape)


def choose(
    decisions: dict[str, Decisions], sets: NDArray[np.int64], set_priors: Priors, target_prior: float
) -> ConsistencyChoice:
    """Compare the decision values of rows without and with consistency training, which is used if it is better.

    >>> sets = np.repeat([0, 1], 500)
    >>> y = np.random.default_rng(0).random(1000) < np.where(sets == 0, 0.9, 0.1)
    >>> good = np.where(y, 1.0, -1.0)
    >>> bad = good * np.repeat([1, -1], 500)
    >>> [choose({"without": one, "with": two}, sets, (0.9, 0.1), 0.5).used for one, two in [(bad, good), (good, good)]]
    [True, False]
    """
    plain, consistent = compare_risks(
        {name: decisions[name] for name in (WITHOUT, WITH)}, sets, set_priors, target_prior
    )
    assert plain.risk is not None
    assert consistent.risk is not None
    difference, error = consistent.risk - plain.risk, max(plain.standard_error or 0.0, consistent.standard_error or 0.0)
    return ConsistencyChoice(difference < -MIN_ERRORS * error, plain.risk, consistent.risk, error)


def _with_choice(parts: Sequence[FoldScores], choice: ConsistencyChoice) -> list[FoldScores]:
    found = []
    for part in parts:
        assert isinstance(part.model, NetworkModel)
        found.append(dataclasses.replace(part, model=dataclasses.replace(part.model, consistency=choice)))
    return found
