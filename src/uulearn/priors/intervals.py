"""Exact intervals for a proportion, in a population and in a finite set."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from scipy import stats


class Interval(NamedTuple):
    """An interval for a class prior."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The difference of the two ends."""
        return self.high - self.low

    def covers(self, value: float) -> bool:
        """Return whether the interval contains the value."""
        return self.low <= value <= self.high


def clopper_pearson(positives: int, rows: int, confidence: float = 0.95) -> Interval:
    """Exact interval for the class prior of the population that the rows were drawn from.

    Its coverage is at least the confidence, for any prior and any number of rows (Clopper and Pearson, 1934).

    Examples
    --------
    >>> low, high = clopper_pearson(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.444, 0.975)
    """
    interval = stats.binomtest(positives, rows).proportion_ci(confidence, method="exact")
    return Interval(float(interval.low), float(interval.high))


def hypergeometric_interval(positives: int, rows: int, size: int, confidence: float = 0.95) -> Interval:
    """Exact interval for the fraction of positives in a set of ``size`` rows, from ``rows`` labelled rows.

    It is the counterpart of `clopper_pearson` for rows drawn without replacement: its width is zero if every row of the
    set is labelled.

    Examples
    --------
    >>> low, high = hypergeometric_interval(8, 10, 20)
    >>> low, high
    (0.55, 0.9)
    >>> hypergeometric_interval(8, 10, 10)
    Interval(low=0.8, high=0.8)
    """
    tail = (1 - confidence) / 2
    first, last = positives, size - (rows - positives)  # possible numbers of positives in the set
    too_few = range(first, last)
    low = bisect_left(too_few, True, key=lambda total: stats.hypergeom.sf(positives - 1, size, total, rows) > tail)
    candidates = range(first, last + 1)
    high = bisect_left(candidates, True, key=lambda total: stats.hypergeom.cdf(positives, size, total, rows) <= tail)
    return Interval((first + low) / size, (first + high - 1) / size)
