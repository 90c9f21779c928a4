"""What transformers do to float64 rows of shape (n, d), as modules of operations that ONNX has.

Numbers are buffers in float64: the exporter rounds those that stand in the code to float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def constant(values: Any) -> Tensor:
    """Numbers in float64, of their own."""
    return torch.from_numpy(np.array(values, dtype=np.float64))


class Guarded(nn.Module):
    """A transformer that makes rows infinite which scikit-learn's would refuse."""

    def __init__(self, inner: nn.Module, allows_missing: bool) -> None:
        super().__init__()
        self.inner, self.allows_missing = inner, allows_missing

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        bad = torch.isinf(x) if self.allows_missing else ~torch.isfinite(x)
        return torch.where(bad.any(1, keepdim=True), torch.inf, self.inner(x))


class Line(nn.Module):
    """(x − shift)·factor + offset for every column, clipped if there are limits."""

    shift: Tensor
    factor: Tensor
    offset: Tensor
    limits: Tensor | None

    def __init__(
        self, shift: Any = None, factor: Any = None, offset: Any = None, limits: tuple[float, float] | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("shift", constant(0.0 if shift is None else shift))
        self.register_buffer("factor", constant(1.0 if factor is None else factor))
        self.register_buffer("offset", constant(0.0 if offset is None else offset))
        self.register_buffer("limits", None if limits is None else constant(limits))

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        x = (x - self.shift) * self.factor + self.offset
        if self.limits is None:
            return x
        low, high = self.limits[0], self.limits[1]  # compared, since a clip need not keep NaN outside torch
        return torch.where(x < low, low, torch.where(x > high, high, x))


class Imputed(nn.Module):
    """Missing values replaced in the columns that are kept, then a column of 0 and 1 for each that is indicated."""

    statistics: Tensor
    missing: Tensor
    kept: Tensor
    indicated: Tensor

    def __init__(self, statistics: Any, missing: float, kept: Any, indicated: Any) -> None:
        super().__init__()
        self.looks_for_nan = math.isnan(missing)
        self.register_buffer("missing", constant(missing))
        self.register_buffer("statistics", constant(statistics))
        self.register_buffer("kept", torch.as_tensor(kept, dtype=torch.int64))
        self.register_buffer("indicated", torch.as_tensor(indicated, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        missing = torch.isnan(x) if self.looks_for_nan else x == self.missing
        filled = torch.where(missing[:, self.kept], self.statistics, x[:, self.kept])
        return torch.cat([filled, missing[:, self.indicated].double()], 1) if len(self.indicated) else filled


class Projected(nn.Module):
    """Rows along components, moved and divided."""

    components: Tensor
    offset: Tensor
    divisor: Tensor

    def __init__(self, components: Any, offset: Any = 0.0, divisor: Any = 1.0) -> None:
        super().__init__()
        self.register_buffer("components", constant(components).T.contiguous())
        self.register_buffer("offset", constant(offset))
        self.register_buffer("divisor", constant(divisor))

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        return (x @ self.components - self.offset) / self.divisor


class Picked(nn.Module):
    """Some of the columns."""

    index: Tensor

    def __init__(self, index: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("index", torch.tensor(list(index), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        return x[:, self.index]


class SideBySide(nn.Module):
    """The columns of several modules, in order."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Float64 rows of shape (n, d) to rows of shape (n, d′)."""
        return torch.cat([branch(x) for branch in self.branches], 1) if self.branches else x[:, :0]
