"""``uulearn predict`` and ``evaluate`` for models made by ``uulearn fit``: files of rows, streamed."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from numpy.typing import NDArray

from uulearn.app.model import Scored, TableModel
from uulearn.exceptions import TableError
from uulearn.io.writing import TableWriter
from uulearn.metrics import Evaluation, evaluate, evaluate_labelled
from uulearn.metrics.calibration import calibration_error
from uulearn.tabular.images import ImageSchema, base_folder, open_rows

if TYPE_CHECKING:
    import pandas as pd

TRUE_WORDS = {"1", "true", "yes", "y", "t", "positive", "pos", "+", "1.0"}
FALSE_WORDS = {"0", "false", "no", "n", "f", "negative", "neg", "-", "-1", "0.0", "-1.0"}
Labels = NDArray[np.int64]


def predict_table(
    model: TableModel,
    rows: str,
    out: str,
    *,
    format: str | None = None,
    sheet: str | None = None,
    target_prior: float | None = None,
    keep_columns: bool = False,
) -> int:
    """Score a file chunk by chunk, in the order of its rows; returns the number of rows.

    The id columns that it has are kept, or with ``keep_columns`` all of them.
    """
    model = model if target_prior is None else model.with_target_prior(target_prior)
    schema, count = model.schema, 0
    names = (*schema.ids, schema.column) if isinstance(schema, ImageSchema) else schema.ids
    with TableWriter(out, float_format="%.6g") as writer:
        for frame, scored in score_chunks(model, rows, format=format, sheet=sheet):
            kept = list(frame) if keep_columns else [name for name in names if name in frame]
            taken = [name for name in kept if name in Scored._fields or name == "class"]
            if taken:
                raise TableError(f"{rows} has a column {taken[0]!r} already, as predict writes one; call it otherwise.")
            writer.write(as_frame(scored, frame[kept]))
            count += len(frame)
    return count


def as_frame(scored: Scored, ids: pd.DataFrame | None = None) -> pd.DataFrame:
    """What predict writes of some rows."""
    import pandas as pd

    out = pd.DataFrame(index=range(len(scored.score))) if ids is None else ids.copy()
    out["score"], out["probability"], out["class"] = scored
    return out


def evaluate_sets(
    model: TableModel,
    first: str,
    second: str,
    set_priors: tuple[float, float] | None,
    target_prior: float | None,
    sheet: str | None = None,
) -> Evaluation:
    """Evaluate a model on more rows of the two kinds it was trained on, without labels."""
    model = model if target_prior is None else model.with_target_prior(target_prior)
    classifier = model.classifier
    scores = [
        np.concatenate([scored.score for _, scored in score_chunks(model, path, sheet=sheet)])
        for path in (first, second)
    ]
    priors = set_priors or classifier.set_priors or (1.0, 0.0)  # a fit always has some
    sets = np.repeat([0, 1], [len(own) for own in scores])
    return evaluate(np.concatenate(scores), sets, priors, classifier.target_prior)


def remark_on(evaluated: Evaluation) -> None:
    """Say, on standard error, where an estimate cannot be right."""
    accuracy = evaluated.accuracy
    if accuracy.value < 0.5 - 4 * accuracy.standard_error:
        _warn("the estimate is far below chance: pass the two files in the order in which the model was fitted.")
    if accuracy.value > 1 or evaluated.auc.value > 1 + 4 * evaluated.auc.standard_error:
        _warn(
            "the estimate is beyond what is possible: by chance, if there are few rows; or the rows were trained on, "
            "the files differ in more than their shares of positives, or the shares are further apart than stated."
        )


@dataclasses.dataclass(frozen=True)
class LabelledResult:
    """What labels say of a model."""

    evaluation: Evaluation
    confusion: dict[str, int]
    calibration_error: float
    brier: float


def evaluate_labels(
    model: TableModel, rows: str, column: str, positive: str | None, sheet: str | None = None
) -> LabelledResult:
    """Evaluate a model on rows that have a label each."""
    found: list[Scored] = []
    labels: list[Labels] = []
    missing = 0
    for frame, scored in score_chunks(model, rows, also=column, sheet=sheet):
        there = has_label(frame[column])
        missing += int((~there).sum())
        found.append(scored)
        labels.append(read_labels(frame[column][there], positive, column))
    if missing:
        without = "1 row has" if missing == 1 else f"{missing:,} rows have"
        raise TableError(
            f"{without} no label in column {column!r} (nothing, or a mark such as NA); leave them out, or write there "
            "what they are."
        )
    y = np.concatenate(labels)
    score, probability, predicted = (np.concatenate([getattr(one, name) for one in found]) for name in Scored._fields)
    counts = {
        name: int(((predicted == p) & (y == t)).sum())
        for name, p, t in (
            ("true_positive", 1, 1), ("false_positive", 1, 0), ("false_negative", 0, 1), ("true_negative", 0, 0),
        )
    }  # fmt: skip
    return LabelledResult(
        evaluate_labelled(score, y),
        counts,
        float(calibration_error(probability, y)),
        float(np.mean((probability - y) ** 2)),
    )


def score_chunks(
    model: TableModel, path: str, *, also: str | None = None, format: str | None = None, sheet: str | None = None
) -> Iterator[tuple[pd.DataFrame, Scored]]:
    """The chunks of a file with their scores; ``also`` is a column that must be there."""
    rows = 0
    with open_rows(path, images=isinstance(model.schema, ImageSchema), format=format, sheet=sheet) as reader:
        if also is not None and also not in reader.columns:
            raise TableError(f"{reader.name} has no column {also!r}; it has {', '.join(reader.columns[:20])}.")
        for frame in reader:
            rows += len(frame)
            yield frame, model.score(frame, name=reader.name, folder=base_folder(path))
        if not rows:
            raise TableError(f"{reader.name} holds no rows; pass a file with at least one.")


def has_label(values: pd.Series) -> NDArray[np.bool_]:
    """Which cells of a column hold something."""
    found = zip(values, values.notna(), strict=True)
    return np.array([known and _word(value) != "" for value, known in found], dtype=np.bool_)


def read_labels(values: Any, positive: str | None, column: str) -> Labels:
    """Labels of one chunk, none missing: 1 for ``positive``, or for what is plainly so."""
    words = [_word(value) for value in values]
    if positive is not None:
        return np.array([word == positive for word in words], dtype=np.int64)
    known = [1 if word.lower() in TRUE_WORDS else 0 if word.lower() in FALSE_WORDS else None for word in words]
    if None in known:
        odd = words[known.index(None)]
        raise TableError(
            f"column {column!r} holds {odd!r}, which is neither 1 nor 0, yes nor no; say which value is the positive "
            "class with --positive VALUE."
        )
    return np.array(known, dtype=np.int64)


def _word(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _warn(sentence: str) -> None:
    typer.echo(f"warning: {sentence}", err=True)


def show_judgement(evaluation: Evaluation, as_json: bool) -> None:
    """The figures of a model, for people or for scripts."""
    typer.echo(json.dumps(dataclasses.asdict(evaluation), indent=1) if as_json else str(evaluation))


def show_labelled(result: LabelledResult, as_json: bool) -> None:
    """The figures of a model by labels."""
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(result), indent=1))
        return
    c = result.confusion
    typer.echo(str(result.evaluation))
    if result.evaluation.auc.interval[1] < 0.5:
        _warn(
            "positives score lower than negatives: the shares of positives were probably given in the wrong order; fit "
            "again with the two of --set-priors exchanged."
        )
    typer.echo(f"{'calibration error':<20}{result.calibration_error:.3f}")
    typer.echo(f"{'Brier score':<20}{result.brier:.3f}")
    typer.echo(f"{'':<20}{'predicted +':>12}{'predicted −':>13}")
    typer.echo(f"{'really positive':<20}{c['true_positive']:>12,}{c['false_negative']:>13,}")
    typer.echo(f"{'really negative':<20}{c['false_positive']:>12,}{c['true_negative']:>13,}")


def say_scored(count: int, out: str) -> None:
    """On standard error, since standard output may be the scores."""
    if out != "-":
        print(f"{count:,} rows scored, written to {Path(out)}", file=sys.stderr)
