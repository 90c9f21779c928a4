"""`uulearn fit`, `predict`, `evaluate`, `report` and `export` on two files, run in this process."""

import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pandas as pd
import pytest
import torch

from uulearn import UUClassifier
from uulearn.app import estimates
from uulearn.app.facts import SetFacts
from uulearn.app.model import TableModel
from uulearn.cli import main
from uulearn.cli.options import NAMES
from uulearn.datasets import make_sets
from uulearn.defaults import AUTO, BOOSTING
from uulearn.exceptions import UnreadableCellsWarning
from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE
from uulearn.models import MODELS
from uulearn.risk.corrections import METHODS, SURROGATE
from uulearn.risk.losses import LOSSES
from uulearn.selection import sensitivity
from uulearn.tabular import images as image_files

QUICK = ("--model", "linear", "--epochs", "8", "--no-sensitivity")
PRIORS = ("--set-priors", "0.8", "0.2", "--target-prior", "0.5")


@pytest.fixture
def uulearn(monkeypatch, capsys):
    """Run a command; returns exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["uulearn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


def population(n, seed):
    """A table of mixed columns, and the classes; some columns depend on the class."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    frame = pd.DataFrame(
        {
            "patient": [f"p{number:05d}" for number in rng.permutation(n)],
            "age": np.round(rng.normal(50 + 12 * y, 8), 1),
            "ward": np.where(rng.random(n) < np.where(y, 0.8, 0.2), "north", "south"),
            "smokes": np.where(rng.random(n) < 0.3, "yes", "no"),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
            "constant": "same",
        }
    )
    frame["seen"] = frame["seen"].dt.strftime("%Y-%m-%d")
    frame.loc[rng.random(n) < 0.05, "age"] = None
    return frame, y.astype(int)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    frame, y = population(3000, 0)
    sets = make_sets(np.arange(2000)[:, None], y[:2000], (0.8, 0.2), (400, 500), random_state=0)
    for name, rows in zip(("a.csv", "b.csv"), sets.indices, strict=True):
        frame.iloc[rows].to_csv(folder / name, index=False)
    frame.iloc[2000:].assign(truth=y[2000:]).to_csv(folder / "new.csv", index=False)
    (folder / "quick.toml").write_text("[classifier]\nlr = 0.05\ntraining__ema = 0.9\n")
    return folder


@pytest.fixture(scope="module")
def fitted(files):
    """A model directory and the output of fit."""
    import contextlib

    out, printed = files / "model", io.StringIO()
    before = sys.argv
    sys.argv = ["uulearn", "fit", str(files / "a.csv"), str(files / "b.csv"), *PRIORS, "--id", "patient"]
    sys.argv += ["--epochs", "40", "--model", "linear", "--sensitivity", "--config", str(files / "quick.toml")]
    sys.argv += ["--out", str(out)]
    try:
        with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    assert not ended.value.code
    return out, printed.getvalue()


@pytest.fixture
def model(fitted, tmp_path):
    shutil.copytree(fitted[0], tmp_path / "model")
    return tmp_path / "model"


def test_fit_prints_a_summary(fitted):
    out, printed = fitted
    assert f"model      {out}" in printed
    assert "accuracy   between " in printed
    assert "no label used: 400 + 500 rows, each scored by a model not trained on it" in " ".join(printed.split())
    assert "'constant'" in printed  # dropped, with a note
    assert f"uulearn report {out}" in printed


def test_model_directory_is_complete(fitted):
    out, _ = fitted
    names = {path.name.split("-")[0] for path in out.iterdir()}
    assert names == {
        "model.json",
        "weights",
        "history",
        "encoder",
        "reference",
        "schema",
        "facts",
        "config.toml",
        "README.md",
    }
    facts = TableModel.load(out).facts
    assert facts.row_use.evaluation == (400, 500)
    assert facts.error_scale == SELECTION_ERROR_SCALE  # early stopping used the same rows
    assert facts.sets[0] == SetFacts("a.csv", 400, 0.8)
    used = {column.name: column.used for column in facts.columns}
    assert used == {"age": True, "ward": True, "smokes": True, "seen": True, "patient": False, "constant": False}
    drops = {entry.column: entry.drop for entry in facts.importance}
    assert set(drops) == {"age", "ward", "smokes", "seen"}
    assert min(drops["age"], drops["ward"]) > 0.03 > max(abs(drops["smokes"]), abs(drops["seen"]))
    assert len(facts.sensitivity.rows) == 13
    assert "Accuracy between" in (out / "README.md").read_text()
    classifier = UUClassifier.load(out)  # the classifier alone can be loaded, too, and accepts numbers
    assert classifier.n_estimators == 5


def test_facts_equal_the_out_of_fold_evaluation(fitted):
    """The facts recompute the folds; the estimator evaluated itself during fit."""
    loaded = TableModel.load(fitted[0])
    own, evaluated = loaded.classifier.out_of_fold_evaluation_, loaded.facts.evaluation
    assert evaluated.accuracy.value == pytest.approx(own.accuracy.value, abs=1e-9)
    assert evaluated.auc.value == pytest.approx(own.auc.value, abs=1e-3)
    targets = {entry.target_prior: entry for entry in loaded.facts.targets}
    assert targets[0.5].accuracy.value == pytest.approx(own.accuracy.value, abs=1e-9)  # the fitted target prior
    assert targets[0.5].threshold == pytest.approx(0.0)
    assert targets[0.9].threshold < -1 < 1 < targets[0.1].threshold  # a higher target prior lowers the threshold
    counts = loaded.facts.histogram.counts
    assert [sum(own) for own in counts] == [400, 500]


def test_set_with_the_lower_prior_may_come_first(files, uulearn, tmp_path):
    options = ("--set-priors", "0.2", "0.8", *QUICK, "--config", files / "quick.toml", "--id", "patient", "--json")
    code, printed, error = uulearn("fit", files / "b.csv", files / "a.csv", *options, "--out", tmp_path / "m")
    assert code == 0, error
    facts = json.loads(printed)
    assert facts["evaluation"]["accuracy"]["value"] > 0.7
    assert facts["set_auc"]["value"] > 0.5
    assert "BeyondPriorsWarning" not in [warning["category"] for warning in facts["warnings"]]


