"""Runs gathered into cells, beside the numbers that the paper printed.

A `Table` is plain data: which runs belong to which cell is the caller's decision, given as a function, and how the
table looks is left to `uulearn.reproduction.render`. All numbers are in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uulearn.reproduction.reference import PaperCell, PaperTable, Spread
from uulearn.reproduction.statistics import agrees, bold, mean_std

Record = Mapping[str, Any]

LEAST_TRIALS = 3
"""Below which nothing is set in bold: a t-test on two pairs calls almost anything even."""
DATASET_NAMES = {
    "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST", "cifar10": "CIFAR-10",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One setting: a dataset and the shares of positives in its two unlabeled sets."""

    dataset: str
    set_priors: tuple[float, float]

    @property
    def dataset_label(self) -> str:
        """The dataset's name for readers."""
        return DATASET_NAMES.get(self.dataset, self.dataset)

    @property
    def priors_label(self) -> str:
        """Both priors, as the paper writes them."""
        return f"{self.set_priors[0]:g}, {self.set_priors[1]:g}"

    @property
    def label(self) -> str:
        """The whole row in words.

        Examples
        --------
        >>> Row("mnist", (0.8, 0.2)).label
        'MNIST (0.8, 0.2)'
        """
        return f"{self.dataset_label} ({self.priors_label})"


@dataclass(frozen=True)
class Column:
    """One method. ``paper`` names it in the paper's tables; a column without is shown, but never bold."""

    name: str
    label: str
    paper: str | None = None


PAPER_COLUMNS = (
    Column("biased", "UU-Biased", "biased"),
    Column("unbiased", "UU-Unbiased", "unbiased"),
    Column("abs", "UU-ABS", "abs"),
    Column("relu", "UU-ReLU", "relu"),
    Column("leaky_relu", "UU-LReLU", "leaky_relu"),
)


def slope_column(slope: float) -> Column:
    """The column of one λ of the generalized leaky ReLU, named so that records can be found by it.

    Examples
    --------
    >>> slope_column(-0.01)
    Column(name='leaky_relu(-0.01)', label='λ = −0.01', paper=None)
    >>> slope_column(-1.0).label, slope_column(0).label
    ('λ = −1 (ABS)', 'λ = 0 (ReLU)')
    """
    slope = float(slope) + 0.0  # −0.0 is 0
    label = f"λ = {slope:g}".replace("-", "−") + {-1.0: " (ABS)", 0.0: " (ReLU)"}.get(slope, "")
    return Column(f"leaky_relu({slope:g})", label)


@dataclass(frozen=True)
class Cell:
    """One method in one row: our trials, and the paper's number where it has one."""

    row: Row
    column: Column
    asked: int
    runs: int
    trials: Mapping[int, float] = field(repr=False)  # last-epoch accuracy by seed
    accuracy: Spread | None
    drop: Spread | None
    not_finite: int
    paper: PaperCell | None
    bold: bool = False

    @property
    def complete(self) -> bool:
        """Are there as many runs as were asked for?"""
        return self.runs >= self.asked

    @property
    def difference(self) -> float | None:
        """Our mean accuracy minus the paper's, in points."""
        return self.accuracy.mean - self.paper.accuracy.mean if self.accuracy and self.paper else None

    @property
    def drop_difference(self) -> float | None:
        """Our mean drop minus the paper's, in points."""
        return self.drop.mean - self.paper.drop.mean if self.drop and self.paper else None

    @property
    def agrees(self) -> bool | None:
        """Does our accuracy agree with the paper's? None while trials are missing, or where the paper has none."""
        if self.accuracy is None or self.paper is None or not self.complete:
            return None
        return agrees(*self.accuracy, *self.paper.accuracy)


