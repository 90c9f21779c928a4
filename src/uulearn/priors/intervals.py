"""Intervals for a share: exact for a sample from a population, and for a sample from a set of known size."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scipy import stats


class Interval(NamedTuple):
    """Both ends of an interval for a share."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance of the ends."""
        return self.high - self.low

    def covers(self, value: float) -> bool:
        """Whether the value lies in the interval, ends included."""
        return self.low <= value <= self.high

    def complement(self) -> Interval:
        """The interval of the share of everything else."""
        return Interval(1 - self.high, 1 - self.low)


def check_confidence(confidence: float) -> float:
    """Return the confidence as a float, or raise a ValueError that names the offending value."""
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence must be at least 0.5 and below 1, got {confidence!r}; 0.95 is usual.")
    return float(confidence)


def clopper_pearson(positives: int, rows: int, confidence: float = 0.95) -> Interval:
    """Exact interval for the share of positives in the population that the rows were drawn from.

    It covers at least as often as it says, for any share and any number of rows (Clopper and Pearson, 1934).

    Examples
    --------
    >>> low, high = clopper_pearson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.444, 0.975)
    """
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, positives, rows - positives + 1)) if positives > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, positives + 1, rows - positives)) if positives < rows else 1.0
    return Interval(low, high)


def hypergeometric_interval(positives: int, rows: int, size: int, confidence: float = 0.95) -> Interval:
    """Exact interval for the share of positives in a set of ``size`` rows, ``rows`` of which were labelled.

    The counterpart of `clopper_pearson` for rows drawn without replacement: it shrinks to a point when every row of
    the set is labelled.

    Examples
    --------
    >>> low, high = hypergeometric_interval(8, 10, 20)
    >>> low, high
    (0.55, 0.9)
    >>> hypergeometric_interval(8, 10, 10)
    Interval(low=0.8, high=0.8)
    """
    tail = (1 - confidence) / 2
    fewest, most = positives, size - (rows - positives)
    low = _first(fewest, most, lambda total: stats.hypergeom.sf(positives - 1, size, total, rows) > tail)
    high = _first(fewest, most + 1, lambda total: stats.hypergeom.cdf(positives, size, total, rows) <= tail) - 1
    return Interval(low / size, high / size)


def _first(start: int, stop: int, holds: Callable[[int], bool]) -> int:
    """The first whole number from ``start`` on at which a monotone condition holds, ``stop`` if none before it."""
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start
