"""Determine the columns of one or two tables from all rows, with bounded memory use, and check that they match.

A column is a number, boolean or date column if all non-missing cells in both files have this kind. Otherwise, its cells
are words: the column is a category if it has few distinct values, and text otherwise.

- If a column is a number or date column in only one file, an error with an example is raised. A column of numbers
  whose other file has numbers and words is accepted if it is a category, such as 9, 10, 11 and 9, 10, other.
- ``1,234`` is not a number, because the comma is ambiguous. A column of such cells raises an error.
- A column of numbers with and without percent signs raises an error, because ``45%`` is 0.45 and ``45`` is 45.
- The order of day and month in ``03/04/2024`` is determined from the column: 25/04/2024 in another row means that the
  day comes first. If no cell determines the order, the day is assumed to come first, and a note is added.
- A category has at most 50 values, or at most 200 if there are 100 rows per value on average, and at least twice as
  many rows as values. A value in fewer than 5 rows, or in less than 0.1% of the rows, becomes ``"(other)"``.
- Columns that are empty, constant, copies of another column or identifiers are dropped, and a note is added.
"""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.io.embeddings import expand_names, list_lengths
from uulearn.io.formats import repeated_names, suggest
from uulearn.tabular.cells import (
    BOOLEAN,
    DATE,
    DAY_FIRST,
    EITHER,
    MONTH_FIRST,
    NUMBER,
    PERCENT,
    PLAIN,
    SEPARATED,
    UNREADABLE,
    WORD,
    Cells,
    parse_cells,
    parse_dates,
)
from uulearn.tabular.schema import OTHER, Schema, TableColumn, check_lengths, join_names, quote_value

FILE_NAMES = ("the first file", "the second file")
MAX_CATEGORIES = 200  # columns with more distinct values are text, and their values are not counted
CATEGORIES = 50  # maximum number of values of a category, unless each value has enough rows
ROWS_PER_CATEGORY = 100  # mean number of rows per value from which `MAX_CATEGORIES` values are allowed
MIN_CATEGORY_ROWS, MIN_CATEGORY_FRACTION = 5, 0.001  # a value with fewer rows becomes `OTHER`
LONG_TEXT = 40  # mean number of letters per cell above which text counts as sentences
MIN_IDENTIFIED_ROWS = 20  # with fewer rows, distinct values do not indicate an identifier
MIN_NUMBERED_ROWS = 200  # with fewer rows, distinct integers do not indicate an identifier
MAX_IDENTIFIER_LETTERS = 16  # mean number of letters per cell above which distinct words may be sequences or addresses
DENSE = 2  # maximum ratio of range to count for which distinct integers look like row numbers
FIRST_CELLS = 10_000  # number of first cells of each file that are checked for repeated values
PHRASES = {NUMBER: "a number", BOOLEAN: "yes or no", DATE: "a date", WORD: "words"}
MIX = np.uint64(0x9E3779B97F4A7C15)  # makes the bits of the number 0 differ from the hash 0 of a missing cell

Hashes = NDArray[np.uint64]
Integers = NDArray[np.int64]


class Terms(NamedTuple):
    """Words in messages: what a table is called, and how options are written (``--drop x`` or ``drop=['x']``)."""

    table: str = "file"
    python: bool = False

    def option(self, name: str, columns: Sequence[str] = ()) -> str:
        """Return an option, with columns as its value if they are given."""
        if self.python:
            return f"{name}={list(columns)!r}" if columns else name
        return " ".join([f"--{name} {shlex.quote(column)}" for column in columns] or [f"--{name}"])

    @property
    def identifier(self) -> str:
        """The reason why an identifier is dropped, and how to use it."""
        remedy = (
            "give it a kind in kinds to use it"
            if self.python
            else ("--id copies it to the output of predict, --only uses it")
        )
        return f"every row has a different value, like an identifier ({remedy})"


COMMAND_LINE, PYTHON_TABLE, PYTHON_SETS = Terms(), Terms("table", python=True), Terms("set", python=True)


