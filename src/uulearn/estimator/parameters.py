"""What each parameter of `UUClassifier` may be: one table, from which the tests of bad values are made."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from uulearn.data.augmentation import AUGMENTATIONS, is_augmentation
from uulearn.estimator.resolving import is_auto
from uulearn.risk import LOSSES, get_loss
from uulearn.risk.coefficients import check_set_priors, check_target_prior
from uulearn.risk.corrections import check_slope, get_method
from uulearn.training.options import OPTIMIZERS
from uulearn.training.precision import PRECISIONS


class Rule(NamedTuple):
    """A test of a value, the words for what is allowed, and a value that is not."""

    allows: Callable[[Any], bool]
    words: str
    bad: Any


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def _mapping(value: Any) -> bool:
    return value is None or (hasattr(value, "keys") and all(isinstance(key, str) for key in value))


def _flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _or_auto(allows: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: is_auto(value) or allows(value)


def _device(value: Any) -> bool:
    try:
        return torch.device("cpu" if value == "auto" else value).type in ("cpu", "cuda")
    except (RuntimeError, TypeError):
        return False


RULES: dict[str, Rule] = {
    "model": Rule(lambda v: isinstance(v, str) or callable(v), "a name, an nn.Module, its class or a factory", 7),
    "model_params": Rule(_mapping, "None or a dict of arguments for the model", "wide"),
    "epochs": Rule(lambda v: _whole(v) and v >= 1, "a whole number of at least 1", 0),
    "batch_size": Rule(lambda v: _whole(v) and v >= 2, "a whole number of rows, both sets together, of at least 2", 1),
    "lr": Rule(_or_auto(lambda v: _number(v) and v > 0), "'auto' or a number above 0", 0.0),
    "optimizer": Rule(
        lambda v: v in OPTIMIZERS if isinstance(v, str) else callable(v),
        f"one of {', '.join(map(repr, OPTIMIZERS))}, a torch optimizer class or a factory",
        "adagradd",
    ),
    "optimizer_params": Rule(_mapping, "None or a dict of arguments for the optimizer", 3),
    "scheduler": Rule(lambda v: v is None or callable(v), "None or a function from optimizer to scheduler", "cosine"),
    "scheduler_interval": Rule(lambda v: v in ("epoch", "batch"), "'epoch' or 'batch'", "step"),
    "weight_decay": Rule(lambda v: _number(v) and v >= 0, "a number of at least 0", -1.0),
    "l2": Rule(_or_auto(lambda v: _number(v) and v >= 0), "'auto' or a number of at least 0", -1.0),
    "clip_norm": Rule(lambda v: v is None or (_number(v) and v > 0), "None or a number above 0", 0.0),
    "ema": Rule(lambda v: v is None or (_number(v) and 0 < v < 1), "None or a number between 0 and 1", 1.0),
    "precision": Rule(lambda v: v in PRECISIONS, f"one of {', '.join(map(repr, PRECISIONS))}", "float16"),
    "compile": Rule(_flag, "True or False", "yes"),
    "device": Rule(_device, "'auto', 'cpu' or a CUDA device such as 'cuda' or 'cuda:1'", "gpu"),
    "input_scale": Rule(lambda v: _number(v) and v != 0, "a finite number other than 0", 0.0),
    "augment": Rule(
        lambda v: v is None or (is_augmentation(v) if isinstance(v, str) else callable(v)),
        f"None, one of {', '.join(map(repr, AUGMENTATIONS))}, several joined by '+' or a function from batch to batch",
        "rotate",
    ),
    "validation_fraction": Rule(
        _or_auto(lambda v: _number(v) and 0 <= v < 1), "'auto' or a number of at least 0 and below 1", 1.0
    ),
    "keep": Rule(lambda v: v in ("auto", "best", "last"), "'auto', 'best' or 'last'", "first"),
    "smoothing": Rule(lambda v: _whole(v) and v >= 1, "a whole number of epochs of at least 1", 0),
    "patience": Rule(
        _or_auto(lambda v: v is None or (_whole(v) and v >= 1)), "'auto', None or a whole number of at least 1", 0
    ),
    "members": Rule(_or_auto(lambda v: _whole(v) and v >= 1), "'auto' or a whole number of at least 1", 0),
    "rounds": Rule(lambda v: _whole(v) and v >= 0, "a whole number of at least 0", -1),
    "calibrated": Rule(_or_auto(_flag), "'auto', True or False", "isotonic"),
    "checkpoint_dir": Rule(lambda v: v is None or isinstance(v, str | Path), "None or a folder", 5),
    "checkpoint_every": Rule(lambda v: _whole(v) and v >= 1, "a whole number of epochs of at least 1", 0),
    "distributed": Rule(_or_auto(_flag), "'auto', True or False", "ddp"),
    "progress": Rule(_flag, "True or False", "bar"),
    "random_state": Rule(
        lambda v: v is None or isinstance(v, np.random.RandomState) or (_whole(v) and 0 <= v < 2**63),
        "None, a whole number of at least 0 or a numpy RandomState",
        -1,
    ),
}


def check_parameters(parameters: dict[str, Any]) -> None:
    """Raise a ValueError or TypeError for the first parameter whose value is not allowed."""
    if parameters["set_priors"] is not None:
        check_set_priors(parameters["set_priors"])
    elif parameters["method"] != "biased":
        raise ValueError(
            f"set_priors=None serves method='biased' alone, got method={parameters['method']!r}; without priors only "
            "the sets can be told apart, which ranks rows by how positive they look."
        )
    check_target_prior(parameters["target_prior"])
    check_slope(parameters["slope"])
    get_method(parameters["method"], parameters["slope"])
    if not is_auto(parameters["loss"]) and not get_loss(parameters["loss"]).trainable:
        trainable = ", ".join(repr(name) for name, loss in LOSSES.items() if loss.trainable)
        raise ValueError(
            f"loss={parameters['loss']!r} has no gradient and is for evaluation only; train with one of {trainable}."
        )
    for name, rule in RULES.items():
        if not rule.allows(parameters[name]):
            raise ValueError(f"{name} must be {rule.words}, got {parameters[name]!r}.")
