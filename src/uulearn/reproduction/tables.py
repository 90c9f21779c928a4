"""Runs grouped into the cells of a table, next to the numbers of the paper.

A `ResultTable` is plain data: the caller decides which runs belong to which cell, and `uulearn.reproduction.render`
decides how the table looks. All numbers are in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uulearn.reproduction.reference import PaperCell, PaperTable, Spread
from uulearn.reproduction.statistics import agrees, best_methods, mean_std

Record = Mapping[str, Any]

MIN_TESTED_TRIALS = 3
"""Rows with fewer trials have no bold numbers: a t-test on two pairs finds almost no difference significant."""
DATASET_NAMES = {
    "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST", "cifar10": "CIFAR-10",
}  # fmt: skip


@dataclass(frozen=True)
class ResultRow:
    """A row of a table: a dataset and the class priors of its two unlabeled sets.

    Examples
    --------
    >>> ResultRow("mnist", (0.8, 0.2)).label
    'MNIST (0.8, 0.2)'
    """

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
        """Dataset and priors."""
        return f"{self.dataset_label} ({self.priors_label})"


@dataclass(frozen=True)
class MethodColumn:
    """A column of a table: one method. ``paper`` is its name in the paper's tables, None if it is not there."""

    name: str
    label: str
    paper: str | None = None


PAPER_COLUMNS = (
    MethodColumn("biased", "UU-Biased", "biased"),
    MethodColumn("unbiased", "UU-Unbiased", "unbiased"),
    MethodColumn("abs", "UU-ABS", "abs"),
    MethodColumn("relu", "UU-ReLU", "relu"),
    MethodColumn("leaky_relu", "UU-LReLU", "leaky_relu"),
)


def slope_column(slope: float) -> MethodColumn:
    """The column of the generalized leaky ReLU with one λ.

    Examples
    --------
    >>> slope_column(-0.01)
    MethodColumn(name='leaky_relu(-0.01)', label='λ = −0.01', paper=None)
    >>> slope_column(-1.0).label, slope_column(0).label
    ('λ = −1 (ABS)', 'λ = 0 (ReLU)')
    """
    slope = float(slope) + 0.0  # turns −0.0 into 0
    label = f"λ = {slope:g}".replace("-", "−") + {-1.0: " (ABS)", 0.0: " (ReLU)"}.get(slope, "")
    return MethodColumn(f"leaky_relu({slope:g})", label)


@dataclass(frozen=True)
class ResultCell:
    """One method in one row: our trials, and the paper's number if there is one."""

    row: ResultRow
    column: MethodColumn
    requested: int
    """Number of trials that the cell should have."""
    runs: int
    trials: Mapping[int, float] = field(repr=False)
    """Accuracy at the last epoch, by seed."""
    accuracy: Spread | None
    drop: Spread | None
    not_finite: int
    """Number of runs that ended because the risk was not finite."""
    paper: PaperCell | None
    bold: bool = False

    @property
    def complete(self) -> bool:
        """Whether all requested trials are there."""
        return self.runs >= self.requested

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
        """Whether our accuracy agrees with the paper's; None if trials are missing or the paper has no number."""
        if self.accuracy is None or self.paper is None or not self.complete:
            return None
        return agrees(*self.accuracy, *self.paper.accuracy)


