"""Read Parquet and Feather files, and convert Arrow tables to pandas frames of limited size.

Integers and booleans are read as nullable pandas types even if no value is missing, so all chunks have the same types.
Decimals are converted to floats, and so are durations and times of day (in seconds). Dates are converted to timestamps,
and columns that contain only nulls to text. Categorical columns are replaced by their values. A column of lists of
numbers is replaced by one column per position (`uulearn.io.embeddings`).
"""

import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uulearn.exceptions import TableError
from uulearn.io import embeddings
from uulearn.io.formats import clean_names, in_one_line, parquet_files, quote_some

FRAME_BYTES = 1 << 27  # maximum size of one frame; rows with thousands of columns or long texts need much memory
COLUMN_BUFFER_BYTES = 1 << 20  # number of bytes of a Parquet column chunk per read
SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # name that pandas gives to an index without a name
NULLABLE = {pa.bool_(): pd.BooleanDtype()} | {
    getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")()
    for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
}


class TableReader(ExitStack):
    """An open table with a name, columns, and rows, which can be read once as pandas frames.

    Leaving the ``with`` block, or calling `close`, closes the file; standard input stays open. ``typed`` is False for
    CSV and TSV, where every column is text, and empty fields and markers such as NA are missing values. ``notes`` is a
    list of messages about how the file was read. ``lists`` contains the length of each column of lists, which are
    replaced by one column per position, or of the rows of an array (`uulearn.io.embeddings`).
    """

    def __init__(
        self,
        name: str,
        frames: Iterable[pd.DataFrame],
        empty: pd.DataFrame,
        notes: list[str],
        *,
        typed: bool = True,
        lists: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.name, self.notes, self.typed, self.lists = name, notes, typed, lists or {}
        self.place = name
        """Name of the file that contains the current frame; it differs from ``name`` if the table is a folder."""
        self.columns: list[str] = list(empty.columns)
        self.ambiguous: dict[str, str] = {}
        """A value such as 1.234 of each column of a file with decimal commas, in the rows that have been read."""
        self._frames, self._empty = frames, embeddings.with_lengths(empty, self.lists)
        self._begun = False
        self.callback(setattr, self, "_begun", True)  # a closed table cannot be read

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Yield the rows as frames, with the row number in the file as index; without rows, yield no frames."""
        if self._begun:
            raise TableError(f"{self.name} has already been read; open it again.")
        self._begun = True
        return self._numbered()

    def all_rows(self) -> pd.DataFrame:
        """Return all rows as one frame."""
        frames = list(self)
        refuse_ambiguous(self.name, self.ambiguous, self.columns)
        return pd.concat(frames, ignore_index=True) if frames else self._empty

    def _numbered(self) -> Iterator[pd.DataFrame]:
        start, place = 0, self.place
        with self:
            for frame in self._frames:
                if self.place != place:
                    start, place = 0, self.place
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield embeddings.with_lengths(frame, self.lists)


def refuse_ambiguous(name: str, ambiguous: dict[str, str], columns: Iterable[str]) -> None:
    """Raise `TableError` if one of the columns has a value with a point in a file with decimal commas."""
    for column in columns:
        if column in ambiguous:
            raise TableError(
                f"{name} has decimal commas, but also {ambiguous[column]!r} in column {column!r}, in which the point "
                "could be a decimal point or separate thousands; write all numbers like 1234.5."
            )


@contextmanager
def refusing_damage(name: str, title: str) -> Iterator[None]:
    """Convert decoding errors to `TableError` with a one-sentence message."""
    try:
        yield
    except TableError:
        raise
    except Exception as error:
        raise TableError(
            f"{name} is not a readable {title} file ({in_one_line(error)}); replace it with an intact copy."
        ) from error


def to_frame(table: Any) -> Any:
    """Return a pandas frame with all columns of a table; an index stored by pandas is ignored."""
    return table.to_pandas(types_mapper=NULLABLE.get, ignore_metadata=True, date_as_object=False)


def frames_of(tables: Iterable[Any], chunk_rows: int) -> Iterator[Any]:
    """Regroup tables into frames of ``chunk_rows`` rows, or fewer if a frame would exceed `FRAME_BYTES`."""
    waiting: list[Any] = []
    rows = size = 0
    for table in tables:
        start, step = 0, max(1, table.num_rows * FRAME_BYTES // max(1, table.nbytes))
        while start < table.num_rows:
            part = table.slice(start, min(chunk_rows - rows, step))
            waiting.append(part)
            start, rows, size = start + part.num_rows, rows + part.num_rows, size + part.nbytes
            if rows == chunk_rows or size >= FRAME_BYTES:
                yield to_frame(pa.concat_tables(waiting))
                waiting, rows, size = [], 0, 0
    if waiting:
        yield to_frame(pa.concat_tables(waiting))


def open_parquet(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> TableReader:
    """Open a Parquet file; row groups are read one at a time."""
    with refusing_damage(name, "Parquet"):
        reader = pq.ParquetFile(
            file,
            buffer_size=COLUMN_BUFFER_BYTES,  # pre_buffer=False, because one row group may be larger than the memory
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # the year 9999 would overflow in nanoseconds
        )
        stack.callback(reader.close)
        schema = reader.schema_arrow
    batches = reader.iter_batches(batch_size=_rows_at_once(chunk_rows, _values_per_row(reader.metadata)))
    return _arrow_reader(schema, batches, name, "Parquet", chunk_rows)


def open_feather(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> TableReader:
    """Open a Feather file (the file or stream format of Arrow IPC)."""
    with refusing_damage(name, "Feather"):
        buffer = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if buffer[:6].to_pybytes() == b"ARROW1":
            reader = pa.ipc.open_file(buffer)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(buffer)
            batches = iter(reader)
    return _arrow_reader(reader.schema, batches, name, "Feather", chunk_rows)


def open_folder(folder: Path, chunk_rows: int) -> TableReader:
    """Open a folder of Parquet files as one table; all files must have the same columns, in any order."""
    files = parquet_files(folder)
    with files[0].open("rb") as file, ExitStack() as stack:
        first = open_parquet(file, str(files[0]), chunk_rows, stack)

    def frames() -> Iterator[Any]:
        for path in files:
            with path.open("rb") as file, ExitStack() as stack, open_parquet(file, str(path), chunk_rows, stack) as own:
                check_same_columns(path, own.columns, files[0], first.columns)
                reader.place = str(path)
                for frame in own._frames:
                    yield frame[first.columns]

    notes = [*first.notes, f"{folder} is read as one table of {len(files):,} Parquet files."]
    reader = TableReader(str(folder), frames(), first._empty, notes, lists=first.lists)
    return reader


def check_same_columns(file: Path, columns: Iterable[str], first: Path, expected: Iterable[str]) -> None:
    """Raise `TableError` if a file and the first file of the folder have different columns."""
    different = sorted(set(columns) ^ set(expected))
    if different:
        raise TableError(f"{file} and {first} differ in the columns {quote_some(different)}; use the same columns.")


def from_arrow(table: Any, name: str) -> pd.DataFrame:
    """Return an Arrow table as one frame, with the types that a Parquet file of the table would have."""
    return _arrow_reader(table.schema, iter(table.to_batches()), name, "Arrow", max(1, table.num_rows)).all_rows()


def _rows_at_once(chunk_rows: int, n_columns: int) -> int:
    """Return the number of rows to decode per batch, which decreases with the number of columns."""
    return max(1, min(chunk_rows, FRAME_BYTES // (8 * max(1, n_columns))))


def _values_per_row(metadata: Any) -> int:
    """Return the number of values in a row of a Parquet file; a list has as many values as it is long."""
    if not metadata.num_row_groups:
        return int(metadata.num_columns)
    first = metadata.row_group(0)
    values = sum(first.column(at).num_values for at in range(metadata.num_columns))
    return int(values // max(1, first.num_rows))


def _arrow_reader(schema: Any, batches: Iterator[Any], name: str, title: str, chunk_rows: int) -> TableReader:
    """Return a reader that converts the columns of each batch to supported types."""
    with refusing_damage(name, title):
        index = (schema.pandas_metadata or {}).get("index_columns", ())
        unnamed = {each for each in index if isinstance(each, str) and PANDAS_INDEX.fullmatch(each)}
        positions = [position for position, each in enumerate(schema.names) if each not in unnamed]
    if not positions:
        raise TableError(f"{name} has no columns; save a table with at least one column.")
    names, notes = clean_names([schema.names[position] for position in positions], name)
    if len(names) < len(schema.names):
        notes.append(f"{name} has an unnamed pandas index, which is ignored.")
    fields = [schema.field(position).type for position in positions]
    types = [embeddings.element_type(kind) or _plain_type(kind) for kind in fields]
    if None in types:
        at = types.index(None)
        raise TableError(
            f"column {names[at]!r} of {name} has type {in_one_line(fields[at])}, which is not supported; drop it, or "
            "split it into columns of numbers, text or dates."
        )

    def sound_batches() -> Iterator[Any]:
        while True:
            with refusing_damage(name, title):
                batch = next(batches, None)
                if batch is None:
                    return
                # Without this check, a damaged file could make pandas read memory outside its buffers.
                batch.validate(full=True)
            yield batch.select(positions)

    lists = [at for at, kind in enumerate(fields) if embeddings.element_type(kind) is not None]
    sound, lengths = embeddings.measure(sound_batches(), {at: fields[at] for at in lists}, names, name)
    columns = [(column, kind) for at, kind in enumerate(types) for column in _column_names(names[at], lengths.get(at))]
    clean_names([column for column, _ in columns], name)
    plain = pa.schema(columns)
    with refusing_damage(name, title):  # an unknown time zone, for example
        empty = to_frame(plain.empty_table())

    def convert(part: Any, first_row: int) -> Iterator[Any]:
        for at, kind in enumerate(types):
            if at in lengths:
                yield from embeddings.expand(part.column(at), lengths[at], names[at], name, first_row)
            else:
                yield _convert(part.column(at), kind)

    def tables() -> Iterator[Any]:
        rows, read = _rows_at_once(chunk_rows, len(columns)), 0
        for batch in sound:
            for start in range(0, batch.num_rows, rows):
                with refusing_damage(name, title):
                    arrays = list(convert(batch.slice(start, rows), read + start))
                    table = pa.Table.from_arrays(arrays, schema=plain)
                yield table
            read += batch.num_rows

    lengths_by_name = {names[at]: length for at, length in lengths.items()}
    return TableReader(name, frames_of(tables(), chunk_rows), empty, notes, lists=lengths_by_name)


def _column_names(name: str, length: int | None) -> list[str]:
    """Return the names of the columns that replace a column; ``length`` is the length of its lists."""
    return [name] if length is None else embeddings.position_names(name, length)


def _plain_type(kind: Any) -> Any:
    """Return the Arrow type that values of a type are converted to, or None if the type is not supported."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if is_a.is_null(kind) or is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return pa.large_string()
    if is_a.is_float16(kind):
        return pa.float32()
    if is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_timestamp(kind):
        return kind
    if is_a.is_date(kind):
        return pa.timestamp("ms")
    return pa.float64() if is_a.is_decimal(kind) or is_a.is_time(kind) or is_a.is_duration(kind) else None


def _convert(column: Any, plain: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        return _convert(column.dictionary, plain).take(column.indices)
    kind = column.type
    if pa.types.is_time32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(plain, safe=False), float(SECONDS[kind.unit]))
    return column.cast(plain)
