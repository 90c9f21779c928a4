"""Measure the effect of wrong priors on small data over ten draws, with linear models, MLPs and two losses.

`uulearn.selection.prior_sensitivity` changes θ, θ′ or π by 0.05 or 0.1, trains with the changed priors, and evaluates
on held-out rows. 30% of the labeled rows are held out first and used only to measure the true accuracy. The columns of
breast cancer are standardized with the rows of the two sets; pixels are divided by 16. Each run is one model at its
last epoch.

Every draw is stored when it is finished and is not repeated.

    python benchmarks/study/sensitivity_draws.py [--minutes 3] [--quick]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
from records import Record
from resuming import STUDY, add_options, complete, out_of
from sensitivity import ERRORS, plain
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import normalized
from uulearn.selection import prior_sensitivity

STORE = STUDY / "sensitivity_draws.jsonl"
DRAWS = 10
TASKS: dict[str, Record] = {
    "even digits": {"set_priors": (0.8, 0.2), "target_prior": 0.5, "sizes": (600, 600)},
    "digits below 3": {"set_priors": (0.6, 0.1), "target_prior": 0.3, "sizes": (500, 700)},
    "breast cancer": {"set_priors": (0.7, 0.2), "target_prior": 0.37, "sizes": (150, 200)},
}
LINEAR: Record = {"model": "linear", "lr": 0.03}
MLP: Record = {"model": "mlp", "lr": 0.001, "model_params": {"hidden": (64,)}}
COLUMNS = (
    ("even digits", LINEAR, "sigmoid"), ("even digits", LINEAR, "logistic"),
    ("even digits", MLP, "sigmoid"), ("even digits", MLP, "logistic"),
    ("breast cancer", LINEAR, "sigmoid"), ("breast cancer", LINEAR, "logistic"),
    ("digits below 3", LINEAR, "logistic"), ("digits below 3", MLP, "sigmoid"),
)  # fmt: skip
SHARED: Record = {"epochs": 60, "validation_fraction": 0.4, "n_estimators": 1, "early_stopping": False}


def planned(quick: bool = False) -> list[Record]:
    """Return the configurations of all draws."""
    short = {"epochs": 2} if quick else {}
    return [
        normalized(
            {
                "task": task,
                **TASKS[task],
                "seed": seed,
                "errors": ERRORS,
                "parameters": {**SHARED, **model, "loss": loss, **short},
            }
        )
        for task, model, loss in (COLUMNS[4:5] if quick else COLUMNS)
        for seed in range(1 if quick else DRAWS)
    ]


def load(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and labels of a task; even digits, digits below 3 or malignant tumors are positive."""
    if task == "breast cancer":
        X, benign = load_breast_cancer(return_X_y=True)
        return X, (benign == 0).astype(np.int64)
    X, digit = load_digits(return_X_y=True)
    return X / 16, (digit % 2 == 0 if task == "even digits" else digit < 3).astype(np.int64)


def fit(configuration: Record) -> Record:
    """Draw two sets, train with the correct priors and with each wrong prior, and measure the accuracies."""
    seed, set_priors = configuration["seed"], configuration["set_priors"]
    X, y = load(configuration["task"])
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=seed, stratify=y)
    drawn = make_sets(X, y, set_priors, configuration["sizes"], random_state=seed)
    rows = np.concatenate([drawn.X0, drawn.X1])
    if configuration["task"] == "breast cancer":
        scaler = StandardScaler().fit(rows)
        rows, X_test = scaler.transform(rows), scaler.transform(X_test)
    classifier = UUClassifier(
        set_priors, configuration["target_prior"], random_state=seed, device="cpu", progress=False,
        **configuration["parameters"],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        found = prior_sensitivity(
            classifier, rows, drawn.sets, errors=configuration["errors"], test_data=(X_test, y_test)
        )
    return {
        "rows": [plain(row) for row in found.rows],
        "held_out": list(found.held_out_sizes),
        "test_rows": found.test_size,
    }


def tell(record: Record) -> str:
    """Return a progress line."""
    one, baseline = record["configuration"], record["rows"][0]
    model = f"{one['parameters']['model']}, {one['parameters']['loss']}"
    return f"{one['task']}, {model}, seed {one['seed']}: true accuracy {100 * baseline['true'][0]:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    complete(planned(asked.quick), fit, tell, out_of(asked, STORE), minutes=asked.minutes)


if __name__ == "__main__":
    main()
