"""Batched training of many runs: linear models or MLPs trained together on one device.

`Run` holds the settings of one run: its rows, risk, seed and rates. `BatchedTrainer` trains runs with sets of equal
sizes; each ends like a single run. `train_runs` trains any list of runs, grouped by the sizes of their sets.
"""

from uulearn.training.batched.runs import Run
from uulearn.training.batched.trainer import BatchedTrainer, train_runs

__all__ = ["BatchedTrainer", "Run", "train_runs"]
