"""Write frames as text: CSV by pandas, JSON lines by the standard library.

Floats have as many digits as it takes to read the same number back, unless a format is given.
"""

from __future__ import annotations

import csv
import datetime
import json
import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from uulearn.exceptions import TableError


def csv_lines(frame: pd.DataFrame, separator: str, float_format: str | None, name: str, *, header: bool) -> bytes:
    """Return the rows of a frame as lines of CSV, with quotes where needed; missing values are empty.

    Examples
    --------
    >>> frame = pd.DataFrame({"city": ["Basel", 'Genf, "GE", CH', None], "score": [0.1, 2.0, None]})
    >>> print(csv_lines(frame, ",", None, "scored.csv", header=True).decode(), end="")
    city,score
    Basel,0.1
    "Genf, ""GE"", CH",2.0
    ,
    """
    columns = {}
    for column in frame:
        values = frame[column]
        plain = isinstance(values.dtype, np.dtype | pd.StringDtype) or pd.api.types.is_numeric_dtype(values.dtype)
        if values.dtype == object or not (plain or pd.api.types.is_datetime64_any_dtype(values.dtype)):
            values = pd.Series(_texts(values, float_format, f"column {column!r} of {name}"), dtype=object)
        columns[column] = values.reset_index(drop=True)
    plain_frame = pd.DataFrame(columns)
    # Before Python 3.13 the csv module does not quote a CR that is not part of the line end.
    quoting = csv.QUOTE_NONNUMERIC if _has_carriage_return(plain_frame) else csv.QUOTE_MINIMAL
    try:
        text: bytes = plain_frame.to_csv(
            sep=separator,
            index=False,
            header=header,
            float_format=float_format,
            lineterminator="\n",
            quoting=quoting,
        ).encode()
    except UnicodeError as error:
        raise TableError(f"a text for {name} contains half of a surrogate pair, which is not a character.") from error
    if b"\0" in text:
        raise TableError(f"a text for {name} contains a nul character, which CSV cannot hold; write Parquet instead.")
    return text


def _has_carriage_return(frame: pd.DataFrame) -> bool:
    texts = [frame[column] for column in frame if not pd.api.types.is_numeric_dtype(frame[column].dtype)]
    return "\r" in "".join(map(str, frame.columns)) or any(
        "\r" in value for column in texts for value in column if isinstance(value, str)
    )


def _texts(column: pd.Series, float_format: str | None, place: str) -> list[str | None]:
    try:
        return [_cell_text(value, float_format) for value in column.astype(object).tolist()]
    except TypeError as error:
        raise TableError(f"{place} contains {error}, which CSV cannot hold; drop the column.") from error


def _cell_text(value: Any, float_format: str | None) -> str | None:
    """Return one value as text; TypeError with the name of its type if it has none."""
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


def json_lines(frame: pd.DataFrame, name: str) -> bytes:
    """Return the rows of a frame as one JSON object per line; missing values are null, dates are in ISO 8601.

    Examples
    --------
    >>> print(json_lines(pd.DataFrame({"age": [41, None], "city": ["Zürich", None]}), "rows.jsonl").decode(), end="")
    {"age": 41.0, "city": "Zürich"}
    {"age": null, "city": null}
    """
    columns = []
    for column in frame:
        try:
            columns.append([_json_value(value) for value in frame[column].astype(object).tolist()])
        except TypeError as error:
            raise TableError(f"column {column!r} of {name} contains {error}, which JSON cannot hold.") from error
    encoder = json.JSONEncoder(ensure_ascii=False)
    rows = [encoder.encode(dict(zip(frame.columns, row, strict=True))) for row in zip(*columns, strict=True)]
    try:
        return "".join(f"{row}\n" for row in rows).encode()
    except UnicodeEncodeError as error:
        raise TableError(f"a text for {name} contains half of a surrogate pair, which is not a character.") from error


def _json_value(value: Any) -> Any:
    """Return one value as JSON has it; TypeError with the name of its type if it has none."""
    if type(value) in {str, int, bool} or (type(value) is float and math.isfinite(value)):
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
    if isinstance(value, str):
        return str(value)
    raise TypeError(type(value).__name__)
