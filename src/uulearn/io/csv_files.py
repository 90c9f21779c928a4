"""Read CSV and TSV files with pyarrow; every column is read as text.

Quotes are parsed as in Python's ``csv`` module: a quoted field starts with a quote, and a quote inside the field is
doubled. Blank lines are skipped. Empty fields and markers such as NA become missing values; other fields are unchanged.
The first records are parsed with the ``csv`` module to detect the separator and the header. After an error, the file is
parsed again with the ``csv`` module to find the invalid line.
"""

import csv
import io
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from uulearn.exceptions import TableError
from uulearn.io.arrow import TableReader, frames_of, to_frame
from uulearn.io.formats import MISSING, clean_names, in_one_line
from uulearn.io.sources import TextSource

BLOCK_BYTES = 1 << 22  # size of a parsed block, and the maximum size of one record
SAMPLED_RECORDS = 100  # number of records at the start of a file used to detect the separator
SAMPLED_BYTES = 1 << 18  # maximum size of these records
DECIMAL_COMMA = r"^\s*[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+\s*$"
# Only a decimal comma can look like this: 1,234 and 1.234 are ambiguous.
CLEAR_COMMA = re.compile(r"\s*[+-]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{4,},\d+|\d{1,3}(?:\.\d{3})+,\d+)\s*")
CLEAR_POINT = re.compile(r"\s*[+-]?(?:0?\.\d+|\d+\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3})+\.\d+)\s*")
POINT_OR_THOUSANDS = r"^\s*[+-]?\d{1,3}(?:\.\d{3})+\s*$"
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Some tools write a space after each separator, so " NA" is also a missing value.
MISSING_FIELDS = [*MISSING, *(f" {mark}" for mark in MISSING)]
END = "uulearn: end of file"  # marker record added at the end of the file, to detect a quote that is never closed


class Record(NamedTuple):
    """Fields of one record, the number of its first line, and the byte position of its end."""

    fields: list[str]
    line: int
    end: int


def open_csv(source: TextSource, name: str, chunk_rows: int, expected: str) -> TableReader:
    """Open a CSV or TSV file; the separator is ``expected`` unless a different one is detected in the first lines."""
    separator, notes = expected, []
    sample = _sample(source, expected)
    if not sample:
        raise TableError(f"{name} is empty; pass a file with a header and rows.")
    if len(sample[0].fields) == 1 and (found := _find_separator(source, expected)) != expected:
        separator = found
        sample = _sample(source, separator)
        notes.append(f"{name} is read with {SEPARATOR_NAMES[separator]} as field separators.")
    names, _, header_bytes = sample[0]
    if not is_header(names):
        names, header_bytes = [str(position) for position in range(len(names))], 0
        notes.append(f"{name} has no header (its first line contains only numbers); the columns are named 0, 1, ...")
    columns, more = clean_names(names, name)
    empty = to_frame(pa.schema([(column, pa.large_string()) for column in columns]).empty_table())
    tables = _tables(source, separator, columns, header_bytes)
    ambiguous: dict[str, str] = {}
    if separator != "," and (decimal := _decimal_comma_columns(sample, columns)):
        notes.append(f"{name} is read with decimal commas (3,5 is 3.5).")
        tables = _with_decimal_points(tables, decimal, ambiguous)
    reader = TableReader(name, frames_of(tables, chunk_rows), empty, notes + more, typed=False)
    reader.ambiguous = ambiguous
    return reader


def is_header(fields: list[str]) -> bool:
    """Return whether the first line contains column names; consecutive integers from 0 or 1 count as names.

    >>> is_header(["age", "2019"]), is_header(["41", "", "-1e3"]), is_header(["", "0", "1"])
    (True, False, True)
    """
    stripped = [field.strip() for field in fields]
    try:
        if not [float(field) for field in stripped if field not in MISSING]:
            return True
    except ValueError:
        return True
    named = stripped[1:] if not stripped[0] else stripped  # pandas writes an empty name for its index
    counted = [[str(start + position) for position in range(len(named))] for start in (0, 1)]
    return len(stripped) > 1 and named in counted


def _decimal_comma_columns(sample: list[Record], columns: list[str]) -> set[str]:
    """Return the columns whose sampled fields show decimal commas; none if a field of the file has a decimal point."""
    rows = [record.fields for record in sample[1:]]
    if any(CLEAR_POINT.fullmatch(field) for fields in rows for field in fields):
        return set()
    return {
        column
        for fields in rows
        for column, field in zip(columns, fields, strict=False)
        if CLEAR_COMMA.fullmatch(field)
    }


def _with_decimal_points(tables: Iterator[Any], columns: set[str], ambiguous: dict[str, str]) -> Iterator[Any]:
    """Yield the tables with decimal points instead of decimal commas.

    Fields such as ``1,234`` are converted only in ``columns``. Fields such as ``1.234`` are added to ``ambiguous``.
    """
    for table in tables:
        for place, column in enumerate(table.column_names):
            values = table.column(place)
            if column not in ambiguous:
                unclear = values.filter(pc.match_substring_regex(values, POINT_OR_THOUSANDS))
                ambiguous |= {column: unclear[0].as_py()} if len(unclear) else {}
            pattern = DECIMAL_COMMA if column in columns else f"^{CLEAR_COMMA.pattern}$"
            found = pc.match_substring_regex(values, pattern)
            if pc.any(found).as_py():
                plain = pc.replace_substring(pc.replace_substring(values, ".", ""), ",", ".")
                table = table.set_column(place, column, pc.if_else(found, plain, values))
        yield table


