"""The model directory of a fit, and the hidden folder beside it that holds an unfinished fit."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from uulearn.estimator.model_directory import MANIFEST, could_be_model


@dataclass(frozen=True)
class OutputFolder:
    """Paths of a fit: ``out`` as the user wrote it, and ``place``, which is absolute and without links."""

    out: Path
    place: Path

    @classmethod
    def at(cls, out: Path) -> OutputFolder:
        """Resolve the path, so that a link stays a link and "." gets a name."""
        return cls(out, Path(os.path.realpath(out)))

    @property
    def unfinished(self) -> Path:
        """Checkpoints of the fit while it runs."""
        return self.place.parent / f".{self.place.name}.unfinished"

    @property
    def previous(self) -> Path:
        """Checkpoints of an earlier interrupted fit, kept until the new fit is done."""
        return self.unfinished.with_name(f"{self.unfinished.name}.old")

    def prepare(self, resume: bool) -> str | None:
        """Check that the model can be written, and move the remains of an earlier fit; returns a note about them."""
        self._check()
        if resume:
            if not self.unfinished.is_dir():
                raise ValueError(f"there is no unfinished fit of {self.out} to continue; remove --resume.")
            return None
        if not self.has_checkpoint():
            shutil.rmtree(self.unfinished, ignore_errors=True)
            return None
        shutil.rmtree(self.previous, ignore_errors=True)
        self.unfinished.rename(self.previous)
        return (
            f"Restarting the interrupted fit of {self.out}; use --resume to continue it. Its checkpoints stay in "
            f"{self.previous} until this fit is done."
        )

    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from."""
        return any(self.unfinished.rglob("*.safetensors"))

    def resume_hint(self) -> str:
        """The end of a sentence that says how to continue; removes an unfinished fit without a checkpoint."""
        if self.has_checkpoint():
            return f"; continue with uulearn fit … --resume (checkpoints are in {self.unfinished})"
        self.discard_unfinished()
        return ""

    def discard_unfinished(self) -> None:
        """Remove the checkpoints of this fit."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def clean_up(self) -> None:
        """Remove all checkpoints after the model has been saved."""
        for folder in (self.unfinished, self.previous):
            shutil.rmtree(folder, ignore_errors=True)

    def manifest(self) -> bytes | None:
        """Content of the manifest of the model, to notice whether it was replaced."""
        path = self.out / MANIFEST
        return path.read_bytes() if path.is_file() else None

    def _check(self) -> None:
        try:
            if self.place.exists() and not self.place.is_dir():
                raise ValueError(f"{self.out} is a file; pass a folder for the model as --out.")
            if self.place.is_dir() and not could_be_model(self.place):
                raise ValueError(
                    f"{self.out} is a folder with other files; pass a new folder, or one with a model, as --out."
                )
            self.unfinished.exists()  # raises if the name is too long
            self.place.parent.mkdir(parents=True, exist_ok=True)
            for folder in [self.place.parent, self.place] if self.place.is_dir() else [self.place.parent]:
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            raise ValueError(f"{self.out} cannot be written ({error.strerror}); pass another --out.") from None
