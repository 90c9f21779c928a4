"""Out-of-fold training, in which every row is scored by a model that was not trained on it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from uulearn.data.holdout import Positions
from uulearn.data.rows import Rows, TwoSets
from uulearn.exceptions import NonFiniteRiskError
from uulearn.risk import UURisk
from uulearn.training.history import History
from uulearn.training.loop import Callback, Trainer
from uulearn.training.options import RunOptions


@dataclass(frozen=True)
class FoldFit:
    """Module trained without one fold, its history, and its scores for the rows of each set in this fold.

    With early stopping, each row is scored at an epoch selected on other rows (`uulearn.training.early_stopping`).
    """

    model: nn.Module
    history: History
    scores: tuple[Tensor, Tensor]
    dtype: torch.dtype
    error: NonFiniteRiskError | None = None
    """Error of this model if it diverged; models that were trained together with it are not affected."""


def count_folds(folds: tuple[Positions, Positions]) -> int:
    """Return the number of folds."""
    return 1 + max(int(part.max()) for part in folds)


def fit_fold(
    fold: int,
    build: Callable[[int], nn.Module],
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: RunOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
    callback: Callback | None = None,
) -> FoldFit:
    """Train one module on the rows outside a fold, and use the rows of the fold for validation.

    ``build`` maps a seed to an untrained module, and ``folds`` is the result of `uulearn.data.folds.assign_folds`.
    `fold_options` derives the seed and the checkpoint folder of the module.
    """
    own = fold_options(options, fold)
    trainer = Trainer(build(own.seed), data, risk, own, fold=(folds, fold), test=test, callback=callback)
    trainer.run()
    scores = trainer.held_out_scores()
    return FoldFit(trainer.final_model.cpu(), trainer.history, scores, trainer.dtype)


def fold_seed(seed: int, fold: int) -> int:
    """Return the seed for the model of one fold."""
    return int(np.random.SeedSequence([seed, fold]).generate_state(1)[0])


def fold_name(fold: int) -> str:
    """Return the name of the model of one fold, which is also the name of its checkpoint folder."""
    return f"model-{fold}"


def fold_options(options: RunOptions, fold: int) -> RunOptions:
    """Return the options for the model of one fold, which has its own seed and checkpoint folder."""
    folder = None if options.checkpoint_dir is None else Path(options.checkpoint_dir) / fold_name(fold)
    fit_seed = options.seed if options.fit_seed is None else options.fit_seed
    return dataclasses.replace(options, seed=fold_seed(options.seed, fold), fit_seed=fit_seed, checkpoint_dir=folder)
