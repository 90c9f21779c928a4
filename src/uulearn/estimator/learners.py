"""Learners: how one model is trained. The rest of a fit (folds, ensembling, calibration, evaluation) does not know.

A `Learner` trains a model on two sets and returns something that scores rows. `NetworkLearner` trains a torch module
with `uulearn.training.Trainer`; early stopping, checkpoints and batched training are its business. Other learners, such
as boosted trees or a scikit-learn classifier, subclass `Learner` and are passed as ``UUClassifier(model=learner)``.
"""

from __future__ import annotations

import abc
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from uulearn.data import Rows, TwoSets
from uulearn.data.augmentation import build_augmentation
from uulearn.data.holdout import Positions
from uulearn.data.streams import StreamedSets
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.exceptions import ClosePriorsWarning, ModelFormatError, NonFiniteRiskError
from uulearn.models import Ensemble, ModelLike, build_model, check_scores
from uulearn.risk import UURisk
from uulearn.risk.corrections import MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training import History, RunOptions, Trainer, score_rows
from uulearn.training.batched.out_of_fold import Variant, can_be_batched, fit_folds_batched
from uulearn.training.loop import Callback
from uulearn.training.options import resolve_device
from uulearn.training.out_of_fold import FoldFit, count_folds, fit_fold, fold_seed
from uulearn.training.precision import multiplies_bfloat16
from uulearn.training.randomness import isolated_rng
from uulearn.training.scoring import module_device

Folds = tuple[Positions, Positions]
Priors = tuple[float, float]


