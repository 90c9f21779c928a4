"""Calibrated set probabilities that are consistent with the priors.

Platt scaling fits a logistic curve to the probability of a set, although the priors restrict that probability to an
interval. Here, a logistic curve models the probability t of the positive class. The set probabilities (1 − t)·u + t·v
(see `uulearn.surrogate.inversion`) are fitted to the sets of held-out rows.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import _safe_indexing, indexable

from uulearn.metrics.calibration import set_log_likelihood
from uulearn.surrogate.inversion import Floats, segment_ends

PROBABILITY_MARGIN = 1e-3  # minimum distance of probabilities from 0 and 1; forests return exact zeros
# RIDGE/2·(a² + b²) is added to the negative log-likelihood: a weak prior (standard deviation 10) that keeps the curve
# finite for perfectly separated sets.
RIDGE = 1e-2


class MixtureCurve(NamedTuple):
    """Curve ln(t/(1 − t)) = slope·(score − center)/scale + intercept; t is the probability of the positive class."""

    slope: float
    intercept: float
    center: float
    scale: float

    def positive(self, score: Floats) -> Floats:
        """Return the probability t of the positive class, shape (n,)."""
        return np.asarray(expit(self.slope * (score - self.center) / self.scale + self.intercept))


def fit_mixture_curve(
    score: Floats, sets: NDArray[np.int64], theta: Floats, rho: Floats, weight: Floats | None = None
) -> MixtureCurve:
    """Fit a non-decreasing curve to the sets of held-out rows by maximum likelihood.

    Rows that look positive have a higher ``score``. ``theta`` contains the class prior of each set, ``rho`` contains
    the fraction of rows in each set, and ``weight`` contains the row weights.
    """
    center, scale = float(score.mean()), float(score.std()) or 1.0
    z = (score - center) / scale
    u, v = segment_ends(theta, rho)
    u_row, v_row = u[sets], v[sets]
    w = np.ones(len(z)) if weight is None else weight * (len(z) / weight.sum())

    def loss(parameters: Floats) -> tuple[float, Floats]:
        slope, intercept = parameters
        likelihood, derivative = set_log_likelihood(slope * z + intercept, u_row, v_row)
        derivative = w * derivative
        value = -(w * likelihood).sum() + RIDGE / 2 * (parameters @ parameters)
        return float(value), RIDGE * parameters - np.array([(derivative * z).sum(), derivative.sum()])

    found = minimize(loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.0, None), (None, None)])
    return MixtureCurve(float(found.x[0]), float(found.x[1]), center, scale)


def positive_score(classifier: Any, X: Any, theta: Floats) -> Floats:
    """Return a score for each row from a classifier of sets; rows with higher scores are more likely positive.

    For probabilities q, the score is the log-odds of the expected prior of the row's set, Σ q_j·θ_j, scaled to [0, 1].
    For decision values, the score is their weighted sum; the weights are the centered θ_j.
    """
    if hasattr(classifier, "predict_proba"):
        scaled = (classifier.predict_proba(X) @ theta - theta.min()) / np.ptp(theta)
        return np.asarray(logit(scaled.clip(PROBABILITY_MARGIN, 1 - PROBABILITY_MARGIN)))
    decision = np.asarray(classifier.decision_function(X), dtype=np.float64)
    if decision.ndim == 1:
        return np.asarray(decision * (theta[1] - theta[0]))
    if decision.shape[1] != len(theta):
        raise TypeError(
            f"{type(classifier).__name__}.decision_function returns {decision.shape[1]} columns for {len(theta)} sets; "
            "use one column per set (decision_function_shape='ovr'), or an estimator with predict_proba."
        )
    return np.asarray(decision @ (theta - theta.mean()))


class MixtureCalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ensemble that predicts the set of a row; each fold has its own classifier and calibration curve."""

    def __init__(self, estimator: Any, set_priors: Floats, set_fractions: Floats, cv: Any) -> None:
        self.estimator = estimator
        self.set_priors = set_priors
        self.set_fractions = set_fractions
        self.cv = cv

    def fit(self, X: Any, sets: NDArray[np.int64], sample_weight: Floats | None = None) -> Self:
        """For each fold, fit a classifier to the training rows and a curve to the held-out rows."""
        (X,) = indexable(X)
        self.folds_: list[tuple[Any, MixtureCurve]] = []
        for train, held_out in self.cv.split(X, sets):
            weights = {} if sample_weight is None else {"sample_weight": sample_weight[train]}
            classifier = clone(self.estimator).fit(_safe_indexing(X, train), sets[train], **weights)
            score = positive_score(classifier, _safe_indexing(X, held_out), self.set_priors)
            weight = None if sample_weight is None else sample_weight[held_out]
            curve = fit_mixture_curve(score, sets[held_out], self.set_priors, self.set_fractions, weight)
            self.folds_.append((classifier, curve))
        self.classes_ = np.arange(len(self.set_priors))
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each set, shape (n, m)."""
        curves = [curve.positive(positive_score(classifier, X, self.set_priors)) for classifier, curve in self.folds_]
        t = np.mean(curves, axis=0)[:, None]
        u, v = segment_ends(self.set_priors, self.set_fractions)
        return np.asarray((1 - t) * u + t * v)
