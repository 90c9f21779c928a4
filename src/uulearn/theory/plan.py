"""All that `uulearn plan` prints, as numbers: rows needed, splits, nearer priors, and what given sizes give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from uulearn.risk.coefficients import check_set_priors, check_target_prior, estimation_cost
from uulearn.theory.checks import check_delta, check_sizes
from uulearn.theory.deviation import bias_bound, deviation_bound
from uulearn.theory.planning import (
    Rows,
    RowSpread,
    anticipated_spread,
    check_accuracy,
    check_half_width,
    guaranteed_spread,
    nearer_priors,
    normal_quantile,
    prior_error_effect,
    worst_spread,
)

PRIOR_ERROR = 0.01
RATIOS = ((2, 1), (1, 2), (5, 1), (1, 5))
FACTORS = (2.0, 1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class Split:
    """Rows that reach the half-width when the sizes of the sets stand in a given ratio."""

    name: str
    rows: Rows
    cost: float
    """Rows in total over those of the best split."""


@dataclass(frozen=True)
class Distance:
    """What other priors around the same middle would need."""

    set_priors: tuple[float, float]
    rows_each: int
    prior_error: float
    """What an error of 0.01 in one prior moves the estimate by, at most."""


@dataclass(frozen=True)
class Precision:
    """What given sizes of the held-out sets give."""

    sizes: Rows
    half_width: float
    interval: tuple[float, float]
    """Around an estimate equal to the anticipated accuracy, cut to [0, 1]."""
    standard_error: float
    worst_half_width: float
    guaranteed_half_width: float
    """Hoeffding's inequality, for the unbiased estimate."""
    corrected_half_width: float
    """Theorem 3 (Eq. 9), for the corrected zero-one risk (relu, abs, leaky_relu with |λ| ≤ 1)."""
    corrected_sharp: float
    """The same, sharper; see `DeviationBound.sharp`."""
    corrected_bias: float
    """What the correction adds on average, at most; see `BiasBound.sharp`."""
    labelled_rows: float
    """Rows with labels that would pin the accuracy down equally well, in the worst case."""
    set0_needed: int | None
    """Rows of set 0 for the wanted half-width beside set 1 as it is; None if no number is enough."""
    set1_needed: int | None
    """The same for set 1 beside set 0 as it is."""


@dataclass(frozen=True)
class Plan:
    """How many held-out rows an estimate of the accuracy needs, and what they give."""

    set_priors: tuple[float, float]
    target_prior: float
    accuracy: float
    half_width: float
    delta: float
    splits: tuple[Split, ...]
    """The best first, equal sizes second."""
    worst: Rows
    """Equal sizes, whatever the classifier."""
    guaranteed: Rows
    """Equal sizes, by Hoeffding's inequality."""
    distances: tuple[Distance, ...]
    prior_error: float
    precision: Precision
    """Of the given sizes, else of the equal sizes that are needed."""

    @property
    def equal(self) -> Rows:
        """Rows needed if both sets are of one size."""
        return self.splits[1].rows


def plan_rows(
    set_priors: Sequence[float],
    target_prior: float,
    *,
    accuracy: float = 0.9,
    half_width: float = 0.02,
    sizes: Sequence[int] | None = None,
    delta: float = 0.05,
) -> Plan:
    """Plan the held-out rows of both sets for an estimate of the accuracy.

    Parameters
    ----------
    set_priors, target_prior
        (θ, θ′) and π.
    accuracy : float
        The accuracy that is anticipated, the same on either class.
    half_width : float
        Half the width that the interval for the accuracy should have.
    sizes : (n, n′), optional
        Rows at hand, to learn what they give.
    delta : float
        Intervals hold with probability 1 − δ.

    Examples
    --------
    >>> plan = plan_rows((0.8, 0.2), 0.5, half_width=0.02, sizes=(3000, 1000))
    >>> plan.equal, round(plan.precision.half_width, 4), plan.precision.set0_needed
    (Rows(set0=2567, set1=2567), 0.0262, None)
    """
    priors, pi = check_set_priors(set_priors), check_target_prior(target_prior)
    accuracy, half_width, delta = check_accuracy(accuracy), check_half_width(half_width), check_delta(delta)
    given = None if sizes is None else Rows(*check_sizes(sizes))
    spread = anticipated_spread(priors, pi, accuracy=accuracy, delta=delta)
    shares: dict[str, float | None] = {"best": None, "equal": 0.5}
    shares |= {f"{x} : {y}": x / (x + y) for x, y in RATIOS}
    if given is not None:
        shares["as given"] = given.set0 / given.total
    splits = tuple(
        Split(name, spread.rows(half_width, share), cost=1.0 if share is None else spread.cost(share))
        for name, share in shares.items()
    )
    distances = []
    for factor in FACTORS:
        try:
            others = nearer_priors(priors, factor) if factor != 1 else priors
        except ValueError:  # beyond [0, 1], or too near
            continue
        rows = anticipated_spread(others, pi, accuracy=accuracy, delta=delta).rows(half_width, 0.5)
        distances.append(Distance(others, rows.set0, _prior_error(others, pi, accuracy)))
    return Plan(
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
    spread: RowSpread,
    sizes: Rows,
) -> Precision:
    alpha, beta = pi * (1 - accuracy), (1 - pi) * (1 - accuracy)
    reached = spread.half_width(sizes)
    corrected = deviation_bound(priors, pi, sizes, alpha=alpha, beta=beta, delta=delta)
    return Precision(
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
        set0_needed=spread.rows_beside(half_width=half_width, set1=sizes.set1),
        set1_needed=spread.rows_beside(half_width=half_width, set0=sizes.set0),
    )