class Example(NamedTuple):
    """A cell value and its row number, counted from 1."""

    row: int
    value: str

    @property
    def text(self) -> str:
        """The value and the row number as text."""
        return f"{quote_value(self.value)} in row {self.row}"


class ColumnSummary:
    """Statistics of one column; arrays have one entry per file."""

    def __init__(self) -> None:
        self.rows = np.zeros(2, dtype=np.int64)
        self.missing = np.zeros(2, dtype=np.int64)
        self.kinds = np.zeros((2, UNREADABLE + 1), dtype=np.int64)
        self.orders = np.zeros((2, EITHER + 1), dtype=np.int64)
        self.examples: list[dict[int, Example]] = [{}, {}]
        self.order_examples: list[dict[int, Example]] = [{}, {}]
        self.sign_examples: list[dict[int, Example]] = [{}, {}]
        self.value_counts: dict[str, int] | None = {}  # None if there are more than `MAX_CATEGORIES` values
        self.low, self.high = np.inf, -np.inf
        self.is_integer, self.has_time, self.is_rising = True, False, [True, True]
        self.n_letters = self.n_with_space = self.n_separated = 0  # cells that match `SEPARATED`, in columns of words
        self._last = [-np.inf, -np.inf]
        self._first: list[list[Hashes]] = [[], []]
        self.digest = hashlib.sha256()  # the same for columns with the same cells in the same order

    def add(self, cells: Cells, which: int) -> None:
        """Update the statistics with a chunk of file 0 or 1."""
        start, counts = int(self.rows[which]), cells.counts()
        self.rows[which] += len(cells.codes)
        self.missing[which] += int((cells.codes < 0).sum())
        self.kinds[which] += np.bincount(cells.kinds, weights=counts, minlength=UNREADABLE + 1).astype(np.int64)
        dated = cells.kinds == DATE
        if dated.any():
            orders = np.bincount(cells.orders[dated], weights=counts[dated], minlength=EITHER + 1)
            self.orders[which] += orders.astype(np.int64)
            dates = cells.dates[dated]
            if (month_first := np.isnat(dates)).any():
                dates[month_first] = parse_dates(pa.array(cells.raw[dated][month_first]), day_first=False)[0]
            self.has_time = self.has_time or bool((dates != dates.astype("datetime64[D]")).any())
        hashes = _hash_values(cells)
        by_row = np.append(hashes, np.uint64(0))[cells.codes]
        self.digest.update(by_row.data)
        room = FIRST_CELLS - sum(map(len, self._first[which]))
        if room > 0:
            self._first[which].append(by_row[by_row > 0][:room])
        self._count_values(cells, hashes, counts)
        self._keep_examples(cells, which, start)
        self._count_numbers(cells, which)
        self._count_words(cells, counts)

    def file_kind(self, which: int) -> int | None:
        """Return the kind of the column in one file: WORD if cells have different kinds, None if it is empty."""
        found = np.flatnonzero(self.kinds[which])
        return None if not len(found) else int(found[0]) if len(found) == 1 else WORD

    @property
    def kind(self) -> int | None:
        """The kind of the column in both files, if they are `compatible`."""
        kinds = {self.file_kind(0), self.file_kind(1)} - {None}
        return WORD if WORD in kinds else next(iter(kinds), None)

    @property
    def compatible(self) -> bool:
        """Whether the kinds in the two files are compatible; a word column may contain only yes and no in one file."""
        kinds = {self.file_kind(0), self.file_kind(1)}
        return len(kinds) == 1 or None in kinds or kinds == {BOOLEAN, WORD}

    @property
    def known(self) -> int:
        """Number of cells that are not missing."""
        return int((self.rows - self.missing).sum())

    @property
    def n_distinct(self) -> float:
        """Number of distinct values, or infinity if it exceeds `MAX_CATEGORIES`."""
        return np.inf if self.value_counts is None else len(self.value_counts)

    @property
    def all_different(self) -> bool:
        """Whether the first `FIRST_CELLS` cells of each file are distinct; a value may occur once in each file."""
        return all(len(np.unique(own)) == len(own) for own in (np.concatenate([*f, []]) for f in self._first))

    def _count_values(self, cells: Cells, hashes: Hashes, counts: Integers) -> None:
        if self.value_counts is None:
            return
        own = np.flatnonzero(counts)
        codes, values = pd.factorize(hashes[own])
        if len(values) <= MAX_CATEGORIES:
            first = np.zeros(len(values), dtype=np.int64)
            first[codes[::-1]] = own[::-1]
            totals = np.bincount(codes, weights=counts[own]).astype(np.int64).tolist()
            for label, count in zip(cells.select(first).labels.tolist(), totals, strict=True):
                self.value_counts[label] = self.value_counts.get(label, 0) + count
        if max(len(values), len(self.value_counts)) > MAX_CATEGORIES:
            self.value_counts = None

    def _keep_examples(self, cells: Cells, which: int, start: int) -> None:
        for labels, seen in (
            (cells.kinds, self.examples[which]),
            (cells.orders, self.order_examples[which]),
            (cells.signs, self.sign_examples[which]),
        ):
            for label in set(np.flatnonzero(np.bincount(labels)).tolist()) - seen.keys():
                rows = np.append(labels == label, False)[cells.codes]
                if rows.any():
                    position = int(rows.argmax())
                    seen[label] = Example(start + position + 1, cells.select(cells.codes[[position]]).words[0])

    def _count_numbers(self, cells: Cells, which: int) -> None:
        numbers = np.append(cells.numbers, np.nan)[cells.codes]
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return
        self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
        self.is_integer = self.is_integer and bool((np.isfinite(numbers) & (numbers == np.rint(numbers))).all())
        if self.is_rising[which]:
            self.is_rising[which] = bool(numbers[0] > self._last[which] and (numbers[1:] > numbers[:-1]).all())
        self._last[which] = float(numbers[-1])

    def _count_words(self, cells: Cells, counts: Integers) -> None:
        own = np.flatnonzero((cells.kinds == WORD) & (counts > 0))
        if not len(own):
            return
        words = pa.array(cells.raw[own], type=pa.large_string())

        def total(found: Any) -> int:
            return int(found.to_numpy(zero_copy_only=False).astype(np.int64) @ counts[own])

        self.n_letters += total(pc.utf8_length(words))
        self.n_with_space += total(pc.match_substring(words, " "))
        self.n_separated += total(pc.match_substring_regex(words, SEPARATED))


