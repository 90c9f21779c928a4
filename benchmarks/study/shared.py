"""Code that several studies share."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn import __version__
from uulearn.training import TrainingOptions

Record = dict[str, Any]

TRAINING_NAMES = [field.name for field in dataclasses.fields(TrainingOptions)]
"""Names of the options of `TrainingOptions`, which records store next to the parameters of `UUClassifier`."""


def environment(device: str) -> dict[str, str]:
    """Return the versions and the machine, which are stored with every run."""
    on_cuda = torch.device(device).type == "cuda"
    return {
        "uulearn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if on_cuda else platform.machine(),
    }


def split_parameters(stored: Mapping[str, Any]) -> tuple[Record, Record]:
    """Split stored parameters into those of `UUClassifier` and those of `TrainingOptions`.

    Examples
    --------
    >>> split_parameters({"lr": 0.001, "ema": 0.9})
    ({'lr': 0.001}, {'ema': 0.9})
    """
    parts: tuple[Record, Record] = {}, {}
    for name, value in stored.items():
        parts[name in TRAINING_NAMES][name] = value
    return parts


def index_tensors(parts: tuple[NDArray[np.int64], NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """Return row numbers as tensors."""
    return torch.from_numpy(parts[0]), torch.from_numpy(parts[1])
