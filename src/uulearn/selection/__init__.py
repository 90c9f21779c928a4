"""Model selection without labels: search, scikit-learn scorers and splitters, and sensitivity to wrong priors."""

from uulearn.selection.scorers import UUScorer
from uulearn.selection.search import Candidate, UUClassifierCV
from uulearn.selection.sensitivity import Sensitivity, SensitivityRow, prior_sensitivity
from uulearn.selection.splitters import SetKFold
from uulearn.selection.trials import Executor

__all__ = [
    "Candidate", "Executor", "Sensitivity", "SensitivityRow", "SetKFold", "UUClassifierCV", "UUScorer",
    "prior_sensitivity",
]  # fmt: skip