def _hash_values(cells: Cells) -> Hashes:
    """Return a nonzero hash of each value: numbers are hashed by value, as in `Cells.labels`, other cells by text."""
    hashes = np.empty(len(cells.kinds), dtype=np.uint64)
    number = cells.kinds == NUMBER
    hashes[number] = cells.numbers[number].view(np.uint64) ^ MIX
    others = np.flatnonzero(~number)
    if cells.raw.dtype.kind == "M":
        hashes[others] = pd.util.hash_array(cells.raw[others])
    elif len(others):
        hashes[others] = pd.util.hash_array(cells.select(others).words, categorize=False)
    return np.maximum(hashes, np.uint64(1))


def check_columns(
    columns: Sequence[Sequence[str]],
    *,
    lists: Sequence[Mapping[str, int]] = (),
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    only: Sequence[str] = (),
    files: Sequence[str] = FILE_NAMES,
    terms: Terms = COMMAND_LINE,
) -> tuple[list[str], dict[str, str]]:
    """Check the column names of one or two tables; return the columns to use, and why each other column is dropped.

    ``drop`` lists columns to drop, ``ids`` columns that are only copied to the output, and ``only`` columns to use.
    ``lists`` contains, for each table, the length of each list that was replaced by columns. The name of a list in
    ``drop`` or ``only`` means all of its columns.

    >>> check_columns([["age", "note"], ["note", "age"]], drop=["note"])
    (['age'], {'note': 'dropped by --drop'})
    """
    for file, names in zip(files, columns, strict=True):
        bad = next((name for name in names if not isinstance(name, str) or not name), None)
        if bad is not None:
            raise TableError(f"{file} has a column named {bad!r}; column names must be non-empty strings.")
        if repeated := repeated_names(names):
            raise TableError(f"{file} has two columns named {repeated[0]!r}; rename one of them.")
    lists = lists or [{}] * len(columns)
    selected = [_select(names, own, drop, ids, only) for names, own in zip(columns, lists, strict=True)]
    either = list(dict.fromkeys(name for names in columns for name in names))
    drop, only = (list(dict.fromkeys(expand_names(names, merge_lengths(lists)))) for names in (drop, only))
    ids = list(dict.fromkeys(ids))
    options = [terms.option(name) for name in ("drop", "id", "only")]
    have = f"neither {terms.table} has" if len(columns) == 2 else f"{files[0]} does not have"
    for option, names in zip(options, (drop, ids, only), strict=True):
        unknown = [name for name in names if name not in either]
        if unknown:
            raise TableError(
                f"{option} names the column{'s' if len(unknown) > 1 else ''} {join_names(unknown)}, which {have}"
                f"{suggest(unknown[0], either)}; the columns are {join_names(either)}."
            )
    for first, second, both in ((0, 1, {*drop} & {*ids}), (2, 0, {*only} & {*drop})):
        if both:
            names = join_names(sorted(both))
            raise TableError(f"{options[first]} and {options[second]} both name {names}; use only one of the options.")
    wanted = list(dict.fromkeys(name for names in selected for name in names))
    dropped = dict.fromkeys(drop, f"dropped by {options[0]}")
    dropped |= {name: f"not named by {options[2]}" for name in either if name not in {*wanted, *drop, *ids}}
    if len(columns) == 2:
        check_lengths(lists, files, used=wanted, left_out=dropped)
    for which in range(len(columns)):
        lone = [name for name in wanted if name not in set(selected[which])]
        if lone:
            remedy = terms.option("drop", lone[:3]) + (" …" if len(lone) > 3 else "")
            alike = suggest(lone[0], set(columns[which]) - set(columns[1 - which]), f"{files[which]} has {{}} instead")
            raise TableError(
                f"only {files[1 - which]} has the column{'s' if len(lone) > 1 else ''} {join_names(lone)}{alike}; both "
                f"{terms.table}s need the same columns, so rename columns that are spelled differently, or drop them "
                f"({remedy})."
            )
    if not wanted:
        named = "drop and only" if terms.python else "--drop, --id and --only"
        raise TableError(f"no column is left for training; exclude fewer columns with {named}.")
    return wanted, dropped


