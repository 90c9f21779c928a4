"""The four coefficients that express the classification risk in terms of risks on two unlabeled sets:

    R(g) = a·R_u⁺(g) − b·R_u⁻(g) − c·R_u′⁺(g) + d·R_u′⁻(g).

The smaller |θ − θ′|, the larger the coefficients and the noisier every estimate of R(g).
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Literal, NamedTuple

from uulearn.exceptions import ClosePriorsWarning

# Below this |θ − θ′|, a warning reports the precision: with π = ½, the standard error of the risk is more than ten
# times the standard error that labels of the same rows would give.
CLOSE_PRIORS = 0.1
# Below this |θ − θ′|, the priors are considered equal and rejected, because the coefficients would exceed 10⁵.
EQUAL_PRIORS = 1e-6


class UUCoefficients(NamedTuple):
    """The coefficients a, b, c and d of Section 2.2; all four are negative if set 1 has the higher prior."""

    a: float
    b: float
    c: float
    d: float


class EstimationCost(NamedTuple):
    """Worst-case precision of the zero-one risk estimated from two unlabeled sets."""

    standard_error: float  # largest possible standard error of the zero-one risk estimated from all rows
    effective_rows: float  # number of labeled rows that would give the same standard error


def check_set_priors(set_priors: Sequence[float]) -> tuple[float, float]:
    """Return the class priors (θ, θ′) as floats, or raise a ValueError that names the offending value."""
    theta, theta_prime = check_priors(set_priors, number="two")
    return theta, theta_prime


def check_priors(set_priors: Iterable[float], number: Literal["two", "two or more"]) -> list[float]:
    """Return the class priors as floats; raise a ValueError if a prior is invalid or if all priors are equal."""
    values = tuple(set_priors) if isinstance(set_priors, Iterable) else ()
    enough = len(values) == 2 if number == "two" else len(values) >= 2
    if not enough or not all(isinstance(value, Real) for value in values):
        raise ValueError(
            f"set_priors must be {number} numbers, the class prior of each set, got {set_priors!r}; for example, "
            "pass set_priors=(0.8, 0.2)."
        )
    priors = [float(value) for value in values]
    for which, prior in enumerate(priors):
        if not 0.0 <= prior <= 1.0:
            raise ValueError(f"the class prior of set {which} must lie in [0, 1], got {prior!r}; write 80% as 0.8.")
    if max(priors) - min(priors) < EQUAL_PRIORS:
        raise ValueError(
            f"set_priors must differ, got {set_priors!r}: sets with the same class prior contain no information about "
            "the classes; use sets with different class priors."
        )
    return priors


def check_target_prior(target_prior: float) -> float:
    """Return the target prior π as a float, or raise a ValueError that names the offending value."""
    if not isinstance(target_prior, Real) or not 0.0 < float(target_prior) < 1.0:
        raise ValueError(
            f"target_prior must be a number strictly between 0 and 1, got {target_prior!r}; "
            "it is the class prior of the population that the classifier will be used on."
        )
    return float(target_prior)


def check_sizes(sizes: Sequence[int]) -> tuple[int, int]:
    """Return the set sizes (n, n′) as integers, or raise a ValueError that names the offending value."""
    values = tuple(sizes) if isinstance(sizes, Iterable) else ()
    if len(values) != 2 or not all(isinstance(value, Integral) and value >= 1 for value in values):
        raise ValueError(
            f"sizes must be two whole numbers of rows, one per set and each at least 1, got {sizes!r}; "
            "for example, pass sizes=(3000, 3000)."
        )
    return int(values[0]), int(values[1])


def uu_coefficients(set_priors: Sequence[float], target_prior: float) -> UUCoefficients:
    """Return the coefficients a, b, c and d of the rewritten risk (Section 2.2).

    Parameters
    ----------
    set_priors : (θ, θ′)
        Class priors of set 0 and set 1, which must differ; either one may be higher.
    target_prior : float
        π, the class prior of the population that the classifier will be used on.

    Examples
    --------
    >>> uu_coefficients((0.75, 0.25), 0.5)
    UUCoefficients(a=0.75, b=0.25, c=0.25, d=0.75)
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
    """Return the worst-case precision of the zero-one risk estimated from two sets of the given sizes.

    A row of set 0 contributes a/n or −b/n to the estimate, and a row of set 1 contributes d/n′ or −c/n′. Therefore SE ≤
    ½·√((a + b)²/n + (c + d)²/n′); N labeled rows of the target population would give SE ≤ ½/√N.

    >>> round(estimation_cost((0.8, 0.2), 0.5, (30_000, 30_000)).effective_rows)
    21600
    """
    a, b, c, d = uu_coefficients(set_priors, target_prior)
    n, n_prime = sizes
    standard_error = 0.5 * math.sqrt((a + b) ** 2 / n + (c + d) ** 2 / n_prime)
    return EstimationCost(standard_error, 0.25 / standard_error**2)


def warn_if_close(
    set_priors: Sequence[float], target_prior: float, sizes: tuple[int, int] | None = None, stacklevel: int = 3
) -> None:
    """Warn if |θ − θ′| is small, and report the largest coefficient and the standard error of the accuracy."""
    theta, theta_prime = check_set_priors(set_priors)
    gap = abs(theta - theta_prime)
    if gap >= CLOSE_PRIORS:
        return
    largest = max(abs(value) for value in uu_coefficients(set_priors, target_prior))
    n, n_prime = sizes or (10_000, 10_000)
    cost = estimation_cost(set_priors, target_prior, (n, n_prime))
    subject = "these" if sizes else "for example"
    warnings.warn(
        f"set_priors=({theta:g}, {theta_prime:g}) differ by only {gap:.3g}, so the coefficients are as large as "
        f"{largest:.3g}: {subject} {n:,} + {n_prime:,} rows estimate the accuracy with a standard error of up to "
        f"{100 * cost.standard_error:.2g} points, equivalent to {max(1, round(cost.effective_rows)):,} labeled rows; "
        "use sets whose class priors differ more, or many more rows.",
        ClosePriorsWarning,
        stacklevel=stacklevel,
    )
