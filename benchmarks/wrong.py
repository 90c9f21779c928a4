"""Measure what can go wrong with two unlabeled sets: ``python benchmarks/wrong.py``.

The results are stored in ``benchmarks/results/wrong.json``. `docs/what-can-go-wrong.md` and its study page show them,
and `docs/figures/wrong.py` draws them. The tests repeat each experiment with smaller sizes.

All rows are Gaussian, with mean `SHIFT` in every column for positives and ``-SHIFT`` for negatives. So the truth is
known: with ten columns no classifier is more accurate than 94.3%. Most classifiers here are single models trained to
the last epoch (`PLAIN`), because they show each problem most clearly. ``default`` in a result means the defaults of
`UUClassifier`.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split

from common import FORMAT, RESULTS, machine, versions, write_json
from uulearn import UUClassifier, uu_coefficients
from uulearn.cli import main as main_of_uulearn
from uulearn.defaults import SINGLE_RUN
from uulearn.exceptions import NonFiniteRiskError, SuspiciousScoreWarning, SwappedPriorsWarning
from uulearn.metrics import check_mixture, uu_accuracy
from uulearn.theory import plan_rows
from uulearn.training import RunOptions, TrainingOptions
from uulearn.training.batched import BatchedTrainer, Run

Rows = NDArray[np.float32]
Floats = NDArray[np.float64]
Sets = NDArray[np.int64]
Priors = tuple[float, float]
Result = dict[str, Any]

SHIFT, COLUMNS, TARGET = 0.5, 10, 0.5
PLANE: dict[str, Any] = {"shift": 1.0, "columns": 2}  # the classes in the figure of swapped priors
PLAIN: dict[str, Any] = SINGLE_RUN | {"method": "leaky_relu"}
DEFAULT = {name: inspect.signature(UUClassifier).parameters[name].default for name in PLAIN}
METHODS = ("unbiased", "leaky_relu", "abs")

# ---------------------------------------------------------------------------------------------- rows and classifiers


def draw_rows(rng: np.random.Generator, n: int, prior: float, shift: float = SHIFT, columns: int = COLUMNS) -> Any:
    """Return n rows drawn with the given class prior, and their labels."""
    y = rng.random(n) < prior
    X = rng.normal(size=(n, columns)) + shift * (2 * y[:, None] - 1)
    return X.astype(np.float32), y


def draw_files(rng: np.random.Generator, priors: Priors, n: int, **how: Any) -> tuple[Rows, Rows]:
    """Return two unlabeled files of n rows each."""
    return draw_rows(rng, n, priors[0], **how)[0], draw_rows(rng, n, priors[1], **how)[0]


def concatenate(X0: Rows, X1: Rows) -> tuple[Rows, Sets]:
    """Return the rows of both files, and the set of each row."""
    return np.concatenate([X0, X1]), np.repeat([0, 1], [len(X0), len(X1)])


def classifier(priors: Priors, seed: int = 0, **options: Any) -> UUClassifier:
    """Return a classifier at target prior ½ with the plain options, changed by the given ones."""
    return UUClassifier(priors, TARGET, random_state=seed, progress=False, **PLAIN | options)


def linear(**options: Any) -> Result:
    """Return options of a linear model."""
    return {"model": "linear", "lr": 0.03, "epochs": 100} | options


def mlp(*hidden: int, **options: Any) -> Result:
    """Return options of an MLP with hidden layers of these widths."""
    return {"model_params": {"hidden": hidden}} | options


def true_accuracy(fitted: UUClassifier, labeled: Any) -> float:
    """Return the accuracy on labeled rows."""
    X, y = labeled
    return float((fitted.predict(X) == y).mean())


def average(results: Sequence[Result]) -> Result:
    """Return the mean of each value."""
    return {name: float(np.mean([result[name] for result in results])) for name in results[0]}


# ------------------------------------------------------------------------------------------------- 1, 6: overfitting

OVERFITTED = (0.7, 0.3)


def draw_overfitted(n: int) -> tuple[tuple[Rows, Sets], tuple[Rows, Sets], Any]:
    """Return training rows, held-out rows and labeled test rows."""
    rng = np.random.default_rng(0)
    training, held_out = (concatenate(*draw_files(rng, OVERFITTED, n)) for _ in range(2))
    return training, held_out, draw_rows(rng, 5000, TARGET)


def measure_overfitting(n: int = 1000, epochs: int = 150, width: int = 100) -> dict[str, Result]:
    """Train the unbiased and a corrected method on the same rows; return accuracies and risk per epoch."""
    (X, sets), held_out, test = draw_overfitted(n)
    rows, found = torch.from_numpy(X), {}
    for method in ("unbiased", "leaky_relu"):
        on_training_rows: list[float] = []

        def evaluate(_: Any, model: Any, estimates: list[float] = on_training_rows) -> None:
            with torch.no_grad():
                estimates.append(uu_accuracy(model(rows), sets, OVERFITTED, TARGET).unclipped)

        options = mlp(width, width, method=method, early_stopping=True, epochs=epochs)
        fitted = classifier(OVERFITTED, **options)
        history = fitted.fit(X, sets, validation_data=held_out, test_data=test, callback=evaluate).history_
        found[method] = {
            "risk": history.column("unbiased"),
            "true": history.column("test_accuracy"),
            "held_out": [1 - error for error in history.column("validation_zero_one")],
            "training_rows": on_training_rows,
            "first_negative_epoch": history.first_negative_epoch,
            "best_epoch": history.best_epoch,
        }
    return found


def measure_overfitting_of_default(n: int = 1000, epochs: int = 150, width: int = 100) -> float:
    """Return the true accuracy of the default settings on the same rows."""
    (X, sets), _, test = draw_overfitted(n)
    fitted = classifier(OVERFITTED, **mlp(width, width, epochs=epochs), **DEFAULT).fit(X, sets)
    return true_accuracy(fitted, test)


def measure_copies(distinct: int = 300, seeds: int = 10, epochs: int = 100) -> Result:
    """Compare two splits of files with three copies per row: by row, and with copies on the same side."""
    priors, found, options = (0.8, 0.2), [], mlp(50, 50, epochs=epochs)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        files = (file[rng.integers(0, distinct, 3 * distinct)] for file in draw_files(rng, priors, distinct))
        X, sets = concatenate(*files)
        test = draw_rows(rng, 5000, TARGET)
        X_fit, X_held, sets_fit, sets_held = train_test_split(X, sets, test_size=0.4, stratify=sets, random_state=seed)
        by_row = classifier(priors, seed, **options).fit(X_fit, sets_fit)
        grouped = classifier(priors, seed, validation_fraction=0.4, **options).fit(X, sets)
        found.append(
            {
                "split_by_row": by_row.evaluate(X_held, sets=sets_held).accuracy.unclipped,
                "true_split_by_row": true_accuracy(by_row, test),
                "copies_together": 1 - grouped.history_[-1]["validation_zero_one"],
                "true_copies_together": true_accuracy(grouped, test),
            }
        )
    return average(found)


# ------------------------------------------------------------------------------------------------- 2: swapped priors


def draw_plane(n: int = 1000) -> tuple[Rows, Rows]:
    """Return the two files with two columns that the figure shows."""
    return draw_files(np.random.default_rng(1), (0.8, 0.2), n, **PLANE)


def measure_order(n: int = 1000) -> list[Result]:
    """Train on two files of two columns with the correct and with the swapped priors."""
    files, rng, found = draw_plane(n), np.random.default_rng(2), []
    X, sets = concatenate(*draw_files(rng, (0.8, 0.2), n, **PLANE))
    test = draw_rows(rng, 5000, TARGET, **PLANE)
    for priors in ((0.8, 0.2), (0.2, 0.8)):
        fitted = classifier(priors, **linear()).fit_sets(*files)
        corners = np.array([[0, 0], [1, 0], [0, 1]], dtype=np.float32)  # scores there give bias and weights
        scores = fitted.decision_function(corners)
        line = [float(scores[0]), float(scores[1] - scores[0]), float(scores[2] - scores[0])]
        estimate = fitted.evaluate(X, sets=sets).accuracy.unclipped
        found.append(
            {"priors": priors, "estimate": estimate, "true": true_accuracy(fitted, test), "bias_and_weights": line}
        )
    return found


def measure_detected_swaps(labels_per_class: int, draws: int = 40, n: int = 500) -> float:
    """Return the fraction of draws in which the given number of labeled rows per class reveals swapped priors."""
    detected = 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        files = draw_files(rng, (0.8, 0.2), n)
        rows, sets = concatenate(*draw_files(rng, (1.0, 0.0), labels_per_class))
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            classifier((0.2, 0.8), **linear(epochs=1)).fit_sets(*files, test_data=(rows, 1 - sets))
        detected += any(warning.category is SwappedPriorsWarning for warning in raised)
    return detected / draws


# --------------------------------------------------------------------------------------- 3, 4: wrong and close priors


class Scored(NamedTuple):
    """Scores of held-out rows and true accuracy per seed, for one assumption about the priors."""

    held_out: Rows
    true: Floats


def train_batched(
    priors: Priors, n: int, seeds: int, assumed: Sequence[Priors], method: str = "leaky_relu", loss: str = "logistic"
) -> list[Scored]:
    """Train linear models on two files per seed for each assumption, in one batched training."""
    rng = np.random.default_rng(0)
    X = np.concatenate([file for _ in range(2 * seeds) for file in draw_files(rng, priors, n)])
    X_test, y_test = draw_rows(rng, 20_000, TARGET)
    numbers = np.arange(len(X)).reshape(seeds, 4, n)  # per seed: two training files and two held-out files
    l2 = 5e-3 if loss == "sigmoid" else 0.0  # the default of `UUClassifier`
    options = RunOptions(epochs=100, lr=0.03, batch_size=2 * n, l2=l2, progress=False)
    runs = [Run((own[0], own[1]), pair, TARGET, method, seed=k) for pair in assumed for k, own in enumerate(numbers)]
    trainer = BatchedTrainer(X, runs, model="linear", loss=loss, options=options)
    trainer.run()
    true = ((trainer.scores(X_test).numpy() > 0) == y_test).mean(1).reshape(len(assumed), seeds)
    scores = trainer.scores(X).numpy().reshape(len(assumed), seeds, -1)
    held_out = np.stack([scores[:, k, own[2:].ravel()] for k, own in enumerate(numbers)], 1)
    return [Scored(*pair) for pair in zip(held_out, true, strict=True)]


ERRORS = (-0.06, -0.04, -0.02, 0.0, 0.02, 0.04, 0.06)


def measure_wrong_priors(
    priors: Priors,
    method: str = "leaky_relu",
    loss: str = "logistic",
    errors: Sequence[float] = ERRORS,
    n: int = 8000,
    seeds: int = 4,
) -> list[Result]:
    """Train and evaluate linear models with an error in the larger prior; return means over seeds."""
    wrong = [(priors[0] + error, priors[1]) for error in errors]
    found, sets = [], np.repeat([0, 1], n)
    for error, assumed, scored in zip(errors, wrong, train_batched(priors, n, seeds, wrong, method, loss), strict=True):
        estimate = np.mean([uu_accuracy(scores, sets, assumed, TARGET).unclipped for scores in scored.held_out])
        found.append({"error": error, "estimate": float(estimate), "true": float(scored.true.mean())})
    return found


def measure_held_out_term(error: float, method: str, n: int = 4000) -> float:
    """Return the positive risk term on held-out rows of a linear model at (0.8, 0.2), with an error in θ."""
    rng = np.random.default_rng(0)
    files = draw_files(rng, (0.8, 0.2), n)
    held_out = concatenate(*draw_files(rng, (0.8, 0.2), n))
    fitted = classifier((0.8 + error, 0.2), method=method, batch_size=2 * n, **linear())
    return float(fitted.fit_sets(*files, validation_data=held_out).history_[-1]["validation_positive"])


def measure_close_priors(gap: float, seeds: int = 20, n: int = 1000) -> dict[str, list[float]]:
    """Train and evaluate linear models with the correct priors; return the true and estimated accuracy per seed."""
    priors = (0.5 + gap / 2, 0.5 - gap / 2)
    (scored,) = train_batched(priors, n, seeds, [priors])
    sets = np.repeat([0, 1], n)
    estimates = [uu_accuracy(scores, sets, priors, TARGET).unclipped for scores in scored.held_out]
    return {"true": scored.true.tolist(), "estimate": estimates}


# ------------------------------------------------------------------------------------------------ 5: a leaking column


def draw_leaking(
    rng: np.random.Generator, n: int, prior: float, strength: float, device: int | None, shift: float = SHIFT
) -> Any:
    """Add a column that depends on the device: 1 for file A, −1 for file B, None for a random device."""
    X, y = draw_rows(rng, n, prior, shift)
    devices = rng.choice([-1, 1], n) if device is None else np.full(n, device)
    return np.column_stack([X, rng.normal(strength * devices)]).astype(np.float32), y


def draw_leaking_files(
    rng: np.random.Generator, priors: Priors, n: int, strength: float, shift: float = SHIFT
) -> tuple[Rows, Rows]:
    """Return two unlabeled files, each from its own device."""
    X0, _ = draw_leaking(rng, n, priors[0], strength, 1, shift)
    X1, _ = draw_leaking(rng, n, priors[1], strength, -1, shift)
    return X0, X1


def score_files(X: Rows, sets: Sets) -> Floats:
    """Return out-of-fold scores, higher for rows that look like set 0."""
    model = LogisticRegression(C=0.1)
    scores: Floats = cross_val_predict(model, X, sets == 0, cv=2, method="decision_function")
    return scores


def measure_leak(strength: float, seeds: int = 3, n: int = 1000, priors: Priors = (0.8, 0.2), **options: Any) -> Result:
    """Measure classifiers on rows of mixed devices; the options are those of the corrected classifier."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        files = draw_leaking_files(rng, priors, n, strength)
        X, sets = concatenate(*draw_leaking_files(rng, priors, n, strength))
        test = draw_leaking(rng, 5000, TARGET, strength, None)
        common = mlp(50, epochs=100, lr=3e-3)
        unbiased, corrected = (
            classifier(priors, seed, **common | own).fit_sets(*files) for own in ({"method": "unbiased"}, options)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspiciousScoreWarning)  # the impossible estimate is the result
            estimate = corrected.evaluate(X, sets=sets).accuracy.unclipped
        found.append(
            {
                "true": true_accuracy(corrected, test),
                "true_unbiased": true_accuracy(unbiased, test),
                "estimate": estimate,
                "auc_between_files": roc_auc_score(sets == 0, score_files(X, sets)),
            }
        )
    return average(found)


