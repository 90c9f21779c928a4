"""Parameter search without labels; settings are evaluated out of fold, and the best models are not trained again."""

import dataclasses
import itertools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from uulearn import defaults
from uulearn.data import TwoSets
from uulearn.estimator import FitData, FitPlan, UUClassifier, check_parameters, make_plan, run_plan
from uulearn.estimator.fitting import warn_about_result
from uulearn.estimator.html import ResultsBelowDiagram, result_parts
from uulearn.estimator.learners import Learner, OutOfFold, make_learner
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.reading import read_joint_table, read_tables
from uulearn.estimator.resolving import resolve, resolve_defaults
from uulearn.exceptions import FailedSettingWarning, NonFiniteRiskError
from uulearn.markup import notebook
from uulearn.markup.text import label
from uulearn.metrics import Estimate, Evaluation, evaluate, uu_accuracy_difference
from uulearn.metrics.calibration import calibrate_out_of_fold
from uulearn.selection.trials import Executor, FoldStore, Trials, train_all
from uulearn.training.options import TrainingOptions, resolve_device
from uulearn.training.workers import join_workers, warn_on_rank_zero

# Parameters that cannot be searched: data, execution options, and parameters that do not affect fold models.
FIXED_PARAMETERS = {
    "set_priors", "target_prior", "n_estimators", "validation_fraction", "self_training_rounds", "random_state",
    "encoder", "device", "progress", "training", "training__checkpoint_dir", "training__checkpoint_every",
    "training__distributed",
}  # fmt: skip
# Slopes λ to try, from the ReLU (0) to the absolute value (−1).
SLOPES = [0.0, -0.01, -0.03, -0.1, -0.3, -1.0]
# Learning rates to try, as fractions of the learning rate of the estimator.
RATE_FRACTIONS = (0.1, 0.3, 1.0)
# Estimate of a setting that cannot be used.
NO_ESTIMATE = Estimate(math.nan, math.nan, (math.nan, math.nan))
# Number of settings that a notebook shows.
SHOWN_CANDIDATES = 10
# Number of failed settings that a message lists.
LISTED_FAILURES = 3

Failure = NonFiniteRiskError | ValueError


@dataclass(frozen=True)
class Candidate:
    """One setting of a search, evaluated on rows that its models were not trained on."""

    params: dict[str, Any]
    evaluation: Evaluation
    """Metrics of single models (not of their ensemble), calibrated if requested; all NaN if the setting failed."""
    gap: Estimate
    """Accuracy of the best candidate minus the accuracy of this candidate, estimated on the same rows."""
    rank: int
    """Rank of the setting (1 is the best); failed settings have the last ranks."""
    failure: str | None = None
    """Reason why the setting failed, such as a non-finite risk; None if it did not fail."""


def default_grid(base: UUClassifier) -> dict[str, list[Any]]:
    """Return the default grid of learning rates and, if λ is used, of slopes λ from the ReLU to the absolute value."""
    if isinstance(base.model, Learner):
        raise ValueError(f"param_grid must list the parameters to search, because {base.model!r} is not a network.")
    grid: dict[str, list[Any]] = {}
    if isinstance(base.method, str) and base.method in ("leaky_relu", "abs"):
        grid = ({"method": ["leaky_relu"]} if base.method == "abs" else {}) | {"slope": SLOPES}
    return grid | {"lr": [float(f"{fraction * float(base.lr):.3g}") for fraction in RATE_FRACTIONS]}


