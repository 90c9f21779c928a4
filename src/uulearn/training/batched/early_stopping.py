"""Early stopping for each run of batched training: the weights of its best epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from uulearn.training.early_stopping import follow_epochs
from uulearn.training.history import History
from uulearn.training.options import RunOptions

Weights = tuple[dict[str, Tensor], dict[str, Tensor]]


class BestWeights:
    """Copies of the weights of each run's best epoch so far, in tensors of the same layout as the network's.

    ``weights`` are the parameters and buffers that predictions are made with; `restore` writes into them. ``per_run``
    reshapes a tensor of shape (R,) to multiply the tensor of a name. A run that has exhausted its patience gets its
    stop reason in its history and is not updated any more.
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
        """Replace the weights of the last epoch by those of the best epoch."""
        self._copy(self.copies, self.weights, self.copied)

    def _copy(self, source: Sequence[dict[str, Tensor]], target: Sequence[dict[str, Tensor]], which: Tensor) -> None:
        for values, places in zip(source, target, strict=True):
            for name, value in values.items():
                chosen = self.per_run(which.to(value.device, torch.float32), name) > 0
                places[name].copy_(torch.where(chosen, value, places[name]))
