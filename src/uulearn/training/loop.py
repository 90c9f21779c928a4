"""One training run (Algorithm 1): shuffle, form batches, compute the corrected risk, and update the weights."""

import contextlib
import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from uulearn.data.augmentation import build_augmentation
from uulearn.data.batches import BatchPlan
from uulearn.data.folds import split_fold
from uulearn.data.holdout import Positions
from uulearn.data.rows import DenseRows, PickedRows, Rows, TwoSets, move_tables
from uulearn.data.streams import StreamedSets
from uulearn.exceptions import CheckpointError, NonFiniteRiskError
from uulearn.models.normalization import synchronized
from uulearn.risk import LOSSES, UURisk
from uulearn.risk.corrections import get_method
from uulearn.risk.distributed import sum_over_workers
from uulearn.risk.functional import RowWeights, flat_scores, pn_risk, weighted_risk
from uulearn.training.averaging import MovingAverage
from uulearn.training.checkpoint import Checkpoint, fingerprint
from uulearn.training.consistency import ConsistencyTerm, Counts, agreement
from uulearn.training.cuda_graphs import GraphedFunction, snapshot_tensors
from uulearn.training.early_stopping import EARLY_STOPPING_METRIC, CrossedEpochs, follow_epochs
from uulearn.training.history import (
    BATCH_METRICS,
    CONSISTENCY_METRICS,
    VALIDATION_METRICS,
    History,
    StopReason,
    make_record,
    non_finite_error,
    risk_is_finite,
)
from uulearn.training.options import RunOptions, build_optimizer, build_scheduler, few_threads, kernel_parameters
from uulearn.training.precision import resolve_precision
from uulearn.training.progress import ProgressBar
from uulearn.training.randomness import isolated_rng, seed_generators
from uulearn.training.scoring import score_rows
from uulearn.training.workers import join_workers

UNBIASED = get_method("unbiased")
OBJECTIVE = BATCH_METRICS.index("objective")
# Metrics for which each worker knows only the part of its own rows.
LOCAL_METRICS = [
    BATCH_METRICS.index("zero_one"),
    len(BATCH_METRICS) + CONSISTENCY_METRICS.index("pseudo_label_agreement"),
]
VALIDATION_BYTES = 64 * 2**20
"""Maximum size, in bytes, of validation rows that are copied once instead of being gathered in every epoch."""

Callback = Callable[[dict[str, Any], nn.Module], bool | None]


