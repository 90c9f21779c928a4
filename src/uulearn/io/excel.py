"""Read one sheet of an ``.xlsx`` file.

calamine (written in Rust, also an engine of pandas) parses the file, many times faster than openpyxl's read-only mode
(``benchmarks/csv_engines.py``). It holds one sheet in memory, which has at most 1,048,576 rows.
"""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import pandas as pd
from python_calamine import CalamineWorkbook

from uulearn.exceptions import TableError
from uulearn.io.arrow import OpenTable, refusing_damage
from uulearn.io.csv_files import is_header
from uulearn.io.formats import MISSING, clean_names, quote_some

LARGEST_CONTENT = 1 << 31  # bytes of the unpacked archive; more would not fit in memory


def open_excel(file: BinaryIO, name: str, sheet: str | None, chunk_rows: int) -> OpenTable:
    """Return the columns and rows of a sheet, by default the first; its first row that is not empty is the header."""
    with refusing_damage(name, ".xlsx"):
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
        file.seek(0)
        if size > LARGEST_CONTENT:
            raise TableError(f"{name} unpacks to {size:,} bytes, which is too large for a sheet; save it as CSV.")
        workbook = CalamineWorkbook.from_filelike(file)
    sheets = workbook.sheet_names
    if not sheets or (sheet is not None and sheet not in sheets):
        raise TableError(f"{name} has no sheet {sheet!r}; its sheets are {quote_some(sheets)}.")
    chosen = sheets[0] if sheet is None else sheet
    with refusing_damage(name, ".xlsx"):
        rows = [row for row in workbook.get_sheet_by_name(chosen).to_python() if any(cell != "" for cell in row)]
    if not rows:
        raise TableError(f"{name} is empty: sheet {chosen!r} has no cells; choose another with --sheet.")
    first = ["" if cell == "" else _text(cell) for cell in rows[0]]
    columns, notes = clean_names(first, name)
    if not is_header(first):
        raise TableError(
            f"{name} has no header: the first row of sheet {chosen!r} contains only numbers; name the columns."
        )
    if len(sheets) > 1 and sheet is None:
        notes.append(f"{name} has {len(sheets)} sheets; the first, {chosen!r}, is read (choose with --sheet).")
    del rows[0]

    def frames() -> Iterator[Any]:
        for start in range(0, len(rows), chunk_rows):
            yield _frame(rows[start : start + chunk_rows], columns)

    return OpenTable(columns, frames(), lambda: _frame([], columns), typed=True, notes=notes)


def _frame(rows: list[list[Any]], columns: list[str]) -> Any:
    return pd.DataFrame(
        {
            column: pd.Series([_cell(row[position]) for row in rows], dtype=object)
            for position, column in enumerate(columns)
        }
    )


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return None if value.strip() in MISSING else value
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    return value


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
