"""Define the classifiers of the study of tables, and build each one from its stored configuration.

A contender is identified by its complete parameters, not by a name. The default is `UUClassifier` with default
parameters. If the defaults change, stored results of the old default become results of a variant, and results of a
variant may become those of the default. Parameters of `UUClassifier` and of `TrainingOptions` are stored together.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from shared import TRAINING_NAMES, split_parameters
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from uulearn import UUClassifier
from uulearn.defaults import SINGLE_RUN
from uulearn.estimator.resolving import resolve_defaults
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import key, normalized
from uulearn.surrogate import SurrogateSetClassifier
from uulearn.surrogate.classifier import default_estimator
from uulearn.training import TrainingOptions

Parameters = dict[str, Any]

MODELS = ("linear", "mlp")
RISK, SUPERVISED, SURROGATE = "risk", "supervised", "surrogate"
DEFAULT = "default"
LARGE_SIZES = (25_000, 25_000)
"""Sizes for which "auto" is resolved: the stored fits used the MLP of large tables for sets of all sizes."""
PAPER = ("biased", "unbiased", "abs", "relu", "leaky_relu")
AS_PRINTED: Parameters = SINGLE_RUN | {
    "slope": -0.1, "optimizer": "adam", "optimizer_params": None, "scheduler": None, "weight_decay": 0.0,
    "clip_norm": None, "ema": None, "self_training_rounds": 0,
}  # fmt: skip
"""Training as in the paper: on all rows, to the last epoch. Epochs and batch size are those of the default."""
LOGISTIC = "logistic regression on sets"
BOOSTING = "boosting on sets"
PLAIN_BOOSTING = "unrestrained boosting on sets"
NOT_COMPARED = {
    "set_priors", "target_prior", "model", "device", "compile", "progress", "random_state", "checkpoint_dir",
    "checkpoint_every", "training", "encoder",
}  # fmt: skip
"""Parameters that a cell fixes, or that do not change the trained model."""


@functools.cache
def _surrogates() -> dict[str, tuple[Any, str | None]]:
    """Return classifiers of sets with their calibration; with None, the threshold is computed from the priors."""
    return {
        LOGISTIC: (LogisticRegression(max_iter=1000), None),
        BOOSTING: (default_estimator(), "mixture"),
        PLAIN_BOOSTING: (HistGradientBoostingClassifier(), "mixture"),
    }


@dataclass(frozen=True)
class Contender:
    """One column of a table; ``model`` is None if it is not a torch model."""

    name: str
    kind: str
    model: str | None
    parameters: Parameters

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration that identifies the contender in the records."""
        return {"kind": self.kind, "model": self.model, "parameters": switched_on(self.parameters)}

    @functools.cached_property
    def key(self) -> str:
        """The hash of the configuration."""
        return key(self.configuration)


def default_parameters(model: str, changes: Mapping[str, Any] | None = None) -> Parameters:
    """Return all parameters of `UUClassifier` and `TrainingOptions`: the changed ones, and the defaults of a model.

    "auto" is resolved, so that a changed rule results in another contender, except for the patience, which depends on
    the number of rows.
    """
    changes = dict(changes or {})
    own = UUClassifier((1.0, 0.0), model=model).get_params(deep=False)
    every = own | {name: getattr(TrainingOptions(), name) for name in TRAINING_NAMES}
    unknown = sorted(changes.keys() - (every.keys() - NOT_COMPARED))
    if unknown:
        known = ", ".join(sorted(every.keys() - NOT_COMPARED))
        raise ValueError(f"{unknown[0]!r} is not a parameter that can be varied; choose from {known}.")
    asked = every | changes
    resolved = asked | resolve_defaults(asked, LARGE_SIZES) | {"patience": asked["patience"]}
    return {name: value for name, value in resolved.items() if name not in NOT_COMPARED}