def merge_lengths(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the lengths of the lists of all tables, or the largest length if positions that differ are dropped."""
    merged: dict[str, int] = {}
    for own in lists:
        merged |= {name: max(length, merged.get(name, 0)) for name, length in own.items()}
    return merged


def _select(
    columns: Iterable[str], lists: Mapping[str, int], drop: Iterable[str], ids: Iterable[str], only: Iterable[str]
) -> list[str]:
    """Return the columns of one table that are used for training."""
    excluded, included = {*expand_names(drop, lists), *ids}, {*expand_names(only, lists)}
    return [name for name in columns if name not in excluded and (not included or name in included)]


class Survey:
    """Collector of column statistics that receives one or two tables in chunks of any size and creates the schema.

    ``drop``, ``ids`` and ``only`` are described in `check_columns`; ``files`` contains the name of each table for
    messages, and ``terms`` their words. ``kinds`` maps column names to kinds that replace the inferred ones.

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
        kinds: Mapping[str, str] | None = None,
        files: Sequence[str] = FILE_NAMES,
        terms: Terms = COMMAND_LINE,
    ) -> None:
        self.drop, self.ids, self.only, self.files = tuple(drop), tuple(ids), tuple(only), tuple(files)
        self.kinds, self.terms = dict(kinds or {}), terms
        self.summaries: dict[str, ColumnSummary] = {}
        self._columns: list[list[str]] = []
        self._lists: list[dict[str, int]] = []
        self._selected: list[str] = []  # columns of the current table

    def add(self, frame: pd.DataFrame, which: int) -> None:
        """Update the statistics with rows of table 0 or 1."""
        names = list(frame.columns)
        if which == len(self._columns):
            self._columns.append(names)
            self._lists.append(list_lengths(frame))
            self._selected = _select(names, self._lists[which], self.drop, self.ids, self.only)
            self._check_columns()
        elif names != self._columns[which]:
            raise TableError(f"the columns of {self.files[which]} change within the file; save the file again.")
        for name in self._selected:
            summary = self.summaries.setdefault(name, ColumnSummary())
            summary.add(parse_cells(frame[name], keep_text=False), which)
            if summary.kinds[which, UNREADABLE]:
                row, value = summary.examples[which][UNREADABLE]
                raise TableError(
                    f"{self.files[which]} has {value} in row {row}, column {name!r}, which is not a number, a date or "
                    f"text; replace the value, or drop the column ({self.terms.option('drop', [name])})."
                )

    def _check_columns(self) -> tuple[list[str], dict[str, str]]:
        """Check the column names as soon as all tables have been opened."""
        if len(self._columns) < len(self.files):
            return [], {}
        return check_columns(
            self._columns,
            lists=self._lists,
            drop=self.drop,
            ids=self.ids,
            only=self.only,
            files=self.files,
            terms=self.terms,
        )

    def finish(self) -> tuple[Schema, list[str]]:
        """Return the schema, and a list of one-sentence notes for the user."""
        wanted, dropped = self._check_columns()
        for which, file in enumerate(self.files):
            if not any(summary.rows[which] for summary in self.summaries.values()):
                what = f"both {self.terms.table}s" if len(self.files) == 2 else f"a {self.terms.table}"
                raise TableError(f"{file} has no rows; {what} must have rows.")
        summaries = {name: self.summaries[name] for name in wanted}
        if unknown := [name for name in self.kinds if name not in summaries]:
            raise TableError(
                f"kinds names the column {unknown[0]!r}, which is not used{suggest(unknown[0], summaries)}; the "
                f"columns are {join_names(summaries)}."
            )
        self._check_kinds({name: summary for name, summary in summaries.items() if name not in self.kinds})
        useless, notes = _find_useless_columns(summaries, {*self.only, *self.kinds}, self.terms)
        used = {name: summary for name, summary in summaries.items() if name not in useless}
        if not used:
            raise TableError(f"no column is left for training: {' '.join(notes)}")
        columns = tuple(_make_column(name, summary, self.kinds.get(name)) for name, summary in used.items())
        for column in columns:
            if column.name not in self.kinds:
                notes += _column_notes(column, used[column.name], self.terms)
        return Schema(columns, self.ids, dropped | useless, merge_lengths(self._lists)), notes

    def _check_kinds(self, summaries: dict[str, ColumnSummary]) -> None:
        different = [
            name for name, summary in summaries.items() if not (summary.compatible or _adds_words(name, summary))
        ]
        if different:
            also = f"; the same applies to {join_names(different[1:])}" if different[1:] else ""
            raise TableError(f"{self._explain_mismatch(different[0])}{also}.")

        def drop(name: str) -> str:
            return self.terms.option("drop", [name])

        for name, summary in summaries.items():
            if summary.n_separated and summary.n_separated + summary.kinds[:, NUMBER].sum() == summary.known:
                which = 0 if WORD in summary.examples[0] else 1
                raise TableError(
                    f"column {name!r} of {self.files[which]} has numbers such as {summary.examples[which][WORD].text}, "
                    "in which a separator could mark thousands or decimals; write numbers like 1234.5, or drop the "
                    f"column ({drop(name)})."
                )
            if summary.kind == DATE and (summary.orders.sum(axis=0)[[DAY_FIRST, MONTH_FIRST]] > 0).all():
                day, month = (self._first(summary.order_examples, order) for order in (DAY_FIRST, MONTH_FIRST))
                raise TableError(
                    f"column {name!r} has dates with the day first ({day}) and with the month first ({month}); write "
                    f"all dates like 2024-12-31, or drop the column ({drop(name)})."
                )
            if summary.kind == NUMBER and {PERCENT, PLAIN} <= {*summary.sign_examples[0], *summary.sign_examples[1]}:
                percent, plain = (self._first(summary.sign_examples, sign) for sign in (PERCENT, PLAIN))
                raise TableError(
                    f"column {name!r} has numbers with a percent sign ({percent}) and without it ({plain}); write all "
                    f"numbers with it or all without it, or drop the column ({drop(name)})."
                )

    def _first(self, examples: list[dict[int, Example]], label: int) -> str:
        """Return the first example with this label, and its file, as text."""
        return next(
            f"{own[label].text} of {file}" for own, file in zip(examples, self.files, strict=False) if label in own
        )

    def _explain_mismatch(self, name: str) -> str:
        """Return a message that explains how a column differs between the files, with examples and a fix."""
        summary, files = self.summaries[name], self.files
        strict = 0 if summary.file_kind(0) in (NUMBER, DATE) else 1  # one of the two is, or they would be compatible
        own, other = summary.file_kind(strict), summary.file_kind(1 - strict)
        assert own is not None
        examples = summary.examples[1 - strict]
        bad = min([example for kind, example in examples.items() if kind != own] or examples.values())
        if own == NUMBER and summary.n_separated:
            remedy = "write numbers with a decimal point and without separators, like 1234.5"
        else:
            remedy = "leave unknown values empty" if other == WORD else f"use one format in both {self.terms.table}s"
        return (
            f"column {name!r} is {PHRASES[own]} in {files[strict]} ({summary.examples[strict][own].text}) but "
            f"{files[1 - strict]} has {bad.text}; {remedy}, or drop the column ({self.terms.option('drop', [name])})"
        )


