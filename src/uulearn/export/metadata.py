"""Names and descriptions in an exported file."""

from __future__ import annotations

import json
from typing import Any

from uulearn._version import __version__
from uulearn.estimator import UUClassifier


def describe(proto: Any, outputs: list[str], properties: dict[str, str]) -> None:
    """Replace the metadata of the exporter, which contains source lines and local paths, by our own."""
    import onnx

    _strip(proto.graph)
    for function in proto.functions:
        _strip(function)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    for value in proto.graph.output:
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.add().dim_param = "n"
    proto.graph.name = "uulearn"
    proto.producer_name, proto.producer_version = "uulearn", __version__
    proto.doc_string = f"A binary classifier trained from two unlabeled sets. Outputs: {', '.join(outputs)}."
    onnx.helper.set_model_props(proto, properties)


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


def properties(classifier: UUClassifier, names: Any) -> dict[str, str]:
    """Properties of the file; ONNX stores strings only, so numbers and lists are JSON."""
    priors = classifier.set_priors
    values = {
        "set_priors": None if priors is None else [float(prior) for prior in priors],
        "target_prior": None if priors is None else float(classifier.target_prior),
        "feature_names": None if names is None else [str(name) for name in names],
        "calibrated": classifier.scaling_ is not None,
    }
    labels = "passed for evaluation; training did not use them" if classifier.history_.labels_used else None
    return {"uulearn_version": __version__, "labels": labels or "no label was used"} | {
        name: json.dumps(value, ensure_ascii=False) for name, value in values.items()
    }
