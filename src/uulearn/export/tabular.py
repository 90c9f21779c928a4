"""Export the encoder of a table as part of an ONNX graph.

A graph takes numbers, so columns of words, dates and text are refused by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uulearn.export.columns import Imputed, Picked, SideBySide, constant
from uulearn.export.quantiles import interpolate
from uulearn.export.transformers import refusal, register_transformer
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.schema import TableColumn, join_names

NAN = float("nan")


class _Scores(nn.Module):
    """Number columns: values interpolated between knots, fills for missing values, then marks of missing values."""

    knots: Tensor
    heights: Tensor
    fills: Tensor
    marked: Tensor

    def __init__(self, arrays: dict[str, Any], columns: list[TableColumn]) -> None:
        super().__init__()
        self.register_buffer("knots", constant(arrays["number.knots"].T))
        self.register_buffer("heights", constant(arrays["number.heights"].T))
        self.register_buffer("fills", constant(arrays["number.fills"]))
        self.register_buffer("marked", torch.from_numpy(_with_missing(columns)))

    def forward(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        scores = torch.where(missing, self.fills, interpolate(torch.where(missing, 0.0, x), self.knots, self.heights))
        return torch.cat([scores, missing[:, self.marked].double()], 1) if len(self.marked) else scores


def register_encoder() -> None:
    """Make `TableEncoder` known to `uulearn.export`."""
    register_transformer(TableEncoder, checks_rows=False)(_fold_encoder)


def _fold_encoder(encoder: Any, name: str) -> nn.Module:
    numbers, booleans = encoder.of_kind("number"), encoder.of_kind("boolean")
    others = [column.name for column in encoder.schema.columns if column not in (*numbers, *booleans)]
    if others:
        raise refusal(encoder, name or "encoder", f"encodes the columns {join_names(others)}, which are not numbers")
    branches: list[nn.Module] = []
    if numbers:
        branches.append(nn.Sequential(_picked(encoder, numbers), _Scores(encoder.arrays_, numbers)))
    if booleans:
        fills = encoder.arrays_["boolean.fills"]
        imputed = Imputed(fills, NAN, list(range(len(booleans))), _with_missing(booleans))
        branches.append(nn.Sequential(_picked(encoder, booleans), imputed))
    return SideBySide(branches)


def _picked(encoder: TableEncoder, columns: list[TableColumn]) -> Picked:
    return Picked([encoder.schema.names.index(column.name) for column in columns])


def _with_missing(columns: list[TableColumn]) -> Any:
    return np.array([place for place, column in enumerate(columns) if column.missing], dtype=np.int64)
