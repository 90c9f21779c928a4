"""Networks with a name (``"linear"``, ``"mlp"``, ``"allconvnet"``, ``"resnet32"``) and construction of custom ones.

`build_model` turns a name, an ``nn.Module``, its class or a factory into a module. `synchronized` computes the
statistics of batch normalization over the rows of all processes that train together.
"""

from uulearn.models.build import IMAGE_MODELS, MODELS, ModelLike, build_model, check_scores
from uulearn.models.convolutional import AllConvNet, ResNet32
from uulearn.models.dense import MLP, Linear
from uulearn.models.ensemble import Ensemble
from uulearn.models.normalization import synchronized

__all__ = [
    "IMAGE_MODELS",
    "MLP",
    "MODELS",
    "AllConvNet",
    "Ensemble",
    "Linear",
    "ModelLike",
    "ResNet32",
    "build_model",
    "check_scores",
    "synchronized",
]
