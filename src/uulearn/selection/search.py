"""A search without labels in one fit: every candidate is cross-fitted, and the best one is ready to use."""

from __future__ import annotations

import functools
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

from uulearn.data import TwoSets
from uulearn.data.augmentation import build_augmentation
from uulearn.data.folds import assign_folds
from uulearn.engines.ray_cluster import ENGINES
from uulearn.estimator import UUClassifier
from uulearn.estimator.inputs import check_set_sizes, read_sets
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.resolving import is_auto
from uulearn.exceptions import FailedSettingWarning, NonFiniteRiskError
from uulearn.metrics import Estimate, Evaluation, evaluate, uu_gain
from uulearn.selection.store import FoldStore
from uulearn.selection.trials import Trials, cross_fit_all
from uulearn.training.out_of_fold import OutOfFoldFit
from uulearn.training.workers import join_workers, warn_on_rank_zero

FOLDS = 5
FIXED = {"set_priors", "target_prior", "members", "random_state", "device", "checkpoint_dir", "progress"}
"""What is not searched: what is known, and what says how to work."""
SLOPES = [0.0, -0.01, -0.03, -0.1, -0.3, -1.0]
"""λ from the ReLU to the absolute value."""
RATES = (0.1, 0.3, 1.0)
"""Learning rates to try, as parts of the base's."""
UNKNOWN = Estimate(math.nan, math.nan, (math.nan, math.nan))
"""What a setting is worth that cannot be used."""
NAMED = 3
"""So many settings that cannot be used are named in a sentence."""

Failure = NonFiniteRiskError | ValueError


@dataclass(frozen=True)
class Candidate:
    """One setting of a search, with what its models are worth on the rows they have not seen."""

    params: dict[str, Any]
    evaluation: Evaluation
    """Of decisions as the classifier makes them, by log-odds where it is calibrated; all NaN where there are none."""
    gap: Estimate
    """Accuracy of the best candidate minus this one's, on the same rows: known more precisely than either."""
    rank: int
    """1 for the best; those that cannot be used come last."""
    failure: str | None = None
    """Why the setting cannot be used, such as a risk that was not finite; None where it can."""


def default_grid(base: UUClassifier) -> dict[str, list[Any]]:
    """What is searched where nothing is said: λ, of which ``"abs"`` is the largest, and learning rates.

    Examples
    --------
    >>> default_grid(UUClassifier((0.8, 0.2), method="relu", lr=1e-3))
    {'lr': [0.0001, 0.0003, 0.001]}
    """
    rates = {"lr": [float(f"{share * base.lr:.3g}") for share in RATES]}
    if not isinstance(base.method, str) or base.method not in ("leaky_relu", "abs"):
        return rates
    path: dict[str, list[Any]] = (
        {"slope": SLOPES} if base.method == "leaky_relu" else {"method": ["leaky_relu"], "slope": SLOPES}
    )
    return path | rates


