"""Constants of losses and corrections in the theorems: C_ℓ, L_ℓ and L_f."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from uulearn.risk.corrections import DEFAULT_SLOPE, check_slope
from uulearn.risk.losses import LOSSES
from uulearn.theory.checks import check_number


@dataclass(frozen=True)
class LossConstants:
    """Properties of a loss on the margins |z| ≤ C_g."""

    bound: float  # C_ℓ, its largest value
    least: float  # its smallest value; π·least and (1 − π)·least are valid choices of α and β
    lipschitz: float  # L_ℓ, its Lipschitz constant; infinite for the zero-one loss, to which Theorem 4 does not apply


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
    """Return C_ℓ, the smallest value and L_ℓ of a loss of `uulearn.risk.LOSSES` on |z| ≤ ``score_bound`` (C_g).

    Examples
    --------
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
    # All losses are largest at −C_g and decrease; only the squared loss increases again after z = 1.
    margins = torch.tensor([-c_g, min(c_g, 1.0) if loss == "squared" else c_g], dtype=torch.float64)
    largest, least = LOSSES[loss](margins).tolist()
    return LossConstants(largest, least, _LIPSCHITZ[loss](c_g))


def correction_lipschitz(method: str, slope: float = DEFAULT_SLOPE) -> float:
    """Return L_f of a named correction: 1 for ``"relu"`` and ``"abs"``, max(1, |λ|) for ``"leaky_relu"``.

    Examples
    --------
    >>> correction_lipschitz("abs"), correction_lipschitz("leaky_relu", -0.1), correction_lipschitz("leaky_relu", -2)
    (1.0, 1.0, 2.0)
    """
    if method in ("relu", "abs"):
        return 1.0
    if method == "leaky_relu":
        return max(1.0, abs(check_slope(slope)))
    raise ValueError(
        f"method must be 'relu', 'abs' or 'leaky_relu', got {method!r}; for your own correction, pass its Lipschitz "
        "constant to the bound."
    )
