"""How the blocks of a pipeline that are about numbers become part of an ONNX graph.

Columns of words, dates and text are refused by name: a graph takes numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from uulearn.export.columns import Imputed, constant
from uulearn.export.quantiles import interpolate
from uulearn.export.transformers import register_transformer
from uulearn.tabular.blocks import Booleans, Numbers

NAN = float("nan")


class _Scores(nn.Module):
    """`Numbers`: values interpolated between knots, fills for what is missing, then indicators."""

    knots: Tensor
    heights: Tensor
    fills: Tensor
    indicated: Tensor

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.register_buffer("knots", constant(block.knots_.T))
        self.register_buffer("heights", constant(block.heights_.T))
        self.register_buffer("fills", constant(block.fills_.reshape(-1)))
        self.register_buffer("indicated", _indicated(block))

    def forward(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        scores = torch.where(missing, self.fills, interpolate(torch.where(missing, 0.0, x), self.knots, self.heights))
        return torch.cat([scores, missing[:, self.indicated].double()], 1) if len(self.indicated) else scores


def register_blocks() -> None:
    """Make the blocks known to `uulearn.export`."""
    register_transformer(Numbers, checks_rows=False)(_numbers)
    register_transformer(Booleans, checks_rows=False)(_booleans)


def _numbers(block: Any, name: str) -> nn.Module:
    return _Scores(block)


def _booleans(block: Any, name: str) -> nn.Module:
    return Imputed(block.fills_, NAN, list(range(len(block.missing))), _indicated(block))


def _indicated(block: Any) -> Tensor:
    return torch.tensor([place for place, missing in enumerate(block.missing) if missing], dtype=torch.int64)
