"""Measure whether training in bfloat16 reduces accuracy, with the paper's MLP on MNIST (even against odd digits).

The sets have 30,000 rows with 70% and 30% positives; training uses the leaky-ReLU correction, Adam, learning rate 5e-5
and l2 5e-3, by default with 30 epochs and 3 seeds. Both precisions of a seed share the sets, initial weights and
shuffles, so differences are paired; their mean and standard error are printed for the last and the best test accuracy.
Each model trained in bfloat16 is also scored in both precisions. Results are stored in
``benchmarks/results/precision_accuracy.json``; stored runs are not repeated.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common import BATCH_SIZE, FORMAT, LR, RESULTS, SET_PRIORS, machine, read_json, versions, write_json
from pixels import data_folder, read_mnist
from uulearn import UUClassifier
from uulearn.data import DenseRows
from uulearn.datasets import make_sets
from uulearn.training import TrainingOptions, score_rows

PRECISIONS = ("float32", "bfloat16")
SIZES = (30_000, 30_000)
L2 = 5e-3

Part = tuple[NDArray[np.float32], NDArray[np.bool_]]


def scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return pixels scaled to [0, 1]."""
    return np.multiply(images, np.float32(1 / 255), dtype=np.float32)


def settings_of(epochs: int, seed: int, precision: str) -> dict[str, Any]:
    """Return the settings that identify a run."""
    return {
        "epochs": epochs,
        "seed": seed,
        "precision": precision,
        "set_priors": list(SET_PRIORS),
        "sizes": list(SIZES),
        "lr": LR,
        "l2": L2,
        "batch_size": BATCH_SIZE,
        "method": "leaky_relu",
    }


def train(settings: dict[str, Any], train_part: Part, test_part: Part) -> dict[str, Any]:
    """Train one run; return the test accuracy after every epoch and, for bfloat16, for both scoring precisions."""
    X_test, y_test = test_part
    drawn = make_sets(*train_part, SET_PRIORS, SIZES, random_state=settings["seed"])
    classifier = UUClassifier(
        SET_PRIORS,
        float(y_test.mean()),
        method=settings["method"],
        epochs=settings["epochs"],
        batch_size=BATCH_SIZE,
        lr=LR,
        l2=L2,
        training=TrainingOptions(precision=settings["precision"]),
        device="cpu",
        random_state=settings["seed"],
    )
    started = time.perf_counter()
    classifier.fit_sets(*drawn, test_data=(X_test, y_test))
    accuracy = classifier.history_.column("test_accuracy")
    outcome = {
        "last": accuracy[-1],
        "best": max(accuracy),
        "test_accuracy": accuracy,
        "seconds": time.perf_counter() - started,
        "versions": versions(),
        "machine": machine(),
    }
    if settings["precision"] == "bfloat16":
        rows = DenseRows(torch.from_numpy(X_test))
        scores = {name: score_rows(classifier.model_, rows, dtype=getattr(torch, name)) for name in PRECISIONS}
        classes = {name: (values > 0).numpy() for name, values in scores.items()}
        outcome["scored_in"] = {name: float((classes[name] == y_test).mean()) for name in PRECISIONS}
        outcome["share_of_other_classes"] = float((classes["float32"] != classes["bfloat16"]).mean())
    return outcome


def report(results: dict[tuple[int, str], dict[str, Any]], seeds: list[int]) -> None:
    """Print the accuracies by seed, and the paired differences."""
    print(f"\n{'seed':>6}{'last f32':>10}{'last bf16':>10}{'best f32':>10}{'best bf16':>10}{'bf16 scored':>18}")
    for seed in seeds:
        full, half = results[seed, "float32"], results[seed, "bfloat16"]
        figures = "".join(f"{run[key]:10.4f}" for key in ("last", "best") for run in (full, half))
        scored, share = half["scored_in"], half["share_of_other_classes"]
        print(f"{seed:6}{figures}", end="")
        print(f"   f32 {scored['float32']:.4f}, bf16 {scored['bfloat16']:.4f}, {share:.2%} of classes differ")
    for key in ("last", "best"):
        gaps = [100 * (results[seed, "bfloat16"][key] - results[seed, "float32"][key]) for seed in seeds]
        error = f"± {statistics.stdev(gaps) / math.sqrt(len(gaps)):.3f}" if len(gaps) > 1 else "(one seed, no error)"
        mean = statistics.mean(gaps)
        print(f"{key} accuracy, bfloat16 − float32: {mean:+.3f} {error} points, {len(gaps)} seeds")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    parser.add_argument("--out", type=Path, default=RESULTS / "precision_accuracy.json")
    asked = parser.parse_args()
    if asked.epochs < 1 or asked.seeds < 1:
        parser.error("--epochs and --seeds must be at least 1")
    folder = data_folder()
    if folder is None:
        sys.exit("MNIST was not found: set UULEARN_DATA to a folder with mnist/train-images-idx3-ubyte.gz etc.")
    task = read_mnist(folder)
    train_part, test_part = (scaled(task.X_train), task.y_train == 1), (scaled(task.X_test), task.y_test == 1)
    stored = read_json(asked.out)
    runs: list[dict[str, Any]] = stored.get("runs", []) if stored.get("format") == FORMAT else []
    results: dict[tuple[int, str], dict[str, Any]] = {}
    for seed in range(asked.seeds):
        for precision in PRECISIONS:
            settings = settings_of(asked.epochs, seed, precision)
            found = next((run for run in runs if run["settings"] == settings), None)
            if found is None:
                print(f"seed {seed}, {precision}, {asked.epochs} epochs …", file=sys.stderr, flush=True)
                found = {"settings": settings} | train(settings, train_part, test_part)
                runs.append(found)
                write_json(asked.out, {"format": FORMAT, "runs": runs})
            results[seed, precision] = found
    report(results, list(range(asked.seeds)))
    print(f"\nstored in {asked.out}")


if __name__ == "__main__":
    main()
