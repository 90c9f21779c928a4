"""Commands where they once went wrong: missing labels, rows that are copies, numbers from any file, stale cards."""

import io
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from torch import nn

from helpers.plain import plain_classifier
from helpers.run_command import run
from uulearn import UUClassifier
from uulearn.app import fitting
from uulearn.app.model import TableModel
from uulearn.cli import predict
from uulearn.estimator import model_directory
from uulearn.io import formats, reading
from uulearn.io.reading import read_table
from uulearn.io.writing import TableWriter
from uulearn.tabular import images

PRIORS = ("--set-priors", "0.8", "0.2")
QUICK = ("--model", "linear", "--epochs", "5")


def assert_refused(done, *texts):
    """One sentence, and nothing else."""
    assert (done.code, done.out) == (2, "")
    (sentence,) = [line for line in done.err.splitlines() if line.startswith("error: ")]
    for text in texts:
        assert text in sentence


# ------------------------------------------------------------------------------- rows that are copies of a few kinds


def answers(n, prior, rng):
    """Two questions, yes or no: four kinds of rows; and the class of each."""
    y = rng.random(n) < prior
    smokes = np.where(rng.random(n) < np.where(y, 0.8, 0.2), "yes", "no")
    fever = np.where(rng.random(n) < np.where(y, 0.7, 0.3), "yes", "no")
    return pd.DataFrame({"smokes": smokes, "fever": fever}), y


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """A folder of such files, and a model fitted to them by default, but quickly."""
    folder, rng = tmp_path_factory.mktemp("copies"), np.random.default_rng(0)
    for name, prior in (("a", 0.8), ("b", 0.2)):
        answers(500, prior, rng)[0].to_csv(folder / f"{name}.csv", index=False)
    frame, y = answers(200, 0.5, rng)
    frame.assign(truth=np.where(y, "ill", "well")).to_csv(folder / "new.csv", index=False)
    done = run("fit", folder / "a.csv", folder / "b.csv", *PRIORS, *QUICK, "--out", folder / "model")
    assert done.code == 0, done.err
    (folder / "said").write_text(done.out)
    return folder


def test_a_table_of_few_kinds_is_fitted_with_one_member(copies):
    loaded = TableModel.load(copies / "model")
    assert loaded.classifier.n_estimators == 1
    assert loaded.facts["split"] == {"train": [400, 400], "choose": [50, 50], "evaluate": [50, 50]}
    assert not loaded.facts["cross_fitted"]
    assert any("equal rows were taken for different cases" in note for note in loaded.facts["notes"])
    assert "none can be left out" in loaded.facts["sensitivity"]["skipped"]
    assert "from 50 + 50 rows that were not trained on" in (copies / "said").read_text()


def test_a_model_of_few_kinds_predicts_is_evaluated_reported_and_repeated(copies, tmp_path):
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
    assert "none can be left out" in (tmp_path / "page.html").read_text()
    done = run("fit", "--config", copies / "model" / "config.toml", "--out", tmp_path / "again")
    assert done.code == 0, done.err
    weights = [next(folder.glob("weights-*")).name for folder in (copies / "model", tmp_path / "again")]
    assert weights[0] == weights[1]


def test_who_asks_for_members_gets_them_or_a_sentence(copies, tmp_path):
    files = (copies / "a.csv", copies / "b.csv", *PRIORS, *QUICK)
    refused = run("fit", *files, "--n-estimators", "5", "--out", tmp_path / "five")
    assert_refused(refused, "cannot be cut into 5 folds")
    (tmp_path / "rounds.toml").write_text("[classifier]\nself_training_rounds = 2\n")  # of refinement, which needs members
    assert_refused(run("fit", *files, "--config", tmp_path / "rounds.toml", "--out", tmp_path / "m"), "5 folds")
    assert run("fit", *files, "--n-estimators", "2", "--no-sensitivity", "--out", tmp_path / "two").code == 0
    assert TableModel.load(tmp_path / "two").classifier.n_estimators == 2
    (tmp_path / "auto.toml").write_text('[classifier]\nn_estimators = "auto"\n')
    done = run("fit", *files, "--config", tmp_path / "auto.toml", "--sensitivity", "--out", tmp_path / "auto")
    assert done.code == 0, done.err
    assert TableModel.load(tmp_path / "auto").classifier.n_estimators == 1


