"""Checkpoints: a run that was killed continues and ends as if it had not been."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uulearn.exceptions import CheckpointError
from uulearn.training.options import TrainingOptions
from uulearn.training.rows import TwoSets
from uulearn.training.storage import load_tree, remove_leftovers, save_tree

FILE_NAME = "checkpoint.safetensors"
FORMAT = 1
SAMPLED_ROWS = 1024


class Checkpoint:
    """The checkpoint file of one run in a folder of its own."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE_NAME

    def write(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint atomically."""
        try:
            save_tree(self.path, {"format": FORMAT, **state})
        except TypeError as error:
            raise CheckpointError(
                f"the state of this run cannot be stored: {error}; use an optimizer and scheduler whose state is "
                "numbers and tensors, or leave checkpoint_dir unset."
            ) from error
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written ({error.strerror or error}); free space there or choose "
                "another checkpoint_dir."
            ) from error

    def read(self) -> dict[str, Any] | None:
        """The stored state, None where there is none yet."""
        remove_leftovers(self.path)
        if not self.path.exists():
            return None
        try:
            state = load_tree(self.path)
        except ValueError as error:
            raise CheckpointError(f"{error} Delete it to train from the start.") from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            found = state.get("format") if isinstance(state, dict) else None
            raise CheckpointError(
                f"{self.path} has checkpoint format {found!r}, this version reads {FORMAT}; finish that run with the "
                "version that began it, or delete the file."
            )
        return state

    def resume(self, fingerprint: dict[str, str]) -> dict[str, Any] | None:
        """The stored state of this same run, None where there is none; an error if it is another run's."""
        state = self.read()
        if state is None:
            return None
        stored = state["fingerprint"]
        differing = sorted(key for key in fingerprint.keys() | stored.keys() if fingerprint.get(key) != stored.get(key))
        if differing:
            raise CheckpointError(
                f"{self.path} belongs to another run (different: {', '.join(differing)}); delete it to train from the "
                "start, or choose another checkpoint_dir."
            )
        return state


def stored_seed(folder: str | Path) -> int | None:
    """The seed of the run that was checkpointed in the folder, None where there is none."""
    state = Checkpoint(folder).read()
    return None if state is None else int(state["seed"])


def fingerprint(options: TrainingOptions, model: nn.Module, data: TwoSets, risk: str) -> dict[str, str]:
    """What must agree for a run to be continued; the number of epochs may grow."""
    described = {
        name: _describe(getattr(options, name))
        for name in (
            "batch_size",
            "lr",
            "optimizer",
            "optimizer_params",
            "scheduler",
            "scheduler_interval",
            "weight_decay",
            "l2",
            "clip_norm",
            "ema",
            "precision",
            "compile",
            "input_scale",
            "seed",
        )
    }
    return described | {
        "risk": risk,
        "device": torch.device(options.device).type,
        "model": _digest(*[value for value in model.state_dict().values() if isinstance(value, Tensor)]),
        "data": _digest(*(data.sample(which, SAMPLED_ROWS) for which in (0, 1))) + f" {data.sizes}",
    }


def _describe(value: Any) -> str:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return repr(dict(value)) if hasattr(value, "keys") else repr(value)


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
