"""Validation of the numbers that the bounds take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from uulearn.risk.coefficients import UUCoefficients, uu_coefficients

_PART = "it is a lower bound of this class's part of the risk, {} times its mean loss."
# Per argument: the range, whether its ends are allowed, and advice for a value outside. Without an upper end, any
# finite number is allowed; that of alpha and beta is passed by the caller.
_RANGES: dict[str, tuple[float, float, bool, str]] = {
    "accuracy": (0, 1, True, "give it as a fraction, 90% as 0.9."),
    "alpha": (0, math.inf, True, _PART.format("π")),
    "beta": (0, math.inf, True, _PART.format("1 − π")),
    "correction_lipschitz": (
        1, math.inf, True, "it is 1 for relu and abs, max(1, |λ|) for leaky_relu; see correction_lipschitz()."
    ),
    "delta": (0, 1, False, "it is the probability of error, 0.05 for 95%."),
    "fraction": (0, 1, False, "it is the fraction of rows from set 0."),
    "half_width": (0, 1, False, "give it as a fraction, two points of accuracy as 0.02."),
    "input_bound": (0, math.inf, False, "it bounds the Euclidean norm of every row."),
    "loss_bound": (0, math.inf, False, "it is the largest value of the loss, 1 for the zero-one and the sigmoid loss."),
    "loss_lipschitz": (0, math.inf, True, "the zero-one loss has none; use a surrogate loss."),
    "rademacher": (0, math.inf, True, "pass two numbers, (ℜ_n, ℜ_n′)."),
    "score_bound": (0, math.inf, False, "it bounds the absolute value of every score."),
}  # fmt: skip


def check_number(name: str, value: float, high: float | None = None) -> float:
    """Return the named argument as a float within its range, or raise a ValueError with advice."""
    low, default_high, closed, advice = _RANGES[name]
    high = default_high if high is None else high
    good = isinstance(value, Real) and math.isfinite(value) and (low <= value <= high if closed else low < value < high)
    if not good:
        if math.isinf(high):
            expected = f"{'of at least' if closed else 'above'} {low:g}"
        else:
            expected = f"{'' if closed else 'strictly '}between {low:g} and {high:g}"
        raise ValueError(f"{name} must be a number {expected}, got {value!r}; {advice}")
    return float(value)


def magnitudes(set_priors: Sequence[float], target_prior: float) -> UUCoefficients:
    """Return |a|, |b|, |c|, |d|. The paper assumes θ > θ′; the other order changes all signs but no bound."""
    return UUCoefficients(*(abs(value) for value in uu_coefficients(set_priors, target_prior)))
