"""Train several kinds of models on the same folds, and average them with weights (``model="auto"``).

The models are compared by how well their calibrated out-of-fold probabilities predict the set of each row, which needs
no labels (`weigh`). With few rows or close priors, the data hardly distinguish the models, so the weights are nearly
equal. With more rows, the better model gets a higher weight.

The weights would make the estimated accuracy optimistic if a row took part in the weights of its own models.
Therefore, the out-of-fold score of a row uses the weights that the rows of the other folds determine.
"""

from __future__ import annotations

import contextvars
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from uulearn import defaults
from uulearn.data import Rows, TwoSets
from uulearn.estimator.boosting import BoostingLearner, import_lightgbm
from uulearn.estimator.learners import (
    ComparedModel,
    ConsistencyChoice,
    FoldScores,
    Learner,
    ModelFit,
    ModelState,
    ModelTask,
    NetworkLearner,
    OutOfFold,
    SetPriors,
    TrainedModel,
    make_learner,
    merge_folds,
    restore_model,
)
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.resolving import OF_EACH_MODEL, ResolvedParameters, resolve
from uulearn.exceptions import ModelFormatError, NonFiniteRiskError
from uulearn.metrics.calibration import PlattScaling, calibrate_out_of_fold, set_log_likelihood, shift_log_odds
from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE
from uulearn.risk.coefficients import multi_set_coefficients
from uulearn.risk.losses import LOSSES
from uulearn.storage import read_value
from uulearn.training.options import is_small, one_thread
from uulearn.training.progress import StageStarted, start_stage
from uulearn.training.workers import join_workers

WEIGHT_STEPS = 10
"""The weights that are compared are multiples of 1 divided by this number."""
LIKELIHOOD_POWER = 1 / SELECTION_ERROR_SCALE**2
"""Power of the likelihood; below 1 because the rows of a fold share a model and an epoch."""
MIN_WEIGHT = 0.01
"""Models with a lower weight are not used, because they would hardly change a prediction."""
FLOPS = 5e10
"""Floating-point operations per second of one core, for estimating the training time of networks."""
STEP_SECONDS = 2e-3
"""Time of a training step of a network in addition to its matrix products."""
CONSISTENCY_COST = 2.5
"""Time of a training step with consistency training, as a multiple of the time without it."""
CELL_SECONDS = 2e-9
"""Time that boosting needs per tree and cell of the table."""

Decisions = NDArray[np.float32]


@dataclass(frozen=True)
class AutoOptions:
    """Options of ``model="auto"``, passed as ``model_params``.

    >>> AutoOptions.from_mapping({"models": ["linear", "tree"]})
    Traceback (most recent call last):
        ...
    ValueError: model_params: models must be some of 'linear', 'boosting', 'mlp', got ['linear', 'tree'].
    """

    models: tuple[str, ...] = defaults.AUTO_MODELS
    """Models to compare."""
    seconds: float = defaults.AUTO_SECONDS
    """Budget of expected training time on one core. Models that do not fit are skipped, except for the first."""

    @classmethod
    def from_mapping(cls, params: Mapping[str, Any] | None) -> AutoOptions:
        """Check the values and return the options."""
        given = dict(params or {})
        if unknown := sorted(given.keys() - {"models", "seconds"}):
            raise ValueError(
                f"model_params: {unknown[0]!r} is not an option of model='auto', the default for tables; use models "
                "and seconds, or set model='mlp'."
            )
        if "models" in given:
            names = given["models"]
            known = isinstance(names, list | tuple) and all(name in defaults.COMPARABLE_MODELS for name in names)
            if not known or not names or len(set(names)) < len(names):
                listed = ", ".join(map(repr, defaults.COMPARABLE_MODELS))
                raise ValueError(f"model_params: models must be some of {listed}, got {names!r}.")
            given["models"] = tuple(name for name in defaults.COMPARABLE_MODELS if name in names)
        seconds = given.get("seconds", defaults.AUTO_SECONDS)
        if not isinstance(seconds, Real) or isinstance(seconds, bool) or not float(seconds) > 0:
            raise ValueError(f"model_params: seconds must be a number above 0, got {seconds!r}.")
        return cls(**given)


