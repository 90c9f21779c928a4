"""An exported file, run by onnxruntime, against the classifier in Python."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from uulearn.estimator import UUClassifier
from uulearn.estimator.learners import NetworkModel
from uulearn.export.graph import REFUSED, plain_model

TOLERANCE = 1e-5
LARGE = 1e6
MANY, MANY_IMAGES = 1000, 100
Outputs = dict[str, NDArray[Any]]


class Agreement(NamedTuple):
    """The largest difference, relative to the size of the scores, and the number of rows it was sought on."""

    largest_difference: float
    rows: int


class PythonPath:
    """What the classifier says in Python, in float32, after the pipeline if there is one."""

    def __init__(self, classifier: UUClassifier, pipeline: Any) -> None:
        self.classifier = copy.copy(classifier)
        assert isinstance(classifier.trained_, NetworkModel)  # checked by export_onnx
        self.classifier.trained_ = dataclasses.replace(
            classifier.trained_, module=plain_model(classifier.model_), precision="float32"
        )
        self.pipeline = pipeline
        self.names = getattr(classifier if pipeline is None else pipeline, "feature_names_in_", None)

    def __call__(self, X: NDArray[Any]) -> Outputs:
        """Score, probability and class of rows; ValueError where the pipeline or the classifier refuses them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names that a table without a header does not have
            rows = self._named(X)
            if self.pipeline is not None:
                rows = self.pipeline.transform(rows)
            outputs: Outputs = {"score": self.classifier.decision_function(rows)}
            if self.classifier.set_priors is not None:
                outputs["probability"] = self.classifier.predict_proba(rows)[:, 1]
                outputs["class"] = self.classifier.predict(rows)
        return outputs

    def one_by_one(self, X: NDArray[Any]) -> Outputs:
        """The same, with what the graph gives instead for rows that are refused."""
        known = ["score"] if self.classifier.set_priors is None else ["score", "probability", "class"]
        told: dict[str, list[Any]] = {name: [] for name in known}
        for row in X:
            try:
                outputs = self(row[None])
            except ValueError:
                outputs = {name: np.array([REFUSED if name == "class" else np.nan]) for name in known}
            for name in known:
                told[name].append(outputs[name][0])
        return {name: np.array(values) for name, values in told.items()}

    def _named(self, X: NDArray[Any]) -> Any:
        """With column names, a DataFrame as in `fit`: a `ColumnTransformer` may choose its columns by them."""
        if self.names is None:
            return X
        try:
            import pandas as pd
        except ImportError:
            return X
        return pd.DataFrame(X, columns=list(self.names))


