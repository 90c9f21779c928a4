"""Export trained classifiers to ONNX files, and check each file against the classifier.

===============  =================================================================================================
`writing`        `export_onnx`: from a fitted classifier to a checked file
`graph`          The computation of the file, from rows to scores, probabilities and classes, as one module
`transformers`   scikit-learn transformers as functions on tensors; `register_transformer` adds others
`steps`          Those functions
`tabular`        The column encoders of `uulearn fit`, with text inputs for categories
`metadata`       Names and descriptions in the file
`checking`       Comparison of onnxruntime with the classifier on random rows, edge cases and your rows
===============  =================================================================================================

Install the extra with ``pip install 'uulearn[onnx]'``.
"""

from uulearn.export.transformers import register_transformer
from uulearn.export.writing import Exported, Port, export_onnx

__all__ = ["Exported", "Port", "export_onnx", "register_transformer"]
