"""Choosing without labels: scorers and splitters for scikit-learn's searches.

==============  =================================================================================================
`UUScorer`      what a search maximises: accuracy, balanced accuracy or AUC, estimated from two unlabeled sets
`SetKFold`      folds that hold rows of both sets, all copies of a row in one
==============  =================================================================================================
"""

from uulearn.selection.scorers import UUScorer
from uulearn.selection.splitters import SetKFold

__all__ = ["SetKFold", "UUScorer"]
