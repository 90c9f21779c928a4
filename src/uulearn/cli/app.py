"""The command-line interface; errors are reported in one sentence, and ``--debug`` adds the traceback.

Each command is declared in its own module, which imports the library only when the command runs, so ``--help`` is fast.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
import typer.core

from uulearn.cli import is_first_process
from uulearn.cli.demo import demo
from uulearn.cli.doctor import doctor
from uulearn.cli.evaluate import evaluate
from uulearn.cli.export import export
from uulearn.cli.fit import fit
from uulearn.cli.options import check_not_percentages, is_number
from uulearn.cli.plan import plan
from uulearn.cli.predict import predict
from uulearn.cli.priors import priors
from uulearn.cli.report import report
from uulearn.cli.reproduce import reproduce

COMMANDS_AND_EXAMPLES = (
    (demo, "uulearn demo --out uulearn-demo"),
    (fit, "uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --target-prior 0.5 --out model"),
    (predict, "uulearn predict model new_patients.csv --out scored.csv"),
    (evaluate, "uulearn evaluate model more_a.csv more_b.csv"),
    (report, "uulearn report model"),
    (export, "uulearn export model --out model.onnx"),
    (plan, "uulearn plan --set-priors 0.8 0.2 --half-width 0.02"),
    (priors, "uulearn priors clinic_a.csv clinic_b.csv"),
    (reproduce, "uulearn reproduce table3 --dataset mnist --trials 5"),
    (doctor, "uulearn doctor"),
)
"""The commands in the order of ``--help``, each with an example for its help text."""
PRIORS_OR_AUTO = ("fit", "evaluate")
"""Commands whose ``--set-priors`` accepts two numbers or one word; Click does not support this."""
ONE_FRACTION = ("--target-prior", "--accuracy", "--half-width", "--delta", "--hold-out")
N_FRACTIONS = {"--set-priors": 2} | dict.fromkeys(ONE_FRACTION, 1)
"""Options that take fractions, and the number of their values."""
TWO_SETS = "The command line takes two sets; for more sets, use UUClassifier in Python (docs/more-sets.md)."
USAGE_ERROR: Any = typer.BadParameter.__base__
"""Base class of errors in the arguments, which Typer does not export."""
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 plus the number of SIGINT, as shells do
EXIT_BROKEN_PIPE = 141  # 128 plus the number of SIGPIPE
EXPECTED_ERRORS = (
    ValueError, TypeError, LookupError, OSError, ArithmeticError, ImportError, RuntimeError, MemoryError,
)  # fmt: skip
LONGEST_ERROR = 2000
"""Maximum length of an error message in characters; longer messages, which may quote a whole file, are truncated."""


class CommandGroup(typer.core.TyperGroup):
    """Command group that accepts ``--set-priors 0.8 0.2`` as one value and reports interrupts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject fractions in percent, and join the two numbers after ``--set-priors``."""
        names = tuple(N_FRACTIONS)
        args = [word for arg in args for word in (arg.split("=", 1) if arg.startswith(names) else [arg])]
        for place, word in enumerate(args, 1):
            check_not_percentages(word, args[place : place + N_FRACTIONS.get(word, 0)])
        command = next((word for word in args if not word.startswith("-")), None)
        if command in PRIORS_OR_AUTO and "--set-priors" in args:
            place = args.index("--set-priors") + 1
            if len(args) > place + 1 and all(map(is_number, args[place : place + 2])):
                args = [*args[:place], " ".join(args[place : place + 2]), *args[place + 2 :]]
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse the command line."""
        with _print_once():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _print_once():
            return super().invoke(ctx)


class Command(typer.core.TyperCommand):
    """Command whose help shows arguments without their Python type: ``A`` instead of ``A <str>``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; errors about missing arguments show an example, and those about a third set a page."""
        try:
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            if isinstance(error, typer.BadParameter) and not error.message:  # Click's error about a missing argument
                error.message = f"{self.epilog}"
            elif self.name == "fit" and "unexpected extra argument" in error.message:
                error.message += f". {TWO_SETS}"
            raise

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; arguments are shown without their Python type."""
        parameters = super().get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                vars(parameter)["display_type"] = lambda ctx: ""
        return parameters


@contextlib.contextmanager
def _print_once() -> Iterator[None]:
    """Print "interrupted" with the message of the interrupt; under torchrun, only the first process prints."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if is_first_process():
            typer.echo(": ".join(["interrupted", *map(str, interrupt.args)]), err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except USAGE_ERROR:
        if is_first_process():
            raise
        from uulearn.cli.distributed import first_process_ended

        first_process_ended()  # all processes have the same arguments, so the first one prints the same error
        raise typer.Exit(EXIT_BAD_INPUT) from None


app = typer.Typer(
    cls=CommandGroup,
    name="uulearn",
    help="Train a binary classifier from two unlabeled datasets with different class priors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help text, without importing rich
)
for _command, _example in COMMANDS_AND_EXAMPLES:
    app.command(cls=Command, epilog=f"Example: {_example}")(_command)


def _print_version(requested: bool) -> None:
    if requested:
        from uulearn._version import __version__

        typer.echo(f"uulearn {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback if an error occurs.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Declare the global options, which precede the command."""


def main() -> None:
    """Run the command line; expected errors print one sentence to standard error and set exit code 2."""
    debug = "--debug" in sys.argv
    try:
        app()
    except BrokenPipeError:
        # The reader of the output, such as `head`, has exited. This is not an error, but Python would report one.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_BROKEN_PIPE) from None
    except EXPECTED_ERRORS as error:
        if debug:
            raise
        if not is_first_process():  # all processes may have failed for the same reason
            from uulearn.cli.distributed import EXIT_WITH_OTHERS, first_process_ended

            if first_process_ended():
                raise SystemExit(EXIT_WITH_OTHERS) from None
        typer.echo(f"error: {format_error(error)}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None


def format_error(error: Exception) -> str:
    r"""Return an error message on one line, without control characters from quoted file contents.

    >>> format_error(ValueError("column '\x1b[2Jage' is not a number;\nfix it."))
    "column '�[2Jage' is not a number; fix it."
    """
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        from uulearn.io.writing import cannot_be_written

        error = OSError(f"{cannot_be_written(error.filename or 'the output', error)}.")
    message = str(error).strip() or f"{type(error).__name__} without a message"
    line = "".join(letter if letter.isprintable() else " " if letter.isspace() else "�" for letter in message)
    return line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]}…"
