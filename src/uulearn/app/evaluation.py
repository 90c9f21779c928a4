"""Evaluate a saved model on two unlabeled files, or on one file with a label column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.app.model import TableModel
from uulearn.app.scoring import score_chunks
from uulearn.app.settings import check_different_files
from uulearn.estimator.new_rows import RowCounter
from uulearn.exceptions import TableError
from uulearn.metrics import Evaluation, evaluate, evaluate_labeled
from uulearn.metrics.calibration import calibration_error
from uulearn.tabular.unreadable import UnreadableCounter

POSITIVE_WORDS = {"1", "true", "yes", "y", "t", "positive", "pos", "+", "1.0"}
"""Labels that mean "positive" unless the user specifies the label of the positive class."""
NEGATIVE_WORDS = {"0", "false", "no", "n", "f", "negative", "neg", "-", "-1", "0.0", "-1.0"}


@dataclass(frozen=True)
class LabeledEvaluation:
    """Metrics of a model on labeled rows."""

    evaluation: Evaluation
    class_prior: float
    """Class prior at which the accuracy is estimated: the requested target prior, or the prior of the labeled rows."""
    confusion: dict[str, int]
    calibration_error: float
    brier: float


def evaluate_sets(
    model: TableModel,
    first: str,
    second: str,
    set_priors: tuple[float, float] | None,
    target_prior: float | None,
    sheet: str | None = None,
    counters: Sequence[RowCounter | None] = (None, None),
    unreadable: Sequence[UnreadableCounter | None] = (None, None),
) -> Evaluation:
    """Evaluate a model without labels, on two unlabeled files with the given class priors.

    The rows of each file are added to its counter, and cells that cannot be read to its ``unreadable``.
    """
    check_different_files(first, second)
    model = model.with_target_prior(target_prior)
    classifier = model.classifier
    scores = [
        np.concatenate(
            [own.score for _, own in score_chunks(model, path, sheet=sheet, counter=counter, unreadable=bad)]
        )
        for path, counter, bad in zip((first, second), counters, unreadable, strict=True)
    ]
    priors = set_priors or classifier.set_priors
    assert priors is not None  # a model of `uulearn fit` always has them
    sets = np.repeat([0, 1], [len(own) for own in scores])
    return evaluate(np.concatenate(scores), sets, priors, classifier.target_prior)


def evaluate_labels(
    model: TableModel,
    rows: str,
    column: str,
    positive: str | None,
    target_prior: float | None,
    sheet: str | None,
    counter: RowCounter | None = None,
    unreadable: UnreadableCounter | None = None,
) -> LabeledEvaluation:
    """Evaluate a model on labeled rows, at the class prior of these rows or at ``target_prior``.

    The rows are added to the ``counter``, and cells that cannot be read to ``unreadable``.
    """
    model = model.with_target_prior(target_prior)
    found, labels, missing, seen = [], list[NDArray[np.int64]](), 0, set[str]()
    for frame, scored in score_chunks(
        model, rows, required=column, sheet=sheet, counter=counter, unreadable=unreadable
    ):
        words = [
            _to_word(value) if known else "" for value, known in zip(frame[column], frame[column].notna(), strict=True)
        ]
        missing += words.count("")
        seen |= set(words) if len(seen) < 3 else set()
        found.append(scored)
        labels.append(read_labels([word for word in words if word], positive, column))
    if missing:
        raise TableError(
            f"{'1 row has' if missing == 1 else f'{missing:,} rows have'} no label in column {column!r} (empty, or a "
            "marker such as NA); remove the rows, or add the labels."
        )
    y = np.concatenate(labels)
    if y.all() or not y.any():
        wanted = "1, true or yes" if positive is None else repr(positive)
        raise TableError(
            f"{'every' if y.any() else 'no'} row has the label {wanted}: column {column!r} contains "
            f"{', '.join(map(repr, sorted(seen)[:3]))}; pass rows of both classes, or another label as --positive."
        )
    score, probability, predicted = map(np.concatenate, zip(*found, strict=True))
    outcomes = {"true_positive": (1, 1), "false_positive": (1, 0), "false_negative": (0, 1), "true_negative": (0, 0)}
    return LabeledEvaluation(
        evaluate_labeled(score, y, target_prior),
        float(y.mean()) if target_prior is None else target_prior,
        {name: int(((predicted == p) & (y == t)).sum()) for name, (p, t) in outcomes.items()},
        float(calibration_error(probability, y)),
        float(np.mean((probability - y) ** 2)),
    )


def read_labels(words: list[str], positive: str | None, column: str) -> NDArray[np.int64]:
    """Return the labels of one chunk: 1 for the value ``positive``, or for words such as "yes" if it is None."""
    if positive is not None:
        return np.array([word == positive for word in words], dtype=np.int64)
    known = [1 if word.lower() in POSITIVE_WORDS else 0 if word.lower() in NEGATIVE_WORDS else None for word in words]
    if None in known:
        raise TableError(
            f"column {column!r} contains {words[known.index(None)]!r}, which is not a label like 1, 0, yes or no; "
            "pass the label of the positive class with --positive VALUE."
        )
    return np.array(known, dtype=np.int64)


def _to_word(value: Any) -> str:
    """Return the text of a cell without surrounding spaces; 1.0 becomes "1"."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()
