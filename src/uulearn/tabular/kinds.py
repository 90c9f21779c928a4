"""What a column is, decided over all rows of two files, and what the user should know about it.

A column is a number, boolean or date if every cell that is not missing is one, in both files. Else it is made of words:
a category if the values are few, text if they are many. Nothing is guessed that would change with the rows:

- A column that is a number or a date in one file and something else in the other is refused, with an example.
- ``1,234`` and ``3,5`` are no numbers. A column of such cells is used as words, and a note says so.
- ``03/04/2024`` is read as its column demands: 25/04/2024 elsewhere in it puts the day first. Where nothing in either
  file decides, the day is first, and a note says so.
- A category has at most 50 values, or up to 200 if they stand in 100 rows each on average, and fewer values than half
  the rows. One that stands in fewer than 5 rows, or in fewer than one in a thousand, counts as ``"(other)"``.
- Left out, with a note: columns without any value, with one value only, and copies of another column.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from uulearn.tabular.cells import BOOLEAN, DATE, NUMBER, WORD
from uulearn.tabular.dates import DAY_FIRST, EITHER, MONTH_FIRST
from uulearn.tabular.schema import OTHER, Column, listed, shown
from uulearn.tabular.tally import Tally

CATEGORIES = 50
MOST_CATEGORIES = 200
ROWS_A_CATEGORY = 100
"""Above `CATEGORIES` values, so many rows must hold each on average."""
LEAST_ROWS, LEAST_SHARE = 5, 0.001
"""A category with a column of its own stands in so many rows."""
LONG = 40
"""Words of more letters than this, on average, are sentences."""
IDENTIFIED_ROWS = 20
"""In fewer rows, values that all differ mean nothing."""
DENSE = 2
"""Different whole numbers that fill a range of so many times their number look like counted rows."""

NAMES = {"number": "a number", "boolean": "yes or no", "date": "a date", "words": "words"}


def file_kind(tally: Tally, which: int) -> str | None:
    """What a column is in one file, None if it is empty there."""
    found = set(np.flatnonzero(tally.kinds[which]).tolist())
    if not found:
        return None
    if len(found) > 1 or WORD in found:
        return "words"
    return {NUMBER: "number", BOOLEAN: "boolean", DATE: "date"}[found.pop()]


def pooled_kind(tally: Tally) -> str | None:
    """What a column is in both files that `fits` lets pass."""
    kinds = {file_kind(tally, which) for which in (0, 1)} - {None}
    return "words" if "words" in kinds else next(iter(kinds), None)


def fits(first: str | None, second: str | None) -> bool:
    """Words that happen to be only yes and no in one file are still words."""
    return first == second or None in (first, second) or {first, second} == {"boolean", "words"}


def mismatch(name: str, tally: Tally, files: Sequence[str]) -> str:
    """Why a column does not fit, with a cell of each file and what to do."""
    kinds = [file_kind(tally, which) for which in (0, 1)]
    strict = 0 if kinds[0] in ("number", "date") else 1  # one of the two is, or they would fit
    own = {"number": NUMBER, "date": DATE}[str(kinds[strict])]
    good = tally.examples[strict][own]
    others = {kind: example for kind, example in tally.examples[1 - strict].items() if kind != own}
    bad = min(others.values() or tally.examples[1 - strict].values())
    if own == NUMBER and tally.separated:
        remedy = "write numbers with a point and without separators, like 1234.5"
    elif kinds[1 - strict] == "words":
        remedy = "leave cells empty that mean that nothing is known"
    else:
        remedy = "write both files alike"
    what = f"column {name!r} is {NAMES[str(kinds[strict])]} in {files[strict]} ({shown(good.value)} in row {good.row})"
    return (
        f"{what} but {files[1 - strict]} has {shown(bad.value)} in row {bad.row}; {remedy}, or leave the column out "
        f"(--drop {shlex.quote(name)})"
    )


def useless_columns(tallies: dict[str, Tally]) -> tuple[dict[str, str], list[str]]:
    """Columns that say nothing, why, and a note for each reason."""
    why: dict[str, str] = {}
    twins: dict[bytes, str] = {}
    for name, tally in tallies.items():
        if not tally.known.sum():
            why[name] = "no row has a value"
        elif not tally.missing.sum() and _is_constant(tally):
            why[name] = "every row has the same value"
        elif tally.digest in twins:
            why[name] = f"a copy of {twins[tally.digest]!r}"
        else:
            twins[tally.digest] = name
    reasons: dict[str, list[str]] = {}
    for name, reason in why.items():
        reasons.setdefault(reason, []).append(name)
    notes = [
        f"Column{'s' if len(names) > 1 else ''} {listed(names)} {'are' if len(names) > 1 else 'is'} left out: {reason}."
        for reason, names in reasons.items()
    ]
    return why, notes


def _is_constant(tally: Tally) -> bool:
    by_value = pooled_kind(tally) in ("number", "boolean")  # "yes" and "true" are two words, but one value
    return tally.low == tally.high if by_value else tally.sketch.distinct == 1


def make_column(name: str, tally: Tally) -> Column:
    """The column as the schema has it."""
    missing = bool(tally.missing.sum())
    kind = pooled_kind(tally)
    if kind == "number" or kind == "boolean":
        return Column(name, kind, missing)
    if kind == "date":
        return Column(name, kind, missing, day_first=not bool(tally.orders[:, MONTH_FIRST].any()), clock=tally.clock)
    values, other = _categories(tally)
    if values:
        return Column(name, "category", missing, values=values, other=other)
    return Column(name, "text", missing, long=bool(tally.letters > LONG * tally.kinds[:, WORD].sum()))


def _categories(tally: Tally) -> tuple[tuple[str, ...], bool]:
    """Values frequent enough for a column each, most frequent first, and whether there are others; none for text."""
    rows, distinct = int(tally.known.sum()), tally.sketch.distinct
    most = CATEGORIES if rows < ROWS_A_CATEGORY * distinct else MOST_CATEGORIES
    if distinct > most or distinct > max(2, rows / 2):
        return (), False
    counts: dict[str, int] = {}
    for value, count in zip(tally.sketch.values, tally.sketch.counts.sum(axis=0).tolist(), strict=True):
        counts[value] = counts.get(value, 0) + count
    least = max(min(LEAST_ROWS, rows // 4), LEAST_SHARE * rows)
    kept = sorted((-count, value) for value, count in counts.items() if count >= least and value != OTHER)
    return tuple(value for _, value in kept), len(kept) < len(counts)


def remarks(column: Column, tally: Tally) -> list[str]:
    """What the user may want to know about a column."""
    name, rows = column.name, int(tally.known.sum())
    notes = []
    if column.kind in ("category", "text"):
        numbers, separated = int(tally.kinds[:, NUMBER].sum()), tally.separated
        words = [tally.examples[which][WORD] for which in (0, 1) if WORD in tally.examples[which]]
        if separated and separated + numbers >= rows / 2:
            notes.append(
                f"Column {name!r} looks like numbers with separators or a decimal comma (such as "
                f"{shown(words[0].value)}), which is not guessed, and is used as {column.kind}; write 1234.5 to use it "
                "as a number."
            )
        for kind, what in ((NUMBER, "number"), (DATE, "date")):
            if words and not separated and tally.kinds[:, kind].sum() >= rows / 2:
                notes.append(
                    f"Column {name!r} is used as {column.kind}, because not every cell of it is a {what} "
                    f"({shown(words[0].value)} in row {words[0].row}); leave such cells empty to use it as a {what}."
                )
    if column.kind == "date" and tally.orders[:, EITHER].any() and not tally.orders[:, [DAY_FIRST, MONTH_FIRST]].any():
        example = next(examples[EITHER] for examples in tally.order_examples if EITHER in examples)
        notes.append(
            f"Column {name!r} has dates such as {example.value!r}, and none that shows whether the day or the month is "
            "first: the day is taken to be; write them like 2024-12-31 if it is not."
        )
    if _looks_like_id(column, tally):
        notes.append(
            f"Column {name!r} has a different value in every row, like a number of the row or of a person; if it is "
            f"one, keep it out of the learning (--id {shlex.quote(name)})."
        )
    return notes


def _looks_like_id(column: Column, tally: Tally) -> bool:
    rows = int(tally.known.sum())
    if rows < IDENTIFIED_ROWS or not tally.sketch.all_different:
        return False
    if column.kind == "number":
        return tally.whole and (all(tally.rising) or tally.high - tally.low < DENSE * rows)
    return column.kind == "text" and tally.spaced == 0
