"""Early stopping: select the best epoch of each run by its smoothed validation error.

The best epoch's error is too low on the rows that selected the epoch, so `CrossedEpochs` scores rows at other epochs.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn.risk import MultiSetCoefficients, UUCoefficients
from uulearn.training.history import History
from uulearn.training.options import RunOptions

Weights = tuple[dict[str, Tensor], dict[str, Tensor]]

EARLY_STOPPING_METRIC = "validation_zero_one"
"""Unbiased zero-one risk on held-out rows, which estimates the error rate without labels."""
EPOCH_PARTS = 10
"""Number of parts of the held-out rows in `CrossedEpochs`; an epoch selected on 90% of the rows is nearly as good."""


class BestEpoch:
    """Tracker of the best epoch so far according to a metric to minimize.

    An epoch is evaluated by the mean of the metric over the last ``smoothing`` epochs, because the estimate of a single
    epoch is noisy. After ``patience`` epochs without improvement, counted from the epoch ``patient_until`` if that is
    later, `exhausted` is true. Epochs before ``first`` are forgotten once it is reached, because their means are over
    few epochs.

    >>> best = BestEpoch(smoothing=2, patience=3)
    >>> [best.update(value) for value in (0.5, 0.1, 0.4, 0.2, 0.3)], best.epoch
    ([True, True, True, False, False], 3)
    """

    def __init__(self, smoothing: int, patience: int | None, first: int = 1, patient_until: int = 0) -> None:
        self.patience, self.first, self.patient_until = patience, first, patient_until
        self.epoch: int | None = None
        self.value = math.inf
        self.seen = 0
        self._window: deque[float] = deque(maxlen=int(smoothing))

    def update(self, metric: float) -> bool:
        """Add the metric of the next epoch; return whether this epoch is the best so far."""
        self.seen += 1
        self._window.append(metric)
        smoothed = sum(self._window) / len(self._window)
        if self.seen == self.first:
            self.value = math.inf
        if not smoothed < self.value:  # also if it is NaN
            return False
        self.epoch, self.value = self.seen, smoothed
        return True

    def observe(self, record: dict[str, Any], history: History) -> bool:
        """Add the record of the next epoch, and set ``history.best_epoch`` if this epoch is the best so far."""
        if not self.update(record[EARLY_STOPPING_METRIC]):
            return False
        history.best_epoch = self.epoch
        return True

    @property
    def exhausted(self) -> bool:
        """Whether the last ``patience`` epochs brought no improvement."""
        return self.patience is not None and self.seen - max(self.epoch or 0, self.patient_until) >= self.patience

    @property
    def stop_reason(self) -> str:
        """Stop reason of a run that has exhausted its patience."""
        return f"no better epoch in {self.patience} (the best is epoch {self.epoch})"


def follow_epochs(options: RunOptions, has_held_out: bool, first: int = 1) -> BestEpoch | None:
    """Return the best-epoch tracker of one run, or None if early stopping is disabled."""
    if not options.early_stopping:
        if options.patience is not None:
            raise ValueError(f"patience={options.patience} requires early stopping; set early_stopping=True.")
        return None
    if not has_held_out:
        raise ValueError(
            "early_stopping=True requires held-out rows of both sets, but none were given; hold out some rows, or set "
            "early_stopping=False."
        )
    patient_until = 0 if options.consistency is None else options.consistency.ramp_end(options.epochs)
    return BestEpoch(options.smoothing, options.patience, first, patient_until)


class CrossedEpochs:
    """Scores of held-out rows at epochs that were selected on other held-out rows.

    The error of the best epoch is too low on the rows used to select this epoch. Therefore, the held-out rows of each
    set are split at random into parts, and each part is scored at the epoch that is best on the other parts. These
    scores can be used for calibration and evaluation. All runs need the same number of held-out rows.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        coefficients: Sequence[UUCoefficients | MultiSetCoefficients],
        seeds: Sequence[int],
        smoothing: int,
        first: int = 1,
        numbers: Tensor | None = None,
    ) -> None:
        self.sizes, self.numbers = sizes, numbers
        """If the two sets are groups of sets: the set of every held-out row, shape (n,)."""
        known = [own.of_sets if isinstance(own, UUCoefficients) else own for own in coefficients]
        self.n_sets = len(known[0].positive)
        self.parts = torch.stack([_assign_parts(sizes, seed) for seed in seeds])
        """Part number of every held-out row, with the rows of set 0 first; shape (R, n)."""
        self.errors: list[Tensor] = []
        """For each epoch, the validation errors computed without one of the parts, shape (R, parts)."""
        self.own = torch.full(self.parts.shape, math.nan)
        """Scores of the rows at the epoch selected without their own part, shape (R, n)."""
        self.magnitude = torch.full((len(seeds), EPOCH_PARTS), math.nan)
        """Mean magnitude of all scores at the epoch selected without one of the parts, shape (R, parts)."""
        self._best = [[BestEpoch(smoothing, None, first) for _ in range(EPOCH_PARTS)] for _ in seeds]
        # If q_j is the fraction of set j predicted positive, the error is Σ a_j − Σ (a_j − b_j)·q_j.
        positive, negative = (torch.tensor(values, dtype=torch.float64) for values in zip(*known, strict=True))
        self._constants = positive.sum(1, keepdim=True)
        self._slopes = (negative - positive)[:, None] / self._count_others(torch.ones_like(self.own)).clamp(min=1)

    def update(self, scores: Tensor, running: Sequence[bool]) -> None:
        """Add the scores of the next epoch, shape (R, n); runs that have stopped are not updated."""
        self.errors.append(self._constants + (self._slopes * self._count_others(scores > 0)).sum(2))
        better = torch.tensor(
            [
                [running[run] and best.update(error) for best, error in zip(self._best[run], errors, strict=True)]
                for run, errors in enumerate(self.errors[-1].tolist())
            ]
        )
        if not better.any():
            return
        self.own = torch.where(better.gather(1, self.parts), scores, self.own)
        self.magnitude = torch.where(better, scores.abs().mean(1, keepdim=True), self.magnitude)

    def cross(self, final: Tensor) -> Tensor:
        """Return the scores of each part at the epoch selected on the other parts, rescaled to ``final``; shape (R, n).

        Scores grow during training, so each epoch's scores are rescaled to the mean magnitude of the final scores.
        """
        scale = (final.abs().mean(1, keepdim=True) / self.magnitude).gather(1, self.parts)
        return torch.where(scale.isfinite(), self.own * scale, final)

    def state_dict(self) -> dict[str, Any]:
        """Return the errors and scores recorded so far."""
        errors = torch.stack(self.errors) if self.errors else torch.empty(0)
        return {"errors": errors, "own": self.own, "magnitude": self.magnitude}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state_dict`."""
        self.errors, self.own, self.magnitude = list(state["errors"]), state["own"], state["magnitude"]
        for errors in self.errors:
            for trackers, own in zip(self._best, errors.tolist(), strict=True):
                for best, error in zip(trackers, own, strict=True):
                    best.update(error)

    def _count_others(self, marked: Tensor) -> Tensor:
        """Return the number of marked rows of each set outside each part, shape (R, parts, m)."""
        runs, parts = self.magnitude.shape
        numbers = self.numbers
        if numbers is None:
            numbers = torch.repeat_interleave(torch.arange(2), torch.tensor(self.sizes))
        inside = torch.zeros((runs, parts * self.n_sets), dtype=torch.float64)
        inside = inside.scatter_add_(1, self.parts * self.n_sets + numbers, marked.double())
        inside = inside.reshape(runs, parts, self.n_sets)
        return inside.sum(1, keepdim=True) - inside


def _assign_parts(sizes: tuple[int, int], seed: int) -> Tensor:
    rng = np.random.default_rng([seed, 6])
    return torch.from_numpy(np.concatenate([rng.permutation(size) % EPOCH_PARTS for size in sizes]))


class BestWeights:
    """Copies of each run's weights at its best epoch so far, stored in the same layout as the network.

    ``weights`` contains the parameters and buffers used for prediction; `restore` overwrites them. ``per_run`` reshapes
    a tensor of shape (R,) for multiplication by the named tensor. Stopped runs are not updated.
    """

    def __init__(
        self,
        weights: Weights,
        per_run: Callable[[Tensor, str], Tensor],
        histories: Sequence[History],
        options: RunOptions,
    ) -> None:
        self.weights, self.per_run, self.histories = weights, per_run, histories
        self.best = [follow_epochs(options, True) for _ in histories]
        self.copies = tuple({name: value.clone() for name, value in tensors.items()} for tensors in weights)
        self.copied = torch.zeros(len(histories), dtype=torch.bool)

    @torch.no_grad()
    def update(self, records: Sequence[dict[str, Any]]) -> None:
        """Copy the weights of the runs for which this epoch is the best so far."""
        better = torch.zeros_like(self.copied)
        for place, (history, best, record) in enumerate(zip(self.histories, self.best, records, strict=True)):
            if history.stop_reason is not None or best is None:
                continue
            better[place] = best.observe(record, history)
            if best.exhausted:
                history.stop_reason = best.stop_reason
        if better.any():
            self.copied |= better
            self._copy(self.weights, self.copies, better)

    @torch.no_grad()
    def restore(self) -> None:
        """Replace the weights of the last epoch with the weights of the best epoch."""
        self._copy(self.copies, self.weights, self.copied)

    def _copy(self, source: Sequence[dict[str, Tensor]], target: Sequence[dict[str, Tensor]], which: Tensor) -> None:
        for values, places in zip(source, target, strict=True):
            for name, value in values.items():
                chosen = self.per_run(which.to(value.device, torch.float32), name) > 0
                places[name].copy_(torch.where(chosen, value, places[name]))
