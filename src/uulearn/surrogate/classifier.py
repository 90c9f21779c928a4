"""`SurrogateSetClassifier`: train any scikit-learn classifier on unlabeled sets."""

import warnings
from collections.abc import Sequence
from itertools import chain
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from uulearn.defaults import TARGET_PRIOR
from uulearn.exceptions import SuspiciousScoreWarning
from uulearn.risk.coefficients import check_target_prior, warn_if_close
from uulearn.surrogate.accuracy import accuracy_weights, estimate_accuracy
from uulearn.surrogate.calibration import MixtureCalibratedClassifier
from uulearn.surrogate.inversion import Floats, Inversion, invert_set_posterior, read_priors

CALIBRATIONS = ("mixture", "sigmoid", "isotonic", None)
LARGEST_LOG_ODDS = 36.0  # above this value, 1 − η is rounded to 0 in double precision


def default_estimator(random_state: Any = None) -> Any:
    """Return a strongly regularized gradient boosting model, because the set of a row is only a noisy class label."""
    options = {"learning_rate": 0.05, "max_leaf_nodes": 8, "max_features": 0.3}
    return HistGradientBoostingClassifier(**options, random_state=random_state)


class SurrogateSetClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Binary classifier trained on two or more unlabeled sets with any scikit-learn classifier.

    The base classifier learns to predict the *set* of a row, with its own objective, so trees, kernels and nearest
    neighbors can be used. The predicted set probabilities are then converted to class probabilities, using the known
    class priors (`uulearn.surrogate.inversion`).

    Parameters
    ----------
    set_priors : sequence of m ≥ 2 numbers
        Class prior of each set; the priors must not all be equal.
    target_prior : float
        π, the class prior of the population that the classifier will be used on. It is not used in training:
        ``set_params(target_prior=0.3)`` re-targets a fitted classifier.
    estimator : classifier, optional
        Base classifier, which is cloned. Default: ``HistGradientBoostingClassifier`` with ``learning_rate=0.05``,
        ``max_leaf_nodes=8`` and ``max_features=0.3``. ``class_weight`` must be None, because the inversion depends on
        the fractions of the sets.
    calibration : {"mixture", "sigmoid", "isotonic", None}
        Method for calibrating the set probabilities with cross-validation. ``"mixture"`` fits a logistic curve that is
        consistent with the priors (`uulearn.surrogate.calibration`); ``"sigmoid"`` and ``"isotonic"`` are the methods
        of ``CalibratedClassifierCV``; None uses the output of ``predict_proba``.
    cv : int or splitter
        Number of stratified, shuffled folds for calibration, or a scikit-learn splitter.
    random_state : int, RandomState or None
        Seed for the folds and for the default estimator.

    Attributes
    ----------
    estimator_ : classifier
        Fitted classifier that predicts the set of a row; ``estimator_.predict_proba(X)`` has shape (n, m).
    set_priors_ : array
        Class prior of each set.
    set_sizes_ : tuple of int
        Number of rows of each set.
    set_fractions_ : array
        Fraction of all rows in each set (by weight if ``sample_weight`` was given).
    classes_ : array([0, 1])
        0 is negative, 1 is positive.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.random(1000) < prior for prior in (0.9, 0.5, 0.1)]  # unknown to the classifier
    >>> X = [rng.normal(size=(1000, 2)) + 2 * positive[:, None] - 1 for positive in y]
    >>> clf = SurrogateSetClassifier((0.9, 0.5, 0.1), estimator=LogisticRegression(), random_state=0)
    >>> clf.fit_sets(*X).predict([[1.0, 1.0], [-1.0, -1.0]])
    array([1, 0])
    >>> clf.set_params(target_prior=0.1).predict_proba([[0.5, 0.0]]).round(1)  # positives are rare
    array([[0.8, 0.2]])
    """

    estimator_: Any
    set_priors_: Floats
    set_sizes_: tuple[int, ...]
    set_fractions_: Floats
    classes_: NDArray[np.int64]

    def __init__(
        self,
        set_priors: Sequence[float],
        target_prior: float = TARGET_PRIOR,
        *,
        estimator: Any = None,
        calibration: str | None = "mixture",
        cv: Any = 5,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.set_priors = set_priors
        self.target_prior = target_prior
        self.estimator = estimator
        self.calibration = calibration
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, sets: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train on rows of all sets, in any order; ``sets`` contains the set of each row, 0 to m − 1.

        ``sample_weight`` is passed to the estimator. In this case, ``set_priors`` must be weighted class priors.
        """
        theta = read_priors(self.set_priors)
        check_target_prior(self.target_prior)
        check_random_state(self.random_state)
        cv = self._splitter()
        _check_base(self._base(), self.calibration, sample_weight is not None)
        membership = _read_sets(sets, _num_samples(X), len(theta))
        _check_every_set(membership, len(theta), getattr(cv, "n_splits", 1) if self.calibration else 1)
        sizes = np.bincount(membership, minlength=len(theta))
        weights, fractions = {}, sizes / sizes.sum()
        if sample_weight is not None:
            weights["sample_weight"] = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            mass = np.bincount(membership, weights=weights["sample_weight"], minlength=len(theta))
            if not (mass > 0).all():
                raise ValueError(f"all rows of set {int(mass.argmin())} have sample_weight 0 (a class is missing).")
            fractions = mass / mass.sum()
        warn_if_close(theta.tolist(), self.target_prior, sizes.tolist())
        classifier = self._classifier(theta, fractions, cv).fit(X, membership, **weights)

        validate_data(self, X, skip_check_array=True)  # after training, because a failed fit must not change the state
        self.estimator_ = classifier
        self.set_priors_ = theta
        self.set_sizes_ = tuple(sizes.tolist())
        self.set_fractions_ = fractions
        self.classes_ = np.array([0, 1])
        return self

    def fit_sets(self, *tables: Any) -> Self:
        """Train on one table per set: ``fit_sets(X0, X1, X2)``."""
        if len(tables) != len(read_priors(self.set_priors)):
            raise ValueError(
                f"fit_sets got {len(tables)} tables for {len(self.set_priors)} set_priors; pass one table per set, "
                "in the order of the priors."
            )
        return self.fit(_stack_rows(tables), np.repeat(np.arange(len(tables)), list(map(_num_samples, tables))))

    def _base(self) -> Any:
        return default_estimator(self.random_state) if self.estimator is None else self.estimator

    def _splitter(self) -> Any:
        """Return ``cv`` if it is a splitter, or create stratified, shuffled folds; check ``calibration`` and ``cv``."""
        if not (self.calibration is None or isinstance(self.calibration, str)) or self.calibration not in CALIBRATIONS:
            names = ", ".join(map(repr, CALIBRATIONS))
            raise ValueError(f"calibration must be one of {names}, got {self.calibration!r}.")
        if hasattr(self.cv, "split"):
            return self.cv
        if not isinstance(self.cv, Integral) or isinstance(self.cv, bool) or self.cv < 2:
            raise ValueError(f"cv must be a whole number of folds, at least 2, or a splitter, got {self.cv!r}.")
        return StratifiedKFold(int(self.cv), shuffle=True, random_state=self.random_state)

    def _classifier(self, theta: Floats, fractions: Floats, cv: Any) -> Any:
        base = clone(self._base())
        if self.calibration is None:
            return base
        if self.calibration == "mixture":
            return MixtureCalibratedClassifier(base, theta, fractions, cv)
        return CalibratedClassifierCV(base, method=self.calibration, cv=cv)

    def invert(self, X: Any) -> Inversion:
        """Return the log-odds of the positive class at class prior π, and a mask of the clipped rows.

        If many held-out rows are clipped, the estimator overfits or needs calibration, or the priors are wrong.
        """
        check_is_fitted(self, "estimator_")
        if getattr(X, "ndim", 2) == 2:  # other kinds of rows, such as text, are validated by the estimator
            validate_data(self, X, reset=False, skip_check_array=True)
        probabilities = self.estimator_.predict_proba(X)
        return invert_set_posterior(probabilities, self.set_priors_, self.set_fractions_, self.target_prior)

    def decision_function(self, X: Any) -> Floats:
        """Return the log-odds of the positive class at class prior π, shape (n,), clipped to [−36, 36]."""
        return self.invert(X).log_odds.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the predicted classes at class prior π, shape (n,): 1 for positive and 0 for negative."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the negative and the positive class at class prior π, shape (n, 2)."""
        log_odds = self.decision_function(X)
        return np.stack([expit(-log_odds), expit(log_odds)], axis=1)

    def score(self, X: Any, sets: Any) -> float:
        """Estimate the accuracy at class prior π without labels, from rows of every set.

        The estimate is unbiased for held-out rows before it is clipped to [0, 1], but noisy with few rows or close
        priors. Do not pass ``scoring="accuracy"`` to ``cross_val_score`` or ``GridSearchCV``: it would compare
        predicted classes with sets.
        """
        scores = self.decision_function(X)
        theta, n_sets = self.set_priors_, len(self.set_priors_)
        membership = _read_sets(sets, len(scores), n_sets)
        _check_every_set(membership, n_sets)
        accuracy = estimate_accuracy(scores, membership, theta, self.target_prior)
        if accuracy < 0.5 - 4 * accuracy_weights(theta, np.bincount(membership), self.target_prior).standard_error:
            warnings.warn(
                f"the estimated accuracy is {accuracy:.3f}, far below chance: if you passed labels instead of sets, "
                "use sklearn.metrics.accuracy_score(y, clf.predict(X)); otherwise check the order of set_priors.",
                SuspiciousScoreWarning,
                stacklevel=2,
            )
        return min(max(accuracy, 0.0), 1.0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = get_tags(self._base()).input_tags
        tags.input_tags.sparse = inputs.sparse
        tags.input_tags.allow_nan = inputs.allow_nan
        tags.classifier_tags.multi_class = False
        return tags


def _read_sets(sets: Any, n_rows: int, n_sets: int) -> NDArray[np.int64]:
    """Return set memberships as integers from 0 to m − 1, one per row."""
    if sets is None:
        raise ValueError("requires y to be passed, but the target y is None: pass sets, or use fit_sets(X0, X1, ...).")
    values = column_or_1d(sets, warn=True)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("Input y contains NaN or infinity: sets must contain the set number of each row.")
    check_classification_targets(values)
    if len(values) != n_rows:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: X {n_rows}, sets {len(values)}.")
    unknown = [value for value in np.unique(values).tolist() if value not in range(n_sets)]
    if unknown:
        raise ValueError(
            f"sets must contain whole numbers from 0 to {n_sets - 1}, because there are {n_sets} set_priors, got "
            f"{unknown[0]!r}; number the sets from 0 and pass one prior per set."
        )
    return np.asarray(values).astype(np.int64)


def _check_every_set(membership: NDArray[np.int64], n_sets: int, least: int = 1) -> None:
    """Raise a ValueError unless every set has at least the given number of rows."""
    for which, size in enumerate(np.bincount(membership, minlength=n_sets).tolist()):
        if size == 0:
            raise ValueError(
                f"set {which} is empty (one class of sets is missing); pass rows of this set, or remove its prior."
            )
        if size < least:
            raise ValueError(
                f"set {which} has only {size} {'sample' if size == 1 else 'samples'}, but calibration by {least}-fold "
                "cross-validation needs a row of every set in every fold; lower cv, or pass calibration=None."
            )


def _stack_rows(tables: Sequence[Any]) -> Any:
    """Concatenate tables; tables of different types are converted to arrays first."""
    if len({type(table) for table in tables}) == 1:
        first = tables[0]
        if isinstance(first, list):
            return list(chain.from_iterable(tables))
        if sparse.issparse(first):
            return sparse.vstack(tables, format="csr")
        if hasattr(first, "iloc"):
            import pandas as pd

            for which, table in enumerate(tables):
                if list(getattr(table, "columns", [])) != list(getattr(first, "columns", [])):
                    raise ValueError(
                        f"set 0 and set {which} have different columns, {list(first.columns)} and "
                        f"{list(table.columns)}; pass tables with the same columns in the same order."
                    )
            return pd.concat(tables, ignore_index=True)
    return np.concatenate([np.asarray(table) for table in tables])


def _check_base(base: Any, calibration: str | None, weighted: bool) -> None:
    """Raise a TypeError or ValueError if the base classifier cannot be fitted on sets or lacks a required method."""
    name = type(base).__name__
    if isinstance(base, type) or not (hasattr(base, "fit") and hasattr(base, "get_params")):
        raise TypeError(f"estimator must be a scikit-learn classifier, got {base!r}; pass an instance, not a class.")
    if calibration is None and not hasattr(base, "predict_proba"):
        raise TypeError(f"{name} has no predict_proba; pass calibration='mixture' or another estimator.")
    if not hasattr(base, "predict_proba") and not hasattr(base, "decision_function"):
        raise TypeError(f"{name} has neither predict_proba nor decision_function; pass a classifier that has one.")
    if weighted and not has_fit_parameter(base, "sample_weight"):
        raise TypeError(f"{name}.fit has no sample_weight; omit the weights, or pass an estimator that supports them.")
    for parameter, value in base.get_params(deep=True).items():
        if parameter.split("__")[-1] == "class_weight" and value is not None:
            raise ValueError(
                f"{parameter}={value!r} of {name} changes the effective fractions of the sets, so the converted "
                "probabilities would be wrong; pass class_weight=None, or use sample_weight instead."
            )