def test_label_free_estimate_agrees_with_labels(fitted, files, uulearn):
    evaluated = TableModel.load(fitted[0]).facts.evaluation.accuracy
    code, printed, _ = uulearn("evaluate", fitted[0], files / "new.csv", "--labels", "truth", "--json")
    assert code == 0
    result = json.loads(printed)
    truth = result["evaluation"]["accuracy"]["value"]
    assert truth > 0.8
    assert abs(evaluated.value - truth) < 3 * evaluated.standard_error + 0.02
    counts = result["confusion"]
    assert sum(counts.values()) == 1000
    assert counts["true_positive"] + counts["true_negative"] == round(1000 * truth)
    assert counts["true_positive"] + counts["false_negative"] == pd.read_csv(files / "new.csv")["truth"].sum()
    assert result["calibration_error"] < 0.1


def test_predict_keeps_order_and_ids(fitted, files, uulearn, tmp_path):
    code, _, printed = uulearn("predict", fitted[0], files / "new.csv", "--out", tmp_path / "scored.csv")
    assert (code, printed.strip()) == (0, f"1,000 rows scored, written to {tmp_path / 'scored.csv'}")
    scored, rows = pd.read_csv(tmp_path / "scored.csv"), pd.read_csv(files / "new.csv", dtype=str)
    assert list(scored.columns) == ["patient", "score", "probability", "class"]
    assert scored["patient"].tolist() == rows["patient"].tolist()
    own = TableModel.load(fitted[0]).score(rows.where(rows.notna(), None))
    np.testing.assert_allclose(scored["score"], own.score, rtol=1e-4)
    np.testing.assert_allclose(scored["probability"], own.probability, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(scored["class"], own.predicted)
    np.testing.assert_array_equal(scored["class"], (scored["probability"] > 0.5).astype(int))


@pytest.mark.parametrize("suffix", [".tsv", ".parquet", ".feather", ".jsonl", ".csv.gz", ".csv.zst"])
def test_predict_reads_and_writes_other_formats(fitted, files, uulearn, tmp_path, suffix):
    from uulearn.io.reading import read_table
    from uulearn.io.writing import TableWriter

    rows = read_table(files / "new.csv")
    with TableWriter(tmp_path / f"rows{suffix}") as writer:
        writer.write(rows)
    code, _, printed = uulearn("predict", fitted[0], tmp_path / f"rows{suffix}", "--out", tmp_path / f"scored{suffix}")
    assert code == 0, printed
    scored = read_table(tmp_path / f"scored{suffix}")
    plain = TableModel.load(fitted[0]).score(rows)
    np.testing.assert_allclose(scored["score"].astype(float), plain.score, rtol=1e-4)


def test_chunks_do_not_change_the_scores(fitted, files, monkeypatch, tmp_path):
    from uulearn.app.scoring import score_file

    loaded = TableModel.load(fitted[0])
    score_file(loaded, str(files / "new.csv"), str(tmp_path / "whole.csv"))
    monkeypatch.setattr(image_files, "CHUNK_ROWS", 77)
    score_file(loaded, str(files / "new.csv"), str(tmp_path / "pieces.csv"))
    one, other = (pd.read_csv(tmp_path / name) for name in ("whole.csv", "pieces.csv"))
    np.testing.assert_allclose(one["score"], other["score"], rtol=2e-5, atol=2e-5)


def test_predict_reports_values_unlike_the_training_rows(fitted, files, uulearn, tmp_path):
    usual = pd.read_csv(files / "new.csv", dtype=str)[:40]
    odd = usual.copy()
    odd.loc[3:4, "ward"], odd.loc[5, "age"] = "west", "50000"
    odd.loc[7, ["age", "ward", "smokes", "seen"]] = None
    usual.to_csv(tmp_path / "usual.csv", index=False)
    odd.to_csv(tmp_path / "odd.csv", index=False)
    code, plain, err = uulearn("predict", fitted[0], tmp_path / "usual.csv")
    assert (code, err) == (0, "")
    code, printed, err = uulearn("predict", fitted[0], tmp_path / "odd.csv", "--target-prior", "0.5")
    assert code == 0
    assert err.splitlines() == [
        "note: Categories never or rarely seen in training: 'ward' (2 rows).",
        "note: Numbers far outside the training range: 'age' (1 row).",
        "note: All columns are empty: 1 row.",
    ]
    same = [row for row in range(41) if row - 1 not in (3, 4, 5, 7)]  # the first line is the header
    assert [printed.splitlines()[row] for row in same] == [plain.splitlines()[row] for row in same]
    assert len(printed.splitlines()) == 41


UNREADABLE = (
    "column 'age': 12 of {known} values are not numbers (for example '90+'); column 'smokes': 1 of 1,000 values is not "
    "yes or no (for example 'unsure'); column 'seen': 2 of 1,000 values are not dates (for example 'in May'). They are "
    "treated as missing values.\n"
)


@pytest.fixture
def odd(files, tmp_path):
    """Rows with cells that cannot be read, the same rows with empty cells instead, and the text of the warning."""
    frame = pd.read_csv(files / "new.csv", dtype=str)
    known = int(frame["age"].notna().sum() + frame.loc[100:111, "age"].isna().sum())
    for name, age, smokes, seen in (("odd", "90+", "unsure", "in May"), ("empty", None, None, None)):
        own = frame.copy()
        own.loc[100:111, "age"], own.loc[3, "smokes"], own.loc[998:999, "seen"] = age, smokes, seen
        own.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path / "odd.csv", tmp_path / "empty.csv", UNREADABLE.format(known=known)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".xlsx"])
