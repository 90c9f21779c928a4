"""JSON lines in: one object a line, of plain values that keep their JSON types.

The columns are the keys of the first ``SURVEYED_LINES`` lines together; a key may be absent from a line, which means
a missing value, but a key that first appears later is refused: the rows before it have been handed out by then.
Columns come as ``object``: whether 3, 3.5 and "3" in one column are numbers is for the survey of all rows to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from uulearn.exceptions import TableError
from uulearn.io.formats import clean_names, in_one_line
from uulearn.io.reading_arrow import CHUNK_BYTES, Opened
from uulearn.io.reading_text import TextBuffer, after_last_line

SURVEYED_LINES = 100_000
SURVEYED_BYTES = CHUNK_BYTES // 4  # Python's objects are several times larger than their text
PLAIN = {str, int, float, bool, type(None)}
PAIRS = json.JSONDecoder(object_pairs_hook=tuple)  # pairs, not a dict, so that a key given twice is seen


class Row(NamedTuple):
    """One object, where it stands and how long its text is."""

    values: dict[str, Any]
    line: int
    size: int


def open_json_lines(text: TextBuffer, chunk_rows: int) -> Opened:
    """Columns and rows of a file of JSON lines."""
    rows = _rows(text)
    first: list[Row] = []
    size = 0
    for row in rows:
        first.append(row)
        size += row.size
        if len(first) == SURVEYED_LINES or size >= SURVEYED_BYTES:
            break
    if not first:
        raise TableError(f"{text.name} is empty; pass a file with one JSON object a line.")
    keys = list(dict.fromkeys(key for row in first for key in row.values))
    if not keys:
        raise TableError(f"the objects of {text.name} have no keys; give every row its values by name.")
    columns, notes = clean_names(keys, text.name)
    frames = _frames(chain(first, rows), keys, columns, text.name, chunk_rows)
    return Opened(columns, frames, partial(_frame, [], keys, columns), typed=True, notes=notes)


def _frames(rows: Iterator[Row], keys: list[str], columns: list[str], name: str, chunk_rows: int) -> Iterator[Any]:
    known = set(keys)
    waiting: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if not row.values.keys() <= known:
            new = next(key for key in row.values if key not in known)
            raise TableError(
                f"line {row.line:,} of {name} has a key {new[:60]!r} that no earlier line has; give it in the first "
                "line too, as null where there is no value."
            )
        waiting.append(row.values)
        size += row.size
        if len(waiting) == chunk_rows or size >= SURVEYED_BYTES:
            yield _frame(waiting, keys, columns)
            waiting, size = [], 0
    if waiting:
        yield _frame(waiting, keys, columns)


def _frame(rows: list[dict[str, Any]], keys: list[str], columns: list[str]) -> Any:
    return pd.DataFrame(
        {
            column: pd.Series([row.get(key) for row in rows], dtype=object)
            for column, key in zip(columns, keys, strict=True)
        }
    )


def _rows(text: TextBuffer) -> Iterator[Row]:
    text.start()
    for block in text.blocks(after_last_line):
        escaped = b"\\u" in block.data  # the only way to half a character
        for line, content in enumerate(block.data.splitlines(), block.line):
            if content.strip():
                yield Row(_parse(content.decode(), escaped, f"line {line:,} of {text.name}"), line, len(content))


def _parse(content: str, escaped: bool, place: str) -> dict[str, Any]:
    """The object of one line."""
    try:
        pairs = PAIRS.decode(content)
        if escaped:
            json.dumps(pairs, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise TableError(f"{place} escapes half of a surrogate pair, which is no character; write it whole.") from error
    except json.JSONDecodeError as error:
        raise TableError(
            f"{place} is not JSON ({error.msg}, column {error.colno}); write one object a line."
        ) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets within brackets
        raise TableError(f"{place} is not JSON ({in_one_line(error)}); write one object a line.") from error
    if type(pairs) is not tuple:
        raise TableError(f"{place} is not an object but {content.strip()[:40]!r}; write one object a line.")
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise TableError(f"{place} gives the key {twin[:60]!r} twice; keep one of them.")
    if not PLAIN.issuperset(map(type, values.values())):
        key = next(key for key, value in values.items() if type(value) not in PLAIN)
        raise TableError(f"{place} holds a list or an object under {key[:60]!r}; spread it over keys of its own.")
    return values
