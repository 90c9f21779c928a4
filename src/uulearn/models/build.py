"""From what a user passes as ``model`` to a module that is known to fit the rows."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from uulearn.models.convolutional import AllConvNet, ResNet32
from uulearn.models.dense import MLP, Linear

ModelLike = str | nn.Module | type[nn.Module] | Callable[..., nn.Module]

MODELS: dict[str, type[nn.Module]] = {"linear": Linear, "mlp": MLP, "allconvnet": AllConvNet, "resnet32": ResNet32}
IMAGE_MODELS = ("allconvnet", "resnet32")


def build_model(model: ModelLike, row_shape: tuple[int, ...], params: Mapping[str, Any] | None = None) -> nn.Module:
    """A fresh module for rows of the given shape.

    A name or a class or a factory is called with ``params``, and with ``n_features`` (rows of plain columns) or
    ``shape`` (images) where it takes an argument of that name. An instance is copied, so that training never changes
    the module that the user holds.

    Examples
    --------
    >>> build_model("mlp", (4,), {"hidden": (8,)})(torch.zeros(2, 4)).shape
    torch.Size([2])
    >>> build_model(lambda n_features: nn.Linear(n_features, 1), (4,))
    Linear(in_features=4, out_features=1, bias=True)
    """
    params = dict(params or {})
    if isinstance(model, nn.Module):
        if params:
            raise ValueError("model_params has no use when model is an instance; pass its class or a factory instead.")
        return _with_shapes(copy.deepcopy(model), row_shape)
    if isinstance(model, str):
        if model not in MODELS:
            names = ", ".join(map(repr, MODELS))
            raise ValueError(f"model must be one of {names}, an nn.Module, its class or a factory, got {model!r}.")
        _check_row_shape(model, row_shape)
        model = MODELS[model]
    if not callable(model):
        raise TypeError(f"model must be a name, an nn.Module, its class or a factory, got {model!r}.")
    if len(row_shape) == 1 and "n_features" in inspect.signature(model).parameters:
        params.setdefault("n_features", row_shape[0])
    if len(row_shape) == 3 and "shape" in inspect.signature(model).parameters:
        params.setdefault("shape", row_shape)
    try:
        built = model(**params)
    except TypeError as error:
        name = getattr(model, "__name__", str(model))
        raise ValueError(f"model {name} cannot be built with {params}: {error}; correct model_params.") from error
    if not isinstance(built, nn.Module):
        raise TypeError(f"the model factory must return an nn.Module, got {type(built).__name__}.")
    return _with_shapes(built, row_shape)


def _with_shapes(model: nn.Module, row_shape: tuple[int, ...]) -> nn.Module:
    """Give lazy layers their shapes, by a look at two rows of zeros."""
    if any(is_lazy(p) for p in (*model.parameters(), *model.buffers())):
        try:
            with torch.no_grad():
                model.eval()(torch.zeros(2, *row_shape))
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(
                f"the model cannot take rows of shape {row_shape}: {error}; change the model or reshape X."
            ) from error
        model.train()
    return model


def _check_row_shape(name: str, row_shape: tuple[int, ...]) -> None:
    if name in IMAGE_MODELS and len(row_shape) != 3:
        raise ValueError(
            f"model={name!r} takes images, got rows of shape {row_shape}; reshape X to (n, channels, height, width) or "
            "use model='mlp'."
        )
    if name not in IMAGE_MODELS and len(row_shape) != 1:
        raise ValueError(
            f"model={name!r} takes rows of plain columns, got rows of shape {row_shape}; reshape X to two dimensions, "
            "use model='resnet32' for images, or pass a module of your own."
        )


def check_scores(model: nn.Module, x: Tensor) -> None:
    """One look at the scores of a few rows, before any work, tells a model that does not fit the data.

    Examples
    --------
    >>> check_scores(nn.Linear(3, 2), torch.zeros(2, 3))
    Traceback (most recent call last):
        ...
    ValueError: the model must give one score a row, of shape (n,) or (n, 1), but gave (2, 2) for 2 rows; ...
    """
    try:
        with torch.no_grad():
            scores = model.cpu().eval()(x)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(
            f"the model cannot take rows of shape {tuple(x.shape[1:])}: {error}; change the model or reshape X."
        ) from error
    n = len(x)
    if not isinstance(scores, Tensor) or scores.shape not in ((n,), (n, 1)):
        shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"the model must give one score a row, of shape (n,) or (n, 1), but gave {shape} for {n} rows; end it in "
            "one output."
        )
