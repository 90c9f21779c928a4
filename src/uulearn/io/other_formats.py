"""Read JSON lines, Excel sheets and NumPy arrays.

JSON and Excel columns have type ``object``; `uulearn.tabular.survey` decides from all rows whether values such as 3,
3.5 and "3" are numbers. Arrays keep their type, except that ``longdouble`` becomes ``float64``. Pickles are not loaded.
"""

import datetime
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from uulearn.exceptions import TableError
from uulearn.io.arrow import FRAME_BYTES, TableReader, refusing_damage
from uulearn.io.csv_files import is_header
from uulearn.io.embeddings import ARRAY
from uulearn.io.formats import MISSING, array_columns, clean_names, in_one_line, quote_some, repeated_names
from uulearn.io.sources import UNPACKED_BLOCK_BYTES, TextSource, temporary_file

SURVEYED_LINES = 100_000  # number of first lines of a JSON file whose keys are the columns
SURVEYED_BYTES = FRAME_BYTES // 4  # maximum size of these lines; Python objects are larger than their text
LINE_CHARACTERS = 1 << 26  # maximum length of one line of JSON
PLAIN_TYPES = {str, int, float, bool, type(None)}
PAIRS = json.JSONDecoder(object_pairs_hook=tuple)  # pairs, because a dict would hide a duplicate key
LARGEST_CONTENT = 1 << 31  # bytes of an unpacked .xlsx archive; more would not fit in memory

Row = tuple[dict[str, Any], int, int]
"""One JSON object, its line number and the length of its text."""


def _object_frame(rows: list[Any], columns: list[str], cell: Callable[[Any, int], Any]) -> pd.DataFrame:
    return pd.DataFrame(
        {column: pd.Series([cell(row, at) for row in rows], dtype=object) for at, column in enumerate(columns)}
    )


def open_json_lines(source: TextSource, name: str, chunk_rows: int) -> TableReader:
    """Open a file with one JSON object per line.

    The columns are the keys in the first `SURVEYED_LINES` lines. If a key is absent from a line, the value is missing.
    A key that first occurs after these lines is an error, because earlier rows have already been returned.
    """
    rows = _json_rows(source)
    first: list[Row] = []
    size = 0
    for row in rows:
        first.append(row)
        size += row[2]
        if len(first) == SURVEYED_LINES or size >= SURVEYED_BYTES:
            break
    keys = list(dict.fromkeys(key for values, _, _ in first for key in values))
    if not keys:
        raise TableError(f"{name} is empty; pass a file with one JSON object per line.")
    columns, notes = clean_names(keys, name)
    known = set(keys)

    def frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
        return _object_frame(rows, columns, lambda row, at: row.get(keys[at]))

    def frames() -> Iterator[pd.DataFrame]:
        waiting, size = [], 0
        for values, line, length in chain(first, rows):
            if not values.keys() <= known:
                new = min(values.keys() - known)[:60]
                raise TableError(
                    f"line {line:,} of {name}: key {new!r} does not occur in earlier lines; add it to the first line, "
                    "with null if there is no value."
                )
            waiting.append(values)
            size += length
            if len(waiting) == chunk_rows or size >= SURVEYED_BYTES:
                yield frame(waiting)
                waiting, size = [], 0
        if waiting:
            yield frame(waiting)

    return TableReader(name, frames(), frame([]), notes)


def _json_rows(source: TextSource) -> Iterator[Row]:
    text = source.open_text()
    number = 0
    try:
        while content := text.readline(LINE_CHARACTERS):
            number += 1
            if content.strip():
                place = f"line {number:,} of {source.name}"
                if len(content) == LINE_CHARACTERS:
                    raise TableError(
                        f"{place} is longer than {LINE_CHARACTERS:,} characters; write one object per line."
                    )
                yield _json_object(content.rstrip("\r\n"), place), number, len(content)
    except UnicodeDecodeError as error:
        raise source.not_text() from error


