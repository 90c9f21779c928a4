"""``uulearn predict`` and ``uulearn evaluate`` warn if new rows are not a mixture of the two files."""

import numpy as np
import pandas as pd
import pytest

from helpers.command_line import PRIORS, run
from helpers.manifests import rewrite
from uulearn import UUClassifier
from uulearn.io.reading import open_table

MIXTURE = "rows are not a mixture of the two sets (p = "


def draw(n, prior, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < prior
    X = rng.normal(np.where(y, 1.5, 0)[:, None], 1, (n, 3)).round(3)
    return pd.DataFrame(X, columns=["age", "dose", "pulse"]).assign(label=y.astype(int))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two files, a model, and files of valid and of moved rows."""
    place = tmp_path_factory.mktemp("check")
    for name, prior, seed in (("a", 0.8, 0), ("b", 0.2, 1), ("new", 0.3, 2), ("moved", 0.3, 3)):
        frame = draw(400 if name in "ab" else 300, prior, seed)
        frame["dose"] += 0.9 * (name == "moved")
        frame.drop(columns="label" if name in "ab" else []).to_csv(place / f"{name}.csv", index=False)
    files = (place / "a.csv", place / "b.csv")
    options = ("--model", "linear", "--epochs", "5", "--no-sensitivity", "--out", place / "model")
    assert run("fit", *files, *PRIORS, *options).code == 0
    return place


def test_predict_warns_and_succeeds(folder, tmp_path):
    fine, moved = (run("predict", folder / "model", folder / name, "--out", tmp_path / "scored.csv")
                   for name in ("new.csv", "moved.csv"))  # fmt: skip
    assert (fine.code, len(fine.said)) == (0, 1)
    assert moved.code == 0
    warning, written = moved.said
    assert warning.startswith(f"warning: {folder / 'moved.csv'}: 300 {MIXTURE}")
    assert "'dose' (higher)" in warning
    assert warning.endswith("Ignore this warning if the model was trained on these rows.")
    assert written.startswith("300 rows scored")
    silent = run("predict", folder / "model", folder / "moved.csv", "--no-check", "--out", tmp_path / "scored.csv")
    assert silent.said == [written]


def test_chunks_of_a_file_are_checked_together(folder, tmp_path, monkeypatch):
    asked = ("predict", folder / "model", folder / "moved.csv", "--out", tmp_path / "scored.csv")
    whole = run(*asked).said
    monkeypatch.setitem(open_table.__kwdefaults__, "chunk_rows", 64)
    assert run(*asked).said == whole


def test_evaluate_checks_every_file(folder):
    fine = run("evaluate", folder / "model", folder / "a.csv", folder / "b.csv")
    assert (fine.code, fine.said) == (0, [])
    assert run("evaluate", folder / "model", folder / "new.csv", "--labels", "label").said == []
    labeled = run("evaluate", folder / "model", folder / "moved.csv", "--labels", "label")
    assert labeled.code == 0
    assert [line for line in labeled.said if MIXTURE in line]
    both = run("evaluate", folder / "model", folder / "new.csv", folder / "moved.csv")
    assert [line.split(": ")[1] for line in both.said if MIXTURE in line] == [str(folder / "moved.csv")]
    assert "accuracy" in both.out
    assert run("evaluate", folder / "model", folder / "moved.csv", "--labels", "label", "--no-check").said == []


def test_models_that_cannot_be_checked_say_so(folder, tmp_path):
    X0, X1 = (draw(200, prior, seed).drop(columns="label").to_numpy() for seed, prior in enumerate((0.8, 0.2)))
    UUClassifier((0.8, 0.2), model="linear", epochs=2, random_state=0, progress=False).fit_sets(X0, X1).save(tmp_path)
    np.save(tmp_path / "moved.npy", X0 + 2)
    asked = ("predict", tmp_path, tmp_path / "moved.npy", "--out", tmp_path / "scored.csv")
    assert MIXTURE in run(*asked).said[0]  # a file of numbers
    rewrite(tmp_path, lambda manifest: manifest["files"].pop("reference"))
    note, _ = run(*asked).said
    assert note.startswith(f"note: {tmp_path / 'moved.npy'}: 200 rows were not compared with the two sets: the model")
    np.save(tmp_path / "moved.npy", X0[:40] + 2)
    assert len(run(*asked).said) == 1  # few rows show nothing