def test_rows_are_of_few_kinds_only_where_equal_rows_can_be_held_out():
    rng = np.random.default_rng(0)

    def drawn(n, kinds):
        return tuple(rng.integers(0, kinds, (n, 1)).astype(np.float32) for _ in range(2))

    assert fitting._of_few_kinds(drawn(500, 4), 0.2, 0)
    assert not fitting._of_few_kinds(drawn(500, 10_000), 0.2, 0)
    assert not fitting._of_few_kinds(drawn(8, 2), 0.2, 0)  # a fifth of eight rows cannot choose and evaluate
    pairs = np.repeat(np.arange(45, dtype=np.float32), 2)[:, None]  # copies too, but of many rows
    assert not fitting._of_few_kinds((pairs, pairs + 100), 0.2, 0)


# ----------------------------------------------------------------------------------------------------- missing labels


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("positive", [("--positive", "ill"), ()])
def test_missing_labels_are_counted_and_refused(copies, tmp_path, monkeypatch, suffix, positive):
    monkeypatch.setattr(images, "CHUNK_ROWS", 77)
    rows = pd.read_csv(copies / "new.csv")
    if not positive:
        rows["truth"] = (rows["truth"] == "ill").map({True: "yes", False: "no"})
    rows.loc[[3, 80, 190], "truth"] = [None, "  ", ""]
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows)
    options = ("--labels", "truth", *positive)
    done = run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options)
    assert_refused(done, "3 rows have no label in column 'truth' (nothing, or a mark such as NA); leave them out")
    rows.loc[[3, 80], "truth"] = rows.loc[4, "truth"]
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows)
    assert_refused(run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options), "1 row has no label")
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows.drop(index=190))
    done = run("evaluate", copies / "model", tmp_path / f"rows{suffix}", *options, "--json")
    assert sum(json.loads(done.out)["confusion"].values()) == 199


def test_a_label_of_an_unknown_word_is_still_named(copies):
    done = run("evaluate", copies / "model", copies / "new.csv", "--labels", "truth")
    assert_refused(done, "column 'truth' holds '", "say which value is the positive class with --positive VALUE.")


def test_labels_of_numbers_with_holes(copies, tmp_path):
    """A column of floats, whose holes are NaN."""
    rows = pd.read_csv(copies / "new.csv")
    rows["truth"] = (rows["truth"] == "ill").astype(float).where(rows.index != 7)
    rows.to_parquet(tmp_path / "rows.parquet")
    done = run("evaluate", copies / "model", tmp_path / "rows.parquet", "--labels", "truth", "--positive", "1")
    assert_refused(done, "1 row has no label")


# -------------------------------------------------------------------------------------------- numbers from any file


@pytest.fixture(scope="module")
def numbers(tmp_path_factory, gaussians):
    """Models that `UUClassifier.save` wrote, with and without names of columns, rows for them, and their scores."""
    folder = tmp_path_factory.mktemp("numbers")
    plain = plain_classifier((0.8, 0.2), model="linear", epochs=3, lr=0.1, random_state=0)
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
def test_numbers_are_read_from_every_format(numbers, tmp_path, name):
    if name == "r.npy":
        np.save(tmp_path / name, numbers.rows)
    elif name == "r.npz":
        np.savez(tmp_path / name, X=numbers.rows)
    else:  # columns in another order, and one of words, which the model does not know
        with TableWriter(tmp_path / name) as writer:
            writer.write(numbers.rows[["c", "a", "b"]].assign(patient=[f"p{n}" for n in range(200)]))
    done = run("predict", numbers.folder / "named", tmp_path / name)
    assert (done.code, done.err) == (0, "")
    scored = pd.read_csv(io.StringIO(done.out))
    np.testing.assert_allclose(scored["score"], numbers.scores, rtol=1e-4)
    np.testing.assert_array_equal(scored["class"], numbers.scores > 0)


def test_numbers_are_read_from_a_folder(numbers, tmp_path):
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
    assert_refused(run("predict", numbers.folder / "named", folder, "--out", out), f"{out} lies in {folder}, and would")
    assert not out.exists()


def test_numbers_are_not_read_from_another_folder(numbers, tmp_path, monkeypatch):
    said = f"{tmp_path} is a folder without Parquet files; pass a file of rows, or a folder with some."
    assert_refused(run("predict", numbers.folder / "named", tmp_path), said)
    numbers.rows.to_parquet(tmp_path / "0.parquet")
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    assert_refused(run("predict", numbers.folder / "named", tmp_path), "pip install 'uulearn[files]'")


