"""Cells of new rows that cannot be read as the kind of their column are missing values, up to half of the column."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uulearn.exceptions import TableError, UnreadableCellsWarning
from uulearn.tabular import TableEncoder
from uulearn.tabular.schema import Schema, TableColumn, apply_schema, read_new_rows
from uulearn.tabular.unreadable import FEWEST_REFUSED, UnreadableCells, UnreadableCounter

SCHEMA = Schema(
    (
        TableColumn("n", "number", missing=True),
        TableColumn("b", "boolean"),
        TableColumn("d", "date", day_first=False),
        TableColumn("c", "category", values=("red",)),
    )
)
READABLE = {"n": ["1", "-2.5", 7, 0.5], "b": ["yes", "F", True], "d": ["2024-01-31", "01/02/2024"], "c": ["red", "new"]}
UNREADABLE = {
    "n": ["unknown", "12+", "1-2", "12,34,5", "x" * 99],
    "b": ["maybe", "x"],
    "d": ["soon", "31/31/2024", "2024-02-30"],
}
OF_ANOTHER_KIND = {"n": [True, "2024-01-31"], "b": ["1", 0, 2.5, "2024-01-31"], "d": [20240131, "yes"]}


def cells(name):
    return st.sampled_from([None, *READABLE[name], *READABLE[name], *UNREADABLE.get(name, [])])


rows = st.lists(st.fixed_dictionaries({name: cells(name) for name in READABLE}), min_size=1, max_size=30)


def table(own):
    return pd.DataFrame({name: pd.Series([row[name] for row in own], dtype=object) for name in READABLE})


def is_unreadable(name, value):
    return isinstance(value, str) and value in UNREADABLE.get(name, ())


def count(frame):
    counter = UnreadableCounter()
    counter.add(read_new_rows(frame, SCHEMA, name="new.csv").unreadable)
    return counter


@given(rows)
def test_unreadable_cells_are_like_empty_cells(own):
    found = read_new_rows(table(own), SCHEMA, name="new.csv")
    empty = [{name: None if is_unreadable(name, value) else value for name, value in row.items()} for row in own]
    pd.testing.assert_frame_equal(found.rows, apply_schema(table(empty), SCHEMA, name="new.csv"))
    assert set(found.unreadable) == {"n", "b", "d"}
    for name, counts in found.unreadable.items():
        assert counts.known == sum(row[name] is not None for row in own)
        assert counts.count == sum(is_unreadable(name, row[name]) for row in own)


@given(rows, st.integers(1, 7))
def test_chunks_have_the_same_counts_as_the_whole_table(own, size):
    frame, counter = table(own), UnreadableCounter()
    for start in range(0, len(frame), size):
        counter.add(read_new_rows(frame.iloc[start : start + size], SCHEMA, name="new.csv").unreadable)
    assert counter.columns == count(frame).columns
    assert counter.describe("new.csv") == count(frame).describe("new.csv")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in UNREADABLE for value in UNREADABLE[name] + OF_ANOTHER_KIND[name]]
)
def test_training_rows_must_be_readable(name, value):
    with pytest.raises(TableError, match=f"has .* in row 1, column '{name}', which is not"):
        apply_schema(table([dict.fromkeys(READABLE) | {name: value}]), SCHEMA, name="it")


@pytest.mark.parametrize(
    ("bad", "known", "refused"),
    [
        (FEWEST_REFUSED - 1, 9, False),
        (10, 10, True),
        (10, 20, False),
        (11, 20, True),
        (50, 100, False),
        (51, 100, True),
    ],
)
def test_most_values_of_a_column_must_be_readable(bad, known, refused):
    frame = table([{"n": "many" if row < bad else 3, "b": "yes", "d": None, "c": "red"} for row in range(known)])
    frame = pd.concat([frame, table([dict.fromkeys(READABLE)] * 40)], ignore_index=True)  # empty cells do not count
    counter = count(frame)
    assert counter.columns["n"].refused == refused
    if not refused:
        counter.check()
        return
    with pytest.raises(TableError) as caught:
        counter.check()
    assert str(caught.value) == (
        f"new.csv has 'many' in row 1, column 'n', which is not a number ({bad} of {known} values are not); check that "
        "this is the right column, write numbers with a decimal point and without separators, like 1234.5, and leave "
        "unknown values empty."
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n", "1,5", "'1,5' in row 31, column 'n', which is not a number; write numbers with a decimal point"),
        ("n", "12,345", "'12,345' in row 31"),
        ("n", "1 234,5", "'1 234,5' in row 31"),
        ("n", [1], "a list in row 31, column 'n', which is not a number"),
        ("c", {"a": 1}, "an object in row 31, column 'c', which is not a word[.]"),
        ("d", "31/12/2024", "'31/12/2024' in row 31, column 'd', which is not a date; write dates like 2024-12-31"),
        *(
            (name, value, "in row 31, column '.', which is not")
            for name, own in OF_ANOTHER_KIND.items()
            for value in own
        ),
    ],
)
def test_values_that_are_written_in_another_way_are_errors(name, value, message):
    """They are known, and the other values of the column may have been misread."""
    own = [{each: values[0] for each, values in READABLE.items()} for _ in range(31)]
    own[30][name], own[3]["n"] = value, "unknown"
    with pytest.raises(TableError, match=message):
        read_new_rows(table(own), SCHEMA, name="new.csv")


def test_types_of_other_columns_are_errors():
    moment = datetime.date(2024, 1, 31)
    for name, values in {"n": [moment], "b": pd.array([1], "Int64"), "d": [2.5]}.items():
        frame = table([dict.fromkeys(READABLE)]).assign(**{name: values})
        with pytest.raises(TableError, match=f"in row 1, column '{name}', which is not"):
            read_new_rows(frame, SCHEMA, name="it")


def test_the_first_unreadable_cell_of_a_categorical_column_is_shown():
    frame = table([{"n": value, "b": None, "d": None, "c": None} for value in ("1", "2", "unknown")])
    frame["n"] = frame["n"].astype("category")
    assert count(frame).columns["n"].example == "'unknown'"


def test_warning_names_counts_and_examples():
    frame = table([{"n": "12+", "b": "yes", "d": "soon", "c": "red"}, {"n": "13+", "b": "no", "d": None, "c": None}])
    assert count(frame).describe("new.csv") == (
        "new.csv: column 'n': 2 of 2 values are not numbers (for example '12+'); column 'd': 1 of 1 values is not a "
        "date (for example 'soon'). They are treated as missing values."
    )
    one = UnreadableCounter()
    assert one.describe("new.csv") is None
    one.add({"b": UnreadableCells("boolean", 5, 1, "it has 'maybe' in row 1", "'maybe'")})
    assert one.describe("X") == (
        "X: column 'b': 1 of 5 values is not yes or no (for example 'maybe'). It is treated as a missing value."
    )
    many = UnreadableCounter()
    many.add({f"c{k}": UnreadableCells("number", 2000, 1000 + k, "", "'a'") for k in range(8)})
    assert "column 'c4': 1,004 of 2,000 values are not numbers (for example 'a'); and 3 more columns. They" in (
        many.describe("X") or ""
    )


def test_encoder_treats_unreadable_cells_as_missing_only_in_new_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.normal(size=80), "b": rng.random(80) < 0.5}).astype(object)
    encoder = TableEncoder(kinds={"n": "number", "b": "boolean"}).fit(X)
    odd, empty = X.copy(), X.copy()
    odd.loc[5:7, "n"], odd.loc[9, "b"] = ["?", "12+", "none"], "unsure"
    empty.loc[5:7, "n"] = empty.loc[9, "b"] = None
    message = "X: column 'n': 3 of 80 values are not numbers .for example '[?]'.; column 'b': 1 of 80 values is not yes"
    with pytest.warns(UnreadableCellsWarning, match=message) as caught:
        np.testing.assert_array_equal(encoder.transform(odd), encoder.transform(empty))
    assert caught[0].filename == __file__
    with pytest.warns(UnreadableCellsWarning):
        np.testing.assert_array_equal(encoder.transform(odd[5:6]), encoder.transform(empty[5:6]))
    for fit in (encoder.fit, encoder.fit_transform):
        with pytest.raises(TableError, match="X has '[?]' in row 6, column 'n', which is not a number; write"):
            fit(odd)


def test_rows_that_did_not_fit_the_encoder_are_training_rows_too(monkeypatch):
    monkeypatch.setattr("uulearn.tabular.encoder.ENCODER_ROWS", 10)
    X = pd.DataFrame({"n": [*range(100), "12+"], "m": np.arange(101) % 7})
    encoder = TableEncoder(kinds={"n": "number"})
    assert 100 not in np.random.default_rng([0, 0, 5]).choice(101, 10, replace=False)
    with pytest.raises(TableError, match="X has '12[+]' in row 101, column 'n'"):
        encoder.fit_transform(X)
