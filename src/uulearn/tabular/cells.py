"""Parse the cells of a column of any type as numbers, booleans, dates or words.

Each cell is parsed independently of other cells, so the result is the same in training and prediction. Thousands
separators and decimal commas are not supported: ``1,234`` is parsed as a word. (`uulearn.io.csv_files` converts decimal
commas if the file shows that it uses them.)

=======  ==================================================================================================
number   ``12``, ``-3.5``, ``.5``, ``1e-3``, ``inf``; ``45%`` (0.45), ``$1,234.50``; typed integers, floats, decimals,
         durations (in seconds)
boolean  true/false, yes/no, t/f, y/n, in upper or lower case; typed booleans; 0 and 1 are numbers
date     ``2024-12-31`` (also with / or .), ``31.12.2024``, ``31 Dec 2024`` or ``Dec 31, 2024``, with or without a time
         and a time zone; typed dates and timestamps. In ``03/04/2024``, the order of day and month is ambiguous: it is
         determined from all cells of the column
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

NUMBER, BOOLEAN, DATE, WORD, UNREADABLE = range(5)
NO_SIGN, PERCENT, PLAIN = range(3)  # a cell without a sign: not a number, or 0, which is also 0%
KNOWN, DAY_FIRST, MONTH_FIRST, EITHER = range(4)
"""Order of day and month in the text of a date; `EITHER` means that both orders are possible."""

BOOLEAN_TEXTS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}
NUMBER_SHAPE = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity))$"
UNIT_SHAPE = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+) ?%|[$£] ?(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?)$"
"""Percentages, and dollars and pounds, in which a comma separates thousands."""
SEPARATED = r"^[+-]?\d+(?:[,.'’\x{00A0}\x{202F} ]\d{3})*(?:,\d+|[,.'’\x{00A0}\x{202F} ]\d{3}(?:\.\d+)?)$"
"""Pattern of numbers with thousands separators or a decimal comma, which are not parsed but mentioned in messages."""
FEW_VALUES = 0.1  # a text column with at most this fraction of distinct cells is stored as categories
DATE_SHAPE = (
    r"^(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.][12]\d{3}"
    r"|\d{1,2}[ -][A-Za-z]{3,9}\.?[ -][12]\d{3}|[A-Za-z]{3,9}\.? \d{1,2},? [12]\d{3})"
    r"(?:[T ,] ?(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,6})\d*)?)? ?(?P<p>[AaPp][Mm])?"
    r" ?(?P<z>Z|z|UTC|[+-]\d{2}:?\d{2})?)?$"
)
DATE_FORMATS = ("%Y %m %d", "%d %m %Y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y")
OPEN_ORDER = r"^\d{1,2}[/-]\d{1,2}[/-]"

Floats = NDArray[np.float64]
Moments = NDArray[np.datetime64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """A parsed column of n rows: k values and, for each row, the index of its value."""

    codes: Integers
    """Index of the value of each row, or −1 if it is missing; shape (n,). Two codes may refer to equal values."""
    kinds: NDArray[np.int8]
    """Kind of each value (NUMBER, BOOLEAN, DATE, WORD or UNREADABLE); shape (k,), as for all following fields."""
    numbers: Floats  # the value of a number, 1 or 0 for a boolean, otherwise NaN
    dates: Moments  # in UTC with microseconds, otherwise NaT
    orders: NDArray[np.int8]  # the order of day and month that a date implies
    raw: NDArray[Any]

    @cached_property
    def words(self) -> NDArray[np.object_]:
        """The values as text, with surrounding spaces removed from strings."""
        return _objects([value if isinstance(value, str) else format_value(value) for value in self.raw.tolist()])

    @property
    def labels(self) -> NDArray[np.object_]:
        """The values as category labels; unlike in `words`, 1 and 1.0 have the same label."""
        labels = self.words.copy()
        number = self.kinds == NUMBER
        labels[number] = _objects([format_value(value) for value in self.numbers[number].tolist()])
        return labels

    @property
    def signs(self) -> Integers:
        """Whether each value is a number with a percent sign (PERCENT), without it (PLAIN), or neither (NO_SIGN)."""
        number = self.kinds == NUMBER
        signs = np.where(number & (self.numbers != 0), PLAIN, NO_SIGN)
        if self.raw.dtype == object:
            percent = [isinstance(value, str) and value.endswith("%") for value in self.raw[number].tolist()]
            signs[np.flatnonzero(number)[percent]] = PERCENT
        return signs

    def counts(self) -> Integers:
        """Return the number of rows with each value."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.kinds)).astype(np.int64)

    def select(self, at: Any) -> Cells:
        """Return the selected values with unchanged codes, to avoid formatting all values as text."""
        return Cells(self.codes, self.kinds[at], self.numbers[at], self.dates[at], self.orders[at], self.raw[at])


