"""Built-in networks, functions that build custom networks, ensembles, and synchronized batch normalization."""

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
