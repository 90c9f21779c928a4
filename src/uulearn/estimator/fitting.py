"""Runs a plan: trains one model, or an ensemble over folds, and evaluates what was trained."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.data import DenseRows, Rows, TwoSets
from uulearn.estimator import guards
from uulearn.estimator.learners import Folds, FoldsTask, ModelTask, Priors
from uulearn.estimator.out_of_fold import OutOfFold, merge_folds
from uulearn.estimator.plan import FitPlan
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.estimator.result import FitResult
from uulearn.estimator.self_training import Round, Stage, self_train
from uulearn.metrics import Evaluation, evaluate
from uulearn.metrics.calibration import PlattScaling, decision_values, fit_platt_scaling
from uulearn.training import History

# Rows per set that are scored to find out whether a model predicts one class only.
SAMPLED_ROWS = 500


def run_plan(plan: FitPlan, first: OutOfFold | None = None) -> FitResult:
    """Train and evaluate.

    Parameters
    ----------
    plan : FitPlan
    first : OutOfFold, optional
        Models of all folds that were trained already, for example by a search; they are not trained again.
    """
    if plan.folds is None:
        return _run_single(plan)
    data = _in_memory(plan)
    rounds: tuple[Round, ...] | None = None
    if plan.parameters.self_training_rounds:
        fitted, scores, rounds = _run_self_training(plan, data, first)
    else:
        fitted = train_ensemble(plan) if first is None else first
        scores = torch.cat(fitted.scores)
    sets = np.repeat([0, 1], data.sizes)
    scaling, error = _calibrate(plan.parameters, scores, sets)
    evaluation: Evaluation | None = None
    if plan.parameters.set_priors is not None and error is None:
        decisions = decision_values(scores.numpy(), scaling)
        evaluation = evaluate(decisions, sets, plan.parameters.set_priors, plan.parameters.target_prior)
    return FitResult(
        plan.learner,
        fitted.combine(plan.learner),
        History.mean(fitted.histories),
        plan.columns,
        data.sizes,
        data.sizes,
        plan.seed,
        plan.resolved,
        scaling,
        evaluation,
        rounds,
        error,
    )


def train_ensemble(plan: FitPlan) -> OutOfFold:
    """The models of all folds of the plan, before self-training."""
    assert plan.folds is not None
    return _train_folds(plan, _in_memory(plan), plan.folds, plan.parameters.training_priors, plan.seed)


def calibration_of(parameters: ResolvedParameters, scores: Tensor, sets: NDArray[np.int64]) -> PlattScaling | None:
    """The line from held-out scores to log-odds, None if the parameters ask for none."""
    if not parameters.calibrated:
        return None
    assert parameters.set_priors is not None
    return fit_platt_scaling(scores.double().numpy(), sets, parameters.set_priors, parameters.target_prior)


def warn_if_degenerate(plan: FitPlan, result: FitResult, stacklevel: int = 2) -> None:
    """Warn if the trained model predicts the same class for all rows of a sample."""
    sample = torch.cat([plan.data.sample(which, SAMPLED_ROWS) for which in (0, 1)])
    decisions = decision_values(result.model.score(DenseRows(sample)).numpy(), result.scaling)
    guards.warn_if_one_sided(
        decisions,
        plan.data.sizes,
        plan.parameters.training_priors,
        plan.parameters.target_prior,
        log_odds=result.scaling is not None,
        stacklevel=stacklevel + 1,
    )


def _run_single(plan: FitPlan) -> FitResult:
    priors, target_prior = plan.parameters.training_priors, plan.parameters.target_prior
    task = ModelTask(plan.data, plan.validation, priors, target_prior, plan.seed, (), plan.test, plan.callback)
    fitted = plan.learner.train(task)
    scaling, error = None, fitted.error
    if error is None and plan.validation is not None and plan.parameters.calibrated:
        scores = torch.cat([fitted.model.score(plan.validation.rows_of(which)) for which in (0, 1)])
        scaling, error = _calibrate(plan.parameters, scores, np.repeat([0, 1], plan.validation.sizes))
    return FitResult(
        plan.learner,
        fitted.model,
        fitted.history,
        plan.columns,
        plan.data.sizes,
        (0, 0) if plan.validation is None else plan.validation.sizes,
        plan.seed,
        plan.resolved,
        scaling,
        error=error,
    )


def _run_self_training(
    plan: FitPlan, data: TwoSets, first: OutOfFold | None
) -> tuple[OutOfFold, Tensor, tuple[Round, ...]]:
    """The models of the best round, honest scores of all rows, and what each round gained."""
    assert plan.folds is not None

    def train(sets: TwoSets, folds: Folds, priors: Priors, stage: Stage) -> OutOfFold:
        if stage.is_first and first is not None:
            return first
        return _train_folds(plan, sets, folds, priors, stage.seed(plan.seed), stage.path)

    def score(fitted: OutOfFold, rows: Rows) -> Tensor:
        return fitted.combine(plan.learner).score(rows)

    done = self_train(
        train,
        score,
        data,
        plan.folds,
        plan.parameters.training_priors,
        plan.parameters.target_prior,
        rounds=plan.parameters.self_training_rounds,
        seed=plan.seed,
    )
    return done.best, torch.cat(done.scores), tuple(done.rounds)


def _train_folds(
    plan: FitPlan, sets: TwoSets, folds: Folds, priors: Priors, seed: int, path: tuple[str, ...] = ()
) -> OutOfFold:
    task = FoldsTask(sets, folds, priors, plan.parameters.target_prior, seed, path, plan.test, plan.callback)
    return merge_folds(plan.learner.train_folds(task), folds)


def _calibrate(
    parameters: ResolvedParameters, scores: Tensor, sets: NDArray[np.int64]
) -> tuple[PlattScaling | None, ValueError | None]:
    """The calibration, or why it failed: the trained model is not thrown away for it."""
    try:
        return calibration_of(parameters, scores, sets), None
    except ValueError as error:
        return None, error


def _in_memory(plan: FitPlan) -> TwoSets:
    assert isinstance(plan.data, TwoSets)  # streamed sets have no folds
    return plan.data
