"""Many runs at once: a stack of linear models or MLPs trained together on one device.

===============  =====================================================================================
`Run`            what is particular to one run: its rows, risk, seed and a few numbers
`BatchedTrainer`   trains a stack of runs; each ends as it would have ended alone
`train_runs`     any list of runs, sorted into as few stacks as their shapes allow
===============  =====================================================================================
"""

from uulearn.training.batched.many import train_runs
from uulearn.training.batched.runs import Run
from uulearn.training.batched.trainer import BatchedTrainer

__all__ = ["BatchedTrainer", "Run", "train_runs"]
