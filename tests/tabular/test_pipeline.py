"""From typed columns to a matrix, and a fitted pipeline as bytes and back."""

import io
import json
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from uulearn.exceptions import ModelFormatError
from uulearn.tabular import storing
from uulearn.tabular.blocks import CUT, PARTS, Categories, Numbers
from uulearn.tabular.pipeline import build_pipeline, feature_groups, load_pipeline, save_pipeline
from uulearn.tabular.schema import OTHER, Column, Schema, typed

SCHEMA = Schema(
    (
        Column("remark", "text", missing=True, long=True),
        Column("age", "number", missing=True),
        Column("smokes", "boolean", missing=True),
        Column("when", "date", clock=True, missing=True),
        Column("income", "number"),
        Column("größe 年", "category", values=("S", "M", "L"), other=True, missing=True),
        Column("code", "text"),
        Column("member", "boolean"),
        Column("born", "date"),
        Column("colour", "category", values=("red", "blue")),
    )
)
WIDTHS = {
    "remark": PARTS + 1,
    "age": 2,
    "smokes": 2,
    "when": 8,
    "income": 1,
    "größe 年": 5,
    "code": PARTS,
    "member": 1,
    "born": 5,
    "colour": 2,
}


def rows(n, seed=0):
    """A realistic table as text, with missing cells where the schema has them."""
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
            "member": rng.choice(["t", "f"], n),
            "born": [str(day) for day in np.datetime64("1950-01-01") + rng.integers(0, 20000, n)],
            "colour": rng.choice(["red", "blue"], n),
        }
    )
    return typed(frame, SCHEMA, name="it")


@pytest.fixture(scope="module")
def table():
    return rows(300)


@pytest.fixture(scope="module")
def fitted(table):
    return build_pipeline(SCHEMA).fit(table)


@pytest.fixture(scope="module")
def saved(fitted):
    return save_pipeline(fitted)


# ------------------------------------------------------------------------------------------------------------ matrix


def test_the_matrix(fitted, table):
    X = fitted.transform(table)
    assert X.dtype == np.float32
    assert X.shape == (300, sum(WIDTHS.values()))
    assert np.isfinite(X).all()
    assert np.abs(X).max() <= CUT


def test_each_feature_belongs_to_one_column(fitted):
    groups = feature_groups(fitted, SCHEMA)
    assert list(groups) == SCHEMA.names
    assert {name: len(features) for name, features in groups.items()} == WIDTHS
    assert sorted(feature for features in groups.values() for feature in features) == list(range(sum(WIDTHS.values())))


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_column_changes_its_own_features_only(fitted, table, name):
    other = table.copy()
    other[name] = rows(300, seed=1)[name]
    changed = (fitted.transform(other) != fitted.transform(table)).any(axis=0)
    own = feature_groups(fitted, SCHEMA)[name]
    assert changed[own].all()
    assert changed.sum() == len(own)


