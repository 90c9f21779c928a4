"""Measure the time and memory of ``uulearn predict`` on ten million rows.

    python benchmarks/many_rows.py [--rows 10000000] [--folder DIR] [--out FILE]

The script writes two small files and a large one, fits a small MLP, scores the large file with the command, and stores
the seconds and the peak memory of the command in ``benchmarks/results/many_rows.json``.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from common import FORMAT, RESULTS, machine, versions, write_json

STEP = 500_000


def patients(rng: np.random.Generator, rows: int, ill: float, first: int = 0) -> pa.Table:
    """Return a table with numbers, a category and an identifier; it has no labels."""
    y = rng.random(rows) < ill
    return pa.table(
        {
            "patient": pa.array([f"p{first + row:08d}" for row in range(rows)]),
            "age": rng.normal(50 + 8 * y, 12).round(1),
            "marker": rng.lognormal(1 + 0.8 * y, 0.6).round(4),
            "dose": rng.normal(2 - y).round(3),
            "ward": pa.array(np.array(["north", "south", "east"])[rng.integers(0, 3, rows)]),
        }
    )


def measure(rows: int, folder: Path) -> dict[str, float]:
    """Write the files, fit and score; return the seconds and the peak memory of scoring."""
    rng = np.random.default_rng(0)
    for name, ill in (("a.csv", 0.8), ("b.csv", 0.2)):
        pyarrow.csv.write_csv(patients(rng, 2000, ill), folder / name)
    with pyarrow.csv.CSVWriter(folder / "many.csv", patients(rng, 1, 0.5).schema) as writer:
        for first in range(0, rows, STEP):
            writer.write_table(patients(rng, min(STEP, rows - first), 0.5, first))
    command = [sys.executable, "-m", "uulearn"]
    priors = ["--set-priors", "0.8", "0.2"]
    options = [*priors, "--id", "patient", "--epochs", "5", "--n-estimators", "1", "--no-sensitivity"]
    subprocess.run([*command, "fit", "a.csv", "b.csv", *options, "--out", "model"], cwd=folder, check=True)
    fitted = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    started = time.perf_counter()
    subprocess.run([*command, "predict", "model", "many.csv", "--out", "scored.csv"], cwd=folder, check=True)
    seconds = time.perf_counter() - started
    with (folder / "scored.csv").open("rb") as scored:
        written = sum(1 for _ in scored) - 1
    if written != rows:
        sys.exit(f"expected {rows:,} rows, found {written:,}.")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # the maximum of the two commands
    return {"rows": rows, "seconds": seconds, "most_mib_of_fit": fitted / 1024, "most_mib": most / 1024}


def main() -> None:
    """Measure and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="folder for the files, about 1 GB; default: temporary")
    parser.add_argument("--out", type=Path, default=RESULTS / "many_rows.json")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        found = measure(asked.rows, Path(folder))
    print(found)
    write_json(asked.out, {"format": FORMAT, "versions": versions(), "machine": machine(), "result": found})


if __name__ == "__main__":
    main()
