"""Rows of two sets: storage, batches, folds, hold-out, streaming.

`TwoSets`, `DenseRows`, `SparseRows` hold the rows; `BatchPlan` says which rows form which batch; `hold_out` takes rows of
both sets for validation and keeps all copies of a row on one side.
"""

from uulearn.data.batches import BatchPlan
from uulearn.data.holdout import hold_out
from uulearn.data.rows import DenseRows, Rows, SparseRows, TwoSets

__all__ = ["BatchPlan", "DenseRows", "Rows", "SparseRows", "TwoSets", "hold_out"]
