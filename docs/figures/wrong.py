"""Draws the figures of docs/what-can-go-wrong.md: ``python docs/figures/wrong.py docs/images``.

It also prints every number of the page. Each ``measure_…`` function is one experiment, which the tests repeat with
smaller sizes. All rows are Gaussian, with mean ``SHIFT`` in every column for positives and ``-SHIFT`` for negatives, so
that the truth is known: with ten columns the best possible accuracy is 94.3%. Classifiers are single plain runs
(`LEAKY`), which show each problem most clearly; if the defaults of `UUClassifier` behave differently, they are measured
too (`BY_DEFAULT`).
"""

from __future__ import annotations

import inspect
import itertools
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.preprocessing import scale

from uulearn import UUClassifier, uu_coefficients
from uulearn.datasets import make_sets
from uulearn.defaults import SINGLE_RUN
from uulearn.exceptions import (
    NonFiniteRiskError,
    OneSidedPredictionsWarning,
    SuspiciousScoreWarning,
    SwappedPriorsWarning,
)
from uulearn.metrics import uu_accuracy, uu_auc, uu_rates
from uulearn.theory import plan_rows
from uulearn.training import History, RunOptions, TrainingOptions
from uulearn.training.batched import BatchedTrainer, Run

Table = NDArray[np.float32]
Numbers = NDArray[np.float64]
Sets = NDArray[np.int64]
Priors = tuple[float, float]

SHIFT, COLUMNS, TARGET = 0.5, 10, 0.5
TRUE, ESTIMATE, FLATTERED, GRAY = "#1e8449", "#2471a3", "#e08e0b", "#808080"
METHODS = {"unbiased": "#c0392b", "leaky_relu": "#7d3c98", "abs": "#e08e0b"}
SHADES = ("#a8a8a8", "#606060", "#000000")
"""Colors of pairs of priors: darker for closer priors."""
IMPOSSIBLE = "impossible above 1"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


# ---------------------------------------------------------------------------------------------- rows and classifiers


def draw_rows(rng: np.random.Generator, n: int, prior: float, shift: float = SHIFT, columns: int = COLUMNS) -> Any:
    """Return n rows drawn with the given class prior, and their labels."""
    y = rng.random(n) < prior
    X = rng.normal(size=(n, columns)) + shift * (2 * y[:, None] - 1)
    return X.astype(np.float32), y


def draw_files(rng: np.random.Generator, priors: Priors, n: int, **how: Any) -> tuple[Table, Table]:
    """Return two unlabeled files of n rows each."""
    return draw_rows(rng, n, priors[0], **how)[0], draw_rows(rng, n, priors[1], **how)[0]


def together(X0: Table, X1: Table) -> tuple[Table, Sets]:
    """Return the rows of both files, and the set of each row."""
    return np.concatenate([X0, X1]), np.repeat([0, 1], [len(X0), len(X1)])


LEAKY: dict[str, Any] = SINGLE_RUN | {"method": "leaky_relu"}
"""One model, trained on all rows for all epochs, without calibration."""
BY_DEFAULT = {name: inspect.signature(UUClassifier).parameters[name].default for name in LEAKY}
"""The defaults of the same options."""


def classifier(priors: Priors, seed: int = 0, **options: Any) -> UUClassifier:
    """Return a classifier at class prior ½ with the plain options, changed by the given ones."""
    return UUClassifier(priors, TARGET, random_state=seed, progress=False, **LEAKY | options)


def linear(**options: Any) -> dict[str, Any]:
    """Return options of a linear model."""
    return {"model": "linear", "lr": 0.03, "epochs": 100} | options


def MLP(*hidden: int, **options: Any) -> dict[str, Any]:
    """Return options of an MLP with hidden layers of these widths."""
    return {"model_params": {"hidden": hidden}} | options


def right(fitted: UUClassifier, labelled: Any) -> float:
    """Return the accuracy on labelled rows."""
    X, y = labelled
    return float((fitted.predict(X) == y).mean())


# ------------------------------------------------------------------------------------------------- 1, 6: overfitting


class Watched(NamedTuple):
    """History of a run, and the accuracy per epoch estimated on its training rows."""

    history: History
    on_training_rows: list[float]

    @property
    def on_held_out_rows(self) -> list[float]:
        """The same on held-out rows of both sets."""
        return [1 - error for error in self.history.column("validation_zero_one")]


OVERFITTED = (0.7, 0.3)


def draw_overfitted(n: int) -> tuple[tuple[Table, Sets], tuple[Table, Sets], Any]:
    """Return training rows, held-out rows and labelled test rows."""
    rng = np.random.default_rng(0)
    seen, held_out = (together(*draw_files(rng, OVERFITTED, n)) for _ in range(2))
    return seen, held_out, draw_rows(rng, 5000, TARGET)


