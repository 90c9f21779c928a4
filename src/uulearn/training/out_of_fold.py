"""Out-of-fold training: one model per fold, trained on the other folds, so that every row gets an unbiased score."""

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
class OutOfFoldFit:
    """The models of all folds, their histories, and the out-of-fold scores.

    ``scores`` are those of set 0 and of set 1. Each row is scored by the model that was not trained on its fold, and
    the score is divided by that model's scale, the mean absolute score on its fold. `ensemble` uses the same scales.
    """

    models: list[nn.Module]
    histories: list[History]
    scales: list[float]
    scores: tuple[Tensor, Tensor]
    dtype: torch.dtype

    def ensemble(self) -> Ensemble:
        """One module that returns the mean score of all models."""
        return Ensemble(self.models, self.scales).eval()


@dataclass(frozen=True)
class FoldFit:
    """The model that was not trained on one fold, its history, and its scores of the fold's rows of set 0 and set 1."""

    model: nn.Module
    history: History
    scores: tuple[Tensor, Tensor]
    dtype: torch.dtype


def count_folds(folds: tuple[Positions, Positions]) -> int:
    """The number of folds."""
    return 1 + max(int(part.max()) for part in folds)


def fit_out_of_fold(
    build: Callable[[int], nn.Module],
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
    callback: Callback | None = None,
) -> OutOfFoldFit:
    """Train one model per fold on the rows of the other folds; see `Trainer` for the other parameters.

    ``build`` returns a new model for a seed. ``folds`` are the folds of the rows of each set, from
    `uulearn.data.folds.assign_folds`; the rows of a model's fold are its validation rows. Each model has its own seed,
    derived from that of the options, and its own checkpoint folder.
    """
    fits = [
        fit_fold(fold, build, data, folds, risk, options, test=test, callback=callback)
        for fold in range(count_folds(folds))
    ]
    return combine_folds(fits, folds)


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
    """The model of one fold; see `fit_out_of_fold` for the parameters."""
    inside, outside = ([np.flatnonzero((part == fold) == side) for part in folds] for side in (True, False))
    own = fold_options(options, fold)
    held_out = data.pick(*inside)
    trainer = Trainer(
        build(own.seed), data.pick(*outside), risk, own, validation=held_out, test=test, callback=callback
    )
    trainer.run()
    scoring: dict[str, Any] = {"device": trainer.device, "dtype": trainer.dtype, "scale": options.input_scale}
    first, second = (score_rows(trainer.final_model, held_out.rows_of(which), **scoring) for which in (0, 1))
    return FoldFit(trainer.final_model.cpu(), trainer.history, (first, second), trainer.dtype)


def combine_folds(fits: Sequence[FoldFit], folds: tuple[Positions, Positions]) -> OutOfFoldFit:
    """The fits of all folds, in their order, as one."""
    scores, scales = [torch.empty(len(part)) for part in folds], []
    for fold, fit in enumerate(fits):
        scale = float(torch.cat(fit.scores).abs().mean()) or 1.0
        scales.append(scale)
        for which, values in enumerate(fit.scores):
            scores[which][torch.from_numpy(folds[which] == fold)] = values / scale
    models, histories = [fit.model for fit in fits], [fit.history for fit in fits]
    return OutOfFoldFit(models, histories, scales, (scores[0], scores[1]), fits[-1].dtype)


def fold_options(options: TrainingOptions, fold: int) -> TrainingOptions:
    """The options of the model of one fold: with its own seed and its own checkpoint folder."""
    seed = int(np.random.SeedSequence([options.seed, fold]).generate_state(1)[0])
    changes: dict[str, Any] = {"seed": seed}
    if options.checkpoint_dir is not None:
        changes["checkpoint_dir"] = Path(options.checkpoint_dir) / f"fold-{fold}"
    return dataclasses.replace(options, **changes)
