"""Measure the accuracy of `SurrogateSetClassifier` with several base classifiers and calibrations.

Two unlabeled sets of n rows each at (0.8, 0.2) and (0.6, 0.4) are drawn from data included in scikit-learn, without
using a row twice. Every contender gets the same rows and the realized priors, and π is the class prior of the test
part. The record of each contains accuracy, log loss (with probabilities clipped to [0.001, 0.999]), Brier score and the
fraction of clipped rows on the test part, and the seconds. Labels are used only to draw the sets and to compute these
metrics. Contenders:

* `UUClassifier` with its defaults, on standardized columns;
* logistic regression that uses the sets as classes, with the threshold ½;
* `SurrogateSetClassifier` with four base classifiers and four calibrations ("logistic, None" is logistic regression
  on the sets with the threshold that follows from the priors);
* the default classifier trained with the labels of the same rows, for comparison.

A second part has five sets of 400 rows at (0.9, 0.7, 0.5, 0.3, 0.1), which are either used directly or pooled to two
sets of 800. Results are stored in ``benchmarks/results/any_classifier.json``; stored runs are not repeated.

    python benchmarks/any_classifier.py [--seeds 5] [--minutes 1.5] [--report] [--figure picture.png]
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_hastie_10_2
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from common import FORMAT, LEAKY, RESULTS, machine, read_json, versions, write_json
from uulearn import UUClassifier
from uulearn.exceptions import UUWarning
from uulearn.surrogate import SurrogateSetClassifier, set_posterior
from uulearn.surrogate.classifier import default_estimator

Table = NDArray[np.float64]
Labels = NDArray[np.int64]
Data = tuple[Table, Labels]

SIZES = {
    "breast cancer": (140,),
    "digits": (500,),
    "wine-like": (300, 1000),
    "ten squares": (300, 1000, 3000),
    "clusters": (300, 3000),
    "skewed clusters": (300, 3000),
}
SET_PRIORS = ((0.8, 0.2), (0.6, 0.4))
MANY_PRIORS, MANY_SIZE = (0.9, 0.7, 0.5, 0.3, 0.1), 400
MANY_DATASETS = ("ten squares", "clusters", "skewed clusters")
CALIBRATIONS = ("mixture", "sigmoid", "isotonic", None)


# ---------------------------------------------------------------------------------------------------------------- data


@functools.cache
def load(dataset: str) -> Data:
    """Return all rows and labels of a dataset; simulated datasets are created once, with seed 0."""
    if dataset == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif dataset == "digits":
        X, digit = load_digits(return_X_y=True)
        y = digit % 2 == 0
    elif dataset == "wine-like":
        X, y = wine_like(20_000)
    elif dataset == "ten squares":
        X, y = make_hastie_10_2(20_000, random_state=0)
    else:
        X, y = make_classification(
            20_000, 30, n_informative=8, n_redundant=4, n_clusters_per_class=4, weights=[0.6], class_sep=1.5,
            flip_y=0.02, random_state=0,
        )  # fmt: skip
        if dataset == "skewed clusters":
            X = np.exp(X)
    return np.asarray(X, dtype=np.float64), np.asarray(y == 1, dtype=np.int64)


def wine_like(n_rows: int) -> tuple[Table, NDArray[np.bool_]]:
    """Draw rows from a Gaussian for each of the three classes of the wine dataset; the second class is positive."""
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    kinds = rng.choice(3, n_rows, p=np.bincount(y) / len(y))
    rows = np.empty((n_rows, X.shape[1]))
    for kind in range(3):
        own = X[y == kind]
        rows[kinds == kind] = rng.multivariate_normal(own.mean(0), np.cov(own.T), (kinds == kind).sum())
    return rows, kinds == 1


def draw_sets(y: Labels, priors: Sequence[float], size: int, rng: np.random.Generator) -> list[Labels]:
    """Return the row numbers of sets of equal size, without using a row twice."""
    positives, negatives = (rng.permutation(np.flatnonzero(y == label)) for label in (1, 0))
    drawn = []
    for prior in priors:
        count = round(size * prior)
        rows = np.concatenate([positives[:count], negatives[: size - count]])
        assert len(rows) == size, "too few rows for sets of this size"
        positives, negatives = positives[count:], negatives[size - count :]
        drawn.append(rng.permutation(rows))
    return drawn


# ---------------------------------------------------------------------------------------------------------- contenders


def bases(seed: int) -> dict[str, Any]:
    """Return the base classifiers by name."""
    return {
        "default": default_estimator(seed),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "forest": RandomForestClassifier(min_samples_leaf=10, random_state=seed),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    }


class Shared:
    """One draw of the rows, which all contenders share."""

    def __init__(self, dataset: str, priors: Sequence[float], size: int, seed: int) -> None:
        X, y = load(dataset)
        X_train, self.X_test, y_train, self.y_test = train_test_split(
            X, y, test_size=0.3, stratify=y, random_state=seed
        )
        drawn = draw_sets(y_train, priors, size, np.random.default_rng(seed))
        self.priors = tuple(float(y_train[rows].mean()) for rows in drawn)
        self.tables = [X_train[rows] for rows in drawn]
        self.labels = [y_train[rows] for rows in drawn]
        self.pi = float(self.y_test.mean())
        self.seed = seed

    def pooled(self, *groups: Sequence[int]) -> Shared:
        """Return the same draw with pooled sets; sets that are in no group are omitted."""
        other = copy.copy(self)
        other.tables = [np.concatenate([self.tables[k] for k in group]) for group in groups]
        other.labels = [np.concatenate([self.labels[k] for k in group]) for group in groups]
        other.priors = tuple(float(labels.mean()) for labels in other.labels)
        return other

    @property
    def rows(self) -> Data:
        """All rows, and the set of each row."""
        sizes = [len(table) for table in self.tables]
        return np.concatenate(self.tables), np.repeat(np.arange(len(sizes)), sizes)

    def evaluate(self, fit: Callable[[], Any]) -> dict[str, float]:
        """Fit and evaluate a contender on the test part."""
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UUWarning)
            model = fit()
            positive = model.predict_proba(self.X_test)[:, 1]
        clipped = model.invert(self.X_test).clipped_fraction if hasattr(model, "invert") else 0.0
        kept = positive.clip(1e-3, 1 - 1e-3)
        return {
            "accuracy": float(((positive > 0.5) == self.y_test).mean()),
            "log_loss": float(log_loss(self.y_test, kept)),
            "brier": float(brier_score_loss(self.y_test, positive)),
            "clipped": clipped,
            "seconds": time.perf_counter() - started,
        }

    def uu(self) -> Any:
        """Return `UUClassifier` with its defaults."""
        scaler = StandardScaler().fit(np.concatenate(self.tables))
        classifier = UUClassifier(self.priors, self.pi, **LEAKY, device="cpu", progress=False, random_state=self.seed)
        classifier.fit_sets(*(scaler.transform(table) for table in self.tables))
        return make_pipeline(scaler, classifier)

    def surrogate(self, base: Any, calibration: str | None) -> Any:
        """Return `SurrogateSetClassifier` with a base classifier."""
        classifier = SurrogateSetClassifier(
            self.priors, self.pi, estimator=base, calibration=calibration, random_state=self.seed
        )
        return classifier.fit_sets(*self.tables)

    def sets_for_classes(self) -> Any:
        """Return logistic regression that treats set 0, which has the higher prior, as the positive class."""
        X, sets = self.rows
        return clone(bases(self.seed)["logistic"]).fit(X, 1 - sets)

    def supervised(self) -> Any:
        """Return the default classifier trained with labels."""
        return clone(bases(self.seed)["default"]).fit(self.rows[0], np.concatenate(self.labels))


def contenders(settings: dict[str, Any]) -> dict[str, Callable[[], dict[str, float]]]:
    """Return the contenders on one draw: by name, a function that fits and evaluates."""
    shared = Shared(settings["dataset"], settings["set_priors"], settings["rows_a_set"], settings["seed"])
    choices = bases(settings["seed"])
    found: dict[str, Callable[[], dict[str, float]]] = {"labels": functools.partial(shared.evaluate, shared.supervised)}
    if len(settings["set_priors"]) == 2:
        found["UUClassifier"] = functools.partial(shared.evaluate, shared.uu)
        found["sets for classes"] = functools.partial(shared.evaluate, shared.sets_for_classes)
        return found | {
            f"{name}, {calibration}": functools.partial(
                shared.evaluate, functools.partial(shared.surrogate, base, calibration)
            )
            for name, base in choices.items()
            for calibration in CALIBRATIONS
        }
    two = shared.pooled((0, 1), (3, 4))
    found["pooled, UUClassifier"] = functools.partial(two.evaluate, two.uu)
    for calibration in CALIBRATIONS:
        for name, own in (("five", shared), ("pooled", two)):
            fit = functools.partial(own.surrogate, choices["default"], calibration)
            found[f"{name}, {calibration}"] = functools.partial(own.evaluate, fit)
    return found


def expected(settings: dict[str, Any]) -> int:
    """Return the number of contenders of a finished draw."""
    return 3 + len(bases(0)) * len(CALIBRATIONS) if len(settings["set_priors"]) == 2 else 2 + 2 * len(CALIBRATIONS)


# ------------------------------------------------------------------------------------------------------------ the runs


def planned(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the settings of every run, seed by seed."""
    for seed in range(seeds):
        for dataset, sizes in SIZES.items():
            for size in sizes:
                for priors in SET_PRIORS:
                    yield {"dataset": dataset, "set_priors": list(priors), "rows_a_set": size, "seed": seed}
        for dataset in MANY_DATASETS:
            yield {"dataset": dataset, "set_priors": list(MANY_PRIORS), "rows_a_set": MANY_SIZE, "seed": seed}


