"""Count values of new rows that differ from the training rows; their scores are less reliable."""

from collections import Counter

import pandas as pd

from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.schema import OTHER, quote_value

MARGIN = 0.25  # fraction of the training range by which a number must lie outside the range to be counted
SHOWN_COLUMNS = 5
CATEGORIES = "Categories never or rarely seen in training"  # rare categories are not stored in a model
NUMBERS = "Numbers far outside the training range"
EMPTY = "All columns are empty"

UnfamiliarCounts = Counter[tuple[str, str]]
"""Number of rows with an unfamiliar value, by kind (such as `NUMBERS`) and column."""


def count_unfamiliar(rows: pd.DataFrame, encoder: TableEncoder) -> UnfamiliarCounts:
    """Count the unfamiliar values of rows that were converted by `uulearn.tabular.schema.apply_schema`."""
    counts = UnfamiliarCounts({(EMPTY, ""): int(rows.isna().all(axis=1).sum())})
    for position, column in enumerate(encoder.schema_.of_kind("number")):
        low, high = encoder.arrays_["number.knots"][position, [0, -1]]
        margin, values = MARGIN * (high - low), rows[column.name].to_numpy()
        counts[NUMBERS, column.name] = int(((values < low - margin) | (values > high + margin)).sum())
    for column in encoder.schema_.of_kind("category"):
        counts[CATEGORIES, column.name] = int((rows[column.name] == OTHER).sum())
    return counts


def describe_unfamiliar(counts: UnfamiliarCounts) -> list[str]:
    """Return one sentence for each kind of unfamiliar value.

    >>> describe_unfamiliar(UnfamiliarCounts({(NUMBERS, "age"): 2, (NUMBERS, "weight"): 1, (EMPTY, ""): 1}))
    ["Numbers far outside the training range: 'age' (2 rows), 'weight' (1 row).", 'All columns are empty: 1 row.']
    """
    notes = []
    for kind in (CATEGORIES, NUMBERS, EMPTY):
        found = []
        for (own, name), count in counts.most_common():
            if own == kind and count:
                rows = f"{count:,} row{'s' * (count > 1)}"
                found.append(f"{quote_value(name)} ({rows})" if name else rows)
        more = f" and {len(found) - SHOWN_COLUMNS:,} more columns" if len(found) > SHOWN_COLUMNS else ""
        notes += [f"{kind}: {', '.join(found[:SHOWN_COLUMNS])}{more}."] if found else []
    return notes
