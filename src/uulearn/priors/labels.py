"""Estimate class priors, with exact intervals, from small labeled samples; this is the most reliable method."""

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.markup import notebook
from uulearn.metrics.estimates import check_confidence
from uulearn.risk.coefficients import check_sizes


class Interval(NamedTuple):
    """Confidence interval for a class prior.

    >>> Interval(0.25, 0.75).covers(0.5), Interval(0.25, 0.75).width
    (True, 0.5)
    """

    low: float
    high: float

    @property
    def width(self) -> float:
        """Width of the interval."""
        return self.high - self.low

    def bar(self, name: str, value: float) -> notebook.Bar:
        """Return an estimate with this interval for a table in a notebook."""
        return notebook.Bar(name, value, self)

    def covers(self, value: float) -> bool:
        """Return whether the interval contains the value."""
        return self.low <= value <= self.high


def clopper_pearson(positives: int, rows: int, confidence: float = 0.95) -> Interval:
    """Return the exact confidence interval for the class prior of a population (Clopper and Pearson, 1934)."""
    interval = stats.binomtest(positives, rows).proportion_ci(confidence, method="exact")
    return Interval(float(interval.low), float(interval.high))


def hypergeometric_interval(positives: int, rows: int, size: int, confidence: float = 0.95) -> Interval:
    """Return the exact confidence interval for the fraction of positives in a finite set of ``size`` rows.

    The labeled rows are drawn without replacement, so the width is zero if every row of the set is labeled.
    """
    tail = (1 - confidence) / 2
    first, last = positives, size - (rows - positives)  # possible numbers of positives in the set
    too_few = range(first, last)
    low = bisect_left(too_few, True, key=lambda total: stats.hypergeom.sf(positives - 1, size, total, rows) > tail)
    candidates = range(first, last + 1)
    high = bisect_left(candidates, True, key=lambda total: stats.hypergeom.cdf(positives, size, total, rows) <= tail)
    return Interval((first + low) / size, (first + high - 1) / size)


@dataclass(frozen=True)
class LabeledPriors:
    """Class priors estimated from labeled samples of two sets."""

    set_priors: tuple[float, float]  # (θ, θ′): fractions of positives in the samples
    intervals: tuple[Interval, Interval]
    confidence: float
    positives: tuple[int, int]
    rows: tuple[int, int]  # number of labeled rows of each set
    order_p_value: float  # p-value of Fisher's exact test that both sets have the same class prior


def priors_from_labels(
    y0: Any, y1: Any, *, sizes: Sequence[int] | None = None, confidence: float = 0.95
) -> LabeledPriors:
    """Estimate the class priors (θ, θ′), with exact intervals, from a labeled random sample of each set.

    An UnidentifiedPriorsWarning is issued if the labels do not show which set has the higher prior.

    Parameters
    ----------
    y0 : array of shape (k,)
        Labels of rows drawn at random from set 0: 1 for positive; 0 or −1 for negative. Rows chosen because they are
        easy to label give a biased estimate.
    y1 : array of shape (k′,)
        Labels of rows drawn at random from set 1.
    sizes : (n, n′), optional
        Number of rows of each set. If given, the intervals are for the priors of these sets (hypergeometric), which are
        used in training. Otherwise, the intervals are for the populations of the sets (Clopper–Pearson).

    Examples
    --------
    >>> found = priors_from_labels([1] * 40 + [0] * 10, [1] * 15 + [0] * 35)
    >>> found.set_priors
    (0.8, 0.3)
    >>> print("{:.3f} to {:.3f}".format(*found.intervals[0]))
    0.663 to 0.900
    """
    check_confidence(confidence)
    labels = _read_labels(y0, "y0"), _read_labels(y1, "y1")
    rows = len(labels[0]), len(labels[1])
    positives = int(labels[0].sum()), int(labels[1].sum())
    if sizes is None:
        intervals = [clopper_pearson(k, n, confidence) for k, n in zip(positives, rows, strict=True)]
    else:
        totals = check_sizes(sizes)
        for which, (size, labeled) in enumerate(zip(totals, rows, strict=True)):
            if size < labeled:
                raise ValueError(f"set {which} has {size} rows, but y{which} has {labeled} labels; correct sizes.")
        intervals = [
            hypergeometric_interval(k, n, size, confidence) for k, n, size in zip(positives, rows, totals, strict=True)
        ]
    table = [[positives[0], rows[0] - positives[0]], [positives[1], rows[1] - positives[1]]]
    p_value = float(stats.fisher_exact(table).pvalue)
    if p_value > 1 - confidence:
        warnings.warn(
            f"{positives[0]} of {rows[0]} labeled rows in set 0 and {positives[1]} of {rows[1]} in set 1 are positive; "
            f"the labels do not show which set has the higher prior (p = {p_value:.2g}). Label more randomly chosen "
            "rows of each set.",
            UnidentifiedPriorsWarning,
            stacklevel=2,
        )
    return LabeledPriors(
        set_priors=(positives[0] / rows[0], positives[1] / rows[1]),
        intervals=(intervals[0], intervals[1]),
        confidence=confidence,
        positives=positives,
        rows=rows,
        order_p_value=p_value,
    )


def _read_labels(y: Any, name: str) -> NDArray[np.bool_]:
    values = np.asarray(y).reshape(-1)
    if len(values) == 0:
        raise ValueError(f"{name} has no labels; label at least one row of each set.")
    found = set(np.unique(values).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(f"{name} must contain only 1 and 0, or 1 and -1, got {sorted(found, key=str)[:5]}.")
    return np.asarray(values == 1)
