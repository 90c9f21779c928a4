"""Training loop (Algorithm 1), training options, training history, and functions that score rows."""

from uulearn.training.history import History
from uulearn.training.loop import Trainer
from uulearn.training.options import ConsistencyOptions, RunOptions, TrainingOptions
from uulearn.training.scoring import score_rows

__all__ = ["ConsistencyOptions", "History", "RunOptions", "Trainer", "TrainingOptions", "score_rows"]
