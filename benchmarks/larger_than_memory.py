"""Measure training from Parquet folders: its accuracy compared with training from memory, and its memory use.

    python benchmarks/larger_than_memory.py accuracy [--data-dir DIR] [--seeds 3]
    python benchmarks/larger_than_memory.py size [--gigabytes 20] [--memory-gib 2] [--folder DIR]

``accuracy`` trains on Fashion-MNIST at (0.7, 0.3) with sets of 24,000 and 6,000 rows: from memory, from folders whose
rows are in random order, from folders whose rows are sorted by class (the worst possible order), and from sorted
folders after shuffling. Row groups have 250 rows, and windows have several sizes. ``size`` writes two sets of very
unequal size with 100 numeric columns, and trains a linear model for one epoch on the original and on the shuffled sets,
in processes whose private memory is limited (RLIMIT_DATA). Both store their results in
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
from uulearn.streaming import ParquetSet, RowStream, shuffled
from uulearn.training import TrainingOptions

OUT = RESULTS / "larger_than_memory.json"
COLUMNS, GROUP, FILE = 100, 20_000, 1_000_000
PRIORS = (0.7, 0.3)
SHIFT = 0.2
"""Shift of each of the first ten columns for positive rows."""


# ----------------------------------------------------------------------------------------------------------- accuracy


def write_rows(folder: Path, rows: np.ndarray[Any, Any]) -> Path:
    """Write a set as one file."""
    folder.mkdir()
    pixels = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    table = pa.table({"pixels": pixels})
    pq.write_table(table, folder / "rows.parquet", row_group_size=250)
    return folder


def pixels_of(table: pa.Table) -> np.ndarray[Any, Any]:
    """Return the rows of a table written by `write_rows`."""
    return np.asarray(table["pixels"].combine_chunks().flatten()).reshape(table.num_rows, -1)


def accuracy(data_dir: Path | None, seeds: range) -> dict[str, Any]:
    """Return the test accuracy from memory and from streams, by seed."""
    from uulearn.datasets import load_task, make_sets

    task = load_task("fashion_mnist", data_dir=data_dir).flat()
    found: dict[str, list[float]] = {}
    for seed in seeds:
        drawn = make_sets(task.X_train, task.y_train, PRIORS, (24_000, 6_000), random_state=seed)
        with tempfile.TemporaryDirectory() as place:
            labels = [task.y_train[index] for index in drawn.indices]
            ways: dict[str, tuple[Any, ...]] = {"memory": (drawn.X0, drawn.X1)}
            for order in ("random", "sorted"):
                # sorted sets have negatives first; otherwise the sets are in random order
                rows = [
                    X[np.argsort(y, kind="stable")] if order == "sorted" else X
                    for X, y in zip(drawn, labels, strict=True)
                ]
                folders = [write_rows(Path(place) / f"{order}{i}", X) for i, X in enumerate(rows)]
                for mib in (4, 16):
                    first, second = (ParquetSet(folder, None, pixels_of, mib * 2**20) for folder in folders)
                    ways[f"{order}, window of {mib} MiB"] = first, second
            for mib in (4, 16):
                ways[f"sorted and shuffled, window of {mib} MiB"] = tuple(
                    shuffled(rows, Path(place) / f"shuffled{mib}-{i}", seed=seed)
                    for i, rows in enumerate(ParquetSet(folder, None, pixels_of, mib * 2**20) for folder in folders)
                )
            for name, sets in ways.items():
                clf = UUClassifier(
                    PRIORS, task.prior, epochs=15, n_estimators=1, validation_fraction=0.1, patience=None,
                    training=TrainingOptions(input_scale=1 / 255), random_state=seed, progress=False,
                )  # fmt: skip
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PoorMixingWarning)
                    clf.fit_sets(*sets)
                found.setdefault(name, []).append(float((clf.predict(task.X_test) == task.y_test).mean()))
                print(f"seed {seed}, {name}: {100 * found[name][-1]:.2f}%", flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {"dataset": "fashion_mnist", "set_priors": PRIORS, "sizes": [24_000, 6_000], "epochs": 15}
    return about | {"device": device, "found": found}


# --------------------------------------------------------------------------------------------------------------- size


def rows_of(rng: np.random.Generator, n: int, share: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return random rows and their classes."""
    labels = rng.random(n) < share
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    X[labels, :10] += SHIFT * np.sqrt(10)
    return X, labels


def write_sets(folder: Path, gigabytes: float) -> list[int]:
    """Write two sets, with four fifths of the rows in the first."""
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


def train_capped(folder: Path, memory_gib: float, shuffle: bool) -> dict[str, Any]:
    """Train one epoch in this process with limited memory."""
    torch.set_num_threads(2)
    cap = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    first: RowStream
    second: RowStream
    first, second = (ParquetSet(folder / str(which)) for which in (0, 1))
    started = time.perf_counter()
    if shuffle:
        first, second = (shuffled(rows, folder / f"shuffled{i}") for i, rows in enumerate((first, second)))
    seconds_of_shuffling = time.perf_counter() - started
    started = time.perf_counter()
    clf = UUClassifier(PRIORS, 0.5, model="linear", epochs=1, batch_size=3000, random_state=0, progress=False)
    clf.fit_sets(first, second)
    seconds = time.perf_counter() - started
    X, labels = rows_of(np.random.default_rng(99), 20_000, 0.5)
    return {
        "seconds_of_shuffling": round(seconds_of_shuffling, 1),
        "seconds": round(seconds, 1),
        "seconds_of_the_epoch": round(clf.history_[0]["seconds"], 1),
        "most_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "accuracy": float((clf.predict(X) == labels).mean()),
        "rows": [first.n_rows, second.n_rows],
        "pieces": [len(first.piece_sizes), len(second.piece_sizes)],
    }


def size(gigabytes: float, memory_gib: float, folder: Path) -> dict[str, Any]:
    """Write the sets, train in a new process, and return its time and memory."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        started = time.perf_counter()
        write_sets(Path(place), gigabytes)
        print(f"written in {time.perf_counter() - started:.0f} s", flush=True)
        command = [sys.executable, __file__, "capped", "--folder", place, "--memory-gib", str(memory_gib)]
        # Arrow's memory pool reserves a gigabyte of address space, which would count toward the limit.
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        found: dict[str, Any] = {}
        for name, how in (("as they are", []), ("shuffled", ["--shuffle"])):
            done = subprocess.run([*command, *how], check=True, stdout=subprocess.PIPE, text=True, env=environment)
            found[name] = json.loads(done.stdout.splitlines()[-1])
            print(name, found[name], flush=True)
    best = float(norm.cdf(10 * SHIFT / 2))
    return {"gigabytes": gigabytes, "cap_gib": memory_gib, "best_accuracy": best, **found}


def main() -> None:
    """Measure and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "size", "capped"])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--gigabytes", type=float, default=20)
    parser.add_argument("--memory-gib", type=float, default=2)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    asked = parser.parse_args()
    if asked.what == "capped":
        print(json.dumps(train_capped(asked.folder, asked.memory_gib, asked.shuffle)))
        return
    stored = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    if asked.what == "accuracy":
        found = accuracy(asked.data_dir, range(asked.first_seed, asked.first_seed + asked.seeds))
    else:
        found = size(asked.gigabytes, asked.memory_gib, asked.folder)
    print(found)
    stored[asked.what] = found | {"versions": versions(), "machine": machine()}
    write_json(asked.out, stored | {"format": FORMAT})


if __name__ == "__main__":
    main()
