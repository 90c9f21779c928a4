"""Any list of runs, sorted into stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uulearn.training.batched.runs import Run
from uulearn.training.batched.trainer import BatchedTrainer
from uulearn.training.history import History


def train_runs(X: Any, runs: Sequence[Run], *, most: int | None = None, **arguments: Any) -> list[History]:
    """Histories of any list of runs: as few stacks as the sizes of their sets allow, of at most ``most`` runs each.

    The other arguments are those of `BatchedTrainer`.
    """
    shapes: dict[Any, list[int]] = {}
    for position, run in enumerate(runs):
        shapes.setdefault((run.sizes, run.held_out_sizes), []).append(position)
    histories: list[History] = [History() for _ in runs]
    for positions in shapes.values():
        step = most or len(positions)
        for start in range(0, len(positions), step):
            chosen = positions[start : start + step]
            for position, history in zip(
                chosen, BatchedTrainer(X, [runs[i] for i in chosen], **arguments).run(), strict=True
            ):
                histories[position] = history
    return histories