def test_chunks_change_nothing(fitted, table):
    whole = fitted.transform(table)
    for size in (17, 299):
        pieces = [fitted.transform(table.iloc[start : start + size]) for start in range(0, 300, size)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(fitted.transform(table.iloc[5:6]), whole[5:6])


def test_the_order_of_columns_and_further_ones_do_not_matter(fitted, table):
    other = table[table.columns[::-1]].assign(more=1)
    np.testing.assert_array_equal(fitted.transform(other), fitted.transform(table))


def test_no_rows_and_one_row(fitted, table):
    assert fitted.transform(table.iloc[:0]).shape == (0, sum(WIDTHS.values()))
    alone = build_pipeline(SCHEMA).fit(table.iloc[:1])
    assert np.isfinite(alone.transform(table)).all()
    assert alone.transform(table).shape == fitted.transform(table).shape


def test_a_fit_is_the_same_again_and_a_clone_is_unfitted(fitted, table):
    np.testing.assert_array_equal(clone(fitted).fit(table).transform(table), fitted.transform(table))


def test_frames_asked_for_elsewhere_are_not_made(table):
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(build_pipeline(SCHEMA).fit(table).transform(table), np.ndarray)


def test_numbers_are_normal_scores():
    rng = np.random.default_rng(0)
    values = np.exp(5 * rng.normal(size=200))
    scores = Numbers([False]).fit_transform(pd.DataFrame({"x": values}))[:, 0]
    expected = stats.norm.ppf((stats.rankdata(values) - 0.5) / 200)
    np.testing.assert_allclose(scores, np.clip(expected / expected.std(), -CUT, CUT), atol=1e-6)


def test_ties_share_the_middle_of_their_ranks():
    values = np.repeat([0.0, 1.0, 5.0], [60, 30, 10])
    scores = Numbers([False]).fit_transform(pd.DataFrame({"x": values}))[:, 0]
    expected = stats.norm.ppf((stats.rankdata(values) - 0.5) / 100)
    np.testing.assert_allclose(scores, (expected - expected.mean()) / expected.std(), atol=1e-6)


@given(st.floats(0.2, 3), st.integers(0, 5))
def test_a_monotone_change_of_a_number_changes_nothing(power, seed):
    values = np.random.default_rng(seed).normal(size=100)
    plain, changed = (
        Numbers([False]).fit_transform(pd.DataFrame({"x": x}))
        for x in (values, np.sign(values) * np.abs(values) ** power)
    )
    np.testing.assert_allclose(plain, changed, atol=1e-6)


def test_an_outlier_moves_nothing_else():
    values = np.random.default_rng(0).normal(size=1000)
    wild = values.copy()
    wild[0] = 1e300
    plain, changed = (Numbers([False]).fit_transform(pd.DataFrame({"x": x})) for x in (values, wild))
    moved = np.abs(plain - changed)[1:, 0]
    assert moved.max() < 0.2  # what was the largest is second now
    assert moved[np.abs(values[1:]) < 2].max() < 0.05
    assert changed[0] == CUT


def test_many_values_are_interpolated_closely():
    values = np.random.default_rng(0).normal(size=50_000)
    scores = Numbers([False]).fit_transform(pd.DataFrame({"x": values}))[:, 0]
    inside = np.abs(values) < 2.5
    np.testing.assert_allclose(scores[inside], values[inside], atol=0.05)


def test_what_is_missing_becomes_the_median_and_is_marked():
    values = np.array([1.0, 2.0, 10.0, np.nan])
    X = Numbers([True]).fit_transform(pd.DataFrame({"x": values}))
    np.testing.assert_allclose(X[:, 0], [-X[2, 0], 0, X[2, 0], 0], atol=1e-6)
    np.testing.assert_array_equal(X[:, 1], [0, 0, 0, 1])
    tied = Numbers([False]).fit_transform(pd.DataFrame({"x": [0.0] * 60 + [1.0] * 40 + [np.nan]}))
    assert tied[-1] == tied[0] < -0.5
    booleans = build_pipeline(Schema((Column("b", "boolean", missing=True),)))
    B = booleans.fit_transform(pd.DataFrame({"b": [1.0, 1.0, 1.0, 0.0, np.nan]}))
    np.testing.assert_array_equal(B, [[1, 0], [1, 0], [1, 0], [0, 0], [0.75, 1]])


def test_what_was_never_missing_may_be_missing_later(fitted, table):
    later = table.iloc[:3].copy()
    for name in ("income", "member", "born"):
        later[name] = later[name].where([False] * 3)
    for name in ("code", "colour"):
        later[name] = pd.Series([None] * 3, dtype=table[name].dtype)
    X, groups = fitted.transform(later), feature_groups(fitted, SCHEMA)
    assert np.isfinite(X).all()
    assert (X[:, groups["colour"]] == 0).all()
    np.testing.assert_allclose(X[:, groups["income"]], 0, atol=0.02)


def test_categories():
    block = Categories([["a", "b"], ["c"]], [True, False], [False, True])
    X = pd.DataFrame({"x": ["a", "b", OTHER, None], "y": ["c", OTHER, None, "c"]})
    np.testing.assert_array_equal(
        block.fit_transform(X), [[1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0, 0, 0, 1, 0]]
    )
    assert block.origins() == [0, 0, 0, 1, 1]


def test_dates_go_in_circles():
    days = np.array(["2023-01-01", "2023-12-31T23:59", "2023-07-02T12:00", "2023-01-08"], dtype="datetime64[us]")
    X = build_pipeline(Schema((Column("d", "date", clock=True),))).fit_transform(pd.DataFrame({"d": days}))
    np.testing.assert_allclose(X[0, 1:3], [0, 1], atol=1e-6)
    np.testing.assert_allclose(X[1, 1:3], X[0, 1:3], atol=0.02)
    np.testing.assert_allclose(X[2, 1:3], [0, -1], atol=0.01)
    np.testing.assert_allclose(X[3, 3:5], X[0, 3:5], atol=1e-6)  # both a Sunday
    np.testing.assert_allclose(X[2, 5:7], [0, -1], atol=1e-6)  # noon
    assert X[0, 0] < X[3, 0] < X[2, 0] < X[1, 0]
    np.testing.assert_allclose(X[1, 3:5], X[0, 3:5], atol=1e-6)  # a Sunday, too, to its last minute


@pytest.mark.parametrize("long", [True, False])
def test_text_says_what_it_says(long):
    rng = np.random.default_rng(0)
    topics = [["cough", "fever", "cold", "flu"], ["fracture", "ankle", "fall", "cast"]]
    topic = rng.integers(0, 2, 400)
    texts = [" ".join(rng.choice(topics[t] + ["patient", "with", "mild"], 6 if long else 2)) for t in topic]
    pipeline = build_pipeline(Schema((Column("t", "text", long=long),)))
    X = pipeline.fit(pd.DataFrame({"t": pd.Series(texts, dtype=object)})).transform(pd.DataFrame({"t": texts}))
    accuracy = LogisticRegression().fit(X[:200], topic[:200]).score(X[200:], topic[200:])
    assert accuracy > (0.95 if long else 0.85)


def test_text_that_never_varies_says_nothing():
    pipeline = build_pipeline(Schema((Column("t", "text"),)))
    pipeline.fit(pd.DataFrame({"t": pd.Series(["same"] * 50, dtype=object)}))
    X = pipeline.transform(pd.DataFrame({"t": pd.Series(["same", "other", None], dtype=object)}))
    assert (X == 0).all()


def test_two_thousand_columns():
    names = [f"x{number}" for number in range(2000)]
    schema = Schema(tuple(Column(name, "number", missing=True) for name in names))
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2000)), columns=names)
    pipeline = build_pipeline(schema).fit(frame)
    assert pipeline.transform(frame).shape == (40, 4000)
    assert feature_groups(pipeline, schema)["x7"] == [7, 2007]


