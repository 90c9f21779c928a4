"""Read Parquet and Feather, and turn Arrow tables into pandas frames of bounded size with fixed types.

==============================================  =======================================================
in the file                                     in the frame
==============================================  =======================================================
integers                                        nullable integers of pandas, such as ``Int64``
floats                                          ``float32``, ``float64``; NaN for missing values
decimals                                        ``float64``
booleans                                        ``boolean`` (nullable)
text                                            ``str`` (``object`` before pandas 3)
dictionaries (categories of pandas)             their values
timestamps, dates                               ``datetime64``, with the time zone if there is one
durations, times of day                         ``float64``, seconds
only nulls                                      text, all missing
==============================================  =======================================================

Integers are nullable even if no value is missing. Otherwise the types of a chunk would depend on its rows.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uulearn.exceptions import TableError
from uulearn.io.formats import clean_names, in_one_line, parquet_files, quote_some

FRAME_BYTES = 1 << 27  # limit for one frame: few rows of 10,000 columns or of long texts fill the memory
COLUMN_BUFFER_BYTES = 1 << 20  # bytes of a Parquet column chunk that are read at once
SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # name that pandas gives to an index without a name

NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
}


class OpenTable(NamedTuple):
    """A table with known columns, whose rows come in chunks."""

    columns: list[str]
    frames: Iterator[Any]
    empty: Callable[[], Any]
    """Returns a frame with these columns, their types and no rows."""
    typed: bool
    notes: list[str]


def to_frame(table: Any) -> Any:
    """Return a pandas frame with all columns of a table; an index stored by pandas is ignored."""
    return table.to_pandas(types_mapper=NULLABLE.get, ignore_metadata=True, date_as_object=False)


def frames_of(tables: Iterable[Any], chunk_rows: int) -> Iterator[Any]:
    """Yield frames of ``chunk_rows`` rows, or fewer if these take more than `FRAME_BYTES`, from tables of any size."""
    waiting: list[Any] = []
    rows = size = 0
    for whole in tables:
        table = whole
        step = max(1, whole.num_rows * FRAME_BYTES // max(1, whole.nbytes))
        while table.num_rows:
            part = table.slice(0, min(chunk_rows - rows, step))
            table = table.slice(part.num_rows)
            waiting.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows == chunk_rows or size >= FRAME_BYTES:
                yield to_frame(pa.concat_tables(waiting))
                waiting, rows, size = [], 0, 0
    if waiting:
        yield to_frame(pa.concat_tables(waiting))


def open_parquet(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> OpenTable:
    """Return the columns and rows of a Parquet file; row groups are read one after another."""
    with refusing_damage(name, "Parquet"):
        reader = pq.ParquetFile(
            file,
            buffer_size=COLUMN_BUFFER_BYTES,  # with pre_buffer=False: one row group may be larger than the memory
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # in nanoseconds the year 9999 wraps around
        )
        stack.callback(reader.close)
        schema = reader.schema_arrow
    columns = _ArrowColumns(schema, name, "Parquet")
    return columns.open(reader.iter_batches(batch_size=columns.rows_at_once(chunk_rows)), chunk_rows)


def open_feather(file: BinaryIO, name: str, chunk_rows: int) -> OpenTable:
    """Return the columns and rows of a Feather file (Arrow IPC, file or stream format)."""
    with refusing_damage(name, "Feather"):
        if os.fstat(file.fileno()).st_size == 0:
            raise ValueError("it is empty")
        buffer = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if buffer[:4].to_pybytes() == b"FEA1":
            raise ValueError("it has the first version of the Feather format, which is no longer supported")
        if buffer[:6].to_pybytes() == b"ARROW1":
            reader = pa.ipc.open_file(buffer)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(buffer)
            batches = iter(reader)
        schema = reader.schema
    return _ArrowColumns(schema, name, "Feather").open(batches, chunk_rows)


def open_folder(folder: Path, chunk_rows: int) -> OpenTable:
    """Return the columns of the first Parquet file and the rows of all; all need the same columns, in any order."""
    files = parquet_files(folder)
    with ExitStack() as stack:
        first = open_parquet(stack.enter_context(files[0].open("rb")), str(files[0]), chunk_rows, stack)
    notes = [*first.notes, f"{folder} is read as one table of {len(files):,} Parquet files."]
    return OpenTable(first.columns, _folder_frames(files, first.columns, chunk_rows), first.empty, True, notes)


def _folder_frames(files: list[Path], columns: list[str], chunk_rows: int) -> Iterator[Any]:
    for file in files:
        with ExitStack() as stack:
            opened = open_parquet(stack.enter_context(file.open("rb")), str(file), chunk_rows, stack)
            check_same_columns(file, opened.columns, files[0], columns)
            for frame in opened.frames:
                yield frame[columns]


def check_same_columns(file: Path, columns: Iterable[str], first: Path, expected: Iterable[str]) -> None:
    """Raise `TableError` if a file of a folder has other columns than the first one."""
    different = sorted(set(columns) ^ set(expected))
    if different:
        raise TableError(f"{file} and {first} differ in the columns {quote_some(different)}; write the same columns.")


@contextmanager
def refusing_damage(name: str, title: str) -> Iterator[None]:
    """Turn any error of a decoder of files into a `TableError` with one sentence."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        raise TableError(
            f"{name} is not a readable {title} file ({in_one_line(error)}); replace it with an intact copy."
        ) from error


