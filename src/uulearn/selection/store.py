"""Models of one fold on disk, each in a file of its own, under a name made of everything that it depends on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from uulearn.exceptions import CheckpointError, NonFiniteRiskError
from uulearn.storage import load_tree, remove_temporary_files, save_tree
from uulearn.training.history import History
from uulearn.training.out_of_fold import FoldFit

FORMAT = 1
SUFFIX = ".safetensors"


class FoldStore:
    """The finished models of a search in a folder, which is made where it is not there.

    Any number of searches may share a folder: a file appears complete or not at all, and what has the same name is
    the same. Nothing is unpickled.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"store must be a folder, and {self.folder} is a file; pass another.")
        remove_temporary_files(self.folder, f"*{SUFFIX}", older_than=3600)  # what is newer may be another search's

    def get(self, name: str, build: Callable[[], nn.Module]) -> FoldFit | NonFiniteRiskError | None:
        """What is kept under a name, its weights in a module that ``build`` makes; None where there is nothing."""
        path = self.folder / f"{name}{SUFFIX}"
        if not path.exists():
            return None
        try:
            kept = load_tree(path)
            if kept["format"] != FORMAT:
                raise ValueError(f"{path} has format {kept['format']!r}, and this version reads {FORMAT}.")
            if "failure" in kept:
                return NonFiniteRiskError(kept["failure"])
            model = build()
            model.load_state_dict(kept["weights"])
            history, dtype = History.from_dict(kept["history"]), getattr(torch, kept["dtype"])
            return FoldFit(model.eval(), history, kept["scores"], dtype)
        except (ValueError, LookupError, TypeError, RuntimeError, AttributeError) as error:
            reason = str(error) if str(path) in str(error) else f"{path} is damaged ({error})."
            raise CheckpointError(f"{reason} Delete it to train that model again.") from error

    def put(self, name: str, result: FoldFit | NonFiniteRiskError) -> None:
        """Keep what was trained, or that it failed."""
        path = self.folder / f"{name}{SUFFIX}"
        if isinstance(result, NonFiniteRiskError):
            about: dict[str, Any] = {"failure": str(result)}
        else:
            about = {
                "weights": dict(result.model.state_dict()),
                "history": result.history.to_dict(),
                "scores": result.scores,
                "dtype": str(result.dtype).removeprefix("torch."),
            }
        try:
            save_tree(path, {"format": FORMAT, **about})
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be written ({error.strerror or error}); choose another store, or make this one "
                "writable with space left."
            ) from error
