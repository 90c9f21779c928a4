"""A folder of Parquet files is one table, for fit and predict."""

import errno
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from uulearn.cli.app import app
from uulearn.exceptions import TableError
from uulearn.io.formats import parquet_files
from uulearn.io.reading import is_table_folder, open_table, read_table
from uulearn.streaming import ParquetSet


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
        assert "is read as one table of 3 Parquet files" in reader.notes[-1]


def test_hidden_files_and_markers_are_ignored_at_any_depth(frame, tmp_path):
    folder = write(tmp_path / ".cache" / "_rows", frame)  # parent folders do not matter
    for place in ("_temporary/0", ".ipynb_checkpoints", "deeper/_tmp/0/more", "deeper/.git"):
        (folder / place).mkdir(parents=True)
        frame.to_parquet(folder / place / "z.parquet")
    frame.to_parquet(folder / "deeper" / "_y.parquet")
    assert len(parquet_files(folder)) == 3
    np.testing.assert_array_equal(read_table(folder)["id"], frame["id"])
    assert ParquetSet(folder, columns=["x"]).n_rows == len(frame)
    (folder / "_site=1").mkdir()  # a partition, not a marker
    frame.to_parquet(folder / "_site=1" / "z.parquet")
    assert len(read_table(folder)) == 2 * len(frame)


def test_folder_with_only_hidden_files_is_not_a_table(frame, tmp_path):
    (tmp_path / ".hidden").mkdir()
    frame.to_parquet(tmp_path / ".hidden" / "z.parquet")
    assert not is_table_folder(tmp_path)


def test_unreadable_subfolder_is_named(frame, tmp_path, monkeypatch):
    folder, scandir = write(tmp_path / "rows", frame), os.scandir

    def denied(path):
        if Path(path) == folder / "deeper":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    message = rf"{folder / 'deeper'} cannot be read \(Permission denied\); request read permission"
    for opened in (read_table, ParquetSet):
        with pytest.raises(ValueError, match=message):
            opened(folder)


@pytest.mark.parametrize("deeper", ["", "lake/one"])
def test_rejects_delta_table(frame, tmp_path, deeper):
    write(tmp_path / "rows" / deeper, frame)
    (tmp_path / "rows" / deeper / "_delta_log").mkdir()
    said = (
        rf"{tmp_path / 'rows' / deeper} is a Delta table, and its folder also contains files of earlier versions; write"
    )
    for opened in (read_table, ParquetSet):
        with pytest.raises(ValueError, match=said):
            opened(tmp_path / "rows")


def test_rejects_files_with_different_columns(frame, tmp_path):
    folder = write(tmp_path / "rows", frame)
    frame.rename(columns={"x": "y"}).to_parquet(folder / "zz.parquet")
    with pytest.raises(TableError, match=r"zz\.parquet and .* differ in the columns 'x', 'y'; use the same columns"):
        read_table(folder)


def test_folder_without_parquet_is_not_a_table(tmp_path):
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
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    for name in ("scored.parquet", "deeper/scored.parquet", "0.parquet"):
        refused = CliRunner().invoke(
            app, ["predict", str(tmp_path / "model"), folders[0], "--out", f"{folders[0]}/{name}"]
        )
        assert "would be read as input next time; write to another folder" in str(refused.exception)
    for name in ("scored.csv", "_scored.parquet"):  # is not read as rows
        scored = CliRunner().invoke(
            app, ["predict", str(tmp_path / "model"), folders[0], "--out", f"{folders[0]}/{name}"]
        )
        assert scored.exit_code == 0, scored.output
    assert len(read_table(folders[0])) == 150
    assert all(path.read_bytes() == content for path, content in before.items())
