"""Learners for different kinds of models; all of them share folds, ensembles, calibration and evaluation.

A `Learner` trains a model on two sets and returns a `TrainedModel`. `NetworkLearner` trains a torch module with
`uulearn.training.Trainer`, including early stopping, checkpoints and batched training. Other learners, such as
boosted trees or a scikit-learn classifier, subclass `Learner` and are passed as ``UUClassifier(model=learner)``.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from uulearn.data import Rows, TwoSets
from uulearn.data.augmentation import build_augmentation
from uulearn.data.folds import split_fold
from uulearn.data.groups import pooled_priors
from uulearn.data.holdout import Positions
from uulearn.data.streams import StreamedSets
from uulearn.defaults import BOOSTING
from uulearn.estimator.parameters import is_auto, make_risk
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.exceptions import ModelFormatError, NonFiniteRiskError
from uulearn.models import Ensemble, ModelLike, build_model, check_scores, is_torchvision_name
from uulearn.risk import UURisk
from uulearn.risk.corrections import MethodLike, get_method
from uulearn.risk.losses import LossFunction
from uulearn.storage import read_value
from uulearn.training import History, RunOptions, Trainer, score_rows
from uulearn.training.batched.out_of_fold import Variant, can_be_batched, fit_folds_batched
from uulearn.training.consistency import strong_view
from uulearn.training.loop import Callback
from uulearn.training.options import one_thread, resolve_device
from uulearn.training.out_of_fold import FoldFit, count_folds, fit_fold, fold_name, fold_seed
from uulearn.training.precision import multiplies_bfloat16
from uulearn.training.scoring import module_device

Folds = tuple[Positions, Positions]
Priors = tuple[float, float]
SetPriors = tuple[float, ...]
MAX_PIXEL = 10.0
"""Maximum absolute pixel value that torchvision's networks accept; normalized images are within ±3."""
SINGLE_MODEL = "model"
"""Name of a model that is trained alone, in the records that a callback receives."""


@dataclass(frozen=True)
class ModelState:
    """Serialized form of a trained model: tensors, and a ``config`` that contains only JSON values."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]


@dataclass(frozen=True)
class ComparedModel:
    """One of the models that ``model="auto"`` compares."""

    model: str
    used: bool = False
    weight: float = 0.0
    """Weight of the model's log-odds in the average; 0 if the model is not used."""
    risk: float | None = None
    """Estimated error rate of single models on rows not used to train them; None if the model was not compared."""
    difference: float | None = None
    """Risk minus the lowest risk."""
    standard_error: float | None = None
    """Standard error of ``difference``."""
    seconds: float | None = None
    """CPU time of the training in seconds; None if the model was not trained."""
    skipped: str | None = None
    """Reason why the model was not trained or not compared."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Resolved values of the parameters that each model has its own default for; empty if it was not trained."""
    best_epochs: tuple[int, ...] = ()
    """Best epoch of each fold (boosting: number of trees); empty without early stopping."""


@dataclass(frozen=True)
class ConsistencyChoice:
    """Whether ``consistency="auto"`` uses consistency training, and why.

    >>> print(ConsistencyChoice(True, 0.14, 0.11, 0.01))
    consistency training is used: estimated error 11.0% instead of 14.0% (difference -3.0 ± 1.0 points)
    """

    used: bool
    risk_without: float | None = None
    """Estimated error rate of single models on rows not used to train them."""
    risk_with: float | None = None
    standard_error: float | None = None
    """Standard error of the difference between the two risks."""
    skipped: str | None = None
    """Reason why the two could not be compared."""

    def __str__(self) -> str:
        if self.risk_without is None or self.risk_with is None:
            return f"consistency training is not used: {self.skipped}"
        difference, error = 100 * (self.risk_with - self.risk_without), 100 * (self.standard_error or 0.0)
        risks = [f"{max(0.0, risk):.1%}" for risk in (self.risk_with, self.risk_without)]
        errors = "{} instead of {}" if self.used else "{} with and {} without it"
        return (
            f"consistency training is {'used' if self.used else 'not used'}: estimated error {errors.format(*risks)} "
            f"(difference {difference:+.1f} ± {error:.1f} points)"
        )