@pytest.mark.parametrize("name", ["s.tsv", "s.parquet", "s.feather", "s.jsonl", "s.csv.gz"])
def test_scores_of_numbers_are_written_as_the_name_says(numbers, tmp_path, name):
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    done = run("predict", numbers.folder / "named", tmp_path / "rows.csv", "--out", tmp_path / name)
    assert (done.code, done.out, done.err) == (0, "", f"200 rows scored, written to {tmp_path / name}\n")
    scored = read_table(tmp_path / name)
    assert list(scored.columns) == ["score", "probability", "class"]
    np.testing.assert_allclose(scored["score"].astype(float), numbers.scores, rtol=1e-4)
    start = {"s.parquet": b"PAR1", "s.feather": b"ARROW1", "s.csv.gz": b"\x1f\x8b"}.get(name, b"")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_numbers_from_standard_input(numbers, standard_input):
    standard_input(numbers.rows.to_csv(index=False).encode())
    done = run("predict", numbers.folder / "named", "-")
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], numbers.scores, rtol=1e-4)
    standard_input(numbers.rows.to_json(orient="records", lines=True).encode())
    assert run("predict", numbers.folder / "named", "-", "--format", "jsonl").out == done.out
    standard_input(b"")
    assert_refused(run("predict", numbers.folder / "named", "-"), "standard input is empty")


def test_the_target_prior_of_numbers(numbers, tmp_path):
    np.save(tmp_path / "rows.npy", numbers.rows)
    done = run("predict", numbers.folder / "named", tmp_path / "rows.npy", "--target-prior", "0.9")
    moved = UUClassifier.load(numbers.folder / "named").with_target_prior(0.9).decision_function(numbers.rows)
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], moved, rtol=1e-4)


def test_a_format_that_is_named_counts(numbers, tmp_path):
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    named = (numbers.folder / "named", tmp_path / "rows.csv")
    assert_refused(run("predict", *named, "--format", "nonsense"), "format must be one of csv", "'nonsense'")
    assert_refused(run("predict", *named, "--format", "parquet"), "Parquet")
    (tmp_path / "rows.csv").rename(tmp_path / "rows.txt")
    assert_refused(run("predict", numbers.folder / "named", tmp_path / "rows.txt"), "suffix of a known format")
    assert run("predict", numbers.folder / "named", tmp_path / "rows.txt", "--format", "csv").code == 0


@pytest.mark.parametrize("name", ["s.npy", "s.xlsx", "scores"])
def test_scores_are_not_written_under_a_name_of_another_format(numbers, tmp_path, name):
    np.save(tmp_path / "rows.npy", numbers.rows)
    assert_refused(run("predict", numbers.folder / "named", tmp_path / "rows.npy", "--out", tmp_path / name), name)
    assert not (tmp_path / name).exists()


def test_chunks_do_not_change_the_scores_of_numbers(numbers, tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", numbers.rows)
    numbers.rows.to_csv(tmp_path / "rows.csv", index=False)
    whole = run("predict", numbers.folder / "named", tmp_path / "rows.csv").out
    seen = []
    own = predict._score
    monkeypatch.setattr(predict, "_score", lambda classifier, X: seen.append(len(X)) or own(classifier, X))
    monkeypatch.setattr(predict, "CHUNK_BYTES", 77 * 3 * 8)
    assert run("predict", numbers.folder / "named", tmp_path / "rows.npy").out == whole
    assert seen == [77, 77, 46]
    monkeypatch.setattr(
        predict, "open_table", lambda path, format: reading.open_table(path, chunk_rows=90, format=format)
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
        ("a,b,c\n1,2,1e39\n", "holds '1e39' in row 1, column 'c', which is not a finite number"),
        ("a,b,c\n1,2,yes\n", "holds 'yes' in row 1, column 'c', which is not a finite number"),
        ("a,b,c\n1,2,3\n1,,3\n", "holds nothing in row 2, column 'b', which is not a finite number"),
        ("a,b,d\n1,2,3\n", "lacks the column 'c'"),
        ("a,b,c\n", "standard input holds no rows"),
        ("5,2,3,4\n5,6,7,8\n", "has 4 columns, but the model takes 3"),
    ],
)
def test_what_is_no_number_is_refused(numbers, standard_input, content, text):
    standard_input(content.encode())
    assert_refused(run("predict", numbers.folder / "named", "-"), text)


