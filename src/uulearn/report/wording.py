"""Numbers in words and figures, rounded for a reader."""

from __future__ import annotations

from collections.abc import Sequence

from uulearn.report.facts import Shown

UNKNOWN = "–"
"""Where a table has no number."""


def percent(share: float | None, decimals: int = 1) -> str:
    """A share in percent.

    Examples
    --------
    >>> percent(0.9314), percent(-0.004), percent(-0.0004), percent(None)
    ('93.1%', '−0.4%', '0.0%', '–')
    """
    return UNKNOWN if share is None else f"{_number(100 * share, decimals)}%"


def prior(share: float | None) -> str:
    """A share of positives that somebody gave, with no more decimals than it has.

    Examples
    --------
    >>> prior(0.8), prior(0.4926), prior(None)
    ('80%', '49.26%', '–')
    """
    return UNKNOWN if share is None else f"{100 * share:.4g}%".replace("-", "−")


def signed(value: float | None, decimals: int = 3) -> str:
    """A number with its sign.

    Examples
    --------
    >>> signed(0.1234), signed(-0.1234), signed(-0.00001)
    ('+0.123', '−0.123', '0.000')
    """
    if value is None:
        return UNKNOWN
    if abs(value) >= 1e6:
        return f"{value:+.3g}".replace("-", "−")
    text = _number(value, decimals)
    return text if text.startswith("−") or float(text.replace(",", "")) == 0 else f"+{text}"


def plain(value: float | None, decimals: int = 3) -> str:
    """A number."""
    if value is None:
        return UNKNOWN
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 1e6 else _number(value, decimals)


def count(value: float | None) -> str:
    """A number of rows."""
    return UNKNOWN if value is None else _number(value, 0) if abs(value) < 1e15 else f"{value:.3g}"


def both(sizes: tuple[int, int] | None) -> str:
    """Rows of the two sets."""
    return UNKNOWN if sizes is None else f"{count(sizes[0])} + {count(sizes[1])}"


def interval(ends: tuple[float, float] | None) -> str:
    """An interval of shares.

    Examples
    --------
    >>> interval((0.881, 0.974))
    '88.1% to 97.4%'
    """
    return UNKNOWN if ends is None else f"{percent(ends[0])} to {percent(ends[1])}"


def with_interval(shown: Shown) -> str:
    """An estimate and its interval, in percent."""
    if shown.interval is None:
        return f"{percent(shown.value)} (no interval was stored)"
    return f"{percent(shown.value)} ({percent(shown.confidence, 0)} interval {interval(shown.interval)})"


def duration(seconds: float) -> str:
    """A time.

    Examples
    --------
    >>> duration(0.42), duration(12.3), duration(90), duration(7300)
    ('0.4 seconds', '12 seconds', '1 min 30 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} seconds" if seconds < 9.95 else f"{seconds:.0f} seconds"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{count(minutes // 60)} h {minutes % 60} min"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A number of things.

    Examples
    --------
    >>> plural(1, "epoch"), plural(1200, "epoch")
    ('1 epoch', '1,200 epochs')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def listed(items: Sequence[str], most: int = 8) -> str:
    """Things one after another, the last after "and"; many are cut short.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdef"), most=3)
    ('a', 'a, b and c', 'a, b, c and 3 more')
    """
    shown = [*items[:most], *([f"{len(items) - most} more"] if len(items) > most else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def sentence(text: str) -> str:
    """The text with a full stop at its end. Its beginning, which may be a name, is left alone."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _number(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
