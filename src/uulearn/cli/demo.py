"""``uulearn demo``: the paper's point on data that scikit-learn carries.

Two unlabeled sets at (0.7, 0.3), five methods, one small deep model: without a correction the empirical risk goes
negative and the test accuracy falls; with one it stays.
"""

from __future__ import annotations

import csv
import io
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from uulearn import defaults
from uulearn.datasets import UnlabeledSets, make_sets
from uulearn.estimator import UUClassifier
from uulearn.risk.corrections import METHODS
from uulearn.storage import write_atomically
from uulearn.training import History, TrainingOptions

SET_PRIORS = (0.7, 0.3)
MODEL = {"hidden": (100, 100, 100)}
SAVED_METHOD = "leaky_relu"


@dataclass(frozen=True)
class Task:
    """A labelled dataset turned into two unlabeled sets and a labelled test part."""

    name: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    set_size: int
    input_scale: float = 1.0

    @property
    def target_prior(self) -> float:
        """Share of positives in the test part."""
        return float(self.y_test.mean())


@dataclass(frozen=True)
class Outcome:
    """One row of the demo's table."""

    dataset: str
    method: str
    accuracy: float
    best: float
    risk: float
    negative_epoch: int | None

    @property
    def drop(self) -> float:
        """Δ_A: best epoch minus last."""
        return self.best - self.accuracy


def demo_tasks(seed: int) -> list[Task]:
    """Digits (even against odd) and breast cancer (benign against malignant)."""
    digits, classes = load_digits(return_X_y=True)
    cells, benign = load_breast_cancer(return_X_y=True)
    tasks = []
    for name, X, y, size, scale in (
        ("digits", digits, (classes % 2 == 0).astype(int), 600, 1 / 16),
        ("breast cancer", cells, benign, 180, 1.0),
    ):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        if scale == 1.0:
            scaler = StandardScaler().fit(X_train)
            X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
        tasks.append(Task(name, X_train, y_train, X_test, y_test, size, scale))
    return tasks


def draw_sets(task: Task, seed: int) -> UnlabeledSets:
    """Two unlabeled sets from the training part."""
    return make_sets(task.X_train, task.y_train, SET_PRIORS, (task.set_size, task.set_size), random_state=seed)


def train_task(task: Task, method: str, epochs: int, seed: int) -> UUClassifier:
    """One of the demo's ten runs."""
    drawn = draw_sets(task, seed)
    classifier = UUClassifier(
        drawn.realized_priors,
        task.target_prior,
        method=method,
        model_params=MODEL,
        epochs=epochs,
        training=TrainingOptions(input_scale=task.input_scale),
        random_state=seed,
        progress=False,
        **defaults.SINGLE_RUN,  # the defaults of the estimator would hide the overfitting
    )
    return classifier.fit_sets(drawn.X0, drawn.X1, test_data=(task.X_test, task.y_test))


def outcome(task: Task, method: str, history: History) -> Outcome:
    """The figures of a run."""
    accuracy = history.column("test_accuracy")
    return Outcome(
        task.name, method, accuracy[-1], max(accuracy), history[-1]["unbiased"], history.first_negative_epoch
    )


def run_demo(out: Path, epochs: int, seed: int) -> None:
    """Train, print the table, write figure, table, model and rows to score."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console()
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; pass a folder for the demo's files.")
    out.mkdir(parents=True, exist_ok=True)
    tasks = demo_tasks(seed)
    histories: dict[str, dict[str, History]] = {task.name: {} for task in tasks}
    saved: UUClassifier | None = None
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        ticks = bar.add_task("training", total=len(tasks) * len(METHODS))
        for task in tasks:
            for method in METHODS:
                bar.update(ticks, description=f"{task.name}, {method}")
                classifier = train_task(task, method, epochs, seed)
                histories[task.name][method] = classifier.history_
                if task is tasks[0] and method == SAVED_METHOD:
                    saved = classifier
                bar.advance(ticks)
    assert saved is not None
    outcomes = [outcome(task, method, histories[task.name][method]) for task in tasks for method in METHODS]
    rows = ", ".join(
        f"{task.name} {task.set_size} + {task.set_size} ({draw_sets(task, seed).overlap} in both)" for task in tasks
    )
    widths = "-".join(map(str, MODEL["hidden"]))
    console.print(
        "Digits (even against odd) and breast cancer (benign against malignant), each\n"
        f"as two unlabeled sets, {SET_PRIORS[0]:.0%} and {SET_PRIORS[1]:.0%} positive; {epochs} epochs of a {widths}\n"
        f"MLP, seed {seed}. Labels of the test part were used for the accuracies\n"
        f"below and for nothing else.\nRows of the sets: {rows}.\n",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(outcomes))
    _write_csv(out / "table.csv", outcomes)
    console.print(f"table   {out / 'table.csv'}", highlight=False)
    try:
        from uulearn.cli.figure import draw
    except ImportError:
        console.print("figure  not drawn: it needs matplotlib, pip install 'uulearn[plot]'", highlight=False)
    else:
        draw(out / "demo.png", histories)
        console.print(f"figure  {out / 'demo.png'}", highlight=False)
    saved.save(out / "model")
    console.print(f"model   {out / 'model'} (digits, {SAVED_METHOD})", highlight=False)
    _write_rows(out / "new_rows.csv", tasks[0].X_test)
    console.print("\nThe model saved:", highlight=False)
    console.print(saved.summary(), highlight=False, soft_wrap=True)
    console.print("\nNext, score rows with it:", highlight=False)
    arguments = ["predict", out / "model", out / "new_rows.csv", "--out", out / "scored.csv"]
    command = shlex.join([*_own_name(), *map(str, arguments)])
    console.print(f"  {command}", highlight=False, soft_wrap=True)


def _own_name() -> list[str]:
    """How this command was called, so that the next one can be called likewise."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return [os.path.relpath(sys.executable), "-m", "uulearn"]
    return ["uulearn"] if shutil.which("uulearn") == str(called.absolute()) else [os.path.relpath(called)]


def _table(outcomes: list[Outcome]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for heading in ("accuracy", "best", "drop Δ_A", "risk", "negative"):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate(outcomes):
        table.add_row(
            row.dataset if position % len(METHODS) == 0 else "",
            row.method,
            f"{row.accuracy:.1%}",
            f"{row.best:.1%}",
            f"{100 * row.drop:.1f}",
            f"{row.risk:+.3f}",
            f"epoch {row.negative_epoch}" if row.negative_epoch is not None else "never",
            end_section=position % len(METHODS) == len(METHODS) - 1,
        )
    return table


def _write_csv(path: Path, outcomes: list[Outcome]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "method", "accuracy", "best", "drop", "risk", "negative_epoch"])
    for row in outcomes:
        writer.writerow([row.dataset, row.method, row.accuracy, row.best, row.drop, row.risk, row.negative_epoch or ""])
    write_atomically(path, lambda temporary: temporary.write_text(text.getvalue(), encoding="utf-8"))


def _write_rows(path: Path, X: NDArray[Any]) -> None:
    names = ",".join(f"pixel_{i // 8}_{i % 8}" for i in range(X.shape[1]))
    write_atomically(path, lambda temporary: np.savetxt(temporary, X, "%g", ",", header=names, comments=""))
