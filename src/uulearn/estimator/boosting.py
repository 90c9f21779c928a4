"""Gradient-boosted trees that minimize the corrected risk, trained by LightGBM (``model="boosting"``).

One round of boosting adds one tree and counts as one epoch: ``epochs``, ``lr``, ``l2``, ``patience`` and early stopping
have the same meaning as for networks. The gradient of a round is that of the corrected risk of all training rows
(`uulearn.risk.derivatives`). LightGBM is an optional dependency that is needed for training only; trained trees are
arrays (`uulearn.models.trees`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from uulearn import defaults
from uulearn.data import Rows, TwoSets
from uulearn.estimator.learners import FoldScores, Learner, ModelFit, ModelState, ModelTask, TrainedModel
from uulearn.estimator.parameters import make_risk
from uulearn.estimator.resolving import ResolvedParameters
from uulearn.exceptions import ModelFormatError, NonFiniteRiskError
from uulearn.models.trees import MAX_LEAVES, TREE_CHUNK_ROWS, BoostedTrees
from uulearn.risk import UURisk, pn_risk
from uulearn.risk.corrections import MethodLike
from uulearn.risk.derivatives import hessian_bound, risk_and_gradient
from uulearn.risk.functional import UURiskParts, weighted_risk
from uulearn.risk.losses import LossFunction
from uulearn.training import History, RunOptions
from uulearn.training.early_stopping import CrossedEpochs, follow_epochs
from uulearn.training.history import BATCH_METRICS, VALIDATION_METRICS, StopReason, make_record
from uulearn.training.options import SMALL_CELLS, few_threads
from uulearn.training.out_of_fold import count_folds, fold_name, fold_seed
from uulearn.training.progress import ProgressBar

NO_TREES = BoostedTrees.from_nodes([])
SCORED_CELLS = 2**24
"""Maximum number of cells that are converted to a dense array at a time to score rows."""
MAX_DRAWS = 20
"""Maximum number of random draws of columns and rows for one tree."""
ROUNDS_PER_EPOCH = 3
"""Factor of ``smoothing``, which is a number of epochs of a network."""
CURVATURE = 0.25
"""Second derivative that is assumed for all losses, so that ``lr`` means the same for all of them.

