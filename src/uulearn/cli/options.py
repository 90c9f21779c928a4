"""Helper functions for declaring options, and options shared by several commands."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uulearn.estimator.new_rows import RowCounter
    from uulearn.tabular.unreadable import UnreadableCounter

PRIORS = "θ θ′"
"""Placeholder for the class priors of the two sets."""
LEAST_PERCENTAGE = 2
"""Minimum number without a percent sign that is taken for a percentage if a fraction was expected."""


def option(metavar: str, text: str, *names: str, **rest: Any) -> Any:
    """Declare an option with a placeholder for its value and a help text."""
    return typer.Option(*names, metavar=metavar, help=text, **rest)


def flag(text: str, *names: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(*names, help=text)


def argument(metavar: str, text: str) -> Any:
    """Declare a positional argument with a placeholder and a help text."""
    return typer.Argument(metavar=metavar, help=text)


Engine = Annotated[str, option("NAME", "Where to run: local, or ray for a Ray cluster.")]
ADDRESS_HELP = "With --engine ray: auto, or the address of the head node. Default: use only this machine."
Address = Annotated[str | None, option("HOST", ADDRESS_HELP)]
RayWorkers = Annotated[int | None, option("N", "With --engine ray: number of parallel processes.", "--workers", min=1)]
AsJson = Annotated[bool, flag("Print JSON, for scripts.", "--json")]
Drop = Annotated[list[str] | None, option("COLUMN", "Column to leave out; repeat the option for several columns.")]
NoCheck = Annotated[bool, flag("Do not compare the rows with the rows that the model was trained on.", "--no-check")]
Sheet = Annotated[str | None, option("NAME", "Sheet of .xlsx files. Default: the first sheet.")]


NAMES = {
    "model": ("auto", "mlp", "linear", "boosting", "resnet32", "allconvnet"),
    "method": ("abs", "leaky_relu", "relu", "unbiased", "biased", "surrogate"),
    "loss": ("sigmoid", "logistic", "ramp", "double_hinge", "squared"),
}
"""Option values, repeated here because importing the library takes seconds; a test compares the two lists."""
TORCHVISION = "torchvision:"
"""Prefix of the names of torchvision's networks, repeated here for the same reason."""


def name_option(text: str) -> Any:
    """Declare an option whose value is one of `NAMES`."""
    return option("NAME", text, callback=_check_name)


def _check_name(param: typer.CallbackParam, value: str | None) -> str | None:
    names = NAMES[str(param.name)]
    if param.name == "model":
        names = (*names, f"{TORCHVISION}NAME")
        if value is not None and value.startswith(TORCHVISION):
            return value
    if value is not None and value not in names:
        raise ValueError(f"--{param.name} must be {', '.join(names[:-1])} or {names[-1]}, got {value!r}.")
    return value


def parse_set_priors(text: str | None) -> tuple[float, float] | str | None:
    """Parse two different class priors from ``0.8 0.2`` or ``0.8,0.2``; return ``auto`` and None unchanged."""
    if text is None or text == "auto":
        return text
    try:
        first, second = map(float, text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--set-priors takes auto or two class priors such as 0.8 0.2, got {text!r}.") from None
    if first == second or not (0 <= first <= 1 and 0 <= second <= 1):
        raise ValueError(f"--set-priors takes two different fractions between 0 and 1, got {first:g} and {second:g}.")
    return first, second


def uses_ray(engine: str, address: str | None, workers: int | None) -> bool:
    """Return whether the command runs on Ray; raise ValueError if the options conflict or no cluster answers.

    >>> uses_ray("ray", None, 2), uses_ray("local", None, None)
    (True, False)
    """
    if engine not in ("local", "ray"):
        raise ValueError(f"--engine must be local or ray, got {engine!r}.")
    for option, value in (("--address", address), ("--workers", workers)):
        if engine != "ray" and value is not None:
            raise ValueError(f"{option} {value} needs --engine ray; add --engine ray, or remove {option}.")
    if engine != "ray":
        return False
    from uulearn.engines.ray_cluster import check_address

    check_address(address)  # before torch is imported, to report a wrong address quickly
    from uulearn.training.workers import started_by_torchrun

    if started_by_torchrun():
        raise ValueError("--engine ray starts its own processes; remove torchrun, or remove --engine.")
    return True


def check_not_percentages(name: str, words: Sequence[str]) -> None:
    """Raise an error that shows the correct fractions if priors are given in percent, such as ``80 20`` or ``80%``.

    A number above 1 but below `LEAST_PERCENTAGE` is a typing error and not a percentage.

    Examples
    --------
    >>> check_not_percentages("--target-prior", ["0.8"])
    >>> check_not_percentages("--set-priors", ["80%", "20%"])
    Traceback (most recent call last):
    ...
    ValueError: --set-priors takes fractions between 0 and 1, not percentages; write --set-priors 0.8 0.2.
    >>> check_not_percentages("--set-priors", ["0.8", "1.2"])
    Traceback (most recent call last):
    ...
    ValueError: --set-priors takes fractions between 0 and 1, got 1.2.
    """
    values = [word for part in words for word in part.replace(",", " ").split()]
    plain = [word.removesuffix("%") for word in values]
    if all(map(is_number, plain)) and any(word.endswith("%") or 1 < float(word) <= 100 for word in values):
        if wrong := [word for word in values if not word.endswith("%") and 1 < float(word) < LEAST_PERCENTAGE]:
            raise ValueError(f"{name} takes fractions between 0 and 1, got {' and '.join(wrong)}.")
        percent = [word.endswith("%") or float(word) > 1 for word in values]
        fractions = [float(word) / 100 if own else float(word) for word, own in zip(plain, percent, strict=True)]
        typed = " ".join([name, *(f"{fraction:g}" for fraction in fractions)])
        raise ValueError(f"{name} takes fractions between 0 and 1, not percentages; write {typed}.")


def print_unreadable(unreadable: UnreadableCounter, rows: str) -> None:
    """Print a warning on standard error if cells of a file were treated as missing values."""
    from uulearn.io.formats import STANDARD, printable

    if message := unreadable.describe("standard input" if rows == STANDARD else rows):
        typer.echo(f"warning: {printable(message)}", err=True)


def print_check(counter: RowCounter | None, rows: str) -> None:
    """Print a warning on standard error if the counted rows of a file are not a mixture of the two sets."""
    if counter is None:
        return
    from uulearn.app.scoring import report_check
    from uulearn.io.formats import STANDARD, printable

    name = "standard input" if rows == STANDARD else rows
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        note = report_check(counter.check(), name)
    lines = [f"warning: {warning.message}" for warning in raised] + ([] if note is None else [f"note: {note}"])
    for line in lines:
        typer.echo(printable(line), err=True)


def is_number(word: str) -> bool:
    """Return whether a word is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
