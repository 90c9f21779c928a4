"""Areas, cases and trials: what a module of the suite provides, and what one execution of a case has at hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hostile.commands import Ended

SUSPICIOUS_ERRORS = {
    "IndexError", "KeyError", "LookupError", "TypeError", "AttributeError", "AssertionError", "RecursionError",
    "ZeroDivisionError", "OverflowError", "FloatingPointError", "UnboundLocalError", "MemoryError", "ArrowInvalid",
    "ImportError", "ModuleNotFoundError", "NotImplementedError", "UnicodeDecodeError", "UnicodeEncodeError",
}  # fmt: skip
"""Exceptions that say nothing to a user: the command line prints their message, but nobody wrote it as a sentence."""
PYTHON_WARNING = re.compile(r"\.py:\d+: \w*Warning: |Traceback ")
NOTE = re.compile(r"warning: |note: |Restarting |.* contains a model that this fit will replace;")
"""Lines that a command may print before it is refused."""
SENTENCE = re.compile(r"error: .{15,}[.…]", re.DOTALL)


class Failed(Exception):
    """A check of the suite failed; the message says which."""


@dataclass
class Trial:
    """One execution of a case: an empty folder, the prepared files of the area, random numbers and counts."""

    folder: Path
    shared: Path
    rng: np.random.Generator
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, condition: object, message: str) -> None:
        """Fail the case with this message unless the condition holds."""
        if not condition:
            raise Failed(message)

    def refused(self, ended: Ended, *parts: str) -> None:
        """Check that a command was refused with one sentence (which has these parts), and count it."""
        self.check(ended.code == 2, f"expected exit code 2: {ended.brief()}")
        self.check(len(ended.said) >= 1, f"refused without a sentence: {ended.brief()}")
        sentence = ended.said[-1]
        self.check(SENTENCE.fullmatch(sentence) and sentence.isprintable(), f"not one printable sentence: {sentence!r}")
        self.check(
            all(NOTE.match(line) for line in ended.said[:-1]),
            f"more than one sentence: {ended.brief()}",
        )
        self.check(ended.error not in SUSPICIOUS_ERRORS, f"{ended.error} reached the user: {sentence!r}")
        for part in parts:
            self.check(part in sentence, f"{part!r} is not in {sentence!r}")
        self.counts["refused"] += 1

    def right(self, ended: Ended | None = None) -> None:
        """Count a command that gave the right result, and check that it printed no warning of Python."""
        if ended is not None:
            odd = [line for line in ended.said if PYTHON_WARNING.search(line) or not line.isprintable()]
            self.check(not odd, f"standard error contains {odd[:1]}")
        self.counts["right"] += 1

    def choose(self, *options: str) -> str:
        """Return one of the options at random."""
        return options[int(self.rng.integers(len(options)))]


@dataclass(frozen=True)
class Case:
    """A named disturbance."""

    name: str
    run: Callable[[Trial], None]


@dataclass(frozen=True)
class Area:
    """A subject of the suite. ``cases`` receives the fraction of the full suite to run."""

    name: str
    title: str
    prepare: Callable[[Path], None]
    cases: Callable[[float], Sequence[Case]]
    limit: float = 120.0
    """Seconds after which a case counts as hanging."""


def scaled(number: int, scale: float) -> int:
    """Return a number of cases, at least one."""
    return max(1, round(number * scale))
