"""A number with its uncertainty, and how the uncertainty of shares becomes that of a sum of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

CONFIDENCE = 0.95
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error and a confidence interval.

    ``value`` is unbiased and may therefore leave the range of what it estimates (an accuracy of 1.01); the interval
    does not.

    Examples
    --------
    >>> print(Estimate(0.9131, 0.0049, (0.9031, 0.9223)))
    0.913 (95% interval 0.903 to 0.922)
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float = CONFIDENCE

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} ({100 * self.confidence:g}% interval {low:.3f} to {high:.3f})"


def check_confidence(confidence: float) -> float:
    """The confidence as a float, or a ValueError that names it."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}; 0.95 is usual.")
    return float(confidence)


def quantile(confidence: float) -> float:
    """The two-sided normal quantile, 1.96 at 95%."""
    return float(norm.ppf(0.5 + confidence / 2))


def wilson_interval(share: float, n: int, z: float) -> tuple[float, float]:
    """Wilson's score interval of a share seen in n rows.

    Examples
    --------
    >>> low, high = wilson_interval(0.5, 100, 1.96)
    >>> round(low, 4), round(high, 4)
    (0.4038, 0.5962)
    """
    shrink = 1 + z**2 / n
    centre = (share + z**2 / (2 * n)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def sum_of_shares(
    shares: Sequence[float],
    sizes: Sequence[int],
    weights: Sequence[float],
    constant: float,
    confidence: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Estimate:
    """constant + Σ w·q for independent shares q, each seen in rows of its own.

    The interval is put together from Wilson's intervals of the shares (the method of variance estimates recovery of
    Zou and Donner, 2008): unlike ± 1.96 standard errors it keeps its coverage where a share is near 0 or 1 or the rows
    are few. What lies outside the bounds is cut off.
    """
    z = quantile(confidence)
    value, variance, below, above = constant, 0.0, 0.0, 0.0
    for share, n, weight in zip(shares, sizes, weights, strict=True):
        value += weight * share
        variance += weight**2 * share * (1 - share) / n
        ends = [weight * (end - share) for end in wilson_interval(share, n, z)]
        below += min(ends) ** 2
        above += max(ends) ** 2
    interval = (value - math.sqrt(below), value + math.sqrt(above))
    return Estimate(value, math.sqrt(variance), clipped(interval, bounds), confidence)


def clipped(interval: tuple[float, float], bounds: tuple[float, float]) -> tuple[float, float]:
    """The part of the interval inside the bounds, or the bound that is nearest to it."""
    low, high = bounds
    return min(max(interval[0], low), high), max(min(interval[1], high), low)


def read_scores(scores: Any, sets: Any) -> tuple[Floats, Floats]:
    """Scores of set 0 and of set 1, checked."""
    values, membership = _column(scores, "scores"), _column(sets, "sets")
    if len(values) != len(membership):
        raise ValueError(f"scores and sets must have one value a row, got {len(values)} and {len(membership)}.")
    unknown = membership[(membership != 0) & (membership != 1)]
    if len(unknown):
        raise ValueError(f"sets must be 0 or 1, the set that each row came from, got {unknown[0]:g}.")
    values = _without_nan(values)
    parts = values[membership == 0], values[membership == 1]
    for which, part in enumerate(parts):
        if not len(part):
            raise ValueError(f"sets has no row of set {which}; an estimate without labels needs rows of both.")
    return parts


def read_labelled(scores: Any, labels: Any) -> tuple[Floats, Floats]:
    """Scores of the positive and of the negative rows, checked; labels are 1 and 0, or 1 and −1."""
    values, given = _column(scores, "scores"), _column(labels, "labels")
    if len(values) != len(given):
        raise ValueError(f"scores and labels must have one value a row, got {len(values)} and {len(given)}.")
    found = set(np.unique(given).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(f"labels must be 1 and 0, or 1 and -1, with 1 for positive, got {sorted(found)[:5]}.")
    values = _without_nan(values)
    return values[given == 1], values[given != 1]


def _column(values: Any, name: str) -> Floats:
    column = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be numbers of shape (n,), one a row, got {column.dtype} of shape {column.shape}."
        )
    return column.astype(np.float64)


def _without_nan(values: Floats) -> Floats:
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(
            f"scores must be numbers, got nan in row {int(missing.argmax())}; see what the model does there."
        )
    return values
