"""Cells of one column, whatever holds them: which are numbers, booleans, dates, and which are words.

A cell is read for itself, never guessed from its neighbours, so that a chunk is read the same at fit and at predict
time. Thousands separators and decimal commas are not guessed either: ``1,234`` is a word.

=======  ==================================================================================================
number   ``12``, ``-3.5``, ``.5``, ``1e-3``, ``inf``; typed integers, floats, decimals, durations (in seconds)
boolean  true/false, yes/no, t/f, y/n, in any case; typed booleans; but 0 and 1 are numbers
date     what `uulearn.tabular.dates` reads; typed dates and timestamps
word     everything else
=======  ==================================================================================================
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uulearn.tabular.dates import SURE, Integers, Moments, read_dates

if TYPE_CHECKING:
    import pandas as pd

NUMBER, BOOLEAN, DATE, WORD, UNREADABLE = range(5)
KINDS = ("number", "boolean", "date", "word", "unreadable")

TRUE_WORDS, FALSE_WORDS = ("true", "yes", "t", "y"), ("false", "no", "f", "n")
NUMBER_PATTERN = r"^(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity))$"
SEPARATED_PATTERN = r"^[+-]?\d+(?:[,.'’\x{00A0}\x{202F} ]\d{3})*(?:,\d+|[,.'’\x{00A0}\x{202F} ]\d{3}(?:\.\d+)?)$"
"""Numbers with thousands separators or a decimal comma; not read, but recognised in notes."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """One column: which of k values each of its n rows holds, and what each value is."""

    codes: Integers
    """Shape (n,): the value of each row, −1 where it is missing. Different codes may stand for equal values."""
    kinds: NDArray[np.int8]
    """Shape (k,), as all that follow: NUMBER, BOOLEAN, DATE, WORD or UNREADABLE."""
    numbers: Floats
    """Of numbers the value, of booleans 1 or 0, else NaN."""
    dates: Moments
    """In UTC, to the microsecond, else NaT."""
    orders: NDArray[np.int8]
    """What a date says about the order of day and month."""
    raw: NDArray[Any]

    @cached_property
    def words(self) -> NDArray[np.object_]:
        """The values as one would write them; a string is as it stands, without the blanks around it."""
        return _objects([value if isinstance(value, str) else write(value) for value in self.raw.tolist()])

    @property
    def labels(self) -> NDArray[np.object_]:
        """The values as categories: as `words`, but 1 and 1.0 are one number however they are written."""
        labels = self.words.copy()
        number = self.kinds == NUMBER
        labels[number] = _objects([write(value) for value in self.numbers[number].tolist()])
        return labels

    def counts(self) -> Integers:
        """Number of rows of each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.kinds)).astype(np.int64)


def write(value: Any) -> str:
    """A value of any type as a word; whole numbers without a point.

    Examples
    --------
    >>> write(3.0), write(True), write(0.5)
    ('3', 'true', '0.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def read_cells(column: pd.Series, *, day_first: bool = True) -> Cells:
    """Read a column of a chunk.

    Parameters
    ----------
    column : Series of shape (n,)
        Of any type; empty and blank cells are missing.
    day_first : bool
        How to read dates such as 03/04/2024.

    Examples
    --------
    >>> import pandas as pd
    >>> cells = read_cells(pd.Series(["1", "x", None, "1"]))
    >>> cells.codes.tolist(), cells.words.tolist(), cells.numbers.tolist()
    ([0, 1, -1, 0], ['1', 'x'], [1.0, nan])
    """
    import pandas as pd
    from pandas.api import types

    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = read_cells(pd.Series(dtype.categories), day_first=day_first)
        chosen = column.cat.codes.to_numpy().astype(np.int64)
        codes = np.where(chosen >= 0, np.append(values.codes, -1)[chosen], -1)
        return Cells(codes, values.kinds, values.numbers, values.dates, values.orders, values.raw)
    if types.is_bool_dtype(dtype):
        return _from_booleans(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _from_numbers(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_timedelta64_dtype(dtype):
        return _from_numbers(column.dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        return _from_dates(column)
    return _from_anything(column, day_first)


def _from_numbers(values: Floats) -> Cells:
    codes, known = _numbered(~np.isnan(values))
    numbers = values[known] + 0.0  # −0 as 0
    return _cells(codes, NUMBER, numbers, _no_dates(len(known)), numbers)


def _from_booleans(values: Floats) -> Cells:
    codes = np.nan_to_num(values, nan=-1).astype(np.int64)
    return _cells(codes, BOOLEAN, np.array([0.0, 1.0]), _no_dates(2), np.array([False, True]))


def _from_dates(column: pd.Series) -> Cells:
    import pandas as pd
    import pyarrow as pa

    if isinstance(column.dtype, pd.ArrowDtype):
        values = pa.array(column).cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
    else:
        aware = getattr(column.dtype, "tz", None) is not None
        values = (column.dt.tz_convert(None) if aware else column).to_numpy().astype("datetime64[us]")
    codes, known = _numbered(~np.isnat(values))
    return _cells(codes, DATE, np.full(len(known), np.nan), values[known], values[known])


def _numbered(known: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Codes that count what is known, and where it stands."""
    return np.where(known, np.cumsum(known) - 1, -1), np.flatnonzero(known)