def measure_overfitting(n: int = 1000, epochs: int = 150, width: int = 100) -> dict[str, Watched]:
    """Train the unbiased and a corrected method on the same rows."""
    priors = OVERFITTED
    (X, sets), held_out, test = draw_overfitted(n)
    rows, runs = torch.from_numpy(X), {}
    for method in ("unbiased", "leaky_relu"):
        seen: list[float] = []

        def look(_: dict[str, Any], model: Any, seen: list[float] = seen) -> None:
            with torch.no_grad():
                seen.append(uu_accuracy(model(rows), sets, priors, TARGET).value)

        fitted = classifier(priors, **MLP(width, width, method=method, early_stopping=True, epochs=epochs))
        fitted.fit(X, sets, validation_data=held_out, test_data=test, callback=look)
        runs[method] = Watched(fitted.history_, seen)
    return runs


def measure_overfitting_by_default(n: int = 1000, epochs: int = 150, width: int = 100) -> float:
    """Return the true accuracy of the default settings on the same rows."""
    (X, sets), _, test = draw_overfitted(n)
    fitted = classifier(OVERFITTED, **MLP(width, width, epochs=epochs), **BY_DEFAULT).fit(X, sets)
    return right(fitted, test)


class Copies(NamedTuple):
    """Accuracies of models on rows with copies: estimated on held-out rows, and true."""

    split_by_row: float
    true_split_by_row: float
    copies_together: float
    true_copies_together: float


def measure_copies(distinct: int = 300, seeds: int = 10, epochs: int = 100) -> Copies:
    """Compare two splits of files with three copies per row: by row, and with copies on the same side."""
    priors, found = (0.8, 0.2), []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X, sets = together(
            *(file[rng.integers(0, distinct, 3 * distinct)] for file in draw_files(rng, priors, distinct))
        )
        test = draw_rows(rng, 5000, TARGET)
        how = MLP(50, 50, epochs=epochs)
        X_fit, X_held, sets_fit, sets_held = train_test_split(X, sets, test_size=0.4, stratify=sets, random_state=seed)
        naive = classifier(priors, seed, **how).fit(X_fit, sets_fit)
        careful = classifier(priors, seed, validation_fraction=0.4, **how).fit(X, sets)
        estimates = naive.score(X_held, sets_held), 1 - careful.history_[-1]["validation_zero_one"]
        found.append((estimates[0], right(naive, test), estimates[1], right(careful, test)))
    return Copies(*np.mean(found, axis=0).tolist())


def draw_overfitting(runs: dict[str, Watched], path: Path) -> None:
    """Draw the risk (left) and the accuracy (right) of both methods."""
    figure, (left, right_panel) = panels()
    for (method, run), size in zip(runs.items(), (10, 5), strict=True):
        epochs, color, name = run.history.column("epoch"), METHODS[method], method.replace("_", " ")
        left.plot(epochs, run.history.column("unbiased"), color=color, label=name)
        right_panel.plot(epochs, run.history.column("test_accuracy"), color=color, label=f"{name}, true")
        right_panel.plot(epochs, run.on_held_out_rows, ":", color=color, lw=1.2, label=f"{name}, held-out estimate")
        best = run.history.best_epoch or len(run.history)
        accuracy = run.history[best - 1]["test_accuracy"]
        right_panel.plot(best, accuracy, "o", color=color, ms=size, mfc="none", mew=1.5)
    left.axhline(0, color="black", lw=0.8)
    left.set(xlabel="epoch", title="empirical risk on the training rows", ylim=(-2.6, 0.8))
    right_panel.set(xlabel="epoch", title="accuracy (circles: best epoch)", ylim=(0.75, 1))
    left.legend(loc="lower left")
    right_panel.legend(loc="lower center", handlelength=1.4)
    save(figure, path)


def draw_flattery(runs: dict[str, Watched], path: Path) -> None:
    """Draw estimates on training rows and on held-out rows with the true accuracy."""
    figure, axes = panels(sharey=True)
    for axis, (method, run) in zip(axes, runs.items(), strict=True):
        epochs = run.history.column("epoch")
        shade_impossible(axis)
        axis.plot(epochs, run.on_training_rows, color=FLATTERED, label="estimate, training rows")
        axis.plot(epochs, run.on_held_out_rows, color=ESTIMATE, label="estimate, held-out rows")
        axis.plot(epochs, run.history.column("test_accuracy"), color=TRUE, label="true")
        axis.set(xlabel="epoch", title=method.replace("_", " "), ylim=(0.75, 1.1))
    axes[0].set_ylabel("accuracy")
    axes[0].text(3, 1.07, IMPOSSIBLE, color=GRAY, fontsize=8)
    axes[1].legend(loc="lower right")
    save(figure, path)


