"""Table of the allowed values of each `UUClassifier` parameter; tests of invalid values are generated from it."""

import dataclasses
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from uulearn.data.augmentation import ROW_AUGMENTATIONS, describe_values, is_augmentation
from uulearn.defaults import AUTO, BOOSTING, LOSS
from uulearn.exceptions import ClosePriorsWarning
from uulearn.models import MODELS, is_torchvision_name
from uulearn.models.torchvision_networks import check_torchvision
from uulearn.risk import LOSSES, UURisk
from uulearn.risk.corrections import MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training.options import OPTIMIZERS, ConsistencyOptions, TrainingOptions
from uulearn.training.precision import PRECISIONS

# Priors of the training risk if set_priors is None: with these values, the model learns to separate the sets.
PURE_PRIORS = (1.0, 0.0)
# Names of the training options in get_params and set_params.
TRAINING_PREFIX = "training__"
TRAINING_NAMES = [f"{TRAINING_PREFIX}{field.name}" for field in dataclasses.fields(TrainingOptions)]
# Two threads that change the warning filters at the same time could restore the wrong ones.
_WARNING_FILTERS = threading.Lock()


class Rule(NamedTuple):
    """A function that checks a value, a description of the allowed values, and an example of an invalid value."""

    allows: Callable[[Any], bool]
    description: str
    bad: Any


def is_auto(value: Any) -> bool:
    """Return whether a parameter is ``"auto"``; the type is checked first, because values may be arrays."""
    return isinstance(value, str) and value == AUTO


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def _is_mapping(value: Any) -> bool:
    return value is None or (hasattr(value, "keys") and all(isinstance(key, str) for key in value))