@dataclass(frozen=True)
class Table:
    """Cells in rows and columns, under a title; iterating gives every cell, row by row."""

    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[Row, Column], Cell] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __getitem__(self, place: tuple[Row, Column]) -> Cell:
        return self.cells[place]

    def __iter__(self) -> Iterator[Cell]:
        return (self.cells[row, column] for row in self.rows for column in self.columns)

    @property
    def paper_columns(self) -> tuple[Column, ...]:
        """The methods that the paper compares."""
        return tuple(column for column in self.columns if column.paper)

    @property
    def other_columns(self) -> tuple[Column, ...]:
        """The columns beyond the paper: one for each λ."""
        return tuple(column for column in self.columns if not column.paper)

    @property
    def evaluated(self) -> list[Cell]:
        """Complete cells for which the paper has a number."""
        return [cell for cell in self if cell.agrees is not None]

    @property
    def disagreeing(self) -> list[Cell]:
        """Complete cells whose accuracy does not agree with the paper's, the furthest first."""
        return sorted((cell for cell in self if cell.agrees is False), key=lambda cell: -abs(cell.difference or 0))

    @property
    def incomplete(self) -> list[Cell]:
        """Cells that lack trials."""
        return [cell for cell in self if not cell.complete]


def build_table(
    title: str,
    rows: Iterable[Row],
    columns: Iterable[Column],
    runs: Callable[[Row, Column], Sequence[Record] | None],
    *,
    paper: PaperTable | None = None,
    trials: int | Callable[[Row], int] = 5,
    notes: Iterable[str] = (),
) -> Table:
    """Gather the runs of every cell, compare them with the paper's numbers, and decide what is set in bold.

    ``runs(row, column)`` gives the records of a cell, one a seed, or None where none are asked for. ``notes`` are
    sentences for the reader, beside those that every table has. Bold is decided among the paper's columns, and only
    in rows in which all of them are complete, with three trials or more: the best of what happens to be there already
    is no result.

    Examples
    --------
    >>> record = {"configuration": {"seed": 0}, "curves": {"test_accuracy": [0.9, 0.96, 0.95]}}
    >>> row = Row("mnist", (0.8, 0.2))
    >>> table = build_table("One trial", [row], PAPER_COLUMNS[:1], lambda row, column: [record], trials=1)
    >>> cell = table[row, PAPER_COLUMNS[0]]
    >>> f"{cell.accuracy.mean:.2f} {cell.drop.mean:.2f}", cell.accuracy.std, cell.bold
    ('95.00 1.00', None, False)
    """
    rows, columns, printed = tuple(rows), tuple(columns), paper or {}
    cells: dict[tuple[Row, Column], Cell] = {}
    for row in rows:
        methods = printed.get((row.dataset, row.set_priors), {})
        for column in columns:
            reference = methods.get(column.paper) if column.paper else None
            records = runs(row, column)
            asked = 0 if records is None else trials(row) if callable(trials) else trials
            cells[row, column] = _cell(row, column, records or [], asked, reference)
        compared = [column for column in columns if column.paper]
        if all(cells[row, column].complete and cells[row, column].runs >= LEAST_TRIALS for column in compared):
            chosen = bold({column.name: cells[row, column].trials for column in compared})
            for column in compared:
                cells[row, column] = replace(cells[row, column], bold=column.name in chosen)
    return Table(title, rows, columns, cells, tuple(notes))


def _cell(row: Row, column: Column, records: Sequence[Record], asked: int, paper: PaperCell | None) -> Cell:
    last: dict[int, float] = {}
    drops: list[float] = []
    seen: set[int] = set()
    for record in records:
        seed = record["configuration"]["seed"]
        if seed in seen:
            raise ValueError(f"{row.label}, {column.label}: two runs with seed {seed}; a cell holds one for each seed.")
        seen.add(seed)
        curve = [100 * value for value in record["curves"].get("test_accuracy", ()) if math.isfinite(value)]
        if curve:  # a run that failed in its first epoch has no accuracy to show
            last[seed] = curve[-1]
            drops.append(max(curve) - curve[-1])
    return Cell(
        row=row,
        column=column,
        asked=asked,
        runs=len(records),
        trials=last,
        accuracy=Spread(*mean_std(list(last.values()))) if last else None,
        drop=Spread(*mean_std(drops)) if drops else None,
        not_finite=sum("not finite" in str(record.get("stop_reason")) for record in records),
        paper=paper,
    )
