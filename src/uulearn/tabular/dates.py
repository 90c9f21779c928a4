"""Dates as people write them, read without guessing: an Arrow array of strings in, moments in UTC out.

``2024-12-31``, also with / or . between; ``31.12.2024``; ``31 Dec 2024``; ``Dec 31, 2024``; each with or without a time
and a zone. In ``03/04/2024`` the order of day and month is open: every such cell says what it allows, and the column as
a whole decides. Years have four digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

SURE, DAY_FIRST, MONTH_FIRST, EITHER = range(4)
"""What a date says about the order of day and month."""

TIME = (
    r"(?:[T ,] ?(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,6})\d*)?)? ?(?P<p>[AaPp][Mm])?"
    r" ?(?P<z>Z|z|UTC|[+-]\d{2}:?\d{2})?)?$"
)
YEAR = r"(?P<y>[12]\d{3})"
PATTERNS = (
    r"^(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})" + TIME,
    r"^(?P<d>\d{1,2})\.(?P<m>\d{1,2})\." + YEAR + TIME,
    r"^(?P<d>\d{1,2})[ -](?P<b>[A-Za-z]{3,9})\.?[ -]" + YEAR + TIME,
    r"^(?P<b>[A-Za-z]{3,9})\.? (?P<d>\d{1,2}),? " + YEAR + TIME,
)
OPEN_PATTERN = r"^(?P<d>\d{1,2})[/-](?P<m>\d{1,2})[/-]" + YEAR + TIME
MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
MONTHS = {short: n for n, name in enumerate(MONTH_NAMES, 1) for short in (name[:3], name)} | {"sept": 9}
BAD_ZONE = 10_000

Moments = NDArray[np.datetime64]
Integers = NDArray[np.int64]


def read_dates(texts: Any, *, day_first: bool) -> tuple[Moments, NDArray[np.int8]]:
    """Moments to the microsecond, NaT for what is none, and what each says about the order of day and month.

    Parameters
    ----------
    texts : Arrow array of n strings
    day_first : bool
        How to read 03/04/2024; a date that the order makes impossible is NaT.

    Examples
    --------
    >>> import pyarrow as pa
    >>> moments, orders = read_dates(pa.array(["2024-12-31 10:00+01:00", "31/12/2024", "soon"]), day_first=True)
    >>> moments.astype("datetime64[m]").astype(str).tolist(), orders.tolist()
    (['2024-12-31T09:00', '2024-12-31T00:00', 'NaT'], [0, 1, 0])
    """
    moments = np.full(len(texts), np.datetime64("NaT"), dtype="datetime64[us]")
    orders = np.zeros(len(texts), dtype=np.int8)
    for pattern in PATTERNS:
        matched, part = _match(texts, pattern)
        moments[matched] = _moment(part)
    matched, part = _match(texts, OPEN_PATTERN)
    days, months = _moment(part), _moment(part | {"d": part["m"], "m": part["d"]})
    moments[matched] = days if day_first else months
    no_day, no_month = np.isnat(days), np.isnat(months)
    open_order = np.where(days == months, SURE, EITHER)
    one_order = np.where(no_month, DAY_FIRST, MONTH_FIRST)
    orders[matched] = np.where(no_day & no_month, SURE, np.where(no_day | no_month, one_order, open_order))
    return moments, orders


def _match(texts: Any, pattern: str) -> tuple[Integers, dict[str, Integers]]:
    """Which strings match, and the numbers in them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = pc.extract_regex(texts, pattern)
    matched = np.flatnonzero(parts.is_valid().to_numpy(zero_copy_only=False))
    parts = parts.take(pa.array(matched))
    part = {name: _whole(parts.field(name)) for name in "ydHMS"}
    names = {field.name for field in parts.type}
    if "b" in names:
        part["m"] = _looked_up(parts.field("b"), lambda name: MONTHS.get(name.lower(), 0))
    else:
        part["m"] = _whole(parts.field("m"))
    part["f"] = _whole(pc.utf8_rpad(parts.field("f"), 6, "0"))
    part["p"] = _looked_up(parts.field("p"), lambda half: {"": -1, "am": 0, "pm": 12}[half.lower()])
    part["z"] = _looked_up(parts.field("z"), _minutes_east)
    return matched, part


def _whole(texts: Any) -> Integers:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.if_else(pc.equal(texts, ""), "0", texts)
    return np.asarray(pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False))


def _looked_up(texts: Any, read: Callable[[str], int]) -> Integers:
    encoded = texts.dictionary_encode()
    values = np.array([read(text) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
    return np.asarray(values[encoded.indices.to_numpy(zero_copy_only=False)])


def _minutes_east(zone: str) -> int:
    """Of Greenwich."""
    if zone in ("", "Z", "z", "UTC"):
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return (-1 if zone[0] == "-" else 1) * (60 * hours + minutes) if hours < 16 and minutes < 60 else BAD_ZONE


def _moment(part: dict[str, Integers]) -> Moments:
    """NaT where there is no such day or time."""
    month, day, hour, minute, second = (part[name] for name in "mdHMS")
    by_halves = part["p"] >= 0
    valid = (part["y"] >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (part["z"] != BAD_ZONE)
    valid &= (minute < 60) & (second < 60) & np.where(by_halves, (hour >= 1) & (hour <= 12), hour < 24)
    hour = np.where(by_halves, hour % 12 + part["p"], hour)
    months = np.where(valid, (part["y"] - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]")
    valid &= days.astype("datetime64[M]") == months
    seconds = 3600 * hour + 60 * (minute - part["z"]) + second
    moment = days.astype("datetime64[us]") + (1_000_000 * seconds + part["f"]).astype("timedelta64[us]")
    return np.where(valid, moment, np.datetime64("NaT"))
