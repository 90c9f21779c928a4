"""``uulearn predict``: rows in, scores out."""

from __future__ import annotations

import copy
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uulearn.app.model import TableModel, score_matrix
from uulearn.cli.score_table import as_frame, predict_table, say_scored
from uulearn.cli.several import asks_for_ray
from uulearn.estimator import UUClassifier
from uulearn.estimator.persistence import MANIFEST, read_attached
from uulearn.exceptions import TableError
from uulearn.io.formats import STANDARD, check_not_read_again, resolve_format
from uulearn.io.reading import CHUNK_ROWS, TableReader, is_table_folder, open_table
from uulearn.io.writing import TableWriter
from uulearn.tabular.cells import BOOLEAN, NUMBER, format_value, parse_cells
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.schema import check_has_columns, quote_value

if TYPE_CHECKING:
    import pandas as pd

CHUNK_BYTES = 2**27
"""Of an array of large rows fewer are scored at once."""
LARGEST = float(np.finfo(np.float32).max)


def run_predict(
    model: Path,
    rows: str,
    out: str = "-",
    *,
    format: str | None = None,
    sheet: str | None = None,
    target_prior: float | None = None,
    keep_columns: bool = False,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Score the rows of a file and write score, probability and class of each.

    A model that `uulearn fit` made reads tables; one that `UUClassifier.save` wrote reads numbers, from the same files.
    """
    if asks_for_ray(engine, address, workers):
        if format is not None:
            raise ValueError(f"--engine ray reads Parquet files, not --format {format}; leave one of them out.")
        count = _predict_on_ray(model, rows, out, target_prior, keep_columns, address, workers)
        say_scored(count, out)
        return
    if out != STANDARD and Path(out).is_dir():
        raise ValueError(f"{out} is a folder; pass the name of the file to write.")
    if STANDARD not in (rows, out) and Path(rows).exists() and Path(out).exists() and Path(rows).samefile(out):
        raise ValueError(f"{out} is the file of rows itself, which would be lost; write to another.")
    if Path(rows).is_dir():
        check_not_read_again(Path(out), rows, out)
    loaded = _load(model, keep_columns)
    count = _predict(
        loaded, rows, out, format=format, sheet=sheet, target_prior=target_prior, keep_columns=keep_columns
    )
    say_scored(count, out)


def _load(model: Path, keep_columns: bool) -> TableModel | UUClassifier:
    if read_attached(model):
        return TableModel.load(model)
    if keep_columns:
        raise ValueError(f"--keep-columns serves models that uulearn fit made, not {model}; leave it out.")
    return UUClassifier.load(model)


def _predict(
    model: TableModel | UUClassifier,
    rows: str,
    out: str,
    *,
    format: str | None = None,
    sheet: str | None = None,
    target_prior: float | None = None,
    keep_columns: bool = False,
) -> int:
    if isinstance(model, TableModel):
        return predict_table(
            model, rows, out, format=format, sheet=sheet, target_prior=target_prior, keep_columns=keep_columns
        )
    return predict_numbers(model, rows, out, format=format, sheet=sheet, target_prior=target_prior)


def _predict_on_ray(
    model: Path,
    rows: str,
    out: str,
    target_prior: float | None,
    keep_columns: bool,
    address: str | None,
    workers: int | None,
) -> int:
    """Score a folder of Parquet files on a cluster; what is wrong with the model is found out here."""
    from uulearn.engines.ray_scoring import score_folder

    loaded = _load(model, keep_columns)
    if isinstance(loaded, TableModel) and isinstance(loaded.schema, ImageSchema):
        raise ValueError(f"{model} is a model of images, and --engine ray scores tables; leave it out.")
    if target_prior is not None:
        loaded.with_target_prior(target_prior)
    place = model.resolve()
    score = functools.partial(score_file, place, _digest(place), target_prior=target_prior, keep_columns=keep_columns)
    return score_folder(score, rows, out, address=address, workers=workers)


def score_file(model: Path, digest: str, rows: str, out: str, *, target_prior: float | None, keep_columns: bool) -> int:
    """Score one file with a model that this process keeps for the next; ``digest`` says which it must be."""
    return _predict(_keep(model, digest, keep_columns), rows, out, target_prior=target_prior, keep_columns=keep_columns)


@functools.lru_cache(maxsize=1)
def _keep(model: Path, digest: str, keep_columns: bool) -> TableModel | UUClassifier:
    loaded = _load(model, keep_columns)
    if _digest(model) != digest:
        raise RuntimeError(f"{model} has changed while rows were being scored; score them again.")
    return loaded


def _digest(model: Path) -> str:
    return hashlib.sha256((model / MANIFEST).read_bytes()).hexdigest()


def predict_numbers(
    classifier: UUClassifier,
    rows: str,
    out: str,
    *,
    format: str | None = None,
    sheet: str | None = None,
    target_prior: float | None = None,
) -> int:
    """Score a file of numbers chunk by chunk, in the order of its rows; returns their number.

    Columns are found by name where the classifier knows names and the file has some; others in the file are ignored.
    Of a folder the Parquet files are read. The rows of a .npy file may have any shape.
    """
    classifier = classifier if target_prior is None else classifier.with_target_prior(target_prior)
    kind, compression = ("parquet", None) if _is_folder(rows) else resolve_format(rows, format)
    file = compression is None and rows != STANDARD
    array = file and kind == "npy"
    shape = classifier.row_shape_
    if len(shape) > 1 and not array:
        raise TableError(f"the model takes rows of shape {shape}, for which a table has no place; pass a .npy file.")
    names = [str(name) for name in getattr(classifier, "feature_names_in_", ())]
    if names:
        classifier = copy.copy(classifier)
        del classifier.feature_names_in_  # the columns are put in order before it sees them
    count = 0
    with TableWriter(out, float_format="%.6g") as writer:
        for block in _array_blocks(Path(rows), shape) if array else _table_blocks(rows, format, sheet, names, shape[0]):
            writer.write(as_frame(score_matrix(classifier, block)))
            count += len(block)
    return count


def _is_folder(rows: str) -> bool:
    """Whether rows come from a folder of Parquet files; a folder of anything else holds no numbers."""
    if is_table_folder(rows):
        return True
    if rows != STANDARD and Path(rows).is_dir():
        raise TableError(f"{rows} is a folder without Parquet files; pass a file of rows, or a folder with some.")
    return False


# ------------------------------------------------------------------------------------------------------------- reading


def _table_blocks(
    rows: str, format: str | None, sheet: str | None, names: list[str], width: int
) -> Iterator[NDArray[np.float64]]:
    """The columns that a model takes, as numbers, chunk by chunk."""
    count = 0
    with open_table(rows, format=format, sheet=sheet) as reader:
        columns = _columns(reader, names, width)
        for frame in reader:
            count += len(frame)
            yield np.column_stack([_numbers(frame[column], reader.name) for column in columns])
        if not count:
            raise TableError(f"{reader.name} holds no rows; pass a file with at least one.")


def _columns(reader: TableReader, names: list[str], width: int) -> list[str]:
    """The columns by name; where the model, or the file, has no names, all in their order."""
    nameless = reader.columns == [str(position) for position in range(len(reader.columns))]
    if names and (not nameless or set(names) <= set(reader.columns)):
        check_has_columns(names, reader.columns, reader.name)
        return names
    if len(reader.columns) != width:
        raise TableError(
            f"{reader.name} has {len(reader.columns)} columns, but the model takes {width}; pass the columns that it "
            "was trained on, and no others."
        )
    return reader.columns


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    """A column of numbers, or of true and false, which are 1 and 0, with nothing missing."""
    cells = parse_cells(column)
    known = cells.kinds == NUMBER
    known[cells.kinds == BOOLEAN] = [
        format_value(value).lower() in ("true", "false") for value in cells.raw[cells.kinds == BOOLEAN].tolist()
    ]  # yes and no may stand for any numbers
    numbers = np.append(np.where(known, cells.numbers, np.nan), np.nan)[cells.codes]
    odd = ~(np.abs(numbers) <= LARGEST)
    if odd.any():
        position = int(odd.argmax())
        code = cells.codes[position]
        value = "nothing" if code < 0 else quote_value(format_value(cells.raw[code]))
        raise TableError(
            f"{name} holds {value} in row {column.index[position] + 1:,}, column {str(column.name)!r}, which is not a "
            "finite number; replace it, or leave the row out."
        )
    return numbers


def _array_blocks(path: Path, row_shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """The rows of a .npy file, mapped, some at a time."""
    if not path.is_file():
        raise TableError(f"{path} is not a file; pass a file of rows.")
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise TableError(f"{path} is not a readable .npy array ({error}); write it with numpy.save.") from error
    if array.dtype.kind not in "biuf":
        raise TableError(f"{path} holds an array of {array.dtype}, not of numbers; save it as an array of floats.")
    if array.shape[1:] != row_shape:
        raise TableError(
            f"{path} holds an array of shape {array.shape}, but the model takes rows of shape {row_shape}; pass the "
            "columns that it was trained on."
        )
    if not len(array):
        raise TableError(f"{path} holds no rows; pass a file with at least one.")
    step = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, array[:1].nbytes)))
    for start in range(0, len(array), step):
        block = np.array(array[start : start + step])
        with np.errstate(over="ignore"):  # what is too large for the model is infinite to it
            odd = ~np.isfinite(block.astype(np.float32) if block.dtype.kind == "f" else block)
        if odd.any():
            row, *place = np.argwhere(odd)[0].tolist()
            raise TableError(
                f"{path} holds {block[odd][0]} in row {start + row + 1:,}, column {', '.join(map(str, place))}, which "
                "is not a finite number; replace it, or leave the row out."
            )
        yield block
