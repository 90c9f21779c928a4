"""Regressions of commands: missing labels, few unique rows, numbers from every format, outdated model cards."""

import io
import json
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from torch import nn

from helpers.plain import plain_classifier
from helpers.run_command import run
from uulearn import UUClassifier
from uulearn.app import scoring
from uulearn.app.facts import RowUse
from uulearn.app.model import TableModel
from uulearn.estimator import model_directory, persistence
from uulearn.estimator.learners import NetworkModel
from uulearn.io import reading
from uulearn.io.reading import read_table
from uulearn.io.writing import TableWriter
from uulearn.tabular import images

PRIORS = ("--set-priors", "0.8", "0.2")
QUICK = ("--model", "linear", "--epochs", "5")


def assert_refused(done, *texts):
    """The command prints one sentence and nothing else."""
    assert (done.code, done.out) == (2, "")
    (sentence,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    for text in texts:
        assert text in sentence


# --------------------------------------------------------------------------------------------------- few unique rows


def answers(n, prior, rng):
    """Rows of two yes-or-no columns, so at most four unique rows, and their classes."""
    y = rng.random(n) < prior
    smokes = np.where(rng.random(n) < np.where(y, 0.8, 0.2), "yes", "no")
    fever = np.where(rng.random(n) < np.where(y, 0.7, 0.3), "yes", "no")
    return pd.DataFrame({"smokes": smokes, "fever": fever}), y


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A folder with such files and a model of them."""
    folder, rng = tmp_path_factory.mktemp("copies"), np.random.default_rng(0)
    for name, prior in (("a", 0.8), ("b", 0.2)):
        answers(500, prior, rng)[0].to_csv(folder / f"{name}.csv", index=False)
    frame, y = answers(200, 0.5, rng)
    frame.assign(truth=np.where(y, "ill", "well")).to_csv(folder / "new.csv", index=False)
    done = run("fit", folder / "a.csv", folder / "b.csv", *PRIORS, *QUICK, "--out", folder / "model")
    assert done.code == 0, done.err
    (folder / "output").write_text(done.out)
    return folder


def test_few_unique_rows_train_one_model(copies):
    loaded = TableModel.load(copies / "model")
    assert loaded.classifier.n_estimators == 1
    assert loaded.facts.row_use == RowUse((400, 400), (50, 50), (50, 50))
    assert not loaded.facts.out_of_fold
    assert any("identical rows are treated as different cases" in note for note in loaded.facts.notes)
    assert "too few distinct rows" in loaded.facts.sensitivity.skipped
    assert "50 + 50 rows held out of training" in (copies / "output").read_text()


def test_model_of_few_unique_rows_works_with_all_commands(copies, tmp_path):
    done = run("predict", copies / "model", copies / "new.csv", "--out", tmp_path / "scored.csv")
    assert done.code == 0, done.err
    scored, rows = pd.read_csv(tmp_path / "scored.csv"), pd.read_csv(copies / "new.csv")
    kinds = scored.groupby([rows["smokes"], rows["fever"]])["score"]
    assert kinds.nunique().tolist() == [1, 1, 1, 1]
    assert kinds.first().idxmin() == ("no", "no")
    assert kinds.first().idxmax() == ("yes", "yes")
    done = run("evaluate", copies / "model", copies / "new.csv", "--labels", "truth", "--positive", "ill", "--json")
    assert json.loads(done.out)["evaluation"]["accuracy"]["value"] > 0.7
    done = run("report", copies / "model", "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert "too few distinct rows" in (tmp_path / "page.html").read_text()
    done = run("fit", "--config", copies / "model" / "config.toml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    weights = [next(folder.glob("weights-*")).name for folder in (copies / "model", tmp_path / "again")]
    assert weights[0] == weights[1]


def test_requested_ensemble_is_trained_or_refused(copies, tmp_path):
    files = (copies / "a.csv", copies / "b.csv", *PRIORS, *QUICK)
    refused = run("fit", *files, "--n-estimators", "5", "--out", tmp_path / "five")
    assert_refused(refused, "cannot be split into 5 folds")
    (tmp_path / "rounds.toml").write_text("[classifier]\nself_training_rounds = 2\n")  # self-training needs an ensemble
    assert_refused(run("fit", *files, "--config", tmp_path / "rounds.toml", "--out", tmp_path / "m"), "5 folds")
    assert run("fit", *files, "--n-estimators", "2", "--no-sensitivity", "--out", tmp_path / "two").code == 0
    assert TableModel.load(tmp_path / "two").classifier.n_estimators == 2
    (tmp_path / "auto.toml").write_text('[classifier]\nn_estimators = "auto"\n')
    done = run("fit", *files, "--config", tmp_path / "auto.toml", "--sensitivity", "--out", tmp_path / "auto")
    assert done.code == 0, done.err
    assert TableModel.load(tmp_path / "auto").classifier.n_estimators == 1


def test_copies_stay_together_if_all_rows_have_one(tmp_path):
    for name, start in (("a", 0), ("b", 100)):
        pd.DataFrame({"x": np.repeat(np.arange(start, start + 45), 2)}).to_csv(tmp_path / f"{name}.csv", index=False)
    files = (tmp_path / "a.csv", tmp_path / "b.csv")
    done = run("fit", *files, *PRIORS, *QUICK, "--allow-leakage", "--out", tmp_path / "model")
    assert done.code == 0, done.err
    model = TableModel.load(tmp_path / "model")
    facts = model.facts
    assert model.classifier.scaling_ is not None  # a single model is calibrated too, for the probabilities of predict
    assert not facts.out_of_fold  # as in Python, rows with copies of a few values train a single model
    assert all(number % 2 == 0 for number in facts.row_use.evaluation + facts.row_use.training)


def test_too_few_rows_with_copies_are_an_error(tmp_path):
    rng = np.random.default_rng(0)
    for name, prior in (("a", 0.8), ("b", 0.2)):
        answers(8, prior, rng)[0].to_csv(tmp_path / f"{name}.csv", index=False)
    done = run("fit", tmp_path / "a.csv", tmp_path / "b.csv", *PRIORS, *QUICK, "--out", tmp_path / "model")
    assert done.code == 2
    assert "set 0 has 8 rows, too few to hold out a fraction of 0.2" in done.err


# ----------------------------------------------------------------------------------------------------- missing labels


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("positive", [("--positive", "ill"), ()])
def test_rejects_missing_labels_with_their_number(copies, tmp_path, monkeypatch, suffix, positive):
    monkeypatch.setattr(images, "CHUNK_ROWS", 77)
    rows = pd.read_csv(copies / "new.csv")
    if not positive:
        rows["truth"] = (rows["truth"] == "ill").map({True: "yes", False: "no"})
    rows.loc[[3, 80, 190], "truth"] = [None, "  ", ""]
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows)
    options = ("--labels", "truth", *positive)
    done = run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options)
    assert_refused(done, "3 rows have no label in column 'truth' (empty, or a marker such as NA); remove the rows")
    rows.loc[[3, 80], "truth"] = rows.loc[4, "truth"]
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows)
    assert_refused(run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options), "1 row has no label")
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows.drop(index=190))
    done = run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options, "--json")
    assert sum(json.loads(done.out)["confusion"].values()) == 199


def test_rejects_an_unknown_label_by_name(copies):
    done = run("evaluate", copies / "model", copies / "new.csv", "--labels", "truth")
    assert_refused(done, "column 'truth' contains '", "pass the label of the positive class with --positive VALUE.")


def test_rejects_missing_numeric_labels(copies, tmp_path):
    """A column of floats with NaN for missing labels."""
    rows = pd.read_csv(copies / "new.csv")
    rows["truth"] = (rows["truth"] == "ill").astype(float).where(rows.index != 7)
    rows.to_parquet(tmp_path / "rows.parquet")
    done = run("evaluate", copies / "model", tmp_path / "rows.parquet", "--labels", "truth", "--positive", "1")
    assert_refused(done, "1 row has no label")


# -------------------------------------------------------------------------------------------- numbers from any file


@pytest.fixture(scope="module")
def numbers(tmp_path_factory, gaussians):
    """Models of `UUClassifier.save` with and without column names, rows for them, and their scores."""
    folder = tmp_path_factory.mktemp("numbers")
    plain = plain_classifier((0.8, 0.2), model="linear", epochs=3, lr=0.1, random_state=0, encoder=None)
    named = pd.DataFrame(gaussians["X"], columns=["a", "b", "c"])
    plain.fit(gaussians["X"], gaussians["sets"]).save(folder / "bare")
    classifier = plain.fit(named, gaussians["sets"])
    classifier.save(folder / "named")
    rows = pd.DataFrame(gaussians["X_test"][:200], columns=["a", "b", "c"])
    return SimpleNamespace(folder=folder, rows=rows, scores=classifier.decision_function(rows))


@pytest.fixture
def standard_input(monkeypatch):
    def put(content):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))

    return put


@pytest.mark.parametrize(
    "name", ["r.csv", "r.tsv", "r.parquet", "r.feather", "r.jsonl", "r.csv.gz", "r.jsonl.zst", "r.npy", "r.npz"]
)
def test_scores_numbers_from_every_format(numbers, tmp_path, name):
    if name == "r.npy":
        np.save(tmp_path / name, numbers.rows)
    elif name == "r.npz":
        np.savez(tmp_path / name, X=numbers.rows)
    else:  # columns in another order, and an unknown text column
        with TableWriter(tmp_path / name) as writer:
            writer.write(numbers.rows[["c", "a", "b"]].assign(patient=[f"p{n}" for n in range(200)]))
    done = run("predict", numbers.folder / "named", tmp_path / name)
    assert (done.code, done.err) == (0, "")
    scored = pd.read_csv(io.StringIO(done.out))
    np.testing.assert_allclose(scored["score"], numbers.scores, rtol=1e-4)
    np.testing.assert_array_equal(scored["class"], numbers.scores > 0)


def test_scores_numbers_from_a_folder_of_parquet_files(numbers, tmp_path):
    folder = tmp_path / "rows"
    (folder / "more").mkdir(parents=True)
    numbers.rows[:120][["c", "a", "b"]].to_parquet(folder / "0.parquet")
    numbers.rows[120:].to_parquet(folder / "more" / "1.parquet")
    (folder / "_SUCCESS").write_text("")
    for model in ("named", "bare"):
        if model == "bare":  # columns are taken in the order of the first file
            numbers.rows[:120].to_parquet(folder / "0.parquet")
        done = run("predict", numbers.folder / model, folder)
        assert (done.code, done.err) == (0, "")
        np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], numbers.scores, rtol=1e-4)
    out = folder / "more" / "scored.parquet"
    assert_refused(
        run("predict", numbers.folder / "named", folder, "--out", out), f"{out} is inside {folder} and would"
    )
    assert not out.exists()


def test_rejects_a_folder_without_parquet_files(numbers, tmp_path):
    message = f"{tmp_path} is a folder without Parquet files; pass a file, or a folder of Parquet files."
    assert_refused(run("predict", numbers.folder / "named", tmp_path), message)


@pytest.mark.parametrize("name", ["s.tsv", "s.parquet", "s.feather", "s.jsonl", "s.csv.gz"])
def test_suffix_chooses_the_output_format(numbers, tmp_path, name):
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    done = run("predict", numbers.folder / "named", tmp_path / "rows.csv", "--out", tmp_path / name)
    assert (done.code, done.out, done.err) == (0, "", f"200 rows scored, written to {tmp_path / name}\n")
    scored = read_table(tmp_path / name)
    assert list(scored.columns) == ["score", "probability", "class"]
    np.testing.assert_allclose(scored["score"].astype(float), numbers.scores, rtol=1e-4)
    start = {"s.parquet": b"PAR1", "s.feather": b"ARROW1", "s.csv.gz": b"\x1f\x8b"}.get(name, b"")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_scores_numbers_from_standard_input(numbers, standard_input):
    standard_input(numbers.rows.to_csv(index=False).encode())
    done = run("predict", numbers.folder / "named", "-")
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], numbers.scores, rtol=1e-4)
    standard_input(numbers.rows.to_json(orient="records", lines=True).encode())
    assert run("predict", numbers.folder / "named", "-", "--format", "jsonl").out == done.out
    standard_input(b"")
    assert_refused(run("predict", numbers.folder / "named", "-"), "standard input is empty")


def test_target_prior_shifts_scores_of_numbers(numbers, tmp_path):
    np.save(tmp_path / "rows.npy", numbers.rows)
    done = run("predict", numbers.folder / "named", tmp_path / "rows.npy", "--target-prior", "0.9")
    moved = UUClassifier.load(numbers.folder / "named").with_target_prior(0.9).decision_function(numbers.rows)
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], moved, rtol=1e-4)


def test_format_option_overrides_the_suffix(numbers, tmp_path):
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    named = (numbers.folder / "named", tmp_path / "rows.csv")
    assert_refused(run("predict", *named, "--format", "nonsense"), "format must be one of csv", "'nonsense'")
    assert_refused(run("predict", *named, "--format", "parquet"), "Parquet")
    (tmp_path / "rows.csv").rename(tmp_path / "rows.txt")
    unnamed = run("predict", numbers.folder / "named", tmp_path / "rows.txt")
    assert_refused(unnamed, "has no supported suffix", ".zst), or name its format with --format.")
    missing = run("predict", numbers.folder / "named", tmp_path / "rows.txd")
    assert_refused(missing, "does not exist (did you mean 'rows.txt'?); check the path.")
    assert run("predict", numbers.folder / "named", tmp_path / "rows.txt", "--format", "csv").code == 0


@pytest.mark.parametrize("name", ["s.npy", "s.xlsx", "scores"])
def test_rejects_an_unknown_output_format(numbers, tmp_path, name):
    np.save(tmp_path / "rows.npy", numbers.rows)
    assert_refused(run("predict", numbers.folder / "named", tmp_path / "rows.npy", "--out", tmp_path / name), name)
    assert not (tmp_path / name).exists()


def test_chunks_do_not_change_the_scores_of_numbers(numbers, tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", numbers.rows)
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    whole = run("predict", numbers.folder / "named", tmp_path / "rows.csv").out
    seen = []
    own = scoring.score_matrix
    monkeypatch.setattr(
        scoring, "score_matrix", lambda classifier, X, *rest: seen.append(len(X)) or own(classifier, X, *rest)
    )
    monkeypatch.setattr(scoring, "ARRAY_CHUNK_BYTES", 77 * 3 * 8)
    assert run("predict", numbers.folder / "named", tmp_path / "rows.npy").out == whole
    assert seen == [77, 77, 46]
    monkeypatch.setattr(
        scoring, "open_table", lambda path, **options: reading.open_table(path, chunk_rows=90, **options)
    )
    assert run("predict", numbers.folder / "named", tmp_path / "rows.csv").out == whole
    assert seen[3:] == [90, 90, 20]
    rows = numbers.rows.to_numpy(copy=True)
    rows[150, 2] = np.inf
    np.save(tmp_path / "rows.npy", rows)
    pd.DataFrame(rows, columns=["a", "b", "c"]).to_csv(tmp_path / "rows.csv", index=False)
    for name, column in (("rows.npy", "2"), ("rows.csv", "'c'")):
        done = run("predict", numbers.folder / "named", tmp_path / name, "--out", tmp_path / "s.csv")
        assert_refused(done, "inf", f" in row 151, column {column}, which is not a finite number")
        assert not (tmp_path / "s.csv").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a,b,c\n1,2,1e39\n", "has '1e39' in row 1, column 'c', which is not a finite number"),
        ("a,b,c\n1,2,-1e18\n", "has '-1e18' in row 1, column 'c', which is not a finite number of at most 1e+15"),
        ("a,b,c\n1,2,yes\n", "has 'yes' in row 1, column 'c', which is not a finite number"),
        ("a,b,c\n1,2,3\n1,,3\n", "has nothing in row 2, column 'b', which is not a finite number"),
        ("a,b,d\n1,2,3\n", "lacks the column 'c'"),
        ("a,b,c\n", "standard input has no rows"),
        ("5,2,3,4\n5,6,7,8\n", "has 4 columns, but the model expects 3"),
    ],
)
def test_rejects_cells_that_are_not_numbers(numbers, standard_input, content, text):
    standard_input(content.encode())
    assert_refused(run("predict", numbers.folder / "named", "-"), text)


def test_columns_without_names_are_used_in_order(numbers, standard_input):
    lines = {
        "named": numbers.rows.to_csv(index=False),
        "counted": pd.DataFrame(numbers.rows.to_numpy()).to_csv(index=False),
        "bare": numbers.rows.to_csv(index=False, header=False),
        "semicolons": numbers.rows.to_csv(index=False, sep=";"),
    }
    for model in ("named", "bare"):
        found = set()
        for content in lines.values():
            standard_input(content.encode())
            found.add(run("predict", numbers.folder / model, "-").out)
        (scores,) = found
        assert len(scores.splitlines()) == 201
    standard_input(numbers.rows.assign(patient=1).to_csv(index=False).encode())  # unclear which column to ignore
    assert_refused(run("predict", numbers.folder / "bare", "-"), "has 4 columns, but the model expects 3")


def test_numeric_column_names_are_matched_by_name(tmp_path, gaussians):
    frame = pd.DataFrame(gaussians["X"], columns=["2", "0", "1"])
    classifier = plain_classifier((0.8, 0.2), model="linear", epochs=3, lr=0.1, encoder=None)
    classifier.fit(frame, gaussians["sets"])
    frame[["0", "1", "2"]].to_csv(tmp_path / "rows.csv", index=False)
    expected = classifier.decision_function(frame)
    scoring.score_file(classifier, str(tmp_path / "rows.csv"), str(tmp_path / "scored.csv"))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scored.csv")["score"], expected, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_booleans_are_read_as_numbers(numbers, tmp_path, suffix):
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(numbers.rows.assign(c=numbers.rows["c"] > 0))
    done = run("predict", numbers.folder / "named", tmp_path / f"rows{suffix}")
    assert done.code == 0, done.err
    classifier = UUClassifier.load(numbers.folder / "named")
    expected = classifier.decision_function(numbers.rows.assign(c=(numbers.rows["c"] > 0).astype(float)))
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], expected, rtol=1e-4)


def test_predict_makes_one_forward_pass_and_reads_each_model_file_once(copies, tmp_path, monkeypatch):
    """`predict` needs scores and probabilities; both come from the same pass."""
    passes, read = [], []
    forward, read_file = NetworkModel.score, model_directory.read_file
    monkeypatch.setattr(NetworkModel, "score", lambda self, rows: passes.append(rows.n_rows) or forward(self, rows))
    for module in (model_directory, persistence):
        monkeypatch.setattr(
            module,
            "read_file",
            lambda folder, entry: read.append(entry["name"]) or read_file(folder, entry),
            raising=False,
        )
    done = run("predict", copies / "model", copies / "new.csv", "--out", tmp_path / "scored.csv")
    assert done.code == 0, done.err
    assert passes == [200]
    assert len(read) == len(set(read)) == 6


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((0, 3)), "has no rows"),
        (np.zeros((4, 2)), "contains an array of shape (4, 2), but the model expects rows of shape (3,)"),
        (np.zeros(3), "of shape (3,), but the model expects"),
        (np.array(3.0), "of shape (), but the model expects"),
        (np.array([["1", "2", "3"]]), "not of numbers"),
        (np.array([[1.0, 2.0, 1e39]]), "has 1e+39 in row 1, column 2, which is not a finite number"),
        (np.array([[1, 2, 2 * 10**18]]), "has 2000000000000000000 in row 1, column 2, which is not a finite number"),
        (np.array([[1, None, 3]], dtype=object), "is not a readable .npy array"),
        (b"a,b,c\n1,2,3\n", "is not a readable .npy array"),
        (None, "does not exist; check the path."),
    ],
)
def test_rejects_unusable_arrays(numbers, tmp_path, array, text):
    if isinstance(array, bytes):
        (tmp_path / "rows.npy").write_bytes(array)
    elif array is not None:
        np.save(tmp_path / "rows.npy", array)
    assert_refused(run("predict", numbers.folder / "named", tmp_path / "rows.npy"), text)


@pytest.mark.parametrize("dtype", ["int8", "bool", ">f8", "float16"])
def test_scores_arrays_of_other_dtypes(numbers, tmp_path, dtype):
    X = np.round(numbers.rows.to_numpy()).astype(dtype)
    np.save(tmp_path / "rows.npy", X)
    done = run("predict", numbers.folder / "bare", tmp_path / "rows.npy")
    assert done.code == 0, done.err
    expected = UUClassifier.load(numbers.folder / "bare").decision_function(X.astype(np.float64))
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], expected, rtol=1e-4, atol=1e-5)


def test_scores_arrays_of_other_row_shapes(tmp_path, gaussians):
    images_of = [np.repeat(gaussians[name][:40, None, :], 2, axis=1) for name in ("X0", "X1")]  # rows of 2 × 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 1))
    classifier = plain_classifier((0.8, 0.2), model=model, epochs=3, random_state=0).fit_sets(*images_of)
    np.save(tmp_path / "rows.npy", images_of[0])
    assert scoring.score_file(classifier, str(tmp_path / "rows.npy"), str(tmp_path / "scored.csv")) == 40
    expected = classifier.decision_function(images_of[0])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scored.csv")["score"], expected, rtol=1e-4)
    (tmp_path / "rows.csv").touch()
    with pytest.raises(ValueError, match=r"expects rows of shape \(2, 3\), which a table cannot store; pass a .npy"):
        scoring.score_file(classifier, str(tmp_path / "rows.csv"), "-")
    with pytest.raises(ValueError, match="pass a .npy file"):
        scoring.score_file(classifier, "-", "-", format="npy")


# ---------------------------------------------------------------------------------------------- cards of other models


@pytest.fixture
def reported(copies, tmp_path):
    """A model directory of `uulearn fit` with a report and a file of the user."""
    shutil.copytree(copies / "model", tmp_path / "model")
    assert run("report", tmp_path / "model").code == 0
    (tmp_path / "model" / "notes.md").write_text("mine")
    return tmp_path / "model"


def names_in(folder):
    return {path.name.split("-")[0] for path in folder.iterdir()}


OF_A_CLASSIFIER = {"model.json", "weights", "history", "reference"}
CARDS = {"README.md", "config.toml", "report.html"}


def test_saving_a_classifier_over_a_fit_removes_its_cards(numbers, reported):
    assert names_in(reported) >= CARDS
    UUClassifier.load(numbers.folder / "named").save(reported)
    assert names_in(reported) == {*OF_A_CLASSIFIER, "notes.md"}
    np.testing.assert_allclose(UUClassifier.load(reported).decision_function(numbers.rows), numbers.scores, rtol=1e-5)


def test_failed_save_keeps_the_cards(numbers, reported, monkeypatch):
    before = {path.name: path.read_bytes() for path in reported.iterdir()}

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_directory, "_write", full)
    with pytest.raises(OSError, match="No space"):
        UUClassifier.load(numbers.folder / "named").save(reported)
    assert {path.name: path.read_bytes() for path in reported.iterdir()} == before


@pytest.mark.parametrize("model", [True, False])
def test_save_keeps_files_of_the_user(numbers, tmp_path, model):
    """In a model directory, and in a folder without a model."""
    classifier = UUClassifier.load(numbers.folder / "named")
    if model:
        classifier.save(tmp_path)
    for name in CARDS:
        (tmp_path / name).write_text("mine")
    UUClassifier.load(numbers.folder / "bare").save(tmp_path)
    assert names_in(tmp_path) == {*OF_A_CLASSIFIER, *CARDS}
    assert {(tmp_path / name).read_text() for name in CARDS} == {"mine"}


def test_save_keeps_files_if_facts_have_no_model(numbers, tmp_path):
    (tmp_path / "facts-0123456789abcdef.json").write_text("{}")  # left by a killed process
    (tmp_path / "README.md").write_text("mine")
    UUClassifier.load(numbers.folder / "bare").save(tmp_path)
    assert names_in(tmp_path) == {*OF_A_CLASSIFIER, "README.md"}


def test_saving_a_fit_over_a_fit_replaces_the_cards(reported):
    loaded = TableModel.load(reported)
    changed = replace(loaded, facts=replace(loaded.facts, created="another day"))
    changed.save(reported, {"README.md": b"new"})
    assert names_in(reported) & CARDS == {"README.md"}
    assert (reported / "README.md").read_text() == "new"


def test_saving_the_same_model_keeps_cards_and_folders(reported, numbers):
    TableModel.load(reported).save(reported)
    assert names_in(reported) >= CARDS
    (reported / "report.html").unlink()
    (reported / "report.html").mkdir()
    UUClassifier.load(numbers.folder / "named").save(reported)
    assert names_in(reported) == {*OF_A_CLASSIFIER, "notes.md", "report.html"}
