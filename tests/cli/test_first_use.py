"""Mistakes of first-time users: input file as output, exchanged files or priors, a missing model."""

import numpy as np
import pandas as pd
import pytest

from helpers.run_command import run

LINEAR = ["--model", "linear", "--epochs", "60", "--no-sensitivity"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, share in (("a", 0.8), ("b", 0.2), ("more_a", 0.8), ("more_b", 0.2), ("labeled", 0.5)):
        ill = rng.random(400) < share
        columns = {"age": rng.normal(size=400) + 2 * ill, "dose": rng.normal(size=400) - ill, "row": np.arange(400)}
        if name == "labeled":
            columns["ill"] = ill.astype(int)
        pd.DataFrame(columns).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def models(files):
    for name, priors in (("right", "0.8 0.2"), ("wrong", "0.2 0.8")):
        command = ["fit", files / "a.csv", files / "b.csv", "--set-priors", *priors.split(), "--drop", "row", *LINEAR]
        done = run(*command, "--out", files / name)
        assert done.code == 0, done.out + done.err
        higher = "a.csv" if name == "right" else "b.csv"
        assert f"priors     80% positive in {higher}, 20% in " in (done.out + done.err)
    return files


def test_rejects_the_input_file_as_output(models, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_bytes((models / "a.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to(rows)
    for out in (rows, tmp_path / "link.csv"):
        done = run("predict", models / "right", rows, "--out", out)
        assert done.code == 2
        assert "is the input file, which would be overwritten; pass another file as --out" in (done.out + done.err)
    assert rows.read_bytes() == (models / "a.csv").read_bytes()


def test_keep_columns_copies_all_columns(models, tmp_path):
    out = tmp_path / "scored.csv"
    assert run("predict", models / "right", models / "a.csv", "--keep-columns", "--out", out).code == 0
    scored, rows = pd.read_csv(out), pd.read_csv(models / "a.csv")
    assert list(scored) == ["age", "dose", "row", "score", "probability", "class"]
    pd.testing.assert_frame_equal(scored[list(rows)], rows)
    again = run("predict", models / "right", out, "--keep-columns", "--out", tmp_path / "twice.csv")
    assert again.code == 2
    assert "already has a column 'score'" in again.err
    assert not (tmp_path / "twice.csv").exists()


def test_warns_about_exchanged_files(models):
    right = run("evaluate", models / "right", models / "more_a.csv", models / "more_b.csv")
    assert "warning" not in (right.out + right.err)
    exchanged = run("evaluate", models / "right", models / "more_b.csv", models / "more_a.csv")
    assert exchanged.code == 0
    assert "far below chance: pass the two files in the same order as in the fit" in exchanged.err


def test_warns_about_impossible_estimates(models):
    nearer = run("evaluate", models / "right", models / "more_a.csv", models / "more_b.csv", "--set-priors", 0.65, 0.35)
    assert "warning: the estimate is too high to be correct" in nearer.err


def test_labels_reveal_exchanged_priors(models):
    right = run("evaluate", models / "right", models / "labeled.csv", "--labels", "ill")
    assert "warning" not in (right.out + right.err)
    wrong = run("evaluate", models / "wrong", models / "labeled.csv", "--labels", "ill")
    assert wrong.code == 0
    assert "the class priors are probably in the wrong order" in wrong.err


def test_says_that_the_model_comes_first(models):
    done = run("predict", models / "a.csv", models / "right")
    assert done.code == 2
    assert f"; the model comes first: uulearn predict {models / 'right'} {models / 'a.csv'}." in done.err


def test_rejects_a_missing_model(models, tmp_path):
    done = run("predict", tmp_path / "none", models / "a.csv")
    assert done.code == 2
    assert "none does not exist; pass a directory that uulearn fit or UUClassifier.save wrote" in (done.out + done.err)
