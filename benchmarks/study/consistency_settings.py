"""Compare options of consistency training on images: choose them without labels, and measure ablations with labels.

**Choosing.** The tasks have other positive classes than those of the paper. Two sets of 30,000 training images are
drawn at (0.8, 0.2) and (0.6, 0.4), and the paper's MLP is trained with a tenth of them held out for early stopping.
Settings are compared by the zero-one risk of the predictions for two other unlabeled sets, drawn from the test images
at (0.8, 0.2). Labels are used only to draw the sets.

**Ablations** (``--paper``). The tasks of the paper at (0.6, 0.4) with other seeds, evaluated by the accuracy on the
test images. They choose nothing.

Finished settings are stored and are not repeated.

    python benchmarks/study/consistency_settings.py [--paper] [--data-dir DIR] [--only PART …] [--minutes 8] [--quick]
    python benchmarks/study/consistency_settings.py --choose
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from records import Record, read
from resuming import STUDY, add_options, complete, out_of
from shared import index_tensors
from torch import Tensor

from uulearn.datasets import load_images, make_sets
from uulearn.datasets.catalog import SOURCES
from uulearn.reproduction.sampling import hold_out
from uulearn.reproduction.store import normalized
from uulearn.risk import pseudo_labeling, uu_risk
from uulearn.training import ConsistencyOptions, RunOptions
from uulearn.training.batched import BatchedTrainer, Run

STORE = STUDY / "consistency_settings.jsonl"
TASKS: dict[str, dict[str, tuple[int, ...]]] = {
    "other": {"mnist": (0, 1, 2, 3, 4), "fashion_mnist": (2, 3, 5, 8, 9), "kmnist": (0, 2, 3, 5, 7)},
    "paper": {name: SOURCES[name].positive_classes for name in ("mnist", "fashion_mnist", "kmnist")},
}
"""Positive classes of each task."""
THRESHOLD = 0.95
"""Probability above which FixMatch labels a row."""
EVALUATION_PRIORS = (0.8, 0.2)
PRIORS = {"other": ((0.6, 0.4), (0.8, 0.2)), "paper": ((0.6, 0.4),)}
SEEDS = {"other": (0, 1), "paper": (20, 21, 22, 23, 24)}
SHAPE = (1, 28, 28)
OPTIONS = {"fraction", "weight", "ramp", "strong"}

BASE: dict[str, Any] = {"epochs": 200, "lr": 1e-3, "l2": 5e-3, "ema": 0.999, "dropout": 0.0, "early_stopping": True}
WEAK = {"augment": "shift:1"}
VIEW = {**WEAK, "strong": "shift:2+cutout:0.5"}
AFFINE = {"augment": "affine:0.1+shift:1", "strong": "affine:0.2+shift:2+cutout:0.5"}

CHOSEN = AFFINE | {"l2": 5e-4, "fraction": 1.0}
"""The setting with the lowest risk without labels."""
ABLATIONS: dict[str, dict[str, Any]] = {
    "chosen": CHOSEN,
    "label 60% of the rows": CHOSEN | {"fraction": 0.6},
    "label 80% of the rows": CHOSEN | {"fraction": 0.8},
    "label 90% of the rows": CHOSEN | {"fraction": 0.9},
    "label the rows above 95%, as FixMatch": CHOSEN | {"fixed_threshold": True},
    "weight 0.5": CHOSEN | {"weight": 0.5},
    "weight 2": CHOSEN | {"weight": 2.0},
    "no moving average": CHOSEN | {"ema": 0.01},  # almost the present weights
    "weak view instead of the strong view": CHOSEN | {"strong": AFFINE["augment"]},
    "no consistency training, weak view": {"augment": AFFINE["augment"], "l2": 5e-4},
    "no consistency training, strong view": {"augment": AFFINE["strong"], "l2": 5e-4},
    "no consistency training, no augmentation": {"l2": 5e-4},
}
"""Changes of the chosen setting that are measured with labels (``--paper``)."""

SETTINGS: dict[str, dict[str, Any]] = {
    "no augmentation": {},
    "weak view": WEAK,
    "weak view, shift 2": {"augment": "shift:2"},
    "weak view, affine": {"augment": "affine:0.1+shift:1"},
    "consistency": VIEW,
    "fraction 0.6": VIEW | {"fraction": 0.6},
    "fraction 0.9": VIEW | {"fraction": 0.9},
    "fraction 1": VIEW | {"fraction": 1.0},
    "weight 0.5": VIEW | {"weight": 0.5},
    "weight 2": VIEW | {"weight": 2.0},
    "weight 4": VIEW | {"weight": 4.0},
    "shift 2 and 3": VIEW | {"augment": "shift:2", "strong": "shift:3+cutout:0.5"},
    "affine": AFFINE,
    "affine in the strong view": VIEW | {"strong": "affine:0.2+shift:2+cutout:0.5"},
    "smaller cutout": VIEW | {"strong": "shift:2+cutout:0.3"},
    "100 epochs": VIEW | {"epochs": 100},
    "400 epochs": VIEW | {"epochs": 400},
    "average 0.9995": VIEW | {"ema": 0.9995},
    "average 0.998": VIEW | {"ema": 0.998},
    "earlier ramp": VIEW | {"ramp": (0.05, 0.2)},
    "later ramp": VIEW | {"ramp": (0.3, 0.5)},
    "no L2": VIEW | {"l2": 0.0},
    "L2 5e-4": VIEW | {"l2": 5e-4},
    "learning rate 3e-3": VIEW | {"lr": 3e-3},
    "dropout 0.25": VIEW | {"dropout": 0.25},
    "last epoch": VIEW | {"early_stopping": False},
    "fixed threshold": VIEW | {"fixed_threshold": True},
    "L2 5e-4, fraction 1": VIEW | {"l2": 5e-4, "fraction": 1.0},
    "L2 5e-5, fraction 1": VIEW | {"l2": 5e-5, "fraction": 1.0},
    "L2 1.5e-3, fraction 1": VIEW | {"l2": 1.5e-3, "fraction": 1.0},
    "affine, L2 5e-4": AFFINE | {"l2": 5e-4},
    "affine, L2 5e-4, fraction 0.9": AFFINE | {"l2": 5e-4, "fraction": 0.9},
    "affine, L2 5e-4, fraction 1": AFFINE | {"l2": 5e-4, "fraction": 1.0},
    "strong affine, L2 5e-4, fraction 1": VIEW
    | {"strong": "affine:0.2+shift:2+cutout:0.5", "l2": 5e-4, "fraction": 1.0},
    "L2 5e-4, fraction 1, weight 0.5": VIEW | {"l2": 5e-4, "fraction": 1.0, "weight": 0.5},
    "L2 5e-4, fraction 1, earlier ramp": VIEW | {"l2": 5e-4, "fraction": 1.0, "ramp": (0.05, 0.2)},
    "L2 5e-4, fraction 1, learning rate 5e-4": VIEW | {"l2": 5e-4, "fraction": 1.0, "lr": 5e-4},
    "L2 5e-4, fraction 1, 400 epochs": VIEW | {"l2": 5e-4, "fraction": 1.0, "epochs": 400},
    "weak view, L2 5e-4": WEAK | {"l2": 5e-4},
    "no weak view, L2 5e-4, fraction 1": {"strong": "shift:2+cutout:0.5", "l2": 5e-4, "fraction": 1.0},
    "affine, fraction 0.9": AFFINE | {"fraction": 0.9},
    "affine, fraction 0.9, weight 2": AFFINE | {"fraction": 0.9, "weight": 2.0},
    "affine, fraction 0.9, 400 epochs": AFFINE | {"fraction": 0.9, "epochs": 400},
    "affine, fraction 0.9, weight 2, 400 epochs": AFFINE | {"fraction": 0.9, "weight": 2.0, "epochs": 400},
}


def configuration(name: str, tasks: str, quick: bool) -> Record:
    """Return the complete configuration of one setting."""
    changes = {"epochs": 3, "rows": 200} if quick else {}
    found: Record = normalized(
        {
            "setting": name, "tasks": tasks, "seeds": SEEDS[tasks], "rows": 30_000, **BASE, **settings_of(tasks)[name],
            **changes,
        }
    )  # fmt: skip
    return found


def settings_of(tasks: str) -> dict[str, dict[str, Any]]:
    """Return the settings that are compared on the tasks of the paper (ablations), or on the other tasks."""
    return ABLATIONS if tasks == "paper" else SETTINGS


@dataclasses.dataclass(frozen=True)
class Task:
    """Labels of a dataset, and its first training image and first test image in the joint table."""

    train_labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    train: int
    test: int


@functools.cache
def load(tasks: str, data_dir: Path | None) -> tuple[Tensor, dict[str, Task]]:
    """Return the pixels of all datasets in one table, and the labels of each dataset."""
    tables, found, start = [], {}, 0
    for name, positive in TASKS[tasks].items():
        images = load_images(name, data_dir=data_dir, download=False)
        labels = [np.isin(part, positive).astype(np.int64) for part in (images.train_labels, images.test_labels)]
        found[name] = Task(labels[0], labels[1], start, start + len(labels[0]))
        tables += [torch.from_numpy(part.reshape(len(part), -1)) for part in (images.train_images, images.test_images)]
        start += sum(map(len, labels))
    return torch.cat(tables), found


def evaluate(task: Task, scores: Tensor, seed: int, labeled: bool) -> dict[str, float]:
    """Return the risk on two unlabeled sets of test images, or the accuracy on all of them."""
    scores = scores[task.test : task.test + len(task.test_labels)]
    if labeled:
        return {"accuracy": float(((scores > 0).numpy() == task.test_labels).mean())}
    numbers = np.arange(len(scores))[:, None]
    size = int(min(task.test_labels.sum(), (1 - task.test_labels).sum()))
    drawn = make_sets(numbers, task.test_labels, EVALUATION_PRIORS, (size, size), random_state=seed, allow_reuse=False)
    sets = torch.arange(2).repeat_interleave(size)
    rows = torch.from_numpy(np.concatenate(drawn.indices))
    risk = uu_risk(scores[rows], sets, EVALUATION_PRIORS, 0.5, loss="zero_one", method="unbiased")
    return {"risk": round(float(risk.unbiased), 5)}


def fixed_threshold(scores: Tensor, in_set_1: Tensor, priors: Tensor, fraction: float) -> Tensor:
    """Label the rows whose probability is above `THRESHOLD`, as FixMatch does, instead of a fraction of each set."""
    probability = torch.sigmoid(scores)
    return (probability > THRESHOLD).float() - ((probability >= 1 - THRESHOLD) & (probability <= THRESHOLD)).float()


def fit(data_dir: Path | None, device: str, one: Record) -> Record:
    """Train all tasks with one setting together, and evaluate each."""
    table, tasks = load(one["tasks"], data_dir)
    cells = [(name, priors, seed) for name in tasks for priors in PRIORS[one["tasks"]] for seed in one["seeds"]]
    given = {name: one[name] for name in OPTIONS & one.keys()}
    options = RunOptions(
        epochs=one["epochs"],
        lr=one["lr"],
        l2=one["l2"],
        ema=one["ema"],
        early_stopping=one["early_stopping"],
        device=device,
        input_scale=1 / 255,
        progress=False,
        augment=one.get("augment"),
        image_shape=SHAPE,
        consistency=ConsistencyOptions(**given) if given else None,
    )
    runs = []
    for name, priors, seed in cells:
        task = tasks[name]
        numbers = task.train + np.arange(len(task.train_labels))[:, None]
        drawn = make_sets(numbers, task.train_labels, priors, (one["rows"], one["rows"]), random_state=seed)
        rows, held_out = hold_out((drawn.X0[:, 0], drawn.X1[:, 0]), 0.1, seed)
        prior = float(task.test_labels.mean()) if one["tasks"] == "paper" else 0.5
        runs.append(Run(index_tensors(rows), priors, prior, seed=seed, held_out=index_tensors(held_out)))
    params = {"dropout": one["dropout"]} if one["dropout"] else None
    label = fixed_threshold if one.get("fixed_threshold") else pseudo_labeling.label_by_rank
    with mock.patch("uulearn.training.batched.consistency.label_by_rank", label):
        trainer = BatchedTrainer(table, runs, model="mlp", model_params=params, options=options)
        histories, found = trainer.run(), []
    scores = trainer.scores(table)
    for (name, priors, seed), history, own in zip(cells, histories, scores, strict=True):
        found.append(
            {
                "task": name, "set_priors": priors, "seed": seed,
                **evaluate(tasks[name], own, seed, one["tasks"] == "paper"),
                "best_epoch": history.best_epoch, "epochs": len(history), "stop_reason": history.stop_reason,
                "seconds_per_epoch": round(statistics.median(history.column("seconds")), 4),
            }
        )  # fmt: skip
    return {"runs": found, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}


def tell(record: Record) -> str:
    """Return a progress line."""
    runs = record["runs"]
    value = "accuracy" if "accuracy" in runs[0] else "risk"
    by_cell = defaultdict(list)
    for run in runs:
        by_cell[run["task"], *run["set_priors"]].append(100 * run[value])
    values = ", ".join(f"{cell[0]} {cell[1]} {statistics.mean(own):.2f}" for cell, own in by_cell.items())
    return f"{record['configuration']['setting']}: {value} {values}, {runs[0]['seconds_per_epoch']:.3f} s an epoch"


def choose(path: Path) -> None:
    """Print the risk of each setting minus that of the setting "consistency", in points, with its standard error."""
    fits = [one for one in read([path]).fits.values() if one["configuration"]["tasks"] == "other"]
    found = {one["configuration"]["setting"]: one["runs"] for one in fits}
    base = {_cell(run): run["risk"] for run in found["consistency"]}
    for name, runs in found.items():
        texts = []
        for priors in PRIORS["other"]:
            own = [run for run in runs if tuple(run["set_priors"]) == priors]
            changes = [100 * (run["risk"] - base[_cell(run)]) for run in own]
            error = statistics.stdev(changes) / len(changes) ** 0.5
            risk = statistics.mean(100 * run["risk"] for run in own)
            texts.append(f"{risk:5.2f} ({statistics.mean(changes):+.2f} ± {error:.2f})")
        print(f"{name:45}", *texts)


def _cell(run: Record) -> tuple[Any, ...]:
    return run["task"], *run["set_priors"], run["seed"]


def main() -> None:
    """Run the missing settings, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--paper", action="store_true", help="measure the accuracy in the tasks of the paper")
    parser.add_argument("--only", nargs="+", help="parts of the names of the settings to run; default: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--choose", action="store_true", help="print the comparison of stored settings")
    asked = parser.parse_args()
    path = out_of(asked, STORE)
    if asked.choose:
        choose(path)
        return
    tasks = "paper" if asked.paper else "other"
    names = [name for name in settings_of(tasks) if not asked.only or any(part in name for part in asked.only)]
    planned = [configuration(name, tasks, asked.quick) for name in names]
    complete(planned, functools.partial(fit, asked.data_dir, asked.device), tell, path, minutes=asked.minutes)


if __name__ == "__main__":
    main()
