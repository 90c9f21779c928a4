"""`TableEncoder`: typed columns to a matrix, and its state as safetensors and back."""

import json

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from uulearn.exceptions import ModelFormatError
from uulearn.tabular.encoder import CUT, TEXT_FEATURES, TableEncoder
from uulearn.tabular.schema import OTHER, Schema, TableColumn, apply_schema

SCHEMA = Schema(
    (
        TableColumn("remark", "text", missing=True, long=True),
        TableColumn("age", "number", missing=True),
        TableColumn("smokes", "boolean", missing=True),
        TableColumn("when", "date", clock=True, missing=True),
        TableColumn("income", "number"),
        TableColumn("größe 年", "category", values=("S", "M", "L"), other=True, missing=True),
        TableColumn("code", "text"),
        TableColumn("insured", "boolean"),
        TableColumn("born", "date"),
        TableColumn("color", "category", values=("red", "blue")),
    )
)
WIDTHS = {
    "remark": TEXT_FEATURES + 1,
    "age": 2,
    "smokes": 2,
    "when": 8,
    "income": 1,
    "größe 年": 5,
    "code": TEXT_FEATURES,
    "insured": 1,
    "born": 5,
    "color": 2,
}


def rows(n, seed=0):
    """Return a realistic typed table, with missing cells in the columns that allow them."""
    rng = np.random.default_rng(seed)
    words = ["pain", "chest", "left", "arm", "cough", "fever", "mild", "since", "days"]

    def holes(values):
        values = pd.Series(list(values), dtype=object)
        values[rng.random(n) < 0.2] = None
        return values

    frame = pd.DataFrame(
        {
            "remark": holes(" ".join(rng.choice(words, 8)) for _ in range(n)),
            "age": holes(rng.integers(1, 99, n).astype(str)),
            "smokes": holes(rng.choice(["yes", "no"], n)),
            "when": holes(str(day) for day in np.datetime64("2020-01-01T00:00") + rng.integers(0, 10**6, n)),
            "income": np.exp(rng.normal(0, 4, n)).astype(str),
            "größe 年": holes(rng.choice(["S", "M", "L", "XXL"], n)),
            "code": [
                f"{letter}{number:03d}"
                for letter, number in zip(rng.choice(list("ABC"), n), rng.integers(0, 999, n), strict=True)
            ],
            "insured": rng.choice(["t", "f"], n),
            "born": [str(day) for day in np.datetime64("1950-01-01") + rng.integers(0, 20000, n)],
            "color": rng.choice(["red", "blue"], n),
        }
    )
    return apply_schema(frame, SCHEMA, name="it")


def scores_of(values, *, missing=False):
    """Fit and encode one column of numbers."""
    X = pd.DataFrame({"x": np.asarray(values, dtype=float)})
    return TableEncoder().fit_rows(Schema((TableColumn("x", "number", missing=missing),)), X).encode_rows(X)


@pytest.fixture(scope="module")
def table():
    return rows(300)


@pytest.fixture(scope="module")
def fitted(table):
    return TableEncoder().fit_rows(SCHEMA, table)


@pytest.fixture(scope="module")
def saved(fitted):
    return fitted.to_bytes()[1]


# ------------------------------------------------------------------------------------------------------------ matrix


def test_matrix_is_finite_and_bounded(fitted, table):
    X = fitted.encode_rows(table)
    assert X.dtype == np.float32
    assert X.shape == (300, sum(WIDTHS.values()))
    assert np.isfinite(X).all()
    assert np.abs(X).max() <= CUT


def test_each_feature_belongs_to_one_column(fitted):
    groups = fitted.feature_groups()
    assert list(groups) == SCHEMA.names
    assert {name: len(features) for name, features in groups.items()} == WIDTHS
    assert sorted(feature for features in groups.values() for feature in features) == list(range(sum(WIDTHS.values())))


@pytest.mark.parametrize("name", SCHEMA.names)
def test_column_changes_only_its_own_features(fitted, table, name):
    other = table.copy()
    other[name] = rows(300, seed=1)[name]
    changed = (fitted.encode_rows(other) != fitted.encode_rows(table)).any(axis=0)
    own = fitted.feature_groups()[name]
    assert changed[own].all()
    assert changed.sum() == len(own)


