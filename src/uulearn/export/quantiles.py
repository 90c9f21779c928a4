"""`sklearn.preprocessing.QuantileTransformer` in operations that ONNX has: no search and no error function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from uulearn.export.columns import constant

EDGE = 1e-7
"""scikit-learn's limit, for normal results, on how near a quantile may be to 0 and 1."""

# Wichura (1988), Algorithm AS 241, PPND16: numerators and denominators, lowest power first.
CENTRE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip


class Quantiles(nn.Module):
    """The share of the training rows below each value, or the normal quantile of that share.

    Parameters
    ----------
    quantiles : array of shape (q, d)
        Of every column, rising.
    references : array of shape (q,)
        The shares they belong to.
    normal : bool
        Whether shares are turned into normal quantiles.

    Examples
    --------
    >>> module = Quantiles([[0.0], [10.0], [20.0]], [0.0, 0.5, 1.0], normal=False)
    >>> module(torch.tensor([[-3.0], [5.0], [99.0]], dtype=torch.float64)).flatten().tolist()
    [0.0, 0.25, 1.0]
    """

    quantiles: Tensor
    references: Tensor
    edges: Tensor

    def __init__(self, quantiles: Any, references: Any, normal: bool) -> None:
        super().__init__()
        self.register_buffer("quantiles", constant(quantiles))
        self.register_buffer("references", constant(references)[:, None].expand_as(self.quantiles).clone())
        self.register_buffer("edges", constant([EDGE, 1 - EDGE]))
        self.normal_quantile = NormalQuantile() if normal else None

    def forward(self, x: Tensor) -> Tensor:
        """Shares, or their normal quantiles, of shape (n, d)."""
        first, last = self.quantiles[0], self.quantiles[-1]
        # Where quantiles are repeated, a value on them lies between the highest and the lowest of their shares.
        high, low = (interpolate(x, self.quantiles, self.references, of_last=which) for which in (True, False))
        share = (high + low) / 2
        if self.normal_quantile is None:
            share = torch.where(x >= last, 1.0, share)
            share = torch.where(x <= first, 0.0, share)
        else:
            least, most = self.edges[0], self.edges[1]
            share = torch.where(x + least > last, 1.0, share)
            share = torch.where(x - least < first, 0.0, share)
            share = self.normal_quantile(torch.minimum(torch.maximum(share, least), most))
        return torch.where(torch.isnan(x), torch.nan, share)


def interpolate(x: Tensor, knots: Tensor, heights: Tensor, *, of_last: bool = True) -> Tensor:
    """`numpy.interp` of every column: straight lines between the knots, the outermost heights beyond them.

    Parameters
    ----------
    x : tensor of shape (n, d)
    knots, heights : tensors of shape (q, d)
        Knots rise in every column, and may repeat.
    of_last : bool
        On a repeated knot, whether to take the height of its last copy, as NumPy does, or of its first.

    Examples
    --------
    >>> knots, heights = torch.tensor([[0.0], [2.0], [2.0]]), torch.tensor([[1.0], [3.0], [9.0]])
    >>> interpolate(torch.tensor([[-1.0], [1.0], [2.0], [5.0]]), knots, heights).flatten().tolist()
    [1.0, 2.0, 9.0, 9.0]
    """
    count, last = _count_below(x, knots, or_equal=of_last), len(knots) - 1
    left, right = (count - 1).clamp(min=0), count.clamp(max=last)
    low, high = torch.gather(knots, 0, left), torch.gather(knots, 0, right)
    start, end = torch.gather(heights, 0, left), torch.gather(heights, 0, right)
    width = torch.where(high > low, high - low, 1.0)
    return start + (end - start) * torch.where(high > low, (x - low) / width, 0.0)


def _count_below(x: Tensor, knots: Tensor, *, or_equal: bool) -> Tensor:
    """How many knots of its column are below each value (or equal to it), by halving steps."""
    n = len(knots)
    count = torch.zeros_like(x, dtype=torch.int64)
    for step in reversed([2**power for power in range(n.bit_length())]):
        at = torch.gather(knots, 0, (count + step - 1).clamp(max=n - 1))
        below = at <= x if or_equal else at < x
        count = torch.where(below & (count + step <= n), count + step, count)
    return count


class NormalQuantile(nn.Module):
    """The inverse of the normal distribution function, to 1e-14 for shares between 1e-7 and 1 − 1e-7.

    Examples
    --------
    >>> NormalQuantile()(torch.tensor([[0.025, 0.5]], dtype=torch.float64)).tolist()
    [[-1.95996398..., 0.0]]
    """

    centre: Tensor
    tail: Tensor
    middle: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", constant(CENTRE).T[:, :, None, None].contiguous())
        self.register_buffer("tail", constant(TAIL).T[:, :, None, None].contiguous())
        self.register_buffer("middle", constant([0.425, 0.425**2, 1.6]))

    def forward(self, share: Tensor) -> Tensor:
        """Of the same shape (n, d), in float64."""
        q = share - 0.5
        r = torch.sqrt(-torch.log(torch.minimum(share, 1 - share))) - self.middle[2]
        central = q * _ratio(self.centre, self.middle[1] - q * q)
        return torch.where(q.abs() <= self.middle[0], central, torch.sign(q) * _ratio(self.tail, r))


def _ratio(coefficients: Tensor, x: Tensor) -> Tensor:
    """Numerator over denominator, both at once by Horner's rule; coefficients of shape (powers, 2, 1, 1)."""
    both = coefficients[-1]
    for power in reversed(range(len(coefficients) - 1)):
        both = both * x + coefficients[power]
    return both[0] / both[1]