def report_overfitting(folder: Path) -> None:
    """Print and draw sections 1 and 6."""
    runs = measure_overfitting()
    for method, run in runs.items():
        true, best, last = run.history.column("test_accuracy"), run.history.best_epoch or 0, run.history[-1]
        print(
            f"1 {method}: negative in epoch {run.history.first_negative_epoch}, risk at the end {last['unbiased']:.2f}"
        )
        print(f"1 {method}: best {max(true):.3f} in epoch {true.index(max(true)) + 1}, ", end="")
        print(f"best {true[best - 1]:.3f} in epoch {best}, last {true[-1]:.3f}")
        print(f"6 {method}, last epoch: training rows {run.on_training_rows[-1]:.3f}, ", end="")
        print(f"held-out rows {run.on_held_out_rows[-1]:.3f}, true {true[-1]:.3f}")
    print(f"1 by default: true {measure_overfitting_by_default():.3f}")
    print("6", rounded(measure_copies()))
    draw_overfitting(runs, folder / "wrong-overfitting.png")
    draw_flattery(runs, folder / "wrong-training-rows.png")


# ------------------------------------------------------------------------------------------- 2: the order of the sets


class Ordered(NamedTuple):
    """A classifier trained with one order of the priors."""

    priors: Priors
    fitted: UUClassifier
    estimate: float
    true: float


def measure_order(n: int = 1000) -> tuple[list[Ordered], tuple[Table, Table]]:
    """Train on two files of two columns with the correct and with the swapped priors."""
    rng = np.random.default_rng(1)
    plane: dict[str, Any] = {"shift": 1.0, "columns": 2}
    files, (X, sets) = draw_files(rng, (0.8, 0.2), n, **plane), together(*draw_files(rng, (0.8, 0.2), n, **plane))
    test, found = draw_rows(rng, 5000, TARGET, **plane), []
    for priors in ((0.8, 0.2), (0.2, 0.8)):
        fitted = classifier(priors, **linear()).fit_sets(*files)
        found.append(Ordered(priors, fitted, fitted.score(X, sets), right(fitted, test)))
    return found, files


def measure_noticed(labels_of_each: int, draws: int = 40, n: int = 500) -> float:
    """Return how often the given number of labelled rows per class reveals swapped priors."""
    caught = 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        files = draw_files(rng, (0.8, 0.2), n)
        rows, sets = together(*draw_files(rng, (1.0, 0.0), labels_of_each))
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            classifier((0.2, 0.8), **linear(epochs=1)).fit_sets(*files, test_data=(rows, 1 - sets))
        caught += any(warning.category is SwappedPriorsWarning for warning in raised)
    return caught / draws


def draw_order(found: list[Ordered], files: tuple[Table, Table], path: Path) -> None:
    """Draw the rows of both files and the regions predicted positive."""
    figure, axes = panels(sharey=True)
    grid = np.linspace(-4, 4, 200, dtype=np.float32)
    places = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    for axis, (priors, fitted, estimate, true) in zip(axes, found, strict=True):
        axis.contourf(grid, grid, fitted.predict(places).reshape(200, 200), levels=[0.5, 1.5], colors=["#d5ecdc"])
        for X, color, name in zip(files, (ESTIMATE, FLATTERED), ("file A", "file B"), strict=True):
            axis.plot(*X[:250].T, ".", ms=3, color=color, label=name)
        title = f"priors {priors}: estimate {estimate:.2f}, true {true:.2f}"
        axis.set(title=title, xlabel="column 1", xlim=(-4, 4), ylim=(-4, 4))
    axes[0].set_ylabel("column 2")
    axes[0].text(3.8, 3.5, "predicted positive", ha="right", color=TRUE)
    axes[1].text(-3.8, -3.8, "predicted positive", color=TRUE)
    axes[0].legend(loc="lower left", markerscale=3, handletextpad=0.2)
    save(figure, path)


def report_order(folder: Path) -> None:
    """Print and draw section 2."""
    found, files = measure_order()
    for ordered in found:
        print(f"2 priors {ordered.priors}: estimate {ordered.estimate:.3f}, true {ordered.true:.3f}")
    for labels in (2, 4, 8):
        print(f"2 noticed with {labels} labels of each class: {measure_noticed(labels):.0%}")
    draw_order(found, files, folder / "wrong-order.png")


# --------------------------------------------------------------------------------------------- 3, 4: doubt and noise


class Doubt(NamedTuple):
    """Estimated and true accuracy of classifiers trained with an error in θ; means over seeds."""

    error: float
    shown: float
    true: float


ERRORS = (-0.06, -0.04, -0.02, 0, 0.02, 0.04, 0.06)


