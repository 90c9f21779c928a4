"""Score the rows of a file with a saved model, chunk by chunk."""

import copy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from uulearn.app.model import ScoredRows, TableModel, load_model, score_matrix
from uulearn.app.settings import RESULT_COLUMNS
from uulearn.data.inputs import LARGEST_INPUT
from uulearn.estimator import UUClassifier
from uulearn.estimator.new_rows import RowCounter
from uulearn.exceptions import NotAMixtureWarning, TableError
from uulearn.io.arrow import refuse_ambiguous
from uulearn.io.formats import STANDARD, array_columns, check_exists, check_table_name, resolve_format
from uulearn.io.reading import CHUNK_ROWS, TableReader, is_table_folder, open_table
from uulearn.io.writing import TableWriter
from uulearn.metrics.new_rows import MIN_ROWS, RowCheck
from uulearn.tabular.cells import BOOLEAN, NUMBER, format_value, parse_cells
from uulearn.tabular.images import ImageSchema, base_folder, open_rows
from uulearn.tabular.schema import Schema, check_has_columns, quote_value
from uulearn.tabular.unreadable import UnreadableCounter

ARRAY_CHUNK_BYTES = 2**27
"""Maximum size of an array chunk in bytes; if rows are large, a chunk has fewer than CHUNK_ROWS rows."""


def make_counter(model: TableModel | UUClassifier) -> RowCounter:
    """Return a counter that compares the rows of a file with the rows that a model was trained on."""
    return RowCounter(model.classifier if isinstance(model, TableModel) else model)


def report_check(check: RowCheck, name: str) -> str | None:
    """Warn if the rows of a file are not a mixture of the two sets; return a note if this could not be checked.

    There is no note about few rows, because there is nothing to do about them.
    """
    if check.alarm:
        warnings.warn(f"{name}: {check}. {NotAMixtureWarning.advice}", NotAMixtureWarning, stacklevel=2)
    return f"{name}: {check}." if check.p_value is None and check.rows >= MIN_ROWS else None


def load_for_scoring(model: Path, keep_columns: bool) -> TableModel | UUClassifier:
    """Load a model and check that it supports ``keep_columns``."""
    loaded = load_model(model)
    if keep_columns and isinstance(loaded, UUClassifier):
        raise ValueError(f"--keep-columns needs a model written by uulearn fit, got {model}; remove the option.")
    return loaded


def score_file(
    model: TableModel | UUClassifier,
    rows: str,
    out: str,
    *,
    format: str | None = None,
    sheet: str | None = None,
    target_prior: float | None = None,
    keep_columns: bool = False,
    counter: RowCounter | None = None,
    unreadable: UnreadableCounter | None = None,
    is_part: bool = False,
) -> int:
    """Write the score, probability and class of each row of a file, in order; return the number of rows.

    For a model written by `uulearn fit`, the file is a table, and its id columns (or all columns, with
    ``keep_columns``) are copied. For a model written by `UUClassifier.save`, the file must contain only numbers. The
    rows are added to the ``counter``, which compares them with the training rows, and cells that cannot be read are
    added to ``unreadable`` instead of a warning. If the file is a part of a larger table (``is_part``), check
    ``unreadable`` after the last part.
    """
    check_exists(rows)
    if format is None and not Path(rows).is_dir():
        check_table_name(rows, hint=", or name its format with --format")
    if target_prior is not None:
        model = model.with_target_prior(target_prior)
    if isinstance(model, TableModel):
        frames = _score_table(model, rows, format, sheet, keep_columns, counter, unreadable, is_part)
    else:
        scored = _score_numbers(model, rows, format, sheet, counter)
        frames = (_with_results(pd.DataFrame(), block) for block in scored)
    count = 0
    with TableWriter(out, float_format="%.6g", escape_formulas=True) as writer:
        for frame in frames:
            writer.write(frame)
            count += len(frame)
    return count


def _score_table(
    model: TableModel,
    rows: str,
    format: str | None,
    sheet: str | None,
    keep_columns: bool,
    counter: RowCounter | None,
    unreadable: UnreadableCounter | None,
    is_part: bool,
) -> Iterator[pd.DataFrame]:
    schema = model.schema
    ids = (*schema.ids, schema.column) if isinstance(schema, ImageSchema) else schema.ids
    chunks = score_chunks(
        model, rows, format=format, sheet=sheet, counter=counter, unreadable=unreadable, is_part=is_part
    )
    for frame, scored in chunks:
        copied = list(frame) if keep_columns else [name for name in ids if name in frame]
        if taken := [name for name in copied if name in RESULT_COLUMNS]:
            raise TableError(f"{rows} already has a column {taken[0]!r}, which predict writes; rename that column.")
        yield _with_results(frame[copied], scored)


def _with_results(frame: pd.DataFrame, scored: ScoredRows) -> pd.DataFrame:
    index = frame.index if len(frame) else range(len(scored.score))
    results = pd.DataFrame(dict(zip(RESULT_COLUMNS, scored, strict=True)), index=index)
    return pd.concat([frame, results], axis=1) if len(frame.columns) else results


