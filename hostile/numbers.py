"""Numeric extremes: from 1e-300 to 1e300, denormals, infinities, NaN and the limits of integers.

A fit is refused with a sentence or gives a model with finite weights; a row is refused or gets a finite score, a
probability and a class that fit together.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.cases import PYTHON_WARNING, Area, Case, Trial, scaled
from hostile.commands import run
from hostile.tables import PRIORS, csv_text, draw_rows, fit_small, write_tables

FLOAT32 = float(np.finfo(np.float32).max)
SCALES = (
    1e-300, 1e-308, 5e-324, 1e-100, 1e-45, 1e-38, 1e-30, 1e-18, 1e-6, 1e6, 1e12, 1e16, 1e18, 1e19,
    1e25, 1e30, 1e37, 3e38, 1e39, 1e60, 1e100, 1e200, 1e300,
)  # fmt: skip
VALUES = (
    0.0, -0.0, 5e-324, 2.2e-308, 1e-300, 1e-45, 1e-38, 1.0, 16777217.0, 9007199254740993.0, 1e18, 1e30,
    FLOAT32, -FLOAT32, 3.4028236e38, 3.5e38, 1e39, 1e300, -1e300, 1.7976931348623157e308, math.inf,
    -math.inf, math.nan, float(2**63 - 1), float(-(2**63)), float(2**64), 1e15 + 0.3,
)  # fmt: skip
CELLS = (
    *(repr(value) for value in VALUES), "9223372036854775807", "-9223372036854775808", "18446744073709551615",
    "1" + "0" * 40, "1e400", "-1e400", "1e-400", "0x7fffffff", "1e5e5", "+inf", "Infinity", "-NaN",
    "1e+0000000300", "." + "0" * 400 + "1",
)  # fmt: skip
DTYPES = ("float64", "float32", "float16", "int64", "uint64", "int8", "longdouble", "object", "bool")
NUMBERS = {"scale": 46, "values": 40, "table": 40, "cells": 60}
MODELS = ("mlp", "linear")


def prepare(shared: Path) -> None:
    """Make a model for tables and two for arrays."""
    from uulearn import UUClassifier

    write_tables(shared)
    fit_small(shared, shared / "model")
    X0, X1 = draw_arrays(0)
    for model in MODELS:
        classifier = UUClassifier((0.8, 0.2), model=model, epochs=3, n_estimators=1, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.fit_sets(X0, X1).save(shared / model)


def draw_arrays(seed: int) -> tuple[Any, Any]:
    """Draw two sets of 80 rows with three features."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(80, 3)) + 0.6, rng.normal(size=(80, 3)) - 0.6


def refused(trial: Trial, task: Callable[[], Any]) -> Any:
    """Return the result, or None if a ValueError with a sentence was raised; other errors fail the case."""
    from uulearn.exceptions import NonFiniteRiskError

    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            result = task()
        except (ValueError, NonFiniteRiskError) as error:
            trial.check(str(error).rstrip().endswith((".", "…")), f"not a sentence: {error}")
            trial.counts["refused"] += 1
            return None
    odd = [str(warning.message) for warning in raised if issubclass(warning.category, RuntimeWarning | FutureWarning)]
    trial.check(not odd, f"a warning of NumPy: {odd[:1]}")
    return result


def check_predictions(trial: Trial, classifier: Any, X: Any) -> None:
    """Check that every row has a finite score and a probability and a class that agree, or that X is refused."""
    scores = refused(trial, lambda: classifier.decision_function(X))
    if scores is None:
        for method in (classifier.predict, classifier.predict_proba):
            trial.check(refused(trial, partial(method, X)) is None, f"{method.__name__} accepts what has no score")
        return
    trial.check(len(scores) == len(X), f"{len(X)} rows have {len(scores)} scores")
    trial.check(np.isfinite(scores).all(), f"a score is {scores[~np.isfinite(scores)][:1]}")
    probabilities = refused(trial, lambda: classifier.predict_proba(X))
    classes = refused(trial, lambda: classifier.predict(X))
    trial.check(probabilities is not None and classes is not None, "a row with a score has no class")
    trial.check(np.isfinite(probabilities).all(), "a probability is not finite")
    trial.check(np.array_equal(np.asarray(classes) == 1, np.asarray(scores) > 0), "a class does not fit its score")
    trial.right()


