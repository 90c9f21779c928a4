"""Model selection without labels: a search, scorers and splitters for scikit-learn, and sensitivity to wrong priors.

===================  ===============================================================================================
`UUClassifierCV`     evaluates every setting out of fold; the best one is ready to use
`UUScorer`           what a search maximizes: accuracy, balanced accuracy or AUC, estimated from two unlabeled sets
`SetKFold`           folds with rows of both sets, all copies of a row in one fold
`prior_sensitivity`  how the classifier and its estimated accuracy change if θ, θ′ or π are wrong
===================  ===============================================================================================
"""

from uulearn.selection.scorers import UUScorer
from uulearn.selection.search import Candidate, UUClassifierCV
from uulearn.selection.sensitivity import Sensitivity, SensitivityRow, prior_sensitivity
from uulearn.selection.splitters import SetKFold
from uulearn.selection.trials import Executor

__all__ = [
    "Candidate",
    "Executor",
    "Sensitivity",
    "SensitivityRow",
    "SetKFold",
    "UUClassifierCV",
    "UUScorer",
    "prior_sensitivity",
]
