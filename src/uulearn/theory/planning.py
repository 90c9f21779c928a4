"""How many rows an estimate of the accuracy needs: planning a collection before it starts.

Of a classifier that the rows did not choose, let s and s′ be the shares of rows predicted positive in set 0 and in set
1. One minus the unbiased zero-one risk (Eq. 4) is then

    Â = 1 − π + (a + b)·s − (c + d)·s′,

so its variance is (a + b)²·p(1 − p)/n + (c + d)²·p′(1 − p′)/n′, where p = θ·TPR + (1 − θ)·FPR is what s estimates, and
p′ likewise. Every interval for it has the form ±√(S₀²/n + S₁²/n′); `RowSpread` holds S₀ and S₁ and answers all
questions about sizes. There are three of them, from hopeful to sure:

=====================  =====================================================================================
`anticipated_spread`   normal approximation, for a classifier of the accuracy that is anticipated
`worst_spread`         normal approximation, for any classifier (p = p′ = ½)
`guaranteed_spread`    Hoeffding's inequality: any classifier, any n and n′
=====================  =====================================================================================

All take the priors as exact; `prior_error_effect` tells what an error in them does, which no number of rows fixes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from uulearn.risk.coefficients import check_set_priors
from uulearn.theory.checks import check_between, check_delta, check_sizes, magnitudes


class Rows(NamedTuple):
    """Rows of set 0 and of set 1."""

    set0: int
    set1: int

    @property
    def total(self) -> int:
        """Rows of both sets together."""
        return self.set0 + self.set1


@dataclass(frozen=True)
class RowSpread:
    """S₀ and S₁ of a half-width √(S₀²/n + S₁²/n′).

    Examples
    --------
    >>> spread = RowSpread(3.0, 1.0)
    >>> spread.half_width((900, 100))
    0.1414213562373095
    >>> spread.best_share, spread.rows(0.1), spread.rows(0.1, share=0.5)
    (0.75, Rows(set0=1200, set1=400), Rows(set0=1000, set1=1000))
    >>> spread.rows_beside(set1=500, half_width=0.1)
    1125
    """

    set0: float
    set1: float

    @property
    def best_share(self) -> float:
        """Share of all rows that should come from set 0 (Neyman's allocation: sizes in proportion to S₀ and S₁)."""
        both = self.set0 + self.set1
        return self.set0 / both if both > 0 else 0.5

    def half_width(self, sizes: Sequence[int]) -> float:
        """Half-width of the interval with n and n′ rows."""
        n, n_prime = check_sizes(sizes)
        return math.hypot(self.set0 / math.sqrt(n), self.set1 / math.sqrt(n_prime))

    def rows(self, half_width: float, share: float | None = None) -> Rows:
        """Fewest rows for a half-width when a share of all rows comes from set 0; None for the best share."""
        scale = check_half_width(half_width) ** -2
        if share is None:
            scale *= self.set0 + self.set1
            return Rows(_whole(self.set0 * scale), _whole(self.set1 * scale))
        share = check_between("share", share, 0, 1, "it is set 0's share of all rows.", open_ends=True)
        total = (self.set0**2 / share + self.set1**2 / (1 - share)) * scale
        return Rows(_whole(total * share), _whole(total * (1 - share)))

    def cost(self, share: float) -> float:
        """Rows that this share of set 0 needs, over those of the best share."""
        share = check_between("share", share, 0, 1, "it is set 0's share of all rows.", open_ends=True)
        best = self.best_share
        return best**2 / share + (1 - best) ** 2 / (1 - share) if self.set0 + self.set1 > 0 else 1.0

    def rows_beside(self, *, half_width: float, set0: int | None = None, set1: int | None = None) -> int | None:
        """Rows that one set needs when the size of the other is given; None where no number is enough."""
        if set0 is not None and set1 is None:
            given, own, other = set0, self.set1, self.set0
        elif set1 is not None and set0 is None:
            given, own, other = set1, self.set0, self.set1
        else:
            raise ValueError("give the size of one set, set0 or set1, and the rows that the other needs are returned.")
        n, _ = check_sizes((given, 1))
        left = check_half_width(half_width) ** 2 - other**2 / n
        if own == 0:
            return 1 if left >= 0 else None
        return _whole(own**2 / left) if left > 0 else None


def anticipated_spread(
    set_priors: Sequence[float], target_prior: float, *, accuracy: float = 0.9, delta: float = 0.05
) -> RowSpread:
    """Spread of the estimated accuracy for a classifier that is right on this share of either class.

    Parameters
    ----------
    set_priors, target_prior
        (θ, θ′) and π.
    accuracy : float
        The anticipated accuracy, the same on positives and on negatives.
    delta : float
        The interval is to hold with probability 1 − δ.

    Examples
    --------
    >>> spread = anticipated_spread((0.6, 0.4), 0.5, accuracy=0.9)
    >>> round(spread.half_width((3000, 3000)), 4), spread.rows(0.02)
    (0.0624, Rows(set0=29244, set1=29244))
    """
    accuracy = check_accuracy(accuracy)
    shares = [prior * accuracy + (1 - prior) * (1 - accuracy) for prior in check_set_priors(set_priors)]
    deviations = [math.sqrt(max(0.0, share * (1 - share))) for share in shares]
    return _spread(set_priors, target_prior, normal_quantile(delta), deviations)


def worst_spread(set_priors: Sequence[float], target_prior: float, *, delta: float = 0.05) -> RowSpread:
    """Spread of the estimated accuracy that no classifier exceeds (compare `uulearn.risk.estimation_cost`).

    Examples
    --------
    >>> worst_spread((0.6, 0.4), 0.5).rows(0.02)
    Rows(set0=30012, set1=30012)
    """
    return _spread(set_priors, target_prior, normal_quantile(delta), (0.5, 0.5))


def guaranteed_spread(set_priors: Sequence[float], target_prior: float, *, delta: float = 0.05) -> RowSpread:
    """Spread by Hoeffding's inequality, which holds for every classifier and every size.

    Its half-width is `hoeffding_half_width` for the zero-one loss.

    Examples
    --------
    >>> guaranteed_spread((0.6, 0.4), 0.5).rows(0.02)
    Rows(set0=57639, set1=57639)
    """
    return _spread(set_priors, target_prior, math.sqrt(math.log(2 / check_delta(delta)) / 2), (1.0, 1.0))


def prior_error_effect(
    set_priors: Sequence[float], target_prior: float, *, accuracy: float = 0.9
) -> tuple[float, float]:
    """How much the estimated accuracy moves per unit of error in θ and in θ′.

    The derivative of Â by the assumed θ is −(TPR − FPR)(a + b), by the assumed θ′ it is (TPR − FPR)(c + d); here
    TPR − FPR = 2·accuracy − 1. Magnitudes are returned.

    Examples
    --------
    >>> [round(0.01 * effect, 4) for effect in prior_error_effect((0.6, 0.4), 0.5)]  # an error of 0.01: two points
    [0.02, 0.02]
    """
    a, b, c, d = magnitudes(set_priors, target_prior)
    separation = abs(2 * check_accuracy(accuracy) - 1)
    return separation * (a + b), separation * (c + d)


def nearer_priors(set_priors: Sequence[float], factor: float) -> tuple[float, float]:
    """Priors around the same middle whose distance is ``factor`` times as large.

    Examples
    --------
    >>> nearer_priors((0.75, 0.25), 0.5)
    (0.625, 0.375)
    """
    theta, theta_prime = check_set_priors(set_priors)
    middle, half = (theta + theta_prime) / 2, (theta - theta_prime) / 2
    # Rounded, so that 1 and 0 are hit where they are meant.
    return check_set_priors((round(middle + factor * half, 12), round(middle - factor * half, 12)))


def normal_quantile(delta: float) -> float:
    """Standard errors to either side that a normal variable stays within with probability 1 − δ.

    Examples
    --------
    >>> round(normal_quantile(0.05), 4)
    1.96
    """
    return -NormalDist().inv_cdf(check_delta(delta) / 2)


def check_accuracy(accuracy: float) -> float:
    """Return the anticipated accuracy, or raise a ValueError."""
    return check_between("accuracy", accuracy, 0, 1, "give it as a fraction, 90% as 0.9.")


def check_half_width(half_width: float) -> float:
    """Return the half-width, or raise a ValueError."""
    remedy = "give it as a fraction, two points of accuracy as 0.02."
    return check_between("half_width", half_width, 0, 1, remedy, open_ends=True)


def _spread(set_priors: Sequence[float], target_prior: float, factor: float, deviations: Sequence[float]) -> RowSpread:
    a, b, c, d = magnitudes(set_priors, target_prior)
    return RowSpread(factor * (a + b) * deviations[0], factor * (c + d) * deviations[1])


def _whole(rows: float) -> int:
    """Rounded up, but not for a rounding error; at least one row."""
    return max(1, math.ceil(rows * (1 - 1e-12)))
