"""How much of one set is contained in the other: ratios of tails, and the best bin on them.

Let P₀ = θ·P + (1 − θ)·N be the distribution of the richer set and P₁ = θ′·P + (1 − θ′)·N that of the poorer one, θ >
θ′. The mixture proportion κ(P₁ | P₀) is the largest κ for which P₀ = κ·P₁ + (1 − κ)·(some distribution), that is the
infimum of the density ratio p₀/p₁. Where P and N are mutually irreducible (neither contains a part of the other), it
is reached where rows are purely negative, and

    κ(P₁ | P₀) = (1 − θ)/(1 − θ′),   κ(P₀ | P₁) = θ′/θ,

so that θ = (1 − κ₁₀)/(1 − κ₁₀·κ₀₁) and θ′ = κ₀₁·θ (Scott, Blanchard and Handy, COLT 2013; Scott, AISTATS 2015).

With scores that tell the sets apart, the share of the mixture above a threshold over the share of the component above
it is never below κ, in truth, and comes down to it where the tail is pure. Further out fewer rows are left to say so:
the best bin is where the ratio with its noise added is lowest (Garg, Wu, Smola, Balakrishnan and Lipton, NeurIPS
2021).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST_TAIL = 30
"""Rows of the component in the smallest tail that is looked at."""
TAILS = 60
NOISE = 6.0
"""Standard errors added to a ratio before the lowest is sought: fewer pick dips of the noise, more pick mixed tails."""
DELTA = 0.1
GAMMA = 0.01


class RatioCurve(NamedTuple):
    """Share of the mixture over share of the component above thresholds, highest first; arrays of shape (k,)."""

    thresholds: Floats
    rows: NDArray[np.int64]
    """Rows of the component in the tail."""
    ratio: Floats


class BestBin(NamedTuple):
    """Three nested tails and the ratio on the one that gives the estimate."""

    threshold: float
    half_threshold: float
    """Keeps half of the component's rows in the tail, or about half where scores tie: does the ratio still fall?"""
    cautious_threshold: float
    """Where the ratio with the distribution-free correction of Garg et al. is lowest: a wider tail, for bounds."""
    rows: int
    """Rows of the component in the tail."""
    half_rows: int
    ratio: float


def ratio_curve(component: Any, mixture: Any) -> RatioCurve:
    """Ratios of the tails of two samples of scores, from `SMALLEST_TAIL` rows of the component to all of them.

    Parameters
    ----------
    component, mixture : arrays of shape (n,) and (m,)
        Scores, higher for rows that look like the component.

    Examples
    --------
    >>> component = np.arange(1000) % 10  # nine tenths of the component's scores are shared with the mixture's
    >>> curve = ratio_curve(component, np.minimum(component, 8))
    >>> curve.thresholds, curve.ratio[[0, -1]]
    (array([9., 8., 7., 6., 5., 4., 3., 2., 1., 0.]), array([0., 1.]))
    """
    component, mixture = np.sort(np.asarray(component, dtype=float)), np.sort(np.asarray(mixture, dtype=float))
    n = len(component)
    sizes = np.unique(np.geomspace(min(SMALLEST_TAIL, n), n, TAILS).round().astype(np.int64))
    thresholds = np.unique(component[n - sizes])[::-1]
    rows = n - np.searchsorted(component, thresholds, side="left")
    mixture_rows = len(mixture) - np.searchsorted(mixture, thresholds, side="left")
    return RatioCurve(thresholds, rows, (mixture_rows / len(mixture)) / (rows / n))


def best_bin(component: Any, mixture: Any) -> BestBin:
    """The tail on which the ratio estimates κ(component | mixture).

    First the rule of Garg et al. (δ = 0.1, γ = 0.01): the lowest ratio + (1 + γ)·(√(ln(4/δ)/2m) +
    √(ln(4/δ)/2n))/share. Its correction holds for every threshold at once and is several times the noise in a tail,
    so that it stays on wide tails, where the ratio is still above κ. With the ratio found there, r, the noise in a
    tail that holds the share q of the component is close to √(r/q·(1/m + r/n)); the second pass seeks the lowest
    ratio plus `NOISE` times that.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> positive, negative = rng.normal(4, 1, 5000), rng.normal(0, 1, 5000)
    >>> mixture = np.concatenate([positive[:3000], negative[:2000]])  # the component is contained in it with κ = 0.6
    >>> round(best_bin(positive, mixture).ratio, 2)
    0.6
    """
    component, mixture = np.sort(np.asarray(component, dtype=float)), np.asarray(mixture, dtype=float)
    curve = ratio_curve(component, mixture)
    n, m = len(component), len(mixture)
    share = curve.rows / n
    uniform = math.sqrt(math.log(4 / DELTA) / (2 * m)) + math.sqrt(math.log(4 / DELTA) / (2 * n))
    cautious = int(np.argmin(curve.ratio + (1 + GAMMA) * uniform / share))
    level = max(float(curve.ratio[cautious]), 1 / m)
    noise = np.sqrt(level / share * (1 / m + level / n))
    chosen = int(np.argmin(curve.ratio + NOISE * noise))
    rows = int(curve.rows[chosen])
    half = component[n - max(1, rows // 2)]
    if half == curve.thresholds[chosen]:  # ties: the next higher score, if there is one
        deeper = component[component > half]
        half = deeper[0] if len(deeper) else half
    return BestBin(
        threshold=float(curve.thresholds[chosen]),
        half_threshold=float(half),
        cautious_threshold=float(curve.thresholds[cautious]),
        rows=rows,
        half_rows=int(np.count_nonzero(component >= half)),
        ratio=float(curve.ratio[chosen]),
    )


def solve_proportions(kappa_10: Any, kappa_01: Any) -> tuple[Floats, Floats]:
    """(θ, θ′) of the richer and the poorer set from κ(P₁ | P₀) and κ(P₀ | P₁); not a number where both are 1."""
    kappa_10, kappa_01 = np.asarray(kappa_10, dtype=float), np.asarray(kappa_01, dtype=float)
    left = 1 - kappa_10 * kappa_01
    theta = np.divide(1 - kappa_10, left, out=np.full(left.shape, np.nan), where=left > 0)
    return theta, kappa_01 * theta
