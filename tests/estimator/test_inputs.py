"""All input types without unnecessary copies, and one clear sentence for every bad input."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from uulearn import UUClassifier
from uulearn.data.inputs import LARGEST_INPUT, read_table
from uulearn.selection import UUClassifierCV
from uulearn.streaming import RowStream
from uulearn.training import TrainingOptions

FORMATS = {
    "float64": lambda X: X.astype(np.float64),
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "uint8": lambda X: X.astype(np.uint8),
    "uint16": lambda X: X.astype(np.uint16),
    "int64": lambda X: X.astype(np.int64),
    "big-endian": lambda X: X.astype(">f4"),
    "column-major": lambda X: np.asfortranarray(X, dtype=np.float32),
    "reversed view": lambda X: np.ascontiguousarray(X[::-1], dtype=np.float32)[::-1],
    "list": lambda X: X.tolist(),
    "DataFrame": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
    "mixed DataFrame": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]).astype({"a": "uint8", "b": "float32"}),
    "csr_matrix": sparse.csr_matrix,
    "csr_array": sparse.csr_array,
    "csc_matrix": sparse.csc_matrix,
    "sparse uint16": lambda X: sparse.csr_array(X.astype(np.uint16)),
    "sparse uint32": lambda X: sparse.csr_array(X.astype(np.uint32)),
    "sparse uint64": lambda X: sparse.csr_array(X.astype(np.uint64)),
    "sparse longdouble": lambda X: sparse.csr_array(X.astype(np.longdouble)),
    "torch float32": lambda X: torch.tensor(X, dtype=torch.float32),
    "torch float64": lambda X: torch.tensor(X, dtype=torch.float64),
    "torch bfloat16": lambda X: torch.tensor(X, dtype=torch.bfloat16),
    "torch uint8": lambda X: torch.tensor(X, dtype=torch.uint8),
}


@pytest.fixture(scope="module")
def counts():
    """Small whole numbers that every type represents exactly."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.random(150) < 0.8, rng.random(150) < 0.2])
    return rng.poisson(np.where(y, 9, 3)[:, None], (300, 3)).astype(float), np.repeat([0, 1], 150)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_classifier(kind, counts, quick):
    X, sets = counts
    arguments = quick | {"epochs": 4, "training": TrainingOptions(input_scale=0.1), "encoder": None}
    expected = UUClassifier(**arguments).fit(X.astype(np.float32), sets).decision_function(X.astype(np.float32))
    given = FORMATS[kind](X)
    classifier = UUClassifier(**arguments).fit(given, torch.from_numpy(sets) if "torch" in kind else sets)
    np.testing.assert_allclose(classifier.decision_function(given), expected, rtol=1e-5, atol=1e-6)
    apart = UUClassifier(**arguments).fit_sets(FORMATS[kind](X[:150]), FORMATS[kind](X[150:]))
    np.testing.assert_allclose(apart.decision_function(given), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
def test_arrays_and_tensors_are_not_copied(dtype):
    array = np.ones((50, 3), dtype=dtype)
    rows, _ = read_table(array, any_shape=False)
    assert rows.tensor.data_ptr() == array.ctypes.data
    tensor = torch.from_numpy(array)
    assert read_table(tensor, any_shape=False)[0].tensor.data_ptr() == tensor.data_ptr()


def test_column_names_are_stored_and_checked(counts, quick):
    X, sets = counts
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    classifier = UUClassifier(**quick | {"epochs": 2}, encoder=None).fit(frame, sets)
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("kind", ["numpy", "pandas", "sparse", "torch"])
def test_rejects_values_that_are_not_finite(value, kind, counts, quick):
    X, sets = counts[0].copy(), counts[1]
    X[260, 2] = value
    given = {
        "numpy": lambda x: x,
        "pandas": pd.DataFrame,
        "sparse": sparse.csr_matrix,
        "torch": torch.tensor,
    }[kind](X)
    found = "NaN or infinity" if not np.isfinite(value) else r"1e\+300"
    with pytest.raises(ValueError, match=f"contains {found}.*row 260, column 2"):
        UUClassifier(**quick, encoder=None).fit(given, sets)
    classifier = UUClassifier(**quick | {"epochs": 1}).fit(*counts)
    with pytest.raises(ValueError, match=f"contains {found}.*row 260, column 2"):
        classifier.predict(X)


@pytest.mark.filterwarnings("ignore:the trained model predicts")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_rejects_values_whose_squares_overflow(model, dtype, counts, quick):
    X, sets = pd.DataFrame(counts[0].astype(dtype), columns=["age", "income", "visits"]), counts[1]
    classifier = UUClassifier(**quick | {"epochs": 1, "model": model, "model_params": None}, encoder=None)
    classifier.fit(X, sets)
    for scale in (2e14, 1e17):  # the largest count is 21
        large = X.assign(income=(X["income"] * scale).astype(dtype))
        with pytest.raises(ValueError, match=r"contains .* \(row \d+, column 'income'\).*above 1e\+15 .* divide the"):
            classifier.fit(large, sets)
        with pytest.raises(ValueError, match=r"contains .* \(row \d+, column 'income'\)"):
            classifier.predict_proba(large)
        with pytest.raises(ValueError, match=r"Input test_data contains .* \(row \d+, column 'income'\)"):
            classifier.fit(X, sets, test_data=(large, sets))


@pytest.mark.parametrize("dtype", ["uint64", "longdouble"])
def test_rejects_large_sparse_values_of_types_unknown_to_torch(dtype):
    table = np.array([[0, 1], [3 * 10**15, 0]], dtype=dtype)
    with pytest.raises(ValueError, match=r"contains 3e\+15 \(row 1, column 0\)"):
        read_table(sparse.csr_array(table), any_shape=False)


@pytest.mark.filterwarnings("ignore:the trained model predicts")
@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("n_estimators", [1, 2])
def test_fits_and_predicts_at_largest_input(batch_norm, n_estimators, counts, quick):
    X, sets = counts
    X = X * (LARGEST_INPUT / X.max())
    arguments = quick | {"epochs": 3, "model": "mlp", "model_params": {"hidden": (20, 20), "batch_norm": batch_norm}}
    classifier = UUClassifier(**arguments | {"n_estimators": n_estimators}).fit(X, sets)
    assert all(bool(value.isfinite().all()) for value in classifier.model_.state_dict().values())
    assert np.isfinite(classifier.decision_function(X)).all()


@pytest.mark.filterwarnings("ignore:the trained model predicts")
def test_no_class_from_a_score_that_is_not_finite(counts, quick):
    X, sets = counts
    classifier = UUClassifier(**quick | {"epochs": 1, "model": "linear", "model_params": None}).fit(X, sets)
    with torch.no_grad():
        classifier.model_.output.weight.fill_(3e38)
    rows = np.array([[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    for method in (classifier.decision_function, classifier.predict, classifier.predict_proba):
        with pytest.raises(ValueError, match="score of row 1 of X is inf, so no class can be predicted"):
            method(rows)
        with pytest.raises(ValueError, match="score of row 0 of X is -inf, so no class can be predicted"):
            method(-rows[1:])


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (np.repeat([1, 2], 150), "sets must be 0 or 1.*got 2"),
        (np.repeat([-1, 1], 150), "sets must be 0 or 1.*got -1"),
        (np.repeat(["a", "b"], 150), "sets must be 0 or 1.*got 'a'"),
        (np.repeat([0, 1, 2], 100), "sets must be 0 or 1.*got 2"),
        (np.linspace(0, 1, 300), "Unknown label type"),
        (np.full(300, np.nan), "NaN"),
        (np.zeros(300, int), "set 1 is empty.*needs rows of both"),
        (np.ones(300, int), "set 0 is empty.*needs rows of both"),
        (np.arange(300) == 5, "set 1 has only 1 sample.*at least 2"),
        (np.repeat([0, 1], 100), "inconsistent numbers of samples"),
        (None, "pass sets"),
        (np.zeros((300, 3)), r"table of shape \(300, 3\).*use fit_sets"),
    ],
)
def test_rejects_bad_sets(sets, text, counts, quick):
    with pytest.raises(ValueError, match=text):
        UUClassifier(**quick).fit(counts[0], sets)


@pytest.mark.parametrize(
    ("X0", "X1", "text"),
    [
        (np.zeros((0, 3)), np.zeros((5, 3)), r"0 sample\(s\)"),
        (np.zeros((5, 3)), np.zeros((1, 3)), "set 1 has only 1 sample"),
        (np.zeros((5, 3)), np.zeros((5, 4)), r"X0 has rows of shape \(3,\), but X1 has shape \(4,\)"),
        (np.zeros(5), np.zeros((5, 3)), "Expected 2D array"),
        (torch.zeros(5), torch.zeros(5), "Expected 2D array"),
        (torch.zeros(5, 2, 2), torch.zeros(5, 2, 2), "pass a custom model"),
        (torch.zeros(0, 3), torch.zeros(5, 3), r"0 sample\(s\)"),
        (torch.zeros(5, 0), torch.zeros(5, 0), r"0 feature\(s\)"),
        (torch.zeros(5, 3).to_sparse(), torch.zeros(5, 3), r"sparse tensor.*to_dense"),
        (torch.zeros(5, 3, dtype=torch.complex64), torch.zeros(5, 3), "Complex data not supported"),
        (np.array([["1", "a"], ["2", "b"]]), np.zeros((5, 2)), "X0 contains text in column 0: '1'.*OneHotEncoder"),
        (
            pd.DataFrame({"age": [1.0, 2.0], "town": ["Ulm", "Bonn"]}),
            np.zeros((5, 2)),
            "set 0 is a DataFrame and set 1 is a ndarray; pass two tables with the same columns, or two arrays",
        ),
        ([[1, "x"], [2, "y"]], np.zeros((5, 2)), "X0 contains text in column 1: 'x'"),
        (np.zeros((5, 3)), np.zeros(5), r"got 1D array instead: X1 has shape \(5,\). Reshape"),
    ],
)
def test_rejects_bad_pairs(X0, X1, text, quick):
    with pytest.raises(ValueError, match=text):
        UUClassifier(**quick).fit_sets(X0, X1)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, pd.DataFrame, sparse.csr_matrix])