@dataclass(frozen=True)
class ModelState:
    """A trained model as data: tensors for safetensors, and a ``config`` of plain JSON values."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]


class TrainedModel(abc.ABC):
    """A trained model, or several as one."""

    precision: str = "float32"
    """Type of the products that scores are computed with."""

    @abc.abstractmethod
    def score(self, rows: Rows) -> Tensor:
        """Scores of shape (n,) in float32 on the CPU; higher for rows that look more positive, 0 is the threshold."""

    @property
    def n_models(self) -> int | None:
        """The number of models of an ensemble, None for a single model."""
        return None

    def submodel(self, number: int) -> TrainedModel:
        """One model of an ensemble, with the scale that it has there."""
        raise NotImplementedError(f"{type(self).__name__} is a single model.")

    def state(self) -> ModelState:
        """What `Learner.restore` needs to make the same model again; without it the model cannot be saved."""
        raise NotImplementedError(f"{type(self).__name__} has no state(), so a classifier with it cannot be saved.")


@dataclass(frozen=True)
class ModelTask:
    """What one model is trained on."""

    data: TwoSets | StreamedSets
    validation: TwoSets | None
    """Held-out rows of both sets: for early stopping, never for fitting. Their out-of-fold scores are used later."""
    set_priors: Priors
    target_prior: float
    seed: int
    path: tuple[str, ...] = ()
    """Folder of this model below the checkpoint folder, in parts."""
    test: tuple[Rows, Tensor] | None = None
    """Rows with labels, to be recorded per epoch and for nothing else; a learner may ignore them."""
    callback: Callback | None = None
    """Called per epoch by learners that have epochs."""


@dataclass(frozen=True)
class FoldsTask:
    """What the models of an ensemble are trained on: each on the rows outside its fold."""

    data: TwoSets
    folds: Folds
    """The fold of every row of set 0 and of set 1."""
    set_priors: Priors
    target_prior: float
    seed: int
    path: tuple[str, ...] = ()
    test: tuple[Rows, Tensor] | None = None
    callback: Callback | None = None

    @property
    def n_folds(self) -> int:
        """The number of folds, which is the number of models."""
        return count_folds(self.folds)

    def of_fold(self, fold: int) -> ModelTask:
        """The task of one model, with a seed and a checkpoint folder derived from the fold."""
        inside, outside = ([np.flatnonzero((part == fold) == side) for part in self.folds] for side in (True, False))
        return ModelTask(
            self.data.pick(*outside),
            self.data.pick(*inside),
            self.set_priors,
            self.target_prior,
            fold_seed(self.seed, fold),
            (*self.path, f"model-{fold}"),
            self.test,
            self.callback,
        )


@dataclass(frozen=True)
class ModelFit:
    """A trained model and the history of its training."""

    model: TrainedModel
    history: History
    error: BaseException | None = None
    """Why training ended early although the model is usable, such as an interrupt; raised after it was stored."""


@dataclass(frozen=True)
class FoldScores:
    """The model of one fold, and its scores of the rows of the fold, of set 0 and of set 1."""

    model: TrainedModel
    history: History
    scores: tuple[Tensor, Tensor]


class Learner(abc.ABC):
    """Trains models of one kind.

    A subclass implements `train`. To save classifiers with it, `TrainedModel.state` and `restore` are needed as well.
    """

    kind: ClassVar[str]
    """Name of the kind in the manifest of a model directory."""

    @abc.abstractmethod
    def train(self, task: ModelTask) -> ModelFit:
        """Train one model."""

    def check(self, data: TwoSets | StreamedSets, seed: int) -> None:  # noqa: B027
        """Raise before any work starts if the learner cannot train on such rows."""

    def train_folds(self, task: FoldsTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train the models of all folds, or of the chosen ones, and score the rows of their folds."""
        found = []
        for fold in range(task.n_folds) if chosen is None else chosen:
            own = task.of_fold(fold)
            fitted = self.train(own)
            if fitted.error is not None:
                raise fitted.error
            assert own.validation is not None
            first, second = (fitted.model.score(own.validation.rows_of(which)) for which in (0, 1))
            found.append(FoldScores(fitted.model, fitted.history, (first, second)))
        return found

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> TrainedModel:
        """One model whose score is the mean of the models' scores, each divided by its scale."""
        return MeanModel(tuple(models), tuple(scales))

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> TrainedModel:
        """The model whose `TrainedModel.state` was stored."""
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

    def submodel(self, number: int) -> MeanModel:
        """One of the models."""
        return MeanModel(self.models[number : number + 1], self.scales[number : number + 1])

    def score(self, rows: Rows) -> Tensor:
        """The mean score of each row."""
        return torch.stack([m.score(rows) / s for m, s in zip(self.models, self.scales, strict=True)]).mean(0)


def make_learner(parameters: ResolvedParameters) -> Learner:
    """The learner that the parameters ask for: ``model`` itself, or a network."""
    if isinstance(parameters.model, Learner):
        return parameters.model
    return NetworkLearner.from_parameters(parameters)


# ------------------------------------------------------------------------------------------------------------ networks


