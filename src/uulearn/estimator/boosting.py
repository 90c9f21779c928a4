"""Gradient-boosted trees that minimize the corrected risk, trained by LightGBM (``model="boosting"``).

One round of boosting adds one tree and counts as one epoch: ``epochs``, ``lr``, ``l2``, ``patience`` and early stopping
have the same meaning as for networks. The gradient of a round is that of the corrected risk of all training rows
(`uulearn.risk.derivatives`). LightGBM is an optional dependency that is needed for training only; trained trees are
arrays (`uulearn.models.trees`).
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn import defaults
from uulearn.data import Rows, TwoSets
from uulearn.estimator.learners import FoldScores, Learner, ModelFit, ModelState, ModelTask, TrainedModel
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.exceptions import ClosePriorsWarning, ModelFormatError, NonFiniteRiskError
from uulearn.models.trees import MAX_LEAVES, TREE_CHUNK_ROWS, BoostedTrees
from uulearn.risk import LOSSES, UURisk, pn_risk
from uulearn.risk.corrections import MethodLike, get_method
from uulearn.risk.derivatives import hessian_bound, score_gradient
from uulearn.risk.functional import RowWeights, row_weights, weighted_risk
from uulearn.risk.losses import LossFunction
from uulearn.training import History, RunOptions
from uulearn.training.early_stopping import CrossedEpochs, follow_epochs
from uulearn.training.history import BATCH_METRICS, VALIDATION_METRICS, StopReason, make_record
from uulearn.training.options import SMALL_CELLS
from uulearn.training.out_of_fold import count_folds
from uulearn.training.progress import ProgressBar

UNBIASED = get_method("unbiased")
CURVATURE = 0.25
"""Bound of the second derivative of a loss; 0.25 is exact for the logistic loss."""


def import_lightgbm() -> Any:
    """Import LightGBM, or raise an ImportError that says how to install it."""
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(
            "model='boosting' needs LightGBM for training; install it with pip install 'uulearn[boosting]'."
        ) from error
    return lightgbm


@dataclass(frozen=True)
class TreeParameters:
    """Parameters of the trees, with the names of LightGBM; passed as ``model_params``.

    >>> TreeParameters.from_mapping({"num_leaves": 1})
    Traceback (most recent call last):
        ...
    ValueError: model_params: num_leaves must be an integer from 2 to 63, got 1.
    """

    num_leaves: int = 15
    """Maximum number of leaves of a tree."""
    min_data_in_leaf: int = 20
    """Minimum number of training rows in a leaf; at most a tenth of the rows is used."""
    feature_fraction: float = 0.5
    """Fraction of the columns, drawn at random for each tree."""
    bagging_fraction: float = 0.5
    """Fraction of the rows, drawn at random for each tree."""

    @classmethod
    def from_mapping(cls, params: Mapping[str, Any] | None) -> TreeParameters:
        """Check the values and return the parameters."""
        params = dict(params or {})
        known = [field.name for field in dataclasses.fields(cls)]
        for name, value in params.items():
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if name not in known:
                raise ValueError(f"model_params: {name!r} is not a parameter of boosting; use {', '.join(known)}.")
            if name == "num_leaves" and not (whole and 2 <= value <= MAX_LEAVES):
                raise ValueError(f"model_params: {name} must be an integer from 2 to {MAX_LEAVES}, got {value!r}.")
            if name == "min_data_in_leaf" and not (whole and value >= 1):
                raise ValueError(f"model_params: {name} must be an integer of at least 1, got {value!r}.")
            if name.endswith("fraction") and not (isinstance(value, Real) and 0 < float(value) <= 1):
                raise ValueError(f"model_params: {name} must be a number above 0 and at most 1, got {value!r}.")
        return cls(**params)


@dataclass(frozen=True)
class BoostingModel(TrainedModel):
    """Trained trees."""

    trees: BoostedTrees

    def score(self, rows: Rows) -> Tensor:
        """Return the scores of rows."""
        step = 16 * TREE_CHUNK_ROWS
        parts = [
            self.trees.score(rows.slice(start, min(start + step, rows.n_rows)).float().cpu().numpy())
            for start in range(0, rows.n_rows, step)
        ]
        return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.float32), *parts]))

    def state(self) -> ModelState:
        """Return the arrays of the trees."""
        return ModelState({name: torch.from_numpy(part) for name, part in vars(self.trees).items()}, {})


@dataclass(frozen=True)
class BoostingLearner(Learner):
    """Learner for gradient-boosted trees; ``options`` contains the number of rounds and the rules of early stopping.

    >>> BoostingLearner(RunOptions(epochs=100, lr=0.1)).trees.num_leaves
    15
    """

    kind: ClassVar[str] = "boosting"

    options: RunOptions
    trees: TreeParameters = TreeParameters()
    loss: str | LossFunction = defaults.LOSS
    method: MethodLike = defaults.METHOD
    slope: float = defaults.SLOPE

    @classmethod
    def from_parameters(cls, parameters: ResolvedParameters) -> BoostingLearner:
        """Create the learner for the parameters of a classifier."""
        shared = ("epochs", "lr", "l2", "early_stopping", "patience", "progress")
        options = RunOptions(**vars(parameters.training), **{name: getattr(parameters, name) for name in shared})
        trees = TreeParameters.from_mapping(parameters.model_params)
        return cls(options, trees, parameters.loss, parameters.method, parameters.slope)

    def check(self, sample: Tensor, seed: int) -> None:
        """Raise an error if LightGBM is not installed."""
        import_lightgbm()

    def train(self, task: ModelTask) -> ModelFit:
        """Train one model; with early stopping, its trees are those of the best round."""
        if not isinstance(task.data, TwoSets):
            raise ValueError("model='boosting' needs all rows in memory; use model='mlp' for streamed sets.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClosePriorsWarning)  # the plan warns, with the sizes of the sets
            risk = UURisk(task.set_priors, task.target_prior, self.loss, self.method, self.slope, distributed=False)
        return _Run(self, task.data, task, risk).run()

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train one model per fold; with early stopping, a row is scored at a round chosen on other rows."""
        found = []
        for fold in range(count_folds(task.in_folds()[1])) if chosen is None else chosen:
            fitted = self.train(task.of_fold(fold))
            assert fitted.held_out_scores is not None
            found.append(FoldScores(fitted.model, fitted.history, fitted.held_out_scores))
        return found

    def restore(self, state: ModelState, row_shape: tuple[int, ...]) -> BoostingModel:
        """Return the stored trees after checking them."""
        expected = {"features": torch.int32, "thresholds": torch.float32, "masks": torch.int64, "values": torch.float64}
        found = {name: tensor.dtype for name, tensor in state.tensors.items()}
        if found != expected or any(tensor.ndim != 2 for tensor in state.tensors.values()):
            raise ModelFormatError(f"expected the arrays {', '.join(expected)} of boosted trees; save the model again.")
        trees = BoostedTrees(**{name: tensor.numpy() for name, tensor in state.tensors.items()})
        try:
            trees.check(row_shape[0])
        except ValueError as error:
            raise ModelFormatError(f"{error}; train and save the model again.") from error
        return BoostingModel(trees)


