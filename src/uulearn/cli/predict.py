"""``uulearn predict``: rows in, scores out."""

from __future__ import annotations

import csv
import io
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.estimator import UUClassifier
from uulearn.estimator.persistence import read_attached
from uulearn.tables.writing import explained
from uulearn.training.storage import write_atomically


def run_predict(
    model: Path, rows: str, out: str = "-", *, format: str | None = None, target_prior: float | None = None
) -> None:
    """Score the rows of a file and write score, probability and class of each.

    A model that `uulearn fit` made reads tables, streamed; one that `UUClassifier.save` wrote reads numbers.
    """
    if out != "-" and Path(out).is_dir():
        raise ValueError(f"{out} is a folder; pass the name of the file to write.")
    if read_attached(model):
        from uulearn.cli.score_table import predict_table, say_scored
        from uulearn.tables.model import TableModel

        say_scored(predict_table(TableModel.load(model), rows, out, format=format, target_prior=target_prior), out)
    else:
        _predict_numbers(model, Path(rows), out, target_prior)


def _predict_numbers(model: Path, rows: Path, out: str, target_prior: float | None) -> None:
    classifier = UUClassifier.load(model)
    if target_prior is not None:
        classifier = classifier.retarget(target_prior)
    X = read_numbers(rows, getattr(classifier, "feature_names_in_", None))
    if hasattr(classifier, "feature_names_in_"):
        del classifier.feature_names_in_  # read_numbers has put the columns in order
    scores = classifier.decision_function(X)
    probability = classifier.predict_proba(X)[:, 1]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["score", "probability", "class"])
    writer.writerows(
        [f"{s:.6g}", f"{p:.6g}", int(s > 0)] for s, p in zip(scores.tolist(), probability.tolist(), strict=True)
    )
    if out == "-":
        sys.stdout.write(text.getvalue())
    else:
        with explained(out):
            write_atomically(Path(out), lambda path: path.write_text(text.getvalue(), encoding="utf-8"))
        print(f"{len(scores):,} rows scored, written to {out}")


def read_numbers(path: Path, names: Any = None) -> NDArray[Any]:
    """A table of numbers from ``.npy`` or CSV; with ``names``, the columns of a CSV with a header in that order."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file; pass a CSV of numbers or a .npy array.")
    if path.suffix == ".npy":
        try:
            array: NDArray[Any] = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is not a readable .npy array ({error}); write it with numpy.save.") from error
        return array
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV in UTF-8 ({error}); save it as such, or as .npy.") from error
    header = lines.pop(0) if lines and _is_header(lines[0]) else None
    if not lines:
        raise ValueError(f"{path} holds no rows; pass at least one row of numbers.")
    width = len(header or lines[0])
    table = np.empty((len(lines), width))
    for number, line in enumerate(lines):
        if len(line) != width:
            raise ValueError(
                f"{path}: row {number + 1} has {len(line)} fields and the first line {width}; mend that row."
            )
        for column, field in enumerate(line):
            if not (_is_number(field) and math.isfinite(float(field))):
                where = f"row {number + 1}, column {header[column] if header else column + 1}"[:80]
                hint = "; is the separator a comma?" if width == 1 else "; replace or remove it."
                raise ValueError(f"{path}: {field[:40]!r} in {where} is not a finite number{hint}")
            table[number, column] = float(field)
    if names is not None and header is not None:
        missing = [name for name in names if name not in header]
        if missing:
            raise ValueError(f"{path} lacks the column {missing[0]!r} that the model was trained on; add it.")
        table = table[:, [header.index(name) for name in names]]
    return table


def _is_header(line: list[str]) -> bool:
    """Names of columns; also the plain numbers, from 0 or 1, that tools write for columns without names."""
    counted = [[str(start + column) for column in range(len(line))] for start in (0, 1)]
    return not all(map(_is_number, line)) or (len(line) > 1 and line in counted)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
