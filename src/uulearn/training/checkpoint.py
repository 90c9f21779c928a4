"""Checkpoints for resuming an interrupted run; the result is the same as for an uninterrupted run."""

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uulearn.data.identity import digest
from uulearn.exceptions import CheckpointError, OtherRunError
from uulearn.risk import UURisk
from uulearn.storage import load_tree, save_tree
from uulearn.training.identity import describe
from uulearn.training.options import RunOptions

CHECKPOINT_NAME = "checkpoint.safetensors"
CHECKPOINT_FORMAT = 3
MAY_DIFFER = {"epochs", "fit_seed", "checkpoint_dir", "checkpoint_every", "progress", "device", "graph", "distributed"}
"""Options that may be changed when a run is resumed."""


class Checkpoint:
    """Checkpoint file of one run, in its own folder; the fingerprint describes everything that affects the run."""

    def __init__(self, folder: str | Path, fingerprint: dict[str, str] | None = None) -> None:
        self.path, self.fingerprint = Path(folder) / CHECKPOINT_NAME, fingerprint or {}

    def write(self, state: dict[str, Any]) -> None:
        """Write the state to the checkpoint file, atomically replacing an existing file."""
        try:
            save_tree(self.path, {"format": CHECKPOINT_FORMAT, "fingerprint": self.fingerprint, **state}, alone=True)
        except TypeError as error:
            raise CheckpointError(
                f"the state of this run cannot be stored: {error}; use an optimizer and scheduler whose state "
                "contains only numbers and tensors, or do not set checkpoint_dir."
            ) from error
        except OSError as error:
            raise _write_error(self.path, error) from error

    def read(self) -> dict[str, Any] | None:
        """Return the stored state, or None if there is no checkpoint."""
        if not self.path.exists():
            return None
        try:
            state = load_tree(self.path)
        except ValueError as error:
            raise CheckpointError(f"{error} Delete the file to train from the start.") from error
        found = state.get("format") if isinstance(state, dict) else None
        if found != CHECKPOINT_FORMAT:
            raise CheckpointError(
                f"{self.path} has checkpoint format {found!r}, but this version reads {CHECKPOINT_FORMAT}; finish the "
                "run with the version that started it, or delete the file."
            )
        return dict(state)

    def resume(self, epochs: int) -> dict[str, Any] | None:
        """Return the stored state, or None; raise an error if it belongs to another run or has too many epochs."""
        state = self.read()
        if state is None:
            return None
        own, stored = self.fingerprint, state["fingerprint"]
        differing = sorted(key for key in own.keys() | stored.keys() if own.get(key) != stored.get(key))
        if differing:
            raise OtherRunError(
                f"{self.path} belongs to another run (different: {', '.join(differing)}); delete it to train from the "
                "start, or choose another checkpoint_dir."
            )
        done = len(state["history"]["epochs"])
        if done > epochs:
            raise CheckpointError(
                f"{self.path} has {done} finished epochs, more than epochs={epochs}; set epochs to at least {done}, or "
                "choose another checkpoint_dir."
            )
        return state


def stored_seed(folder: str | Path) -> int | None:
    """Return the seed stored in the checkpoints of a folder and its subfolders, or None if there are no checkpoints."""
    found = next(Path(folder).rglob(CHECKPOINT_NAME), None)
    state = None if found is None else Checkpoint(found.parent).read()
    return None if state is None else int(state["seed"])


def _write_error(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} cannot be written ({error.strerror or error}); choose another checkpoint_dir, or check "
        "its permissions and free space."
    )


def fingerprint(options: RunOptions, model: nn.Module, rows: str, risk: UURisk) -> dict[str, str]:
    """Return descriptions of everything that must not change when a run is resumed; ``rows`` describes both sets."""
    names = {field.name for field in dataclasses.fields(options)} - MAY_DIFFER
    if options.consistency is not None:
        names.add("epochs")  # the weight of the consistency loss depends on it
    described = {name: describe(getattr(options, name)) for name in sorted(names)}
    weights = [value for value in model.state_dict().values() if isinstance(value, Tensor)]
    return described | {
        "risk": describe((risk.set_priors, risk.target_prior, risk.loss.name, risk.loss.function))
        + describe((risk.method.name, *risk.method.corrections)),
        "device": torch.device(options.device).type,
        "model": digest([repr(model), *weights]),
        "data": rows,
    }