def test_columns_without_names_are_taken_in_their_order(numbers, standard_input):
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
    standard_input(numbers.rows.assign(patient=1).to_csv(index=False).encode())  # which of the four to leave out?
    assert_refused(run("predict", numbers.folder / "bare", "-"), "has 4 columns, but the model takes 3")


def test_names_that_are_numbers_are_names(tmp_path, gaussians):
    frame = pd.DataFrame(gaussians["X"], columns=["2", "0", "1"])
    classifier = plain_classifier((0.8, 0.2), model="linear", epochs=3, lr=0.1).fit(frame, gaussians["sets"])
    frame[["0", "1", "2"]].to_csv(tmp_path / "rows.csv", index=False)
    expected = classifier.decision_function(frame)
    predict.predict_numbers(classifier, str(tmp_path / "rows.csv"), str(tmp_path / "scored.csv"))
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scored.csv")["score"], expected, rtol=1e-4)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_true_and_false_are_numbers(numbers, tmp_path, suffix):
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(numbers.rows.assign(c=numbers.rows["c"] > 0))
    done = run("predict", numbers.folder / "named", tmp_path / f"rows{suffix}")
    assert done.code == 0, done.err
    classifier = UUClassifier.load(numbers.folder / "named")
    expected = classifier.decision_function(numbers.rows.assign(c=(numbers.rows["c"] > 0).astype(float)))
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((0, 3)), "holds no rows"),
        (np.zeros((4, 2)), "holds an array of shape (4, 2), but the model takes rows of shape (3,)"),
        (np.zeros(3), "of shape (3,), but the model takes"),
        (np.array(3.0), "of shape (), but the model takes"),
        (np.array([["1", "2", "3"]]), "not of numbers"),
        (np.array([[1.0, 2.0, 1e39]]), "holds 1e+39 in row 1, column 2, which is not a finite number"),
        (np.array([[1, None, 3]], dtype=object), "is not a readable .npy array"),
        (b"a,b,c\n1,2,3\n", "is not a readable .npy array"),
        (None, "is not a file"),
    ],
)
def test_arrays_that_cannot_be_scored(numbers, tmp_path, array, text):
    if isinstance(array, bytes):
        (tmp_path / "rows.npy").write_bytes(array)
    elif array is not None:
        np.save(tmp_path / "rows.npy", array)
    assert_refused(run("predict", numbers.folder / "named", tmp_path / "rows.npy"), text)


@pytest.mark.parametrize("dtype", ["int8", "bool", ">f8", "float16"])
def test_arrays_of_other_types(numbers, tmp_path, dtype):
    X = np.round(numbers.rows.to_numpy()).astype(dtype)
    np.save(tmp_path / "rows.npy", X)
    done = run("predict", numbers.folder / "bare", tmp_path / "rows.npy")
    assert done.code == 0, done.err
    expected = UUClassifier.load(numbers.folder / "bare").decision_function(X.astype(np.float64))
    np.testing.assert_allclose(pd.read_csv(io.StringIO(done.out))["score"], expected, rtol=1e-4, atol=1e-5)


def test_rows_of_other_shapes_come_from_arrays(tmp_path, gaussians):
    images_of = [np.repeat(gaussians[name][:40, None, :], 2, axis=1) for name in ("X0", "X1")]  # rows of 2 × 3
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 1))
    classifier = plain_classifier((0.8, 0.2), model=model, epochs=3, random_state=0).fit_sets(*images_of)
    np.save(tmp_path / "rows.npy", images_of[0])
    assert predict.predict_numbers(classifier, str(tmp_path / "rows.npy"), str(tmp_path / "scored.csv")) == 40
    expected = classifier.decision_function(images_of[0])
    np.testing.assert_allclose(pd.read_csv(tmp_path / "scored.csv")["score"], expected, rtol=1e-4)
    with pytest.raises(ValueError, match=r"takes rows of shape \(2, 3\), for which a table has no place; pass a .npy"):
        predict.predict_numbers(classifier, "rows.csv", "-")
    with pytest.raises(ValueError, match="pass a .npy file"):
        predict.predict_numbers(classifier, "-", "-", format="npy")


