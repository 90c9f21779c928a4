"""Model selection without labels: search, scikit-learn scorers and splitters, and sensitivity to wrong priors."""

from typing import TYPE_CHECKING, Any

from uulearn.selection.scorers import UUScorer
from uulearn.selection.search import Candidate, UUClassifierCV
from uulearn.selection.sensitivity import Sensitivity, SensitivityRow, prior_sensitivity
from uulearn.selection.trials import Executor

if TYPE_CHECKING:
    from uulearn.selection.splitters import SetKFold

__all__ = [
    "Candidate", "Executor", "Sensitivity", "SensitivityRow", "SetKFold", "UUClassifierCV", "UUScorer",
    "prior_sensitivity",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "SetKFold":  # imported on first use, because scikit-learn's splitters take time to import
        from uulearn.selection.splitters import SetKFold

        return SetKFold
    raise AttributeError(f"module 'uulearn.selection' has no attribute {name!r}")
