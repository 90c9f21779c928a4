"""The command line: one clear sentence when something is wrong, a traceback only with ``--debug``.

Each command imports what it needs when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

Engine = Annotated[str, typer.Option(help="local, or ray: the work goes to a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="With --engine ray: auto, or the cluster's head. Default: this machine alone."),
]
Sheet = Annotated[str | None, typer.Option(help="Sheet of .xlsx files. Default: the first sheet.")]
RayWorkers = Annotated[
    int | None, typer.Option("--workers", min=1, help="With --engine ray: how many processes work at once.")
]
ONE_OR_TWO = ("fit", "evaluate")
"""Commands whose ``--set-priors`` takes two numbers or one word, for which Click has no option."""


class _Commands(typer.core.TyperGroup):
    """Reads ``--set-priors 0.8 0.2`` as one value where a command may also take ``auto``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        command = next((word for word in args if not word.startswith("-")), None)
        if command in ONE_OR_TWO and "--set-priors" in args:
            place = args.index("--set-priors") + 1
            if len(args) > place + 1 and all(map(_is_number, args[place : place + 2])):
                args = [*args[:place], " ".join(args[place : place + 2]), *args[place + 2 :]]
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the command line."""
        with _handle_interrupt():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _handle_interrupt():
            return super().invoke(ctx)


@contextlib.contextmanager
def _handle_interrupt() -> Iterator[None]:
    """Let a command that is interrupted say so; Typer would end without a word."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


