"""Initial weights in Keras's sense: normals cut at two standard deviations and rescaled to the variance asked for."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

STD_AFTER_CUTTING = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at ±2."""


def lecun_normal_(weight: Tensor) -> None:
    """Fill with a normal of variance 1/fan_in, cut at two standard deviations and rescaled (Keras's LeCun normal)."""
    _cut_normal_(weight, 1.0)


def he_normal_(weight: Tensor) -> None:
    """Fill with a normal of variance 2/fan_in, cut at two standard deviations and rescaled (Keras's He normal)."""
    _cut_normal_(weight, 2.0)


def glorot_uniform_(weight: Tensor) -> None:
    """Fill with a uniform of variance 2/(fan_in + fan_out), Keras's default."""
    nn.init.xavier_uniform_(weight)


def _cut_normal_(weight: Tensor, scale: float) -> None:
    std = math.sqrt(scale / weight[0].numel()) / STD_AFTER_CUTTING
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


INITIALISERS: dict[str, Callable[[Tensor], None]] = {
    "lecun_normal": lecun_normal_,
    "he_normal": he_normal_,
    "glorot_uniform": glorot_uniform_,
}


def get_initialiser(name: str) -> Callable[[Tensor], None]:
    """The initialiser of that name.

    Examples
    --------
    >>> get_initialiser("he")
    Traceback (most recent call last):
    ValueError: initialiser must be one of 'lecun_normal', 'he_normal', 'glorot_uniform', got 'he'.
    """
    if name not in INITIALISERS:
        raise ValueError(f"initialiser must be one of {', '.join(map(repr, INITIALISERS))}, got {name!r}.")
    return INITIALISERS[name]
