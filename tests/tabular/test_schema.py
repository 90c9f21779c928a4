"""The kinds of columns over all rows of two files, and the conversion of rows."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from uulearn.exceptions import TableError
from uulearn.tabular.cells import (
    BOOLEAN,
    DAY_FIRST,
    EITHER,
    KNOWN,
    MONTH_FIRST,
    NUMBER,
    UNREADABLE,
    WORD,
    compact,
    parse_cells,
    parse_dates,
)
from uulearn.tabular.schema import LARGEST_CELL, OTHER, SMALLEST_CELL, Schema, TableColumn, apply_schema
from uulearn.tabular.survey import FIRST_CELLS, MAX_CATEGORIES, ColumnSummary, Survey, check_columns


def survey(first, second, *, chunk=None, **options):
    """Survey two tables, dicts or frames, in chunks."""
    seen = Survey(**options)
    for which, table in enumerate((first, second)):
        frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(table)
        for start in range(0, max(1, len(frame)), chunk or max(1, len(frame))):
            seen.add(frame.iloc[start : start + (chunk or len(frame))], which)
    return seen.finish()


def column_of(values, more=None):
    """Return the column of these values in both files, next to a column that is never dropped, and the notes."""
    more = values if more is None else more
    schema, notes = survey(
        {"it": pd.Series(values), "beside": np.arange(len(values)) % 7 + 0.5},
        {"it": pd.Series(more), "beside": np.arange(len(more)) % 5 + 0.25},
    )
    return {column.name: column for column in schema.columns}.get("it"), notes, schema.left_out.get("it")


def refusal(first, second, **options):
    with pytest.raises(TableError) as caught:
        survey(first, second, **options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


# ------------------------------------------------------------------------------------------------------------- cells


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-3.5", -3.5),
        ("+.5", 0.5),
        ("1e-3", 1e-3),
        ("1.", 1),
        (" 7 ", 7),
        ("inf", np.inf),
        ("-INF", -np.inf),
        ("12%", 0.12),
        ("-4.5 %", -0.045),
        ("$1,234.50", 1234.5),
        ("-$1,234,567", -1234567),
        ("£ 5", 5),
    ],
)
def test_parses_numbers_as_text(text, number):
    cells = parse_cells(pd.Series([text]))
    assert cells.kinds.tolist() == [NUMBER]
    assert cells.numbers[0] == number


def test_a_zero_next_to_percentages_is_a_number():
    assert column_of(["45%", "0", "3.5%"])[0].kind == "number"
    assert column_of(["45%", "45", "much"])[0].kind == "category"  # words are not compared as numbers


def test_rows_with_and_without_percent_signs_are_not_converted():
    schema = Schema((TableColumn("fat", "number"),))
    with pytest.raises(
        TableError, match=r"new\.csv has numbers with and without a percent sign in column 'fat'; write"
    ):
        apply_schema(pd.DataFrame({"fat": ["45%", "45", "45"]}), schema, name="new.csv")
    assert apply_schema(pd.DataFrame({"fat": ["45%", None]}), schema, name="new.csv")["fat"].iloc[0] == 0.45


@pytest.mark.parametrize(
    "text",
    [
        "1,234",
        "3,5",
        "1_000",
        "0x1f",
        "12,5%",
        "$12,34",
        "€1.234",
        "1.2.3",
        "e5",
        "--1",
        "1e",
        "١٢",
        "nan",
        "2020-13-01",
        "a",
    ],
)
def test_parses_words(text):
    assert parse_cells(pd.Series([text])).kinds.tolist() == [WORD]


@pytest.mark.parametrize(("text", "truth"), [("true", 1), ("FALSE", 0), ("Yes", 1), ("n", 0), ("T", 1), ("f", 0)])
def test_parses_booleans_as_text(text, truth):
    cells = parse_cells(pd.Series([text]))
    assert cells.kinds.tolist() == [BOOLEAN]
    assert cells.numbers.tolist() == [truth]


@pytest.mark.parametrize(
    ("text", "moment", "order"),
    [
        ("2024-12-31", "2024-12-31", KNOWN),
        ("2024/1/2", "2024-01-02", KNOWN),
        ("2024-12-31T23:59:59.25Z", "2024-12-31T23:59:59.25", KNOWN),
        ("2024-12-31 23:30-02:00", "2025-01-01T01:30", KNOWN),
        ("2024-12-31 10:00+0530", "2024-12-31T04:30", KNOWN),
        ("31.12.2024", "2024-12-31", KNOWN),
        ("1 Sept 2024", "2024-09-01", KNOWN),
        ("31-Dec-2024", "2024-12-31", KNOWN),
        ("December 31, 2024 12:05 AM", "2024-12-31T00:05", KNOWN),
        ("Dec 31 2024 1:05pm", "2024-12-31T13:05", KNOWN),
        ("03/04/2024", "2024-04-03", EITHER),
        ("04/04/2024", "2024-04-04", KNOWN),
        ("25/04/2024", "2024-04-25", DAY_FIRST),
        ("04/25/2024", "NaT", MONTH_FIRST),
        ("29.02.2023", "NaT", KNOWN),
        ("30 Nov 2024 24:00", "NaT", KNOWN),
        ("2024-12-31 10:00+99:00", "NaT", KNOWN),
        ("13/13/2024", "NaT", KNOWN),
        ("31 Foo 2024", "NaT", KNOWN),
    ],
)
def test_parses_dates_as_text(text, moment, order):
    moments, orders = parse_dates(pa.array([text]), day_first=True)
    assert str(moments[0]) == str(np.datetime64(moment, "us"))
    assert orders.tolist() == [order]


@given(st.datetimes(min_value=datetime.datetime(1, 1, 1)), st.sampled_from(["T", " "]))
def test_every_iso_date_is_read(moment, between):
    moments, _ = parse_dates(pa.array([moment.isoformat(between), moment.date().isoformat()]), day_first=True)
    assert moments.tolist() == [moment, datetime.datetime.combine(moment.date(), datetime.time())]


@given(st.dates(min_value=datetime.date(1000, 1, 1), max_value=datetime.date(2999, 12, 31)), st.booleans())
def test_day_first_decides_dates_with_slashes(day, day_first):
    text = f"{day.day}/{day.month}/{day.year}" if day_first else f"{day.month}/{day.day}/{day.year}"
    moments, _ = parse_dates(pa.array([text]), day_first=day_first)
    assert moments[0].item().date() == day


ONE_AND_TWO = {
    "text": pd.Series(["1", "2", None], dtype=object),
    "pandas string": pd.Series(["1", " 2", ""], dtype="string"),
    "str": pd.Series(["1", "2", None]),
    "float": pd.Series([1.0, 2.0, np.nan]),
    "nullable integer": pd.Series([1, 2, None], dtype="Int64"),
    "unsigned": pd.Series([1, 2, None], dtype="UInt8"),
    "arrow integer": pd.Series([1, 2, None], dtype="int32[pyarrow]"),
    "arrow string": pd.Series(["1", "2", None], dtype=pd.ArrowDtype(pa.string())),
    "arrow dictionary": pd.Series(["1", "2", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
    "decimal": pd.Series([decimal.Decimal(1), decimal.Decimal(2), None], dtype=object),
    "arrow decimal": pd.Series(
        [decimal.Decimal(1), decimal.Decimal(2), None], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
    ),
    "category of numbers": pd.Series([1, 2, None], dtype="category"),
    "category of text": pd.Series(["1", "2", None], dtype="category"),
    "category with a blank": pd.Series(["1", "2", ""], dtype="category"),
    "duration": pd.Series(pd.to_timedelta([1, 2, None], unit="s")),
    "mixed objects": pd.Series([1, "2", float("nan")], dtype=object),
}


@pytest.mark.parametrize("name", ONE_AND_TWO)
def test_parses_numbers_of_every_type(name):
    frame = apply_schema(pd.DataFrame({"x": ONE_AND_TWO[name]}), Schema((TableColumn("x", "number"),)), name="it")
    np.testing.assert_array_equal(frame["x"], [1.0, 2.0, np.nan])
    assert frame["x"].dtype == np.float64


YES_AND_NO = {
    "text": pd.Series(["yes", "No", None], dtype=object),
    "bool": pd.Series([True, False, None], dtype=object),
    "nullable": pd.Series([True, False, None], dtype="boolean"),
    "arrow": pd.Series([True, False, None], dtype="bool[pyarrow]"),
    "category": pd.Series([True, False, None], dtype="category"),
}


@pytest.mark.parametrize("name", YES_AND_NO)
def test_parses_booleans_of_every_type(name):
    frame = apply_schema(pd.DataFrame({"x": YES_AND_NO[name]}), Schema((TableColumn("x", "boolean"),)), name="it")
    np.testing.assert_array_equal(frame["x"], [1.0, 0.0, np.nan])


NOON = datetime.datetime(2024, 5, 6, 12)
MOMENTS = {
    "text": pd.Series(["2024-05-06 12:00", None]),
    "zone": pd.Series(pd.to_datetime(["2024-05-06 14:00+02:00", None])),
    "nanoseconds": pd.Series(pd.to_datetime(["2024-05-06 12:00", None])).astype("datetime64[ns]"),
    "arrow": pd.Series([NOON, None], dtype=pd.ArrowDtype(pa.timestamp("ms"))),
    "arrow zone": pd.Series(
        [NOON.replace(tzinfo=datetime.UTC), None], dtype=pd.ArrowDtype(pa.timestamp("us", "Asia/Tokyo"))
    ),
    "objects": pd.Series([NOON, None], dtype=object),
    "timestamps": pd.Series([pd.Timestamp(NOON), pd.NaT], dtype=object),
    "numpy objects": pd.Series([np.datetime64(NOON), np.datetime64("NaT")], dtype=object),
    "aware objects": pd.Series([NOON.replace(tzinfo=datetime.UTC), None], dtype=object),
    "category": pd.Series([NOON, None], dtype="category"),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_parses_dates_of_every_type(name):
    frame = apply_schema(pd.DataFrame({"x": MOMENTS[name]}), Schema((TableColumn("x", "date"),)), name="it")
    assert frame["x"].tolist() == [pd.Timestamp(NOON), pd.NaT]
    assert frame["x"].dtype == "datetime64[us]"


def test_parses_arrow_dates_without_time():
    days = pd.Series([datetime.date(2024, 5, 6), None], dtype=pd.ArrowDtype(pa.date32()))
    frame = apply_schema(pd.DataFrame({"x": days}), Schema((TableColumn("x", "date"),)), name="it")
    assert frame["x"].tolist() == [pd.Timestamp("2024-05-06"), pd.NaT]


def test_huge_numbers_are_clipped_and_tiny_ones_are_zero():
    frame = pd.DataFrame({"x": ["inf", "-1e400", "1e-320", "-0"]})
    cut = apply_schema(frame, Schema((TableColumn("x", "number"),)), name="it")["x"]
    assert cut.tolist() == [LARGEST_CELL, -LARGEST_CELL, 0.0, 0.0]
    assert apply_schema(pd.DataFrame({"x": [SMALLEST_CELL]}), Schema((TableColumn("x", "number"),)), name="it")[
        "x"
    ].tolist() == [SMALLEST_CELL]
    huge = pd.DataFrame({"x": pd.Series([10**400, -(10**400)], dtype=object)})
    assert apply_schema(huge, Schema((TableColumn("x", "number"),)), name="it")["x"].tolist() == [
        LARGEST_CELL,
        -LARGEST_CELL,
    ]


# ------------------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", None], "number"),
        (["0", "1", "0"], "number"),
        (["yes", "no", "y"], "boolean"),
        (["2024-01-01", "31.12.2024"], "date"),
        (["red", "blue"] * 6, "category"),
        ([f"{number:03d} main street" for number in range(60)], "text"),
        ([1, "2", 3.5], "number"),
        ([True, None, False], "boolean"),
        ([True, "no"], "boolean"),
        (["m", "f"] * 6, "category"),
        (["f", "f", "x"] * 4, "category"),
    ],
)
def test_columns_have_the_expected_kind(values, kind):
    column, notes, _ = column_of(pd.Series(values, dtype=object))
    assert column.kind == kind
    assert column.missing == (None in values)
    assert notes == ([] if kind != "text" else notes)


def test_kind_depends_on_all_rows_of_both_files():
    values = [str(number) for number in range(5000)]
    column, _, _ = column_of(values, [*values[:-1], "4999.5"])
    assert column.kind == "number"
    message = refusal({"x": values}, {"x": [*values[:-1], "soon"]}, chunk=700)
    assert message == (
        "column 'x' is a number in the first file ('0' in row 1) but the second file has 'soon' in row 5000; leave "
        "unknown values empty, or drop the column (--drop x)."
    )


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (["1", "2"], ["1", "1,234"], ("a number in a.csv", "'1,234' in row 2", "without separators, like 1234.5")),
        (["soon", "later"], ["4", "5"], ("a number in b.csv ('4' in row 1)", "a.csv has 'soon' in row 1")),
        (["1", "0"], ["yes", "no"], ("a number in a.csv", "'yes' in row 1", "use one format in both files")),
        (["2024-01-01"], ["2024"], ("a date in a.csv", "b.csv has '2024'", "use one format in both files")),
        (["2024-01-01"], ["2024-01-02", "x"], ("a date in a.csv", "b.csv has 'x' in row 2")),
        ([1.0, 2.0], ["a", "b"], ("a number in a.csv", "'a'")),
        (
            ["45%", "45"],
            ["1%"],
            ("percent sign ('45%' in row 1 of a.csv)", "without it ('45' in row 2 of a.csv); write"),
        ),
        (
            [45.0, 0.5],
            ["45%"],
            ("percent sign ('45%' in row 1 of b.csv)", "without it ('45' in row 1 of a.csv)", "--drop"),
        ),
        (["13/1/2024"], ["1/13/2024"], ("day first ('13/1/2024' in row 1 of a.csv)", "month first", "2024-12-31")),
        (["1/1/2024", "13/1/2024", "1/13/2024"], ["1/2/2024"], ("row 2 of a.csv", "row 3 of a.csv")),
    ],
)
def test_rejects_columns_that_differ_between_the_files(first, second, parts):
    message = refusal({"my x": first}, {"my x": second}, files=("a.csv", "b.csv"))
    assert "--drop 'my x'" in message
    for part in parts:
        assert part in message


GRADES = ["9"] * 20 + ["10"] * 20 + ["11.0"] * 20 + ["other"] * 10


@settings(max_examples=30, deadline=None)
@given(st.permutations(GRADES), st.integers(11, 59))
@example(GRADES, 25)  # the first file has numbers only
@example(GRADES[::-1], 45)
def test_numbers_with_a_few_words_are_a_category_in_whichever_file_the_words_are(grades, cut):
    column, notes, _ = column_of(grades[:cut], grades[cut:])
    assert (column.kind, column.values) == ("category", ("10", "11", "9", "other"))
    assert notes[0].startswith("Column 'it' is used as category, because not every cell is a number ('other' in row")


@pytest.mark.parametrize("words", [["other"] * 40, [*map(str, range(60)), "other", "other"]], ids=["no number", "many"])
def test_words_for_numbers_are_rejected_if_the_column_is_no_category(words):
    numbers = [str(number % 60) for number in range(200)]
    message = refusal({"grade": numbers}, {"grade": words}, files=("a.csv", "b.csv"))
    assert "column 'grade' is a number in a.csv ('0' in row 1) but b.csv has 'other'" in message
    assert message.endswith("leave unknown values empty, or drop the column (--drop grade).")


def test_error_names_all_columns_that_differ():
    assert "; the same applies to 'y' and 'z'." in refusal(
        {"x": ["1"], "y": ["1"], "z": ["2024-01-01"]}, {"x": ["a"], "y": ["b"], "z": ["c"]}
    )


def test_words_that_are_only_yes_and_no_in_one_file_are_words():
    column, _, _ = column_of(["yes", "no"] * 6, ["yes", "no", "unknown"] * 6)
    assert (column.kind, set(column.values)) == ("category", {"yes", "no", "unknown"})


def test_column_that_is_empty_in_one_file_has_the_kind_of_the_other():
    column, _, _ = column_of(["1", "2"], [None, None])
    assert (column.kind, column.missing) == ("number", True)


@pytest.mark.parametrize("order", [True, False])
def test_whole_column_decides_the_order_of_day_and_month(order):
    sure = "25/04/2024" if order else "04/25/2024"
    column, notes, _ = column_of(["03/04/2024", "05/06/2024"], ["03/04/2024", sure])
    assert (column.kind, column.day_first, notes) == ("date", order, [])
    frame = apply_schema(pd.DataFrame({"it": ["03/04/2024"]}), Schema((column,)), name="it")
    assert frame["it"][0] == pd.Timestamp(2024, 4, 3) if order else pd.Timestamp(2024, 3, 4)


def test_notes_unknown_order_of_day_and_month():
    column, notes, _ = column_of(["03/04/2024", "05/06/2024"])
    assert column.day_first
    assert len(notes) == 1
    assert "'03/04/2024'" in notes[0]
    assert "the day is assumed to come first" in notes[0]


def test_detects_times_of_day():
    assert not column_of(["2024-01-01", "2024-01-02 00:00"])[0].clock
    assert column_of(["2024-01-01", "2024-01-02 00:01"])[0].clock


def test_rejects_ambiguous_separators_in_numbers():
    numbers = [*range(100), *(f"{number},500" for number in range(100))]
    with pytest.raises(TableError, match=r"column 'it' of the first file has numbers such as '0,500' in row 101"):
        column_of(numbers)
    column, notes, _ = column_of([*numbers, "unknown"])
    assert column.kind == "text"
    assert len([note for note in notes if "separators or a decimal comma (such as '0,500')" in note]) == 1


@pytest.mark.parametrize(("mostly", "what"), [("12.5", "number"), ("2024-01-01", "date")])
def test_notes_a_few_words_among_numbers_or_dates(mostly, what):
    column, notes, _ = column_of([mostly] * 30 + ["unknown"] + [mostly] * 30)
    assert column.kind == "category"
    assert notes == [
        f"Column 'it' is used as category, because not every cell is a {what} ('unknown' in row 31); leave such "
        f"cells empty to use it as a {what}."
    ]


def test_rare_categories_are_other():
    values = ["a"] * 4000 + ["b"] * 3000 + ["c"] * 10 + ["d"] * 4
    column, _, _ = column_of(values, ["a", "b"])
    assert (column.values, column.other) == (("a", "b", "c"), True)
    frame = apply_schema(pd.DataFrame({"it": ["a", "d", "new", None]}), Schema((column,)), name="it")
    assert frame["it"].tolist() == ["a", OTHER, OTHER, np.nan]
    assert frame["it"].cat.categories.tolist() == ["a", "b", "c", OTHER]


@pytest.mark.parametrize(
    ("distinct", "each", "kind"),
    [
        (50, 6, "category"),
        (51, 6, "text"),
        (51, 100, "category"),
        (200, 100, "category"),
        (201, 100, "text"),
        (30, 1, "text"),
    ],
)
def test_number_of_categories_is_limited(distinct, each, kind):
    column, _, _ = column_of([f"a {number}" for number in range(distinct)] * each, ["a 0"])
    assert column.kind == kind


def test_mostly_unique_values_are_text():
    assert column_of(["x y"] * 10 + [f"z {number}" for number in range(30)], ["x y"])[0].kind == "text"


def test_numbers_among_categories_are_compared_by_value():
    values = pd.Series([1, 1.0, "1", "1.0", "x", "y"] * 5, dtype=object)
    column, _, _ = column_of(values)
    assert set(column.values) == {"1", "x", "y"}
    frame = apply_schema(pd.DataFrame({"it": values}), Schema((column,)), name="it")
    assert (frame["it"][:4] == "1").all()


@pytest.mark.parametrize(
    ("text", "long"), [("ward {}", False), ("a patient who came in on day {} and was sent home", True)]
)
def test_distinguishes_long_and_short_text(text, long):
    assert column_of([text.format(number) for number in range(300)])[0].long == long


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([None] * 4, "no row has a value"),
        (["", " ", None, ""], "no row has a value"),
        (["x"] * 4, "every row has the same value"),
        (["1", "1.0", "1e0", "1"], "every row has the same value"),
        (["yes", "y", "TRUE", "t"], "every row has the same value"),
    ],
)
def test_columns_without_information_are_dropped(values, why):
    column, notes, left_out = column_of(values)
    assert column is None
    assert left_out == why
    assert notes == [f"Column 'it' is dropped: {why}."]


def test_one_value_with_missing_cells_is_kept():
    column, _, _ = column_of(["x", None, "x", "x"])
    assert (column.kind, column.values, column.missing) == ("category", ("x",), True)


def test_copies_are_dropped_and_near_copies_are_kept():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    near = x.copy()
    near[-1] += 1e-9
    frame = pd.DataFrame({"x": x, "copy": x, "near": near, "words": x.astype(str), "shuffled": x[::-1]})
    for chunk in (71, None):
        schema, notes = survey(frame, frame, chunk=chunk)
        assert schema.names == ["x", "near", "shuffled"]
        assert notes == ["Columns 'copy' and 'words' are dropped: a copy of 'x'."]


def test_similar_notes_are_merged():
    frame = pd.DataFrame({f"c{number}": [number] * 5 for number in range(300)} | {"x": [1, 2, 3, 4, 5]})
    _, notes = survey(frame, frame)
    assert notes == ["Columns 'c0', 'c1', 'c2', 'c3', 'c4' and 295 more are dropped: every row has the same value."]


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (range(100), range(100, 200), "dropped"),
        (range(0, 10_000, 100), range(10_000, 20_000, 100), "noted"),  # could be a column by which the files are sorted
        (np.random.default_rng(0).permutation(200)[:100], range(200, 300), "dropped"),
        (np.random.default_rng(0).permutation(100)[:50], range(100, 150), "noted"),
        (np.random.default_rng(0).choice(10**9, 100, replace=False), range(10**9, 10**9 + 100), None),
        (range(100), range(100), "dropped"),  # each file numbers its own rows
        ([7, *range(99)], [7, *range(99)], None),
        ([f"p{n:04x}" for n in range(100)], [f"p{n:04x}" for n in range(100)], "dropped"),
        (np.arange(100) + 0.5, np.arange(100, 200) + 0.5, None),
        ([f"p{n:04x}" for n in range(100)], [f"q{n:04x}" for n in range(100)], "dropped"),
        ([f"CC(=O)OC1=CC=CC={n:04x}" for n in range(100)], [f"CCN1C=NC2={n:09x}" for n in range(100)], "noted"),
        ([f"note {n}" for n in range(100)], [f"remark {n}" for n in range(100)], None),
        (range(5), range(5, 10), None),
    ],
)
def test_drops_or_notes_identifiers(first, second, found):
    frames = [pd.DataFrame({"it": list(own), "x": np.arange(len(own)) % 3}) for own in (first, second)]
    schema, notes = survey(*frames)
    assert any("--id" in note for note in notes) == (found is not None)
    assert schema.names == (["x"] if found == "dropped" else ["it", "x"])
    assert survey(*frames, only=["it", "x"])[0].names == ["it", "x"]


# ----------------------------------------------------------------------------------------------------------- columns


def test_options_drop_ids_and_only_select_columns():
    frame = pd.DataFrame({"a": [1, 2], "b": [2, 5], "c": [3, 1], "d": [1, 9]})
    schema, _ = survey(frame, frame[["d", "c", "b", "a"]], drop=["a"], ids=["b"])
    assert (schema.names, schema.ids, schema.left_out) == (["c", "d"], ("b",), {"a": "dropped by --drop"})
    schema, _ = survey(frame, frame, only=["d", "a"], ids=["b"])
    assert (schema.names, schema.ids, schema.left_out) == (["a", "d"], ("b",), {"c": "not named by --only"})


def test_dropped_column_may_have_any_content():
    first = {"a": [1, 2], "b": [[1], {}]}
    assert survey(first, {"a": [1, 3]}, drop=["b"])[0].names == ["a"]


@pytest.mark.parametrize(
    ("first", "second", "options", "parts"),
    [
        ("ab", "ab", {"drop": ["ba"]}, ("--drop names the column 'ba', which neither file has", "'a' and 'b'")),
        (["Weight", "b"], ["Weight", "b"], {"only": ["wieght"]}, ("--only", "(did you mean 'Weight'?)")),
        ("ab", "ab", {"ids": ["x", "y"]}, ("--id names the columns 'x' and 'y'",)),
        ("ab", "a", {}, ("only the first file has the column 'b'", "--drop b")),
        ("a", ["a", "c d"], {}, ("only the second file has the column 'c d'", "--drop 'c d'")),
        (["a", "wieght"], ["a", "weight"], {}, ("'weight' (the first file has 'wieght' instead);",)),
        ("abcdef", "a", {}, ("'b', 'c', 'd', 'e' and 'f'", "--drop b --drop c --drop d …")),
        ("ab", "ab", {"drop": ["a", "b"]}, ("no column is left",)),
        ("ab", "ab", {"drop": ["a"], "ids": ["a"]}, ("--drop and --id both name 'a'",)),
        ("ab", "ab", {"drop": ["a"], "only": ["a"]}, ("--only and --drop both name 'a'",)),
        ("aab", "ab", {}, ("the first file has two columns named 'a'",)),
        (["a", 3], "ab", {}, ("the first file has a column named 3",)),
        ("ab", ["a", ""], {}, ("the second file has a column named ''",)),
    ],
)
def test_rejects_columns_that_do_not_match(first, second, options, parts):
    with pytest.raises(TableError) as caught:
        check_columns((list(first), list(second)), **options)
    for part in parts:
        assert part in str(caught.value)


def test_columns_are_checked_as_soon_as_both_files_are_open():
    seen = Survey()
    seen.add(pd.DataFrame({"a": [1]}), 0)
    with pytest.raises(TableError, match="only the second file has the column 'b'"):
        seen.add(pd.DataFrame({"a": [1], "b": [2]}), 1)


def test_rejects_columns_that_change():
    seen = Survey()
    seen.add(pd.DataFrame({"a": [1]}), 0)
    with pytest.raises(TableError, match="the columns of the first file change"):
        seen.add(pd.DataFrame({"b": [1]}), 0)


def test_rejects_files_without_rows():
    assert "the second file has no rows" in refusal({"a": [1]}, {"a": []})
    seen = Survey()
    with pytest.raises(TableError, match="the first file has no rows"):
        seen.finish()


def test_rejects_table_without_information():
    assert refusal({"a": [1, 1]}, {"a": [1]}).startswith("no column is left for training: Column 'a' is dropped")


@pytest.mark.parametrize(("cell", "name"), [([1], "a list"), ({"a": 1}, "an object"), (datetime.time(1), "a time")])
def test_rejects_lists_and_objects_as_cells(cell, name):
    values = pd.Series([1, cell], dtype=object)
    assert parse_cells(values).kinds.tolist()[-1] == UNREADABLE
    message = refusal({"x": values}, {"x": [1]})
    assert message.startswith(f"the first file has {name} in row 2, column 'x'")


def test_accepts_files_of_one_row():
    schema, _ = survey({"x": ["1"], "w": ["a"], "s": ["yes"]}, {"x": ["3"], "w": ["b"], "s": ["no"]})
    assert [column.kind for column in schema.columns] == ["number", "category", "boolean"]


def test_accepts_two_thousand_columns_with_unusual_names():
    rng = np.random.default_rng(0)
    names = [
        f"{letter} {number}"
        for number in range(250)
        for letter in ("x", "größe", "年", "😀", "a__b", "remainder", "text 0", "-")
    ]
    first, second = (pd.DataFrame(rng.normal(size=(5, 2000)), columns=names) for _ in range(2))
    schema, notes = survey(first, second[names[::-1]])
    assert schema.names == names
    assert notes == []


# ------------------------------------------------------------------------------------------------- chunks and counts

cells = st.one_of(
    st.none(),
    st.integers(-5, 5).map(str),
    st.floats(allow_nan=False).map(str),
    st.sampled_from(["yes", "no", "2024-01-01", "31/12/2024", "1,5", "", " a ", "a"]),
    st.text(max_size=5),
)


@settings(max_examples=25)
@given(st.lists(cells, min_size=1, max_size=30), st.lists(cells, min_size=1, max_size=30), st.integers(1, 7))
def test_chunks_do_not_change_the_result(first, second, chunk):
    tables = [
        pd.DataFrame({"x": pd.Series(v, dtype=object), "beside": np.arange(len(v)) + 0.5}) for v in (first, second)
    ]

    def outcome(size):
        try:
            return survey(*tables, chunk=size)
        except TableError as error:
            return str(error)

    whole = outcome(None)
    assert whole == outcome(chunk)
    if isinstance(whole, tuple):
        schema, _ = whole
        together = apply_schema(tables[0], schema, name="it")
        pieces = [apply_schema(tables[0].iloc[s : s + chunk], schema, name="it") for s in range(0, len(first), chunk)]
        pd.testing.assert_frame_equal(pd.concat(pieces), together)
        assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


@given(st.lists(cells, min_size=1, max_size=60))
def test_counts_agree_with_pandas(values):
    summary = ColumnSummary()
    column = pd.Series(values, dtype=object)
    summary.add(parse_cells(column), 0)
    plain = column.map(lambda cell: cell.strip() or None if isinstance(cell, str) else None)
    assert summary.missing.tolist() == [plain.isna().sum(), 0]
    assert summary.kinds.sum() == plain.notna().sum()
    numbers = pd.to_numeric(plain[plain.map(lambda cell: cell is not None and _is_float(cell))])
    assert summary.kinds[0, NUMBER] == len(numbers)
    if len(numbers) and not summary.kinds[0, BOOLEAN]:
        assert (summary.low, summary.high) == (numbers.min(), numbers.max())


def _is_float(cell):
    """Return whether Python reads a number, except for spellings that only Python knows."""
    try:
        number = float(cell)
    except ValueError:
        return False
    return not np.isnan(number) and cell.isascii() and "_" not in cell


@pytest.mark.parametrize("distinct", [1, MAX_CATEGORIES, MAX_CATEGORIES + 1])
def test_distinct_values_are_counted_exactly_up_to_a_limit(distinct):
    rows = [f"v{number % distinct}" for number in range(3 * distinct)]
    summary = ColumnSummary()
    for which in (0, 1):
        for start in range(0, len(rows), 70):
            summary.add(parse_cells(pd.Series(rows[start : start + 70])), which)
    if distinct > MAX_CATEGORIES:
        assert summary.value_counts is None
        assert summary.n_distinct == np.inf
    else:
        assert summary.value_counts == {f"v{number}": 6 for number in range(distinct)}
    assert not summary.all_different


def test_memory_does_not_grow_with_the_rows():
    summary = ColumnSummary()
    for start in range(0, 20_000, 4000):
        summary.add(parse_cells(pd.Series([f"text {number}" for number in range(start, start + 4000)])), 0)
    assert summary.value_counts is None
    assert sum(map(len, summary._first[0])) == FIRST_CELLS
    assert summary.all_different


@given(st.lists(cells, min_size=1, max_size=40))
def test_compact_columns_have_the_same_values(values):
    frame = pd.DataFrame({"x": pd.Series(values * 20, dtype="str")})
    plain, compacted = parse_cells(frame["x"]), parse_cells(compact(frame)["x"])
    for left, right in ((plain, compacted), (plain, parse_cells(frame["x"], keep_text=False))):
        assert [left.labels[code] if code >= 0 else None for code in left.codes] == [
            right.labels[code] if code >= 0 else None for code in right.codes
        ]


# ------------------------------------------------------------------------------------------------------------- typed

SCHEMA = Schema(
    (
        TableColumn("n", "number"),
        TableColumn("b", "boolean"),
        TableColumn("c", "category", values=("red", "blue")),
        TableColumn("d", "date", day_first=False),
        TableColumn("t", "text"),
    )
)
ROW = {"n": "1", "b": "yes", "c": "red", "d": "2024-01-01", "t": "hello"}


@pytest.mark.parametrize(
    ("column", "cell", "parts"),
    [
        ("n", "1,5", ("'1,5' in row 12, column 'n'", "not a number", "1234.5")),
        ("n", True, ("true' in row 12",)),
        ("b", "maybe", ("'maybe' in row 12, column 'b'", "yes or no")),
        ("b", "1", ("'1' in row 12",)),
        ("d", "soon", ("'soon' in row 12, column 'd'", "2024-12-31")),
        ("d", "31/12/2024", ("'31/12/2024' in row 12",)),
        ("c", [1], ("has a list in row 12, column 'c'",)),
        ("n", "x" * 500, ("xxx…' in row 12",)),
    ],
)
def test_rejects_cells_of_another_kind(column, cell, parts):
    frame = pd.DataFrame(
        {name: pd.Series([value] * 3, dtype=object) for name, value in ROW.items()}, index=[10, 11, 12]
    )
    frame.at[11, column] = cell
    with pytest.raises(TableError) as caught:
        apply_schema(frame, SCHEMA, name="new.csv")
    assert str(caught.value).startswith("new.csv has ")
    for part in parts:
        assert part in str(caught.value)


def test_rejects_missing_columns_and_ignores_extra_ones():
    frame = pd.DataFrame([ROW | {"more": "x"}])
    result = apply_schema(frame, SCHEMA, name="new.csv")
    assert result.columns.tolist() == SCHEMA.names
    assert result["t"].tolist() == ["hello"]
    with pytest.raises(TableError, match="new.csv lacks the columns 'n' and 't' .did you mean 'N'..; it must"):
        apply_schema(frame.rename(columns={"n": "N", "t": "other"}), SCHEMA, name="new.csv")


def test_converts_an_empty_table():
    frame = apply_schema(pd.DataFrame([ROW]).iloc[:0], SCHEMA, name="it")
    assert frame.shape == (0, 5)
    assert frame.dtypes.astype(str).tolist() == ["float64", "float64", "category", "datetime64[us]", "object"]


def test_row_is_its_position_if_the_index_is_not_a_number():
    with pytest.raises(TableError, match="in row 2, column 'n'"):
        apply_schema(pd.DataFrame([ROW, ROW | {"n": "x"}], index=["a", "b"]), SCHEMA, name="it")


def test_half_a_surrogate_pair_is_replaced():
    schema = Schema((TableColumn("t", "text"),))
    assert apply_schema(pd.DataFrame({"t": pd.Series(["a\ud800"], dtype=object)}), schema, name="it")["t"].tolist() == [
        "a?"
    ]


# ------------------------------------------------------------------------------------------------------------ schema


def test_schema_round_trip():
    columns = (*SCHEMA.columns, TableColumn("größe", "number", missing=True), TableColumn("e[0]", "number"))
    schema = Schema(columns, ("id",), {"x": "a copy of 'n'", "e[1]": "dropped by --drop"}, {"e": 2})
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict(), ensure_ascii=False))) == schema


GOOD = SCHEMA.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: [], "a schema must be an object, got list"),
        (lambda data: data | {"format_version": 1}, "format_version is 1, expected 2"),
        (lambda data: data | {"extra": 1}, "a schema must not have 'extra'"),
        (lambda data: {key: value for key, value in data.items() if key != "ids"}, "a schema must have ids"),
        (lambda data: data | {"columns": {}}, "columns must be a list"),
        (lambda data: data | {"columns": []}, "must have at least one column"),
        (lambda data: data | {"columns": [1]}, "a column must be an object, got int"),
        (lambda data: data | {"columns": [{"name": "x"}]}, "a column must have kind"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "image"}]}, "has kind 'image'"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "number", "code": "x"}]}, "must not have 'code'"),
        (lambda data: data | {"columns": [{"name": 3, "kind": "number"}]}, "must have a name, got 3"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "number", "missing": 1}]}, "missing of column 'x'"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "category"}]}, "categories need values"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "number", "values": ["a"]}]}, "categories need values"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "category", "values": "ab"}]}, "must be a list"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "category", "values": [1]}]}, "must be strings"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "category", "values": ["a", "a"]}]}, "must be unique"),
        (lambda data: data | {"columns": [{"name": "x", "kind": "category", "values": [OTHER]}]}, "must not contain"),
        (lambda data: data | {"columns": data["columns"] * 2}, "occurs twice"),
        (lambda data: data | {"ids": ["n"]}, "'n'. occurs twice"),
        (lambda data: data | {"ids": [1]}, "ids must be column names"),
        (lambda data: data | {"left_out": {"x": 1}}, "left_out must map"),
        (lambda data: {key: value for key, value in data.items() if key != "lists"}, "a schema must have lists"),
        (lambda data: data | {"lists": []}, "lists must be a dict"),
        (lambda data: data | {"lists": {"e": 2}}, "list 'e' must have 2 columns"),
        (lambda data: data | {"left_out": {"e[0]": ""}, "lists": {"e": 0}}, "list 'e' must have 0 columns"),
        (lambda data: data | {"left_out": {"e[0]": ""}, "lists": {"e": True}}, "list 'e' must have True columns"),
        (lambda data: data | {"lists": {"e": 10**12}}, "list 'e' must have 1000000000000 columns"),
    ],
)
def test_rejects_invalid_schema(change, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_dict(change(GOOD))


@pytest.mark.parametrize("time", ["", " 00:00", " 10:30"])
@pytest.mark.parametrize("day", ["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%b %d, %Y"])
def test_dates_have_a_time_of_day_only_if_it_is_written(day, time):
    dates = [(pd.Timestamp("2024-01-13") + pd.Timedelta(days=k)).strftime(day) + time for k in range(40)]
    survey = Survey()
    for which in (0, 1):
        survey.add(pd.DataFrame({"seen": dates, "x": range(40)}), which)
    assert survey.finish()[0].columns[0].clock == ("10:30" in time)
