"""`TableEncoder` as a scikit-learn transformer of pandas, polars and Arrow tables."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from uulearn.exceptions import ColumnWarning, LeakingColumnWarning, ModelFormatError, TableError
from uulearn.tabular import TableEncoder

WORDS = ["pain", "chest", "left", "arm", "cough", "fever", "mild", "since", "days"]
EXPECTED_FAILURES = {
    "check_n_features_in_after_fitting": "columns are selected by name, so additional columns are ignored",
    "check_fit2d_1sample": "the columns of one row are constant, which is what the message says",
}


def make_rows(n, seed=0, shift=0.0):
    """Return a realistic table with all kinds of columns and missing values."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(1, 99, n),
            "dose": np.exp(rng.normal(shift, 2, n)),
            "smokes": rng.random(n) < 0.4,
            "color": rng.choice(["red", "blue", "green"], n),
            "seen": np.datetime64("2020-01-01T00:00", "us") + rng.integers(0, 10**12, n).astype("timedelta64[us]"),
            "note": [" ".join(words) for words in rng.choice(WORDS, (n, 4))],
        }
    )
    for name in ("dose", "color", "note", "seen"):
        frame[name] = frame[name].where(rng.random(n) > 0.2)
    return frame


@pytest.fixture(scope="module")
def frame():
    return make_rows(300)


@pytest.fixture(scope="module")
def fitted(frame):
    return TableEncoder().fit(frame)


