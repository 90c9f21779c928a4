"""Consistency training: the model predicts, from a strong view of a batch, the labels that its average gives the rows.

The moving average of the weights (the teacher) scores the weak view, which is the batch that the risk is computed on.
Within each set, its most confident rows get pseudo-labels in the proportions of the class priors. The consistency loss
is the logistic loss of these labels on the strong view. Positive labels together have the weight π and negative labels
1 − π, so the loss has the same optimum as the risk if the class prior of the batch differs from the target prior π.

The two views pass through the model one after the other, so that each is normalized with its own batch statistics and
the pass for the risk is the same as without consistency training. Only the weak view updates the running statistics,
which the teacher and predictions use, because predicted rows are not augmented.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from uulearn.data.augmentation import StrongView, build_strong_view
from uulearn.data.batches import BatchPlan
from uulearn.risk import UURisk
from uulearn.risk.distributed import sum_over_workers
from uulearn.risk.functional import flat_scores
from uulearn.risk.pseudo_labeling import label_by_rank
from uulearn.training.options import ConsistencyOptions, RunOptions

Counts = tuple[int, int]


class Targets(NamedTuple):
    """Pseudo-labels of the rows of a batch, three tensors of shape (n,), or (R, n) for several runs."""

    positive: Tensor
    """1 if the label is positive, otherwise 0."""
    weights: Tensor
    """Weight of the row in the consistency loss; 0 without a label."""
    shares: Tensor
    """1 divided by the number of labels in the whole batch; 0 without a label."""


class StrongViewSchedule:
    """The strong view and the weight of the loss in each epoch; ``rows`` are a few scaled rows to test the view on."""

    def __init__(self, options: RunOptions, rows: Tensor) -> None:
        assert options.consistency is not None
        if not options.ema:
            raise ValueError(
                "consistency training needs the moving average of the weights as teacher, but ema is None; set "
                "ema=0.999, or consistency=None."
            )
        self.options: ConsistencyOptions = options.consistency
        self.epochs, self.device = options.epochs, rows.device
        self.view = strong_view(options, rows)
        self.weight = torch.zeros((), device=self.device)
        """Weight of the loss in this epoch; a tensor, because a CUDA graph reads it."""

    def start_epoch(self, epoch: int) -> bool:
        """Set the weight of this epoch; return whether it is above 0."""
        weight = self.options.weight_at(epoch, self.epochs)
        self.weight.fill_(weight)
        return weight > 0


class ConsistencyTerm(StrongViewSchedule):
    """Strong views, pseudo-labels and loss of consistency training in one run of a `uulearn.training.Trainer`.

    ``teacher`` is the averaged model, and ``plan`` says which rows of a batch belong to this worker.
    """

    def __init__(self, options: RunOptions, teacher: nn.Module, risk: UURisk, plan: BatchPlan, rows: Tensor) -> None:
        super().__init__(options, rows)
        self.risk, self.plan = risk, plan
        self._teacher: Callable[[Tensor], Tensor] = torch.compile(teacher) if options.compile else teacher
        self._membership: dict[Counts, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def strong(self, x: Tensor, counts: Counts) -> Tensor:
        """Return the strong view of a batch; the batch does not change."""
        return self.view(x.clone(), self.membership(counts)[0])

    @torch.no_grad()
    def targets(self, x: Tensor, counts: Counts, whole: Counts) -> Targets:
        """Return the pseudo-labels of this worker's rows ``x``; the teacher's scores of all workers are ranked."""
        scores = flat_scores(self._teacher(x))
        first, second = self.plan.own_rows(whole)
        if self.plan.workers > 1:
            own, scores = scores, scores.new_zeros(sum(whole))
            scores[first], scores[second] = own[: counts[0]], own[counts[0] :]
            scores = sum_over_workers(scores)
        labels = label_by_rank(scores, *self.membership(whole), self.options.fraction)
        found = weigh_labels(labels, self.risk.target_prior)
        return found if self.plan.workers == 1 else Targets(*(torch.cat([part[first], part[second]]) for part in found))

    def loss(self, scores: Tensor, targets: Targets) -> Tensor:
        """Return the consistency loss of the whole batch from the scores of the strong view of this worker's rows."""
        own = pseudo_label_loss(flat_scores(scores), targets)
        return own if self.plan.workers == 1 else sum_over_workers(own)

    def membership(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """Return whether each row is in set 1, and the class prior of its set."""
        if counts not in self._membership:
            in1 = torch.repeat_interleave(torch.tensor([False, True]), torch.tensor(counts)).to(self.device)
            first, second = self.risk.set_priors
            self._membership[counts] = in1, torch.where(in1, second, first)
        return self._membership[counts]


def weigh_labels(labels: Tensor, target_prior: float | Tensor) -> Targets:
    """Return the weights of pseudo-labels of shape (n,), or (R, n) with target priors of shape (R, 1)."""
    positive, negative = (labels == 1).float(), (labels == 0).float()
    n_positive, n_negative = positive.sum(-1, keepdim=True), negative.sum(-1, keepdim=True)
    weights = target_prior * positive / n_positive.clamp(min=1) + (1 - target_prior) * negative / n_negative.clamp(
        min=1
    )
    return Targets(positive, weights, (positive + negative) / (n_positive + n_negative).clamp(min=1))


def pseudo_label_loss(scores: Tensor, targets: Targets) -> Tensor:
    """Return the weighted logistic loss of the pseudo-labels, summed over the rows."""
    each = F.binary_cross_entropy_with_logits(scores, targets.positive, targets.weights, reduction="none")
    return each.sum(-1)


def agreement(scores: Tensor, targets: Targets) -> Tensor:
    """Return the fraction of the pseudo-labels of the whole batch that equal the predictions for these rows."""
    return (targets.shares * ((scores > 0) == (targets.positive == 1))).sum(-1)


def strong_view(options: RunOptions, rows: Tensor) -> StrongView:
    """Return the strong view of consistency training, after testing it on a few scaled rows."""
    own = options.consistency
    assert own is not None
    return build_strong_view(own.strong, options.augment, rows, options.image_shape, swap=own.swap, noise=own.noise)
