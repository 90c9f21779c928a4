"""Group runs into table cells, and add the paper's numbers for comparison.

The caller assigns runs to cells, and `uulearn.reproduction.render` formats the table. All numbers are in percent.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from uulearn.reproduction.experiments import PAPER_TRIALS, ResultRow
from uulearn.reproduction.reference import PaperCell, PaperTable, Spread
from uulearn.reproduction.statistics import agrees, best_methods, mean_std

Record = Mapping[str, Any]
Row = TypeVar("Row", bound=ResultRow)

MIN_TESTED_TRIALS = 3
"""Minimum number of trials for bold numbers; a t-test with only two pairs rarely finds a significant difference."""


@dataclass(frozen=True)
class MethodColumn:
    """A table column for one method; ``paper`` is the name of the method in the paper's tables, or None."""

    name: str
    label: str
    paper: str | None = None


METHOD_NAMES = {
    "biased": "UU-Biased", "unbiased": "UU-Unbiased", "abs": "UU-ABS", "relu": "UU-ReLU", "leaky_relu": "UU-LReLU",
}  # fmt: skip
PAPER_COLUMNS = tuple(MethodColumn(name, label, name) for name, label in METHOD_NAMES.items())


def slope_column(slope: float) -> MethodColumn:
    """Return the column for the generalized leaky ReLU with this λ; its label has the form ``λ = −1 (ABS)``."""
    label = f"λ = {slope:g}".replace("-", "−") + {-1.0: " (ABS)", 0.0: " (ReLU)"}.get(slope, "")
    return MethodColumn(f"leaky_relu({slope:g})", label)


@dataclass(frozen=True)
class ResultCell:
    """A table cell for one method and one row: our trials, and the paper's numbers if the paper reports them."""

    row: ResultRow
    column: MethodColumn
    requested: int
    """Number of trials requested for the cell."""
    runs: int
    trials: Mapping[int, float] = field(repr=False)
    """Test accuracy at the last epoch of each trial, by seed."""
    accuracy: Spread | None
    drop: Spread | None
    not_finite: int
    """Number of runs that stopped because the risk was not finite."""
    paper: PaperCell | None
    bold: bool = False

    @property
    def complete(self) -> bool:
        """Whether all requested trials are available."""
        return self.runs >= self.requested

    def difference(self, quantity: str = "accuracy") -> float | None:
        """Return our mean ``accuracy`` or ``drop`` minus the mean in the paper, in percentage points."""
        ours: Spread | None = getattr(self, quantity)
        return ours.mean - getattr(self.paper, quantity).mean if ours and self.paper else None

    @property
    def agrees(self) -> bool | None:
        """Whether our accuracy agrees with the paper; None if trials are missing or the paper reports no number."""
        if self.accuracy is None or self.paper is None or not self.complete:
            return None
        return agrees(*self.accuracy, *self.paper.accuracy)


@dataclass(frozen=True)
class ResultTable:
    """A table with a title, rows and columns; iterating over it yields all cells, row by row."""

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
    def compared(self) -> list[ResultCell]:
        """Complete cells for which the paper reports a number."""
        return [cell for cell in self if cell.agrees is not None]

    @property
    def disagreeing(self) -> list[ResultCell]:
        """Complete cells whose accuracy does not agree with the paper, sorted by decreasing difference."""
        return sorted((cell for cell in self if cell.agrees is False), key=lambda cell: -abs(cell.difference() or 0))

    @property
    def few_trials(self) -> dict[str, int]:
        """Datasets with compared cells of fewer trials than the paper's, and their smallest number of trials."""
        found: dict[str, int] = {}
        for cell in self.compared:
            if cell.runs < PAPER_TRIALS:
                name = cell.row.dataset_label
                found[name] = min(cell.runs, found.get(name, cell.runs))
        return found

    @property
    def incomplete(self) -> list[ResultCell]:
        """Cells with missing trials."""
        return [cell for cell in self if not cell.complete]


def build_table(
    title: str,
    rows: Iterable[Row],
    columns: Iterable[MethodColumn],
    runs: Callable[[Row, MethodColumn], Sequence[Record] | None],
    *,
    paper: PaperTable | None = None,
    trials: Callable[[Row], int] = lambda row: 5,
    notes: Iterable[str] = (),
) -> ResultTable:
    """Group runs into cells, compare them with the paper, and decide which numbers are bold.

    ``runs(row, column)`` returns the records of a cell, one per seed, or None if no runs are planned for the cell.
    Numbers are bold only in the columns of the paper, and only in rows in which all these columns are complete and
    have at least three trials.
    """
    rows, columns, printed = tuple(rows), tuple(columns), paper or {}
    cells: dict[tuple[ResultRow, MethodColumn], ResultCell] = {}
    for row in rows:
        methods = printed.get((row.dataset, row.set_priors), {})
        for column in columns:
            records = runs(row, column)
            requested = 0 if records is None else trials(row)
            cells[row, column] = _cell(row, column, records or [], requested, methods.get(column.paper or ""))
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
    if repeated := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise ValueError(f"{row.label}, {column.label}: two runs with seed {repeated[0]}; expected one run per seed.")
    for seed, record in zip(seeds, records, strict=True):
        if curve := accuracy_curve(record):
            last[seed] = curve[-1]
            drops.append(max(curve) - curve[-1])
    accuracy, drop = (Spread(*mean_std(values)) if values else None for values in (list(last.values()), drops))
    not_finite = sum("not finite" in str(record.get("stop_reason")) for record in records)
    return ResultCell(row, column, requested, len(records), last, accuracy, drop, not_finite, paper)


def accuracy_curve(record: Record) -> list[float]:
    """Return the finite test accuracies of a run in percent, one per epoch; empty if the first epoch failed."""
    return [100 * value for value in record["curves"].get("test_accuracy", ()) if math.isfinite(value)]
