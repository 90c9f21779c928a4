"""Build a module from the parameter ``model``, and check that the module accepts the rows."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from uulearn.models.construction import CONSTRUCTION_ERRORS, explain_errors
from uulearn.models.convolutional import AllConvNet, ResNet32
from uulearn.models.dense import MLP, Linear
from uulearn.models.torchvision_networks import build_torchvision, check_torchvision, is_torchvision_name

ModelLike = str | nn.Module | type[nn.Module] | Callable[..., nn.Module]

MODELS: dict[str, type[nn.Module]] = {"linear": Linear, "mlp": MLP, "allconvnet": AllConvNet, "resnet32": ResNet32}
IMAGE_MODELS = ("allconvnet", "resnet32")


def is_image_model(model: Any) -> bool:
    """Return whether the parameter ``model`` names a network for images.

    >>> is_image_model("resnet32"), is_image_model("torchvision:resnet18"), is_image_model("mlp")
    (True, True, False)
    """
    return isinstance(model, str) and (model in IMAGE_MODELS or is_torchvision_name(model))


def build_model(
    model: ModelLike,
    row_shape: tuple[int, ...],
    params: Mapping[str, Any] | None = None,
    seed: int | None = None,
    *,
    download: bool = True,
) -> nn.Module:
    """Build a new module for rows of the given shape.

    A built-in model, a class or a factory is called with ``params``. The argument ``n_features`` (tabular rows) or
    ``shape`` (images) is added if the callable accepts it. An instance is copied, so training never changes the user's
    module. If a ``seed`` is given, the initial weights depend only on it, and torch's random state does not change.
    Without ``download``, the parameter ``weights`` of a network of torchvision is ignored.

    >>> build_model(lambda n_features: nn.Linear(n_features, 1), (4,))
    Linear(in_features=4, out_features=1, bias=True)
    """
    if seed is not None:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return build_model(model, row_shape, params, download=download)
    params = dict(params or {})
    if isinstance(model, nn.Module):
        if params:
            raise ValueError("model_params cannot be used with a model instance; pass a class or a factory instead.")
        return _initialize_lazy(copy.deepcopy(model), row_shape)
    name = model if isinstance(model, str) else getattr(model, "__name__", str(model))
    errors: tuple[type[Exception], ...] = (TypeError,)  # other errors are those of the user's own code
    if isinstance(model, str):
        if model not in MODELS and not is_torchvision_name(model):
            names = ", ".join(map(repr, MODELS))
            raise ValueError(f"model must be one of {names}, an nn.Module, a class or a factory, got {model!r}.")
        _check_row_shape(model, row_shape)
        if is_torchvision_name(model):
            check_torchvision(model, params)
            return build_torchvision(model, row_shape, params if download else params | {"weights": None})
        model, errors = MODELS[model], CONSTRUCTION_ERRORS
    if not callable(model):
        raise TypeError(f"model must be a name, an nn.Module, a module class or a factory, got {model!r}.")
    sizes: dict[str, Any] = {}
    if len(row_shape) == 1 and "n_features" in inspect.signature(model).parameters:
        sizes["n_features"] = row_shape[0]
    if len(row_shape) == 3 and "shape" in inspect.signature(model).parameters:
        sizes["shape"] = row_shape
    with explain_errors(name, params, errors):
        built = model(**sizes | params)
    if not isinstance(built, nn.Module):
        raise TypeError(f"the model factory must return an nn.Module, got {type(built).__name__}.")
    return _initialize_lazy(built, row_shape)


def _initialize_lazy(model: nn.Module, row_shape: tuple[int, ...]) -> nn.Module:
    """Initialize lazy layers with a forward pass of two rows of zeros."""
    if any(is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        _forward(model, torch.zeros(2, *row_shape))
        model.train()
    return model


def _check_row_shape(name: str, row_shape: tuple[int, ...]) -> None:
    if is_image_model(name) and len(row_shape) != 3:
        expected, fix = "images", "reshape X to (n, channels, height, width) or use model='mlp'"
    elif not is_image_model(name) and len(row_shape) != 1:
        expected, fix = "tabular rows", "reshape X to two dimensions, use model='resnet32', or pass your own module"
    else:
        return
    raise ValueError(f"model={name!r} expects {expected}, got rows of shape {row_shape}; {fix}.")


def check_scores(model: nn.Module, x: Tensor) -> None:
    """Raise an error if the model rejects these rows or does not return one score per row.

    >>> check_scores(nn.Linear(3, 1), torch.zeros(5, 3))  # an output of shape (5, 1) is accepted
    """
    scores = _forward(model.cpu(), x)
    n = len(x)
    if not isinstance(scores, Tensor) or scores.shape not in ((n,), (n, 1)):
        shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"the model must return one score per row, of shape (n,) or (n, 1), but returned {shape} for {n} rows; use "
            "a model with a single output."
        )


@torch.no_grad()
def _forward(model: nn.Module, x: Tensor) -> Any:
    try:
        return model.eval()(x)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"the model does not accept rows of shape {tuple(x.shape[1:])}: {error}; change the model or reshape X."
        ) from error
