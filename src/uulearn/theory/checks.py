"""Checks of what the bounds take, each with one sentence that names the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

from uulearn.risk.coefficients import UUCoefficients, uu_coefficients


def magnitudes(set_priors: Sequence[float], target_prior: float) -> UUCoefficients:
    """|a|, |b|, |c|, |d|: the paper takes θ > θ′; in the other order all four change sign, and no bound changes."""
    return UUCoefficients(*(abs(value) for value in uu_coefficients(set_priors, target_prior)))


def check_sizes(sizes: Sequence[int]) -> tuple[int, int]:
    """Return (n, n′) as integers, or raise a ValueError."""
    try:
        values = tuple(sizes)
    except TypeError:
        values = ()
    if len(values) != 2 or not all(isinstance(value, Integral) and value >= 1 for value in values):
        raise ValueError(
            f"sizes must be two whole numbers of rows, of set 0 and of set 1, each at least 1, got {sizes!r}; "
            "pass for example sizes=(3000, 3000)."
        )
    return int(values[0]), int(values[1])


def check_between(name: str, value: float, low: float, high: float, remedy: str, *, open_ends: bool = False) -> float:
    """Return a float within [low, high], or strictly within, or raise a ValueError that ends in the remedy."""
    good = isinstance(value, Real) and (low < value < high if open_ends else low <= value <= high)
    if not good:
        where = f"strictly between {low:g} and {high:g}" if open_ends else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a number {where}, got {value!r}; {remedy}")
    return float(value)


def check_at_least(name: str, value: float, low: float, remedy: str, *, strictly: bool = False) -> float:
    """Return a finite float of at least (or strictly above) ``low``, or raise a ValueError that ends in the remedy."""
    good = isinstance(value, Real) and math.isfinite(value) and (value > low if strictly else value >= low)
    if not good:
        raise ValueError(
            f"{name} must be a number {'above' if strictly else 'of at least'} {low:g}, got {value!r}; {remedy}"
        )
    return float(value)


def check_delta(delta: float) -> float:
    """Return δ, the probability with which a bound may fail."""
    return check_between("delta", delta, 0, 1, "it is the probability of error, 0.05 for 95%.", open_ends=True)


def check_loss_bound(loss_bound: float) -> float:
    """Return C_ℓ, the largest value of the loss."""
    remedy = "it is the largest value of the loss, 1 for the zero-one and the sigmoid loss."
    return check_at_least("loss_bound", loss_bound, 0, remedy, strictly=True)


def check_correction_lipschitz(correction_lipschitz: float) -> float:
    """Return L_f; no correction has less than 1, being the identity on x ≥ 0."""
    remedy = "it is 1 for relu and abs, max(1, |λ|) for leaky_relu (see uulearn.theory.correction_lipschitz)."
    return check_at_least("correction_lipschitz", correction_lipschitz, 1, remedy)
