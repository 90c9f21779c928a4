"""Checkpoints: a killed run can be resumed and ends like an uninterrupted one."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from uulearn.data.identity import digest
from uulearn.exceptions import CheckpointError
from uulearn.risk import UURisk
from uulearn.storage import load_tree, save_tree, write_atomically
from uulearn.training.identity import describe
from uulearn.training.options import RunOptions

CHECKPOINT_NAME, SEED_NAME = "checkpoint.safetensors", "seed.json"
CHECKPOINT_FORMAT = 1
MAY_DIFFER = {"epochs", "checkpoint_dir", "checkpoint_every", "progress", "device", "graph", "distributed"}
"""Options that may change when a run is resumed."""


class Checkpoint:
    """The checkpoint file of one run, in its own folder."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / CHECKPOINT_NAME

    def write(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint atomically."""
        try:
            save_tree(self.path, {"format": CHECKPOINT_FORMAT, **state}, alone=True)
        except TypeError as error:
            raise CheckpointError(
                f"the state of this run cannot be stored: {error}; use an optimizer and scheduler whose state is "
                "numbers and tensors, or do not set checkpoint_dir."
            ) from error
        except OSError as error:
            raise _write_error(self.path, error) from error

    def read(self) -> dict[str, Any] | None:
        """Return the stored state, or None if there is none."""
        if not self.path.exists():
            return None
        try:
            state = load_tree(self.path)
        except ValueError as error:
            raise CheckpointError(f"{error} Delete it to train from the start.") from error
        found = state.get("format") if isinstance(state, dict) else None
        if found != CHECKPOINT_FORMAT:
            raise CheckpointError(
                f"{self.path} has checkpoint format {found!r}, this version reads {CHECKPOINT_FORMAT}; finish that run "
                "with the version that started it, or delete the file."
            )
        return dict(state)

    def resume(self, fingerprint: dict[str, str], epochs: int) -> dict[str, Any] | None:
        """Return the stored state, or None; raise an error if it belongs to another run or has more epochs."""
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
        done = len(state["history"]["epochs"])
        if done > epochs:
            raise CheckpointError(
                f"{self.path} holds {done} finished epochs, more than epochs={epochs}; raise it to at least {done}, or "
                "choose another checkpoint_dir."
            )
        return state


def store_seed(folder: str | Path, seed: int) -> None:
    """Store the common seed of runs with checkpoints in subfolders, unless such checkpoints exist."""
    path = Path(folder) / SEED_NAME
    if path.exists() and any(path.parent.rglob(CHECKPOINT_NAME)):
        return
    text = json.dumps({"format": CHECKPOINT_FORMAT, "seed": seed})
    try:
        write_atomically(path, lambda temporary: temporary.write_text(text), alone=True)
    except OSError as error:
        raise _write_error(path, error) from error


def stored_seed(folder: str | Path) -> int | None:
    """Return the seed of the checkpoint in the folder or in its subfolders, or None if there is none."""
    state = Checkpoint(folder).read()
    if state is not None:
        return int(state["seed"])
    path = Path(folder) / SEED_NAME
    if not path.exists() or not any(path.parent.rglob(CHECKPOINT_NAME)):
        return None
    try:
        return int(json.loads(path.read_text())["seed"])
    except (ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged or was not written by uulearn ({error}); delete its folder to train from the start."
        ) from error


def _write_error(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} cannot be written ({error.strerror or error}); choose another checkpoint_dir, or make "
        "this one writable with space left."
    )


def fingerprint(options: RunOptions, model: nn.Module, rows: str, risk: UURisk) -> dict[str, str]:
    """Return descriptions of everything that must be equal for a run to be resumed; ``rows`` describes both sets."""
    names = {field.name for field in dataclasses.fields(options)} - MAY_DIFFER
    described = {name: describe(getattr(options, name)) for name in sorted(names)}
    weights = [value for value in model.state_dict().values() if isinstance(value, Tensor)]
    return described | {
        "risk": describe((risk.set_priors, risk.target_prior, risk.loss.name, risk.loss.function))
        + describe((risk.method.name, *risk.method.corrections)),
        "device": torch.device(options.device).type,
        "model": digest([repr(model), *weights]),
        "data": rows,
    }
