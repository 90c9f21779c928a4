"""Decide the columns of two files over all of their rows, and check that the files go together.

Each row is seen once, in chunks, in bounded memory. `uulearn.tabular.kinds` describes how kinds are decided.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import pandas as pd

from uulearn.exceptions import TableError
from uulearn.tabular.cells import UNREADABLE, parse_cells
from uulearn.tabular.dates import DAY_FIRST, MONTH_FIRST
from uulearn.tabular.kinds import (
    column_notes,
    compatible,
    explain_mismatch,
    file_kind,
    find_useless_columns,
    make_column,
    pooled_kind,
)
from uulearn.tabular.schema import Schema, join_names, suggest
from uulearn.tabular.summary import ColumnSummary

FILE_NAMES = ("the first file", "the second file")


def check_columns(
    columns: Sequence[Sequence[str]],
    *,
    drop: Iterable[str] = (),
    ids: Iterable[str] = (),
    only: Iterable[str] = (),
    files: Sequence[str] = FILE_NAMES,
) -> tuple[list[str], dict[str, str]]:
    """Return the columns to use, in the order of the first file, and why the others are dropped; needs no row.

    Parameters
    ----------
    columns : pair of sequences of str
        The names in each file, in any order.
    drop, ids, only : iterables of str
        Columns to drop, to keep for the output only, and to use (default: all).
    files : pair of str
        Names of the files in messages.

    Examples
    --------
    >>> check_columns([["age", "note"], ["note", "age"]], drop=["note"])
    (['age'], {'note': 'dropped by --drop'})
    """
    drop, ids, only = list(dict.fromkeys(drop)), list(dict.fromkeys(ids)), list(dict.fromkeys(only))
    for file, names in zip(files, columns, strict=True):
        _check_names(file, names)
    either = list(dict.fromkeys([*columns[0], *columns[1]]))
    for option, names in (("--drop", drop), ("--id", ids), ("--only", only)):
        unknown = [name for name in names if name not in either]
        if unknown:
            raise TableError(
                f"{option} names the column{'s' if len(unknown) > 1 else ''} {join_names(unknown)}, which neither file "
                f"has{suggest(unknown[0], either)}; the files have {join_names(either)}."
            )
    for first, second, both in (("--drop", "--id", {*drop} & {*ids}), ("--only", "--drop", {*only} & {*drop})):
        if both:
            raise TableError(f"{first} and {second} both name {join_names(sorted(both))}; name a column only once.")
    wanted = [name for name in either if name not in {*drop, *ids} and (not only or name in only)]
    for which in (0, 1):
        lone = [name for name in wanted if name not in set(columns[which])]
        if lone:
            remedy = " ".join(f"--drop {shlex.quote(name)}" for name in lone[:3]) + (" …" if len(lone) > 3 else "")
            alike = suggest(lone[0], set(columns[which]) - set(columns[1 - which]), f"{files[which]} has {{}} instead")
            raise TableError(
                f"only {files[1 - which]} has the column{'s' if len(lone) > 1 else ''} {join_names(lone)}{alike}; both "
                f"files need the same columns, so rename columns that are spelled differently, or drop them ({remedy})."
            )
    if not wanted:
        raise TableError("no column is left to learn from; name fewer columns in --drop and --id, or others in --only.")
    dropped = dict.fromkeys(drop, "dropped by --drop")
    dropped |= {name: "not named by --only" for name in either if name not in {*wanted, *drop, *ids}}
    return wanted, dropped


def _check_names(file: str, names: Sequence[str]) -> None:
    bad = next((name for name in names if not isinstance(name, str) or not name), None)
    if bad is not None:
        raise TableError(f"{file} has a column named {bad!r}; use names that are text.")
    if len(set(names)) < len(names):
        repeated = next(name for name in names if list(names).count(name) > 1)
        raise TableError(f"{file} has two columns named {repeated!r}; rename one of them.")


class Survey:
    """Collect counts of every row of both files, in chunks of any size, and make the schema.

    Parameters
    ----------
    drop, ids, only : iterables of str
        Columns to drop, to keep for the output only, and to use (default: all).
    files : pair of str
        Names of the files in messages.

    Examples
    --------
    >>> survey = Survey(ids=["patient"])
    >>> survey.add(pd.DataFrame({"patient": ["p1", "p2"], "age": ["41", None]}), 0)
    >>> survey.add(pd.DataFrame({"age": ["19", "56"], "patient": ["p3", "p4"]}), 1)
    >>> schema, notes = survey.finish()
    >>> schema.columns[0].name, schema.columns[0].kind, schema.columns[0].missing, schema.ids, notes
    ('age', 'number', True, ('patient',), [])
    """

    def __init__(
        self,
        *,
        drop: Iterable[str] = (),
        ids: Iterable[str] = (),
        only: Iterable[str] = (),
        files: Sequence[str] = FILE_NAMES,
    ) -> None:
        self.drop, self.ids, self.only = tuple(drop), tuple(ids), tuple(only)
        self.files = tuple(files)
        self._columns: list[list[str] | None] = [None, None]
        self._summaries: dict[str, ColumnSummary] = {}

    def add(self, frame: pd.DataFrame, which: int) -> None:
        """Count rows of file 0 or 1."""
        names = list(frame.columns)
        if self._columns[which] is None:
            self._columns[which] = names
            self._check_columns()
        elif names != self._columns[which]:
            raise TableError(f"the columns of {self.files[which]} change between its rows; write the file again.")
        for name in self.used(names):
            summary = self._summaries.setdefault(name, ColumnSummary())
            summary.add(parse_cells(frame[name], keep_text=False), which)
            if summary.kinds[which, UNREADABLE]:
                row, value = summary.examples[which][UNREADABLE]
                raise TableError(
                    f"{self.files[which]} has {value} in row {row}, column {name!r}, which is not a number, a date or "
                    f"text; write it in another way, or drop the column (--drop {shlex.quote(name)})."
                )

    def used(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are counted."""
        ignored = {*self.drop, *self.ids}
        return [name for name in names if name not in ignored and (not self.only or name in self.only)]

    def missing(self, which: int) -> dict[str, int]:
        """Return the number of missing cells of each column in a file."""
        return {name: int(summary.missing[which]) for name, summary in self._summaries.items()}

    def _check_columns(self) -> tuple[list[str], dict[str, str]]:
        """Check the names as soon as both files have been opened."""
        first, second = self._columns
        if first is None or second is None:
            return [], {}
        return check_columns((first, second), drop=self.drop, ids=self.ids, only=self.only, files=self.files)

    def finish(self) -> tuple[Schema, list[str]]:
        """Return the schema, and notes for the user, one sentence each."""
        wanted, dropped = self._check_columns()
        for which in (0, 1):
            rows = max((int(summary.rows[which]) for summary in self._summaries.values()), default=0)
            if self._columns[which] is None or not rows:
                raise TableError(f"{self.files[which]} has no rows; both files need some.")
        summaries = {name: self._summaries[name] for name in wanted}
        self._check_kinds(summaries)
        useless, notes = find_useless_columns(summaries)
        used = {name: summary for name, summary in summaries.items() if name not in useless}
        if not used:
            raise TableError(f"no column is left to learn from: {' '.join(notes)}")
        columns = tuple(make_column(name, summary) for name, summary in used.items())
        for column in columns:
            notes += column_notes(column, used[column.name])
        return Schema(columns, self.ids, dropped | useless), notes

    def _check_kinds(self, summaries: dict[str, ColumnSummary]) -> None:
        different = [
            name for name, summary in summaries.items() if not compatible(file_kind(summary, 0), file_kind(summary, 1))
        ]
        if different:
            name = different[0]
            also = f"; the same goes for {join_names(different[1:])}" if different[1:] else ""
            raise TableError(f"{explain_mismatch(name, summaries[name], self.files)}{also}.")
        for name, summary in summaries.items():
            if pooled_kind(summary) == "date" and (summary.orders.sum(axis=0)[[DAY_FIRST, MONTH_FIRST]] > 0).all():
                day, month = (
                    next(
                        f"{examples[order].value!r} in row {examples[order].row} of {file}"
                        for examples, file in zip(summary.order_examples, self.files, strict=True)
                        if order in examples
                    )
                    for order in (DAY_FIRST, MONTH_FIRST)
                )
                raise TableError(
                    f"column {name!r} has dates with the day first ({day}) and with the month first ({month}); write "
                    f"them like 2024-12-31, or drop the column (--drop {shlex.quote(name)})."
                )
