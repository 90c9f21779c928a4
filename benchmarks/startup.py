"""Measure the start-up time of uulearn: its import, and a first small fit.

Imports: each statement runs in a new interpreter once per round, in 5 rounds by default after one warm-up round. Small
fit: the first fit of a new process, after all imports, with 20 epochs of the default model on 1,000 × 20 rows, compared
with the same training in a plain `DataLoader` loop, with the same number of rounds. The results are medians and
quartiles.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch

from common import (
    LEAKY,
    SET_PRIORS,
    TARGET_PRIOR,
    Bar,
    Section,
    Settings,
    ask_child,
    child_arguments,
    interleave,
    print_table,
    summarize,
)

IMPORTS = {
    "import torch": "import torch",
    "import uulearn.UURisk": "from uulearn import UURisk",  # `import uulearn` alone loads nothing, not even torch
    "import UUClassifier": "from uulearn import UUClassifier",
    "import skorch.NeuralNet": "from skorch import NeuralNet",
}
MOST_TIMES_TORCH = 1.1
ROWS, COLUMNS, EPOCHS = 1_000, 20, 20


def start_interpreter(statement: str) -> None:
    """Run one statement in a new interpreter."""
    subprocess.run([sys.executable, "-c", statement], check=True)


def small_sets() -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    """Return two sets of 500 rows of two normally distributed classes."""
    rng = np.random.default_rng(0)
    sets = []
    for prior in SET_PRIORS:
        positive = rng.random(ROWS // 2) < prior
        sets.append((rng.normal(size=(ROWS // 2, COLUMNS)) + 0.5 * (2 * positive[:, None] - 1)).astype(np.float32))
    return sets


def small_fit(way: str) -> dict[str, float]:
    """Return the seconds from rows to a trained model, without imports."""
    first, second = small_sets()
    if way == "uulearn":
        from uulearn import UUClassifier

        started = time.perf_counter()
        UUClassifier(SET_PRIORS, TARGET_PRIOR, **LEAKY, epochs=EPOCHS, device="cpu").fit_sets(first, second)
    else:
        from baselines import DataLoaderLoop, mlp

        started = time.perf_counter()
        loop = DataLoaderLoop(mlp(COLUMNS), first, second, lr=1e-3)
        for _ in range(EPOCHS):
            loop.epoch()
    return {"seconds": time.perf_counter() - started}


def first_fit(way: str) -> float:
    """Return the seconds of a fit, measured by a child process without its imports."""
    return float(ask_child("startup.py", way)["seconds"])


def run(settings: Settings) -> Section:
    """Measure, print and return the results."""
    rounds = settings.repeats(full=5, quick=1)
    warm_up = not settings.quick
    wanted = list(IMPORTS)[:2] if settings.quick else list(IMPORTS)
    statements = {name: partial(start_interpreter, IMPORTS[name]) for name in wanted}
    imports = interleave(statements, rounds, warm_up)
    imported = summarize(imports, ["import torch"])
    print_table("start-up, whole interpreter", imported)
    added = {
        name: statistics.median(a - b for a, b in zip(values, imports["import torch"], strict=True))
        for name, values in imports.items()
    }
    print("  added to import torch: " + ", ".join(f"{name} {1000 * value:+.0f} ms" for name, value in added.items()))
    ways = {way: partial(first_fit, way) for way in ("uulearn", "DataLoader loop")}
    fits = summarize(interleave(ways, rounds, warm_up), ["uulearn"])
    print_table(f"first fit of a process, {ROWS:,} × {COLUMNS}, {EPOCHS} epochs", fits)
    times_torch = imported["speedup"]["import torch"]["import uulearn.UURisk"]
    return Section(
        {
            "rounds": rounds,
            "rows": ROWS,
            "columns": COLUMNS,
            "epochs": EPOCHS,
            "torch_threads": torch.get_num_threads(),
        },
        {"imports": imported, "added_to_torch": added, "first_fit": fits},
        [Bar("import of UURisk, times import torch", times_torch, MOST_TIMES_TORCH, False, not settings.quick)],
    )


if __name__ == "__main__":
    print(json.dumps(small_fit(child_arguments()[0])))
