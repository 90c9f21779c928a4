"""Train the fold models of several classifiers in one batch on a GPU.

A batch of many small models uses a GPU better than several batches in turn. Each classifier is fitted as usual, except
that its models are trained in the joint batch. Random numbers of augmentation are drawn for the joint batch, so the
result differs from that of single fits as with another seed. All models of a batch need equal numbers of rows, so a few
random rows of larger folds are not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from uulearn import UUClassifier
from uulearn.training.batched import BatchedTrainer, Run

TRAINER = "uulearn.training.batched.out_of_fold.BatchedTrainer"
"""The class that `uulearn.estimator` trains the models of all folds with."""

Pair = tuple[Tensor, Tensor]


class _PlannedError(Exception):
    """Raised instead of training a batch; contains the arguments of the trainer."""

    def __init__(self, table: Tensor, runs: Sequence[Run], **arguments: Any) -> None:
        super().__init__("the batch is trained later")
        self.table, self.runs, self.arguments = table, runs, arguments


def _raise_planned(table: Tensor, runs: Sequence[Run], **arguments: Any) -> None:
    raise _PlannedError(table, runs, **arguments)


class _OwnRuns:
    """The part of a trained joint batch that belongs to one fit, with the interface of `BatchedTrainer`."""

    def __init__(self, joint: _JointBatch, own: slice) -> None:
        self.joint, self.own, self.dtype = joint, own, joint.trainer.dtype

    def run(self) -> Any:
        return self.joint.histories[self.own]

    def models(self) -> Any:
        return self.joint.models[self.own]

    def errors(self) -> Any:
        return self.joint.trainer.errors()[self.own]

    def scores(self, rows: Any) -> Tensor:
        return self.joint.trainer.scores(rows)[self.own]

    def held_out_scores(self) -> list[Tensor]:
        """Return the scores of all held-out rows of each run; rows that were left out have scores of the last model."""
        found = []
        for run in range(self.own.start, self.own.stop):
            scores = self.joint.held_out[run].clone()
            scores[self.joint.used[run]] = self.joint.crossed[run]
            found.append(scores)
        return found


class _JointBatch:
    """All models of several fits, trained together."""

    def __init__(self, batches: Sequence[_PlannedError]) -> None:
        starts = np.cumsum([0, *(len(batch.table) for batch in batches)]).tolist()
        runs = [
            dataclasses.replace(run, rows=_shift(run.index, start), held_out=_shift(run.held_out_index, start))
            for batch, start in zip(batches, starts[:-1], strict=True)
            for run in batch.runs
        ]
        rng = np.random.default_rng(runs[0].seed)
        sizes, held_out_sizes = (
            [min(size) for size in zip(*(getattr(run, name) for run in runs), strict=True)]
            for name in ("sizes", "held_out_sizes")
        )
        table, equal = torch.cat([batch.table for batch in batches]), []
        self.used: list[Tensor] = []
        """Positions, among the held-out rows of each run, of the rows that early stopping uses."""
        for run in runs:
            assert run.held_out_index is not None
            rows, held_out = (
                tuple(_draw(len(part), size, rng) for part, size in zip(pair, wanted, strict=True))
                for pair, wanted in ((run.index, sizes), (run.held_out_index, held_out_sizes))
            )
            self.used.append(torch.cat([held_out[0], held_out[1] + run.held_out_sizes[0]]))
            equal.append(
                dataclasses.replace(
                    run, rows=_pick(run.index, rows), held_out=_pick(run.held_out_index, held_out)
                )
            )  # fmt: skip
        self.trainer = BatchedTrainer(table, equal, **batches[0].arguments)
        self.histories, self.models = self.trainer.run(), self.trainer.models()
        self.crossed = self.trainer.held_out_scores()
        self.held_out = [
            self.trainer.scores(table[torch.cat(run.held_out_index or ())])[place] for place, run in enumerate(runs)
        ]


def fit_together(fits: Sequence[tuple[UUClassifier, Any, Any]]) -> None:
    """Fit classifiers to their rows and sets (0 or 1); only their priors, rows and seeds may differ."""
    plans, batches = [], []
    for classifier, rows, sets in fits:
        plans.append(classifier.plan_sets(rows[np.asarray(sets) == 0], rows[np.asarray(sets) == 1]))
        with mock.patch(TRAINER, _raise_planned):
            try:
                classifier.fit_plan(plans[-1])
            except _PlannedError as planned:
                batches.append(planned)
            else:
                raise ValueError("only MLPs on a CUDA device without a callback can be trained in one batch.")
    joint, start = _JointBatch(batches), 0
    for (classifier, *_), plan, batch in zip(fits, plans, batches, strict=True):
        own = _OwnRuns(joint, slice(start, start + len(batch.runs)))
        start += len(batch.runs)
        with mock.patch(TRAINER, lambda *_, own=own, **__: own):
            classifier.fit_plan(plan)


def _shift(pair: Pair | None, start: int) -> Pair:
    assert pair is not None
    return pair[0] + start, pair[1] + start


def _draw(size: int, wanted: int, rng: np.random.Generator) -> Tensor:
    """Return the sorted positions of ``wanted`` random rows."""
    return torch.from_numpy(np.sort(rng.permutation(size)[:wanted]))


def _pick(pair: Pair, positions: Any) -> Pair:
    return pair[0][positions[0]], pair[1][positions[1]]