class UUClassifierCV(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Chooses the settings of a `UUClassifier` without labels.

    The rows are cut into folds. For every setting, one model a fold is trained on the other folds and scores the rows
    of its own, so that the accuracy of the setting is estimated, from the two unlabeled sets, on all rows. Linear
    models and MLPs are trained as stacks, a λ path for about the price of its widest batch. The models of the best
    setting are kept, and their mean makes the predictions: nothing is trained twice.

    What is compared are the decisions that would be made: where the classifier is calibrated, by the log-odds of each
    setting. A setting whose training diverges is not chosen. It ranks last, with the reason, a `FailedSettingWarning`
    names it, and only where all settings fail is `uulearn.exceptions.NonFiniteRiskError` raised.

    A search with a ``store`` that was interrupted goes on where it was, and one that asks for more settings trains only
    these. With ``engine="ray"`` the models are trained side by side on a cluster, and what a process did that dies is
    done again.

    Parameters
    ----------
    estimator : UUClassifier
        Everything that is not searched; it is cloned. ``members`` is the number of folds, 5 if it is 1 or "auto".
    param_grid : dict, optional
        Lists of values to try, by the names of `UUClassifier`'s parameters; all combinations are tried. By default a
        path of λ from the ReLU to the absolute value (where the method is ``"leaky_relu"`` or ``"abs"``) and three
        learning rates, a tenth, three tenths and the whole of the estimator's. λ is ``slope``, of
        ``method="leaky_relu"`` alone: a grid with slopes needs that method.
    store : str or Path, optional
        A folder in which every model is kept as soon as it is trained, and looked for before. The estimator needs a
        ``random_state`` that is a whole number, without which no model is the same twice.
    engine : {"local", "ray"}
        Where models are trained: in this process, one stack after another, or as tasks of a Ray cluster.
    address : str, optional
        With ``engine="ray"``: ``"auto"`` for the cluster that this machine is part of, or host and port of its head. By
        default a cluster of this machine alone is started, and ended with the search.
    workers : int, optional
        With ``engine="ray"``: how many tasks are trained at once, by default one for each core (or GPU).

    Attributes
    ----------
    best_estimator_ : UUClassifier
        Fitted with the best setting.
    best_params_ : dict
    candidates_ : list of Candidate
        All settings, in the order in which they were tried.
    classes_, n_features_in_, feature_names_in_
        Those of ``best_estimator_``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y_a, y_b = rng.random(400) < 0.8, rng.random(400) < 0.2  # never shown to the classifier
    >>> X_a, X_b = (rng.normal(size=(400, 2)) + 2 * y[:, None] - 1 for y in (y_a, y_b))
    >>> base = UUClassifier((0.8, 0.2), model="linear", epochs=30, members=3, random_state=0)
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
        engine: str = "local",
        address: str | None = None,
        workers: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.store = store
        self.engine = engine
        self.address = address
        self.workers = workers

    def fit(self, X: Any, sets: Any) -> Self:
        """Search on rows of both sets; ``sets`` says which set each row came from, 0 or 1."""
        base = self._base()
        columns = base._unfitted()
        rows = columns._read(X, "X", reset=True)
        return self._search(base, columns, TwoSets.from_membership(rows, read_sets(sets, rows.n_rows)))

    def fit_sets(self, X0: Any, X1: Any) -> Self:
        """Search on set 0 and set 1, given apart."""
        base = self._base()
        columns = base._unfitted()
        return self._search(base, columns, TwoSets((columns._read(X0, "X0", reset=True), columns._read(X1, "X1"))))

    def _base(self) -> UUClassifier:
        if not isinstance(self.estimator, UUClassifier):
            raise TypeError(f"estimator must be a UUClassifier, got {type(self.estimator).__name__}.")
        base = clone(self.estimator)
        assert isinstance(base, UUClassifier)
        self._check_engine(base)
        if base.set_priors is None:
            raise ValueError(
                "a search compares accuracies, which take set_priors; got None, pass for example (0.8, 0.2)."
            )
        return base.set_params(members=FOLDS) if is_auto(base.members) or base.members == 1 else base

    def _check_engine(self, base: UUClassifier) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be {' or '.join(map(repr, ENGINES))}, got {self.engine!r}.")
        for name, value in (("address", self.address), ("workers", self.workers)):
            if value is not None and self.engine != "ray":
                raise ValueError(f"{name}={value!r} is for engine='ray'; set that, or leave {name} out.")
        if self.workers is not None and not (isinstance(self.workers, int) and self.workers > 0):
            raise ValueError(f"workers must be a whole number above 0, got {self.workers!r}.")
        if self.store is not None and not isinstance(base.random_state, int | np.integer):
            raise ValueError(
                "a search with a store needs an estimator whose random_state is a whole number, so that its models are "
                f"known again; got {base.random_state!r}."
            )

    def _settings(self, base: UUClassifier) -> list[dict[str, Any]]:
        grid = default_grid(base) if self.param_grid is None else dict(self.param_grid)
        known = base.get_params(deep=False).keys() - FIXED
        for name, values in grid.items():
            if name not in known:
                raise ValueError(f"param_grid cannot search {name!r}; it may hold {', '.join(sorted(known))}.")
            if name == "slope" and "leaky_relu" not in (tried := grid.get("method", [base.method])):
                raise ValueError(
                    f"slope matters to method 'leaky_relu' alone, got {tried[0]!r}; set it, or leave slope out."
                )
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise ValueError(f"param_grid[{name!r}] must be a list of values to try, got {values!r}.")
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]

    def _search(self, base: UUClassifier, columns: UUClassifier, data: TwoSets) -> Self:
        check_set_sizes(data.sizes)
        settings = self._settings(base._settled(data.sizes))
        tried = [clone(base).set_params(**params) for params in settings]
        for classifier in tried:
            check_parameters(classifier.get_params(deep=False))
        base, *tried = (classifier._settled(data.sizes) for classifier in (base, *tried))
        workers = join_workers(base.distributed, base._device)
        if workers is not None and (self.store is not None or self.engine != "local"):
            raise ValueError(
                "a search by several processes of one group trains one model after another, and takes neither a store "
                "nor engine='ray'; start one process, or set distributed=False."
            )
        work = base._prepare(workers, data, columns, None, None, None)
        few = data.sample(0, 2).to(work.options.device)
        for classifier in tried:
            build_augmentation(classifier.augment, few * classifier.input_scale)
        pooled = data.joined()
        folds = assign_folds(pooled, base.members, work.options.seed)
        fitted = self._cross_fitted(Trials(tried, pooled, folds, work.options.seed))
        sets = np.repeat([0, 1], pooled.sizes)
        decided = [_decisions(classifier, one, sets) for classifier, one in zip(tried, fitted, strict=True)]
        candidates = _compare(settings, decided, sets, base._priors, base.target_prior)
        with warn_on_rank_zero(workers):
            _warn_of_failures(candidates)
        best = next(place for place, candidate in enumerate(candidates) if candidate.rank == 1)
        first, chosen = fitted[best], tried[best]
        assert isinstance(first, OutOfFoldFit)
        chosen._fit_members(work, columns, first)
        chosen._warn_if_degenerate(data)
        # All at once and at the end, so that a search that is broken off leaves what an earlier one found.
        self.best_estimator_, self.best_params_, self.candidates_ = chosen, settings[best], candidates
        return self

    def _cross_fitted(self, trials: Trials) -> list[OutOfFoldFit | NonFiniteRiskError]:
        store = None if self.store is None else FoldStore(self.store)
        if self.engine == "local":
            return cross_fit_all(trials, store=store)
        from uulearn.engines.ray_search import train_on_ray

        train = functools.partial(train_on_ray, address=self.address, workers=self.workers)
        return cross_fit_all(trials, store=store, train=train)

    def summary(self) -> str:
        """The settings in the order of their estimated accuracy, and the best one in words."""
        check_is_fitted(self, "best_estimator_")
        lines = ["accuracy estimated without labels, on all rows, by models that have not seen them"]
        for candidate in sorted(self.candidates_, key=lambda one: one.rank):
            gap = f"{100 * candidate.gap.value:.2f} ± {100 * candidate.gap.standard_error:.2f} points behind"
            told = candidate.failure or ("the best" if candidate.rank == 1 else gap)
            lines.append(f"  {candidate.evaluation.accuracy.value:6.4f}  {_named(candidate.params)}  ({told})")
        return "\n".join([*lines, self.best_estimator_.summary()])

    # The best one, used

    @property
    def classes_(self) -> NDArray[np.int64]:
        """array([0, 1])."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        """Number of columns."""
        check_is_fitted(self, "best_estimator_")
        return int(self.best_estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns, where they had names."""
        check_is_fitted(self, "best_estimator_")
        names: NDArray[np.object_] = self.best_estimator_.feature_names_in_
        return names

    def __sklearn_tags__(self) -> Any:
        # What can be fitted and predicted is up to the estimator; what it must be is said by fit.
        return get_tags(self.estimator) if isinstance(self.estimator, UUClassifier) else super().__sklearn_tags__()

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Scores of shape (n,) by the best setting."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Classes of shape (n,) by the best setting."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of shape (n, 2) by the best setting."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    def score(self, X: Any, sets: Any) -> float:
        """Accuracy of the best setting, estimated without labels from rows of both sets."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.score(X, sets)


# ---------------------------------------------------------------------------------------------------------- comparing


def _decisions(
    classifier: UUClassifier, fitted: OutOfFoldFit | NonFiniteRiskError, sets: NDArray[np.int64]
) -> NDArray[np.float32] | Failure:
    """Scores of all rows as the classifier would give them, log-odds where it is calibrated, or why there are none."""
    if isinstance(fitted, NonFiniteRiskError):
        return fitted
    scores = torch.cat(fitted.scores)
    try:
        classifier.scaling_ = classifier._scaled(scores, sets) if classifier.calibrated else None
    except ValueError as error:  # all rows have one score
        return ValueError(str(error).partition(";")[0])
    return classifier._decisions(scores.numpy())


def _compare(
    settings: Sequence[dict[str, Any]],
    decided: Sequence[NDArray[np.float32] | Failure],
    sets: NDArray[np.int64],
    set_priors: tuple[float, float],
    target_prior: float,
) -> list[Candidate]:
    """Every setting evaluated, and compared with the best; an error where none can be used."""
    failures = [one for one in decided if isinstance(one, Exception)]
    if len(failures) == len(decided):
        kind = NonFiniteRiskError if any(isinstance(one, NonFiniteRiskError) for one in failures) else ValueError
        raise kind(
            f"no setting can be used: {_listed(zip(settings, map(str, failures), strict=True))}; lower lr, scale the "
            "columns, or try another loss or method."
        )
    n1 = int(sets.sum())
    nothing = Evaluation(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, (len(sets) - n1, n1), labels_used=False)
    known = sets, set_priors, target_prior
    evaluated = [nothing if isinstance(one, Exception) else evaluate(one, *known) for one in decided]
    order = np.argsort([-one.accuracy.value for one in evaluated], kind="stable")  # NaN comes last
    best = decided[order[0]]
    ranks = np.argsort(order) + 1
    return [
        Candidate(params, evaluation, UNKNOWN, int(rank), str(one))
        if isinstance(one, Exception)
        else Candidate(params, evaluation, uu_gain(best, one, *known), int(rank))
        for params, evaluation, one, rank in zip(settings, evaluated, decided, ranks, strict=True)
    ]


def _warn_of_failures(candidates: Sequence[Candidate]) -> None:
    failed = [(candidate.params, candidate.failure) for candidate in candidates if candidate.failure is not None]
    if failed:
        warnings.warn(
            f"{len(failed)} of {len(candidates)} settings could not be used and will not be chosen: {_listed(failed)}.",
            FailedSettingWarning,
            stacklevel=4,
        )


def _listed(failed: Iterable[tuple[dict[str, Any], str]]) -> str:
    """The first settings that failed, with the reasons."""
    told = [f"{_named(params)} ({reason})" for params, reason in failed]
    return "; ".join([*told[:NAMED], *[f"and {len(told) - NAMED} more"][: len(told) > NAMED]])


def _named(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in params.items()) or "the only setting"