@dataclass(frozen=True)
class BlendedModel(TrainedModel):
    """The models of one fold; the score is a weighted sum of their scores, in log-odds."""

    gives_log_odds: ClassVar[bool] = True

    models: Mapping[str, TrainedModel]
    weights: Mapping[str, float]
    offset: float
    sizes: tuple[int, int]
    comparison: tuple[ComparedModel, ...] | None = None

    def score(self, rows: Rows) -> Tensor:
        """Return the weighted sum."""
        return sum((self.weights[name] * model.score(rows) for name, model in self.models.items()), _zeros(rows)) + (
            self.offset
        )


@dataclass(frozen=True)
class AutoModel(TrainedModel):
    """Ensembles of the models that were used; the score is the sum of their scores and the mean offset."""

    parts: Mapping[str, TrainedModel]
    offsets: tuple[float, ...]
    """Offset of each model of the ensembles."""
    sizes: tuple[int, int]
    """Number of training rows in each set."""
    comparison: tuple[ComparedModel, ...] | None = None
    loss: str | None = "logistic"
    """The scores of an ensemble are log-odds, as with the logistic loss."""

    @property
    def precision(self) -> str:  # type: ignore[override]
        """Floating-point type of the matrix products in networks."""
        found = {part.precision for part in self.parts.values()}
        return found.pop() if len(found) == 1 else "bfloat16"

    @property
    def device(self) -> str:
        """The device of the networks."""
        return next((part.device for part in self.parts.values() if part.device != "cpu"), "cpu")

    def to_cpu(self) -> AutoModel:
        """Return the model with all networks on the CPU."""
        return dataclasses.replace(self, parts={name: part.to_cpu() for name, part in self.parts.items()})

    @property
    def consistency(self) -> ConsistencyChoice | None:  # type: ignore[override]
        """The choice of ``consistency="auto"`` for the networks."""
        return next((part.consistency for part in self.parts.values() if part.consistency is not None), None)

    @property
    def n_models(self) -> int | None:
        """Number of models in each ensemble, or None for a single model."""
        return next(iter(self.parts.values())).n_models

    def submodel(self, number: int) -> AutoModel:
        """Return the models of one fold."""
        parts = {name: part.submodel(number) for name, part in self.parts.items()}
        return dataclasses.replace(self, parts=parts, offsets=(self.offsets[number],))

    def score(self, rows: Rows) -> Tensor:
        """Return the sum of the scores."""
        offset = float(np.mean(self.offsets))
        return sum((part.score(rows) for part in self.parts.values()), _zeros(rows)) + offset

    def state(self) -> ModelState:
        """Return the tensors of all parts, the configuration of each part, and the comparison."""
        states = {name: part.state() for name, part in self.parts.items()}
        tensors = {f"{name}.{key}": tensor for name, state in states.items() for key, tensor in state.tensors.items()}
        config = {
            "parts": {name: state.config for name, state in states.items()},
            "offsets": list(self.offsets),
            "sizes": list(self.sizes),
            "loss": self.loss,
            "comparison": [
                dataclasses.asdict(entry) | {"best_epochs": list(entry.best_epochs)} for entry in self.comparison or ()
            ],
        }
        return ModelState(tensors, config)


