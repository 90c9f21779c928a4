"""Algorithm 1: one training run on two unlabeled sets.

`Trainer` is the loop, `RunOptions` holds all settings of a run except the data, the model and the risk,
`TrainingOptions` those that are rarely changed, and `History` one record per epoch. `score_rows` scores many rows.
"""

from uulearn.training.history import History
from uulearn.training.loop import Trainer
from uulearn.training.options import RunOptions, TrainingOptions
from uulearn.training.scoring import score_rows

__all__ = ["History", "RunOptions", "Trainer", "TrainingOptions", "score_rows"]
