"""Several models, each trained without one fold: together where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from uulearn.models import ModelLike
from uulearn.risk import UURisk
from uulearn.training import Rows, TrainingOptions, TwoSets
from uulearn.training.crossfit import CrossFit, cross_fit
from uulearn.training.folds import assign_folds
from uulearn.training.loop import Callback
from uulearn.training.stack.crossfit import can_be_stacked, cross_fit_stacked


def train_members(
    n_members: int,
    model: ModelLike,
    model_params: Mapping[str, Any] | None,
    build: Callable[[int], nn.Module],
    data: TwoSets,
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None,
    callback: Callback | None,
) -> CrossFit:
    """Cut the rows into folds and train a model for each.

    On CUDA, models that a stack can hold are trained in one; on the CPU that would gain little, and a callback is
    called with one model at a time.
    """
    folds = assign_folds(data, n_members, options.seed)
    on_cuda = torch.device(options.device).type == "cuda"
    if on_cuda and callback is None and isinstance(model, str) and can_be_stacked(model, data, options):
        return cross_fit_stacked(model, model_params, data, folds, risk, options, test=test)
    return cross_fit(build, data, folds, risk, options, test=test, callback=callback)