def study(seeds: int, minutes: float, path: Path) -> None:
    """Run all missing fits until the time limit is reached."""
    end = time.monotonic() + 60 * minutes
    for settings in planned(seeds):
        runs = read_json(path).get("runs", [])
        run = next((found for found in runs if found["settings"] == settings), None)
        if run is None:
            run = {"settings": settings, "contenders": {}}
            runs.append(run)
        for name, evaluate in contenders(settings).items():
            if name in run["contenders"]:
                continue
            if time.monotonic() > end:
                print("the time limit is reached; run the same command again to continue")
                return
            with threadpool_limits(1):
                run["contenders"][name] = {key: round(value, 4) for key, value in evaluate().items()}
            write_json(path, {"format": FORMAT, "versions": versions(), "machine": machine(), "runs": runs})
        print(*settings.values(), flush=True)


# -------------------------------------------------------------------------------------------------------------- report


def cell(runs: list[dict[str, Any]], contender: str, key: str) -> str:
    """Return the mean and standard deviation over seeds, in percent for an accuracy."""
    values = [run["contenders"][contender][key] for run in runs]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    if key == "accuracy":
        return f"{100 * statistics.mean(values):.1f} ± {100 * spread:.1f}"
    return f"{statistics.mean(values):.3f}"


def mean_of(runs: list[dict[str, Any]], contender: str, key: str) -> float:
    """Return the mean over all runs."""
    return float(statistics.mean(run["contenders"][contender][key] for run in runs))