def test_chunks_give_the_same_matrix(fitted, table):
    whole = fitted.encode_rows(table)
    for size in (17, 299):
        pieces = [fitted.encode_rows(table.iloc[start : start + size]) for start in range(0, 300, size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(fitted.encode_rows(table.iloc[5:6]), whole[5:6])


def test_column_order_and_extra_columns_do_not_matter(fitted, table):
    other = table[table.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(fitted.encode_rows(other), fitted.encode_rows(table))


def test_encodes_no_rows_and_fits_one_row(fitted, table):
    assert fitted.encode_rows(table.iloc[:0]).shape == (0, sum(WIDTHS.values()))
    alone = TableEncoder().fit_rows(SCHEMA, table.iloc[:1])
    assert np.isfinite(alone.encode_rows(table)).all()
    assert alone.encode_rows(table).shape == fitted.encode_rows(table).shape


def test_refit_of_a_clone_gives_the_same_matrix(fitted, table):
    np.testing.assert_array_equal(clone(fitted).fit_rows(SCHEMA, table).encode_rows(table), fitted.encode_rows(table))


def test_global_output_setting_is_ignored(table):
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(TableEncoder().fit_rows(SCHEMA, table).encode_rows(table), np.ndarray)


def test_numbers_are_normal_scores():
    rng = np.random.default_rng(0)
    values = np.exp(5 * rng.normal(size=200))
    scores = scores_of(values)[:, 0]
    expected = stats.norm.ppf((stats.rankdata(values) - 0.5) / 200)
    np.testing.assert_allclose(scores, np.clip(expected / expected.std(), -CUT, CUT), atol=1e-6)


def test_ties_share_the_middle_of_their_ranks():
    values = np.repeat([0.0, 1.0, 5.0], [60, 30, 10])
    scores = scores_of(values)[:, 0]
    expected = stats.norm.ppf((stats.rankdata(values) - 0.5) / 100)
    np.testing.assert_allclose(scores, (expected - expected.mean()) / expected.std(), atol=1e-6)


@given(st.floats(0.2, 3), st.integers(0, 5))
def test_scores_do_not_change_under_monotone_maps(power, seed):
    values = np.random.default_rng(seed).normal(size=100)
    plain, changed = (scores_of(x) for x in (values, np.sign(values) * np.abs(values) ** power))
    np.testing.assert_allclose(plain, changed, atol=1e-6)


def test_outlier_does_not_move_other_scores():
    values = np.random.default_rng(0).normal(size=1000)
    wild = values.copy()
    wild[0] = 1e300
    plain, changed = (scores_of(x) for x in (values, wild))
    moved = np.abs(plain - changed)[1:, 0]
    assert moved.max() < 0.2  # the largest value is now second
    assert moved[np.abs(values[1:]) < 2].max() < 0.05
    assert changed[0] == CUT


def test_scores_of_many_values_are_close_to_exact_ones():
    values = np.random.default_rng(0).normal(size=50_000)
    scores = scores_of(values)[:, 0]
    inside = np.abs(values) < 2.5
    np.testing.assert_allclose(scores[inside], values[inside], atol=0.05)


def test_missing_values_become_the_median_and_are_marked():
    values = np.array([1.0, 2.0, 10.0, np.nan])
    X = scores_of(values, missing=True)
    np.testing.assert_allclose(X[:, 0], [-X[2, 0], 0, X[2, 0], 0], atol=1e-6)
    np.testing.assert_array_equal(X[:, 1], [0, 0, 0, 1])
    tied = scores_of([0.0] * 60 + [1.0] * 40 + [np.nan])
    assert tied[-1] == tied[0] < -0.5
    booleans = pd.DataFrame({"b": [1.0, 1.0, 1.0, 0.0, np.nan]})
    B = TableEncoder().fit_rows(Schema((TableColumn("b", "boolean", missing=True),)), booleans).encode_rows(booleans)
    np.testing.assert_array_equal(B, [[1, 0], [1, 0], [1, 0], [0, 0], [0.75, 1]])


def test_columns_without_missing_values_may_have_some_later(fitted, table):
    later = table.iloc[:3].copy()
    for name in ("income", "insured", "born"):
        later[name] = later[name].where([False] * 3)
    for name in ("code", "color"):
        later[name] = pd.Series([None] * 3, dtype=table[name].dtype)
    X, groups = fitted.encode_rows(later), fitted.feature_groups()
    assert np.isfinite(X).all()
    assert (X[:, groups["color"]] == 0).all()
    np.testing.assert_allclose(X[:, groups["income"]], 0, atol=0.02)


def test_categories_are_one_hot_encoded():
    columns = (
        TableColumn("x", "category", values=("a", "b"), other=True),
        TableColumn("y", "category", values=("c",), missing=True),
    )
    X = pd.DataFrame({"x": ["a", "b", OTHER, None], "y": ["c", OTHER, None, "c"]})
    encoder = TableEncoder().fit_rows(Schema(columns), X)
    np.testing.assert_array_equal(
        encoder.encode_rows(X), [[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 0]]
    )
    assert encoder.feature_groups() == {"x": [0, 1, 2], "y": [3, 4]}


def test_dates_are_encoded_as_circles():
    days = np.array(["2023-01-01", "2023-12-31T23:59", "2023-07-02T12:00", "2023-01-08"], dtype="datetime64[us]")
    frame = pd.DataFrame({"d": days})
    X = TableEncoder().fit_rows(Schema((TableColumn("d", "date", clock=True),)), frame).encode_rows(frame)
    np.testing.assert_allclose(X[0, 1:3], [0, 1], atol=1e-6)
    np.testing.assert_allclose(X[1, 1:3], X[0, 1:3], atol=0.02)
    np.testing.assert_allclose(X[2, 1:3], [0, -1], atol=0.01)
    np.testing.assert_allclose(X[3, 3:5], X[0, 3:5], atol=1e-6)  # both a Sunday
    np.testing.assert_allclose(X[2, 5:7], [0, -1], atol=1e-6)  # noon
    assert X[0, 0] < X[3, 0] < X[2, 0] < X[1, 0]
    np.testing.assert_allclose(X[1, 3:5], X[0, 3:5], atol=1e-6)  # also a Sunday, up to its last minute


@pytest.mark.parametrize("long", [True, False])
def test_text_features_separate_topics(long):
    rng = np.random.default_rng(0)
    topics = [["cough", "fever", "cold", "flu"], ["fracture", "ankle", "fall", "cast"]]
    topic = rng.integers(0, 2, 400)
    texts = [" ".join(rng.choice(topics[t] + ["patient", "with", "mild"], 6 if long else 2)) for t in topic]
    frame = pd.DataFrame({"t": pd.Series(texts, dtype=object)})
    X = TableEncoder().fit_rows(Schema((TableColumn("t", "text", long=long),)), frame).encode_rows(frame)
    accuracy = LogisticRegression().fit(X[:200], topic[:200]).score(X[200:], topic[200:])
    assert accuracy > (0.95 if long else 0.85)


def test_constant_text_gives_zeros():
    same = pd.DataFrame({"t": pd.Series(["same"] * 50, dtype=object)})
    encoder = TableEncoder().fit_rows(Schema((TableColumn("t", "text"),)), same)
    X = encoder.encode_rows(pd.DataFrame({"t": pd.Series(["same", "other", None], dtype=object)}))
    assert (X == 0).all()


def test_encodes_two_thousand_columns():
    names = [f"x{number}" for number in range(2000)]
    schema = Schema(tuple(TableColumn(name, "number", missing=True) for name in names))
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2000)), columns=names)
    encoder = TableEncoder().fit_rows(schema, frame)
    assert encoder.encode_rows(frame).shape == (40, 4000)
    assert encoder.feature_groups()["x7"] == [7, 2007]


