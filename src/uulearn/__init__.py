"""Train a binary classifier from two unlabeled datasets whose shares of positives differ.

>>> import uulearn
>>> uulearn.uu_coefficients(set_priors=(0.75, 0.25), target_prior=0.5)
UUCoefficients(a=0.75, b=0.25, c=0.25, d=0.75)

`UURisk` is the criterion for your own loop, `UUClassifier` the scikit-learn estimator, `datasets.make_sets` draws two
unlabeled sets from labelled data. `metrics` judges without labels, `selection` chooses, `calibration` gives
probabilities, `priors` finds the shares of positives, `surrogate` makes any classifier learn from two or more sets,
`theory` plans.

Every name is imported on first use, so that those who want only the loss do not wait for scikit-learn, and the command
line answers ``--help`` without waiting for torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from uulearn._version import __version__

if TYPE_CHECKING:
    from uulearn import (
        calibration,
        datasets,
        exceptions,
        metrics,
        models,
        priors,
        risk,
        selection,
        surrogate,
        theory,
        training,
    )
    from uulearn.estimator import UUClassifier
    from uulearn.risk import UUCoefficients, UURisk, UURiskParts, pn_risk, uu_coefficients, uu_risk

__all__ = [
    "UUClassifier",
    "UUCoefficients",
    "UURisk",
    "UURiskParts",
    "__version__",
    "calibration",
    "datasets",
    "exceptions",
    "metrics",
    "models",
    "pn_risk",
    "priors",
    "risk",
    "selection",
    "surrogate",
    "theory",
    "training",
    "uu_coefficients",
    "uu_risk",
]

_MODULES = {
    "calibration", "datasets", "exceptions", "metrics", "models", "priors", "risk", "selection", "surrogate", "theory",
    "training",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"uulearn.{name}")
    if name in __all__:
        home = "uulearn.estimator" if name == "UUClassifier" else "uulearn.risk"
        return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'uulearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