anything = st.one_of(
    st.none(), st.floats(), st.floats(allow_nan=False).map(str), st.integers(), st.sampled_from(["inf", " "])
)
moments = st.one_of(st.none(), st.datetimes(), st.dates().map(str))
texts = st.one_of(st.none(), st.text(max_size=30))
drawn = st.tuples(anything, moments, texts, st.sampled_from([None, "yes", "f"]), texts)


@settings(max_examples=25)
@given(st.lists(drawn, min_size=1, max_size=20), st.lists(drawn, max_size=8))
def test_whatever_is_let_through_becomes_finite(fit, later):
    schema = Schema(
        (
            Column("n", "number", missing=True),
            Column("d", "date", clock=True),
            Column("t", "text", missing=True),
            Column("b", "boolean"),
            Column("c", "category", values=("a", ""), other=True),
        )
    )

    def table(cells):
        columns = zip(*cells, strict=True) if cells else [[]] * 5
        return typed(
            pd.DataFrame({n: pd.Series(list(c), dtype=object) for n, c in zip("ndtbc", columns, strict=True)}),
            schema,
            name="it",
        )

    pipeline = build_pipeline(schema).fit(table(fit))
    for cells in (fit, later):
        X = pipeline.transform(table(cells))
        assert X.dtype == np.float32
        assert X.shape == (len(cells), 2 + 7 + PARTS + 1 + 1 + 3)
        assert np.isfinite(X).all()


