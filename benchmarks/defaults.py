"""Compare option values: the evidence for the defaults of `UUClassifier`.

The paper's MLP is trained on MNIST, Fashion-MNIST and Kuzushiji-MNIST (tasks of Appendix C), with sets of 30,000 at
(0.8, 0.2) and (0.6, 0.4), 200 epochs and batches of 3,000. Options are varied around a common base, with two seeds
each. The record contains the test accuracy of the last and of the best epoch; labels are used only for these. Results
are stored in ``benchmarks/results/defaults-<dataset>-<seed>.json``; stored runs are not repeated.

    python benchmarks/defaults.py [--dataset mnist …] [--seed 0 …] [--report]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from common import FORMAT, RESULTS, machine, read_json, versions, write_json
from pixels import data_folder
from uulearn import UUClassifier
from uulearn.datasets import load_task, make_sets
from uulearn.training import TrainingOptions

DATASETS = ("mnist", "fashion-mnist", "kmnist")
SET_PRIORS = ((0.8, 0.2), (0.6, 0.4))
SIZES = (30_000, 30_000)
BASE: dict[str, Any] = {
    "method": "leaky_relu", "slope": -0.1, "loss": "logistic", "lr": 3e-4, "l2": 0.0, "ema": None, "clip_norm": None,
    "precision": "auto", "batch_size": 3000, "epochs": 200, "momentum": 0.1,
}  # fmt: skip
TRAINING = ("ema", "clip_norm", "precision")
"""Settings that belong to `TrainingOptions`."""
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "lr 5e-5": {"lr": 5e-5},
    "lr 1e-3": {"lr": 1e-3},
    "ema 0.995": {"ema": 0.995},
    "ema 0.995, lr 1e-3": {"ema": 0.995, "lr": 1e-3},
    "ema 0.999": {"ema": 0.999},
    "clip 1": {"clip_norm": 1.0},
    "float32": {"precision": "float32"},
    "l2 5e-3": {"l2": 5e-3},
    "batch norm momentum 0.01": {"momentum": 0.01},
    "ema 0.999, lr 1e-3": {"ema": 0.999, "lr": 1e-3},
    "ema 0.999, float32": {"ema": 0.999, "precision": "float32"},
    "ema 0.999, abs": {"ema": 0.999, "method": "abs"},
    "ema 0.999, relu": {"ema": 0.999, "method": "relu"},
    "ema 0.999, sigmoid": {"ema": 0.999, "loss": "sigmoid"},
    "ema 0.999, unbiased": {"ema": 0.999, "method": "unbiased"},
    "batch 600": {"batch_size": 600},
}

Part = tuple[NDArray[np.uint8], NDArray[np.bool_]]


def run(settings: dict[str, Any], train: Part, test: Part) -> dict[str, Any]:
    """Train one model and return its record."""
    drawn = make_sets(*train, settings["set_priors"], SIZES, random_state=settings["seed"])
    training = TrainingOptions(input_scale=1 / 255, **{name: settings[name] for name in TRAINING})
    options = {name: settings[name] for name in BASE if name not in ("momentum", *TRAINING)}
    classifier = UUClassifier(
        drawn.realized_priors, float(test[1].mean()), **options, model_params={"momentum": settings["momentum"]},
        training=training, random_state=settings["seed"],
    )  # fmt: skip
    started = time.perf_counter()
    classifier.fit_sets(*drawn, test_data=test)
    accuracy = classifier.history_.column("test_accuracy")
    return {
        "last": accuracy[-1],
        "best": max(accuracy),
        "first_negative_epoch": classifier.history_.first_negative_epoch,
        "accuracy": [round(value, 4) for value in accuracy],
        "unbiased": [round(value, 5) for value in classifier.history_.column("unbiased")],
        "products": classifier.precision_,
        "seconds": round(time.perf_counter() - started, 2),
    }


def study(dataset: str, seed: int, folder: Path, out: Path) -> None:
    """Run every variant that is not stored yet."""
    path = out / f"defaults-{dataset}-{seed}.json"
    task = load_task(dataset.replace("-", "_"), data_dir=folder, download=False).flat()
    train, test = (task.X_train, task.y_train == 1), (task.X_test, task.y_test == 1)
    for (variant, changes), set_priors in itertools.product(VARIANTS.items(), SET_PRIORS):
        settings = BASE | changes | {"dataset": dataset, "set_priors": list(set_priors), "seed": seed}
        runs = read_json(path).get("runs", [])
        if any(found["settings"] == settings for found in runs):
            continue
        outcome = run(settings, train, test)
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        runs.append({"variant": variant, "settings": settings, "device": device} | outcome)
        write_json(path, {"format": FORMAT, "versions": versions(), "machine": machine(), "runs": runs})
        print(dataset, variant, set_priors, seed, outcome["last"], outcome["seconds"], flush=True)


def report(paths: list[Path]) -> None:
    """Print a Markdown table of the mean accuracy of the last epoch (and of the best epoch) over seeds, in percent."""
    runs = [found for path in paths for found in read_json(path).get("runs", [])]
    cells = sorted({(r["settings"]["dataset"], tuple(r["settings"]["set_priors"])) for r in runs}, key=str)
    print("| | " + " | ".join(f"{name} {priors}" for name, priors in cells) + " | mean | seeds |")
    print("|---|" + "---|" * (len(cells) + 2))
    for variant in VARIANTS:
        of_cell = [[r for r in runs if r["variant"] == variant and cell_of(r) == cell] for cell in cells]
        if not all(of_cell):
            continue
        lasts = [statistics.mean(r["last"] for r in own) for own in of_cell]
        bests = [statistics.mean(r["best"] for r in own) for own in of_cell]
        figures = [f"{100 * last:.1f} ({100 * best:.1f})" for last, best in zip(lasts, bests, strict=True)]
        mean = f"{100 * statistics.mean(lasts):.2f}"
        print(f"| {variant} | " + " | ".join([*figures, mean, str(min(map(len, of_cell)))]) + " |")


def cell_of(found: dict[str, Any]) -> tuple[str, tuple[float, ...]]:
    """Return the column that a run belongs to."""
    return found["settings"]["dataset"], tuple(found["settings"]["set_priors"])


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=DATASETS, action="append", help="default: all three")
    parser.add_argument("--seed", type=int, action="append", help="default: 0 and 1")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only print the stored results")
    asked = parser.parse_args()
    datasets = asked.dataset or list(DATASETS)
    folder = data_folder()
    if not asked.report and folder is None:
        sys.exit("no data: set UULEARN_DATA to a folder with mnist/, fashion-mnist/ and kmnist/ (IDX, gzip)")
    seeds = asked.seed or [0, 1]
    for dataset, seed in itertools.product(datasets, seeds):
        if folder is None or asked.report:
            break
        study(dataset, seed, folder, asked.out)
    report([asked.out / f"defaults-{dataset}-{seed}.json" for dataset in datasets for seed in seeds])


if __name__ == "__main__":
    main()
