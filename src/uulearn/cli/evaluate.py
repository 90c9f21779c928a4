"""``uulearn evaluate``: estimate the accuracy of a model, with or without labels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uulearn.cli import fast_imports
from uulearn.cli.options import (
    PRIORS,
    AsJson,
    NoCheck,
    Sheet,
    argument,
    option,
    parse_set_priors,
    print_check,
    print_unreadable,
)

if TYPE_CHECKING:
    from uulearn.app.evaluation import LabeledEvaluation
    from uulearn.metrics import Evaluation


def evaluate(
    model: Annotated[Path, argument("MODEL", "Directory written by fit.")],
    first: Annotated[str, argument("A", "New rows from the source of set 0, or labeled rows.")],
    second: Annotated[str | None, argument("B", "New rows from the source of set 1; not used with --labels.")] = None,
    labels: Annotated[str | None, option("COLUMN", "Column of A that contains the labels.")] = None,
    positive: Annotated[str | None, option("VALUE", "Label of the positive class. Default: 1, true or yes.")] = None,
    set_priors: Annotated[str | None, option(PRIORS, "Class priors of A and B. Default: same as in the fit.")] = None,
    target_prior: Annotated[float | None, option("π", "Population class prior. Default: same as in the fit.")] = None,
    sheet: Sheet = None,
    no_check: NoCheck = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on two unlabeled files or one labeled file."""
    with fast_imports():
        from uulearn.app.evaluation import evaluate_labels, evaluate_sets
        from uulearn.app.model import TableModel
        from uulearn.app.scoring import make_counter
        from uulearn.tabular.unreadable import UnreadableCounter

    priors = parse_set_priors(set_priors)
    if labels is None and positive is not None:
        raise ValueError(f"--positive {positive} requires --labels COLUMN; add --labels, or remove --positive.")
    if labels is not None and priors is not None:
        raise ValueError("--set-priors requires two unlabeled files; remove --set-priors or --labels.")
    if labels is not None and second is None:
        chosen = TableModel.load(model)
        counter, unreadable = None if no_check else make_counter(chosen), UnreadableCounter()
        _print_labeled(
            evaluate_labels(chosen, first, labels, positive, target_prior, sheet, counter, unreadable), as_json
        )
        print_unreadable(unreadable, first)
        print_check(counter, first)
        return
    if labels is not None or second is None:
        raise ValueError(
            "evaluate expects two unlabeled files, A and B, or one file with --labels COLUMN; "
            f"got {'B and --labels' if second is not None else 'one file without --labels'}."
        )
    if isinstance(priors, str):
        raise ValueError("evaluate --set-priors takes two class priors such as 0.8 0.2, not auto.")
    loaded = TableModel.load(model)
    counters = [None if no_check else make_counter(loaded) for _ in range(2)]
    of_both = [UnreadableCounter(), UnreadableCounter()]
    evaluation = evaluate_sets(loaded, first, second, priors, target_prior, sheet, counters, of_both)
    typer.echo(json.dumps(dataclasses.asdict(evaluation), indent=1) if as_json else str(evaluation))
    _warn_if_impossible(evaluation)
    for counter, unreadable, rows in zip(counters, of_both, (first, second), strict=True):
        print_unreadable(unreadable, rows)
        print_check(counter, rows)


def _warn_if_impossible(evaluation: Evaluation) -> None:
    accuracy, auc = evaluation.accuracy, evaluation.auc
    if accuracy.unclipped < 0.5 - 4 * accuracy.standard_error:
        _warn("the estimate is far below chance: pass the two files in the same order as in the fit.")
    if accuracy.unclipped > 1 or auc.unclipped > 1 + 4 * auc.standard_error:
        _warn(
            "the estimate is too high to be correct: there are too few rows, the model was trained on these rows, "
            "the mixture assumption is violated, or the true class priors are further apart than --set-priors."
        )


def _print_labeled(result: LabeledEvaluation, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(result), indent=1))
        return
    counts = result.confusion
    typer.echo(str(result.evaluation))
    if result.evaluation.auc.interval[1] < 0.5:
        _warn(
            "positives score lower than negatives: the class priors are probably in the wrong order; swap the two "
            "values of --set-priors and fit again."
        )
    typer.echo(f"accuracy at class prior {result.class_prior:.3g}; use --target-prior to evaluate at another prior")
    typer.echo(f"{'calibration error':<20}{result.calibration_error:.3f}")
    typer.echo(f"{'Brier score':<20}{result.brier:.3f}")
    typer.echo(f"{'':<20}{'predicted +':>12}{'predicted −':>13}")
    typer.echo(f"{'actual positive':<20}{counts['true_positive']:>12,}{counts['false_negative']:>13,}")
    typer.echo(f"{'actual negative':<20}{counts['false_positive']:>12,}{counts['true_negative']:>13,}")


def _warn(sentence: str) -> None:
    typer.echo(f"warning: {sentence}", err=True)