# ------------------------------------------------------------------------------------------------------------- bytes


def test_a_saved_pipeline_gives_the_same_numbers(fitted, table, saved):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load_pipeline(saved)
    later = rows(50, seed=3)
    np.testing.assert_array_equal(loaded.transform(later), fitted.transform(later))
    assert feature_groups(loaded, SCHEMA) == feature_groups(fitted, SCHEMA)
    np.testing.assert_array_equal(load_pipeline(save_pipeline(loaded)).transform(table), fitted.transform(table))


def test_no_row_is_saved(saved):
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        assert b"cough" not in archive.read("schema.json")


@pytest.mark.parametrize("kind", ["number", "boolean", "category", "date", "text"])
def test_each_kind_alone_is_saved(kind, table):
    columns = [column for column in SCHEMA.columns if column.kind == kind]
    pipeline = build_pipeline(Schema(tuple(columns))).fit(table)
    np.testing.assert_array_equal(load_pipeline(save_pipeline(pipeline)).transform(table), pipeline.transform(table))


def altered(
    data, change=lambda schema: None, *, compression=zipfile.ZIP_STORED, add=None, arrays=lambda name, content: content
):
    """The archive with another schema.json, other arrays, or something more in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", compression=compression) as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "schema.json":
                schema = json.loads(content)
                change(schema)
                content = json.dumps(schema).encode()
            new.writestr(name, arrays(name, content))
        for name, content in (add or {}).items():
            new.writestr(name, content)
    return out.getvalue()


def refused(data):
    with pytest.raises(ModelFormatError) as caught:
        load_pipeline(data)
    message = str(caught.value)
    assert message.endswith(".")
    return message


def node(loader, module, name, **more):
    return {"__class__": name, "__module__": module, "__loader__": loader, "__id__": 1} | more


def text(value):
    return node("JsonNode", "builtins", "str", content=json.dumps(value), is_json=True)


def listing(loader, name, *items):
    return node(loader, "builtins", name, content=list(items))


def dictionary(**items):
    keys = listing("ListNode", "list", *[node("TypeNode", "builtins", "str") for _ in items])
    return node("DictNode", "builtins", "dict", content=items, key_types=keys)


SYSTEM = node("FunctionNode", "posix", "system")
DANGEROUS = {
    "posix.system": SYSTEM,
    "functools.partial": node(
        "PartialNode",
        "functools",
        "partial",
        content={
            "func": SYSTEM,
            "args": listing("TupleNode", "tuple", text("true")),
            "kwds": dictionary(),
            "namespace": dictionary(),
        },
    ),
    "sklearn.preprocessing._function_transformer.FunctionTransformer": node(
        "ObjectNode",
        "sklearn.preprocessing._function_transformer",
        "FunctionTransformer",
        content=dictionary(func=SYSTEM),
    ),
    "operator.methodcaller": node("OperatorFuncNode", "operator", "methodcaller", attrs=listing("TupleNode", "tuple")),
    "builtins.eval": node("TypeNode", "builtins", "eval"),
    "builtins.map": node("ListNode", "builtins", "map", content=[]),
    "sklearn.tree._tree.Tree": node("TreeNode", "sklearn.tree._tree", "Tree"),
    "sklearn.linear_model._logistic.LogisticRegression": node(
        "ObjectNode", "sklearn.linear_model._logistic", "LogisticRegression", content=dictionary()
    ),
    "numpy.void": node("NdArrayNode", "numpy", "void", type="json", content=[], shape=listing("TupleNode", "tuple")),
    "builtins.dict": node("ObjectNode", "builtins", "dict"),
    "uulearn.tabular.blocks.Block": node("ObjectNode", "uulearn.tabular.blocks", "Block", content=dictionary()),
    "None.None": node("CachedNode", None, None),
}


@pytest.mark.parametrize("name", DANGEROUS)
@pytest.mark.parametrize("place", ["attribute", "array", "deep"])
def test_any_other_type_is_refused(saved, name, place):
    def inject(schema):
        parts = schema["content"]
        if place == "attribute":
            parts["pipeline"]["content"]["content"]["memory"] = DANGEROUS[name]
        elif place == "array":
            parts["probe"]["items"] = [[{"x": DANGEROUS[name]}]]
        else:
            parts["scikit-learn"] = listing("ListNode", "list", listing("TupleNode", "tuple", DANGEROUS[name]))

    message = refused(altered(saved, inject))
    assert message.startswith(f"the pipeline contains {name} (")


def test_nothing_of_it_runs(saved, monkeypatch):
    """The audit stands before skops, which would import what a file names."""
    monkeypatch.setattr(storing, "_skops", lambda: pytest.fail("skops was asked"))
    refused(altered(saved, lambda schema: schema["content"].update(probe=SYSTEM)))


@pytest.mark.parametrize("share", [0, 1, 30, 0.3, 0.9, 0.999])
def test_cut_data_are_refused(saved, share):
    assert "damaged" in refused(saved[: share if isinstance(share, int) else int(share * len(saved))])


@pytest.mark.parametrize(
    "data",
    [b"PK\x05\x06" + b"\0" * 18, b"\x80\x04\x95.", b"{}", b"PK\x03\x04" * 9],
    ids=["empty", "pickle", "JSON", "zip"],
)
def test_other_data_are_refused(data):
    assert "damaged or not one of uulearn" in refused(data)


def test_flipped_bits_are_refused(saved):
    broken = bytearray(saved)
    broken[len(saved) // 2] ^= 1
    assert "CRC" in refused(bytes(broken))


def test_packed_archives_are_refused(saved):
    assert "packed" in refused(altered(saved, compression=zipfile.ZIP_DEFLATED))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", b" " * 10**8)
    assert len(bomb.getvalue()) < 10**6
    assert "packed" in refused(bomb.getvalue())
    assert "packed" in refused(b"\0" * 2**22 + altered(saved, compression=zipfile.ZIP_DEFLATED))


def test_members_that_overlap_are_refused(saved):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("1.npy", b"x" * 1000)
        first = archive.infolist()[0]
        for number in range(2, 20):
            again = zipfile.ZipInfo(f"{number}.npy")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size = again.compress_size = 1000
            archive.filelist.append(again)
    assert "packed" in refused(out.getvalue())


@pytest.mark.parametrize("name", ["../evil.py", "a.bin", "1.pkl", "x.npy", "SCHEMA.JSON"])
def test_other_members_are_refused(saved, name):
    assert repr(name) in refused(altered(saved, add={name: b"x"}))


def test_members_of_one_name_are_refused(saved):
    with pytest.warns(UserWarning, match="Duplicate name"):
        doubled = altered(saved, add={"schema.json": b"{}"})
    assert "one name" in refused(doubled)


def npy(shape, dtype, content=b""):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype, "fortran_order": False, "shape": shape})
    return out.getvalue() + content


@pytest.mark.parametrize(
    "content",
    [
        npy((10**15,), "<f8"),
        npy((3,), "<f8", b"\0" * 16),
        npy((1,), "|O", b"\x80\x04N.    "),
        npy((-1,), "<f8"),
        b"x" * 99,
    ],
    ids=["huge", "short", "objects", "negative", "none"],
)
def test_arrays_that_claim_what_they_are_not_are_refused(saved, content, monkeypatch):
    monkeypatch.setattr(storing, "_skops", lambda: pytest.fail("skops was asked"))
    changed = altered(saved, arrays=lambda name, old: content if name.endswith(".npy") else old)
    assert "damaged" in refused(changed)


def test_too_many_bytes_are_refused(saved, monkeypatch):
    monkeypatch.setattr(storing, "MOST_BYTES", 100)
    assert "bytes are more than any pipeline has" in refused(saved)


def test_deep_data_are_refused(saved):
    def nest(schema):
        for _ in range(400):
            schema["content"]["scikit-learn"] = listing("ListNode", "list", schema["content"]["scikit-learn"])

    assert "damaged" in refused(altered(saved, nest))
    brackets = altered(saved, arrays=lambda name, old: b"[" * 100_000 if name == "schema.json" else old)
    assert "damaged" in refused(brackets)


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["content"].pop("pipeline"),
        lambda schema: schema["content"].update(pipeline=text("a pipeline")),
        lambda schema: schema.update(protocol=99),
        lambda schema: schema.update(__loader__="ListNode", __class__="list"),
        lambda schema: schema["content"]["pipeline"]["content"]["content"].pop("steps"),
        lambda schema: schema["content"]["pipeline"].update(
            content=schema["content"]["pipeline"]["content"]["content"]
        ),
    ],
)
def test_other_contents_are_refused(saved, change):
    assert "damaged" in refused(altered(saved, change))


def test_a_block_in_place_of_the_columns_is_refused(fitted):
    steps = fitted.steps
    other = type(fitted)([("columns", Numbers([False]))])
    data = storing._skops().dumps({"pipeline": other, "probe": np.zeros(3), "scikit-learn": "1"})
    assert "no pipeline of columns" in refused(data)
    assert steps == fitted.steps


def test_numbers_that_are_not_what_they_were_are_refused(saved):
    def shift(name, content):
        if not name.endswith(".npy"):
            return content
        values = np.load(io.BytesIO(content))
        out = io.BytesIO()
        np.save(out, values + (1 if values.dtype == np.float64 else 0), allow_pickle=False)
        return out.getvalue()

    message = refused(altered(saved, arrays=shift))
    assert message.startswith("the pipeline does not give the numbers that it gave when it was saved")
    assert f"here is {sklearn.__version__}" in message


def other_version(schema):
    """As if scikit-learn 1.6.0 had written it."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("_sklearn_version", "scikit-learn") and isinstance(value, dict):
                value["content"] = '"1.6.0"'
            other_version(value)
    elif isinstance(schema, list):
        for value in schema:
            other_version(value)


