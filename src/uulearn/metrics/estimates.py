"""Estimates with confidence intervals, and the input checks of scores, sets and labels that all metrics share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from uulearn.markup import notebook
from uulearn.risk.coefficients import check_differ

CI_LEVEL = 0.95  # default confidence level of intervals
WIDE_INTERVAL = 0.3  # width above which an interval is reported as too wide to be useful
Floats = NDArray[np.float64]
Pair = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error and a confidence interval.

    An unbiased estimate can lie outside the range of the metric, such as an accuracy above 1. ``value`` and the
    interval are clipped to the range, and ``unclipped`` is the unbiased estimate. Averages, differences and rankings
    use ``unclipped``.

    >>> print(Estimate(0.9131, 0.0049, (0.9031, 0.9223)))
    0.913 (95% interval 0.903 to 0.922)
    >>> print(Estimate(1.0, 0.05, (1.0, 1.0), unclipped=1.18))
    unknown (estimated as 1.180, which is impossible)
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float = CI_LEVEL
    unclipped: float = math.nan
    """The estimate before clipping; equals ``value`` if it is not given."""

    def __post_init__(self) -> None:
        if math.isnan(self.unclipped):
            object.__setattr__(self, "unclipped", self.value)

    def __float__(self) -> float:
        return self.value

    @property
    def half_width(self) -> float:
        """Half the width of the interval before clipping, because a clipped interval can be narrow by chance."""
        low, high = self.interval
        return max((high - low) / 2, two_sided_quantile(self.confidence) * self.standard_error)

    @property
    def is_imprecise(self) -> bool:
        """Whether the interval is too wide to be useful: wider than 0.3 before clipping."""
        return 2 * self.half_width > WIDE_INTERVAL

    @property
    def is_out_of_range(self) -> bool:
        """Whether the whole interval is outside the range of the metric before clipping, so no value is plausible."""
        low, high = self.interval
        return low == high and self.unclipped != self.value

    def bar(self, name: str) -> notebook.Bar:
        """Return the estimate for a table in a notebook."""
        return notebook.Bar(name, self.value, self.interval)

    def _repr_html_(self) -> str:
        return notebook.join(notebook.bar_table([self.bar(f"estimate, {100 * self.confidence:g}% interval")]))

    def __str__(self) -> str:
        low, high = self.interval
        if self.is_out_of_range:
            return f"unknown (estimated as {self.unclipped:.3f}, which is impossible)"
        return f"{self.value:.3f} ({100 * self.confidence:g}% interval {low:.3f} to {high:.3f})"


def check_confidence(confidence: float) -> float:
    """Return the confidence level as a float; raise ValueError if it is not between 0 and 1."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}; pass for example 0.95.")
    return float(confidence)


def two_sided_quantile(confidence: float) -> float:
    """Return the two-sided normal quantile, for example 1.96 for a confidence of 0.95."""
    return float(norm.ppf(0.5 + confidence / 2))


def wilson_interval(proportion: float, n: float, z: float) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion observed in n rows."""
    scale = 1 + z**2 / n
    center = (proportion + z**2 / (2 * n)) / scale
    half = z / scale * math.sqrt(proportion * (1 - proportion) / n + z**2 / (4 * n**2))
    return max(0.0, center - half), min(1.0, center + half)


def combine_proportions(
    proportions: Sequence[float],
    sizes: Sequence[float],
    weights: Sequence[float],
    constant: float,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
    least_error: float = 0.0,
) -> Estimate:
    """Estimate constant + Σ w·q from independent proportions q.

    The interval combines Wilson's intervals of the proportions (MOVER; Zou and Donner, 2008). The interval is therefore
    reliable with few rows and with proportions near 0 or 1. It is at least as wide as a normal interval with the
    standard error ``least_error``. The result is clipped to the bounds.
    """
    z = two_sided_quantile(confidence)
    value, variance, below, above = constant, 0.0, 0.0, 0.0
    for proportion, n, weight in zip(proportions, sizes, weights, strict=True):
        value += weight * proportion
        variance += weight**2 * proportion * (1 - proportion) / n
        ends = [weight * (end - proportion) for end in wilson_interval(proportion, n, z)]
        below += min(ends) ** 2
        above += max(ends) ** 2
    low, high = (value + sign * max(math.sqrt(end), z * least_error) for sign, end in ((-1, below), (1, above)))
    return clip_estimate(value, max(math.sqrt(variance), least_error), (low, high), confidence, bounds)


def clip_estimate(
    value: float, standard_error: float, interval: Pair, confidence: float, bounds: Pair = (0.0, 1.0)
) -> Estimate:
    """Return an estimate clipped to the bounds; an interval outside the bounds is reduced to the nearest bound.

    Examples
    --------
    >>> estimate = clip_estimate(1.04, 0.05, (0.94, 1.14), 0.95)
    >>> print(estimate)
    1.000 (95% interval 0.940 to 1.000)
    >>> estimate.unclipped
    1.04
    """
    least, most = bounds
    shown, low, high = (min(max(number, least), most) for number in (value, *interval))
    return Estimate(shown, standard_error, (low, high), confidence, value)


def split_scores(scores: Any, sets: Any, n_sets: int = 2) -> list[Floats]:
    """Return the scores of each set, after checking both arrays; with two sets, both need rows."""
    values, membership = _read_pair(scores, sets, "sets")
    unknown = membership[~np.isin(membership, range(n_sets))]
    numbers = "0 or 1" if n_sets == 2 else f"whole numbers from 0 to {n_sets - 1}"
    if len(unknown):
        raise ValueError(f"sets must be {numbers}, the set that each row came from, got {unknown[0]:g}.")
    parts = [values[membership == which] for which in range(n_sets)]
    for which, part in enumerate(parts):
        if n_sets == 2 and not len(part):
            raise ValueError(f"sets contains no rows from set {which}; pass rows from both sets.")
    return parts


def split_by_prior(scores: Any, sets: Any, set_priors: Sequence[float]) -> list[Floats]:
    """Return the scores of each set, after checking that the rows have different class priors.

    Some of more than two sets may have no rows.
    """
    parts = split_scores(scores, sets, len(set_priors))
    check_differ([prior for prior, part in zip(set_priors, parts, strict=True) if len(part)], len(set_priors))
    return parts


def split_labeled(scores: Any, labels: Any) -> tuple[Floats, Floats]:
    """Return the scores of positives and of negatives; labels are 1 and 0, or 1 and −1."""
    values, given = _read_pair(scores, labels, "labels")
    found = set(np.unique(given).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(f"labels must be 1 and 0, or 1 and -1, with 1 for positive, got {sorted(found)[:5]}.")
    return values[given == 1], values[given != 1]


def read_column(values: Any, name: str) -> Floats:
    """Convert an array, list or tensor of numbers to a float64 array of shape (n,); raise a ValueError for NaN."""
    column = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers of shape (n,), got {column.dtype} of shape {column.shape}.")
    missing = np.isnan(column)
    if missing.any():
        raise ValueError(f"{name} must be numbers, got nan in row {int(missing.argmax())}; check the model's output.")
    return column.astype(np.float64)


def _read_pair(scores: Any, others: Any, name: str) -> tuple[Floats, Floats]:
    pair = read_column(scores, "scores"), read_column(others, name)
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"scores and {name} must have one value per row, got {len(pair[0])} and {len(pair[1])}.")
    return pair