def measure_wrong_priors(
    priors: Priors,
    method: str = "leaky_relu",
    loss: str = "logistic",
    errors: Sequence[float] = ERRORS,
    n: int = 8000,
    seeds: int = 4,
) -> list[Doubt]:
    """Train and evaluate linear models with each wrong θ."""
    wrong = [(priors[0] + error, priors[1]) for error in errors]
    scored = train_together(priors, n, seeds, wrong, method, loss)
    found = []
    for error, assumed, own in zip(errors, wrong, scored, strict=True):
        shown = np.mean([uu_accuracy(scores, np.repeat([0, 1], n), assumed, TARGET).value for scores in own.held_out])
        found.append(Doubt(error, float(shown), float(own.true.mean())))
    return found


def measure_held_out_term(error: float, method: str, n: int = 4000) -> float:
    """Return the positive risk term on held-out rows of a linear model at (0.8, 0.2), with an error in θ."""
    rng = np.random.default_rng(0)
    files = draw_files(rng, (0.8, 0.2), n)
    held_out = together(*draw_files(rng, (0.8, 0.2), n))
    fitted = classifier((0.8 + error, 0.2), method=method, batch_size=2 * n, **linear())
    return float(fitted.fit_sets(*files, validation_data=held_out).history_[-1]["validation_positive"])


class Scored(NamedTuple):
    """Scores of held-out rows and true accuracy per seed, for one assumption about the priors."""

    held_out: Table
    true: Numbers