def test_another_version_of_scikit_learn_is_fine_if_the_numbers_are(saved, table, fitted):
    data = altered(saved, other_version)
    assert data.count(b"1.6.0") == 3
    np.testing.assert_array_equal(load_pipeline(data).transform(table), fitted.transform(table))


def test_another_version_that_reads_the_state_differently_is_refused(saved):
    def change(schema):
        other_version(schema)
        columns = schema["content"]["pipeline"]["content"]["content"]["steps"]["content"][0]["content"][1]
        columns["content"]["content"].pop("transformers_")

    assert "damaged" in refused(altered(saved, change))

    def lose(schema):
        columns = schema["content"]["pipeline"]["content"]["content"]["steps"]["content"][0]["content"][1]
        other_version(schema)
        columns["content"]["content"].pop("sparse_output_")

    assert "scikit-learn 1.6.0, here is" in refused(altered(saved, lose))


def test_a_loaded_pipeline_starts_no_processes(saved):
    def many(schema):
        columns = schema["content"]["pipeline"]["content"]["content"]["steps"]["content"][0]["content"][1]
        columns["content"]["content"]["n_jobs"] = text(2)
        schema["content"]["pipeline"]["content"]["content"]["memory"] = text("/nowhere")

    loaded = load_pipeline(altered(saved, many))
    assert (loaded.named_steps["columns"].n_jobs, loaded.memory) == (None, None)


def test_without_skops_the_remedy_is_named(fitted, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(storing.importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install 'uulearn\[files\]'"):
        save_pipeline(fitted)
