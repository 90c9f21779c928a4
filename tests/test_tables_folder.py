"""A folder of Parquet files is one table, for fit and predict."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from uulearn.cli.app import app
from uulearn.exceptions import TableError
from uulearn.tables.reading import is_table_folder, open_table, read_table


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=90), "kind": rng.choice(["one", "two"], 90), "id": np.arange(90)})


def write(folder, frame, parts=3):
    for number, part in enumerate(np.array_split(np.arange(len(frame)), parts)):
        place = folder / ("deeper" if number == parts - 1 else "")
        place.mkdir(parents=True, exist_ok=True)
        names = frame.columns[::-1] if number else frame.columns  # in any order
        frame.iloc[part][names].to_parquet(place / f"{number}.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.parquet").write_text("no Parquet")
    return folder


def test_files_are_read_one_after_the_other(frame, tmp_path):
    folder = write(tmp_path / "rows", frame)
    assert is_table_folder(folder)
    found = read_table(folder)
    assert list(found.columns) == list(frame.columns)
    np.testing.assert_array_equal(found["id"], frame["id"])
    np.testing.assert_array_equal(found["x"], frame["x"])
    with open_table(folder, chunk_rows=20) as reader:
        assert [len(chunk) for chunk in reader] == [20, 10] * 3
        assert "is read as the 3 Parquet files in it" in reader.notes[-1]


def test_files_of_other_columns_are_refused(frame, tmp_path):
    folder = write(tmp_path / "rows", frame)
    frame.rename(columns={"x": "y"}).to_parquet(folder / "zz.parquet")
    with pytest.raises(TableError, match=r"zz\.parquet has other columns than .*: 'x', 'y'; write files of the same"):
        read_table(folder)


def test_a_folder_without_parquet_is_none(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    assert not is_table_folder(tmp_path)
    assert not is_table_folder("-")
    assert not is_table_folder(tmp_path / "a.csv")


def test_fit_and_predict_take_folders(tmp_path):
    rng = np.random.default_rng(0)
    for name, share in (("a", 0.8), ("b", 0.2)):
        positive = rng.random(150) < share
        columns = {"x": rng.normal(size=150) + 2 * positive, "id": np.arange(150)}
        write(tmp_path / name, pd.DataFrame(columns))
    folders = [str(tmp_path / name) for name in ("a", "b")]
    options = ["--set-priors", "0.8 0.2", "--id", "id", "--model", "linear", "--epochs", "5", "--no-sensitivity"]
    fitted = CliRunner().invoke(app, ["fit", *folders, *options, "--out", str(tmp_path / "model")])
    assert fitted.exit_code == 0, fitted.output
    out = tmp_path / "scored.parquet"
    scored = CliRunner().invoke(app, ["predict", str(tmp_path / "model"), folders[0], "--out", str(out)])
    assert scored.exit_code == 0, scored.output
    assert pd.read_parquet(out)["id"].tolist() == list(range(150))
