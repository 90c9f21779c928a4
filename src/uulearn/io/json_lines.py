"""Read JSON lines: one object of plain values per line; the values keep their JSON types.

The columns are the keys of the first `SURVEYED_LINES` lines together. A key that is absent from a line is a missing
value; a key that first appears later is an error, because the rows before it have been handed out by then. Columns have
type ``object``: whether 3, 3.5 and "3" in one column are numbers is decided over all rows (`uulearn.tabular.survey`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from uulearn.exceptions import TableError
from uulearn.io.arrow import FRAME_BYTES, OpenTable
from uulearn.io.formats import clean_names, in_one_line
from uulearn.io.sources import TextSource

SURVEYED_LINES = 100_000  # lines whose keys are the columns
SURVEYED_BYTES = FRAME_BYTES // 4  # fewer lines if they are long; Python objects are larger than their text
LINE_CHARACTERS = 1 << 26  # limit for one line
PLAIN_TYPES = {str, int, float, bool, type(None)}
PAIRS = json.JSONDecoder(object_pairs_hook=tuple)  # pairs instead of a dict show a key that is given twice


class JsonRow(NamedTuple):
    """One object, its line and the length of its text."""

    values: dict[str, Any]
    line: int
    size: int


def open_json_lines(source: TextSource, chunk_rows: int) -> OpenTable:
    """Return the columns and rows of a file of JSON lines."""
    rows = _rows(source)
    first: list[JsonRow] = []
    size = 0
    for row in rows:
        first.append(row)
        size += row.size
        if len(first) == SURVEYED_LINES or size >= SURVEYED_BYTES:
            break
    if not first:
        raise TableError(f"{source.name} is empty; pass a file with one JSON object per line.")
    keys = list(dict.fromkeys(key for row in first for key in row.values))
    if not keys:
        raise TableError(f"the objects of {source.name} have no keys; give each value a name.")
    columns, notes = clean_names(keys, source.name)
    frames = _frames(chain(first, rows), keys, columns, source.name, chunk_rows)
    return OpenTable(columns, frames, partial(_frame, [], keys, columns), typed=True, notes=notes)


def _frames(rows: Iterator[JsonRow], keys: list[str], columns: list[str], name: str, chunk_rows: int) -> Iterator[Any]:
    known = set(keys)
    waiting: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if not row.values.keys() <= known:
            new = next(key for key in row.values if key not in known)
            raise TableError(
                f"line {row.line:,} of {name}: key {new[:60]!r} is in no earlier line; add it to the first line, with "
                "null if there is no value."
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


def _rows(source: TextSource) -> Iterator[JsonRow]:
    text = source.open_text()
    number = 0
    try:
        while content := text.readline(LINE_CHARACTERS):
            number += 1
            if content.strip():
                place = f"line {number:,} of {source.name}"
                if len(content) == LINE_CHARACTERS:
                    raise TableError(
                        f"{place} is longer than {LINE_CHARACTERS:,} characters; write one object per line."
                    )
                yield JsonRow(_parse(content.rstrip("\r\n"), place), number, len(content))
    except UnicodeDecodeError as error:
        raise source.not_utf8() from error


def _parse(content: str, place: str) -> dict[str, Any]:
    """Return the object of one line."""
    try:
        pairs = PAIRS.decode(content)
        if "\\u" in content:  # the only way to write half of a surrogate pair
            json.dumps(pairs, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise TableError(f"{place}: half of a surrogate pair is not a character; write both halves.") from error
    except json.JSONDecodeError as error:
        raise TableError(
            f"{place} is not JSON ({error.msg}, column {error.colno}); write one object per line."
        ) from error
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; deeply nested brackets
        raise TableError(f"{place} is not JSON ({in_one_line(error)}); write one object per line.") from error
    if type(pairs) is not tuple:
        raise TableError(f"{place} is not an object but {content.strip()[:40]!r}; write one object per line.")
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise TableError(f"{place}: key {repeated[:60]!r} is given twice; keep one of them.")
    if not PLAIN_TYPES.issuperset(map(type, values.values())):
        key = next(key for key, value in values.items() if type(value) not in PLAIN_TYPES)
        raise TableError(f"{place}: {key[:60]!r} holds a list or an object; use one key per value.")
    return values