def test_rejects_wrong_number_of_features(method, kind, counts, quick):
    classifier = UUClassifier(**quick | {"epochs": 1}).fit(*counts)
    with pytest.raises(ValueError, match="X has 2 features, but UUClassifier is expecting 3 features as input"):
        getattr(classifier, method)(kind(counts[0][:, :2]))
    with pytest.raises(ValueError, match="X has 2 features, but UUClassifier is expecting 3"):
        classifier.score(counts[0][:, :2], counts[1])


def test_score_rejects_rows_of_one_set(counts, quick):
    classifier = UUClassifier(**quick | {"epochs": 1}).fit(*counts)
    with pytest.raises(ValueError, match=r"no rows from set 1.*accuracy_score"):
        classifier.score(counts[0][:10], np.zeros(10, int))


@pytest.mark.parametrize(
    ("value", "hint"), [(np.nan, ", or fit on data frames, which may have missing"), (np.inf, "[.]")]
)
def test_missing_values_in_arrays_suggest_data_frames(value, hint, counts, quick):
    X, sets = counts[0].astype(float), counts[1]
    X[1, 1] = value
    with pytest.raises(ValueError, match=f"remove or impute these values first{hint}"):
        UUClassifier(**quick).fit(X, sets)


@pytest.mark.parametrize(
    ("held_out", "text"),
    [
        ({"test_data": (np.zeros((4, 3)), [0, 1, 2, 1])}, r"labels must be 1 and 0.*got the values \[0, 1, 2\]"),
        ({"test_data": (np.zeros((4, 3)), [0, 1])}, "4 rows and 2 labels"),
        ({"test_data": np.zeros((4, 3))}, "must be a pair"),
        ({"test_data": (np.zeros((4, 2)), [0, 1, 1, 1])}, "test_data has 2 features"),
        ({"validation_data": (np.zeros((4, 3)), [0, 1, 2, 1])}, "sets must be 0 or 1"),
        ({"test_data": (np.zeros((4, 3)), [0, 1, -1, 1])}, r"labels must be 1 and 0, or 1 and -1.*\[-1, 0, 1\]"),
        ({"validation_data": (np.ones((4, 3)), [1, 1, 1, 1])}, "no rows from set 0"),
        ({"validation_data": (np.full((4, 3), np.nan), [0, 1, 0, 1])}, "Input validation_data contains NaN"),
    ],
)
def test_rejects_bad_held_out_data(held_out, text, counts, quick):
    with pytest.raises(ValueError, match=text):
        UUClassifier(**quick).fit(*counts, **held_out)


