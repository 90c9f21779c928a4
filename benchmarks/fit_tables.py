"""Measure the default ``uulearn fit`` on two small CSV files with this checkout and with another one, in turn.

    python benchmarks/fit_tables.py --old CHECKOUT [--rounds 3]

``CHECKOUT`` is a checkout of an earlier commit (f28e77d for the stored record). Both run with all defaults, in new
processes, including the start of Python and the report. Both are compiled to bytecode first, as pip does. Three pairs
of files are used: 2 × 1,000 rows × 40 columns of numbers, 2 × 120 rows × 10 columns, and 2 × 1,500 rows with
categories, dates and missing values (only this checkout). The bars: five times less elapsed time and CPU time than
before for 1,000 rows, below 8 s for 120 rows, and below 20 s for the mixed columns. CPU time falls less than elapsed
time, because boosting and the MLP use one core each. Elapsed times are meaningful only if no other program uses the
cores; the load before each run is stored too.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv

from boosting_rows import PRIORS, table
from common import FORMAT, RESULTS, Bar, Section, write_json
from encode_csv import write_set

NUMBERS, SMALL, MIXED = "numbers", "small", "mixed"
SIZES = {NUMBERS: (1000, 40), SMALL: (120, 10)}
MIXED_ROWS = 1500
HERE = Path(__file__).resolve().parents[1]


def write_files(folder: Path) -> None:
    """Write the three pairs of files."""
    rng = np.random.default_rng(0)
    for place, (name, prior) in enumerate(zip("ab", PRIORS, strict=True)):
        for kind, (rows, columns) in SIZES.items():
            pyarrow.csv.write_csv(table(rng, rows, columns, prior), folder / f"{kind}_{name}.csv")
        write_set(folder / f"{MIXED}_{name}.csv", MIXED_ROWS, prior, place)


def fit(source: Path, folder: Path, kind: str, out: str) -> dict[str, Any]:
    """Run the command once with the given ``src`` on the path."""
    load, used = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "uulearn", "fit", f"{kind}_a.csv", f"{kind}_b.csv", "--set-priors", *map(str, PRIORS),
         "--out", out],
        cwd=folder, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(source)},
    )  # fmt: skip
    seconds, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = done.stdout.splitlines()
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 2),
        "load_before": round(load, 2),
        "accuracy": next(line for line in printed if line.startswith("accuracy")),
        "trained": next((line for line in printed if line.startswith("trained")), None),
    }


def main() -> None:
    """Run both checkouts in turn, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="checkout of an earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "fit_tables.json")
    asked = parser.parse_args()
    commit = ["git", "-C", str(asked.old), "rev-parse", "--short", "HEAD"]
    old = subprocess.run(commit, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    trees = {"old": asked.old / "src", "new": HERE / "src"}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {kind: {} for kind in (*SIZES, MIXED)}
    for source in trees.values():
        compileall.compile_dir(source, quiet=1)
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        for number in range(asked.rounds):
            for kind, found in runs.items():
                for tree, source in list(trees.items())[:: 1 if number % 2 == 0 else -1]:
                    if kind == MIXED and tree == "old":
                        continue
                    one = fit(source, Path(name), kind, f"{kind}-{tree}-{number}")
                    found.setdefault(tree, []).append(one)
                    print(kind, tree, one, flush=True)
    medians = {
        kind: {
            tree: {key: statistics.median(one[key] for one in each) for key in ("seconds", "cpu_seconds")}
            for tree, each in found.items()
        }
        for kind, found in runs.items()
    }
    times = {key: medians[NUMBERS]["old"][key] / medians[NUMBERS]["new"][key] for key in ("seconds", "cpu_seconds")}
    bars = [
        Bar("2 × 1,000 rows × 40 columns, elapsed time before / now", times["seconds"], 5.0, at_least=True),
        Bar("2 × 1,000 rows × 40 columns, CPU time before / now", times["cpu_seconds"], 5.0, at_least=True),
        Bar("2 × 120 rows, elapsed seconds with start-up", medians[SMALL]["new"]["seconds"], 8.0, at_least=False),
        Bar(
            "2 × 1,500 rows with mixed columns, elapsed seconds", medians[MIXED]["new"]["seconds"], 20.0, at_least=False
        ),
    ]
    configuration = {"sizes": SIZES, "mixed_rows": MIXED_ROWS, "set_priors": PRIORS, "rounds": asked.rounds,
                     "old_commit": old}  # fmt: skip
    section = Section(configuration, {"runs": runs, "medians": medians}, bars)
    write_json(asked.out, {"format": FORMAT, **section.as_json()})
    for bar in bars:
        print(bar)


if __name__ == "__main__":
    main()
