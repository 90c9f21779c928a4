"""Who is compared in the study of tables, and how each is built from what is stored about it.

A contender is known by its complete parameters, not by a name: the default is whatever `UUClassifier` does when nothing
is set, and when that changes, the old results become those of a variant and a variant's may become the default's.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from stored_names import make_classifier, to_stored

from uulearn import UUClassifier
from uulearn.defaults import SINGLE_RUN
from uulearn.estimator import resolve_defaults
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import key, normalised
from uulearn.surrogate import SurrogateSetClassifier
from uulearn.surrogate.classifier import default_estimator

Parameters = dict[str, Any]

MODELS = ("linear", "mlp")
RISK, SUPERVISED, SURROGATE = "risk", "supervised", "surrogate"
DEFAULT = "default"
USUAL_SIZES = (1000, 1000)
PAPER = ("biased", "unbiased", "abs", "relu", "leaky_relu")
AS_PRINTED: Parameters = to_stored(SINGLE_RUN) | {
    "slope": -0.1, "optimizer": "adam", "optimizer_params": None, "scheduler": None, "weight_decay": 0.0,
    "clip_norm": None, "ema": None, "rounds": 0,
}  # fmt: skip
"""How the paper trains: all rows, the weights of the last epoch. Epochs and batch size are those of the default."""
LOGISTIC = "logistic regression on sets"
BOOSTING = "boosting on sets"
PLAIN_BOOSTING = "unrestrained boosting on sets"
NOT_COMPARED = {
    "set_priors", "target_prior", "model", "device", "compile", "progress", "random_state", "checkpoint_dir",
    "checkpoint_every",
}  # fmt: skip
"""Parameters that a cell fixes, or that do not change what is learned."""


@functools.cache
def _surrogates() -> dict[str, tuple[Any, str | None]]:
    """Classifiers of sets, and their calibration; none leaves the threshold that follows from the priors."""
    return {
        LOGISTIC: (LogisticRegression(max_iter=1000), None),
        BOOSTING: (default_estimator(), "mixture"),
        PLAIN_BOOSTING: (HistGradientBoostingClassifier(), "mixture"),
    }


@dataclass(frozen=True)
class Contender:
    """One column of a table; ``model`` is None for what is no torch model."""

    name: str
    kind: str
    model: str | None
    parameters: Parameters

    @property
    def configuration(self) -> dict[str, Any]:
        """What it is known by."""
        return {"kind": self.kind, "model": self.model, "parameters": switched_on(self.parameters)}

    @property
    def key(self) -> str:
        """A digest of that."""
        return key(self.configuration)


def default_parameters(model: str, changes: Mapping[str, Any] | None = None) -> Parameters:
    """All parameters of `UUClassifier`, with these changed and the others as they come for a model.

    What is "auto" is settled, so that a later rule makes another contender; but for the patience, which goes by the
    number of rows.
    """
    changes = dict(changes or {})
    every = to_stored(UUClassifier((1.0, 0.0), model=model).get_params(deep=True))
    unknown = sorted(changes.keys() - (every.keys() - NOT_COMPARED))
    if unknown:
        known = ", ".join(sorted(every.keys() - NOT_COMPARED))
        raise ValueError(f"{unknown[0]!r} is no parameter to vary here; there are {known}.")
    asked = every | changes
    own = make_classifier(asked.pop("set_priors"), asked.pop("target_prior"), **asked).get_params(deep=False)
    settled = asked | to_stored(resolve_defaults(own, USUAL_SIZES)) | {"patience": asked["patience"]}
    return {name: value for name, value in settled.items() if name not in NOT_COMPARED}


def switched_on(parameters: Mapping[str, Any]) -> Parameters:
    """The parameters that do something: what is None or False is left out, as a later option that is off will be.

    Examples
    --------
    >>> switched_on({"lr": 1e-3, "epochs": 200.0, "ema": None, "calibrated": False, "rounds": 0})
    {'lr': 0.001, 'epochs': 200, 'rounds': 0}
    """
    found: Parameters = normalised({name: value for name, value in parameters.items() if not _off(value)})
    return found


def _off(value: Any) -> bool:
    return value is None or value is False


def planned(
    models: Iterable[str] = MODELS,
    also: Iterable[Mapping[str, Any]] = (),
    base: Mapping[str, Any] | None = None,
) -> list[Contender]:
    """Everyone, the cheap ones first; ``base`` changes the default itself, and all that follows it."""
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
    """What differs from the default, in words.

    Examples
    --------
    >>> variant_name({"members": 5, "keep": "best", "ema": None})
    'members 5, keep best, ema None'
    """
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def recognised(configuration: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> Contender:
    """The contender behind a stored fit that is not among those planned, named by what differs from the default."""
    parameters = dict(configuration["parameters"])
    if configuration["kind"] == RISK:
        default = switched_on(default_parameters(configuration["model"], base))
        names = [*parameters, *(name for name in default if name not in parameters)]
        name = variant_name({n: parameters.get(n) for n in names if parameters.get(n) != default.get(n)})
    else:
        name = f"{configuration['kind']}: {variant_name(parameters)}"
    return Contender(name, configuration["kind"], configuration["model"], parameters)


def build(configuration: Mapping[str, Any], priors: tuple[float, float], target_prior: float) -> Any:
    """The classifier, not yet fitted; the seed of the cell is its seed too."""
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
    return make_classifier(
        (1.0, 0.0) if configuration["kind"] == SUPERVISED else priors,
        target_prior, model=configuration["model"], device="cpu", progress=False, random_state=seed,
        **{**off, **parameters},
    )  # fmt: skip


def try_out(contender: Contender) -> None:
    """Raise what `UUClassifier` has to say about these parameters, on a few rows and for one epoch."""
    rng = np.random.default_rng(0)
    parameters = {**contender.parameters, "epochs": 1}
    configuration = {**contender.configuration, "parameters": parameters, "seed": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)  # the rows are noise
        build(configuration, (0.8, 0.2), 0.5).fit(rng.normal(size=(60, 2)), np.repeat([0, 1], 30))


def _text(estimator: Any) -> str:
    return " ".join(repr(estimator).split())
