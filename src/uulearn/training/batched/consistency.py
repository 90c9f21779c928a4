"""Augmentation and consistency training in batched training of many runs.

Runs of a group use the same rows, so they also have the same views. Rows have shape (G, n, d); the functions in
`uulearn.data.augmentation` get them as (n, G, d), so that rows of different groups are never mixed.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from uulearn.data.augmentation import build_augmentation
from uulearn.risk.pseudo_labeling import label_by_rank
from uulearn.training.batched.runs import Run
from uulearn.training.consistency import Counts, StrongViewSchedule, Targets, weigh_labels
from uulearn.training.options import RunOptions


class BatchedViews:
    """Weak and strong views of batches, and pseudo-labels of all runs; ``rows`` are a few scaled rows."""

    def __init__(self, runs: Sequence[Run], options: RunOptions, rows: Tensor) -> None:
        augment, image_shape = options.augment, options.image_shape
        self.augment = None if augment is None else build_augmentation(augment, rows, image_shape)
        self.schedule = None if options.consistency is None else StrongViewSchedule(options, rows)
        self._priors = torch.tensor([run.set_priors for run in runs], device=rows.device)
        self._target_priors = torch.tensor([[run.target_prior] for run in runs], device=rows.device)

    def start_epoch(self, epoch: int) -> bool:
        """Set the weight of the consistency loss in this epoch; return whether it is above 0."""
        return self.schedule is not None and self.schedule.start_epoch(epoch)

    def weak(self, x: Tensor) -> Tensor:
        """Return the rows (G, n, d) that the risk is computed on."""
        return x if self.augment is None else self.augment(x.transpose(0, 1)).transpose(0, 1)

    def strong(self, x: Tensor, counts: Counts) -> Tensor:
        """Return the strong view of rows (G, n, d)."""
        assert self.schedule is not None
        return self.schedule.view(x.transpose(0, 1), self.in_set_1(counts)).transpose(0, 1)

    def targets(self, scores: Tensor, counts: Counts) -> Targets:
        """Return the pseudo-labels of each run from the scores (R, n) of its teacher."""
        assert self.schedule is not None
        in1 = self.in_set_1(counts)
        priors = torch.where(in1, self._priors[:, 1:], self._priors[:, :1])
        labels = label_by_rank(scores, in1, priors, self.schedule.options.fraction)
        return weigh_labels(labels, self._target_priors)

    def in_set_1(self, counts: Counts) -> Tensor:
        """Return whether each row of a batch is in set 1."""
        return torch.arange(sum(counts), device=self._priors.device) >= counts[0]
