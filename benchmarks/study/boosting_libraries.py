"""Compare LightGBM and XGBoost as the library behind ``model="boosting"``: accuracy without labels, speed and size.

Both libraries train the same model, 50 trees of at most 15 leaves on the gradient of the corrected risk, with the same
settings as far as they have the same meaning. The tables are those of `auto_fits`, which no page reports. Columns are
encoded by `TableEncoder`; with ``native``, the libraries get categories and missing values as they are. A model is
evaluated by the zero-one risk on two held-out sets of other rows at the priors (0.9, 0.1). Labels are used only to draw
the sets. The speed is that of 100 trees on 2 × 100,000 rows × 40 columns with two threads, both libraries in turn.
Fits are stored one by one, so an interrupted comparison continues.

    pip install --no-deps xgboost-cpu
    pip download --no-deps -d WHEELS lightgbm xgboost xgboost-cpu
    python benchmarks/study/boosting_libraries.py --folder FOLDER_OF_AUTO_FITS --wheels WHEELS
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import records
from auto_fits import HELD_OUT_PRIORS, TABLES, load
from numpy.typing import NDArray
from resuming import STUDY

from common import FORMAT, RESULTS, interleave, machine, summarize, versions, write_json
from uulearn.datasets import make_sets
from uulearn.reproduction.store import key
from uulearn.risk import UURisk
from uulearn.risk.derivatives import hessian_bound, risk_and_gradient
from uulearn.tabular.encoder import TableEncoder

STORE = STUDY / "boosting_libraries.jsonl"
SPEED = RESULTS / "boosting_libraries.json"
PRIORS = ((0.8, 0.2), (0.6, 0.4))
SIZES = (300, 1000)
SEEDS = (300, 301)
ROUNDS, LEAVES, RATE, PART, LEAF_ROWS, CURVATURE = 50, 15, 0.1, 0.5, 20, 0.25
HELD_OUT = 2000
THREADS = 2
SPEED_ROWS, SPEED_COLUMNS, SPEED_ROUNDS = 100_000, 40, 100

Floats = NDArray[np.float64]
Derivatives = Callable[[Floats], tuple[Floats, Floats]]


def derivatives(sets: NDArray[np.int64], priors: tuple[float, float], target: float) -> tuple[Derivatives, Floats]:
    """Return the gradient and the bound of the Hessian of the corrected risk, both times the number of rows."""
    risk = UURisk(priors, target, "sigmoid", "abs", distributed=False)
    weights, n = risk.row_weights(torch.from_numpy(sets)), len(sets)
    bound = n * hessian_bound(weights, risk.method, CURVATURE).numpy()

    def at(scores: Floats) -> tuple[Floats, Floats]:
        gradient = risk_and_gradient(torch.from_numpy(scores).float(), weights, risk.loss, risk.method)[1]
        return n * gradient.numpy(), bound

    return at, bound


def train_lightgbm(rows: Any, at: Derivatives, bound: Floats, seed: int, rounds: int, threads: int) -> Any:
    """Return a function that scores rows by trees of LightGBM."""
    import lightgbm

    parameters = {
        "num_leaves": LEAVES, "learning_rate": RATE, "min_data_in_leaf": min(LEAF_ROWS, len(rows) // 10),
        "feature_fraction": PART, "bagging_fraction": PART, "bagging_freq": 1, "min_sum_hessian_in_leaf": 0.0,
        "lambda_l2": 0.0, "objective": "none", "seed": seed, "num_threads": threads, "verbosity": -1,
        "deterministic": True, "force_row_wise": True, "feature_pre_filter": False,
    }  # fmt: skip
    booster = lightgbm.Booster(parameters, lightgbm.Dataset(rows, params=parameters))
    for _ in range(rounds):
        booster.update(fobj=lambda scores, _: at(scores))
    return lambda new: booster.predict(new, raw_score=True)


def train_xgboost(rows: Any, at: Derivatives, bound: Floats, seed: int, rounds: int, threads: int) -> Any:
    """Return a function that scores rows by trees of XGBoost."""
    import xgboost

    parameters = {
        "tree_method": "hist", "grow_policy": "lossguide", "max_leaves": LEAVES, "max_depth": 0,
        "learning_rate": RATE, "subsample": PART, "colsample_bytree": PART, "reg_lambda": 0.0, "base_score": 0.0,
        "min_child_weight": min(LEAF_ROWS, len(rows) // 10) * float(bound.mean()), "seed": seed,
        "nthread": threads, "max_bin": 255, "verbosity": 0, "disable_default_eval_metric": True,
    }  # fmt: skip
    table = xgboost.DMatrix(rows, np.zeros(len(rows)), enable_categorical=True, nthread=threads)
    booster = xgboost.train(parameters, table, rounds, obj=lambda scores, _: at(scores.astype(np.float64)))
    return lambda new: booster.predict(xgboost.DMatrix(new, enable_categorical=True), output_margin=True)


LIBRARIES = {"lightgbm": train_lightgbm, "xgboost": train_xgboost}


def native(frame: Any) -> Any:
    """Return a data frame of numbers and categories with missing values, for the whole table."""
    columns = {}
    for name in frame:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column):
            columns[name] = column.astype("int64").astype(float)
        elif pd.api.types.is_numeric_dtype(column):
            columns[name] = column.astype(float)
        else:
            columns[name] = column.astype(str).where(column.notna()).astype("category")
    return pd.DataFrame(columns)


def compare(one: dict[str, Any], folder: Path) -> list[dict[str, Any]] | None:
    """Train all contenders on one draw; return their risks and CPU seconds, or None if the table is too small."""
    frame, labels = load(one["table"], folder)
    rows, options = one["rows"], {"allow_reuse": False, "random_state": one["seed"]}
    if np.bincount(labels).min() < rows + 200:
        return None
    index = np.arange(len(labels))[:, None]
    drawn = make_sets(index, labels, tuple(one["set_priors"]), (rows, rows), **options)
    rest = np.setdiff1d(index, np.concatenate(drawn.indices))
    size = min(HELD_OUT, *np.bincount(labels[rest]).tolist()) // 10 * 10
    held_out = make_sets(rest[:, None], labels[rest], HELD_OUT_PRIORS, (size, size), **options)
    target = float(labels.mean())
    error = UURisk(held_out.realized_priors, target, "zero_one", "unbiased", distributed=False)
    at, bound = derivatives(drawn.sets, drawn.realized_priors, target)
    parts = np.concatenate(drawn.indices), np.concatenate([held_out.X0[:, 0], held_out.X1[:, 0]])
    trained, new = (frame.iloc[part].reset_index(drop=True) for part in parts)
    encoder = TableEncoder().fit(trained, drawn.sets)
    views = {"encoded": (np.asarray(encoder.transform(trained)), np.asarray(encoder.transform(new)))}
    if not all(pd.api.types.is_numeric_dtype(frame[column]) for column in frame) or frame.isna().any().any():
        whole = native(frame)
        views["native"] = whole.iloc[parts[0]], whole.iloc[parts[1]]
    found = []
    for columns, (learn, unseen) in views.items():
        for library, train in LIBRARIES.items():
            started = time.process_time()
            scores = train(learn, at, bound, one["seed"], ROUNDS, 1)(unseen)
            seconds = time.process_time() - started
            risk = error(torch.as_tensor(np.asarray(scores, dtype=np.float32)), torch.from_numpy(held_out.sets)).item()
            found.append({"columns": columns, "library": library, "risk": round(risk, 5), "cpu": round(seconds, 3)})
    return found


def measure_speed() -> dict[str, Any]:
    """Return the seconds of both libraries for many rows."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], SPEED_ROWS)
    positive = rng.random(2 * SPEED_ROWS) < np.where(sets == 0, 0.7, 0.3)
    rows = rng.normal(size=(2 * SPEED_ROWS, SPEED_COLUMNS)).astype(np.float32)
    rows[:, :20] += np.where(positive, 0.25, -0.25)[:, None]
    at, bound = derivatives(sets, (0.7, 0.3), 0.5)
    runs = {
        name: lambda train=train: train(rows, at, bound, 0, SPEED_ROUNDS, THREADS) for name, train in LIBRARIES.items()
    }
    return summarize(interleave(runs, 3), ["lightgbm"])


