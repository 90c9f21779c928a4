"""The same data and settings give the same model from the command line and from Python."""

import tomllib

import numpy as np
import pandas as pd
import pytest
import torch

from uulearn import UUClassifier
from uulearn.app.fitting import fit_files
from uulearn.app.settings import FitSettings
from uulearn.tabular.matrices import encode_rows, split_rows


def write_tables(folder, rows):
    rng = np.random.default_rng(0)
    paths = []
    for name, prior in (("a", 0.8), ("b", 0.2)):
        y = rng.random(rows) < prior
        frame = pd.DataFrame(rng.normal(size=(rows, 3)) + y[:, None], columns=["x", "y", "z"]).round(4)
        frame["kind"] = np.where(rng.random(rows) < 0.3 + 0.4 * y, "red", "blue")
        frame.to_csv(folder / f"{name}.csv", index=False)
        paths.append(str(folder / f"{name}.csv"))
    return paths


def fit_both_ways(folder, rows, **classifier):
    """The classifier of `uulearn fit`, and one fitted in Python with the parameters of its configuration."""
    paths = write_tables(folder, rows)
    settings = FitSettings(*paths, set_priors=(0.8, 0.2), classifier={"epochs": 4, **classifier}, sensitivity=False)
    model, complete = fit_files(settings)
    configuration = tomllib.loads(complete.to_toml())
    X = [encode_rows(pd.read_csv(path, dtype=str), model.schema, model.encoder, folder, path) for path in paths]
    if model.classifier.n_estimators == 1:
        splits, _ = split_rows(X, 2 * settings.hold_out, settings.seed)  # the rows set aside for the evaluation
        X = [np.delete(table, split.evaluate, axis=0) for table, split in zip(X, splits, strict=True)]
    python = UUClassifier((0.8, 0.2), configuration["target_prior"], random_state=configuration["seed"])
    python.set_params(**configuration["classifier"])
    torch.set_num_threads(2)  # the number of threads follows the size of the problem, not the interface
    try:
        return model.classifier, python.fit_sets(*X), X[0]
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("rows", "parameters"),
    [
        (150, {}),
        (150, {"model": "linear", "training__ema": 0.9, "early_stopping": False}),
        (6000, {"model": "linear"}),
        (400, {"n_estimators": 1}),
    ],
    ids=["small table", "linear", "large table", "single model"],
)
def test_command_line_and_python_give_the_same_model(tmp_path, rows, parameters):
    command, python, X = fit_both_ways(tmp_path, rows, **parameters)
    for (name, ours), theirs in zip(
        command.model_.state_dict().items(), python.model_.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    assert command.scaling_ == python.scaling_
    assert command.set_sizes_ == python.set_sizes_
    np.testing.assert_array_equal(command.decision_function(X), python.decision_function(X))
    np.testing.assert_array_equal(command.predict_proba(X), python.predict_proba(X))


def test_command_line_defaults_equal_classifier_defaults(tmp_path):
    """All parameters except calibration, which `uulearn fit` always requests, equal the defaults of `UUClassifier`."""
    command, _, X = fit_both_ways(tmp_path, 150)
    default = UUClassifier((0.8, 0.2), epochs=4, random_state=0)
    default.fit_sets(X, X + 1)
    assert command.fitted_params() == default.fitted_params() | {"training": command.training}
