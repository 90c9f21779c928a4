"""Train a binary classifier from two unlabeled datasets whose shares of positives differ.

>>> import uulearn
>>> uulearn.uu_coefficients(set_priors=(0.75, 0.25), target_prior=0.5)
UUCoefficients(a=0.75, b=0.25, c=0.25, d=0.75)

`UURisk` is the criterion for your own loop, `UUClassifier` the scikit-learn estimator, `datasets.make_sets` draws two
unlabeled sets from labelled data. The estimator is imported on first use, so that those who want only the loss do
not wait for scikit-learn.
"""

import importlib
from typing import TYPE_CHECKING, Any

from uulearn import exceptions, risk
from uulearn._version import __version__
from uulearn.risk import UUCoefficients, UURisk, UURiskParts, pn_risk, uu_coefficients, uu_risk

if TYPE_CHECKING:
    from uulearn import datasets, models, training
    from uulearn.estimator import UUClassifier

__all__ = [
    "UUClassifier",
    "UUCoefficients",
    "UURisk",
    "UURiskParts",
    "__version__",
    "datasets",
    "exceptions",
    "models",
    "pn_risk",
    "risk",
    "training",
    "uu_coefficients",
    "uu_risk",
]

_LAZY_MODULES = {"datasets", "estimator", "models", "training"}


def __getattr__(name: str) -> Any:
    if name == "UUClassifier":
        return importlib.import_module("uulearn.estimator").UUClassifier
    if name in _LAZY_MODULES:
        return importlib.import_module(f"uulearn.{name}")
    raise AttributeError(f"module 'uulearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
