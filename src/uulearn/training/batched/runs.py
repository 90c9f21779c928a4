"""Settings of a run in batched training, groups of runs that share batches, and validation of runs and options."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uulearn import defaults
from uulearn.models import build_model
from uulearn.risk import UUCoefficients, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method
from uulearn.training.options import RunOptions

IndexLike = Tensor | np.ndarray | Sequence[int]

UNSUPPORTED = {"scheduler": None, "clip_norm": None, "checkpoint_dir": None, "compile": False}
"""Options that batched training does not support, with the values that disable them."""


@dataclass(frozen=True, eq=False)
class Run:
    """Settings of one run in batched training.

    Parameters
    ----------
    rows : (indices, indices)
        Row numbers of set 0 and set 1 in the shared table.
    held_out : (indices, indices), optional
        Row numbers of held-out rows of each set; the risk on these rows is recorded after every epoch.
    set_priors, target_prior, method, slope
        Parameters of the risk; see `uulearn.UURisk`.
    seed : int
        Seed for the initial weights and the shuffles; a single run with the same seed uses the same values.
    lr, l2, weight_decay : float, optional
        Value that overrides the one in the options.
    dropout : float, optional
        Value that overrides the one of the model. Unlike single runs, all runs share one generator for dropout.
    lr_decay : float
        The learning rate of step t is ``lr / (1 + lr_decay·t)``, as in Keras.

    Examples
    --------
    >>> Run((range(4), range(4, 8)), (0.75, 0.25), 0.5).coefficients
    UUCoefficients(a=0.75, b=0.25, c=0.25, d=0.75)
    """

    rows: tuple[IndexLike, IndexLike]
    set_priors: tuple[float, float]
    target_prior: float
    method: MethodLike = defaults.METHOD
    slope: float = defaults.SLOPE
    seed: int = 0
    lr: float | None = None
    l2: float | None = None
    weight_decay: float | None = None
    lr_decay: float = 0.0
    dropout: float | None = None
    held_out: tuple[IndexLike, IndexLike] | None = None
    index: tuple[Tensor, Tensor] = field(init=False)
    held_out_index: tuple[Tensor, Tensor] | None = field(init=False)
    sizes: tuple[int, int] = field(init=False)
    held_out_sizes: tuple[int, int] = field(init=False)
    coefficients: UUCoefficients = field(init=False)
    resolved_method: Method = field(init=False)

    def __post_init__(self) -> None:
        index, held_out = _as_indices(self.rows, "rows"), _as_indices(self.held_out, "held_out")
        derived = {
            **{"rows": index, "index": index, "held_out": held_out, "held_out_index": held_out},
            "sizes": tuple(map(len, index or ())),
            "held_out_sizes": tuple(map(len, held_out or ((), ()))),
            "coefficients": uu_coefficients(self.set_priors, self.target_prior),
            "resolved_method": get_method(self.method, self.slope),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        if self.seed < 0:
            raise ValueError(f"seed of a run must be ≥ 0, got {self.seed!r}.")
        for name in ("lr", "l2", "weight_decay", "lr_decay", "dropout"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of a run must be a number ≥ 0, got {value!r}.")
        if self.dropout is not None and self.dropout >= 1:
            raise ValueError(f"dropout of a run must be below 1, got {self.dropout!r}; 0.5 drops half of the units.")


def _as_indices(pair: tuple[IndexLike, IndexLike] | None, name: str) -> tuple[Tensor, Tensor] | None:
    """Return the row numbers of both sets as int64 tensors on the CPU; int64 tensors are not copied."""
    if pair is None:
        return None
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} of a run must be a pair of lists of row numbers, one for set 0 and one for set 1.")
    first, second = (v.cpu() if isinstance(v, Tensor) else torch.tensor(np.asarray(v)) for v in pair)
    for index in (first, second):
        if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
            raise ValueError(
                f"{name} must be two 1-D lists of row numbers, got {index.dtype} of shape {tuple(index.shape)}."
            )
    return first.to(torch.int64), second.to(torch.int64)


@dataclass(frozen=True)
class Groups:
    """Order of the runs in which every ``width`` consecutive runs share batches, so each batch is gathered only once.

    ``order[k]`` is the position of run k in the caller's list.
    """

    order: list[int]
    count: int
    width: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Groups:
        """Return groups of the largest possible width; all groups have the same width."""
        groups: dict[Hashable, list[int]] = defaultdict(list)
        contents: dict[int, bytes] = {}
        for position, run in enumerate(runs):
            indices = (*run.index, *(run.held_out_index or ()))
            for index in indices:
                if id(index) not in contents:
                    contents[id(index)] = index.numpy().tobytes()
            groups[run.seed, *(contents[id(index)] for index in indices)].append(position)
        width = math.gcd(*map(len, groups.values()))
        return cls([position for group in groups.values() for position in group], len(runs) // width, width)


def initial_model(name: str, n_features: int, params: Mapping[str, Any] | None, seed: int) -> nn.Module:
    """Return the initial model for this seed, which is the same as in a single run."""
    if name not in ("linear", "mlp"):
        raise ValueError(
            f"batched training supports only 'linear' and 'mlp' models, got {name!r}; train other models with Trainer."
        )
    return build_model(name, (n_features,), params, seed)


def unsupported_option(options: RunOptions) -> str | None:
    """Return the first option that batched training does not support, or None.

    Own functions of a batch are not supported, because they may mix the rows of different runs or read values from the
    device. Named augmentations need ``image_shape``, because rows are vectors.
    """
    if callable(options.augment) or (options.augment is not None and options.image_shape is None):
        return "augment"
    if options.consistency is not None and callable(options.consistency.strong):
        return "consistency with a function as strong view"
    return next((name for name, neutral in UNSUPPORTED.items() if getattr(options, name) != neutral), None)


def check_options(options: RunOptions) -> None:
    """Raise an error for options that batched training does not support."""
    if (name := unsupported_option(options)) is not None:
        raise ValueError(f"batched training does not support {name}; train these runs one by one with Trainer.")
    if not isinstance(options.optimizer, str):
        kind = getattr(options.optimizer, "__name__", type(options.optimizer).__name__)
        raise ValueError(f"batched training requires optimizer='adam', 'adamw' or 'sgd', got {kind}.")


def check_runs(runs: Sequence[Run], table: Tensor) -> None:
    """Raise an error if the runs cannot be trained together on this table."""
    if table.ndim != 2:
        raise ValueError(f"X must be two-dimensional (rows, columns), got shape {tuple(table.shape)}; reshape it.")
    if not runs:
        raise ValueError("batched training needs at least one run, got an empty list.")
    for name in ("sizes", "held_out_sizes"):
        found = {getattr(run, name) for run in runs}
        if len(found) > 1:
            first, second = sorted(found)[:2]
            raise ValueError(
                f"runs that are trained together must have equal set sizes, got {name} {first} and {second}; use "
                "train_runs, which groups runs by size."
            )
    if not all(runs[0].sizes):
        raise ValueError(f"both sets of a run must contain rows, got sizes {runs[0].sizes}.")
    for run in runs:
        for index in (*run.index, *(run.held_out_index or ())):
            outside = index[(index < 0) | (index >= len(table))]
            if len(outside):
                raise ValueError(
                    f"a run uses row {int(outside[0])}, but the table has {len(table):,} rows, numbered from 0."
                )
