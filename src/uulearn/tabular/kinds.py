"""Decide the kind of a column over all rows of two files.

A column is a number, boolean or date if all cells that are not missing are, in both files. Otherwise it holds words: a
category if there are few values, text if there are many. The decision does not depend on the order of the rows:

- A column that is a number or a date in one file and something else in the other is an error, with an example.
- ``1,234`` and ``3,5`` are not numbers. A column of such cells is used as words, with a note.
- ``03/04/2024`` is read as its column demands: 25/04/2024 elsewhere in it puts the day first. If no cell of either file
  decides, the day comes first, with a note.
- A category has at most 50 values, or up to 200 if there are 100 rows per value on average, and fewer values than half
  the rows. A value in fewer than 5 rows, or in fewer than one row in a thousand, is ``"(other)"``.
- Columns without a value, with only one value, and copies of another column are dropped, with a note.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from uulearn.tabular.cells import BOOLEAN, DATE, NUMBER, WORD
from uulearn.tabular.dates import DAY_FIRST, EITHER, MONTH_FIRST
from uulearn.tabular.schema import OTHER, TableColumn, join_names, quote_value
from uulearn.tabular.summary import MAX_CATEGORIES, ColumnSummary

CATEGORIES = 50  # limit for a category, unless each value has enough rows
ROWS_PER_CATEGORY = 100  # rows per value, on average, that allow up to `MAX_CATEGORIES` values
MIN_CATEGORY_ROWS, MIN_CATEGORY_FRACTION = 5, 0.001  # a category with fewer rows is `OTHER`
LONG_TEXT = 40  # letters per cell, on average, above which text consists of sentences
MIN_IDENTIFIED_ROWS = 20  # with fewer rows, distinct values are no sign of an identifier
DENSE = 2  # distinct integers within a range of this many times their number look like row numbers

PHRASES = {"number": "a number", "boolean": "yes or no", "date": "a date", "words": "words"}


def file_kind(summary: ColumnSummary, which: int) -> str | None:
    """Return the kind of a column in one file, None if it is empty there."""
    found = set(np.flatnonzero(summary.kinds[which]).tolist())
    if not found:
        return None
    if len(found) > 1 or WORD in found:
        return "words"
    return {NUMBER: "number", BOOLEAN: "boolean", DATE: "date"}[found.pop()]


def pooled_kind(summary: ColumnSummary) -> str | None:
    """Return the kind of a column in both files, if they are `compatible`."""
    kinds = {file_kind(summary, which) for which in (0, 1)} - {None}
    return "words" if "words" in kinds else next(iter(kinds), None)


def compatible(first: str | None, second: str | None) -> bool:
    """Return whether a column can have these kinds in the two files; words may be only yes and no in one of them."""
    return first == second or None in (first, second) or {first, second} == {"boolean", "words"}


def explain_mismatch(name: str, summary: ColumnSummary, files: Sequence[str]) -> str:
    """Return why a column differs between the files, with a cell of each, and what to do."""
    kinds = [file_kind(summary, which) for which in (0, 1)]
    strict = 0 if kinds[0] in ("number", "date") else 1  # one of the two is, or they would be compatible
    own = {"number": NUMBER, "date": DATE}[str(kinds[strict])]
    good = summary.examples[strict][own]
    others = {kind: example for kind, example in summary.examples[1 - strict].items() if kind != own}
    bad = min(others.values() or summary.examples[1 - strict].values())
    if own == NUMBER and summary.n_separated:
        remedy = "write numbers with a point and without separators, like 1234.5"
    elif kinds[1 - strict] == "words":
        remedy = "leave unknown values empty"
    else:
        remedy = "use one format in both files"
    what = f"column {name!r} is {PHRASES[str(kinds[strict])]} in {files[strict]} ({quote_value(good.value)} in row "
    return (
        f"{what}{good.row}) but {files[1 - strict]} has {quote_value(bad.value)} in row {bad.row}; {remedy}, or drop "
        f"the column (--drop {shlex.quote(name)})"
    )


def find_useless_columns(summaries: dict[str, ColumnSummary]) -> tuple[dict[str, str], list[str]]:
    """Return the columns without information, with the reason, and one note per reason."""
    why: dict[str, str] = {}
    originals: dict[bytes, str] = {}
    for name, summary in summaries.items():
        if not summary.known.sum():
            why[name] = "no row has a value"
        elif not summary.missing.sum() and _is_constant(summary):
            why[name] = "every row has the same value"
        elif summary.digest in originals:
            why[name] = f"a copy of {originals[summary.digest]!r}"
        else:
            originals[summary.digest] = name
    reasons: dict[str, list[str]] = {}
    for name, reason in why.items():
        reasons.setdefault(reason, []).append(name)
    notes = [
        f"{'Columns' if names[1:] else 'Column'} {join_names(names)} {'are' if names[1:] else 'is'} dropped: {reason}."
        for reason, names in reasons.items()
    ]
    return why, notes


def _is_constant(summary: ColumnSummary) -> bool:
    by_value = pooled_kind(summary) in ("number", "boolean")  # "yes" and "true" are two words, but one value
    return summary.low == summary.high if by_value else summary.n_distinct == 1


def make_column(name: str, summary: ColumnSummary) -> TableColumn:
    """Return the column for the schema."""
    missing = bool(summary.missing.sum())
    kind = pooled_kind(summary)
    if kind == "number" or kind == "boolean":
        return TableColumn(name, kind, missing)
    if kind == "date":
        day_first = not bool(summary.orders[:, MONTH_FIRST].any())
        return TableColumn(name, kind, missing, day_first=day_first, clock=summary.has_time)
    values, other = _categories(summary)
    if values:
        return TableColumn(name, "category", missing, values=values, other=other)
    return TableColumn(name, "text", missing, long=bool(summary.n_letters > LONG_TEXT * summary.kinds[:, WORD].sum()))


def _categories(summary: ColumnSummary) -> tuple[tuple[str, ...], bool]:
    """Return the frequent values, the most frequent first, and whether there are others; no values for text."""
    rows, distinct = int(summary.known.sum()), summary.n_distinct
    limit = CATEGORIES if rows < ROWS_PER_CATEGORY * distinct else MAX_CATEGORIES
    if summary.value_counts is None or distinct > limit or distinct > max(2, rows / 2):
        return (), False
    counts = summary.value_counts
    least = max(min(MIN_CATEGORY_ROWS, rows // 4), MIN_CATEGORY_FRACTION * rows)
    frequent = sorted((-count, value) for value, count in counts.items() if count >= least and value != OTHER)
    return tuple(value for _, value in frequent), len(frequent) < len(counts)


def column_notes(column: TableColumn, summary: ColumnSummary) -> list[str]:
    """Return what the user may want to know about a column."""
    name, rows = column.name, int(summary.known.sum())
    notes = []
    if column.kind in ("category", "text"):
        words = [summary.examples[which][WORD] for which in (0, 1) if WORD in summary.examples[which]]
        n_separated = summary.n_separated
        if n_separated and n_separated + int(summary.kinds[:, NUMBER].sum()) >= rows / 2:
            notes.append(
                f"Column {name!r} looks like numbers with separators or a decimal comma (such as "
                f"{quote_value(words[0].value)}), which are not parsed, and is used as {column.kind}; write 1234.5 to "
                "use it as a number."
            )
        for kind, what in ((NUMBER, "number"), (DATE, "date")):
            if words and not n_separated and summary.kinds[:, kind].sum() >= rows / 2:
                notes.append(
                    f"Column {name!r} is used as {column.kind}, because not every cell is a {what} "
                    f"({quote_value(words[0].value)} in row {words[0].row}); leave such cells empty to use it as a "
                    f"{what}."
                )
    orders = summary.orders
    if column.kind == "date" and orders[:, EITHER].any() and not orders[:, [DAY_FIRST, MONTH_FIRST]].any():
        example = next(examples[EITHER] for examples in summary.order_examples if EITHER in examples)
        notes.append(
            f"Column {name!r} has dates such as {example.value!r}, and no date shows whether the day or the month "
            "comes first; the day is assumed to come first (write dates like 2024-12-31 otherwise)."
        )
    if _looks_like_id(column, summary):
        notes.append(
            f"Column {name!r} has a different value in every row, like a row number or a person's number; if it is an "
            f"identifier, keep it out of the training (--id {shlex.quote(name)})."
        )
    return notes


def _looks_like_id(column: TableColumn, summary: ColumnSummary) -> bool:
    rows = int(summary.known.sum())
    if rows < MIN_IDENTIFIED_ROWS or not summary.all_different:
        return False
    if column.kind == "number":
        return summary.is_integer and (all(summary.is_rising) or summary.high - summary.low < DENSE * rows)
    return column.kind == "text" and summary.n_with_space == 0
