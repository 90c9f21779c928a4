"""Initial weights in Keras's sense: normals cut at two standard deviations and rescaled to the variance asked for."""

from __future__ import annotations

import math

from torch import Tensor, nn

STD_AFTER_CUTTING = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at ±2."""


def lecun_normal_(weight: Tensor) -> None:
    """Fill with a normal of variance 1/fan_in, cut at two standard deviations and rescaled (Keras's LeCun normal)."""
    _cut_normal_(weight, 1.0)


def he_normal_(weight: Tensor) -> None:
    """Fill with a normal of variance 2/fan_in, cut at two standard deviations and rescaled (Keras's He normal)."""
    _cut_normal_(weight, 2.0)


def _cut_normal_(weight: Tensor, scale: float) -> None:
    std = math.sqrt(scale / weight[0].numel()) / STD_AFTER_CUTTING
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
