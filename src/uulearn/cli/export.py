"""``uulearn export``: a model as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uulearn.estimator import UUClassifier
from uulearn.estimator.persistence import read_attached
from uulearn.io.writing import explained

if TYPE_CHECKING:
    from uulearn.app.model import TableModel


def run_export(model: Path, out: Path) -> None:
    """Export a model, with its pipeline where that is made of numbers alone."""
    from uulearn.export import export_onnx

    if read_attached(model):
        from uulearn.app.model import TableModel
        from uulearn.export.tabular import register_encoder

        register_encoder()
        loaded = TableModel.load(model)
        with explained(out):
            exported = export_onnx(loaded.classifier, out, pipeline=loaded.encoder, input_type=_input_type(loaded))
    else:
        classifier = UUClassifier.load(model, device="cpu")
        with explained(out):
            exported = export_onnx(classifier, out)
    typer.echo(str(exported))


def _input_type(model: TableModel) -> str:
    """Bytes for images; of tables every digit, since a column may hold times in seconds."""
    return "uint8" if model.encoder is None else "float64"