def format_value(value: Any) -> str:
    """Return a value of any type as text; whole numbers have no decimal point.

    >>> format_value(3.0), format_value(True), format_value(0.5)
    ('3', 'true', '0.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def compact(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert text columns to numbers if all cells are numbers, or to categories if they have few distinct values.

    `parse_cells` returns the same values for the converted columns, but the spelling of numbers (``007``) is lost.

    >>> compact(pd.DataFrame({"age": ["41", None], "note": ["a", "b"]})).dtypes.astype(str).tolist()
    ['float64', 'str']
    """
    columns = {}
    for name, column in frame.items():
        columns[name] = column
        if isinstance(column.dtype, pd.StringDtype):
            texts = _arrow(column)
            numbers = parse_all_numbers(texts)
            if numbers is not None:
                columns[name] = pd.Series(numbers, index=frame.index)
            elif (encoded := texts.dictionary_encode()) and len(encoded.dictionary) <= FEW_VALUES * len(texts):
                values = pd.Categorical.from_codes(_codes(encoded), encoded.dictionary.to_pylist())
                columns[name] = pd.Series(values, index=frame.index)
    return pd.DataFrame(columns, index=frame.index)


def parse_all_numbers(texts: Any) -> Floats | None:
    """Convert an Arrow array of strings to numbers (NaN if missing); return None if any cell is not a number."""
    try:
        pc.cast(pc.utf8_trim_whitespace(texts[:100]), pa.float64())  # a failing cast of many cells is slow
        numbers = pc.cast(pc.utf8_trim_whitespace(texts), pa.float64())
    except pa.ArrowInvalid:
        return None
    values = numbers.to_numpy(zero_copy_only=False) + 0.0  # −0 becomes 0
    return values if np.isnan(values).sum() == texts.null_count else None  # the text "nan" does not count as a number


def parse_cells(column: pd.Series, *, day_first: bool = True, keep_text: bool = True) -> Cells:
    """Parse a column of any type; empty and blank cells are missing values.

    ``day_first`` says whether the day comes first in dates such as 03/04/2024. With ``keep_text``, `Cells.words`
    contains the original text of numbers. Without ``keep_text``, text columns of numbers are parsed faster.

    >>> cells = parse_cells(pd.Series(["1", "x", None, "1"]))
    >>> cells.codes.tolist(), cells.words.tolist(), cells.numbers.tolist()
    ([0, 1, -1, 0], ['1', 'x'], [1.0, nan])
    """
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        values = parse_cells(pd.Series(dtype.categories), day_first=day_first)
        return replace(values, codes=np.append(values.codes, -1)[column.cat.codes.to_numpy().astype(np.int64)])
    if types.is_bool_dtype(dtype):
        codes = np.nan_to_num(column.to_numpy(dtype=np.float64, na_value=np.nan), nan=-1).astype(np.int64)
        return _typed(codes, BOOLEAN, np.array([0.0, 1.0]), np.array([False, True]))
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return _from_numbers(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_timedelta64_dtype(dtype):
        return _from_numbers(column.dt.total_seconds().to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(dtype):
        return _from_dates(column)
    try:
        texts = _arrow(column)
    except (pa.ArrowException, TypeError, ValueError):  # not only strings, or an unpaired surrogate
        return _from_objects(column.astype(object).tolist(), day_first)
    numbers = None if keep_text else parse_all_numbers(texts)
    return _from_texts(texts, day_first) if numbers is None else _from_numbers(numbers)


def _arrow(column: pd.Series) -> Any:
    texts = pa.array(column, type=pa.large_string(), from_pandas=True)
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def _codes(encoded: Any) -> Integers:
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64))