def test_unreadable_cells_are_missing_values_with_a_warning(fitted, odd, uulearn, tmp_path, suffix):
    rows, empty, message = odd
    place = tmp_path / f"rows{suffix}"
    frame = pd.read_csv(rows, dtype=str)
    if suffix == ".xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(place, index=False)
    elif suffix == ".jsonl":
        frame.to_json(place, orient="records", lines=True)
    else:
        frame.to_csv(place, index=False) if suffix == ".csv" else frame.to_parquet(place)
    code, plain, err = uulearn("predict", fitted[0], empty)
    assert (code, err) == (0, "")
    code, printed, err = uulearn("predict", fitted[0], place)
    assert (code, err) == (0, f"warning: {place}: {message}")
    assert printed == plain
    with pytest.warns(UnreadableCellsWarning) as caught:
        scores = UUClassifier.load(fitted[0]).decision_function(frame)
    assert str(caught[0].message) == f"X: {message.strip()}"
    np.testing.assert_allclose(pd.read_csv(io.StringIO(printed))["score"], scores, rtol=1e-5, atol=1e-5)


def test_evaluate_reports_unreadable_cells_of_each_file(fitted, files, odd, uulearn):
    rows, empty, message = odd
    labels = ("--labels", "truth", "--json")
    expected = uulearn("evaluate", fitted[0], empty, *labels)
    assert expected[2] == ""
    assert uulearn("evaluate", fitted[0], rows, *labels) == (0, expected[1], f"warning: {rows}: {message}")
    code, printed, err = uulearn("evaluate", fitted[0], files / "a.csv", rows, "--no-check")
    assert code == 0
    assert f"warning: {rows}: {message}" in err
    assert printed == uulearn("evaluate", fitted[0], files / "a.csv", empty, "--no-check")[1]


@pytest.mark.parametrize("chunk", [7, 100, 333])
def test_unreadable_cells_are_counted_for_the_whole_file(fitted, files, odd, uulearn, monkeypatch, tmp_path, chunk):
    """All values of some chunks cannot be read."""
    rows, _, message = odd
    _, whole, _ = uulearn("predict", fitted[0], rows)
    monkeypatch.setattr(image_files, "CHUNK_ROWS", chunk)
    code, printed, err = uulearn("predict", fitted[0], rows)
    assert (code, err) == (0, f"warning: {rows}: {message}")
    scores = [pd.read_csv(io.StringIO(text))["score"] for text in (whole, printed)]
    np.testing.assert_allclose(*scores, rtol=2e-5, atol=2e-5)
    frame = pd.read_csv(files / "new.csv", dtype=str)
    frame.loc[450:, "seen"] = "unknown"  # the first chunks can be read
    frame.to_csv(rows, index=False)
    code, _, err = uulearn("predict", fitted[0], rows, "--out", tmp_path / "scored.csv")
    assert code == 2
    assert err == (
        f"error: {rows} has 'unknown' in row 451, column 'seen', which is not a date (550 of 1,000 values are not); "
        "check that this is the right column, write dates like 2024-12-31, and leave unknown values empty.\n"
    )
    assert not (tmp_path / "scored.csv").exists()


def test_nothing_is_printed_if_most_values_cannot_be_read(fitted, files, uulearn, tmp_path):
    frame = pd.read_csv(files / "new.csv", dtype=str)[:40].assign(age="young")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    rows = tmp_path / "rows.csv"
    for command, *rest in (
        ("predict", rows),
        ("evaluate", rows, "--labels", "truth"),
        ("evaluate", files / "a.csv", rows),
    ):
        code, printed, err = uulearn(command, fitted[0], *rest)
        assert (code, printed) == (2, "")
        assert "rows.csv has 'young' in row 1, column 'age', which is not a number (40 of 40 values are not); " in err


def test_bad_row_of_a_folder_is_reported_with_its_file(fitted, files, uulearn, tmp_path):
    frame = pd.read_csv(files / "new.csv", dtype=str)
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(3):
        frame[30 * number : 30 * number + 30].to_parquet(folder / f"{number}.parquet")
    code, _, err = uulearn("predict", fitted[0], folder, "--out", tmp_path / "scored.csv")
    assert (code, err) == (0, f"90 rows scored, written to {tmp_path / 'scored.csv'}\n")
    bad = frame[30:60].reset_index(drop=True)
    bad["age"] = "forty"
    bad.to_parquet(folder / "1.parquet")
    code, _, err = uulearn("predict", fitted[0], folder, "--out", tmp_path / "scored.csv")
    assert code == 0
    assert err.startswith(f"warning: {folder}: column 'age': 30 of 8")
    bad.loc[11, "age"] = "40,5"
    bad.to_parquet(folder / "1.parquet")
    code, _, err = uulearn("predict", fitted[0], folder, "--out", tmp_path / "again.csv")
    assert code == 2
    assert err.startswith(f"error: {folder / '1.parquet'} has '40,5' in row 12, column 'age', which is not a number;")
    assert not (tmp_path / "again.csv").exists()


def test_evaluates_without_labels_and_at_another_prior(fitted, files, uulearn):
    code, printed, _ = uulearn("evaluate", fitted[0], files / "a.csv", files / "b.csv")
    assert code == 0
    assert "no label was used: estimated from 400 + 500 rows" in printed
    _, moved, _ = uulearn("evaluate", fitted[0], files / "a.csv", files / "b.csv", "--target-prior", "0.9", "--json")
    assert json.loads(moved)["accuracy"]["value"] != pytest.approx(float(printed.split()[1]), abs=1e-4)


def test_target_prior_shifts_probabilities(fitted, files, uulearn):
    _, plain, _ = uulearn("predict", fitted[0], files / "new.csv")
    _, moved, _ = uulearn("predict", fitted[0], files / "new.csv", "--target-prior", "0.9")
    share = [sum(line.endswith(",1") for line in text.splitlines()) for text in (plain, moved)]
    assert share[1] > share[0]


def test_writes_a_report(model, uulearn):
    code, printed, _ = uulearn("report", model)
    assert code == 0
    page = (model / "report.html").read_text()
    assert f"report written to {model / 'report.html'}" in printed
    assert "<svg" in page
    assert "a.csv" in page