anything = st.one_of(
    st.none(), st.floats(), st.floats(allow_nan=False).map(str), st.integers(), st.sampled_from(["inf", " "])
)
moments = st.one_of(st.none(), st.datetimes(), st.dates().map(str))
texts = st.one_of(st.none(), st.text(max_size=30))
drawn = st.tuples(anything, moments, texts, st.sampled_from([None, "yes", "f"]), texts)


@settings(max_examples=25)
@given(st.lists(drawn, min_size=1, max_size=20), st.lists(drawn, max_size=8))
def test_all_accepted_cells_become_finite(fit, later):
    schema = Schema(
        (
            TableColumn("n", "number", missing=True),
            TableColumn("d", "date", clock=True),
            TableColumn("t", "text", missing=True),
            TableColumn("b", "boolean"),
            TableColumn("c", "category", values=("a", ""), other=True),
        )
    )

    def table(cells):
        columns = zip(*cells, strict=True) if cells else [[]] * 5
        return apply_schema(
            pd.DataFrame({n: pd.Series(list(c), dtype=object) for n, c in zip("ndtbc", columns, strict=True)}),
            schema,
            name="it",
        )

    encoder = TableEncoder().fit_rows(schema, table(fit))
    for cells in (fit, later):
        X = encoder.encode_rows(table(cells))
        assert X.dtype == np.float32
        assert X.shape == (len(cells), 2 + 7 + TEXT_FEATURES + 1 + 1 + 3)
        assert np.isfinite(X).all()


