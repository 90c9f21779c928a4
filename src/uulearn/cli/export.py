"""``uulearn export``: a model as ONNX."""

from __future__ import annotations

from pathlib import Path

import typer

from uulearn.estimator import UUClassifier
from uulearn.estimator.persistence import read_attached


def run_export(model: Path, out: Path) -> None:
    """Export a model, with its pipeline where that is made of numbers alone."""
    from uulearn.export import export_onnx

    if read_attached(model):
        from uulearn.tables.model import TableModel

        loaded = TableModel.load(model)
        exported = export_onnx(loaded.classifier, out, pipeline=loaded.pipeline)
    else:
        exported = export_onnx(UUClassifier.load(model, device="cpu"), out)
    typer.echo(str(exported))
