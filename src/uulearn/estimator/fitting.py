"""How the estimator trains: one model, or several, each without one fold; what comes of it is adopted at the end."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from uulearn.data import DenseRows, Rows, TwoSets, hold_out
from uulearn.data.augmentation import AugmentationLike, build_augmentation
from uulearn.data.folds import assign_folds, check_fold_sizes
from uulearn.data.stream_holdout import hold_out_streams
from uulearn.data.streams import StreamedSets
from uulearn.estimator import guards, inputs
from uulearn.estimator.members import round_options, train_members
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.resolving import HELD_OUT, SETTLED, has_few_unique_rows, is_auto, resolve_defaults
from uulearn.estimator.self_training import FIRST, Folds, Priors, Round, Stage, check_half_sizes, refine
from uulearn.estimator.trained import TrainedClassifier
from uulearn.exceptions import ClosePriorsWarning, NonFiniteRiskError
from uulearn.metrics import Evaluation, evaluate
from uulearn.models import build_model, check_scores
from uulearn.risk import UURisk
from uulearn.risk.coefficients import warn_if_close
from uulearn.training import History, Trainer, TrainingOptions, score_rows
from uulearn.training.checkpoint import store_seed, stored_seed
from uulearn.training.loop import Callback
from uulearn.training.options import SchedulerLike
from uulearn.training.out_of_fold import OutOfFoldFit
from uulearn.training.randomness import isolated_rng
from uulearn.training.workers import Workers, join_workers, local_device, warn_on_rank_zero

PURE = (1.0, 0.0)


class Work(NamedTuple):
    """What there is to do, read and checked."""

    data: TwoSets | StreamedSets
    validation: TwoSets | None
    options: TrainingOptions
    test: tuple[Rows, Tensor] | None
    callback: Callback | None


class TrainableClassifier(TrainedClassifier):
    """The half of `uulearn.UUClassifier` that trains; its parameters are described there."""

    model_params: Mapping[str, Any] | None
    device: str
    augment: AugmentationLike | None
    scheduler: SchedulerLike | None
    optimizer_params: Mapping[str, Any] | None
    lr: Any  # the parameters that may be "auto" are numbers and flags wherever something is trained
    l2: Any
    validation_fraction: Any
    keep: Any
    patience: Any
    members: Any
    calibrated: Any
    rounds: int
    checkpoint_dir: str | Path | None
    distributed: bool | str
    random_state: int | np.random.RandomState | None

    history_: Any
    classes_: NDArray[np.int64]
    row_shape_: tuple[int, ...]
    set_sizes_: tuple[int, int]
    held_out_sizes_: tuple[int, int]
    cross_fitted_: Evaluation | None
    refinement_: list[Round] | None
    resolved_params_: dict[str, Any]
    seed_: int

    def _unfitted(self) -> Self:
        """A twin that learns about the columns, so that this one changes only when there is a model to go with them."""
        parameters = self.get_params(deep=False)
        check_parameters(parameters)
        return type(self)(**parameters)

    def _settled(self, sizes: tuple[int, int], held_out: bool = False, copies: bool = False) -> Self:
        """A twin, not fitted, in which nothing is "auto"."""
        parameters = self.get_params(deep=False)
        return type(self)(**parameters | resolve_defaults(parameters, sizes, held_out=held_out, copies=copies))

    def _fit_streams(
        self,
        first: Any,
        second: Any,
        columns: Self,
        validation_data: tuple[Any, Any] | None,
        test_data: tuple[Any, Any] | None,
        callback: Callback | None,
    ) -> Self:
        """Train on sets that are streamed; rows that evaluate every epoch are held out and kept in memory."""
        streams = inputs.check_streams(first, second)
        if self.rounds or not (is_auto(self.members) or self.members == 1):
            raise ValueError(
                f"sets that are streamed train one model, got members={self.members!r} and rounds={self.rounds}; set "
                "members=1 and rounds=0."
            )
        fraction = HELD_OUT if is_auto(self.validation_fraction) else self.validation_fraction
        workers = join_workers(self.distributed, self._device)
        data = StreamedSets(streams)
        numbers = None
        if validation_data is None and fraction:
            seed = int(self.random_state) if isinstance(self.random_state, int | np.integer) else 0
            held_out = hold_out_streams(streams, fraction, seed, workers)
            numbers = held_out.numbers
            data = StreamedSets(streams, held_out.excluded, held_out.rows)
            validation_data = torch.cat(held_out.rows), np.repeat([0, 1], [len(rows) for rows in held_out.rows])
        with warn_on_rank_zero(workers):
            data.warn_if_poorly_mixed(numbers)
        columns._read(data.sample(0, 2), "X0", reset=True)
        return self._fit(data, columns, validation_data, test_data, callback)

    def _fit(
        self,
        data: TwoSets | StreamedSets,
        columns: Self,
        validation_data: tuple[Any, Any] | None,
        test_data: tuple[Any, Any] | None,
        callback: Callback | None,
    ) -> Self:
        workers = join_workers(self.distributed, self._device)
        with warn_on_rank_zero(workers):
            inputs.check_set_sizes(data.sizes)
            held_out = validation_data is not None
            left_out = not held_out and (is_auto(self.members) or is_auto(self.validation_fraction))
            alone = isinstance(data, StreamedSets) or (left_out and has_few_unique_rows(data))
            twin = self._settled(data.sizes, held_out, copies=alone)
            work = twin._prepare(workers, data, columns, validation_data, test_data, callback)
            try:
                if twin.members == 1:
                    twin._fit_one(work, columns)
                else:
                    twin._fit_members(work, columns)
            finally:
                self._take_over(twin)
            return self._warn_if_degenerate(work.data)

    def _take_over(self, twin: Self) -> None:
        """Become what the twin has learned, if it got so far."""
        if not hasattr(twin, "model_"):
            return
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # of an earlier fit
        for name, value in vars(twin).items():
            if name.endswith("_"):
                setattr(self, name, value)
        self.resolved_params_ = {name: getattr(twin, name) for name in SETTLED if is_auto(getattr(self, name))}

    def _prepare(
        self,
        workers: Workers | None,
        data: TwoSets | StreamedSets,
        columns: Self,
        validation_data: tuple[Any, Any] | None,
        test_data: tuple[Any, Any] | None,
        callback: Callback | None,
    ) -> Work:
        """Everything that can be refused or warned of before training starts."""
        given = columns._read_held_out(validation_data, "validation_data", inputs.read_sets)
        if given is not None:
            inputs.check_both_sets(given[1])
        test = columns._read_held_out(test_data, "test_data", inputs.read_labels)
        seed = self._choose_seed() if workers is None else workers.broadcast(self._choose_seed())
        validation = None if given is None else TwoSets.from_membership(*given)
        data, validation = self._hold_out(data, validation, seed)
        options = self._options(seed)
        few = data.sample(0, 2) * self.input_scale
        build_augmentation(self.augment, few.to(options.device))
        check_scores(self._build(data.row_shape, seed), few)
        warn_if_close(self._priors, self.target_prior, data.sizes, stacklevel=5)
        comparison = guards.compare_sets(data.preview(), seed)
        guards.warn_if_indistinguishable(comparison)
        if test is not None:
            guards.warn_if_swapped(comparison, self._priors, *test)
        if self.checkpoint_dir is not None and self.members > 1 and (workers is None or workers.first):
            store_seed(self.checkpoint_dir, seed)  # of which the members' seeds are made
        return Work(data, validation, options, test, callback)

    def _warn_if_degenerate(self, data: TwoSets | StreamedSets) -> Self:
        """A last look at what was trained."""
        some = torch.cat([data.sample(which, 500) for which in (0, 1)])
        decisions = self._decisions(self._scores(DenseRows(some)).numpy())
        guards.warn_if_one_sided(
            decisions, data.sizes, self._priors, self.target_prior, log_odds=self.scaling_ is not None
        )
        return self

    @property
    def _priors(self) -> tuple[float, float]:
        """(θ, θ′); where they are unknown, those under which telling the sets apart is telling the classes apart."""
        return PURE if self.set_priors is None else (float(self.set_priors[0]), float(self.set_priors[1]))

    def _hold_out(
        self, data: TwoSets | StreamedSets, given: TwoSets | None, seed: int
    ) -> tuple[TwoSets | StreamedSets, TwoSets | None]:
        """The rows to train on, and those to evaluate by."""
        if self.set_priors is None and (self.calibrated or self.rounds):
            raise ValueError(
                "probabilities and refinement take the sets' shares of positives, and set_priors is None; set "
                "calibrated=False and rounds=0, and call with_priors once the shares are known."
            )
        if self.rounds and self.members == 1:
            raise ValueError(
                f"rounds={self.rounds} of refinement sort rows by models that have not seen them, for which members "
                "must be 2 or more; set members=5, or rounds=0."
            )
        if self.members > 1:
            if given is not None:
                raise ValueError(
                    f"with members={self.members} each model is evaluated on the fold it has not seen; leave "
                    "validation_data out, or set members=1."
                )
            check_fold_sizes(data.sizes, self.members)
            check_half_sizes(data.sizes, self.members, self.rounds)
            return data, None
        if given is not None:
            return data, given
        if self.validation_fraction and isinstance(data, TwoSets):
            return hold_out(data, self.validation_fraction, seed)
        if self.calibrated:
            raise ValueError(
                "calibrated=True needs held-out rows of both sets, and there are none; set validation_fraction=0.1 or "
                "pass validation_data."
            )
        return data, None

    def _build(self, row_shape: tuple[int, ...], seed: int) -> nn.Module:
        with isolated_rng(seed):
            return build_model(self.model, row_shape, self.model_params)

    def _fit_one(self, work: Work, columns: Self) -> None:
        trainer = Trainer(
            self._build(work.data.row_shape, work.options.seed),
            work.data,
            self._risk(self._priors),
            work.options,
            validation=work.validation,
            test=work.test,
            callback=work.callback,
        )

        def adopt() -> None:
            held_out = (0, 0) if trainer.validation is None else trainer.validation.sizes
            self._adopt(columns, trainer.final_model, trainer.history, trainer.data.sizes, held_out, trainer.dtype)
            self.seed_ = trainer.options.seed

        try:
            trainer.run()
        except BaseException as error:
            # What was learned is not thrown away: the estimator can predict with it, and save it.
            if len(trainer.history) or isinstance(error, NonFiniteRiskError):
                adopt()
            raise
        adopt()
        if self.calibrated and trainer.validation is not None:
            scores = [self._scores(trainer.validation.rows_of(which)) for which in (0, 1)]
            self.scaling_ = self._scaled(torch.cat(scores), np.repeat([0, 1], trainer.validation.sizes))

    def _fit_members(self, work: Work, columns: Self, first: OutOfFoldFit | None = None) -> None:
        """Train the members, or take what was trained already, and refine."""
        assert isinstance(work.data, TwoSets)  # streamed sets have one member
        pooled = work.data.joined()
        options = self._options(work.options.seed)  # a search prepares the work with others
        device = torch.device(options.device)

        def train(sets: TwoSets, folds: Folds, priors: Priors, stage: Stage) -> OutOfFoldFit:
            if stage == FIRST and first is not None:
                return first
            return self._train_members(work, sets, folds, priors, round_options(options, *stage))

        def score(fitted: OutOfFoldFit, rows: Rows) -> Tensor:
            model = fitted.ensemble().to(device)
            return score_rows(model, rows, device=device, dtype=fitted.dtype, scale=options.input_scale)

        folds = assign_folds(pooled, self.members, options.seed)
        known = self._priors, self.target_prior
        refined = refine(train, score, pooled, folds, *known, rounds=self.rounds, seed=options.seed)
        fitted, sizes = refined.best, work.data.sizes
        model = fitted.ensemble().to(device)
        self._adopt(columns, model, History.mean(fitted.histories), sizes, sizes, fitted.dtype)
        self.seed_ = options.seed
        self.refinement_ = refined.rounds or None
        scores, sets = torch.cat(refined.scores), np.repeat([0, 1], sizes)
        if self.calibrated:
            self.scaling_ = self._scaled(scores, sets)
        if self.set_priors is not None:
            self.cross_fitted_ = evaluate(self._decisions(scores.numpy()), sets, self.set_priors, self.target_prior)

    def _train_members(
        self,
        work: Work,
        sets: TwoSets,
        folds: Folds,
        priors: Priors,
        options: TrainingOptions,
    ) -> OutOfFoldFit:
        return train_members(
            self.model,
            self.model_params,
            lambda seed: self._build(sets.row_shape, seed),
            sets,
            folds,
            self._risk(priors),
            options,
            test=work.test,
            callback=work.callback,
        )

    def _risk(self, priors: tuple[float, float]) -> UURisk:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClosePriorsWarning)  # given before, with the sizes at hand
            return UURisk(priors, self.target_prior, self.loss, self.method, self.slope)

    def _adopt(
        self,
        columns: Self,
        model: nn.Module,
        history: History,
        sizes: tuple[int, int],
        held_out_sizes: tuple[int, int],
        dtype: torch.dtype,
    ) -> None:
        for name, value in vars(columns).items():
            if name.endswith("_"):
                setattr(self, name, value)
        self.history_ = history
        self.model_ = model
        self.classes_ = np.array([0, 1])
        self.set_sizes_ = sizes
        self.held_out_sizes_ = held_out_sizes
        self.cross_fitted_ = self.refinement_ = None
        self.resolved_params_ = {}
        self.scaling_ = None
        self.precision_ = str(dtype).removeprefix("torch.")

    @property
    def _device(self) -> str:
        """The device of this process."""
        if self.device == "auto":
            return local_device("cuda" if torch.cuda.is_available() else "cpu")
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device={self.device!r} is asked for but torch finds no CUDA device; use device='auto'.")
        return local_device(self.device)

    def _options(self, seed: int) -> TrainingOptions:
        own = self.get_params(deep=False)
        shared = {field.name: own[field.name] for field in dataclasses.fields(TrainingOptions) if field.name in own}
        shared["device"] = self._device
        # What is known by name asks nothing of the host in a step, so that a GPU need not wait for Python.
        known = all(isinstance(own[name], str) for name in ("model", "loss", "method", "optimizer"))
        plain = self.scheduler is None and not (self.optimizer_params or {}).get("dampening")
        graph = known and plain and torch.device(shared["device"]).type == "cuda"
        return TrainingOptions(**shared, seed=seed, graph=graph)

    def _choose_seed(self) -> int:
        if self.checkpoint_dir is not None and not isinstance(self.random_state, int | np.integer):
            # A run without a fixed seed that was killed goes on with the seed it began with.
            stored = stored_seed(self.checkpoint_dir)
            if stored is not None:
                return stored
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _read_held_out(
        self, held_out: tuple[Any, Any] | None, name: str, read_targets: Callable[[Any, int], Tensor]
    ) -> tuple[Rows, Tensor] | None:
        if held_out is None:
            return None
        if not isinstance(held_out, tuple | list) or len(held_out) != 2:
            raise ValueError(f"{name} must be a pair of rows and one value per row, got {type(held_out).__name__}.")
        rows = self._read(held_out[0], name)
        return rows, read_targets(held_out[1], rows.n_rows)