app = typer.Typer(
    cls=_Commands,
    name="uulearn",
    help="Train a binary classifier from two unlabeled datasets whose shares of positives differ.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_BAD_INPUT = 2
LONGEST_ERROR = 2000


def _print_version(wanted: bool) -> None:
    if wanted:
        from uulearn._version import __version__

        typer.echo(f"uulearn {__version__}")
        raise typer.Exit


def _read_priors(text: str | None) -> tuple[float, float] | str | None:
    """``0.8 0.2`` or ``0.8,0.2`` as two shares, or the word ``auto``."""
    if text is None or text == "auto":
        return text
    try:
        first, second = map(float, text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--set-priors takes two shares such as 0.8 0.2, or auto, got {text!r}.") from None
    return first, second


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
def fit(
    first: Annotated[
        str | None,
        typer.Argument(
            metavar="A", help="Rows of set 0: CSV, TSV, Parquet, Feather, JSON lines, Excel, NumPy; or a folder."
        ),
    ] = None,
    second: Annotated[str | None, typer.Argument(metavar="B", help="Rows of set 1, the same columns.")] = None,
    set_priors: Annotated[
        str | None,
        typer.Option(
            metavar="θ θ′", help="Share of positives in A and in B, such as 0.8 0.2; or auto, to estimate both."
        ),
    ] = None,
    target_prior: Annotated[
        float | None, typer.Option(help="Share of positives where the model will be used. Default: 0.5.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("model"),
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; may be repeated.")
    ] = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="A column that names rows: kept in output, never learned from."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Use these columns only; may be repeated.")
    ] = None,
    sheet: Sheet = None,
    images: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Where A and B are tables of images: the column of their paths."),
    ] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Pixels that images are brought to.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help="mlp or linear, for images resnet32 or allconvnet too. Default: mlp, or resnet32."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="abs, leaky_relu, relu, unbiased or biased. Default: abs.")] = None,
    loss: Annotated[str | None, typer.Option(help="sigmoid, logistic, … Default: sigmoid, of linear logistic.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Most epochs to train. Default: 200.")] = None,
    members: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of models averaged. Default: 5 below 5,000 rows a file, else 1; convolutions 1.",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. Default: auto.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of everything drawn at random. Default: 0.")] = None,
    hold_out: Annotated[
        float | None, typer.Option(help="Share of the rows held out to choose and to evaluate. Default: 0.2.")
    ] = None,
    allow_leakage: Annotated[
        bool | None, typer.Option("--allow-leakage", help="Keep columns that tell the files apart by themselves.")
    ] = None,
    sensitivity: Annotated[
        bool | None,
        typer.Option(help="Train again with wrong priors to see how they matter. Default: where it is quick."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these; the command line wins.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Train a classifier from two files of unlabeled rows whose shares of positives differ."""
    from uulearn.cli.fit import run_fit

    chosen = {"model": model, "method": method, "loss": loss, "epochs": epochs, "members": members, "device": device}
    given = {
        "first": first,
        "second": second,
        "set_priors": _read_priors(set_priors),
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
    run_fit(
        given,
        config=config,
        out=out,
        resume=resume,
        as_json=as_json,
        engine=engine,
        address=address,
        ray_workers=workers,
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Directory written by fit, or by UUClassifier.save.")],
    rows: Annotated[str, typer.Argument(help="File of rows, or folder of Parquet files; - for standard input.")],
    out: Annotated[str, typer.Option(help="File to write; standard output if not given.")] = "-",
    format_: Annotated[
        str | None, typer.Option("--format", help="Of the rows, where the name does not tell: csv, tsv, jsonl, …")
    ] = None,
    sheet: Sheet = None,
    target_prior: Annotated[
        float | None, typer.Option(help="Share of positives among these rows, if not that of the fit.")
    ] = None,
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Write the columns of the rows beside the results.")
    ] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Score rows with a saved model: score, probability and class of each."""
    from uulearn.cli.predict import run_predict

    run_predict(
        model,
        rows,
        out,
        format=format_,
        sheet=sheet,
        target_prior=target_prior,
        keep_columns=keep_columns,
        engine=engine,
        address=address,
        workers=workers,
    )


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Directory written by fit.")],
    first: Annotated[str, typer.Argument(metavar="A", help="More rows like the first file, or rows with labels.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="More rows like the second file; not with --labels.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="The column of A that holds labels.")] = None,
    positive: Annotated[
        str | None, typer.Option(help="The label of the positive class, if not 1, true or yes.")
    ] = None,
    set_priors: Annotated[
        str | None, typer.Option(metavar="θ θ′", help="Share of positives in A and in B, if not those of the fit.")
    ] = None,
    target_prior: Annotated[float | None, typer.Option(help="Share of positives where the model is used.")] = None,
    sheet: Sheet = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """How good a model is: by labels, or without any from two more files of unlabeled rows."""
    from uulearn.cli.evaluate import run_evaluate

    run_evaluate(
        model,
        first,
        second,
        labels=labels,
        positive=positive,
        set_priors=_read_priors(set_priors),
        target_prior=target_prior,
        as_json=as_json,
        sheet=sheet,
    )


@app.command()
def report(
    model: Annotated[Path, typer.Argument(help="Directory written by fit.")],
    out: Annotated[Path | None, typer.Option(help="Page to write. Default: report.html in the directory.")] = None,
) -> None:
    """One page about a model: what it is worth, how it was trained, what to beware of."""
    from uulearn.cli.evaluate import run_report

    run_report(model, out)


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="Directory written by fit, or by UUClassifier.save.")],
    out: Annotated[Path, typer.Option(help="ONNX file to write.")] = Path("model.onnx"),
) -> None:
    """Write a model as ONNX, checked against the original."""
    from uulearn.cli.export import run_export

    run_export(model, out)


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
    set0: Annotated[Path, typer.Argument(metavar="A", help="Rows of set 0: any file that fit takes.")],
    set1: Annotated[Path, typer.Argument(metavar="B", help="Rows of set 1, the same columns.")],
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column to leave out; may be repeated.")
    ] = None,
    richer: Annotated[int, typer.Option(min=0, max=1, help="The set that holds more positives: 0 for A, 1 for B.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds, forest and resamples.")] = 0,
    sheet: Sheet = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Estimate the shares of positives in two unlabeled sets, with intervals, and say when they cannot be known."""
    from uulearn.cli.priors import run_priors

    run_priors(set0, set1, drop=tuple(drop or ()), richer=richer, seed=seed, as_json=as_json, sheet=sheet)


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
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """The paper's tables and figures: does the runs that are missing, keeps each, and sets them beside the paper's.

    It may be stopped at any time; the same command goes on where it was.
    """
    from uulearn.cli.reproduce import run_reproduce
    from uulearn.reproduction.experiments import DATASETS, Request

    request = Request(dataset or DATASETS, trials, epochs, quick, not no_selection)
    run_reproduce(
        target,
        request,
        out=out,
        data_dir=data_dir,
        device=device,
        render_only=render_only,
        pack=pack,
        engine=engine,
        address=address,
        workers=workers,
    )


def _in_one_line(error: Exception) -> str:
    """What is wrong, fit for a terminal: files and names in it may be hostile, and hold anything at any length.

    >>> _in_one_line(ValueError("column '\\x1b[2Jage' is no number;\\nmend it."))
    "column '�[2Jage' is no number; fix it."
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        from uulearn.io.writing import cannot_be_written

        error = OSError(f"{cannot_be_written(error.filename or 'the output', error)}.")
    said = str(error).strip() or f"{type(error).__name__}, without a reason"
    shown = "".join(letter if letter.isprintable() else " " if letter.isspace() else "�" for letter in said)
    return shown if len(shown) <= LONGEST_ERROR else f"{shown[:LONGEST_ERROR]}…"


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
        if "RANK" in os.environ:  # torchrun has started several, which may all have met the same
            from uulearn.cli.several import EXIT_WITH_OTHERS, first_has_ended

            if first_has_ended():
                raise SystemExit(EXIT_WITH_OTHERS) from None
        typer.echo(f"error: {_in_one_line(error)}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        if debug:
            raise
        typer.echo("interrupted", err=True)
        raise SystemExit(130) from None
