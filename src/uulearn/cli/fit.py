"""``uulearn fit``: train a model from two files."""

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from uulearn.cli import fast_imports, is_first_process
from uulearn.cli.options import (
    PRIORS,
    Address,
    AsJson,
    Drop,
    Engine,
    RayWorkers,
    Sheet,
    argument,
    flag,
    name_option,
    option,
    parse_set_priors,
    uses_ray,
)


def fit(
    ctx: typer.Context,
    first: Annotated[
        str | None, argument("A", "File (CSV, TSV, Parquet, Feather, JSON lines, Excel, NumPy) or folder of set 0.")
    ] = None,
    second: Annotated[str | None, argument("B", "File or folder of set 1, with the same columns.")] = None,
    set_priors: Annotated[
        str | None,
        option(PRIORS, "Class priors (fractions of positives) of A and B, such as 0.8 0.2, or auto to estimate them."),
    ] = None,
    target_prior: Annotated[
        float | None, option("π", "Class prior of the population on which the model will be used. Default: 0.5.")
    ] = None,
    out: Annotated[Path, option("DIR", "Folder to which the model is written.")] = Path("model"),
    drop: Drop = None,
    ids: Annotated[
        list[str] | None, option("COLUMN", "Identifier column; predict copies it, and training ignores it.", "--id")
    ] = None,
    only: Annotated[list[str] | None, option("COLUMN", "Column to use; repeat the option for several columns.")] = None,
    sheet: Sheet = None,
    images: Annotated[str | None, option("COLUMN", "Column of image paths, if A and B are tables of images.")] = None,
    image_size: Annotated[
        int | None,
        option(
            "N",
            "Width and height to which images are resized and cropped, in pixels. Default: 32 (torchvision: 224), or "
            "the size of the images if all are equal and small.",
            min=1,
        ),
    ] = None,
    training__augment: Annotated[
        str | None,
        option("NAMES", "Random changes of training images, such as shift+flip. Default: none.", "--augment"),
    ] = None,
    model: Annotated[
        str | None,
        name_option(
            "Model: auto (compares boosting and mlp), mlp, linear, boosting, resnet32, allconvnet, or a network of "
            "torchvision such as torchvision:resnet18. Default: auto (images: resnet32)."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        option("NAME", "Weights to download for a network of torchvision, such as DEFAULT. Default: none."),
    ] = None,
    time_budget: Annotated[
        float | None,
        option(
            "SECONDS", "With --model auto: budget of expected training time; slower models are skipped. Default: 120."
        ),
    ] = None,
    method: Annotated[
        str | None, name_option("Risk: abs, leaky_relu, relu, unbiased, biased or surrogate. Default: abs.")
    ] = None,
    loss: Annotated[str | None, name_option("Loss: sigmoid, logistic, … Default: sigmoid (linear: logistic).")] = None,
    epochs: Annotated[
        int | None, option("N", "Maximum number of epochs. Default: 200 (mlp on small tables: 60).", min=1)
    ] = None,
    batch_size: Annotated[
        int | None, option("N", "Number of rows per batch, from both sets. Default: 3000 (torchvision: 256).", min=2)
    ] = None,
    n_estimators: Annotated[
        int | None, option("N", "Number of models in the ensemble. Default: 5 (1 for image models).", min=1)
    ] = None,
    early_stopping: Annotated[
        bool | None,
        flag("Use the best epoch instead of the last. Default: best epoch.", "--early-stopping/--no-early-stopping"),
    ] = None,
    self_training_rounds: Annotated[
        int | None, option("N", "Maximum number of self-training rounds. Default: 0.", min=0)
    ] = None,
    consistency: Annotated[
        bool | None,
        flag("Train networks with consistency training. Default: without.", "--consistency/--no-consistency"),
    ] = None,
    device: Annotated[str | None, option("NAME", "Device: auto, cpu or cuda. Default: auto.")] = None,
    seed: Annotated[int | None, option("N", "Random seed. Default: 0.", min=0)] = None,
    hold_out: Annotated[
        float | None, option("P", "Fraction of rows held out to evaluate a single or self-trained model. Default: 0.1.")
    ] = None,
    allow_leakage: Annotated[
        bool | None, flag("Keep columns that identify the file of a row or look like the label.", "--allow-leakage")
    ] = None,
    sensitivity: Annotated[
        bool | None, flag("Measure all effects of wrong priors. Default: those that take no longer than training.")
    ] = None,
    config: Annotated[Path | None, option("FILE", "TOML file with these settings; options override the file.")] = None,
    resume: Annotated[bool, flag("Continue an interrupted fit.", "--resume")] = False,
    as_json: AsJson = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Train a classifier from two files of unlabeled rows."""
    given = ctx.params | {"set_priors": parse_set_priors(set_priors)}  # options that are settings have their names
    on_ray = uses_ray(engine, address, workers)
    if on_ray and workers is None:
        raise ValueError("fit --engine ray requires --workers N, the number of training processes.")
    with fast_imports():
        from uulearn.app.output import start_fit
        from uulearn.app.summary import format_summary
        from uulearn.cli.distributed import exit_together
        from uulearn.cli.progress import FitProgress, progress_output
        from uulearn.io.formats import printable

    command = shlex.join(["uulearn", *sys.argv[1:]])
    output = progress_output(as_json or not is_first_process())
    with exit_together(out), contextlib.ExitStack() as stack, FitProgress(output) as progress:
        run = start_fit(config, given, out, resume, stack)
        if run.note is not None:
            typer.echo(printable(run.note), err=True)
        if on_ray and workers is not None:
            from uulearn.engines.ray_training import fit_on_ray

            facts = fit_on_ray(run, command, progress, workers, address)
        else:
            facts = run.fit(command, progress)
        text = json.dumps(facts.to_dict(), indent=1, ensure_ascii=False) if as_json else format_summary(facts, out)
    if run.first:  # otherwise another process prints
        try:
            typer.echo(text)
        except OSError as error:
            error.filename = f"the model is in {out}, but standard output"
            raise