class UUClassifierCV(ResultsBelowDiagram, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Search for the best settings of a `UUClassifier` without labels.

    The rows are split into folds. For every setting, one model per fold is trained on the other folds and scores the
    rows of its own fold. The accuracy of a setting is then estimated on all rows of the two unlabeled sets. Linear
    models and MLPs that differ in λ, learning rate or L2 are trained together, which takes little more time than
    training one model. The models of the best setting form the final ensemble, so no model is trained twice.

    Settings are compared by estimated accuracy, after calibration if possible. Settings whose training diverges rank
    last and cause a `FailedSettingWarning`. If all settings fail, `uulearn.exceptions.NonFiniteRiskError` is raised.

    Parameters
    ----------
    estimator : UUClassifier
        Classifier that provides all other parameters. ``n_estimators`` is the number of folds; 1 and "auto" mean 5. The
        model None means ``"mlp"``, also for data frames.
    param_grid : dict, optional
        Parameter names of `UUClassifier`, such as ``"lr"`` or ``"training__ema"``, with lists of values; all
        combinations are tried. The default grid contains slopes from the ReLU to the absolute value (if the method is
        ``"leaky_relu"`` or ``"abs"``) and three learning rates: 0.1, 0.3 and 1 times the estimator's ``lr``. A grid
        with slopes requires ``method="leaky_relu"``.
    store : str or Path, optional
        Folder in which every model is stored as soon as it is trained. Stored models are not trained again if a search
        is interrupted or extended. The estimator must have an integer ``random_state``.
    executor : Executor, optional
        Object that trains the models, such as `uulearn.engines.ray_search.RayExecutor` for a Ray cluster. It implements
        `uulearn.selection.Executor`. By default, models are trained in this process.

    Attributes
    ----------
    best_estimator_ : UUClassifier
        Classifier fitted with the best setting.
    best_params_ : dict
    candidates_ : list of Candidate
        All settings, in the order in which they were tried.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y_a, y_b = rng.random(400) < 0.8, rng.random(400) < 0.2  # never shown to the classifier
    >>> X_a, X_b = (rng.normal(size=(400, 2)) + 2 * y[:, None] - 1 for y in (y_a, y_b))
    >>> base = UUClassifier((0.8, 0.2), model="linear", epochs=30, n_estimators=3, random_state=0)
    >>> search = UUClassifierCV(base, {"lr": [1e-6, 0.05]}).fit_sets(X_a, X_b)
    >>> search.best_params_, search.predict([[1.0, 1.0], [-1.0, -1.0]]).tolist()
    ({'lr': 0.05}, [1, 0])
    """

    best_estimator_: UUClassifier
    best_params_: dict[str, Any]
    candidates_: list[Candidate]

    def __init__(
        self,
        estimator: UUClassifier,
        param_grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        store: str | Path | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.store = store
        self.executor = executor

    def fit(self, X: Any, sets: Any) -> Self:
        """Search for the best setting on rows of all sets; ``sets`` contains the set of each row, such as 0 or 1."""
        base = self._base()
        return self._search(base, read_joint_table(base.get_params(deep=False), X, sets))

    def fit_sets(self, X0: Any, X1: Any, *others: Any) -> Self:
        """Search for the best setting on set 0, set 1 and more sets, passed as separate tables."""
        base = self._base()
        return self._search(base, read_tables(base.get_params(deep=False), (X0, X1, *others)))

    def _base(self) -> UUClassifier:
        """Return a validated copy of the estimator in which ``n_estimators`` is the number of folds."""
        if not isinstance(self.estimator, UUClassifier):
            raise TypeError(f"estimator must be a UUClassifier, got {type(self.estimator).__name__}.")
        base: UUClassifier = clone(self.estimator)
        if self.executor is not None and not hasattr(self.executor, "train"):
            raise TypeError(f"executor must have a method train(trials, jobs), got {self.executor!r}.")
        if self.store is not None and not isinstance(base.random_state, int | np.integer):
            raise ValueError(
                "a search with a store requires an estimator with an integer random_state, which identifies stored "
                f"models; got {base.random_state!r}."
            )
        if base.set_priors is None:
            raise ValueError("a search compares accuracies, which need class priors; set the estimator's set_priors.")
        if base.model is None:
            base.set_params(model=defaults.MODEL)
        if is_auto(base.n_estimators) or base.n_estimators == 1:
            base.set_params(n_estimators=defaults.N_ESTIMATORS)
        check_parameters(base.get_params(deep=False))
        return base

    def _settings(self, base: UUClassifier) -> list[dict[str, Any]]:
        grid = default_grid(base) if self.param_grid is None else dict(self.param_grid)
        known = {name for name in base.get_params(deep=True).keys() - FIXED_PARAMETERS if "encoder__" not in name}
        for name, values in grid.items():
            if name not in known:
                raise ValueError(f"param_grid cannot contain {name!r}; it may contain {', '.join(sorted(known))}.")
            if name == "slope" and "leaky_relu" not in (methods := grid.get("method", [base.method])):
                raise ValueError(
                    f"slope is used only by method 'leaky_relu', got {methods[0]!r}; change the method or remove slope."
                )
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise ValueError(f"param_grid[{name!r}] must be a list of values to try, got {values!r}.")
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]

    def _search(self, base: UUClassifier, given: FitData) -> Self:
        data = given.data
        settings = self._settings(_with_resolved(base, data.sizes))
        tried = [clone(base).set_params(**params) for params in settings]
        for classifier in tried:
            check_parameters(classifier.get_params(deep=False))
        tried = [_with_resolved(classifier, data.sizes) for classifier in tried]
        options = base.training or TrainingOptions()
        workers = join_workers(options.distributed, resolve_device(base.device))
        if workers is not None and (self.store is not None or self.executor is not None):
            raise ValueError(
                "a search in a group of several processes trains models one by one and supports neither a store "
                "nor an executor; start one process, or set distributed=False."
            )
        common = make_plan(base.get_params(deep=False), given, workers=workers, stacklevel=3)
        plans = [_plan_of(common, classifier) for classifier in tried]
        store = None if self.store is None else FoldStore(self.store)
        fitted = train_all(Trials(plans), store=store, executor=self.executor)
        assert isinstance(common.data, TwoSets)  # a search reads all rows
        sets = common.data.set_numbers.numpy()
        decided = [_decisions(plan, one, sets) for plan, one in zip(plans, fitted, strict=True)]
        candidates = _compare(settings, decided, sets, common.parameters.training_priors, base.target_prior)
        if failed := [(one.params, one.failure) for one in candidates if one.failure is not None]:
            what = (
                f"{len(failed)} of {len(candidates)} settings failed and will not be chosen: {_list_failures(failed)}."
            )
            with warn_on_rank_zero(workers):
                warnings.warn(what, FailedSettingWarning, stacklevel=3)
        best = next(place for place, candidate in enumerate(candidates) if candidate.rank == 1)
        first = fitted[best]
        assert isinstance(first, OutOfFold)
        result = run_plan(plans[best], first)
        if result.error is not None:
            raise result.error
        warn_about_result(plans[best], result, stacklevel=3)
        # Set at the end, because an interrupted search must not change the result of an earlier one.
        self.best_estimator_ = tried[best].set_fitted(result)
        self.best_params_, self.candidates_ = settings[best], candidates
        return self

    def summary(self) -> str:
        """Return a list of the settings, sorted by estimated accuracy, and a description of the best classifier."""
        check_is_fitted(self, "best_estimator_")
        lines = ["accuracy estimated without labels, on all rows, by models that were not trained on them"]
        for candidate in sorted(self.candidates_, key=lambda one: one.rank):
            gap = f"{100 * candidate.gap.value:.2f} ± {100 * candidate.gap.standard_error:.2f} points behind"
            comment = candidate.failure or ("the best" if candidate.rank == 1 else gap)
            lines.append(f"  {candidate.evaluation.accuracy.value:6.4f}  {_format(candidate.params)}  ({comment})")
        return "\n".join([*lines, self.best_estimator_.summary()])

    def results_html(self) -> str:
        """Return the best settings and the results of the best classifier as HTML, which notebooks show."""
        if not hasattr(self, "best_estimator_"):
            return ""
        ranked = sorted(self.candidates_, key=lambda one: one.rank)
        bars = [one.evaluation.accuracy.bar(label(_format(one.params))) for one in ranked[:SHOWN_CANDIDATES]]
        text = "Accuracy of single models, estimated without labels; the best is partly lucky (winner's curse)."
        if len(ranked) > SHOWN_CANDIDATES:
            text = f"The best {SHOWN_CANDIDATES} of {len(ranked)} settings. {text}"
        parts = [notebook.heading("Settings"), notebook.bar_table(bars), notebook.note(text)]
        return notebook.join(*parts, *result_parts(self.best_estimator_))

    def _best(self) -> UUClassifier:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The classes 0 (negative) and 1 (positive)."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        return self._best().n_features_in_

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns, if the training data had column names."""
        return self._best().feature_names_in_

    def __sklearn_tags__(self) -> Any:
        # fit checks the type of the estimator.
        return get_tags(self.estimator) if isinstance(self.estimator, UUClassifier) else super().__sklearn_tags__()

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return scores of shape (n,) from the best estimator."""
        return self._best().decision_function(X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return classes of shape (n,) from the best estimator."""
        return self._best().predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities of shape (n, 2) from the best estimator."""
        return self._best().predict_proba(X)

    def score(self, X: Any, sets: Any) -> float:
        """Estimate the accuracy of the best setting without labels, from rows of both sets."""
        return self._best().score(X, sets)


def _with_resolved(classifier: UUClassifier, sizes: tuple[int, int]) -> UUClassifier:
    """Return the classifier with each "auto" parameter replaced by its resolved value."""
    resolved = resolve_defaults(classifier.get_params(deep=False), sizes)
    found: UUClassifier = clone(classifier).set_params(**resolved)
    return found


def _plan_of(common: FitPlan, classifier: UUClassifier) -> FitPlan:
    """Return the fit plan of one setting, with the rows, folds and seed that all settings share."""
    parameters = resolve(classifier.get_params(deep=False), common.data.sizes)
    if is_auto(parameters.model):
        raise ValueError(
            "model='auto' compares models itself, so its settings cannot be searched; choose a model, or search over "
            "several with {'model': ['linear', 'boosting', 'mlp']}."
        )
    learner = make_learner(parameters)
    learner.check(common.data.sample(0, 2), common.seed)
    return dataclasses.replace(common, parameters=parameters, resolved={}, learner=learner)


def _decisions(
    plan: FitPlan, fitted: OutOfFold | NonFiniteRiskError, sets: NDArray[np.int64]
) -> NDArray[np.float32] | Failure:
    """Return the decision values of all rows, calibrated if requested, or the reason for a failure."""
    if isinstance(fitted, NonFiniteRiskError):
        return fitted
    scores = torch.cat(fitted.scores).numpy()
    if not plan.parameters.calibrated:
        return scores
    assert plan.folds is not None  # of every search
    priors, target_prior = plan.parameters.training_priors, plan.parameters.target_prior
    try:
        return calibrate_out_of_fold(scores, sets, np.concatenate(plan.folds), priors, target_prior)[1]
    except ValueError as error:  # all rows have one score
        return ValueError(str(error).partition(";")[0])


def _compare(
    settings: Sequence[dict[str, Any]],
    decided: Sequence[NDArray[np.float32] | Failure],
    sets: NDArray[np.int64],
    set_priors: tuple[float, ...],
    target_prior: float,
) -> list[Candidate]:
    """Evaluate every setting and compare it with the best one; raise an error if all settings failed."""
    if all(isinstance(one, Exception) for one in decided):
        kind = NonFiniteRiskError if any(isinstance(one, NonFiniteRiskError) for one in decided) else ValueError
        listed = _list_failures(zip(settings, map(str, decided), strict=True))
        raise kind(f"all settings failed: {listed}; lower lr, scale the columns, or try another loss or method.")
    none = NO_ESTIMATE
    nothing = Evaluation(none, none, none, none, none, tuple(np.bincount(sets).tolist()), labels_used=False)
    known = sets, set_priors, target_prior
    evaluated = [nothing if isinstance(one, Exception) else evaluate(one, *known) for one in decided]
    order = np.argsort([-one.accuracy.unclipped for one in evaluated], kind="stable")  # NaN comes last
    best = decided[order[0]]
    ranks = np.argsort(order) + 1
    return [
        Candidate(params, evaluation, NO_ESTIMATE, int(rank), str(one))
        if isinstance(one, Exception)
        else Candidate(params, evaluation, uu_accuracy_difference(best, one, *known), int(rank))
        for params, evaluation, one, rank in zip(settings, evaluated, decided, ranks, strict=True)
    ]


def _list_failures(failed: Iterable[tuple[dict[str, Any], str]]) -> str:
    """Return a text that lists the first few failed settings and the reasons."""
    texts = [f"{_format(params)} ({reason})" for params, reason in failed]
    more = [f"and {len(texts) - LISTED_FAILURES} more"] if len(texts) > LISTED_FAILURES else []
    return "; ".join([*texts[:LISTED_FAILURES], *more])


def _format(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items()) or "the only setting"
