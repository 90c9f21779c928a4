"""Fit a classifier to two files and write a model directory; checkpoints are stored in a hidden folder next to it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from uulearn.app.facts import FitFacts
from uulearn.app.fitting import fit_files
from uulearn.app.settings import FitSettings, read_settings
from uulearn.app.summary import format_model_card
from uulearn.estimator.model_directory import MANIFEST, could_be_model
from uulearn.exceptions import CheckpointError, OtherRunError
from uulearn.io.formats import COMPRESSIONS, SUFFIXES
from uulearn.io.writing import cannot_be_written
from uulearn.storage import file_lock
from uulearn.training.progress import ProgressCallback, no_progress
from uulearn.training.workers import RANK, Workers, join_workers

CARD, CONFIGURATION, REPORT = "README.md", "config.toml", "report.html"


@dataclass(frozen=True)
class OutputFolder:
    """Paths of a fit: ``out`` as passed by the user, and ``place``, its absolute path with links resolved."""

    out: Path
    place: Path

    @classmethod
    def at(cls, out: Path) -> OutputFolder:
        """Resolve the path, so that the target of a link is replaced and not the link, and "." has a name."""
        return cls(out, Path(os.path.realpath(out)))

    @property
    def unfinished(self) -> Path:
        """Folder that contains the checkpoints while the fit is running."""
        return self.place.parent / f".{self.place.name}.unfinished"

    @property
    def previous(self) -> Path:
        """Folder that contains the checkpoints of an earlier interrupted fit until the new fit is complete."""
        return self.unfinished.with_name(f"{self.unfinished.name}.old")

    def prepare(self, resume: bool, stack: contextlib.ExitStack) -> str | None:
        """Check that the model can be written and move checkpoints of an earlier fit; return a note for the user.

        Until the stack is closed, another fit with the same output folder is refused.
        """
        self._check()
        lock = self.unfinished.with_name(f".{self.place.name}.lock")
        busy = f"another fit is writing to {self.out}; wait until it has finished, or pass another --out"
        stack.enter_context(file_lock(lock, busy, seconds=0))
        note = None
        if self._manifest() is not None:
            note = f"{self.out} contains a model that this fit will replace; pass another --out to keep it."
        if resume:
            if not self.unfinished.is_dir():
                raise ValueError(f"there is no unfinished fit of {self.out} to continue; remove --resume.")
            return note
        if not self._has_checkpoint():
            shutil.rmtree(self.unfinished, ignore_errors=True)
            return note
        shutil.rmtree(self.previous, ignore_errors=True)
        self.unfinished.rename(self.previous)
        return (
            f"Restarting the interrupted fit of {self.out}; use --resume to continue it. Its checkpoints stay in "
            f"{self.previous} until this fit is complete."
        )

    def resume_hint(self) -> str:
        """Return text that says how to resume the fit; if there is no checkpoint, remove its folder and return ""."""
        if self._has_checkpoint():
            return f"; continue with uulearn fit … --resume (checkpoints are in {self.unfinished})"
        self._discard_unfinished()
        return ""

    def clean_up(self) -> None:
        """Remove all checkpoints after the model has been saved."""
        for folder in (self.unfinished, self.previous):
            shutil.rmtree(folder, ignore_errors=True)

    def _discard_unfinished(self) -> None:
        """Remove the checkpoints of this fit; an earlier interrupted fit can still be resumed."""
        shutil.rmtree(self.unfinished, ignore_errors=True)
        if self.previous.is_dir():
            self.previous.rename(self.unfinished)

    def _has_checkpoint(self) -> bool:
        return any(self.unfinished.rglob("*.safetensors"))

    def _manifest(self) -> bytes | None:
        """Return the content of the model's manifest; it is compared to detect that the model was replaced."""
        path = self.out / MANIFEST
        return path.read_bytes() if path.is_file() else None

    def _check(self) -> None:
        try:
            if self.place.exists() and not self.place.is_dir():
                raise ValueError(f"{self.out} is a file; pass a folder for the model as --out.")
            if self.place.is_dir() and not could_be_model(self.place):
                raise ValueError(
                    f"{self.out} contains files that are not a model; pass a new folder or a model folder as --out."
                )
            self.unfinished.exists()  # raises if the name is too long
            self.place.parent.mkdir(parents=True, exist_ok=True)
            for folder in [self.place.parent, self.place] if self.place.is_dir() else [self.place.parent]:
                with tempfile.TemporaryFile(dir=folder):
                    pass
        except OSError as error:
            raise ValueError(f"{self.out} cannot be written ({error.strerror}); pass another --out.") from None

    @contextlib.contextmanager
    def explain_failure(self, resumed: bool) -> Iterator[None]:
        """After an interrupt or write error, report which files were written and how to continue from checkpoints."""
        before = self._manifest()
        try:
            yield
        except KeyboardInterrupt:
            result = f"nothing was written to {self.out}{self.resume_hint()}"
            if self._manifest() != before:
                result = f"the model was already written to {self.out}"
            raise KeyboardInterrupt(result) from None
        except OtherRunError as error:
            if not resumed:
                raise
            raise ValueError(
                f"the unfinished fit of {self.out} used other rows or settings, such as class priors; repeat its "
                "command with --resume, or remove --resume to train from the start."
            ) from error
        except (OSError, CheckpointError) as error:
            cause = find_os_error(error)
            if cause is None or isinstance(cause, BrokenPipeError):
                raise
            sentence = cannot_be_written(cause.filename or self.out, cause)
            raise ValueError(f"{sentence}{self.resume_hint()}.") from error
        except (ValueError, ArithmeticError):
            if not resumed:  # a new fit would fail again; a resumed fit may have failed because of a wrong option
                self._discard_unfinished()
            raise


