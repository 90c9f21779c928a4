"""One training run (Algorithm 1): shuffle, cut into two-set batches, one joint forward pass, correct, step."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from uulearn.data.augmentation import build_augmentation
from uulearn.data.batches import BatchPlan
from uulearn.data.rows import PickedRows, Rows, TwoSets, move_tables
from uulearn.data.streams import StreamedSets
from uulearn.exceptions import CheckpointError, NonFiniteRiskError
from uulearn.models.normalization import synchronized
from uulearn.risk import LOSSES, UURisk, UURiskParts
from uulearn.risk.corrections import get_method
from uulearn.risk.functional import RowWeights, flat_scores, pn_risk, row_weights, weighted_risk
from uulearn.training.averaging import MovingAverage
from uulearn.training.checkpoint import Checkpoint, fingerprint
from uulearn.training.cuda_graphs import Captured, protect_optimizer, protect_tensors
from uulearn.training.early_stopping import CRITERION, follow_epochs
from uulearn.training.history import History
from uulearn.training.options import TrainingOptions, build_optimizer, build_scheduler, kernel_parameters
from uulearn.training.precision import resolve_precision
from uulearn.training.progress import ProgressBar
from uulearn.training.randomness import own_randomness, seed_generators
from uulearn.training.scoring import score_rows
from uulearn.training.workers import join_workers

UNBIASED = get_method("unbiased")
CALLBACK_STOP = "the callback asked to stop"
Callback = Callable[[dict[str, Any], nn.Module], bool | None]


class Trainer:
    """Trains a module on two unlabeled sets.

    After `run`, ``final_model`` holds the weights to use (their moving average if there is one; with ``keep="best"``
    those of the best epoch) and ``history`` the record. When the risk stops being finite, the last good weights take
    the place of the last ones.

    Parameters
    ----------
    model : nn.Module
        Maps a batch of rows to scores of shape (n,) or (n, 1); trained in place.
    data : TwoSets or StreamedSets
        The rows of both sets, in memory or streamed.
    risk : UURisk
        What is minimised.
    options : TrainingOptions
        Everything else.
    validation : TwoSets, or (Rows, tensor of 0 and 1), optional
        Held-out rows of both sets: their risk is recorded every epoch.
    test : (Rows, tensor of 0 and 1), optional
        Held-out rows with their *labels*: the accuracy is recorded every epoch and used for nothing else.
    callback : callable, optional
        Called with the record and the model after every epoch; return True to stop.
    """

    def __init__(
        self,
        model: nn.Module,
        data: TwoSets | StreamedSets,
        risk: UURisk,
        options: TrainingOptions,
        *,
        validation: TwoSets | tuple[Rows, Tensor] | None = None,
        test: tuple[Rows, Tensor] | None = None,
        callback: Callback | None = None,
    ) -> None:
        self.device = torch.device(options.device)
        self.workers = join_workers(options.distributed, self.device)
        self.model = model.to(self.device)
        if self.workers is not None:
            self.workers.copy_weights(self.model)
        placed: dict[int, Rows] = {}
        self.data = data.to_device(self.device, placed)
        # On CUDA convolutions run on tensor cores, which want the channels of a pixel side by side. A model must say
        # that it can be laid out like that: with a common flattening, x.view(len(x), -1), it could not.
        prefers = getattr(self.model, "prefers_channels_last", False)
        self.channels_last = prefers and self.device.type == "cuda" and len(data.row_shape) == 3
        if self.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.risk = risk
        self.options = options
        if isinstance(validation, tuple):
            validation = TwoSets.from_membership(*validation)
        # What is looked at every epoch is kept where the model is, too.
        self.validation = None if validation is None else validation.to_device(self.device, placed)
        self.test = None if test is None else (move_tables([test[0]], self.device)[0], test[1])
        self.callback = callback
        place = (0, 1) if self.workers is None else (self.workers.rank, self.workers.count)
        self.plan = BatchPlan(data.sizes, options.batch_size, *place)
        self.plan.check_workers()
        self.history = History(labels_used=test is not None)
        self.dtype = resolve_precision(
            options.precision,
            self.model,
            self.device,
            torch.cat([data.sample(which, 256) for which in (0, 1)]),
        )
        # A model that says so is handed rows in the type of its products, which saves widening and narrowing them.
        takes_half = getattr(self.model, "accepts_bfloat16_rows", False)
        self.rows_dtype = self.dtype if takes_half else torch.float32
        few = data.sample(0, 2).to(self.device, self.rows_dtype) * options.input_scale
        self.augment = build_augmentation(options.augment, few)
        self.optimizer = build_optimizer(options, (p for p in self.model.parameters() if p.requires_grad))
        self.scheduler = build_scheduler(options, self.optimizer)
        self.average = MovingAverage(self.model, options.ema) if options.ema else None
        self.kernels = kernel_parameters(self.model) if options.l2 else []
        self._forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if options.compile else self.model
        graphed = options.graph and self.device.type == "cuda" and self.workers is None
        self._captured = Captured(self._update_static, self.device, self._protect) if graphed else None
        self._static: dict[int, tuple[Tensor, RowWeights]] = {}
        self._weights: dict[tuple[tuple[int, int], tuple[int, int]], RowWeights] = {}
        self._good: list[dict[str, Any]] = []
        self.best = follow_epochs(options, validation is not None)
        self._best_weights: dict[str, Any] | None = None

    @property
    def final_model(self) -> nn.Module:
        """The module to predict with."""
        return self.model if self.average is None else self.average.module

    def run(self) -> History:
        """Train to the last epoch, from a checkpoint of this run if there is one."""
        self.plan.warn_if_grown()
        checkpoint, identity = self._checkpoint()
        seed = self.options.seed if self.workers is None else self.workers.seed(self.options.seed)
        try:
            with own_randomness(seed, self.device), self._fastest_convolutions(), self._joint_statistics():
                if self.options.checkpoint_dir:
                    self._resume(checkpoint, identity)
                self._epochs(checkpoint, identity)
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
            if self._captured:
                self._captured.clear()
        return self.history

    def _checkpoint(self) -> tuple[Checkpoint | None, dict[str, str]]:
        """Where to write, and what this run is known by; of several workers the first alone writes."""
        if not self.options.checkpoint_dir or (self.workers is not None and not self.workers.first):
            return None, {}
        identity = fingerprint(self.options, self.model, self.data, self.risk)
        return Checkpoint(self.options.checkpoint_dir), identity

    def _resume(self, checkpoint: Checkpoint | None, identity: dict[str, str]) -> None:
        """Go on where a stored run stopped, if there is one; every worker hears of it, and of what is wrong with it."""
        state, refused = None, None
        try:
            state = None if checkpoint is None else checkpoint.resume(identity, self.options.epochs)
            if checkpoint is not None and state is None:
                checkpoint.write(self._state(identity))  # what cannot be written is found out now, not after hours
        except CheckpointError as error:
            refused = error
        if self.workers is not None:
            state, refused = self.workers.agree((state, refused))
        if refused is not None:
            raise refused
        if state is not None:
            self._restore(state)
            if self.workers is not None and not self.workers.first:
                seed_generators(self.workers.seed(self.options.seed, len(self.history)), self.device)

    def _joint_statistics(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self.workers is None else synchronized(self.model)

    @contextlib.contextmanager
    def _fastest_convolutions(self) -> Iterator[None]:
        """With ``compile``, let cuDNN time its algorithms and take the fastest; the caller's setting is restored.

        Which is the fastest may differ from run to run, and with it the rounding.
        """
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = before or (self.channels_last and self.options.compile)
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = before

    def _epochs(self, checkpoint: Checkpoint | None, identity: dict[str, str]) -> None:
        first = self.workers is None or self.workers.first
        with ProgressBar(self.options.epochs, self.options.progress and first, done=len(self.history)) as bar:
            while self.history.stop_reason is None:
                record = self._epoch(len(self.history) + 1)
                bar.update(len(self.history), record)
                self.model.eval()
                if self._asked_to_stop(record):
                    self.history.stop_reason = CALLBACK_STOP
                elif len(self.history) == self.options.epochs:
                    self.history.stop_reason = self._all_done()
                elif self.best is not None and self.best.exhausted:
                    self.history.stop_reason = self.best.stop_reason
                finished = self.history.stop_reason is not None
                if checkpoint and (finished or len(self.history) % self.options.checkpoint_every == 0):
                    checkpoint.write(self._state(identity))

    def _asked_to_stop(self, record: dict[str, Any]) -> bool:
        """Call the callback, in the first of several workers, whose answer holds for all."""
        if self.callback is None:
            return False
        if self.workers is None:
            return bool(self.callback(record, self.final_model))
        return bool(self.workers.agree(self.workers.first and bool(self.callback(record, self.final_model))))

    # ------------------------------------------------------------------------------------------ one epoch, one step

    def _epoch(self, epoch: int) -> dict[str, Any]:
        started = time.perf_counter()
        self._keep_good_weights()
        self.model.train()
        figures: list[Tensor] = []
        rows: list[int] = []
        batches = self.data.epoch(self.plan, self.options.seed, epoch, self.device, self.rows_dtype)
        for number, (x, counts) in enumerate(batches):
            if self.options.input_scale != 1.0:
                x.mul_(self.options.input_scale)
            if self.augment is not None:
                x = self.augment(x)
            x = x.contiguous(memory_format=torch.channels_last if self.channels_last else torch.contiguous_format)
            whole = self.plan.whole_counts(number)
            weights = self._batch_weights(counts, whole)
            parts, scores = self.step(x, weights)
            figures.append(self._figures(parts, scores, weights))
            rows.append(sum(whole))
            # On the CPU a look is free; elsewhere it would stall the queue, so one look an epoch has to do.
            if self.device.type == "cpu" and not math.isfinite(parts.objective.item()):
                break
        record = self._record(epoch, self._of_all(torch.stack(figures)), torch.tensor(rows))
        self._check_finite(record)
        record |= self._evaluate()
        record["seconds"] = time.perf_counter() - started
        if self.workers is not None:
            record = self.workers.agree(record)
        self.history.epochs.append(record)
        self._consider(record)
        self._end_epoch(record)
        return record

    def _consider(self, record: dict[str, Any]) -> None:
        """Keep the weights if the epoch is the best so far."""
        if self.best is not None and self.best.update(record[CRITERION]):
            self._best_weights = copy.deepcopy(self.final_model.state_dict())
            self.history.best_epoch = self.best.epoch

    def step(self, x: Tensor, weights: RowWeights) -> tuple[UURiskParts, Tensor]:
        """Forward, correct, backward, update; returns the parts of the risk and the scores, detached.

        With ``graph`` they are in tensors that the next step overwrites.
        """
        taken = self._replay(x, weights) if self._captured else self._update(x, weights)
        if self.average is not None:
            self.average.update()
        if self.scheduler is not None and self.options.scheduler_interval == "batch":
            self.scheduler.step()
        return taken

    def _update(self, x: Tensor, weights: RowWeights) -> tuple[UURiskParts, Tensor]:
        taken: list[tuple[UURiskParts, Tensor]] = []

        def closure() -> Tensor:
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                scores = self._forward(x)
            scores = flat_scores(scores)
            total = None if self.workers is None else self.workers.total
            parts = weighted_risk(scores, weights, self.risk.loss, self.risk.method, total)
            parts.objective.backward()  # type: ignore[no-untyped-call]
            if self.workers is not None:
                self.workers.average_gradients(self.model.parameters())
            self._regularize()
            taken.append((UURiskParts(*(part.detach() for part in parts)), scores.detach()))
            return parts.objective

        if isinstance(self.optimizer, torch.optim.LBFGS):
            self.optimizer.step(closure)  # type: ignore[no-untyped-call]
        else:
            closure()
            self.optimizer.step()
        return taken[0]

    def _replay(self, x: Tensor, weights: RowWeights) -> tuple[UURiskParts, Tensor]:
        """`_update` as a captured graph, one for each composition of a batch, on rows copied to where it reads them."""
        assert self._captured is not None
        key = id(weights)  # which `_batch_weights` keeps, one for each composition
        if key not in self._static:
            self._static[key] = torch.empty_like(x), weights
        self._static[key][0].copy_(x)
        taken: tuple[UURiskParts, Tensor] = self._captured(key)
        return taken

    def _update_static(self, key: int) -> tuple[UURiskParts, Tensor]:
        return self._update(*self._static[key])

    def _protect(self) -> Callable[[], None]:
        tensors = [tensor.detach() for tensor in (*self.model.parameters(), *self.model.buffers())]
        undo_model, undo_optimizer = protect_tensors(tensors), protect_optimizer(self.optimizer)

        def undo() -> None:
            undo_model()
            undo_optimizer()

        return undo

    def _regularize(self) -> None:
        """Add the gradient of l2·‖W‖² (so that it is coupled with the optimizer, as in Keras), then clip."""
        gradients = [(kernel.grad, kernel.detach()) for kernel in self.kernels if kernel.grad is not None]
        if gradients:
            torch._foreach_add_(*map(list, zip(*gradients, strict=True)), alpha=2 * self.options.l2)
        if self.options.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)

    def _end_epoch(self, record: dict[str, Any]) -> None:
        if self.scheduler is None or self.options.scheduler_interval == "batch":
            return
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(record.get("validation_corrected", record["objective"]))
        else:
            self.scheduler.step()

    def _batch_weights(self, counts: tuple[int, int], whole: tuple[int, int] | None = None) -> RowWeights:
        whole = whole or counts
        if (counts, whole) not in self._weights:
            sets = torch.cat([torch.zeros(counts[0]), torch.ones(counts[1])]).to(self.device)
            self._weights[counts, whole] = row_weights(sets, self.risk.coefficients, counts=whole)
        return self._weights[counts, whole]

    # ----------------------------------------------------------------------------------------------- what is recorded

    @torch.no_grad()
    def _figures(self, parts: UURiskParts, scores: Tensor, weights: RowWeights) -> Tensor:
        zero_one = weighted_risk(scores, weights, LOSSES["zero_one"], UNBIASED).unbiased
        return torch.stack((parts.positive, parts.negative, parts.corrected, parts.objective, zero_one))

    def _of_all(self, figures: Tensor) -> Tensor:
        """Figures of the whole batches: each worker knows the zero-one risk of its own rows only."""
        if self.workers is not None:
            figures[:, -1] = self.workers.total(figures[:, -1].contiguous())
        return figures

    def _record(self, epoch: int, figures: Tensor, rows: Tensor) -> dict[str, Any]:
        figures = figures.cpu().double()
        means = (figures * (rows.double() / rows.sum())[:, None]).sum(0)
        positive, negative, corrected, objective, zero_one = means.tolist()
        positive_below, negative_below = (figures[:, :2] < 0).double().mean(0).tolist()
        return {
            "epoch": epoch,
            "positive": positive,
            "negative": negative,
            "unbiased": positive + negative,
            "corrected": corrected,
            "objective": objective,
            "zero_one": zero_one,
            "positive_below_zero": positive_below,
            "negative_below_zero": negative_below,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
        }

    def _evaluate(self) -> dict[str, float]:
        figures: dict[str, float] = {}
        if self.validation is not None:
            scores = torch.cat([self._score(self.validation.rows_of(which)) for which in (0, 1)])
            weights = self._validation_weights(self.validation.sizes)
            parts = weighted_risk(scores, weights, self.risk.loss, self.risk.method)
            for name in ("positive", "negative", "unbiased", "corrected"):
                figures[f"validation_{name}"] = getattr(parts, name).item()
            wrong = weighted_risk(scores, weights, LOSSES["zero_one"], UNBIASED)
            figures["validation_zero_one"] = wrong.unbiased.item()
        if self.test is not None:
            rows, labels = self.test
            scores = self._score(rows)
            figures["test_accuracy"] = ((scores > 0) == (labels == 1)).double().mean().item()
            figures["test_risk"] = pn_risk(scores, labels, self.risk.target_prior, loss=self.risk.loss).total.item()
        return figures

    def _validation_weights(self, sizes: tuple[int, int]) -> RowWeights:
        return row_weights(torch.repeat_interleave(torch.arange(2), torch.tensor(sizes)), self.risk.coefficients)

    def _score(self, rows: Rows) -> Tensor:
        own = rows
        if self.workers is not None:
            mine = self.workers.share(rows.n_rows)
            own = PickedRows(rows, torch.arange(mine.start, mine.stop))
        scores = score_rows(self.final_model, own, device=self.device, dtype=self.dtype, scale=self.options.input_scale)
        return scores if self.workers is None else self.workers.gather(scores, rows.n_rows, self.device)

    # ------------------------------------------------------------------------------------- surviving what goes wrong

    def _trained_modules(self) -> list[nn.Module]:
        return [self.model] if self.average is None else [self.model, self.average.module]

    def _keep_good_weights(self) -> None:
        self._good = [copy.deepcopy(module.state_dict()) for module in self._trained_modules()]

    def _check_finite(self, record: dict[str, Any]) -> None:
        parts = [record[name] for name in ("positive", "negative", "objective")]
        weights_finite = all(bool(p.isfinite().all()) for p in self.model.parameters())
        if all(map(math.isfinite, parts)) and weights_finite:
            return
        for module, good in zip(self._trained_modules(), self._good, strict=True):
            module.load_state_dict(good)
        epoch = record["epoch"]
        kept = f"those after epoch {epoch - 1}" if epoch > 1 else "the initial ones"
        self.history.stop_reason = f"the risk was not finite in epoch {epoch}"
        what = "risk" if weights_finite else "risk or a weight"
        raise NonFiniteRiskError(
            f"the {what} stopped being finite in epoch {epoch}: positive bracket {record['positive']:.4g}, negative "
            f"bracket {record['negative']:.4g}, objective {record['objective']:.4g}. Likely causes: a learning rate "
            f"that is too high (now {record['lr']:g}), inputs that are not scaled, a loss or model of your own that "
            f"overflows, or method 'unbiased', whose risk has no lower bound. The last good weights, {kept}, are kept."
        )

    def _all_done(self) -> str:
        return f"all {self.options.epochs} epochs done"

    def _state(self, identity: dict[str, str]) -> dict[str, Any]:
        return {
            "fingerprint": identity,
            "seed": self.options.seed,
            "history": self.history.to_dict(),
            "model": dict(self.model.state_dict()),
            "average": self.average.state_dict() if self.average is not None else None,
            "best": None if self._best_weights is None else dict(self._best_weights),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.history = History.from_dict(state["history"])
        self.history.labels_used |= self.test is not None
        self.history.resumed_at.append(len(self.history))
        if self.history.stop_reason != CALLBACK_STOP:  # more or fewer epochs may be asked for than by the stored run
            self.history.stop_reason = self._all_done() if len(self.history) == self.options.epochs else None
        if self.best is not None:
            for record in self.history:
                self.best.update(record[CRITERION])
            if self.best.exhausted and self.history.stop_reason is None:
                self.history.stop_reason = self.best.stop_reason
            self._best_weights = state["best"]
        self.model.load_state_dict(state["model"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"] is not None:
            torch.cuda.set_rng_state(state["random_cuda"], self.device)
