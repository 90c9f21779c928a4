"""The settings of one run in batched training, and groups of runs that share their batches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk import UUCoefficients, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method

IndexLike = Tensor | np.ndarray | Sequence[int]


@dataclass(frozen=True, eq=False)
class Run:
    """One run in batched training.

    Parameters
    ----------
    rows : (indices, indices)
        Row numbers of set 0 and set 1 in the shared table.
    set_priors, target_prior, method, slope
        The risk, as in `uulearn.UURisk`.
    seed : int
        Seed of initial weights and shuffles, with the same meaning as for a single run.
    lr, l2, weight_decay : float, optional
        Override those of the training options.
    lr_decay : float
        The learning rate of step t is ``lr / (1 + lr_decay·t)``, as in Keras.
    dropout : float, optional
        Overrides that of the model. The dropped units differ from those of a single run, as runs share a generator.
    held_out : (indices, indices), optional
        Row numbers of held-out rows of set 0 and set 1: their risk is recorded every epoch.
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

    def __post_init__(self) -> None:
        for name in ("rows", "held_out"):
            pair = getattr(self, name)
            if pair is not None:
                if not isinstance(pair, tuple | list) or len(pair) != 2:
                    raise ValueError(f"{name} of a run must be a pair: the row numbers of set 0 and of set 1.")
                object.__setattr__(self, name, (as_index(pair[0], name), as_index(pair[1], name)))
        if self.seed < 0:
            raise ValueError(f"seed of a run must be ≥ 0, got {self.seed!r}.")
        uu_coefficients(self.set_priors, self.target_prior)
        get_method(self.method, self.slope)
        for name in ("lr", "l2", "weight_decay", "lr_decay", "dropout"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} of a run must be a number ≥ 0, got {value!r}.")
        if self.dropout is not None and self.dropout >= 1:
            raise ValueError(f"dropout of a run must be below 1, got {self.dropout!r}; 0.5 drops half of the units.")

    @property
    def index(self) -> tuple[Tensor, Tensor]:
        """Row numbers of both sets."""
        return cast(tuple[Tensor, Tensor], self.rows)

    @property
    def held_out_index(self) -> tuple[Tensor, Tensor] | None:
        """Row numbers of the held-out rows of both sets."""
        return cast(tuple[Tensor, Tensor] | None, self.held_out)

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of rows of each set."""
        return len(self.rows[0]), len(self.rows[1])

    @property
    def held_out_sizes(self) -> tuple[int, int]:
        """Number of held-out rows of each set."""
        return (0, 0) if self.held_out is None else (len(self.held_out[0]), len(self.held_out[1]))

    @property
    def coefficients(self) -> UUCoefficients:
        """Coefficients a, b, c, d of the risk."""
        return uu_coefficients(self.set_priors, self.target_prior)

    @property
    def resolved_method(self) -> Method:
        """The method with its corrections."""
        return get_method(self.method, self.slope)


def as_index(values: IndexLike, name: str) -> Tensor:
    """Row numbers as an int64 tensor on the CPU; such a tensor is returned as it is, others are copied."""
    if isinstance(values, Tensor) and values.dtype == torch.int64 and values.device.type == "cpu" and values.ndim == 1:
        return values  # many runs may share it
    index = torch.tensor(np.asarray(values.cpu() if isinstance(values, Tensor) else values))
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            f"{name} must be two one-dimensional lists of row numbers, got {index.dtype} {tuple(index.shape)}."
        )
    return index.to(torch.int64)


@dataclass(frozen=True)
class Groups:
    """An order of the runs in which each ``width`` neighbors use the same batches, which are then gathered once.

    ``order[k]`` is the position, in the caller's list, of the run at place k.
    """

    order: list[int]
    count: int
    width: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Groups:
        """Groups of the largest possible width; all groups have the same width."""
        groups: dict[Hashable, list[int]] = defaultdict(list)
        contents: dict[int, bytes] = {}

        def content(index: Tensor) -> bytes:
            if id(index) not in contents:
                contents[id(index)] = index.numpy().tobytes()
            return contents[id(index)]

        for position, run in enumerate(runs):
            held_out = tuple(map(content, run.held_out_index or ()))
            groups[run.seed, tuple(map(content, run.index)), held_out].append(position)
        width = math.gcd(*map(len, groups.values()))
        return cls([position for group in groups.values() for position in group], len(runs) // width, width)
