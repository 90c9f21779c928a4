"""Choosing without labels: a search of its own, scorers and splitters for scikit-learn's, and doubtful priors.

===================  ============================================================================================
`UUClassifierCV`     every setting cross-fitted, as stacks where it can be; the best one is ready to use
`UUScorer`           what a search maximises: accuracy, balanced accuracy or AUC, estimated from two unlabeled sets
`SetKFold`           folds that hold rows of both sets, all copies of a row in one
`prior_sensitivity`  what becomes of the classifier and of its estimated accuracy where θ, θ′ or π are wrong
===================  ============================================================================================
"""

from uulearn.selection.scorers import UUScorer
from uulearn.selection.search import Candidate, UUClassifierCV
from uulearn.selection.sensitivity import Sensitivity, SensitivityRow, prior_sensitivity
from uulearn.selection.splitters import SetKFold

__all__ = [
    "Candidate",
    "Sensitivity",
    "SensitivityRow",
    "SetKFold",
    "UUClassifierCV",
    "UUScorer",
    "prior_sensitivity",
]
