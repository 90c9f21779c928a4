"""Format numbers and lists for the last lines of ``fit``, the model card and the report."""

import math
from collections.abc import Sequence
from typing import TypeGuard

from uulearn.metrics import Estimate
from uulearn.training.progress import format_duration

NO_VALUE = "–"
"""Shown instead of a number that is missing or not finite."""
WHOLE_PERCENT_WIDTH = 0.02
"""Minimum width of intervals shown without decimals; narrower intervals get enough decimals to distinguish the ends."""


def percent(share: float | None, decimals: int = 1) -> str:
    """Format a fraction as a percentage, such as ``93.1%`` or ``−0.4%``."""
    return f"{_fixed(100 * share, decimals)}%" if _is_known(share) else NO_VALUE


def prior(share: float | None) -> str:
    """Format a class prior as a percentage with at most four significant digits, such as ``49.26%``."""
    return f"{100 * share:.4g}%".replace("-", "−") if _is_known(share) else NO_VALUE


def number(value: float | None, decimals: int = 3) -> str:
    """Format a number without a plus sign; very large numbers use scientific notation."""
    if not _is_known(value):
        return NO_VALUE
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 1e6 else _fixed(value, decimals)


def signed(value: float | None, decimals: int = 3) -> str:
    """Format a number with its sign.

    >>> signed(0.1234), signed(-0.1234), signed(-0.00001)
    ('+0.123', '−0.123', '0.000')
    """
    text = number(value, decimals)
    return text if text[0] in "−–" or float(text.replace(",", "")) == 0 else f"+{text}"


def count(value: float | None) -> str:
    """Format a whole number with thousands separators."""
    if not _is_known(value):
        return NO_VALUE
    return _fixed(value, 0) if abs(value) < 1e15 else f"{value:.3g}"


def interval(ends: tuple[float, float] | None) -> str:
    """Format an interval of fractions, such as ``88.1% to 97.4%``."""
    return NO_VALUE if ends is None or not all(map(_is_known, ends)) else f"{percent(ends[0])} to {percent(ends[1])}"


def accuracy_range(accuracy: Estimate) -> str:
    """Format the accuracy for ``fit``, the model card and the report: the interval, then the best estimate.

    No classifier is perfect, so the text never claims 100%. If the whole interval is outside the range from 0 to 1, the
    accuracy is reported as unknown.

    >>> accuracy_range(Estimate(0.931, 0.013, (0.902, 0.949)))
    'between 90% and 95%, best estimate 93%'
    >>> accuracy_range(Estimate(1.04, 0.03, (0.921, 1.0)))
    'between 92% and 100%, best estimate above 99%'
    >>> accuracy_range(Estimate(1.0, 0.05, (1.0, 1.0), unclipped=1.4))
    'unknown, because no accuracy is consistent with these class priors'
    """
    if accuracy.is_out_of_range:
        return "unknown, because no accuracy is consistent with these class priors"
    low, high, value = (min(max(share, 0.0), 1.0) for share in (*accuracy.interval, accuracy.value))
    width = high - low
    decimals = 0 if width >= WHOLE_PERCENT_WIDTH else 1 if width >= WHOLE_PERCENT_WIDTH / 10 else 2
    step = 10.0 ** -(decimals + 2)
    above = value > 1 - step / 2  # it would be rounded to 100%
    best = f"above {percent(1 - step, decimals)}" if above else percent(value, decimals)
    return f"between {percent(low, decimals)} and {percent(high, decimals)}, best estimate {best}"


def duration(seconds: float) -> str:
    """Format a duration in suitable units, such as ``1 min 30 s``."""
    return format_duration(seconds) if _is_known(seconds) else NO_VALUE


def plural(number: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun, such as ``1,200 epochs``."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def listing(items: Sequence[str], limit: int = 8) -> str:
    """Join items with commas, and "and" before the last; show at most ``limit`` of them.

    >>> listing(["a"]), listing(["a", "b", "c"]), listing(list("abcdef"), limit=3)
    ('a', 'a, b and c', 'a, b, c and 3 more')
    """
    shown = [*items[:limit], *([f"{len(items) - limit} more"] if len(items) > limit else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def sentence(text: str) -> str:
    """Return the text with a final period."""
    text = text.strip()
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _fixed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")
