"""Weight initializers as Keras defines them: truncated normals, rescaled to the requested variance."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal truncated at ±2."""


def lecun_normal_(weight: Tensor, scale: float = 1.0) -> None:
    """Fill with a truncated normal of variance scale/fan_in (Keras's LeCun normal)."""
    std = math.sqrt(scale / weight[0].numel()) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def he_normal_(weight: Tensor) -> None:
    """Fill with a truncated normal of variance 2/fan_in (Keras's He normal)."""
    lecun_normal_(weight, scale=2.0)


INITIALIZERS: dict[str, Callable[[Tensor], object]] = {
    "lecun_normal": lecun_normal_,
    "he_normal": he_normal_,
    "glorot_uniform": nn.init.xavier_uniform_,  # Keras's default, variance 2/(fan_in + fan_out)
}


def get_initializer(name: str) -> Callable[[Tensor], object]:
    """The initializer with the given name."""
    if name not in INITIALIZERS:
        raise ValueError(f"initializer must be one of {', '.join(map(repr, INITIALIZERS))}, got {name!r}.")
    return INITIALIZERS[name]
