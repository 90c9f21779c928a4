"""The numbers that ``uulearn plan`` prints: rows needed, allocations, other priors, precision of given sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uulearn.risk.coefficients import check_set_priors, check_sizes, check_target_prior, estimation_cost
from uulearn.theory.checks import check_delta
from uulearn.theory.deviation import bias_bound, deviation_bound
from uulearn.theory.planning import (
    SetSizes,
    Spread,
    anticipated_spread,
    check_accuracy,
    check_half_width,
    guaranteed_spread,
    normal_quantile,
    prior_error_effect,
    scale_prior_gap,
    worst_spread,
)

PRIOR_ERROR = 0.01  # error of a class prior whose effect is reported
RATIOS = ((2, 1), (1, 2), (5, 1), (1, 5))  # sizes of set 0 : set 1 that are compared
GAP_FACTORS = (2.0, 1.0, 0.75, 0.5, 0.25)  # multiples of the distance of the priors that are compared


@dataclass(frozen=True)
class Allocation:
    """Rows that reach the half-width for a given ratio of the set sizes."""

    name: str
    rows: SetSizes
    cost: float
    """Total number of rows, relative to the best allocation."""


@dataclass(frozen=True)
class PriorGap:
    """Rows needed for other priors with the same mean."""

    set_priors: tuple[float, float]
    rows_each: int
    prior_error: float
    """Largest change of the estimate for an error of 0.01 in one prior."""


@dataclass(frozen=True)
class PlannedPrecision:
    """Precision of the estimated accuracy for given sizes of the held-out sets."""

    sizes: SetSizes
    half_width: float
    interval: tuple[float, float]
    """Interval around the anticipated accuracy, clipped to [0, 1]."""
    standard_error: float
    worst_half_width: float
    guaranteed_half_width: float
    """By Hoeffding's inequality, for the unbiased estimate."""
    corrected_half_width: float
    """By Theorem 3 (Eq. 9), for the corrected zero-one risk with L_f = 1."""
    corrected_sharp: float
    """See `DeviationBound.sharp`."""
    corrected_bias: float
    """See `BiasBound.sharp`."""
    labelled_rows: float
    """Number of labelled rows that would give the same precision in the worst case."""
    set0_needed: int | None
    """Rows of set 0 that reach the half-width with set 1 unchanged; None if no number is enough."""
    set1_needed: int | None
    """The same for set 1 with set 0 unchanged."""


@dataclass(frozen=True)
class RowPlan:
    """Held-out rows that an estimate of the accuracy needs, and its precision."""

    set_priors: tuple[float, float]
    target_prior: float
    accuracy: float
    half_width: float
    delta: float
    splits: tuple[Allocation, ...]
    """The best allocation first, equal sizes second."""
    worst: SetSizes
    """Equal sizes, for any classifier."""
    guaranteed: SetSizes
    """Equal sizes, by Hoeffding's inequality."""
    distances: tuple[PriorGap, ...]
    prior_error: float
    precision: PlannedPrecision
    """For the given sizes; without them, for the equal sizes that reach the half-width."""

    @property
    def equal(self) -> SetSizes:
        """Rows needed if both sets have the same size."""
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
    """Plan the held-out rows of both sets for an estimate of the accuracy.

    Parameters
    ----------
    set_priors, target_prior
        (θ, θ′) and π.
    accuracy : float
        The anticipated accuracy, the same for both classes.
    half_width : float
        Half the width of the desired interval for the accuracy.
    sizes : (n, n′), optional
        Available rows, to compute their precision.
    delta : float
        Intervals hold with probability 1 − δ.

    Examples
    --------
    >>> plan = plan_rows((0.8, 0.2), 0.5, half_width=0.02, sizes=(3000, 1000))
    >>> plan.equal, round(plan.precision.half_width, 4), plan.precision.set0_needed
    (SetSizes(set0=2567, set1=2567), 0.0262, None)
    """
    priors, pi = check_set_priors(set_priors), check_target_prior(target_prior)
    accuracy, half_width, delta = check_accuracy(accuracy), check_half_width(half_width), check_delta(delta)
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
        except ValueError:  # outside [0, 1], or too close
            continue
        rows = anticipated_spread(others, pi, accuracy=accuracy, delta=delta).rows(half_width, 0.5)
        distances.append(PriorGap(others, rows.set0, _prior_error(others, pi, accuracy)))
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
        prior_error=_prior_error(priors, pi, accuracy),
        precision=_precision(priors, pi, accuracy, half_width, delta, spread, given or splits[1].rows),
    )


def _prior_error(priors: tuple[float, float], pi: float, accuracy: float) -> float:
    return PRIOR_ERROR * max(prior_error_effect(priors, pi, accuracy=accuracy))


def _precision(
    priors: tuple[float, float],
    pi: float,
    accuracy: float,
    half_width: float,
    delta: float,
    spread: Spread,
    sizes: SetSizes,
) -> PlannedPrecision:
    alpha, beta = pi * (1 - accuracy), (1 - pi) * (1 - accuracy)
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
        labelled_rows=estimation_cost(priors, pi, sizes).effective_rows,
        set0_needed=spread.rows_needed(half_width=half_width, set1=sizes.set1),
        set1_needed=spread.rows_needed(half_width=half_width, set0=sizes.set0),
    )
