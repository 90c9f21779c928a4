"""``uulearn fit``: two files in, a model directory out, and what it is worth in a few lines."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import typer

from uulearn.app.facts import FitFacts
from uulearn.app.fitting import ROWS, Fitted, fit_files
from uulearn.app.model import TableModel
from uulearn.app.settings import FitSettings, read_settings
from uulearn.app.summary import format_model_card, format_summary
from uulearn.cli.fit_progress import Silent, fit_progress
from uulearn.cli.several import asks_for_ray, ended_together
from uulearn.engines.ray_training import train_on_ray
from uulearn.estimator.persistence import MANIFEST, could_be_model
from uulearn.exceptions import CheckpointError
from uulearn.io.writing import cannot_be_written, explained
from uulearn.training.progress import watch_training
from uulearn.training.workers import FirstWorkerError, Workers, join_workers, started_by_torchrun

CARD = "README.md"
CONFIGURATION = "config.toml"
REPORT = "report.html"


def run_fit(
    given: dict[str, Any],
    *,
    config: Path | None,
    out: Path,
    resume: bool,
    as_json: bool,
    engine: str = "local",
    address: str | None = None,
    ray_workers: int | None = None,
) -> None:
    """Fit, save, and say what there is.

    ``given`` holds what the command line says; the configuration file gives the rest.
    """
    on_ray = asks_for_ray(engine, address, ray_workers)
    settings = _settings(given, config)
    if on_ray and ray_workers is None:
        raise ValueError("fit --engine ray needs --workers, the number of processes that train together.")
    workers = join_workers("auto", _device(settings)) if started_by_torchrun() else None
    place = Path(os.path.realpath(out))  # a link stays one, and "." has a name
    unfinished = place.with_name(f".{place.name}.unfinished") if place.name else place
    with ended_together(workers, functools.partial(_kept, unfinished)):
        make_ready = functools.partial(_make_ready, out, place, unfinished, resume)
        make_ready() if workers is None else workers.by_first(make_ready)
        if workers is not None and not workers.first:  # which reads, writes and talks
            fit_files(settings, checkpoint=unfinished, workers=workers)
            return
        command = shlex.join(["uulearn", *sys.argv[1:]])
        with _report_failure(out, unfinished, resume):
            with fit_progress(quiet=as_json) as progress, watch_training(progress):
                if ray_workers is not None:
                    progress(f"training by {ray_workers} processes on Ray")
                    facts = _fit_on_ray(settings, command, out, place, unfinished, ray_workers, address)
                else:
                    facts = _fit_and_save(settings, command, out, place, unfinished, progress, workers)
            for folder in (unfinished, _aside(unfinished)):
                shutil.rmtree(folder, ignore_errors=True)
    with explained(f"the model is in {out}, but standard output"):
        text = json.dumps(facts.to_dict(), indent=1, ensure_ascii=False) if as_json else format_summary(facts, out)
        typer.echo(text)


def _make_ready(out: Path, place: Path, unfinished: Path, resume: bool) -> None:
    """Find out whether the model can be written, and remove what is not gone on with."""
    _check_out(out, place, unfinished)
    if resume and not unfinished.is_dir():
        raise ValueError(f"there is no unfinished fit of {out} to go on with; leave --resume out.")
    if not resume and unfinished.exists():
        _set_aside(out, unfinished)


def _set_aside(out: Path, unfinished: Path) -> None:
    """A fit that was interrupted is begun again; what it had trained stays until this one is done."""
    aside = _aside(unfinished)
    if any(unfinished.rglob("*.safetensors")):
        shutil.rmtree(aside, ignore_errors=True)
        unfinished.rename(aside)
        typer.echo(
            f"an unfinished fit of {out} is begun again, which --resume would have gone on with; what it had trained is "
            f"in {aside} until this one is done",
            err=True,
        )
    else:
        shutil.rmtree(unfinished)


def _aside(unfinished: Path) -> Path:
    return unfinished.with_name(f"{unfinished.name}.old")


def _fit_and_save(
    settings: FitSettings,
    command: str,
    out: Path,
    place: Path,
    unfinished: Path,
    tell: Callable[..., None],
    workers: Workers | None,
) -> FitFacts:
    fitted = fit_files(settings, command=command, checkpoint=unfinished, tell=tell, workers=workers)
    facts = dataclasses.replace(fitted.model.facts, commands=_commands(out))
    save(Fitted(dataclasses.replace(fitted.model, facts=facts), fitted.settings), place)
    return facts


def _fit_on_ray(
    settings: FitSettings,
    command: str,
    out: Path,
    place: Path,
    unfinished: Path,
    workers: int,
    address: str | None,
) -> FitFacts:
    work = functools.partial(_fit_on_worker, settings, command, out, place, unfinished)
    scratch = place.with_name(f".{place.name}.ray")
    try:
        train_on_ray(work, scratch, workers=workers, device=_wanted_device(settings), address=address)
    finally:
        shutil.rmtree(unfinished / ROWS, ignore_errors=True)  # of a first worker that was killed
    return TableModel.load(place).facts


def _fit_on_worker(settings: FitSettings, command: str, out: Path, place: Path, unfinished: Path) -> None:
    """What each process of a Ray cluster does: all fit, and the first writes the model."""
    workers = join_workers("auto", _device(settings))
    if workers is None or workers.first:
        with _report_failure(out, unfinished, resumed=True):  # the command that asked removes what is left
            _fit_and_save(settings, command, out, place, unfinished, Silent(), workers)
        return
    with contextlib.suppress(FirstWorkerError):
        fit_files(settings, checkpoint=unfinished, workers=workers)


def _device(settings: FitSettings) -> str:
    device = _wanted_device(settings)
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _wanted_device(settings: FitSettings) -> str:
    return str(settings.classifier.get("device", "auto"))


def save(fitted: Fitted, out: Path) -> None:
    """The model directory, with a configuration that repeats it and a card for people."""
    texts = {CONFIGURATION: fitted.settings.to_toml(), CARD: format_model_card(fitted.model.facts)}
    fitted.model.save(out, {name: text.encode() for name, text in texts.items()})
    (out / REPORT).unlink(missing_ok=True)  # it is about the model that was there before


@contextlib.contextmanager
def _report_failure(out: Path, unfinished: Path, resumed: bool) -> Iterator[None]:
    """Where a fit is interrupted, or cannot be written, say so; what was trained so far is kept."""
    before = _manifest(out)
    try:
        yield
    except KeyboardInterrupt:
        said = f"nothing was written to {out}{_kept(unfinished)}"
        if _manifest(out) != before:
            said = f"the model had just been written to {out}"
        typer.echo(f"interrupted: {said}", err=True)
        raise typer.Exit(130) from None
    except (OSError, CheckpointError) as error:
        refused = _refused_by_system(error)
        if refused is None or isinstance(refused, BrokenPipeError):
            raise
        raise ValueError(f"{cannot_be_written(refused.filename or out, refused)}{_kept(unfinished)}.") from error
    except (ValueError, ArithmeticError):
        if not resumed:  # it would end so again; but a fit that goes on may have been given a wrong option
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _manifest(out: Path) -> bytes | None:
    return (out / MANIFEST).read_bytes() if (out / MANIFEST).is_file() else None


def _kept(unfinished: Path) -> str:
    """How to go on, if there is a checkpoint to go on from."""
    if any(unfinished.rglob("*.safetensors")):
        return f"; uulearn fit … --resume goes on from there ({unfinished})"
    shutil.rmtree(unfinished, ignore_errors=True)
    return ""


def _refused_by_system(error: BaseException | None) -> OSError | None:
    """What the system refused, at the bottom of an error."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def _settings(given: dict[str, Any], config: Path | None) -> FitSettings:
    stored = read_settings(config) if config is not None else {}
    own = {**stored.get("classifier", {}), **given.pop("classifier", {})}
    merged = {**stored, **{name: value for name, value in given.items() if value not in (None, ())}}
    merged["classifier"] = own
    for name, what in (("first", "two files of rows"), ("set_priors", "--set-priors, the share of positives in each")):
        if name not in merged or (name == "first" and "second" not in merged):
            raise ValueError(
                f"fit needs {what}; for example: uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --out model"
            )
    return FitSettings(**merged)


def _check_out(out: Path, place: Path, unfinished: Path) -> None:
    """Find out now, not after an hour, whether the model can be written."""
    try:
        if place.exists() and not place.is_dir():
            raise ValueError(f"{out} is a file; pass a folder for the model as --out.")
        if place.is_dir() and not could_be_model(place):
            raise ValueError(f"{out} is a folder of other things; pass a new folder, or one with a model, as --out.")
        unfinished.exists()  # its name may be too long
        place.parent.mkdir(parents=True, exist_ok=True)
        for folder in [place.parent, place] if place.is_dir() else [place.parent]:
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise ValueError(f"{out} cannot be written ({error.strerror}); pass another folder as --out.") from None


def _commands(out: Path) -> dict[str, str]:
    place = shlex.quote(str(out))
    return {
        "predict": f"uulearn predict {place} new.csv --out scored.csv",
        "report": f"uulearn report {place}",
        "evaluate": f"uulearn evaluate {place} more_of_first.csv more_of_second.csv",
        "repeat": f"uulearn fit --config {shlex.quote(str(out / CONFIGURATION))} --out again",
    }
