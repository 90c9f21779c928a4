"""Training from Parquet folders: does it lose accuracy against memory, and does it hold a cap on memory?

    python benchmarks/larger_than_memory.py accuracy [--data-dir DIR] [--seeds 3]
    python benchmarks/larger_than_memory.py size [--gigabytes 20] [--memory-gib 2] [--folder DIR]

``accuracy`` trains on Fashion-MNIST at (0.7, 0.3) with sets of 24,000 and 6,000 rows, from memory and from folders
whose rows are sorted by class, the worst order there can be, in row groups of 250 rows, with windows of several sizes.
``size`` writes a pair of sets of very unequal size, 100 columns of numbers, and trains a linear model for one epoch in
a process whose private memory may not grow beyond the cap (RLIMIT_DATA). Both store what they find in
``benchmarks/results/larger_than_memory.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.stats import norm

from common import FORMAT, RESULTS, machine, versions, write_json
from uulearn import UUClassifier
from uulearn.exceptions import PoorMixingWarning
from uulearn.streaming import ParquetSet

OUT = RESULTS / "larger_than_memory.json"
COLUMNS, GROUP, FILE = 100, 20_000, 1_000_000
PRIORS = (0.7, 0.3)
SHIFT = 0.2
"""Of each of the first ten columns where a row is positive."""


# ----------------------------------------------------------------------------------------------------------- accuracy


def write_sorted(folder: Path, X: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Path:
    """A set as one file, negatives first."""
    folder.mkdir()
    rows = X[np.argsort(labels, kind="stable")]
    table = pa.table(list(rows.T.copy()), names=[f"p{i}" for i in range(rows.shape[1])])
    pq.write_table(table, folder / "rows.parquet", row_group_size=250)
    return folder


def accuracy(data_dir: Path | None, seeds: int) -> dict[str, Any]:
    """Test accuracy from memory and from streams, by seed."""
    from uulearn.datasets import load_task, make_sets

    task = load_task("fashion_mnist", data_dir=data_dir).flat()
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        drawn = make_sets(task.X_train, task.y_train, PRIORS, (24_000, 6_000), random_state=seed)
        with tempfile.TemporaryDirectory() as place:
            labels = [task.y_train[index] for index in drawn.indices]
            folders = [write_sorted(Path(place) / str(i), X, labels[i]) for i, X in enumerate(drawn)]
            ways: dict[str, tuple[Any, Any]] = {"memory": (drawn.X0, drawn.X1)}
            for mib in (4, 16, 64):
                first, second = (ParquetSet(folder, buffer_bytes=mib * 2**20) for folder in folders)
                ways[f"window of {mib} MiB"] = first, second
            for name, sets in ways.items():
                clf = UUClassifier(
                    PRIORS, task.prior, epochs=15, members=1, validation_fraction=0.1, patience=None,
                    input_scale=1 / 255, random_state=seed, progress=False,
                )  # fmt: skip
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PoorMixingWarning)
                    clf.fit_sets(*sets)
                found.setdefault(name, []).append(float((clf.predict(task.X_test) == task.y_test).mean()))
                print(f"seed {seed}, {name}: {100 * found[name][-1]:.2f}%", flush=True)
    return {"dataset": "fashion_mnist", "set_priors": PRIORS, "sizes": [24_000, 6_000], "epochs": 15, "found": found}


# --------------------------------------------------------------------------------------------------------------- size


def rows_of(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows and their classes."""
    labels = rng.random(n) < share
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    X[labels, :10] += SHIFT * np.sqrt(10)
    return X, labels


def write_sets(folder: Path, gigabytes: float) -> list[int]:
    """Two sets, four fifths of the rows in the first."""
    total = int(gigabytes * 1e9 / (4 * COLUMNS))
    sizes = [total * 4 // 5, total // 5]
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pa.schema([(name, pa.float32()) for name in names])
    for which, (size, share) in enumerate(zip(sizes, PRIORS, strict=True)):
        place = folder / str(which)
        place.mkdir(parents=True)
        for number, start in enumerate(range(0, size, FILE)):
            rng = np.random.default_rng([which, number])
            with pq.ParquetWriter(
                place / f"{number:04d}.parquet", schema, compression="none", use_dictionary=False
            ) as file:
                for first in range(start, min(start + FILE, size), GROUP):
                    X, _ = rows_of(rng, min(GROUP, size - first, start + FILE - first), share)
                    file.write_table(pa.table(list(X.T.copy()), schema=schema))
    return sizes


def train_capped(folder: Path, memory_gib: float) -> dict[str, Any]:
    """One epoch in this process, under the cap."""
    torch.set_num_threads(2)
    cap = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    first, second = (ParquetSet(folder / str(which)) for which in (0, 1))
    started = time.perf_counter()
    clf = UUClassifier(PRIORS, 0.5, model="linear", epochs=1, batch_size=3000, random_state=0, progress=False)
    clf.fit_sets(first, second)
    seconds = time.perf_counter() - started
    X, labels = rows_of(np.random.default_rng(99), 20_000, 0.5)
    return {
        "seconds": round(seconds, 1),
        "seconds_of_the_epoch": round(clf.history_[0]["seconds"], 1),
        "most_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "accuracy": float((clf.predict(X) == labels).mean()),
        "rows": [first.n_rows, second.n_rows],
        "row_groups": [len(first.piece_sizes), len(second.piece_sizes)],
    }


def size(gigabytes: float, memory_gib: float, folder: Path) -> dict[str, Any]:
    """Write the sets, train in a process of its own, and say what it took."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        started = time.perf_counter()
        write_sets(Path(place), gigabytes)
        print(f"written in {time.perf_counter() - started:.0f} s", flush=True)
        command = [sys.executable, __file__, "capped", "--folder", place, "--memory-gib", str(memory_gib)]
        # Arrow's own pool takes a gigabyte of addresses, not of memory, which the cap would count all the same.
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    best = float(norm.cdf(10 * SHIFT / 2))
    return {"gigabytes": gigabytes, "cap_gib": memory_gib, "best_accuracy": best, **found}


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "size", "capped"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--memory-gib", type=float, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    if asked.what == "capped":
        print(json.dumps(train_capped(asked.folder, asked.memory_gib)))
        return
    stored = json.loads(OUT.read_text()) if OUT.exists() else {}
    if asked.what == "accuracy":
        stored["accuracy"] = accuracy(asked.data_dir, asked.seeds)
    else:
        stored["size"] = size(asked.gigabytes, asked.memory_gib, asked.folder)
    print(stored[asked.what])
    write_json(OUT, stored | {"format": FORMAT, "versions": versions(), "machine": machine()})


if __name__ == "__main__":
    main()
