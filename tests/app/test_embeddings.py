"""`uulearn fit` on embeddings: the same model for all ways to store them, errors, and the report."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uulearn import UUClassifier
from uulearn.app.fitting import fit_files
from uulearn.app.model import load_model
from uulearn.app.scoring import score_file
from uulearn.app.settings import FitSettings
from uulearn.app.summary import format_model_card
from uulearn.exceptions import TableError
from uulearn.tabular import TableEncoder

WIDTH = 60
OPTIONS = {"model": "mlp", "epochs": 3, "model_params": {"hidden": [8]}}


def draw(rows, prior, seed, width=WIDTH):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(rows, width)) + 0.5 * (rng.random(rows) < prior)[:, None]).astype(np.float32)


def save(path, rows, **columns):
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, rows)
    else:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        pq.write_table(pa.table({**columns, "embedding": lists}), path)
    return str(path)


def save_sets(folder, suffix, **columns):
    return [save(folder / f"{name}{suffix}", draw(120, prior, seed), **columns) for seed, (name, prior) in
            enumerate([("a", 0.8), ("b", 0.2)])]  # fmt: skip


def fit(paths, **settings):
    return fit_files(FitSettings(*paths, set_priors=(0.8, 0.2), classifier=OPTIONS, sensitivity=False, **settings))[0]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embeddings")
    return {suffix: fit(save_sets(folder, suffix)) for suffix in (".npy", ".npz", ".parquet")}


def test_all_formats_and_python_give_the_same_model(models, tmp_path):
    new = draw(50, 0.5, seed=7)
    frames = [
        score_of(model, save(tmp_path / f"new{suffix}", new), tmp_path / "scored.csv")
        for suffix, model in models.items()
    ]
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frame, frames[0])
    python = UUClassifier((0.8, 0.2), encoder=TableEncoder(), random_state=0, **OPTIONS)
    python.fit_sets(draw(120, 0.8, seed=0), draw(120, 0.2, seed=1))
    np.testing.assert_array_equal(python.decision_function(new), models[".npy"].classifier.decision_function(new))
    frame = pd.DataFrame({"embedding": list(new)})
    np.testing.assert_array_equal(python.predict(new), models[".parquet"].classifier.predict(frame))


def score_of(model, rows, out):
    assert score_file(model, rows, str(out)) == 50
    return pd.read_csv(out)


def test_a_saved_model_contains_the_scaling(models, tmp_path):
    new = draw(50, 0.5, seed=7)
    for suffix, model in models.items():
        model.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        frame = pd.DataFrame({"embedding": list(new)}) if suffix == ".parquet" else new
        np.testing.assert_array_equal(loaded.classifier.predict(frame), model.classifier.predict(frame))
        before = score_of(model, save(tmp_path / f"new{suffix}", new), tmp_path / "one.csv")
        assert before.equals(score_of(loaded, str(tmp_path / f"new{suffix}"), tmp_path / "two.csv"))
    python = UUClassifier((0.8, 0.2), encoder=TableEncoder(), random_state=0, **OPTIONS)
    python.fit_sets(draw(120, 0.8, seed=0), draw(120, 0.2, seed=1)).save(tmp_path / "python")
    found = score_of(load_model(tmp_path / "python"), str(tmp_path / "new.npy"), tmp_path / "three.csv")
    np.testing.assert_allclose(found["score"], python.decision_function(new), rtol=1e-4)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH + 4])
def test_rows_of_another_encoder_are_rejected(models, tmp_path, suffix, width):
    path = save(tmp_path / f"new{suffix}", draw(20, 0.5, seed=7, width=width))
    with pytest.raises(TableError, match=f" {width} .*but .*60.*; compute all embeddings with the same encoder"):
        score_file(models[suffix], path, str(tmp_path / "scored.csv"))


@pytest.mark.parametrize(
    ("suffix", "message"),
    [
        (".npy", r"a.npy has 60 columns, but b.npy has 61; compute all embeddings with the same encoder"),
        (".parquet", r"column 'embedding' has 60 values per row in a.parquet, but 61 in b.parquet; compute all"),
    ],
)
def test_sets_of_different_encoders_are_rejected(tmp_path, suffix, message):
    paths = save_sets(tmp_path, suffix)
    save(tmp_path / f"b{suffix}", draw(120, 0.2, seed=1, width=WIDTH + 1))
    with pytest.raises(TableError, match=message):
        fit(paths)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(6), "array of shape .6,., but a table needs two dimensions"),
        (np.ones((6, 2, 2)), "array of shape .6, 2, 2., but a table needs two dimensions"),
        (np.array([["a"]]), "array of <U1, not of numbers"),
        (np.array([[None]]), "array of object, not of numbers"),
        (np.ones((6, 2), complex), "array of complex128, not of numbers"),
    ],
)
def test_arrays_that_are_not_tables_are_rejected(tmp_path, array, message):
    paths = save_sets(tmp_path, ".npy")
    np.save(paths[0], array, allow_pickle=True)
    with pytest.raises(TableError, match=message):
        fit(paths)


def test_other_columns_can_be_used_or_dropped_together_with_an_embedding(tmp_path):
    ages = pa.array(np.random.default_rng(0).integers(20, 80, 120))
    paths = save_sets(tmp_path, ".parquet", name=[f"n{row}" for row in range(120)], age=ages)
    both = fit(paths, ids=("name",))
    assert len(both.schema.names) == WIDTH + 1
    assert [(column.name, column.kind) for column in both.facts.columns] == [
        ("age", "number"), ("embedding", "60 columns"), ("name", "id"),
    ]  # fmt: skip
    assert {entry.column for entry in both.facts.importance} == {"age", "embedding"}
    assert fit(paths, ids=("name",), drop=("embedding",)).schema.names == ["age"]
    assert fit(paths, ids=("name",), only=("embedding",)).schema.names == [f"embedding[{at}]" for at in range(WIDTH)]
    assert len(fit(paths, ids=("name",), drop=("embedding[3]",)).schema.names) == WIDTH


def test_the_report_describes_the_columns_together(models):
    for suffix, shown in ((".npy", "columns 0 to 59"), (".parquet", "embedding")):
        facts = models[suffix].facts
        assert [(column.name, column.kind) for column in facts.columns] == [(shown, "60 columns")]
        assert [entry.column for entry in facts.importance] == [shown]
        assert f"1 used: `{shown}`." in format_model_card(facts)


def save_tables(folder, width):
    """Write two CSV files with ordinary columns; the names of some look like positions of a list."""
    paths = []
    for seed, (name, prior) in enumerate([("a", 0.8), ("b", 0.2)]):
        frame = pd.DataFrame(draw(120, prior, seed, width)).add_prefix("dose[").add_suffix("]")
        frame["grade[0]"] = np.where(frame["dose[0]"] > 0.5, "high", "low")
        frame["dose"], frame["z"] = draw(120, prior, seed + 10, 2).T
        frame.to_csv(folder / f"{name}.csv", index=False)
        paths.append(str(folder / f"{name}.csv"))
    return paths


def test_ordinary_columns_are_not_embeddings(tmp_path):
    paths = save_tables(tmp_path, 3)
    model = fit(paths, drop=("dose[2]",))
    names = ["dose[0]", "dose[1]", "grade[0]", "dose", "z"]
    assert [column.name for column in model.facts.columns if column.used] == names
    assert "5 used: `dose[0]`, `dose[1]`, `grade[0]`, `dose`, `z`." in format_model_card(model.facts)
    importance = {entry.column: entry for entry in model.facts.importance}
    assert importance.keys() == set(names)
    assert importance["grade[0]"].highest in ("high", "low")
    assert importance["dose[1]"].direction is not None
    rows = pd.read_csv(paths[0])
    for new in (rows.drop(columns="dose[2]"), rows.assign(**{"dose[3]": 1.0})):
        new.to_csv(tmp_path / "new.csv", index=False)
        assert score_file(model, str(tmp_path / "new.csv"), str(tmp_path / "scored.csv")) == 120


def test_files_may_differ_in_dropped_columns(tmp_path):
    paths = save_tables(tmp_path, 3)
    pd.read_csv(paths[1]).drop(columns="dose[2]").to_csv(paths[1], index=False)
    assert len(fit(paths, drop=("dose[2]",)).schema.names) == 5
    lists = save_sets(tmp_path, ".parquet", age=np.random.default_rng(0).integers(20, 80, 120))
    save(tmp_path / "b.parquet", draw(120, 0.2, seed=1, width=WIDTH + 1), age=np.arange(120) % 50)
    model = fit(lists, drop=("embedding",))
    assert model.schema.names == ["age"]
    new = save(tmp_path / "new.parquet", draw(50, 0.5, seed=7, width=WIDTH + 2), age=np.arange(50))
    assert score_file(model, new, str(tmp_path / "scored.csv")) == 50


def test_a_dropped_last_column_of_an_array_may_be_missing_in_new_rows(tmp_path):
    paths = save_sets(tmp_path, ".npy")
    model = fit(paths, drop=(str(WIDTH - 1),))
    for width in (WIDTH - 1, WIDTH):
        new = save(tmp_path / "new.npy", draw(50, 0.5, seed=7, width=width))
        assert score_file(model, new, str(tmp_path / "scored.csv")) == 50
    for width in (WIDTH - 2, WIDTH + 1):
        with pytest.raises(TableError, match=f"has {width} columns, but the training data has 60; compute all"):
            score_file(model, save(tmp_path / "new.npy", draw(50, 0.5, seed=7, width=width)), str(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    "convert", [list, np.asarray, pd.DataFrame, lambda rows: pd.DataFrame({"embedding": list(rows)})]
)
def test_tables_in_memory_of_another_encoder_are_rejected(convert):
    tables = [convert(draw(60, prior, seed)) for seed, prior in enumerate((0.8, 0.2))]
    encoder = TableEncoder().fit_sets(*tables)
    for width in (WIDTH - 1, WIDTH + 1):
        with pytest.raises(TableError, match=f"{width} .*but .*60.*; compute all embeddings with the same encoder"):
            encoder.transform(convert(draw(5, 0.5, seed=7, width=width)))
    with pytest.raises(TableError, match=r"60 .*but .*61.*; compute all embeddings with the same encoder"):
        TableEncoder().fit_sets(tables[0], convert(draw(60, 0.2, seed=1, width=WIDTH + 1)))


def test_rows_of_one_frame_with_set_numbers_are_embeddings():
    rows = pd.DataFrame({"embedding": list(np.concatenate([draw(60, 0.8, 0), draw(60, 0.2, 1)]))})
    sets = np.repeat([0, 1], 60)
    python = UUClassifier((0.8, 0.2), random_state=0, **OPTIONS).fit(rows, sets)
    assert python.encoder_.schema_.lists == {"embedding": 60}
    more = UUClassifier((0.8, 0.5, 0.2), random_state=0, **OPTIONS).fit_sets(rows[:40], rows[40:80], rows[80:])
    assert more.encoder_.schema_.lists == {"embedding": 60}
    with pytest.raises(TableError, match="61 values per row in X, but 60 in the training data"):
        python.predict(pd.DataFrame({"embedding": list(draw(5, 0.5, 7, WIDTH + 1))}))


def test_constant_positions_are_named_together(tmp_path):
    rows = [draw(120, prior, seed) for seed, prior in enumerate((0.8, 0.2))]
    for own in rows:
        own[:, 10:] = 1
    paths = [save(tmp_path / f"{name}.parquet", own) for name, own in zip("ab", rows, strict=True)]
    facts = fit(paths).facts
    assert [(column.name, column.used) for column in facts.columns] == [
        ("embedding", True), ("embedding (50 columns)", False),
    ]  # fmt: skip