def _from_numbers(values: Floats) -> Cells:
    known = ~np.isnan(values)
    numbers = values[known] + 0.0  # −0 becomes 0
    return _typed(_count_known(known), NUMBER, numbers, numbers)


def _from_dates(column: pd.Series) -> Cells:
    if isinstance(column.dtype, pd.ArrowDtype):
        values = pa.array(column).cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
    else:
        aware = getattr(column.dtype, "tz", None) is not None
        values = (column.dt.tz_convert(None) if aware else column).to_numpy().astype("datetime64[us]")
    known = ~np.isnat(values)
    dates = values[known]
    return replace(_typed(_count_known(known), DATE, np.full(len(dates), np.nan), dates), dates=dates)


def _count_known(known: NDArray[np.bool_]) -> Integers:
    """Return consecutive codes for the known cells, and −1 for the missing cells."""
    return np.where(known, np.cumsum(known) - 1, -1)


def _no_dates(k: int) -> Moments:
    return np.full(k, np.datetime64("NaT"), dtype="datetime64[us]")


def _typed(codes: Integers, kind: int, numbers: Floats, raw: NDArray[Any]) -> Cells:
    k = len(numbers)
    return Cells(codes, np.full(k, kind, dtype=np.int8), numbers, _no_dates(k), np.zeros(k, dtype=np.int8), raw)


def _from_texts(texts: Any, day_first: bool) -> Cells:
    """Parse an Arrow array of strings; each distinct string is parsed once."""
    encoded = texts.dictionary_encode()
    values, codes = pc.utf8_trim_whitespace(encoded.dictionary), _codes(encoded)
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
        has_unit = _mask(pc.match_substring_regex(rest, UNIT_SHAPE))
        if has_unit.any():
            found = rest.filter(pa.array(has_unit))
            plain = pc.cast(pc.replace_substring_regex(found, "[$£,% ]", ""), pa.float64())
            scale = np.where(_mask(pc.ends_with(found, "%")), 100.0, 1.0)
            numbers[others[has_unit]] = plain.to_numpy(zero_copy_only=False) / scale
            kinds[others[has_unit]] = NUMBER
        kinds[(kinds == WORD) & ~np.isnan(numbers)] = BOOLEAN
        kinds[~np.isnat(dates) | (orders != KNOWN)] = DATE
    return Cells(codes, kinds, numbers + 0.0, dates, orders, _objects(values.to_pylist()))


def _from_objects(values: list[Any], day_first: bool) -> Cells:
    """Parse a list of Python objects of mixed types, such as values from a JSON file."""
    parsed = [_parse_object(value) for value in values]
    texts = _from_texts(pa.array([v if kind == WORD else None for kind, v in parsed], pa.large_string()), day_first)
    rows = [row for row, (kind, _) in enumerate(parsed) if kind not in (None, WORD)]
    codes = texts.codes.copy()
    codes[rows] = len(texts.kinds) + np.arange(len(rows))
    kinds = np.array([parsed[row][0] for row in rows], dtype=np.int8)
    raw = _objects([parsed[row][1] for row in rows])
    own = replace(_typed(codes, NUMBER, np.full(len(rows), np.nan), raw), kinds=kinds)
    plain, dated = np.isin(kinds, (NUMBER, BOOLEAN)), kinds == DATE
    own.numbers[plain], own.dates[dated] = raw[plain].astype(np.float64), raw[dated].astype("datetime64[us]")
    names = ("kinds", "numbers", "dates", "orders", "raw")
    return Cells(codes, *(np.concatenate([getattr(texts, name), getattr(own, name)]) for name in names))


