"""Convert the table encoder of `uulearn fit` to ONNX.

Numbers and booleans are columns of the input ``X``. Categories are text columns of a second input, ``categories``; the
graph looks up their codes. Date and text columns cannot be exported; they raise an error that lists the column names.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.export import steps
from uulearn.export.steps import Step
from uulearn.export.transformers import refusal, register_transformer
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.schema import OTHER, TableColumn, join_names

UNSEEN = "(a value that was not in the files)"
"""Text that represents unknown values when a file is checked."""
TEXT_INPUT = "categories"


@dataclass(frozen=True)
class CategoryColumn:
    """A category column; the graph maps its values to codes, one for each column of the one-hot block.

    The code of a listed value is its position in ``values``. The next codes are for rare values and for missing values,
    if the block has columns for them. The code −1 is encoded as a row of zeros.
    """

    name: str
    position: int
    """Index of the column in the input of the pipeline."""
    values: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def n_codes(self) -> int:
        """Number of codes, which is the width of the one-hot block."""
        return len(self.values) + self.other + self.missing

    @property
    def unseen_code(self) -> int:
        """Code for text that is not in ``values``."""
        return len(self.values) if self.other else -1

    @property
    def codes(self) -> dict[str, int]:
        """Mapping from text to code; empty text is a missing value, and any other text has the `unseen_code`."""
        return {**{value: code for code, value in enumerate(self.values)}, "": self.n_codes - 1 if self.missing else -1}

    def decode(self, codes: NDArray[Any]) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
        """Convert codes to text for the graph and to cells for the pipeline; a missing cell is None."""
        known = dict(enumerate(self.values))
        absent = np.isnan(codes) | (self.missing & (codes == self.n_codes - 1))
        texts = ["" if gone else known.get(code, UNSEEN) for code, gone in zip(codes, absent, strict=True)]
        cells = [None if gone else known.get(code, OTHER) for code, gone in zip(codes, absent, strict=True)]
        return np.array(texts, dtype=object), np.array(cells, dtype=object)


def category_columns(pipeline: Any) -> tuple[CategoryColumn, ...]:
    """Return the category columns of a table encoder, or an empty tuple for any other pipeline."""
    if not isinstance(pipeline, TableEncoder):
        return ()
    names = list(pipeline.schema_.names)
    return tuple(
        CategoryColumn(column.name, names.index(column.name), tuple(column.values), column.other, column.missing)
        for column in pipeline.schema_.of_kind("category")
    )


def add_text_input(proto: Any, columns: tuple[CategoryColumn, ...], width: int) -> None:
    """Replace the graph's input X, whose category columns contain codes, with separate inputs for numbers and text.

    The new input ``X`` contains the other columns, in the same order. The input ``categories`` contains one text column
    for each category column.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph, double = proto.graph, TensorProto.DOUBLE
    for node in graph.node:
        node.input[:] = ["encoded" if name == "X" else name for name in node.input]
    numeric = [position for position in range(width) if position not in {column.position for column in columns}]
    nodes, parts = [], ["X"] if numeric else []
    for number, column in enumerate(columns):
        text, code, part = (f"{TEXT_INPUT}_{number}_{what}" for what in ("text", "code", "column"))
        index = numpy_helper.from_array(np.array([number], dtype=np.int64), f"{text}_index")
        graph.initializer.append(index)
        keys, values = zip(*column.codes.items(), strict=True)
        nodes += [
            helper.make_node("Gather", [TEXT_INPUT, index.name], [text], axis=1),
            helper.make_node(
                "LabelEncoder", [text], [code], domain="ai.onnx.ml",
                keys_strings=keys, values_int64s=values, default_int64=column.unseen_code,
            ),
            helper.make_node("Cast", [code], [part], to=double),
        ]  # fmt: skip
        parts.append(part)
    order = np.argsort([*numeric, *(column.position for column in columns)])
    graph.initializer.append(numpy_helper.from_array(order.astype(np.int64), "column_order"))
    nodes += [
        helper.make_node("Concat", parts, ["columns"], axis=1),
        helper.make_node("Gather", ["columns", "column_order"], ["encoded"], axis=1),
    ]
    inner = list(graph.node)
    del graph.node[:], graph.input[:]
    graph.node.extend([*nodes, *inner])
    if numeric:
        graph.input.append(helper.make_tensor_value_info("X", double, ["n", len(numeric)]))
    graph.input.append(helper.make_tensor_value_info(TEXT_INPUT, TensorProto.STRING, ["n", len(columns)]))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))


@register_transformer(TableEncoder, checks_rows=False)
def _encoder(encoder: Any, name: str) -> Step:
    names, arrays = list(encoder.schema_.names), encoder.arrays_
    if others := [column.name for kind in ("date", "text") for column in encoder.schema_.of_kind(kind)]:
        raise refusal(encoder, name or "encoder", f"encodes the columns {join_names(others)}, which are dates or text")
    if name and (others := [column.name for column in encoder.schema_.columns if column.kind != "number"]):
        raise refusal(encoder, name, f"encodes the columns {join_names(others)} and is not the only step")
    branches = []
    for kind in ("number", "boolean", "category"):
        if columns := encoder.schema_.of_kind(kind):
            step = _one_hot(columns) if kind == "category" else _numbers(arrays, kind, columns)
            own = steps.select_columns([names.index(column.name) for column in columns])
            branches.append(steps.chain([own, step]))
    return steps.concatenate(branches)


def _numbers(arrays: dict[str, Any], kind: str, columns: list[TableColumn]) -> Step:
    """Return a step that encodes numbers or booleans, with missing values imputed and indicated."""
    indicated = [position for position, column in enumerate(columns) if column.missing]
    fill = steps.impute(arrays[f"{kind}.fills"], float("nan"), list(range(len(columns))), indicated)
    if kind == "boolean":
        return fill
    knots, heights = steps.constant(arrays["number.knots"].T), steps.constant(arrays["number.heights"].T)

    def apply(x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        scores = steps.interpolate(torch.where(missing, 0.0, x), knots, heights)
        return fill(torch.where(missing, torch.nan, scores))

    return apply


def _one_hot(columns: list[TableColumn]) -> Step:
    widths = [len(column.values) + column.other + column.missing for column in columns]
    column = torch.tensor(np.repeat(np.arange(len(widths)), widths))
    code = steps.constant(np.concatenate([np.arange(width) for width in widths]))
    return lambda x: (x[:, column] == code).double()
