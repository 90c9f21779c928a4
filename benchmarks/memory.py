"""Measure the peak memory of a fit on 60,000 × 784 and of a prediction on 300,000 × 784 float32 rows.

Each runs in a new process, 3 times by default. The result is the difference between the peak resident size and the
resident size before the data are created, as a multiple of the size of the data and the model weights; it includes the
data. The median, the smallest and the largest value are reported.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from common import (
    LEAKY,
    LR,
    N_FEATURES,
    SET_PRIORS,
    TARGET_PRIOR,
    Bar,
    Section,
    Settings,
    ask_child,
    child_arguments,
)
from pixels import fill_with_random_pixels
from uulearn import UUClassifier
from uulearn.exceptions import UUWarning

MOST_TIMES_THE_DATA = 1.3


def resident_bytes() -> tuple[int, int]:
    """Return the current and the peak resident size.

    The peak of ``getrusage`` is inherited on exec, so a child process starts with the peak of its parent; VmHWM of
    Linux is reset. On other systems, the peak is returned for both.
    """
    try:
        lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
        sizes = {words[0]: int(words[1]) * 1024 for words in lines if words and words[0] in ("VmRSS:", "VmHWM:")}
        return sizes["VmRSS:"], sizes["VmHWM:"]
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return peak, peak


def fit(rows: np.ndarray[Any, np.dtype[np.float32]], epochs: int) -> UUClassifier:
    """Fit one plain model on the two halves of the rows."""
    middle = len(rows) // 2
    classifier = UUClassifier(
        SET_PRIORS, TARGET_PRIOR, **LEAKY | {"lr": LR}, epochs=epochs, device="cpu", random_state=0
    )
    return classifier.fit_sets(rows[:middle], rows[middle:])


def measure(task: str, n_rows: int) -> dict[str, Any]:
    """Measure how much one task adds to the resident size of this process."""
    warnings.simplefilter("ignore", UUWarning)  # random pixels have the same distribution in both sets
    # A tiny fit and prediction run first, so that memory that libraries allocate once (thread pools, kernels, late
    # imports) is not counted.
    tiny = np.empty((200, N_FEATURES), dtype=np.float32)
    fill_with_random_pixels(tiny)
    classifier = fit(tiny, epochs=1)
    classifier.predict(tiny)
    before, _ = resident_bytes()
    data = np.empty((n_rows, N_FEATURES), dtype=np.float32)
    fill_with_random_pixels(data)
    with_data, peak_with_data = resident_bytes()
    if task == "fit":
        classifier = fit(data, epochs=2)
    else:
        classifier.predict(data)
    _, peak = resident_bytes()
    model = sum(p.numel() * p.element_size() for p in classifier.model_.parameters())
    return {
        "before": before,
        "with_data": with_data,
        "peak_with_data": peak_with_data,
        "peak": peak,
        "data": data.nbytes,
        "model": model,
        "times_data": (peak - before) / data.nbytes,
        "times_data_and_model": (peak - before) / (data.nbytes + model),
    }


def run(settings: Settings) -> Section:
    """Measure, print and return the results."""
    sizes = {"fit": 600, "predict": 2_000} if settings.quick else {"fit": 60_000, "predict": 300_000}
    repeats = settings.repeats(full=3, quick=1)
    section = Section({"rows": sizes, "columns": N_FEATURES, "repeats": repeats, "epochs": 2}, {})
    print("\nmemory: growth of the peak resident size, the data included")
    for task, n_rows in sizes.items():
        runs = [ask_child("memory.py", task, n_rows) for _ in range(repeats)]
        section.results[task] = runs
        times = [run["times_data"] for run in runs]
        grown = statistics.median(run["peak"] - run["before"] for run in runs) / 2**20
        data, model = (runs[0][name] / 2**20 for name in ("data", "model"))
        print(
            f"  {task}, {n_rows:,} rows: {grown:,.0f} MiB for {data:,.0f} MiB of data and {model:.1f} MiB of "
            f"weights, {statistics.median(times):.2f} times the data ({min(times):.2f} to {max(times):.2f})"
        )
        value = statistics.median(run["times_data_and_model"] for run in runs)
        name = f"memory of {task}, times the data plus the model"
        section.bars.append(Bar(name, value, MOST_TIMES_THE_DATA, False, not settings.quick))
    return section


if __name__ == "__main__":
    asked_task, asked_rows = child_arguments()
    print(json.dumps(measure(asked_task, int(asked_rows))))
