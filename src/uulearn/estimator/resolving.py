"""Resolve ``"auto"`` parameters from the model, the number of rows and the other parameters.

The default values are in `uulearn.defaults`; ``docs/defaults.md`` describes how they were chosen.
`uulearn.UUClassifier` and ``uulearn fit`` both resolve their parameters here.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from uulearn import defaults
from uulearn.data.batches import count_batches
from uulearn.estimator.parameters import PURE_PRIORS, is_auto, read_consistency
from uulearn.models import ModelLike, is_torchvision_name
from uulearn.risk.corrections import SURROGATE, MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training.options import ConsistencyOptions, TrainingOptions

# Parameters that may be "auto", in the order of resolution: each may depend on earlier ones.
AUTO_PARAMETERS = (
    "loss", "model_params", "epochs", "batch_size", "lr", "l2", "n_estimators", "validation_fraction", "early_stopping",
    "patience", "calibrated",
)  # fmt: skip
# Parameters that stay "auto" with model="auto", because each compared model has its own value.
OF_EACH_MODEL = ("loss", "model_params", "epochs", "lr", "l2", "patience")


@dataclass(frozen=True)
class ResolvedParameters:
    """Parameters of `uulearn.UUClassifier` with every ``"auto"`` resolved, except for `OF_EACH_MODEL`.

    >>> from uulearn import UUClassifier
    >>> resolve(UUClassifier((0.8, 0.2)).get_params(deep=False), (500, 500)).n_estimators
    5
    """

    set_priors: tuple[float, ...] | None
    target_prior: float
    method: MethodLike
    slope: float
    loss: str | LossFunction
    model: ModelLike
    model_params: Mapping[str, Any] | None
    epochs: int
    batch_size: int
    lr: float
    l2: float
    n_estimators: int
    validation_fraction: float
    early_stopping: bool
    patience: int | None
    self_training_rounds: int
    consistency: ConsistencyOptions | None
    calibrated: bool
    encoder: Any
    device: str
    training: TrainingOptions
    progress: bool
    random_state: int | np.random.RandomState | None
    parameters_with_consistency: Mapping[str, Any]
    """Values of parameters that are "auto" and differ if consistency training is used after a comparison."""

    def used_parameters(self, consistency_used: bool) -> dict[str, Any]:
        """Return the values of parameters that depend on the choice of ``consistency="auto"``."""
        return dict(self.parameters_with_consistency) if consistency_used else {}

    @property
    def training_priors(self) -> tuple[float, ...]:
        """The class prior of each set in the training risk; `PURE_PRIORS` if the priors are unknown."""
        return PURE_PRIORS if self.set_priors is None else self.set_priors


def resolve(parameters: Mapping[str, Any], sizes: tuple[int, ...], **known: Any) -> ResolvedParameters:
    """Return all parameters, with each "auto" replaced by its resolved value; see `resolve_defaults`."""
    resolved = {**parameters, **resolve_defaults(parameters, sizes, **known)}
    priors = resolved["set_priors"]
    resolved["set_priors"] = None if priors is None else tuple(map(float, priors))
    resolved["training"] = resolved["training"] or TrainingOptions()
    resolved["consistency"] = options = read_consistency(resolved["consistency"])
    resolved["parameters_with_consistency"] = {}
    if options is not None and options.compare:
        used = dict(parameters) | {"consistency": dataclasses.replace(options, compare=False)}
        own = resolve_defaults(used, sizes, **known)
        resolved["parameters_with_consistency"] = {name: own[name] for name in ("l2", "patience") if name in own}
    return ResolvedParameters(**resolved)


def resolve_defaults(
    parameters: Mapping[str, Any],
    sizes: tuple[int, ...],
    *,
    has_validation_data: bool = False,
    single_model: bool | Callable[[], bool] = False,
    is_table: bool = False,
) -> dict[str, Any]:
    """Return the values of all ``"auto"`` parameters for sets of these sizes.

    Parameters
    ----------
    parameters : dict
        All parameters of `uulearn.UUClassifier`.
    sizes : (int, int)
        Number of rows of set 0 and of set 1.
    has_validation_data : bool
        Whether held-out rows of both sets are passed to `fit` as ``validation_data``.
    single_model : bool or callable
        True if rows cannot be split into folds or held out, because they are streamed or few of them are unique. A
        function is called only if an "auto" parameter depends on its result.
    is_table : bool
        Whether the rows are encoded tables; the default model then is "auto" instead of "mlp", if the priors are known.

    Examples
    --------
    >>> from uulearn import UUClassifier
    >>> resolve_defaults(UUClassifier((0.8, 0.2)).get_params(), (300, 300))
    {'model': 'mlp', 'loss': 'sigmoid', 'model_params': {'hidden': (128, 128), 'dropout': 0.25}, 'epochs': 60,
     'batch_size': 3000, 'lr': 0.01, 'l2': 0.005, 'n_estimators': 5, 'validation_fraction': 0.0,
     'early_stopping': True, 'patience': 400, 'calibrated': True}
    """
    known, resolved = dict(parameters), dict[str, Any]()
    if known["model"] is None:
        compares = is_table and known["set_priors"] is not None  # risks can be compared only if the priors are known
        known["model"] = resolved["model"] = defaults.AUTO if compares else defaults.MODEL
    linear, mlp, boosting = (_is_named(known["model"], name) for name in ("linear", "mlp", defaults.BOOSTING))
    rate = defaults.BOOSTING_LEARNING_RATE if boosting else defaults.LEARNING_RATE
    network = {"model_params": None, "epochs": defaults.EPOCHS, "lr": defaults.LINEAR_LEARNING_RATE if linear else rate}
    # The values for small tables were chosen together; if one of them is given, the others are those of large tables.
    small: list[dict[str, Any]] = []
    if mlp and all(is_auto(known[name]) for name in network) and known["loss"] in (defaults.AUTO, defaults.LOSS):
        small = [own for limit, own in defaults.SMALL_MLPS.items() if sum(sizes) <= limit]
        network = small[0] if small else network
    consistency = None if boosting else read_consistency(known["consistency"])
    consistent = consistency is not None and not consistency.compare
    l2 = defaults.CONSISTENCY_MLP_L2 if consistent and not small else defaults.MLP_L2
    n_estimators, fraction = defaults.N_ESTIMATORS, defaults.VALIDATION_FRACTION
    trains_fast = _is_named(known["model"], *defaults.ENSEMBLE_MODELS) or hasattr(known["model"], "train_folds")
    fills_folds = min(sizes) >= 2 * n_estimators and not has_validation_data and is_auto(known["validation_fraction"])
    needs_held_out_rows = isinstance(known["patience"], Integral) or any(
        known[name] for name in ("early_stopping", "calibrated") if not is_auto(known[name])
    )
    can_hold_out = min(sizes) * fraction >= defaults.MIN_VALIDATION_ROWS
    single: Callable[[], bool] = single_model if callable(single_model) else lambda: bool(single_model)
    rules: dict[str, Callable[[], Any]] = {
        # The surrogate method learns log-odds, like the logistic loss.
        "loss": lambda: defaults.LINEAR_LOSS if linear or _is_named(known["method"], SURROGATE) else defaults.LOSS,
        **{name: functools.partial(network.get, name) for name in network},
        "batch_size": lambda: (
            defaults.TORCHVISION_BATCH_SIZE if is_torchvision_name(known["model"]) else defaults.BATCH_SIZE
        ),
        "l2": lambda: l2 if mlp and _is_named(known["loss"], "sigmoid") else 0.0,
        "n_estimators": lambda: (
            n_estimators if known["self_training_rounds"] or (trains_fast and fills_folds and not single()) else 1
        ),
        "validation_fraction": lambda: (
            fraction
            if known["n_estimators"] == 1
            and not has_validation_data
            and (needs_held_out_rows or (can_hold_out and not single()))
            else 0.0
        ),
        "early_stopping": lambda: bool(
            has_validation_data or known["n_estimators"] > 1 or known["validation_fraction"]
        ),
        # Pseudo-labels improve slowly, so the error may decrease again after many epochs.
        "patience": lambda: (
            _patience(boosting, sizes, known["batch_size"]) if known["early_stopping"] and not consistent else None
        ),
        # Like early stopping, calibration needs held-out rows.
        "calibrated": lambda: known["set_priors"] is not None and rules["early_stopping"](),
    }
    for name in AUTO_PARAMETERS:
        if is_auto(known[name]) and not (is_auto(known["model"]) and name in OF_EACH_MODEL):
            known[name] = resolved[name] = rules[name]()
    return resolved


def _patience(boosting: bool, sizes: tuple[int, ...], batch_size: int) -> int:
    if boosting:
        return defaults.BOOSTING_PATIENCE
    return max(defaults.PATIENCE, math.ceil(defaults.PATIENCE_STEPS / count_batches(sizes, batch_size)))


def _is_named(value: Any, *names: str) -> bool:
    """Return whether a parameter is one of these names; a value that is not a string never matches."""
    return isinstance(value, str) and value in names
