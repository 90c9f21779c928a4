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
# Number of sets that are listed in a text; more sets are summarized.
MAX_LISTED_SETS = 8


class MultiSetCoefficients(NamedTuple):
    """Coefficients of the risk of two or more sets; for two sets, they are (a, −c) and (−b, d) of Section 2.2.

    >>> uu_coefficients((0.75, 0.25), 0.5).of_sets
    MultiSetCoefficients(positive=(0.75, -0.25), negative=(-0.25, 0.75))
    """

    positive: tuple[float, ...]  # a_j: multiplies the mean of ℓ(g) over set j in the positive risk term
    negative: tuple[float, ...]  # b_j: multiplies the mean of ℓ(−g) over set j in the negative risk term


class UUCoefficients(NamedTuple):
    """The coefficients a, b, c and d of Section 2.2; all four are negative if set 1 has the higher prior."""

    a: float
    b: float
    c: float
    d: float

    @property
    def of_sets(self) -> MultiSetCoefficients:
        """The coefficients of each set, with their signs: (a, −c) and (−b, d)."""
        return MultiSetCoefficients((self.a, -self.c), (-self.b, self.d))


class EstimationCost(NamedTuple):
    """Worst-case precision of the zero-one risk estimated from unlabeled sets."""

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


def check_differ(used_priors: Sequence[float], n_sets: int) -> None:
    """Raise a ValueError if all rows of an estimate have the same class prior.

    ``used_priors`` are the class priors of the sets with rows, out of ``n_sets`` sets.

    >>> check_differ([0.5], 3)
    Traceback (most recent call last):
    ValueError: the rows come from 1 of the 3 sets, and all have the same class prior (0.5); pass rows of sets with ...
    """
    if not used_priors or max(used_priors) - min(used_priors) < EQUAL_PRIORS:
        priors = f", and all have the same class prior ({used_priors[0]:g})" if used_priors else ""
        raise ValueError(
            f"the rows come from {len(used_priors)} of the {n_sets} sets{priors}; pass rows of sets with different "
            "class priors."
        )


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


def multi_set_coefficients(
    set_priors: Sequence[float], sizes: Sequence[int], target_prior: float
) -> MultiSetCoefficients:
    """Return the coefficients of the unbiased risk of two or more sets that have the smallest variance.

    The positive risk term is Σ a_j·E_j[ℓ(g)], and the negative risk term is Σ b_j·E_j[ℓ(−g)]. They are unbiased for all
    coefficients with Σ a_j·θ_j = π, Σ a_j·(1 − θ_j) = 0, Σ b_j·(1 − θ_j) = 1 − π and Σ b_j·θ_j = 0. For two sets, the
    solution is unique. For more sets, Σ a_j²/n_j and Σ b_j²/n_j are minimized: if the loss has the same variance in all
    sets, these are the estimates with the smallest variance. With N = Σ n_j, and θ̄ and V the mean and the variance of
    the class prior over all rows, the solution is

        a_j = π·n_j/N·(1 + (1 − θ̄)·(θ_j − θ̄)/V),    b_j = (1 − π)·n_j/N·(1 − θ̄·(θ_j − θ̄)/V).

    Parameters
    ----------
    set_priors : sequence of m ≥ 2 numbers
        Class prior θ_j of each set; not all of them may be equal.
    sizes : sequence of m integers
        Number of rows n_j of each set.
    target_prior : float
        π, the class prior of the population that the classifier will be used on.

    Examples
    --------
    >>> found = multi_set_coefficients((0.9, 0.5, 0.1), (100, 100, 100), 0.5)
    >>> [round(a, 4) for a in found.positive], [round(b, 4) for b in found.negative]
    ([0.4792, 0.1667, -0.1458], [-0.1458, 0.1667, 0.4792])
    >>> multi_set_coefficients((0.75, 0.25), (100, 100), 0.5).positive
    (0.75, -0.25)
    """
    priors, pi = check_priors(set_priors, number="two or more"), check_target_prior(target_prior)
    rows = list(sizes)
    if len(rows) != len(priors) or not all(n > 0 for n in rows):
        raise ValueError(f"sizes must be {len(priors)} numbers of rows above 0, one per set, got {sizes!r}.")
    if len(priors) == 2:
        return uu_coefficients(priors, pi).of_sets
    total = sum(rows)
    mean = sum(n * prior for n, prior in zip(rows, priors, strict=True)) / total
    variance = sum(n * (prior - mean) ** 2 for n, prior in zip(rows, priors, strict=True)) / total
    above = [(prior - mean) / variance for prior in priors]
    return MultiSetCoefficients(
        tuple(pi * n / total * (1 + (1 - mean) * excess) for n, excess in zip(rows, above, strict=True)),
        tuple((1 - pi) * n / total * (1 - mean * excess) for n, excess in zip(rows, above, strict=True)),
    )


def estimation_cost(set_priors: Sequence[float], target_prior: float, sizes: Sequence[int]) -> EstimationCost:
    """Return the worst-case precision of the zero-one risk estimated from two or more sets of the given sizes.

    A row of set j contributes a_j/n_j or b_j/n_j to the estimate (see `multi_set_coefficients`). Therefore SE ≤
    ½·√(Σ (a_j − b_j)²/n_j); N labeled rows of the target population would give SE ≤ ½/√N.

    >>> round(estimation_cost((0.8, 0.2), 0.5, (30_000, 30_000)).effective_rows)
    21600
    >>> round(estimation_cost((0.8, 0.2, 0.5), 0.5, (30_000, 30_000, 30_000)).effective_rows)
    21600
    """
    coefficients = multi_set_coefficients(set_priors, sizes, target_prior)
    terms = zip(*coefficients, sizes, strict=True)
    standard_error = 0.5 * math.sqrt(sum((a - b) ** 2 / n for a, b, n in terms))
    return EstimationCost(standard_error, 0.25 / standard_error**2)


def warn_if_close(
    set_priors: Sequence[float], target_prior: float, sizes: Sequence[int] | None = None, stacklevel: int = 3
) -> None:
    """Warn if all class priors are close, and report the largest coefficient and the standard error of the accuracy."""
    priors = check_priors(set_priors, number="two or more")
    gap = max(priors) - min(priors)
    if gap >= CLOSE_PRIORS:
        return
    rows = sizes or [10_000] * len(priors)
    coefficients = multi_set_coefficients(priors, rows, target_prior)
    largest = max(abs(value) for part in coefficients for value in part)
    cost = estimation_cost(priors, target_prior, rows)
    subject = "these" if sizes else "for example"
    listed = len(priors) <= MAX_LISTED_SETS
    values = f"set_priors=({', '.join(f'{prior:g}' for prior in priors)})" if listed else "all set_priors"
    sample = " + ".join(f"{n:,}" for n in rows) if listed else f"{sum(rows):,}"
    warnings.warn(
        f"{values} differ by only {gap:.3g}, so the coefficients are "
        f"as large as {largest:.3g}: {subject} {sample} rows estimate the accuracy with a standard error of up to "
        f"{100 * cost.standard_error:.2g} points, equivalent to {max(1, round(cost.effective_rows)):,} labeled rows; "
        "use sets whose class priors differ more, or many more rows.",
        ClosePriorsWarning,
        stacklevel=stacklevel,
    )