class _Run:
    """The training of one model."""

    def __init__(self, learner: BoostingLearner, data: TwoSets, task: ModelTask, risk: UURisk) -> None:
        self.options, self.task, self.risk = learner.options, task, risk
        self.history = History(labels_used=task.test is not None)
        self.best = follow_epochs(self.options, task.validation is not None)
        self.weights = _weights(data, risk)
        self.hessian = hessian_bound(self.weights, risk.method, CURVATURE)
        self.scores: dict[str, Tensor] = {}
        """Scores of the training, validation and test rows after the last round."""
        lightgbm, rows = import_lightgbm(), _join(data)
        if (rows == rows[0]).all():
            raise ValueError("every column is constant in the training rows; add columns that depend on the class.")
        least = max(1, min(learner.trees.min_data_in_leaf, len(rows) // 10))
        parameters = {
            **vars(learner.trees), "min_data_in_leaf": least, "feature_pre_filter": False,
            "bagging_freq": int(learner.trees.bagging_fraction < 1),
            "learning_rate": self.options.lr, "lambda_l2": self.options.l2, "min_sum_hessian_in_leaf": 0.0,
            "objective": "none", "metric": "None", "use_missing": False, "seed": task.seed % 2**31,
            "num_threads": 1 if rows.size < SMALL_CELLS else torch.get_num_threads(),
            "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip
        table = lightgbm.Dataset(rows, params=parameters)
        self.booster = lightgbm.Booster(parameters, table)
        self.others: dict[str, NDArray[np.float32]] = {}
        self.crossed: CrossedEpochs | None = None
        if task.validation is not None:
            self.others["validation"] = _join(task.validation)
            self.validation_weights = _weights(task.validation, risk)
            if self.best is not None and min(task.validation.sizes) > 1:
                about = [risk.coefficients], [task.seed], self.options.smoothing
                self.crossed = CrossedEpochs(task.validation.sizes, *about)
        if task.test is not None:
            self.others["test"] = task.test[0].slice(0, task.test[0].n_rows).float().cpu().numpy()
        for name, part in self.others.items():
            self.booster.add_valid(lightgbm.Dataset(part, reference=table, params=parameters), name)

    def run(self) -> ModelFit:
        """Add trees until a stop reason is found."""
        history, task, best_scores = self.history, self.task, None
        with ProgressBar(self.options.epochs, self.options.progress) as bar:
            while history.stop_reason is None:
                started = time.perf_counter()
                finished = self.booster.update(fobj=self._derivatives)
                self._score()
                record = self._record(len(history) + 1)
                record["seconds"] = time.perf_counter() - started
                history.epochs.append(record)
                if self.best is None or self.best.observe(record, history):
                    best_scores = self.scores.get("validation")
                bar.update(len(history), record)
                model: Any = None if task.callback is None else self._model()  # not a module, as callbacks expect
                if task.callback is not None and task.callback(record, model):
                    history.stop_reason = StopReason.CALLBACK
                elif finished:
                    history.stop_reason = f"no tree improves the risk after epoch {len(history)}"
                elif len(history) == self.options.epochs:
                    history.stop_reason = StopReason.EPOCHS_DONE.format(self.options.epochs)
                elif self.best is not None and self.best.exhausted:
                    history.stop_reason = self.best.stop_reason
        if task.validation is None or best_scores is None:
            return ModelFit(self._model(), history)
        scores = best_scores if self.crossed is None else self.crossed.cross(best_scores[None])[0]
        first, second = torch.split(scores, list(task.validation.sizes))
        return ModelFit(self._model(), history, held_out_scores=(first, second))

    def _derivatives(self, scores: NDArray[np.float64], _: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the gradient and the Hessian for the next tree."""
        gradient = score_gradient(torch.from_numpy(scores), self.weights, self.risk.loss, self.risk.method)
        # LightGBM adds l2 to the sum of the Hessian over the rows of a leaf, not to its mean.
        return (len(scores) * gradient).numpy(), (len(scores) * self.hessian).numpy()

    def _score(self) -> None:
        """Copy the scores of all rows, which LightGBM passes to functions that compute metrics."""
        parts: list[Tensor] = []

        def copy(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
            parts.append(torch.from_numpy(scores.copy()))
            return "none", 0.0, False

        self.booster.eval_train(copy)
        self.booster.eval_valid(copy)
        self.scores = dict(zip(("training", *self.others), parts, strict=True))

    def _record(self, epoch: int) -> dict[str, Any]:
        """Return the record of the round that was just finished."""
        risk = self._risk(self.scores["training"], self.weights)
        below = [float(risk[name] < 0) for name in ("positive", "negative")]
        record = make_record(epoch, [*(risk[name] for name in BATCH_METRICS), *below], self.options.lr)
        if not math.isfinite(record["objective"]):
            raise NonFiniteRiskError(f"the risk stopped being finite in epoch {epoch}; lower lr, or use another loss.")
        if "validation" in self.scores:
            scores = self.scores["validation"] = self.scores["validation"].float()
            if self.crossed is not None:
                self.crossed.update(scores[None], [True])
            risk = self._risk(scores.double(), self.validation_weights)
            record |= {f"validation_{name}": risk[name] for name in VALIDATION_METRICS}
        if self.task.test is not None:
            scores, labels = self.scores["test"], self.task.test[1]
            record["test_accuracy"] = ((scores > 0) == (labels == 1)).double().mean().item()
            record["test_risk"] = pn_risk(scores, labels, self.risk.target_prior, loss=self.risk.loss).total.item()
        return record

    def _risk(self, scores: Tensor, weights: RowWeights) -> dict[str, float]:
        parts = weighted_risk(scores, weights, self.risk.loss, self.risk.method)._asdict()
        parts["zero_one"] = weighted_risk(scores, weights, LOSSES["zero_one"], UNBIASED).unbiased
        return {name: part.item() for name, part in parts.items()}

    def _model(self) -> BoostingModel:
        """Return the trees up to the best round, or all trees without early stopping."""
        dumped = self.booster.dump_model(num_iteration=self.history.best_epoch)
        return BoostingModel(BoostedTrees.from_nodes([tree["tree_structure"] for tree in dumped["tree_info"]]))


def _join(data: TwoSets) -> NDArray[np.float32]:
    """Return the rows of both sets, set 0 first."""
    return np.concatenate([data.take(which, torch.arange(size)).numpy() for which, size in enumerate(data.sizes)])


def _weights(data: TwoSets, risk: UURisk) -> RowWeights:
    sets = torch.repeat_interleave(torch.arange(2), torch.tensor(data.sizes))
    return row_weights(sets, risk.coefficients, torch.float64)