def test_configuration_repeats_the_fit_exactly(fitted, files, uulearn, tmp_path):
    code, _, printed = uulearn("fit", "--config", fitted[0] / "config.toml", "--out", tmp_path / "again")
    assert code == 0, printed
    weights = [sorted(folder.glob("weights-*"))[0].name for folder in (fitted[0], tmp_path / "again")]
    assert weights[0] == weights[1]  # names carry the hash of the content


def test_models_beyond_the_time_budget_are_skipped(files, uulearn, tmp_path):
    (tmp_path / "c.toml").write_text("[classifier]\nmodel_params = {models = ['linear', 'mlp'], seconds = 900}\n")
    fit = ("fit", files / "a.csv", files / "b.csv", *PRIORS, "--epochs", "2", "--no-sensitivity")
    for seconds in ((), ("--time-budget", "0.01")):
        code, _, printed = uulearn(*fit, "--config", tmp_path / "c.toml", *seconds, "--out", tmp_path / "m")
        assert code == 0, printed
        mlp = TableModel.load(tmp_path / "m").facts.comparison[1]
        assert (mlp.model, mlp.risk is None, "budget" in (mlp.skipped or "")) == ("mlp", bool(seconds), bool(seconds))
    assert (
        'model_params = { "models" = ["linear", "mlp"], "seconds" = 0.01 }'
        in (tmp_path / "m" / "config.toml").read_text()
    )


def test_rejects_a_leaking_column(files, uulearn, tmp_path):
    for name in ("a", "b"):
        pd.read_csv(files / f"{name}.csv").assign(clinic=name).to_csv(tmp_path / f"{name}.csv", index=False)
    paths = (tmp_path / "a.csv", tmp_path / "b.csv")
    code, printed, error = uulearn("fit", *paths, *PRIORS, *QUICK, "--out", tmp_path / "m")
    assert (code, printed) == (2, "")
    assert "clinic" in error
    assert "--drop clinic" in error
    assert not (tmp_path / "m").exists()
    code, *_ = uulearn("fit", *paths, *PRIORS, *QUICK, "--out", tmp_path / "m", "--drop", "clinic", "--id", "patient")
    assert code == 0


def test_warns_about_a_violated_mixture_assumption(files, uulearn, tmp_path):
    for name, moved in (("a", 0), ("b", 40)):
        frame = pd.read_csv(files / f"{name}.csv")
        frame.assign(age=frame["age"] - moved).to_csv(tmp_path / f"{name}.csv", index=False)
    options = (*PRIORS, *QUICK, "--model", "mlp", "--id", "patient", "--config", files / "quick.toml")
    options += ("--allow-leakage", "--json")
    code, printed, error = uulearn("fit", tmp_path / "a.csv", tmp_path / "b.csv", *options, "--out", tmp_path / "m")
    assert code == 0, error
    facts = json.loads(printed)
    assert "BeyondPriorsWarning" in [warning["category"] for warning in facts["warnings"]]
    assert any("age" in note for note in facts["notes"])


def test_single_model_sets_rows_aside_and_estimates_priors(files, uulearn, tmp_path):
    options = ("--set-priors", "auto", "--n-estimators", "1", "--model", "linear", "--only", "age", "--only", "ward")
    code, printed, error = uulearn(
        "fit", files / "a.csv", files / "b.csv", *options, "--json", *QUICK, "--out", tmp_path / "m"
    )
    assert code == 0, error
    facts = json.loads(printed)
    assert facts["row_use"] == {"training": [324, 405], "early_stopping": [36, 45], "evaluation": [40, 50]}
    assert not facts["out_of_fold"]
    assert facts["prior_intervals"][0][0] < facts["sets"][0]["prior"]
    assert "The class priors were estimated from the rows." in (tmp_path / "m" / "README.md").read_text()