class _ArrowColumns:
    """The columns of a file and their conversion."""

    def __init__(self, schema: Any, name: str, title: str) -> None:
        self._name, self._title = name, title
        with refusing_damage(name, title):
            raw = schema.names
            index = [each for each in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(each, str)]
        unnamed = {each for each in index if PANDAS_INDEX.fullmatch(each)}
        self._positions = [position for position, each in enumerate(raw) if each not in unnamed]
        if not self._positions:
            raise TableError(f"{name} has no columns; save a table with at least one.")
        names, self.notes = clean_names([raw[position] for position in self._positions], name)
        if len(names) < len(raw):
            self.notes.append(f"{name} has a pandas index without a name; it is ignored.")
        types = [schema.field(position).type for position in self._positions]
        self._schema = pa.schema(
            [(each, self._plain_type(each, kind)) for each, kind in zip(names, types, strict=True)]
        )

    def open(self, batches: Iterator[Any], chunk_rows: int) -> OpenTable:
        with refusing_damage(self._name, self._title):  # an unknown time zone, for example
            empty = to_frame(self._schema.empty_table())
        frames = frames_of(self._tables(batches, self.rows_at_once(chunk_rows)), chunk_rows)
        return OpenTable(self._schema.names, frames, lambda: empty, typed=True, notes=self.notes)

    def rows_at_once(self, chunk_rows: int) -> int:
        """Return the number of rows to decode at once, from the number of cells; bytes are known only afterwards."""
        return max(1, min(chunk_rows, FRAME_BYTES // (8 * len(self._positions))))

    def _tables(self, batches: Iterator[Any], rows: int) -> Iterator[Any]:
        while True:
            with refusing_damage(self._name, self._title):
                batch = next(batches, None)
                if batch is None:
                    return
                # Without this check a damaged file could make pandas read memory that it does not own.
                batch.validate(full=True)
            for start in range(0, batch.num_rows, rows):
                with refusing_damage(self._name, self._title):
                    table = self._convert(batch.slice(start, rows))
                yield table

    def _convert(self, batch: Any) -> Any:
        columns = [_plain(batch.column(i), field.type) for i, field in zip(self._positions, self._schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _plain_type(self, column: str, kind: Any) -> Any:
        plain = _plain_type(kind)
        if plain is None:
            raise TableError(
                f"column {column!r} of {self._name} holds {in_one_line(kind)}, which cannot become a feature; drop it, "
                "or split it into columns of numbers, text or dates."
            )
        return plain


def _plain_type(kind: Any) -> Any:
    """Return the Arrow type that a type is converted to, or None if it cannot be used."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if is_a.is_null(kind) or is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.large_string()
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_timestamp(kind):
        return kind
    if is_a.is_floating(kind):
        return pa.float32() if is_a.is_float16(kind) else kind
    if is_a.is_date(kind):
        return pa.timestamp("ms")
    if is_a.is_decimal(kind) or is_a.is_time(kind) or is_a.is_duration(kind):
        return pa.float64()
    return None


def _plain(column: Any, plain: Any) -> Any:
    """Return the values of a column converted to a plain type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(plain, safe=False), float(SECONDS[kind.unit]))
    return column.cast(plain)
