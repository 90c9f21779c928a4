"""Schema of the columns that a model uses, and conversion of rows to this schema in training and prediction.

A schema is stored as JSON in the model directory. The only cell values in it are the frequent values of categories.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.io.embeddings import ARRAY, list_lengths, position_names
from uulearn.io.formats import repeated_names, suggest
from uulearn.tabular.cells import (
    BOOLEAN,
    DATE,
    NUMBER,
    PERCENT,
    PLAIN,
    SEPARATED,
    UNREADABLE,
    WORD,
    Cells,
    parse_cells,
)
from uulearn.tabular.unreadable import EXPECTED, UnreadableCells

KINDS = ("number", "boolean", "category", "date", "text")
OTHER = "(other)"
"""Category that replaces values that were rare or absent in the training files."""
# Larger numbers are clipped and smaller ones become 0, so no later step overflows.
LARGEST_CELL, SMALLEST_CELL = 1e300, 1e-280
SCHEMA_VERSION = 2
MAX_NUMBERED = 50
"""Maximum number of columns without names that are described one by one."""
SAME_ENCODER = "compute all embeddings with the same encoder"


@dataclass(frozen=True)
class TableColumn:
    """A column that the model uses: its name, its kind, and details such as the values of a category."""

    name: str
    kind: str
    """One of `KINDS`."""
    missing: bool = False  # whether any cell of either file was missing
    values: tuple[str, ...] = ()  # category: the values that have their own feature
    other: bool = False  # category: whether it has rare values, which share one feature
    day_first: bool = True  # date: whether 03/04/2024 means 3 April
    clock: bool = False  # date: whether any cell has a time of day
    long: bool = False  # text: whether cells are sentences (compared by words) or short texts (compared by letters)

    def __post_init__(self) -> None:
        _check(isinstance(self.name, str) and self.name != "", f"a column must have a name, got {self.name!r}")
        _check(self.kind in KINDS, f"column {self.name!r} has kind {self.kind!r}, expected one of {', '.join(KINDS)}")
        for flag in ("missing", "other", "day_first", "clock", "long"):
            _check(isinstance(getattr(self, flag), bool), f"{flag} of column {self.name!r} must be true or false")
        words = isinstance(self.values, tuple) and all(isinstance(value, str) for value in self.values)
        _check(words, f"values of column {self.name!r} must be strings")
        _check(len(set(self.values)) == len(self.values), f"values of column {self.name!r} must be unique")
        _check(OTHER not in self.values, f"values of column {self.name!r} must not contain {OTHER!r}")
        _check(bool(self.values) == (self.kind == "category"), f"column {self.name!r}: only categories need values")


@dataclass(frozen=True)
class Schema:
    """The columns that the model uses, the columns copied to the output, and the reasons why others were dropped.

    ``lists`` contains the length of each list that was replaced by columns (`uulearn.io.embeddings.list_lengths`).

    >>> schema = Schema((TableColumn("age", "number"), TableColumn("smokes", "boolean")), ids=("patient",))
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[TableColumn, ...]
    ids: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(len(self.columns) > 0, "a schema must have at least one column")
        _check(all(isinstance(name, str) for name in self.ids), "ids must be column names")
        texts = isinstance(self.left_out, dict) and all(isinstance(t, str) for p in self.left_out.items() for t in p)
        _check(texts, "left_out must map column names to reasons")
        repeated = repeated_names([*self.names, *self.ids, *self.left_out])
        _check(not repeated, f"column {repeated[:1]!r} occurs twice")
        known = {*self.names, *self.ids, *self.left_out}
        for name, length in self.lists.items():
            sound = isinstance(name, str) and type(length) is int and 0 < length <= len(known)
            _check(
                sound and known.issuperset(position_names(name, length)), f"list {name!r} must have {length!r} columns"
            )

    @property
    def names(self) -> list[str]:
        """Names of the columns that the model uses."""
        return [column.name for column in self.columns]

    def of_kind(self, kind: str) -> list[TableColumn]:
        """Return the columns of one kind."""
        return [column for column in self.columns if column.kind == kind]

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as a dictionary that can be stored as JSON."""
        defaults = {entry.name: entry.default for entry in dataclasses.fields(TableColumn)}
        columns = [
            {
                name: list(value) if name == "values" else value
                for name, value in dataclasses.asdict(column).items()
                if value != defaults[name]
            }
            for column in self.columns
        ]
        rest = {"ids": list(self.ids), "left_out": dict(self.left_out), "lists": dict(self.lists)}
        return {"format_version": SCHEMA_VERSION, "columns": columns} | rest

    @classmethod
    def from_dict(cls, data: Any) -> Schema:
        """Create a schema from the output of `to_dict`; raise ValueError if the data are invalid."""
        given = _fields(data, "a schema", {"format_version", "columns", "ids", "left_out", "lists"}, set())
        version = given["format_version"]
        _check(version == SCHEMA_VERSION, f"format_version is {version!r}, expected {SCHEMA_VERSION}")
        for name, kind in (("columns", list), ("ids", list), ("left_out", dict), ("lists", dict)):
            _check(isinstance(given[name], kind), f"{name} must be a {kind.__name__}")
        known = {entry.name for entry in dataclasses.fields(TableColumn)}
        columns = []
        for entry in given["columns"]:
            column = _fields(entry, "a column", {"name", "kind"}, known)
            if "values" in column:
                _check(isinstance(column["values"], list), "values must be a list")
                column["values"] = tuple(column["values"])
            columns.append(TableColumn(**column))
        return cls(tuple(columns), tuple(given["ids"]), given["left_out"], given["lists"])


def apply_schema(frame: pd.DataFrame, schema: Schema, *, name: str) -> pd.DataFrame:
    """Return the columns of a schema, in schema order, converted to the types of their kinds.

    Numbers and booleans become float64 (1 for true, NaN for missing), dates become datetime64 in UTC, categories become
    Categorical with a fixed list of values, and text becomes strings or None. A number, boolean or date that cannot be
    parsed is an error, and a category that is not in the schema becomes ``"(other)"``.

    ``name`` is the file name in error messages. The row number in a message is the index of the row plus 1.

    >>> schema = Schema((TableColumn("age", "number"), TableColumn("color", "category", values=("green", "red"))))
    >>> apply_schema(pd.DataFrame({"color": ["red", "blue"], "age": ["41", None]}), schema, name="new.csv")
        age    color
    0  41.0      red
    1   NaN  (other)
    """
    columns = {}
    for column, cells in _parsed_columns(frame, schema, name):
        bad = _unreadable(cells, column)
        if bad.any():
            raise _unreadable_error(_first_cell(frame, column, bad, name), column)
        columns[column.name] = _converted(cells, column, frame.index)
    return pd.DataFrame(columns, index=frame.index)


class NewRows(NamedTuple):
    """New rows that were converted by `read_new_rows`, and the unreadable cells of their columns."""

    rows: pd.DataFrame
    unreadable: dict[str, UnreadableCells]
    """Counts for each number, boolean and date column, also if all of its cells can be read."""


def read_new_rows(frame: pd.DataFrame, schema: Schema, *, name: str) -> NewRows:
    """Convert new rows as `apply_schema` does, but treat cells that cannot be read as missing values, and count them.

    These are errors, because the values are known but written in another way: numbers with thousands separators or a
    decimal comma and values of another kind (such as 0 in a column of yes and no), dates with another order of day and
    month, and lists and objects.

    >>> schema = Schema((TableColumn("age", "number"),))
    >>> rows, unreadable = read_new_rows(pd.DataFrame({"age": ["41", "unknown", None]}), schema, name="new.csv")
    >>> rows["age"].tolist(), unreadable["age"].known, unreadable["age"].count, unreadable["age"].example
    ([41.0, nan, nan], 2, 1, "'unknown'")
    """
    columns, counts = {}, {}
    for column, cells in _parsed_columns(frame, schema, name):
        bad = _unreadable(cells, column)
        known = int(np.count_nonzero(cells.codes >= 0))
        if bad.any():
            refused = _written_otherwise(cells, column) & bad
            if refused.any():
                raise _unreadable_error(_first_cell(frame, column, refused, name), column)
            counts[column.name] = UnreadableCells(
                column.kind, known, int(bad.sum()), *_first_cell(frame, column, bad, name)
            )
            cells = replace(cells, codes=np.where(bad, -1, cells.codes))
        elif column.kind in EXPECTED:
            counts[column.name] = UnreadableCells(column.kind, known)
        columns[column.name] = _converted(cells, column, frame.index)
    return NewRows(pd.DataFrame(columns, index=frame.index), counts)


def _parsed_columns(frame: pd.DataFrame, schema: Schema, name: str) -> Iterator[tuple[TableColumn, Cells]]:
    """Yield the columns of a schema with their cells in a table, after checking that the table has these columns."""
    tables = (name, "the training data")
    check_lengths((list_lengths(frame), schema.lists), tables, used=schema.names, left_out=schema.left_out)
    check_has_columns(schema.names, frame.columns, name)
    for column in schema.columns:
        cells = parse_cells(frame[column.name], day_first=column.day_first, keep_text=column.kind == "text")
        if column.kind == "number":
            signs = cells.signs[cells.counts() > 0]
            if (signs == PERCENT).any() and (signs == PLAIN).any():
                raise TableError(
                    f"{name} has numbers with and without a percent sign in column {column.name!r}; write all numbers "
                    "as in the tables that the model was trained on."
                )
        yield column, cells


def check_lengths(
    lists: Sequence[Mapping[str, int]], tables: Sequence[str], *, used: Iterable[str], left_out: Iterable[str]
) -> None:
    """Raise `TableError` if a list, or the rows of an array, have different lengths in two tables.

    Without this check, additional values at the end of the rows of another encoder would be ignored. Lists without
    used columns, and positions that are left out, may differ.

    >>> check_lengths([{"": 2}, {"": 3}], ["new.npy", "the training data"], used=["0", "1", "2"], left_out=[])
    Traceback (most recent call last):
    uulearn.exceptions.TableError: new.npy has 2 columns, but the training data has 3; compute all embeddings with the \
