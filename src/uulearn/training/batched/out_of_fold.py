"""Out-of-fold training of several models together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn.data.holdout import Positions
from uulearn.data.rows import DenseRows, JoinedRows, Rows, TwoSets
from uulearn.risk import UURisk
from uulearn.training.batched.checks import UNSUPPORTED
from uulearn.training.batched.runs import Run
from uulearn.training.batched.trainer import BatchedTrainer
from uulearn.training.options import RunOptions
from uulearn.training.out_of_fold import FoldFit, count_folds, fold_seed
from uulearn.training.workers import join_workers

MOST_RUNS = 150
"""Of a stack on CUDA."""


def can_be_batched(model: Any, data: TwoSets, options: RunOptions) -> bool:
    """Can a stack train these models on these rows? Several workers train one model at a time."""
    named = isinstance(model, str) and model in ("linear", "mlp") and isinstance(options.optimizer, str)
    plain = all(getattr(options, name) == neutral for name, neutral in UNSUPPORTED.items())
    alone = join_workers(options.distributed, options.device) is None
    return named and plain and alone and all(map(_is_dense, data.rows)) and len(data.row_shape) == 1


@dataclass(frozen=True)
class Variant:
    """What may differ between models that are trained together: the risk, and what is set in place of options."""

    risk: UURisk
    lr: float | None = None
    l2: float | None = None
    weight_decay: float | None = None


def fit_folds_batched(
    chosen: Sequence[int],
    model: str,
    model_params: Mapping[str, Any] | None,
    data: TwoSets,
    folds: tuple[Positions, Positions],
    variants: Sequence[Variant],
    options: RunOptions,
    *,
    test: tuple[Rows, Tensor] | None = None,
) -> list[list[FoldFit]]:
    """As `uulearn.training.out_of_fold.fit_fold`, for several folds and variants of a named model at once.

    Returns, for every variant, one fit per chosen fold. On CUDA all are trained together, up to `MOST_RUNS` at a time; on
    the CPU the variants of one fold are, which share their batches. Runs that are trained together need sets of the same
    sizes, so a few random rows of the larger folds are left out of training and validation; all rows are scored.
    """
    joined = data.joined()
    table, index = _tensor(joined.rows[0]), [part for part in joined.index if part is not None]
    rng = np.random.default_rng([options.seed, 3])
    sides = [
        [[np.flatnonzero((part == fold) == side) for part in folds] for fold in range(count_folds(folds))]
        for side in (False, True)
    ]
    trained, held_out = ([_rows(index, positions) for positions in _of_one_size(parts, rng)] for parts in sides)
    labelled = None if test is None else (test[0].slice(0, test[0].n_rows), test[1])
    tasks = [(fold, place) for fold in chosen for place in range(len(variants))]
    step = MOST_RUNS if torch.device(options.device).type == "cuda" else len(variants)
    found: dict[tuple[int, int], FoldFit] = {}
    for together in (tasks[start : start + step] for start in range(0, len(tasks), step)):
        runs = [
            _run(variants[place], fold_seed(options.seed, fold), trained[fold], held_out[fold])
            for fold, place in together
        ]
        stack = BatchedTrainer(
            table,
            runs,
            model=model,
            model_params=model_params,
            loss=variants[0].risk.loss,
            options=dataclasses.replace(options, seed=runs[0].seed),
            test=labelled,
        )
        histories, models, scores = stack.run(), stack.models(), stack.scores(table)
        for (fold, place), module, history, mine in zip(together, models, histories, scores, strict=True):
            first, second = (
                mine[which[torch.from_numpy(part == fold)]] for which, part in zip(index, folds, strict=True)
            )
            found[fold, place] = FoldFit(module, history, (first, second), stack.dtype)
    return [[found[fold, place] for fold in chosen] for place in range(len(variants))]


def _run(variant: Variant, seed: int, rows: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> Run:
    risk = variant.risk
    return Run(
        rows,
        risk.set_priors,
        risk.target_prior,
        risk.method,
        seed=seed,
        lr=variant.lr,
        l2=variant.l2,
        weight_decay=variant.weight_decay,
        held_out=held_out,
    )


def _rows(index: list[Tensor], positions: list[Positions]) -> tuple[Tensor, Tensor]:
    first, second = (which[torch.from_numpy(place)] for which, place in zip(index, positions, strict=True))
    return first, second


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
