"""Select the floating-point type of a run's matrix products.

``"auto"`` uses bfloat16 for matrix products if this is faster and accurate enough. The device must support bfloat16
natively, and at least one layer must be wide (or, on CUDA, convolutional). No column may have a mean so large, relative
to its standard deviation, that rounding to eight significant bits loses information. Other computations use float32.
"""

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

PRECISIONS = ("auto", "float32", "bfloat16")
MIN_WIDTH = 128
"""Minimum layer width at which matrix products are faster in bfloat16."""
MAX_MEAN = 16.0
"""Maximum |mean| of a column, in standard deviations, for bfloat16. Rounding then adds at most 2% noise."""


@functools.cache
def cpu_multiplies_bfloat16() -> bool:
    """Return whether torch can use bfloat16 instructions of this processor (AVX-512 BF16, AMX or Arm's BF16).

    With ``ATEN_CPU_CAPABILITY=avx2``, torch would emulate them, which is slower than float32.
    """
    usable = {"bf16"} | ({"avx512_bf16", "amx_bf16"} if torch.backends.cpu.get_cpu_capability() == "AVX512" else set())
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    for line in text.splitlines():
        if line.startswith(("flags", "Features")):
            return not usable.isdisjoint(line.split())
    return False


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the device supports bfloat16 products natively."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and cpu_multiplies_bfloat16()


def resolve_precision(precision: str, model: nn.Module, device: torch.device, sample: Tensor) -> torch.dtype:
    """Return the type of the matrix products, bfloat16 or float32; ``sample`` contains a few rows, shape (n, …)."""
    if precision == "bfloat16":
        return torch.bfloat16
    if precision == "float32" or not multiplies_bfloat16(device):
        return torch.float32
    wide = any(p.ndim >= 2 and min(len(p), p[0].numel()) >= MIN_WIDTH for p in model.parameters())
    # On a GPU, memory bandwidth limits convolutions for any number of channels.
    convolves = device.type == "cuda" and any(isinstance(layer, nn.Conv2d) for layer in model.modules())
    return torch.bfloat16 if (wide or convolves) and _survives_rounding(sample) else torch.float32


def _survives_rounding(sample: Tensor) -> bool:
    columns = sample.flatten(1).double()
    mean, spread = columns.mean(0).abs(), columns.std(0)
    varies = spread > 0
    return bool((mean[varies] <= MAX_MEAN * spread[varies]).all())