def report(path: Path) -> None:
    """Print the tables of docs/studies/any-classifier.md."""
    runs = [run for run in read_json(path).get("runs", []) if len(run["contenders"]) == expected(run["settings"])]
    two = [run for run in runs if len(run["settings"]["set_priors"]) == 2]
    many = [run for run in runs if len(run["settings"]["set_priors"]) > 2]
    columns = ["UUClassifier", "default, mixture", "forest, mixture", "logistic, mixture", "logistic, None"]
    columns += ["sets for classes", "labels"]
    print("| data | n | θ, θ′ | " + " | ".join(columns) + " |\n|---|---|---|" + "---|" * len(columns))
    for dataset, sizes in SIZES.items():
        for size in sizes:
            for priors in SET_PRIORS:
                wanted = {"dataset": dataset, "set_priors": list(priors), "rows_a_set": size}
                own = [run for run in two if wanted.items() <= run["settings"].items()]
                if own:
                    figures = " | ".join(cell(own, name, "accuracy") for name in columns)
                    print(f"| {dataset} | {size:,} | {priors[0]}, {priors[1]} | {figures} |")
    print("\n| | accuracy | | log loss | | clipped | |\n|---|---|---|---|---|---|---|")
    halves = [[run for run in two if tuple(run["settings"]["set_priors"]) == priors] for priors in SET_PRIORS]
    names = list(two[0]["contenders"]) if two else []
    for name in names:
        means = [f"{100 * mean_of(half, name, 'accuracy'):.1f}" for half in halves]
        means += [f"{mean_of(half, name, 'log_loss'):.3f}" for half in halves]
        means += [f"{100 * mean_of(half, name, 'clipped'):.0f}%" for half in halves]
        print(f"| {name} | " + " | ".join(means) + " |")
    print(f"\nmean seconds per fit: { {name: round(mean_of(two, name, 'seconds'), 2) for name in names} }")
    names = list(many[0]["contenders"]) if many else []
    print("\n| | " + " | ".join(MANY_DATASETS) + " | log loss |\n|---|" + "---|" * (len(MANY_DATASETS) + 1))
    for name in names:
        cells = [
            cell([run for run in many if run["settings"]["dataset"] == dataset], name, "accuracy")
            for dataset in MANY_DATASETS
        ]
        print(f"| {name} | " + " | ".join(cells) + f" | {mean_of(many, name, 'log_loss'):.3f} |")
    print(f"\n{len(runs)} draws")


