"""Choose options of consistency training for ResNet-32 on CIFAR-10 without labels.

The binary tasks have other positive classes than the task of the paper. Two sets of 30,000 training images are drawn at
(0.6, 0.4), and `UUClassifier` trains ResNet-32 with a tenth of them held out for early stopping. Settings are compared
by the zero-one risk of the predictions for two other unlabeled sets, drawn from the test images at (0.8, 0.2). Labels
are used only to draw the sets. Finished fits are stored and are not repeated.

    python benchmarks/study/consistency_resnet.py [--data-dir DIR] [--only PART …] [--minutes 8] [--quick]
    python benchmarks/study/consistency_resnet.py --choose
"""

from __future__ import annotations

import argparse
import functools
import statistics
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from consistency_settings import Task, evaluate
from numpy.typing import NDArray
from records import Record, read
from resuming import STUDY, add_options, complete, out_of
from shared import split_parameters

from uulearn import UUClassifier
from uulearn.datasets import ImageDataset, load_images, make_sets
from uulearn.defaults import PIXEL_SCALE
from uulearn.reproduction.store import normalized
from uulearn.training import TrainingOptions

STORE = STUDY / "consistency_resnet.jsonl"
TASKS = ((0, 1, 2, 3, 4), (1, 3, 5, 7, 9))
"""Positive classes of each task; those of the paper are 2 to 7."""
PRIORS = (0.6, 0.4)
TARGET_PRIOR = 0.5
SEED = 0
STRONG = "shift+flip+color+cutout"

BASE: dict[str, Any] = {
    "epochs": 50, "batch_size": 3000, "augment": "shift+flip", "consistency": {"strong": STRONG}, "patience": None,
    "compile": True,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "batch 1000": {"batch_size": 1000},
    "batch 500": {"batch_size": 500},
    "batch 1000, affine": {"batch_size": 1000, "consistency": {"strong": f"affine:0.2+{STRONG}"}},
    "batch 1000, label 90%": {"batch_size": 1000, "consistency": {"strong": STRONG, "fraction": 0.9}},
    "batch 1000, weight 2": {"batch_size": 1000, "consistency": {"strong": STRONG, "weight": 2.0}},
    "batch 1000, 100 epochs": {"batch_size": 1000, "epochs": 100},
    "100 epochs": {"epochs": 100},
}


def configurations(quick: bool) -> list[Record]:
    """Return the configurations of all fits."""
    changes = {"epochs": 2, "compile": False} if quick else {}
    return [
        normalized(
            {"setting": name, "task": positive, "set_priors": PRIORS, "seed": SEED, "rows": 300 if quick else 30_000,
             **BASE, **setting, **changes}
        )
        for name, setting in SETTINGS.items()
        for positive in TASKS
    ]  # fmt: skip


@functools.cache
def load(data_dir: Path | None) -> ImageDataset:
    """Return the images of CIFAR-10."""
    return load_images("cifar10", data_dir=data_dir, download=False)


def fit(data_dir: Path | None, device: str, one: Record) -> Record:
    """Train one setting on one task, and evaluate it without labels."""
    images = load(data_dir)
    train, test = (_binary(labels, one["task"]) for labels in (images.train_labels, images.test_labels))
    drawn = make_sets(
        np.arange(len(train))[:, None], train, PRIORS, (one["rows"], one["rows"]), random_state=one["seed"]
    )
    changes, training = split_parameters({name: one[name] for name in BASE})
    classifier = UUClassifier(
        PRIORS, TARGET_PRIOR, model="resnet32", device=device, random_state=one["seed"], progress=False,
        training=TrainingOptions(input_scale=PIXEL_SCALE, **training), **changes,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.fit_sets(*(images.train_images[part] for part in drawn.indices))
    scores = torch.from_numpy(classifier.decision_function(images.test_images))
    history = classifier.history_
    return {
        **evaluate(Task(train, test, 0, 0), scores, one["seed"], labeled=False),
        "best_epoch": history.best_epoch, "epochs": len(history), "stop_reason": history.stop_reason,
        "seconds_per_epoch": round(statistics.median(history.column("seconds")), 4),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }  # fmt: skip


def _binary(labels: NDArray[Any], positive: list[int]) -> NDArray[np.int64]:
    return np.isin(labels, positive).astype(np.int64)


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    return (
        f"{one['setting']}, classes {one['task']}: risk {100 * record['risk']:.2f}, best epoch {record['best_epoch']}, "
        f"{record['seconds_per_epoch']:.3f} s an epoch"
    )


def choose(path: Path) -> None:
    """Print the mean risk of each setting over the tasks, in percent."""
    found = defaultdict(list)
    for record in read([path]).fits.values():
        found[record["configuration"]["setting"]].append(100 * record["risk"])
    for name, risks in sorted(found.items(), key=lambda item: statistics.mean(item[1])):
        print(f"{name:30} {statistics.mean(risks):6.2f}  ({', '.join(f'{risk:.2f}' for risk in risks)})")


def main() -> None:
    """Run the missing fits, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--only", nargs="+", help="names of the settings to run; default: all")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--choose", action="store_true", help="print the comparison of stored settings")
    asked = parser.parse_args()
    path = out_of(asked, STORE)
    if asked.choose:
        choose(path)
        return
    planned = [one for one in configurations(asked.quick) if not asked.only or one["setting"] in asked.only]
    complete(planned, functools.partial(fit, asked.data_dir, asked.device), tell, path, minutes=asked.minutes)


if __name__ == "__main__":
    main()
