"""What the columns of two files are, decided over all of their rows, and whether the files go together.

Each file is looked at once, chunk by chunk, in memory that does not grow with its rows. How kinds are decided is told
in `uulearn.tabular.kinds`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from uulearn.exceptions import TableError
from uulearn.io.formats import check_installed
from uulearn.tabular.cells import UNREADABLE, read_cells
from uulearn.tabular.dates import DAY_FIRST, MONTH_FIRST
from uulearn.tabular.kinds import file_kind, fits, make_column, mismatch, pooled_kind, remarks, useless_columns
from uulearn.tabular.schema import Schema, listed, near, typed
from uulearn.tabular.tally import Tally

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Survey", "check_columns", "typed"]

FILES = ("the first file", "the second file")


def check_columns(
    columns: Sequence[Sequence[str]],
    *,
    drop: Iterable[str] = (),
    ids: Iterable[str] = (),
    only: Iterable[str] = (),
    files: Sequence[str] = FILES,
) -> tuple[list[str], dict[str, str]]:
    """The columns to look at, in the order of the first file, and why the others are left out.

    Needs no row, so that it can be asked before the files are read.

    Parameters
    ----------
    columns : pair of sequences of str
        The names in each file, in any order.
    drop, ids, only : iterables of str
        Columns to leave out, to keep for the output only, and to use, if not all.
    files : pair of str
        What to call the files in messages.

    Examples
    --------
    >>> check_columns([["age", "note"], ["note", "age"]], drop=["note"])
    (['age'], {'note': 'left out by --drop'})
    """
    drop, ids, only = list(dict.fromkeys(drop)), list(dict.fromkeys(ids)), list(dict.fromkeys(only))
    for file, names in zip(files, columns, strict=True):
        _check_names(file, names)
    either = list(dict.fromkeys([*columns[0], *columns[1]]))
    for option, names in (("--drop", drop), ("--id", ids), ("--only", only)):
        unknown = [name for name in names if name not in either]
        if unknown:
            raise TableError(
                f"{option} names the column{'s' if len(unknown) > 1 else ''} {listed(unknown)}, which neither file has"
                f"{near(unknown[0], either)}; the files have {listed(either)}."
            )
    for first, second, both in (("--drop", "--id", {*drop} & {*ids}), ("--only", "--drop", {*only} & {*drop})):
        if both:
            raise TableError(f"{first} and {second} both name {listed(sorted(both))}; name a column in one of them.")
    wanted = [name for name in either if name not in {*drop, *ids} and (not only or name in only)]
    for which in (0, 1):
        lone = [name for name in wanted if name not in set(columns[which])]
        if lone:
            remedy = " ".join(f"--drop {shlex.quote(name)}" for name in lone[:3]) + (" …" if len(lone) > 3 else "")
            alike = near(lone[0], set(columns[which]) - set(columns[1 - which]), f"{files[which]} has {{}} instead")
            raise TableError(
                f"only {files[1 - which]} has the column{'s' if len(lone) > 1 else ''} {listed(lone)}{alike}; both "
                f"files need the same columns, so rename what is spelled otherwise, or leave the others out ({remedy})."
            )
    if not wanted:
        raise TableError("no column is left to learn from; name fewer in --drop and --id, or others in --only.")
    left_out = dict.fromkeys(drop, "left out by --drop")
    left_out |= {name: "not named by --only" for name in either if name not in {*wanted, *drop, *ids}}
    return wanted, left_out


def _check_names(file: str, names: Sequence[str]) -> None:
    odd = next((name for name in names if not isinstance(name, str) or not name), None)
    if odd is not None:
        raise TableError(f"{file} has a column named {odd!r}; give every column a name that is text.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise TableError(f"{file} has two columns named {twice!r}; rename one of them.")


class Survey:
    """Sees every row of both files once, in chunks of any size, and says what the columns are.

    Memory does not grow with the rows.

    Parameters
    ----------
    drop, ids, only : iterables of str
        Columns to leave out, to keep for the output only, and to use, if not all.
    files : pair of str
        What to call the files in messages.

    Examples
    --------
    >>> import pandas as pd
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
        files: Sequence[str] = FILES,
    ) -> None:
        check_installed()
        self.drop, self.ids, self.only = tuple(drop), tuple(ids), tuple(only)
        self.files = tuple(files)
        self._columns: list[list[str] | None] = [None, None]
        self._tallies: dict[str, Tally] = {}

    def add(self, frame: pd.DataFrame, which: int) -> None:
        """Look at rows of file 0 or 1."""
        names = list(frame.columns)
        if self._columns[which] is None:
            self._columns[which] = names
            self._check_columns()
        elif names != self._columns[which]:
            raise TableError(f"the columns of {self.files[which]} change between its rows; write them again.")
        ignored = {*self.drop, *self.ids}
        for name in names:
            if name not in ignored and (not self.only or name in self.only):
                tally = self._tallies.setdefault(name, Tally())
                tally.add(read_cells(frame[name]), which)
                if tally.kinds[which, UNREADABLE]:
                    row, value = tally.examples[which][UNREADABLE]
                    raise TableError(
                        f"{self.files[which]} holds {value} in row {row}, column {name!r}, which is no number, no date "
                        f"and no text; write it otherwise, or leave the column out (--drop {shlex.quote(name)})."
                    )

    def _check_columns(self) -> tuple[list[str], dict[str, str]]:
        """As soon as both files have been opened."""
        first, second = self._columns
        if first is None or second is None:
            return [], {}
        options = {"drop": self.drop, "ids": self.ids, "only": self.only}
        return check_columns((first, second), **options, files=self.files)

    def finish(self) -> tuple[Schema, list[str]]:
        """The schema, and notes for the user, one sentence each; or a TableError that explains what is wrong."""
        wanted, left_out = self._check_columns()
        for which in (0, 1):
            rows = max((int(tally.rows[which]) for tally in self._tallies.values()), default=0)
            if self._columns[which] is None or not rows:
                raise TableError(f"{self.files[which]} has no rows; both files need some.")
        tallies = {name: self._tallies[name] for name in wanted}
        self._refuse_mismatches(tallies)
        useless, notes = useless_columns(tallies)
        used = {name: tally for name, tally in tallies.items() if name not in useless}
        if not used:
            raise TableError(f"no column is left to learn from: {' '.join(notes)}")
        columns = tuple(make_column(name, tally) for name, tally in used.items())
        for column in columns:
            notes += remarks(column, used[column.name])
        return Schema(columns, self.ids, left_out | useless), notes

    def _refuse_mismatches(self, tallies: dict[str, Tally]) -> None:
        refused = [name for name, tally in tallies.items() if not fits(*(file_kind(tally, which) for which in (0, 1)))]
        if refused:
            name = refused[0]
            also = f"; the same goes for {listed(refused[1:])}" if refused[1:] else ""
            raise TableError(f"{mismatch(name, tallies[name], self.files)}{also}.")
        for name, tally in tallies.items():
            if pooled_kind(tally) == "date" and (tally.orders.sum(axis=0)[[DAY_FIRST, MONTH_FIRST]] > 0).all():
                day, month = (
                    next(
                        f"{examples[order].value!r} in row {examples[order].row} of {file}"
                        for examples, file in zip(tally.order_examples, self.files, strict=True)
                        if order in examples
                    )
                    for order in (DAY_FIRST, MONTH_FIRST)
                )
                raise TableError(
                    f"column {name!r} has dates with the day first ({day}) and with the month first ({month}); write "
                    f"them like 2024-12-31, or leave the column out (--drop {shlex.quote(name)})."
                )
