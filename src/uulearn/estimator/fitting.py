"""Run a plan: train one model or an ensemble over folds, calibrate and evaluate it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.data import DenseRows, Rows, TwoSets
from uulearn.data.inputs import Columns
from uulearn.data.streams import StreamedSets
from uulearn.estimator.learners import (
    Folds,
    Learner,
    ModelTask,
    OutOfFold,
    Priors,
    SetPriors,
    TrainedModel,
    merge_folds,
)
from uulearn.estimator.new_rows import NOT_COMPUTED, OLD_VERSION, REFERENCE_ROWS, make_reference
from uulearn.estimator.plan import FitPlan
from uulearn.estimator.self_training import Round, SelfTraining, Stage, self_train
from uulearn.exceptions import BeyondPriorsWarning, OneSidedPredictionsWarning, SuspiciousScoreWarning
from uulearn.metrics import Evaluation, check_mixture, evaluate
from uulearn.metrics.calibration import (
    PlattScaling,
    calibrate_out_of_fold,
    decision_values,
    fit_platt_scaling,
    shift_log_odds,
)
from uulearn.metrics.new_rows import RowReference
from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE, OutOfFoldCorrection
from uulearn.risk import estimation_cost
from uulearn.training import History

SHIFT_ADVICE = "Check the class priors, and drop columns that depend on where the rows come from."
# Number of rows per set that are scored to check whether a single model predicts only one class.
ONE_SIDED_SAMPLE = 500
# Maximum number of rows per set that are scored by all models to compare the ensemble with its models.
ENSEMBLE_SAMPLE = REFERENCE_ROWS
# If the class prior is within these bounds, predicting only one class indicates failed training.
MODERATE_PRIOR = (0.1, 0.9)
# A warning is raised if an estimated accuracy is outside [½, 1] by this number of standard errors.
SUSPICIOUS_ERRORS = 4


@dataclass(frozen=True)
class FitResult:
    """The trained model and its properties; `uulearn.UUClassifier` sets its fitted attributes from this result."""

    learner: Learner
    model: TrainedModel
    history: History
    columns: Columns
    set_sizes: tuple[int, ...]
    """Number of training rows in each set."""
    held_out_sizes: tuple[int, ...]
    """Number of validation rows in each set; for an ensemble, the number of all rows."""
    seed: int
    resolved: dict[str, Any]
    """Resolved values of the parameters set to "auto"."""
    scaling: PlattScaling | None = None
    """Linear function that maps scores to log-odds; None if the model is not calibrated."""
    out_of_fold_evaluation: Evaluation | None = None
    self_training: tuple[Round, ...] | None = None
    error: BaseException | None = None
    """Error that ended training early although the model is usable; raised after the fitted attributes are set."""
    decisions: NDArray[np.float32] | None = None
    """Out-of-fold decision values of all rows (set 0 first); None for a single model.

    The value of a row depends on a model, an epoch and a calibration that were all obtained without this row.
    """
    correction: OutOfFoldCorrection | None = None
    """Corrects estimates from out-of-fold scores; None if the scores are not calibrated."""
    reference: RowReference | str = OLD_VERSION
    """Statistics of the two sets, with which new rows are compared, or the reason why there are none."""


def run_plan(plan: FitPlan, first: OutOfFold | None = None, *, with_reference: bool = True) -> FitResult:
    """Train, calibrate and evaluate the model of a plan.

    Parameters
    ----------
    plan : FitPlan
    first : OutOfFold, optional
        Models of all folds that were already trained, for example by a search; they are not trained again.
    with_reference : bool
        Whether to compute the statistics with which new rows are compared.

    Examples
    --------
    >>> from uulearn.estimator import UUClassifier, make_plan
    >>> from uulearn.data.inputs import read_two_tables
    >>> rows = np.random.default_rng(0).normal([[[1.0]], [[-1.0]]], size=(2, 200, 3))
    >>> clf = UUClassifier((0.8, 0.2), model="linear", epochs=2, random_state=0)
    >>> plan = make_plan(clf.get_params(deep=False), read_two_tables(*rows, any_shape=False))
    >>> plan.resolved["n_estimators"], len(run_plan(plan).history)
    (5, 2)
    """
    parameters = plan.parameters
    target_prior = parameters.target_prior
    held_out = plan.validation if plan.folds is None else plan.data
    priors = parameters.training_priors
    rounds: tuple[Round, ...] | None = None
    scores: Tensor | None = None
    error: BaseException | None = None
    is_out_of_fold = True
    unseen: tuple[Any, Any] | None = None  # scores of held-out rows of each set by the final models
    if plan.folds is None:
        single = plan.learner.train(
            ModelTask(
                plan.data, priors, target_prior, plan.seed,
                validation=plan.validation, test=plan.test, callback=plan.callback,
            )
        )  # fmt: skip
        model, history, error = single.model, single.history, single.error
        if error is None and plan.validation is not None and parameters.calibrated:
            parts = single.held_out_scores or [model.score(plan.validation.rows_of(which)) for which in (0, 1)]
            scores = torch.cat(list(parts))
        if error is None and plan.validation is not None and with_reference:
            sample = plan.validation.pick(*_evenly_spaced(plan.validation))
            unseen = model.score(sample.rows_of(0)), model.score(sample.rows_of(1))
    else:
        if parameters.self_training_rounds:
            done = _run_self_training(plan, first)
            fitted, scores, rounds = done.best, torch.cat(done.scores), tuple(done.rounds)
            is_out_of_fold = done.best_round == 0
        else:
            fitted = first or _train_folds(plan, plan.data, plan.folds, priors, Stage(0, None))
            scores = torch.cat(fitted.scores)
        history = average_histories(fitted.histories)
        model = fitted.combine(plan.learner)

    scaling: PlattScaling | None = None
    decisions: NDArray[np.float32] | None = None
    evaluation: Evaluation | None = None
    correction: OutOfFoldCorrection | None = None
    if scores is not None:
        assert isinstance(held_out, TwoSets)  # streamed sets have rows for validation in memory
        known = scores.numpy(), held_out.set_numbers.numpy()
        decisions = None if plan.folds is None else known[0]
        try:
            if plan.folds is None:
                scaling = fit_platt_scaling(*known, priors, target_prior)
            elif parameters.calibrated:
                scaling, decisions = calibrate_out_of_fold(*known, np.concatenate(plan.folds), priors, target_prior)
                if is_out_of_fold and isinstance(plan.data, TwoSets):
                    correction, unseen = _compare_with_ensemble(plan, fitted, scaling)
                    scaling = correction.scaling
        except ValueError as failure:  # raised later, because the trained model is usable without calibration
            error = failure
        if decisions is not None and parameters.set_priors is not None and error is None:
            evaluation = evaluate(decisions, known[1], priors, target_prior, correction=correction)
    if decisions is not None and isinstance(plan.data, TwoSets) and plan.data.origins is not None:
        decisions = decisions[np.argsort(plan.data.set_numbers.numpy(), kind="stable")]
    reference: RowReference | str = (
        "it was trained on more than two sets" if error is None else "its fit ended with an error"
    )
    if not with_reference:
        reference = NOT_COMPUTED
    elif error is None and len(priors) == 2:
        reference = make_reference(plan.data if isinstance(plan.data, TwoSets) else plan.validation, unseen)
    return FitResult(
        plan.learner,
        model,
        history,
        plan.columns,
        plan.set_sizes(plan.data),
        plan.set_sizes(held_out),
        plan.seed,
        plan.resolved | parameters.used_parameters(model.consistency is not None and model.consistency.used),
        scaling,
        evaluation,
        rounds,
        error,
        decisions,
        correction,
        reference,
    )


def average_histories(histories: Sequence[History]) -> History:
    """Return the mean of several histories; each epoch is averaged over the models that reached it."""
    records = [history.epochs for history in histories]
    longest: list[dict[str, Any]] = max(records, key=len)
    epochs = []
    for position, record in enumerate(longest):
        running = [own[position] for own in records if len(own) > position]
        names = dict.fromkeys(name for other in running for name in other if name != "epoch")
        means = {name: fmean(float(other[name]) for other in running if name in other) for name in names}
        epochs.append({"epoch": record["epoch"], **means})
    reasons = list(dict.fromkeys(history.stop_reason for history in histories if history.stop_reason))
    labels_used = any(history.labels_used for history in histories)
    return History(epochs, "; ".join(reasons), labels_used, models=list(histories))


def warn_about_result(plan: FitPlan, result: FitResult, stacklevel: int = 2) -> None:
    """Warn if the model predicts one class for all out-of-fold or sampled rows, or if the priors are impossible."""
    decisions, priors = result.decisions, plan.parameters.set_priors
    if decisions is not None and priors is not None and len(priors) == 2:
        warn_if_beyond_priors(decisions, np.repeat([0, 1], plan.data.sizes), priors, stacklevel + 1)
    if decisions is None:
        sample = torch.cat([plan.data.sample(which, ONE_SIDED_SAMPLE) for which in (0, 1)])
        decisions = decision_values(result.model.score(DenseRows(sample)).numpy(), result.scaling)
    warn_if_one_sided(
        decisions,
        plan.data.sizes,
        plan.group_priors(plan.data),
        plan.parameters.target_prior,
        log_odds=result.scaling is not None,
        stacklevel=stacklevel + 1,
    )


def _compare_with_ensemble(
    plan: FitPlan, fitted: OutOfFold, scaling: PlattScaling
) -> tuple[OutOfFoldCorrection, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Score evenly spaced rows with the models that were trained on them, and with the model that was not."""
    data, folds = plan.data, plan.folds
    assert isinstance(data, TwoSets)
    assert folds is not None
    index = _evenly_spaced(data)
    sample = data.pick(*index)
    rows = [sample.rows_of(which) for which in (0, 1)]  # read in chunks, because dense copies may be large
    own_folds = np.concatenate([part[own] for part, own in zip(folds, index, strict=True)])
    scores = [
        torch.cat([model.score(part) for part in rows]).numpy() / scale
        for model, scale in zip(fitted.models, fitted.scales, strict=True)
    ]
    trained = own_folds[:, None] != np.arange(len(scores))
    selects = any(history.best_epoch is not None for history in fitted.histories)
    each = np.stack(scores, axis=1)
    first, second = np.split(each[~trained], [len(index[0])])
    correction = OutOfFoldCorrection.from_scores(
        each[trained].reshape(len(own_folds), -1),
        (len(index[0]), len(index[1])),
        scaling,
        plan.group_priors(sample),
        SELECTION_ERROR_SCALE if selects else 1.0,
    )
    return correction, (first, second)


