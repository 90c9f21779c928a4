"""Train a binary classifier from two unlabeled datasets with different class priors.

>>> import uulearn
>>> uulearn.uu_coefficients(set_priors=(0.75, 0.25), target_prior=0.5)
UUCoefficients(a=0.75, b=0.25, c=0.25, d=0.75)

`UUClassifier` is the scikit-learn estimator, `UURisk` is the criterion for custom training loops, and
`datasets.make_sets` draws two unlabeled sets from labeled data. `metrics` evaluates and calibrates without labels,
`selection` chooses parameters, `priors` estimates class priors, `surrogate` trains any classifier on two or more sets,
`theory` computes bounds and sample sizes, `tabular` encodes data frames, `streaming` reads sets larger than memory, and
`export` writes ONNX files.

Names are imported on first use: importing the loss does not import scikit-learn, and ``uulearn --help`` does not import
torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from uulearn._version import __version__

if TYPE_CHECKING:
    from uulearn import (
        data,
        datasets,
        exceptions,
        export,
        metrics,
        models,
        priors,
        risk,
        selection,
        streaming,
        surrogate,
        tabular,
        theory,
        training,
    )
    from uulearn.estimator import UUClassifier
    from uulearn.risk import UUCoefficients, UURisk, UURiskParts, pn_risk, pseudo_labels, uu_coefficients, uu_risk

__all__ = [
    "UUClassifier", "UUCoefficients", "UURisk", "UURiskParts", "__version__", "data", "datasets", "exceptions",
    "export", "metrics", "models", "pn_risk", "priors", "pseudo_labels", "risk", "selection", "streaming", "surrogate",
    "tabular", "theory", "training", "uu_coefficients", "uu_risk",
]  # fmt: skip

_HOMES = {"UUClassifier": "uulearn.estimator"} | dict.fromkeys(
    ["UUCoefficients", "UURisk", "UURiskParts", "pn_risk", "pseudo_labels", "uu_coefficients", "uu_risk"],
    "uulearn.risk",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"uulearn.{name}")
    raise AttributeError(f"module 'uulearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
