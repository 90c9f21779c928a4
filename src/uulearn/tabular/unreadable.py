"""Count cells of new rows that cannot be read as the kind of their column, and decide whether they are an error.

The kinds of the columns were inferred from the training rows. A cell of a number, date or boolean column that cannot be
read as this kind, such as the word ``unknown``, is treated as a missing value, and a warning says how many cells were.
If more than half of the values of a column cannot be read, it is probably another column or in another format, so this
is an error. The decision is made for a table as a whole, after all of its rows were read: it does not depend on the
chunks in which a file is read, and the scores of a row do not depend on the other rows.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace

from uulearn.exceptions import TableError, UnreadableCellsWarning

MAX_FRACTION = 0.5  # if a larger fraction of the values of a column cannot be read, this is an error
FEWEST_REFUSED = 10  # fewer unreadable cells are no error, so that a single row can be scored like many rows
SHOWN_COLUMNS = 5

EXPECTED = {
    "number": ("a number", "numbers", "write numbers with a decimal point and without separators, like 1234.5"),
    "boolean": ("yes or no", "yes or no", "write true, false, yes, no, t, f, y or n"),
    "date": ("a date", "dates", "write dates like 2024-12-31"),
}
"""For each kind of column: the expected value, expected values, and how to fix values that cannot be read."""


@dataclass(frozen=True)
class UnreadableCells:
    """Number of cells of a column that cannot be read as its kind, and the first of these cells.

    >>> first = UnreadableCells("number", known=100)
    >>> (first + UnreadableCells("number", 50, 1, "new.csv has '12+' in row 3, column 'age'", "'12+'")).describe("age")
    "column 'age': 1 of 150 values is not a number (for example '12+')"
    """

    kind: str
    known: int
    """Number of cells that are not empty, including unreadable cells."""
    count: int = 0
    place: str = ""
    """Description of the first unreadable cell: table, value, row and column."""
    example: str = ""
    """Value of the first unreadable cell, in quotes."""

    def __add__(self, later: UnreadableCells) -> UnreadableCells:
        """Return the counts of the cells of a chunk and of a later chunk."""
        first = self if self.count else later
        return replace(first, known=self.known + later.known, count=self.count + later.count)

    @property
    def refused(self) -> bool:
        """Whether most values cannot be read, so that the column is probably another one or in another format."""
        return self.count >= FEWEST_REFUSED and self.count > MAX_FRACTION * self.known

    def error(self) -> TableError:
        """Return an error about the first unreadable cell."""
        one, _, fix = EXPECTED[self.kind]
        return TableError(
            f"{self.place}, which is not {one} ({self.count:,} of {self.known:,} values are not); check that this is "
            f"the right column, {fix}, and leave unknown values empty."
        )

    def describe(self, name: str) -> str:
        """Return the counts of the column ``name`` as text."""
        one, many, _ = EXPECTED[self.kind]
        what = f"is not {one}" if self.count == 1 else f"are not {many}"
        return f"column {name!r}: {self.count:,} of {self.known:,} values {what} (for example {self.example})"


class UnreadableCounter:
    """Unreadable cells of the columns of a table, counted chunk by chunk.

    >>> counter = UnreadableCounter()
    >>> counter.add({"age": UnreadableCells("number", 4000, 2, "new.csv has '12+' in row 3, column 'age'", "'12+'")})
    >>> counter.describe("new.csv")
    "new.csv: column 'age': 2 of 4,000 values are not numbers (for example '12+'). They are treated as missing values."
    >>> counter.add({"age": UnreadableCells("number", 7000, 7000, "new.csv has 'a' in row 4001, column 'age'", "'a'")})
    >>> counter.check()
    Traceback (most recent call last):
    uulearn.exceptions.TableError: new.csv has '12+' in row 3, column 'age', which is not a number (7,002 of 11,000 \
values are not); check that this is the right column, write numbers with a decimal point and without separators, like \
1234.5, and leave unknown values empty.
    """

    def __init__(self) -> None:
        self.columns: dict[str, UnreadableCells] = {}

    def add(self, chunk: Mapping[str, UnreadableCells]) -> None:
        """Add the counts of the next rows of the table."""
        for name, cells in chunk.items():
            self.columns[name] = self.columns[name] + cells if name in self.columns else cells

    def check(self) -> None:
        """Raise `TableError` if most values of a column cannot be read; call it after all rows were added."""
        for cells in self.columns.values():
            if cells.refused:
                raise cells.error()

    def describe(self, table: str) -> str | None:
        """Return the text of a warning about the columns with unreadable cells; None if there are none."""
        found = {name: cells for name, cells in self.columns.items() if cells.count}
        if not found:
            return None
        shown = [cells.describe(name) for name, cells in found.items()]
        more = f"; and {len(shown) - SHOWN_COLUMNS:,} more columns" if len(shown) > SHOWN_COLUMNS else ""
        one = sum(cells.count for cells in found.values()) == 1
        outcome = "It is treated as a missing value" if one else "They are treated as missing values"
        return f"{table}: {'; '.join(shown[:SHOWN_COLUMNS])}{more}. {outcome}."

    def warn(self, table: str) -> None:
        """Warn about unreadable cells, at the line that called uulearn."""
        if message := self.describe(table):
            warnings.warn(message, UnreadableCellsWarning, stacklevel=_stacklevel_of_user())


def _stacklevel_of_user() -> int:
    """Return the stack level of the code that called uulearn, which may do so through scikit-learn.

    A fixed number would not do, because methods such as ``predict`` and ``evaluate`` call each other.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("uulearn", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level