def _sample(source: TextSource, separator: str, *, strict: bool = False) -> list[Record]:
    """Return the first non-blank records.

    If a later record is invalid, the records before it are returned; with ``strict``, an error is raised instead.
    """
    sample: list[Record] = []
    with closing(_records(source, separator)) as records:
        try:
            for record in filter(lambda record: record.fields, records):
                sample.append(record)
                if len(sample) == SAMPLED_RECORDS or (record.end > SAMPLED_BYTES and len(sample) > 1):
                    break
        except TableError:
            if strict or not sample:
                raise
    return sample


def _records(source: TextSource, separator: str) -> Generator[Record]:
    """Yield the records of a file, parsed with the ``csv`` module."""
    text = source.open_text()
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        while line := text.readline(BLOCK_BYTES + 1):
            read += len(line.encode())
            yield line

    limit = csv.field_size_limit(BLOCK_BYTES)
    try:
        reader = csv.reader(chain(lines(), ["\n", END]), delimiter=separator)
        while True:
            line = reader.line_num + 1
            fields = next(reader, [END])
            if fields == [END]:
                return
            if fields and fields[-1].endswith(END):
                raise TableError(
                    f"line {line:,} of {source.name}: a quote is never closed; close it, or replace the "
                    "file with an intact copy."
                )
            yield Record(fields, line, read)
    except UnicodeDecodeError as error:
        raise source.not_text() from error
    except csv.Error as error:
        raise TableError(
            f"line {line:,} of {source.name}: a record is longer than {BLOCK_BYTES:,} bytes; it probably "
            "contains a quote that is never closed."
        ) from error
    finally:
        csv.field_size_limit(limit)


def _find_separator(source: TextSource, expected: str) -> str:
    """Return the separator that splits all sampled records into the same number of fields, or raise `TableError`."""
    dividing = {}
    for separator in SEPARATOR_NAMES.keys() - {expected}:
        try:
            widths = [len(record.fields) for record in _sample(source, separator, strict=True)]
        except TableError:  # with this separator, a quote is never closed
            continue
        if widths[0] > 1:
            dividing[separator] = set(widths)
    if not dividing:
        return expected
    agreeing = [separator for separator, widths in dividing.items() if len(widths) == 1]
    if len(agreeing) == 1:
        return agreeing[0]
    found = " and ".join(name for separator, name in SEPARATOR_NAMES.items() if separator in dividing)
    raise TableError(
        f"cannot detect the separator of {source.name}: its first line has no {SEPARATOR_NAMES[expected]}, and {found} "
        f"do not split all lines into the same number of fields; use {SEPARATOR_NAMES[expected]} as separators, and "
        f"put quotes around fields that contain {SEPARATOR_NAMES[expected]}."
    )


class _WithEnd(io.RawIOBase):
    """The rows of a file between a blank line, which makes pyarrow keep a byte-order mark, and an end record."""

    def __init__(self, source: TextSource, header_bytes: int, end: str) -> None:
        content = source.open()
        content.read(header_bytes)
        self._parts = [io.BytesIO(b"\n"), content, io.BytesIO(f"\n{end}\n".encode())]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while self._parts:
            if data := self._parts[0].read(size):
                return data
            self._parts.pop(0)
        return b""


def _tables(source: TextSource, separator: str, columns: list[str], header_bytes: int) -> Iterator[Any]:
    """Yield the rows as Arrow tables of strings."""
    end = [END] * len(columns)
    options = {
        "read_options": arrow_csv.ReadOptions(column_names=columns, block_size=BLOCK_BYTES),
        "parse_options": arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.large_string()), null_values=MISSING_FIELDS, strings_can_be_null=True
        ),
    }
    waiting = None
    try:
        content = pa.PythonFile(_WithEnd(source, header_bytes, separator.join(end)), "r")
        with arrow_csv.open_csv(content, **options) as reader:
            for batch in reader:
                if batch.num_rows:
                    if waiting is not None:
                        yield waiting
                    waiting = pa.Table.from_batches([batch])
    except pa.ArrowException as error:
        raise _explain(source, separator, len(columns), header_bytes, error) from error
    if waiting is None or [column[-1].as_py() for column in waiting.itercolumns()] != end:
        raise _explain(source, separator, len(columns), header_bytes, "its last record is incomplete")
    yield waiting.slice(0, waiting.num_rows - 1)


def _explain(source: TextSource, separator: str, width: int, header_bytes: int, reason: object) -> TableError:
    """Read the file again, and return an error that describes the first invalid record."""
    try:
        for fields, line, end in _records(source, separator):
            if end > header_bytes and fields and len(fields) != width:
                return TableError(
                    f"line {line:,} of {source.name}: expected {width:,} field{'s' * (width > 1)}, found "
                    f"{len(fields):,}; fix the line (quote fields that contain a separator or a line break)."
                )
    except TableError as error:
        return error
    return TableError(f"{source.name} cannot be read as CSV ({in_one_line(reason)}); fix the file, or save it again.")
