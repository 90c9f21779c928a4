"""Slips of a first user: the file of rows as output, files or shares exchanged, a model that is not there."""

import numpy as np
import pandas as pd
import pytest

from helpers.run_command import run

LINEAR = ["--model", "linear", "--epochs", "60", "--no-sensitivity"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, share in (("a", 0.8), ("b", 0.2), ("more_a", 0.8), ("more_b", 0.2), ("labelled", 0.5)):
        ill = rng.random(400) < share
        columns = {"age": rng.normal(size=400) + 2 * ill, "dose": rng.normal(size=400) - ill, "row": np.arange(400)}
        if name == "labelled":
            columns["ill"] = ill.astype(int)
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def models(files):
    for name, priors in (("right", "0.8 0.2"), ("wrong", "0.2 0.8")):
        command = ["fit", files / "a.csv", files / "b.csv", "--set-priors", *priors.split(), "--drop", "row", *LINEAR]
        done = run(*command, "--out", files / name)
        assert done.code == 0, done.out + done.err
        richer = "a.csv" if name == "right" else "b.csv"
        assert f"priors     80% positive in {richer}, 20% in " in (done.out + done.err)
    return files


def test_rows_are_not_written_over(models, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_bytes((models / "a.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to(rows)
    for out in (rows, tmp_path / "link.csv"):
        done = run("predict", models / "right", rows, "--out", out)
        assert done.code == 2
        assert "is the file of rows itself, which would be lost; write to another" in (done.out + done.err)
    assert rows.read_bytes() == (models / "a.csv").read_bytes()


def test_columns_are_kept_on_request(models, tmp_path):
    out = tmp_path / "scored.csv"
    assert run("predict", models / "right", models / "a.csv", "--keep-columns", "--out", out).code == 0
    scored, rows = pd.read_csv(out), pd.read_csv(models / "a.csv")
    assert list(scored) == ["age", "dose", "row", "score", "probability", "class"]
    pd.testing.assert_frame_equal(scored[list(rows)], rows)
    again = run("predict", models / "right", out, "--keep-columns", "--out", tmp_path / "twice.csv")
    assert again.code == 2
    assert "has a column 'score' already" in again.err
    assert not (tmp_path / "twice.csv").exists()


def test_exchanged_files_are_noticed(models):
    right = run("evaluate", models / "right", models / "more_a.csv", models / "more_b.csv")
    assert "warning" not in (right.out + right.err)
    exchanged = run("evaluate", models / "right", models / "more_b.csv", models / "more_a.csv")
    assert exchanged.code == 0
    assert "far below chance: pass the two files in the order in which the model was fitted" in exchanged.err


def test_impossible_estimates_are_remarked_on(models):
    nearer = run("evaluate", models / "right", models / "more_a.csv", models / "more_b.csv", "--set-priors", 0.65, 0.35)
    assert "warning: the estimate is beyond what is possible" in nearer.err


def test_exchanged_shares_are_noticed_by_labels(models):
    right = run("evaluate", models / "right", models / "labelled.csv", "--labels", "ill")
    assert "warning" not in (right.out + right.err)
    wrong = run("evaluate", models / "wrong", models / "labelled.csv", "--labels", "ill")
    assert wrong.code == 0
    assert "the shares of positives were probably given in the wrong order" in wrong.err


def test_a_model_that_is_not_there_is_called_so(models, tmp_path):
    done = run("predict", tmp_path / "none", models / "a.csv")
    assert done.code == 2
    assert "none does not exist; pass a directory that uulearn fit or UUClassifier.save wrote" in (done.out + done.err)
