"""Which arithmetic a run uses.

``"auto"`` takes bfloat16 products (weights, sums and the risk stay in float32) where that is faster and harmless: the
device multiplies bfloat16 natively, the model has a product wide enough to gain (or, on CUDA, convolutions), and
the columns are not so far from zero, compared with their spread, that eight significant bits would blur them.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

PRECISIONS = ("auto", "float32", "bfloat16")
WIDE_ENOUGH = 128
FURTHEST_MEAN = 16.0
"""Largest |mean| of a column, in its standard deviations, that bfloat16 inputs may have (rounding then adds noise of
at most 2% of the standard deviation)."""


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Whether this processor has bfloat16 dot products (AVX-512 BF16, AMX or Arm's BF16)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and cpu_multiplies_bfloat16()


def resolve_precision(precision: str, model: nn.Module, device: torch.device, sample: Tensor) -> torch.dtype:
    """The type of the products: bfloat16 or float32. ``sample`` holds a few rows, shape (n, …)."""
    if precision == "bfloat16":
        return torch.bfloat16
    if precision == "float32" or not multiplies_bfloat16(device):
        return torch.float32
    wide = any(p.ndim >= 2 and min(len(p), p[0].numel()) >= WIDE_ENOUGH for p in model.parameters())
    # On an accelerator a convolution is bound by the memory that its images take, however few its channels.
    convolves = device.type == "cuda" and any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    return torch.bfloat16 if (wide or convolves) and _survives_rounding(sample) else torch.float32


def _survives_rounding(sample: Tensor) -> bool:
    columns = sample.flatten(1).double()
    mean, spread = columns.mean(0).abs(), columns.std(0)
    varies = spread > 0
    return bool((mean[varies] <= FURTHEST_MEAN * spread[varies]).all())