@dataclass(frozen=True)
class ResultTable:
    """Cells in rows and columns with a title; iterating gives all cells, row by row."""

    title: str
    rows: tuple[ResultRow, ...]
    columns: tuple[MethodColumn, ...]
    cells: Mapping[tuple[ResultRow, MethodColumn], ResultCell] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __getitem__(self, place: tuple[ResultRow, MethodColumn]) -> ResultCell:
        return self.cells[place]

    def __iter__(self) -> Iterator[ResultCell]:
        return (self.cells[row, column] for row in self.rows for column in self.columns)

    @property
    def paper_columns(self) -> tuple[MethodColumn, ...]:
        """The methods that the paper compares."""
        return tuple(column for column in self.columns if column.paper)

    @property
    def slope_columns(self) -> tuple[MethodColumn, ...]:
        """One column per λ, beyond the paper."""
        return tuple(column for column in self.columns if not column.paper)

    @property
    def compared(self) -> list[ResultCell]:
        """Complete cells for which the paper has a number."""
        return [cell for cell in self if cell.agrees is not None]

    @property
    def disagreeing(self) -> list[ResultCell]:
        """Complete cells whose accuracy differs from the paper's, largest difference first."""
        return sorted((cell for cell in self if cell.agrees is False), key=lambda cell: -abs(cell.difference or 0))

    @property
    def incomplete(self) -> list[ResultCell]:
        """Cells with missing trials."""
        return [cell for cell in self if not cell.complete]


def build_table(
    title: str,
    rows: Iterable[ResultRow],
    columns: Iterable[MethodColumn],
    runs: Callable[[ResultRow, MethodColumn], Sequence[Record] | None],
    *,
    paper: PaperTable | None = None,
    trials: int | Callable[[ResultRow], int] = 5,
    notes: Iterable[str] = (),
) -> ResultTable:
    """Group runs into cells, compare them with the paper, and decide which numbers are bold.

    ``runs(row, column)`` returns the records of a cell, one per seed, or None if the cell is not run at all. Bold
    numbers are decided among the paper's columns, and only in rows in which all of them are complete with at least
    three trials.

    Examples
    --------
    >>> record = {"configuration": {"seed": 0}, "curves": {"test_accuracy": [0.9, 0.96, 0.95]}}
    >>> row = ResultRow("mnist", (0.8, 0.2))
    >>> table = build_table("One trial", [row], PAPER_COLUMNS[:1], lambda row, column: [record], trials=1)
    >>> cell = table[row, PAPER_COLUMNS[0]]
    >>> f"{cell.accuracy.mean:.2f} {cell.drop.mean:.2f}", cell.accuracy.std, cell.bold
    ('95.00 1.00', None, False)
    """
    rows, columns, printed = tuple(rows), tuple(columns), paper or {}
    cells: dict[tuple[ResultRow, MethodColumn], ResultCell] = {}
    for row in rows:
        methods = printed.get((row.dataset, row.set_priors), {})
        for column in columns:
            reference = methods.get(column.paper) if column.paper else None
            records = runs(row, column)
            requested = 0 if records is None else trials(row) if callable(trials) else trials
            cells[row, column] = _cell(row, column, records or [], requested, reference)
        compared = [cells[row, column] for column in columns if column.paper]
        if all(cell.complete and cell.runs >= MIN_TESTED_TRIALS for cell in compared):
            best = best_methods({cell.column.name: cell.trials for cell in compared})
            for cell in compared:
                cells[row, cell.column] = replace(cell, bold=cell.column.name in best)
    return ResultTable(title, rows, columns, cells, tuple(notes))


def _cell(
    row: ResultRow, column: MethodColumn, records: Sequence[Record], requested: int, paper: PaperCell | None
) -> ResultCell:
    last: dict[int, float] = {}
    drops: list[float] = []
    seeds = [record["configuration"]["seed"] for record in records]
    if len(set(seeds)) < len(seeds):
        repeated = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise ValueError(f"{row.label}, {column.label}: two runs with seed {repeated}; expected one run per seed.")
    for seed, record in zip(seeds, records, strict=True):
        curve = [100 * value for value in record["curves"].get("test_accuracy", ()) if math.isfinite(value)]
        if curve:  # empty if the run failed in its first epoch
            last[seed] = curve[-1]
            drops.append(max(curve) - curve[-1])
    return ResultCell(
        row=row,
        column=column,
        requested=requested,
        runs=len(records),
        trials=last,
        accuracy=Spread(*mean_std(list(last.values()))) if last else None,
        drop=Spread(*mean_std(drops)) if drops else None,
        not_finite=sum("not finite" in str(record.get("stop_reason")) for record in records),
        paper=paper,
    )