def draw_figure(path: Path) -> None:
    """Draw the figure of docs/any-classifier.md: the inversion, and the effect of calibration on it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    priors, size = (0.6, 0.4), 3000
    labels = rng.random((2, size)) < np.array(priors)[:, None]
    tables = rng.normal(size=(2, size, 5))
    tables[..., 0] += np.where(labels, 1, -1)
    X = rng.normal(size=(1500, 5))
    X[:, 0] *= 1.5
    truth = 1 / (1 + np.exp(-2 * X[:, 0]))

    figure = plt.figure(figsize=(5.2, 5.6), layout="constrained")
    axes = figure.subplot_mosaic([["sets", "sets"], ["None", "mixture"]])
    eta = np.linspace(0, 1, 101)
    posterior = set_posterior(eta, (0.9, 0.5, 0.2), (500, 500, 500), 0.3)
    for which, (prior, color) in enumerate(zip((0.9, 0.5, 0.2), ("C0", "C7", "C3"), strict=True)):
        axes["sets"].plot(eta, posterior[:, which], color, label=f"set {which}, θ = {prior}")
    axes["sets"].set(xlabel="η(x) at π = 0.3", ylabel="P(set | x)", ylim=(0, 1), title="three sets of 500 rows")
    axes["sets"].legend(frameon=False)
    for calibration in (None, "mixture"):
        classifier = SurrogateSetClassifier(priors, calibration=calibration, random_state=0).fit_sets(*tables)
        clipped = classifier.invert(X).clipped_fraction
        panel = axes[str(calibration)]
        panel.plot([0, 1], [0, 1], "k", linewidth=0.8)
        panel.plot(truth, classifier.predict_proba(X)[:, 1], "C0.", markersize=2, alpha=0.6)
        panel.set(xlabel="true η(x)", ylabel="estimated η(x)")
        panel.set_title(f"calibration={calibration!r}\n{clipped:.0%} of rows clipped", fontsize=10)
    figure.savefig(path, dpi=130)
    print(f"drawn: {path}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no run after this time")
    parser.add_argument("--out", type=Path, default=RESULTS / "any_classifier.json")
    parser.add_argument("--report", action="store_true", help="only print the stored results")
    parser.add_argument("--figure", type=Path, help="only draw the figure of the documentation to this file")
    asked = parser.parse_args()
    if asked.figure:
        draw_figure(asked.figure)
        return
    if not asked.report:
        study(asked.seeds, asked.minutes, asked.out)
    report(asked.out)


if __name__ == "__main__":
    main()
