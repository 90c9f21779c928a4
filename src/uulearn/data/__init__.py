"""Rows of two sets: storage, batches, folds, held-out rows and streaming.

`TwoSets`, `DenseRows` and `SparseRows` store the rows. `BatchPlan` assigns rows to batches. `hold_out` splits off rows
of both sets for validation, with all copies of a row on the same side.
"""

from uulearn.data.batches import BatchPlan
from uulearn.data.holdout import hold_out
from uulearn.data.rows import DenseRows, Rows, SparseRows, TwoSets

__all__ = ["BatchPlan", "DenseRows", "Rows", "SparseRows", "TwoSets", "hold_out"]