@parametrize_with_checks([TableEncoder()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
@pytest.mark.filterwarnings("ignore::uulearn.exceptions.ColumnWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_infers_the_kinds_of_columns(fitted):
    kinds = {column.name: column.kind for column in fitted.schema_.columns}
    assert kinds == {
        "age": "number", "dose": "number", "smokes": "boolean", "color": "category", "seen": "date", "note": "text",
    }  # fmt: skip
    assert fitted.feature_names_in_.tolist() == list(kinds)
    assert fitted.n_features_in_ == 6
    assert fitted.notes_ == []


def test_features_have_names(fitted, frame):
    names = fitted.get_feature_names_out()
    assert names[:7].tolist() == ["age", "dose", "dose__missing", "smokes", "color_blue", "color_red", "color_green"]
    assert names[7:14].tolist() == [
        "color__missing", "seen", "seen__year_sin", "seen__year_cos", "seen__week_sin", "seen__week_cos",
        "seen__day_sin",
    ]  # fmt: skip
    assert len(set(names)) == fitted.transform(frame).shape[1]
    assert fitted.get_feature_names_out(frame.columns).tolist() == names.tolist()
    with pytest.raises(ValueError, match="input_features must be feature_names_in_"):
        fitted.get_feature_names_out(["age"])
    for name, features in fitted.feature_groups().items():
        assert all(feature.startswith(name) for feature in names[features])


def test_output_can_be_a_frame(frame):
    encoder = TableEncoder().set_output(transform="pandas")
    out = encoder.fit_transform(frame.set_axis(range(5, 305)))
    assert out.columns.tolist() == encoder.get_feature_names_out().tolist()
    assert out.index[0] == 5
    assert encoder.encode_table(frame, "X").shape == out.shape


def as_polars(frame):
    return pytest.importorskip("polars").from_pandas(frame)


@pytest.mark.parametrize(
    "convert",
    [
        as_polars,
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
        lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
        lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_pandas(types_mapper=pd.ArrowDtype),
        lambda frame: frame.convert_dtypes(),
        lambda frame: frame.astype({"color": "category", "note": "category"}),
        lambda frame: frame.to_dict("records"),
        lambda frame: frame.set_axis(np.random.default_rng(0).permutation(300)),
        lambda frame: frame[frame.columns[::-1]],
    ],
    ids=["polars", "arrow", "record batch", "arrow types", "nullable", "category", "dicts", "index", "order"],
)
def test_every_kind_of_table_gives_the_same_features(convert, fitted, frame):
    table = convert(frame)
    expected = fitted.transform(frame)
    np.testing.assert_array_equal(fitted.transform(table), expected)
    own = TableEncoder().fit(table)
    assert {column.name: column for column in own.schema_.columns} == {
        column.name: column for column in fitted.schema_.columns
    }
    names = own.get_feature_names_out().tolist()
    order = [names.index(name) for name in fitted.get_feature_names_out()]
    np.testing.assert_array_equal(own.transform(table)[:, order], expected)


def test_types_of_polars_are_read():
    pl = pytest.importorskip("polars")
    start = datetime.datetime(2024, 1, 1)
    table = pl.DataFrame(
        {
            "ward": pl.Series(["a", "b", None] * 20, dtype=pl.Categorical),
            "size": pl.Series(["x", "y", "y"] * 20, dtype=pl.Enum(["x", "y"])),
            "born": [start.date() + datetime.timedelta(days=row % 17) for row in range(60)],
            "seen": pl.Series([start + datetime.timedelta(hours=row % 23) for row in range(60)]).dt.replace_time_zone(
                "UTC"
            ),
            "wait": [datetime.timedelta(seconds=7 * row % 31) for row in range(60)],
            "dose": [Decimal(row % 13) / 4 for row in range(60)],
            "smokes": [True, None, False] * 20,
            "visits": pl.Series([row * row % 40 for row in range(60)], dtype=pl.UInt8),
        }
    )
    encoder = TableEncoder().fit(table)
    assert [column.kind for column in encoder.schema_.columns] == [
        "category", "category", "date", "date", "number", "number", "boolean", "number",
    ]  # fmt: skip
    frame = table.to_pandas()
    np.testing.assert_array_equal(encoder.transform(frame), encoder.transform(table))
    with pytest.raises(TableError, match="column 'tags' of X has type large_list.*, which is not supported; drop it"):
        TableEncoder().fit(table.with_columns(tags=pl.Series([["a", "b"]] * 60)))


def test_arrays_have_numbered_columns():
    X = np.random.default_rng(0).normal(size=(50, 3))
    encoder = TableEncoder(drop=["1"]).fit(X)
    assert encoder.feature_names_in_.tolist() == ["0", "2"]
    np.testing.assert_array_equal(encoder.transform(X), TableEncoder().fit_transform(X[:, [0, 2]]))
    np.testing.assert_array_equal(encoder.transform(X), encoder.transform(X.tolist()))


def test_parameters_choose_columns_and_kinds(frame):
    assert TableEncoder(only=["age", "color"]).fit(frame).feature_names_in_.tolist() == ["age", "color"]
    dropped = TableEncoder(drop=["note", "seen"]).fit(frame)
    assert dropped.feature_names_in_.tolist() == ["age", "dose", "smokes", "color"]
    assert dropped.schema_.left_out == dict.fromkeys(["note", "seen"], "dropped by drop")
    regions = pd.DataFrame({"region": np.tile([3, 7, 11], 50), "age": np.arange(150) % 40})
    assert TableEncoder().fit(regions).get_feature_names_out().tolist() == ["region", "age"]
    chosen = TableEncoder(kinds={"region": "category"}).fit(regions)
    assert chosen.get_feature_names_out().tolist() == ["age", "region_11", "region_3", "region_7"]
    texts = TableEncoder(only=["color"], kinds={"color": "text"}).fit(frame)
    assert texts.schema_.columns[0].kind == "text"
    again = clone(chosen)
    assert again.get_params() == {"drop": (), "only": (), "kinds": {"region": "category"}}
    assert not hasattr(again, "schema_")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"drop": "note"}, "drop must be a list of column names, got 'note'"),
        ({"only": [3]}, r"only must be a list of column names, got \[3\]"),
        ({"kinds": {"age": "ordinal"}}, "kinds must map column names to 'number', .*, got {'age': 'ordinal'}"),
        ({"kinds": ["age"]}, "kinds must map column names"),
        ({"drop": ["nota"]}, r"drop names the column 'nota', which X does not have \(did you mean 'note'\?\)"),
        ({"kinds": {"nota": "text"}}, r"kinds names the column 'nota', which is not used \(did you mean 'note'\?\)"),
        ({"kinds": {"note": "category"}}, "column 'note' has more than 200 values, so it cannot be a category"),
        ({"kinds": {"note": "number"}}, "X has '.*' in row 1, column 'note', which is not a number; write"),
        ({"only": ["age"], "drop": ["age"]}, "only and drop both name 'age'; use only one"),
        ({"drop": ["age", "dose", "smokes", "color", "seen", "note"]}, "no column is left for training; .* drop and"),
    ],
)
def test_rejects_bad_parameters(parameters, message, frame):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**parameters).fit(frame.fillna({"note": "x"}))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 2)), "X has no column names, but the encoder was fitted to the columns 'age', 'dose'.*pass a"),
        (np.zeros(3), "Expected 2D array, got 1D array instead"),
        ("rows.csv", "Expected 2D array, got scalar array instead"),
        (None, "Expected 2D array, got scalar array instead"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "X has more than one column named 'a'"),
    ],
)
def test_rejects_values_that_are_not_tables(X, message, fitted):
    with pytest.raises(ValueError, match=message):
        fitted.transform(X)


def test_rejects_tables_that_do_not_fit(fitted, frame):
    with pytest.raises(TableError, match="X lacks the column 'dose'; it must have all columns that the model was"):
        fitted.transform(frame.drop(columns="dose"))
    with pytest.raises(TableError, match="X has '1,5' in row 3, column 'age', which is not a number; write numbers"):
        fitted.transform(
            frame.astype({"age": object}).set_axis(range(100, 400)).replace({"age": {frame["age"][2]: "1,5"}})
        )
    with pytest.raises(TableError, match="X has 'many' in row 1, column 'age', which is not a number .300 of 300 val"):
        fitted.transform(frame.assign(age="many"))
    unknown = fitted.transform(frame.assign(color="violet"))
    assert (unknown[:, fitted.feature_groups()["color"]] == 0).all()