It is the maximum for the logistic loss. The maximum for the sigmoid loss is 0.096. Ramp and double hinge have no second
derivative at their kinks and 0 elsewhere. For the squared loss it is 0.5, twice this value: a step overshoots only if
``lr`` is above 1.
"""


def import_lightgbm() -> Any:
    """Import LightGBM, or raise an ImportError that says how to install it."""
    try:
        import lightgbm
    except ImportError as error:
        raise ImportError(
            "model='boosting' needs LightGBM for training; install it with pip install lightgbm."
        ) from error
    except OSError as error:  # its library, or the OpenMP library that macOS does not have, cannot be loaded
        raise ImportError(
            f"LightGBM is installed but cannot be loaded ({error}); on macOS, run brew install libomp."
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
    min_features: int = 6
    """Minimum number of columns drawn for each tree. In a table with fewer columns, each tree uses all of them."""
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
            if name in ("min_data_in_leaf", "min_features") and not (whole and value >= 1):
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
        step = max(1, min(16 * TREE_CHUNK_ROWS, SCORED_CELLS // math.prod(rows.row_shape)))
        parts = [
            self.trees.score(rows.slice(start, min(start + step, rows.n_rows)).float().cpu().numpy())
            for start in range(0, rows.n_rows, step)
        ]
        return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.float32), *parts]))

    def state(self) -> ModelState:
        """Return the arrays of the trees."""
        return ModelState({name: torch.from_numpy(part) for name, part in vars(self.trees).items()}, {})


class _UnfinishedModel(BoostingModel):
    """Model that a callback receives during training; the trees are read from LightGBM only if they are used."""

    _read: Callable[[], BoostedTrees]

    def __init__(self, read: Callable[[], BoostedTrees]) -> None:
        vars(self)["_read"] = read

    @functools.cached_property
    def trees(self) -> BoostedTrees:
        """The trees of the round after which the callback was called."""
        return self._read()

    def __reduce__(self) -> tuple[type[BoostingModel], tuple[BoostedTrees]]:
        """Copy only the trees."""
        return BoostingModel, (self.trees,)


@dataclass(frozen=True)
class BoostingLearner(Learner):
    """Learner for gradient-boosted trees; ``options`` contains the number of rounds and the rules of early stopping.

    >>> BoostingLearner(RunOptions(epochs=100, lr=0.1)).trees.num_leaves
    15
    """

    kind: ClassVar[str] = "boosting"
    folds_together: ClassVar[bool] = True

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
        data = [task.data] if task.validation is None else [task.data, task.validation]
        place = np.repeat(np.arange(len(data)), [sum(part.sizes) for part in data])
        return self._train(data, [_Part(task, place == 0, place == 1)])[0]

    def train_folds(self, task: ModelTask, chosen: Sequence[int] | None = None) -> list[FoldScores]:
        """Train one model per fold, all with the same number of rounds, which is chosen on the rows of all these folds.

        With early stopping, a row is scored at a round chosen on other rows.
        """
        data, folds = task.in_folds()
        fold_of, found = np.concatenate(folds), []
        chosen = range(count_folds(folds)) if chosen is None else chosen
        parts = [
            _Part(
                dataclasses.replace(task, seed=fold_seed(task.seed, fold), path=(*task.path, fold_name(fold))),
                fold_of != fold,
                fold_of == fold,
            )
            for fold in chosen
        ]
        for fitted in self._train([data], parts):
            assert fitted.held_out_scores is not None
            found.append(FoldScores(fitted.model, fitted.history, fitted.held_out_scores))
        return found

    def _train(self, data: Sequence[TwoSets], parts: Sequence[_Part]) -> list[ModelFit]:
        """Train one model per part; the masks of the parts refer to all rows of ``data``, set 0 first in each."""
        task, n_columns = parts[0].task, data[0].row_shape[0]
        sets = np.concatenate([np.repeat([0, 1], own.sizes) for own in data])
        numbers = np.concatenate([own.set_numbers.numpy() for own in data])
        risk = make_risk(task.set_priors, task.target_prior, self.loss, self.method, self.slope, distributed=False)
        rows = _join([block for own in data for block in own.blocks()])
        if any(_is_constant(rows, part.trained) for part in parts):
            raise ValueError("every column is constant in the training rows; add columns that depend on the class.")
        table = import_lightgbm().Dataset(rows, params=self._parameters(len(sets), n_columns, task.seed)).construct()
        varying = _count_varying(rows)
        del rows  # the table contains the bins of all values
        runs = [
            _Run(part, table, sets, numbers, risk, self._parameters(int(part.trained.sum()), varying, part.task.seed))
            for part in parts
        ]
        with few_threads(len(sets), (n_columns,)):
            return _train_together(runs, self.options, risk)

    def _parameters(self, n_rows: int, n_columns: int, seed: int) -> dict[str, Any]:
        """Return the parameters of LightGBM for this number of training rows; constant columns do not count."""
        trees = self.trees
        return {
            "num_leaves": trees.num_leaves, "min_data_in_leaf": max(1, min(trees.min_data_in_leaf, n_rows // 10)),
            "feature_fraction": min(1.0, max(trees.feature_fraction, trees.min_features / n_columns)),
            "bagging_fraction": trees.bagging_fraction,
            "feature_pre_filter": False, "bagging_freq": int(trees.bagging_fraction < 1),
            "learning_rate": self.options.lr, "lambda_l2": self.options.l2, "min_sum_hessian_in_leaf": 0.0,
            "objective": "none", "metric": "None", "use_missing": False, "seed": seed % 2**31,
            "num_threads": 1 if n_rows * n_columns < SMALL_CELLS else torch.get_num_threads(),
            "deterministic": True, "force_row_wise": True, "verbosity": -1,
        }  # fmt: skip

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


@dataclass(frozen=True)
class _Part:
    """The rows of one model: those it is trained on, and those held out (masks over all rows)."""

    task: ModelTask
    trained: NDArray[np.bool_]
    held_out: NDArray[np.bool_]


class _WeightedRows:
    """Weights of rows in the risk, and the risk of their scores; ``numbers`` contains the set of each row."""

    def __init__(self, numbers: NDArray[np.int64], risk: UURisk) -> None:
        self.weights = risk.row_weights(torch.from_numpy(numbers))
        self.loss, self.method = risk.loss, risk.method
        positive, negative = self.weights.positive, self.weights.negative
        # Since ℓ(−g) = 1 − ℓ(g) for the zero-one loss, its unbiased risk is a constant minus a weighted sum of signs.
        self._constant, self._slopes = (positive + negative).double().sum().item() / 2, (positive - negative) / 2

    def zero_one(self, scores: Tensor) -> float:
        """Return the unbiased zero-one risk."""
        return self._constant - (self._slopes @ scores.sign()).item()

    def risk(self, scores: Tensor) -> dict[str, float]:
        """Return all parts of the risk."""
        return self._named(weighted_risk(scores, self.weights, self.loss, self.method), scores)

    def risk_and_gradient(self, scores: Tensor) -> tuple[dict[str, float], Tensor]:
        """Return all parts of the risk, and the gradient of the objective."""
        parts, gradient = risk_and_gradient(scores, self.weights, self.loss, self.method)
        return self._named(parts, scores), gradient

    def _named(self, parts: UURiskParts, scores: Tensor) -> dict[str, float]:
        return {name: part.item() for name, part in parts._asdict().items()} | {"zero_one": self.zero_one(scores)}


class _Run:
    """The training of one model, one round at a time.

    ``sets`` contains 0 or 1 for every row, and ``numbers`` contains its set. They differ if the two sets are groups.
    """

    def __init__(
        self,
        part: _Part,
        table: Any,
        sets: NDArray[np.int64],
        numbers: NDArray[np.int64],
        risk: UURisk,
        parameters: dict[str, Any],
    ) -> None:
        self.task, self.risk, self.lr = part.task, risk, parameters["learning_rate"]
        self.history = History(labels_used=self.task.test is not None)
        self.trees = NO_TREES
        """Trees that were read from LightGBM."""
        self.finished = False
        """Whether no tree reduces the risk; the model is then not trained further."""
        trained, self.held_out = np.flatnonzero(part.trained), np.flatnonzero(part.held_out)
        self.held_out_sets, self.held_out_numbers = sets[self.held_out], numbers[self.held_out]
        self.trained_rows = _WeightedRows(numbers[trained], risk)
        self.hessian = (len(trained) * hessian_bound(self.trained_rows.weights, risk.method, CURVATURE)).numpy()
        lightgbm = import_lightgbm()
        # A subset has the bins of the whole table, so the columns are binned once for all models.
        own = table if part.trained.all() else table.subset(trained)
        self.booster = lightgbm.Booster(parameters, own)
        names = ["trained"]
        if len(self.held_out):
            names.append("held_out")
            self.held_out_rows = _WeightedRows(self.held_out_numbers, risk)
            self.booster.add_valid(table.subset(self.held_out), names[-1])
        if self.task.test is not None:
            names.append("test")
            rows = _join(self.task.test[0].blocks())
            self.booster.add_valid(lightgbm.Dataset(rows, reference=own, params=parameters), names[-1])
        self.names = names
        self.scores: dict[str, Tensor] = {"trained": torch.zeros(len(trained))}
        """Scores of the training, held-out and test rows after the last round."""
        _, self.gradient = self.trained_rows.risk_and_gradient(self.scores["trained"])

    def advance(self) -> dict[str, Any]:
        """Add one tree and return the record of the round."""
        started = time.perf_counter()
        self.finished = self.finished or not self._add_tree()
        self._copy_scores()
        risk, self.gradient = self.trained_rows.risk_and_gradient(self.scores["trained"])
        below = [float(risk[name] < 0) for name in ("positive", "negative")]
        record = make_record(len(self.history) + 1, [*(risk[name] for name in BATCH_METRICS), *below], self.lr)
        if not math.isfinite(record["objective"]):
            epoch = record["epoch"]
            raise NonFiniteRiskError(f"the risk stopped being finite in epoch {epoch}; lower lr, or use another loss.")
        if "held_out" in self.scores:
            risk = self.held_out_rows.risk(self.scores["held_out"])
            record |= {f"validation_{name}": risk[name] for name in VALIDATION_METRICS}
        if self.task.test is not None:
            scores, labels = self.scores["test"], self.task.test[1]
            record["test_accuracy"] = ((scores > 0) == (labels == 1)).double().mean().item()
            record["test_risk"] = pn_risk(scores, labels, self.risk.target_prior, loss=self.risk.loss).total.item()
        record["seconds"] = time.perf_counter() - started
        self.history.epochs.append(record)
        return record

    def _add_tree(self) -> bool:
        """Add a tree; return False if no tree reduces the risk.

        A tree uses a random part of the columns and rows. If no split is possible there, for example because the
        columns are rare flags, other columns and rows are drawn.
        """
        added = any(not self.booster.update(fobj=self._derivatives) for _ in range(MAX_DRAWS))
        if not self.history.epochs:  # LightGBM keeps a constant tree of a first round without a split
            self.n_constant = self.booster.current_iteration() - int(added)
        return added

    def model(self) -> BoostingModel:
        """Return the trees up to the best round, or all trees without early stopping."""
        best, n_trees = self.history.best_epoch, self.booster.current_iteration()
        n_trees = n_trees if best is None else min(n_trees, best + self.n_constant)
        return _UnfinishedModel(functools.partial(self._trees, n_trees))

    def _trees(self, n_trees: int) -> BoostedTrees:
        """Return the first trees; each tree is read from LightGBM only once."""
        known = self.trees.n_trees
        if known < n_trees:
            dumped = self.booster.dump_model(start_iteration=known, num_iteration=n_trees - known)
            new = BoostedTrees.from_nodes([tree["tree_structure"] for tree in dumped["tree_info"]])
            self.trees = self.trees.followed_by(new)
        return self.trees.first(n_trees)

    def _derivatives(self, *_: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the gradient and the Hessian for the next tree."""
        # LightGBM adds l2 to the sum of the Hessian over the rows of a leaf, not to its mean.
        return (len(self.gradient) * self.gradient).numpy(), self.hessian

    def _copy_scores(self) -> None:
        """Copy the scores of all rows, which LightGBM passes to functions that compute metrics."""
        parts: list[Tensor] = []

        def copy(scores: NDArray[np.float64], _: Any) -> tuple[str, float, bool]:
            parts.append(torch.from_numpy(scores.astype(np.float32)))
            return "none", 0.0, False

        self.booster.eval_train(copy)
        self.booster.eval_valid(copy)
        self.scores = dict(zip(self.names, parts, strict=True))


