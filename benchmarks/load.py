"""Measure a small fit on a busy machine: does its time depend on the number of threads and on how they wait?

Every fit trains the default model on 2 × 2,000 rows of 20 columns for 5 epochs, alone and next to 4 and 8 busy
processes. Contenders: one thread (which `few_threads` chooses for a table of this size) and two threads, each with
waiting threads that sleep (OMP_WAIT_POLICY=passive, which the command line sets) and that spin (the default of the
OpenMP runtime). Each contender is a new process that has imported everything before the load starts. The contenders
alternate within a round, so ratios within a round are meaningful even if other programs run. A fit is stopped after
LIMIT seconds, so the ratio of a stopped contender is a lower bound.

Run: ``python benchmarks/load.py [ROUNDS]``; the record is ``results/load.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # imported by the first optimizer

from common import (
    FORMAT,
    RESULTS,
    SET_PRIORS,
    TARGET_PRIOR,
    Seconds,
    Section,
    child_arguments,
    print_table,
    summarize,
    write_json,
)
from uulearn import UUClassifier
from uulearn.training import options

ROWS, COLUMNS, EPOCHS, ROUNDS = 2_000, 20, 5, 1
BUSY_PROCESSES = (0, 4, 8)
LIMIT = 40
CONTENDERS = {
    "one thread, sleeping": (1, "passive"),
    "one thread, spinning": (1, None),
    "two threads, sleeping": (2, "passive"),
    "two threads, spinning": (2, None),
}
"""Number of threads, and the value of OMP_WAIT_POLICY."""


def fit(threads: int) -> dict[str, float]:
    """Fit once and return the elapsed time and the processor time of all threads, in seconds."""
    rng = np.random.default_rng(0)
    positive = [rng.random(ROWS) < prior for prior in SET_PRIORS]
    sets = [rng.normal(size=(ROWS, COLUMNS)).astype(np.float32) + 0.5 * own[:, None] for own in positive]
    torch.set_num_threads(threads)
    options.SMALL_CELLS = options.SMALL_CELLS if threads == 1 else 0
    classifier = UUClassifier(SET_PRIORS, TARGET_PRIOR, epochs=EPOCHS, random_state=0, device="cpu")
    began, used = time.perf_counter(), time.process_time()
    classifier.fit_sets(*sets)
    return {"wall": time.perf_counter() - began, "cpu": time.process_time() - used}


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run processes that use a core each."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start(name: str) -> subprocess.Popen[str]:
    """Start the process of a contender, which waits for a line on standard input before it fits."""
    threads, policy = CONTENDERS[name]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if policy is None else {"OMP_WAIT_POLICY": policy}
    command = [sys.executable, __file__, "--child", str(threads)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    return process


def measure(process: subprocess.Popen[str], found: list[dict[str, Any]]) -> float:
    """Let a process fit; return the elapsed time, and add all measurements to ``found``."""
    try:
        out, _ = process.communicate("fit\n", timeout=LIMIT)
        found.append(json.loads(out) | {"stopped": False})
    except subprocess.TimeoutExpired:
        times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        process.kill()
        process.wait()
        cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
        found.append({"wall": float(LIMIT), "cpu": cpu, "stopped": True})
    return float(found[-1]["wall"])


def main() -> None:
    """Measure all contenders under each load, and store the record."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    results: dict[str, Any] = {}
    for count in BUSY_PROCESSES:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        seconds: Seconds = {name: [] for name in CONTENDERS}
        loads = []
        for _ in range(rounds):
            loads.append(os.getloadavg())
            processes = {name: start(name) for name in CONTENDERS}
            for process in processes.values():
                assert process.stdout is not None
                process.stdout.readline()  # everything is imported
            with busy(count):
                for name, process in processes.items():
                    seconds[name].append(measure(process, found[name]))
        summary = summarize(seconds, ["one thread, sleeping"])
        results[f"{count} busy processes"] = summary | {"fits": found, "load_averages_before": loads}
        print_table(f"{count} busy processes, load average before {loads[0][0]:.1f}", summary)
        sys.stdout.flush()
    configuration = {
        "rows_per_set": ROWS,
        "columns": COLUMNS,
        "epochs": EPOCHS,
        "rounds": rounds,
        "limit_seconds": LIMIT,
        "contenders": {name: {"threads": t, "OMP_WAIT_POLICY": policy} for name, (t, policy) in CONTENDERS.items()},
        "spinning": "OMP_WAIT_POLICY is not set, so libgomp uses its default spin count",
    }
    write_json(RESULTS / "load.json", Section(configuration, results).as_json() | {"format": FORMAT})


if __name__ == "__main__":
    if "--child" in sys.argv:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(fit(int(child_arguments()[0]))))
    else:
        main()