def fit_scale(trial: Trial) -> None:
    """Fit features of an extreme scale in Python."""
    from uulearn import UUClassifier

    X0, X1 = draw_arrays(int(trial.rng.integers(1000)))
    scale = SCALES[int(trial.rng.integers(len(SCALES)))]
    columns = slice(None) if trial.rng.random() < 0.5 else slice(0, 1)
    with np.errstate(over="ignore"):
        for X in (X0, X1):
            X[:, columns] *= scale
    classifier = UUClassifier(
        (0.8, 0.2), model=trial.choose(*MODELS), epochs=3, n_estimators=int(trial.rng.integers(1, 3)), random_state=0
    )
    fitted = refused(trial, lambda: classifier.fit_sets(X0, X1))
    if fitted is None:
        return
    trial.right()
    finite = all(bool(value.isfinite().all()) for value in classifier.model_.state_dict().values())
    trial.check(finite, f"a fit at scale {scale:g} has weights that are not finite")
    classifier.save(trial.folder / "m")
    loaded = UUClassifier.load(trial.folder / "m")
    check_predictions(trial, loaded, X0)
    check_predictions(trial, loaded, draw_arrays(1)[0])


def predict_values(trial: Trial) -> None:
    """Score rows with extreme values and unusual types in Python."""
    from uulearn import UUClassifier

    classifier = UUClassifier.load(trial.shared / trial.choose(*MODELS))
    X = draw_arrays(int(trial.rng.integers(1000)))[0][:20]
    for _ in range(int(trial.rng.integers(1, 4))):
        value = VALUES[int(trial.rng.integers(len(VALUES)))]
        X[int(trial.rng.integers(20)), int(trial.rng.integers(3))] = value
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = X.astype(trial.choose(*DTYPES))
    check_predictions(trial, classifier, X)


def table_with(trial: Trial, path: Path, prior: float, seed: int, cells: Sequence[str], fraction: float) -> None:
    """Write a table in which some numbers are extreme."""
    rows = draw_rows(60, prior, seed)
    for row in rows:
        if trial.rng.random() < fraction:
            row[int(trial.rng.integers(1, 3))] = cells[int(trial.rng.integers(len(cells)))]
    path.write_text(csv_text(rows))


def fit_table(trial: Trial) -> None:
    """Fit tables with extreme cells on the command line, and score such a table."""
    cells = [CELLS[int(place)] for place in trial.rng.integers(len(CELLS), size=3)]
    fraction = float(trial.rng.choice([0.02, 0.2, 1.0]))
    for name, prior, seed in (("a", 0.8, 0), ("b", 0.2, 1), ("new", 0.5, 2)):
        table_with(trial, trial.folder / f"{name}.csv", prior, seed, cells, fraction)
    options = (*PRIORS, "--epochs", "2", "--n-estimators", "1", "--no-sensitivity", "--model", trial.choose(*MODELS))
    files = (trial.folder / "a.csv", trial.folder / "b.csv")
    ended = run("fit", *files, *options, "--id", "id", "--allow-leakage", "--out", trial.folder / "m")
    if ended.code:
        trial.refused(ended)
        return
    trial.right(ended)
    score_table(trial, trial.folder / "m", trial.folder / "new.csv")


def score_cells(trial: Trial) -> None:
    """Score a table with extreme cells with a usual model."""
    table_with(trial, trial.folder / "new.csv", 0.5, 2, CELLS, 0.1)
    score_table(trial, trial.shared / "model", trial.folder / "new.csv")


def score_table(trial: Trial, model: Path, new: Path) -> None:
    """Predict a table and check every row."""
    import pandas as pd

    out = trial.folder / "s.csv"
    ended = run("predict", model, new, "--out", out)
    if ended.code:
        trial.refused(ended)
        trial.check(not out.exists(), "a refused predict left a file")
        return
    trial.check(not any(PYTHON_WARNING.search(line) for line in ended.said), ended.brief())
    frame = pd.read_csv(out)
    numbers = frame[["score", "probability", "class"]].to_numpy(float)
    trial.check(len(frame) == 60, f"expected 60 rows, found {len(frame)}")
    trial.check(np.isfinite(numbers).all(), f"a number is not finite: {numbers[~np.isfinite(numbers).all(1)][:1]}")
    trial.check(((numbers[:, 0] > 0) == (numbers[:, 2] == 1)).all(), "a class does not fit its score")
    trial.check(((numbers[:, 1] >= 0) & (numbers[:, 1] <= 1)).all(), "a probability is not between 0 and 1")
    trial.right(ended)


def cases(scale: float) -> Sequence[Case]:
    """Return the cases in Python and on the command line."""
    functions = {"scale": fit_scale, "values": predict_values, "table": fit_table, "cells": score_cells}
    return [
        Case(f"extreme {name}", partial(functions[name]))
        for name, number in NUMBERS.items()
        for _ in range(scaled(number, scale))
    ]


AREA = Area("numbers", "numeric extremes in Python and in files", prepare, cases)