def made_up_rows(shape: tuple[int, ...], input_type: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """Kinds of rows, of any of which a classifier might be asked."""
    rng = np.random.default_rng(0)
    many = MANY if len(shape) == 1 else MANY_IMAGES
    if input_type == "uint8":
        yield "random", rng.integers(0, 256, (many, *shape), dtype=np.uint8)
        yield "single", rng.integers(0, 256, (1, *shape), dtype=np.uint8)
        yield "lowest and highest", np.stack([np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)])
        return

    def of_input_type(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers that the input holds: how far others are rounded on their way into the graph is not its doing."""
        return values.astype(input_type).astype(np.float64)

    yield "random", of_input_type(rng.normal(size=(many, *shape)))
    yield "uniform", of_input_type(rng.random((20, *shape)))
    yield "single", of_input_type(rng.normal(size=(1, *shape)))
    yield "zero", np.zeros((2, *shape))
    yield "large", of_input_type(LARGE * rng.normal(size=(20, *shape)))


def unusual_rows(shape: tuple[int, ...], input_type: str) -> NDArray[np.float64]:
    """Uniform rows with a missing or an infinite value each, two without, and one that has nothing else."""
    rng = np.random.default_rng(1)
    rows = rng.random((15, *shape)).astype(input_type).astype(np.float64)
    for row, value in zip(rows, [np.nan] * 8 + [np.inf, -np.inf] * 2, strict=False):
        row.flat[rng.integers(row.size)] = value
    rows[-1] = np.nan
    return rows


def check(path: Path, python: PythonPath, shape: tuple[int, ...], input_type: str, rows: Any) -> Agreement:
    """Compare the file with the classifier; ArithmeticError with the largest difference if it is too large.

    Kinds of made-up rows that the classifier cannot score at all (a model of your own may take whole numbers only) are
    left out; ``rows`` of your own must be taken.
    """
    graph = _Session(path, input_type)
    asked: list[tuple[str, NDArray[Any], Outputs]] = []
    for kind, X in made_up_rows(shape, input_type):
        with contextlib.suppress(ValueError, IndexError, RuntimeError):
            asked.append((kind, X, python(X)))
    if any(kind == "uniform" for kind, _, _ in asked):
        X = unusual_rows(shape, input_type)
        asked.append(("unusual", X, python.one_by_one(X)))
    if rows is not None:
        X = _own_rows(rows, python.names, shape)
        asked.append(("given", X, python(X)))
    if not asked:
        raise ValueError(
            "the classifier could score none of the made-up rows that an export is checked on; pass some of yours: "
            "export_onnx(..., rows=X[:100])."
        )
    worst = max(_compare(expected, graph(X), kind) for kind, X, expected in asked)
    return Agreement(worst, sum(len(X) for _, X, _ in asked))


class _Session:
    """The file in onnxruntime, on the CPU."""

    def __init__(self, path: Path, input_type: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self.dtype = np.dtype(input_type)
        with _can_run():
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def __call__(self, X: NDArray[Any]) -> Outputs:
        names = [output.name for output in self.session.get_outputs()]
        with _can_run():
            return dict(zip(names, self.session.run(names, {"X": X.astype(self.dtype)}), strict=True))


@contextlib.contextmanager
def _can_run() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # onnxruntime has a class of its own for each reason
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"onnxruntime cannot run the exported graph ({reason}); nothing was written.") from error


def _own_rows(rows: Any, names: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    if names is not None and hasattr(rows, "columns"):
        rows = rows[list(names)]
    X = np.asarray(rows)
    if X.dtype.kind not in "fiub":
        X = X.astype(np.float64)
    if X.shape[1:] != shape or not len(X):
        raise ValueError(f"rows must have the shape (n, {', '.join(map(str, shape))}), got {X.shape}.")
    return X


def _compare(expected: Outputs, found: Outputs, kind: str) -> float:
    """The largest difference on rows of one kind, in units of the largest score, or of 1 where all are smaller."""
    refused = np.isnan(expected["score"])
    scale = max(1.0, float(np.abs(expected["score"][~refused]).max(initial=0.0)))
    worst = 0.0
    for name in expected.keys() - {"class"}:
        if not np.array_equal(np.isnan(found[name]), np.isnan(expected[name])):
            raise ArithmeticError(
                f"the exported graph and the classifier do not agree which of the {kind} rows have a {name}; nothing "
                "was written."
            )
        with np.errstate(invalid="ignore"):
            apart = np.abs(found[name].astype(np.float64) - expected[name])
        equal = found[name] == expected[name]  # infinities too
        worst = max(worst, float(np.where(equal | refused, 0.0, apart).max()) / scale)
    if not worst <= TOLERANCE:
        hint = (
            "; if its columns need more digits than float32 has, pass input_type='float64'" if kind == "given" else ""
        )
        raise ArithmeticError(
            f"the exported graph differs from the classifier by {worst:.2g} on {kind} rows, of their largest score, "
            f"where {TOLERANCE:g} is allowed; nothing was written{hint}."
        )
    if "class" in expected:
        clear = ~(np.abs(expected["score"]) <= TOLERANCE * scale)
        if not np.array_equal(found["class"][clear], expected["class"][clear]):
            raise ArithmeticError(
                f"the exported graph and the classifier predict different classes of {kind} rows; nothing was written."
            )
    return worst
