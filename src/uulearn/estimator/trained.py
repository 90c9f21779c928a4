"""Methods of a fitted classifier for prediction, calibration, adaptation to other priors, and evaluation."""

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

from uulearn.data import Rows, inputs
from uulearn.data.inputs import Columns, RowEncoder
from uulearn.estimator.fitting import warn_if_suspicious
from uulearn.estimator.html import ResultsBelowDiagram, result_parts
from uulearn.estimator.learners import ComparedModel, ConsistencyChoice, Learner, TrainedModel
from uulearn.estimator.new_rows import RowCounter
from uulearn.estimator.plan import takes_any_shape
from uulearn.estimator.self_training import Round
from uulearn.markup import notebook
from uulearn.metrics import Evaluation, evaluate, evaluate_labeled
from uulearn.metrics.calibration import PlattScaling, decision_values, fit_platt_scaling, shift_log_odds
from uulearn.metrics.new_rows import RowCheck, RowReference
from uulearn.metrics.out_of_fold import OutOfFoldCorrection
from uulearn.models import ModelLike
from uulearn.risk import get_loss, uu_risk
from uulearn.risk.coefficients import check_differ, check_priors, check_target_prior
from uulearn.risk.corrections import MethodLike, get_method
from uulearn.risk.losses import LossFunction, MarginLoss
from uulearn.training import History