def _is_sequence(value: Any, length: int) -> bool:
    return isinstance(value, tuple | list) and len(value) == length


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _or_auto(allows: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: is_auto(value) or allows(value)


def _is_device(value: Any) -> bool:
    try:
        return torch.device("cpu" if value == AUTO else value).type in ("cpu", "cuda")
    except (RuntimeError, TypeError):
        return False


NAMED_MODELS = (AUTO, *MODELS, BOOSTING)

RULES: dict[str, Rule] = {
    "model": Rule(
        lambda v: (
            v in NAMED_MODELS or is_torchvision_name(v)
            if isinstance(v, str)
            else v is None or callable(v) or hasattr(v, "train_folds")
        ),
        f"None, one of {', '.join(map(repr, NAMED_MODELS))}, 'torchvision:' followed by the name of a network of "
        "torchvision, an nn.Module, its class, a factory or a Learner",
        7,
    ),
    "model_params": Rule(_or_auto(_is_mapping), "'auto', None or a dict of arguments for the model", "wide"),
    "epochs": Rule(_or_auto(lambda v: _is_integer(v) and v >= 1), "'auto' or an integer of at least 1", 0),
    "batch_size": Rule(
        _or_auto(lambda v: _is_integer(v) and v >= 2), "'auto' or an integer of at least 2 (rows of both sets)", 1
    ),
    "lr": Rule(_or_auto(lambda v: _is_finite(v) and v > 0), "'auto' or a number above 0", 0.0),
    "l2": Rule(_or_auto(lambda v: _is_finite(v) and v >= 0), "'auto' or a number of at least 0", -1.0),
    "n_estimators": Rule(_or_auto(lambda v: _is_integer(v) and v >= 1), "'auto' or an integer of at least 1", 0),
    "validation_fraction": Rule(
        _or_auto(lambda v: _is_finite(v) and 0 <= v < 1), "'auto' or a number of at least 0 and below 1", 1.0
    ),
    "early_stopping": Rule(_or_auto(_is_bool), "'auto', True or False", "best"),
    "patience": Rule(
        _or_auto(lambda v: v is None or (_is_integer(v) and v >= 1)), "'auto', None or an integer of at least 1", 0
    ),
    "self_training_rounds": Rule(lambda v: _is_integer(v) and v >= 0, "an integer of at least 0", -1),
    "consistency": Rule(
        _or_auto(lambda v: isinstance(v, ConsistencyOptions) or _is_bool(v) or _is_mapping(v)),
        "'auto', None, True, False, a uulearn.training.ConsistencyOptions or a dict of its options",
        "strong",
    ),
    "calibrated": Rule(_or_auto(_is_bool), "'auto', True or False", "isotonic"),
    "encoder": Rule(
        lambda v: v is None or is_auto(v) or hasattr(v, "encode_table"),
        "'auto', None or a uulearn.tabular.TableEncoder (put other transformers before the classifier in a Pipeline)",
        "one-hot",
    ),
    "device": Rule(_is_device, "'auto', 'cpu' or a CUDA device such as 'cuda' or 'cuda:1'", "gpu"),
    "training": Rule(
        lambda v: v is None or isinstance(v, TrainingOptions),
        "None or a uulearn.training.TrainingOptions",
        {"ema": 0.9},
    ),
    "progress": Rule(_is_bool, "True or False", "bar"),
    "random_state": Rule(
        lambda v: v is None or isinstance(v, np.random.RandomState) or (_is_integer(v) and 0 <= v < 2**63),
        "None, an integer of at least 0 or a numpy RandomState",
        -1,
    ),
}

TRAINING_RULES: dict[str, Rule] = {
    "optimizer": Rule(
        lambda v: v in OPTIMIZERS if isinstance(v, str) else callable(v),
        f"one of {', '.join(map(repr, OPTIMIZERS))}, a torch optimizer class or a factory",
        "adagradd",
    ),
    "optimizer_params": Rule(_is_mapping, "None or a dict of arguments for the optimizer", 3),
    "scheduler": Rule(lambda v: v is None or callable(v), "None or a function that creates a scheduler", "cosine"),
    "scheduler_interval": Rule(lambda v: v in ("epoch", "batch"), "'epoch' or 'batch'", "step"),
    "weight_decay": Rule(lambda v: _is_finite(v) and v >= 0, "a number of at least 0", -1.0),
    "clip_norm": Rule(lambda v: v is None or (_is_finite(v) and v > 0), "None or a number above 0", 0.0),
    "ema": Rule(lambda v: v is None or (_is_finite(v) and 0 < v < 1), "None or a number between 0 and 1", 1.0),
    "precision": Rule(lambda v: v in PRECISIONS, f"one of {', '.join(map(repr, PRECISIONS))}", "float16"),
    "compile": Rule(_is_bool, "True or False", "yes"),
    "input_scale": Rule(lambda v: _is_finite(v) and v != 0, "a finite number other than 0", 0.0),
    "augment": Rule(
        lambda v: v is None or (is_augmentation(v) if isinstance(v, str) else callable(v)),
        f"None, {describe_values()}",
        "rotate",
    ),
    "image_shape": Rule(
        lambda v: v is None or (_is_sequence(v, 3) and all(_is_integer(size) and size >= 1 for size in v)),
        "None or three positive integers (channels, height, width)",
        "28x28",
    ),
    "smoothing": Rule(lambda v: _is_integer(v) and v >= 1, "an integer of at least 1", 0),
    "checkpoint_dir": Rule(lambda v: v is None or isinstance(v, str | Path), "None or a folder", 5),
    "checkpoint_every": Rule(lambda v: _is_integer(v) and v >= 1, "an integer of at least 1", 0),
    "distributed": Rule(_or_auto(_is_bool), "'auto', True or False", "ddp"),
}

CONSISTENCY_RULES: dict[str, Rule] = {
    "fraction": Rule(lambda v: _is_finite(v) and 0 < v <= 1, "a number above 0 and at most 1", 80),
    "weight": Rule(lambda v: _is_finite(v) and v >= 0, "a number of at least 0", -1.0),
    "ramp": Rule(
        lambda v: _is_sequence(v, 2) and all(map(_is_finite, v)) and 0 <= v[0] <= v[1] <= 1,
        "two fractions of the epochs in ascending order, such as (0.15, 0.35)",
        0.2,
    ),
    "strong": Rule(
        _or_auto(lambda v: is_augmentation(v, ROW_AUGMENTATIONS) if isinstance(v, str) else callable(v)),
        f"'auto', {describe_values(ROW_AUGMENTATIONS)}",
        "rotate",
    ),
    "swap": Rule(lambda v: _is_finite(v) and 0 < v <= 1, "a number above 0 and at most 1", 0.0),
    "noise": Rule(lambda v: _is_finite(v) and v > 0, "a number above 0", 0.0),
    "compare": Rule(_is_bool, "True or False", "auto"),
}


def read_consistency(value: Any) -> ConsistencyOptions | None:
    """Return the options of consistency training for a value of the parameter ``consistency``, or None without it.

    >>> read_consistency({"weight": 0.5}).weight, read_consistency("auto").compare, read_consistency(False)
    (0.5, True, None)
    """
    if value is None or isinstance(value, ConsistencyOptions):
        return value
    if is_auto(value):
        return ConsistencyOptions(compare=True)
    if _is_bool(value):
        return ConsistencyOptions() if value else None
    known = [field.name for field in dataclasses.fields(ConsistencyOptions)]
    if unknown := sorted(value.keys() - set(known)):
        raise ValueError(f"consistency: {unknown[0]!r} is not an option; valid options: {', '.join(known)}.")
    return ConsistencyOptions(**value)


def without_comparison(consistency: Any, used: bool) -> ConsistencyOptions | None:
    """Return the value of ``consistency`` for a single model, which cannot be compared; ``used`` is the choice."""
    options = read_consistency(consistency)
    if options is None or not options.compare:
        return options
    return dataclasses.replace(options, compare=False) if used else None


def make_risk(
    set_priors: Sequence[float],
    target_prior: float,
    loss: str | LossFunction,
    method: MethodLike,
    slope: float,
    *,
    distributed: bool = True,
) -> UURisk:
    """Return the risk without a warning about close priors: the plan warns, with the sizes of the sets."""
    with _WARNING_FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", ClosePriorsWarning)
        return UURisk(set_priors, target_prior, loss, method, slope, distributed=distributed)


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError or TypeError for the first parameter whose value is not allowed.

    >>> from uulearn import UUClassifier
    >>> check_parameters(UUClassifier((0.8, 0.2), epochs=0).get_params(deep=False))
    Traceback (most recent call last):
        ...
    ValueError: epochs must be 'auto' or an integer of at least 1, got 0.
    """
    options = parameters["training"] or TrainingOptions()
    checked = [(name, rule, parameters[name]) for name, rule in RULES.items()]
    if isinstance(options, TrainingOptions):
        checked += [(f"TrainingOptions.{name}", rule, getattr(options, name)) for name, rule in TRAINING_RULES.items()]
    for name, rule, value in checked:
        if not rule.allows(value):
            raise ValueError(f"{name} must be {rule.description}, got {value!r}.")
    if is_torchvision_name(parameters["model"]):
        check_torchvision(parameters["model"], parameters["model_params"])
    _check_consistency_training(read_consistency(parameters["consistency"]), parameters, options)
    priors, method, loss = (parameters[name] for name in ("set_priors", "method", "loss"))
    if priors is None and method != "biased":
        raise ValueError(
            f"set_priors=None requires method='biased', got method={method!r}; without class priors, a model can only "
            "rank the rows."
        )
    risk = make_risk(
        PURE_PRIORS if priors is None else priors,
        parameters["target_prior"],
        LOSS if is_auto(loss) else loss,
        method,
        parameters["slope"],
    )
    _check_several_sets(len(risk.set_priors), parameters)
    if not risk.loss.trainable:
        trainable = ", ".join(repr(name) for name, known in LOSSES.items() if known.trainable)
        raise ValueError(f"loss={loss!r} has no gradient and cannot be used for training; use one of {trainable}.")


def _check_several_sets(n_sets: int, parameters: Mapping[str, Any]) -> None:
    """Raise a ValueError if a parameter does not support this number of sets."""
    for name, off in (("self_training_rounds", 0), ("consistency", None)):
        if n_sets > 2 and parameters[name] not in (off, False):
            raise ValueError(
                f"{name}={parameters[name]!r} supports two sets, but set_priors has {n_sets} values; set {name}={off}, "
                "or merge the sets with uulearn.priors.merge_bags."
            )


def _check_consistency_training(
    consistency: ConsistencyOptions | None, parameters: Mapping[str, Any], options: TrainingOptions
) -> None:
    """Raise a ValueError if an option is not valid, or if the other parameters do not allow consistency training."""
    if consistency is None:
        return
    for name, rule in CONSISTENCY_RULES.items():
        if not rule.allows(value := getattr(consistency, name)):
            raise ValueError(f"ConsistencyOptions.{name} must be {rule.description}, got {value!r}.")
    model = parameters["model"]
    if hasattr(model, "train_folds") or (isinstance(model, str) and model == BOOSTING):
        name = repr(model) if isinstance(model, str) else type(model).__name__
        raise ValueError(
            f"consistency training needs a network, got model={name}; use model='mlp', or consistency=None."
        )
    if parameters["set_priors"] is None:
        raise ValueError(
            "consistency training needs the class priors of the sets, but set_priors is None; set consistency=None."
        )
    if options.ema is None:
        raise ValueError(
            "consistency training needs the moving average of the weights as teacher, but TrainingOptions.ema is None; "
            "set ema=0.999, or consistency=None."
        )