def wheel_sizes(folder: Path) -> dict[str, Any]:
    """Return the size of each wheel in MB, packed and unpacked, and the packages it needs."""
    found = {}
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as opened:
            metadata = next(name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
            needs = [
                line.partition(":")[2].strip()
                for line in opened.read(metadata).decode().splitlines()
                if line.startswith("Requires-Dist") and "extra ==" not in line
            ]
            unpacked = sum(entry.file_size for entry in opened.infolist())
        version = "-".join(path.name.split("-")[:2])
        found[version] = {"packed": path.stat().st_size / 1e6, "unpacked": unpacked / 1e6, "needs": needs}
    return found


def main() -> None:
    """Run all fits that are not stored; with ``--wheels``, measure the speed and the sizes too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of tables, written by auto_fits.py --export")
    parser.add_argument("--wheels", type=Path, help="folder of wheels; measure their size, and the speed")
    parser.add_argument("--minutes", type=float, default=60, help="start no fit after this time")
    asked = parser.parse_args()
    import lightgbm
    import xgboost

    used = versions() | {"lightgbm": lightgbm.__version__, "xgboost": xgboost.__version__}
    warnings.simplefilter("ignore")
    if asked.wheels is not None:
        speed = {"rows": SPEED_ROWS, "columns": SPEED_COLUMNS, "rounds": SPEED_ROUNDS, "threads": THREADS}
        trees = {"leaves": LEAVES, "learning_rate": RATE, "fractions": PART, "leaf_rows": LEAF_ROWS}
        measured = {"wheels": wheel_sizes(asked.wheels), "speed": measure_speed()}
        about = {"format": FORMAT, "versions": used, "machine": machine(), "configuration": speed | trees}
        write_json(SPEED, about | {"results": measured})
    torch.set_num_threads(1)
    writer, stored = records.Writer(STORE, used, machine()), records.read([STORE]).fits
    end = time.monotonic() + 60 * asked.minutes
    for seed, name, rows, priors in itertools.product(SEEDS, TABLES, SIZES, PRIORS):
        one = {"table": name, "rows": rows, "set_priors": list(priors), "seed": seed}
        if time.monotonic() < end and key(one) not in stored and (found := compare(one, asked.folder)) is not None:
            writer.add({"configuration": one, "fits": found})


if __name__ == "__main__":
    main()
