"""Run `uulearn` commands in this process on two small files, for the tests of hardening."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import NamedTuple

import numpy as np

PRIORS = ("--set-priors", "0.8", "0.2")
SMALL = (*PRIORS, "--epochs", "2", "--n-estimators", "1", "--no-sensitivity", "--model", "linear")
PROGRESS = re.compile(r" *\d+\.\d s  .*|.* contains a model that this fit will replace; .*")


class Ended(NamedTuple):
    """The result of a command; ``said`` are its lines on standard error without progress and notes."""

    code: int
    out: str
    said: list[str]


def run(*arguments, into=None):
    """Run a command; any exception other than SystemExit fails the test."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["uulearn", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(into or out), contextlib.redirect_stderr(err):
            code = ended()
    finally:
        sys.argv = before
    return Ended(code, out.getvalue(), [line for line in err.getvalue().splitlines() if not PROGRESS.fullmatch(line)])


def ended():
    """Return the exit code of the command line."""
    from uulearn.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code or 0
    raise AssertionError("the command line ends in SystemExit")


def assert_one_sentence(result, *parts):
    """Check that the command failed with one sentence on standard error that has these parts."""
    assert (result.code, result.out) == (2, ""), result
    (sentence,) = result.said
    assert sentence.startswith("error: ")
    assert sentence.endswith(".")
    for part in parts:
        assert part in sentence


def draw(n, share, seed):
    """Draw rows of two numbers that both depend on the class."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    return np.round(rng.normal(size=(n, 2)) + 2 * y[:, None], 3)


def write_files(folder, n=60):
    """Write a.csv, b.csv and new.csv with numbers."""
    for name, share, seed in (("a", 0.8, 0), ("b", 0.2, 1), ("new", 0.5, 2)):
        text = "\n".join(",".join(map(str, row)) for row in draw(n, share, seed).tolist())
        (folder / f"{name}.csv").write_text(f"age,dose\n{text}\n")
    return folder


def contents(folder):
    """Return all files below a folder by name, including hidden ones."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def weights_of(model):
    """Return the name of the weights file, which contains a hash of its content."""
    (path,) = model.glob("weights-*")
    return path.name
