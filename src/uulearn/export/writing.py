"""Write a fitted classifier to an ONNX file, after checking that the file returns the same scores."""

import contextlib
import importlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from uulearn import defaults
from uulearn._version import __version__
from uulearn.estimator import UUClassifier
from uulearn.export.checking import Agreement, PythonScores, check
from uulearn.export.graph import ClassifierGraph, network_of
from uulearn.export.steps import Step
from uulearn.export.tabular import TEXT_INPUT, add_text_input, category_columns
from uulearn.export.transformers import convert_transformer
from uulearn.storage import write_atomically
from uulearn.tabular import TableEncoder

OPSET = 18
INPUT_TYPES = {"float32": torch.float32, "float64": torch.float64, "uint8": torch.uint8}
OUTPUT_TYPES = {"score": "float32", "probability": "float32", "class": "int64"}
LARGEST_FILE = 2**31 - 2**20
"""Maximum size of the weights in bytes; an ONNX file is limited to 2 GiB, including the graph."""
INSTALL = "run pip install 'uulearn[onnx]'"


class Port(NamedTuple):
    """An input or output of the graph; ``"n"`` in the shape is the number of rows.

    >>> print(Port("X", "float32", ("n", 30)))
    X float32 (n, 30)
    """

    name: str
    type: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.type} ({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"


@dataclass(frozen=True)
class Exported:
    """Result of an export: the file, its inputs and outputs, and its largest difference from the classifier."""

    path: Path
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    largest_difference: float | None
    """Largest difference between onnxruntime and Python, relative to the largest score or to 1; None if not checked."""
    checked_rows: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        text = f"{self.path}: from {inputs} to {outputs}; opset {self.opset}"
        if self.largest_difference is not None:
            difference = f"differ by at most {self.largest_difference:.1e}"
            text += f"; on {self.checked_rows:,} rows onnxruntime and Python {difference}"
        return "\n".join([text, *self.notes])


def export_onnx(
    classifier: Any, path: str | Path, *, pipeline: Any = None, input_type: str = defaults.AUTO, rows: Any = None
) -> Exported:
    """Write a fitted classifier, together with its preprocessing pipeline, to an ONNX file.

    The graph maps ``X``, of shape (n, …) for any n, to ``score`` (`decision_function`), ``probability`` (of the
    positive class, the second column of `predict_proba`) and ``class`` (`predict`), each of shape (n,). A classifier
    trained without priors has only the output ``score``. Rows that Python would reject, because of a missing or
    infinite value, get the score NaN, the probability NaN and the class −1. The encoder of a classifier for tables is
    part of the graph. Its category columns are passed as text in a second input, ``categories``; empty text is a
    missing value.

    Before the file is written, onnxruntime runs the graph on random rows and edge cases. If the scores differ from
    those of the classifier by more than 1e-5, relative to the largest score or to 1, nothing is written.

    Parameters
    ----------
    classifier : fitted UUClassifier, or Pipeline that ends in one
    path : str or Path
    pipeline : fitted transformer or Pipeline, optional
        Preprocessing before the classifier. Use `register_transformer` for your own transformers.
    input_type : str
        Type of ``X``: ``"float32"``, ``"float64"`` for columns that need more digits (times in seconds, identifiers),
        or ``"uint8"`` for images. "auto" is ``"float64"`` for tables that are encoded, and ``"float32"`` otherwise.
    rows : array of shape (n, …), optional
        Your own rows for the check. Pass rows if some columns have values far from zero, which generated rows do not
        cover.

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
    if input_type == defaults.AUTO:
        input_type = "float64" if isinstance(pipeline, TableEncoder) else "float32"
    if input_type not in INPUT_TYPES:
        raise ValueError(f"input_type must be one of {', '.join(map(repr, INPUT_TYPES))}, got {input_type!r}.")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a directory; pass the path of a file, for example {str(path / 'model.onnx')!r}.")
    if missing := [name for name in ("onnx", "onnxscript") if not _installed(name)]:
        raise ImportError(f"export_onnx needs {' and '.join(missing)}, which is not installed; {INSTALL}.")
    step = None if pipeline is None else convert_transformer(pipeline, "")
    shape = classifier.row_shape_ if pipeline is None else (int(pipeline.n_features_in_),)
    if step is not None:
        _check_columns(step, shape[0], classifier)
    categories = category_columns(pipeline)
    graph = ClassifierGraph(classifier, step).eval()
    proto = _translate(graph, shape, input_type, classifier)
    texts = [column.name for column in categories]
    names = getattr(classifier if pipeline is None else pipeline, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names if name not in texts]
    describe(
        proto, graph.output_names, classifier, {"feature_names": names} | ({"category_names": texts} if texts else {})
    )
    inputs = [Port("X", input_type, ("n", *shape))]
    if categories:
        add_text_input(proto, categories, shape[0])
        inputs = [Port("X", input_type, ("n", shape[0] - len(texts))), Port(TEXT_INPUT, "string", ("n", len(texts)))]
        inputs = inputs[shape[0] == len(texts) :]
    importlib.import_module("onnx").checker.check_model(proto)
    found: Agreement | None = None

    def write(temporary: Path) -> None:
        nonlocal found
        temporary.write_bytes(proto.SerializeToString(deterministic=True))
        if _installed("onnxruntime"):
            found = check(temporary, PythonScores(classifier, pipeline, categories), shape, input_type, rows)

    write_atomically(path, write)
    return Exported(
        path=path,
        opset=OPSET,
        inputs=tuple(inputs),
        outputs=tuple(Port(name, OUTPUT_TYPES[name], ("n",)) for name in graph.output_names),
        largest_difference=None if found is None else found.largest_difference,
        checked_rows=0 if found is None else found.rows,
        notes=tuple(_notes(classifier, checked=found is not None)),
    )


def _split_pipeline(classifier: Any, pipeline: Any) -> tuple[UUClassifier, Any]:
    """Return the classifier and its preprocessing as a pair."""
    if isinstance(classifier, Pipeline):
        if pipeline is not None:
            raise ValueError(
                "the first argument is already a Pipeline; remove pipeline=..., or put all steps into one Pipeline."
            )
        steps = classifier
        classifier = steps.steps[-1][1]
        pipeline = None if len(steps.steps) == 1 else steps[0] if len(steps.steps) == 2 else steps[:-1]
    if not isinstance(classifier, UUClassifier):
        raise TypeError(
            f"export_onnx expects a fitted UUClassifier, or a Pipeline that ends in one, got "
            f"{type(classifier).__name__}; for a search, pass best_estimator_."
        )
    check_is_fitted(classifier, "trained_")
    network_of(classifier)
    if classifier.encoder_ is not None:
        if pipeline is not None:
            raise ValueError(
                "the classifier encodes the output of the pipeline, which cannot be exported; fit the pipeline with "
                "UUClassifier(encoder=None)."
            )
        classifier, pipeline = classifier.with_encoder(None), classifier.encoder_
    if pipeline is not None:
        check_is_fitted(pipeline)
        if not hasattr(pipeline, "n_features_in_"):
            raise ValueError(f"{type(pipeline).__name__} has no n_features_in_ (the number of input columns).")
    return classifier, pipeline


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # blocked in sys.modules
        return False


def _check_columns(step: Step, columns: int, classifier: UUClassifier) -> None:
    with torch.no_grad():
        given = tuple(step(torch.zeros(1, columns, dtype=torch.float64)).shape[1:])
    if given != classifier.row_shape_:
        raise ValueError(
            f"the pipeline returns rows of shape {given}, but the classifier was fitted on rows of shape "
            f"{classifier.row_shape_}; pass the pipeline used in training."
        )


def _translate(graph: ClassifierGraph, shape: tuple[int, ...], input_type: str, classifier: UUClassifier) -> Any:
    """Convert the graph to an `onnx.ModelProto`."""
    size = sum(value.numel() * value.element_size() for value in graph.state_dict().values())
    if size > LARGEST_FILE:
        raise ValueError(f"the model has {size / 2**30:.1f} GiB of weights, but an ONNX file can have at most 2 GiB.")
    example = torch.zeros((3, *shape), dtype=INPUT_TYPES[input_type])
    try:
        with _quiet(), torch.no_grad():
            # The graph is captured explicitly, because the exporter may fall back to a fixed number of rows.
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
    except Exception as error:  # a custom model can raise any exception
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(
            f"the model {type(classifier.model_).__name__} cannot be exported to ONNX "
            f"({lines[0] if lines else type(error).__name__}); in its forward method, avoid branches that depend on "
            "values and use x.shape[0] instead of len(x), or keep the model in Python with UUClassifier.save."
        ) from error
    return program.model_proto


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings, log messages and printed output of the exporter; errors are reported by the caller."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        sink = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _notes(classifier: UUClassifier, *, checked: bool) -> Iterator[str]:
    if not checked:
        yield f"not checked, because onnxruntime is not installed; {INSTALL}"
    if classifier.set_priors is None:
        yield "trained without priors: the score ranks rows, but does not show which rows are positive"
    if classifier.precision_ == "bfloat16":
        yield (
            "trained in bfloat16; the graph computes in float32 and can differ from Python in the third digit; train "
            "with precision='float32' if that matters"
        )


def describe(proto: Any, outputs: list[str], classifier: UUClassifier, columns: dict[str, list[str] | None]) -> None:
    """Replace the exporter's metadata, which contains source lines and local paths, with uulearn metadata."""
    for graph in (proto.graph, *proto.functions):
        _strip(graph)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    for value in proto.graph.output:
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.add().dim_param = "n"
    proto.graph.name = "uulearn"
    proto.producer_name, proto.producer_version = "uulearn", __version__
    proto.doc_string = f"A binary classifier trained from two unlabeled sets. Outputs: {', '.join(outputs)}."
    priors = classifier.set_priors
    values = {
        "set_priors": None if priors is None else [float(prior) for prior in priors],
        "target_prior": None if priors is None else float(classifier.target_prior),
        "calibrated": classifier.scaling_ is not None,
        **columns,
    }  # ONNX stores strings only, so numbers and lists are JSON
    labels = "passed for evaluation; training did not use them" if classifier.history_.labels_used else None
    stored = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    properties = {"uulearn_version": __version__, "labels": labels or "no label was used"} | stored
    importlib.import_module("onnx").helper.set_model_props(proto, properties)


def _strip(graph: Any) -> None:
    del graph.metadata_props[:]
    for kind in ("input", "output", "value_info", "initializer"):
        for value in getattr(graph, kind, ()):
            if not isinstance(value, str):  # inputs and outputs of a function are strings
                del value.metadata_props[:]
    for node in graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _strip(inner)
