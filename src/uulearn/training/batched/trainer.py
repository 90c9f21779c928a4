"""Batched training of many runs: each step gathers rows, multiplies matrices and updates weights for all runs.

On a CUDA device, each step is replayed as a captured graph, so the device does not wait for Python.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from uulearn import defaults
from uulearn.data.batches import BatchPlan
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import Linear
from uulearn.risk.losses import LossFunction, get_loss
from uulearn.training.batched.consistency import BatchedViews
from uulearn.training.batched.network import BatchedNetwork
from uulearn.training.batched.optimizer import BatchedOptimizer
from uulearn.training.batched.risk import BatchedRisk, BatchedRiskParts
from uulearn.training.batched.runs import Groups, Run, check_options, check_runs, initial_model
from uulearn.training.consistency import agreement, pseudo_label_loss
from uulearn.training.cuda_graphs import GraphedFunction, snapshot_tensors
from uulearn.training.early_stopping import BestWeights, CrossedEpochs, Weights, follow_epochs
from uulearn.training.history import (
    BATCH_METRICS,
    CONSISTENCY_METRICS,
    TRAINING_METRICS,
    VALIDATION_METRICS,
    History,
    StopReason,
    make_record,
    non_finite_error,
)
from uulearn.training.options import RunOptions, few_threads
from uulearn.training.precision import resolve_precision
from uulearn.training.progress import ProgressBar
from uulearn.training.randomness import isolated_rng

EVALUATION_BYTES = 2**30
"""Maximum size, in bytes, of the activations of rows that are scored together."""
EPOCHS_AHEAD = 4
"""Number of epochs for which the rows are shuffled in advance."""
ALIGNMENT = 8
"""Number of half-precision values in 16 bytes, the row alignment required by tensor cores."""

BatchedCallback = Callable[[int, list[dict[str, Any]]], bool | None]


class BatchedTrainer:
    """Trainer for R linear models or MLPs, each with its own rows, risk, seed and learning rate.

    Each run gives the same result as `uulearn.training.Trainer` with the same seed, up to rounding errors. If the risk
    of a run is not finite, the run stops with its last weights and records the reason and the error (see `errors`); the
    other runs continue.

    Parameters
    ----------
    X : tensor or array of shape (n, d)
        Table with the rows of all runs, of any floating-point type or uint8; it is stored on the device only once.
    runs : sequence of Run
        Runs with equal set sizes. Use `train_runs` for runs with different set sizes.
    model : str
        Model of all runs, ``"linear"`` or ``"mlp"``.
    model_params : dict, optional
        Arguments of the model.
    loss : str or callable
        Loss of all runs; see `uulearn.UURisk`.
    options : RunOptions
        All other settings. Schedulers, clipping, checkpoints, custom optimizers, and own functions for augmentation or
        strong views are not supported. Runs that share rows and seed also share the random numbers of augmentation.
    test : (rows, tensor of 0 and 1), optional
        Labeled rows. The accuracy and the supervised risk of each run are recorded but do not affect training.
    callback : callable, optional
        Called after every epoch with the epoch number and the records of all runs; returns True to stop training.

    Examples
    --------
    >>> X = torch.randn(400, 5, generator=torch.Generator().manual_seed(1))
    >>> rows = torch.arange(200), torch.arange(200, 400)
    >>> runs = [Run(rows, (0.8, 0.2), 0.5, slope=slope) for slope in (0.0, -0.1, -1.0)]
    >>> options = RunOptions(epochs=5, lr=0.01, progress=False)
    >>> trainer = BatchedTrainer(X, runs, model_params={"hidden": (8,)}, options=options)
    >>> [len(history) for history in trainer.run()], trainer.scores(X).shape
    ([5, 5, 5], torch.Size([3, 400]))
    """

    def __init__(
        self,
        X: Any,
        runs: Sequence[Run],
        *,
        model: str = "mlp",
        model_params: Mapping[str, Any] | None = None,
        loss: str | LossFunction = defaults.LOSS,
        options: RunOptions | None = None,
        test: tuple[Any, Any] | None = None,
        callback: BatchedCallback | None = None,
    ) -> None:
        self.options = options or RunOptions()
        check_options(self.options)
        table = torch.as_tensor(X)
        check_runs(runs, table)
        self.groups = Groups.of(runs)
        self.runs = [runs[position] for position in self.groups.order]
        self.device = torch.device(self.options.device)
        self.plan = BatchPlan(self.runs[0].sizes, self.options.batch_size)
        self.callback = callback
        self.n_features = table.shape[1]
        models = [initial_model(model, table.shape[1], model_params, run.seed) for run in self.runs]
        sample = table[torch.cat([index[:: max(1, len(index) // 256)] for index in self.runs[0].index])]
        self.dtype = resolve_precision(self.options.precision, models[0], self.device, sample)
        if isinstance(models[0], Linear):
            self.dtype = torch.float32
        align = ALIGNMENT if self.device.type == "cuda" and self.dtype == torch.bfloat16 else 1
        self.network = BatchedNetwork(models, self.groups, self.dtype, self.device, self._dropout(models[0]), align)
        if loss == "zero_one":
            raise ValueError("loss 'zero_one' has no gradient and is for evaluation only; train with 'logistic'.")
        self.risks = BatchedRisk(self.runs, get_loss(loss), self.device)
        assert isinstance(self.options.optimizer, str)
        rates = {name: self._per_run(name, getattr(self.options, name)) for name in ("lr", "weight_decay", "l2")}
        rates["lr_decay"] = self._per_run("lr_decay", 0.0)
        settings = self.options.optimizer_params or {}
        self.optimizer = BatchedOptimizer(self.options.optimizer, self.network, settings, **rates)
        self._final: Weights = (self.network.params, self.network.buffers)
        if self.options.ema:
            params, buffers = ({name: value.clone() for name, value in kind.items()} for kind in self._final)
            self._final = params, buffers
        self.table = self.network.pad_rows(table).to(self.device)
        self.test = None if test is None else self._labeled(*test)
        self.held_out = self._gather_held_out()
        self.alive = torch.ones(len(runs), dtype=torch.bool, device=self.device)
        self.views = BatchedViews(self.runs, self.options, self._convert(table[:2].to(self.device)))
        n_metrics = len(TRAINING_METRICS) + (0 if self.options.consistency is None else len(CONSISTENCY_METRICS))
        self.totals = torch.zeros(n_metrics, len(runs), device=self.device)
        self.histories = [History(labels_used=test is not None) for _ in runs]
        self._errors: list[NonFiniteRiskError | None] = [None for _ in runs]
        stops_early = follow_epochs(self.options, self.held_out is not None) is not None
        self.best_weights = (
            BestWeights(self._final, self.network.per_run, self.histories, self.options) if stops_early else None
        )
        self.crossed: CrossedEpochs | None = None
        if stops_early and self.held_out is not None and min(self.held_out[1]) > 1:
            about = [run.coefficients for run in self.runs], [run.seed for run in self.runs], self.options.smoothing
            self.crossed = CrossedEpochs(self.held_out[1], *about)
        self._plan_batches()
        self._step = GraphedFunction(self._one_step, self.device, self._snapshot)
        self._evaluation = GraphedFunction(self._evaluate, self.device, self._no_snapshot)

    # ------------------------------------------------------------------------------------------------------- building

    def _per_run(self, name: str, default: float) -> Tensor:
        values = (getattr(run, name) for run in self.runs)
        return torch.tensor([default if value is None else value for value in values], device=self.device)

    def _dropout(self, model: nn.Module) -> Tensor | None:
        if isinstance(model, Linear) and any(run.dropout for run in self.runs):
            raise ValueError("a linear model has no hidden units to drop; set dropout=0 for its runs.")
        own = next((layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)), 0.0)
        rates = self._per_run("dropout", own)
        return rates if bool((rates > 0).any()) else None

    def _snapshot(self) -> Callable[[], None]:
        """Copy all tensors that a step changes; return a function that restores them."""
        weights = [
            value for kind in (self.network.params, self.network.buffers, *self._final) for value in kind.values()
        ]
        slots = [slot for own in self.optimizer.slots.values() for slot in own]
        others = [self.optimizer.step, self.alive, self.totals, *self._next.values()]
        return snapshot_tensors([*weights, *slots, *others])

    def _no_snapshot(self) -> Callable[[], None]:
        return snapshot_tensors([])

    def _columns(self, rows: Any, name: str) -> Tensor:
        x = torch.as_tensor(rows)
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise ValueError(f"{name} must have the same {self.n_features} columns as X, got shape {tuple(x.shape)}.")
        return x

    def _labeled(self, rows: Any, labels: Any) -> tuple[Tensor, Tensor]:
        x, y = self._columns(rows, "test"), torch.as_tensor(labels).reshape(-1)
        if len(x) != len(y) or not len(x):
            raise ValueError(f"test must have one label per row, got {len(x)} rows and {len(y)} labels.")
        found = set(torch.unique(y).tolist())
        if not (found <= {0, 1} or found <= {-1, 1}):
            raise ValueError(f"labels must be 1 and 0, or 1 and -1, got {sorted(found)[:5]}.")
        return self.network.pad_rows(x).to(self.device), (y == 1).to(self.device)

    def _gather_held_out(self) -> tuple[Tensor, tuple[int, int]] | None:
        leaders = [run for run in self.runs[:: self.groups.width] if run.held_out_index is not None]
        if not leaders or not any(leaders[0].held_out_sizes):
            return None
        index = torch.stack([torch.cat(run.held_out_index or ()) for run in leaders])
        return index.to(self.device), leaders[0].held_out_sizes

    def _plan_batches(self) -> None:
        """Allocate one tensor of row numbers, of shape (batches, G, rows), for each composition of a batch."""
        leaders = self.runs[:: self.groups.width]
        self._seeds = sorted({run.seed for run in leaders})
        self._seed_of = torch.tensor([self._seeds.index(run.seed) for run in leaders], device=self.device)
        self._rows = torch.stack([torch.cat(run.index) for run in leaders]).to(self.device)
        self._places: dict[tuple[int, int], Tensor] = {}
        self._order: dict[tuple[int, int], Tensor] = {}
        self._next: dict[tuple[int, int], Tensor] = {}
        n0 = self.plan.sizes[0]
        for counts in {self.plan.counts(batch): None for batch in range(self.plan.n_batches)}:
            bounds = [self.plan.bounds(b) for b in range(self.plan.n_batches) if self.plan.counts(b) == counts]
            places = [[*range(one.start, one.stop), *range(n0 + two.start, n0 + two.stop)] for one, two in bounds]
            self._places[counts] = torch.tensor(places, device=self.device)
            shape = (len(places), self.groups.count, sum(counts))
            self._order[counts] = torch.zeros(shape, dtype=torch.int64, device=self.device)
            self._next[counts] = torch.zeros((), dtype=torch.int64, device=self.device)

    # ------------------------------------------------------------------------------------------------------- training

    def run(self) -> list[History]:
        """Train all runs, unless they are already trained, and return the histories in the order of ``runs``."""
        if any(history.stop_reason for history in self.histories):
            return self._in_given_order(self.histories)
        self.plan.warn_if_grown()
        try:
            self._train()
        finally:
            if self.best_weights is not None:
                self.best_weights.restore()
            self._step.clear()  # release the memory of the graphs
            self._evaluation.clear()
        for history in self.histories:
            if history.stop_reason is None:
                done = len(history) == self.options.epochs
                history.stop_reason = StopReason.EPOCHS_DONE.format(len(history)) if done else StopReason.CALLBACK
        return self._in_given_order(self.histories)

    def _train(self) -> None:
        rows = len(self.runs) * len(self.table)
        with few_threads(rows, tuple(self.table.shape[1:])), isolated_rng(self.runs[0].seed, self.device):
            progress = ProgressBar(self.options.epochs, self.options.progress, models=len(self.runs))
            with progress as bar, ThreadPoolExecutor(EPOCHS_AHEAD) as pool:
                shuffles = deque(pool.submit(self._shuffle, epoch) for epoch in range(1, EPOCHS_AHEAD + 1))
                for epoch in range(1, self.options.epochs + 1):
                    started = time.perf_counter()
                    self._load(shuffles.popleft().result())
                    shuffles.append(pool.submit(self._shuffle, epoch + EPOCHS_AHEAD))
                    consistent = self.views.start_epoch(epoch)
                    for batch in range(self.plan.n_batches):
                        self._step(self.plan.counts(batch), consistent)
                    evaluate = self._evaluation if self.test or self.held_out else self._evaluate
                    metrics, scores = evaluate()
                    records = self._record(epoch, metrics, started, consistent)
                    if self.crossed is not None:
                        running = [history.stop_reason is None for history in self.histories]
                        self.crossed.update(scores.float().cpu(), running)
                    if self.best_weights is not None:
                        self.best_weights.update(records)
                    bar.update(epoch, records[0])
                    stop = self.callback and self.callback(epoch, self._in_given_order(records))
                    if stop or all(history.stop_reason for history in self.histories):
                        break

    def _in_given_order(self, values: Sequence[Any]) -> list[Any]:
        return [value for _, value in sorted(zip(self.groups.order, values, strict=True), key=lambda pair: pair[0])]

    def _shuffle(self, epoch: int) -> Tensor:
        """Return the shuffled row positions of both sets for each seed in this epoch, shape (seeds, n + n′)."""
        n0 = self.plan.sizes[0]
        drawn = [self.plan.shuffles(seed, epoch) for seed in self._seeds]
        places = torch.stack([torch.cat([first, second + n0]) for first, second in drawn])
        return places.pin_memory() if self.device.type == "cuda" else places

    def _load(self, shuffles: Tensor) -> None:
        order = self._rows.gather(1, shuffles.to(self.device, non_blocking=True)[self._seed_of])
        for counts, places in self._places.items():
            self._order[counts].copy_(order[:, places].transpose(0, 1))
        self.totals.zero_()

    def _one_step(self, counts: tuple[int, int], consistent: bool = False) -> None:
        """Gather the rows of a batch, compute the gradient and update the weights; add the metrics to ``totals``.

        If ``consistent`` is true, the consistency loss is added to the objective.
        """
        with torch.no_grad():
            index = self._order[counts].index_select(0, self._next[counts].view(1))[0]
            self._next[counts].add_(1).remainder_(len(self._order[counts]))
            x = self._convert(self.table[index])
            rows = x[..., : self.n_features]  # without padding
            strong = self.network.pad_rows(self.views.strong(rows, counts)) if consistent else x
            x = x if self.views.augment is None else self.network.pad_rows(self.views.weak(rows))
            if consistent:
                targets = self.views.targets(self.network.evaluation_scores(*self._final, x), counts)
        leaves = {name: value.detach().requires_grad_() for name, value in self.network.narrowed().items()}
        with torch.enable_grad():
            scores, statistics = self.network.training_scores(leaves, x)
            risk, more = self.risks.risk(scores, self.risks.weights(counts)), []
            if consistent:
                strong_scores, _ = self.network.training_scores(leaves, strong)  # statistics of the weak view are used
                loss = pseudo_label_loss(strong_scores, targets)
                assert self.views.schedule is not None
                risk = risk._replace(objective=risk.objective + self.views.schedule.weight * loss)
                more = [loss.detach(), agreement(scores.detach(), targets)]
            gradients = torch.autograd.grad(risk.objective.sum(), list(leaves.values()))
        with torch.no_grad():
            parts = BatchedRiskParts(*(part.detach() for part in risk))
            self._finish(dict(zip(leaves, gradients, strict=True)), statistics, parts, more, sum(counts))

    def _finish(
        self,
        gradients: dict[str, Tensor],
        statistics: dict[str, Tensor],
        risk: BatchedRiskParts,
        more: list[Tensor],
        n_rows: int,
    ) -> None:
        self.alive &= risk.objective.isfinite() & risk.positive.isfinite() & risk.negative.isfinite()
        self.optimizer.update(gradients, self.alive)
        self.network.update_statistics(self.network.buffers, statistics, n_rows, self.alive)
        self._update_average()
        below = [(risk.positive < 0).float(), (risk.negative < 0).float()]
        found = torch.stack([*(part * n_rows for part in risk), *below, *(part * n_rows for part in more)])
        self.totals[: len(found)] += found

    def _convert(self, rows: Tensor) -> Tensor:
        scale = self.options.input_scale
        return (rows.float() * scale if scale != 1.0 else rows).to(self.dtype)

    def _update_average(self) -> None:
        if not self.options.ema:
            return
        n = self.optimizer.step - 1  # number of updates so far
        decay = torch.minimum(torch.full_like(n, self.options.ema), (1 + n) / (10 + n))
        weight = self.alive * torch.where(n == 0, 1.0, 1 - decay)
        for average, current in zip(self._final, (self.network.params, self.network.buffers), strict=True):
            for name, value in current.items():
                average[name].lerp_(value, self.network.per_run(weight, name))

    # ----------------------------------------------------------------------------------------------------- evaluation

    def _evaluate(self) -> tuple[Tensor, Tensor]:
        """Return the metrics on test rows and on held-out rows, shape (k, R), and the scores of the held-out rows."""
        metrics: list[Tensor] = []
        scores = torch.zeros(len(self.runs), 0, device=self.device)
        with torch.no_grad():
            if self.test is not None:
                x, is_positive = self.test
                labeled = torch.cat([self._chunk_scores(part) for part in self._chunks(x, 0)], 1)
                metrics.append(((labeled > 0) == is_positive).float().mean(1))
                metrics.append(self.risks.labeled_risk(labeled, is_positive))
            if self.held_out is not None:
                index, sizes = self.held_out
                scores = torch.cat([self._chunk_scores(self.table[part]) for part in self._chunks(index, 1)], 1)
                risk = self.risks.risk(scores, self.risks.weights(sizes))
                unbiased = risk.positive + risk.negative
                metrics += [risk.positive, risk.negative, unbiased, risk.corrected, risk.zero_one]
            return torch.stack(metrics) if metrics else torch.zeros(0, len(self.runs), device=self.device), scores

    def _chunk_scores(self, rows: Tensor) -> Tensor:
        return self.network.evaluation_scores(*self._final, self._convert(rows))

    def _chunks(self, rows: Tensor, dim: int) -> Sequence[Tensor]:
        """Split rows into parts of equal size whose activations need at most `EVALUATION_BYTES`."""
        largest = max(1, EVALUATION_BYTES // (4 * len(self.runs) * self.network.width))
        n = max(1, rows.shape[dim])
        return torch.split(rows, -(-n // -(-n // largest)), dim)

    def _record(self, epoch: int, evaluated: Tensor, started: float, consistent: bool) -> list[dict[str, Any]]:
        totals, metrics, alive = self.totals.cpu().double(), evaluated.cpu().double(), self.alive.tolist()
        rates = (self.optimizer.lr / (1 + self.optimizer.lr_decay * self.optimizer.step)).tolist()
        n, n_counted = len(BATCH_METRICS), len(TRAINING_METRICS)
        totals[[*range(n), *range(n_counted, len(totals))]] /= sum(self.plan.sizes)
        totals[n:n_counted] /= self.plan.n_batches
        seconds = time.perf_counter() - started
        names = ["test_accuracy", "test_risk"] if self.test else []
        names += [f"validation_{name}" for name in VALIDATION_METRICS] if self.held_out else []
        records = []
        for place, history in enumerate(self.histories):
            record = make_record(epoch, totals[:n_counted, place].tolist(), rates[place])
            if consistent and self.views.schedule is not None:
                record["consistency_weight"] = self.views.schedule.weight.item()
                record |= zip(CONSISTENCY_METRICS, totals[n_counted:, place].tolist(), strict=True)
            record |= {**dict(zip(names, metrics[:, place].tolist(), strict=True)), "seconds": seconds}
            records.append(record)
            if history.stop_reason is None and alive[place]:
                history.epochs.append(record)
            elif history.stop_reason is None:
                history.stop_reason = StopReason.NOT_FINITE.format(epoch)
                self._errors[place] = non_finite_error(record)
        return records

    # -------------------------------------------------------------------------------------------------------- results

    def errors(self) -> list[NonFiniteRiskError | None]:
        """Return the error of each run, as `uulearn.training.Trainer` raises it, or None if the run is finite."""
        return self._in_given_order(self._errors)

    def models(self) -> list[nn.Module]:
        """Return the model of each run on the CPU, with averaged weights if there is a moving average."""
        params, buffers = ({name: value.cpu() for name, value in tensors.items()} for tensors in self._final)
        return self._in_given_order([self.network.module(place, params, buffers) for place in range(len(self.runs))])

    @torch.no_grad()
    def scores(self, X: Any) -> Tensor:
        """Return the scores g(x) of all runs for all rows, with shape (R, n), on the CPU."""
        x = self._columns(X, "X")
        parts = [self._chunk_scores(part.to(self.device)) for part in self._chunks(self.network.pad_rows(x), 0)]
        return torch.stack(self._in_given_order(list(torch.cat(parts, 1).cpu())))

    def held_out_scores(self) -> Tensor:
        """Return the scores of each run's held-out rows, shape (R, n); with early stopping, `CrossedEpochs` is used."""
        final = self._evaluate()[1].float().cpu()
        return torch.stack(self._in_given_order(list(final if self.crossed is None else self.crossed.cross(final))))


def train_runs(X: Any, runs: Sequence[Run], *, max_runs: int | None = None, **arguments: Any) -> list[History]:
    """Train a list of runs, in groups with equal set sizes, and return their histories.

    A group has at most ``max_runs`` runs. See `BatchedTrainer` for the other arguments.

    >>> runs = [Run((range(n), range(n, 2 * n)), (0.8, 0.2), 0.5) for n in (10, 20)]
    >>> options = RunOptions(epochs=2, progress=False)
    >>> histories = train_runs(torch.randn(40, 3), runs, model="linear", options=options)
    >>> [len(history) for history in histories]
    [2, 2]
    """
    by_size: dict[Any, list[int]] = {}
    for position, run in enumerate(runs):
        by_size.setdefault((run.sizes, run.held_out_sizes), []).append(position)
    histories: list[History] = [History() for _ in runs]
    for positions in by_size.values():
        step = max_runs or len(positions)
        for chosen in (positions[start : start + step] for start in range(0, len(positions), step)):
            trainer = BatchedTrainer(X, [runs[position] for position in chosen], **arguments)
            for position, history in zip(chosen, trainer.run(), strict=True):
                histories[position] = history
    return histories