def _json_object(content: str, place: str) -> dict[str, Any]:
    """Parse one line and return its JSON object."""
    try:
        pairs = PAIRS.decode(content)
        if "\\u" in content:  # JSON can encode half of a surrogate pair, which is not a character
            json.dumps(pairs, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        why = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else in_one_line(error)
        raise TableError(f"{place} is not JSON ({why}); write one object per line.") from error
    if type(pairs) is not tuple:
        raise TableError(f"{place} is {content.strip()[:40]!r}, which is not an object; write one object per line.")
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = quote_some(repeated_names([key for key, _ in pairs]))
        raise TableError(f"{place}: key {repeated} occurs more than once; keep one of them.")
    if not PLAIN_TYPES.issuperset(map(type, values.values())):
        key = next(key for key, value in values.items() if type(value) not in PLAIN_TYPES)
        raise TableError(f"{place}: {key[:60]!r} contains a list or an object; use a separate key for each value.")
    return values


def open_excel(file: BinaryIO, name: str, chunk_rows: int, sheet: str | None) -> TableReader:
    """Open a sheet of an ``.xlsx`` file (by default, the first); its first non-empty row is the header.

    calamine parses the file many times faster than openpyxl (``benchmarks/csv_engines.py``). One sheet, which has at
    most 1,048,576 rows, is held in memory.
    """
    from python_calamine import CalamineWorkbook

    with refusing_damage(name, ".xlsx"):
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > LARGEST_CONTENT:
            raise TableError(f"{name} unpacks to {size:,} bytes, which is too large for a sheet; save it as CSV.")
        file.seek(0)
        workbook = CalamineWorkbook.from_filelike(file)
    sheets = workbook.sheet_names
    if not sheets or (sheet is not None and sheet not in sheets):
        raise TableError(f"{name} has no sheet {sheet!r}; its sheets are {quote_some(sheets)}.")
    chosen = sheets[0] if sheet is None else sheet
    with refusing_damage(name, ".xlsx"):
        rows = [row for row in workbook.get_sheet_by_name(chosen).to_python() if any(cell != "" for cell in row)]
    if not rows:
        raise TableError(f"{name} is empty: sheet {chosen!r} has no cells; choose another sheet with --sheet.")
    header, *rows = rows
    first = [str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell) for cell in header]
    columns, notes = clean_names(first, name)
    if not is_header(first):
        raise TableError(
            f"{name} has no header: the first row of sheet {chosen!r} contains only numbers; add column names."
        )
    if len(sheets) > 1 and sheet is None:
        notes.append(f"{name} has {len(sheets)} sheets; the first, {chosen!r}, is read (choose with --sheet).")
    parts = (rows[start : start + chunk_rows] for start in range(0, len(rows), chunk_rows))
    frames = (_object_frame(part, columns, _excel_cell) for part in parts)
    return TableReader(name, frames, _object_frame([], columns, _excel_cell), notes)


def _excel_cell(row: list[Any], at: int) -> Any:
    value = row[at]
    if isinstance(value, str):
        return None if value.strip() in MISSING else value
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    return value


def open_npy(file: Any, name: str, chunk_rows: int, stack: ExitStack) -> TableReader:
    """Open a ``.npy`` file with a two-dimensional array of numbers as a memory map; columns are named 0, 1, ..."""
    with refusing_damage(name, ".npy"):
        numpy_format = np.lib.format
        # Version 3 differs from 2 only in the encoding of field names, and arrays of numbers have none.
        later = numpy_format.read_array_header_2_0
        readers = {(1, 0): numpy_format.read_array_header_1_0, (2, 0): later, (3, 0): later}
        shape, fortran_order, dtype = readers[numpy_format.read_magic(file)](file)
        if dtype.kind not in "biuf":
            raise TableError(f"{name} contains an array of {dtype}, not of numbers; save it as an array of floats.")
        if len(shape) != 2 or shape[1] == 0:
            raise TableError(
                f"{name} contains an array of shape {shape}, but a table needs two dimensions and at least one column; "
                "save it as rows.reshape(len(rows), -1)."
            )
        order: Any = "F" if fortran_order else "C"
        array = np.memmap(file, dtype, "r", file.tell(), shape, order) if shape[0] else np.empty(shape, dtype)
    kind = np.dtype(np.float64) if dtype.itemsize > 8 else dtype.newbyteorder("=")
    columns = array_columns(shape[1])
    rows = max(1, min(chunk_rows, FRAME_BYTES // (kind.itemsize * len(columns))))
    frames = (
        pd.DataFrame(np.array(array[start : start + rows], kind), columns=columns)
        for start in range(0, len(array), rows)
    )
    empty = pd.DataFrame(np.empty((0, len(columns)), kind), columns=columns)
    return TableReader(name, frames, empty, [], lists={ARRAY: len(columns)})


def open_npz(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> TableReader:
    """Open a ``.npz`` file that contains a single array or an array named X."""
    with refusing_damage(name, ".npz"):
        archive = stack.enter_context(zipfile.ZipFile(file))
        entries = {each.removesuffix(".npy"): each for each in archive.namelist()}
    chosen = "X" if "X" in entries else next(iter(entries), "")
    if len(entries) != 1 and chosen != "X":
        raise TableError(
            f"{name} must contain one array, or one named X, but contains {quote_some(list(entries)) or 'none'}; save "
            "the rows with numpy.savez(path, X=rows)."
        )
    with temporary_file(name, stack) as unpacked, refusing_damage(name, ".npz"):
        with archive.open(entries[chosen]) as entry:
            shutil.copyfileobj(entry, unpacked, UNPACKED_BLOCK_BYTES)
        unpacked.flush()
    return open_npy(unpacked, name, chunk_rows, stack)