def test_priors_command_reads_the_same_files(files, uulearn, tmp_path):
    code, printed, error = uulearn("priors", files / "a.csv", files / "b.csv", "--drop", "patient", "--json")
    assert code == 0, error
    first, second = json.loads(printed)["set_priors"]
    assert 0.6 < first <= 1
    assert 0 <= second < 0.4
    for name in ("a", "b"):
        pd.read_csv(files / f"{name}.csv").assign(clinic=name).to_csv(tmp_path / f"{name}.csv", index=False)
    code, _, error = uulearn("priors", tmp_path / "a.csv", tmp_path / "b.csv")
    assert code == 2
    assert "clinic" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.csv",), "fit needs two files of rows"),
        (("a.csv", "b.csv"), "fit needs --set-priors"),
        (("a.csv", "nothing.csv", *PRIORS), "nothing.csv"),
        (("a.csv", "nothing", *PRIORS), "nothing does not exist; check the path"),
        (("a.csv", "b.csv", "--set-priors", "0.5", "0.5"), "0.5"),
        (("a.csv", "b.csv", "--set-priors", "many"), "takes auto or two class priors such as 0.8 0.2, got 'many'"),
        (("a.csv", "b.csv", *PRIORS, "--drop", "agee"), "agee"),
        (("a.csv", "b.csv", *PRIORS, "--method", "magic"), "magic"),
        (("a.csv", "b.csv", *PRIORS, "--hold-out", "1"), "hold_out must be above 0 and below 0.5"),
        (("a.csv", "b.csv", *PRIORS, "--resume"), "no unfinished fit"),
        (("a.csv", "missing.txt", *PRIORS), "error: missing.txt does not exist; check the path."),
        (("missing", ".", *PRIORS), "error: missing does not exist; check the path."),
        (("A.CSV", "b.csv", *PRIORS), "error: A.CSV does not exist (did you mean 'a.csv' or "),
        (("missing", "b.csv", *PRIORS, "--model", "resnet32"), "error: missing does not exist; check the path."),
        (("a.csv", "quick.toml", *PRIORS), "error: quick.toml has no supported suffix; use one of .csv"),
        (("a.csv", ".", *PRIORS), "is a folder, but the other input is a file"),
        (
            ("a.csv", "b.csv", *PRIORS, "--consistency", "--model", "boosting"),
            "consistency training needs a network, got model='boosting'",
        ),
    ],
)
def test_bad_input_gets_one_sentence_before_any_work(files, uulearn, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    code, printed, error = uulearn("fit", *arguments, "--out", tmp_path / "m")
    assert (code, printed) == (2, "")
    assert message in error
    assert "Traceback" not in error
    assert "predict" not in error
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set-priors", "80", "20"), "not percentages; write --set-priors 0.8 0.2."),
        (("--set-priors", "80%", "20%"), "not percentages; write --set-priors 0.8 0.2."),
        (("--set-priors", "62.5%,20%"), "not percentages; write --set-priors 0.625 0.2."),
        (("--set-priors", "0.8", "1.2"), "--set-priors takes fractions between 0 and 1, got 1.2."),
        (("--set-priors", "80", "1.5"), "--set-priors takes fractions between 0 and 1, got 1.5."),
        (("--set-priors", "80%", "1.5%"), "not percentages; write --set-priors 0.8 0.015."),
        ((*PRIORS, "--target-prior", "1.2"), "--target-prior takes fractions between 0 and 1, got 1.2."),
        (("--set-priors=80", "20"), "not percentages; write --set-priors 0.8 0.2."),
        ((*PRIORS, "--target-prior", "50%"), "not percentages; write --target-prior 0.5."),
        ((*PRIORS, "--target-prior=50"), "not percentages; write --target-prior 0.5."),
        ((*PRIORS, "--hold-out", "10%"), "not percentages; write --hold-out 0.1."),
        ((*PRIORS, "--hold-out", "20"), "not percentages; write --hold-out 0.2."),
        (("--set-priors", "0.5", "0.5"), "takes two different fractions between 0 and 1, got 0.5 and 0.5."),
        (("--set-priors", "0.5", "-0.5"), "takes two different fractions between 0 and 1, got 0.5 and -0.5."),
        (
            (*PRIORS, "--model", "tree"),
            "--model must be auto, mlp, linear, boosting, resnet32, allconvnet or torchvision:NAME, got 'tree'.",
        ),
        (
            (*PRIORS, "--method", "magic"),
            "--method must be abs, leaky_relu, relu, unbiased, biased or surrogate, got 'magic'.",
        ),
        ((*PRIORS, "--loss", "hinge"), "--loss must be sigmoid, logistic, ramp, double_hinge or squared, got 'hinge'."),
        ((*PRIORS, "--target-prior", "0"), "target_prior must be a number strictly between 0 and 1, got 0.0"),
        ((*PRIORS, "--device", "gpu"), "device must be 'auto', 'cpu' or a CUDA device"),
        ((*PRIORS, "--time-budget", "0"), "--time-budget must be a number of seconds above 0, got 0."),
        ((*PRIORS, "--time-budget", "inf"), "--time-budget must be a number of seconds above 0, got inf."),
        (
            (*PRIORS, "--time-budget", "60", "--model", "mlp"),
            "--time-budget (seconds in model_params) limits the comparison of models by --model auto, but the model is "
            "mlp; remove the budget of 60.0 s, or use --model auto.",
        ),
        ((*PRIORS, "--time-budget", "9.5", "--images", "photo"), "but the model is resnet32; remove the budget of 9.5"),
    ],
)
def test_bad_options_are_reported_before_files_are_opened(uulearn, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)  # without files
    code, printed, error = uulearn("fit", "a.csv", "b.csv", *arguments)
    assert (code, printed) == (2, "")
    lines = [line for line in error.splitlines() if not line.endswith("checking the settings")]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


def test_priors_may_follow_an_equals_sign(files, uulearn, tmp_path):
    code, *_ = uulearn(
        "fit", files / "a.csv", files / "b.csv", "--set-priors=0.8", "0.2", *QUICK, "--out", tmp_path / "m"
    )
    assert code == 0


