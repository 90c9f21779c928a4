"""``uulearn fit``: train a model from two files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uulearn.cli.options import PRIORS, Address, AsJson, Drop, Engine, RayWorkers, Sheet, parse_set_priors

if TYPE_CHECKING:
    from uulearn.app.facts import FitFacts
    from uulearn.app.fitting import FittedFiles
    from uulearn.app.output import OutputFolder
    from uulearn.app.settings import FitSettings
    from uulearn.training.progress import ProgressCallback
    from uulearn.training.workers import Workers

CARD = "README.md"
CONFIGURATION = "config.toml"
REPORT = "report.html"
INTERRUPTED = 130


def fit(
    first: Annotated[
        str | None,
        typer.Argument(
            metavar="A", help="Rows of set 0: CSV, TSV, Parquet, Feather, JSON lines, Excel, NumPy; or a folder."
        ),
    ] = None,
    second: Annotated[str | None, typer.Argument(metavar="B", help="Rows of set 1, with the same columns.")] = None,
    set_priors: Annotated[
        str | None,
        typer.Option(
            metavar=PRIORS,
            help="Class priors (fractions of positives) of A and B, such as 0.8 0.2; or auto to estimate them.",
        ),
    ] = None,
    target_prior: Annotated[
        float | None,
        typer.Option(metavar="π", help="Class prior of the population on which the model is used. Default: 0.5."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the model.")] = Path("model"),
    drop: Drop = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="Identifier: copied to the output of predict, not trained on."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Use only this column. Repeat it for several columns.")
    ] = None,
    sheet: Sheet = None,
    images: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of image paths, if A and B are tables of images.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Width and height to which images are resized, in pixels.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="mlp, linear, resnet32 or allconvnet. Default: mlp (resnet32 for images)."),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="abs, leaky_relu, relu, unbiased or biased. Default: abs.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="sigmoid, logistic, … Default: sigmoid (logistic for linear)."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Maximum number of epochs. Default: 200.")
    ] = None,
    n_estimators: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of models in the ensemble. Default: 5 (1 for resnet32 and allconvnet)."
        ),
    ] = None,
    early_stopping: Annotated[
        bool | None,
        typer.Option(
            "--early-stopping/--no-early-stopping", help="Use the best epoch instead of the last. Default: best epoch."
        ),
    ] = None,
    self_training_rounds: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Maximum number of self-training rounds. Default: 0.")
    ] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="auto, cpu or cuda. Default: auto.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Random seed. Default: 0.")] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Fraction of the rows that evaluate a single or self-trained model. Default: 0.1."
        ),
    ] = None,
    allow_leakage: Annotated[
        bool | None, typer.Option("--allow-leakage", help="Keep columns that identify the file of a row.")
    ] = None,
    sensitivity: Annotated[
        bool | None,
        typer.Option(help="Train again with wrong priors to measure their effect. Default: if training is fast."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file with any of these settings; options override it.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted fit.")] = False,
    as_json: AsJson = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Train a classifier from two files of unlabeled rows."""
    from uulearn.app.settings import FitSettings, read_settings
    from uulearn.cli.distributed import uses_ray

    chosen = {
        "model": model,
        "method": method,
        "loss": loss,
        "epochs": epochs,
        "n_estimators": n_estimators,
        "early_stopping": early_stopping,
        "self_training_rounds": self_training_rounds,
        "device": device,
    }
    given = {
        "first": first,
        "second": second,
        "set_priors": parse_set_priors(set_priors),
        "target_prior": target_prior,
        "drop": tuple(drop or ()),
        "ids": tuple(id_ or ()),
        "only": tuple(only or ()),
        "sheet": sheet,
        "images": images,
        "image_size": image_size,
        "hold_out": hold_out,
        "allow_leakage": allow_leakage,
        "sensitivity": sensitivity,
        "seed": seed,
        "classifier": {name: value for name, value in chosen.items() if value is not None},
    }
    on_ray = uses_ray(engine, address, workers)
    settings = FitSettings.merge({} if config is None else read_settings(config), given)
    if on_ray and workers is None:
        raise ValueError("fit --engine ray needs --workers, the number of processes that train together.")
    facts = (
        _fit_locally(settings, out, resume, as_json)
        if workers is None
        else _fit_on_ray(settings, out, resume, as_json, workers, address)
    )
    if facts is None:  # another process prints
        return
    from uulearn.app.summary import format_summary
    from uulearn.io.writing import explained

    with explained(f"the model is in {out}, but standard output"):
        text = json.dumps(facts.to_dict(), indent=1, ensure_ascii=False) if as_json else format_summary(facts, out)
        typer.echo(text)


def _fit_locally(settings: FitSettings, out: Path, resume: bool, as_json: bool) -> FitFacts | None:
    """Fit in this process, or in all processes that torchrun started; None in all but the first."""
    from uulearn.app.fitting import fit_files
    from uulearn.app.output import OutputFolder
    from uulearn.cli.distributed import exit_together
    from uulearn.training.workers import join_workers, started_by_torchrun

    folder = OutputFolder.at(out)
    workers = join_workers("auto", _device(settings)) if started_by_torchrun() else None
    with exit_together(workers, folder.resume_hint):
        note = folder.prepare(resume) if workers is None else workers.run_on_first(lambda: folder.prepare(resume))
        if workers is not None and not workers.first:  # the first process reads, writes and prints
            fit_files(settings, checkpoint=folder.unfinished, workers=workers)
            return None
        with _show_progress(note, as_json) as progress, _report_failure(folder, resume):
            facts = _fit_and_save(settings, _command_line(), folder, progress, workers)
            folder.clean_up()
    return facts