class _SharedRounds:
    """Choice of one number of rounds for several models, by the risk pooled over the held-out rows of all models."""

    def __init__(self, runs: Sequence[_Run], options: RunOptions, risk: UURisk) -> None:
        self.runs = runs
        sets = np.concatenate([run.held_out_sets for run in runs])
        # A tree changes the scores less than an epoch of a network, so the error is averaged over more of them.
        smoothing = ROUNDS_PER_EPOCH * options.smoothing
        options = dataclasses.replace(options, smoothing=smoothing)
        self.best = follow_epochs(options, len(sets) > 0, smoothing)
        self.scores: Tensor | None = None
        """Scores of the held-out rows after the best round, or after the last round without early stopping."""
        self._crossed: CrossedEpochs | None = None
        if not len(sets):
            return
        # The rows of set 0 come first; the order is undone in `held_out_scores`.
        self._order = np.argsort(sets, kind="stable")
        numbers = np.concatenate([run.held_out_numbers for run in runs])
        self._rows = _WeightedRows(numbers[self._order], risk)
        first, second = np.bincount(sets, minlength=2).tolist()
        if self.best is not None and min(first, second) > 1:
            seed = runs[0].task.seed
            own = torch.from_numpy(numbers[self._order])
            known = [risk.coefficients_of(own)], [seed], smoothing, smoothing
            self._crossed = CrossedEpochs((first, second), *known, numbers=own)

    def update(self) -> None:
        """Add the scores of the next round, and set the best epoch of all models if this round is the best so far."""
        if not hasattr(self, "_order"):
            return
        pooled = torch.cat([run.scores["held_out"] for run in self.runs])[self._order]
        if self._crossed is not None:
            self._crossed.update(pooled[None], [True])
        if self.best is None or self.best.update(self._rows.zero_one(pooled)):
            self.scores = pooled
            for run in self.runs:
                run.history.best_epoch = None if self.best is None else self.best.epoch

    def held_out_scores(self) -> list[tuple[Tensor, Tensor] | None]:
        """Return the scores of the held-out rows of each model, in set 0 and set 1, at rounds chosen on other rows."""
        if self.scores is None:
            return [None] * len(self.runs)
        pooled = self.scores if self._crossed is None else self._crossed.cross(self.scores[None])[0]
        scores = torch.empty_like(pooled)
        scores[self._order] = pooled
        found: list[tuple[Tensor, Tensor] | None] = []
        for run, own in zip(self.runs, torch.split(scores, [len(run.held_out) for run in self.runs]), strict=True):
            split = int((run.held_out_sets == 0).sum())  # set 0 comes first in the rows of each model
            found.append((own[:split], own[split:]))
        return found


