"""Cross-fitting with the models of all folds trained together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn.risk import UURisk
from uulearn.training.crossfit import CrossFit, member_options
from uulearn.training.holding import Positions
from uulearn.training.options import TrainingOptions
from uulearn.training.rows import DenseRows, JoinedRows, Rows, TwoSets
from uulearn.training.stack.checks import UNSUPPORTED
from uulearn.training.stack.runs import Run
from uulearn.training.stack.trainer import StackTrainer


def can_be_stacked(model: Any, data: TwoSets, options: TrainingOptions) -> bool:
    """Can a stack train these models on these rows?"""
    named = isinstance(model, str) and model in ("linear", "mlp") and isinstance(options.optimizer, str)
    plain = all(getattr(options, name) == neutral for name, neutral in UNSUPPORTED.items())
    return named and plain and all(map(_is_dense, data.rows)) and len(data.row_shape) == 1


def cross_fit_stacked(
    model: str,
    model_params: Mapping[str, Any] | None,
    data: TwoSets,
    folds: tuple[Positions, Positions],
    risk: UURisk,
    options: TrainingOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
) -> CrossFit:
    """As `uulearn.training.crossfit.cross_fit`, for a model that has a name, all folds at once.

    Runs of a stack have sets of the same sizes, so that a few rows at random are left out of the larger folds' training
    and judging; all rows are scored.
    """
    joined = data.joined()
    table, index = _tensor(joined.rows[0]), [part for part in joined.index if part is not None]
    n_folds = 1 + max(int(part.max()) for part in folds)
    rng = np.random.default_rng([options.seed, 3])
    sides = [
        [[np.flatnonzero((part == fold) == side) for part in folds] for fold in range(n_folds)]
        for side in (False, True)
    ]
    chosen = [_of_one_size(parts, rng) for parts in sides]

    def rows(positions: list[Positions]) -> tuple[Tensor, Tensor]:
        first, second = (which[torch.from_numpy(place)] for which, place in zip(index, positions, strict=True))
        return first, second

    own = [member_options(options, fold) for fold in range(n_folds)]
    runs = [
        Run(rows(trained), risk.set_priors, risk.target_prior, risk.method, seed=member.seed, held_out=rows(held_out))
        for member, trained, held_out in zip(own, *chosen, strict=True)
    ]
    labelled = None if test is None else (test[0].slice(0, test[0].n_rows), test[1])
    stack = StackTrainer(
        table,
        runs,
        model=model,
        model_params=model_params,
        loss=risk.loss,
        options=dataclasses.replace(options, seed=own[0].seed),
        test=labelled,
    )
    histories = stack.run()
    by_all = stack.scores(table)
    scores = [by_all[torch.from_numpy(fold), which] for fold, which in zip(folds, index, strict=True)]
    scales = []
    for fold in range(n_folds):
        mine = [torch.from_numpy(part == fold) for part in folds]
        found = torch.cat([part[place] for part, place in zip(scores, mine, strict=True)])
        scales.append(float(found.abs().mean()) or 1.0)
        for part, place in zip(scores, mine, strict=True):
            part[place] /= scales[-1]
    return CrossFit(stack.models(), histories, scales, (scores[0], scores[1]), stack.dtype)


def _is_dense(rows: Rows) -> bool:
    return isinstance(rows, DenseRows) or (isinstance(rows, JoinedRows) and all(map(_is_dense, rows.parts)))


def _tensor(rows: Rows) -> Tensor:
    if isinstance(rows, JoinedRows):
        return rows.to(torch.device("cpu")).tensor
    assert isinstance(rows, DenseRows)
    return rows.tensor


def _of_one_size(parts: list[list[Positions]], rng: np.random.Generator) -> list[list[Positions]]:
    """Positions of both sets for every fold, cut to the size of the smallest."""
    sizes = [min(len(pair[which]) for pair in parts) for which in (0, 1)]
    return [
        [np.sort(rng.permutation(places)[:size]) for places, size in zip(pair, sizes, strict=True)] for pair in parts
    ]
