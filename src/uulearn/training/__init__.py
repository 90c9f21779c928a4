"""Algorithm 1: one training run on two unlabeled sets.

==================  ==================================================================================
`Trainer`           the loop, as a ladder of small steps that can be overridden
`TrainingOptions`   everything that shapes a run except the data, the model and the risk
`History`           what happened, as plain data: one record an epoch
`TwoSets`           the rows of both sets, dense or sparse, on the device or streamed to it
`BatchPlan`         which rows form which batch: each row once an epoch, fixed composition
`hold_out`          rows of both sets to judge by, all copies of a row on one side
`score_rows`        scores of many rows, in chunks
==================  ==================================================================================
"""

from uulearn.training.batches import BatchPlan
from uulearn.training.history import History
from uulearn.training.holding import hold_out
from uulearn.training.loop import Trainer
from uulearn.training.options import TrainingOptions
from uulearn.training.rows import DenseRows, Rows, SparseRows, TwoSets
from uulearn.training.scoring import score_rows

__all__ = [
    "BatchPlan",
    "DenseRows",
    "History",
    "Rows",
    "SparseRows",
    "Trainer",
    "TrainingOptions",
    "TwoSets",
    "hold_out",
    "score_rows",
]
