"""Any scikit-learn classifier as a classifier trained from unlabeled sets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from uulearn.exceptions import ClosePriorsWarning, SuspiciousScoreWarning
from uulearn.risk.coefficients import CLOSE_PRIORS, check_target_prior
from uulearn.surrogate.accuracy import accuracy_weights, estimate_accuracy
from uulearn.surrogate.calibration import MixtureCalibratedClassifier
from uulearn.surrogate.inputs import (
    check_base,
    check_calibration,
    check_every_set,
    n_rows_of,
    read_sets,
    stack_rows,
    weighted_shares,
)
from uulearn.surrogate.inversion import Floats, Inversion, check_priors, invert_set_posterior

LARGEST_LOG_ODDS = 36.0
"""Decision values end here: beyond, 1 − η is lost in double precision."""


def default_estimator(random_state: Any = None) -> Any:
    """Gradient boosting held back in three ways, since sets are noisy stand-ins for classes."""
    return HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=8, max_features=0.3, random_state=random_state
    )


class SurrogateSetClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Binary classifier from two or more unlabeled sets, made of any classifier with ``predict_proba``.

    The classifier learns to tell the *sets* apart (surrogate set classification, Lu et al., ICML 2021). Its
    probability of each set is then turned into the probability of the positive class, which the known shares of
    positives allow: see `uulearn.surrogate.inversion`. The classifier minimises what it always minimises: no risk
    can go negative, none needs a gradient, and trees, kernels and neighbours will do.

    Parameters
    ----------
    set_priors : sequence of m ≥ 2 numbers
        Share of positives in each set; not all equal.
    target_prior : float
        π, the share of positives where the classifier will be used.
    estimator : classifier, optional
        What tells the sets apart; it is cloned. None is ``HistGradientBoostingClassifier`` with ``learning_rate=0.05``,
        ``max_leaf_nodes=8`` and ``max_features=0.3``. ``class_weight`` must be None: the inversion rests on the shares
        of the sets.
    calibration : {"mixture", "sigmoid", "isotonic", None}
        How the set probabilities are calibrated, by cross-fitting. ``"mixture"`` fits a logistic curve through the
        mixture (`uulearn.surrogate.calibration`); ``"sigmoid"`` and ``"isotonic"`` are those of scikit-learn's
        ``CalibratedClassifierCV``; None takes the probabilities as ``predict_proba`` gives them.
    cv : int or splitter
        Folds of the calibration; a number stands for stratified, shuffled folds.
    random_state : int, RandomState or None
        Seeds the folds, and the default estimator; another estimator has a seed of its own.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier of sets; ``estimator_.predict_proba(X)`` has shape (n, m).
    set_priors_ : array of shape (m,)
        The priors that were trained with.
    set_sizes_ : tuple of m ints
        Rows of each set in training.
    set_shares_ : array of shape (m,)
        ρ, the share of each set among the rows, by weight where ``sample_weight`` was given.
    classes_ : array([0, 1])
        0 is negative, 1 is positive.
    n_features_in_, feature_names_in_
        What a row looks like.

    Notes
    -----
    ``target_prior`` is not used in training: on a fitted classifier ``set_params(target_prior=0.3)`` is enough to move
    it to another population.

    As with `UUClassifier`, which set is the richer cannot be read off the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.random(1000) < prior for prior in (0.9, 0.5, 0.1)]  # never shown to the classifier
    >>> X = [rng.normal(size=(1000, 2)) + 2 * positive[:, None] - 1 for positive in y]
    >>> clf = SurrogateSetClassifier((0.9, 0.5, 0.1), estimator=LogisticRegression(), random_state=0)
    >>> clf.fit_sets(*X).predict([[1.0, 1.0], [-1.0, -1.0]])
    array([1, 0])
    >>> clf.predict_proba([[0.5, 0.0]]).round(1)  # in truth 1/(1 + e) and 1/(1 + 1/e)
    array([[0.3, 0.7]])
    >>> clf.set_params(target_prior=0.1).predict_proba([[0.5, 0.0]]).round(1)  # where positives are rare
    array([[0.8, 0.2]])
    """

    estimator_: Any
    set_priors_: Floats
    set_sizes_: tuple[int, ...]
    set_shares_: Floats
    classes_: NDArray[np.int64]

    def __init__(
        self,
        set_priors: Sequence[float],
        target_prior: float = 0.5,
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

    # ------------------------------------------------------------------------------------------------------- training

    def fit(self, X: Any, sets: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train on rows of all sets.

        Parameters
        ----------
        X : whatever the estimator takes, n rows
            Rows of all sets, in any order.
        sets : array of shape (n,)
            The set that each row came from, 0 to m − 1.
        sample_weight : array of shape (n,), optional
            Handed to the estimator; ``set_priors`` are then the shares of positives by weight.
        """
        theta = check_priors(self.set_priors)
        check_target_prior(self.target_prior)
        check_calibration(self.calibration, self.cv)
        check_random_state(self.random_state)
        check_base(self._base(), self.calibration, sample_weight is not None)
        membership = read_sets(sets, n_rows_of(X), len(theta))
        cv = self._splitter()
        check_every_set(membership, len(theta), getattr(cv, "n_splits", 1) if self.calibration else 1)
        sizes = np.bincount(membership, minlength=len(theta))
        weights, shares = {}, sizes / sizes.sum()
        if sample_weight is not None:
            weights["sample_weight"] = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            shares = weighted_shares(membership, weights["sample_weight"], len(theta))
        _warn_if_close(theta, self.target_prior, tuple(sizes.tolist()))
        classifier = self._classifier(theta, shares, cv).fit(X, membership, **weights)

        validate_data(self, X, skip_check_array=True)  # only now: a failed fit leaves an earlier one whole
        self.estimator_ = classifier
        self.set_priors_ = theta
        self.set_sizes_ = tuple(sizes.tolist())
        self.set_shares_ = shares
        self.classes_ = np.array([0, 1])
        return self

    def fit_sets(self, *tables: Any) -> Self:
        """Train on set 0, set 1, …, given apart: ``fit_sets(X0, X1, X2)``."""
        if len(tables) != len(check_priors(self.set_priors)):
            raise ValueError(
                f"fit_sets got {len(tables)} tables for {len(self.set_priors)} set_priors; pass one table a set, in "
                "the order of the priors."
            )
        return self.fit(stack_rows(tables), np.repeat(np.arange(len(tables)), [n_rows_of(X) for X in tables]))

    def _base(self) -> Any:
        return default_estimator(self.random_state) if self.estimator is None else self.estimator

    def _splitter(self) -> Any:
        """Folds with rows of every set in their proportion, shuffled: tables are often sorted by something."""
        if hasattr(self.cv, "split"):
            return self.cv
        return StratifiedKFold(int(self.cv), shuffle=True, random_state=self.random_state)

    def _classifier(self, theta: Floats, shares: Floats, cv: Any) -> Any:
        base = clone(self._base())
        if self.calibration is None:
            return base
        if self.calibration == "mixture":
            return MixtureCalibratedClassifier(base, theta, shares, cv)
        return CalibratedClassifierCV(base, method=self.calibration, cv=cv)

    # ----------------------------------------------------------------------------------------------------- prediction

    def invert(self, X: Any) -> Inversion:
        """Log-odds of the positive class at class prior π, and which rows had to be clipped.

        A large ``clipped_share`` on rows not trained on says that the estimator is surer about the sets than the
        priors allow: it overfits, wants calibration, or the priors are closer together than the sets really are.
        """
        check_is_fitted(self, "estimator_")
        if getattr(X, "ndim", 2) == 2:  # what else a row may be, such as a text, the estimator knows
            validate_data(self, X, reset=False, skip_check_array=True)
        return invert_set_posterior(
            self.estimator_.predict_proba(X), self.set_priors_, self.set_shares_, self.target_prior
        )

    def decision_function(self, X: Any) -> Floats:
        """Log-odds of the positive class at class prior π, shape (n,), between −36 and 36; above zero is positive."""
        return self.invert(X).log_odds.clip(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Classes of shape (n,): 1 for positive, 0 for negative, at class prior π."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the negative and the positive class, shape (n, 2), at class prior π."""
        log_odds = self.decision_function(X)
        return np.stack([expit(-log_odds), expit(log_odds)], axis=1)

    def score(self, X: Any, sets: Any) -> float:
        """Accuracy at class prior π estimated without labels, from rows of every set.

        For two sets what `UUClassifier.score` computes, for more its extension with the smallest variance
        (`uulearn.surrogate.accuracy`). Unbiased for rows not used in training, but noisy: on few rows, or with close
        priors, it may leave [0, 1]. In ``cross_val_score`` and ``GridSearchCV`` leave ``scoring`` unset: scorers such
        as ``"accuracy"`` would compare predicted classes with sets.
        """
        scores = self.decision_function(X)
        theta, n_sets = self.set_priors_, len(self.set_priors_)
        membership = read_sets(sets, len(scores), n_sets)
        check_every_set(membership, n_sets)
        accuracy = estimate_accuracy(scores, membership, theta, self.target_prior)
        if accuracy < 0.5 - 4 * accuracy_weights(theta, np.bincount(membership), self.target_prior).standard_error:
            warnings.warn(
                f"the estimated accuracy is {accuracy:.3f}, far below chance: if the second argument holds labels, use "
                "sklearn.metrics.accuracy_score(y, clf.predict(X)); if it holds sets, their priors may be in the wrong "
                "order.",
                SuspiciousScoreWarning,
                stacklevel=2,
            )
        return accuracy

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = get_tags(self._base()).input_tags
        tags.input_tags.sparse = inputs.sparse
        tags.input_tags.allow_nan = inputs.allow_nan
        tags.classifier_tags.multi_class = False
        return tags


def _warn_if_close(theta: Floats, target_prior: float, sizes: tuple[int, ...]) -> None:
    """Warn when the priors span little: what that costs."""
    span = float(np.ptp(theta))
    if span >= CLOSE_PRIORS:
        return
    error = accuracy_weights(theta, sizes, target_prior).standard_error
    labels = max(1, round(0.25 / error**2))
    warnings.warn(
        f"set_priors={tuple(theta.tolist())} span only {span:.3g}: these {sum(sizes):,} rows fix the accuracy to "
        f"±{100 * error:.2g} points (one standard error), no better than labels on {labels:,} of them would; use sets "
        "whose shares of positives differ more, or many more rows.",
        ClosePriorsWarning,
        stacklevel=3,
    )