class Trainer:
    """Trainer for a module on two unlabeled sets.

    After `run`, ``final_model`` contains the weights for prediction, and ``history`` contains the metrics of every
    epoch. The weights are a moving average if one is used; with early stopping, they come from the best epoch. If the
    risk becomes infinite or NaN, the weights of the last finite epoch are restored.

    Parameters
    ----------
    model : nn.Module
        Module that maps a batch of rows to scores of shape (n,) or (n, 1); it is trained in place.
    data : TwoSets or StreamedSets
        The rows of both sets.
    risk : UURisk
        The risk to minimize.
    options : RunOptions
        All other settings.
    validation : TwoSets, or (Rows, tensor of 0 and 1), optional
        Held-out rows of both sets; their risk is recorded after every epoch.
    fold : (folds, int), optional
        The fold of every row, and the number of the fold whose rows are held out for validation.
    test : (Rows, tensor of 0 and 1), optional
        Held-out rows with *labels*; the accuracy is recorded after every epoch but does not affect training.
    callback : callable, optional
        Called with the record and the model after every epoch; returns True to stop training.

    Examples
    --------
    >>> from uulearn.data import DenseRows
    >>> data = TwoSets((DenseRows(torch.ones(8, 1)), DenseRows(-torch.ones(8, 1))))
    >>> trainer = Trainer(nn.Linear(1, 1), data, UURisk((0.8, 0.2), 0.5), RunOptions(epochs=3))
    >>> trainer.run().column("epoch")
    [1, 2, 3]
    """

    def __init__(
        self,
        model: nn.Module,
        data: TwoSets | StreamedSets,
        risk: UURisk,
        options: RunOptions,
        *,
        validation: TwoSets | tuple[Rows, Tensor] | None = None,
        fold: tuple[tuple[Positions, Positions], int] | None = None,
        test: tuple[Rows, Tensor] | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.risk, self.options, self.callback = risk, options, callback
        self.device = torch.device(options.device)
        self.workers = join_workers(options.distributed, self.device)
        self.first = self.workers is None or self.workers.first
        self.model = model.to(self.device)
        if self.workers is not None:
            self.workers.copy_weights(self.model)
        # Rows that are scored every epoch are moved to the device too.
        moved: dict[int, Rows] = {}
        if fold is not None:
            assert isinstance(data, TwoSets)  # streamed sets have no folds
            data, validation = split_fold(data, *fold)
        self.data = data.to_device(self.device, moved)
        self.validation = TwoSets.from_membership(*validation) if isinstance(validation, tuple) else validation
        held_out = None if self.validation is None else self.validation.to_device(self.device, moved)
        self._validation_rows = [] if held_out is None else _scored_together(held_out)
        self.test = None if test is None else (move_tables([test[0]], self.device)[0], test[1])
        worker = (0, 1) if self.workers is None else (self.workers.rank, self.workers.count)
        self.plan = BatchPlan(data.sizes, options.batch_size, *worker)
        self.plan.check_workers()
        self.plan.warn_if_grown()
        sample = torch.cat([data.sample(which, 256) for which in (0, 1)])
        checkpoint_dir = options.checkpoint_dir if self.first else None  # only the first of several workers writes
        identity = f"{data.sizes} {self.data.identity()}" if checkpoint_dir else ""
        self.kernels = kernel_parameters(self.model) if options.l2 else []
        # Convolutions run on tensor cores in the channels-last layout. A model must declare that it supports this
        # layout, because a common way of flattening, x.view(len(x), -1), does not.
        prefers = getattr(self.model, "prefers_channels_last", False)
        self.channels_last = prefers and self.device.type == "cuda" and len(data.row_shape) == 3
        if self.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.dtype = resolve_precision(options.precision, self.model, self.device, sample)
        # A model that declares support gets rows in the type of its matrix products, which saves two conversions.
        self.rows_dtype = self.dtype if getattr(self.model, "accepts_bfloat16_rows", False) else torch.float32
        few = data.sample(0, 2).to(self.device, self.rows_dtype) * options.input_scale
        augment, image_shape = options.augment, options.image_shape
        self.augment = None if augment is None else build_augmentation(augment, few, image_shape)
        self.optimizer = build_optimizer(options, (p for p in self.model.parameters() if p.requires_grad))
        self.scheduler = build_scheduler(options, self.optimizer)
        self.average = MovingAverage(self.model, options.ema) if options.ema else None
        self.consistency: ConsistencyTerm | None = None
        if options.consistency is not None:
            self.consistency = ConsistencyTerm(options, self.final_model, risk, self.plan, few)
        self._forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if options.compile else self.model
        # With more than two sets, the weights of the rows differ between batches, so no graph can contain them.
        fixed = self.workers is None and data.origins is None
        graphed = options.graph and self.device.type == "cuda" and fixed
        self._graphed = GraphedFunction(self._update_static, self.device, self._snapshot) if graphed else None
        self._static_rows: dict[tuple[Counts, Counts, bool], tuple[Tensor, Tensor | None]] = {}
        self._weights: dict[tuple[Counts, Counts], RowWeights] = {}
        self._validation_weights: RowWeights | None = None
        self._last_finite: list[dict[str, Any]] = []
        self._checkpoint: Checkpoint | None = None
        if checkpoint_dir:
            self._checkpoint = Checkpoint(checkpoint_dir, fingerprint(options, self.model, identity, risk))
        self.history = History(labels_used=test is not None)
        self.best = follow_epochs(options, self.validation is not None)
        self._best_weights: dict[str, Any] | None = None
        self.crossed: CrossedEpochs | None = None
        if self.best is not None and self.validation is not None and min(self.validation.sizes) > 1:
            about = [risk.coefficients_of(self.validation.set_numbers)], [options.seed], options.smoothing
            origins = self.validation.origins
            numbers = None if origins is None else torch.cat(origins)
            self.crossed = CrossedEpochs(self.validation.sizes, *about, numbers=numbers)

    @property
    def final_model(self) -> nn.Module:
        """The module used for prediction."""
        return self.model if self.average is None else self.average.module

    def held_out_scores(self) -> tuple[Tensor, Tensor]:
        """Return the scores of the validation rows of each set; with early stopping, `CrossedEpochs` is used."""
        assert self.validation is not None
        scale = self.options.input_scale
        parts = [score_rows(self.final_model, rows, dtype=self.dtype, scale=scale) for rows in self._validation_rows]
        scores = torch.cat(parts) if self.crossed is None else self.crossed.cross(torch.cat(parts)[None])[0]
        first, second = torch.split(scores, list(self.validation.sizes))
        return first, second

    def run(self) -> History:
        """Train the model, starting from a checkpoint of this run if one exists."""
        try:
            with few_threads(sum(self.data.sizes), self.data.row_shape, self.model), self._context():
                if self.options.checkpoint_dir:
                    self._resume()
                self._epochs()
        except NonFiniteRiskError:
            raise
        except BaseException as error:
            self.history.stop_reason = f"stopped by {type(error).__name__} after {len(self.history)} epochs"
            raise
        finally:
            if self._best_weights is not None:
                self.final_model.load_state_dict(self._best_weights)
            self.model.eval()
            self.final_model.eval()
            if self._graphed:
                self._graphed.clear()
        return self.history

    def _resume(self) -> None:
        """Resume a stored run if one exists; all workers load the same state or raise the same error."""
        state, failure = None, None
        try:
            if self._checkpoint is not None:
                state = self._checkpoint.resume(self.options.epochs)
                if state is None:
                    self._checkpoint.write(self._state())  # fail before training if the folder is not writable
        except CheckpointError as error:
            failure = error
        state, failure = self._agreed((state, failure))
        if failure is not None:
            raise failure
        if state is not None:
            self._restore(state)
            if self.workers is not None and not self.first:
                seed_generators(self.workers.seed(self.options.seed, len(self.history)), self.device)

    def _agreed(self, value: Any) -> Any:
        """Return the value of the first worker."""
        return value if self.workers is None else self.workers.broadcast(value)

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        """Seed generators, synchronize batch statistics across workers, and select fast convolutions for ``compile``.

        The fastest convolution algorithm, and therefore the rounding error, may differ between runs.
        """
        seed = self.options.seed if self.workers is None else self.workers.seed(self.options.seed)
        joint = contextlib.nullcontext() if self.workers is None else synchronized(self.model)
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = before or (self.channels_last and self.options.compile)
        try:
            with isolated_rng(seed, self.device), joint:
                yield
        finally:
            torch.backends.cudnn.benchmark = before

    def _epochs(self) -> None:
        with ProgressBar(self.options.epochs, self.options.progress and self.first, done=len(self.history)) as bar:
            while self.history.stop_reason is None:
                record = self._epoch(len(self.history) + 1)
                bar.update(len(self.history), record)
                self.model.eval()
                # Only the first worker calls the callback; all workers use its result.
                stops = self.callback is not None and self.first and bool(self.callback(record, self.final_model))
                if self.callback is not None and self._agreed(stops):
                    self.history.stop_reason = StopReason.CALLBACK
                elif len(self.history) == self.options.epochs:
                    self.history.stop_reason = StopReason.EPOCHS_DONE.format(self.options.epochs)
                elif self.best is not None and self.best.exhausted:
                    self.history.stop_reason = self.best.stop_reason
                finished = self.history.stop_reason is not None
                if self._checkpoint and (finished or len(self.history) % self.options.checkpoint_every == 0):
                    self._checkpoint.write(self._state())

    # ------------------------------------------------------------------------------------------ one epoch, one step

    def _epoch(self, epoch: int) -> dict[str, Any]:
        started = time.perf_counter()
        self._last_finite = [_copy_state(module) for module in self._trained_modules()]
        self.model.train()
        metrics: list[Tensor] = []
        n_rows: list[int] = []
        consistency = self.consistency if self.consistency is not None and self.consistency.start_epoch(epoch) else None
        batches = self.data.epoch(self.plan, self.options.seed, epoch, self.device, self.rows_dtype)
        several_sets = self._weights_of_several_sets(epoch)
        for number, (x, counts) in enumerate(batches):
            whole = self.plan.whole_counts(number)
            weights = None if several_sets is None else several_sets(number)
            if self.options.input_scale != 1.0:
                x.mul_(self.options.input_scale)
            strong = None if consistency is None else self._laid_out(consistency.strong(x, counts))
            if self.augment is not None:
                x = self.augment(x)
            metrics.append(self.step(self._laid_out(x), counts, whole, strong, weights))
            n_rows.append(sum(whole))
            # Reading a value is fast on a CPU but stalls a GPU, so on a GPU the check is made at the end of the epoch.
            if self.device.type == "cpu" and not math.isfinite(metrics[-1][OBJECTIVE].item()):
                break
        record = self._record(epoch, torch.stack(metrics), torch.tensor(n_rows))
        self._check_finite(record)
        record |= self._evaluate()
        record["seconds"] = time.perf_counter() - started
        record = dict(self._agreed(record))
        self.history.epochs.append(record)
        if self.best is not None and self.best.observe(record, self.history):
            self._best_weights = _copy_state(self.final_model)
        if self.scheduler is not None and self.options.scheduler_interval == "epoch":
            plateau = isinstance(self.scheduler, ReduceLROnPlateau)
            self.scheduler.step(*([record.get("validation_corrected", record["objective"])] if plateau else []))
        return record

    def _laid_out(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last if self.channels_last else torch.contiguous_format)

    def step(
        self,
        x: Tensor,
        counts: Counts,
        whole: Counts,
        strong: Tensor | None = None,
        weights: RowWeights | None = None,
    ) -> Tensor:
        """Perform one training step, and return the `BATCH_METRICS` of the batch, shape (5,).

        ``counts`` is the number of rows of each set in x; ``whole`` is this number for the full batch of all workers.
        If a ``strong`` view of the rows is given, the consistency loss is added to the objective, and the result also
        contains the `CONSISTENCY_METRICS`. For more than two sets, ``weights`` are the weights of the rows.
        """
        if self._graphed:
            metrics = self._replay(x, counts, whole, strong)
        else:
            metrics = self._update(x, counts, whole, strong, weights)
        if self.average is not None:
            self.average.update()
        if self.scheduler is not None and self.options.scheduler_interval == "batch":
            self.scheduler.step()
        return metrics

    def _update(
        self,
        x: Tensor,
        counts: Counts,
        whole: Counts,
        strong: Tensor | None = None,
        own_weights: RowWeights | None = None,
    ) -> Tensor:
        """Run the forward pass, compute the risk, run the backward pass, and step the optimizer."""
        metrics: list[Tensor] = []
        consistency = None if strong is None else self.consistency
        if consistency is not None:
            with self._autocast():
                targets = consistency.targets(x, counts, whole)

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            with self._autocast():
                scores = self._forward(x)
            weights, scores = own_weights or self._batch_weights(counts, whole), flat_scores(scores)
            total = None if self.workers is None else sum_over_workers
            risk = weighted_risk(scores, weights, self.risk.loss, self.risk.method, total)
            objective, more = risk.objective, []
            if consistency is not None and strong is not None:
                restore_statistics = snapshot_tensors([buffer.detach() for buffer in self.model.buffers()])
                with self._autocast():
                    strong_scores = self._forward(strong)
                loss = consistency.loss(strong_scores, targets)
                objective = objective + consistency.weight * loss
                more = [loss.detach(), agreement(scores.detach(), targets)]
            with torch.no_grad():
                zero_one = weighted_risk(scores, weights, LOSSES["zero_one"], UNBIASED).unbiased
                found = (risk.positive, risk.negative, risk.corrected, objective, zero_one, *more)
                metrics.append(torch.stack(found))
            objective.backward()  # type: ignore[no-untyped-call]
            if consistency is not None:
                restore_statistics()  # after the backward pass, which does not allow changes of the buffers before
            if self.workers is not None:
                self.workers.average_gradients(self.model.parameters())
            self._regularize()
            return objective

        if isinstance(self.optimizer, torch.optim.LBFGS):
            self.optimizer.step(closure)  # type: ignore[no-untyped-call]
        else:
            closure()
            self.optimizer.step()
        return metrics[0]

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16)

    def _replay(self, x: Tensor, counts: Counts, whole: Counts, strong: Tensor | None = None) -> Tensor:
        """Run `_update` as a CUDA graph on static tensors of rows; each batch composition has its own graph."""
        assert self._graphed is not None
        key = counts, whole, strong is not None
        if key not in self._static_rows:
            self._static_rows[key] = torch.empty_like(x), None if strong is None else torch.empty_like(strong)
            self._batch_weights(counts, whole)  # made before the capture
        static, static_strong = self._static_rows[key]
        static.copy_(x)
        if strong is not None and static_strong is not None:
            static_strong.copy_(strong)
        metrics: Tensor = self._graphed(*key)
        return metrics.clone()  # the next replay overwrites them

    def _update_static(self, counts: Counts, whole: Counts, has_strong: bool) -> Tensor:
        x, strong = self._static_rows[counts, whole, has_strong]
        return self._update(x, counts, whole, strong)

    def _snapshot(self) -> Callable[[], None]:
        tensors = [tensor.detach() for tensor in (*self.model.parameters(), *self.model.buffers())]
        assert isinstance(self.optimizer, torch.optim.Optimizer)  # a CUDA graph is only captured on a CUDA device
        return snapshot_tensors(tensors, self.optimizer)

    def _regularize(self) -> None:
        """Add the gradient of l2·‖W‖² to the gradient of the risk, as in Keras, and then clip the gradient."""
        gradients = [(kernel.grad, kernel.detach()) for kernel in self.kernels if kernel.grad is not None]
        if gradients:
            torch._foreach_add_(*map(list, zip(*gradients, strict=True)), alpha=2 * self.options.l2)
        if self.options.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)

    def _batch_weights(self, counts: Counts, whole: Counts) -> RowWeights:
        if (counts, whole) not in self._weights:
            sets = torch.cat([torch.zeros(counts[0]), torch.ones(counts[1])]).to(self.device)
            self._weights[counts, whole] = self.risk.row_weights(sets, counts=whole)
        return self._weights[counts, whole]

    def _weights_of_several_sets(self, epoch: int) -> Callable[[int], RowWeights] | None:
        """Return the row weights of each batch of an epoch; None for two sets, whose weights depend on counts only."""
        if self.data.origins is None:
            return None
        shuffles = self.plan.shuffles(self.options.seed, epoch)
        sets = [origin[order] for origin, order in zip(self.data.origins, shuffles, strict=True)]
        whole_plan = dataclasses.replace(self.plan, worker=0, workers=1)

        def weights(number: int) -> RowWeights:
            own, whole = (
                torch.cat([part[rows] for part, rows in zip(sets, plan.bounds(number), strict=True)])
                for plan in (self.plan, whole_plan)
            )
            counts = torch.bincount(whole, minlength=len(self.risk.set_priors))
            return self.risk.row_weights(own.to(self.device), counts=counts)

        return weights

    # -------------------------------------------------------------------------------------------------------- records

    def _record(self, epoch: int, metrics: Tensor, n_rows: Tensor) -> dict[str, Any]:
        if self.workers is not None:
            local = [column for column in LOCAL_METRICS if column < metrics.shape[1]]
            metrics[:, local] = sum_over_workers(metrics[:, local])
        metrics = metrics.cpu().double()
        means = (metrics * (n_rows.double() / n_rows.sum())[:, None]).sum(0).tolist()
        below_zero = (metrics[:, :2] < 0).double().mean(0)
        lr = float(self.optimizer.param_groups[0]["lr"])
        n = len(BATCH_METRICS)
        record = make_record(epoch, [*means[:n], *below_zero.tolist()], lr)
        if self.consistency is not None and means[n:]:
            record["consistency_weight"] = self.consistency.weight.item()
            record |= zip(CONSISTENCY_METRICS, means[n:], strict=True)
        return record

    def _evaluate(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if self.validation is not None:
            scores = torch.cat([self._score(rows) for rows in self._validation_rows])
            if self.crossed is not None:
                self.crossed.update(scores[None], [True])
            if self._validation_weights is None:
                self._validation_weights = self.risk.row_weights(self.validation.set_numbers)
            weights = self._validation_weights
            risk = weighted_risk(scores, weights, self.risk.loss, self.risk.method)._asdict()
            risk["zero_one"] = weighted_risk(scores, weights, LOSSES["zero_one"], UNBIASED).unbiased
            metrics |= {f"validation_{name}": risk[name].item() for name in VALIDATION_METRICS}
        if self.test is not None:
            rows, labels = self.test
            scores = self._score(rows)
            metrics["test_accuracy"] = ((scores > 0) == (labels == 1)).double().mean().item()
            metrics["test_risk"] = pn_risk(scores, labels, self.risk.target_prior, loss=self.risk.loss).total.item()
        return metrics

    def _score(self, rows: Rows) -> Tensor:
        n, own = rows.n_rows, rows
        if self.workers is not None:
            own = PickedRows(rows, torch.arange(n)[self.workers.share(n)])
        scores = score_rows(self.final_model, own, dtype=self.dtype, scale=self.options.input_scale)
        return scores if self.workers is None else self.workers.gather(scores, n, self.device)

    # ----------------------------------------------------------------------------------------- failures, checkpoints

    def _trained_modules(self) -> list[nn.Module]:
        return [self.model] if self.average is None else [self.model, self.average.module]

    def _check_finite(self, record: dict[str, Any]) -> None:
        """If the risk or a weight is not finite, restore the weights of the last finite epoch and raise an error."""
        # All weights and running statistics must be finite, except buffers that were never finite, such as masks.
        # Values that are not finite spread to the moving average, so the first check needs only the final model.
        weights_finite = _sums_are_finite(self.final_model) or all(
            bool(value.isfinite().all()) or not state[name].isfinite().all()
            for module, state in zip(self._trained_modules(), self._last_finite, strict=True)
            for name, value in module.state_dict().items()
            if isinstance(value, Tensor)
        )
        if weights_finite and risk_is_finite(record):
            return
        for module, state in zip(self._trained_modules(), self._last_finite, strict=True):
            module.load_state_dict(state)
        epoch = record["epoch"]
        restored = f"weights after epoch {epoch - 1}" if epoch > 1 else "initial weights"
        self.history.stop_reason = StopReason.NOT_FINITE.format(epoch)
        raise non_finite_error(record, f" The {restored} were restored.")

    def _parts(self) -> dict[str, Any]:
        names = ("model", "average", "optimizer", "scheduler", "crossed")
        parts = {name: getattr(self, name) for name in names}
        return {name: part for name, part in parts.items() if part is not None}

    def _state(self) -> dict[str, Any]:
        return {
            "seed": self.options.seed if self.options.fit_seed is None else self.options.fit_seed,
            "history": self.history.to_dict(),
            **{name: dict(part.state_dict()) for name, part in self._parts().items()},
            "best": None if self._best_weights is None else dict(self._best_weights),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.history = History.from_dict(state["history"])
        self.history.labels_used |= self.test is not None
        self.history.resumed_at.append(len(self.history))
        if self.history.stop_reason != StopReason.CALLBACK:  # the number of epochs may have changed
            done = len(self.history) == self.options.epochs
            self.history.stop_reason = StopReason.EPOCHS_DONE.format(self.options.epochs) if done else None
        if self.best is not None:
            for record in self.history:
                self.best.update(record[EARLY_STOPPING_METRIC])
            if self.best.exhausted and self.history.stop_reason is None:
                self.history.stop_reason = self.best.stop_reason
            self._best_weights = state["best"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)


def _scored_together(held_out: TwoSets) -> list[Rows]:
    """Return the held-out rows of both sets: one table if they are few, because every call takes time, or two."""
    first, second = (held_out.rows_of(which, VALIDATION_BYTES) for which in (0, 1))
    few = first.n_bytes + second.n_bytes <= VALIDATION_BYTES
    if not (few and isinstance(first, DenseRows) and isinstance(second, DenseRows) and first.dtype == second.dtype):
        return [first, second]
    return [DenseRows(torch.cat([first.tensor, second.tensor]))]


def _copy_state(module: nn.Module) -> dict[str, Any]:
    """Return a copy of the state of a module; copying the tensors one by one is faster than a deep copy."""
    state = module.state_dict()
    for name, value in state.items():
        state[name] = value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)
    return state


@torch.no_grad()
def _sums_are_finite(module: nn.Module) -> bool:
    """Return whether the sums of all weights and buffers are finite, which is a fast proof that all values are."""
    values = [value for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()]
    sums = [value.sum(dtype=torch.float32).to(values[0].device) for value in values]
    return not sums or bool(torch.stack(sums).isfinite().all())
