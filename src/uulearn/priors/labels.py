"""The shares of positives from a small labelled sample of each set: the surest way to them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.priors.intervals import Interval, check_confidence, clopper_pearson, hypergeometric_interval


@dataclass(frozen=True)
class LabelledPriors:
    """Shares of positives counted in labelled samples of two sets."""

    set_priors: tuple[float, float]
    """(θ, θ′): shares in the samples."""
    intervals: tuple[Interval, Interval]
    confidence: float
    positives: tuple[int, int]
    rows: tuple[int, int]
    """Labelled rows of each set."""
    order_p_value: float
    """Of Fisher's exact test that both sets hold the same share of positives."""


def priors_from_labels(
    y0: Any, y1: Any, *, sizes: Sequence[int] | None = None, confidence: float = 0.95
) -> LabelledPriors:
    """(θ, θ′) from labels on a random sample of each set, with exact intervals.

    The intervals are those of Clopper and Pearson, which cover at least as often as they say for any share and any
    number of labels; with ``sizes`` they are hypergeometric and shorter, since labelled rows are no longer in doubt.

    Parameters
    ----------
    y0, y1 : arrays of shape (k,) and (k′,)
        Labels of rows drawn at random from each set: 1 for positive; 0 or −1 for negative. Rows that were easy to label
        are no random sample, and the shares among them no estimate.
    sizes : (n, n′), optional
        Rows of each set. Given, the intervals are for the shares in these very sets; otherwise for the populations that
        they were drawn from. To train on the sets, the former is what counts.
    confidence : float
        Of each interval.

    Warns
    -----
    UnidentifiedPriorsWarning
        When the labels leave open which set is the richer.

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
        intervals = [
            hypergeometric_interval(k, n, size, confidence)
            for k, n, size in zip(positives, rows, _check_sizes(sizes, rows), strict=True)
        ]
    table = [[positives[0], rows[0] - positives[0]], [positives[1], rows[1] - positives[1]]]
    p_value = float(fisher_exact(table).pvalue)
    if p_value > 1 - confidence:
        warnings.warn(
            f"{positives[0]} of {rows[0]} rows labelled in set 0 are positive, {positives[1]} of {rows[1]} in set 1: "
            f"that leaves open which set is the richer (p = {p_value:.2g}); label more rows of each, chosen at random.",
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
        raise ValueError(f"{name} holds no labels; label at least one row of each set.")
    found = set(np.unique(values).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(f"{name} must hold 1 for positive and 0 or -1 for negative, got {sorted(found, key=str)[:5]}.")
    return np.asarray(values == 1)


def _check_sizes(sizes: Sequence[int], rows: tuple[int, int]) -> tuple[int, int]:
    values = list(sizes) if isinstance(sizes, Sequence | np.ndarray) else [sizes]
    if len(values) != 2 or not all(isinstance(value, int | np.integer) for value in values):
        raise ValueError(f"sizes must be two whole numbers, the rows of set 0 and of set 1, got {sizes!r}.")
    for which, (size, labelled) in enumerate(zip(values, rows, strict=True)):
        if size < labelled:
            raise ValueError(
                f"set {which} has {size} rows but y{which} holds {labelled} labels; a row is labelled once at most."
            )
    return int(values[0]), int(values[1])
