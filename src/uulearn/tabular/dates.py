"""Parse dates in text without guessing.

A date is ``2024-12-31`` (also with / or .), ``31.12.2024``, ``31 Dec 2024`` or ``Dec 31, 2024``, with or without a time
and a time zone. In ``03/04/2024`` the order of day and month is open: each cell says which orders it allows, and the
column as a whole decides. Years have four digits. Each cell is parsed on its own, with the same formats at fit and
predict time, which is why `pandas.to_datetime` may not infer a format from the other cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

KNOWN, DAY_FIRST, MONTH_FIRST, EITHER = range(4)
"""What a date says about the order of day and month."""

SHAPE = (
    r"^(?P<date>\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.][12]\d{3}"
    r"|\d{1,2}[ -][A-Za-z]{3,9}\.?[ -][12]\d{3}|[A-Za-z]{3,9}\.? \d{1,2},? [12]\d{3})"
    r"(?:[T ,] ?(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,6})\d*)?)? ?(?P<p>[AaPp][Mm])?"
    r" ?(?P<z>Z|z|UTC|[+-]\d{2}:?\d{2})?)?$"
)
FORMATS = ("%Y %m %d", "%d %m %Y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%B %d %Y")
OPEN_ORDER = r"^\d{1,2}[/-]\d{1,2}[/-]"

Moments = NDArray[np.datetime64]
Integers = NDArray[np.int64]


def parse_dates(texts: Any, *, day_first: bool) -> tuple[Moments, NDArray[np.int8]]:
    """Return the moments in UTC, in microseconds, and what each date says about the order of day and month.

    Parameters
    ----------
    texts : Arrow array of n strings
    day_first : bool
        Whether 03/04/2024 is in April.

    Returns
    -------
    moments : datetime64 array of shape (n,)
        NaT for a text that is not a date, or not with the given order.
    orders : int8 array of shape (n,)
        `KNOWN`, `DAY_FIRST`, `MONTH_FIRST` or `EITHER`.

    Examples
    --------
    >>> moments, orders = parse_dates(pa.array(["2024-12-31 10:00+01:00", "31/12/2024", "soon"]), day_first=True)
    >>> moments.astype("datetime64[m]").astype(str).tolist(), orders.tolist()
    (['2024-12-31T09:00', '2024-12-31T00:00', 'NaT'], [0, 1, 0])
    """
    moments = np.full(len(texts), np.datetime64("NaT"), dtype="datetime64[us]")
    orders = np.zeros(len(texts), dtype=np.int8)
    parts = pc.extract_regex(texts, SHAPE)
    matched = np.flatnonzero(parts.is_valid().to_numpy(zero_copy_only=False))
    if not len(matched):
        return moments, orders
    parts = parts.take(pa.array(matched))
    dates = parts.field("date")
    is_open = pc.match_substring_regex(dates, OPEN_ORDER).to_numpy(zero_copy_only=False).astype(bool)
    words = pc.replace_substring_regex(pc.replace_substring_regex(dates, r"[ ,./-]+", " "), r"(?i)\bsept\b", "Sep")
    plain = pd.Series(words.to_pylist(), dtype=object)
    days = np.full(len(plain), np.datetime64("NaT"), dtype="datetime64[us]")
    for each in FORMATS:
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
    """Parse some of the texts, which become NaT if they have another format."""
    if rest.any():
        out[rest] = pd.to_datetime(texts[rest], format=format, errors="coerce").to_numpy().astype("datetime64[us]")


def _time_of_day(parts: Any) -> NDArray[np.timedelta64]:
    """Return the time since midnight UTC, NaT for an invalid time."""
    hour, minute, second = (_integers(parts.field(name)) for name in "HMS")
    fraction = _integers(pc.utf8_rpad(parts.field("f"), 6, "0"))
    half = pc.utf8_lower(parts.field("p")).to_numpy(zero_copy_only=False)
    zone = pc.replace_substring_regex(parts.field("z"), "Z|z|UTC|:", "")
    offset = _integers(zone)  # -02:30 is -230
    east = np.sign(offset) * (np.abs(offset) // 100 * 60 + np.abs(offset) % 100)
    valid = (minute < 60) & (second < 60) & (np.abs(offset) < 1600) & (np.abs(offset) % 100 < 60)
    valid &= np.where(half == "", hour < 24, (hour >= 1) & (hour <= 12))
    hour = np.where(half == "", hour, hour % 12 + 12 * (half == "pm"))
    time = (10**6 * (3600 * hour + 60 * (minute - east) + second) + fraction).astype("timedelta64[us]")
    return np.where(valid, time, np.timedelta64("NaT"))


def _integers(texts: Any) -> Integers:
    texts = pc.if_else(pc.equal(texts, ""), "0", pc.replace_substring(texts, "+", ""))
    return np.asarray(pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False))
