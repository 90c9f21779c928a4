"""Validation of the numbers that the bounds take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from uulearn.risk.coefficients import UUCoefficients, uu_coefficients


def magnitudes(set_priors: Sequence[float], target_prior: float) -> UUCoefficients:
    """Return |a|, |b|, |c|, |d|. The paper assumes θ > θ′; the other order changes all signs but no bound."""
    return UUCoefficients(*(abs(value) for value in uu_coefficients(set_priors, target_prior)))


def check_between(name: str, value: float, low: float, high: float, advice: str, *, open_ends: bool = False) -> float:
    """Return a float within [low, high] (or strictly within), or raise a ValueError that ends with the advice."""
    good = isinstance(value, Real) and (low < value < high if open_ends else low <= value <= high)
    if not good:
        where = f"{'strictly ' if open_ends else ''}between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a number {where}, got {value!r}; {advice}")
    return float(value)


def check_at_least(name: str, value: float, low: float, advice: str, *, strictly: bool = False) -> float:
    """Return a finite float of at least (or above) ``low``, or raise a ValueError that ends with the advice."""
    good = isinstance(value, Real) and math.isfinite(value) and (value > low if strictly else value >= low)
    if not good:
        bound = f"{'above' if strictly else 'of at least'} {low:g}"
        raise ValueError(f"{name} must be a number {bound}, got {value!r}; {advice}")
    return float(value)


def check_delta(delta: float) -> float:
    """Return δ, the probability with which a bound may fail."""
    return check_between("delta", delta, 0, 1, "it is the probability of error, 0.05 for 95%.", open_ends=True)


def check_loss_bound(loss_bound: float) -> float:
    """Return C_ℓ, the largest value of the loss."""
    advice = "it is the largest value of the loss, 1 for the zero-one and the sigmoid loss."
    return check_at_least("loss_bound", loss_bound, 0, advice, strictly=True)


def check_correction_lipschitz(correction_lipschitz: float) -> float:
    """Return L_f, which is at least 1 because a correction is the identity on x ≥ 0."""
    advice = "it is 1 for relu and abs, max(1, |λ|) for leaky_relu (see uulearn.theory.correction_lipschitz)."
    return check_at_least("correction_lipschitz", correction_lipschitz, 1, advice)
