"""Many runs at once: a stack of linear models or perceptrons trained together on one device.

===============  =====================================================================================
`Run`            what is particular to one run: its rows, risk, seed and a few numbers
`StackTrainer`   trains a stack of runs; each ends as it would have ended alone
`train_runs`     any list of runs, sorted into as few stacks as their shapes allow
===============  =====================================================================================
"""

from uulearn.training.stack.many import train_runs
from uulearn.training.stack.runs import Run
from uulearn.training.stack.trainer import StackTrainer

__all__ = ["Run", "StackTrainer", "train_runs"]
