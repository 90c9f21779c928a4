"""A search without labels in one fit: every candidate is cross-fitted, and the best one is ready to use."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from uulearn.estimator import UUClassifier
from uulearn.estimator.fitting import Work
from uulearn.estimator.inputs import check_set_sizes, read_sets
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.settling import is_auto
from uulearn.exceptions import NonFiniteRiskError
from uulearn.metrics import Estimate, Judgement, judge, uu_gain
from uulearn.training import TwoSets
from uulearn.training.augmentation import build_augmentation
from uulearn.training.crossfit import CrossFit
from uulearn.training.folds import assign_folds
from uulearn.training.holding import Positions
from uulearn.training.stack.crossfit import Variant, can_be_stacked, cross_fit_stacked
from uulearn.training.workers import join_workers

FOLDS = 5
PER_RUN = ("method", "slope", "lr", "l2", "weight_decay")
"""What the runs of one stack may differ in."""
FIXED = {"set_priors", "target_prior", "members", "random_state", "device", "checkpoint_dir", "progress"}
"""What is not searched: what is known, and what says how to work."""
SLOPES = [0.0, -0.01, -0.03, -0.1, -0.3, -1.0]
"""λ from the ReLU to the absolute value."""
RATES = (0.1, 0.3, 1.0)
"""Learning rates to try, as parts of the base's."""


@dataclass(frozen=True)
class Candidate:
    """One setting of a search, with what its models are worth on the rows they have not seen."""

    params: dict[str, Any]
    judgement: Judgement
    gap: Estimate
    """Accuracy of the best candidate minus this one's, on the same rows: known more precisely than either."""
    rank: int
    """1 for the best."""


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

    Parameters
    ----------
    estimator : UUClassifier
        Everything that is not searched; it is cloned. ``members`` is the number of folds, 5 if it is 1 or "auto".
    param_grid : dict, optional
        Lists of values to try, by the names of `UUClassifier`'s parameters; all combinations are tried. By default a
        path of λ from the ReLU to the absolute value (where the method is ``"leaky_relu"`` or ``"abs"``) and three
        learning rates, a tenth, three tenths and the whole of the estimator's. λ is ``slope``, of
        ``method="leaky_relu"`` alone: a grid with slopes needs that method.

    Attributes
    ----------
    best_estimator_ : UUClassifier
        Fitted with the best setting.
    best_params_ : dict
    candidates_ : list of Candidate
        All settings, in the order in which they were tried.

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

    def __init__(self, estimator: UUClassifier, param_grid: Mapping[str, Sequence[Any]] | None = None) -> None:
        self.estimator = estimator
        self.param_grid = param_grid

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
        if base.set_priors is None:
            raise ValueError(
                "a search compares accuracies, which take set_priors; got None, pass for example (0.8, 0.2)."
            )
        return base.set_params(members=FOLDS) if is_auto(base.members) or base.members == 1 else base

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
        work = base._prepare(workers, data, columns, None, None, None)
        few = work.data.sample(0, 2).to(work.options.device)
        for classifier in tried:
            build_augmentation(classifier.augment, few * classifier.input_scale)
        pooled = work.data.joined()
        folds = assign_folds(pooled, base.members, work.options.seed)
        fitted = _cross_fit_all(tried, work, pooled, folds)
        sets = np.repeat([0, 1], pooled.sizes)
        scores = [torch.cat(one.scores).numpy() for one in fitted]
        judged = [judge(s, sets, base._priors, base.target_prior) for s in scores]
        order = np.argsort([-one.accuracy.value for one in judged], kind="stable")
        best = int(order[0])
        ranks = np.empty(len(order), dtype=int)
        ranks[order] = np.arange(1, len(order) + 1)
        self.candidates_ = [
            Candidate(params, one, uu_gain(scores[best], own, sets, base._priors, base.target_prior), int(rank))
            for params, one, own, rank in zip(settings, judged, scores, ranks, strict=True)
        ]
        self.best_params_ = settings[best]
        chosen = tried[best]
        chosen._fit_members(work, columns, fitted[best])
        self.best_estimator_ = chosen._looked_at(work.data)
        self.classes_ = self.best_estimator_.classes_
        self.n_features_in_ = self.best_estimator_.n_features_in_
        return self

    def summary(self) -> str:
        """The settings in the order of their estimated accuracy, and the best one in words."""
        check_is_fitted(self, "best_estimator_")
        lines = ["accuracy estimated without labels, on all rows, by models that have not seen them"]
        for candidate in sorted(self.candidates_, key=lambda one: one.rank):
            named = ", ".join(f"{name}={value!r}" for name, value in candidate.params.items())
            gap = f"{100 * candidate.gap.value:.2f} ± {100 * candidate.gap.standard_error:.2f} points behind"
            behind = "the best" if candidate.rank == 1 else gap
            lines.append(f"  {candidate.judgement.accuracy.value:.4f}  {named}  ({behind})")
        return "\n".join([*lines, self.best_estimator_.summary()])

    # The best one, used

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


def _cross_fit_all(
    tried: Sequence[UUClassifier], work: Work, data: TwoSets, folds: tuple[Positions, Positions]
) -> list[CrossFit]:
    """Every setting cross-fitted; those that differ only in what the runs of a stack may differ in, together."""
    alike: dict[str, list[int]] = {}
    for place, classifier in enumerate(tried):
        alike.setdefault(repr(sorted(_shared(classifier).items(), key=str)), []).append(place)
    found: dict[int, CrossFit] = {}
    for places in alike.values():
        first = tried[places[0]]
        options = first._options(work.options.seed)
        if isinstance(first.model, str) and can_be_stacked(first.model, data, options):
            variants = [
                Variant(one._risk(one._priors), lr=one.lr, l2=one.l2, weight_decay=one.weight_decay)
                for one in (tried[place] for place in places)
            ]
            together = cross_fit_stacked(first.model, first.model_params, data, folds, variants, options)
            found |= dict(zip(places, together, strict=True))
        else:
            for place in places:
                one = tried[place]
                own = one._options(work.options.seed)
                if own.checkpoint_dir is not None:
                    own = dataclasses.replace(own, checkpoint_dir=Path(own.checkpoint_dir) / f"setting-{place}")
                try:
                    found[place] = one._train_members(work, data, folds, one._priors, own)
                except NonFiniteRiskError as error:
                    error.add_note(f"This happened with {_changes(one, tried)}; take it out of param_grid.")
                    raise
    return [found[place] for place in range(len(tried))]


def _changes(classifier: UUClassifier, tried: Sequence[UUClassifier]) -> str:
    """The parameters of a setting that differ between settings."""
    own = classifier.get_params(deep=False)
    names = [name for name in own if len({repr(one.get_params(deep=False)[name]) for one in tried}) > 1]
    return ", ".join(f"{name}={own[name]!r}" for name in names) or "the only setting"


def _shared(classifier: UUClassifier) -> dict[str, Any]:
    """What all runs of a stack have in common."""
    return {name: value for name, value in classifier.get_params(deep=False).items() if name not in PER_RUN}