class TrainedModel(abc.ABC):
    """A trained model, or several models combined into one."""

    precision: str = "float32"
    """Floating-point type of the matrix products used to compute scores."""
    loss: str | None = None
    """Loss that says what an uncalibrated score means, if it is not the loss of the classifier."""
    comparison: tuple[ComparedModel, ...] | None = None
    """The models that were compared, for ``model="auto"``."""
    consistency: ConsistencyChoice | None = None
    """The choice of ``consistency="auto"``."""
    gives_log_odds: ClassVar[bool] = False
    """Whether scores are log-odds, so that the models of an ensemble have the same scale."""

    @abc.abstractmethod
    def score(self, rows: Rows) -> Tensor:
        """Return float32 scores of shape (n,) on the CPU; a row with a score above 0 is predicted positive."""

    @property
    def device(self) -> str:
        """The device that computes scores."""
        return "cpu"

    def to_cpu(self) -> TrainedModel:
        """Return the model on the CPU."""
        return self

    @property
    def n_models(self) -> int | None:
        """Number of models in an ensemble, or None for a single model."""
        return None

    @property
    def is_rescaled(self) -> bool:
        """Whether scores were divided by scales, so that they no longer have the meaning that the loss gives them."""
        return False

    def submodel(self, number: int) -> TrainedModel:
        """Return one model of an ensemble; its scores are still divided by its scale."""
        raise NotImplementedError(f"{type(self).__name__} is a single model.")

    def state(self) -> ModelState:
        """Return the data from which `Learner.restore` recreates the model; required for saving the model."""
        raise NotImplementedError(f"{type(self).__name__} has no state(); implement it to save the classifier.")


@dataclass(frozen=True)
class ModelTask:
    """Training data for one model or, if ``folds`` is set, for an ensemble whose models each leave out one fold."""

    data: TwoSets | StreamedSets
    set_priors: SetPriors
    """Class prior of each set; the two sets of ``data`` may be groups of these sets (`uulearn.data.groups`)."""
    target_prior: float
    seed: int
    path: tuple[str, ...] = ()
    """Path components of this model's subfolder in the checkpoint folder."""
    validation: TwoSets | None = None
    """Held-out rows of both sets, used for early stopping but not for fitting."""
    folds: Folds | None = None
    """The fold of every row of set 0 and of set 1."""
    test: tuple[Rows, Tensor] | None = None
    """Labeled rows on which the accuracy is measured every epoch; a learner may ignore them."""
    callback: Callback | None = None
    """Function called after every epoch by learners that train in epochs; see also `epoch_callback`."""
    fit_seed: int | None = None
    """The seed of the whole fit if ``seed`` is derived from it, otherwise None."""

    @property
    def group_priors(self) -> Priors:
        """Class priors of the two sets of ``data``, or of the two groups of sets."""
        return pooled_priors(self.data, self.set_priors)

    def epoch_callback(self, *path: str) -> Callback | None:
        """Return the callback for one model; it adds the name of the model, such as "mlp/model-2", to each record.

        ``path`` is the rest of the name, if this task trains several models.
        """
        callback, name = self.callback, "/".join((*self.path, *path)) or SINGLE_MODEL
        return None if callback is None else lambda record, model: callback({**record, "model": name}, model)

    def in_folds(self) -> tuple[TwoSets, Folds]:
        """Return the rows and their folds; the task must have folds (streamed sets have none)."""
        assert isinstance(self.data, TwoSets)
        assert self.folds is not None
        return self.data, self.folds

    def of_fold(self, fold: int) -> ModelTask:
        """Return the task of one model, with a seed and a checkpoint folder derived from the fold."""
        data, folds = self.in_folds()
        outside, inside = split_fold(data, folds, fold)
        return dataclasses.replace(
            self,
            data=outside,
            validation=inside,
            folds=None,
            seed=fold_seed(self.seed, fold),
            path=(*self.path, fold_name(fold)),
        )


@dataclass(frozen=True)
class ModelFit:
    """A trained model and the history of its training."""

    model: TrainedModel
    history: History
    error: BaseException | None = None
    """Error that ended training early although the model is usable, such as an interrupt."""
    held_out_scores: tuple[Tensor, Tensor] | None = None
    """Scores of the validation rows of set 0 and set 1, each from an epoch chosen on other rows."""


@dataclass(frozen=True)
class FoldScores:
    """The model of one fold, and the scores of the fold's rows (set 0 and set 1) from epochs chosen on other rows."""

    model: TrainedModel
    history: History
    scores: tuple[Tensor, Tensor]
    error: NonFiniteRiskError | None = None
    """Error of this model if it diverged; models that were trained together with it are not affected."""

    def check_finite(self) -> FoldScores:
        """Return the fit, or raise an error if it diverged; batched training itself continues with the other runs."""
        if self.error is not None:
            raise self.error
        # The last step may diverge, and no risk is computed after it. A mean overflows earlier than its parts.
        if not torch.cat(self.scores).abs().mean().isfinite():
            raise NonFiniteRiskError("scores of held-out rows are not finite; lower lr, or scale the columns.")
        return self


