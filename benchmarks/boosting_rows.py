"""Measure ``uulearn fit --model boosting`` on 2 × 100,000 rows × 40 columns, from two CSV files to a stored model.

    python benchmarks/boosting_rows.py [--rows 100000] [--columns 40] [--repeats 3] [--folder DIR] [--out FILE]

The command runs on two cores (``os.sched_setaffinity``), with all defaults except ``--model``. For each repetition, the
script stores the elapsed seconds, the CPU seconds and the peak memory of the command in
``benchmarks/results/boosting_rows.json``, with the seconds of each stage that the command prints. The bar: the median
elapsed time is below 60 s. The elapsed time is meaningful only if no other program uses the two cores; the load before
each repetition is stored too.
"""

from __future__ import annotations

import argparse
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
import pyarrow as pa
import pyarrow.csv

from common import FORMAT, RESULTS, Bar, Section, write_json

CORES, LIMIT = 2, 60.0
PRIORS = (0.7, 0.3)


def table(rng: np.random.Generator, rows: int, columns: int, prior: float) -> pa.Table:
    """Return rows of numbers: half of the columns differ in their means, two in their radius, the rest are noise."""
    y = rng.random(rows) < prior
    X = rng.normal(size=(rows, columns))
    half = columns // 2
    X[:, :half] += np.where(y, 1, -1)[:, None] * np.random.default_rng(7).normal(scale=0.25, size=half)
    radius, angle = np.where(y, 0.9, 1.6) + 0.3 * rng.normal(size=rows), rng.uniform(0, 2 * np.pi, rows)
    X[:, half], X[:, half + 1] = radius * np.cos(angle), radius * np.sin(angle)
    return pa.table({f"x{number}": X[:, number].round(4) for number in range(columns)})


def fit(folder: Path, repetition: int) -> dict[str, Any]:
    """Run the command once; return its times, its peak memory and what it printed."""
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    load, used = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "uulearn", "fit", "a.csv", "b.csv", "--set-priors", *map(str, PRIORS),
         "--model", "boosting", "--seed", str(repetition), "--out", f"model-{repetition}"],
        cwd=folder, check=True, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )  # fmt: skip
    seconds, now = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 2),
        "most_mib": round(now.ru_maxrss / 1024),
        "load_before": round(load, 2),
        "stages": [line.strip() for line in done.stderr.splitlines() if line.strip()],
        "printed": done.stdout.splitlines(),
    }


def main() -> None:
    """Write the files, run the command several times, and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows per set")
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for the files, about 100 MB; default: temporary")
    parser.add_argument("--out", type=Path, default=RESULTS / "boosting_rows.json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        rng = np.random.default_rng(0)
        for file, prior in zip(("a.csv", "b.csv"), PRIORS, strict=True):
            pyarrow.csv.write_csv(table(rng, asked.rows, asked.columns, prior), Path(name) / file)
        found = [fit(Path(name), repetition) for repetition in range(asked.repeats)]
    median = statistics.median(one["seconds"] for one in found)
    bar = Bar(f"seconds of uulearn fit --model boosting on {CORES} cores", median, LIMIT, at_least=False)
    configuration = {"rows": asked.rows, "columns": asked.columns, "set_priors": PRIORS, "cores": CORES}
    section = Section(configuration, {"repetitions": found}, [bar])
    print(*([one["seconds"], one["cpu_seconds"], one["most_mib"], one["load_before"]] for one in found), bar, sep="\n")
    write_json(asked.out, {"format": FORMAT, **section.as_json()})


if __name__ == "__main__":
    main()
