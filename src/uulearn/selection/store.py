"""Models of single folds on disk, each in a file named by a digest of everything that the model depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uulearn.estimator.learners import FoldScores, Learner, ModelState
from uulearn.exceptions import CheckpointError, NonFiniteRiskError
from uulearn.storage import load_tree, remove_temporary_files, save_tree
from uulearn.training.history import History

# 2: models as the state of a learner.
STORE_FORMAT = 2
SUFFIX = ".safetensors"
# Age at which a temporary file is removed; a newer one may belong to a search that is running.
STALE_SECONDS = 3600


class FoldStore:
    """The finished models of a search in a folder, which is created if necessary.

    Any number of searches may share a folder: a file appears complete or not at all, and files of the same name have
    the same content. Nothing is unpickled.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"store must be a folder, and {self.folder} is a file; pass another path.")
        remove_temporary_files(self.folder, f"*{SUFFIX}", older_than=STALE_SECONDS)

    def get(self, name: str, learner: Learner, row_shape: tuple[int, ...]) -> FoldScores | NonFiniteRiskError | None:
        """The model of this name, restored by the learner, or why it failed; None if it is not stored."""
        path = self.folder / f"{name}{SUFFIX}"
        if not path.exists():
            return None
        try:
            stored = load_tree(path)
            if stored["format"] != STORE_FORMAT:
                raise ValueError(f"{path} has format {stored['format']!r}, and this version reads {STORE_FORMAT}.")
            if "failure" in stored:
                return NonFiniteRiskError(stored["failure"])
            model = learner.restore(ModelState(stored["tensors"], stored["config"]), row_shape)
            return FoldScores(model, History.from_dict(stored["history"]), stored["scores"])
        except (ValueError, LookupError, TypeError, RuntimeError, AttributeError) as error:
            reason = str(error) if str(path) in str(error) else f"{path} is damaged ({error})."
            raise CheckpointError(f"{reason} Delete it to train that model again.") from error

    def put(self, name: str, result: FoldScores | NonFiniteRiskError) -> None:
        """Store a model, or that its training failed."""
        path = self.folder / f"{name}{SUFFIX}"
        about: dict[str, Any] = {"failure": str(result)}
        if not isinstance(result, NonFiniteRiskError):
            about = vars(result.model.state()) | {"history": result.history.to_dict(), "scores": result.scores}
        try:
            save_tree(path, {"format": STORE_FORMAT, **about})
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be written ({error.strerror or error}); choose another store, or make this one "
                "writable with space left."
            ) from error
