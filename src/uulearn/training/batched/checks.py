"""What a stack refuses, each in one sentence, before any work, and the models that its runs begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from uulearn.models import build_model
from uulearn.training.batched.runs import Run
from uulearn.training.options import RunOptions
from uulearn.training.randomness import own_randomness

UNSUPPORTED = {
    "augment": None,
    "scheduler": None,
    "clip_norm": None,
    "checkpoint_dir": None,
    "compile": False,
}


def initial_model(name: str, n_features: int, params: Mapping[str, Any] | None, seed: int) -> nn.Module:
    """The model that a run of this seed begins with, alone or in a stack."""
    if name not in ("linear", "mlp"):
        raise ValueError(f"a stack holds models 'linear' or 'mlp', got {name!r}; train others one by one with Trainer.")
    with own_randomness(seed):
        return build_model(name, (n_features,), params)


def check_options(options: RunOptions) -> None:
    """Refuse what only single runs can do."""
    for name, neutral in UNSUPPORTED.items():
        if getattr(options, name) != neutral:
            raise ValueError(f"a stack has no {name}; train runs that need it one by one, with Trainer.")
    if not isinstance(options.optimizer, str):
        kind = getattr(options.optimizer, "__name__", type(options.optimizer).__name__)
        raise ValueError(f"a stack needs an optimizer by name, 'adam', 'adamw' or 'sgd', got {kind}.")


def check_runs(runs: Sequence[Run]) -> Sequence[Run]:
    """Refuse runs that cannot be stacked."""
    if not runs:
        raise ValueError("a stack needs at least one run, got none.")
    for name in ("sizes", "held_out_sizes"):
        found = {getattr(run, name) for run in runs}
        if len(found) > 1:
            first, second = sorted(found)[:2]
            raise ValueError(
                f"all runs of a stack need sets of the same sizes, got {name} {first} and {second}; use train_runs, "
                "which sorts runs into stacks."
            )
    if not all(runs[0].sizes):
        raise ValueError(f"both sets of a run need rows, got sizes {runs[0].sizes}.")
    return runs


def check_table(table: Tensor, runs: Sequence[Run]) -> None:
    """Refuse a table that is none, and rows that it does not have."""
    if table.ndim != 2:
        raise ValueError(f"a stack takes a table of rows and columns, got shape {tuple(table.shape)}; reshape it.")
    for run in runs:
        for index in (*run.index, *(run.held_out_index or ())):
            outside = index[(index < 0) | (index >= len(table))]
            if len(outside):
                raise ValueError(
                    f"a run names row {int(outside[0])} of a table of {len(table):,} rows; rows are numbered from 0."
                )
