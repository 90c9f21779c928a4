"""Batched training of many runs: linear models or MLPs trained together on one device."""

from uulearn.training.batched.runs import Run
from uulearn.training.batched.trainer import BatchedTrainer, train_runs

__all__ = ["BatchedTrainer", "Run", "train_runs"]