def _evenly_spaced(data: TwoSets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, second = (np.linspace(0, size - 1, min(ENSEMBLE_SAMPLE, size)).astype(np.int64) for size in data.sizes)
    return first, second


def _run_self_training(plan: FitPlan, first: OutOfFold | None) -> SelfTraining:
    """Return all self-training rounds, the models of the best one, and scores of rows not used to train them."""
    assert plan.folds is not None
    assert isinstance(plan.data, TwoSets)

    def train(sets: TwoSets, folds: Folds, priors: Priors, stage: Stage) -> OutOfFold:
        return first if first and stage.is_first else _train_folds(plan, sets, folds, priors, stage)

    def score(fitted: OutOfFold, rows: Rows) -> Tensor:
        return fitted.combine(plan.learner).score(rows)

    return self_train(
        train,
        score,
        plan.data,
        plan.folds,
        plan.group_priors(plan.data),
        plan.parameters.target_prior,
        rounds=plan.parameters.self_training_rounds,
        seed=plan.seed,
    )


def _train_folds(
    plan: FitPlan, sets: TwoSets | StreamedSets, folds: Folds, priors: SetPriors, stage: Stage
) -> OutOfFold:
    task = ModelTask(
        sets, priors, plan.parameters.target_prior, stage.seed(plan.seed), stage.path,
        folds=folds, test=plan.test, callback=plan.callback, fit_seed=plan.seed,
    )  # fmt: skip
    return merge_folds(plan.learner.train_folds(task), folds)


def warn_if_one_sided(
    decisions: NDArray[Any],
    sizes: tuple[int, int],
    set_priors: tuple[float, float],
    target_prior: float,
    *,
    log_odds: bool,
    stacklevel: int = 2,
) -> None:
    """Warn if all rows get the same prediction although, by the priors, each class has at least 10% of the rows.

    Log-odds are shifted from the target prior to the class prior of the training rows. Decision values that are not
    log-odds are checked only if the target prior is within `MODERATE_PRIOR`.
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


def warn_if_beyond_priors(
    scores: NDArray[np.floating[Any]], sets: NDArray[np.int64], set_priors: Sequence[float], stacklevel: int = 2
) -> None:
    """Warn if the scores of two sets differ by more than their class priors allow."""
    mixture = check_mixture(scores, sets, set_priors)
    if mixture.reason is not None:
        warnings.warn(f"{mixture.reason} {SHIFT_ADVICE}", BeyondPriorsWarning, stacklevel=stacklevel + 1)


def warn_if_suspicious(accuracy: float, set_priors: Sequence[float], target_prior: float, sizes: Sequence[int]) -> None:
    """Warn if an estimated accuracy is so far below chance or above 1 that the priors or rows must be wrong."""
    used, rows = zip(*((prior, n) for prior, n in zip(set_priors, sizes, strict=True) if n), strict=True)
    noise = SUSPICIOUS_ERRORS * estimation_cost(used, target_prior, rows).standard_error
    if 0.5 - noise <= accuracy <= 1 + noise:
        return
    explanation = (
        "far below chance: if you passed labels instead of sets, use sklearn.metrics.accuracy_score(y, "
        "clf.predict(X)); otherwise, the priors may be swapped."
        if accuracy < 0.5
        else "significantly above 1: the sets differ in more than their class prior (look for a leaking column), "
        f"set_priors={tuple(set_priors)} are closer together than the true priors, or the rows were used for training."
    )
    warnings.warn(f"the estimated accuracy is {accuracy:.3f}, {explanation}", SuspiciousScoreWarning, stacklevel=3)