same encoder.
    """
    first, second = lists
    for name in [name for name in first if first[name] != second.get(name, first[name])]:
        sizes = first[name], second[name]
        positions = position_names(name, max(sizes))
        if {*positions}.isdisjoint(used) or {*left_out}.issuperset(positions[min(sizes) :]):
            continue
        if name == ARRAY:
            raise TableError(f"{tables[0]} has {sizes[0]:,} columns, but {tables[1]} has {sizes[1]:,}; {SAME_ENCODER}.")
        raise TableError(
            f"column {name!r} has {sizes[0]:,} values per row in {tables[0]}, but {sizes[1]:,} in {tables[1]}; "
            f"{SAME_ENCODER}."
        )


def group_columns(names: Iterable[str], lists: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the columns that are described together: the columns of a list, and many columns of an array.

    >>> group_columns(["age", "embedding[0]", "embedding[1]"], {"embedding": 2})
    {'age': ['age'], 'embedding': ['embedding[0]', 'embedding[1]']}
    """
    origin = {column: name for name, length in lists.items() for column in position_names(name, length)}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(origin.get(name, name), []).append(name)
    numbered = groups.pop(ARRAY, [])
    if len(numbered) > MAX_NUMBERED:
        return groups | {f"columns {numbered[0]} to {numbered[-1]}": numbered}
    return groups | {name: [name] for name in numbered}


