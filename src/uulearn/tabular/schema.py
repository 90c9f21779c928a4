"""The columns of a table as a model knows them, and rows converted by them: alike at fit and at predict time.

A schema is plain data: it goes into the model directory as JSON, and holds no value of the files but the frequent
categories.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.tabular.cells import BOOLEAN, DATE, NUMBER, UNREADABLE, Cells, read_cells

if TYPE_CHECKING:
    import pandas as pd

KINDS = ("number", "boolean", "category", "date", "text")
OTHER = "(other)"
"""What a category becomes that was rare in the files of the fit, or not in them."""
LARGEST, SMALLEST = 1e300, 1e-280
"""Numbers beyond the one, infinities too, count as it, those below the other as 0: no later step overflows."""
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Column:
    """One column that is used, and what its kind needs.

    Examples
    --------
    >>> Column("colour", "category", values=("green", "red"))
    Column(name='colour', kind='category', missing=False, values=('green', 'red'), other=False, day_first=True, ...)
    """

    name: str
    kind: str
    """``"number"``, ``"boolean"``, ``"category"``, ``"date"`` or ``"text"``."""
    missing: bool = False
    """Whether any cell of either file was missing."""
    values: tuple[str, ...] = ()
    """Category: the values that have a column of their own in the matrix."""
    other: bool = False
    """Category: whether the files hold rare values, which share one column."""
    day_first: bool = True
    """Date: whether 03/04/2024 is a day in April."""
    clock: bool = False
    """Date: whether any cell has a time of day."""
    long: bool = False
    """Text: whether the cells are sentences, compared by words, or short, compared by letters."""

    def __post_init__(self) -> None:
        _check(isinstance(self.name, str) and self.name != "", f"a column must have a name, got {self.name!r}")
        _check(self.kind in KINDS, f"column {self.name!r} is of kind {self.kind!r}, known are {', '.join(KINDS)}")
        for flag in ("missing", "other", "day_first", "clock", "long"):
            _check(isinstance(getattr(self, flag), bool), f"{flag} of column {self.name!r} must be true or false")
        words = isinstance(self.values, tuple) and all(isinstance(value, str) for value in self.values)
        _check(words, f"values of column {self.name!r} must be words")
        _check(len(set(self.values)) == len(self.values), f"values of column {self.name!r} repeat")
        _check(OTHER not in self.values, f"values of column {self.name!r} may not contain {OTHER!r}")
        _check(bool(self.values) == (self.kind == "category"), f"column {self.name!r} needs values if a category")


@dataclass(frozen=True)
class Schema:
    """The columns that are used, those kept for the output only, and why the others are left out.

    Examples
    --------
    >>> schema = Schema((Column("age", "number"), Column("smokes", "boolean")), ids=("patient",))
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    ids: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(all(isinstance(column, Column) for column in self.columns), "columns must be Column objects")
        _check(len(self.columns) > 0, "a schema must have a column")
        _check(all(isinstance(name, str) for name in self.ids), "ids must be names of columns")
        texts = isinstance(self.left_out, dict) and all(isinstance(t, str) for p in self.left_out.items() for t in p)
        _check(texts, "left_out must say for names of columns why")
        names = [*self.names, *self.ids, *self.left_out]
        repeated = [name for name, count in Counter(names).items() if count > 1]
        _check(not repeated, f"column {repeated[:1]!r} is named twice")

    @property
    def names(self) -> list[str]:
        """The columns that are used."""
        return [column.name for column in self.columns]

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        columns = [
            {name: value for name, value in dataclasses.asdict(column).items() if value != DEFAULTS.get(name)}
            for column in self.columns
        ]
        for column in columns:
            if "values" in column:
                column["values"] = list(column["values"])
        return {
            "format_version": FORMAT_VERSION,
            "columns": columns,
            "ids": list(self.ids),
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_dict(cls, data: Any) -> Schema:
        """From such data; whatever does not belong there is a ValueError that says so."""
        given = _fields(data, "a schema", {"format_version", "columns", "ids", "left_out"}, set())
        version = given["format_version"]
        _check(version == FORMAT_VERSION, f"format_version is {version!r}, but this version of uulearn reads 1")
        for name, kind in (("columns", list), ("ids", list), ("left_out", dict)):
            _check(isinstance(given[name], kind), f"{name} must be a {kind.__name__}")
        known = {entry.name for entry in dataclasses.fields(Column)}
        columns = []
        for entry in given["columns"]:
            column = dict(_fields(entry, "a column", {"name", "kind"}, known))
            if "values" in column:
                _check(isinstance(column["values"], list), "values must be a list")
                column["values"] = tuple(column["values"])
            columns.append(Column(**column))
        return cls(tuple(columns), tuple(given["ids"]), given["left_out"])


DEFAULTS = {entry.name: entry.default for entry in dataclasses.fields(Column)}


def typed(frame: pd.DataFrame, schema: Schema, *, name: str) -> pd.DataFrame:
    """The columns of a schema, in its order and in the types of their kinds.

    Numbers and booleans become float64 (1 for true, NaN where missing), dates datetime64 in UTC, categories
    Categorical with one and the same list of values, text strings or None. A number, boolean or date that cannot be
    read is refused, not taken for missing: where the rows of the fit could all be read, it is an error of the file or
    a sign that the columns are not the same. A category that is not in the schema becomes ``"(other)"``.

    Parameters
    ----------
    frame : DataFrame of n rows
        A chunk as a reader gives it. Further columns are ignored. Its index tells the rows in messages, counted from 1.
    schema : Schema
    name : str
        What to call the file in messages.

    Returns
    -------
    DataFrame of n rows, with the index of ``frame``

    Examples
    --------
    >>> import pandas as pd
    >>> schema = Schema((Column("age", "number"), Column("colour", "category", values=("green", "red"))))
    >>> typed(pd.DataFrame({"colour": ["red", "blue"], "age": ["41", None]}), schema, name="new.csv")
        age   colour
    0  41.0      red
    1   NaN  (other)
    """
    import pandas as pd

    check_there(schema.names, frame.columns, name)
    columns = {}
    for column in schema.columns:
        cells = read_cells(frame[column.name], day_first=column.day_first)
        _refuse_unreadable(cells, column, frame.index, name)
        columns[column.name] = _converted(cells, column, frame.index)
    return pd.DataFrame(columns, index=frame.index)


def check_there(names: Iterable[str], columns: Iterable[Any], name: str) -> None:
    """Refuse a file that lacks some of the columns."""
    there = [str(column) for column in columns]
    lacking = [wanted for wanted in names if wanted not in set(there)]
    if lacking:
        raise TableError(
            f"{name} lacks the column{'s' if len(lacking) > 1 else ''} {listed(lacking)}{near(lacking[0], there)}; "
            "the file needs the columns that the model was fitted on, under the same names."
        )


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names in quotes, the first of them if they are many.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed("abcdef", 2)
    ("'a', 'b' and 'c'", "'a', 'b' and 4 more")
    """
    shown = [repr(name) for name in names]
    if len(shown) > most:
        shown = [*shown[:most], f"{len(shown) - most:,} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def near(name: str, names: Iterable[str], hint: str = "did you mean {}?") -> str:
    """A hint at names that are spelled alike, in parentheses, or nothing.

    Examples
    --------
    >>> near("wieght", ["weight", "age"])
    " (did you mean 'weight'?)"
    """
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=3)
    return f" ({hint.replace('{}', ' or '.join(repr(folded[other]) for other in close))})" if close else ""


def _refuse_unreadable(cells: Cells, column: Column, index: Any, name: str) -> None:
    wanted = {"number": NUMBER, "boolean": BOOLEAN, "date": DATE}.get(column.kind)
    bad = cells.kinds == UNREADABLE
    if wanted is not None:
        bad = (cells.kinds != wanted) | (np.isnat(cells.dates) if wanted == DATE else bad)
    rows = np.append(bad, False)[cells.codes]  # the code −1, missing, is never bad
    if not rows.any():
        return
    position = int(rows.argmax())
    value = cells.codes[position]
    what = cells.words[value] if cells.kinds[value] == UNREADABLE else shown(cells.words[value])
    row = index[position] + 1 if isinstance(index[position], int | np.integer) else position + 1
    meant = {
        "number": "a number; write numbers with a point and without separators, like 1234.5",
        "boolean": "yes or no; write true, false, yes, no, t, f, y or n",
        "date": "a date; write dates like 2024-12-31",
    }.get(column.kind, "a word")
    raise TableError(f"{name} holds {what} in row {row}, column {column.name!r}, which is not {meant}.")


def shown(value: str, most: int = 40) -> str:
    """A value in quotes, cut if it is long."""
    return repr(value if len(value) <= most else value[: most - 1] + "…")


def _converted(cells: Cells, column: Column, index: Any) -> Any:
    import pandas as pd

    if column.kind in ("number", "boolean"):
        numbers = np.where(np.abs(cells.numbers) < SMALLEST, 0.0, np.clip(cells.numbers, -LARGEST, LARGEST))
        return np.append(numbers, np.nan)[cells.codes]
    if column.kind == "date":
        return np.append(cells.dates, np.datetime64("NaT", "us"))[cells.codes]
    if column.kind == "category":
        number = {value: at for at, value in enumerate(column.values)}
        codes = np.array([number.get(word, len(number)) for word in cells.labels] + [-1], dtype=np.int64)
        return pd.Categorical.from_codes(codes[cells.codes], categories=[*column.values, OTHER])
    words: NDArray[np.object_] = np.append(cells.words, np.array([None], dtype=object))
    return pd.Series(words[cells.codes], index=index, dtype=object)  # an array would be guessed at


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(f"{problem}.")


def _fields(data: Any, what: str, needed: set[str], allowed: set[str]) -> Mapping[str, Any]:
    _check(isinstance(data, dict), f"{what} must be an object, got {type(data).__name__}")
    odd = sorted(map(repr, data.keys() - needed - allowed))
    _check(not odd, f"{what} may not have {', '.join(odd)}")
    lacking = sorted(needed - data.keys())
    _check(not lacking, f"{what} must have {', '.join(lacking)}")
    result: Mapping[str, Any] = data
    return result