def train_together(
    priors: Priors,
    n: int,
    seeds: int,
    assumed: Sequence[Priors],
    method: str = "leaky_relu",
    loss: str = "logistic",
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


class Spread(NamedTuple):
    """True and estimated accuracy per seed, for one distance of the priors."""

    true: Numbers
    estimate: Numbers


def measure_close_priors(gap: float, seeds: int = 20, n: int = 1000) -> Spread:
    """Train and evaluate linear models with the correct priors."""
    priors = (0.5 + gap / 2, 0.5 - gap / 2)
    (own,) = train_together(priors, n, seeds, [priors])
    sets = np.repeat([0, 1], n)
    return Spread(own.true, np.array([uu_accuracy(scores, sets, priors, TARGET).value for scores in own.held_out]))


def draw_wrong_priors(found: dict[Priors, list[Doubt]], path: Path) -> None:
    """Draw estimated and true accuracy over the error in θ."""
    figure, axes = panels(sharey=True)
    shade_impossible(axes[0])
    for (priors, doubts), color in zip(found.items(), SHADES, strict=True):
        errors, shown, true = zip(*doubts, strict=True)
        for axis, values in zip(axes, (shown, true), strict=True):
            axis.plot(errors, values, "o-", ms=4, color=color, label=f"{priors}")
    axes[0].text(0.06, 1.16, IMPOSSIBLE, ha="right", color=GRAY, fontsize=8)
    axes[0].set(title="accuracy estimated without labels", xlabel="error in θ", ylabel="accuracy", ylim=(0.7, 1.2))
    axes[1].set(title="true accuracy", xlabel="error in θ")
    axes[1].legend(title="true priors", loc="upper right")
    save(figure, path)


def draw_close_priors(found: dict[float, Spread], path: Path) -> None:
    """Draw one point per seed over the distance of the priors."""
    figure, axes = panels(sharey=True)
    shade_impossible(axes[1])
    titles = ("true accuracy of 20 classifiers", "their estimates, 1,000 + 1,000 held-out rows")
    for axis, part, color, title in zip(axes, Spread._fields, (TRUE, ESTIMATE), titles, strict=True):
        for gap, spread in found.items():
            values = getattr(spread, part)
            axis.plot(np.full(len(values), gap), values, "o", ms=4, alpha=0.45, mew=0, color=color)
            axis.plot(gap, values.mean(), "_", ms=13, mew=2, color="black")
        axis.set(xscale="log", title=title, xlabel="|θ − θ′|", ylim=(0.2, 1.4))
        axis.set_xticks([0.05, 0.1, 0.2, 0.4, 1.0], ["0.05", "0.1", "0.2", "0.4", "1"])
        axis.minorticks_off()
    axes[0].set_ylabel("accuracy (bar: mean)")
    axes[1].text(1, 1.33, IMPOSSIBLE, ha="right", color=GRAY, fontsize=8)
    save(figure, path)


def report_priors(folder: Path) -> None:
    """Print and draw sections 3 and 4."""
    pairs = ((0.8, 0.2), (0.65, 0.35), (0.55, 0.45))
    doubts = {priors: measure_wrong_priors(priors) for priors in pairs}
    for priors, found in doubts.items():
        print(f"3 {priors}:", "; ".join(f"{d.error:+.2f} shown {d.shown:.3f} true {d.true:.3f}" for d in found))
    (unbiased,) = measure_wrong_priors((0.8, 0.2), "unbiased", errors=[-0.06])
    print(f"3 unbiased, (0.8, 0.2): {rounded(unbiased)}")
    for priors in pairs:
        found = measure_wrong_priors(priors, "abs", "sigmoid", errors=[-0.06, 0, 0.06])
        print(f"3 abs, sigmoid, {priors}:", "; ".join(f"{d.error:+.2f} true {d.true:.3f}" for d in found))
    for method, error in (("unbiased", 0.0), ("unbiased", -0.06), ("leaky_relu", -0.06)):
        print(f"3 held-out risk term, {method}, {error:+.2f}: {measure_held_out_term(error, method):+.2f}")
    spreads = {gap: measure_close_priors(gap) for gap in (1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.05)}
    for gap, (true, estimates) in spreads.items():
        print(f"4 gap {gap:g}: true {true.min():.3f} to {true.max():.3f}, mean {true.mean():.3f}; ", end="")
        print(f"estimates {estimates.min():.2f} to {estimates.max():.2f}, off by {(estimates - true).std():.3f}")
    for priors in ((0.8, 0.2), (0.6, 0.4), (0.55, 0.45)):
        print(f"4 rows of each for ±2 points at {priors}: {plan_rows(priors, TARGET).equal.set0:,}")
    draw_wrong_priors(doubts, folder / "wrong-priors.png")
    draw_close_priors(spreads, folder / "wrong-close.png")


# ------------------------------------------------------------------------------------------------- 5: a leaking column


class GivenAway(NamedTuple):
    """Effect of a leaking column; means over seeds."""

    true: float
    true_unbiased: float
    estimate: float
    true_positive_rate: float
    false_positive_rate: float
    auc: float
    auc_between: float


def draw_marked(
    rng: np.random.Generator, n: int, prior: float, strength: float, device: int | None, shift: float = SHIFT
) -> Any:
    """Add a column that depends on the device: 1 for file A, −1 for file B, None for a random device."""
    X, y = draw_rows(rng, n, prior, shift)
    devices = rng.choice([-1, 1], n) if device is None else np.full(n, device)
    return np.column_stack([X, rng.normal(strength * devices)]).astype(np.float32), y


def draw_marked_files(
    rng: np.random.Generator, priors: Priors, n: int, strength: float, shift: float = SHIFT
) -> tuple[Table, Table]:
    """Return two unlabeled files, each from its own device."""
    X0, _ = draw_marked(rng, n, priors[0], strength, 1, shift)
    X1, _ = draw_marked(rng, n, priors[1], strength, -1, shift)
    return X0, X1


def tell_apart(X: Table, sets: Sets) -> Numbers:
    """Return out-of-fold scores, higher for rows that look like set 0."""
    model = LogisticRegression(C=0.1)
    scores: Numbers = cross_val_predict(model, X, sets == 0, cv=2, method="decision_function")
    return scores


def measure_given_away(
    strength: float, seeds: int = 3, n: int = 1000, priors: Priors = (0.8, 0.2), **options: Any
) -> GivenAway:
    """Measure classifiers on rows of mixed devices; the options are those of the corrected classifier."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        files = draw_marked_files(rng, priors, n, strength)
        X, sets = together(*draw_marked_files(rng, priors, n, strength))
        test = draw_marked(rng, 5000, TARGET, strength, None)
        how = MLP(50, epochs=100, lr=3e-3)
        unbiased, corrected = (
            classifier(priors, seed, **how | own).fit_sets(*files) for own in ({"method": "unbiased"}, options)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspiciousScoreWarning)  # the impossible estimate is the result
            shown = corrected.evaluate(X, sets=sets)
        rates = (shown.true_positive_rate.value, shown.false_positive_rate.value)
        between = roc_auc_score(sets == 0, tell_apart(X, sets))
        accuracies = (right(corrected, test), right(unbiased, test), shown.accuracy.value)
        found.append((*accuracies, *rates, shown.auc.value, between))
    return GivenAway(*np.mean(found, axis=0).tolist())


def measure_alarm(
    strength: float, pairs: int = 200, n: int = 1000, priors: Priors = (0.8, 0.2), shift: float = SHIFT
) -> tuple[float, float]:
    """Return how many pairs of files raise an alarm: by their AUC, and by the rates at five thresholds."""
    alarms = []
    for seed in range(pairs):
        X, sets = together(*draw_marked_files(np.random.default_rng(seed), priors, n, strength, shift))
        scores = tell_apart(X, sets)
        auc = uu_auc(scores, sets, priors)
        alarms.append((auc.value - 3 * auc.standard_error > 1, has_impossible_rate(scores, sets, priors)))
    by_auc, by_rates = np.mean(alarms, axis=0).tolist()
    return by_auc, by_rates


def has_impossible_rate(scores: Numbers, sets: Sets, priors: Priors) -> bool:
    """Return whether the 99.9% interval of a rate lies outside [0, 1] at some threshold (it is then clipped)."""
    for threshold in np.quantile(scores, [0.1, 0.25, 0.5, 0.75, 0.9]).tolist():
        rates = uu_rates(scores, sets, priors, threshold=threshold, confidence=0.999)
        if any(rate.interval in ((0, 0), (1, 1)) for rate in (rates.true_positive, rates.false_positive)):
            return True
    return False


def draw_given_away(found: dict[float, GivenAway], path: Path, bound: float = 0.8) -> None:
    """Draw how accuracy decreases while the estimate increases, and the AUC exceeds what the priors allow."""
    figure, (left, between) = panels()
    shade_impossible(left)
    look = {"ms": 4, "lw": 1.6}
    left.plot(
        list(found), [f.estimate for f in found.values()], "o-", color=ESTIMATE, label="held-out estimate", **look
    )
    for part, method in (("true", "leaky_relu"), ("true_unbiased", "unbiased")):
        name = f"true, {method.replace('_', ' ')}"
        left.plot(
            list(found), [getattr(f, part) for f in found.values()], "o-", color=METHODS[method], label=name, **look
        )
    left.set(title="accuracy", xlabel="strength of the column (σ)", ylim=(0.45, 1.45))
    left.text(3, 1.38, IMPOSSIBLE, ha="right", color=GRAY, fontsize=8)
    left.legend(loc="upper left")
    between.axhspan(bound, 1.02, color="#f2f2f2", zorder=0)
    between.axhline(bound, color="black", lw=0.8)
    between.plot(list(found), [f.auc_between for f in found.values()], "o-", color=ESTIMATE, **look)
    between.text(3, bound - 0.03, "½ + |θ − θ′|/2: the priors allow no more", ha="right", fontsize=8)
    between.set(title="AUC between the two files", xlabel="strength of the column (σ)", ylim=(0.6, 1.02))
    save(figure, path)


def report_given_away(folder: Path) -> None:
    """Print and draw section 5."""
    found = {strength: measure_given_away(strength) for strength in (0, 0.25, 0.5, 1, 1.5, 2, 3)}
    for strength, figures in found.items():
        print(f"5 strength {strength}: {rounded(figures)}")
    for strength in (0, 1, 3):
        figures = measure_given_away(strength, **BY_DEFAULT | {"lr": 3e-3})
        print(f"5 strength {strength}, by default: true {figures.true:.3f}, estimate {figures.estimate:.3f}")
    for shift in (SHIFT, 1.5, 0.25):
        print(f"5 alarms where the best accuracy is {norm.cdf(shift * COLUMNS**0.5):.3f}, by AUC and by rates:", end="")
        print(*(f" {strength}: {measure_alarm(strength, shift=shift)}" for strength in (0.0, 0.25, 0.5, 1.0)), sep=",")
    draw_given_away(found, folder / "wrong-device.png")


# ----------------------------------------------------------------------------------------------- 7: batches and sizes


BATCHES = (20, 50, 100, 200, 500, 2000)


class Batched(NamedTuple):
    """Results of training with one batch size; means over seeds."""

    true: float
    risk_term: float
    """Mean of the positive risk term over the batches of the last epoch."""
    below_zero: float
    """Fraction of these batches with a negative term."""


def measure_batches(
    method: str, size: int, loss: str = "logistic", seeds: int = 3, n: int = 20_000, steps: int = 400
) -> Batched:
    """Train at (0.6, 0.4) on enough rows to exclude overfitting."""
    priors, found = (0.6, 0.4), []
    test = draw_rows(np.random.default_rng(seeds), 20_000, TARGET)
    for seed in range(seeds):
        files = draw_files(np.random.default_rng(seed), priors, min(n, steps * size // 2))
        how = MLP(30, lr=3e-3, batch_size=size, epochs=max(1, round(steps * size / (2 * n))))
        fitted = classifier(priors, seed, method=method, loss=loss, l2="auto", **how).fit_sets(*files)
        last = fitted.history_[-1]
        found.append((right(fitted, test), last["positive"], last["positive_below_zero"]))
    return Batched(*np.mean(found, axis=0).tolist())


def measure_noise(priors: Priors, size: int, draws: int = 4000) -> float:
    """Return the fraction of batches in which noise makes the positive term of the best classifier negative.

    Its scores are the log-odds 2·SHIFT·Σx, Gaussian in both classes; the loss is logistic.
    """
    rng = np.random.default_rng(0)
    a, _, c, _ = uu_coefficients(priors, TARGET)
    center, deviation = 2 * COLUMNS * SHIFT**2, 2 * SHIFT * COLUMNS**0.5
    y = [rng.random((draws, size // 2)) < prior for prior in priors]
    lost = [np.logaddexp(0, -rng.normal(center * (2.0 * labels - 1), deviation)).mean(1) for labels in y]
    return float((a * lost[0] - c * lost[1] < 0).mean())


def measure_uneven(sizes: tuple[int, int], seeds: int = 10) -> float:
    """Return the mean accuracy of a linear model at (0.7, 0.3) with all rows in one batch."""
    accuracies = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X0, X1 = draw_rows(rng, sizes[0], 0.7)[0], draw_rows(rng, sizes[1], 0.3)[0]
        fitted = classifier((0.7, 0.3), seed, batch_size=sum(sizes), **linear()).fit_sets(X0, X1)
        accuracies.append(right(fitted, draw_rows(rng, 5000, TARGET)))
    return float(np.mean(accuracies))


def draw_batches(found: dict[str, list[Batched]], noise: dict[Priors, list[float]], path: Path) -> None:
    """Draw the effect of small batches and its cause."""
    figure, axes = panels()
    for method, results in found.items():
        accuracies = [result.true for result in results]
        axes[0].plot(BATCHES, accuracies, "o-", ms=4, color=METHODS[method], label=method.replace("_", " "))
    for (priors, fractions), color in zip(noise.items(), SHADES, strict=True):
        axes[1].plot(BATCHES, fractions, "o-", ms=4, color=color, label=f"{priors}")
    axes[0].set(title="true accuracy after 400 steps, (0.6, 0.4)", ylim=(0.88, 0.945))
    axes[1].set(title="batches below zero by noise alone", ylim=(0, 0.55))
    for axis in axes:
        axis.set(xscale="log", xlabel="rows per batch")
        axis.set_xticks(BATCHES, [f"{size:,}" for size in BATCHES])
        axis.minorticks_off()
    axes[0].legend(loc="lower right")
    axes[1].legend(title="priors", loc="lower left")
    save(figure, path)


def report_batches(folder: Path) -> None:
    """Print and draw section 7."""
    found: dict[str, list[Batched]] = {method: [] for method in METHODS}
    for method, size in itertools.product(METHODS, BATCHES):
        found[method].append(measure_batches(method, size))
        print(f"7 {method}, batches of {size}: {rounded(found[method][-1])}")
    for method, size in itertools.product(("unbiased", "abs"), (20, 500)):
        print(f"7 {method}, sigmoid loss, batches of {size}: {rounded(measure_batches(method, size, 'sigmoid'))}")
    noise = {
        priors: [measure_noise(priors, size) for size in BATCHES] for priors in ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
    }
    for priors, fractions in noise.items():
        print(
            f"7 noise at {priors}:",
            ", ".join(f"{b}: {fraction:.1%}" for b, fraction in zip(BATCHES, fractions, strict=True)),
        )
    for sizes in ((2550, 2550), (5000, 100), (200, 200)):
        print(f"7 files of {sizes}: true {measure_uneven(sizes):.3f}")
    draw_batches(found, noise, folder / "wrong-batches.png")


# ----------------------------------------------------------------------------------------- 8, 9: winners and messages


class Winner(NamedTuple):
    """The best of many candidates by a noisy estimate; means over draws."""

    shown: float
    true: float
    fresh: float
    """Its estimate on rows not used for the choice."""
    best: float
    """Accuracy of the truly best candidate."""


def measure_winner(candidates: int, priors: Priors, n: int = 1000, draws: int = 400) -> Winner:
    """Select among similar linear classifiers, evaluated on the same n + n rows."""
    rng = np.random.default_rng(0)
    found, sets = [], np.repeat([0, 1], n)
    for _ in range(draws):
        weights = draw_candidates(rng, candidates)
        true = true_accuracy(weights)
        (seen, _), (fresh, _) = (together(*draw_files(rng, priors, n)) for _ in range(2))
        fractions = (seen @ weights > 0).reshape(2, n, candidates).mean(1)
        estimates = 0.5 + (fractions[0] - fractions[1]) / (
            2 * (priors[0] - priors[1])
        )  # `uu_accuracy` of all candidates
        won = int(np.argmax(estimates))
        again = uu_accuracy(fresh @ weights[:, won], sets, priors, TARGET).value
        found.append((estimates[won], true[won], again, true.max()))
    return Winner(*np.mean(found, axis=0).tolist())


def draw_candidates(rng: np.random.Generator, candidates: int) -> Numbers:
    """Return weights of linear classifiers close to the best one, one column each."""
    return 1 + 0.3 * rng.normal(size=(COLUMNS, candidates))


def true_accuracy(weights: Numbers) -> Numbers:
    """Return accuracies of linear classifiers without intercept, in closed form."""
    accuracies: Numbers = norm.cdf(SHIFT * weights.sum(0) / np.linalg.norm(weights, axis=0))
    return accuracies


class Ending(NamedTuple):
    """Result of a run, and the categories of its warnings."""

    true: float
    estimate: float
    """Estimated on held-out rows without labels."""
    predicted_positive: float
    warned: list[str]


def in_money(X: Table) -> Table:
    """Scale the last column to mean 50,000 and standard deviation 10,000."""
    return np.column_stack([X[:, :-1], 1e4 * X[:, -1] + 5e4]).astype(np.float32)


ENDINGS: dict[str, tuple[dict[str, Any], bool]] = {
    "MLP": (MLP(50, epochs=100), False),
    "MLP, a column in money": (MLP(50, epochs=100), True),
    "linear, a column in money": ({"model": "linear", "epochs": 100}, True),
    "linear": ({"model": "linear"}, False),
    "linear, lr 0.03": ({"model": "linear", "lr": 0.03}, False),
    "linear, sgd, squared loss, lr 3": (
        {"model": "linear", "training": TrainingOptions(optimizer="sgd"), "loss": "squared", "lr": 3.0},
        False,
    ),
    "MLP, by default": (MLP(50, epochs=100) | BY_DEFAULT, False),
    "MLP, by default, a column in money": (MLP(50, epochs=100) | BY_DEFAULT, True),
    "linear, by default": ({"model": "linear"} | BY_DEFAULT, False),
}
"""Options, and whether one column has a large scale."""


def measure_ending(name: str, n: int = 1000) -> Ending:
    """Train one of the named examples."""
    options, money = ENDINGS[name]
    rng = np.random.default_rng(0)
    files, (X_test, y_test) = draw_files(rng, (0.8, 0.2), n), draw_rows(rng, 5000, TARGET)
    X, sets = together(*draw_files(rng, (0.8, 0.2), n))
    units = in_money if money else np.asarray
    fitted, warned = classifier((0.8, 0.2), **options), []
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            fitted.fit_sets(*map(units, files))
        except NonFiniteRiskError as error:
            warned.append(type(error).__name__)
        estimate = fitted.score(units(X), sets)
    warned += [warning.category.__name__ for warning in raised]
    test = units(X_test), y_test
    return Ending(right(fitted, test), estimate, float(fitted.predict(test[0]).mean()), warned)


def measure_uncentered(scaled: bool = False, seeds: int = 3, **options: Any) -> float:
    """Return the accuracy of a linear model on digits below 3 against the others."""
    X, digit = load_digits(return_X_y=True)
    X, y = (scale(X) if scaled else X / 16), digit < 3
    accuracies = []
    for seed in range(seeds):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        files = make_sets(X_train, y_train, (0.6, 0.1), (500, 700), random_state=seed)
        fitted = UUClassifier((0.6, 0.1), 0.3, model="linear", random_state=seed, progress=False, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OneSidedPredictionsWarning)  # expected here
            accuracies.append(right(fitted.fit_sets(*files), (X_test, y_test)))
    return float(np.mean(accuracies))


def report_rest(_: Path) -> None:
    """Print sections 8 and 9."""
    spread = np.quantile(true_accuracy(draw_candidates(np.random.default_rng(0), 10_000)), [0.01, 0.99])
    print(f"8 nearly all candidates are between {spread[0]:.3f} and {spread[1]:.3f}")
    for priors, candidates in itertools.product(((0.8, 0.2), (0.6, 0.4)), (1, 10, 100)):
        print(f"8 {priors}, best of {candidates}: {rounded(measure_winner(candidates, priors))}")
    for name in ENDINGS:
        *figures, warned = measure_ending(name)
        print(
            f"9 {name}: true {{:.3f}}, estimate {{:.3f}}, predicted positive {{:.2f}}; warned {warned}".format(*figures)
        )
    print(f"9 digits below 3, linear by default: {measure_uncentered():.3f}, ", end="")
    print(f"standardized {measure_uncentered(scaled=True):.3f}, logistic {measure_uncentered(loss='logistic'):.3f}")


# ------------------------------------------------------------------------------------------------------------ drawing


def panels(**how: Any) -> Any:
    """Return a figure with two panels, created without pyplot, which needs no display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.1), layout="constrained")
    return figure, figure.subplots(1, 2, **how)


def shade_impossible(axis: Any) -> None:
    """Shade impossible accuracies."""
    axis.axhspan(1, 2, color="#f2f2f2", zorder=0)


def save(figure: Any, path: Path) -> None:
    """Write a PNG with a width of 936 pixels."""
    figure.savefig(path, dpi=130)
    print(f"drawn: {path.name}")


def rounded(figures: Any) -> str:
    """Format a named tuple with three digits."""
    return ", ".join(f"{name} {value:.3f}" for name, value in figures._asdict().items())


def main(folder: Path) -> None:
    """Measure, print and draw everything."""
    from matplotlib import rc_context

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        for report in (report_overfitting, report_order, report_priors, report_given_away, report_batches, report_rest):
            report(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
