"""Read tables in chunks from any supported format; memory use depends on the chunk size, not on the file size."""

from contextlib import ExitStack
from numbers import Integral
from pathlib import Path

import pandas as pd

from uulearn.exceptions import TableError
from uulearn.io.arrow import TableReader, open_feather, open_folder, open_parquet
from uulearn.io.csv_files import open_csv
from uulearn.io.formats import (
    SEPARATORS,
    STANDARD,
    check_exists,
    check_table_name,
    format_of,
    parquet_files,
    resolve_format,
)
from uulearn.io.other_formats import open_excel, open_json_lines, open_npy, open_npz
from uulearn.io.sources import TextSource, open_unpacked

__all__ = ["CHUNK_ROWS", "TableReader", "format_of", "open_table", "read_table"]

CHUNK_ROWS = 100_000  # rows per frame
BINARY_FORMATS = {"parquet": open_parquet, "feather": open_feather, "npy": open_npy, "npz": open_npz}


def open_table(
    source: str | Path, *, chunk_rows: int = CHUNK_ROWS, format: str | None = None, sheet: str | None = None
) -> TableReader:
    """Open a table file, or standard input, for reading in chunks; raise `TableError` if it cannot be read.

    Parameters
    ----------
    source : path, or "-" for standard input
        A folder with Parquet files is read as one table. Files with the suffix .gz or .zst are decompressed. For text
        files with other suffixes, the compression is detected.
    chunk_rows : int
        Maximum number of rows per frame. Frames with many columns or long text have fewer rows, to limit memory use.
    format : {"csv", "tsv", "parquet", "feather", "jsonl", "xlsx", "npy", "npz"}, optional
        Default: the format implied by the suffix, or CSV for standard input.
    sheet : str, optional
        Name of the sheet to read from an ``.xlsx`` file (default: the first sheet).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "clinic_a.csv"
    ...     _ = path.write_text("age; city\\n41;Basel\\n;Genf\\n38;NA\\n", encoding="utf-8")
    ...     with open_table(path, chunk_rows=2) as reader:
    ...         reader.columns, [len(frame) for frame in reader]
    (['age', 'city'], [2, 1])
    """
    if not isinstance(chunk_rows, Integral) or isinstance(chunk_rows, bool) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be an integer of at least 1, got {chunk_rows!r}.")
    rows = int(chunk_rows)
    if is_table_folder(source):
        return open_folder(Path(source), rows)
    check_exists(source)
    if format is None:
        check_table_name(source)
    kind, compression = resolve_format(source, format)
    name = "standard input" if str(source) == STANDARD else str(source)
    if sheet is not None and kind != "xlsx":
        raise TableError(f"{name} has no sheets; remove --sheet {sheet}, or pass an .xlsx file.")
    stack = ExitStack()
    try:
        if kind in SEPARATORS:
            reader = open_csv(TextSource(source, name, compression, stack), name, rows, SEPARATORS[kind])
        elif kind == "jsonl":
            reader = open_json_lines(TextSource(source, name, compression, stack), name, rows)
        elif kind == "xlsx":
            reader = open_excel(open_unpacked(source, name, compression, stack), name, rows, sheet)
        else:
            reader = BINARY_FORMATS[kind](open_unpacked(source, name, compression, stack), name, rows, stack)
    except BaseException:
        stack.close()
        raise
    reader.enter_context(stack.pop_all())
    return reader


def is_table_folder(source: str | Path) -> bool:
    """Return whether a path is a folder with Parquet files, which is read as one table."""
    return str(source) != STANDARD and Path(source).is_dir() and bool(parquet_files(Path(source)))


def read_table(source: str | Path, *, format: str | None = None, sheet: str | None = None) -> pd.DataFrame:
    """Return all rows of a file, or of standard input, as one frame; see `open_table` for the parameters.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.jsonl"
    ...     _ = path.write_text('{"age": 41}\\n{"age": 38, "city": "Basel"}\\n', encoding="utf-8")
    ...     print(read_table(path))
      age   city
    0  41   None
    1  38  Basel
    """
    reader = open_table(source, format=format, sheet=sheet)
    with reader:
        return reader.all_rows()
