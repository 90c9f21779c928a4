"""Small tables and models that the areas share."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from hostile.commands import Ended, run

PRIORS = ("--set-priors", "0.8", "0.2")
SMALL = (*PRIORS, "--epochs", "2", "--n-estimators", "1", "--no-sensitivity", "--model", "linear")
"""Options of a fit that takes a fifth of a second."""
HEADER = ("id", "age", "dose", "city", "day", "smoker")
CITIES = ("Basel", "Genf", "Zug", "Chur")
ROWS = 60
SETS = (("a", 0.8, 0), ("b", 0.2, 1), ("new", 0.5, 2))

Rows = list[list[str]]


def draw_rows(n: int, prior: float, seed: int) -> Rows:
    """Draw rows of all column types, with a unique id and some missing cells; two numbers depend on the class."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < prior
    age, dose = np.round(rng.normal(50, 9, n) + 18 * y, 1), np.round(rng.normal(2, 1, n) + 2 * y, 3)
    city, day = rng.choice(CITIES, n), rng.integers(1, 366, n)
    smoker = np.where(rng.random(n) < 0.3 + 0.3 * y, "yes", "no")
    start = np.datetime64("2024-01-01")
    rows = [
        [f"r{seed}{i:04d}", str(age[i]), str(dose[i]), str(city[i]), str(start + day[i]), str(smoker[i])]
        for i in range(n)
    ]
    for column in (2, 3, 5):
        rows[int(rng.integers(n))][column] = ""
    return rows


def csv_text(rows: Rows, header: tuple[str, ...] | list[str] = HEADER, delimiter: str = ",") -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([list(header), *rows])
    return out.getvalue()


def write_tables(folder: Path, n: int = ROWS) -> None:
    """Write a.csv, b.csv and new.csv."""
    for name, prior, seed in SETS:
        (folder / f"{name}.csv").write_text(csv_text(draw_rows(n, prior, seed)))


def fit_small(files: Path, out: Path) -> None:
    """Fit a small model and run the other commands once, which imports what they need."""
    expect(run("fit", files / "a.csv", files / "b.csv", *SMALL, "--id", "id", "--out", out))
    expect(run("predict", out, files / "new.csv", "--out", out.with_name("warm.csv")))
    expect(run("evaluate", out, files / "a.csv", files / "b.csv"))
    expect(run("report", out, "--out", out.with_name("warm.html")))
    for name in ("warm.csv", "warm.html"):
        out.with_name(name).unlink()


def expect(ended: Ended) -> Ended:
    """Return the result of a command that must succeed."""
    if ended.code:
        raise RuntimeError(f"an undisturbed command failed: {ended.brief()}")
    return ended


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder by name, including hidden ones."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def weights_of(model: Path) -> str:
    """Return the name of the weights file, which contains a hash of its content."""
    (path,) = model.glob("weights-*")
    return path.name
