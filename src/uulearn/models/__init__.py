"""Built-in networks, networks of torchvision and of users, ensembles, and synchronized batch normalization."""

from uulearn.models.build import IMAGE_MODELS, MODELS, ModelLike, build_model, check_scores, is_image_model
from uulearn.models.convolutional import AllConvNet, ResNet32
from uulearn.models.dense import MLP, Linear
from uulearn.models.ensemble import Ensemble
from uulearn.models.normalization import synchronized
from uulearn.models.torchvision_networks import is_torchvision_name

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
    "is_image_model",
    "is_torchvision_name",
    "synchronized",
]