def score_chunks(
    model: TableModel,
    path: str,
    *,
    required: str | None = None,
    format: str | None = None,
    sheet: str | None = None,
    counter: RowCounter | None = None,
    unreadable: UnreadableCounter | None = None,
    is_part: bool = False,
) -> Iterator[tuple[pd.DataFrame, ScoredRows]]:
    """Yield chunks of a file with their scores; ``required`` is an additional column that the file must have.

    The rows are added to the ``counter``, and cells that cannot be read to ``unreadable``; see `score_file`. The last
    chunk is yielded after these cells were checked, so nothing of a small file is written if this check fails.
    """
    found = UnreadableCounter() if unreadable is None else unreadable
    scored = None
    with open_rows(path, images=isinstance(model.schema, ImageSchema), format=format, sheet=sheet) as reader:
        if required is not None and required not in reader.columns:
            raise TableError(f"{reader.name} has no column {required!r}; it has {', '.join(reader.columns[:20])}.")
        for frame in reader:
            if scored is not None:
                yield scored
            if isinstance(model.schema, Schema):
                numbers = (column.name for column in model.schema.columns if column.kind == "number")
                refuse_ambiguous(reader.name, reader.ambiguous, numbers)
            folder = base_folder(path)
            scored = frame, model.score(frame, name=reader.place, folder=folder, counter=counter, unreadable=found)
        if scored is None:
            raise TableError(f"{reader.name} has no rows; pass a file with at least one row.")
    if not is_part:
        found.check()
        if unreadable is None:
            found.warn(reader.name)
    yield scored


def _score_numbers(
    classifier: UUClassifier, rows: str, format: str | None, sheet: str | None, counter: RowCounter | None
) -> Iterator[ScoredRows]:
    """Score a file of numbers; rows of a .npy file can have any shape."""
    shape, place = classifier.row_shape_, Path(rows)
    if rows != STANDARD and place.is_dir() and not is_table_folder(rows):
        raise TableError(f"{rows} is a folder without Parquet files; pass a file, or a folder of Parquet files.")
    array = rows != STANDARD and not place.is_dir() and resolve_format(rows, format) == ("npy", None)
    if len(shape) > 1 and not array:
        raise TableError(f"the model expects rows of shape {shape}, which a table cannot store; pass a .npy file.")
    names = [str(name) for name in getattr(classifier, "feature_names_in_", ())]
    if names:
        classifier = copy.copy(classifier)
        del classifier.feature_names_in_  # the columns are already in order, so their names are not checked
    for block in _array_blocks(place, shape) if array else _table_blocks(rows, format, sheet, names, shape[0]):
        yield score_matrix(classifier, block, counter)


def _table_blocks(
    rows: str, format: str | None, sheet: str | None, names: list[str], width: int
) -> Iterator[NDArray[np.float64]]:
    """Yield the columns of a table as numbers, chunk by chunk."""
    count = 0
    with open_table(rows, format=format, sheet=sheet) as reader:
        columns = _select_columns(reader, names, width)
        for frame in reader:
            count += len(frame)
            refuse_ambiguous(reader.name, reader.ambiguous, columns)
            yield np.column_stack([_numbers(frame[column], reader.place) for column in columns])
        if not count:
            raise TableError(f"{reader.name} has no rows; pass a file with at least one row.")


def _select_columns(reader: TableReader, names: list[str], width: int) -> list[str]:
    """Return the columns with these names, or all columns if no names are given or the file has no column names."""
    numbered = reader.columns == array_columns(len(reader.columns))
    if names and (not numbered or set(names) <= set(reader.columns)):
        check_has_columns(names, reader.columns, reader.name)
        return names
    if len(reader.columns) != width:
        raise TableError(
            f"{reader.name} has {len(reader.columns)} columns, but the model expects {width}; pass exactly the columns "
            "that it was trained on."
        )
    return reader.columns


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    """Return a column as numbers, with 1 for true and 0 for false; raise an error if values are missing."""
    cells = parse_cells(column)
    known, boolean = cells.kinds == NUMBER, cells.kinds == BOOLEAN
    # It is unknown which numbers stood for yes and no in training.
    known[boolean] = [format_value(value).lower() in ("true", "false") for value in cells.raw[boolean].tolist()]
    numbers = np.append(np.where(known, cells.numbers, np.nan), np.nan)[cells.codes]
    bad = ~(np.abs(numbers) <= LARGEST_INPUT)
    if bad.any():
        position = int(bad.argmax())
        code = cells.codes[position]
        value = "nothing" if code < 0 else quote_value(format_value(cells.raw[code]))
        raise _not_finite(name, value, column.index[position], repr(str(column.name)))
    return numbers


def _array_blocks(path: Path, row_shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """Yield the rows of a memory-mapped .npy file in chunks."""
    if not path.is_file():
        raise TableError(f"{path} is not a file; pass a file of rows.")
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise TableError(f"{path} is not a readable .npy array ({error}); write it with numpy.save.") from error
    if array.dtype.kind not in "biuf":
        raise TableError(f"{path} contains an array of {array.dtype}, not of numbers; save it as an array of floats.")
    if array.shape[1:] != row_shape:
        raise TableError(
            f"{path} contains an array of shape {array.shape}, but the model expects rows of shape {row_shape}; pass "
            "the columns that it was trained on."
        )
    if not len(array):
        raise TableError(f"{path} has no rows; pass a file with at least one row.")
    step = max(1, min(CHUNK_ROWS, ARRAY_CHUNK_BYTES // max(1, array[:1].nbytes)))
    for start in range(0, len(array), step):
        block = np.array(array[start : start + step])
        limit = np.float64(LARGEST_INPUT)  # a Python number would overflow in float16
        bad = ~((block >= -limit) & (block <= limit))
        if bad.any():
            row, *place = np.argwhere(bad)[0].tolist()
            raise _not_finite(str(path), block[bad][0], start + row, ", ".join(map(str, place)))
        yield block


def _not_finite(name: str, value: Any, row: int, column: str) -> TableError:
    return TableError(
        f"{name} has {value} in row {row + 1:,}, column {column}, which is not a finite number of at most "
        f"{LARGEST_INPUT:g}; replace it, or remove the row."
    )
