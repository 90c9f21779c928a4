"""Export trained classifiers to ONNX files, and check each file against the classifier.

Install the extra with ``pip install 'uulearn[onnx]'``. In this package, ``writing`` writes the file, ``graph`` defines
its computation, ``transformers``, ``steps`` and ``tabular`` convert the preprocessing, and ``checking`` compares
onnxruntime with Python.
"""

from uulearn.export.transformers import register_transformer
from uulearn.export.writing import Exported, Port, export_onnx

__all__ = ["Exported", "Port", "export_onnx", "register_transformer"]
