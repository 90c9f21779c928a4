"""``uulearn fit``: train a model from two files."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from uulearn.cli.options import PRIORS, Address, AsJson, Drop, Engine, RayWorkers, Sheet, parse_set_priors


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
    from uulearn.app.output import start_fit
    from uulearn.app.summary import format_summary
    from uulearn.cli.distributed import exit_together, uses_ray
    from uulearn.cli.progress import FitProgress, progress_output
    from uulearn.io.writing import explained

    on_ray = uses_ray(engine, address, workers)
    if on_ray and workers is None:
        raise ValueError("fit --engine ray needs --workers, the number of processes that train together.")
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
    command = shlex.join(["uulearn", *sys.argv[1:]])
    with exit_together(out):
        run = start_fit(config, given, out, resume)
        if run.note is not None:
            typer.echo(run.note, err=True)
        with FitProgress(progress_output(as_json or not run.first)) as progress:
            if on_ray and workers is not None:
                from uulearn.engines.ray_training import fit_on_ray

                facts = fit_on_ray(run, command, progress, workers, address)
            else:
                progress("reading both files")
                facts = run.fit(command, progress)
            text = json.dumps(facts.to_dict(), indent=1, ensure_ascii=False) if as_json else format_summary(facts, out)
    if run.first:  # another process prints
        with explained(f"the model is in {out}, but standard output"):
            typer.echo(text)