def _fit_on_ray(
    settings: FitSettings, out: Path, resume: bool, as_json: bool, workers: int, address: str | None
) -> FitFacts:
    from uulearn.app.fitting import ROWS
    from uulearn.app.model import TableModel
    from uulearn.app.output import OutputFolder
    from uulearn.engines.ray_training import train_on_ray

    folder = OutputFolder.at(out)
    note = folder.prepare(resume)
    work = functools.partial(_fit_on_worker, settings, _command_line(), folder)
    scratch = folder.place.with_name(f".{folder.place.name}.ray")
    device = str(settings.classifier.get("device", "auto"))
    with _show_progress(note, as_json) as progress, _report_failure(folder, resume):
        progress(f"training by {workers} processes on Ray")
        try:
            train_on_ray(work, scratch, workers=workers, device=device, address=address)
        finally:
            shutil.rmtree(folder.unfinished / ROWS, ignore_errors=True)  # left by a first worker that was killed
        folder.clean_up()
    return TableModel.load(folder.place).facts


def _fit_on_worker(settings: FitSettings, command: str, folder: OutputFolder) -> None:
    """Fit in one process of a Ray cluster; the first process writes the model."""
    from uulearn.app.fitting import fit_files
    from uulearn.training.progress import no_progress
    from uulearn.training.workers import FirstWorkerError, join_workers

    workers = join_workers("auto", _device(settings))
    if workers is None or workers.first:
        with _report_failure(folder, resumed=True):  # the command that started Ray removes the unfinished fit
            _fit_and_save(settings, command, folder, no_progress, workers)
        return
    with contextlib.suppress(FirstWorkerError):
        fit_files(settings, checkpoint=folder.unfinished, workers=workers)


def _fit_and_save(
    settings: FitSettings, command: str, folder: OutputFolder, progress: ProgressCallback, workers: Workers | None
) -> FitFacts:
    from uulearn.app.fitting import fit_files

    fitted = fit_files(settings, command=command, checkpoint=folder.unfinished, progress=progress, workers=workers)
    facts = dataclasses.replace(fitted.model.facts, commands=_commands(folder.out))
    save(fitted._replace(model=dataclasses.replace(fitted.model, facts=facts)), folder.place)
    return facts


def save(fitted: FittedFiles, out: Path) -> None:
    """Write the model directory, with a configuration that repeats the fit and a model card."""
    from uulearn.app.summary import format_model_card

    texts = {CONFIGURATION: fitted.settings.to_toml(), CARD: format_model_card(fitted.model.facts)}
    fitted.model.save(out, {name: text.encode() for name, text in texts.items()})
    (out / REPORT).unlink(missing_ok=True)  # a report of an earlier model


@contextlib.contextmanager
def _show_progress(note: str | None, quiet: bool) -> Iterator[ProgressCallback]:
    from uulearn.cli.progress import FitProgress, progress_output
    from uulearn.training.progress import observe_training

    if note is not None:
        typer.echo(note, err=True)
    with FitProgress(progress_output(quiet)) as progress, observe_training(progress):
        yield progress


@contextlib.contextmanager
def _report_failure(folder: OutputFolder, resumed: bool) -> Iterator[None]:
    """Report an interrupt or a failed write, and how to continue; checkpoints are kept."""
    from uulearn.exceptions import CheckpointError
    from uulearn.io.writing import cannot_be_written

    before = folder.manifest()
    try:
        yield
    except KeyboardInterrupt:
        result = f"nothing was written to {folder.out}{folder.resume_hint()}"
        if folder.manifest() != before:
            result = f"the model had just been written to {folder.out}"
        typer.echo(f"interrupted: {result}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except (OSError, CheckpointError) as error:
        cause = find_os_error(error)
        if cause is None or isinstance(cause, BrokenPipeError):
            raise
        raise ValueError(f"{cannot_be_written(cause.filename or folder.out, cause)}{folder.resume_hint()}.") from error
    except (ValueError, ArithmeticError):
        if not resumed:  # the same fit would fail again; but a resumed fit may have been given a wrong option
            folder.discard_unfinished()
        raise


def find_os_error(error: BaseException | None) -> OSError | None:
    """The first OSError in the chain of causes of an error."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error


def _device(settings: FitSettings) -> str:
    import torch

    device = str(settings.classifier.get("device", "auto"))
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def _command_line() -> str:
    return shlex.join(["uulearn", *sys.argv[1:]])


def _commands(out: Path) -> dict[str, str]:
    place = shlex.quote(str(out))
    return {
        "predict": f"uulearn predict {place} new.csv --out scored.csv",
        "report": f"uulearn report {place}",
        "evaluate": f"uulearn evaluate {place} more_of_first.csv more_of_second.csv",
        "repeat": f"uulearn fit --config {shlex.quote(str(out / CONFIGURATION))} --out again",
    }
