"""Bootstrap of the mixture proportions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uulearn.metrics.estimates import Floats
from uulearn.priors.mixture import BestBin


@dataclass(frozen=True)
class Resampled:
    """One mixture proportion in every bootstrap resample; arrays of shape (replicates,)."""

    low: Floats
    """Extrapolation: the ratio continues to decrease as it does from the tail to its upper half."""
    high: Floats
    """The ratio on the tail."""
    cautious: Floats
    """The ratio on the wider tail of the distribution-free rule."""


def resample(
    higher: Floats,
    lower: Floats,
    negative_end: BestBin,
    positive_end: BestBin,
    replicates: int,
    rng: np.random.Generator,
) -> tuple[Resampled, Resampled]:
    """Resample the rows of the sets with the higher and the lower prior.

    For fixed thresholds, a resample is determined by the numbers of rows between them. Drawing these counts from a
    multinomial distribution is equivalent to drawing rows with replacement, at a cost independent of their number.
    """
    below = [-value for value in negative_end[:3]]
    above = list(positive_end[:3])
    cuts = np.unique([*below, *above])
    up_to: list[dict[float, Floats]] = []
    beyond: list[dict[float, Floats]] = []
    for scores in (higher, lower):
        # Cell 2i + 1 is the i-th cut itself, the even cells lie between cuts: thresholds belong to both tails.
        cell = np.searchsorted(cuts, scores, side="left") + np.searchsorted(cuts, scores, side="right")
        counts = np.bincount(cell, minlength=2 * len(cuts) + 1)
        drawn = rng.multinomial(len(scores), counts / len(scores), size=replicates).cumsum(axis=1)
        up_to.append({cut: drawn[:, 2 * i + 1] for i, cut in enumerate(cuts.tolist())})
        beyond.append({cut: len(scores) - drawn[:, 2 * i] for i, cut in enumerate(cuts.tolist())})
    sizes = len(higher), len(lower)
    negative = _proportions(
        negative_end, [up_to[1][cut] for cut in below], [up_to[0][cut] for cut in below], sizes[::-1], rng
    )
    positive = _proportions(
        positive_end, [beyond[0][cut] for cut in above], [beyond[1][cut] for cut in above], sizes, rng
    )
    return negative, positive


def _proportions(
    end: BestBin, component: list[Floats], mixture: list[Floats], sizes: tuple[int, int], rng: np.random.Generator
) -> Resampled:
    n, m = sizes
    # Half a row, as in Jeffreys' prior: a tail without rows of the mixture does not prove κ = 0.
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