def _train_together(runs: Sequence[_Run], options: RunOptions, risk: UURisk) -> list[ModelFit]:
    """Add a tree to every model until a stop reason is found; all models have the same number of rounds."""
    rounds, reason = _SharedRounds(runs, options, risk), None
    with ProgressBar(options.epochs, options.progress, models=len(runs), unit="trees") as bar:
        for epoch in range(1, options.epochs + 1):
            records = [run.advance() for run in runs]
            rounds.update()
            bar.update(epoch, records[0])
            asked = [
                callback(record, run.model())  # type: ignore[arg-type]  # trees are not a module
                for run, record in zip(runs, records, strict=True)
                if (callback := run.task.epoch_callback()) is not None
            ]
            if any(asked):
                reason = StopReason.CALLBACK
            elif all(run.finished for run in runs):
                reason = f"no tree improves the risk after tree {epoch}"
            elif rounds.best is not None and rounds.best.exhausted:
                reason = f"the error did not decrease for {options.patience} trees (lowest after {rounds.best.epoch})"
            if reason is not None:
                break
    for run in runs:
        run.history.stop_reason = reason or StopReason.EPOCHS_DONE.format(options.epochs)
    return [
        ModelFit(BoostingModel(run.model().trees), run.history, held_out_scores=scores)
        for run, scores in zip(runs, rounds.held_out_scores(), strict=True)
    ]


def _join(blocks: list[Any]) -> Any:
    """Return blocks of rows as LightGBM takes them: a list of arrays, or one CSR matrix."""
    if not any(map(sparse.issparse, blocks)):
        return blocks
    return blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")


def _is_constant(rows: Any, chosen: NDArray[np.bool_]) -> bool:
    """Return whether all chosen rows are equal; usually, the first columns show that they differ."""
    if sparse.issparse(rows):
        own = rows[chosen]
        return bool((own.max(axis=0) != own.min(axis=0)).nnz == 0)
    columns = (np.concatenate([block[:, at] for block in rows])[chosen] for at in range(rows[0].shape[1]))
    return all((values == values[0]).all() for values in columns)


def _count_varying(rows: Any) -> int:
    """Return the number of columns that are not constant."""
    if sparse.issparse(rows):
        return int((rows.max(axis=0) != rows.min(axis=0)).nnz)
    low, high = (pick([pick(block, axis=0) for block in rows], axis=0) for pick in (np.min, np.max))
    return int(np.count_nonzero(low != high))
