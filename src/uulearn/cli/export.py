"""``uulearn export``: write a model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from uulearn.cli import fast_imports
from uulearn.cli.options import argument, option


def export(
    model: Annotated[Path, argument("MODEL", "Model directory written by fit or UUClassifier.save.")],
    out: Annotated[Path, option("FILE", "ONNX file to write.")] = Path("model.onnx"),
) -> None:
    """Write a model as an ONNX file and check its scores."""
    with fast_imports():
        from uulearn.app.model import TableModel, load_model
        from uulearn.defaults import AUTO, BOOSTING
        from uulearn.export import export_onnx
        from uulearn.io.writing import explained

    loaded = load_model(model)
    classifier = loaded.classifier if isinstance(loaded, TableModel) else loaded
    if (kind := classifier.learner_.kind) in (AUTO, BOOSTING):
        raise ValueError(f"models of --model {kind} cannot be exported; fit again with --model mlp or --model linear.")
    with explained(out):
        if isinstance(loaded, TableModel):
            exported = export_onnx(classifier, out, input_type="auto" if loaded.images is None else "uint8")
        else:
            exported = export_onnx(classifier, out)
    typer.echo(str(exported))
