"""Classification networks of torchvision, such as ``"torchvision:resnet18"``, with a single output.

torchvision is imported only if a model has such a name. Only the networks that torchvision lists for classification can
be named. Weights are downloaded only if the parameter ``weights`` names them.
"""

import contextlib
import difflib
import functools
import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from uulearn.models.construction import explain_errors

PREFIX = "torchvision:"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the colors of ImageNet, on which torchvision's weights were trained."""
WITH_AUXILIARY_OUTPUTS = ("googlenet", "inception_v3")
"""Networks that return several outputs during training, which are turned off here; their weights expect [-1, 1]."""
SMALLEST_SIDE = 17
"""Smallest side of images. The networks halve an image up to five times. If a layer with stride 2 gets an image of a
single pixel, its bfloat16 gradient on the CPU contains uninitialized memory (torch 2.13)."""
OUTPUT_PARAMETERS = 2
"""Maximum number of tensors of an output layer: weight and bias."""


def is_torchvision_name(model: Any) -> bool:
    """Return whether a value of the parameter ``model`` has the form of a torchvision network.

    >>> is_torchvision_name("torchvision:resnet18"), is_torchvision_name("resnet32"), is_torchvision_name(None)
    (True, False, False)
    """
    return isinstance(model, str) and model.startswith(PREFIX)


def import_models() -> ModuleType:
    """Import ``torchvision.models``, or raise an ImportError that says how to install it."""
    try:
        from torchvision import models
    except ModuleNotFoundError as error:
        raise ImportError(
            "networks of torchvision need torchvision; install it with pip install 'uulearn[vision]'."
        ) from error
    except (ImportError, RuntimeError, OSError) as error:  # a build for another version of torch, or for CUDA
        raise ImportError(
            f"torchvision is installed but cannot be loaded ({error}); install torch and torchvision from the same "
            "index, such as https://download.pytorch.org/whl/cpu."
        ) from error
    assert isinstance(models, ModuleType)
    return models


def check_torchvision(model: str, params: Any, shape: tuple[int, ...] | None = None) -> None:
    """Raise a ValueError if torchvision has no such network, or if its parameters or the images are not supported.

    The values of parameters cannot be lists or dicts, so a stored model cannot describe a network of any depth.
    """
    models, name = import_models(), model.removeprefix(PREFIX)
    known = models.list_models(module=models)
    if name not in known:
        close = difflib.get_close_matches(name, known) or ["resnet18", "resnet50"]
        raise ValueError(
            f"torchvision has no classification network {name!r}; similar names: "
            f"{', '.join(repr(PREFIX + other) for other in close)}."
        )
    for key, value in params.items() if isinstance(params, Mapping) else ():
        if key == "weights":
            if value is not None:
                _find_weights(models, name, value)
        elif name in WITH_AUXILIARY_OUTPUTS and key in ("aux_logits", "transform_input"):
            raise ValueError(
                f"model_params[{key!r}]={value!r} is not supported, because uulearn turns the auxiliary outputs of "
                f"{model!r} off and normalizes the colors itself; remove it."
            )
        elif isinstance(value, list | tuple | Mapping):
            raise ValueError(f"model_params[{key!r}]={value!r} is not supported for {model!r}; remove it.")
    if shape is not None:
        _check_shape(models, name, shape)


def build_torchvision(model: str, shape: tuple[int, ...], params: Mapping[str, Any]) -> nn.Module:
    """Return a network for images of this shape.

    ``params`` are the arguments of the network, and ``weights``, the weights to download, such as ``"DEFAULT"``.
    """
    models, name = import_models(), model.removeprefix(PREFIX)
    weights = params.get("weights")
    chosen = None if weights is None else _find_weights(models, name, weights)
    _check_shape(models, name, shape)
    own: dict[str, Any] = {}
    if name.startswith("vit_"):
        own = {"image_size": shape[1]}
    if name.startswith("maxvit_"):
        own = {"input_size": shape[1:]}
    if name in WITH_AUXILIARY_OUTPUTS:
        own = {"aux_logits": False, "transform_input": False, "init_weights": chosen is None}
    given = {key: value for key, value in params.items() if key != "weights"}
    with explain_errors(model, given), _WidthsOnCPU() if name.startswith("regnet_") else contextlib.nullcontext():
        if name.startswith("vit_") and given.get("image_size", shape[1]) != shape[1]:
            raise ValueError(f"image_size must be the size of the images, {shape[1]}")
        network = models.get_model(name, weights=None, num_classes=1, **own | given)
    if name.startswith("mnasnet"):
        network._load_from_state_dict = functools.partial(_load_with_version, network)
    mean, std = MEAN, STD
    if chosen is not None:
        _copy_weights(network, name, chosen, shape)
        mean, std = chosen.transforms().mean, chosen.transforms().std
        if name in WITH_AUXILIARY_OUTPUTS:
            mean = std = (0.5, 0.5, 0.5)
    return TorchvisionNetwork(network, mean, std)


def _load_with_version(network: nn.Module, state: Any, prefix: str, metadata: Mapping[str, Any], *others: Any) -> None:
    """Load weights without a version as weights of the current version, like all other networks.

    MNASNet rejects weights without the version that torch stores next to the tensors, which safetensors files and
    checkpoints do not contain.
    """
    type(network)._load_from_state_dict(network, state, prefix, {"version": network._version} | dict(metadata), *others)


