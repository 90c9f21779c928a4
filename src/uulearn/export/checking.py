"""Compare the outputs of an exported file in onnxruntime with the outputs of the classifier in Python."""

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from uulearn.estimator import UUClassifier
from uulearn.export.graph import REFUSED, network_of, plain_model
from uulearn.export.tabular import TEXT_INPUT, CategoryColumn
from uulearn.tabular import TableEncoder

TOLERANCE = 1e-5
"""Maximum allowed difference between the scores, relative to the largest score or to 1."""
RANDOM_ROWS, RANDOM_IMAGES = 1000, 100
"""Number of random rows; fewer for images, which take longer."""
Outputs = dict[str, NDArray[Any]]


class Agreement(NamedTuple):
    """Largest relative difference, and number of rows that were compared."""

    largest_difference: float
    rows: int


class PythonScores:
    """Reference outputs of the pipeline (if there is one) and the classifier, computed in Python with float32."""

    def __init__(self, classifier: UUClassifier, pipeline: Any, categories: tuple[CategoryColumn, ...] = ()) -> None:
        self.classifier = copy.copy(classifier)
        self.classifier.trained_ = dataclasses.replace(
            network_of(classifier), module=plain_model(classifier.model_), precision="float32"
        )
        self.pipeline, self.categories = pipeline, categories
        self.names = getattr(classifier if pipeline is None else pipeline, "feature_names_in_", None)

    def __call__(self, X: NDArray[Any]) -> Outputs:
        """Return the scores, probabilities and classes of rows; raise a ValueError if a row is rejected."""
        rows: Any = X
        if self.names is not None:  # a `ColumnTransformer` may select its columns by name
            rows = pd.DataFrame(X, columns=list(self.names))
            rows = rows.assign(**{c.name: c.decode(X[:, c.position])[1] for c in self.categories})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # suppress warnings about column names
            if self.pipeline is not None:
                typed = isinstance(self.pipeline, TableEncoder)
                rows = self.pipeline.encode_rows(rows) if typed else self.pipeline.transform(rows)
            scores = self.classifier.decision_function(rows)
        if self.classifier.set_priors is None:
            return {"score": scores}
        probabilities = self.classifier.probabilities_from_scores(scores)
        return {"score": scores, "probability": probabilities, "class": (scores > 0).astype(np.int64)}

    def one_by_one(self, X: NDArray[Any]) -> Outputs:
        """Score the rows one by one; a rejected row gets the outputs that the graph returns for rejected rows."""
        outputs = []
        for row in X:
            try:
                outputs.append(self(row[None]))
            except ValueError:
                nan = np.array([np.nan])
                outputs.append({"score": nan, "probability": nan, "class": np.array([REFUSED])})
        names = ["score"] if self.classifier.set_priors is None else ["score", "probability", "class"]
        return {name: np.concatenate([found[name] for found in outputs]) for name in names}


