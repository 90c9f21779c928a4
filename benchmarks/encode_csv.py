"""Read and encode 1 GB of CSV (two files) with this checkout and with another one, in alternating processes.

    python benchmarks/encode_csv.py --old CHECKOUT [--rounds 3] [--rows 4600000] [--folder DIR]

``CHECKOUT`` is a checkout of an earlier commit (66a7f23 for the stored record). Each process runs the steps of
``uulearn fit`` before training: determine the columns of both files, fit the encoder, and encode all rows. The record
contains the wall time, CPU time and peak memory of every run: resident memory, and its private part without mapped
files. The bars are half the CPU time, and at most 1 GiB of resident memory. The files have 13 columns: numbers with and
without gaps, categories, booleans, dates and text. They are written to ``--folder`` (a temporary folder by default) and
used again if present.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SETS = (("a.csv", 0.8, 1), ("b.csv", 0.2, 2))  # name, class prior, seed
OUT = Path(__file__).resolve().parent / "results" / "encode_csv.json"
CHUNK = 100_000  # rows generated per chunk
WORDS = ("pain", "fever", "cough, dry", "rash", '"acute"', "nausea", "fatigue", "dizzy")
CITIES = ("Basel", "Zürich", "Genève", "Bern", "Lugano", "St. Gallen")


def write_set(path: Path, n_rows: int, prior: float, seed: int) -> None:
    """Write one set as CSV."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, n_rows, CHUNK):
            n = min(CHUNK, n_rows - start)
            positive = rng.random(n) < prior
            columns: dict[str, Any] = {
                f"lab_{i}": np.round(rng.normal(0, 1 + i, n) + 0.5 * positive, 4) for i in range(6)
            }
            columns["income"] = np.round(np.exp(rng.normal(10, 1, n)), 2)
            columns["age"] = rng.integers(18, 95, n)
            columns["visits"] = rng.poisson(3 + positive, n)
            columns["city"] = rng.choice(np.array(CITIES), n)
            columns["smokes"] = rng.choice(np.array(["yes", "no"]), n)
            columns["admitted"] = (np.datetime64("2015-01-01") + rng.integers(0, 3000, n)).astype(str)
            columns["note"] = [" ".join(words) for words in rng.choice(np.array(WORDS), (n, 3))]
            frame = pd.DataFrame(columns)
            frame.loc[rng.random(n) < 0.05, "lab_1"] = np.nan
            frame.loc[rng.random(n) < 0.1, "city"] = None
            frame.to_csv(file, index=False, header=start == 0)


def encode(folder: Path) -> dict[str, Any]:
    """Encode both files in this process, with the uulearn package that is on the path."""
    name = "uulearn.tabular.matrices" if find_spec("uulearn.tabular") else "uulearn.tables.matrices"  # its former name
    prepare = importlib.import_module(name).prepare
    peak = {"resident": 0, "private": 0}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            status = Path("/proc/self/status").read_text()
            for name, field in (("resident", "VmRSS"), ("private", "RssAnon")):
                found = re.search(rf"{field}:\s+(\d+)", status)
                peak[name] = max(peak[name], int(found[1]) if found else 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.perf_counter(), _cpu()
    prepared = prepare(folder / SETS[0][0], folder / SETS[1][0], (SETS[0][1], SETS[1][1]))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        matrices = prepared.matrices(Path(place))
        found: dict[str, Any] = {"wall_s": time.perf_counter() - wall, "cpu_s": _cpu() - cpu}
        stop.set()
        watcher.join()
        found["shapes"] = [list(X.shape) for X in matrices]
        found["checksum"] = [float(X[::1000].sum(dtype=np.float64)) for X in matrices]
    return found | {f"peak_{name}_mib": kib / 1024 for name, kib in peak.items()}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(source: Path, folder: Path) -> dict[str, Any]:
    """Run `encode` in a new process with another ``src`` on the path."""
    environment = os.environ | {"PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--encode", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(old: Path, folder: Path, rounds: int, n_rows: int) -> dict[str, Any]:
    """Run both checkouts in turn and compare the medians."""
    for name, prior, seed in SETS:
        if not (folder / name).exists():
            write_set(folder / name, n_rows, prior, seed)
    trees = {"old": old / "src", "new": Path(__file__).resolve().parents[1] / "src"}
    runs: dict[str, list[dict[str, Any]]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree, source in list(trees.items())[:: 1 if number % 2 == 0 else -1]:
            runs[tree].append(run(source, folder) | {"load_before": os.getloadavg()[0]})
            print(tree, runs[tree][-1], flush=True)
    medians = {
        tree: {name: float(np.median([own[name] for own in each])) for name in each[0] if name.endswith(("_s", "_mib"))}
        for tree, each in runs.items()
    }
    return {
        "configuration": {
            "bytes": [(folder / name).stat().st_size for name, _, _ in SETS],
            "rows": n_rows,
            "rounds": rounds,
            "old_commit": _commit(old),
        },
        "runs": runs,
        "medians": medians,
        "speedup_cpu": medians["old"]["cpu_s"] / medians["new"]["cpu_s"],
        "speedup_wall": medians["old"]["wall_s"] / medians["new"]["wall_s"],
        "same_numbers": runs["old"][0]["checksum"] == runs["new"][0]["checksum"],
    }


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip() or "unknown"


def main() -> None:
    """Measure and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="checkout of an earlier commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4_600_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--encode", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.encode is not None:
        print(json.dumps(encode(asked.encode)))
        return
    if asked.old is None:
        parser.error("--old CHECKOUT is required")
    from common import FORMAT, machine, versions, write_json

    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = compare(asked.old, folder, asked.rounds, asked.rows)
    passed = found["speedup_cpu"] >= 2 and found["medians"]["new"]["peak_resident_mib"] <= 1024
    print(f"{found['speedup_cpu']:.2f} times as fast by CPU time, {found['speedup_wall']:.2f} by wall time")
    write_json(asked.out, found | {"passed": passed, "versions": versions(), "machine": machine(), "format": FORMAT})


if __name__ == "__main__":
    main()
