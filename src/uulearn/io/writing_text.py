"""Frames to text: fields of CSV, objects of JSON lines.

Floats are written with as many digits as it takes to read the same number back, unless a format is given.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from uulearn.exceptions import TableError

TEXT = pa.large_string()


def csv_lines(frame: Any, separator: str, float_format: str | None, name: str) -> bytes:
    """The rows of a frame as lines of CSV: fields quoted where they must be, missing values empty.

    Examples
    --------
    >>> frame = pd.DataFrame({"city": ["Basel", 'Genf, "GE", CH', None], "score": [0.1, 2.0, None]})
    >>> print(csv_lines(frame, ",", None, "scored.csv").decode(), end="")
    Basel,0.1
    "Genf, ""GE"", CH",2
    ,
    """
    fields = [
        quote(_column_text(frame.iloc[:, i], float_format, f"column {column!r} of {name}"), separator)
        for i, column in enumerate(frame.columns)
    ]
    return _join_lines(fields, separator, name)


def csv_header(columns: Sequence[str], separator: str, name: str) -> bytes:
    """The line with the names of the columns."""
    try:
        fields = [quote(pa.array([column], TEXT), separator) for column in columns]
    except (UnicodeError, pa.ArrowInvalid) as error:
        raise TableError(f"a column of {name} has a name that is no text in UTF-8; rename it.") from error
    return _join_lines(fields, separator, name)


def quote(values: Any, separator: str) -> Any:
    """Quotes around the values that hold a separator, a quote or a line end; missing values become empty."""
    needs = pc.match_substring_regex(values, f'[{re.escape(separator)}"\r\n]')
    if pc.any(needs).as_py():
        inner = pc.replace_substring(values, '"', '""')
        values = pc.if_else(needs, pc.binary_join_element_wise(_text('"'), inner, _text('"'), _text("")), values)
    return pc.fill_null(values, _text(""))


def _join_lines(fields: list[Any], separator: str, name: str) -> bytes:
    if len(fields) == 1:  # an empty line would be no row
        fields = [pc.if_else(pc.equal(fields[0], _text("")), _text('""'), fields[0])]
    rows = pc.binary_join_element_wise(*fields, _text(separator))
    rows = pc.binary_join_element_wise(rows, _text(""), _text("\n"))
    _, ends, content = rows.buffers()  # an array of strings is their text on end, and where each stops
    lines = content.slice(0, int(np.frombuffer(ends, np.int64)[len(rows)])).to_pybytes() if len(rows) else b""
    if b"\0" in lines:
        raise TableError(f"a text for {name} holds a nul character, which CSV cannot; write Parquet instead.")
    return lines


def _column_text(column: Any, float_format: str | None, place: str) -> Any:
    """The values of a column as Arrow strings."""
    kind = pd.api.types
    if kind.is_float_dtype(column.dtype) and float_format is not None:
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        return pa.array([float_format % number for number in numbers.tolist()], TEXT, mask=np.isnan(numbers))
    if kind.is_bool_dtype(column.dtype) and column.dtype != object:
        return pc.if_else(_to_arrow(column), _text("True"), _text("False"))
    if kind.is_numeric_dtype(column.dtype) and not kind.is_complex_dtype(column.dtype):
        return _to_arrow(column).cast(TEXT)
    if kind.is_datetime64_any_dtype(column.dtype):
        # Without the zeros that the type's resolution adds.
        return pc.replace_substring_regex(_to_arrow(column).cast(TEXT), r"\.0+(\+|-|Z|$)", r"\1")
    if isinstance(column.dtype, pd.StringDtype):
        return _to_arrow(column).cast(TEXT)
    try:
        return pa.array([_cell_text(value, float_format) for value in column.astype(object).tolist()], TEXT)
    except TypeError as error:
        raise TableError(f"{place} holds {error}, which CSV cannot; leave the column out.") from error
    except (UnicodeError, pa.ArrowInvalid) as error:
        raise TableError(f"{place} holds half of a surrogate pair, which is no character; fix it.") from error


def _to_arrow(column: Any) -> Any:
    values = pa.array(column, from_pandas=True)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _cell_text(value: Any, float_format: str | None) -> str | None:
    """One value as text; TypeError, with the name of its type, where it has none."""
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool | np.bool_ | Integral | Decimal):
        return str(value)
    if isinstance(value, Real):
        number = float(value)
        return None if math.isnan(number) else float_format % number if float_format else repr(number)
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return str(value)
    raise TypeError(type(value).__name__)


def json_lines(frame: Any, name: str) -> bytes:
    """The rows of a frame as one JSON object a line; missing values are null, dates in ISO 8601.

    Examples
    --------
    >>> print(json_lines(pd.DataFrame({"age": [41, None], "city": ["Zürich", None]}), "rows.jsonl").decode(), end="")
    {"age": 41.0, "city": "Zürich"}
    {"age": null, "city": null}
    """
    names = list(frame.columns)
    columns = []
    for i, column in enumerate(names):
        try:
            columns.append([_json_value(value) for value in frame.iloc[:, i].astype(object).tolist()])
        except TypeError as error:
            raise TableError(f"column {column!r} of {name} holds {error}, which a line of JSON cannot.") from error
    encoder = json.JSONEncoder(ensure_ascii=False)
    rows = [encoder.encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    try:
        return "".join(f"{row}\n" for row in rows).encode()
    except UnicodeEncodeError as error:
        raise TableError(f"a text for {name} holds half of a surrogate pair, which is no character.") from error


def _json_value(value: Any) -> Any:
    """One value as JSON knows it; TypeError, with what it is, where it does not."""
    if type(value) in {str, int, bool} or (type(value) is float and math.isfinite(value)):  # almost always, and quickly
        return value
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):
        number = float(value)
        if math.isinf(number):
            raise TypeError("an infinite number")
        return None if math.isnan(number) else number
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise TypeError(type(value).__name__)


def _text(value: str) -> Any:
    return pa.scalar(value, TEXT)
