"""Cross-fitting: models that each have not seen one fold, so that every row is scored by one that does not know it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uulearn.data.holdout import Positions
from uulearn.data.rows import Rows, TwoSets
from uulearn.models import Ensemble
from uulearn.risk import UURisk
from uulearn.training.history import History
from uulearn.training.loop import Callback, Trainer
from uulearn.training.options import TrainingOptions
from uulearn.training.scoring import score_rows


@dataclass(frozen=True)
class CrossFit:
    """The models of all folds, what happened while they were trained, and how they score the rows they do not know.

    ``scores`` are those of set 0 and of set 1, each row's by the model of its fold, divided by that model's scale: the
    mean magnitude of its scores on its fold, by which `ensemble` divides too.
    """

    models: list[nn.Module]
    histories: list[History]
    scales: list[float]
    scores: tuple[Tensor, Tensor]
    dtype: torch.dtype

    def ensemble(self) -> Ensemble:
        """The models as one: the mean of their scores."""
        return Ensemble(self.models, self.scales).eval()


@dataclass(frozen=True)
class FoldFit:
    """The model that does not know one fold, what happened while it was trained, and its scores of the fold's rows.

    ``scores`` are those of the fold's rows of set 0 and of set 1, in their order.
    """

    model: nn.Module
    history: History
    scores: tuple[Tensor, Tensor]
    dtype: torch.dtype


def count_folds(folds: tuple[Positions, Positions]) -> int:
    """The number of folds."""
    return 1 + max(int(part.max()) for part in folds)


def cross_fit(
    build: Callable[[int], nn.Module],
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
    callback: Callback | None = None,
) -> CrossFit:
    """Train one model for each fold on the rows of the others.

    Parameters
    ----------
    build : callable
        From a seed to a fresh model.
    data : TwoSets
    folds : two arrays
        The fold of every row of each set, as `uulearn.data.folds.assign_folds` gives them. The rows of a model's
        fold are its held-out rows: they are recorded, and evaluate its epochs.
    risk, options, test, callback
        As for `Trainer`. Each model has a seed of its own, made from that of the options, and its checkpoints in a
        folder of its own.
    """
    parts = [
        fit_fold(fold, build, data, folds, risk, options, test=test, callback=callback)
        for fold in range(count_folds(folds))
    ]
    return put_together(parts, folds)


def fit_fold(
    fold: int,
    build: Callable[[int], nn.Module],
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
    callback: Callback | None = None,
) -> FoldFit:
    """The model of one fold, of those that `cross_fit` trains; the parameters are those there."""
    inside, outside = ([np.flatnonzero((part == fold) == side) for part in folds] for side in (True, False))
    own = member_options(options, fold)
    held_out = data.pick(*inside)
    trainer = Trainer(
        build(own.seed), data.pick(*outside), risk, own, validation=held_out, test=test, callback=callback
    )
    trainer.run()
    first, second = (
        score_rows(
            trainer.final_model,
            held_out.rows_of(which),
            device=trainer.device,
            dtype=trainer.dtype,
            scale=options.input_scale,
        )
        for which in (0, 1)
    )
    return FoldFit(trainer.final_model.cpu(), trainer.history, (first, second), trainer.dtype)


def put_together(parts: Sequence[FoldFit], folds: tuple[Positions, Positions]) -> CrossFit:
    """The models of all folds, in their order."""
    scores, scales = [torch.empty(len(part)) for part in folds], []
    for fold, part in enumerate(parts):
        scale = float(torch.cat(part.scores).abs().mean()) or 1.0
        scales.append(scale)
        for which, values in enumerate(part.scores):
            scores[which][torch.from_numpy(folds[which] == fold)] = values / scale
    models, histories = [part.model for part in parts], [part.history for part in parts]
    return CrossFit(models, histories, scales, (scores[0], scores[1]), parts[-1].dtype)


def member_options(options: TrainingOptions, member: int) -> TrainingOptions:
    """The options of one of several models: a seed of its own, and a folder of its own for checkpoints."""
    seed = int(np.random.SeedSequence([options.seed, member]).generate_state(1)[0])
    changes: dict[str, Any] = {"seed": seed}
    if options.checkpoint_dir is not None:
        changes["checkpoint_dir"] = Path(options.checkpoint_dir) / f"member-{member}"
    return dataclasses.replace(options, **changes)