class Learner(abc.ABC):
    """Base class of learners. Subclasses implement `train`, and `restore` to support saved classifiers.

    >>> class Sum(TrainedModel):  # a model without weights: the sum of the columns
    ...     def score(self, rows):
    ...         return rows.slice(0, rows.n_rows).float().sum(1)
    >>> class SumLearner(Learner):
    ...     kind = "sum"
    ...     def train(self, task):
    ...         return ModelFit(Sum(), History())
    >>> from uulearn import UUClassifier
    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> clf = UUClassifier((0.2, 0.8), model=SumLearner(), calibrated=False)
    >>> clf.fit_sets(x[:20], x[20:]).predict(x[[0, 39]])
    array([0, 1])
    """

    kind: ClassVar[str]
    """Name of the learner in the manifest of a model directory."""
    folds_together: ClassVar[bool] = False
    """Whether the models of all folds depend on one another, so that one call of `train_folds` must train them all."""

    @abc.abstractmethod
    def train(self, task: ModelTask) -> ModelFit:
        """Train one model."""

    def check(self, sample: Tensor, seed: int) -> None:  # noqa: B027
        """Raise an error before training starts if the learner does not support rows such as these samples."""

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train one model per fold (all folds, or only the chosen ones) and score the rows of each fold."""
        found = []
        for fold in range(count_folds(task.in_folds()[1])) if chosen is None else chosen:
            own = task.of_fold(fold)
            fitted = self.train(own)
            if fitted.error is not None:
                raise fitted.error
            assert own.validation is not None
            first, second = (fitted.model.score(own.validation.rows_of(which)) for which in (0, 1))
            found.append(FoldScores(fitted.model, fitted.history, (first, second)))
        return found

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> TrainedModel:
        """Return one model whose score is the mean of the models' scores, each divided by its scale."""
        return MeanModel(tuple(models), tuple(scales))

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> TrainedModel:
        """Recreate the model from its stored `TrainedModel.state`."""
        raise NotImplementedError(f"{type(self).__name__} cannot restore a stored model; implement restore.")


@dataclass(frozen=True)
class MeanModel(TrainedModel):
    """The mean of the scores of several models, each divided by its scale."""

    models: tuple[TrainedModel, ...]
    scales: tuple[float, ...]

    @property
    def n_models(self) -> int:
        """The number of models."""
        return len(self.models)

    @property
    def is_rescaled(self) -> bool:
        """Whether any scale is not 1."""
        return any(scale != 1 for scale in self.scales)

    def submodel(self, number: int) -> MeanModel:
        """Return one of the models."""
        return MeanModel(self.models[number : number + 1], self.scales[number : number + 1])

    def score(self, rows: Rows) -> Tensor:
        """Return the mean score of each row."""
        return torch.stack([m.score(rows) / s for m, s in zip(self.models, self.scales, strict=True)]).mean(0)

    def state(self) -> ModelState:
        """Return the tensors of all models, with numbered names, and the configuration of each model."""
        states = [model.state() for model in self.models]
        numbered = {
            f"{number}.{name}": tensor for number, state in enumerate(states) for name, tensor in state.tensors.items()
        }
        config = {"models": [state.config for state in states], "scales": list(self.scales)}
        return ModelState(numbered, config)


def restore_model(learner: Learner, state: ModelState, row_shape: tuple[int, ...]) -> TrainedModel:
    """Restore a stored model; the models of a `MeanModel` are restored one by one."""
    if "models" not in state.config:
        return learner.restore(state, row_shape)
    configs, scales, models = state.config["models"], [float(scale) for scale in state.config["scales"]], []
    if not configs or len(configs) != len(scales) or not all(0 < scale < math.inf for scale in scales):
        raise ModelFormatError(f"{len(configs)} models need one positive scale each, got {scales}; save them again.")
    for number, config in enumerate(configs):
        own = {name: tensor for name, tensor in state.tensors.items() if name.startswith(f"{number}.")}
        own = {name.partition(".")[2]: tensor for name, tensor in own.items()}
        models.append(learner.restore(ModelState(own, config), row_shape))
    return MeanModel(tuple(models), tuple(scales))


