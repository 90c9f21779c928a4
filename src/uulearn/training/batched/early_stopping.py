"""Of every run in a stack, the weights of its best epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from uulearn.training.early_stopping import CRITERION, follow_epochs
from uulearn.training.history import History
from uulearn.training.options import RunOptions

Weights = tuple[dict[str, Tensor], dict[str, Tensor]]


class KeptWeights:
    """Copies of the weights of each run's best epoch so far, all in tensors as the stack has them.

    Parameters
    ----------
    weights : two dicts of tensors
        The stacked parameters and buffers that predictions are made with; `restore` writes into them.
    per_run : callable
        Gives a tensor of shape (R,) the shape that goes with the tensor of a name.
    histories : sequence of History
        One a run; a run that has exhausted its patience is told so there, and followed no longer.
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
        self.taken = torch.zeros(len(histories), dtype=torch.bool)

    @torch.no_grad()
    def consider(self, records: Sequence[dict[str, Any]]) -> None:
        """Take the weights of the runs for which this epoch is the best so far."""
        better = torch.zeros_like(self.taken)
        for place, (history, best, record) in enumerate(zip(self.histories, self.best, records, strict=True)):
            if history.stop_reason is not None or best is None:
                continue
            if best.update(record[CRITERION]):
                better[place] = True
                history.best_epoch = best.epoch
            if best.exhausted:
                history.stop_reason = best.stop_reason
        if better.any():
            self.taken |= better
            self._copy(self.weights, self.copies, better)

    @torch.no_grad()
    def restore(self) -> None:
        """Put the weights that were kept in the place of the last ones."""
        self._copy(self.copies, self.weights, self.taken)

    def _copy(self, source: Sequence[dict[str, Tensor]], target: Sequence[dict[str, Tensor]], which: Tensor) -> None:
        for values, places in zip(source, target, strict=True):
            for name, value in values.items():
                chosen = self.per_run(which.to(value.device, torch.float32), name) > 0
                places[name].copy_(torch.where(chosen, value, places[name]))
