"""Early stopping: find the best epoch of each run by its smoothed validation error."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from uulearn.training.history import History
from uulearn.training.options import RunOptions

Weights = tuple[dict[str, Tensor], dict[str, Tensor]]

EARLY_STOPPING_METRIC = "validation_zero_one"
"""Unbiased zero-one risk on held-out rows: the error rate, estimated without labels."""


class BestEpoch:
    """Tracker of the best epoch so far according to a metric to minimize.

    An epoch is evaluated by the mean of the metric over the last ``smoothing`` epochs, because the estimate of a single
    epoch is noisy. After ``patience`` epochs without improvement, `exhausted` is true.

    >>> best = BestEpoch(smoothing=2, patience=3)
    >>> [best.update(value) for value in (0.5, 0.1, 0.4, 0.2, 0.3)], best.epoch
    ([True, True, True, False, False], 3)
    """

    def __init__(self, smoothing: int, patience: int | None) -> None:
        self.patience = patience
        self.epoch: int | None = None
        self.value = math.inf
        self.seen = 0
        self._window: deque[float] = deque(maxlen=int(smoothing))

    def update(self, metric: float) -> bool:
        """Add the metric of the next epoch; return whether this epoch is the best so far."""
        self.seen += 1
        self._window.append(metric)
        smoothed = sum(self._window) / len(self._window)
        if not smoothed < self.value:  # also if it is NaN
            return False
        self.epoch, self.value = self.seen, smoothed
        return True

    def observe(self, record: dict[str, Any], history: History) -> bool:
        """Add the record of the next epoch, and set ``history.best_epoch`` if it is the best so far."""
        if not self.update(record[EARLY_STOPPING_METRIC]):
            return False
        history.best_epoch = self.epoch
        return True

    @property
    def exhausted(self) -> bool:
        """Whether there were ``patience`` epochs without improvement."""
        return self.patience is not None and self.seen - (self.epoch or 0) >= self.patience

    @property
    def stop_reason(self) -> str:
        """Stop reason of a run that has exhausted its patience."""
        return f"no better epoch in {self.patience} (the best is epoch {self.epoch})"


def follow_epochs(options: RunOptions, has_held_out: bool) -> BestEpoch | None:
    """Return the best-epoch tracker of one run, or None without early stopping."""
    if not options.early_stopping:
        if options.patience is not None:
            raise ValueError(f"patience={options.patience} needs early stopping; set early_stopping=True too.")
        return None
    if not has_held_out:
        raise ValueError(
            "early_stopping=True needs held-out rows of both sets, but none were given; hold out some rows, or set "
            "early_stopping=False."
        )
    return BestEpoch(options.smoothing, options.patience)


class BestWeights:
    """Copies of each run's weights at its best epoch so far, stored in the layout of the network.

    ``weights`` contains the parameters and buffers used for prediction; `restore` overwrites them. ``per_run`` reshapes
    a tensor of shape (R,) to multiply the named tensor. A run that has exhausted its patience is no longer updated.
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
