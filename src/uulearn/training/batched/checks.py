"""Checks of the options and runs of batched training, and the initial models of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from uulearn.models import build_model
from uulearn.training.batched.runs import Run
from uulearn.training.options import RunOptions
from uulearn.training.randomness import isolated_rng

UNSUPPORTED = {"augment": None, "scheduler": None, "clip_norm": None, "checkpoint_dir": None, "compile": False}
"""Options that only single runs support, with the values that turn them off."""


def initial_model(name: str, n_features: int, params: Mapping[str, Any] | None, seed: int) -> nn.Module:
    """The initial model of a run with this seed, the same as for a single run."""
    if name not in ("linear", "mlp"):
        raise ValueError(
            f"batched training supports models 'linear' and 'mlp', got {name!r}; train others one by one with Trainer."
        )
    with isolated_rng(seed):
        return build_model(name, (n_features,), params)


def check_options(options: RunOptions) -> None:
    """Raise an error for options that only single runs support."""
    for name, neutral in UNSUPPORTED.items():
        if getattr(options, name) != neutral:
            raise ValueError(
                f"batched training does not support {name}; train runs that need it one by one with Trainer."
            )
    if not isinstance(options.optimizer, str):
        kind = getattr(options.optimizer, "__name__", type(options.optimizer).__name__)
        raise ValueError(f"batched training needs the optimizer name 'adam', 'adamw' or 'sgd', got {kind}.")


def check_runs(runs: Sequence[Run]) -> Sequence[Run]:
    """Raise an error if the runs cannot be trained together."""
    if not runs:
        raise ValueError("batched training needs at least one run, got none.")
    for name in ("sizes", "held_out_sizes"):
        found = {getattr(run, name) for run in runs}
        if len(found) > 1:
            first, second = sorted(found)[:2]
            raise ValueError(
                f"runs that are trained together need sets of the same sizes, got {name} {first} and {second}; use "
                "train_runs, which groups runs by size."
            )
    if not all(runs[0].sizes):
        raise ValueError(f"both sets of a run need rows, got sizes {runs[0].sizes}.")
    return runs


def check_table(table: Tensor, runs: Sequence[Run]) -> None:
    """Raise an error if the table is not two-dimensional, or if a run uses rows that it does not have."""
    if table.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and columns, got shape {tuple(table.shape)}; reshape it.")
    for run in runs:
        for index in (*run.index, *(run.held_out_index or ())):
            outside = index[(index < 0) | (index >= len(table))]
            if len(outside):
                raise ValueError(
                    f"a run uses row {int(outside[0])} of a table of {len(table):,} rows; rows are numbered from 0."
                )