class _WidthsOnCPU(TorchFunctionMode):
    """Create the tensors of `torch.arange` and `torch.tensor` on the CPU, also if another device is the default.

    RegNet computes the widths and numbers of its layers with these functions and converts the tensors to Python
    numbers, but tensors on the device "meta" have no values. The weights are still created on the default device.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        own = {"device": "cpu"} if func in (torch.arange, torch.tensor) else {}
        return func(*args, **own | (kwargs or {}))


class TorchvisionNetwork(nn.Module):
    """Network of torchvision that normalizes images with values from 0 to 1; gray images are repeated to 3 channels.

    The mean and the standard deviation are buffers, so they are saved with the weights of the network.
    """

    prefers_channels_last = True

    def __init__(self, network: nn.Module, mean: Any, std: Any) -> None:
        super().__init__()
        self.network = network
        self.mean, self.std = (nn.Buffer(torch.tensor(values).view(3, 1, 1)) for values in (mean, std))

    def forward(self, x: Tensor) -> Tensor:
        """Map images of shape (n, 1 or 3, height, width) to scores of shape (n, 1)."""
        scores: Tensor = self.network((x.expand(-1, 3, -1, -1) - self.mean) / self.std)
        return scores


def _find_weights(models: ModuleType, name: str, weights: Any) -> Any:
    known = models.get_model_weights(name)
    names = {"DEFAULT": known.DEFAULT} | {own.name: own for own in known}
    if not isinstance(weights, str) or weights not in names:
        listed = ", ".join(map(repr, names))
        raise ValueError(f"weights of {PREFIX}{name} must be None or one of {listed}, got {weights!r}.")
    return names[weights]


def _check_shape(models: ModuleType, name: str, shape: tuple[int, ...]) -> None:
    """Raise a ValueError if the network does not support images of this shape."""
    channels, height, width = shape
    if channels not in (1, 3):
        raise ValueError(f"{PREFIX}{name} expects images with 1 or 3 channels, got {channels}; convert the images.")
    problem, least = None, max(SMALLEST_SIDE, models.get_model_weights(name)["DEFAULT"].meta["min_size"][0])
    if name.startswith(("vit_", "maxvit_")):
        patch = int(re.findall(r"\d+", name)[-1]) if name.startswith("vit_") else least
        if height != width or height % patch:
            problem = f"square images whose sides are a multiple of {patch} pixels"
    elif min(height, width) < least and not name.startswith("swin_"):  # swin pads small images
        problem = f"images of at least {least} × {least} pixels"
    if problem:
        raise ValueError(
            f"{PREFIX}{name} needs {problem}, got {height} × {width}; resize the images (--image-size), or use "
            "resnet32."
        )


def _copy_weights(network: nn.Module, name: str, weights: Any, shape: tuple[int, ...]) -> None:
    """Download weights and copy them to all layers except the output layer, whose number of classes differs."""
    source = _read_weights(name, weights)
    own = network.state_dict()
    other = {key for key, value in source.items() if key in own and value.shape != own[key].shape}
    for key in other:
        del source[key]
    # Modules convert the names of older versions themselves.
    missing = network.load_state_dict(source, strict=False).missing_keys
    if len(missing) > OUTPUT_PARAMETERS:
        side = weights.transforms().crop_size[0]
        raise ValueError(
            f"the weights {weights.name} of {PREFIX}{name} do not fit to this network for images of {shape[1]} × "
            f"{shape[2]} pixels; resize the images to {side} × {side} pixels, or remove other model_params."
        )


def _read_weights(name: str, weights: Any) -> dict[str, Tensor]:
    """Return the tensors of a file of weights, which is downloaded if torch has no copy in its cache.

    torch checks the hash of a file only when it downloads the file, so the hash of a copy is checked here. Only tensors
    and plain containers are unpickled.
    """
    file = Path(torch.hub.get_dir(), "checkpoints", weights.url.rpartition("/")[2])
    if file.exists():
        _check_hash(file, f"{weights.name} of {PREFIX}{name}")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # torch prints that it downloads; commands print results
            source: dict[str, Tensor] = weights.get_state_dict(progress=True, check_hash=True, weights_only=True)
    except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if file.exists():
            raise ValueError(f"{file} is not a file of weights ({reason}); delete it to download it again.") from None
        raise ValueError(
            f"the weights {weights.name} of {PREFIX}{name} cannot be downloaded from {weights.url} ({reason}); check "
            f"the connection, or put the file into {file.parent}."
        ) from None
    if name.startswith("densenet"):  # torchvision renamed these layers after it had stored the weights
        for key in list(source):
            source[re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2", key)] = source.pop(key)
    return source


def _check_hash(file: Path, weights: str) -> None:
    """Raise a ValueError if the SHA-256 hash of a file does not start with the digits at the end of its name."""
    expected = file.stem.rpartition("-")[2]
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if not found.startswith(expected):
        raise ValueError(
            f"{file} does not contain the weights {weights}: its SHA-256 hash should start with {expected} but is "
            f"{found}; delete the file to download it again."
        )
