"""Compare settings on images without labels: the grid that the defaults of `UUClassifier` are based on.

The paper's MLP is trained on MNIST, Fashion-MNIST and Kuzushiji-MNIST, with sets of 30,000 rows, three pairs of priors
and two seeds. Every run holds out rows of both sets. For each epoch, the record contains the error estimated on these
rows without labels, which is used to choose, and the accuracy on labeled test rows, which is only reported. Runs with
the same loss, moving average, batch size and held-out fraction are trained together. Finished runs are stored in
``results/study`` and are not repeated.

    python benchmarks/study/grid.py [--dataset mnist …] [--quick] [--out DIR]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shared import Record, environment, index_tensors

from uulearn.datasets import BinaryTask, load_task, make_sets
from uulearn.reproduction.sampling import hold_out
from uulearn.reproduction.store import RunStore
from uulearn.training import RunOptions
from uulearn.training.batched import BatchedTrainer, Run

DATASETS = ("mnist", "fashion_mnist", "kmnist")
PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
BASE: dict[str, Any] = {
    "study": "grid", "model": "mlp", "sizes": [30_000, 30_000], "epochs": 200, "batch_size": 3000, "held_out": 0.1,
    "loss": "logistic", "ema": 0.999, "method": "leaky_relu", "slope": -0.1, "lr": 1e-3, "lr_decay": 0.0, "l2": 0.0,
}  # fmt: skip
ABS: dict[str, Any] = {"method": "abs", "slope": None}
LEAKY: dict[str, Any] = {"method": "leaky_relu", "slope": -0.1}
METHODS = (ABS, LEAKY, {"method": "relu", "slope": None}, {"method": "unbiased", "slope": None})
BATCHED = ("loss", "ema", "batch_size", "held_out", "epochs")
"""Settings shared by all runs that are trained together."""
KEPT = ("test_accuracy", "validation_zero_one", "validation_unbiased")


def settings() -> Iterator[dict[str, Any]]:
    """Yield all settings: all combinations of losses, methods and learning rates; others are varied one at a time."""
    for loss, method, lr in itertools.product(("logistic", "sigmoid"), METHODS, (3e-4, 1e-3, 3e-3)):
        yield {"loss": loss, **method, "lr": lr}
    for loss in ("logistic", "sigmoid"):
        for slope in (-0.01, -0.3):
            yield {"loss": loss, "slope": slope}
        for method in ABS, LEAKY:
            around = {"loss": loss, **method}
            for l2 in (5e-5, 5e-4, 5e-3):
                yield around | {"l2": l2}
            for decay in (1e-4, 1e-3):
                yield around | {"lr": 3e-3, "lr_decay": decay}
            for ema, lr in itertools.product((None, 0.99, 0.9997), (3e-4, 1e-3)):
                yield around | {"ema": ema, "lr": lr}
            for batch_size in (1000, 6000):
                yield around | {"batch_size": batch_size}
            for held_out in (0.05, 0.2):
                yield around | {"held_out": held_out}


def runs(wanted: list[dict[str, Any]], dataset: str, seeds: range, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the configurations of one dataset."""
    return [
        BASE | setting | changes | {"dataset": dataset, "set_priors": list(priors), "seed": seed}
        for setting in wanted
        for priors in PRIORS
        for seed in seeds
    ]


def train(runs: list[dict[str, Any]], task: BinaryTask, device: str) -> list[Record]:
    """Train runs together and return their records."""
    first, sets = runs[0], {}
    X, y = torch.from_numpy(task.X_train).flatten(1), task.y_train
    for run in runs:
        where = (tuple(run["set_priors"]), run["seed"])
        if where not in sets:
            numbers = np.arange(len(y))[:, None]
            drawn = make_sets(numbers, y, where[0], tuple(run["sizes"]), random_state=run["seed"])
            sets[where] = [index_tensors(part) for part in hold_out(drawn.indices, run["held_out"], run["seed"])]
    trainer = BatchedTrainer(
        X,
        [
            Run(
                sets[tuple(run["set_priors"]), run["seed"]][0],
                tuple(run["set_priors"]),
                task.prior,
                run["method"],
                run["slope"] if run["slope"] is not None else 0.0,
                seed=run["seed"],
                lr=run["lr"],
                l2=run["l2"],
                lr_decay=run["lr_decay"],
                held_out=sets[tuple(run["set_priors"]), run["seed"]][1],
            )
            for run in runs
        ],
        model="mlp",
        model_params=None,
        loss=first["loss"],
        options=RunOptions(
            epochs=first["epochs"],
            batch_size=first["batch_size"],
            ema=first["ema"],
            device=device,
            input_scale=1 / 255,
            progress=False,
        ),
        test=(torch.from_numpy(task.X_test).flatten(1), torch.from_numpy(task.y_test)),
    )
    histories = trainer.run()
    described = environment(device)
    return [
        {
            "configuration": run,
            "curves": {name: history.column(name) for name in KEPT},
            "stop_reason": history.stop_reason,
            "environment": described,
        }
        for run, history in zip(runs, histories, strict=True)
    ]


def main() -> None:
    """Train the missing runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append", choices=DATASETS)
    parser.add_argument("--priors", type=float, action="append", help="θ of the pairs wanted; all three by default")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/study"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no batch of runs after this time")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, only to check that the script runs")
    arguments = parser.parse_args()
    changes = {"sizes": [300, 300], "epochs": 3, "study": "quick"} if arguments.quick else {}
    wanted = list(settings())[:: 12 if arguments.quick else 1]
    store, started = RunStore(arguments.out), time.monotonic()
    for dataset in arguments.dataset or DATASETS:
        asked = runs(wanted, dataset, range(arguments.seeds), changes)
        missing = [r for r in store.missing(asked) if not arguments.priors or r["set_priors"][0] in arguments.priors]
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for run in missing:
            groups.setdefault(tuple(run[name] for name in BATCHED), []).append(dict(run))
        task = load_task(dataset, data_dir=arguments.data_dir) if groups else None
        for shared, group in groups.items():
            if time.monotonic() - started > arguments.seconds:
                print("the time limit is reached; run the same command again to continue")
                return
            assert task is not None
            began = time.monotonic()
            store.add_all(train(group, task, arguments.device))
            said = ", ".join(f"{name} {value}" for name, value in zip(BATCHED, shared, strict=True))
            print(f"{dataset}: {said}: {len(group)} runs, {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
