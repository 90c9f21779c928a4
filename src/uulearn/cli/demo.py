"""``uulearn demo``: show the main result of the paper on two small datasets, and write tables for other commands."""

from __future__ import annotations

import dataclasses
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from uulearn.cli.options import flag, option

if TYPE_CHECKING:
    from uulearn.cli.demo_runs import DemoResult

SAVED_METHOD = "leaky_relu"
"""Method used to train the saved model."""


def demo(
    out: Annotated[Path, option("DIR", "Folder for the tables, the figure and the model.")] = Path("uulearn-demo"),
    epochs: Annotated[int, option("N", "Number of epochs per run.", min=1)] = 200,
    seed: Annotated[int, option("N", "Random seed.", min=0)] = 0,
    files_only: Annotated[bool, flag("Write only the patient tables, without training.", "--files-only")] = False,
) -> None:
    """Compare all five methods on small included datasets, and write tables for the other commands."""
    import numpy as np
    import pandas as pd
    from rich.console import Console

    from uulearn.cli.demo_tables import demo_tables, write_tables

    console = Console(highlight=False, soft_wrap=True, markup=False)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; pass a folder as --out.")
    tables = demo_tables(seed)
    write_tables(out, tables)
    if files_only:
        console.print(_describe_tables(out, tables))
        return

    from uulearn.cli.demo_runs import DEMO_MODEL, DEMO_PRIORS, demo_tasks, draw_sets, summarize, train_task
    from uulearn.cli.progress import ProgressOutput, TerminalOutput
    from uulearn.risk.corrections import METHODS
    from uulearn.storage import write_atomically

    tasks = demo_tasks(seed)
    trained: dict[str, dict[str, Any]] = {task.name: {} for task in tasks}
    runs = [(task, method) for task in tasks for method in METHODS]
    progress = TerminalOutput() if sys.stderr.isatty() else ProgressOutput()
    try:
        for done, (task, method) in enumerate(runs):
            progress.show(done / len(runs), f"{task.name}, {method}")
            trained[task.name][method] = train_task(task, method, epochs, seed)
    finally:
        progress.close()
    results = [summarize(task, method, trained[task.name][method].history_) for task, method in runs]
    overlaps = [(task, draw_sets(task, seed).overlap) for task in tasks]
    rows = ",\n".join(
        f"{task.name} {task.set_size} + {task.set_size} ({f'{n} rows are' if n else 'no row is'} in both sets)"
        for task, n in overlaps
    )
    console.print(
        "Digits (even against odd) and breast cancer (malignant against benign), each as\n"
        f"two unlabeled sets with class priors {DEMO_PRIORS[0]} and {DEMO_PRIORS[1]}; {epochs} epochs of a "
        f"{'-'.join(map(str, DEMO_MODEL['hidden']))}\nMLP, seed {seed}. Test labels were used only to compute the "
        f"accuracies below.\nNumber of rows in the sets: {rows}.\n"
    )
    console.print(_format_table(results, len(METHODS)))
    table = pd.DataFrame([dataclasses.asdict(row) | {"drop": row.drop} for row in results])
    table["negative_epoch"] = table["negative_epoch"].astype("Int64")
    columns = ["dataset", "method", "accuracy", "best", "drop", "risk", "negative_epoch"]
    write_atomically(out / "table.csv", lambda path: table.to_csv(path, columns=columns, index=False))
    console.print(f"table   {out / 'table.csv'}")
    try:
        from uulearn.cli.demo_figure import draw
    except ImportError:
        console.print("figure  not drawn: install matplotlib with pip install 'uulearn[plot]'")
    else:
        draw(out / "demo.png", {name: {m: c.history_ for m, c in own.items()} for name, own in trained.items()})
        console.print(f"figure  {out / 'demo.png'}")
    saved = trained[tasks[0].name][SAVED_METHOD]
    saved.save(out / "digits_model")
    console.print(f"model   {out / 'digits_model'} ({tasks[0].name}, {SAVED_METHOD})")
    new_rows = tasks[0].X_test
    header = ",".join(f"pixel_{i // 8}_{i % 8}" for i in range(new_rows.shape[1]))
    write_atomically(
        out / "digits_rows.csv", lambda path: np.savetxt(path, new_rows, "%g", ",", header=header, comments="")
    )
    console.print(f"\nThe saved model:\n{saved.summary()}\n\nNext, score rows with it:")
    arguments = ["predict", out / "digits_model", out / "digits_rows.csv", "--out", out / "digits_scored.csv"]
    console.print(f"  {shlex.join([*_program(), *map(str, arguments)])}\n")
    console.print(_describe_tables(out, tables))
    console.print("\n  ".join(["\nTrain a model on both clinics:", *fit_commands(out)]))


def _describe_tables(folder: Path, tables: dict[str, Any]) -> str:
    """Describe the tables: file names, number of rows, class priors and label column."""
    from uulearn.cli.demo_tables import LABEL_COLUMN, TABLE_PRIORS

    lines = [
        f"  {name:20}  {len(table):5,} rows  {TABLE_PRIORS[name]:.0%} positive"
        + (f"  with labels: {LABEL_COLUMN}" if LABEL_COLUMN in table else "")
        for name, table in tables.items()
    ]
    return "\n".join([f"Simulated patients of two clinics, in {folder} (a patient who is ill is positive)", *lines])


def fit_commands(folder: Path) -> list[str]:
    """Return the commands of the README that train a model on the tables of both clinics."""
    from uulearn.cli.demo_tables import TABLE_PRIORS

    (first, second, new, *_), priors = TABLE_PRIORS, list(map(str, TABLE_PRIORS.values()))
    enter, program = f"cd {shlex.quote(str(folder))}", _program(folder)
    activate = Path(sys.argv[0]).with_name("activate")
    if len(program) == 1 and program != ["uulearn"] and activate.is_file():
        enter, program = f"source {shlex.quote(os.path.relpath(activate))} && {enter}", ["uulearn"]
    options = ["--set-priors", *priors[:2], "--target-prior", str(TABLE_PRIORS[new]), "--out", "model/"]
    return [enter, shlex.join([*program, "fit", first, second, *options])]


def _program(folder: Path = Path()) -> list[str]:
    """Return the words that start this program in a folder, so that printed commands can be copied and run."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return [os.path.relpath(sys.executable, folder), "-m", "uulearn"]
    return ["uulearn"] if shutil.which("uulearn") == str(started.absolute()) else [os.path.relpath(started, folder)]


def _format_table(results: list[DemoResult], per_dataset: int) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("dataset", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for heading in ("accuracy", "best", "drop Δ_A", "risk", "negative"):
        table.add_column(heading, justify="right", no_wrap=True)
    for position, row in enumerate(results):
        table.add_row(
            row.dataset if position % per_dataset == 0 else "",
            row.method,
            f"{row.accuracy:.1%}",
            f"{row.best:.1%}",
            f"{100 * row.drop:.1f}",
            f"{row.risk:+.3f}",
            f"epoch {row.negative_epoch}" if row.negative_epoch is not None else "never",
            end_section=position % per_dataset == per_dataset - 1,
        )
    return table
