"""Models that can be named: ``"linear"``, ``"mlp"``, ``"allconvnet"``, ``"resnet32"``, and how any other is built.

`build_model` turns what a user may pass (a name, an ``nn.Module``, its class, or a factory) into a module;
`synchronised` lets batch normalisation see the rows of all processes that train together.
"""

from uulearn.models.build import IMAGE_MODELS, MODELS, ModelLike, build_model, check_scores
from uulearn.models.convolutional import AllConvNet, ResNet32
from uulearn.models.dense import MLP, Linear
from uulearn.models.ensemble import Ensemble
from uulearn.models.normalization import synchronised

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
    "synchronised",
]