def _parse_object(value: Any) -> tuple[int | None, Any]:
    """Return the kind of an object (None if it is missing) and its value as a built-in type."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None, None
    if isinstance(value, str):
        return WORD, value.encode("utf-8", "replace").decode()  # an unpaired surrogate is not text
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


def parse_dates(texts: Any, *, day_first: bool) -> tuple[Moments, NDArray[np.int8]]:
    """Parse an Arrow array of strings as dates in fixed formats; the format is not inferred from other cells.

    Returns the dates in UTC, and the order of day and month in each text: `KNOWN`, `DAY_FIRST`, `MONTH_FIRST` or
    `EITHER`. A text that is not a date in the given order becomes NaT.

    >>> moments, orders = parse_dates(pa.array(["2024-12-31 10:00+01:00", "31/12/2024", "soon"]), day_first=True)
    >>> moments.astype("datetime64[m]").astype(str).tolist(), orders.tolist()
    (['2024-12-31T09:00', '2024-12-31T00:00', 'NaT'], [0, 1, 0])
    """
    moments, orders = _no_dates(len(texts)), np.zeros(len(texts), dtype=np.int8)
    parts = pc.extract_regex(texts, DATE_SHAPE)
    matched = np.flatnonzero(_mask(parts.is_valid()))
    if not len(matched):
        return moments, orders
    parts = parts.take(pa.array(matched))
    dates = parts.field("date")
    is_open = _mask(pc.match_substring_regex(dates, OPEN_ORDER))
    words = pc.replace_substring_regex(pc.replace_substring_regex(dates, r"[ ,./-]+", " "), r"(?i)\bsept\b", "Sep")
    plain = pd.Series(words.to_pylist(), dtype=object)
    days = _no_dates(len(plain))
    for each in DATE_FORMATS:
        _parse_rest(plain, each, np.isnat(days), days)
    months = days.copy()
    _parse_rest(plain, "%m %d %Y", is_open, months)
    time = _time_of_day(parts)
    no_day, no_month = np.isnat(days + time), np.isnat(months + time)
    moments[matched] = np.where(is_open & (not day_first), months, days) + time
    one_order = np.where(no_month, DAY_FIRST, MONTH_FIRST)
    open_order = np.where(no_day | no_month, one_order, np.where(days == months, KNOWN, EITHER))
    orders[matched] = np.where(is_open & ~(no_day & no_month), open_order, KNOWN)
    return moments, orders


def _parse_rest(texts: pd.Series, format: str, rest: NDArray[np.bool_], out: Moments) -> None:
    """Parse the selected texts and store them in ``out``; texts in another format become NaT."""
    if rest.any():
        out[rest] = pd.to_datetime(texts[rest], format=format, errors="coerce").to_numpy().astype("datetime64[us]")


def _time_of_day(parts: Any) -> NDArray[np.timedelta64]:
    """Return the time since midnight in UTC, or NaT if the time is invalid."""
    hour, minute, second = (_integers(parts.field(name)) for name in "HMS")
    fraction = _integers(pc.utf8_rpad(parts.field("f"), 6, "0"))
    half = pc.utf8_lower(parts.field("p")).to_numpy(zero_copy_only=False)
    offset = _integers(pc.replace_substring_regex(parts.field("z"), "Z|z|UTC|:", ""))  # -02:30 is -230
    east = np.sign(offset) * (np.abs(offset) // 100 * 60 + np.abs(offset) % 100)
    valid = (minute < 60) & (second < 60) & (np.abs(offset) < 1600) & (np.abs(offset) % 100 < 60)
    valid &= np.where(half == "", hour < 24, (hour >= 1) & (hour <= 12))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
    time = (10**6 * (3600 * hour + 60 * (minute - east) + second) + fraction).astype("timedelta64[us]")
    return np.where(valid, time, np.timedelta64("NaT"))


def _integers(texts: Any) -> Integers:
    texts = pc.if_else(pc.equal(texts, ""), "0", pc.replace_substring(texts, "+", ""))
    return np.asarray(pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False))