def test_rejects_unfitted_encoder(table):
    with pytest.raises(NotFittedError):
        TableEncoder().encode_rows(table)
    with pytest.raises(NotFittedError):
        TableEncoder().to_bytes()


# ------------------------------------------------------------------------------------------------------------ storage


def as_json(schema):
    return json.dumps(schema.to_dict(), indent=1, ensure_ascii=False).encode()


def test_stored_encoder_gives_the_same_matrix(fitted, saved):
    loaded = TableEncoder.from_bytes(as_json(SCHEMA), saved)
    later = rows(50, seed=3)
    np.testing.assert_array_equal(loaded.encode_rows(later), fitted.encode_rows(later))
    assert loaded.feature_groups() == fitted.feature_groups()
    assert loaded.to_bytes() == fitted.to_bytes() == (as_json(SCHEMA), saved)


def test_no_row_is_stored(saved):
    assert b"cough" not in saved


@pytest.mark.parametrize("kind", ["number", "boolean", "category", "date", "text"])
def test_stores_each_kind_alone(kind, table):
    schema = Schema(tuple(column for column in SCHEMA.columns if column.kind == kind))
    encoder = TableEncoder().fit_rows(schema, table)
    loaded = TableEncoder.from_bytes(*encoder.to_bytes())
    np.testing.assert_array_equal(loaded.encode_rows(table), encoder.encode_rows(table))


def refused(data, schema=SCHEMA):
    with pytest.raises(ModelFormatError) as caught:
        TableEncoder.from_bytes(as_json(schema), data)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("fraction", [0, 0.001, 0.3, 0.999])
def test_rejects_truncated_data(saved, fraction):
    assert "damaged" in refused(saved[: int(fraction * len(saved))])


@pytest.mark.parametrize("data", [b"", b"{}", b"\x80\x04\x95.", b"PK\x03\x04" * 9, b"\xff" * 100])
def test_rejects_other_data(data):
    assert "damaged" in refused(data)


def changed(saved, **arrays):
    return save_arrays(load_arrays(saved) | arrays)


@pytest.mark.parametrize(
    ("name", "change", "part"),
    [
        ("number.knots", lambda array: array[:1], "number.knots is ((1, 256), dtype('float64')), expected ((2, 256)"),
        ("number.knots", lambda array: array.astype(np.float32), "float32"),
        ("number.knots", lambda array: array[:, ::-1], "is not sorted"),
        ("number.heights", lambda array: array * np.nan, "contains NaN"),
        ("date.fills", lambda array: array + np.inf, "contains an infinite value"),
        ("text.0.weights", lambda array: array[:7], "text.0.weights"),
    ],
)
def test_rejects_arrays_that_do_not_fit_the_schema(saved, name, change, part):
    array = np.ascontiguousarray(change(load_arrays(saved)[name]))
    assert part in refused(changed(saved, **{name: array}))


def test_rejects_missing_and_extra_arrays(saved, fitted):
    arrays = load_arrays(saved)
    assert "boolean.fills is None" in refused(save_arrays({k: v for k, v in arrays.items() if k != "boolean.fills"}))
    assert "evil is" in refused(changed(saved, evil=np.zeros(3)))
    assert "text.1" in refused(saved, Schema(tuple(c for c in SCHEMA.columns if c.name != "code")))


def test_rejects_changed_text_hashing(saved):
    directions = load_arrays(saved)["text.0.directions"]
    message = refused(changed(saved, **{"text.0.directions": np.ascontiguousarray(directions[::-1])}))
    assert message.startswith("column 'remark' has different features than when the model was saved")
