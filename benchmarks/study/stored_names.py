"""Parameter names of stored records: they were written before `UUClassifier` renamed its parameters.

Stored records are flat, with ``members``, ``rounds`` and ``keep``; the classifier has ``n_estimators``,
``self_training_rounds`` and ``early_stopping``, and its rarely used options in `TrainingOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uulearn import UUClassifier

CURRENT = {"members": "n_estimators", "rounds": "self_training_rounds", "keep": "early_stopping"}
STORED = {current: stored for stored, current in CURRENT.items()}
EPOCHS = {"best": True, "last": False}
PREFIX = "training__"


def to_current(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Names for ``UUClassifier.set_params``.

    >>> to_current({"members": 5, "keep": "best", "ema": None, "lr": 0.1})
    {'n_estimators': 5, 'early_stopping': True, 'training__ema': None, 'lr': 0.1}
    """
    known = UUClassifier(None).get_params(deep=True)
    found = {}
    for name, value in parameters.items():
        current = CURRENT.get(name, name if name in known else f"{PREFIX}{name}")
        found[current] = EPOCHS.get(value, value) if name == "keep" else value
    return found


def to_stored(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `to_current`, for the parameters of ``UUClassifier.get_params``.

    >>> to_stored({"n_estimators": 5, "early_stopping": True, "training__ema": None, "lr": 0.1, "training": None})
    {'members': 5, 'keep': 'best', 'ema': None, 'lr': 0.1}
    """
    epochs = {value: name for name, value in EPOCHS.items()}
    found = {}
    for name, value in parameters.items():
        if name == "training":
            continue
        plain = isinstance(value, bool) and name == "early_stopping"
        found[STORED.get(name, name.removeprefix(PREFIX))] = epochs[value] if plain else value
    return found


def make_classifier(set_priors: Any, target_prior: float, **parameters: Any) -> UUClassifier:
    """A classifier with the parameters of a record."""
    return UUClassifier(set_priors, target_prior).set_params(**to_current(parameters))