def test_unfitted_estimator_raises(counts, quick):
    from sklearn.exceptions import NotFittedError

    for call in ("predict", "predict_proba", "decision_function", "summary", "save"):
        with pytest.raises(NotFittedError):
            getattr(UUClassifier(**quick), call)(*([] if call == "summary" else [counts[0]]))


def test_failed_refit_does_not_change_fitted_estimator(counts, quick):
    X, sets = counts
    classifier = UUClassifier(**quick | {"epochs": 1}).fit(pd.DataFrame(X, columns=["a", "b", "c"]), sets)
    before = classifier.predict(pd.DataFrame(X, columns=["a", "b", "c"]))
    with pytest.raises(ValueError, match="sets must be 0 or 1"):
        classifier.fit(np.zeros((300, 5)), sets + 1)
    np.testing.assert_array_equal(classifier.predict(pd.DataFrame(X, columns=["a", "b", "c"])), before)
    classifier.fit_sets(torch.tensor(X[:150]), torch.tensor(X[150:]))
    assert not hasattr(classifier, "feature_names_in_")
    assert classifier.predict(X).shape == (300,)


class Streamed(RowStream):
    """A stream of rows in pieces of one hundred."""

    def __init__(self, X):
        self.X, self.row_shape = torch.as_tensor(X, dtype=torch.float32), X.shape[1:]

    @property
    def piece_sizes(self):
        return [len(piece) for piece in self.X.split(100)]

    def read(self, piece):
        return self.X.split(100)[piece]

    def describe(self):
        return "streamed"


