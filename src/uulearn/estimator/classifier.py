"""The scikit-learn estimator."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from uulearn.data import TwoSets
from uulearn.data.augmentation import AugmentationLike
from uulearn.data.streams import RowStream
from uulearn.estimator import inputs, persistence
from uulearn.estimator.fitting import TrainableClassifier
from uulearn.estimator.summary import summarize
from uulearn.models import ModelLike
from uulearn.risk.corrections import DEFAULT_SLOPE, MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training.loop import Callback
from uulearn.training.options import OptimizerLike, SchedulerLike
from uulearn.training.scoring import module_device


class UUClassifier(TrainableClassifier):
    """Binary classifier trained from two unlabeled sets.

    Rows need no label; known are only the shares of positives, θ in set 0 and θ′ in set 1. `fit` takes the rows and,
    for each, the set it came from; `predict` gives classes, 1 for positive. `score` estimates the accuracy from two
    unlabeled sets, so that ``cross_val_score`` and ``GridSearchCV`` work on (X, sets) as they are.

    Parameters that are ``"auto"`` follow from the model, the number of rows and each other; `resolved_params_` tells what they
    became. How all defaults were chosen, without labels, is told in ``docs/defaults.md``.

    Which of two unlabeled sets is the richer cannot be read off the rows: priors given in the wrong order train a
    classifier that is wrong where it should be right. `summary` states what was assumed; a few labelled rows passed
    as ``test_data`` are checked against it before training starts.

    Parameters
    ----------
    set_priors : (θ, θ′), or None
        Share of positives in set 0 and in set 1; any order, but different. None, with ``method="biased"``, where
        nothing is known but that set 0 is the richer: rows are then ranked, and `with_priors` adds the rest later.
    target_prior : float
        π, the share of positives where the classifier will be used.
    method : str or pair
        ``"biased"``, ``"unbiased"``, ``"abs"``, ``"relu"``, ``"leaky_relu"``, or a pair of correction functions; see
        `UURisk`.
    slope : float
        λ ≤ 0 of ``"leaky_relu"``.
    loss : str or callable
        ``"sigmoid"``, ``"logistic"``, ``"ramp"``, ``"double_hinge"``, ``"squared"``, or ℓ(z) of the margin. "auto" is
        logistic for ``"linear"``, where the sigmoid loss may end in calling all rows alike, else sigmoid.
    model : str, nn.Module, class or factory
        ``"mlp"``, ``"linear"``, ``"resnet32"`` or ``"allconvnet"`` for images, or any module that gives one score a
        row. A class or factory is called with ``model_params``, and with ``n_features`` (rows of columns) or ``shape``
        (images) if it takes that; an instance is copied.
    model_params : dict, optional
        Arguments for the model, such as ``{"hidden": (300, 300)}`` for ``"mlp"``.
    epochs, batch_size : int
        At most so many ``epochs``, see ``patience``. ``batch_size`` counts rows of both sets together; data with fewer
        rows form one batch. Large batches suit the corrections, which act on the brackets of a batch: in small ones
        noise alone drives brackets below zero.
    lr : float or "auto"
        Learning rate; "auto" is 0.01 for ``"linear"``, else 0.001.
    optimizer, optimizer_params
        ``"adam"``, ``"adamw"``, ``"sgd"``, any torch optimizer class, or a factory from parameters to optimizer.
    scheduler, scheduler_interval
        A function from optimizer to learning-rate scheduler, stepped every ``"epoch"`` or ``"batch"``.
    weight_decay : float
        Handed to the optimizer.
    l2 : float or "auto"
        Keras-style regularisation, l2·‖W‖² on kernels only, as in the paper's experiments; "auto" is 0.005 for
        ``"mlp"`` with the sigmoid loss, else 0.
    clip_norm : float, optional
        Largest norm of the gradient.
    ema : float, optional
        Decay, per batch, of a moving average of the weights, which then makes the predictions; None for none.
    precision : str
        ``"auto"`` multiplies in bfloat16 where the device does so natively, the model is wide enough to gain and the
        columns survive the rounding; ``"float32"`` and ``"bfloat16"`` force one.
    compile : bool
        Whether to ``torch.compile`` the model; worth it for long runs of large models only.
    device : str
        ``"auto"`` is the first CUDA device if there is one, else the CPU.
    input_scale : float
        Every value of X is multiplied by this on its way into the model (1/255 for images kept as uint8).
    augment : str or callable, optional
        For images, how each is changed at random whenever it is trained on, never where it is evaluated or predicted:
        ``"flip"`` mirrors it left to right or not (wrong for digits and letters), ``"shift"`` moves it by up to four
        pixels each way, zeros moving in, ``"shift+flip"`` does both. Or a function from a batch of shape (n, channels,
        height, width), scaled already, to one of the same shape and type, with its rows in the same order.
    validation_fraction : float or "auto"
        Share of each set that is held out of training, chosen at random with all copies of a row on one side, to evaluate
        every epoch without labels; 0 trains on all rows. Not used where ``validation_data`` is passed to `fit`, nor
        with several members. "auto" is 0.1 where the smaller set has 5,000 rows or more, or where another parameter
        needs it, else 0.
    keep : str
        ``"best"`` keeps the weights of the epoch with the lowest error estimated on the held-out rows of both sets,
        ``"last"`` those of the last epoch; "auto" is "best" where rows are held out, else "last".
    smoothing : int
        Number of epochs over which that estimate is averaged, since it is noisy.
    patience : int, None or "auto"
        Number of epochs without a better one after which training stops; None for never. "auto" is 20, and more where
        20 epochs are fewer than 400 steps; None where the last epoch is kept.
    members : int or "auto"
        Number of models whose scores are averaged. With more than one, the rows are cut into as many folds, each model
        is trained without one of them and has its epochs evaluated there, so that every row is both trained on and, by
        one model, held out: ``validation_fraction`` is not needed. "auto" is 5 for ``"linear"`` and ``"mlp"``, and 1
        for other models, which take long, where ``validation_fraction`` or ``validation_data`` is given, and where a
        set has fewer than ten rows or its rows are copies of a few.
    rounds : int
        At most so many rounds of refinement, for which there are several members: the rows are sorted, by models that
        have not seen them, into two purer sets, and trained on again. How many rounds are kept, if any, is chosen
        without labels: each half of the rows is refined apart and evaluated on the other, by the original sets. That
        takes the time of ``rounds`` + 1 trainings more, besides one for every round that is kept.
    calibrated : bool or "auto"
        Whether scores are turned into log-odds by the held-out rows, without labels, so that probabilities mean what
        they say for any loss and method; see `calibrate`. "auto" does so where rows are held out.
    checkpoint_dir, checkpoint_every
        Folder for a checkpoint every so many epochs. Calling `fit` again with the same arguments continues from it
        and ends where the unbroken run would have ended.
    distributed : bool or "auto"
        "auto" trains over all processes that torchrun has started, or that have joined a ``torch.distributed`` group,
        and alone where there is one: each takes its share of every batch, and the result is that of one process with
        the same batches. True insists on several. Every process calls `fit` with the same rows and arguments.
    progress : bool
        Whether to show a progress bar, on a terminal, when training takes long.
    random_state : int, RandomState or None
        Seeds initial weights, shuffles, dropout and augmentation.

    Attributes
    ----------
    history_ : `uulearn.training.History`
        One record an epoch: signed brackets, risks, learning rate, time; why training stopped. With several members
        these are means, and ``history_.members`` has the history of each.
    model_ : nn.Module
        The trained module.
    classes_ : array([0, 1])
        0 is negative, 1 is positive.
    n_features_in_, feature_names_in_, row_shape_
        What a row looks like.
    set_sizes_, held_out_sizes_ : (int, int)
        Rows of each set in training, and held out.
    cross_fitted_ : `uulearn.metrics.Evaluation` or None
        With several members: how good they are, estimated without labels, each on the fold it has not seen. Where a
        round of refinement was kept, how good that round's ensembles of either half of the rows are on the other half:
        rather less than that of all rows.
    refinement_ : list of `uulearn.estimator.self_training.Round`, or None
        With ``rounds``: what each round trained on, what it gained, and whether it was kept.
    scaling_ : `uulearn.metrics.calibration.PlattScaling` or None
        The line from the model's scores to log-odds; None where the scores are used as they are.
    precision_ : str
        The type of the products, ``"bfloat16"`` or ``"float32"``.
    resolved_params_ : dict
        What the parameters that were "auto" became.
    seed_ : int
        The seed that was used.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y_a, y_b = rng.random(500) < 0.8, rng.random(500) < 0.2  # never shown to the classifier
    >>> X_a, X_b = (rng.normal(size=(500, 2)) + 2 * y[:, None] - 1 for y in (y_a, y_b))
    >>> clf = UUClassifier(set_priors=(0.8, 0.2), target_prior=0.5, model="linear", lr=0.05, epochs=50, random_state=0)
    >>> clf.fit_sets(X_a, X_b).predict([[1.0, 1.0], [-1.0, -1.0]])
    array([1, 0])
    >>> print(clf.cross_fitted_.accuracy)  # no label was used: each row was evaluated by a model that has not seen it
    0.917 (95% interval 0.870 to 0.959)
    """

    def __init__(
        self,
        set_priors: Sequence[float] | None,
        target_prior: float = 0.5,
        *,
        method: MethodLike = "abs",
        slope: float = DEFAULT_SLOPE,
        loss: str | LossFunction = "auto",
        model: ModelLike = "mlp",
        model_params: Mapping[str, Any] | None = None,
        epochs: int = 200,
        batch_size: int = 3000,
        lr: float | str = "auto",
        optimizer: OptimizerLike = "adam",
        optimizer_params: Mapping[str, Any] | None = None,
        scheduler: SchedulerLike | None = None,
        scheduler_interval: str = "epoch",
        weight_decay: float = 0.0,
        l2: float | str = "auto",
        clip_norm: float | None = None,
        ema: float | None = 0.999,
        precision: str = "auto",
        compile: bool = False,
        device: str = "auto",
        input_scale: float = 1.0,
        augment: AugmentationLike | None = None,
        validation_fraction: float | str = "auto",
        keep: str = "auto",
        smoothing: int = 5,
        patience: int | str | None = "auto",
        members: int | str = "auto",
        rounds: int = 0,
        calibrated: bool | str = "auto",
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int = 10,
        distributed: bool | str = False,
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
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.scheduler = scheduler
        self.scheduler_interval = scheduler_interval
        self.weight_decay = weight_decay
        self.l2 = l2
        self.clip_norm = clip_norm
        self.ema = ema
        self.precision = precision
        self.compile = compile
        self.device = device
        self.input_scale = input_scale
        self.augment = augment
        self.validation_fraction = validation_fraction
        self.keep = keep
        self.smoothing = smoothing
        self.patience = patience
        self.members = members
        self.rounds = rounds
        self.calibrated = calibrated
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_every = checkpoint_every
        self.distributed = distributed
        self.progress = progress
        self.random_state = random_state

    # ------------------------------------------------------------------------------------------------------- training

    def fit(
        self,
        X: Any,
        sets: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        test_data: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train on rows of both sets.

        Parameters
        ----------
        X : array, DataFrame, sparse matrix or tensor of shape (n, …)
            Rows of both sets, in any order.
        sets : array of shape (n,)
            The set that each row came from, 0 or 1.
        validation_data : (X, sets), optional
            Held-out rows of both sets, whose risk is recorded every epoch.
        test_data : (X, y), optional
            Rows with labels (1 positive, 0 negative). They are used to warn of swapped priors and to record the
            accuracy every epoch, never for training; the history says that labels were used.
        callback : callable, optional
            Called with the record and the model after every epoch; return True to stop.
        """
        columns = self._unfitted()
        rows = columns._read(X, "X", reset=True)
        membership = inputs.read_sets(sets, rows.n_rows)
        data = TwoSets.from_membership(rows, membership)
        return self._fit(data, columns, validation_data, test_data, callback)

    def fit_sets(
        self,
        X0: Any,
        X1: Any,
        *,
        validation_data: tuple[Any, Any] | None = None,
        test_data: tuple[Any, Any] | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train on set 0 and set 1, given apart, without putting them together in memory. See `fit` for the rest.

        Sets larger than memory are passed as `uulearn.streaming.ParquetSet`, or another `uulearn.streaming.RowStream`:
        one model is then trained, and evaluated by rows of each set that are held out and kept in memory.
        """
        columns = self._unfitted()
        if isinstance(X0, RowStream) or isinstance(X1, RowStream):
            return self._fit_streams(X0, X1, columns, validation_data, test_data, callback)
        data = TwoSets((columns._read(X0, "X0", reset=True), columns._read(X1, "X1")))
        return self._fit(data, columns, validation_data, test_data, callback)

    # ------------------------------------------------------------------------------------------- telling, and keeping

    def summary(self) -> str:
        """What was trained on what, in a few lines, with the assumption about which set is the richer."""
        check_is_fitted(self, "model_")
        return summarize(self)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a directory of safetensors and JSON, replacing a model that is there."""
        check_is_fitted(self, "model_")
        persistence.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, **replaced: Any) -> Self:
        """Read a directory written by `save`; no code in it is ever run.

        Code of your own (a module, its class, a loss function, …) is not stored: pass it again by the parameter's
        name, for example ``UUClassifier.load("model", model=MyNet)``.
        """
        return persistence.load(cls, Path(path), replaced)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        model = state.get("model_")
        if model is not None and module_device(model).type != "cpu":
            state["model_"] = copy.deepcopy(model).cpu()  # so that a machine without the accelerator can load it
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
