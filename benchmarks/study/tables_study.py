"""Compare classifiers of data frames by accuracy and CPU time, on nineteen tables with numbers and categories.

Two unlabeled sets of 100, 300, 1,000 and 5,000 rows each, or the largest number that a table allows
(`tables.set_sizes`), are drawn in three ways: at (0.8, 0.2), at (0.6, 0.4), and at (0.8, 0.2) with four times as many
rows in set 0 as in set 1 and the same total. π is the class prior of the table. Every contender (`table_contenders.py`)
gets the same rows and the realized priors, and is evaluated on the labeled 30% of the table from which no set is drawn.

Every fit is stored when it is finished and is not repeated, so the study can be interrupted. CPU and wall time are
those of one fit with one thread, including the encoding of its rows. ``--tag`` stores a text with every fit, to compare
two versions of the code. `frames.py` writes the folder of tables. `render_tables.py` renders the results.

    python benchmarks/study/tables_study.py --folder FOLDER [--workers 16] [--minutes 60] [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import frames
import numpy as np
import pandas as pd
import table_contenders
import tables
from records import Record
from resuming import QUICK, STUDY, complete
from sklearn.metrics import roc_auc_score
from table_contenders import Contender
from threadpoolctl import threadpool_limits

from uulearn.datasets import make_sets
from uulearn.reproduction.store import normalized

STORE = STUDY / "tables.jsonl"
SIZES = (100, 300, 1000, 5000)
SEEDS = range(3)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Draw(NamedTuple):
    """The priors of two sets, and their sizes divided by the mean size."""

    set_priors: tuple[float, float]
    shares: tuple[float, float] = (1, 1)


DRAWS = {
    "0.8,0.2": Draw((0.8, 0.2)),
    "0.6,0.4": Draw((0.6, 0.4)),
    "4:1": Draw((0.8, 0.2), (1.6, 0.4)),
}


# ------------------------------------------------------------------------------------------------------------ the plan


def planned(
    names: Iterable[str],
    sizes: Sequence[int],
    draws: Iterable[str],
    seeds: Iterable[int],
    everyone: Iterable[Contender],
    folder: Path,
    tag: str | None = None,
) -> list[Record]:
    """Return the configurations of all fits: small sets first, and all contenders of a cell and a seed together."""
    chosen = [(which, DRAWS[which]) for which in draws]
    cells = [
        (rank, name, which, size)
        for name, (which, draw) in itertools.product(names, chosen)
        for rank, size in enumerate(tables.sizes_up_to(frames.load(name, folder).largest_size(*draw), sizes))
    ]
    ranks, everyone, seeds = sorted({rank for rank, *_ in cells}), list(everyone), list(seeds)
    return [
        configuration(name, which, size, seed, contender, tag)
        for rank, seed in itertools.product(ranks, seeds)
        for own, name, which, size in cells
        if own == rank
        for contender in everyone
    ]


def configuration(name: str, which: str, rows: int, seed: int, contender: Contender, tag: str | None = None) -> Record:
    """Return the complete configuration of one fit; ``rows`` is the mean size of the sets."""
    draw = DRAWS[which]
    found: Record = normalized(
        {
            "dataset": name,
            "draw": which,
            "set_priors": draw.set_priors,
            "rows": rows,
            "sizes": [round(share * rows) for share in draw.shares],
            "seed": seed,
            "contender": contender.name,
            "parameters": contender.parameters,
        }
    )
    return found | ({"tag": tag} if tag else {})


# ------------------------------------------------------------------------------------------------------------- one fit


def fit(folder: Path, quick: bool, one: Record) -> Record:
    """Draw the sets, train, and measure the accuracy and the time."""
    contender = table_contenders.available(quick)[one["contender"]]
    table = frames.load(one["dataset"], folder)
    drawn = make_sets(
        table.train, table.y_train, one["set_priors"], one["sizes"], allow_reuse=False, random_state=one["seed"]
    )
    parts, priors = [part.reset_index(drop=True) for part in drawn], drawn.realized_priors
    if contender.labeled:
        rows = np.concatenate(drawn.indices)
        parts = [table.train.iloc[rows[table.y_train[rows] == label]].reset_index(drop=True) for label in (1, 0)]
        priors = (1.0, 0.0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        warm_up(one["contender"])
        started = (cpu_seconds(), time.perf_counter())
        fitted = contender.fit(parts[0], parts[1], priors, table.target_prior, one["seed"])
        seconds = (cpu_seconds() - started[0], time.perf_counter() - started[1])
        scores, predicted = fitted.decision_function(table.test), fitted.predict(table.test)
    return {
        "accuracy": round(float((predicted == table.y_test).mean()), 5),
        "auc": round(float(roc_auc_score(table.y_test, scores)), 5),
        "test_rows": len(table.y_test),
        "target_prior": round(table.target_prior, 5),
        "realized_priors": drawn.realized_priors,
        "cpu_seconds": round(seconds[0], 3),
        "fit_seconds": round(seconds[1], 3),
        "estimate": estimate(fitted),
        "resolved": resolved(fitted),
        "compared": compared(fitted),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@functools.cache
def warm_up(name: str) -> None:
    """Train briefly once per process, because the first fit imports and initializes parts of the libraries."""
    rng = np.random.default_rng(0)
    positive = np.repeat([1, 0, 1, 0], [24, 6, 6, 24])
    frame = pd.DataFrame(
        {"x": rng.normal(positive), "y": rng.normal(size=60), "text": rng.choice(["a", "b", "c"], size=60)}
    )
    fitted = table_contenders.available(quick=True)[name].fit(frame[:30], frame[30:], (0.8, 0.2), 0.5, 0)
    fitted.decision_function(frame)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def estimate(fitted: Any) -> dict[str, Any] | None:
    """Return the accuracy and the AUC that a classifier estimates without labels, or None if it has no estimate."""
    evaluation = getattr(getattr(fitted, "classifier", fitted), "out_of_fold_evaluation_", None)
    if evaluation is None:
        return None
    return {
        name: {"value": round(one.value, 5), "interval": [round(end, 5) for end in one.interval]}
        for name, one in (("accuracy", evaluation.accuracy), ("auc", evaluation.auc))
    }


def resolved(fitted: Any) -> dict[str, Any] | None:
    """Return the values that a `UUClassifier` chose for its parameters set to "auto"."""
    found: dict[str, Any] | None = getattr(getattr(fitted, "classifier", fitted), "resolved_params_", None)
    return found if found is None else {name: _as_json(value) for name, value in found.items()}


def compared(fitted: Any) -> list[dict[str, Any]] | None:
    """Return the models that ``model="auto"`` compared: their risk, CPU time and whether they were used."""
    found = getattr(getattr(fitted, "classifier", fitted), "comparison_", None)
    return found and [dataclasses.asdict(entry) for entry in found]


def _as_json(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def line(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    return (
        f"{one['dataset']} {one['rows']} {one['draw']} seed {one['seed']} {one['contender']}: "
        f"{100 * record['accuracy']:.1f}%, {record['cpu_seconds']:.1f} s of CPU"
    )


# -------------------------------------------------------------------------------------------------------- command line


def seed_range(text: str) -> range:
    """Parse the seeds A to B − 1, written A:B.

    >>> seed_range("2:5")
    range(2, 5)
    """
    first, colon, last = text.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and int(first) < int(last)):
        raise argparse.ArgumentTypeError(f"expected seeds as A:B with A < B, such as 0:3, got {text!r}")
    return range(int(first), int(last))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = list(table_contenders.available())
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--folder", type=Path, required=True, help="folder of tables, written by frames.py")
    for option, choices in (("contenders", names), ("tables", frames.NAMES), ("draws", DRAWS)):
        found.add_argument(f"--{option}", choices=list(choices), nargs="+", metavar="NAME",
                           help=f"default: all ({'; '.join(choices)})")  # fmt: skip
    found.add_argument("--sizes", type=int, nargs="+", help="mean rows per set; default: 100 300 1000 5000")
    found.add_argument("--seeds", type=seed_range, default=SEEDS, metavar="A:B", help="seeds A to B − 1; default: 0:3")
    found.add_argument("--tag", help="text that is stored with every fit, to compare versions of the code")
    found.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    found.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    found.add_argument("--out", type=Path, help="default: results/study/tables.jsonl")
    found.add_argument(
        "--quick", action="store_true", help="two tables, 100 rows, one seed, 2 epochs, to check that the script runs"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Check all arguments, then run."""
    asked = parser().parse_args(arguments)
    if asked.workers < 1:
        sys.exit(f"--workers must be at least 1, got {asked.workers}.")
    names = asked.tables or (("breast_cancer", "titanic") if asked.quick else frames.NAMES)
    sizes = asked.sizes or ((100,) if asked.quick else SIZES)
    if min(sizes) < 20:
        sys.exit(f"--sizes must be at least 20, got {min(sizes)}.")
    seeds = asked.seeds[:1] if asked.quick else asked.seeds
    everyone = table_contenders.available(asked.quick)
    try:
        chosen = [everyone[name] for name in asked.contenders or everyone]
        plan = planned(names, sizes, asked.draws or DRAWS, seeds, chosen, asked.folder, asked.tag)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    out = asked.out or (QUICK / STORE.name if asked.quick else STORE)
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for the child processes, before they import anything
    run = functools.partial(fit, asked.folder, asked.quick)
    complete(plan, run, line, out, minutes=asked.minutes, jobs=asked.workers, keep_going=True)


if __name__ == "__main__":
    main()
