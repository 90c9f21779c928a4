"""Validate the arguments of the bounds, and compute the constants C_ℓ, L_ℓ and L_f of losses and corrections."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import torch

from uulearn.risk.coefficients import UUCoefficients, uu_coefficients
from uulearn.risk.corrections import DEFAULT_SLOPE, check_slope
from uulearn.risk.losses import LOSSES

_PART = "it is a lower bound on {} times the mean loss of this class."
# For each argument: the range, whether its ends are allowed, and advice for a value outside the range. An infinite
# upper end allows any finite number. The caller passes the upper end for alpha and beta.
_RANGES: dict[str, tuple[float, float, bool, str]] = {
    "accuracy": (0, 1, True, "write 90% as 0.9."),
    "alpha": (0, math.inf, True, _PART.format("π")),
    "beta": (0, math.inf, True, _PART.format("1 − π")),
    "correction_lipschitz": (
        1, math.inf, True, "it is 1 for relu and abs, and max(1, |λ|) for leaky_relu; see correction_lipschitz()."
    ),
    "delta": (0, 1, False, "it is the error probability (0.05 for 95% confidence)."),
    "fraction": (0, 1, False, "it is the fraction of rows from set 0."),
    "half_width": (0, 1, False, "write two percentage points as 0.02."),
    "input_bound": (0, math.inf, False, "it is an upper bound on the Euclidean norm of every row."),
    "loss_bound": (0, math.inf, False, "it is the largest value of the loss (1 for the zero-one and sigmoid losses)."),
    "loss_lipschitz": (0, math.inf, True, "the zero-one loss has no Lipschitz constant; use a surrogate loss."),
    "rademacher": (0, math.inf, True, "pass two numbers, (ℜ_n, ℜ_n′)."),
    "score_bound": (0, math.inf, False, "it is an upper bound on the absolute value of every score."),
}  # fmt: skip


def check_number(name: str, value: float, high: float | None = None) -> float:
    """Return the argument as a float, or raise a ValueError with advice if it is outside its valid range."""
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
    """Return |a|, |b|, |c|, |d|. The paper assumes θ > θ′; for θ < θ′, all signs change, but the bounds do not."""
    return UUCoefficients(*(abs(value) for value in uu_coefficients(set_priors, target_prior)))


@dataclass(frozen=True)
class LossConstants:
    """Constants of a loss for margins |z| ≤ C_g."""

    bound: float  # C_ℓ, its largest value
    least: float  # its smallest value; π·least and (1 − π)·least are valid choices of α and β
    lipschitz: float  # L_ℓ, its Lipschitz constant; infinite for the zero-one loss, so Theorem 4 does not cover it


# L_ℓ as a function of C_g.
_LIPSCHITZ: dict[str, Callable[[float], float]] = {
    "logistic": lambda z: 1 / (1 + math.exp(-z)),
    "sigmoid": lambda z: 0.25,
    "ramp": lambda z: 0.5,
    "double_hinge": lambda z: 1.0 if z > 1 else 0.5,
    "squared": lambda z: (1 + z) / 2,
    "zero_one": lambda z: math.inf,
}


def loss_constants(loss: str, score_bound: float) -> LossConstants:
    """Return the constants of a loss in `uulearn.risk.LOSSES` for margins |z| ≤ ``score_bound`` (C_g).

    >>> loss_constants("sigmoid", 2.0)
    LossConstants(bound=0.880797..., least=0.119202..., lipschitz=0.25)
    """
    if loss not in _LIPSCHITZ:
        names = ", ".join(map(repr, _LIPSCHITZ))
        raise ValueError(
            f"loss must be one of {names}, got {loss!r}; for your own loss, pass its constants to "
            "estimation_error_bound."
        )
    c_g = check_number("score_bound", score_bound)
    # All losses are largest at −C_g and decrease from there; only the squared loss increases again after z = 1.
    margins = torch.tensor([-c_g, min(c_g, 1.0) if loss == "squared" else c_g], dtype=torch.float64)
    largest, least = LOSSES[loss](margins).tolist()
    return LossConstants(largest, least, _LIPSCHITZ[loss](c_g))


def correction_lipschitz(method: str, slope: float = DEFAULT_SLOPE) -> float:
    """Return the Lipschitz constant L_f of ``"relu"`` and ``"abs"`` (1), or of ``"leaky_relu"`` (max(1, |λ|)).

    >>> correction_lipschitz("abs"), correction_lipschitz("leaky_relu", -2)
    (1.0, 2.0)
    """
    if method in ("relu", "abs"):
        return 1.0
    if method == "leaky_relu":
        return max(1.0, abs(check_slope(slope)))
    raise ValueError(
        f"method must be 'relu', 'abs' or 'leaky_relu', got {method!r}; for your own correction, pass its Lipschitz "
        "constant to the bound."
    )