class TrainedClassifier(ResultsBelowDiagram, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of `uulearn.UUClassifier` with the methods that use a trained model."""

    set_priors: Sequence[float] | None
    target_prior: float
    method: MethodLike
    slope: float
    loss: str | LossFunction
    model: ModelLike | Learner | None

    classes_: NDArray[np.int64]
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    row_shape_: tuple[int, ...]
    encoder_: RowEncoder | None
    learner_: Learner
    trained_: TrainedModel
    history_: History
    set_sizes_: tuple[int, ...]
    held_out_sizes_: tuple[int, ...]
    scaling_: PlattScaling | None
    out_of_fold_evaluation_: Evaluation | None
    out_of_fold_scores_: NDArray[np.float32] | None
    out_of_fold_correction_: OutOfFoldCorrection | None
    row_reference_: RowReference | str
    self_training_: list[Round] | None
    precision_: str
    resolved_params_: dict[str, Any]
    seed_: int

    @property
    def model_(self) -> Any:
        """The trained nn.Module, or the model of a custom learner."""
        return getattr(self.trained_, "module", self.trained_)

    def results_html(self) -> str:
        """Return the results of the fit as HTML, which notebooks show below scikit-learn's diagram."""
        return notebook.join(*result_parts(self)) if hasattr(self, "trained_") else ""

    def fitted_params(self) -> dict[str, Any]:
        """Return the parameters of the last fit, with each "auto" replaced by its resolved value."""
        check_is_fitted(self, "trained_")
        used: dict[str, Any] = self.get_params(deep=False) | self.resolved_params_
        return used

    @property
    def comparison_(self) -> list[ComparedModel] | None:
        """The models that ``model="auto"`` compared; None for other models."""
        return None if self.trained_.comparison is None else list(self.trained_.comparison)

    @property
    def consistency_(self) -> ConsistencyChoice | None:
        """The choice of ``consistency="auto"``; None for other values."""
        return self.trained_.consistency

    def _score_loss(self) -> MarginLoss:
        """Return the loss that says what uncalibrated scores mean; the surrogate method learns log-odds."""
        if get_method(self.method, self.slope).objective == "surrogate":
            return get_loss("logistic")
        return get_loss(self.trained_.loss or self.fitted_params()["loss"])

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return scores of shape (n,), above 0 for class 1: log-odds if calibrated, otherwise the model output g(x)."""
        return self.score_and_count(X, None)

    def score_and_count(self, X: Any, counter: RowCounter | None) -> NDArray[np.float32]:
        """Return the scores of `decision_function`, and add the rows to the counter, which compares them with the sets.

        Use it to check a large file in parts; the rows of a table are added after they are encoded.
        """
        check_is_fitted(self, "trained_")
        rows = self._read(X)
        outputs = self.trained_.score(rows)
        scores = decision_values(outputs.numpy(), self.scaling_)
        bad = ~np.isfinite(scores)
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"the score of row {row} of X is {scores[row]:g}, so no class can be predicted; check for values far "
                "outside the range of the training rows, and scale the columns before fit and predict."
            )
        if counter is not None:
            counter.add(rows, outputs)
        return scores

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return predicted classes of shape (n,), 1 for positive and 0 for negative, at class prior π."""
        self._known_priors()
        return (self.decision_function(X) > 0).astype(np.int64)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities of the negative and the positive class, shape (n, 2), at class prior π.

        The values estimate P(y | x) if the classifier is calibrated, or if it is a single model with a proper loss
        (``"logistic"``, ``"squared"``). For other losses, for method ``"biased"``, and for ensembles without
        calibration, they only rank the rows, with threshold ½.
        """
        positive = self.probabilities_from_scores(self.decision_function(X))
        return np.stack([1 - positive, positive], axis=1)

    def probabilities_from_scores(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return probabilities of the positive class from scores that `decision_function` returned."""
        check_is_fitted(self, "trained_")
        self._known_priors()
        values = np.asarray(scores, dtype=np.float64)
        if self.scaling_ is not None:
            return np.asarray(expit(values))
        return self._score_loss().probability(torch.from_numpy(values)).numpy()

    def with_encoder(self, encoder: RowEncoder | None) -> Self:
        """Return a copy that encodes tables with a fitted encoder, or, with None, takes rows that are already encoded.

        Use it if you encode rows yourself, for example to encode large files in parts.
        """
        check_is_fitted(self, "trained_")
        if encoder is not None and (n := len(encoder.get_feature_names_out())) != self.row_shape_[0]:
            raise ValueError(f"the encoder has {n} features, but the model was trained on {self.row_shape_[0]}.")
        other = copy.copy(self)
        other._set_columns(Columns(self.row_shape_, getattr(encoder, "feature_names_in_", None), encoder))
        return other

    def _set_columns(self, columns: Columns) -> None:
        self.row_shape_, self.encoder_ = columns.row_shape, columns.encoder
        self.n_features_in_ = (
            columns.row_shape[0] if columns.encoder is None else len(columns.encoder.feature_names_in_)
        )
        if columns.names is not None:
            self.feature_names_in_ = columns.names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_  # from an earlier fit

    def submodel(self, number: int) -> Self:
        """Return a copy of this classifier that uses only one model of the ensemble; models are numbered from 0."""
        check_is_fitted(self, "trained_")
        n_models = self.trained_.n_models
        if n_models is None:
            raise ValueError("this classifier has a single model; train an ensemble, for example with n_estimators=5.")
        if not 0 <= number < n_models:
            raise ValueError(f"submodel must be between 0 and {n_models - 1}, got {number}.")
        alone = copy.copy(self)
        alone.trained_ = self.trained_.submodel(number)
        alone._drop_out_of_fold()  # they describe the whole ensemble
        if isinstance(alone.row_reference_, RowReference):
            alone.row_reference_ = alone.row_reference_.without_scores()  # a model has only the scores of its fold
        return alone

    def _drop_out_of_fold(self) -> None:
        """Drop the results of out-of-fold scores, which no longer describe this classifier."""
        self.out_of_fold_evaluation_ = self.out_of_fold_scores_ = self.out_of_fold_correction_ = None

    def calibrate(self, X: Any, sets: Any) -> Self:
        """Calibrate scores to log-odds, without labels, on rows of all sets that were not used for training.

        See `uulearn.metrics.calibration.fit_platt_scaling`. After calibration, `decision_function` returns log-odds,
        which `predict`, `predict_proba` and `with_target_prior` use.
        """
        check_is_fitted(self, "trained_")
        rows = self._read(X)
        numbers = self._read_sets(sets, rows.n_rows)
        scores = self.trained_.score(rows).double().numpy()
        self.scaling_ = fit_platt_scaling(scores, numbers.numpy(), self._known_priors(), self.target_prior)
        self._drop_out_of_fold()  # computed before calibration
        return self

    def with_priors(self, set_priors: Sequence[float], target_prior: float, X: Any, sets: Any) -> Self:
        """Return a copy of this classifier for other class priors of the sets, without training again.

        The copy is calibrated on rows of all sets that were not used for training. A classifier trained with
        ``set_priors=None`` cannot predict classes before this call.
        """
        check_is_fitted(self, "trained_")
        priors, n_sets = tuple(check_priors(set_priors, number="two or more")), len(self.set_sizes_)
        if len(priors) != n_sets:
            raise ValueError(
                f"set_priors has {len(priors)} values, but this classifier was trained on {n_sets} sets; pass one "
                "class prior per set."
            )
        known = copy.copy(self)
        known.set_priors = priors
        known.target_prior = check_target_prior(target_prior)
        return known.calibrate(X, sets)

    def _known_priors(self) -> Sequence[float]:
        if self.set_priors is None:
            raise ValueError(
                "this classifier was trained with set_priors=None, so it can rank rows (decision_function) but not "
                "predict classes; once you know the class priors of the sets, call "
                "with_priors(set_priors, target_prior, X, sets)."
            )
        return self.set_priors

    def with_target_prior(self, target_prior: float) -> Self:
        """Return a copy of this classifier for a population with another class prior, without training again.

        The predicted log-odds are shifted by the change in the log-odds of the class prior. This requires a calibrated
        classifier, or a single model with the logistic loss.
        """
        check_is_fitted(self, "trained_")
        self._known_priors()
        scaling = self.scaling_
        if scaling is None:
            loss, method = self._score_loss().name, get_method(self.method, self.slope).name
            if self.trained_.is_rescaled or loss != "logistic" or method == "biased":
                rescaled = "the scores of an ensemble, which are averaged after rescaling,"
                what = rescaled if self.trained_.is_rescaled else f"the scores of loss {loss!r} and method {method!r}"
                raise ValueError(
                    f"{what} are not log-odds, so they cannot be shifted to another prior; call calibrate(X, sets) "
                    "first, with rows that were not used for training, or train with calibrated=True."
                )
            scaling = PlattScaling(1.0, 0.0, self.target_prior)
        moved = copy.copy(self)
        moved.target_prior = check_target_prior(target_prior)
        intercept = shift_log_odds(scaling.intercept, scaling.prior, target_prior)
        moved.scaling_ = PlattScaling(scaling.slope, float(intercept), moved.target_prior)
        moved._drop_out_of_fold()  # these describe the previous target prior
        return moved

    def evaluate(self, X: Any, *, sets: Any = None, labels: Any = None) -> Evaluation:
        """Estimate the accuracy, balanced accuracy, AUC and rates, with intervals, on rows not used for training.

        Pass ``sets``, the set of each row, to estimate all metrics without labels at class prior π. Alternatively, pass
        ``labels`` (1 for positive, 0 for negative); the result then says that labels were used.
        """
        if (sets is None) == (labels is None):
            raise ValueError("evaluate needs either sets (no label is used) or labels; pass one of them.")
        scores = self.decision_function(X)
        if labels is not None:
            return evaluate_labeled(scores, inputs.read_labels(labels, len(scores)))
        priors = self._known_priors()
        evaluated = evaluate(scores, self._read_sets(sets, len(scores)), priors, self.target_prior)
        warn_if_suspicious(evaluated.accuracy.unclipped, priors, self.target_prior, evaluated.sizes)
        return evaluated

    def check_rows(self, X: Any) -> RowCheck:
        """Check without labels whether new rows are a mixture of the two sets, with any class prior.

        If they are not (``check_rows(X).alarm``), estimates from the two sets, such as ``out_of_fold_evaluation_``, are
        not valid for these rows. At least 50 rows are needed. At most 1% of the checks of valid rows raise an alarm.
        `predict` and `evaluate` do not run this check; the commands ``uulearn predict`` and ``uulearn evaluate`` do.
        """
        check_is_fitted(self, "trained_")
        counter = RowCounter(self)
        counter.add(self._read(X))
        return counter.check()

    def score(self, X: Any, sets: Any = None) -> float:
        """Estimate the accuracy at class prior π without labels, from rows of both sets.

        The estimate is one minus the unbiased zero-one risk on rows not used for training, clipped to [0, 1]. With few
        rows or close priors it is noisy, and clipping biases averages over folds: pass ``scoring=UUScorer()``, which
        does not clip, to ``cross_val_score`` and ``GridSearchCV``. A scorer such as ``"accuracy"`` would compare
        predicted classes with sets.
        """
        if sets is None:
            raise TypeError(
                f"{type(self).__name__}.score needs sets, the set of each row, because it uses no labels; pass "
                "score(X, sets)."
            )
        priors = self._known_priors()
        scores = self.decision_function(X)
        numbers = self._read_sets(sets, len(scores))
        risk = uu_risk(torch.from_numpy(scores), numbers, priors, self.target_prior, loss="zero_one", method="unbiased")
        accuracy, sizes = 1 - risk.unbiased.item(), torch.bincount(numbers, minlength=len(priors)).tolist()
        warn_if_suspicious(accuracy, priors, self.target_prior, sizes)
        return min(max(accuracy, 0.0), 1.0)

    def _read_sets(self, sets: Any, n_rows: int) -> Tensor:
        """Return the set of each row; some of more than two sets may have no rows."""
        priors = self._known_priors()
        numbers = inputs.read_sets(sets, n_rows, len(priors))
        if len(priors) == 2:
            inputs.check_both_sets(numbers)
        else:
            check_differ([priors[which] for which in set(numbers.tolist())], len(priors))
        return numbers

    def _read(self, X: Any) -> Rows:
        columns = Columns(self.row_shape_, getattr(self, "feature_names_in_", None), self.encoder_)
        name = type(self).__name__
        return inputs.read_same_columns(X, columns, any_shape=takes_any_shape(self.model), estimator=name, new=True)
