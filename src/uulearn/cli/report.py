"""``uulearn report``: write an HTML page about a model."""

from pathlib import Path
from typing import Annotated

import typer

from uulearn.cli import fast_imports
from uulearn.cli.options import argument, option


def report(
    model: Annotated[Path, argument("MODEL", "Directory written by fit.")],
    out: Annotated[Path | None, option("FILE", "HTML file to write. Default: report.html in MODEL.")] = None,
) -> None:
    """Write an HTML report with the estimated accuracy, the training history and warnings."""
    with fast_imports():
        from uulearn.app.model import TableModel
        from uulearn.io.formats import printable
        from uulearn.io.writing import explained
        from uulearn.report import write_report

    loaded = TableModel.load(model)
    facts = loaded.fit_facts
    path = out or model / "report.html"
    with explained(path):
        write_report(path, facts, loaded.classifier.history_)
    typer.echo(f"report written to {printable(str(path))}")
