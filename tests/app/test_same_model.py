"""The same data and settings give the same model from the command line and from Python."""

import tomllib
import warnings

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
import torch

from uulearn import UUClassifier
from uulearn.app.fitting import fit_files
from uulearn.app.model import TableModel
from uulearn.app.scoring import score_file
from uulearn.app.settings import FitSettings
from uulearn.exceptions import ColumnWarning, ModelFormatError
from uulearn.tabular import TableEncoder, encoder
from uulearn.tabular.matrices import prepare, split_rows

WORDS = ["pain", "chest", "left", "arm", "cough", "fever", "mild", "since", "days"]


def write_tables(folder, rows):
    """Write two files with numbers, categories, booleans, dates, text, an identifier and missing values."""
    rng = np.random.default_rng(0)
    paths = []
    for name, prior in (("a", 0.8), ("b", 0.2)):
        y = rng.random(rows) < prior
        frame = pd.DataFrame(rng.normal(size=(rows, 3)) + y[:, None], columns=["x", "y", "z"]).round(4)
        frame["kind"] = np.where(rng.random(rows) < 0.3 + 0.4 * y, "red", "blue")
        frame["smokes"] = rng.random(rows) < 0.3 + 0.3 * y
        frame["insured"] = np.where(rng.random(rows) < 0.5, "yes", "no")
        frame["visits"] = rng.poisson(3 + y)
        frame["seen"] = (np.datetime64("2023-01-01") + rng.integers(0, 700, rows)).astype(str)
        frame["remark"] = [" ".join(words) for words in rng.choice(WORDS, (rows, 5))]
        frame["patient"] = [f"{name}{number:05d}" for number in range(rows)]
        for column in ("y", "kind", "insured", "seen", "remark"):
            frame[column] = frame[column].astype(object).where(rng.random(rows) > 0.1)
        frame.to_csv(folder / f"{name}.csv", index=False)
        paths.append(str(folder / f"{name}.csv"))
    return paths


def read_polars(path):
    return pytest.importorskip("polars").read_csv(path)


def fit_both_ways(folder, rows, read=pd.read_csv, **classifier):
    """The model of `uulearn fit`, and a classifier fitted to data frames with the parameters of its configuration."""
    paths = write_tables(folder, rows)
    settings = FitSettings(*paths, set_priors=(0.8, 0.2), classifier={"epochs": 4, **classifier}, sensitivity=False)
    frames = [read(path) for path in paths]
    model, complete = fit_files(settings)
    configuration = tomllib.loads(complete.to_toml())
    python = UUClassifier((0.8, 0.2), configuration["target_prior"], random_state=configuration["seed"])
    python.set_params(**configuration["classifier"])
    given = frames
    if model.classifier.n_estimators == 1:
        # `uulearn fit` sets rows aside for the evaluation after it has fitted the encoder to all rows.
        X = [model.encoder.transform(frame) for frame in frames]
        splits, _ = split_rows(X, 2 * settings.hold_out, settings.seed)
        given = [np.delete(table, split.evaluate, axis=0) for table, split in zip(X, splits, strict=True)]
    torch.set_num_threads(2)  # the number of threads follows the size of the problem, not the interface
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            python.fit_sets(*given)
    finally:
        torch.set_num_threads(1)
    return model, python if given is frames else python.with_encoder(model.encoder), frames[0]


@pytest.mark.parametrize(
    ("rows", "parameters"),
    [
        (150, {}),
        (150, {"read": pyarrow.csv.read_csv}),
        (150, {"read": read_polars}),
        (150, {"model": "linear", "training__ema": 0.9, "early_stopping": False}),
        (6000, {"model": "linear"}),
        (400, {"n_estimators": 1}),
    ],
    ids=["small table", "arrow", "polars", "linear", "large table", "single model"],
)
def test_command_line_and_python_give_the_same_model(tmp_path, rows, parameters):
    model, python, frame = fit_both_ways(tmp_path, rows, **parameters)
    command = model.classifier
    assert {column.kind for column in python.encoder_.schema_.columns} == {
        "number", "boolean", "category", "date", "text",
    }  # fmt: skip
    assert python.encoder_.schema_.columns == model.encoder.schema_.columns
    assert list(python.encoder_.schema_.left_out) == list(model.encoder.schema_.left_out) == ["patient"]
    assert python.encoder_.to_bytes()[1] == model.encoder.to_bytes()[1]
    ours, theirs = (classifier.trained_.state().tensors for classifier in (command, python))
    assert list(ours) == list(theirs)
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    assert command.scaling_ == python.scaling_
    assert command.set_sizes_ == python.set_sizes_
    np.testing.assert_array_equal(command.decision_function(frame), python.decision_function(frame))
    np.testing.assert_array_equal(command.predict_proba(frame), python.predict_proba(frame))
    np.testing.assert_array_equal(model.score(pd.read_csv(tmp_path / "a.csv")).score, python.decision_function(frame))


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.ColumnWarning")
@pytest.mark.parametrize("rows", [80, 300], ids=["all rows", "a sample"])
def test_encoder_is_fitted_to_the_same_rows(tmp_path, monkeypatch, rows):
    monkeypatch.setattr(encoder, "ENCODER_ROWS", 100)
    paths = write_tables(tmp_path, rows)
    python = TableEncoder().fit_sets(*map(pd.read_csv, paths), set_priors=(0.8, 0.2), seed=3)
    assert prepare(*paths, (0.8, 0.2), seed=3).encoder.to_bytes()[1] == python.to_bytes()[1]


