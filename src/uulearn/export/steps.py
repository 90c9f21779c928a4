"""Preprocessing steps: functions of float64 rows of shape (n, d) that use only ONNX operations.

Each function in this module returns a step. Constants are stored as float64 tensors, because the exporter would round
Python numbers to float32.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

Step = Callable[[Tensor], Tensor]
"""A function that maps float64 rows (n, d) to float64 rows (n, d′)."""

EDGE = 1e-7
"""For normal output, scikit-learn clips quantile levels to the range from EDGE to 1 − EDGE."""
DEGREE = 30
"""Degree of the polynomial for the normal quantile function; its error is below 1e-12."""


def constant(values: Any) -> Tensor:
    """Copy numbers into a float64 tensor."""
    return torch.from_numpy(np.array(values, dtype=np.float64))


def identity(x: Tensor) -> Tensor:
    """Return the rows unchanged."""
    return x


def chain(steps: Sequence[Step]) -> Step:
    """Apply the steps one after another."""
    return lambda x: functools.reduce(lambda rows, step: step(rows), steps, x)


def concatenate(branches: Sequence[Step]) -> Step:
    """Apply each branch to the rows, and concatenate the resulting columns."""
    return lambda x: torch.cat([branch(x) for branch in branches], 1) if branches else x[:, :0]


def select_columns(index: Sequence[int]) -> Step:
    """Select columns, in the given order."""
    positions = torch.tensor(list(index), dtype=torch.int64)
    return lambda x: x[:, positions]


def reject_non_finite(step: Step, allow_missing: bool) -> Step:
    """Set rows to infinity if the scikit-learn transformer would reject them."""

    def apply(x: Tensor) -> Tensor:
        bad = torch.isinf(x) if allow_missing else ~torch.isfinite(x)
        return torch.where(bad.any(1, keepdim=True), torch.inf, step(x))

    return apply


def affine(shift: Any = 0.0, factor: Any = 1.0, offset: Any = 0.0, limits: tuple[float, float] | None = None) -> Step:
    """Compute (x − shift)·factor + offset for every column, clipped to the limits."""
    shift, factor, offset = constant(shift), constant(factor), constant(offset)
    bounds = None if limits is None else constant(limits)

    def apply(x: Tensor) -> Tensor:
        x = (x - shift) * factor + offset
        if bounds is None:
            return x
        low, high = bounds[0], bounds[1]  # torch.where, because Clip may not preserve NaN in other runtimes
        return torch.where(x < low, low, torch.where(x > high, high, x))

    return apply


def impute(statistics: Any, missing: float, kept: Any, indicated: Any) -> Step:
    """Impute the selected columns, and append a 0/1 indicator of missing values for each indicated column."""
    fills, marker = constant(statistics), constant(missing)
    kept, indicated = (torch.as_tensor(index, dtype=torch.int64) for index in (kept, indicated))

    def apply(x: Tensor) -> Tensor:
        absent = torch.isnan(x) if math.isnan(missing) else x == marker
        filled = torch.where(absent[:, kept], fills, x[:, kept])
        return torch.cat([filled, absent[:, indicated].double()], 1) if len(indicated) else filled

    return apply


def project(components: Any, offset: Any = 0.0, divisor: Any = 1.0) -> Step:
    """Project rows onto components, subtract the offset, and divide by the divisor."""
    matrix, offset, divisor = constant(components).T.contiguous(), constant(offset), constant(divisor)
    return lambda x: (x @ matrix - offset) / divisor


def quantile_levels(quantiles: Any, levels: Any, normal: bool) -> Step:
    """Return a step that computes quantile levels or normal quantiles, as in scikit-learn's `QuantileTransformer`.

    ``quantiles``, shape (q, d), must increase in every column; ``levels``, shape (q,), are their quantile levels.
    """
    knots, edges = constant(quantiles), constant([EDGE, 1 - EDGE])
    heights = constant(levels)[:, None].expand_as(knots).clone()
    to_normal = normal_quantile() if normal else None

    def apply(x: Tensor) -> Tensor:
        first, last = knots[0], knots[-1]
        # The level of a repeated quantile is the mean of the highest and the lowest level of its copies.
        level = (interpolate(x, knots, heights) + interpolate(x, knots, heights, last_copy=False)) / 2
        above, below = (x >= last, x <= first) if not normal else (x + edges[0] > last, x - edges[0] < first)
        level = torch.where(below, 0.0, torch.where(above, 1.0, level))
        if to_normal is not None:
            level = to_normal(torch.minimum(torch.maximum(level, edges[0]), edges[1]))
        return torch.where(torch.isnan(x), torch.nan, level)

    return apply


def interpolate(x: Tensor, knots: Tensor, heights: Tensor, *, last_copy: bool = True) -> Tensor:
    """Interpolate every column of x (n, d) as in `numpy.interp`: linear between the knots (q, d), constant outside.

    Knots must increase in every column. If a knot is repeated, the height of the last copy (as in NumPy) or of the
    first copy is used.

    >>> knots, heights = torch.tensor([[0.0], [2.0], [2.0]]), torch.tensor([[1.0], [3.0], [9.0]])
    >>> interpolate(torch.tensor([[-1.0], [1.0], [2.0], [5.0]]), knots, heights).flatten().tolist()
    [1.0, 2.0, 9.0, 9.0]
    """
    n = len(knots)
    count = torch.zeros_like(x, dtype=torch.int64)  # number of knots below x, by binary search
    for step in reversed([2**power for power in range(n.bit_length())]):
        knot = torch.gather(knots, 0, (count + step - 1).clamp(max=n - 1))
        below = knot <= x if last_copy else knot < x
        count = torch.where(below & (count + step <= n), count + step, count)
    left, right = (count - 1).clamp(min=0), count.clamp(max=n - 1)
    low, high = torch.gather(knots, 0, left), torch.gather(knots, 0, right)
    start, end = torch.gather(heights, 0, left), torch.gather(heights, 0, right)
    width = torch.where(high > low, high - low, 1.0)
    return start + (end - start) * torch.where(high > low, (x - low) / width, 0.0)


def normal_quantile() -> Step:
    """Return a step for the normal quantile function, for levels between EDGE and 1 − EDGE.

    ONNX has no inverse error function. The function is smooth in r = √(−log p), so it is approximated by a Chebyshev
    polynomial that is fitted here with SciPy.
    """
    domain = (math.sqrt(math.log(2)), math.sqrt(-math.log(EDGE)))
    polynomial = np.polynomial.Chebyshev.interpolate(lambda r: -ndtri(np.exp(-(r**2))), DEGREE, domain)
    coefficients = constant(polynomial.coef)
    scale, center = constant(2 / (domain[1] - domain[0])), constant(sum(domain) / 2)

    def apply(level: Tensor) -> Tensor:
        r = torch.sqrt(-torch.log(torch.minimum(level, 1 - level)))
        t = (r - center) * scale
        after, value = torch.zeros_like(t), torch.zeros_like(t)
        for power in range(DEGREE, 0, -1):  # Clenshaw's recurrence
            after, value = value, coefficients[power] + 2 * t * value - after
        return torch.sign(level - 0.5) * (coefficients[0] + t * value - after)

    return apply