def test_a_column_may_be_called_like_a_position_of_another():
    frame = pd.DataFrame({"x": [1, 2, 3], "x[0]": [1.5, 0.5, 7.0], "y": [3, 1, 2]})
    assert TableEncoder(drop=["x"]).fit(frame).feature_names_in_.tolist() == ["x[0]", "y"]
    assert TableEncoder(only=["x"]).fit(frame).feature_names_in_.tolist() == ["x"]
    unreadable = frame.assign(**{"x[0]": [{}, {}, {}]})
    assert TableEncoder(only=["x"]).fit(unreadable).feature_names_in_.tolist() == ["x"]


@pytest.mark.parametrize("extra", [{"lab[3]": [1.0, 2.0]}, {"other": [1.0, 2.0]}])
def test_columns_that_the_model_does_not_use_may_differ(extra):
    table = {"lab[0]": [1.0, 2.0], "lab[1]": [5.0, 3.0], "y": [4.0, 6.0]}
    encoder = TableEncoder(drop=["lab[2]"]).fit(pd.DataFrame(table | {"lab[2]": [7.0, 1.0]}))
    expected = encoder.transform(pd.DataFrame(table))
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame(table | extra)), expected)


def test_warns_about_dropped_columns(frame):
    table = frame.assign(patient=[f"p{number}" for number in range(300)], site="Ulm")
    with pytest.warns(ColumnWarning) as caught:
        encoder = TableEncoder().fit(table)
    (warning,) = caught
    assert warning.filename == __file__
    assert "Column 'site' is dropped: every row has the same value." in str(warning.message)
    assert "Column 'patient' is dropped: every row has a different value, like an identifier (give" in str(
        warning.message
    )
    assert encoder.notes_
    assert encoder.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(encoder.transform(frame), TableEncoder().fit_transform(frame))


def test_two_tables_must_match(frame):
    other = make_rows(200, seed=1)
    apart, joint = TableEncoder().fit_sets(frame, other), TableEncoder().fit(pd.concat([frame, other]))
    assert apart.to_bytes() == joint.to_bytes()
    with pytest.raises(
        TableError, match="only set 0 has the column 'age'; both sets need the same columns, .*drop=.'a"
    ):
        TableEncoder().fit_sets(frame, other.drop(columns="age"))
    with pytest.raises(TableError, match="column 'age' is a number in set 0 .* but set 1 has 'x' in row 1; leave"):
        TableEncoder().fit_sets(frame, other.assign(age="x"))
    with pytest.raises(TableError, match="set 1 has 1 rows; each set needs at least two"):
        TableEncoder().fit_sets(frame, other[:1])


def test_warns_about_leaking_columns(frame):
    other = make_rows(300, seed=1)
    with pytest.warns(
        LeakingColumnWarning, match="Column 'site' identifies the set of a row .*drop=.'site'."
    ) as caught:
        encoder = TableEncoder().fit_sets(frame.assign(site="a"), other.assign(site="b"))
    assert caught[0].filename == __file__
    assert "site" in encoder.feature_names_in_
    colors = other.assign(color="blue")
    TableEncoder().fit_sets(frame, colors)
    with pytest.warns(LeakingColumnWarning, match="Column 'color' differs between the sets by more than the class pr"):
        TableEncoder().fit_sets(frame, colors, set_priors=(0.6, 0.4))


def test_works_in_pipelines_and_cross_validation(frame):
    y = (frame["color"] == "red").astype(int)
    pipeline = make_pipeline(TableEncoder(drop=["note"]), LogisticRegression(max_iter=500))
    assert cross_val_score(pipeline, frame, y, cv=3).mean() > 0.95


def test_saved_encoder_is_the_same(fitted, frame, tmp_path):
    fitted.save(tmp_path / "encoder")
    assert sorted(path.name for path in (tmp_path / "encoder").iterdir()) == ["encoder.safetensors", "schema.json"]
    loaded = TableEncoder.load(tmp_path / "encoder")
    np.testing.assert_array_equal(loaded.transform(frame), fitted.transform(frame))
    assert loaded.schema_ == fitted.schema_
    (tmp_path / "encoder" / "schema.json").write_text("{}")
    with pytest.raises(ModelFormatError, match=r"the schema cannot be read \(a schema must have"):
        TableEncoder.load(tmp_path / "encoder")
    with pytest.raises(ModelFormatError, match="contains no encoder"):
        TableEncoder.load(tmp_path)
