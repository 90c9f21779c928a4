"""Read CSV and TSV files: pyarrow parses them, every column as text.

Quotes follow Python's ``csv`` module: a quote opens a field only at its start, and a doubled quote inside stands for
one. Blank lines are skipped. Fields that mean "no value", such as NA, become missing; other fields are unchanged. The
``csv`` module reads the first records, to find the separator and the header, and reads the file again after an error,
to name the line.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv

from uulearn.exceptions import TableError
from uulearn.io.arrow import OpenTable, frames_of, to_frame
from uulearn.io.formats import MISSING, SEPARATORS, clean_names, in_one_line
from uulearn.io.sources import TextSource

BLOCK_BYTES = 1 << 22  # bytes parsed at once, which is also the limit for one record
SAMPLED_RECORDS = 100  # records at the start of a file that decide about separator and columns
SAMPLED_BYTES = 1 << 18  # fewer records if they are long
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# A blank after each separator, as some tools write, is part of the mark and not a value.
MISSING_FIELDS = [*MISSING, *(f" {mark}" for mark in MISSING)]
END = "uulearn: end of file"  # field of an added last record, which an open quote swallows


class Dialect(NamedTuple):
    """How a file is read."""

    separator: str
    columns: list[str]
    n_blank: int
    """Number of empty fields after the last column, from trailing separators."""
    header_bytes: int

    @property
    def width(self) -> int:
        """Number of fields per record."""
        return len(self.columns) + self.n_blank

    @property
    def end(self) -> list[str]:
        """Fields of the added last record."""
        return [END] * self.width


def open_csv(source: TextSource, format: str, chunk_rows: int) -> OpenTable:
    """Return the columns and rows of a CSV or TSV file."""
    dialect, notes = find_dialect(source, SEPARATORS[format])
    empty = pa.schema([(column, pa.large_string()) for column in dialect.columns]).empty_table()
    return OpenTable(
        dialect.columns, frames_of(_tables(source, dialect), chunk_rows), partial(to_frame, empty), False, notes
    )


def find_dialect(source: TextSource, expected: str) -> tuple[Dialect, list[str]]:
    """Return separator, columns and size of the header of a file, and notes for the user."""
    name = source.name
    sample, header_bytes = _sample(source, expected)
    if not sample:
        raise TableError(f"{name} is empty; pass a file with a header and rows.")
    notes = []
    separator = expected
    if len(sample[0]) == 1 and (found := _find_separator(source, expected)) != expected:
        separator = found
        sample, header_bytes = _sample(source, separator)
        notes.append(f"{name} is read with {SEPARATOR_NAMES[separator]} between its fields.")
    first = sample[0]
    if is_header(first):
        n_columns, n_blank = _count_columns(first, sample[1:])
        names = first[:n_columns]
    else:
        header_bytes = 0
        n_columns, n_blank = _count_columns(first, sample)
        names = [str(position) for position in range(n_columns)]
        notes.append(f"{name} has no header: its first line contains only numbers; the columns are named 0, 1, ...")
    if n_blank:
        notes.append(f"{name} has separators after the last column; they are ignored.")
    columns, more = clean_names(names, name)
    return Dialect(separator, columns, n_blank, header_bytes), notes + more


def is_header(fields: list[str]) -> bool:
    """Return whether a first line names columns; plain numbers from 0 or 1 do, because tools write them.

    Examples
    --------
    >>> is_header(["age", "2019"]), is_header(["41", "", "-1e3"]), is_header(["", "0", "1"])
    (True, False, True)
    """
    stripped = [field.strip() for field in fields]
    values = [field for field in stripped if field not in MISSING]
    if not values or not all(map(_parses_as_float, values)):
        return True
    named = stripped[1:] if not stripped[0] else stripped  # pandas writes its index without a name
    counted = [[str(start + position) for position in range(len(named))] for start in (0, 1)]
    return len(stripped) > 1 and named in counted


def _parses_as_float(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _sample(source: TextSource, separator: str, *, strict: bool = False) -> tuple[list[list[str]], int]:
    """Return the fields of the first records that are not blank, and the bytes up to the end of the first.

    An error after the first record ends the sample, unless ``strict``: with another separator there may be none.
    """
    sample: list[list[str]] = []
    header_bytes = 0
    with _records(source, separator) as records:
        try:
            for record in records:
                if not record.fields:
                    continue
                sample.append(record.fields)
                header_bytes = header_bytes or record.end
                if len(sample) == SAMPLED_RECORDS or (record.end > SAMPLED_BYTES and len(sample) > 1):
                    break
        except TableError:
            if strict or not sample:
                raise
    return sample, header_bytes


class Record(NamedTuple):
    """Fields of one record, the line where it starts, and the bytes of the file up to its end."""

    fields: list[str]
    line: int
    end: int


@contextmanager
def _records(source: TextSource, separator: str) -> Iterator[Iterator[Record]]:
    """Yield the records of a file as the ``csv`` module reads them."""
    limit = csv.field_size_limit(BLOCK_BYTES)
    text = source.open_text()
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        while line := text.readline(BLOCK_BYTES + 1):
            read += len(line.encode())
            yield line

    def records() -> Iterator[Record]:
        reader = csv.reader(chain(lines(), ["\n", END]), delimiter=separator)
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except UnicodeDecodeError as error:
                raise source.not_utf8() from error
            except csv.Error as error:
                raise TableError(
                    f"line {line:,} of {source.name}: a record is longer than {BLOCK_BYTES:,} bytes; close the quote "
                    "that is open there."
                ) from error
            if fields is None or fields == [END]:
                return
            if fields and fields[-1].endswith(END):
                raise TableError(
                    f"line {line:,} of {source.name}: a quote is opened and never closed; close it, or replace the "
                    "file with an intact copy."
                )
            yield Record(fields, line, read)

    try:
        yield records()
    finally:
        csv.field_size_limit(limit)


def _find_separator(source: TextSource, expected: str) -> str:
    """Return another separator that divides every sampled record into equally many fields, if there is one."""
    dividing = {}
    for separator in SEPARATOR_NAMES:
        if separator != expected:
            try:
                sample, _ = _sample(source, separator, strict=True)
            except TableError:  # with this separator a quote stays open
                continue
            if len(sample[0]) > 1:
                dividing[separator] = {len(fields) for fields in sample}
    if not dividing:
        return expected
    agreeing = [separator for separator, widths in dividing.items() if len(widths) == 1]
    if len(agreeing) == 1:
        return agreeing[0]
    found = " and ".join(SEPARATOR_NAMES[separator] for separator in dividing)
    raise TableError(
        f"the first line of {source.name} has no {SEPARATOR_NAMES[expected]} but {found}, which do not divide all "
        f"lines into the same number of fields; save it with {SEPARATOR_NAMES[expected]} between fields, and quotes "
        "around fields that contain them."
    )


def _count_columns(first: list[str], rows: list[list[str]]) -> tuple[int, int]:
    """Return the number of columns, and of empty fields without a name after them (trailing separators)."""
    bare = len(first)
    while bare and not first[bare - 1].strip():
        bare -= 1
    widths = set(map(len, rows)) or {bare}
    if not bare or len(widths) > 1 or min(widths) < bare or any(any(row[bare:]) for row in rows):
        return len(first), 0
    return bare, min(widths) - bare


class _WithEnd(io.RawIOBase):
    """The rows of a file, after a blank line (so that no byte-order mark is looked for) and before an end record."""

    def __init__(self, source: TextSource, dialect: Dialect) -> None:
        self._content = source.open()
        self._content.read(dialect.header_bytes)
        self._parts = [
            io.BytesIO(b"\n"),
            self._content,
            io.BytesIO(f"\n{dialect.separator.join(dialect.end)}\n".encode()),
        ]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while self._parts:
            if data := self._parts[0].read(size):
                return data
            self._parts.pop(0)
        return b""


def _tables(source: TextSource, dialect: Dialect) -> Iterator[Any]:
    """Yield the rows as Arrow tables of strings."""
    blank = [" " * width for width in range(1, dialect.n_blank + 1)]  # no column has such a name: names are stripped
    names = dialect.columns + blank
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.large_string()), null_values=MISSING_FIELDS, strings_can_be_null=True
    )
    options = {
        "read_options": arrow_csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
        "parse_options": arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=True),
        "convert_options": convert,
    }
    waiting = None
    try:
        with arrow_csv.open_csv(pa.PythonFile(_WithEnd(source, dialect), "r"), **options) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch])
                if waiting is not None and table.num_rows:
                    yield _without_blank(waiting, dialect, blank, source)
                waiting = table if table.num_rows or waiting is None else waiting
    except pa.ArrowException as error:
        raise _explain(source, dialect, error) from error
    assert waiting is not None
    last = [column[-1].as_py() for column in waiting.itercolumns()]
    if last != dialect.end:
        raise _explain(source, dialect, "its last record is incomplete")
    yield _without_blank(waiting.slice(0, waiting.num_rows - 1), dialect, blank, source)


def _without_blank(table: Any, dialect: Dialect, blank: list[str], source: TextSource) -> Any:
    if any(table[each].null_count < table.num_rows for each in blank):
        raise _explain(source, dialect, "there is a value after the last column")
    return table.select(dialect.columns)


def _explain(source: TextSource, dialect: Dialect, reason: object) -> TableError:
    """Return the error for the first record that does not fit, found by reading the file again."""
    n_columns, width = len(dialect.columns), dialect.width
    try:
        with _records(source, dialect.separator) as records:
            for record in records:
                fields = record.fields
                if record.end <= dialect.header_bytes or not fields:
                    continue
                if len(fields) != width:
                    return TableError(
                        f"line {record.line:,} of {source.name}: expected {width:,} field{'s' * (width > 1)}, found "
                        f"{len(fields):,}; fix it (put quotes around fields with a separator or a line end)."
                    )
                if any(field not in MISSING_FIELDS for field in fields[n_columns:]):
                    return TableError(
                        f"line {record.line:,} of {source.name}: there is a value after the last column; name its "
                        "column in the header."
                    )
    except TableError as error:
        return error
    return TableError(f"{source.name} cannot be read as CSV ({in_one_line(reason)}); fix it, or save it again.")
