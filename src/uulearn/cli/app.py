"""The command line: one clear sentence when something is wrong, a traceback only with ``--debug``.

Each command imports what it needs when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="uulearn",
    help="Train a binary classifier from two unlabeled datasets whose shares of positives differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_BAD_INPUT = 2


def _print_version(wanted: bool) -> None:
    if wanted:
        from uulearn._version import __version__

        typer.echo(f"uulearn {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure, the table and the model.")] = Path("uulearn-demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of sets, weights and shuffles.")] = 0,
) -> None:
    """All five methods on embedded data: a table, a figure and a saved model, in under a minute."""
    from uulearn.cli.demo import run_demo

    run_demo(out, epochs, seed)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Directory written by UUClassifier.save.")],
    rows: Annotated[Path, typer.Argument(help="Rows to score: CSV of numbers, with or without a header, or .npy.")],
    out: Annotated[Path | None, typer.Option(help="CSV to write; standard output if not given.")] = None,
) -> None:
    """Score rows with a saved model: score, probability and class of each."""
    from uulearn.cli.predict import run_predict

    run_predict(model, rows, out)


@app.command()
def plan(
    set_priors: Annotated[
        tuple[float, float], typer.Option(help="Shares of positives in set 0 and in set 1, such as 0.6 0.4.")
    ],
    target_prior: Annotated[float, typer.Option(help="Share of positives where the classifier will be used.")] = 0.5,
    accuracy: Annotated[float, typer.Option(help="Anticipated accuracy.")] = 0.9,
    half_width: Annotated[float, typer.Option(help="Wanted precision: 0.02 for two points either way.")] = 0.02,
    sizes: Annotated[
        tuple[int, int] | None, typer.Option(help="Held-out rows of set 0 and of set 1, to see what they give.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability of error: 0.05 for 95% intervals.")] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """How many rows to hold out of each set so that the accuracy can be estimated well enough without a label."""
    from uulearn.cli.plan import run_plan

    run_plan(
        set_priors,
        target_prior,
        accuracy=accuracy,
        half_width=half_width,
        sizes=sizes,
        delta=delta,
        as_json=as_json,
    )


@app.command()
def priors(
    set0: Annotated[Path, typer.Argument(metavar="A", help="Rows of set 0: CSV of numbers, or .npy.")],
    set1: Annotated[Path, typer.Argument(metavar="B", help="Rows of set 1, the same columns.")],
    richer: Annotated[int, typer.Option(min=0, max=1, help="The set that holds more positives: 0 for A, 1 for B.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds, forest and resamples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Estimate the shares of positives in two unlabeled sets, with intervals, and say when they cannot be known."""
    from uulearn.cli.priors import run_priors

    run_priors(set0, set1, richer=richer, seed=seed, as_json=as_json)


@app.command("reproduce")
def reproduce_(
    target: Annotated[
        str, typer.Argument(help="table2, table3, figure1, figure2, figure3, all of these, or variants.")
    ],
    dataset: Annotated[
        list[str] | None, typer.Option(help="mnist, fashion_mnist, kmnist or cifar10; may be repeated. Default: all.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of each cell. Default: 5, of ResNet-32 2, quick 2.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each run. Default: 200, quick fewer.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for runs, tables and figures. Default: results, if the setting is the paper's."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the datasets. Default: $UULEARN_DATA, then a cache; downloads.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="A small version: few rows, few epochs, minutes.")] = False,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Write tables and figures from the runs that are there; no data.")
    ] = False,
    pack: Annotated[bool, typer.Option("--pack", help="Gather the runs into a few compressed archives.")] = False,
    no_selection: Annotated[
        bool, typer.Option("--no-selection", help="λ = −0.1 instead of a λ chosen without labels; fewer runs.")
    ] = False,
) -> None:
    """The paper's tables and figures: does the runs that are missing, keeps each, and sets them beside the paper's.

    It may be stopped at any time; the same command goes on where it was.
    """
    from uulearn.cli.reproduce import run_reproduce
    from uulearn.paper.experiments import DATASETS, Request

    request = Request(dataset or DATASETS, trials, epochs, quick, not no_selection)
    run_reproduce(target, request, out=out, data_dir=data_dir, device=device, render_only=render_only, pack=pack)


def main() -> None:
    """Entry point."""
    debug = "--debug" in sys.argv
    try:
        app()
    except BrokenPipeError:
        # The reader of our output has gone (as `head` does); that is not an error, but Python would report one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (
        ValueError,
        TypeError,
        LookupError,
        OSError,
        ArithmeticError,
        ImportError,
        RuntimeError,
        MemoryError,
    ) as error:
        if debug:
            raise
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        if debug:
            raise
        typer.echo("interrupted", err=True)
        raise SystemExit(130) from None
