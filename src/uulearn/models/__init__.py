"""Models that can be named: ``"linear"`` and ``"mlp"``, and how any other model is built.

`build_model` turns what a user may pass (a name, an ``nn.Module``, its class, or a factory) into a module.
"""

from uulearn.models.build import MODELS, ModelLike, build_model, check_scores
from uulearn.models.dense import MLP, Linear

__all__ = ["MLP", "MODELS", "Linear", "ModelLike", "build_model", "check_scores"]
