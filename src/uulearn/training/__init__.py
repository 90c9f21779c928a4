"""Training (Algorithm 1): the loop, its options and history, and functions that score many rows."""

from uulearn.training.history import History
from uulearn.training.loop import Trainer
from uulearn.training.options import RunOptions, TrainingOptions
from uulearn.training.scoring import score_rows

__all__ = ["History", "RunOptions", "Trainer", "TrainingOptions", "score_rows"]
