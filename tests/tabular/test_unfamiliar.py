"""Values of new rows that the training rows did not have are counted."""

import numpy as np
import pandas as pd
import pytest

from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.schema import Schema, TableColumn, apply_schema
from uulearn.tabular.unfamiliar import CATEGORIES, EMPTY, NUMBERS, UnfamiliarCounts, count_unfamiliar
from uulearn.tabular.unfamiliar import describe_unfamiliar as describe

SCHEMA = Schema(
    (
        TableColumn("age", "number", missing=True),
        TableColumn("constant", "number"),
        TableColumn("color", "category", values=("green", "red"), other=True),
        TableColumn("smokes", "boolean"),
        TableColumn("seen", "date"),
    )
)


@pytest.fixture(scope="module")
def encoder():
    return TableEncoder().fit_rows(SCHEMA, typed(age=np.linspace(20, 60, 500), constant=3, color="red"))


def typed(**columns):
    plain = {"smokes": "yes", "seen": "2024-01-01", **columns}
    return apply_schema(pd.DataFrame(plain), SCHEMA, name="rows")


def count(encoder, **columns):
    return {key: n for key, n in count_unfamiliar(typed(**columns), encoder).items() if n}


def test_numbers_are_counted_beyond_a_quarter_of_the_range(encoder):
    ages = [10.0, 9.99, 70.0, 70.01, 40.0, None, -1e300, np.inf]
    assert count(encoder, age=ages, constant=3, color="red") == {(NUMBERS, "age"): 4}
    assert count(encoder, age=[30.0, 40.0], constant=[3, 3.001], color="red") == {(NUMBERS, "constant"): 1}


def test_categories_outside_the_schema_are_counted(encoder):
    colors = ["green", "blue", None, "(other)"]
    assert count(encoder, age=30.0, constant=3, color=colors) == {(CATEGORIES, "color"): 2}


def test_rows_without_any_value_are_counted(encoder):
    columns = {"age": [None, None], "constant": None, "color": None, "smokes": None, "seen": [None, "2030-01-01"]}
    assert count(encoder, **columns) == {(EMPTY, ""): 1}


def test_long_lists_of_columns_are_shortened():
    assert describe(UnfamiliarCounts()) == describe(UnfamiliarCounts({(EMPTY, ""): 0})) == []
    many = UnfamiliarCounts({(NUMBERS, f"c{k}"): 1000 + k for k in range(8)})
    (note,) = describe(many)
    assert note.startswith(f"{NUMBERS}: 'c7' (1,007 rows), 'c6'")
    assert note.endswith("'c3' (1,003 rows) and 3 more columns.")
    assert describe(UnfamiliarCounts({(CATEGORIES, "\x1b[2J" + "x" * 99): 1}))[0].isprintable()
