"""CSV and TSV in: dialect found, every column as text, parsed by pyarrow block by block.

A quote opens a field only at its start; inside, a doubled quote stands for one. Blank lines are skipped. Fields are
left as they are: only those that mean "no value" become missing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from uulearn.exceptions import TableError
from uulearn.io.formats import MISSING, SEPARATORS, clean_names, in_one_line
from uulearn.io.reading_arrow import Opened, frames_of, to_frame
from uulearn.io.reading_text import Block, TextBuffer, after_last_line, count_lines

SAMPLED_RECORDS = 100
SAMPLED_BYTES = 1 << 18
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# Where a blank follows every separator, as some tools write it, it belongs to the mark and is no value.
MISSING_FIELDS = [*MISSING, *(f" {mark}" for mark in MISSING)]
QUOTE = ord('"')


class Patterns(NamedTuple):
    """Regular expressions of a dialect."""

    field: re.Pattern[bytes]
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]


@lru_cache
def patterns(separator: str) -> Patterns:
    """What a field, a record with its line end and a run of records look like with this separator."""
    mark = re.escape(separator.encode())

    def field(group: bytes) -> bytes:
        return rb'(?:"%b[^"]*+(?:""[^"]*+)*+)"|(?!"))%b[^%b\r\n]*+)' % (group, group, mark)

    plain = field(b"(?:")
    # A CR that ends the data is no line end yet: the LF that belongs to it may follow.
    record = rb"%b(?:%b%b)*+(?:\r\n|\n|\r(?!\Z))" % (plain, mark, plain)
    return Patterns(re.compile(field(b"(")), re.compile(record), re.compile(rb"(?:%b)*+" % record))


def split_record(record: bytes, separator: str) -> list[str]:
    """The fields of one record.

    Examples
    --------
    >>> split_record(b'41,"Basel, ""BS"", CH",', ",")
    ['41', 'Basel, "BS", CH', '']
    """
    field, fields, position = patterns(separator).field, [], 0
    while True:
        match = field.match(record, position)
        assert match is not None, "records come from the pattern that is made of this one"
        quoted, rest = match.groups(b"")
        fields.append((quoted.replace(b'""', b'"') + rest).decode())
        position = match.end() + 1
        if not record.startswith(separator.encode(), match.end()):
            return fields


def end_of_records(data: bytes, separator: str) -> int:
    """How many bytes of a text, from its beginning, are whole records."""
    if b'"' not in data:
        return after_last_line(data)
    end = _end_by_parity(data, separator)
    if end is not None:
        return end
    match = patterns(separator).records.match(data)
    assert match is not None, "the pattern matches the empty text too"
    return match.end()


def _end_by_parity(data: bytes, separator: str) -> int | None:
    """The same, ten times faster, where every quote that can open a field stands where a field starts.

    Then a line end lies outside of fields exactly if an even number of quotes precedes it: a doubled quote closes
    and opens again. Where a quote stands elsewhere, as in ``5" pipe``, the answer is None.
    """
    content = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(content == QUOTE)
    opening = quotes[::2]
    before = content[opening[opening > 0] - 1]
    if not np.isin(before, (ord(separator), ord("\n"), ord("\r"), QUOTE)).all():
        return None
    stop = len(data)
    while True:
        end = after_last_line(data, stop)
        n_before = int(np.searchsorted(quotes, end))
        if n_before % 2 == 0:
            return end
        stop = int(quotes[n_before - 1])


def records_of(block: Block, separator: str) -> Iterator[tuple[int, bytes]]:
    """Line number and content of every record of a block that is not blank."""
    line = block.line
    # The pattern waits for what follows a CR at the end; here nothing does.
    data = block.data + b"\n" if block.data.endswith(b"\r") else block.data
    for match in patterns(separator).record.finditer(data):
        record = match.group()
        if record.strip(b"\r\n"):
            yield line, record
        line += count_lines(record)


class Dialect(NamedTuple):
    """How a file is read."""

    separator: str
    columns: list[str]
    n_blank: int
    """Number of fields after the last column, left by trailing separators; nothing may stand there."""


def open_csv(text: TextBuffer, format: str, chunk_rows: int) -> Opened:
    """Columns and rows of a CSV or TSV file."""
    dialect, notes = find_dialect(text, SEPARATORS[format])
    empty = pa.schema([(column, pa.string()) for column in dialect.columns]).empty_table()
    frames = frames_of(_tables(text, dialect), chunk_rows)
    return Opened(dialect.columns, frames, partial(to_frame, empty), typed=False, notes=notes)


def find_dialect(text: TextBuffer, expected: str) -> tuple[Dialect, list[str]]:
    """Separator and columns from the beginning of a file, whose header is taken off it; and notes for the user."""
    name = text.name
    text.start()
    if not text.pending:
        raise TableError(f"{name} is empty; pass a file with a header and rows.")
    head = _head(text, expected)
    separator, notes = _find_separator(text, head, expected)
    head = _head(text, separator)
    sample = _sample(head, separator)
    first = sample[0]
    if is_header(first):
        _, header = next(records_of(head, separator))
        text.take(min(len(header), len(head.data)))
        n_columns, n_blank = _count_columns(first, sample[1:])
        names = first[:n_columns]
    else:
        n_columns, n_blank = _count_columns(first, sample)
        names = [str(position) for position in range(n_columns)]
        notes.append(
            f"{name} has no header: the first line holds numbers only; its columns are called 0, 1, and so on."
        )
    if n_blank:
        notes.append(f"{name} has separators after the last column of its lines; they are ignored.")
    columns, more = clean_names(names, name)
    return Dialect(separator, columns, n_blank), notes + more


def is_header(fields: list[str]) -> bool:
    """Whether a first line names columns; also with plain numbers from 0 or 1, as tools name columns without names.

    Examples
    --------
    >>> is_header(["age", "2019"]), is_header(["41", "", "-1e3"]), is_header(["", "0", "1"])
    (True, False, True)
    """
    stripped = [field.strip() for field in fields]
    values = [field for field in stripped if field not in MISSING]
    if not values or not all(map(_is_number, values)):
        return True
    named = stripped[1:] if not stripped[0] else stripped  # pandas leaves its index nameless
    counted = [[str(start + position) for position in range(len(named))] for start in (0, 1)]
    return len(stripped) > 1 and named in counted


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _head(text: TextBuffer, separator: str) -> Block:
    """Whole records at the beginning of a text, at least one."""
    while not (end := end_of_records(text.pending, separator)):
        if not text.grow():
            raise text.open_quote()
    return text.look(end)


def _sample(head: Block, separator: str) -> list[list[str]]:
    """The fields of the first records."""
    sample, size = [], 0
    for _, record in islice(records_of(head, separator), SAMPLED_RECORDS):
        sample.append(split_record(record, separator))
        size += len(record)
        if size > SAMPLED_BYTES and len(sample) > 1:
            break
    return sample


def _sample_by(text: TextBuffer, separator: str) -> list[list[str]]:
    """The fields of the first records as another separator would have them: records may then end elsewhere."""
    try:
        return _sample(_head(text, separator), separator)
    except TableError:  # a quote that this separator opens is never closed
        return []


def _find_separator(text: TextBuffer, head: Block, expected: str) -> tuple[str, list[str]]:
    """The expected separator, or another that divides every sampled line equally where the first lacks that one."""
    if len(_sample(head, expected)[0]) > 1:
        return expected, []
    name = text.name
    others = [each for each in SEPARATOR_NAMES if each != expected and each.encode() in head.data]
    samples = {each: _sample_by(text, each) for each in others}
    dividing = {each: sample for each, sample in samples.items() if sample and len(sample[0]) > 1}
    if not dividing:
        return expected, []
    agreeing = [each for each, sample in dividing.items() if len(set(map(len, sample))) == 1]
    if len(agreeing) == 1:
        found = agreeing[0]
        return found, [f"{name} is read with {SEPARATOR_NAMES[found]} between its fields."]
    found_names = " and ".join(SEPARATOR_NAMES[each] for each in dividing)
    raise TableError(
        f"the first line of {name} has no {SEPARATOR_NAMES[expected]} but {found_names}, which do not divide all lines "
        f"into equally many fields; save it with {SEPARATOR_NAMES[expected]} between fields, and quotes around a field "
        "that holds one."
    )


def _count_columns(first: list[str], rows: list[list[str]]) -> tuple[int, int]:
    """Number of columns, and of nameless empty fields after them, which trailing separators make.

    Fields are of the latter kind if the first line has nothing there, nor has any of the sampled rows.
    """
    bare = len(first)
    while bare and not first[bare - 1].strip():
        bare -= 1
    widths = set(map(len, rows)) or {bare}
    if not bare or len(widths) > 1 or min(widths) < bare or any(any(row[bare:]) for row in rows):
        return len(first), 0
    return bare, min(widths) - bare


def _tables(text: TextBuffer, dialect: Dialect) -> Iterator[Any]:
    """The rows, as Arrow tables of strings."""
    blank = [" " * width for width in range(dialect.n_blank)]  # no column has such a name: they are stripped
    names = dialect.columns + blank
    convert = arrow_csv.ConvertOptions(
        check_utf8=False,  # it has been
        column_types=dict.fromkeys(names, pa.string()),
        null_values=MISSING_FIELDS,
        strings_can_be_null=True,
    )
    read = arrow_csv.ReadOptions(column_names=names)
    for block in text.blocks(partial(end_of_records, separator=dialect.separator)):
        if not block.data.strip(b"\r\n"):
            continue
        # pyarrow would take it for a byte-order mark; behind a blank line, which it skips, it does not.
        data = b"\n" + block.data if block.data.startswith(codecs.BOM_UTF8) else block.data
        parse = arrow_csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=b'"' in block.data)
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(data), read_options=read, parse_options=parse, convert_options=convert
            )
        except pa.ArrowException as error:
            raise _explain(block, dialect, text.name, error) from error
        if any(table[each].null_count < table.num_rows for each in blank):
            raise _explain(block, dialect, text.name, "a value after the last column")
        yield table.select(dialect.columns)


def _explain(block: Block, dialect: Dialect, name: str, error: object) -> TableError:
    """The first line of a block that does not fit, and why."""
    n_columns = len(dialect.columns)
    width = n_columns + dialect.n_blank
    for line, record in records_of(block, dialect.separator):
        fields = split_record(record, dialect.separator)
        if len(fields) != width:
            found = "1 field" if len(fields) == 1 else f"{len(fields):,} fields"
            return TableError(
                f"line {line:,} of {name} has {found} where {width:,} are due; fix it (a field that holds the "
                "separator or a line end needs quotes around it)."
            )
        if any(field not in MISSING_FIELDS for field in fields[n_columns:]):
            return TableError(f"line {line:,} of {name} has a value after the last column; name it in the header.")
    return TableError(f"{name} cannot be read from line {block.line:,} on ({in_one_line(error)}); fix it there.")
