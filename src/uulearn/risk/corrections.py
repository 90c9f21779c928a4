"""Consistent correction functions (Definition 1) and the methods built on them.

A correction f is non-negative and Lipschitz continuous, with f(x) = x for x ≥ 0. The generalized leaky ReLU is f(x) = x
for x ≥ 0 and f(x) = λ·x for x < 0, with λ ≤ 0. This family includes the ReLU (λ = 0) and the absolute value (λ = −1).
For all of these functions, the derivative at x = 0 is set to 1.
"""

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
"""The methods of the paper."""
SURROGATE = "surrogate"
"""The method that maximizes the likelihood of the sets (`uulearn.risk.multiple_sets`)."""
METHOD_MEANINGS = {
    "biased": "learns to separate the two sets",
    "unbiased": "no risk correction",
    "abs": "risk correction: a negative term is replaced by its absolute value",
    "relu": "risk correction: a negative term is replaced by 0",
    "leaky_relu": "risk correction: a negative term is multiplied by the slope λ = {slope}",
    SURROGATE: "maximizes the likelihood of the set of each row",
}
"""What each method does with a negative risk term, for summaries."""
DEFAULT_SLOPE = defaults.SLOPE
LARGEST_SLOPE = 1e6  # a function with a steeper slope is rejected as not Lipschitz


def leaky_relu(x: Tensor, slope: float = DEFAULT_SLOPE) -> Tensor:
    """Apply the generalized leaky ReLU: x for x ≥ 0, slope·x for x < 0, with slope ≤ 0.

    >>> leaky_relu(torch.tensor([2.0, -2.0]), slope=-0.5)
    tensor([2., 1.])
    """
    return torch.where(x < 0, slope * x, x)


def identity(x: Tensor) -> Tensor:
    """Return x unchanged (the unbiased method uses no correction)."""
    return x


def slope_below_zero(f: Correction) -> float | None:
    """Return λ of a generalized leaky ReLU (1 for the identity), or None for another function."""
    if f is identity:
        return 1.0
    if isinstance(f, functools.partial) and f.func is leaky_relu:
        return float(f.keywords.get("slope", DEFAULT_SLOPE))
    return None


@dataclass(frozen=True)
class Method:
    """A training objective: f₁(positive term) + f₂(negative term), or a risk of classifying the sets.

    ``"membership"`` treats the two sets as classes; ``"surrogate"`` is the log loss of the set of each row.
    """

    name: str
    corrections: tuple[Correction, Correction]
    objective: Literal["corrected", "membership", "surrogate"] = "corrected"


MethodLike = str | tuple[str | Correction, str | Correction] | Method


def check_slope(slope: float) -> float:
    """Return the slope λ as a float, or raise a ValueError if it is positive or not a number."""
    if not isinstance(slope, Real) or not float(slope) <= 0 or float(slope) == -float("inf"):
        raise ValueError(
            f"slope (λ of the generalized leaky ReLU) must be a number ≤ 0, got {slope!r}; with a positive "
            "slope the risk has no lower bound. Use 0 for the ReLU or -1 for the absolute value."
        )
    return float(slope)


def get_method(method: MethodLike, slope: float = DEFAULT_SLOPE) -> Method:
    """Return the method with the given name, or build one from a pair of corrections (names or functions)."""
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
        if method == SURROGATE:
            return Method(SURROGATE, (identity, identity), objective="surrogate")
        if method in named:
            return Method(method, (named[method], named[method]))
        raise ValueError(
            f"method must be one of {', '.join(map(repr, (*METHODS, SURROGATE)))} or a pair of functions, got "
            f"{method!r}."
        )
    if not isinstance(method, tuple | list) or len(method) != 2:
        raise ValueError(
            f"method must be a name or a pair (f1, f2) of correction functions, got {method!r}; "
            "pass (f, f) to use one function for both risk terms."
        )
    parts: list[tuple[str, Correction]] = []
    for f in method:
        if not isinstance(f, str):
            check_correction(f)
            parts.append((getattr(f, "__name__", type(f).__name__), f))
        elif f in named:
            parts.append((f, named[f]))
        else:
            raise ValueError(f"a correction must be one of {', '.join(map(repr, named))} or a function, got {f!r}.")
    (first, f1), (second, f2) = parts
    return Method(f"{first}+{second}", (f1, f2))


def check_correction(f: Any) -> None:
    """Raise a ValueError if a correction violates a property of Definition 1; the message contains a counterexample.

    The function is evaluated on a grid from −10⁸ to 10⁸ that is dense around zero, and the steepest intervals are
    refined. This check cannot prove the properties, but it finds common mistakes.

    >>> check_correction(torch.square)
    Traceback (most recent call last):
        ...
    ValueError: correction square is not the identity on x ≥ 0: f(0.988553) = 0.977237; ...
    """
    name = getattr(f, "__name__", type(f).__name__)
    if not callable(f):
        raise ValueError(f"a correction must be a function of a tensor, got {f!r}; for example, pass torch.abs.")
    magnitude = torch.logspace(-8, 8, 3201, dtype=torch.float64)
    x = torch.cat([-magnitude.flip(0), torch.zeros(1, dtype=torch.float64), magnitude])
    y = f(x)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        raise ValueError(
            f"correction {name} must return a tensor of the same shape as its input; write it with elementwise torch "
            "functions."
        )
    y = y.detach().to(torch.float64)

    def first(bad: Tensor) -> int | None:
        where = bad.nonzero().flatten()
        # A point near ±1 gives the clearest message.
        return int(where[x[where].abs().log10().abs().argmin()]) if len(where) else None

    remedy = "a consistent correction (Definition 1) is non-negative, Lipschitz, and f(x) = x for x ≥ 0."
    if (at := first(~(y >= 0))) is not None:
        raise ValueError(f"correction {name} must be non-negative, but f({x[at]:.6g}) = {y[at]:.6g}; {remedy}")
    if (at := first((x >= 0) & ~((y - x).abs() <= 1e-6 + 1e-6 * x.abs()))) is not None:
        raise ValueError(f"correction {name} is not the identity on x ≥ 0: f({x[at]:.6g}) = {y[at]:.6g}; {remedy}")
    slope, place = _steepest(f, x, y)
    if not slope <= LARGEST_SLOPE:
        raise ValueError(
            f"correction {name} is not Lipschitz: slope above {LARGEST_SLOPE:g} near x = {place:.4g}; {remedy}"
        )


def _steepest(f: Correction, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Return the largest slope and its position; halving an interval increases the slope only at jumps and cusps."""
    steep = (y.diff().abs() / x.diff()).topk(50).indices
    left, right = x[steep], x[steep + 1]
    for _ in range(40):
        middle = (left + right) / 2
        values = [f(point).detach().to(torch.float64) for point in (left, middle, right)]
        first, second = (values[1] - values[0]).abs(), (values[2] - values[1]).abs()
        left, right = torch.where(first > second, left, middle), torch.where(first > second, middle, right)
        if ((right - left) <= 1e-12 * left.abs().clamp(min=1e-3)).any():
            break  # in smaller intervals, rounding errors would dominate the slope
    slopes = (f(right).detach() - f(left).detach()).to(torch.float64).abs() / (right - left)
    at = int(slopes.nan_to_num(nan=float("inf")).argmax())
    return slopes[at].item(), right[at].item()