def test_bad_options_do_not_import_torch(tmp_path):
    for bad in ("--set-priors 80 20", "--set-priors 0.5 0.5", "--set-priors 0.8 0.2 --model tree"):
        words = ["uulearn", "fit", "a.csv", "b.csv", *bad.split()]
        code = (
            f"import sys; sys.argv = {words}\nfrom uulearn.cli import main\n"
            "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert done.stdout.split() == ["2", "False"]


def test_option_names_are_those_of_the_library():
    assert set(NAMES["model"]) == {AUTO, *MODELS, BOOSTING}
    assert set(NAMES["method"]) == {*METHODS, SURROGATE}
    assert set(NAMES["loss"]) == {name for name, loss in LOSSES.items() if loss.trainable}


def test_stops_at_a_label_left_in_the_files(files, uulearn, tmp_path):
    frame, y = population(3000, 0)  # the rows that a.csv and b.csv were drawn from
    classes = dict(zip(frame["patient"], np.where(y, "sick", "well"), strict=True))
    for name in ("a.csv", "b.csv"):
        rows = pd.read_csv(files / name)
        rows.assign(diagnosis=rows["patient"].map(classes)).to_csv(tmp_path / name, index=False)
    command = ("fit", tmp_path / "a.csv", tmp_path / "b.csv", *PRIORS, *QUICK, "--id", "patient")
    code, _, error = uulearn(*command, "--out", tmp_path / "m")
    assert code == 2
    assert "Column 'diagnosis' is probably the label" in error
    assert "(--drop diagnosis), or keep them (--allow-leakage)" in error
    assert uulearn(*command, "--drop", "diagnosis", "--out", tmp_path / "m")[0] == 0
    code, printed, _ = uulearn(*command, "--allow-leakage", "--out", tmp_path / "n")
    assert code == 0
    assert "is probably the label" in " ".join(printed.split())


@pytest.mark.parametrize("command", ["fit", "evaluate"])
def test_rejects_the_same_file_twice(fitted, files, uulearn, tmp_path, command):
    (tmp_path / "link.csv").symlink_to(files / "a.csv")
    shutil.copy(files / "a.csv", tmp_path / "copy.csv")
    model = () if command == "fit" else (fitted[0],)
    code, _, error = uulearn(command, *model, files / "a.csv", tmp_path / "copy.csv", "--set-priors", "0.8", "0.2")
    assert code == 2
    assert "copy.csv have the same content; pass two different files, one for each set." in error
    for second in (files / "a.csv", tmp_path / "link.csv"):
        code, _, error = uulearn(command, *model, files / "a.csv", second, "--set-priors", "0.8", "0.2")
        assert code == 2
        assert f"{second} are the same file; pass two different files, one for each set." in error


def test_says_that_a_model_is_replaced(files, uulearn, tmp_path):
    command = ("fit", files / "a.csv", files / "b.csv", *PRIORS, *QUICK, "--out", tmp_path / "m")
    code, _, error = uulearn(*command)
    assert code == 0
    assert "replaces" not in error
    code, _, error = uulearn(*command, "--seed", "1")
    assert code == 0
    assert f"{tmp_path / 'm'} contains a model that this fit will replace" in error


def test_labeled_accuracy_is_at_the_stated_class_prior(fitted, files, uulearn):
    options = ("evaluate", fitted[0], files / "new.csv", "--labels", "truth")
    own = json.loads(uulearn(*options, "--json")[1])
    assert own["class_prior"] == pytest.approx(pd.read_csv(files / "new.csv")["truth"].mean())
    moved = json.loads(uulearn(*options, "--target-prior", "0.2", "--json")[1])
    assert moved["class_prior"] == 0.2
    rates = moved["evaluation"]["true_positive_rate"]["value"], moved["evaluation"]["false_positive_rate"]["value"]
    assert moved["evaluation"]["accuracy"]["value"] == pytest.approx(0.2 * rates[0] + 0.8 * (1 - rates[1]))
    assert "accuracy at class prior 0.2; use --target-prior" in uulearn(*options, "--target-prior", "0.2")[1]


def test_rejects_a_folder_with_other_files_as_output(files, uulearn, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, _, error = uulearn("fit", files / "a.csv", files / "b.csv", *PRIORS, *QUICK, "--out", tmp_path)
    assert code == 2
    assert "contains files that are not a model" in error
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_resumed_fit_equals_an_uninterrupted_fit(files, uulearn, tmp_path, monkeypatch):
    from uulearn.training import loop

    options = (files / "a.csv", files / "b.csv", *PRIORS, "--id", "patient", "--model", "linear", "--no-sensitivity")
    options += ("--epochs", "20", "--n-estimators", "1")
    assert uulearn("fit", *options, "--out", tmp_path / "whole")[0] == 0
    epoch, done = loop.Trainer._epoch, []

    def interrupted(self, number):
        done.append(number)
        if len(done) == 15:
            raise KeyboardInterrupt
        return epoch(self, number)

    monkeypatch.setattr(loop.Trainer, "_epoch", interrupted)
    code, _, error = uulearn("fit", *options, "--out", tmp_path / "m")
    assert code == 130
    assert "interrupted: nothing was written" in error
    assert not (tmp_path / "m").exists()
    checkpoint = (tmp_path / ".m.unfinished" / "checkpoint.safetensors").read_bytes()
    done[:] = range(14)
    code, _, error = uulearn("fit", *options, "--out", tmp_path / "m")  # without --resume
    assert code == 130
    assert "Restarting the interrupted fit of" in error
    assert "use --resume to continue it" in error
    assert (tmp_path / ".m.unfinished.old" / "checkpoint.safetensors").read_bytes() == checkpoint
    shutil.rmtree(tmp_path / ".m.unfinished", ignore_errors=True)
    (tmp_path / ".m.unfinished.old").rename(tmp_path / ".m.unfinished")
    done.clear()
    monkeypatch.setattr(loop.Trainer, "_epoch", lambda self, number: done.append(number) or epoch(self, number))
    assert uulearn("fit", *options, "--out", tmp_path / "m", "--resume")[0] == 0
    assert done[0] == 11  # from the checkpoint of epoch 10
    weights = [next((tmp_path / name).glob("weights-*")).name for name in ("whole", "m")]
    assert weights[0] == weights[1]
    assert not list(tmp_path.glob(".*unfinished*"))


def test_rejects_a_damaged_model(model, uulearn, files):
    (encoder,) = model.glob("encoder-*")
    encoder.write_bytes(encoder.read_bytes()[:-1])
    code, _, error = uulearn("predict", model, files / "new.csv")
    assert code == 2
    assert "truncated" in error


def test_labels_need_a_known_positive_value(fitted, files, uulearn, tmp_path):
    frame = pd.read_csv(files / "new.csv")
    frame["truth"] = np.where(frame["truth"] == 1, "ill", "well")
    frame.to_csv(tmp_path / "words.csv", index=False)
    code, _, error = uulearn("evaluate", fitted[0], tmp_path / "words.csv", "--labels", "truth")
    assert code == 2
    assert "--positive VALUE" in error
    code, printed, _ = uulearn("evaluate", fitted[0], tmp_path / "words.csv", "--labels", "truth", "--positive", "ill")
    assert code == 0
    assert "actual positive" in printed
    code, _, error = uulearn("evaluate", fitted[0], tmp_path / "words.csv", "--labels", "thruth")
    assert "no column 'thruth'" in error
    code, _, error = uulearn("evaluate", fitted[0], tmp_path / "words.csv")
    assert "one file without --labels" in error


def images(folder, n, share, seed, size=12):
    from PIL import Image

    rng = np.random.default_rng(seed)
    (folder / "more").mkdir(parents=True)
    labels = rng.random(n) < share
    for number, positive in enumerate(labels):
        pixels = rng.integers(0, 90, (size, size), dtype=np.uint8)
        rows = slice(0, size // 2) if positive else slice(size // 2, size)
        pixels[rows] += 120
        Image.fromarray(pixels).save(folder / ("more" if number % 2 else ".") / f"{number:04d}.png")
    return labels


def test_images_keep_pixels_and_color(tmp_path):
    from PIL import Image

    from uulearn.tabular.images import load_images, survey_images

    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    schema, notes = survey_images([tmp_path], None, None)
    assert (schema.row_shape, schema.mode, notes) == ((3, 5, 7), "RGB", [])
    np.testing.assert_array_equal(load_images(["one.png"], tmp_path, schema)[0], pixels.transpose(2, 0, 1))
    square, notes = survey_images([tmp_path], None, 4)
    assert load_images(["one.png"], tmp_path, square).shape == (1, 3, 4, 4)
    assert "4 × 4 pixels" in notes[0]


def test_fits_and_predicts_folders_of_images(uulearn, tmp_path):
    torch.manual_seed(0)
    images(tmp_path / "a", 60, 0.85, 0)
    images(tmp_path / "b", 60, 0.15, 1)
    truth = images(tmp_path / "new", 40, 0.5, 2)
    options = (*PRIORS, "--epochs", "6", "--no-sensitivity", "--model", "allconvnet")
    config = tmp_path / "config.toml"
    config.write_text("[classifier]\nlr = 0.003\nbatch_size = 20\ntraining__ema = 0.5\n")
    code, printed, error = uulearn(
        "fit", tmp_path / "a", tmp_path / "b", *options, "--config", config, "--out", tmp_path / "m"
    )
    assert code == 0, error
    assert "6 + 6 rows held out of training" in printed
    code, printed, error = uulearn("predict", tmp_path / "m", tmp_path / "new")
    assert code == 0, error
    scored = pd.DataFrame(
        [line.split(",") for line in printed.splitlines()[1:]], columns=printed.splitlines()[0].split(",")
    )
    assert list(scored.columns) == ["path", "score", "probability", "class"]
    order = [int(path.removeprefix("more/").removesuffix(".png")) for path in scored["path"]]
    assert (scored["class"].astype(int).to_numpy() == truth[order]).mean() > 0.9
    (tmp_path / "new" / "0000.png").write_bytes(b"no image")
    code, _, error = uulearn("predict", tmp_path / "m", tmp_path / "new")
    assert code == 2
    assert "is not a readable image" in error


@pytest.mark.parametrize(
    ("model", "option", "setting", "stored"),
    [
        ("linear", ["--consistency"], "", {"consistency": True, "training__image_shape": [1, 12, 12]}),
        ("allconvnet", [], "consistency = { ramp = [0.0, 0.5] }", {"consistency": {"ramp": [0.0, 0.5]}}),
        ("linear", ["--no-consistency"], "consistency = true", {"consistency": False}),
        (
            "linear",
            [],
            'consistency = { compare = true, strong = "affine:0.2+shift:2+cutout" }\ntraining__augment = "affine:0.1"',
            {"consistency": {"compare": True, "strong": "affine:0.2+shift:2+cutout"}},
        ),
    ],
)
def test_consistency_training_of_folders_of_images(model, option, setting, stored, uulearn, tmp_path):
    images(tmp_path / "a", 40, 0.85, 0)
    images(tmp_path / "b", 40, 0.15, 1)
    config = tmp_path / "given.toml"
    config.write_text(f"[classifier]\nbatch_size = 20\n{setting}\n")
    options = (*PRIORS, "--epochs", "4", "--no-sensitivity", "--model", model, "--config", config, *option)
    code, printed, error = uulearn("fit", tmp_path / "a", tmp_path / "b", *options, "--out", tmp_path / "m")
    assert code == 0, error
    written = tomllib.loads((tmp_path / "m" / "config.toml").read_text())["classifier"]
    assert {name: written[name] for name in stored} == stored
    classifier = TableModel.load(tmp_path / "m").classifier
    assert classifier.consistency == stored["consistency"]
    compared = classifier.consistency_ is not None
    assert compared == ("compare" in str(stored)) == ("Consistency training is" in printed)
    used = classifier.consistency_.used if compared else bool(stored["consistency"])
    assert ("consistency_loss" in classifier.history_[-1]) == used


def test_linear_model_takes_images_as_flat_rows(uulearn, tmp_path):
    """The fast option without a GPU."""
    images(tmp_path / "a", 60, 0.85, 0)
    images(tmp_path / "b", 60, 0.15, 1)
    truth = images(tmp_path / "new", 40, 0.5, 2)
    config = tmp_path / "config.toml"
    config.write_text("[classifier]\nlr = 0.01\nbatch_size = 20\ntraining__ema = 0.5\n")
    options = (*PRIORS, "--epochs", "10", "--no-sensitivity", "--model", "linear", "--config", config)
    code, printed, error = uulearn("fit", tmp_path / "a", tmp_path / "b", *options, "--out", tmp_path / "m")
    assert code == 0, error
    assert "60 + 60 rows, each scored by a model not trained on it" in " ".join(printed.split())  # as fast as a table
    model = TableModel.load(tmp_path / "m")
    assert model.schema.flat
    assert model.classifier.n_features_in_ == model.facts.n_features == model.schema.row_shape[0]
    paths = [f"{'more/' if number % 2 else ''}{number:04d}.png" for number in range(40)]
    scored = model.score(pd.DataFrame({"path": paths}), folder=tmp_path / "new")
    assert (scored.predicted == truth).mean() > 0.9


@pytest.mark.parametrize(
    ("options", "step", "rows"),
    [((), 1e-9, 13), ((), 1e9, 0), (("--sensitivity",), 1e9, 13), (("--no-sensitivity",), 1e-9, 0)],
    ids=["enough time", "too little time", "all", "none"],
)
def test_wrong_priors_are_measured_no_longer_than_training(options, step, rows, files, uulearn, tmp_path, monkeypatch):
    """On the fake clock, every epoch takes ``step`` seconds."""
    ticks = itertools.count()
    monkeypatch.setattr(sensitivity, "read_clock", lambda: step * next(ticks))
    given = (*PRIORS, "--model", "linear", "--epochs", "3", *options, "--out", tmp_path / "m")
    code, _, error = uulearn("fit", files / "a.csv", files / "b.csv", *given)
    assert code == 0, error
    facts = TableModel.load(tmp_path / "m").facts.sensitivity
    assert len(facts.rows) == rows
    assert facts.budget_note is None
    if not rows and not options:
        assert re.match(r"A time budget of \d.* s is too short: the analysis trains at least 3 models", facts.skipped)
        assert "--sensitivity measures all changes." in facts.skipped


def test_report_says_how_many_changes_were_measured(files, uulearn, tmp_path, monkeypatch):
    """On the fake clock, the first three models take half of the training time, and the others more than the rest."""
    budgets, usual = [], sensitivity.BatchedTrainer

    class Timed(usual):
        def run(self):
            histories = super().run()
            budgets.append(len(self.runs))
            return histories

    def prior_sensitivity(*args, seconds, **arguments):
        monkeypatch.setattr(sensitivity, "read_clock", lambda: 0.25 * seconds * sum(budgets))
        return sensitivity.prior_sensitivity(*args, seconds=seconds, **arguments)

    monkeypatch.setattr(sensitivity, "BatchedTrainer", Timed)
    monkeypatch.setattr(estimates, "prior_sensitivity", prior_sensitivity)
    given = (*PRIORS, "--model", "linear", "--epochs", "3", "--out", tmp_path / "m")
    assert uulearn("fit", files / "a.csv", files / "b.csv", *given)[0] == 0
    assert budgets == [3, 1]
    facts = TableModel.load(tmp_path / "m").facts.sensitivity
    assert [(row.parameter, row.error) for row in facts.rows[1:]] == [("θ", -0.1), ("θ", 0.1), ("θ′", 0.1)]
    assert facts.budget_note.startswith("3 of 12 changes of the priors were measured in ")
    assert uulearn("report", tmp_path / "m")[0] == 0
    (report,) = tmp_path.rglob("*.html")
    assert facts.budget_note in report.read_text()


def test_single_model_that_is_not_batched_leaves_no_time(files, uulearn, tmp_path, monkeypatch):
    """Three more models would take longer than the training, so none is trained."""
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(estimates, "prior_sensitivity", None)
    given = (*PRIORS, "--model", "boosting", "--n-estimators", "1", "--epochs", "3", "--out", tmp_path / "m")
    code, _, error = uulearn("fit", files / "a.csv", files / "b.csv", *given)
    assert code == 0, error
    skipped = TableModel.load(tmp_path / "m").facts.sensitivity.skipped
    assert re.match(r"The measurement trains at least 3 models, which takes longer than the training \(\d", skipped)


def test_exports_numbers_booleans_and_categories(files, uulearn, tmp_path):
    import onnxruntime

    columns = ("--only", "age", "--only", "ward", "--only", "smokes")
    options = (*columns, *PRIORS, *QUICK, "--out", tmp_path / "m")
    assert uulearn("fit", files / "a.csv", files / "b.csv", *options)[0] == 0
    code, printed, error = uulearn("export", tmp_path / "m", "--out", tmp_path / "m.onnx")
    assert code == 0, error
    assert "from X float64 (n, 2), categories string (n, 1) to score float32 (n,)" in printed
    rows = pd.read_csv(files / "new.csv", dtype=str)
    rows.loc[:4, "ward"] = ["west", None, "north", "south", ""]  # unseen and missing values
    frame = rows.where(rows.notna(), None)
    frame.loc[4, "ward"] = None
    X = np.stack([rows["age"].astype(float), (rows["smokes"] == "yes").astype(float)], axis=1)
    text = rows[["ward"]].fillna("").to_numpy(dtype=object)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    score, probability, predicted = session.run(["score", "probability", "class"], {"X": X, "categories": text})
    own = TableModel.load(tmp_path / "m").score(frame)
    np.testing.assert_allclose(score, own.score, atol=1e-5)
    np.testing.assert_allclose(probability, own.probability, atol=1e-5)
    np.testing.assert_array_equal(predicted, own.predicted)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["feature_names"]) == ["age", "smokes"]
    assert json.loads(metadata["category_names"]) == ["ward"]


def test_export_rejects_dates_by_name(fitted, uulearn, tmp_path):
    code, _, error = uulearn("export", fitted[0], "--out", tmp_path / "m.onnx")
    assert code == 2
    assert "which are dates or text" in error
    assert not list(tmp_path.iterdir())


def test_says_that_the_priors_are_suspect_if_most_columns_leak(files, uulearn, tmp_path):
    code, _, error = uulearn(
        "fit",
        files / "a.csv",
        files / "b.csv",
        "--set-priors",
        "0.501",
        "0.5",
        *QUICK,
        "--only",
        "age",
        "--only",
        "ward",
        "--out",
        tmp_path,
    )
    assert code == 2
    assert "error: Check the class priors: most columns differ by more than they allow. Column " in error
    assert "If the class priors are right, these are leaking columns: leave them out (--drop " in error


def test_labels_of_one_class_are_reported_with_their_values(fitted, files, uulearn, tmp_path):
    rows = pd.read_csv(files / "a.csv").assign(truth=lambda frame: np.arange(len(frame)) % 2)
    rows.to_csv(tmp_path / "labeled.csv", index=False)
    command = ("evaluate", fitted[0], tmp_path / "labeled.csv", "--labels", "truth")
    code, _, error = uulearn(*command, "--positive", "2")
    assert code == 2
    assert "no row has the label '2': column 'truth' contains '0', '1'; pass rows of both classes" in error
    rows.assign(truth="yes").to_csv(tmp_path / "labeled.csv", index=False)
    code, _, error = uulearn(*command)
    assert code == 2
    assert "every row has the label 1, true or yes: column 'truth' contains 'yes';" in error
