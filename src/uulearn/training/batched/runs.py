"""What is particular to one run of a stack, and which runs can share the rows of a batch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk import UUCoefficients, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method

IndexLike = Tensor | np.ndarray | Sequence[int]


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a stack.

    Parameters
    ----------
    rows : (indices, indices)
        Rows of the shared table that form set 0 and set 1.
    set_priors, target_prior, method, slope
        The risk, as in `uulearn.UURisk`.
    seed : int
        Of initial weights, shuffles and dropout; the run is the one that `uulearn.UUClassifier` makes with it.
    lr, l2, weight_decay : float, optional
        In place of the stack's own.
    lr_decay : float
        The learning rate of step t is ``lr / (1 + lr_decay·t)``, as Keras's optimizers have it.
    dropout : float, optional
        In place of the model's own. Which units are dropped differs from the run alone: the generator is shared.
    held_out : (indices, indices), optional
        Rows of the shared table that are held out of set 0 and of set 1: their risk is recorded every epoch.
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
                    raise ValueError(f"{name} of a run must be a pair, the row numbers of set 0 and of set 1.")
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
        first, second = self.rows
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        return first, second

    @property
    def held_out_index(self) -> tuple[Tensor, Tensor] | None:
        """Row numbers held out of both sets."""
        if self.held_out is None:
            return None
        first, second = self.held_out
        assert isinstance(first, Tensor)
        assert isinstance(second, Tensor)
        return first, second

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
        """a, b, c, d of the risk."""
        return uu_coefficients(self.set_priors, self.target_prior)

    @property
    def resolved_method(self) -> Method:
        """The method with its corrections."""
        return get_method(self.method, self.slope)


def as_index(values: IndexLike, name: str) -> Tensor:
    """Row numbers as an int64 tensor on the CPU, of its own memory unless it was one already."""
    if isinstance(values, Tensor) and values.dtype == torch.int64 and values.device.type == "cpu" and values.ndim == 1:
        return values  # many runs may share one
    index = torch.tensor(np.asarray(values.cpu() if isinstance(values, Tensor) else values))
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            f"{name} must be two one-dimensional lists of row numbers, got {index.dtype} {tuple(index.shape)}."
        )
    return index.to(torch.int64)


@dataclass(frozen=True)
class Groups:
    """An order of the runs in which each ``width`` neighbours draw the same batches, so that these are gathered once.

    ``order[k]`` is the position, in the caller's list, of the run at place k of the stack.
    """

    order: list[int]
    count: int
    width: int

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Groups:
        """As wide as the runs allow: all groups must have one width."""
        members: dict[Hashable, list[int]] = defaultdict(list)
        fingerprints: dict[int, bytes] = {}

        def print_of(index: Tensor) -> bytes:
            if id(index) not in fingerprints:
                fingerprints[id(index)] = index.numpy().tobytes()
            return fingerprints[id(index)]

        for position, run in enumerate(runs):
            held_out = tuple(map(print_of, run.held_out_index or ()))
            members[run.seed, tuple(map(print_of, run.index)), held_out].append(position)
        width = math.gcd(*map(len, members.values()))
        return cls([position for group in members.values() for position in group], len(runs) // width, width)
