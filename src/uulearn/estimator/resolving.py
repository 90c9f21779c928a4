"""Values of ``"auto"`` parameters, derived from the model, the number of rows and each other.

The numbers are in `uulearn.defaults`; ``docs/defaults.md`` describes how each was chosen. `uulearn.UUClassifier` and
``uulearn fit`` both resolve their parameters here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from uulearn import defaults
from uulearn.data.batches import BatchPlan
from uulearn.estimator.parameters import is_auto
from uulearn.models import ModelLike
from uulearn.risk.corrections import MethodLike
from uulearn.risk.losses import LossFunction
from uulearn.training.options import TrainingOptions

# Parameters that may be "auto", in the order in which they are resolved: each may depend on those before it.
AUTO_PARAMETERS = (
    "loss", "lr", "l2", "n_estimators", "validation_fraction", "early_stopping", "patience", "calibrated",
)  # fmt: skip
# Priors for set_priors=None: with them, separating the sets is separating the classes.
PURE_PRIORS = (1.0, 0.0)


@dataclass(frozen=True)
class ResolvedParameters:
    """Parameters of `uulearn.UUClassifier` in which nothing is ``"auto"``."""

    set_priors: tuple[float, float] | None
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
    calibrated: bool
    device: str
    training: TrainingOptions
    progress: bool
    random_state: int | np.random.RandomState | None

    @property
    def training_priors(self) -> tuple[float, float]:
        """(θ, θ′) of the training risk; `PURE_PRIORS` if the priors are unknown."""
        return PURE_PRIORS if self.set_priors is None else self.set_priors


def resolve(
    parameters: Mapping[str, Any],
    sizes: tuple[int, int],
    *,
    has_validation_data: bool = False,
    single_model: bool = False,
) -> ResolvedParameters:
    """All parameters with the values that "auto" stands for; the arguments are those of `resolve_defaults`."""
    found = resolve_defaults(parameters, sizes, has_validation_data=has_validation_data, single_model=single_model)
    known = {**parameters, **found}
    priors = known["set_priors"]
    known["set_priors"] = None if priors is None else (float(priors[0]), float(priors[1]))
    known["training"] = known["training"] or TrainingOptions()
    return ResolvedParameters(**known)


def resolve_defaults(
    parameters: Mapping[str, Any],
    sizes: tuple[int, int],
    *,
    has_validation_data: bool = False,
    single_model: bool = False,
) -> dict[str, Any]:
    """Values of the parameters that are ``"auto"`` for sets of these sizes.

    Parameters
    ----------
    parameters : dict
        All parameters of `uulearn.UUClassifier`.
    sizes : (int, int)
        Number of rows of set 0 and of set 1.
    has_validation_data : bool
        Whether held-out rows of both sets are passed to `fit` as ``validation_data``.
    single_model : bool
        Whether the rows cannot be split into folds or held out: they are streamed, or `has_few_unique_rows`.

    Examples
    --------
    >>> from uulearn import UUClassifier
    >>> from pprint import pp
    >>> pp(resolve_defaults(UUClassifier((0.8, 0.2)).get_params(), (300, 300)), width=60)
    {'loss': 'sigmoid',
     'lr': 0.001,
     'l2': 0.005,
     'n_estimators': 5,
     'validation_fraction': 0.0,
     'early_stopping': True,
     'patience': 400,
     'calibrated': True}
    >>> pp(resolve_defaults(UUClassifier((0.8, 0.2), model="resnet32").get_params(), (30_000, 30_000)), width=60)
    {'loss': 'sigmoid',
     'lr': 0.001,
     'l2': 0.0,
     'n_estimators': 1,
     'validation_fraction': 0.1,
     'early_stopping': True,
     'patience': 20,
     'calibrated': True}
    """
    known = dict(parameters)
    linear = _is_named(known, "model", "linear")
    rules: dict[str, Callable[[], Any]] = {
        "loss": lambda: defaults.LINEAR_LOSS if linear else defaults.LOSS,
        "lr": lambda: defaults.LINEAR_LEARNING_RATE if linear else defaults.LEARNING_RATE,
        "l2": lambda: (
            defaults.MLP_L2 if _is_named(known, "loss", "sigmoid") and _is_named(known, "model", "mlp") else 0.0
        ),
        "n_estimators": lambda: _n_estimators(known, sizes, has_validation_data, single_model),
        "validation_fraction": lambda: _validation_fraction(known, sizes, has_validation_data, single_model),
        "early_stopping": lambda: _has_held_out_rows(known, has_validation_data),
        "patience": lambda: _patience(known, sizes) if known["early_stopping"] else None,
        "calibrated": lambda: known["set_priors"] is not None and _has_held_out_rows(known, has_validation_data),
    }
    resolved: dict[str, Any] = {}
    for name in AUTO_PARAMETERS:
        if is_auto(known[name]):
            known[name] = resolved[name] = rules[name]()
    return resolved


def _is_named(known: Mapping[str, Any], name: str, *values: str) -> bool:
    """Whether a parameter, which may also be an object, is one of these names."""
    return isinstance(known[name], str) and known[name] in values


def _n_estimators(known: Mapping[str, Any], sizes: tuple[int, int], has_validation_data: bool, single: bool) -> int:
    if known["self_training_rounds"]:
        return defaults.N_ESTIMATORS
    holds_out = has_validation_data or not is_auto(known["validation_fraction"])
    quick = _is_named(known, "model", *defaults.ENSEMBLE_MODELS) or hasattr(known["model"], "train_folds")
    enough = min(sizes) >= 2 * defaults.N_ESTIMATORS and not single
    return defaults.N_ESTIMATORS if quick and enough and not holds_out else 1


def _validation_fraction(
    known: Mapping[str, Any], sizes: tuple[int, int], has_validation_data: bool, single: bool
) -> float:
    if known["n_estimators"] > 1 or has_validation_data:
        return 0.0
    asked_for = [known[name] for name in ("early_stopping", "calibrated") if not is_auto(known[name])]
    needed = any(asked_for) or isinstance(known["patience"], Integral)
    enough = min(sizes) * defaults.VALIDATION_FRACTION >= defaults.MIN_VALIDATION_ROWS and not single
    return defaults.VALIDATION_FRACTION if needed or enough else 0.0


def _has_held_out_rows(known: Mapping[str, Any], has_validation_data: bool) -> bool:
    return bool(has_validation_data or known["n_estimators"] > 1 or known["validation_fraction"])


def _patience(known: Mapping[str, Any], sizes: tuple[int, int]) -> int:
    steps_per_epoch = BatchPlan(sizes, known["batch_size"]).n_batches
    return max(defaults.PATIENCE, -(-defaults.PATIENCE_STEPS // steps_per_epoch))