def test_the_core_install_scores_plain_files(numbers, tmp_path, monkeypatch, standard_input):
    np.save(tmp_path / "rows.npy", numbers.rows)
    numbers.rows[["c", "a", "b"]].to_csv(tmp_path / "rows.csv", index=False)
    numbers.rows.to_parquet(tmp_path / "rows.parquet")
    standard_input(b"a,b,c\n1,2,3\n")
    model = numbers.folder / "named"
    whole = run("predict", model, tmp_path / "rows.csv").out
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    monkeypatch.setattr(predict, "TableWriter", None)
    monkeypatch.setattr(predict, "open_table", None)
    for name in ("rows.npy", "rows.csv"):
        assert run("predict", model, tmp_path / name).out == whole
        done = run("predict", model, tmp_path / name, "--out", tmp_path / "scored.csv")
        assert (done.out, done.err) == ("", f"200 rows scored, written to {tmp_path / 'scored.csv'}\n")
        assert (tmp_path / "scored.csv").read_text() == whole
    for rows, out in (("rows.parquet", "s.csv"), ("rows.csv", "s.parquet"), ("rows.npy", "s.csv.gz")):
        done = run("predict", model, tmp_path / rows, "--out", tmp_path / out)
        assert_refused(done, "pip install 'uulearn[files]'")
    assert_refused(run("predict", model, "-"), "pip install 'uulearn[files]'")


# ---------------------------------------------------------------------------------------------- cards of other models


@pytest.fixture
def reported(copies, tmp_path):
    """A directory that `uulearn fit` wrote, with a report and a file of the user's."""
    shutil.copytree(copies / "model", tmp_path / "model")
    assert run("report", tmp_path / "model").code == 0
    (tmp_path / "model" / "notes.md").write_text("mine")
    return tmp_path / "model"


def names_in(folder):
    return {path.name.split("-")[0] for path in folder.iterdir()}


OF_A_CLASSIFIER = {"model.json", "weights", "history"}
CARDS = {"README.md", "config.toml", "report.html"}


def test_a_classifier_saved_over_a_fit_takes_its_cards_away(numbers, reported):
    assert names_in(reported) >= CARDS
    UUClassifier.load(numbers.folder / "named").save(reported)
    assert names_in(reported) == {*OF_A_CLASSIFIER, "notes.md"}
    np.testing.assert_allclose(UUClassifier.load(reported).decision_function(numbers.rows), numbers.scores, rtol=1e-5)


def test_cards_go_only_when_the_new_model_is_there(numbers, reported, monkeypatch):
    before = {path.name: path.read_bytes() for path in reported.iterdir()}

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_directory, "_write", full)
    with pytest.raises(OSError, match="No space"):
        UUClassifier.load(numbers.folder / "named").save(reported)
    assert {path.name: path.read_bytes() for path in reported.iterdir()} == before


@pytest.mark.parametrize("model", [True, False])
def test_files_of_the_user_stay(numbers, tmp_path, model):
    """Beside a classifier's own directory, and in a folder that held none."""
    classifier = UUClassifier.load(numbers.folder / "named")
    if model:
        classifier.save(tmp_path)
    for name in CARDS:
        (tmp_path / name).write_text("mine")
    UUClassifier.load(numbers.folder / "bare").save(tmp_path)
    assert names_in(tmp_path) == {*OF_A_CLASSIFIER, *CARDS}
    assert {(tmp_path / name).read_text() for name in CARDS} == {"mine"}


def test_facts_without_a_model_are_no_reason_to_remove_anything(numbers, tmp_path):
    (tmp_path / "facts-0123456789abcdef.json").write_text("{}")  # left by a process that was killed
    (tmp_path / "README.md").write_text("mine")
    UUClassifier.load(numbers.folder / "bare").save(tmp_path)
    assert names_in(tmp_path) == {*OF_A_CLASSIFIER, "README.md"}


def test_a_fit_over_a_fit_brings_its_own_cards(reported):
    loaded = TableModel.load(reported)
    loaded.facts["created"] = "another day"
    loaded.save(reported, {"README.md": b"new"})
    assert names_in(reported) & CARDS == {"README.md"}
    assert (reported / "README.md").read_text() == "new"


def test_the_same_model_keeps_its_cards_and_folders_stay(reported, numbers):
    TableModel.load(reported).save(reported)
    assert names_in(reported) >= CARDS
    (reported / "report.html").unlink()
    (reported / "report.html").mkdir()
    UUClassifier.load(numbers.folder / "named").save(reported)
    assert names_in(reported) == {*OF_A_CLASSIFIER, "notes.md", "report.html"}
