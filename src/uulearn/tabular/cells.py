"""Parse the cells of one column: numbers, booleans, dates and words, from any type.

A cell is parsed on its own, never by its neighbors, so that a chunk gives the same result at fit and at predict time.
Thousands separators and decimal commas are not guessed either: ``1,234`` is a word.

=======  ==================================================================================================
number   ``12``, ``-3.5``, ``.5``, ``1e-3``, ``inf``; typed integers, floats, decimals, durations (in seconds)
boolean  true/false, yes/no, t/f, y/n, in any case; typed booleans; but 0 and 1 are numbers
date     what `uulearn.tabular.dates` parses; typed dates and timestamps
word     everything else
=======  ==================================================================================================
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pandas.api import types

from uulearn.tabular.dates import KNOWN, Integers, Moments, parse_dates

NUMBER, BOOLEAN, DATE, WORD, UNREADABLE = range(5)
N_KINDS = 5

BOOLEAN_TEXTS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}
NUMBER_SHAPE = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity))$"
FEW_VALUES = 0.1  # a text column with at most this fraction of distinct cells is stored as categories

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """One column: which of k values each of its n rows holds, and what each value is."""

    codes: Integers
    """Shape (n,): the value of each row, −1 for a missing one. Different codes may stand for equal values."""
    kinds: NDArray[np.int8]
    """Shape (k,), like all that follow: NUMBER, BOOLEAN, DATE, WORD or UNREADABLE."""
    numbers: Floats
    """The value of a number, 1 or 0 for a boolean, else NaN."""
    dates: Moments
    """In UTC, in microseconds, else NaT."""
    orders: NDArray[np.int8]
    """What a date says about the order of day and month."""
    raw: NDArray[Any]

    @cached_property
    def words(self) -> NDArray[np.object_]:
        """The values as text; a string is unchanged, but without surrounding blanks."""
        return _objects([value if isinstance(value, str) else format_value(value) for value in self.raw.tolist()])

    @property
    def labels(self) -> NDArray[np.object_]:
        """The values as categories: like `words`, but 1 and 1.0 are one number however they are written."""
        labels = self.words.copy()
        number = self.kinds == NUMBER
        labels[number] = _objects([format_value(value) for value in self.numbers[number].tolist()])
        return labels

    def counts(self) -> Integers:
        """Return the number of rows with each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.kinds)).astype(np.int64)

    def select(self, at: Any) -> Cells:
        """Return some of the values, so that only these are formatted as text; the codes are those of all."""
        return Cells(self.codes, self.kinds[at], self.numbers[at], self.dates[at], self.orders[at], self.raw[at])


