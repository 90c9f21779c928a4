"""The scikit-learn estimator `UUClassifier`."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from uulearn import defaults
from uulearn.data.inputs import FitData
from uulearn.data.streams import RowStream
from uulearn.estimator import persistence, reading
from uulearn.estimator.fitting import FitResult, run_plan, warn_about_result
from uulearn.estimator.learners import Learner
from uulearn.estimator.parameters import TRAINING_NAMES, TRAINING_PREFIX, check_parameters, is_auto
from uulearn.estimator.plan import FitPlan, make_plan, read_streams
from uulearn.estimator.summary import summarize
from uulearn.estimator.trained import TrainedClassifier
from uulearn.models import ModelLike
from uulearn.risk.corrections import MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training.loop import Callback
from uulearn.training.options import ConsistencyOptions, TrainingOptions, resolve_device
from uulearn.training.workers import Workers, join_workers, warn_on_rank_zero


class UUClassifier(TrainedClassifier):
    """Binary classifier trained from two or more unlabeled sets.

    The rows have no labels; only the class priors of the sets are known. `fit` takes the rows and the set (0 or 1) of
    each row. `predict` returns 1 for the positive and 0 for the negative class. `score` estimates the accuracy from
    unlabeled sets, so you can pass (X, sets) to ``cross_val_score`` and ``GridSearchCV``.

    Unlabeled data cannot show which set has the higher prior. If the priors are in the wrong order, the classifier
    predicts the opposite classes. Pass a few labeled rows as ``test_data`` to check the order of the priors.

    Parameters
    ----------
    set_priors : (θ, θ′), m > 2 numbers, or None
        Class priors (fractions of positives) of set 0 and set 1. The priors must differ; either one can be higher. For
        more sets, pass one class prior per set; at least two of them must differ. Sets are then numbered from 0 to
        m − 1, and self-training, consistency training, streamed sets and the method ``"biased"`` are not supported. If
        you only know that set 0 has the higher prior, pass None with ``method="biased"``; the classifier can then only
        rank rows until you add the priors with `with_priors`.
    target_prior : float
        Class prior π of the population on which the classifier will be used.
    method : str or pair
        ``"biased"``, ``"unbiased"``, ``"abs"``, ``"relu"``, ``"leaky_relu"``, or a pair of correction functions; see
        `UURisk`. ``"surrogate"`` maximizes the likelihood of the set of each row instead of estimating the risk.
    slope : float
        Slope λ ≤ 0 for ``method="leaky_relu"``.
    loss : str or callable
        ``"sigmoid"``, ``"logistic"``, ``"ramp"``, ``"double_hinge"``, ``"squared"``, or a function ℓ(z) of the margin.
        "auto" is ``"logistic"`` for the linear model and the method ``"surrogate"``, and ``"sigmoid"`` otherwise.
    model : str, nn.Module, class, factory, Learner or None
        ``"mlp"``, ``"linear"``, ``"boosting"`` (trees; needs LightGBM), ``"auto"`` (trains ``"boosting"`` and, up to
        about 12,000 rows, ``"mlp"``, and uses the better one or an average), ``"resnet32"`` or ``"allconvnet"`` (for
        images), ``"torchvision:"`` followed by the name of a classification network of torchvision, such as
        ``"torchvision:resnet18"``, or any module that returns one score per row. None is ``"auto"`` for data frames and
        Arrow tables if the priors are known, and otherwise ``"mlp"``. A class or factory is called with
        ``model_params``, and with ``n_features`` (tables) or ``shape`` (images) if it accepts this argument. A module
        instance is copied. A `uulearn.estimator.Learner` trains other kinds of models and ignores ``loss``, ``epochs``
        and the other parameters for training networks.
    model_params : dict, None or "auto"
        Arguments passed to the model, such as ``{"hidden": (300, 300)}`` for ``"mlp"``. "auto" is a smaller network
        with dropout for ``"mlp"`` on small tables (see ``epochs``), otherwise None. For a network of torchvision,
        ``{"weights": "DEFAULT"}`` downloads weights. For the model ``"auto"``, see
        `uulearn.estimator.auto.AutoOptions`. For ``"boosting"``, see `uulearn.estimator.boosting.TreeParameters`; every
        tree uses the risk of all rows on the CPU, so ``batch_size``, ``device`` and ``training`` (except its
        ``smoothing``) have no effect.
    epochs : int or "auto"
        Maximum number of epochs; for ``"boosting"``, the maximum number of trees. "auto" is 200, except for
        ``"mlp"`` on small tables if ``model_params`` and ``lr`` are also "auto": up to 3,000 rows over both sets, it is
        60, with two layers of 128 units and learning rate 0.01; up to 12,000 rows, it is 100, with two layers of 300
        units and learning rate 0.003.
    batch_size : int or "auto"
        Number of rows per batch, counting both sets. Use large batches: the corrections apply to the risk terms of a
        batch, and in a small batch these terms can be negative because of noise alone. "auto" is 256 for networks of
        torchvision, because photographs need much memory, and 3,000 for other models.
    lr : float or "auto"
        Learning rate; "auto" is 0.01 for ``"linear"``, 0.1 for ``"boosting"`` and 0.001 for other models; see
        ``epochs`` for small tables.
    l2 : float or "auto"
        Strength of the L2 penalty on weights (not biases); "auto" is 0.005 for ``"mlp"`` with sigmoid loss
        (0.0005 with consistency training, except for small tables), otherwise 0.
    n_estimators : int or "auto"
        Number of models whose scores are averaged. If it is above 1, the rows are split into this number of folds; each
        model is validated on one fold and trained on the others. "auto" is 5 for ``"linear"``, ``"mlp"``,
        ``"boosting"`` and learners, and 1 for slower models. It is also 1 if ``validation_fraction`` or
        ``validation_data`` is given, or if a set has fewer than ten rows or few unique rows.
    validation_fraction : float or "auto"
        Fraction of each set held out at random for early stopping and calibration of a single model. Duplicate rows are
        either all held out or all used for training. If 0, no rows are held out. Ignored if ``validation_data`` is
        passed to `fit`. "auto" is 0.1 if the smaller set has at least 5,000 rows or another parameter needs held-out
        rows, otherwise 0.
    early_stopping : bool or "auto"
        If True, training stops after ``patience`` epochs without improvement, and the epoch with the lowest estimated
        error on held-out rows is used. If False, the last epoch is used. "auto" is True if rows are held out.
    patience : int, None or "auto"
        Number of epochs without improvement after which training stops. If None, training does not stop early. "auto"
        is 20, or more if 20 epochs have fewer than 400 steps, and 50 for ``"boosting"``; without early stopping, it is
        None.
    self_training_rounds : int
        Maximum number of self-training rounds; requires an ensemble. Each round splits the rows into two purer sets by
        their out-of-fold predictions, and trains the models on these sets. The number of rounds used can be 0 and is
        chosen without labels. Self-training adds the cost of up to 2·``self_training_rounds`` + 1 more fits.
    consistency : None, bool, "auto", ConsistencyOptions or dict
        Consistency training of networks: the model also learns to predict, from a randomly changed copy of each row,
        the label that an average of its weights is most confident of. True uses the default options; see
        `uulearn.training.ConsistencyOptions`. A step takes two to three times as long. With ``model="auto"``, it
        applies to the networks that are compared. None and False disable it. "auto" trains the ensemble without and
        with it, and uses it if that lowers the error, estimated without labels, by more than two standard errors.
    calibrated : bool or "auto"
        Whether to calibrate scores to log-odds on held-out rows, without labels (see `calibrate`). Probabilities are
        then valid for any loss and method. "auto" calibrates if rows are held out and the priors are known.
    encoder : "auto", None or TableEncoder
        How tables are converted to numbers. "auto" encodes pandas, polars and Arrow tables with a
        `uulearn.tabular.TableEncoder`, as ``uulearn fit`` encodes files, and passes other rows to the model unchanged.
        None encodes nothing, so data frames must contain only numbers. Pass a `TableEncoder` to choose columns and
        their kinds. The encoder is fitted to the rows of both sets.
    device : str
        Device used for training; ``"auto"`` selects the first CUDA device, or the CPU if there is none.
    training : TrainingOptions, optional
        Optimizer, scheduler, precision, checkpoints and other rarely changed options; see
        `uulearn.training.TrainingOptions`. Change a single option with ``set_params(training__ema=None)``.
    progress : bool
        Whether to show a progress bar in the terminal during long training.
    random_state : int, RandomState or None
        Seed for the initial weights, shuffling, dropout and augmentation.

    Attributes
    ----------
    history_ : `uulearn.training.History`
        One record per epoch (signed risk terms, risks, learning rate, time), and the reason why training stopped. For
        an ensemble, each record is the mean over its models; ``history_.models`` contains the history of each model.
    model_ : nn.Module
        The trained module, or the model trained by a custom learner.
    encoder_ : `uulearn.tabular.TableEncoder` or None
        The fitted encoder of tables. If there is one, all methods take tables with the same columns in any order.
    classes_ : array([0, 1])
    n_features_in_ : int
        Number of columns of the rows.
    feature_names_in_ : array of str
        Names of the columns, if the training data had column names.
    row_shape_ : tuple of int
        Shape of one row of the model's input.
    set_sizes_ : tuple of int
        Number of training rows in each set.
    held_out_sizes_ : tuple of int
        Number of held-out rows in each set.
    out_of_fold_evaluation_ : `uulearn.metrics.Evaluation` or None
        Metrics of an ensemble, estimated without labels; each row is scored by the model that was not trained on it, at
        an epoch that other rows chose. After self-training, each half of the rows is scored by an ensemble trained on
        the other half.
    out_of_fold_scores_ : array of shape (n,) or None
        With several models, the decision values of all training rows (set 0 first), each computed by the model that
        was not trained on the row. They are not saved with the classifier.
    out_of_fold_correction_ : `uulearn.metrics.out_of_fold.OutOfFoldCorrection` or None
        Adjusts estimates from ``out_of_fold_scores_``, which measure single models, to the ensemble. It is applied
        in ``out_of_fold_evaluation_`` and not saved.
    consistency_ : `uulearn.estimator.learners.ConsistencyChoice` or None
        Whether ``consistency="auto"`` uses consistency training, and the estimated errors without and with it.
    self_training_ : list of `uulearn.estimator.self_training.Round`, or None
        The new sets and the accuracy gain of each self-training round, and whether it improved the classifier.
    scaling_ : `uulearn.metrics.calibration.PlattScaling` or None
        Linear function that maps the model's scores to log-odds; None if the scores are not calibrated.
    precision_ : str
        Data type of matrix products, ``"bfloat16"`` or ``"float32"``.
    resolved_params_ : dict
        Resolved values of the parameters set to "auto"; ``docs/defaults.md`` describes how the defaults were chosen.
    seed_ : int
    trained_ : TrainedModel
        The model that scores rows.
    learner_ : Learner
        The learner that trained the model.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y_a, y_b = rng.random(500) < 0.8, rng.random(500) < 0.2  # never shown to the classifier
    >>> X_a, X_b = (rng.normal(size=(500, 2)) + 2 * y[:, None] - 1 for y in (y_a, y_b))
    >>> clf = UUClassifier((0.8, 0.2), 0.5, model="linear", lr=0.05, epochs=50, random_state=0)
    >>> clf.fit_sets(X_a, X_b).predict([[1.0, 1.0], [-1.0, -1.0]])
    array([1, 0])
    >>> print(clf.out_of_fold_evaluation_.accuracy)  # no label was used
    0.913 (95% interval 0.851 to 0.967)
    """

    def __init__(
        self,
        set_priors: Sequence[float] | None,
        target_prior: float = defaults.TARGET_PRIOR,
        *,
        method: MethodLike = defaults.METHOD,
        slope: float = defaults.SLOPE,
        loss: str | LossFunction = defaults.AUTO,
        model: ModelLike | Learner | None = None,
        model_params: Mapping[str, Any] | str | None = defaults.AUTO,
        epochs: int | str = defaults.AUTO,
        batch_size: int | str = defaults.AUTO,
        lr: float | str = defaults.AUTO,
        l2: float | str = defaults.AUTO,
        n_estimators: int | str = defaults.AUTO,
        validation_fraction: float | str = defaults.AUTO,
        early_stopping: bool | str = defaults.AUTO,
        patience: int | str | None = defaults.AUTO,
        self_training_rounds: int = 0,
        consistency: ConsistencyOptions | Mapping[str, Any] | bool | str | None = None,
        calibrated: bool | str = defaults.AUTO,
        encoder: Any = defaults.AUTO,
        device: str = "auto",
        training: TrainingOptions | None = None,
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.set_priors = set_priors
        self.target_prior = target_prior
        self.method = method
        self.slope = slope
        self.loss = loss
        self.model = model
        self.model_params = model_params
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.l2 = l2
        self.n_estimators = n_estimators
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.patience = patience
        self.self_training_rounds = self_training_rounds
        self.consistency = consistency
        self.calibrated = calibrated
        self.encoder = encoder
        self.device = device
        self.training = training
        self.progress = progress
        self.random_state = random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return a dict of all parameters; ``deep=True`` adds training options such as ``training__ema``."""
        found: dict[str, Any] = super().get_params(deep)
        if deep and (self.training is None or isinstance(self.training, TrainingOptions)):
            options = self.training or TrainingOptions()
            found |= {name: getattr(options, name.removeprefix(TRAINING_PREFIX)) for name in TRAINING_NAMES}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``training__ema=None``, for example, changes a single training option."""
        own = {name: value for name, value in params.items() if not name.startswith(TRAINING_PREFIX)}
        options = {name.removeprefix(TRAINING_PREFIX): params[name] for name in params.keys() - own.keys()}
        known = sorted(name.removeprefix(TRAINING_PREFIX) for name in TRAINING_NAMES)
        if unknown := sorted(options.keys() - set(known)):
            raise ValueError(f"Invalid parameter {unknown[0]!r} for training; valid names: {', '.join(known)}.")
        super().set_params(**own)
        if options and not isinstance(self.training, TrainingOptions | None):
            raise TypeError(f"training must be TrainingOptions or None, got {self.training!r}.")
        if options:
            self.training = dataclasses.replace(self.training or TrainingOptions(), **options)
        return self

    def fit(
        self,
        X: Any,
        sets: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        test_data: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train the classifier on rows from all sets.

        Parameters
        ----------
        X : array, data frame, Arrow table, sparse matrix or tensor of shape (n, …)
            Rows of all sets, in any order.
        sets : array of shape (n,)
            The set that each row came from, 0 or 1; for m sets, 0 to m − 1.
        validation_data : (X, sets), optional
            Held-out rows of all sets, for early stopping and calibration of a single model.
        test_data : (X, y), optional
            Labeled rows (1 positive, 0 negative), used only to warn about swapped priors and to record the accuracy
            every epoch; the history records that labels were used.
        callback : callable, optional
            Function called after every epoch with its record and the model; it returns True to stop training. The
            entry ``"model"`` of the record is the name of the model: ``"model"`` for a single model, ``"model-2"`` for
            the third fold of an ensemble, or for example ``"mlp/model-2"`` if several kinds of models are compared.
            With a callback, the models of an ensemble are trained one after another, also on a GPU.
        """
        held_out: dict[str, Any] = {"validation_data": validation_data, "test_data": test_data}
        plan = self._plan(lambda parameters, _: reading.read_joint_table(parameters, X, sets, **held_out), callback)
        return self.fit_plan(plan)

    def fit_sets(
        self,
        X0: Any,
        X1: Any,
        *others: Any,
        validation_data: tuple[Any, Any] | None = None,
        test_data: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train on sets that are passed separately, one table per set. See `fit` for the other parameters.

        Two large sets are not copied; more than two tables, as in ``fit_sets(X0, X1, X2)``, are copied into one. Data
        frames and Arrow tables are encoded, see the parameter ``encoder``; they need the same columns.
        Pass sets that do not fit in memory as `uulearn.streaming.ParquetSet` or another `uulearn.streaming.RowStream`.
        For streamed sets, a single model is trained, and the held-out rows of each set are loaded into memory.
        """
        held_out: dict[str, Any] = {"validation_data": validation_data, "test_data": test_data}
        tables = (X0, X1, *others)
        if any(isinstance(table, RowStream) for table in tables):
            plan = self._plan(lambda *state: read_streams(X0, X1, *state, **held_out), callback)
        else:
            plan = self._plan(lambda parameters, _: reading.read_tables(parameters, tables, **held_out), callback)
        return self.fit_plan(plan)

    def plan_sets(self, X0: Any, X1: Any, *others: Any) -> FitPlan:
        """Return the plan that `fit_sets` runs: resolved parameters, folds or held-out rows, and the learner."""
        return self._plan(lambda parameters, _: reading.read_tables(parameters, (X0, X1, *others)))

    def _plan(
        self, read: Callable[[dict[str, Any], Workers | None], FitData], callback: Callback | None = None
    ) -> FitPlan:
        """Validate the parameters, read the data and return the plan."""
        parameters = self.get_params(deep=False)
        check_parameters(parameters)
        options = self.training or TrainingOptions()
        workers = join_workers(options.distributed, resolve_device(self.device))
        if workers is not None and isinstance(self.model, str) and self.model == defaults.BOOSTING:
            raise ValueError(
                f"model='boosting' trains in one process, but there are {workers.count}; start one process, or use "
                "model='mlp'."
            )
        with warn_on_rank_zero(workers):
            given = read(parameters, workers)
            return make_plan(parameters, given, callback=callback, workers=workers, stacklevel=3)

    def fit_plan(self, plan: FitPlan) -> Self:
        """Train according to a plan, and set the fitted attributes."""
        for name in ("set_priors", "target_prior", "method", "slope", "loss", "model"):
            own, planned = getattr(self, name), getattr(plan.parameters, name)
            own = tuple(map(float, own)) if name == "set_priors" and own is not None else own
            open_model = name == "model" and own is None
            if not (is_auto(own) or open_model) and own is not planned and own != planned:
                raise ValueError(f"the plan has {name}={planned!r}, but this classifier has {own!r}; make a new plan.")
        with warn_on_rank_zero(plan.workers):
            result = run_plan(plan)
            self.set_fitted(result)
            if result.error is not None:
                raise result.error
            warn_about_result(plan, result, stacklevel=3)
        return self

    def set_fitted(self, result: FitResult) -> Self:
        """Set all fitted attributes from the result of a fit."""
        self.classes_ = np.array([0, 1])
        self.learner_ = result.learner
        self.trained_ = result.model
        self.history_ = result.history
        self._set_columns(result.columns)
        self.set_sizes_ = result.set_sizes
        self.held_out_sizes_ = result.held_out_sizes
        self.scaling_ = result.scaling
        self.out_of_fold_evaluation_ = result.out_of_fold_evaluation
        self.out_of_fold_scores_ = result.decisions
        self.out_of_fold_correction_ = result.correction
        self.row_reference_ = result.reference
        self.self_training_ = None if result.self_training is None else list(result.self_training)
        self.precision_ = result.model.precision
        self.resolved_params_ = result.resolved
        self.seed_ = result.seed
        return self

    def summary(self) -> str:
        """Return a short description of the data, the assumptions and the training."""
        check_is_fitted(self, "trained_")
        return summarize(self)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a directory of safetensors and JSON files; an existing model is replaced."""
        check_is_fitted(self, "trained_")
        persistence.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **replaced: Any) -> Self:
        """Read a directory written by `save`; no code from the directory is executed.

        Custom code, such as a module class or a loss function, is not stored. Pass it again as a keyword argument, for
        example ``UUClassifier.load("model", model=MyNet)`` or ``training__augment=None``.
        """
        return persistence.load(cls, Path(path), replaced)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "trained_" in state:
            state["trained_"] = state["trained_"].to_cpu()  # the loading machine may have no accelerator
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
