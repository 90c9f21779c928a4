"""Out-of-fold training in which the models of all folds are trained together."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from uulearn.data.holdout import Positions
from uulearn.data.rows import DenseRows, JoinedRows, Rows, TwoSets
from uulearn.risk import UURisk
from uulearn.training.batched.runs import Run, unsupported_option
from uulearn.training.batched.trainer import BatchedTrainer
from uulearn.training.options import RunOptions
from uulearn.training.out_of_fold import FoldFit, count_folds, fold_seed
from uulearn.training.workers import join_workers

MAX_RUNS = 150
"""Maximum number of runs that are trained together on a CUDA device."""


def can_be_batched(model: Any, data: TwoSets, options: RunOptions) -> bool:
    """Return whether models of this type can be trained together on these rows (False if there are several workers)."""
    named = isinstance(model, str) and model in ("linear", "mlp") and isinstance(options.optimizer, str)
    plain = unsupported_option(options) is None
    alone = join_workers(options.distributed, options.device) is None
    return named and plain and alone and all(map(_is_dense, data.rows)) and len(data.row_shape) == 1


@dataclass(frozen=True)
class Variant:
    """Settings that override the options and may differ between models that are trained together."""

    risk: UURisk
    lr: float | None = None
    l2: float | None = None
    weight_decay: float | None = None

    def run(self, rows: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor], seed: int) -> Run:
        """Return a run with these settings."""
        first, second = self.risk.set_priors
        risk = ((first, second), self.risk.target_prior, self.risk.method)
        rates: dict[str, Any] = {"lr": self.lr, "l2": self.l2, "weight_decay": self.weight_decay}
        return Run(rows, *risk, seed=seed, held_out=held_out, **rates)


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
    """Train several folds and variants of a named model together; see `uulearn.training.out_of_fold.fit_fold`.

    The result contains one list per variant, with one fit per chosen fold. On CUDA, up to `MAX_RUNS` models are trained
    together. On a CPU, only models of one fold are trained together. Runs that are trained together must have equal set
    sizes, so some random rows of larger folds are used neither for training nor for validation. All rows are scored.
    """
    joined = data.joined()
    rows, index = joined.rows[0], [part for part in joined.index if part is not None]
    table = (rows.to(torch.device("cpu")) if isinstance(rows, JoinedRows) else cast(DenseRows, rows)).tensor
    rng = np.random.default_rng([options.seed, 3])
    sides = [
        [[np.flatnonzero((part == fold) == side) for part in folds] for fold in range(count_folds(folds))]
        for side in (False, True)
    ]
    trained, held_out = ([_rows(index, positions) for positions in _equalize(parts, rng)] for parts in sides)
    labeled = None if test is None else (test[0].slice(0, test[0].n_rows), test[1])
    tasks = [(fold, place) for fold in chosen for place in range(len(variants))]
    step = MAX_RUNS if torch.device(options.device).type == "cuda" else len(variants)
    found: dict[tuple[int, int], FoldFit] = {}
    settings: dict[str, Any] = {"model": model, "model_params": model_params, "loss": variants[0].risk.loss}
    for together in (tasks[start : start + step] for start in range(0, len(tasks), step)):
        runs = [
            variants[place].run(trained[fold], held_out[fold], fold_seed(options.seed, fold))
            for fold, place in together
        ]
        own_options = dataclasses.replace(options, seed=runs[0].seed)
        trainer = BatchedTrainer(table, runs, options=own_options, test=labeled, **settings)
        histories, models, errors = trainer.run(), trainer.models(), trainer.errors()
        scores, crossed = trainer.scores(table), trainer.held_out_scores()
        for number, ((fold, place), module, history) in enumerate(zip(together, models, histories, strict=True)):
            own = scores[number]
            own[torch.cat(held_out[fold])] = crossed[number]
            inside = _rows(index, [np.flatnonzero(part == fold) for part in folds])
            found[fold, place] = FoldFit(
                module, history, (own[inside[0]], own[inside[1]]), trainer.dtype, errors[number]
            )
    return [[found[fold, place] for fold in chosen] for place in range(len(variants))]


def _rows(index: list[Tensor], positions: list[Positions]) -> tuple[Tensor, Tensor]:
    first, second = (which[torch.from_numpy(place)] for which, place in zip(index, positions, strict=True))
    return first, second


def _is_dense(rows: Rows) -> bool:
    return isinstance(rows, DenseRows) or (isinstance(rows, JoinedRows) and all(map(_is_dense, rows.parts)))


def _equalize(parts: list[list[Positions]], rng: np.random.Generator) -> list[list[Positions]]:
    """Return the row positions of both sets in every fold; larger folds are randomly reduced to the smallest size."""
    sizes = [min(len(pair[which]) for pair in parts) for which in (0, 1)]
    return [[np.sort(rng.permutation(own)[:size]) for own, size in zip(pair, sizes, strict=True)] for pair in parts]