def measure_alarms(
    strength: float, pairs: int = 100, n: int = 1000, priors: Priors = (0.8, 0.2), shift: float = SHIFT
) -> float:
    """Return the fraction of pairs of files for which the check behind `BeyondPriorsWarning` gives an alarm."""
    alarms = []
    for seed in range(pairs):
        X, sets = concatenate(*draw_leaking_files(np.random.default_rng(seed), priors, n, strength, shift))
        alarms.append(check_mixture(score_files(X, sets), sets, priors).differ)
    return float(np.mean(alarms))


def run_uulearn(arguments: str) -> int:
    """Run a command of uulearn in this process; return its exit code."""
    before, sys.argv = sys.argv, ["uulearn", *arguments.split()]
    try:
        main_of_uulearn()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def measure_command(strength: float, *options: str, n: int = 1000) -> Result:
    """Run ``uulearn fit`` on two files with a leaking column; return its exit code, warnings and error."""
    files = draw_leaking_files(np.random.default_rng(0), (0.8, 0.2), n, strength)
    names = [*(f"x{number}" for number in range(1, COLUMNS + 1)), "scanner"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, X in zip(("clinic_a.csv", "clinic_b.csv"), files, strict=True):
            pd.DataFrame(X, columns=names).to_csv(name, index=False)
        command = f"fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --no-sensitivity --out model {' '.join(options)}"
        printed, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code = run_uulearn(f"{command} --json")
        raised = json.loads(printed.getvalue())["warnings"] if code == 0 else []
    return {
        "exit_code": code,
        "warnings": [{key: warning[key] for key in ("category", "message")} for warning in raised],
        "error": errors.getvalue().partition("error: ")[2].strip(),
    }


# ------------------------------------------------------------------------------------------------ 7: batches and sizes

BATCHES = (20, 50, 100, 200, 500, 2000)


def measure_batches(
    method: str, size: int, loss: str = "logistic", seeds: int = 3, n: int = 20_000, steps: int = 400
) -> Result:
    """Train at (0.6, 0.4) on enough rows to exclude overfitting; the risk term is that of the positives."""
    priors, found = (0.6, 0.4), []
    test = draw_rows(np.random.default_rng(seeds), 20_000, TARGET)
    for seed in range(seeds):
        files = draw_files(np.random.default_rng(seed), priors, min(n, steps * size // 2))
        options = mlp(30, lr=3e-3, batch_size=size, epochs=max(1, round(steps * size / (2 * n))))
        fitted = classifier(priors, seed, method=method, loss=loss, l2="auto", **options).fit_sets(*files)
        last = fitted.history_[-1]
        found.append(
            {
                "true": true_accuracy(fitted, test),
                "risk_term": last["positive"],
                "below_zero": last["positive_below_zero"],
            }
        )
    return average(found)


def measure_noise(priors: Priors, size: int, draws: int = 4000) -> float:
    """Return the fraction of batches in which noise makes the positive term of the best classifier negative.

    Its scores are the log-odds 2·SHIFT·Σx, Gaussian in both classes; the loss is logistic.
    """
    rng = np.random.default_rng(0)
    a, _, c, _ = uu_coefficients(priors, TARGET)
    mean, deviation = 2 * COLUMNS * SHIFT**2, 2 * SHIFT * COLUMNS**0.5
    y = [rng.random((draws, size // 2)) < prior for prior in priors]
    losses = [np.logaddexp(0, -rng.normal(mean * (2.0 * labels - 1), deviation)).mean(1) for labels in y]
    return float((a * losses[0] - c * losses[1] < 0).mean())


def measure_sizes(sizes: tuple[int, int], seeds: int = 10) -> float:
    """Return the mean accuracy of a linear model at (0.7, 0.3) with all rows in one batch."""
    accuracies = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X0, X1 = draw_rows(rng, sizes[0], 0.7)[0], draw_rows(rng, sizes[1], 0.3)[0]
        fitted = classifier((0.7, 0.3), seed, batch_size=sum(sizes), **linear()).fit_sets(X0, X1)
        accuracies.append(true_accuracy(fitted, draw_rows(rng, 5000, TARGET)))
    return float(np.mean(accuracies))


# -------------------------------------------------------------------------------- 8, 9: the best of many, and messages


def draw_candidates(rng: np.random.Generator, candidates: int) -> Floats:
    """Return weights of linear classifiers close to the best one, one column each."""
    return 1 + 0.3 * rng.normal(size=(COLUMNS, candidates))


def measure_best_of(candidates: int, priors: Priors, n: int = 1000, draws: int = 400) -> Result:
    """Select among similar linear classifiers, evaluated on the same n + n rows."""
    rng = np.random.default_rng(0)
    found, sets = [], np.repeat([0, 1], n)
    for _ in range(draws):
        weights = draw_candidates(rng, candidates)
        true = norm.cdf(SHIFT * weights.sum(0) / np.linalg.norm(weights, axis=0))
        (X, _), (X_fresh, _) = (concatenate(*draw_files(rng, priors, n)) for _ in range(2))
        positive = (X @ weights > 0).reshape(2, n, candidates).mean(1)
        estimates = 0.5 + (positive[0] - positive[1]) / (2 * (priors[0] - priors[1]))  # `uu_accuracy` of each
        best = int(np.argmax(estimates))
        fresh = uu_accuracy(X_fresh @ weights[:, best], sets, priors, TARGET).unclipped
        found.append({"estimate": estimates[best], "true": true[best], "fresh_rows": fresh, "best": true.max()})
    return average(found)


LARGE_SCALE = (50_000, 10_000)  # mean and standard deviation of a column in money
ENDINGS: dict[str, tuple[Result, bool]] = {
    "MLP": (mlp(50, epochs=100), False),
    "MLP, one column in money": (mlp(50, epochs=100), True),
    "MLP, default settings": (mlp(50, epochs=100) | DEFAULT, False),
    "MLP, default settings, one column in money": (mlp(50, epochs=100) | DEFAULT, True),
    "linear model, one column in money": ({"model": "linear", "epochs": 100}, True),
    "linear model, `lr=0.001`": ({"model": "linear", "lr": 0.001}, False),
    "linear model, `lr=0.03`": ({"model": "linear", "lr": 0.03}, False),
    "linear model, SGD, squared loss, `lr=3`": (
        {"model": "linear", "training": TrainingOptions(optimizer="sgd"), "loss": "squared", "lr": 3.0},
        False,
    ),
}
"""Options, and whether one column has a large scale."""


def measure_ending(name: str, n: int = 1000) -> Result:
    """Train one of the named models; return its accuracies and the categories of its warnings and errors."""
    options, money = ENDINGS[name]
    rng = np.random.default_rng(0)
    files, (X_test, y_test) = draw_files(rng, (0.8, 0.2), n), draw_rows(rng, 5000, TARGET)
    X, sets = concatenate(*draw_files(rng, (0.8, 0.2), n))

    def in_units(X: Rows) -> Rows:
        last = LARGE_SCALE[0] + LARGE_SCALE[1] * X[:, -1] if money else X[:, -1]
        return np.column_stack([X[:, :-1], last]).astype(np.float32)

    fitted, said = classifier((0.8, 0.2), **options), []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            fitted.fit_sets(*map(in_units, files))
        except NonFiniteRiskError as error:
            said.append(type(error).__name__)
        estimate = fitted.evaluate(in_units(X), sets=sets).accuracy.unclipped
    test = in_units(X_test), y_test
    return {
        "true": true_accuracy(fitted, test),
        "estimate": estimate,
        "predicted_positive": float(fitted.predict(test[0]).mean()),
        "messages": said + [warning.category.__name__ for warning in raised],
    }


# ------------------------------------------------------------------------------------------------------- all together


def measure_all() -> dict[str, Any]:
    """Run all experiments."""
    pairs = ((0.8, 0.2), (0.65, 0.35), (0.55, 0.45))
    return {
        "overfitting": measure_overfitting(),
        "overfitting_default": measure_overfitting_of_default(),
        "copies": measure_copies(),
        "order": measure_order(),
        "detected_swaps": {str(labels): measure_detected_swaps(labels) for labels in (2, 4, 8)},
        "wrong_priors": {str(pair): measure_wrong_priors(pair) for pair in pairs},
        "wrong_priors_unbiased": measure_wrong_priors((0.8, 0.2), "unbiased", errors=[-0.06]),
        "wrong_priors_abs_sigmoid": {
            str(pair): measure_wrong_priors(pair, "abs", "sigmoid", errors=[-0.06, 0.0]) for pair in pairs
        },
        "held_out_term": {
            f"{method} {error:+.2f}": measure_held_out_term(error, method)
            for method, error in (("unbiased", 0.0), ("unbiased", -0.06), ("leaky_relu", -0.06))
        },
        "close_priors": {str(gap): measure_close_priors(gap) for gap in (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)},
        "rows_for_2_points": {
            str(pair): plan_rows(pair, TARGET).equal.set0 for pair in ((0.8, 0.2), (0.6, 0.4), (0.55, 0.45))
        },
        "leak": {str(strength): measure_leak(strength) for strength in (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)},
        "leak_default": {
            str(strength): measure_leak(strength, seeds=2, **DEFAULT | {"lr": 3e-3}) for strength in (1.0, 3.0)
        },
        "alarms": {
            f"{norm.cdf(shift * COLUMNS**0.5):.3f}": {
                str(strength): measure_alarms(strength, shift=shift) for strength in (0.0, 0.25, 0.5, 1.0)
            }
            for shift in (SHIFT, 1.5, 0.25)
        },
        "command": {str(strength): measure_command(strength, "--epochs", "60") for strength in (0.5, 1.0)},
        "batches": {method: {str(size): measure_batches(method, size) for size in BATCHES} for method in METHODS},
        "batches_sigmoid": {
            method: {str(size): measure_batches(method, size, "sigmoid") for size in (20, 500)}
            for method in ("unbiased", "abs")
        },
        "noise": {
            str(pair): {str(size): measure_noise(pair, size) for size in BATCHES}
            for pair in ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
        },
        "sizes": {f"{n} + {m}": measure_sizes((n, m)) for n, m in ((2550, 2550), (5000, 100), (200, 200))},
        "best_of": [
            {"priors": pair, "candidates": candidates} | measure_best_of(candidates, pair)
            for pair, candidates in itertools.product(((0.8, 0.2), (0.6, 0.4)), (1, 10, 100))
        ],
        "endings": {name: measure_ending(name) for name in ENDINGS},
    }


def rounded(value: Any) -> Any:
    """Return the results with floats rounded to five digits."""
    if isinstance(value, dict):
        return {name: rounded(own) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(own) for own in value]
    return round(value, 5) if isinstance(value, float) else value


def main() -> None:
    """Measure and store everything."""
    torch.set_num_threads(1)
    started = time.process_time()
    results = rounded(measure_all())
    record = {
        "format": FORMAT,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "processor_seconds": round(time.process_time() - started),
        "versions": versions(),
        "machine": machine(),
        "configuration": {"shift": SHIFT, "columns": COLUMNS, "target_prior": TARGET},
        "results": results,
    }
    write_json(RESULTS / "wrong.json", record)
    print(f"stored {RESULTS / 'wrong.json'} after {record['processor_seconds']} s of processor time")


if __name__ == "__main__":
    main()
