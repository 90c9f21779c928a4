"""``uulearn evaluate`` and ``uulearn report``: what a model is worth, in a few lines or on a page."""

from __future__ import annotations

from pathlib import Path

import typer

from uulearn.app.model import TableModel


def run_evaluate(
    model: Path,
    first: str,
    second: str | None,
    *,
    labels: str | None,
    positive: str | None,
    set_priors: tuple[float, float] | str | None,
    target_prior: float | None,
    as_json: bool,
    sheet: str | None = None,
) -> None:
    """Evaluate a model by labels, or without any by two unlabeled files."""
    from uulearn.cli.score_table import evaluate_labels, evaluate_sets, remark_on, show_judgement, show_labelled

    if (labels is None) == (second is None):
        raise ValueError(
            "evaluate takes either two files of unlabeled rows, A and B, or one file with --labels COLUMN; "
            f"got {'both' if second is not None else 'one file without --labels'}."
        )
    if isinstance(set_priors, str):
        raise ValueError("--set-priors of evaluate takes two shares such as 0.8 0.2, not auto.")
    loaded = TableModel.load(model)
    if labels is not None:
        chosen = loaded if target_prior is None else loaded.with_target_prior(target_prior)
        show_labelled(evaluate_labels(chosen, first, labels, positive, sheet), as_json)
        return
    assert second is not None
    evaluated = evaluate_sets(loaded, first, second, set_priors, target_prior, sheet)
    show_judgement(evaluated, as_json)
    remark_on(evaluated)


def run_report(model: Path, out: Path | None) -> None:
    """Write the page."""
    from uulearn.io.writing import explained
    from uulearn.report import write_report

    loaded = TableModel.load(model)
    path = out or model / "report.html"
    with explained(path):
        write_report(path, loaded.facts, loaded.classifier.history_)
    typer.echo(f"report written to {path}")