@dataclass(frozen=True)
class AutoLearner(Learner):
    """Learner that compares other learners.

    ``parameters`` are those of the classifier. Parameters that are still "auto" have a different value for each model.
    """

    kind: ClassVar[str] = "auto"

    parameters: ResolvedParameters
    options: AutoOptions
    on_device: str | None = None

    @classmethod
    def from_parameters(cls, parameters: ResolvedParameters, device: str | None = None) -> AutoLearner:
        """Create the learner for the parameters of a classifier, optionally on another device."""
        if parameters.set_priors is None:
            raise ValueError(
                "model='auto' compares models by their estimated risk, which needs set_priors; choose a model, such as "
                "model='mlp'."
            )
        return cls(
            parameters,
            AutoOptions.from_mapping(None if is_auto(parameters.model_params) else parameters.model_params),
            device,
        )

    def learner(self, name: str, sizes: tuple[int, int]) -> Learner:
        """Return the learner of one model, with its own defaults for sets of these sizes."""
        return make_learner(self._resolve(name, sizes), self.on_device)

    def _resolve(self, name: str, sizes: tuple[int, int]) -> ResolvedParameters:
        own = {**vars(self.parameters), "model": name, "model_params": defaults.AUTO}
        if name == defaults.BOOSTING:
            own["consistency"] = None
        return resolve(own, sizes)

    def _own_parameters(self, name: str, sizes: tuple[int, int], consistency_used: bool = False) -> dict[str, Any]:
        """Return the parameters that have a default for each model, as data that can be stored as JSON."""
        resolved = self._resolve(name, sizes)
        resolved = dataclasses.replace(resolved, **resolved.used_parameters(consistency_used))
        own = {key: getattr(resolved, key) for key in OF_EACH_MODEL if is_auto(getattr(self.parameters, key))}
        options = {key: list(v) if isinstance(v, tuple) else v for key, v in (resolved.model_params or {}).items()}
        return own | {"model_params": options or None}

    def check(self, sample: Tensor, seed: int) -> None:
        """Raise an error if a network does not support these rows."""
        for name in self.options.models:
            if name != defaults.BOOSTING or len(self.options.models) == 1:
                self.learner(name, (1, 1)).check(sample, seed)

    def train(self, task: ModelTask) -> ModelFit:
        """Train a single model, without a comparison, which needs folds."""
        name = defaults.MODEL if defaults.MODEL in self.options.models else self.options.models[-1]
        learner = self.learner(name, task.data.sizes)
        fitted = learner.train(task)
        why = "not compared: comparing models needs an ensemble over folds"
        own = self._own_parameters(name, task.data.sizes)
        compared = tuple(
            ComparedModel(kind, kind == name, float(kind == name), skipped=why, parameters=own if kind == name else {})
            for kind in self.options.models
        )
        loss = getattr(learner, "loss", None)
        loss = loss if isinstance(loss, str) else None  # the classifier has a custom loss
        model = AutoModel({name: fitted.model}, (0.0,), task.data.sizes, compared, loss)
        return dataclasses.replace(fitted, model=model)

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train all models on the same folds, weigh them, and return the models of each fold as one model."""
        data, folds = task.in_folds()
        if chosen is not None:
            raise ValueError("model='auto' compares models on all folds; choose a model to train single folds.")
        trained, compared = self._train_all(task)
        joined, sets = np.concatenate(folds), data.set_numbers.numpy()
        decisions, scalings = {}, {}
        for name, fitted in list(trained.items()):
            known = torch.cat(fitted.scores).numpy(), sets, joined, task.set_priors, task.target_prior
            try:
                scalings[name], decisions[name] = calibrate_out_of_fold(*known)
            except ValueError as error:
                compared[name] = dataclasses.replace(compared[name], skipped=str(error).rstrip("."))
        if not decisions:
            raise NonFiniteRiskError("; ".join(f"{name}: {entry.skipped}" for name, entry in compared.items()) + ".")
        weights = weigh(decisions, sets, task.set_priors, task.target_prior)
        for entry in compare_risks(decisions, sets, task.set_priors, task.target_prior):
            compared[entry.model] = dataclasses.replace(
                compared[entry.model],
                used=weights[entry.model] > 0,
                weight=weights[entry.model],
                risk=entry.risk,
                difference=entry.difference,
                standard_error=entry.standard_error,
            )
        comparison = tuple(compared.values())
        used = [entry.model for entry in comparison if entry.used]
        main = max(comparison, key=lambda entry: entry.weight).model
        scores = torch.from_numpy(cross_weigh(decisions, sets, joined, task.set_priors, task.target_prior))
        parts = []
        for fold in range(self.parameters.n_estimators):
            models = {name: (trained[name], scalings[name], weights[name]) for name in used}
            blend = _blend(fold, models, comparison, data.sizes)
            own_scores = zip(torch.split(scores, list(data.sizes)), folds, strict=True)
            first, second = (part[torch.from_numpy(own == fold)] for part, own in own_scores)
            parts.append(FoldScores(blend, trained[main].histories[fold], (first, second)))
        return parts

    def _train_all(self, task: ModelTask) -> tuple[dict[str, OutOfFold], dict[str, ComparedModel]]:
        """Train all models that fit into the budget; the first of them is always trained."""
        data, _ = task.in_folds()
        learners = {name: self.learner(name, data.sizes) for name in self.options.models}
        needed = {name: expected_seconds(own, data, self.parameters.n_estimators) for name, own in learners.items()}
        missing = {name: _unavailable(name, self.parameters.training.distributed) for name in learners}
        affordable = sum(needed.values()) <= self.options.seconds and not any(missing.values())
        if affordable and self._can_share_cores(learners, task):
            return self._train_side_by_side(learners, task)
        trained: dict[str, OutOfFold] = {}
        compared: dict[str, ComparedModel] = {}
        expected = 0.0
        for name, learner in learners.items():
            skipped = missing[name]
            if skipped is None and trained and expected + needed[name] > self.options.seconds:
                left = max(0.0, self.options.seconds - expected)
                skipped = (
                    f"its training needs about {needed[name]:,.1f} s, more than the {left:,.1f} s that are left of the "
                    f"budget of {self.options.seconds:,.1f} s"
                )
            if skipped is None:
                expected += needed[name]
                self._start_stage(name)
                fitted, compared[name] = self._train_one(name, learner, task)
                trained |= {} if fitted is None else {name: fitted}
            else:
                compared[name] = ComparedModel(name, skipped=skipped)
        return trained, compared

    def _can_share_cores(self, learners: Mapping[str, Learner], task: ModelTask) -> bool:
        """Return whether boosting and networks use one core each, and run no code of the user in two threads."""
        data, _ = task.in_folds()
        networks = [own for name, own in learners.items() if name != defaults.BOOSTING]
        return (
            0 < len(networks) < len(learners)
            and torch.get_num_threads() > 1
            and is_small(sum(data.sizes), data.row_shape)
            and task.callback is None
            and isinstance(self.parameters.loss, str)
            and isinstance(self.parameters.method, str)
            and all(
                isinstance(own, NetworkLearner)
                and torch.device(own.options.device).type == "cpu"
                and is_small(sum(data.sizes), data.row_shape, own.build(data.row_shape, 0))
                for own in networks
            )
        )

    def _train_side_by_side(
        self, learners: Mapping[str, Learner], task: ModelTask
    ) -> tuple[dict[str, OutOfFold], dict[str, ComparedModel]]:
        """Train boosting in a second thread and the networks in this one; the models are the same as in turn.

        LightGBM and torch release the interpreter lock while they compute. Only this thread uses torch's generator.
        """
        boosting, stopped = learners[defaults.BOOSTING], threading.Event()
        assert isinstance(boosting, BoostingLearner)
        quiet = dataclasses.replace(boosting, options=dataclasses.replace(boosting.options, progress=False))
        stoppable = dataclasses.replace(task, callback=lambda record, model: stopped.is_set())
        # torch starts in the second thread with the number of threads of this one.
        with one_thread(), ThreadPoolExecutor(1) as pool:
            run, found = contextvars.copy_context().run, {}
            try:
                pending = pool.submit(run, self._train_one, defaults.BOOSTING, quiet, stoppable, time.thread_time)
                for name in learners:
                    if name != defaults.BOOSTING:
                        if pending.done():
                            pending.result()  # raises an error of boosting before the next network is trained
                        self._start_stage(f"{defaults.BOOSTING} and {name}")
                        found[name] = self._train_one(name, learners[name], task, time.thread_time)
                found[defaults.BOOSTING] = pending.result()
            finally:
                stopped.set()  # after an error or an interrupt, boosting stops after the next tree
        trained = {name: fitted for name in learners if (fitted := found[name][0]) is not None}
        return trained, {name: found[name][1] for name in learners}

    def _start_stage(self, name: str) -> None:
        if self.parameters.progress:
            start_stage(StageStarted(f"training {name}", self.parameters.n_estimators, "fold"))

    def _train_one(
        self, name: str, learner: Learner, task: ModelTask, clock: Callable[[], float] = time.process_time
    ) -> tuple[OutOfFold | None, ComparedModel]:
        """Train the models of all folds; if they diverge, there is only a reason why the model is skipped."""
        data, folds = task.in_folds()
        started = clock()
        fitted, skipped = None, None
        try:
            fitted = merge_folds(learner.train_folds(dataclasses.replace(task, path=(*task.path, name))), folds)
        except NonFiniteRiskError as error:
            skipped = str(error).rstrip(".")
        choice = None if fitted is None else fitted.models[0].consistency
        histories = [] if fitted is None else fitted.histories
        return fitted, ComparedModel(
            name,
            seconds=clock() - started,
            skipped=skipped,
            parameters=self._own_parameters(name, data.sizes, choice is not None and choice.used),
            best_epochs=tuple(history.best_epoch for history in histories if history.best_epoch is not None),
        )

    def combine(self, models: Sequence[TrainedModel], scales: Sequence[float]) -> TrainedModel:
        """Combine the models of each kind into an ensemble."""
        blends = [model for model in models if isinstance(model, BlendedModel)]
        parts = {}
        for name in blends[0].models:
            own = [scale / blend.weights[name] for blend, scale in zip(blends, scales, strict=True)]
            learner = self.learner(name, blends[0].sizes)
            parts[name] = learner.combine([blend.models[name] for blend in blends], own)
        offsets = tuple(blend.offset / scale for blend, scale in zip(blends, scales, strict=True))
        return AutoModel(parts, offsets, blends[0].sizes, blends[0].comparison)

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> AutoModel:
        """Restore each part with its own learner."""
        config = state.config
        offsets = read_value(tuple[float, ...], config["offsets"], "offsets")
        sizes = read_value(tuple[int, int], config["sizes"], "sizes")
        comparison = read_value(tuple[ComparedModel, ...], config["comparison"], "comparison")
        loss = read_value(str | None, config["loss"], "loss")
        parts = {}
        for name, own in config["parts"].items():
            if name not in self.options.models:
                raise ModelFormatError(f"the model has an unknown part {name!r}; save the model again.")
            start = f"{name}."
            tensors = {key.removeprefix(start): value for key, value in state.tensors.items() if key.startswith(start)}
            parts[name] = restore_model(self.learner(name, sizes), ModelState(tensors, own), row_shape)
        numbers = {part.n_models for part in parts.values()}
        consistent = (
            len(numbers) == 1
            and len(offsets) == (next(iter(numbers)) or 1)
            and bool(np.isfinite(offsets).all())
            and min(sizes) >= 1
            and {entry.model for entry in comparison if entry.used} == parts.keys()
            and all(entry.used == (0 < entry.weight <= 1) for entry in comparison)
            and abs(sum(entry.weight for entry in comparison) - 1) < 1e-6
            and (loss is None or loss in LOSSES)
            and all(key.partition(".")[0] in parts for key in state.tensors)
        )
        if not consistent:
            raise ModelFormatError("the parts of the model do not fit together; save the model again.")
        return AutoModel(parts, offsets, sizes, comparison, loss)


def weigh(
    decisions: Mapping[str, Decisions], sets: NDArray[np.int64], set_priors: SetPriors, target_prior: float
) -> dict[str, float]:
    """Return the weight of each model, from its calibrated out-of-fold decision values (log-odds).

    For given weights, the weighted mean of the log-odds determines the probability of the set of each row. The product
    of these probabilities over all rows is the likelihood of the weights. The result is the mean of all weights that
    add up to 1, weighted by their likelihood to the power of `LIKELIHOOD_POWER` (the posterior mean, with a uniform
    prior). Weights below `MIN_WEIGHT` are set to 0.

    >>> sets = np.repeat([0, 1], 500)
    >>> y = np.random.default_rng(0).random(1000) < np.where(sets == 0, 0.9, 0.1)
    >>> good = np.where(y, 4.0, -4.0)
    >>> weigh({"linear": -good, "mlp": good}, sets, (0.9, 0.1), 0.5)
    {'linear': 0.0, 'mlp': 1.0}
    >>> weigh({"linear": good, "mlp": good}, sets, (0.9, 0.1), 0.5)
    {'linear': 0.5, 'mlp': 0.5}
    """
    priors = np.asarray(set_priors, dtype=np.float64)[sets]
    pooled = float(priors.mean())
    at_negative, at_positive = (1 - priors) / (1 - pooled), priors / pooled
    values = shift_log_odds(np.stack(list(decisions.values())).astype(np.float64), target_prior, pooled)
    grid = _weight_grid(len(values))
    likelihoods = [float(set_log_likelihood(own @ values, at_negative, at_positive)[0].sum()) for own in grid]
    weights = softmax(LIKELIHOOD_POWER * np.array(likelihoods)) @ grid
    weights[weights < MIN_WEIGHT] = 0.0
    return dict(zip(decisions, (weights / weights.sum()).tolist(), strict=True))


def _weight_grid(n_models: int) -> NDArray[np.float64]:
    """Return all weights of the models that are multiples of 1 / `WEIGHT_STEPS` and add up to 1, shape (n, models).

    >>> len(_weight_grid(1)), len(_weight_grid(2)), len(_weight_grid(3))
    (1, 11, 66)
    """
    steps = [own for own in itertools.product(range(WEIGHT_STEPS + 1), repeat=n_models) if sum(own) == WEIGHT_STEPS]
    return np.array(steps) / WEIGHT_STEPS


def cross_weigh(
    decisions: Mapping[str, Decisions],
    sets: NDArray[np.int64],
    folds: NDArray[np.int64],
    set_priors: SetPriors,
    target_prior: float,
) -> Decisions:
    """Return the weighted mean decision value of each row, with the weights that the rows of the other folds give."""
    out = np.empty(len(sets), dtype=np.float32)
    for fold in np.unique(folds):
        inside = folds == fold
        others = {name: own[~inside] for name, own in decisions.items()}
        weights = weigh(others, sets[~inside], set_priors, target_prior)
        out[inside] = sum(weights[name] * own[inside] for name, own in decisions.items())
    return out


def compare_risks(
    decisions: Mapping[str, Decisions], sets: NDArray[np.int64], set_priors: SetPriors, target_prior: float
) -> list[ComparedModel]:
    """Estimate the zero-one risk of each model, and its difference from the lowest risk.

    The standard error is that of the difference between two models, which is small if they agree on most rows.
    """
    weights = decision_weights(sets, set_priors, target_prior)
    positive = {name: own > 0 for name, own in decisions.items()}
    risks = {name: target_prior + float(weights[own].sum()) for name, own in positive.items()}
    best = min(risks, key=lambda name: risks[name])
    found = []
    for name, own in positive.items():
        changed = weights * (own.astype(np.float64) - positive[best])
        variance = sum(float((sets == which).sum() * changed[sets == which].var()) for which in np.unique(sets))
        difference, error = risks[name] - risks[best], float(np.sqrt(variance))
        found.append(ComparedModel(name, risk=risks[name], difference=difference, standard_error=error))
    return found


def describe_comparison(comparison: Sequence[ComparedModel]) -> str:
    """Describe a comparison in one sentence.

    >>> describe_comparison([ComparedModel("linear", True, 0.2, 0.05), ComparedModel("mlp", True, 0.8, 0.04),
    ...                      ComparedModel("boosting", skipped="LightGBM is not installed")])
    '20% linear (error 5.0%) + 80% mlp (error 4.0%); skipped boosting: LightGBM is not installed'
    """
    used, others = ([entry for entry in comparison if entry.used is state] for state in (True, False))
    shown = [entry.model if entry.risk is None else f"{entry.model} (error {max(0, entry.risk):.1%})" for entry in used]
    if len(used) > 1:
        shown = [f"{entry.weight:.0%} {text}" for entry, text in zip(used, shown, strict=True)]
    parts = [" + ".join(shown)]
    parts += [f"not used: {entry.model} (error {entry.risk:.1%})" for entry in others if entry.risk is not None]
    parts += [f"skipped {entry.model}: {entry.skipped}" for entry in others if entry.risk is None]
    return "; ".join(parts)


def decision_weights(sets: NDArray[np.int64], set_priors: SetPriors, target_prior: float) -> NDArray[np.float64]:
    """Return weights such that the zero-one risk is the target prior plus the weights of rows predicted positive."""
    sizes = np.maximum(np.bincount(sets, minlength=len(set_priors)), 1)
    positive, negative = map(np.array, multi_set_coefficients(set_priors, sizes.tolist(), target_prior))
    return np.asarray((negative - positive) / sizes)[sets]


def expected_seconds(learner: Learner, data: TwoSets, n_folds: int) -> float:
    """Estimate the CPU time of training all folds, from sizes alone, so that the result is the same on every machine.

    Early stopping is not taken into account.
    """
    from uulearn.estimator.consistency import ConsistencyLearner

    if isinstance(learner, ConsistencyLearner):
        return sum(expected_seconds(own, data, n_folds) for own in (learner.plain, learner.consistent))
    rows = sum(data.sizes)
    trained = rows * (n_folds - 1)  # rows of all models in one epoch
    if isinstance(learner, BoostingLearner):
        return CELL_SECONDS * learner.options.epochs * trained * data.row_shape[0]
    if not isinstance(learner, NetworkLearner):
        return 0.0
    weights = sum(parameter.numel() for parameter in learner.build(data.row_shape, 0).parameters())
    steps = n_folds * max(1, round(rows * (n_folds - 1) / n_folds / learner.options.batch_size))
    factor = 1.0 if learner.options.consistency is None else CONSISTENCY_COST
    # Two operations per weight for the forward pass and four for the backward pass.
    return factor * learner.options.epochs * (steps * STEP_SECONDS + 6 * weights * trained / FLOPS)


def _blend(
    fold: int,
    models: Mapping[str, tuple[OutOfFold, PlattScaling, float]],
    comparison: tuple[ComparedModel, ...],
    sizes: tuple[int, int],
) -> BlendedModel:
    """Return the weighted mean of the log-odds of the models of one fold."""
    parts = {name: fitted.models[fold] for name, (fitted, *_) in models.items()}
    weights = {name: own * scaling.slope / fitted.scales[fold] for name, (fitted, scaling, own) in models.items()}
    offset = sum(own * scaling.intercept for _, scaling, own in models.values())
    return BlendedModel(parts, weights, offset, sizes, comparison)


def _unavailable(name: str, distributed: bool | str) -> str | None:
    """Return the reason why a model cannot be trained here, or None."""
    if name != defaults.BOOSTING:
        return None
    if join_workers(distributed, "cpu") is not None:
        return "boosting does not train in several processes"
    try:
        import_lightgbm()
    except ImportError as error:
        if isinstance(error.__cause__, OSError):
            return str(error).rstrip(".")
        return "LightGBM is not installed (pip install lightgbm)"
    return None


def _zeros(rows: Rows) -> Tensor:
    return torch.zeros(rows.n_rows)