def made_up_rows(shape: tuple[int, ...], input_type: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield pairs (name, rows) for several kinds of test rows."""
    rng = np.random.default_rng(0)
    many = RANDOM_ROWS if len(shape) == 1 else RANDOM_IMAGES
    if input_type == "uint8":
        yield "random", rng.integers(0, 256, (many, *shape), dtype=np.uint8)
        yield "single", rng.integers(0, 256, (1, *shape), dtype=np.uint8)
        yield "lowest and highest", np.stack([np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)])
        return
    kinds = {
        "random": rng.normal(size=(many, *shape)),
        "uniform": rng.random((20, *shape)),
        "single": rng.normal(size=(1, *shape)),
        "zero": np.zeros((2, *shape)),
        "large": 1e6 * rng.normal(size=(20, *shape)),
    }
    for kind, rows in kinds.items():  # rounded to the input type, since rounding is not an error of the graph
        yield kind, rows.astype(input_type).astype(np.float64)


def unusual_rows(shape: tuple[int, ...], input_type: str) -> NDArray[np.float64]:
    """Return uniform random rows: most have a missing or infinite value, two are complete, and one has no values."""
    rng = np.random.default_rng(1)
    rows = rng.random((15, *shape)).astype(input_type).astype(np.float64)
    for row, value in zip(rows, [np.nan] * 8 + [np.inf, -np.inf] * 2, strict=False):
        row.flat[rng.integers(row.size)] = value
    rows[-1] = np.nan
    return rows


def _with_codes(X: NDArray[Any], categories: tuple[CategoryColumn, ...]) -> NDArray[Any]:
    """Return the rows with random codes in the category columns; missing values do not change."""
    rng = np.random.default_rng(2)
    for column in categories:
        own = X[:, column.position]
        X[:, column.position] = np.where(np.isnan(own), np.nan, rng.integers(-1, column.n_codes, len(X)))
    return X


def check(path: Path, python: PythonScores, shape: tuple[int, ...], input_type: str, rows: Any) -> Agreement:
    """Compare the outputs of the file and the classifier; raise an ArithmeticError if they differ too much.

    Generated rows that the classifier cannot score are skipped; for example, a custom model may accept only integers.
    An error is raised if the classifier cannot score the ``rows`` that you pass.
    """
    graph = _Session(path, input_type, python.categories)
    cases: list[tuple[str, NDArray[Any], Outputs]] = []
    for kind, made_up in made_up_rows(shape, input_type):
        X = _with_codes(made_up, python.categories)
        with contextlib.suppress(ValueError, IndexError, RuntimeError):
            cases.append((kind, X, python(X)))
    if any(kind == "uniform" for kind, _, _ in cases):
        X = _with_codes(unusual_rows(shape, input_type), python.categories)
        cases.append(("unusual", X, python.one_by_one(X)))
    if rows is not None:
        X = _own_rows(rows, python, shape)
        cases.append(("given", X, python(X)))
    if not cases:
        raise ValueError(
            "the classifier rejected all rows generated to check the export; pass your own rows: "
            "export_onnx(..., rows=X[:100])."
        )
    worst = max(_compare(expected, graph(X), kind) for kind, X, expected in cases)
    return Agreement(worst, sum(len(X) for _, X, _ in cases))


class _Session:
    """Session that runs the exported file with onnxruntime on the CPU."""

    def __init__(self, path: Path, input_type: str, categories: tuple[CategoryColumn, ...]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self.dtype, self.categories = np.dtype(input_type), categories
        with _report_runtime_errors():
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, X: NDArray[Any]) -> Outputs:
        names = [output.name for output in self.session.get_outputs()]
        inputs = {"X": np.delete(X, [column.position for column in self.categories], axis=1) if self.categories else X}
        inputs = {name: values.astype(self.dtype) for name, values in inputs.items() if values.size}
        if self.categories:
            inputs[TEXT_INPUT] = np.stack([c.decode(X[:, c.position])[0] for c in self.categories], axis=1)
        with _report_runtime_errors():
            return dict(zip(names, self.session.run(names, inputs), strict=True))


@contextlib.contextmanager
def _report_runtime_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # onnxruntime has no common base class for its errors
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"onnxruntime cannot run the exported graph ({reason}); nothing was written.") from error


def _own_rows(rows: Any, python: PythonScores, shape: tuple[int, ...]) -> NDArray[Any]:
    if python.names is not None and hasattr(rows, "columns"):
        rows = rows[list(python.names)]
        for column in python.categories:
            cells = zip(rows[column.name], rows[column.name].isna(), strict=True)
            codes = [column.codes.get("" if absent else value, column.unseen_code) for value, absent in cells]
            rows = rows.assign(**{column.name: codes})
    X = np.asarray(rows)
    X = X if X.dtype.kind in "fiub" else X.astype(np.float64)
    if X.shape[1:] != shape or not len(X):
        raise ValueError(f"rows must have the shape (n, {', '.join(map(str, shape))}), got {X.shape}.")
    return X


def _compare(expected: Outputs, found: Outputs, kind: str) -> float:
    """Return the largest difference for one kind of rows, relative to the largest score or to 1."""
    refused = np.isnan(expected["score"])
    scale = max(1.0, float(np.abs(expected["score"][~refused]).max(initial=0.0)))
    worst = 0.0
    for name in expected.keys() - {"class"}:
        if not np.array_equal(np.isnan(found[name]), np.isnan(expected[name])):
            raise ArithmeticError(
                f"the exported graph and the classifier disagree on which {kind} rows have a {name}; nothing was "
                "written."
            )
        with np.errstate(invalid="ignore"):
            difference = np.abs(found[name].astype(np.float64) - expected[name])
        equal = found[name] == expected[name]  # true for equal infinities
        worst = max(worst, float(np.where(equal | refused, 0.0, difference).max()) / scale)
    if not worst <= TOLERANCE:
        hint = "; if columns need more digits than float32 provides, pass input_type='float64'"
        raise ArithmeticError(
            f"the exported graph differs from the classifier by {worst:.2g} on {kind} rows, relative to their largest "
            f"score (allowed: {TOLERANCE:g}); nothing was written{hint if kind == 'given' else ''}."
        )
    clear = ~(np.abs(expected["score"]) <= TOLERANCE * scale)
    if "class" in expected and not np.array_equal(found["class"][clear], expected["class"][clear]):
        raise ArithmeticError(
            f"the exported graph and the classifier predict different classes for {kind} rows; nothing was written."
        )
    return worst
