"""What a fitted classifier does: predict, give probabilities, move to another prior, be evaluated."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from uulearn.data import Rows
from uulearn.estimator import guards, inputs
from uulearn.metrics import Evaluation, evaluate, evaluate_labelled
from uulearn.metrics.calibration import Scaling, fit_scaling, shift_log_odds
from uulearn.models import IMAGE_MODELS, Ensemble, ModelLike
from uulearn.risk import get_loss, uu_risk
from uulearn.risk.coefficients import check_set_priors, check_target_prior
from uulearn.risk.corrections import MethodLike, get_method
from uulearn.risk.losses import LossFunction
from uulearn.training import score_rows
from uulearn.training.precision import multiplies_bfloat16
from uulearn.training.scoring import module_device


class TrainedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The half of `uulearn.UUClassifier` that uses a trained model; the other half trains it."""

    set_priors: Sequence[float] | None
    target_prior: float
    cross_fitted_: Evaluation | None
    method: MethodLike
    slope: float
    loss: str | LossFunction
    model: ModelLike
    precision: str
    input_scale: float
    model_: Any
    scaling_: Scaling | None
    resolved_params_: dict[str, Any]
    precision_: str

    def _trained_with(self) -> dict[str, Any]:
        """The parameters of the last fit, with what "auto" became."""
        used: dict[str, Any] = self.get_params(deep=False) | self.resolved_params_
        return used

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Scores of shape (n,), above zero for positive: log-odds where calibrated, else the model's g(x)."""
        check_is_fitted(self, "model_")
        return self._decisions(self._scores(self._read(X, "X")).numpy())

    def _decisions(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        return scores if self.scaling_ is None else self.scaling_.log_odds(scores).astype(np.float32)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Classes of shape (n,): 1 for positive, 0 for negative, at class prior π."""
        self._known_priors()
        return (self.decision_function(X) > 0).astype(np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the negative and the positive class, shape (n, 2), at class prior π.

        Where calibrated, they are estimates of P(y | x). Where not, they are so for the proper losses, ``"logistic"``
        and ``"squared"``; for the others, and for method ``"biased"``, they only rank the rows and cross ½ where
        `predict` changes.
        """
        positive = self.probabilities_from_scores(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def probabilities_from_scores(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Probability of the positive class, shape (n,), from the scores that `decision_function` returned.

        Use it if you need both, to run the model only once. `predict_proba` describes what the numbers mean.
        """
        check_is_fitted(self, "model_")
        self._known_priors()
        log_odds = np.asarray(scores, dtype=np.float64)
        if self.scaling_ is not None:
            return np.asarray(expit(log_odds))
        return get_loss(self._trained_with()["loss"]).probability(torch.from_numpy(log_odds)).numpy()

    def member(self, number: int) -> Self:
        """The same classifier with one of its several members alone, as a copy; this one stays as it is."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, Ensemble):
            raise ValueError("this classifier has one model, not several members; train it with members=5, say.")
        members = self.model_.members
        if not 0 <= number < len(members):
            raise ValueError(f"there is no member {number}; they are counted from 0 to {len(members) - 1}.")
        alone = copy.copy(self)
        scale = self.model_.scales[number].item()
        alone.model_ = Ensemble([members[number]], [scale]).to(self.model_.scales.device).eval()
        return alone

    # ------------------------------------------------------------------------------ probabilities, and other priors

    def calibrate(self, X: Any, sets: Any) -> Self:
        """Turn scores into log-odds by rows of both sets that were not trained on; no label is needed.

        See `uulearn.metrics.calibration.fit_scaling`. Afterwards `decision_function` gives log-odds, and `predict`,
        `predict_proba` and `with_target_prior` follow them.
        """
        check_is_fitted(self, "model_")
        rows = self._read(X, "X")
        membership = inputs.read_sets(sets, rows.n_rows)
        inputs.check_both_sets(membership)
        self.scaling_ = self._scaled(self._scores(rows), membership.numpy())
        self.cross_fitted_ = None  # which was of other decisions
        return self

    def _scaled(self, scores: Tensor, sets: NDArray[np.int64]) -> Scaling:
        return fit_scaling(scores.double().numpy(), sets, self._known_priors(), self.target_prior)

    def with_priors(self, set_priors: Sequence[float], target_prior: float, X: Any, sets: Any) -> Self:
        """The same classifier for other shares of positives in the sets, without training again.

        A copy, calibrated with these priors by rows of both sets that were not trained on. It is what a classifier
        trained without priors (``set_priors=None``) needs before it can predict; this one stays as it is.
        """
        check_is_fitted(self, "model_")
        known = copy.copy(self)
        known.set_priors = check_set_priors(set_priors)
        known.target_prior = check_target_prior(target_prior)
        return known.calibrate(X, sets)

    def _known_priors(self) -> Sequence[float]:
        if self.set_priors is None:
            raise ValueError(
                "this classifier was trained with set_priors=None: it ranks rows (decision_function), but which of "
                "them are positive depends on the sets' shares of positives; call with_priors(set_priors, "
                "target_prior, X, sets) once they are known."
            )
        return self.set_priors

    def with_target_prior(self, target_prior: float) -> Self:
        """The same classifier for where another share is positive, without training again.

        A copy with the new ``target_prior`` whose log-odds are shifted by the change of the prior odds; this one stays
        as it is. It takes probabilities: those of a calibrated classifier, or of the logistic loss.
        """
        check_is_fitted(self, "model_")
        self._known_priors()
        scaling = self.scaling_
        if scaling is None:
            loss = get_loss(self._trained_with()["loss"]).name
            if loss != "logistic" or get_method(self.method, self.slope).name == "biased":
                raise ValueError(
                    f"the scores of loss {loss!r} and method "
                    f"{get_method(self.method, self.slope).name!r} are no log-odds, so that they cannot be moved to "
                    "another prior; call calibrate(X, sets) first, with rows that were not trained on."
                )
            scaling = Scaling(1.0, 0.0, self.target_prior)
        moved = copy.copy(self)
        moved.target_prior = check_target_prior(target_prior)
        intercept = shift_log_odds(scaling.intercept, scaling.prior, target_prior)
        moved.scaling_ = Scaling(scaling.slope, float(intercept), moved.target_prior)
        moved.cross_fitted_ = None  # which was for where another share is positive
        return moved

    # ------------------------------------------------------------------------------------------------------- evaluating

    def evaluate(self, X: Any, *, sets: Any = None, labels: Any = None) -> Evaluation:
        """Accuracy, balanced accuracy, AUC and rates with intervals, on rows that were not trained on.

        Pass either ``sets``, the set that each row came from (everything is then estimated without labels, at class
        prior π), or ``labels``, 1 for positive and 0 for negative (plain metrics; the result says that labels were
        used).

        Examples
        --------
        >>> from uulearn import UUClassifier
        >>> rng = np.random.default_rng(0)
        >>> sets = np.repeat([0, 1], 1000)
        >>> y = rng.random(2000) < np.where(sets == 0, 0.8, 0.2)
        >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None] - 1
        >>> clf = UUClassifier((0.8, 0.2), model="linear", lr=0.05, epochs=50, random_state=0).fit(X[::2], sets[::2])
        >>> print(clf.evaluate(X[1::2], sets=sets[1::2]).accuracy)
        0.890 (95% interval 0.843 to 0.933)
        >>> print(clf.evaluate(X[1::2], labels=y[1::2]).accuracy)
        0.908 (95% interval 0.888 to 0.924)
        """
        if (sets is None) == (labels is None):
            raise ValueError(
                "evaluate needs either sets (no label is used) or labels (plain metrics): pass one of them."
            )
        scores = self.decision_function(X)
        if labels is not None:
            return evaluate_labelled(scores, inputs.read_labels(labels, len(scores)))
        priors = self._known_priors()
        evaluated = evaluate(scores, inputs.read_sets(sets, len(scores)), priors, self.target_prior)
        pair = (float(priors[0]), float(priors[1]))
        guards.warn_if_suspicious(evaluated.accuracy.value, pair, self.target_prior, evaluated.sizes)
        return evaluated

    def score(self, X: Any, sets: Any) -> float:
        """Accuracy at class prior π estimated without labels, from rows of both sets.

        One minus the unbiased zero-one risk. It is unbiased for rows not used in training, but noisy: on few rows, or
        with close priors, it may leave [0, 1]. In ``cross_val_score`` and ``GridSearchCV`` leave ``scoring`` unset:
        scorers such as ``"accuracy"`` would compare predicted classes with sets.
        """
        priors = self._known_priors()
        scores = self.decision_function(X)
        membership = inputs.read_sets(sets, len(scores))
        inputs.check_both_sets(membership)
        risk = uu_risk(
            torch.from_numpy(scores),
            membership,
            priors,
            self.target_prior,
            loss="zero_one",
            method="unbiased",
        )
        accuracy = 1 - risk.unbiased.item()
        n1 = int(membership.sum())
        guards.warn_if_suspicious(
            accuracy, (float(priors[0]), float(priors[1])), self.target_prior, (len(membership) - n1, n1)
        )
        return accuracy

    def _read(self, X: Any, name: str, reset: bool = False) -> Rows:
        return inputs.read_rows(X, self, reset=reset, any_shape=self._takes_any_shape(), name=name)

    def _takes_any_shape(self) -> bool:
        return not isinstance(self.model, str) or self.model in IMAGE_MODELS

    def _scores(self, rows: Rows) -> Tensor:
        device = module_device(self.model_)
        fast = self.precision_ == "bfloat16" and (self.precision == "bfloat16" or multiplies_bfloat16(device))
        dtype = torch.bfloat16 if fast else torch.float32
        return score_rows(self.model_, rows, device=device, dtype=dtype, scale=self.input_scale)