def _find_useless_columns(
    summaries: dict[str, ColumnSummary], kept: set[str], terms: Terms
) -> tuple[dict[str, str], list[str]]:
    """Return the columns that carry no information, with a reason for each column, and one note per reason.

    Identifiers in ``kept``, the columns that the user named, are not dropped.
    """
    why: dict[str, str] = {}
    originals: dict[bytes, str] = {}
    for name, summary in summaries.items():
        by_value = summary.kind in (NUMBER, BOOLEAN)  # "yes" and "true" are two words, but one value
        if not summary.known:
            why[name] = "no row has a value"
        elif not summary.missing.sum() and (summary.low == summary.high if by_value else summary.n_distinct == 1):
            why[name] = "every row has the same value"
        elif (original := originals.setdefault(summary.digest.digest(), name)) != name:
            why[name] = f"a copy of {original!r}"
        elif name not in kept and _is_identifier(name, summary):
            why[name] = terms.identifier
    reasons: dict[str, list[str]] = {}
    for name, reason in why.items():
        reasons.setdefault(reason, []).append(name)
    notes = [
        f"{'Columns' if names[1:] else 'Column'} {join_names(names)} {'are' if names[1:] else 'is'} dropped: {reason}."
        for reason, names in reasons.items()
    ]
    return why, notes