def _no_dates(k: int) -> Moments:
    return np.full(k, np.datetime64("NaT"), dtype="datetime64[us]")


def _cells(codes: Integers, kind: int, numbers: Floats, dates: Moments, raw: NDArray[Any]) -> Cells:
    k = len(numbers)
    return Cells(codes, np.full(k, kind, dtype=np.int8), numbers, dates, np.zeros(k, dtype=np.int8), raw)


def _from_anything(column: pd.Series, day_first: bool) -> Cells:
    import pyarrow as pa

    try:
        texts = pa.array(column, type=pa.large_string(), from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):  # not strings only, or strings that UTF-8 does not know
        return _from_objects(column.astype(object).to_numpy(), day_first)
    return _from_texts(texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts, day_first)


def _from_texts(texts: Any, day_first: bool) -> Cells:
    """From an Arrow array of strings; each different string is read once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = texts.dictionary_encode()
    values = pc.utf8_trim_whitespace(encoded.dictionary)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    blank = _mask(pc.equal(values, ""))
    codes[np.isin(codes, np.flatnonzero(blank))] = -1
    is_number = _mask(pc.match_substring_regex(values, NUMBER_PATTERN))
    kinds = np.where(is_number, NUMBER, WORD).astype(np.int8)
    numbers, dates, orders = np.full(len(values), np.nan), _no_dates(len(values)), np.zeros(len(values), dtype=np.int8)
    written = pc.filter(values, pa.array(is_number))
    numbers[is_number] = pc.cast(written, pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    others = np.flatnonzero(~is_number & ~blank)
    if len(others):
        rest = values.take(pa.array(others))
        numbers[others] = _truths(rest)
        dates[others], orders[others] = read_dates(rest, day_first=day_first)
        kinds[~is_number & ~np.isnan(numbers)] = BOOLEAN
        kinds[~np.isnat(dates) | (orders != SURE)] = DATE
    return Cells(codes, kinds, numbers, dates, orders, _objects(values.to_pylist()))


def _truths(texts: Any) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    lower = pc.utf8_lower(texts)
    true, false = (_mask(pc.is_in(lower, pa.array(words, type=lower.type))) for words in (TRUE_WORDS, FALSE_WORDS))
    return np.where(true, 1.0, np.where(false, 0.0, np.nan))


def _from_objects(values: NDArray[np.object_], day_first: bool) -> Cells:
    """From Python objects of mixed types, as JSON gives them."""
    import pyarrow as pa

    read = [_object(value) for value in values.tolist()]
    texts = _from_texts(pa.array([v if kind == WORD else None for kind, v in read], pa.large_string()), day_first)
    others = np.array([row for row, (kind, _) in enumerate(read) if kind not in (None, WORD)], dtype=np.int64)
    codes = texts.codes.copy()
    codes[others] = len(texts.kinds) + np.arange(len(others))
    kinds = np.array([read[row][0] for row in others], dtype=np.int8)
    raw = _objects([read[row][1] for row in others])
    numbers, dates = np.full(len(others), np.nan), _no_dates(len(others))
    plain, dated = np.isin(kinds, (NUMBER, BOOLEAN)), kinds == DATE
    numbers[plain], dates[dated] = raw[plain].astype(np.float64), raw[dated].astype("datetime64[us]")
    return Cells(
        codes,
        np.concatenate([texts.kinds, kinds]),
        np.concatenate([texts.numbers, numbers]),
        np.concatenate([texts.dates, dates]),
        np.concatenate([texts.orders, np.zeros(len(others), dtype=np.int8)]),
        np.concatenate([texts.raw, raw]),
    )


def _object(value: Any) -> tuple[int | None, Any]:
    """What kind of cell an object is, None for a missing one, and the object in a plain type."""
    import pandas as pd

    if value is None or value is pd.NA or value is pd.NaT:
        return None, None
    if isinstance(value, str):
        return WORD, value.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
    if isinstance(value, bool | np.bool_):
        return BOOLEAN, bool(value)
    if isinstance(value, datetime.timedelta | np.timedelta64):
        value = pd.Timedelta(value).total_seconds()
    if isinstance(value, int | float | np.integer | np.floating | Decimal):
        try:
            number = float(value) + 0.0
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        return (None, None) if math.isnan(number) else (NUMBER, number)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, datetime.date | np.datetime64):  # datetimes and pandas' timestamps are dates, too
        moment = np.array(value, dtype="datetime64[us]")
        return (None, None) if np.isnat(moment) else (DATE, moment.item())
    return UNREADABLE, {"dict": "an object", "list": "a list"}.get(name := type(value).__name__, f"a {name}")


def _objects(values: list[Any]) -> NDArray[np.object_]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _mask(values: Any) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
