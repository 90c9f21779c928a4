"""A folder of Parquet files as one table, file after file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from uulearn.exceptions import TableError
from uulearn.io.formats import parquet_files, quote_some
from uulearn.io.reading_arrow import Opened, open_parquet


def open_folder(folder: Path, chunk_rows: int) -> Opened:
    """Columns of the first file, and the rows of all; every file must have the same columns, in any order."""
    files = parquet_files(folder)
    with ExitStack() as stack:
        first = _open(files[0], chunk_rows, stack)
    return Opened(
        first.columns,
        _frames(files, first.columns, chunk_rows),
        first.empty,
        first.typed,
        [*first.notes, f"{folder} is read as the {len(files):,} Parquet files in it."],
    )


def _frames(files: list[Path], columns: list[str], chunk_rows: int) -> Iterator[Any]:
    for file in files:
        with ExitStack() as stack:
            opened = _open(file, chunk_rows, stack)
            odd = sorted(set(opened.columns) ^ set(columns))
            if odd:
                raise TableError(
                    f"{file} has other columns than {files[0]}: {quote_some(odd)}; write files of the same columns."
                )
            for frame in opened.frames:
                yield frame[columns]


def _open(file: Path, chunk_rows: int, stack: ExitStack) -> Opened:
    return open_parquet(stack.enter_context(file.open("rb")), str(file), chunk_rows, stack)
