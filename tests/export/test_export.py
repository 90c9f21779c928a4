"""ONNX files give the same scores, probabilities and classes as Python; unsupported steps raise an error."""

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier, __version__
from uulearn.exceptions import UUWarning
from uulearn.export import checking, export_onnx, register_transformer, transformers, writing
from uulearn.export.steps import normal_quantile
from uulearn.export.transformers import convert_transformer

COLUMNS = ["age", "dose", "weight"]


def run(path, X):
    """Outputs of onnxruntime by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def assert_same(path, classifier, X, rows=None, atol=1e-5):
    """Compare the file on ``rows`` with the classifier on X."""
    found = run(path, np.asarray(X if rows is None else rows))
    np.testing.assert_allclose(found["score"], classifier.decision_function(X), rtol=1e-5, atol=atol)
    np.testing.assert_allclose(found["probability"], classifier.predict_proba(X)[:, 1], atol=atol)
    np.testing.assert_array_equal(found["class"], classifier.predict(X))
    assert [found[name].dtype for name in ("score", "probability", "class")] == ["float32", "float32", "int64"]


# ---------------------------------------------------------------------------------------------- transformers as modules


def table(missing=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1, 20, 0.01, 1] + [0, 300, 1, 0]
    X[:, 3] = rng.integers(0, 5, 200)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


TRANSFORMERS = {
    "standard": StandardScaler(),
    "standard, not centered": StandardScaler(with_mean=False),
    "standard, not scaled": StandardScaler(with_std=False),
    "robust": RobustScaler(),
    "robust, not centered": RobustScaler(with_centering=False),
    "robust, not scaled": RobustScaler(with_scaling=False),
    "min max": MinMaxScaler((-0.1, 0.7)),
    "min max, clipped": MinMaxScaler((-0.1, 0.7), clip=True),
    "max abs": MaxAbsScaler(),
    "mean": SimpleImputer(),
    "median": SimpleImputer(strategy="median", add_indicator=True),
    "most frequent": SimpleImputer(strategy="most_frequent"),
    "constant": SimpleImputer(strategy="constant", fill_value=-7.3),
    "pca": make_pipeline(SimpleImputer(), PCA(2)),
    "pca, whitened": make_pipeline(SimpleImputer(), PCA(3, whiten=True)),
    "svd": make_pipeline(SimpleImputer(), TruncatedSVD(2, random_state=0)),
    "uniform": QuantileTransformer(n_quantiles=50),
    "normal": QuantileTransformer(n_quantiles=64, output_distribution="normal"),
    "variance": VarianceThreshold(0.5),
    "passthrough": Pipeline([("nothing", "passthrough"), ("none", None), ("scale", StandardScaler())]),
    "union": FeatureUnion(
        [("s", StandardScaler()), ("p", "passthrough"), ("d", "drop"), ("m", MinMaxScaler())],
        transformer_weights={"m": 0.3},
    ),
    "columns": ColumnTransformer(
        [("a", StandardScaler(), [3, 0]), ("b", SimpleImputer(), slice(1, 2)), ("c", "drop", [2]), ("none", PCA(), [])],
        remainder="passthrough",
        transformer_weights={"a": 10.0},
    ),
    "columns by mask": ColumnTransformer([("a", RobustScaler(), [True, False, False, True])], remainder=MaxAbsScaler()),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_converted_transformer_equals_scikit_learn(name):
    transformer = TRANSFORMERS[name].fit(table())
    rng = np.random.default_rng(1)
    X = np.concatenate([table(), 1e6 * rng.normal(size=(20, 4)), np.zeros((1, 4)), np.full((1, 4), np.nan)])
    expected = transformer.transform(X)
    found = convert_transformer(transformer, "step")(torch.from_numpy(X)).numpy()
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-8)


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(2, 40), st.sampled_from(["uniform", "normal"]))
def test_quantiles_with_ties_equal_scikit_learn(seed, values, n_quantiles, distribution):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, values, (60, 2)).astype(float)
    transformer = QuantileTransformer(n_quantiles=n_quantiles, output_distribution=distribution).fit(X)
    asked = np.concatenate([X, rng.uniform(-1, values + 1, (40, 2)), X[:5] + 1e-8])
    found = convert_transformer(transformer, "step")(torch.from_numpy(asked)).numpy()
    np.testing.assert_allclose(found, transformer.transform(asked), atol=1e-8)


def test_normal_quantile_equals_scipy():
    levels = np.concatenate([np.geomspace(1e-7, 0.5, 500), 1 - np.geomspace(1e-7, 0.5, 500), [0.075, 0.925]])
    found = normal_quantile()(torch.from_numpy(levels)[:, None]).numpy()[:, 0]
    np.testing.assert_allclose(found, stats.norm.ppf(levels), rtol=1e-11, atol=1e-12)


def test_empty_columns_are_dropped_or_kept_as_by_the_imputer():
    X = table()
    X[:, 1] = np.nan
    for keep in (False, True):
        imputer = SimpleImputer(keep_empty_features=keep, add_indicator=True).fit(X)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Skipping features")
            expected = imputer.transform(X)
        np.testing.assert_allclose(convert_transformer(imputer, "step")(torch.from_numpy(X)).numpy(), expected)


def test_missing_values_can_be_marked_by_a_number():
    X = np.array([[0.1, 2.0], [3.0, 0.1], [5.0, 4.0]])
    imputer = SimpleImputer(missing_values=0.1).fit(X)
    np.testing.assert_allclose(convert_transformer(imputer, "s")(torch.from_numpy(X)).numpy(), imputer.transform(X))
    whole = np.array([[-1, 2], [3, -1], [4, 5]])
    imputer = SimpleImputer(missing_values=-1).fit(whole)
    found = convert_transformer(imputer, "s")(torch.from_numpy(whole.astype(float))).numpy()
    np.testing.assert_allclose(found, imputer.transform(whole))


@pytest.mark.parametrize(
    ("transformer", "bad"),
    [
        (StandardScaler(), np.inf),
        (MinMaxScaler(clip=True), -np.inf),
        (QuantileTransformer(n_quantiles=5), np.inf),
        (SimpleImputer(), np.inf),
        (SimpleImputer(missing_values=-1), np.nan),
        (PCA(2), np.nan),
        (Pipeline([("p", PCA(2)), ("i", SimpleImputer())]), np.nan),
        (Pipeline([("s", MinMaxScaler(clip=True)), ("i", SimpleImputer())]), np.inf),
    ],
)
def test_rows_that_scikit_learn_refuses_become_infinite(transformer, bad):
    X = table(missing=False)
    transformer.fit(X)
    X[3, 0] = bad
    with pytest.raises(ValueError, match="contains NaN|contains infinity"):
        transformer.transform(X)
    found = convert_transformer(transformer, "step")(torch.from_numpy(X)).numpy()
    assert np.isinf(found[3]).all()
    assert np.isfinite(np.delete(found, 3, axis=0)).all()


# ------------------------------------------------------------------------------------------------------------- refusals


class Subclass(StandardScaler):
    pass


@pytest.mark.parametrize(
    ("step", "column", "sentence"),
    [
        (
            OneHotEncoder(),
            ["x", "y"],
            r"step 'prep/odd' \(OneHotEncoder\) is not one of .*; export the classifier without",
        ),
        (FunctionTransformer(np.log1p), [1.0, 2.0], r"step 'prep/odd' \(FunctionTransformer\) calls a Python function"),
        (Subclass(), [1.0, 2.0], r"step 'prep/odd' \(Subclass\)"),
        (SimpleImputer(strategy="constant", fill_value="?"), ["x", "y"], "values that are not numbers"),
    ],
)
def test_rejects_unsupported_steps_by_name(step, column, sentence):
    frame = pd.DataFrame({"odd": column * 5, "good": np.arange(10.0)})
    pipeline = Pipeline([("prep", ColumnTransformer([("fine", StandardScaler(), ["good"]), ("odd", step, ["odd"])]))])
    pipeline.fit(frame)
    with pytest.raises(ValueError, match=sentence):
        convert_transformer(pipeline, "")


def test_rejects_bad_arguments_before_any_work(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_translate", None)
    path = tmp_path / "model.onnx"
    scaler = StandardScaler().fit(np.zeros((3, 2)))
    cases = [
        (TypeError, "got LogisticRegression; for a search, pass best_estimator_", LogisticRegression(), {}),
        (TypeError, "Pipeline that ends in one, got StandardScaler", make_pipeline(scaler), {}),
        (NotFittedError, "not fitted", UUClassifier((0.8, 0.2)), {}),
        (NotFittedError, "not fitted", fitted, {"pipeline": StandardScaler()}),
        (ValueError, "returns rows of shape \\(2,\\), but the classifier was fitted on rows of shape \\(3,\\)",
         fitted, {"pipeline": scaler}),
        (ValueError, "is already a Pipeline", make_pipeline(scaler, fitted), {"pipeline": scaler}),
        (ValueError, "input_type must be one of 'float32', 'float64', 'uint8', got 'int8'",
         fitted, {"input_type": "int8"}),
    ]  # fmt: skip
    for error, sentence, classifier, arguments in cases:
        with pytest.raises(error, match=sentence):
            export_onnx(classifier, path, **arguments)
    with pytest.raises(ValueError, match="is a directory; pass the path of a file"):
        export_onnx(fitted, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("missing", "named"), [(["onnx"], "onnx"), (["onnx", "onnxscript"], "onnx and onnxscript")])
def test_missing_libraries_are_named_with_the_install_command(fitted, tmp_path, monkeypatch, missing, named):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"needs {named}, .*pip install 'uulearn\[onnx\]'"):
        export_onnx(fitted, tmp_path / "model.onnx")


class DataDependent(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


class FixedRows(nn.Linear):
    def forward(self, x):
        return super().forward(x).reshape(len(x))


@pytest.mark.parametrize("kind", [DataDependent, FixedRows])
def test_rejects_a_model_that_cannot_be_traced(gaussians, tmp_path, capfd, kind):
    clf = plain_classifier((0.8, 0.2), model=kind(3, 1), epochs=1, progress=False).fit(
        gaussians["X"], gaussians["sets"]
    )
    with pytest.raises(ValueError, match=rf"model {kind.__name__} cannot be exported to ONNX .*x\.shape\[0\]"):
        export_onnx(clf, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------ files, and what is in


@pytest.fixture(scope="module")
def fitted(gaussians):
    plain = plain_classifier(
        (0.8, 0.2), 0.4, model_params={"hidden": (8,)}, epochs=3, random_state=0, lr=0.01, encoder=None
    )
    return plain.fit(pd.DataFrame(gaussians["X"], columns=COLUMNS), gaussians["sets"])


@pytest.fixture(scope="module")
def exported(fitted, tmp_path_factory):
    return export_onnx(fitted, tmp_path_factory.mktemp("export") / "deep" / "model.onnx")


@pytest.fixture
def no_translation(exported, monkeypatch):
    """Every export uses the graph of ``exported``."""
    monkeypatch.setattr(writing, "_translate", lambda *_: onnx.load(exported.path))


def test_export_equals_python(fitted, exported, gaussians):
    frame = pd.DataFrame(gaussians["X_test"], columns=COLUMNS)
    assert_same(exported.path, fitted, frame, np.float32(gaussians["X_test"]))
    assert_same(exported.path, fitted, frame[:1], np.float32(gaussians["X_test"][:1]))


def test_result_describes_the_file(exported):
    assert exported.opset == 18
    assert exported.inputs == (("X", "float32", ("n", 3)),)
    assert exported.outputs == (
        ("score", "float32", ("n",)), ("probability", "float32", ("n",)), ("class", "int64", ("n",)),
    )  # fmt: skip
    assert 0 < exported.largest_difference < 1e-5
    assert exported.checked_rows > 1000
    assert exported.notes == ()
    assert str(exported).startswith(f"{exported.path}: from X float32 (n, 3) to score float32 (n,), ")
    assert "rows onnxruntime and Python differ by at most" in str(exported)


def test_file_has_our_metadata_only(exported):
    proto = onnx.load(exported.path)
    assert {entry.key: entry.value for entry in proto.metadata_props} == {
        "uulearn_version": __version__,
        "set_priors": "[0.8, 0.2]",
        "target_prior": "0.4",
        "feature_names": json.dumps(COLUMNS),
        "calibrated": "false",
        "labels": "no label was used",
    }
    assert proto.opset_import[0].version == 18
    assert proto.ir_version <= 10  # supported by onnxruntime 1.20
    session = onnxruntime.InferenceSession(exported.path)
    assert [(port.name, port.shape) for port in session.get_inputs()] == [("X", ["n", 3])]
    assert [port.shape for port in session.get_outputs()] == [["n"]] * 3
    content = exported.path.read_bytes()
    assert not any(word in content for word in (b".py", b"stack_trace", b"aten"))
    assert list(exported.path.parent.iterdir()) == [exported.path]


def test_refused_rows_have_no_score(fitted, exported):
    X = np.zeros((6, 3), dtype=np.float32)
    X[1, 0], X[2, 1], X[3, 2], X[4, 0] = np.nan, np.inf, -np.inf, 1e18
    found = run(exported.path, X)
    bad = np.array([False, True, True, True, True, False])
    np.testing.assert_array_equal(np.isnan(found["score"]), bad)
    np.testing.assert_array_equal(np.isnan(found["probability"]), bad)
    np.testing.assert_array_equal(found["class"] == -1, bad)
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        fitted.decision_function(pd.DataFrame(X[1:2], columns=COLUMNS))


def test_metadata_reports_labels_and_missing_names(fitted, no_translation, tmp_path, gaussians):
    clf = plain_classifier((0.8, 0.2), 0.4, model_params={"hidden": (8,)}, epochs=3, random_state=0, lr=0.01)
    clf.fit(gaussians["X"], gaussians["sets"], test_data=(gaussians["X_test"], gaussians["y_test"]))
    done = export_onnx(clf, tmp_path / "model.onnx")
    notes = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert notes["labels"] == "passed for evaluation; training did not use them"
    assert notes["feature_names"] == "null"


def test_result_says_if_onnxruntime_is_missing(fitted, no_translation, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = export_onnx(fitted, str(tmp_path / "model.onnx"))
    assert done.path.is_file()
    assert done.largest_difference is None
    assert done.checked_rows == 0
    assert "not checked, because onnxruntime is not installed; run pip install 'uulearn[onnx]'" in str(done)


def test_wrong_graph_is_not_written(no_translation, tmp_path, gaussians):
    other = plain_classifier((0.8, 0.2), 0.4, model="linear", epochs=1, random_state=1)
    other.fit(gaussians["X"], gaussians["sets"])
    path = tmp_path / "model.onnx"
    path.write_bytes(b"an older export")
    with pytest.raises(ArithmeticError, match=r"differs from the classifier by \d.* on random rows, .*allowed: 1e-05"):
        export_onnx(other, path)
    assert path.read_bytes() == b"an older export"
    assert list(tmp_path.iterdir()) == [path]


def spoiled(output, change):
    def call(self, X, asked=checking._Session.__call__):
        outputs = asked(self, X)
        return outputs | {output: change(outputs[output])}

    return call


@pytest.mark.parametrize(
    ("output", "change", "sentence"),
    [
        ("score", lambda value: value + np.float32(2e-3), "differs from the classifier by"),
        ("probability", lambda value: value + np.float32(2e-4), "differs from the classifier by"),
        ("score", lambda value: np.nan_to_num(value), "disagree on which unusual rows have a score"),
        (
            "probability",
            lambda value: np.nan_to_num(value),
            "disagree on which unusual rows have a probability",
        ),
        ("class", lambda value: 1 - value, "predict different classes for random rows"),
        ("class", lambda value: np.maximum(value, 0), "predict different classes for unusual rows"),
    ],
)
def test_every_output_is_checked(fitted, exported, monkeypatch, output, change, sentence):
    python = checking.PythonScores(fitted, None)
    checking.check(exported.path, python, (3,), "float32", None)
    monkeypatch.setattr(checking._Session, "__call__", spoiled(output, change))
    with pytest.raises(ArithmeticError, match=sentence):
        checking.check(exported.path, python, (3,), "float32", None)


def test_given_rows_are_checked(fitted, exported, gaussians):
    python = checking.PythonScores(fitted, None)
    frame = pd.DataFrame(gaussians["X"].astype(np.float32), columns=COLUMNS)
    before = checking.check(exported.path, python, (3,), "float32", None)
    after = checking.check(exported.path, python, (3,), "float32", frame.assign(other="x"))  # one column too many
    assert after.rows == before.rows + 800
    with pytest.raises(ValueError, match=r"rows must have the shape \(n, 3\), got \(4, 2\)"):
        checking.check(exported.path, python, (3,), "float32", np.zeros((4, 2)))


def test_asks_for_rows_if_no_made_up_row_is_accepted(fitted, exported):
    class PickyScores(checking.PythonScores):
        def __call__(self, X):
            if len(X) != 7:
                raise IndexError("unknown token")
            return super().__call__(X)

    python = PickyScores(fitted, None)
    with pytest.raises(ValueError, match=r"rejected all rows generated .* rows=X\[:100\]"):
        checking.check(exported.path, python, (3,), "float32", None)
    assert checking.check(exported.path, python, (3,), "float32", np.ones((7, 3))).rows == 7


def test_rejects_a_file_that_onnxruntime_cannot_run(fitted, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="onnxruntime cannot run the exported graph"):
        checking.check(tmp_path / "model.onnx", checking.PythonScores(fitted, None), (3,), "float32", None)


# -------------------------------------------------------------------------------------------------- kinds of classifier


def test_exports_a_calibrated_ensemble_at_another_prior(gaussians, tmp_path):
    clf = plain_classifier(
        (0.8, 0.2), 0.5, n_estimators=2, calibrated=True, loss="squared", model_params={"hidden": (8,)}, epochs=20,
        lr=0.05, precision="bfloat16", random_state=0,
    ).fit(gaussians["X"], gaussians["sets"]).with_target_prior(0.35)  # fmt: skip
    done = export_onnx(clf, tmp_path / "model.onnx")
    assert "trained in bfloat16" in str(done)
    notes = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert (notes["target_prior"], notes["calibrated"]) == ("0.35", "true")
    clf.trained_ = dataclasses.replace(clf.trained_, precision="float32")
    X = np.float32(gaussians["X_test"])
    assert_same(done.path, clf, X)
    assert 0 < run(done.path, X)["class"].mean() < 1


def test_classifier_without_priors_has_only_a_score(gaussians, tmp_path):
    clf = plain_classifier(None, method="biased", model="linear", epochs=3, random_state=0)
    clf.fit(gaussians["X"], gaussians["sets"])
    done = export_onnx(clf, tmp_path / "model.onnx", input_type="float64")
    assert [port.name for port in done.outputs] == ["score"]
    assert "trained without priors" in str(done)
    found = run(done.path, gaussians["X_test"])
    assert list(found) == ["score"]
    np.testing.assert_allclose(found["score"], clf.decision_function(gaussians["X_test"]), atol=1e-6)
    notes = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert (notes["set_priors"], notes["target_prior"]) == ("null", "null")


class TokenModel(nn.Module):
    """A user's model on sequences of integers, in channels-last layout and with a bare squeeze."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 4)
        self.mix = nn.Conv2d(4, 3, (1, 3)).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.output = nn.Linear(3, 1)

    def forward(self, x):
        x = self.embed(x.long()).permute(0, 2, 1)[:, :, None]
        return self.output(self.drop(torch.relu(self.norm(self.mix(x))).mean((2, 3)))).squeeze()


