"""Read tables from files in chunks, whatever the format.

Memory is bounded by the chunk, not by the file. CSV and TSV give text: the kind of a column is decided over all rows
(`uulearn.tabular.survey`), never by one chunk. The types of the other formats are listed in their modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from uulearn.exceptions import TableError
from uulearn.io.arrays import open_npy, open_npz
from uulearn.io.arrow import OpenTable, open_feather, open_folder, open_parquet
from uulearn.io.csv_files import open_csv
from uulearn.io.formats import STANDARD, format_of, parquet_files, resolve_format
from uulearn.io.json_lines import open_json_lines
from uulearn.io.sources import TextSource, open_unpacked

__all__ = ["CHUNK_ROWS", "TableReader", "format_of", "open_table", "read_table"]

CHUNK_ROWS = 100_000  # rows per frame


class TableReader:
    """An open table: its columns, and its rows as frames, which can be read once.

    Attributes
    ----------
    name : str
        The path, or "standard input".
    columns : list of str
        Column names without surrounding blanks.
    typed : bool
        False for CSV and TSV: every column is text, and fields that are empty or a mark such as NA are missing.
    notes : list of str
        Sentences about how the file was read.
    """

    def __init__(self, name: str, opened: OpenTable, stack: ExitStack) -> None:
        self.name = name
        self.columns: list[str] = opened.columns
        self.typed = opened.typed
        self.notes = opened.notes
        self._frames = opened.frames
        self._empty = opened.empty
        self._stack = stack
        self._begun = False

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Yield frames with these columns and a running index; a table without rows yields none."""
        if self._begun:
            raise TableError(f"{self.name} has been read already; open it again to read it again.")
        self._begun = True
        return self._numbered()

    def all_rows(self) -> pd.DataFrame:
        """Return all rows in one frame."""
        frames = list(self)
        return pd.concat(frames) if frames else self._empty()

    def _numbered(self) -> Iterator[pd.DataFrame]:
        start = 0
        with self._stack:
            for frame in self._frames:
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield frame

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._begun = True
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_table(
    source: str | Path, *, chunk_rows: int = CHUNK_ROWS, format: str | None = None, sheet: str | None = None
) -> TableReader:
    """Open a file of rows, or standard input, for reading in chunks.

    Parameters
    ----------
    source : path, or "-" for standard input
        A folder with Parquet files is read as one table. Names ending in .gz or .zst are decompressed, and so is
        compressed text with another name.
    chunk_rows : int
        Maximum number of rows per frame. Frames with many columns or long texts have fewer, so that they fit in memory.
    format : {"csv", "tsv", "parquet", "feather", "jsonl", "xlsx", "npy", "npz"}, optional
        By default the format of the suffix, and CSV for standard input.
    sheet : str, optional
        Name of the sheet of an ``.xlsx`` file; by default the first sheet.

    Raises
    ------
    TableError
        If the file cannot be read, with one sentence; for later parts of the file, while it is read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "clinic_a.csv"
    ...     _ = path.write_text("age; city\\n41;Basel\\n;Genf\\n38;NA\\n", encoding="utf-8")
    ...     with open_table(path, chunk_rows=2) as reader:
    ...         print(reader.columns, reader.notes[0].removeprefix(folder))
    ...         for frame in reader:
    ...             print(frame)
    ['age', 'city'] /clinic_a.csv is read with semicolons between its fields.
       age   city
    0   41  Basel
    1  NaN   Genf
      age city
    2  38  NaN
    """
    if not isinstance(chunk_rows, Integral) or isinstance(chunk_rows, bool) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be an integer of at least 1, got {chunk_rows!r}.")
    if is_table_folder(source):
        return TableReader(str(source), open_folder(Path(source), int(chunk_rows)), ExitStack())
    if format is None and str(source) != STANDARD and not Path(source).suffix and not Path(source).exists():
        raise TableError(f"{source} does not exist; check the path.")
    kind, compression = resolve_format(source, format)
    name = "standard input" if str(source) == STANDARD else str(source)
    if sheet is not None and kind != "xlsx":
        raise TableError(f"{name} has no sheets; leave out --sheet {sheet}, or pass an .xlsx file.")
    with ExitStack() as stack:
        opened = _open(source, name, kind, compression, sheet, int(chunk_rows), stack)
        return TableReader(name, opened, stack.pop_all())
    raise AssertionError("unreachable: no exception is suppressed above")


def is_table_folder(source: str | Path) -> bool:
    """Return whether a path is a folder with Parquet files, which make one table; other folders contain images."""
    return str(source) != STANDARD and Path(source).is_dir() and bool(parquet_files(Path(source)))


def _open(
    source: str | Path,
    name: str,
    kind: str,
    compression: str | None,
    sheet: str | None,
    chunk_rows: int,
    stack: ExitStack,
) -> OpenTable:
    if kind in {"csv", "tsv", "jsonl"}:
        text = TextSource(source, name, compression, stack)
        return open_json_lines(text, chunk_rows) if kind == "jsonl" else open_csv(text, kind, chunk_rows)
    file = open_unpacked(source, name, compression, stack)
    if kind == "xlsx":
        from uulearn.io.excel import open_excel

        return open_excel(file, name, sheet, chunk_rows)
    openers: dict[str, Any] = {"parquet": open_parquet, "npz": open_npz}
    if kind in openers:
        opened: OpenTable = openers[kind](file, name, chunk_rows, stack)
        return opened
    return (open_feather if kind == "feather" else open_npy)(file, name, chunk_rows)


def read_table(source: str | Path, *, format: str | None = None, sheet: str | None = None) -> pd.DataFrame:
    """Return all rows of a file, or of standard input, in one frame; the parameters are those of `open_table`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.jsonl"
    ...     _ = path.write_text('{"age": 41}\\n{"age": 38, "city": "Basel"}\\n', encoding="utf-8")
    ...     print(read_table(path))
      age   city
    0  41   None
    1  38  Basel
    """
    with open_table(source, format=format, sheet=sheet) as reader:
        return reader.all_rows()
    raise AssertionError("unreachable: no exception is suppressed above")
