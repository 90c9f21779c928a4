"""Trained classifiers for places without Python: ONNX files, checked against the classifier they came from.

===============  =====================================================================================
`writing`        `export_onnx`: from a fitted classifier to a checked file
`graph`          what the file computes: from rows to scores, probabilities and classes, as one module
`transformers`   scikit-learn's numeric transformers as modules; `register_transformer` adds others
`columns`        those modules, with `quantiles` for the largest of them
`description`    what the file says about itself
`checking`       onnxruntime against the classifier, on made-up rows, edge rows and your own
===============  =====================================================================================

It needs ``pip install 'uulearn[onnx]'``; nothing else in the library does.
"""

from uulearn.export.transformers import register_transformer
from uulearn.export.writing import Exported, Port, export_onnx

__all__ = ["Exported", "Port", "export_onnx", "register_transformer"]
