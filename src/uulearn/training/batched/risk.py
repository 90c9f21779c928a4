"""Compute the risks of many runs with the same loss; each run has its own coefficients and correction method."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from uulearn.risk import LOSSES
from uulearn.risk.corrections import Correction, slope_below_zero
from uulearn.risk.functional import RowWeights, row_weights
from uulearn.risk.losses import MarginLoss
from uulearn.training.batched.runs import Run


class BatchedRiskParts(NamedTuple):
    """Parts of the risk of each run, each of shape (R,), in the order of `uulearn.training.history.BATCH_METRICS`."""

    positive: Tensor
    negative: Tensor
    corrected: Tensor
    objective: Tensor
    zero_one: Tensor


class BatchedRisk:
    """Risks of R runs, computed from scores of shape (R, n) in which the rows of set 0 come first."""

    def __init__(self, runs: Sequence[Run], loss: MarginLoss, device: torch.device) -> None:
        self.runs, self.loss, self.device = runs, loss, device
        self.target_prior = torch.tensor([run.target_prior for run in runs], device=device)
        methods = [run.resolved_method for run in runs]
        if any(method.objective == "surrogate" for method in methods):
            raise ValueError("batched training does not support method='surrogate'; train the models one by one.")
        self._biased = torch.tensor([m.objective == "membership" for m in methods], device=device)
        self._any_biased = bool(self._biased.any())
        functions = [[method.corrections[which] for method in methods] for which in (0, 1)]
        self._slopes = torch.tensor([[slope_below_zero(f) or 0.0 for f in each] for each in functions], device=device)
        self._others = [_other_corrections(each, device) for each in functions]
        self._weights: dict[tuple[int, int], RowWeights] = {}

    def weights(self, counts: tuple[int, int]) -> RowWeights:
        """Return row weights of shape (R, n) for a batch with the given number of rows of each set."""
        if counts not in self._weights:
            sets = torch.repeat_interleave(torch.arange(2), torch.tensor(counts))
            each = [row_weights(sets, run.coefficients) for run in self.runs]
            positive, negative, membership = (
                torch.stack([getattr(weights, name) for weights in each]).to(self.device)
                for name in ("positive", "negative", "membership")
            )
            self._weights[counts] = RowWeights(positive, negative, membership)
        return self._weights[counts]

    def risk(self, scores: Tensor, weights: RowWeights) -> BatchedRiskParts:
        """Return all parts of the risk of each run."""
        positive, negative = self._terms(scores, weights, self.loss)
        corrected = self._correct(positive, 0) + self._correct(negative, 1)
        objective = corrected
        if self._any_biased:
            biased = _weighted_sum(weights.membership.abs(), torch.sign(weights.membership) * scores, self.loss)
            objective = torch.where(self._biased, biased, corrected)
        with torch.no_grad():
            first, second = self._terms(scores, weights, LOSSES["zero_one"])
        return BatchedRiskParts(positive, negative, corrected, objective, first + second)

    def _terms(self, scores: Tensor, weights: RowWeights, loss: MarginLoss) -> tuple[Tensor, Tensor]:
        return _weighted_sum(weights.positive, scores, loss), _weighted_sum(weights.negative, -scores, loss)

    def _correct(self, terms: Tensor, which: int) -> Tensor:
        out = torch.where(terms < 0, self._slopes[which] * terms, terms)
        for mask, f in self._others[which]:
            # Apply each correction only to the terms of its own runs, because its gradient may be NaN for other terms.
            out = torch.where(mask, f(torch.where(mask, terms, 0)), out)
        return out

    def labeled_risk(self, scores: Tensor, is_positive: Tensor) -> Tensor:
        """Return the supervised risk (Eq. 2) of each run, shape (R,), from scores (R, n) and classes (n,)."""
        positive = is_positive.to(scores.dtype)
        on_positives = (self.loss(scores) * positive).sum(1) / positive.sum().clamp(min=1)
        on_negatives = (self.loss(-scores) * (1 - positive)).sum(1) / (1 - positive).sum().clamp(min=1)
        return self.target_prior * on_positives + (1 - self.target_prior) * on_negatives


def _weighted_sum(weights: Tensor, margins: Tensor, loss: MarginLoss) -> Tensor:
    """Return Σ w·ℓ(z) over rows; rows with weight zero contribute nothing, even if their loss is infinite."""
    return (weights * loss(torch.where(weights == 0, 0, margins))).sum(1)


def _other_corrections(functions: Sequence[Correction], device: torch.device) -> list[tuple[Tensor, Correction]]:
    """Return the distinct corrections other than leaky ReLUs, each with a mask of the runs that use it."""
    users: dict[int, tuple[Correction, list[bool]]] = {}
    for position, f in enumerate(functions):
        if slope_below_zero(f) is None:
            users.setdefault(id(f), (f, [False] * len(functions)))[1][position] = True
    return [(torch.tensor(mask, device=device), f) for f, mask in users.values()]