def test_exports_a_custom_model_with_another_loss(tmp_path):
    rng = np.random.default_rng(0)
    X, sets = rng.integers(0, 20, (80, 7)), np.repeat([0, 1], 40)
    clf = plain_classifier(
        (0.9, 0.1), 0.3, model=TokenModel, loss="squared", epochs=2, random_state=0, precision="float32"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        clf.fit(X, sets)
    clf.model_.train()
    done = export_onnx(clf, tmp_path / "model.onnx", rows=X)
    assert clf.model_.training  # unchanged
    assert 80 < done.checked_rows < 1000  # the embedding cannot take most of the generated rows
    assert_same(done.path, clf, X, X.astype(np.float32))
    assert len(run(done.path, X[:1].astype(np.float32))["score"]) == 1


def test_exports_images_as_bytes(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (40, 1, 8, 8), dtype=np.uint8)
    clf = plain_classifier(
        (0.8, 0.2), model="resnet32", input_scale=1 / 255, epochs=1, random_state=0, precision="float32"
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        clf.fit(X, np.arange(40) % 2)
    clf.model_.to(memory_format=torch.channels_last)
    done = export_onnx(clf, tmp_path / "model.onnx", input_type="uint8")
    assert done.inputs == (("X", "uint8", ("n", 1, 8, 8)),)
    assert_same(done.path, clf, X)


# ------------------------------------------------------------------------------------------------------------ pipelines


@pytest.fixture(scope="module")
def behind_pipeline(tmp_path_factory):
    """A pipeline of most transformers with a classifier, its rows, and its export."""
    rng = np.random.default_rng(0)
    y = rng.random(400) < np.repeat([0.8, 0.2], 200)
    values = rng.normal(size=(400, 6)) + y[:, None]
    frame = pd.DataFrame(values * [1, 20, 0.01, 3, 1, 1] + [0, 300, 1, 0, 0, 0], columns=list("abcdef"))
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame["f"] = frame["f"].fillna(0.0)  # no step imputes this column
    columns = ColumnTransformer(
        [
            (
                "ranks",
                make_pipeline(QuantileTransformer(n_quantiles=9, output_distribution="normal"), SimpleImputer()),
                ["d", "a"],
            ),
            ("filled", make_pipeline(SimpleImputer(strategy="median", add_indicator=True), RobustScaler()), ["b", "c"]),
            ("dropped", "drop", ["e"]),
        ],
        remainder=MinMaxScaler(clip=True),
    )
    model = plain_classifier((0.8, 0.2), 0.4, model="linear", epochs=20, lr=0.05, random_state=0)
    pipeline = make_pipeline(columns, StandardScaler(), PCA(4, whiten=True), model)
    pipeline.fit(frame, np.repeat([0, 1], 200))
    path = tmp_path_factory.mktemp("pipeline") / "model.onnx"
    return pipeline, frame, export_onnx(pipeline, path, rows=frame.astype(np.float32))


def test_pipeline_is_part_of_the_graph(behind_pipeline):
    pipeline, frame, done = behind_pipeline
    assert done.inputs == (("X", "float32", ("n", 6)),)
    assert done.largest_difference < 1e-5
    rounded = frame.astype(np.float32).astype(np.float64)
    assert_same(done.path, pipeline, rounded, rounded.to_numpy(np.float32))
    notes = {entry.key: entry.value for entry in onnx.load(done.path).metadata_props}
    assert json.loads(notes["feature_names"]) == list("abcdef")


def test_missing_values_are_imputed_or_refused_as_in_python(behind_pipeline):
    pipeline, frame, done = behind_pipeline
    X = np.zeros((6, 6), dtype=np.float32)
    X[0, :5], X[1, 5], X[2, 0], X[3, 4] = np.nan, np.nan, np.inf, np.inf
    found = run(done.path, X)
    np.testing.assert_array_equal(np.isnan(found["score"]), [False, True, True, False, False, False])
    for row in (1, 2):
        with pytest.raises(ValueError, match="contains NaN|contains infinity"):
            pipeline.predict(pd.DataFrame(X[row : row + 1], columns=frame.columns))
    kept = pd.DataFrame(X[[0, 3, 4]], columns=frame.columns).astype(np.float64)
    np.testing.assert_allclose(found["score"][[0, 3, 4]], pipeline.decision_function(kept), atol=1e-5)


def test_suggests_float64_if_float32_is_not_precise_enough(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    seconds = 1.7e9 + rng.normal(size=(60, 1)) + np.repeat([1.0, 0.0], 30)[:, None]
    scaler = StandardScaler().fit(seconds)
    clf = plain_classifier((0.8, 0.2), model="linear", epochs=30, lr=0.05, random_state=0, precision="float32")
    clf.fit(scaler.transform(seconds), np.repeat([0, 1], 30))
    translated = []
    monkeypatch.setattr(
        writing, "_translate", lambda *args, real=writing._translate: translated.append(real(*args)) or translated[-1]
    )
    with pytest.raises(ArithmeticError, match="on given rows, .*pass input_type='float64'"):
        export_onnx(clf, tmp_path / "model.onnx", pipeline=scaler, rows=seconds)
    translated[0].graph.input[
        0
    ].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE  # the first node is a cast to float64
    monkeypatch.setattr(writing, "_translate", lambda *_: translated[0])
    done = export_onnx(clf, tmp_path / "model.onnx", pipeline=scaler, input_type="float64", rows=seconds)
    assert_same(done.path, clf, scaler.transform(seconds), seconds)


class Squares(StandardScaler):
    def transform(self, X):
        return super().transform(X) ** 2


class SquaresModule(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) ** 2


def test_registers_another_transformer(monkeypatch):
    monkeypatch.setattr(transformers, "_CONVERTERS", dict(transformers._CONVERTERS))
    squares = Squares().fit(table())
    with pytest.raises(ValueError, match="Squares"):
        convert_transformer(squares, "step")
    standard = transformers._CONVERTERS[StandardScaler]

    @register_transformer(Squares)
    def convert(transformer, name):
        return SquaresModule(standard(transformer, name))

    X = table()
    found = convert_transformer(make_pipeline(squares, SimpleImputer().fit(X)), "")(torch.from_numpy(X)).numpy()
    expected = SimpleImputer().fit(X).transform(squares.transform(X))
    np.testing.assert_allclose(found, expected)


# ---------------------------------------------------------------------------------------- a saved model, somewhere else

CORE = """
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
blocked = set("matplotlib PIL pooch onnx onnxruntime onnxscript skorch pytest typer".split())

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import numpy as np, torch

def no_cuda(*_):
    raise AssertionError("CUDA was used")

torch.cuda._lazy_init = no_cuda
from uulearn import UUClassifier
clf = UUClassifier.load(sys.argv[1])
X = np.load(sys.argv[2])
np.savez(sys.argv[3], score=clf.decision_function(X), probability=clf.predict_proba(X), classes=clf.predict(X))
assert not blocked & {name.split(".")[0] for name in sys.modules}
from uulearn.export import export_onnx
try:
    export_onnx(clf, sys.argv[3] + ".onnx")
except ImportError as error:
    print(error)
"""


def test_saved_model_runs_without_extras_and_cuda(fitted, gaussians, tmp_path):
    trained_on_a_gpu = UUClassifier(**fitted.get_params(deep=False) | {"device": "cuda"})
    vars(trained_on_a_gpu).update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    trained_on_a_gpu.save(tmp_path / "model")
    X = gaussians["X_test"].astype(np.float64)
    np.save(tmp_path / "rows.npy", X)
    script = tmp_path / "elsewhere.py"
    script.write_text(CORE)
    arguments = [str(tmp_path / name) for name in ("model", "rows.npy", "outputs.npz")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "export_onnx needs onnx and onnxscript, which is not installed; run pip install 'uulearn[onnx]'."
    )
    assert not Path(arguments[-1] + ".onnx").exists()
    outputs = np.load(arguments[-1])
    frame = pd.DataFrame(X, columns=COLUMNS)
    np.testing.assert_array_equal(outputs["score"], fitted.decision_function(frame))
    np.testing.assert_array_equal(outputs["probability"], fitted.predict_proba(frame))
    np.testing.assert_array_equal(outputs["classes"], fitted.predict(frame))
