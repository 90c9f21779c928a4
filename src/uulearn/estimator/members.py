"""Several models, each trained without one fold: together where that is faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uulearn.data import Rows, TwoSets
from uulearn.data.holdout import Positions
from uulearn.models import ModelLike
from uulearn.risk import UURisk
from uulearn.training import TrainingOptions
from uulearn.training.batched.out_of_fold import Variant, can_be_batched, fit_out_of_fold_batched
from uulearn.training.loop import Callback
from uulearn.training.out_of_fold import OutOfFoldFit, fit_out_of_fold


def train_members(
    model: ModelLike,
    model_params: Mapping[str, Any] | None,
    build: Callable[[int], nn.Module],
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None,
    callback: Callback | None,
) -> OutOfFoldFit:
    """Train a model for each fold.

    On CUDA, models that a stack can hold are trained in one; on the CPU that would gain little, and a callback is
    called with one model at a time.
    """
    on_cuda = torch.device(options.device).type == "cuda"
    if on_cuda and callback is None and isinstance(model, str) and can_be_batched(model, data, options):
        return fit_out_of_fold_batched(model, model_params, data, folds, [Variant(risk)], options, test=test)[0]
    return fit_out_of_fold(build, data, folds, risk, options, test=test, callback=callback)


def round_options(options: TrainingOptions, number: int, half: int | None = None) -> TrainingOptions:
    """The options of a stage of refinement: a seed and a folder for checkpoints of its own.

    The first training on all rows, round 0 of no half, has the options as they are.
    """
    if half is None and number == 0:
        return options
    seed = int(np.random.SeedSequence([options.seed, number, 1 if half is None else 2 + half]).generate_state(1)[0])
    folder = None if options.checkpoint_dir is None else Path(options.checkpoint_dir)
    if folder is not None and half is not None:
        folder = folder / f"half-{half}"
    if folder is not None and number:
        folder = folder / f"round-{number}"
    return dataclasses.replace(options, seed=seed, checkpoint_dir=folder)
