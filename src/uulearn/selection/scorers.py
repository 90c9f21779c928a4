"""Scorers for model selection without labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from uulearn.metrics import Estimate, uu_accuracy, uu_auc, uu_balanced_accuracy
from uulearn.risk.coefficients import check_set_priors, check_target_prior

MEASURES = ("accuracy", "balanced_accuracy", "auc")


class UUScorer:
    """Scorer for ``GridSearchCV``, ``cross_val_score`` and similar functions that uses X and ``sets`` but no labels.

    The estimator must have ``decision_function``, ``predict_proba`` or ``predict``. It may be a `uulearn.UUClassifier`,
    a pipeline that ends in one, or a classifier of set membership that is used to predict classes.

    Parameters
    ----------
    measure : str
        ``"accuracy"`` at class prior π, ``"balanced_accuracy"`` or ``"auc"``; see `uulearn.metrics`.
    set_priors : (θ, θ′), optional
        Class priors of the sets. By default, they are read from the estimator or from the last step of a pipeline.
    target_prior : float, optional
        Class prior π of the target population. By default, it is read in the same way.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import cross_val_score
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 1000)
    >>> y = rng.random(2000) < np.where(sets == 0, 0.8, 0.2)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None] - 1
    >>> scorer = UUScorer("auc", set_priors=(0.2, 0.8))  # after the inversion, class 1 is set 0
    >>> cross_val_score(LogisticRegression(), X, 1 - sets, scoring=scorer, cv=3).round(2)
    array([0.87, 1.  , 0.95])
    """

    def __init__(
        self, measure: str = "accuracy", *, set_priors: Sequence[float] | None = None, target_prior: float | None = None
    ) -> None:
        if measure not in MEASURES:
            raise ValueError(f"measure must be one of {', '.join(map(repr, MEASURES))}, got {measure!r}.")
        self.measure = measure
        self.set_priors = None if set_priors is None else check_set_priors(set_priors)
        self.target_prior = None if target_prior is None else check_target_prior(target_prior)

    def __call__(self, estimator: Any, X: Any, sets: Any) -> float:
        """Return the unbiased estimate of the measure; higher is better. The estimate can exceed 1 by chance."""
        return self.estimate(estimator, X, sets).unclipped

    def estimate(self, estimator: Any, X: Any, sets: Any) -> Estimate:
        """Return the estimated measure with its standard error and interval."""
        priors = self.set_priors or check_set_priors(_declared(estimator, "set_priors"))
        if hasattr(estimator, "decision_function"):
            scores = estimator.decision_function(X)
        elif hasattr(estimator, "predict_proba"):
            scores = estimator.predict_proba(X)[:, 1] - 0.5
        else:
            scores = np.asarray(estimator.predict(X)) - 0.5
        if self.measure != "accuracy":
            return (uu_auc if self.measure == "auc" else uu_balanced_accuracy)(scores, sets, priors)
        return uu_accuracy(scores, sets, priors, self.target_prior or _declared(estimator, "target_prior"))

    def __repr__(self) -> str:
        return f"UUScorer({self.measure!r}, set_priors={self.set_priors}, target_prior={self.target_prior})"


def _declared(estimator: Any, name: str) -> Any:
    """Return a parameter of the estimator, of the last step of a pipeline, or of a search's best estimator."""
    while not hasattr(estimator, name):
        inner = getattr(estimator, "best_estimator_", None) or getattr(estimator, "_final_estimator", None)
        if inner is None:
            raise ValueError(f"{type(estimator).__name__} has no {name}; pass it to UUScorer({name}=…).")
        estimator = inner
    return getattr(estimator, name)
