"""Consistent correction functions (Definition 1) and the methods built on them.

A correction f is Lipschitz, non-negative, and the identity on x ≥ 0. The generalized leaky ReLU, f(x) = x for x ≥ 0
and λ·x for x < 0 with λ ≤ 0, contains the two classics: λ = 0 is the ReLU and λ = −1 the absolute value. At the kink
its derivative is taken from the right (1), so the three agree there too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import torch
from torch import Tensor

from uulearn import defaults

Correction = Callable[[Tensor], Tensor]
METHODS = ("biased", "unbiased", "abs", "relu", "leaky_relu")
DEFAULT_SLOPE = defaults.SLOPE
LARGEST_SLOPE = 1e6


def leaky_relu(x: Tensor, slope: float = DEFAULT_SLOPE) -> Tensor:
    """Generalized leaky ReLU: x where x ≥ 0, slope·x (slope ≤ 0) where x < 0.

    Examples
    --------
    >>> leaky_relu(torch.tensor([2.0, -2.0]), slope=-0.5)
    tensor([2., 1.])
    """
    return torch.where(x < 0, slope * x, x)


def identity(x: Tensor) -> Tensor:
    """No correction: the unbiased method."""
    return x


@dataclass(frozen=True)
class Method:
    """What is minimised: f₁(positive bracket) + f₂(negative bracket), or the risk of telling the sets apart."""

    name: str
    corrections: tuple[Correction, Correction]
    objective: Literal["corrected", "membership"] = "corrected"


MethodLike = str | tuple[str | Correction, str | Correction] | Method


def check_slope(slope: float) -> float:
    """Return λ as a float, or raise a ValueError when it is positive or no number."""
    if not isinstance(slope, Real) or not float(slope) <= 0 or float(slope) == -float("inf"):
        raise ValueError(
            f"slope (λ of the generalized leaky ReLU) must be a number ≤ 0, got {slope!r}; a positive slope leaves "
            "the risk unbounded below, 0 is the ReLU and -1 the absolute value."
        )
    return float(slope)


def get_method(method: MethodLike, slope: float = DEFAULT_SLOPE) -> Method:
    """The method of that name, or one made of two corrections (names or functions), each checked; a `Method` as it is.

    Examples
    --------
    >>> get_method(("relu", "abs")).name
    'relu+abs'
    """
    if isinstance(method, Method):
        return method
    slope = check_slope(slope)
    named: dict[str, Correction] = {
        "abs": functools.partial(leaky_relu, slope=-1.0),
        "relu": functools.partial(leaky_relu, slope=0.0),
        "leaky_relu": functools.partial(leaky_relu, slope=slope),
    }
    if isinstance(method, str):
        if method == "biased":
            return Method("biased", (identity, identity), objective="membership")
        if method == "unbiased":
            return Method("unbiased", (identity, identity))
        if method in named:
            return Method(method, (named[method], named[method]))
        raise ValueError(
            f"method must be one of {', '.join(map(repr, METHODS))} or a pair of correction functions, got {method!r}."
        )
    if not isinstance(method, tuple | list) or len(method) != 2:
        raise ValueError(
            f"method must be a name or a pair (f1, f2) of correction functions, got {method!r}; "
            "pass (f, f) to use one function for both brackets."
        )
    chosen: list[Correction] = []
    names: list[str] = []
    for f in method:
        if isinstance(f, str):
            if f not in named:
                raise ValueError(f"a correction must be one of {', '.join(map(repr, named))} or a function, got {f!r}.")
            chosen.append(named[f])
            names.append(f)
        else:
            check_correction(f)
            chosen.append(f)
            names.append(getattr(f, "__name__", type(f).__name__))
    return Method("+".join(names), (chosen[0], chosen[1]))


def check_correction(f: Any) -> None:
    """Raise a ValueError that says which property of Definition 1 fails, and where.

    The function is tried on a grid from −10⁸ to 10⁸ that is dense around zero, and its steepest places are looked at
    more closely. A grid cannot prove a property; it finds the mistakes people make (an identity, a positive slope, a
    step, a square, a missing ``x >= 0`` branch).

    Examples
    --------
    >>> check_correction(torch.abs)
    >>> check_correction(torch.square)
    Traceback (most recent call last):
        ...
    ValueError: correction square is not the identity on x ≥ 0: f(0.988553) = 0.977237; ...
    """
    name = getattr(f, "__name__", type(f).__name__)
    if not callable(f):
        raise ValueError(f"a correction must be a function of a tensor, got {f!r}; pass for example torch.abs.")
    magnitude = torch.logspace(-8, 8, 3201, dtype=torch.float64)
    x = torch.cat([-magnitude.flip(0), torch.zeros(1, dtype=torch.float64), magnitude])
    y = f(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise ValueError(
            f"correction {name} must map a tensor to a tensor of the same shape; write it with torch functions, "
            "elementwise."
        )
    y = y.detach().to(torch.float64)

    def first(bad: Tensor) -> int | None:
        where = bad.nonzero().flatten()
        # The point nearest to ±1 reads best in a message.
        return int(where[x[where].abs().log10().abs().argmin()]) if len(where) else None

    remedy = "a consistent correction (Definition 1) is non-negative, Lipschitz, and f(x) = x for x ≥ 0."
    if (at := first(~(y >= 0))) is not None:
        raise ValueError(f"correction {name} is not non-negative: f({x[at]:.6g}) = {y[at]:.6g}; {remedy}")
    if (at := first((x >= 0) & ~((y - x).abs() <= 1e-6 + 1e-6 * x.abs()))) is not None:
        raise ValueError(f"correction {name} is not the identity on x ≥ 0: f({x[at]:.6g}) = {y[at]:.6g}; {remedy}")
    slope, place = _steepest(f, x, y)
    if not slope <= LARGEST_SLOPE:
        raise ValueError(
            f"correction {name} is not Lipschitz: its slope exceeds {LARGEST_SLOPE:g} near x = {place:.4g}; {remedy}"
        )


def _steepest(f: Correction, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Largest slope found, and where: the steepest intervals of a grid are halved again and again toward their
    steeper half, where the slope of a Lipschitz function stays and that of a jump or a cusp grows without end.
    """
    steep = (y.diff().abs() / x.diff()).topk(50).indices
    left, right = x[steep], x[steep + 1]
    for _ in range(40):
        middle = (left + right) / 2
        values = [f(point).detach().to(torch.float64) for point in (left, middle, right)]
        first, second = (values[1] - values[0]).abs(), (values[2] - values[1]).abs()
        left, right = torch.where(first > second, left, middle), torch.where(first > second, middle, right)
        if ((right - left) <= 1e-12 * left.abs().clamp(min=1e-3)).any():
            break  # closer, rounding would make slopes of its own
    slopes = (f(right).detach() - f(left).detach()).to(torch.float64).abs() / (right - left)
    at = int(slopes.nan_to_num(nan=float("inf")).argmax())
    return slopes[at].item(), right[at].item()
