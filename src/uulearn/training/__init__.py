"""Algorithm 1: one training run on two unlabeled sets.

`Trainer` is the loop, a ladder of small steps that can be overridden. `RunOptions` holds all settings of a run except the
data, the model and the risk; `TrainingOptions` are those that are rarely changed. `History` has one record per epoch.
`score_rows` scores many rows in chunks.
"""

from uulearn.training.history import History
from uulearn.training.loop import Trainer
from uulearn.training.options import RunOptions, TrainingOptions
from uulearn.training.scoring import score_rows

__all__ = ["History", "RunOptions", "Trainer", "TrainingOptions", "score_rows"]