def check_has_columns(names: Iterable[str], columns: Iterable[Any], name: str) -> None:
    """Raise `TableError` if a file lacks any of the columns."""
    there = [str(column) for column in columns]
    known = set(there)
    lacking = [wanted for wanted in names if wanted not in known]
    if lacking:
        raise TableError(
            f"{name} lacks the column{'s' if len(lacking) > 1 else ''} {join_names(lacking)}"
            f"{suggest(lacking[0], there)}; it must have all columns that the model was trained on."
        )


def join_names(names: Iterable[str], limit: int = 5) -> str:
    """Join names in quotes; only the first names of a long list are shown.

    >>> join_names(["a", "b", "c"]), join_names("abcdef", 2)
    ("'a', 'b' and 'c'", "'a', 'b' and 4 more")
    """
    quoted = [repr(name) for name in names]
    if len(quoted) > limit:
        quoted = [*quoted[:limit], f"{len(quoted) - limit:,} more"]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def quote_value(value: str, limit: int = 40) -> str:
    """Return a value in quotes, truncated if it is long."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")


def _unreadable(cells: Cells, column: TableColumn) -> NDArray[np.bool_]:
    """Return for each row whether its cell cannot be read as the kind of the column; a missing cell can be read."""
    wanted = {"number": NUMBER, "boolean": BOOLEAN, "date": DATE}.get(column.kind)
    bad = cells.kinds == UNREADABLE
    if wanted is not None:
        bad = (cells.kinds != wanted) | (np.isnat(cells.dates) if wanted == DATE else bad)
    if not bad.any():  # the usual case
        return np.zeros(len(cells.codes), dtype=bool)
    return np.asarray(np.append(bad, False)[cells.codes])


def _written_otherwise(cells: Cells, column: TableColumn) -> NDArray[np.bool_]:
    """Return for each row whether its cell, which cannot be read, is a list or object, or is written in another way.

    Only words are missing values. Numbers, dates, and yes or no are known values, so they are written in another way.
    """
    values = cells.kinds != WORD
    if column.kind == "number":
        words = np.flatnonzero(cells.kinds == WORD)
        texts = pa.array(cells.select(words).words, pa.large_string())
        values[words] = pc.match_substring_regex(texts, SEPARATED).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(values, False)[cells.codes])


def _first_cell(frame: pd.DataFrame, column: TableColumn, bad: NDArray[np.bool_], name: str) -> tuple[str, str]:
    """Return a description of the first cell that cannot be read, with its place, and its value in quotes."""
    position = int(bad.argmax())
    value = frame[column.name].iloc[[position]]
    if isinstance(value.dtype, pd.CategoricalDtype):
        value = value.astype(object)  # otherwise, all categories are parsed
    cell = parse_cells(value)  # keeps the original text of a number
    what = cell.words[0] if cell.kinds[0] == UNREADABLE else quote_value(cell.words[0])
    label = frame.index[position]
    row = label + 1 if isinstance(label, int | np.integer) else position + 1
    return f"{name} has {what} in row {row}, column {column.name!r}", what


def _unreadable_error(cell: tuple[str, str], column: TableColumn) -> TableError:
    expected, _, fix = EXPECTED.get(column.kind, ("a word", "", ""))
    return TableError(f"{cell[0]}, which is not {expected}{f'; {fix}' if fix else ''}.")


def _converted(cells: Cells, column: TableColumn, index: Any) -> Any:
    if column.kind in ("number", "boolean"):
        numbers = np.where(
            np.abs(cells.numbers) < SMALLEST_CELL, 0.0, np.clip(cells.numbers, -LARGEST_CELL, LARGEST_CELL)
        )
        return np.append(numbers, np.nan)[cells.codes]
    if column.kind == "date":
        return np.append(cells.dates, np.datetime64("NaT", "us"))[cells.codes]
    if column.kind == "category":
        number = {value: at for at, value in enumerate(column.values)}
        codes = np.array([number.get(word, len(number)) for word in cells.labels] + [-1], dtype=np.int64)
        return pd.Categorical.from_codes(codes[cells.codes], categories=[*column.values, OTHER])
    words: NDArray[np.object_] = np.append(cells.words, np.array([None], dtype=object))
    return pd.Series(words[cells.codes], index=index, dtype=object)  # the type of an array would be inferred


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(f"{problem}.")


def _fields(data: Any, what: str, needed: set[str], allowed: set[str]) -> dict[str, Any]:
    _check(isinstance(data, dict), f"{what} must be an object, got {type(data).__name__}")
    odd = sorted(map(repr, data.keys() - needed - allowed))
    _check(not odd, f"{what} must not have {', '.join(odd)}")
    lacking = sorted(needed - data.keys())
    _check(not lacking, f"{what} must have {', '.join(lacking)}")
    return dict(data)