def switched_on(parameters: Mapping[str, Any]) -> Parameters:
    """Return the parameters that are not None or False, so that a new disabled option changes no configuration.

    Examples
    --------
    >>> switched_on({"lr": 1e-3, "epochs": 200.0, "ema": None, "calibrated": False, "slope": 0})
    {'lr': 0.001, 'epochs': 200, 'slope': 0}
    """
    found: Parameters = normalized({name: value for name, value in parameters.items() if not _off(value)})
    return found


def _off(value: Any) -> bool:
    return value is None or value is False


def planned(
    models: Iterable[str] = MODELS,
    also: Iterable[Mapping[str, Any]] = (),
    base: Mapping[str, Any] | None = None,
) -> list[Contender]:
    """Return all contenders, fast ones first; ``base`` changes the default and all contenders derived from it."""
    models, base = tuple(models), dict(base or {})
    found = [
        Contender(name, SURROGATE, None, {"estimator": _text(estimator), "calibration": calibration})
        for name, (estimator, calibration) in _surrogates().items()
    ]
    for model in models:
        default = default_parameters(model, base)
        shared = {name: default[name] for name in ("epochs", "batch_size")}
        found.append(Contender(DEFAULT, RISK, model, default))
        for method in PAPER:
            found.append(
                Contender(method, RISK, model, default_parameters(model, {**AS_PRINTED, **shared, "method": method}))
            )
        found.append(Contender(SUPERVISED, SUPERVISED, model, default))
    for changes in also:
        for model in models:
            found.append(Contender(variant_name(changes), RISK, model, default_parameters(model, {**base, **changes})))
    return found


def variant_name(changes: Mapping[str, Any]) -> str:
    """Return a name that lists the differences from the default.

    Examples
    --------
    >>> variant_name({"n_estimators": 5, "early_stopping": True, "ema": None})
    'n_estimators 5, early_stopping True, ema None'
    """
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def recognized(configuration: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Contender:
    """Return the contender of a stored fit that is not planned, named by its differences from the default."""
    parameters = dict(configuration["parameters"])
    if configuration["kind"] == RISK:
        default = switched_on(default_parameters(configuration["model"], base))
        names = [*parameters, *(name for name in default if name not in parameters)]
        name = variant_name({n: parameters.get(n) for n in names if parameters.get(n) != default.get(n)})
    else:
        name = f"{configuration['kind']}: {variant_name(parameters)}"
    return Contender(name, configuration["kind"], configuration["model"], parameters)


def build(configuration: Mapping[str, Any], priors: tuple[float, float], target_prior: float) -> Any:
    """Return the unfitted classifier, with the seed of the cell."""
    seed, parameters = configuration["seed"], configuration["parameters"]
    if configuration["kind"] == SURROGATE:
        known = {_text(estimator): estimator for estimator, _ in _surrogates().values()}
        estimator = clone(known[parameters["estimator"]]).set_params(random_state=seed)
        return SurrogateSetClassifier(
            priors, target_prior, estimator=estimator, calibration=parameters.get("calibration"), random_state=seed
        )
    off = {
        name: False if isinstance(value, bool) else None
        for name, value in default_parameters(configuration["model"]).items()
    }
    own, training = split_parameters({**off, **parameters})
    return UUClassifier(
        (1.0, 0.0) if configuration["kind"] == SUPERVISED else priors,
        target_prior, model=configuration["model"], device="cpu", progress=False, random_state=seed,
        training=TrainingOptions(**training), **own,
    )  # fmt: skip


def try_out(contender: Contender) -> None:
    """Train on a few rows for one epoch, so that `UUClassifier` raises if the parameters are wrong."""
    rng = np.random.default_rng(0)
    parameters = {**contender.parameters, "epochs": 1}
    configuration = {**contender.configuration, "parameters": parameters, "seed": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)  # the rows are noise
        build(configuration, (0.8, 0.2), 0.5).fit(rng.normal(size=(60, 2)), np.repeat([0, 1], 30))


def _text(estimator: Any) -> str:
    return " ".join(repr(estimator).split())