@pytest.mark.parametrize("read", [pd.read_csv, pyarrow.csv.read_csv, read_polars])
@pytest.mark.parametrize("swapped", [False, True])
def test_numbers_in_one_set_and_some_words_in_the_other_are_categories(tmp_path, read, swapped):
    """A frame has floats in one set and strings in the other; the files have text in both."""
    rng, paths = np.random.default_rng(0), [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    grades = np.tile([9.0, 10.0, 11.0], 40)
    for path, grade in zip(paths, (grades, np.where(rng.random(120) < 0.1, "other", "9")), strict=True):
        pd.DataFrame({"x": rng.normal(size=120), "grade": grade}).to_csv(path, index=False)
    paths = paths[::-1] if swapped else paths
    with pytest.warns(ColumnWarning, match="'grade' is used as category, because not every cell is a number"):
        python = TableEncoder().fit_sets(*map(read, paths))
    assert python.schema_.of_kind("category")[0].values == ("9", "10", "11", "other")
    assert prepare(*paths, None).encoder.to_bytes() == python.to_bytes()


def test_joint_table_gives_the_same_model(tmp_path):
    """`fit` on one table in any order is `fit_sets` on two tables."""
    frames = [pd.read_csv(path).drop(columns="patient") for path in write_tables(tmp_path, 150)]
    sets = np.tile([0, 1], 150)
    joint = pd.concat(frames).iloc[np.argsort(np.argsort(sets, kind="stable"), kind="stable")]
    classifiers = [UUClassifier((0.8, 0.2), epochs=2, random_state=0) for _ in range(2)]
    classifiers[0].fit_sets(*frames)
    classifiers[1].fit(joint, sets)
    scores = [classifier.decision_function(frames[1]) for classifier in classifiers]
    np.testing.assert_array_equal(*scores)


def test_model_directories_of_python_and_the_command_line_are_interchangeable(tmp_path):
    model, python, frame = fit_both_ways(tmp_path, 150, model="linear")
    model.save(tmp_path / "command")
    python.save(tmp_path / "python")
    from_command, from_python = UUClassifier.load(tmp_path / "command"), TableModel.load(tmp_path / "python")
    np.testing.assert_array_equal(from_command.decision_function(frame), python.decision_function(frame))
    np.testing.assert_array_equal(from_python.score(frame).score, python.decision_function(frame))
    score_file(from_python, str(tmp_path / "a.csv"), str(tmp_path / "scored.csv"))
    scored = pd.read_csv(tmp_path / "scored.csv")["score"]
    np.testing.assert_allclose(scored, python.decision_function(frame), rtol=1e-5)
    with pytest.raises(ModelFormatError, match="no facts to report"):
        _ = from_python.fit_facts


def test_command_line_defaults_equal_classifier_defaults(tmp_path):
    """All parameters except calibration, which `uulearn fit` always requests, equal the defaults of `UUClassifier`."""
    command, _, frame = fit_both_ways(tmp_path, 150)
    default = UUClassifier((0.8, 0.2), epochs=4, random_state=0)
    default.fit_sets(*(pd.read_csv(tmp_path / f"{name}.csv").drop(columns="patient") for name in "ab"))
    assert default.fitted_params()["model"] == "auto"
    own = {name: command.classifier.get_params(deep=False)[name] for name in ("training", "encoder")}
    assert command.classifier.fitted_params() == default.fitted_params() | own
    np.testing.assert_array_equal(command.classifier.decision_function(frame), default.decision_function(frame))
