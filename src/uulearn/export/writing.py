"""From a fitted classifier to an ONNX file that gives the same scores, or to a sentence why not."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import nn

from uulearn.estimator import UUClassifier
from uulearn.estimator.learners import NetworkModel
from uulearn.export.checking import Agreement, PythonPath, check
from uulearn.export.description import describe, metadata
from uulearn.export.graph import ClassifierGraph
from uulearn.export.transformers import fold_transformer
from uulearn.storage import write_atomically

OPSET = 18
INPUT_TYPES = {"float32": torch.float32, "float64": torch.float64, "uint8": torch.uint8}
OUTPUT_TYPES = {"score": "float32", "probability": "float32", "class": "int64"}
LARGEST_FILE = 2**31 - 2**20
"""Bytes of weights that one file of ONNX's format can hold, with room for the rest of the graph."""
INSTALL = "run pip install 'uulearn[onnx]'"


class Port(NamedTuple):
    """An input or output of the graph; ``"n"`` in the shape is the number of rows."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Exported:
    """What was written, and how well it agrees with the classifier."""

    path: Path
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    largest_difference: float | None
    """Between onnxruntime and Python, relative to the largest score or to 1; None where it was not checked."""
    checked_rows: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        ports = [
            f"{port.name} {port.type} ({', '.join(map(str, port.shape))}{',' if len(port.shape) == 1 else ''})"
            for port in (*self.inputs, *self.outputs)
        ]
        text = f"{self.path}: from {ports[0]} to {', '.join(ports[1:])}; opset {self.opset}"
        if self.largest_difference is not None:
            apart = f"differ by {self.largest_difference:.1e} at most"
            text += f"; on {self.checked_rows:,} rows onnxruntime and Python {apart}"
        return "\n".join([text, *self.notes])


def export_onnx(
    classifier: Any,
    path: str | Path,
    *,
    pipeline: Any = None,
    input_type: str = "float32",
    rows: Any = None,
) -> Exported:
    """Write a fitted classifier, with the numeric pipeline in front of it, to an ONNX file.

    The graph maps ``X``, of shape (n, …) for any n, to ``score`` (`decision_function`), ``probability`` (of the
    positive class, the second column of `predict_proba`) and ``class`` (`predict`), each of shape (n,). A classifier
    trained without priors gives ``score`` alone. Rows that Python would refuse, with a missing or an infinite value
    where none may be, get the score NaN, the probability NaN and the class −1.

    The graph computes in float32, its pipeline in float64. Before the file takes its place it is run by onnxruntime on
    random rows and edge rows and must agree with the classifier to 1e-5, relative to the largest score or to 1;
    otherwise nothing is written.

    Parameters
    ----------
    classifier : UUClassifier, or Pipeline that ends in one
        Fitted.
    path : str or Path
        Of the file, which is replaced in one step if it exists.
    pipeline : fitted transformer or Pipeline, optional
        What rows go through before the classifier. See `register_transformer` for kinds that are not known.
    input_type : str
        Of ``X``: ``"float32"``, ``"float64"`` where columns need more digits (times in seconds, identifiers), or
        ``"uint8"`` for images kept as bytes.
    rows : array of shape (n, …), optional
        Rows of yours to check the file on as well: made-up ones say little about columns far from zero.

    Returns
    -------
    `Exported`
        What was written. Without onnxruntime it says that the file was not checked.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from uulearn import UUClassifier
    >>> X, sets = np.random.default_rng(0).normal(size=(40, 2)), np.repeat([0, 1], 20)
    >>> X[:20] += 2
    >>> clf = UUClassifier((0.8, 0.2), model="linear", epochs=2, random_state=0).fit(X, sets)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = export_onnx(clf, f"{folder}/model.onnx")
    >>> [port.name for port in done.outputs], done.largest_difference < 1e-5
    (['score', 'probability', 'class'], True)
    """
    classifier, pipeline = _split_pipeline(classifier, pipeline)
    if input_type not in INPUT_TYPES:
        raise ValueError(f"input_type must be one of {', '.join(map(repr, INPUT_TYPES))}, got {input_type!r}.")
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path} is a directory, an export is one file; pass for example {str(path / 'model.onnx')!r}."
        )
    if missing := [name for name in ("onnx", "onnxscript") if not _installed(name)]:
        raise ImportError(f"export_onnx needs {' and '.join(missing)}, which is not installed; {INSTALL}.")
    folded = None if pipeline is None else fold_transformer(pipeline, "")
    shape = classifier.row_shape_ if pipeline is None else (int(pipeline.n_features_in_),)
    if folded is not None:
        _check_columns(folded, shape[0], classifier)
    graph = ClassifierGraph(classifier, folded).eval()
    proto = _translate(graph, shape, input_type, classifier)
    describe(proto, graph.output_names, metadata(classifier, pipeline))
    agreement: list[Agreement] = []

    def write(temporary: Path) -> None:
        temporary.write_bytes(proto.SerializeToString(deterministic=True))
        if _installed("onnxruntime"):
            agreement.append(check(temporary, PythonPath(classifier, pipeline), shape, input_type, rows))

    write_atomically(path, write)
    found = agreement[0] if agreement else None
    return Exported(
        path=path,
        opset=OPSET,
        inputs=(Port("X", input_type, ("n", *shape)),),
        outputs=tuple(Port(name, OUTPUT_TYPES[name], ("n",)) for name in graph.output_names),
        largest_difference=None if found is None else found.largest_difference,
        checked_rows=0 if found is None else found.rows,
        notes=tuple(_notes(classifier, checked=found is not None)),
    )


# ------------------------------------------------------------------------------------------------------------ checks


def _split_pipeline(classifier: Any, pipeline: Any) -> tuple[UUClassifier, Any]:
    """The classifier and what comes before it."""
    if isinstance(classifier, Pipeline):
        if pipeline is not None:
            raise ValueError(
                "the first argument is a Pipeline already, so there is no place for pipeline=...; put all steps into "
                "one of them."
            )
        steps = classifier
        classifier = steps.steps[-1][1]
        pipeline = steps[:-1] if len(steps.steps) > 1 else None
    if not isinstance(classifier, UUClassifier):
        raise TypeError(
            f"export_onnx takes a fitted UUClassifier, or a Pipeline that ends in one, got "
            f"{type(classifier).__name__}; of a search pass best_estimator_."
        )
    check_is_fitted(classifier, "trained_")
    if not isinstance(classifier.trained_, NetworkModel):
        raise TypeError(f"export_onnx takes a network, got a model of kind {classifier.learner_.kind!r}.")
    if pipeline is not None:
        check_is_fitted(pipeline)
        if not hasattr(pipeline, "n_features_in_"):
            raise ValueError(f"{type(pipeline).__name__} does not tell how many columns it takes (n_features_in_).")
    return classifier, pipeline


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # blocked, or taken out of sys.modules
        return False


def _check_columns(folded: nn.Module, columns: int, classifier: UUClassifier) -> None:
    with torch.no_grad():
        given = tuple(folded(torch.zeros(1, columns, dtype=torch.float64)).shape[1:])
    if given != classifier.row_shape_:
        raise ValueError(
            f"the pipeline gives rows of shape {given}, but the classifier was fitted on rows of shape "
            f"{classifier.row_shape_}; pass the pipeline it was fitted behind."
        )


# ------------------------------------------------------------------------------------------------------- translation


def _translate(graph: ClassifierGraph, shape: tuple[int, ...], input_type: str, classifier: UUClassifier) -> Any:
    """The graph as onnx.ModelProto."""
    size = sum(value.numel() * value.element_size() for value in graph.state_dict().values())
    if size > LARGEST_FILE:
        raise ValueError(f"the model has {size / 2**30:.1f} GiB of weights, but an ONNX file holds 2 GiB at most.")
    example = torch.zeros((3, *shape), dtype=INPUT_TYPES[input_type])
    try:
        with _quiet(), torch.no_grad():
            # Captured here, since the exporter's own attempts may end in a graph for one number of rows.
            captured = torch.export.export(
                graph, (example,), dynamic_shapes={"X": {0: torch.export.Dim("n")}}, strict=False
            )
            program: Any = torch.onnx.export(
                captured,
                input_names=["X"],
                output_names=graph.output_names,
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # whatever a module of the user's own does to the exporter
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(
            f"the model {type(classifier.model_).__name__} cannot be put into an ONNX graph "
            f"({lines[0] if lines else type(error).__name__}); write its forward without decisions that depend on "
            "values and with x.shape[0] for len(x), or keep it in Python with UUClassifier.save."
        ) from error
    return program.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter warns of, logs and prints about its inside; an error tells its own first line."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        unread = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _notes(classifier: UUClassifier, *, checked: bool) -> Iterator[str]:
    if not checked:
        yield f"not checked, since onnxruntime is not installed; {INSTALL}"
    if classifier.set_priors is None:
        yield "trained without priors: the score ranks rows, which of them are positive it cannot tell"
    if classifier.precision_ == "bfloat16":
        yield (
            "trained in bfloat16; the graph computes in float32, from which Python, where it scores in bfloat16, "
            "differs in the third digit: train with precision='float32' where that matters"
        )
