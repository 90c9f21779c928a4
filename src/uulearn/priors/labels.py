"""Class priors from a small labelled sample of each set: the most reliable source."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.metrics.estimates import check_confidence
from uulearn.priors.intervals import Interval, clopper_pearson, hypergeometric_interval
from uulearn.risk.coefficients import check_sizes


@dataclass(frozen=True)
class LabelledPriors:
    """Class priors estimated from labelled samples of two sets."""

    set_priors: tuple[float, float]
    """(θ, θ′): fractions of positives in the samples."""
    intervals: tuple[Interval, Interval]
    confidence: float
    positives: tuple[int, int]
    rows: tuple[int, int]
    """Number of labelled rows of each set."""
    order_p_value: float
    """p-value of Fisher's exact test that both sets have the same class prior."""


def priors_from_labels(
    y0: Any, y1: Any, *, sizes: Sequence[int] | None = None, confidence: float = 0.95
) -> LabelledPriors:
    """Estimate (θ, θ′) from labels of a random sample of each set, with exact intervals.

    The intervals are those of Clopper and Pearson. If ``sizes`` is given, they are hypergeometric and shorter, because
    the labelled rows are a part of the set.

    Parameters
    ----------
    y0, y1 : arrays of shape (k,) and (k′,)
        Labels of rows drawn at random from each set: 1 for positive; 0 or −1 for negative. Rows chosen because they are
        easy to label are not a random sample and give a biased estimate.
    sizes : (n, n′), optional
        Number of rows of each set. If given, the intervals are for the priors of these sets, which are the priors to
        train with; otherwise for the populations that the sets were drawn from.
    confidence : float
        Confidence level of each interval.

    Warns
    -----
    UnidentifiedPriorsWarning
        If the labels do not show which set has the higher prior.

    Examples
    --------
    >>> found = priors_from_labels([1] * 40 + [0] * 10, [1] * 15 + [0] * 35)
    >>> found.set_priors
    (0.8, 0.3)
    >>> print("{:.3f} to {:.3f}".format(*found.intervals[0]))
    0.663 to 0.900
    >>> found = priors_from_labels([1] * 40 + [0] * 10, [1] * 15 + [0] * 35, sizes=(120, 4000))
    >>> print("{:.3f} to {:.3f}".format(*found.intervals[0]))
    0.700 to 0.875
    """
    check_confidence(confidence)
    labels = _read_labels(y0, "y0"), _read_labels(y1, "y1")
    rows = len(labels[0]), len(labels[1])
    positives = int(labels[0].sum()), int(labels[1].sum())
    if sizes is None:
        intervals = [clopper_pearson(k, n, confidence) for k, n in zip(positives, rows, strict=True)]
    else:
        totals = check_sizes(sizes)
        for which, (size, labelled) in enumerate(zip(totals, rows, strict=True)):
            if size < labelled:
                raise ValueError(
                    f"set {which} has {size} rows but y{which} has {labelled} labels; pass one label per labelled row."
                )
        intervals = [
            hypergeometric_interval(k, n, size, confidence) for k, n, size in zip(positives, rows, totals, strict=True)
        ]
    table = [[positives[0], rows[0] - positives[0]], [positives[1], rows[1] - positives[1]]]
    p_value = float(fisher_exact(table).pvalue)
    if p_value > 1 - confidence:
        warnings.warn(
            f"{positives[0]} of {rows[0]} labelled rows of set 0 are positive, {positives[1]} of {rows[1]} of set 1: "
            f"the labels do not show which set has the higher prior (p = {p_value:.2g}); label more randomly chosen "
            "rows of each set.",
            UnidentifiedPriorsWarning,
            stacklevel=2,
        )
    return LabelledPriors(
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
        raise ValueError(f"{name} must be 1 for positive and 0 or -1 for negative, got {sorted(found, key=str)[:5]}.")
    return np.asarray(values == 1)