@dataclass(frozen=True)
class FitRun:
    """A fit whose settings and output folder have been checked."""

    settings: FitSettings
    folder: OutputFolder
    resumed: bool
    note: str | None = None
    """A note about an earlier model or unfinished fit."""
    workers: Workers | None = None

    @property
    def first(self) -> bool:
        """Whether this process saves the model and prints the result."""
        return self.workers is None or self.workers.first

    def fit(self, command: str, progress: ProgressCallback = no_progress, *, clean_up: bool = True) -> FitFacts:
        """Fit a classifier; the first process saves the model, a configuration to repeat the fit, and a model card."""
        settings, folder = self.settings, self.folder
        if not self.first:
            return fit_files(settings, checkpoint=folder.unfinished, workers=self.workers)[0].fit_facts
        with folder.explain_failure(self.resumed):
            model, complete = fit_files(
                settings,
                command=command,
                checkpoint=folder.unfinished,
                progress=progress,
                workers=self.workers,
            )
            place, suffix = shlex.quote(str(folder.out)), _suffix_of_rows(settings.first)
            new = "new_images" if suffix == "/" and model.images is not None else "new"
            commands = {
                "predict": f"uulearn predict {place} {new}{suffix} --out scored.csv",
                "report": f"uulearn report {place}",
                "evaluate": f"uulearn evaluate {place} more_of_first{suffix} more_of_second{suffix}",
                "repeat": f"uulearn fit --config {shlex.quote(str(folder.out / CONFIGURATION))} --out again",
            }
            facts = dataclasses.replace(model.fit_facts, commands=commands)
            texts = {CONFIGURATION: complete.to_toml(), CARD: format_model_card(facts)}
            beside = {name: text.encode() for name, text in texts.items()}
            dataclasses.replace(model, facts=facts).save(folder.place, beside)
            (folder.place / REPORT).unlink(missing_ok=True)  # it describes the previous model
            if clean_up:
                folder.clean_up()
        return facts


def start_fit(
    config: Path | None, given: Mapping[str, Any], out: Path, resume: bool, stack: contextlib.ExitStack
) -> FitRun:
    """Check the output folder and the settings (from a configuration file and the command line) of a fit.

    The output folder is reserved for this fit until the stack is closed.
    """
    settings = FitSettings.merge({} if config is None else read_settings(config), given)
    folder, workers = OutputFolder.at(out), join_fit_workers(settings)
    prepare = functools.partial(folder.prepare, resume, stack)
    note = prepare() if workers is None else workers.run_on_first(prepare)
    return FitRun(settings, folder, resume, note, workers)


def join_fit_workers(settings: FitSettings) -> Workers | None:
    """Return the processes that torchrun or Ray started for this fit, or None for a single process."""
    if RANK not in os.environ and not dist.is_initialized():
        return None
    device = str(settings.classifier.get("device", "auto"))
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return join_workers("auto", device)


def _suffix_of_rows(source: str) -> str:
    """Return the suffix of a file without that of its compression, ``/`` for a folder, and ``.csv`` for other names.

    >>> _suffix_of_rows("clinic_a.csv.gz"), _suffix_of_rows("clinic_a.npy"), _suffix_of_rows("-")
    ('.csv', '.npy', '.csv')
    """
    path = Path(source)
    if path.is_dir():
        return "/"
    suffix = path.with_suffix("").suffix if path.suffix.lower() in COMPRESSIONS else path.suffix
    return suffix if suffix.lower() in SUFFIXES else ".csv"


def find_os_error(error: BaseException | None) -> OSError | None:
    """Return the first OSError among an error and its causes."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error
