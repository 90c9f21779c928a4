"""What the parts of the study share."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn import __version__

Record = dict[str, Any]


def environment(device: str) -> dict[str, str]:
    """Versions and the machine, as they are stored with every run."""
    on_cuda = torch.device(device).type == "cuda"
    return {
        "uulearn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if on_cuda else platform.machine(),
    }


def index_tensors(parts: tuple[NDArray[np.int64], NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Row numbers as tensors."""
    return torch.from_numpy(parts[0]), torch.from_numpy(parts[1])
