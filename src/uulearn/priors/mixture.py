"""Estimate the mixture proportions of two sets from the tails of their score distributions.

Let P₀ = θ·P + (1 − θ)·N be the distribution of the set with the higher prior, and P₁ = θ′·P + (1 − θ′)·N the
distribution of the other set. The mixture proportion κ(P₁ | P₀) is the largest κ such that P₀ = κ·P₁ + (1 − κ)·Q for
some distribution Q. If P and N are mutually irreducible (neither contains the other as a mixture component),

    κ(P₁ | P₀) = (1 − θ)/(1 − θ′)   and   κ(P₀ | P₁) = θ′/θ   (Scott, Blanchard and Handy, COLT 2013).

Each score threshold defines a tail. The fraction of the mixture in the tail, divided by the fraction of the component
in the tail, is at least κ, and equals κ if the tail is pure. Smaller tails are purer but noisier, so the best bin
minimizes this ratio plus a multiple of its standard error (Garg et al., NeurIPS 2021).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uulearn.metrics.estimates import Floats

Counts = NDArray[np.int64]

MIN_TAIL_ROWS = 30  # number of rows of the component in the smallest tail
N_TAILS = 60  # number of tails on the ratio curve, with sizes in a geometric sequence
# Number of standard errors added to a ratio: a lower value selects random minima, a higher value impure tails.
NOISE_FACTOR = 6.0
DELTA, GAMMA = 0.1, 0.01  # δ and γ of the rule of Garg et al.


class RatioCurve(NamedTuple):
    """Ratio of mixture to component in the tail above each of k decreasing thresholds; arrays of shape (k,)."""

    thresholds: Floats
    rows: Counts  # number of rows of the component in the tail
    ratio: Floats


class BestBin(NamedTuple):
    """Thresholds of three nested tails, and the ratio in the tail that is used for the estimate."""

    threshold: float
    half_threshold: float  # threshold of the upper half of the tail, which shows whether the ratio is still decreasing
    cautious_threshold: float
    """Threshold of a wider tail, selected by the distribution-free rule of Garg et al. and used for the bounds."""
    rows: int  # number of rows of the component in the tail
    half_rows: int
    ratio: float


def ratio_curve(component: Any, mixture: Any) -> RatioCurve:
    """Return the ratio of mixture to component in tails of increasing size, beginning with `MIN_TAIL_ROWS` rows.

    Scores must be higher for rows that look like the component.

    >>> component = np.arange(1000) % 10  # the mixture has no score of 9
    >>> curve = ratio_curve(component, np.minimum(component, 8))
    >>> curve.thresholds, curve.ratio[[0, -1]]
    (array([9., 8., 7., 6., 5., 4., 3., 2., 1., 0.]), array([0., 1.]))
    """
    component, mixture = np.sort(np.asarray(component, dtype=float)), np.sort(np.asarray(mixture, dtype=float))
    n = len(component)
    sizes = np.unique(np.geomspace(min(MIN_TAIL_ROWS, n), n, N_TAILS).round().astype(np.int64))
    thresholds = np.unique(component[n - sizes])[::-1]
    rows = n - np.searchsorted(component, thresholds, side="left")
    mixture_rows = len(mixture) - np.searchsorted(mixture, thresholds, side="left")
    return RatioCurve(thresholds, rows, (mixture_rows / len(mixture)) / (rows / n))


def best_bin(component: Any, mixture: Any) -> BestBin:
    """Select the tail in which the ratio estimates κ(component | mixture).

    The first pass uses the rule of Garg et al., which minimizes the ratio r plus
    (1 + γ)·(√(ln(4/δ)/2m) + √(ln(4/δ)/2n))/q, where q is the fraction of the component in the tail. This rule selects
    wide tails, in which r is still above κ. The second pass minimizes r plus `NOISE_FACTOR` standard errors of
    approximately √(r/q·(1/m + r/n)).

    >>> rng = np.random.default_rng(0)
    >>> positive, negative = rng.normal(4, 1, 5000), rng.normal(0, 1, 5000)
    >>> mixture = np.concatenate([positive[:3000], negative[:2000]])  # κ = 0.6
    >>> round(best_bin(positive, mixture).ratio, 2)
    0.6
    """
    component, mixture = np.sort(np.asarray(component, dtype=float)), np.asarray(mixture, dtype=float)
    curve = ratio_curve(component, mixture)
    n, m = len(component), len(mixture)
    fraction = curve.rows / n
    uniform = math.sqrt(math.log(4 / DELTA) / (2 * m)) + math.sqrt(math.log(4 / DELTA) / (2 * n))
    cautious = int(np.argmin(curve.ratio + (1 + GAMMA) * uniform / fraction))
    level = max(float(curve.ratio[cautious]), 1 / m)
    noise = np.sqrt(level / fraction * (1 / m + level / n))
    chosen = int(np.argmin(curve.ratio + NOISE_FACTOR * noise))
    rows = int(curve.rows[chosen])
    half = component[n - max(1, rows // 2)]
    if half == curve.thresholds[chosen]:  # if scores are tied, use the next higher score
        higher = component[component > half]
        half = higher[0] if len(higher) else half
    return BestBin(
        threshold=float(curve.thresholds[chosen]),
        half_threshold=float(half),
        cautious_threshold=float(curve.thresholds[cautious]),
        rows=rows,
        half_rows=int(np.count_nonzero(component >= half)),
        ratio=float(curve.ratio[chosen]),
    )


def solve_proportions(kappa_10: Any, kappa_01: Any) -> tuple[Floats, Floats]:
    """Compute (θ, θ′), with θ > θ′, from κ(P₁ | P₀) and κ(P₀ | P₁); return NaN if both proportions are 1."""
    kappa_10, kappa_01 = np.asarray(kappa_10, dtype=float), np.asarray(kappa_01, dtype=float)
    denominator = 1 - kappa_10 * kappa_01
    theta = np.divide(1 - kappa_10, denominator, out=np.full(denominator.shape, np.nan), where=denominator > 0)
    return theta, kappa_01 * theta


@dataclass(frozen=True)
class Resampled:
    """Estimates of a mixture proportion from each bootstrap resample; arrays of shape (replicates,)."""

    low: Floats  # extrapolated from the decrease of the ratio between the tail and its upper half
    high: Floats  # the ratio on the tail
    cautious: Floats  # the ratio on the wider tail of the distribution-free rule


def resample(
    higher: Floats,
    lower: Floats,
    negative_end: BestBin,
    positive_end: BestBin,
    replicates: int,
    rng: np.random.Generator,
) -> tuple[Resampled, Resampled]:
    """Draw bootstrap resamples of both sets, and estimate both mixture proportions from each resample.

    The estimates depend only on the number of rows between consecutive thresholds. Drawing these counts from a
    multinomial distribution is equivalent to drawing rows with replacement, but faster.
    """
    below, above = -np.array(negative_end[:3]), np.array(positive_end[:3])
    cuts = np.unique([below, above])
    up_to, beyond = [], []  # numbers of rows at or below, and at or above, each threshold; shape (3, replicates)
    for scores in (higher, lower):
        # Cell 2i + 1 is the i-th cut itself, and even cells lie between cuts, because thresholds belong to both tails.
        cell = np.searchsorted(cuts, scores, side="left") + np.searchsorted(cuts, scores, side="right")
        counts = np.bincount(cell, minlength=2 * len(cuts) + 1)
        drawn = rng.multinomial(len(scores), counts / len(scores), size=replicates).cumsum(axis=1).T
        up_to.append(drawn[2 * np.searchsorted(cuts, below) + 1])
        beyond.append(len(scores) - drawn[2 * np.searchsorted(cuts, above)])
    sizes = len(higher), len(lower)
    negative = _proportions(negative_end, up_to[1], up_to[0], sizes[::-1], rng)
    return negative, _proportions(positive_end, beyond[0], beyond[1], sizes, rng)


def _proportions(
    end: BestBin, component: Counts, mixture: Counts, sizes: tuple[int, int], rng: np.random.Generator
) -> Resampled:
    n, m = sizes
    # Add half a row, as in Jeffreys' prior, because a tail without rows of the mixture does not prove κ = 0.
    half_a_row = rng.gamma(0.5, size=len(component[0]))

    def ratio(which: int, added: Floats | float = 0.0) -> Floats:
        return np.asarray(((mixture[which] + added) / m) / (np.maximum(component[which], 1) / n))

    tail, upper_half = ratio(0), ratio(1)
    remaining = end.half_rows / end.rows
    decrease = (tail - upper_half) / (1 - remaining) if remaining < 1 else np.zeros_like(tail)
    return Resampled(
        low=np.clip(tail - np.maximum(decrease, 0), 0, 1),
        high=np.clip(ratio(0, half_a_row), 0, 1),
        cautious=np.clip(ratio(2, half_a_row), 0, 1),
    )
