"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Engine = Annotated[str, typer.Option(metavar="NAME", help="local, or ray to run on a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST", help="With --engine ray: auto, or the address of the head node. Default: only this machine."
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="With --engine ray: number of processes that work at once."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out. Repeat it for several columns.")
]
Sheet = Annotated[str | None, typer.Option(metavar="NAME", help="Sheet of .xlsx files. Default: the first sheet.")]
PRIORS = "θ θ′"
"""Placeholder for the class priors of the two sets."""


def parse_set_priors(text: str | None) -> tuple[float, float] | str | None:
    """Two class priors from ``0.8 0.2`` or ``0.8,0.2``; ``auto`` and None are returned unchanged."""
    if text is None or text == "auto":
        return text
    try:
        first, second = map(float, text.replace(",", " ").split())
    except ValueError:
        raise ValueError(f"--set-priors takes two class priors such as 0.8 0.2, or auto, got {text!r}.") from None
    return first, second


def is_number(word: str) -> bool:
    """Whether a word can be read as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