def test_rejects_streams_if_not_supported(counts, quick):
    X, sets = counts
    first, second = Streamed(X[:150]), Streamed(X[150:])
    one = UUClassifier(**quick | {"epochs": 1, "n_estimators": 1})
    fitted = UUClassifier(**quick | {"epochs": 1}).fit(X, sets)
    search = UUClassifierCV(one, {"lr": [0.1]})
    calls = {
        "X": [
            lambda: one.fit(first, sets),
            lambda: search.fit(first, sets),
            lambda: fitted.predict(first),
            lambda: fitted.predict_proba(first),
            lambda: fitted.decision_function(first),
            lambda: fitted.score(first, sets),
            lambda: fitted.evaluate(first, labels=sets),
            lambda: fitted.calibrate(first, sets),
        ],
        "X0": [lambda: search.fit_sets(first, second)],
        "X1": [lambda: search.fit_sets(X[:150], second)],
        "validation_data": [
            lambda: one.fit(X, sets, validation_data=(first, sets)),
            lambda: one.fit_sets(first, second, validation_data=(first, sets)),
        ],
        "test_data": [lambda: one.fit(X, sets, test_data=(first, sets))],
    }
    said = r"is a stream of rows \(Streamed\), but only UUClassifier.fit_sets supports streams; pass rows in"
    for name, refused in calls.items():
        for call in refused:
            with pytest.raises(TypeError, match=f"^{name} {said} memory here"):
                call()
    assert fitted.predict(first.read(0)).shape == (100,)  # the suggested fix