def format_value(value: Any) -> str:
    """Return a value of any type as text; integers have no decimal point.

    Examples
    --------
    >>> format_value(3.0), format_value(True), format_value(0.5)
    ('3', 'true', '0.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """Return text columns as numbers if all cells are numbers, as categories if few are distinct, else unchanged.

    `parse_cells` gives the same values for the result, except that the spelling of numbers (``007``) is lost.

    Examples
    --------
    >>> compact(pd.DataFrame({"age": ["41", None], "note": ["a", "b"]})).dtypes.astype(str).tolist()
    ['float64', 'str']
    """
    columns = {}
    for name in frame.columns:
        column = frame[name]
        if isinstance(column.dtype, pd.StringDtype):
            texts = _arrow(column)
            numbers = parse_all_numbers(texts)
            if numbers is not None:
                column = pd.Series(numbers, index=frame.index)
            elif (encoded := texts.dictionary_encode()) and len(encoded.dictionary) <= FEW_VALUES * len(texts):
                values = pd.Categorical.from_codes(
                    encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
                )
                column = pd.Series(values, index=frame.index)
        columns[name] = column
    return pd.DataFrame(columns, index=frame.index)


def parse_all_numbers(texts: Any) -> Floats | None:
    """Return an Arrow array of strings as numbers, NaN for missing ones; None unless all others are numbers."""
    try:
        pc.cast(pc.utf8_trim_whitespace(texts[:100]), pa.float64())  # a failing cast of many cells is slow
        numbers = pc.cast(pc.utf8_trim_whitespace(texts), pa.float64())
    except pa.ArrowInvalid:
        return None
    values = numbers.to_numpy(zero_copy_only=False) + 0.0  # −0 becomes 0
    return values if np.isnan(values).sum() == texts.null_count else None  # the text "nan" is not a number


def parse_cells(column: pd.Series, *, day_first: bool = True, keep_text: bool = True) -> Cells:
    """Parse a column of a chunk.

    Parameters
    ----------
    column : Series of shape (n,)
        Of any type; empty and blank cells are missing.
    day_first : bool
        How to parse dates such as 03/04/2024.
    keep_text : bool
        Whether `Cells.words` has numbers as they were written; without it a text column of numbers is parsed faster.

    Examples
    --------
    >>> cells = parse_cells(pd.Series(["1", "x", None, "1"]))
    >>> cells.codes.tolist(), cells.words.tolist(), cells.numbers.tolist()
    ([0, 1, -1, 0], ['1', 'x'], [1.0, nan])
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = parse_cells(pd.Series(dtype.categories), day_first=day_first)
        chosen = column.cat.codes.to_numpy().astype(np.int64)
        return replace(values, codes=np.where(chosen >= 0, np.append(values.codes, -1)[chosen], -1))
    if types.is_bool_dtype(dtype):
        codes = np.nan_to_num(column.to_numpy(dtype=np.float64, na_value=np.nan), nan=-1).astype(np.int64)
        return _cells(codes, BOOLEAN, np.array([0.0, 1.0]), _no_dates(2), np.array([False, True]))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _from_numbers(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_timedelta64_dtype(dtype):
        return _from_numbers(column.dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        return _from_dates(column)
    try:
        texts = _arrow(column)
    except (pa.ArrowException, TypeError, ValueError):  # not only strings, or half of a surrogate pair
        return _from_objects(column.astype(object).to_numpy(), day_first)
    numbers = None if keep_text else parse_all_numbers(texts)
    return _from_texts(texts, day_first) if numbers is None else _from_numbers(numbers)


def _arrow(column: pd.Series) -> Any:
    texts = pa.array(column, type=pa.large_string(), from_pandas=True)
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def _from_numbers(values: Floats) -> Cells:
    codes, known = _numbered(~np.isnan(values))
    numbers = values[known] + 0.0  # −0 becomes 0
    return _cells(codes, NUMBER, numbers, _no_dates(len(known)), numbers)


def _from_dates(column: pd.Series) -> Cells:
    if isinstance(column.dtype, pd.ArrowDtype):
        values = pa.array(column).cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
    else:
        aware = getattr(column.dtype, "tz", None) is not None
        values = (column.dt.tz_convert(None) if aware else column).to_numpy().astype("datetime64[us]")
    codes, known = _numbered(~np.isnat(values))
    return _cells(codes, DATE, np.full(len(known), np.nan), values[known], values[known])


def _numbered(known: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Return codes that count the known cells, and the rows of these."""
    return np.where(known, np.cumsum(known) - 1, -1), np.flatnonzero(known)


def _no_dates(k: int) -> Moments:
    return np.full(k, np.datetime64("NaT"), dtype="datetime64[us]")


def _cells(codes: Integers, kind: int, numbers: Floats, dates: Moments, raw: NDArray[Any]) -> Cells:
    k = len(numbers)
    return Cells(codes, np.full(k, kind, dtype=np.int8), numbers, dates, np.zeros(k, dtype=np.int8), raw)


def _from_texts(texts: Any, day_first: bool) -> Cells:
    """Parse an Arrow array of strings; each distinct string is parsed once."""
    encoded = texts.dictionary_encode()
    values = pc.utf8_trim_whitespace(encoded.dictionary)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    blank = _mask(pc.equal(values, ""))
    codes[np.isin(codes, np.flatnonzero(blank))] = -1
    is_number = _mask(pc.match_substring_regex(values, NUMBER_SHAPE))
    numbers, dates, orders = np.full(len(values), np.nan), _no_dates(len(values)), np.zeros(len(values), dtype=np.int8)
    numbers[is_number] = pc.cast(pc.filter(values, pa.array(is_number)), pa.float64()).to_numpy(zero_copy_only=False)
    kinds = np.where(is_number, NUMBER, WORD).astype(np.int8)
    others = np.flatnonzero(~is_number & ~blank)
    if len(others):
        rest = values.take(pa.array(others))
        place = pc.index_in(pc.utf8_lower(rest), pa.array(list(BOOLEAN_TEXTS), rest.type)).fill_null(-1)
        numbers[others] = np.append(list(BOOLEAN_TEXTS.values()), np.nan)[place.to_numpy(zero_copy_only=False)]
        dates[others], orders[others] = parse_dates(rest, day_first=day_first)
        kinds[~is_number & ~np.isnan(numbers)] = BOOLEAN
        kinds[~np.isnat(dates) | (orders != KNOWN)] = DATE
    return Cells(codes, kinds, numbers + 0.0, dates, orders, _objects(values.to_pylist()))


def _from_objects(values: NDArray[np.object_], day_first: bool) -> Cells:
    """Parse Python objects of mixed types, as in JSON."""
    parsed = [_parse_object(value) for value in values.tolist()]
    texts = _from_texts(pa.array([v if kind == WORD else None for kind, v in parsed], pa.large_string()), day_first)
    others = np.array([row for row, (kind, _) in enumerate(parsed) if kind not in (None, WORD)], dtype=np.int64)
    codes = texts.codes.copy()
    codes[others] = len(texts.kinds) + np.arange(len(others))
    kinds = np.array([parsed[row][0] for row in others], dtype=np.int8)
    raw = _objects([parsed[row][1] for row in others])
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


def _parse_object(value: Any) -> tuple[int | None, Any]:
    """Return the kind of an object, None for a missing one, and the object in a plain type."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None, None
    if isinstance(value, str):
        return WORD, value.encode("utf-8", "replace").decode()  # half of a surrogate pair is not text
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
    if isinstance(value, datetime.date | np.datetime64):  # includes datetime and Timestamp
        moment = np.array(value, dtype="datetime64[us]")
        return (None, None) if np.isnat(moment) else (DATE, moment.item())
    return UNREADABLE, {"dict": "an object", "list": "a list"}.get(name := type(value).__name__, f"a {name}")


def _objects(values: list[Any]) -> NDArray[np.object_]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _mask(values: Any) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=bool)
