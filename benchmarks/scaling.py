"""Measure how the cost grows with rows, columns and workers, and the number of rows scored per second.

    python benchmarks/scaling.py rows columns workers scoring [--most-rows 100000000]
    python benchmarks/scaling.py cores --out benchmarks/results/scaling_cores.json

Each part is measured in new processes and stored in ``benchmarks/results/scaling.json`` when it is finished. Rows are
generated when they are read, so 1e8 rows need no disk space; the results include the cost of streaming. Each process
has one thread. ``cores`` is for a machine with sixteen cores: it measures one to eight workers with small and large
batches, and the communication of a step separately. `--quick` only checks that the script runs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from common import BATCH_SIZE, FORMAT, RESULTS, machine, versions, write_json
from uulearn import UUClassifier
from uulearn.streaming import RowStream
from uulearn.training import TrainingOptions

OUT = RESULTS / "scaling.json"
PIECE = 50_000
MODELS: dict[str, dict[str, Any]] = {"linear": {"model": "linear"}, "mlp": {"model": "mlp"}}


class Generated(RowStream):
    """Stream of rows that are generated when they are read, always with the same values; one set is shifted."""

    def __init__(self, n_rows: int, columns: int, which: int) -> None:
        self.which, self.row_shape = which, (columns,)
        self._sizes = [min(PIECE, n_rows - start) for start in range(0, n_rows, PIECE)]

    @property
    def piece_sizes(self) -> list[int]:
        """Return the number of rows of each piece."""
        return self._sizes

    def read(self, piece: int) -> torch.Tensor:
        """Return uniform random numbers, which are fast to generate."""
        rng = np.random.default_rng([self.which, piece])
        rows = rng.random((self._sizes[piece], *self.row_shape), dtype=np.float32)
        rows[:, :2] += 0.2 * (1 - self.which)
        return torch.from_numpy(rows)

    def describe(self) -> str:
        """Return the shape and the set of the rows."""
        return f"generated: {self.which} {sum(self._sizes)} {self.row_shape}"


def classifier(model: str, **more: Any) -> UUClassifier:
    """Return a classifier with one model, one epoch and no held-out rows, so that only the epoch is timed."""
    plain: dict[str, Any] = {
        "epochs": 1, "n_estimators": 1, "validation_fraction": 0.0, "calibrated": False, "early_stopping": False,
        "patience": None, "random_state": 0, "progress": False, "device": "cpu",
    }  # fmt: skip
    return UUClassifier((0.7, 0.3), **plain | MODELS[model] | more)


def epoch(
    model: str, rows: int, columns: int, distributed: bool = False, batch_size: int = BATCH_SIZE
) -> dict[str, Any]:
    """Return the seconds per epoch over ``rows`` rows, half of them in each set, and the peak memory."""
    torch.set_num_threads(1)
    first, second = (Generated(rows // 2, columns, which) for which in (0, 1))
    training = TrainingOptions(distributed="auto" if distributed else False)
    clf = classifier(model, training=training, batch_size=batch_size)
    clf.fit_sets(first, second)
    return {
        "model": model,
        "rows": rows,
        "columns": columns,
        "batch_size": batch_size,
        "workers": int(os.environ.get("WORLD_SIZE", "1")),
        "seconds": clf.history_[0]["seconds"],
        "most_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "parameters": sum(p.numel() for p in clf.model_.parameters()),
    }


def scoring(model: str, rows: int, columns: int) -> dict[str, Any]:
    """Return the number of rows scored per second by one thread."""
    torch.set_num_threads(1)
    X = np.random.default_rng(0).random((rows, columns), dtype=np.float32)
    clf = classifier(model).fit_sets(X[:2_000], X[2_000:4_000] + 0.1)
    clf.decision_function(X[:10_000])
    started = time.perf_counter()
    clf.decision_function(X)
    seconds = time.perf_counter() - started
    return {"model": model, "rows": rows, "columns": columns, "rows_a_second": rows / seconds}


def exchange(values: int) -> dict[str, Any]:
    """Return the median seconds of a sum of arrays of this length over all workers."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    numbers, seconds = torch.ones(values), []
    for _ in range(200):
        dist.barrier()
        started = time.perf_counter()
        dist.all_reduce(numbers)
        seconds.append(time.perf_counter() - started)
        numbers.fill_(1.0)
    dist.destroy_process_group()
    return {"values": values, "workers": int(os.environ["WORLD_SIZE"]), "seconds": float(np.median(seconds))}


def apart(function: str, *arguments: Any, workers: int = 1) -> dict[str, Any]:
    """Return the result of a function in one or several new processes."""
    command = [sys.executable, "-W", "ignore"]
    if workers > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    done = subprocess.run(
        [*command, __file__, "--call", json.dumps([function, *arguments])],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(found, flush=True)
    return found


def measured(part: str, most_rows: int, quick: bool) -> list[dict[str, Any]]:
    """Run one of the parts."""
    if part == "rows":
        sizes = [10**power for power in range(4, 9) if 10**power <= most_rows]
        return [apart("epoch", model, rows, 10) for model in MODELS for rows in sizes if _bearable(model, rows)]
    if part == "columns":
        rows = 10_000 if quick else 100_000
        return [apart("epoch", model, rows, columns) for model in MODELS for columns in (10, 100, 1_000, 10_000)]
    if part == "workers":
        rows = 20_000 if quick else 300_000
        found = []
        for _ in range(1 if quick else 3):  # alternating, because the machine may be shared
            for model in MODELS:
                for size in (3_000, 48_000):
                    found += [apart("epoch", model, rows, 100, n > 1, size, workers=n) for n in (1, 2)]
        return found
    if part == "cores":
        found = []
        for n in (1, 2, 4, 8)[: 2 if quick else None]:
            found += [apart("exchange", values, workers=n) for values in (2, 302_701) if n > 1]
            for model, rows in (("linear", 1_000_000), ("mlp", 300_000)):
                rows = 20_000 if quick else rows
                found += [apart("epoch", model, rows, 100, n > 1, size, workers=n) for size in (3_000, 48_000)]
        return found
    rows = 20_000 if quick else 500_000
    return [apart("scoring", model, rows, columns) for model in MODELS for columns in (10, 100)]


def _bearable(model: str, rows: int) -> bool:
    return model == "linear" or rows <= 10**7


def main() -> None:
    """Measure and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["rows", "columns", "workers", "scoring", "cores", []])
    parser.add_argument("--most-rows", type=int, default=10**8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--call", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.call:
        function, *arguments = json.loads(asked.call)
        known: dict[str, Callable[..., dict[str, Any]]] = {"epoch": epoch, "scoring": scoring, "exchange": exchange}
        found = known[function](*arguments)
        if os.environ.get("RANK", "0") == "0":
            print(json.dumps(found))
        return
    stored = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    for part in asked.parts:
        stored[part] = measured(part, 10**5 if asked.quick else asked.most_rows, asked.quick)
        write_json(asked.out, stored | {"format": FORMAT, "versions": versions(), "machine": machine()})


if __name__ == "__main__":
    main()
