"""Compute the number of rows needed to estimate the accuracy.

For a classifier that does not depend on the held-out rows, let s and s′ be the fractions of rows in set 0 and in set 1
that are predicted positive. The estimated accuracy, one minus the unbiased zero-one risk (Eq. 4), is then

    Â = 1 − π + (a + b)·s − (c + d)·s′.

Its variance is (a + b)²·p(1 − p)/n + (c + d)²·p′(1 − p′)/n′, where p = θ·TPR + (1 − θ)·FPR is the expected value of
s, and p′ is the expected value of s′. All intervals have the form ±√(S₀²/n + S₁²/n′); see `IntervalSpread`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from uulearn.risk.coefficients import check_set_priors, check_sizes, check_target_prior, estimation_cost
from uulearn.theory.constants import check_number, magnitudes
from uulearn.theory.deviation import bias_bound, deviation_bound

PRIOR_ERROR = 0.01  # size of the error in a class prior whose effect is reported
RATIOS = ((2, 1), (1, 2), (5, 1), (1, 5))  # ratios of the set sizes (set 0 : set 1) that are compared
GAP_FACTORS = (2.0, 1.0, 0.75, 0.5, 0.25)  # multiples of the difference between the priors that are compared


class SetSizes(NamedTuple):
    """Numbers of rows in set 0 and in set 1.

    >>> SetSizes(300, 200).total
    500
    """

    set0: int
    set1: int

    @property
    def total(self) -> int:
        """Total number of rows in both sets."""
        return self.set0 + self.set1


@dataclass(frozen=True)
class IntervalSpread:
    """Coefficients S₀ and S₁ of an interval with half-width √(S₀²/n + S₁²/n′).

    >>> spread = IntervalSpread(3.0, 1.0)
    >>> spread.best_fraction, spread.rows(0.1), spread.rows(0.1, fraction=0.5)
    (0.75, SetSizes(set0=1200, set1=400), SetSizes(set0=1000, set1=1000))
    """

    set0: float
    set1: float

    @property
    def best_fraction(self) -> float:
        """Optimal fraction of rows from set 0 (Neyman allocation: sizes are proportional to S₀ and S₁)."""
        both = self.set0 + self.set1
        return self.set0 / both if both > 0 else 0.5

    def half_width(self, sizes: Sequence[int]) -> float:
        """Return the half-width of the interval for sets with n and n′ rows."""
        n, n_prime = check_sizes(sizes)
        return math.hypot(self.set0 / math.sqrt(n), self.set1 / math.sqrt(n_prime))

    def rows(self, half_width: float, fraction: float | None = None) -> SetSizes:
        """Return the smallest set sizes that reach a half-width; ``fraction`` is the fraction of rows from set 0."""
        scale = check_number("half_width", half_width) ** -2
        if fraction is None:
            scale *= self.set0 + self.set1
            return SetSizes(_whole(self.set0 * scale), _whole(self.set1 * scale))
        fraction = check_number("fraction", fraction)
        total = (self.set0**2 / fraction + self.set1**2 / (1 - fraction)) * scale
        return SetSizes(_whole(total * fraction), _whole(total * (1 - fraction)))

    def relative_cost(self, fraction: float) -> float:
        """Return the total number of rows if this fraction is from set 0, relative to the best fraction."""
        fraction, best = check_number("fraction", fraction), self.best_fraction
        return best**2 / fraction + (1 - best) ** 2 / (1 - fraction) if self.set0 + self.set1 > 0 else 1.0

    def rows_needed(self, *, half_width: float, set0: int | None = None, set1: int | None = None) -> int | None:
        """Return the number of rows that one set needs, given the size of the other, or None if no number is enough."""
        if (set0 is None) == (set1 is None):
            raise ValueError("pass the size of exactly one set, set0 or set1.")
        given, own, other = (set1, self.set0, self.set1) if set0 is None else (set0, self.set1, self.set0)
        assert given is not None
        n, _ = check_sizes((given, 1))
        remaining = check_number("half_width", half_width) ** 2 - other**2 / n
        if own == 0:
            return 1 if remaining >= 0 else None
        return _whole(own**2 / remaining) if remaining > 0 else None


def anticipated_spread(
    set_priors: Sequence[float], target_prior: float, *, accuracy: float = 0.9, delta: float = 0.05
) -> IntervalSpread:
    """Return the spread of the estimated accuracy for a classifier with the given accuracy.

    The accuracy is assumed to be the same on positives and on negatives; the interval holds with probability 1 − δ.

    >>> spread = anticipated_spread((0.6, 0.4), 0.5, accuracy=0.9)
    >>> round(spread.half_width((3000, 3000)), 4), spread.rows(0.02)
    (0.0624, SetSizes(set0=29244, set1=29244))
    """
    accuracy = check_number("accuracy", accuracy)
    fractions = [prior * accuracy + (1 - prior) * (1 - accuracy) for prior in check_set_priors(set_priors)]
    deviations = [math.sqrt(max(0.0, p * (1 - p))) for p in fractions]
    return _spread(set_priors, target_prior, normal_quantile(delta), deviations)


def worst_spread(set_priors: Sequence[float], target_prior: float, *, delta: float = 0.05) -> IntervalSpread:
    """Return the largest spread of the estimated accuracy over all classifiers; see `uulearn.risk.estimation_cost`.

    >>> worst_spread((0.6, 0.4), 0.5).rows(0.02)
    SetSizes(set0=30012, set1=30012)
    """
    return _spread(set_priors, target_prior, normal_quantile(delta), (0.5, 0.5))


def guaranteed_spread(set_priors: Sequence[float], target_prior: float, *, delta: float = 0.05) -> IntervalSpread:
    """Return the spread from Hoeffding's inequality, which holds for any classifier; see `hoeffding_half_width`.

    >>> guaranteed_spread((0.6, 0.4), 0.5).rows(0.02)
    SetSizes(set0=57639, set1=57639)
    """
    return _spread(set_priors, target_prior, math.sqrt(math.log(2 / check_number("delta", delta)) / 2), (1.0, 1.0))


def prior_error_effect(
    set_priors: Sequence[float], target_prior: float, *, accuracy: float = 0.9
) -> tuple[float, float]:
    """Return the change in the estimated accuracy per unit of error in θ and in θ′; more rows do not reduce it.

    >>> [round(0.01 * effect, 4) for effect in prior_error_effect((0.6, 0.4), 0.5)]
    [0.02, 0.02]
    """
    a, b, c, d = magnitudes(set_priors, target_prior)
    separation = abs(2 * check_number("accuracy", accuracy) - 1)
    return separation * (a + b), separation * (c + d)


def scale_prior_gap(set_priors: Sequence[float], factor: float) -> tuple[float, float]:
    """Return priors with the same mean as the given priors and ``factor`` times their difference."""
    theta, theta_prime = check_set_priors(set_priors)
    middle, half = (theta + theta_prime) / 2, (theta - theta_prime) / 2
    # Round, because rounding errors could move priors of 0 and 1 outside [0, 1].
    return check_set_priors((round(middle + factor * half, 12), round(middle - factor * half, 12)))


def normal_quantile(delta: float) -> float:
    """Return z such that a standard normal variable lies within ±z with probability 1 − δ."""
    return -NormalDist().inv_cdf(check_number("delta", delta) / 2)


def _spread(
    set_priors: Sequence[float], target_prior: float, factor: float, deviations: Sequence[float]
) -> IntervalSpread:
    a, b, c, d = magnitudes(set_priors, target_prior)
    return IntervalSpread(factor * (a + b) * deviations[0], factor * (c + d) * deviations[1])


def _whole(rows: float) -> int:
    """Round up to an integer of at least 1, with a tolerance for floating-point errors."""
    return max(1, math.ceil(rows * (1 - 1e-12)))


@dataclass(frozen=True)
class Allocation:
    """Number of rows needed to reach the half-width with a given ratio of the set sizes."""

    name: str
    rows: SetSizes
    cost: float  # total number of rows, relative to the best allocation


@dataclass(frozen=True)
class PriorGap:
    """Number of rows needed if the difference between the class priors changes but their mean does not."""

    set_priors: tuple[float, float]
    rows_each: int
    prior_error: float  # largest change of the estimate for an error of 0.01 in one prior


@dataclass(frozen=True)
class PlannedPrecision:
    """Precision of the estimated accuracy for given sizes of the held-out sets."""

    sizes: SetSizes
    half_width: float
    interval: tuple[float, float]  # interval around the anticipated accuracy, clipped to [0, 1]
    standard_error: float
    worst_half_width: float
    guaranteed_half_width: float  # by Hoeffding's inequality, for the unbiased estimate
    corrected_half_width: float  # by Theorem 3 (Eq. 9), for the corrected zero-one risk with L_f = 1
    corrected_sharp: float  # see `DeviationBound.sharp`
    corrected_bias: float  # see `BiasBound.sharp`
    labeled_rows: float  # number of labeled rows that would give the same precision in the worst case
    set0_needed: int | None  # size of set 0 that reaches the half-width with set 1 unchanged; None if no size is enough
    set1_needed: int | None  # the same for set 1 with set 0 unchanged


@dataclass(frozen=True)
class RowPlan:
    """Number of held-out rows needed to estimate the accuracy, and the precision of the estimate."""

    set_priors: tuple[float, float]
    target_prior: float
    accuracy: float
    half_width: float
    delta: float
    splits: tuple[Allocation, ...]  # the best allocation first, equal sizes second
    worst: SetSizes  # equal sizes, for any classifier
    guaranteed: SetSizes  # equal sizes, by Hoeffding's inequality
    distances: tuple[PriorGap, ...]
    prior_error: float
    precision: PlannedPrecision  # for the given sizes; without them, for the equal sizes that reach the half-width

    @property
    def equal(self) -> SetSizes:
        """Number of rows needed if both sets have the same size."""
        return self.splits[1].rows


def plan_rows(
    set_priors: Sequence[float],
    target_prior: float,
    *,
    accuracy: float = 0.9,
    half_width: float = 0.02,
    sizes: Sequence[int] | None = None,
    delta: float = 0.05,
) -> RowPlan:
    """Compute the number of held-out rows from each set that is needed to estimate the accuracy.

    ``accuracy`` is the anticipated accuracy, which is assumed to be the same for both classes. ``half_width`` is half
    the width of the desired interval. ``sizes`` contains the available numbers of rows (n, n′), for which the precision
    is computed (default: the required sizes). Intervals hold with probability 1 − ``delta``.

    >>> plan = plan_rows((0.8, 0.2), 0.5, half_width=0.02, sizes=(3000, 1000))
    >>> plan.equal, round(plan.precision.half_width, 4), plan.precision.set0_needed
    (SetSizes(set0=2567, set1=2567), 0.0262, None)
    """
    priors, pi = check_set_priors(set_priors), check_target_prior(target_prior)
    accuracy, half_width = check_number("accuracy", accuracy), check_number("half_width", half_width)
    delta = check_number("delta", delta)
    given = None if sizes is None else SetSizes(*check_sizes(sizes))
    spread = anticipated_spread(priors, pi, accuracy=accuracy, delta=delta)
    fractions: dict[str, float | None] = {"best": None, "equal": 0.5}
    fractions |= {f"{x} : {y}": x / (x + y) for x, y in RATIOS}
    if given is not None:
        fractions["as given"] = given.set0 / given.total
    splits = tuple(
        Allocation(name, spread.rows(half_width, fraction), 1.0 if fraction is None else spread.relative_cost(fraction))
        for name, fraction in fractions.items()
    )
    distances = []
    for factor in GAP_FACTORS:
        try:
            others = scale_prior_gap(priors, factor) if factor != 1 else priors
        except ValueError:  # a prior is outside [0, 1], or the priors are too close
            continue
        rows = anticipated_spread(others, pi, accuracy=accuracy, delta=delta).rows(half_width, 0.5)
        error = PRIOR_ERROR * max(prior_error_effect(others, pi, accuracy=accuracy))
        distances.append(PriorGap(others, rows.set0, error))
    return RowPlan(
        priors,
        pi,
        accuracy,
        half_width,
        delta,
        splits=splits,
        worst=worst_spread(priors, pi, delta=delta).rows(half_width, 0.5),
        guaranteed=guaranteed_spread(priors, pi, delta=delta).rows(half_width, 0.5),
        distances=tuple(distances),
        prior_error=PRIOR_ERROR * max(prior_error_effect(priors, pi, accuracy=accuracy)),
        precision=_precision(priors, pi, accuracy, half_width, delta, given or splits[1].rows),
    )


def _precision(
    priors: tuple[float, float], pi: float, accuracy: float, half_width: float, delta: float, sizes: SetSizes
) -> PlannedPrecision:
    alpha, beta = pi * (1 - accuracy), (1 - pi) * (1 - accuracy)
    spread = anticipated_spread(priors, pi, accuracy=accuracy, delta=delta)
    reached = spread.half_width(sizes)
    corrected = deviation_bound(priors, pi, sizes, alpha=alpha, beta=beta, delta=delta)
    return PlannedPrecision(
        sizes,
        half_width=reached,
        interval=(max(0.0, accuracy - reached), min(1.0, accuracy + reached)),
        standard_error=reached / normal_quantile(delta),
        worst_half_width=worst_spread(priors, pi, delta=delta).half_width(sizes),
        guaranteed_half_width=guaranteed_spread(priors, pi, delta=delta).half_width(sizes),
        corrected_half_width=corrected.value,
        corrected_sharp=corrected.sharp,
        corrected_bias=bias_bound(priors, pi, sizes, alpha=alpha, beta=beta).sharp,
        labeled_rows=estimation_cost(priors, pi, sizes).effective_rows,
        set0_needed=spread.rows_needed(half_width=half_width, set1=sizes.set1),
        set1_needed=spread.rows_needed(half_width=half_width, set0=sizes.set0),
    )
