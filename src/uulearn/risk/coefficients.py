"""The four coefficients that turn two unlabeled sets into a classification risk, and what they cost.

With θ and θ′ the shares of positives in the two sets and π the share where the classifier will be used,

    R(g) = a·R_u⁺(g) − b·R_u⁻(g) − c·R_u′⁺(g) + d·R_u′⁻(g).

The smaller |θ − θ′|, the larger the coefficients and the noisier every estimate of R(g).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

from uulearn.exceptions import ClosePriorsWarning

CLOSE_PRIORS = 0.1
EQUAL_PRIORS = 1e-6


class UUCoefficients(NamedTuple):
    """The coefficients of Section 2.2; all four are negative when set 1 is the richer set."""

    a: float
    b: float
    c: float
    d: float


class EstimationCost(NamedTuple):
    """What learning from two unlabeled sets costs, compared with labels on the same rows."""

    standard_error: float
    """Largest standard error that the zero-one risk can have when estimated from all rows."""
    effective_rows: float
    """Number of labelled rows that would pin the zero-one risk down equally well."""


def check_set_priors(set_priors: Sequence[float]) -> tuple[float, float]:
    """Return (θ, θ′) as floats, or raise a ValueError that names the offending value."""
    try:
        values = tuple(set_priors)
    except TypeError:
        values = ()
    if len(values) != 2 or not all(isinstance(value, Real) for value in values):
        raise ValueError(
            f"set_priors must be two numbers, the shares of positives in set 0 and in set 1, got {set_priors!r}; "
            "pass for example set_priors=(0.8, 0.2)."
        )
    theta, theta_prime = (float(value) for value in values)
    for which, value in (("0", theta), ("1", theta_prime)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(
                f"the share of positives in set {which} must lie in [0, 1], got {value!r}; "
                "give it as a fraction, 80% as 0.8."
            )
    if abs(theta - theta_prime) < EQUAL_PRIORS:
        raise ValueError(
            f"set_priors must differ, got {set_priors!r}: two sets with the same share of positives say nothing "
            "about the classes (the coefficients, proportional to 1/|θ − θ′|, are infinite); "
            "collect a second set with another share."
        )
    return theta, theta_prime


def check_target_prior(target_prior: float) -> float:
    """Return π as a float, or raise a ValueError that names the offending value."""
    if not isinstance(target_prior, Real) or not 0.0 < float(target_prior) < 1.0:
        raise ValueError(
            f"target_prior must be a number strictly between 0 and 1, got {target_prior!r}; "
            "it is the share of positives where the classifier will be used."
        )
    return float(target_prior)


def uu_coefficients(set_priors: Sequence[float], target_prior: float) -> UUCoefficients:
    """Coefficients a, b, c, d of the rewritten risk (Section 2.2).

    Parameters
    ----------
    set_priors : (θ, θ′)
        Share of positives in set 0 and in set 1; any order, but different.
    target_prior : float
        π, the share of positives where the classifier will be used.

    Examples
    --------
    >>> a, b, c, d = uu_coefficients((0.75, 0.25), 0.5)
    >>> a, b, c, d
    (0.75, 0.25, 0.25, 0.75)
    >>> uu_coefficients((1.0, 0.0), 0.5)  # fully supervised: nothing is subtracted
    UUCoefficients(a=0.5, b=0.0, c=0.0, d=0.5)
    """
    theta, theta_prime = check_set_priors(set_priors)
    pi = check_target_prior(target_prior)
    gap = theta - theta_prime
    return UUCoefficients(
        a=(1 - theta_prime) * pi / gap,
        b=theta_prime * (1 - pi) / gap,
        c=(1 - theta) * pi / gap,
        d=theta * (1 - pi) / gap,
    )


def estimation_cost(set_priors: Sequence[float], target_prior: float, sizes: tuple[int, int]) -> EstimationCost:
    """Worst-case precision of the zero-one risk estimated from two sets of the given sizes.

    A row of set 0 moves the estimate by a or by −b, a row of set 1 by d or by −c, each divided by the size of its
    set. A variable on two points has a standard deviation of at most half their distance, hence

        SE ≤ ½·√((a + b)²/n + (c + d)²/n′),

    where labelled rows from the target population would give ½/√N; ``effective_rows`` is the N that matches.

    Examples
    --------
    >>> round(estimation_cost((0.8, 0.2), 0.5, (30_000, 30_000)).effective_rows)
    21600
    >>> round(estimation_cost((0.52, 0.48), 0.5, (30_000, 30_000)).effective_rows)
    96
    """
    a, b, c, d = uu_coefficients(set_priors, target_prior)
    n, n_prime = sizes
    standard_error = 0.5 * math.sqrt((a + b) ** 2 / n + (c + d) ** 2 / n_prime)
    return EstimationCost(standard_error, 0.25 / standard_error**2)


def warn_if_close(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: tuple[int, int] | None = None,
    stacklevel: int = 3,
) -> None:
    """Warn when |θ − θ′| is small: how large the coefficients get and what accuracy that costs."""
    theta, theta_prime = check_set_priors(set_priors)
    gap = abs(theta - theta_prime)
    if gap >= CLOSE_PRIORS:
        return
    largest = max(abs(value) for value in uu_coefficients(set_priors, target_prior))
    n, n_prime = sizes or (10_000, 10_000)
    cost = estimation_cost(set_priors, target_prior, (n, n_prime))
    subject = "these" if sizes else "for example"
    warnings.warn(
        f"set_priors=({theta:g}, {theta_prime:g}) differ by only {gap:.3g}: the coefficients reach {largest:.3g}, so "
        f"{subject} {n:,} + {n_prime:,} rows fix the accuracy to ±{100 * cost.standard_error:.2g} points (one "
        f"standard error), no better than labels on {max(1, round(cost.effective_rows)):,} of them would; use sets "
        "whose shares of positives differ more, or many more rows.",
        ClosePriorsWarning,
        stacklevel=stacklevel,
    )
