"""Rows of two sets: storage, batches, folds, held-out rows and streaming.

`TwoSets`, `DenseRows` and `SparseRows` store the rows. `BatchPlan` assigns rows to batches. `hold_out` splits off
validation rows of both sets; all copies of a row are on the same side of the split.
"""

from uulearn.data.batches import BatchPlan
from uulearn.data.holdout import hold_out
from uulearn.data.rows import DenseRows, Rows, SparseRows, TwoSets

__all__ = ["BatchPlan", "DenseRows", "Rows", "SparseRows", "TwoSets", "hold_out"]