def _is_identifier(name: str, summary: ColumnSummary) -> bool:
    """Return whether a column has a different short word, or a different integer of a dense range, in every row."""
    if not summary.all_different or summary.known < MIN_IDENTIFIED_ROWS:
        return False
    if summary.kind == NUMBER:
        dense = summary.high - summary.low < DENSE * summary.known
        return summary.is_integer and dense and summary.known >= MIN_NUMBERED_ROWS
    short = summary.n_with_space == 0 and summary.n_letters <= MAX_IDENTIFIER_LETTERS * summary.known
    words = summary.kinds[:, WORD].sum() - summary.n_separated > summary.known / 2  # not numbers with a few words
    return summary.kind == WORD and bool(short and words) and _make_column(name, summary).kind == "text"


def _adds_words(name: str, summary: ColumnSummary) -> bool:
    """Return whether a column of numbers has some words in one file only, and few values, so that it is a category."""
    mixed = summary.kinds[:, NUMBER].all() and summary.kinds[:, WORD].any() and not summary.n_separated
    return bool(mixed) and _make_column(name, summary).kind == "category"


def _make_column(name: str, summary: ColumnSummary, given: str | None = None) -> TableColumn:
    """Return the column with its inferred kind, or the ``given`` kind."""
    missing, kind = bool(summary.missing.sum()), summary.kind
    if given is not None:
        kind = {"number": NUMBER, "boolean": BOOLEAN, "date": DATE}.get(given, WORD)
    if kind in (NUMBER, BOOLEAN):
        return TableColumn(name, "number" if kind == NUMBER else "boolean", missing)
    if kind == DATE:
        day_first = not bool(summary.orders[:, MONTH_FIRST].any())
        return TableColumn(name, "date", missing, day_first=day_first, clock=summary.has_time)
    rows, distinct, counts = summary.known, summary.n_distinct, summary.value_counts
    limit = CATEGORIES if rows < ROWS_PER_CATEGORY * distinct else MAX_CATEGORIES
    few = distinct <= limit and distinct <= max(2, rows / 2)
    if counts is not None and given != "text" and (few or given == "category"):
        least = max(min(MIN_CATEGORY_ROWS, rows // 4), MIN_CATEGORY_FRACTION * rows)
        frequent = sorted((-count, value) for value, count in counts.items() if count >= least and value != OTHER)
        if frequent:
            values = tuple(value for _, value in frequent)
            return TableColumn(name, "category", missing, values=values, other=len(frequent) < len(counts))
    if given == "category":
        number = f"more than {MAX_CATEGORIES}" if counts is None else "no frequent"
        raise TableError(f"column {name!r} has {number} values, so it cannot be a category; use it as text.")
    return TableColumn(name, "text", missing, long=bool(summary.n_letters > LONG_TEXT * summary.kinds[:, WORD].sum()))


def _column_notes(column: TableColumn, summary: ColumnSummary, terms: Terms) -> list[str]:
    """Return notes for the user about one column."""
    name, rows, n_separated, orders = column.name, summary.known, summary.n_separated, summary.orders
    notes = []
    words = [examples[WORD] for examples in summary.examples if WORD in examples]
    if column.kind in ("category", "text") and words:
        if n_separated and n_separated + int(summary.kinds[:, NUMBER].sum()) >= rows / 2:
            notes.append(
                f"Column {name!r} has numbers with separators or a decimal comma (such as "
                f"{quote_value(words[0].value)}), which cannot be parsed, and is used as {column.kind}; write numbers "
                "like 1234.5 to use it as a number."
            )
        for kind, what in ((NUMBER, "number"), (DATE, "date")):
            if not n_separated and summary.kinds[:, kind].sum() >= rows / 2:
                notes.append(
                    f"Column {name!r} is used as {column.kind}, because not every cell is a {what} ({words[0].text}); "
                    f"leave such cells empty to use it as a {what}."
                )
    if column.kind == "date" and orders[:, EITHER].any() and not orders[:, [DAY_FIRST, MONTH_FIRST]].any():
        example = next(examples[EITHER] for examples in summary.order_examples if EITHER in examples)
        notes.append(
            f"Column {name!r} has dates such as {example.value!r}, and no date shows whether the day or the month "
            "comes first; the day is assumed to come first (if this is wrong, write dates like 2024-12-31)."
        )
    dense = all(summary.is_rising) or summary.high - summary.low < DENSE * rows
    numbered = column.kind == "number" and summary.is_integer and dense
    identifying = numbered or (column.kind == "text" and summary.n_with_space == 0)
    if rows >= MIN_IDENTIFIED_ROWS and identifying and summary.all_different:
        notes.append(
            f"Column {name!r} has a different value in every row, like a row number or a patient number; if it is an "
            f"identifier, exclude it from training ({terms.option('drop' if terms.python else 'id', [name])})."
        )
    return notes
