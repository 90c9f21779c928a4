"""Count how often a fit switches between packages, a measure of how much a reader has to jump between them.

The functions of uulearn that a fit calls are listed in the order of their first call. Each pair of neighbors in that
list that belong to different packages counts as one switch. Run it as

    python benchmarks/trace_packages.py            # prints the counts for UUClassifier.fit and `uulearn fit`
    python benchmarks/trace_packages.py --list     # prints the functions too
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import uulearn

ROOT = Path(uulearn.__file__).parent


@contextlib.contextmanager
def record_first_calls() -> Iterator[list[tuple[str, str]]]:
    """Collect (package, function) of every function of uulearn at its first call."""
    calls: list[tuple[str, str]] = []
    seen: set[Any] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in seen:
            return
        seen.add(frame.f_code)
        path = Path(frame.f_code.co_filename)
        # Module bodies and comprehensions are not functions that a reader follows.
        if not path.is_relative_to(ROOT) or frame.f_code.co_name.startswith("<"):
            return
        parts = path.relative_to(ROOT).with_suffix("").parts
        calls.append((parts[0], f"{'.'.join(parts)}.{frame.f_code.co_qualname}"))

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def count_switches(calls: list[tuple[str, str]]) -> int:
    """Return the number of adjacent entries that belong to different packages.

    >>> count_switches([("cli", "f"), ("app", "g"), ("app", "h"), ("cli", "i")])
    2
    """
    packages = [package for package, _ in calls]
    return sum(first != second for first, second in itertools.pairwise(packages))


def draw_sets(rows: int = 300) -> tuple[Any, Any]:
    """Return two sets of Gaussian rows with class priors 0.8 and 0.2."""
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=(rows, 3)) + 2 * (rng.random(rows) < prior)[:, None] for prior in (0.8, 0.2))  # type: ignore[return-value]


CLASSIFIER = uulearn.UUClassifier((0.8, 0.2), epochs=3, progress=False, random_state=0)
SETS = draw_sets()


def fit_estimator() -> None:
    """Fit the default classifier on arrays, which are created before the trace starts."""
    CLASSIFIER.fit_sets(*SETS)


def fit_command() -> None:
    """Run `uulearn fit` on two CSV files with a number, a category and a missing value."""
    from uulearn.cli import main

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("a.csv", "b.csv")]
        for path, rows in zip(paths, draw_sets(), strict=True):
            lines = ["x,y,z,kind", *(f"{x:.4f},{y:.4f},{z:.4f},{'ab'[i % 2]}" for i, (x, y, z) in enumerate(rows))]
            path.write_text("\n".join(lines) + "\n")
        command = ["uulearn", "fit", *map(str, paths), "--set-priors", "0.8", "0.2", "--epochs", "3", "--sensitivity"]
        sys.argv = [*command, "--out", str(Path(folder) / "model")]
        silent = io.StringIO()
        with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent), contextlib.suppress(SystemExit):
            main()


def main() -> None:
    """Trace both fits after a warm-up run that executes the imports, and print the counts."""
    listed = "--list" in sys.argv[1:]
    for name, fit in {"UUClassifier.fit": fit_estimator, "uulearn fit": fit_command}.items():
        work: Callable[[], None] = fit
        work()
        with record_first_calls() as calls:
            work()
        print(f"{name}: {count_switches(calls)} switches, {len(calls)} functions")
        if listed:
            print("\n".join(f"  {function}" for _, function in calls))


if __name__ == "__main__":
    main()
