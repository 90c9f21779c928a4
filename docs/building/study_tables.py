"""Read the records of studies and format them as Markdown, for the modules under ``docs/building/facts``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

STUDY = Path(__file__).resolve().parents[2] / "results" / "study"
Record = dict[str, Any]


def read_study(name: str) -> tuple[list[Record], str]:
    """Return the results in a file, and one line with the versions and the machine."""
    lines = [json.loads(line) for line in (STUDY / name).read_text(encoding="utf-8").splitlines()]
    environment = next(line for line in lines if "configuration" not in line)
    versions = ", ".join(f"{package} {version}" for package, version in environment["versions"].items())
    return [line for line in lines if "configuration" in line], f"{versions}; {environment['machine']['processor']}"


def table(heads: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; the first ``left`` columns are left-aligned, the others right-aligned."""
    rule = ["---"] * left + ["--:"] * (len(heads) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign; zero has none.

    >>> signed(-1.25), signed(0.04), signed(0.31)
    ('−1.2', '0.0', '+0.3')
    """
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text
