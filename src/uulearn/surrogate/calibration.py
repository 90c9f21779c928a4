"""Set probabilities that agree with the priors: a logistic curve for η, fitted through the mixture.

Platt scaling fits a logistic curve to the probability of a set, although that probability cannot leave the interval
that the priors allow. Here the curve stands for the probability t of the positive class, and what is fitted to the sets
of held-out rows is (1 − t)·u + t·v, on the segment of `uulearn.surrogate.inversion`. The result never needs clipping,
has two parameters for any number of sets, and keeps the order in which the classifier ranks the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing, indexable

from uulearn.metrics.calibration import set_log_likelihood
from uulearn.surrogate.inversion import Floats, segment_ends

SQUEEZE = 1e-3
"""Probabilities are kept this far from 0 and 1 before their logarithm is taken; forests give exact zeros."""
RIDGE = 1e-2
"""Half of it times a² + b² is added to the negative log-likelihood: a prior so wide (standard deviation 10) that it
only keeps a curve finite that would like to be a step."""


class MixtureCurve(NamedTuple):
    """ln(t/(1 − t)) = slope·(score − centre)/scale + intercept, t the probability of the positive class at π̄."""

    slope: float
    intercept: float
    centre: float
    scale: float

    def positive(self, score: Floats) -> Floats:
        """t, shape (n,)."""
        return np.asarray(expit(self.slope * (score - self.centre) / self.scale + self.intercept))


def fit_mixture_curve(
    score: Floats, sets: NDArray[np.int64], theta: Floats, rho: Floats, weight: Floats | None = None
) -> MixtureCurve:
    """The curve of largest likelihood for the sets of rows with the given scores, never falling in the score.

    Parameters
    ----------
    score : array of shape (n,)
        Higher for rows that look positive, of rows the classifier has not seen.
    sets : array of shape (n,)
        Their sets.
    theta, rho : arrays of shape (m,)
        Share of positives in each set, and share of each set among the rows.
    weight : array of shape (n,), optional
        Weights of the rows; only their ratios matter.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=40_000)
    >>> positive = rng.random(40_000) < expit(2 * score)
    >>> sets = (rng.random(40_000) < np.where(positive, 0.2, 0.8)).astype(int)  # 80% and 20% of them are positive
    >>> curve = fit_mixture_curve(score, sets, np.array([0.8, 0.2]), np.array([0.5, 0.5]))
    >>> bool(1.9 < curve.slope / curve.scale < 2.1)
    True
    """
    centre, scale = float(score.mean()), float(score.std()) or 1.0
    z = (score - centre) / scale
    u, v = segment_ends(theta, rho)
    u_row, v_row = u[sets], v[sets]
    w = np.ones(len(z)) if weight is None else weight * (len(z) / weight.sum())

    def loss(parameters: Floats) -> tuple[float, Floats]:
        slope, intercept = parameters
        gain, pull = set_log_likelihood(slope * z + intercept, u_row, v_row)
        pull = w * pull
        value = -(w * gain).sum() + RIDGE / 2 * (parameters @ parameters)
        return float(value), RIDGE * parameters - np.array([(pull * z).sum(), pull.sum()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.0, None), (None, None)])
    return MixtureCurve(float(found.x[0]), float(found.x[1]), centre, scale)


def positive_score(classifier: Any, X: Any, theta: Floats) -> Floats:
    """How positive rows look to a classifier of sets, shape (n,).

    From probabilities q: the log-odds of where Σ q_j·θ_j, the expected share of positives in the row's set, lies
    between the smallest and the largest θ_j; for two sets that is the log-odds of the richer. From decision values:
    their sum weighted by the θ_j, centred.
    """
    if hasattr(classifier, "predict_proba"):
        place = (classifier.predict_proba(X) @ theta - theta.min()) / np.ptp(theta)
        return np.asarray(logit(place.clip(SQUEEZE, 1 - SQUEEZE)))
    decision = np.asarray(classifier.decision_function(X), dtype=np.float64)
    if decision.ndim == 1:
        return np.asarray(decision * (theta[1] - theta[0]))
    if decision.shape[1] != len(theta):
        raise TypeError(
            f"{type(classifier).__name__}.decision_function gives {decision.shape[1]} columns for {len(theta)} sets; "
            "use one column a set (decision_function_shape='ovr'), or an estimator with predict_proba."
        )
    return np.asarray(decision @ (theta - theta.mean()))


class MixtureCalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of sets whose probabilities lie on the segment; one classifier and one curve a fold, averaged."""

    def __init__(self, estimator: Any, set_priors: Floats, set_shares: Floats, cv: Any) -> None:
        self.estimator = estimator
        self.set_priors = set_priors
        self.set_shares = set_shares
        self.cv = cv

    def fit(self, X: Any, sets: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """Fit a classifier on every training part and a curve on what the fold holds out."""
        (X,) = indexable(X)
        self.folds_: list[tuple[Any, MixtureCurve]] = []
        for train, held_out in self.cv.split(X, sets):
            weights = {} if sample_weight is None else {"sample_weight": sample_weight[train]}
            classifier = clone(self.estimator).fit(_safe_indexing(X, train), sets[train], **weights)
            score = positive_score(classifier, _safe_indexing(X, held_out), self.set_priors)
            weight = None if sample_weight is None else sample_weight[held_out]
            curve = fit_mixture_curve(score, sets[held_out], self.set_priors, self.set_shares, weight)
            self.folds_.append((classifier, curve))
        self.classes_ = np.arange(len(self.set_priors))
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Probability of each set, shape (n, m)."""
        curves = [curve.positive(positive_score(classifier, X, self.set_priors)) for classifier, curve in self.folds_]
        t = np.mean(curves, axis=0)[:, None]
        u, v = segment_ends(self.set_priors, self.set_shares)
        return np.asarray((1 - t) * u + t * v)
