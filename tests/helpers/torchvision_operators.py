"""Make torchvision importable if its compiled operators cannot be loaded.

PyTorch's own index has a build of torchvision for the CPU. On Linux, PyPI only has the build for CUDA, whose library
cannot be loaded next to the CPU build of torch. torchvision then cannot be imported, because it describes two operators
for object detection that do not exist. Networks for classification and transforms do not use these operators, so it is
enough to declare them, which importing this module does. Nothing is declared if the library can be loaded. Import this
module before anything that imports torchvision, such as Lightning, torchmetrics and Transformers.
"""

import importlib.util
from pathlib import Path

import torch

OPERATORS = ("nms", "qnms")
_declared = []  # torch removes the operators of a library that is garbage-collected


def _declare_missing_operators():
    spec = importlib.util.find_spec("torchvision")
    if _declared or spec is None or spec.origin is None:
        return
    try:
        for library in Path(spec.origin).parent.glob("_C.*"):
            torch.ops.load_library(library)
    except OSError:
        _declared.append(torch.library.Library("torchvision", "DEF"))
        for name in OPERATORS:
            _declared[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_declare_missing_operators()