@dataclass(frozen=True)
class NetworkModel(TrainedModel):
    """A torch module, and how rows are passed to it."""

    module: nn.Module
    precision: str
    input_scale: float = 1.0
    forced: bool = False
    """Whether bfloat16 is used even on a device that does not multiply in it natively."""

    def score(self, rows: Rows) -> Tensor:
        """Scores of rows, computed on the device of the module."""
        device = module_device(self.module)
        fast = self.precision == "bfloat16" and (self.forced or multiplies_bfloat16(device))
        dtype = torch.bfloat16 if fast else torch.float32
        return score_rows(self.module, rows, device=device, dtype=dtype, scale=self.input_scale)

    @property
    def n_models(self) -> int | None:
        """The number of modules of an `uulearn.models.Ensemble`, None for any other module."""
        return len(self.module.models) if isinstance(self.module, Ensemble) else None

    def submodel(self, number: int) -> NetworkModel:
        """One module of the ensemble."""
        assert isinstance(self.module, Ensemble)
        alone = Ensemble([self.module.models[number]], [self.module.scales[number].item()])
        return dataclasses.replace(self, module=alone.to(self.module.scales.device).eval())

    def state(self) -> ModelState:
        """The weights, and the number of models of an ensemble."""
        tensors = self.module.state_dict()
        if odd := [name for name, value in tensors.items() if not isinstance(value, Tensor)]:
            raise ValueError(
                f"the model's state {odd[0]!r} is not a tensor and cannot be stored without pickle; make it a buffer."
            )
        return ModelState(
            {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
            {"n_models": self.n_models, "precision": self.precision},
        )


@dataclass(frozen=True)
class NetworkLearner(Learner):
    """Trains a torch module; ``options`` has everything but the seed and the checkpoint folder of each model."""

    kind: ClassVar[str] = "network"

    model: ModelLike
    model_params: Mapping[str, Any] | None
    loss: str | LossFunction
    method: MethodLike
    slope: float
    options: RunOptions

    @classmethod
    def from_parameters(cls, parameters: ResolvedParameters, device: str | None = None) -> NetworkLearner:
        """The learner for the parameters of a classifier, on another device if one is given."""
        device = resolve_device(parameters.device) if device is None else device
        training = parameters.training
        # Networks, losses and optimizers known by name do not synchronize with the host: a CUDA graph can hold a step.
        named = all(
            isinstance(value, str)
            for value in (parameters.model, parameters.loss, parameters.method, training.optimizer)
        )
        plain = training.scheduler is None and not (training.optimizer_params or {}).get("dampening")
        options = RunOptions(
            **{field.name: getattr(training, field.name) for field in dataclasses.fields(training)},
            epochs=parameters.epochs,
            batch_size=parameters.batch_size,
            lr=parameters.lr,
            l2=parameters.l2,
            early_stopping=parameters.early_stopping,
            patience=parameters.patience,
            device=device,
            graph=named and plain and torch.device(device).type == "cuda",
            progress=parameters.progress,
        )
        return cls(
            parameters.model, parameters.model_params, parameters.loss, parameters.method, parameters.slope, options
        )

    def build(self, row_shape: tuple[int, ...], seed: int) -> nn.Module:
        """An untrained module with the initial weights of this seed."""
        with isolated_rng(seed):
            return build_model(self.model, row_shape, self.model_params)

    def risk(self, set_priors: Priors, target_prior: float) -> UURisk:
        """The risk that is minimized."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClosePriorsWarning)  # the plan warns, with the sizes of the sets
            return UURisk(set_priors, target_prior, self.loss, self.method, self.slope)

    def run_options(self, seed: int, path: Sequence[str] = ()) -> RunOptions:
        """The options of the model with this seed and checkpoint folder."""
        folder = self.options.checkpoint_dir
        return dataclasses.replace(
            self.options, seed=seed, checkpoint_dir=None if folder is None else Path(folder, *path)
        )

    def can_be_batched(self, data: TwoSets) -> bool:
        """Whether several such models can be trained together on these rows."""
        return isinstance(self.model, str) and can_be_batched(self.model, data, self.options)

    def check(self, data: TwoSets | StreamedSets, seed: int) -> None:
        """Raise if the augmentation or the module does not work with such rows."""
        module = self.build(data.row_shape, seed)
        few = data.sample(0, 2) * self.options.input_scale
        build_augmentation(self.options.augment, few.to(self.options.device))
        check_scores(module, few)

    def train(self, task: ModelTask) -> ModelFit:
        """Train one module; if training is interrupted or diverges, the weights learned so far are returned."""
        trainer = Trainer(
            self.build(task.data.row_shape, task.seed),
            task.data,
            self.risk(task.set_priors, task.target_prior),
            self.run_options(task.seed, task.path),
            validation=task.validation,
            test=task.test,
            callback=task.callback,
        )
        stopped: BaseException | None = None
        try:
            trainer.run()
        except BaseException as error:
            if not len(trainer.history) and not isinstance(error, NonFiniteRiskError):
                raise
            stopped = error
        return ModelFit(self._trained(trainer.final_model, trainer.dtype), trainer.history, stopped)

    def train_folds(self, task: FoldsTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train the modules of the folds; on CUDA together, if a batch can hold them."""
        options = self.run_options(task.seed, task.path)
        risk = self.risk(task.set_priors, task.target_prior)
        folds = range(count_folds(task.folds)) if chosen is None else chosen
        on_cuda = torch.device(options.device).type == "cuda"
        # On the CPU batched training gains little; and a callback expects one model at a time.
        if on_cuda and task.callback is None and self.can_be_batched(task.data):
            (found,) = self.train_variants(task, [Variant(risk)], folds)
            return found
        return [
            self.fold_scores(
                fit_fold(
                    fold,
                    lambda seed: self.build(task.data.row_shape, seed),
                    task.data,
                    task.folds,
                    risk,
                    options,
                    test=task.test,
                    callback=task.callback,
                )
            )
            for fold in folds
        ]

    def train_variants(
        self, task: FoldsTask, variants: Sequence[Variant], folds: Sequence[int]
    ) -> list[list[FoldScores]]:
        """Train several variants of a network that `can_be_batched` together: for each, the models of the folds."""
        assert isinstance(self.model, str)
        options = self.run_options(task.seed, task.path)
        found = fit_folds_batched(
            folds, self.model, self.model_params, task.data, task.folds, variants, options, test=task.test
        )
        return [[self.fold_scores(part) for part in parts] for parts in found]

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> NetworkModel:
        """The modules as one `uulearn.models.Ensemble`, on the device of training."""
        networks = [model for model in models if isinstance(model, NetworkModel)]
        ensemble = Ensemble([network.module for network in networks], scales).eval()
        return dataclasses.replace(networks[-1], module=ensemble.to(self.options.device))

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> NetworkModel:
        """The module with the stored weights; a named model needs no memory until the shapes are known to agree."""
        n_models, weights = state.config["n_models"], state.tensors
        precision = str(state.config["precision"])
        if precision not in ("float32", "bfloat16") or n_models != (len(weights.get("scales", ())) or None):
            raise ModelFormatError(f"the description of the model is not valid: {state.config}; save it again.")
        named = isinstance(self.model, str)
        layers = (n_models or 1) * (1 + len((self.model_params or {}).get("hidden", ())))
        if named and layers > len(weights):
            raise ModelFormatError(
                f"the model claims {layers:,} layers but has {len(weights):,} weights; save it again."
            )
        with torch.device("meta" if named else "cpu"):
            module = build_model(self.model, row_shape, self.model_params)
            if n_models is not None:
                copies = (build_model(self.model, row_shape, self.model_params) for _ in range(1, n_models))
                module = Ensemble([module, *copies], [1.0] * n_models)
        expected = {name: (tuple(value.shape), value.dtype) for name, value in module.state_dict().items()}
        found = {name: (tuple(value.shape), value.dtype) for name, value in weights.items()}
        if expected != found:
            odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))[0]
            raise ModelFormatError(
                f"the stored weights do not fit the model: {odd} should be {expected.get(odd)} and is "
                f"{found.get(odd)}; pass the model that was trained."
            )
        if not all(bool(value.isfinite().all()) for value in weights.values()):
            raise ModelFormatError("the stored weights are not all finite numbers; train and save the model again.")
        module.load_state_dict(weights, assign=named)
        return self._trained(module.eval(), getattr(torch, precision))

    def fold_scores(self, fitted: FoldFit) -> FoldScores:
        """What the training package returns for one fold, as a learner returns it."""
        return FoldScores(self._trained(fitted.model, fitted.dtype), fitted.history, fitted.scores)

    def _trained(self, module: nn.Module, dtype: torch.dtype) -> NetworkModel:
        forced = self.options.precision == "bfloat16"
        return NetworkModel(module, str(dtype).removeprefix("torch."), self.options.input_scale, forced)