@dataclass(frozen=True)
class OutOfFold:
    """The models of all folds, and out-of-fold scores of all rows."""

    models: list[TrainedModel]
    histories: list[History]
    scales: list[float]
    """Mean absolute score of each model on its own fold; 1 for models whose scores are log-odds."""
    scores: tuple[Tensor, Tensor]
    """Scores of set 0 and of set 1, divided by the scale of the model."""

    def combine(self, learner: Learner) -> TrainedModel:
        """Combine the models into one that returns the mean of their scores, each divided by its scale."""
        return learner.combine(self.models, self.scales)


def merge_folds(parts: Sequence[FoldScores], folds: Folds) -> OutOfFold:
    """Merge the models of all folds in the order of the folds, and their scores in the order of the rows."""
    scores, scales = [torch.empty(len(part)) for part in folds], []
    for fold, part in enumerate(parts):
        magnitude = float(torch.cat(part.check_finite().scores).abs().mean()) or 1.0
        scale = 1.0 if part.model.gives_log_odds else magnitude
        scales.append(scale)
        for which, values in enumerate(part.scores):
            scores[which][torch.from_numpy(folds[which] == fold)] = values / scale
    return OutOfFold([part.model for part in parts], [part.history for part in parts], scales, (scores[0], scores[1]))


def make_learner(parameters: ResolvedParameters, device: str | None = None) -> Learner:
    """Return ``model`` if it is a learner, otherwise the learner of the named model or network."""
    if isinstance(parameters.model, Learner):
        return parameters.model
    if isinstance(parameters.model, str) and parameters.model == BOOSTING:
        from uulearn.estimator.boosting import BoostingLearner

        return BoostingLearner.from_parameters(parameters)
    if is_auto(parameters.model):
        from uulearn.estimator.auto import AutoLearner

        return AutoLearner.from_parameters(parameters, device)
    if parameters.consistency is not None and parameters.consistency.compare:
        from uulearn.estimator.consistency import ConsistencyLearner

        return ConsistencyLearner.from_parameters(parameters, device)
    return NetworkLearner.from_parameters(parameters, device)


@dataclass(frozen=True)
class NetworkModel(TrainedModel):
    """A trained torch module and the settings for converting rows to its input."""

    module: nn.Module
    precision: str
    input_scale: float = 1.0
    forced: bool = False
    """Whether to use bfloat16 even on a device without native bfloat16 multiplication."""
    consistency: ConsistencyChoice | None = None

    def score(self, rows: Rows) -> Tensor:
        """Return the scores of rows, computed on the device of the module."""
        device = module_device(self.module)
        fast = self.precision == "bfloat16" and (self.forced or multiplies_bfloat16(device))
        dtype = torch.bfloat16 if fast else torch.float32
        return score_rows(self.module, rows, dtype=dtype, scale=self.input_scale)

    @property
    def device(self) -> str:
        """The device of the module."""
        return str(module_device(self.module))

    def to_cpu(self) -> NetworkModel:
        """Return the model with a copy of the module on the CPU, or this model if it is already there."""
        moved = self.device != "cpu"
        return dataclasses.replace(self, module=copy.deepcopy(self.module).cpu()) if moved else self

    @property
    def n_models(self) -> int | None:
        """Number of modules in a `uulearn.models.Ensemble`, or None for any other module."""
        return len(self.module.models) if isinstance(self.module, Ensemble) else None

    @property
    def is_rescaled(self) -> bool:
        """Whether any scale of an ensemble is not 1."""
        return isinstance(self.module, Ensemble) and bool((self.module.scales != 1).any())

    def submodel(self, number: int) -> NetworkModel:
        """Return one module of the ensemble."""
        assert isinstance(self.module, Ensemble)
        alone = Ensemble([self.module.models[number]], [self.module.scales[number].item()])
        return dataclasses.replace(self, module=alone.to(self.module.scales.device).eval())

    def state(self) -> ModelState:
        """Return the weights and, for an ensemble, the number of models."""
        tensors = self.module.state_dict()
        for name, value in tensors.items():
            if not isinstance(value, Tensor):
                raise ValueError(f"the state entry {name!r} is not a tensor; register it as a buffer of the model.")
        return ModelState(
            {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
            {"n_models": self.n_models, "precision": self.precision}
            | ({} if self.consistency is None else {"consistency": dataclasses.asdict(self.consistency)}),
        )


@dataclass(frozen=True)
class NetworkLearner(Learner):
    """Learner for torch modules; ``options`` contains all options except each model's seed and checkpoint folder.

    >>> learner = NetworkLearner("linear", None, "logistic", "abs", -0.1, RunOptions(epochs=10))
    >>> learner.risk((0.8, 0.2), 0.5)
    UURisk(set_priors=(0.8, 0.2), target_prior=0.5, loss='logistic', method='abs')
    """

    kind: ClassVar[str] = "network"

    model: ModelLike
    model_params: Mapping[str, Any] | None
    loss: str | LossFunction
    method: MethodLike
    slope: float
    options: RunOptions

    @classmethod
    def from_parameters(cls, parameters: ResolvedParameters, device: str | None = None) -> NetworkLearner:
        """Create the learner for the parameters of a classifier, optionally on another device."""
        device = resolve_device(parameters.device) if device is None else device
        training = parameters.training
        # Built-in networks, losses and optimizers never synchronize with the host, so a CUDA graph can capture a step.
        parts = parameters.model, parameters.loss, parameters.method, training.optimizer
        named = all(isinstance(part, str) for part in parts)
        plain = training.scheduler is None and not (training.optimizer_params or {}).get("dampening")
        shared = ("epochs", "batch_size", "lr", "l2", "early_stopping", "patience", "progress", "consistency")
        options = RunOptions(
            **vars(training),
            **{name: getattr(parameters, name) for name in shared},
            device=device,
            graph=named and plain and torch.device(device).type == "cuda",
        )
        return cls(
            parameters.model, parameters.model_params, parameters.loss, parameters.method, parameters.slope, options
        )

    def build(self, row_shape: tuple[int, ...], seed: int) -> nn.Module:
        """Build an untrained module, with initial weights drawn from this seed."""
        with one_thread():
            return build_model(self.model, row_shape, self.model_params, seed)

    def risk(self, set_priors: SetPriors, target_prior: float) -> UURisk:
        """Return the risk that training minimizes."""
        return make_risk(set_priors, target_prior, self.loss, self.method, self.slope)

    def run_options(self, seed: int, path: Sequence[str] = (), fit_seed: int | None = None) -> RunOptions:
        """Return the options for one model, with this seed and checkpoint folder."""
        folder = self.options.checkpoint_dir
        folder = None if folder is None else Path(folder, *path)
        return dataclasses.replace(self.options, seed=seed, fit_seed=fit_seed, checkpoint_dir=folder)

    def can_be_batched(self, data: TwoSets) -> bool:
        """Return whether several models of this learner can be trained together on these rows."""
        fixed_weights = data.origins is None and get_method(self.method, self.slope).objective != "surrogate"
        return isinstance(self.model, str) and fixed_weights and can_be_batched(self.model, data, self.options)

    def check(self, sample: Tensor, seed: int) -> None:
        """Raise an error if the module or the augmentation does not support these rows."""
        scaled, options = sample * self.options.input_scale, self.options
        if is_torchvision_name(self.model) and (highest := scaled.abs().max().item()) > MAX_PIXEL:
            raise ValueError(
                f"model={self.model!r} expects pixel values from 0 to 1, got values up to {highest:g}; set "
                "training=TrainingOptions(input_scale=1 / 255)."
            )
        check_scores(self.build(tuple(sample.shape[1:]), seed), scaled)
        if options.augment is not None:
            build_augmentation(options.augment, scaled.to(options.device), options.image_shape)
        if options.consistency is not None:
            strong_view(options, scaled.to(options.device))

    def train(self, task: ModelTask) -> ModelFit:
        """Train one module; if training is interrupted or diverges, the weights learned so far are returned."""
        trainer = Trainer(
            self.build(task.data.row_shape, task.seed),
            task.data,
            self.risk(task.set_priors, task.target_prior),
            self.run_options(task.seed, task.path, task.fit_seed),
            validation=task.validation,
            test=task.test,
            callback=task.epoch_callback(),
        )
        stopped: BaseException | None = None
        try:
            trainer.run()
        except BaseException as error:
            if not len(trainer.history) and not isinstance(error, NonFiniteRiskError):
                raise
            stopped = error
        scores = None if stopped is not None or trainer.validation is None else trainer.held_out_scores()
        return ModelFit(self._trained(trainer.final_model, trainer.dtype), trainer.history, stopped, scores)

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train the modules of the folds; on CUDA, they are trained together if possible."""
        data, folds = task.in_folds()
        options = self.run_options(task.seed, task.path, task.fit_seed)
        risk = self.risk(task.set_priors, task.target_prior)
        chosen = range(count_folds(folds)) if chosen is None else chosen
        on_cuda = torch.device(options.device).type == "cuda"
        # Batched training is hardly faster on the CPU, and a callback expects one model at a time.
        if on_cuda and task.callback is None and self.can_be_batched(data):
            return self.train_variants(task, [Variant(risk)], chosen)[0]
        about = functools.partial(self.build, data.row_shape), data, folds, risk, options
        fits = [
            fit_fold(fold, *about, test=task.test, callback=task.epoch_callback(fold_name(fold))) for fold in chosen
        ]
        return self._fold_scores(fits)

    def train_variants(
        self, task: ModelTask, variants: Sequence[Variant], chosen: Sequence[int]
    ) -> list[list[FoldScores]]:
        """Train variants of a network together (see `can_be_batched`); return the fold models of each variant."""
        assert isinstance(self.model, str)
        options = self.run_options(task.seed, task.path, task.fit_seed)
        found = fit_folds_batched(
            chosen, self.model, self.model_params, *task.in_folds(), variants, options, test=task.test
        )
        return [self._fold_scores(parts) for parts in found]

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> NetworkModel:
        """Combine the modules into one `uulearn.models.Ensemble` on the training device."""
        networks = [model for model in models if isinstance(model, NetworkModel)]
        ensemble = Ensemble([network.module for network in networks], scales).eval()
        return dataclasses.replace(networks[-1], module=ensemble.to(self.options.device))

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> NetworkModel:
        """Return the module with the stored weights; a named model is allocated only after the shapes are checked."""
        n_models, weights = state.config["n_models"], state.tensors
        precision = str(state.config["precision"])
        if precision not in ("float32", "bfloat16") or n_models != (len(weights.get("scales", ())) or None):
            raise ModelFormatError(f"the description of the model is not valid: {state.config}; save the model again.")
        named = isinstance(self.model, str)
        layers = (n_models or 1) * (1 + len((self.model_params or {}).get("hidden", ())))
        if named and layers > len(weights):
            raise ModelFormatError(
                f"expected a model with {layers:,} layers, found {len(weights):,} weights; save the model again."
            )
        with torch.device("meta" if named else "cpu"):
            build = functools.partial(build_model, self.model, row_shape, self.model_params, download=False)
            module = build()
            _check_shapes(module, n_models, weights)
            if n_models is not None:
                # Copying is faster than building, but not all modules of users can be copied.
                copies = (copy.deepcopy(module) if named else build() for _ in range(1, n_models))
                module = Ensemble([module, *copies], [1.0] * n_models)
        if not all(bool(value.isfinite().all()) for value in weights.values()):
            raise ModelFormatError("the stored weights contain non-finite values; train and save the model again.")
        module.load_state_dict(weights, assign=named)
        choice = read_value(ConsistencyChoice | None, state.config.get("consistency"), "consistency")
        return dataclasses.replace(self._trained(module.eval(), getattr(torch, precision)), consistency=choice)

    def _fold_scores(self, fits: Sequence[FoldFit]) -> list[FoldScores]:
        return [FoldScores(self._trained(fit.model, fit.dtype), fit.history, fit.scores, fit.error) for fit in fits]

    def _trained(self, module: nn.Module, dtype: torch.dtype) -> NetworkModel:
        forced = self.options.precision == "bfloat16"
        return NetworkModel(module, str(dtype).removeprefix("torch."), self.options.input_scale, forced)


def _check_shapes(module: nn.Module, n_models: int | None, weights: Mapping[str, Tensor]) -> None:
    """Raise an error if these are not the weights of the module, or of an ensemble of this many copies.

    The module is not copied, so a stored model without the weights of its copies cannot use much memory.
    """
    own, found = (
        {name: (tuple(v.shape), v.dtype) for name, v in each.items()} for each in (module.state_dict(), weights)
    )
    expected = own
    if n_models is not None:
        if n_models * len(own) + 1 != len(found):
            raise ModelFormatError(
                f"the stored weights do not match the model: expected {n_models:,} models with {len(own):,} weights "
                f"each, found {len(found) - 1:,} weights; pass the model that was trained."
            )
        expected = {f"models.{number}.{name}": value for number in range(n_models) for name, value in own.items()}
        expected["scales"] = (n_models,), torch.float32
    if expected != found:
        odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))[0]
        raise ModelFormatError(
            f"the stored weights do not match the model: {odd} should be {expected.get(odd)} but is {found.get(odd)}; "
            "pass the model that was trained."
        )
