"""Treat more than two sets as two groups.

The rows of several sets form a group, whose class prior is the mean prior of its rows. Two groups are two unlabeled
sets, so folds, calibration and evaluation without labels work as for two sets. The training risk
(`uulearn.risk.multi_set_coefficients`) uses the class prior of each row's own set.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uulearn.data.rows import Rows, TwoSets
from uulearn.data.streams import StreamedSets
from uulearn.priors.bags import merge_bags


@dataclass(frozen=True)
class SetGroups:
    """Assignment of m sets to two groups; group 0 contains the sets with the higher class priors.

    >>> groups = SetGroups.from_sets(torch.tensor([0, 1, 1, 2, 2, 2]), (0.1, 0.9, 0.8), 0.5)
    >>> groups.assignment, groups.priors(torch.tensor([0, 1, 2, 2]))
    (tensor([1, 0, 0]), (0.833..., 0.1))
    """

    assignment: Tensor
    """Group of each set, 0 or 1, shape (m,)."""
    set_priors: tuple[float, ...]

    @classmethod
    def from_sets(cls, sets: Tensor, set_priors: Sequence[float], target_prior: float) -> "SetGroups":
        """Choose the groups that estimate the error most precisely; ``sets`` contains the set of each row."""
        sizes = torch.bincount(sets, minlength=len(set_priors)).tolist()
        merged = merge_bags(set_priors, sizes, target_prior=target_prior, drop=False)
        return cls(torch.from_numpy(merged.assignment), tuple(map(float, set_priors)))

    def of_rows(self, sets: Tensor) -> Tensor:
        """Return the group of each row, 0 or 1."""
        return self.assignment[sets]

    def priors(self, sets: Tensor) -> tuple[float, float]:
        """Return the class prior of the rows in each group."""
        own, groups = torch.tensor(self.set_priors, dtype=torch.float64)[sets], self.of_rows(sets)
        return own[groups == 0].mean().item(), own[groups == 1].mean().item()

    def split(self, rows: Rows, sets: Tensor) -> TwoSets:
        """Return the rows of both groups, together with the set of each row."""
        groups = self.of_rows(sets)
        first, second = ((groups == which).nonzero().flatten() for which in (0, 1))
        return TwoSets((rows, rows), (first, second), (sets[first], sets[second]))


def pooled_priors(data: TwoSets | StreamedSets, set_priors: Sequence[float]) -> tuple[float, float]:
    """Return the class priors of the two sets or, if they are groups of sets, the mean prior of the rows of each."""
    if data.origins is None:
        first, second = set_priors
        return first, second
    priors = np.asarray(set_priors, dtype=np.float64)
    first, second = (float(priors[own.cpu().numpy()].mean()) for own in data.origins)
    return first, second


def set_sizes(data: TwoSets | StreamedSets, n_sets: int) -> tuple[int, ...]:
    """Return the number of rows of each set, also if the two sets are groups of sets."""
    if data.origins is None:
        return data.sizes
    return tuple(torch.bincount(torch.cat(data.origins).cpu(), minlength=n_sets).tolist())


def set_name(data: TwoSets | StreamedSets, which: int) -> str:
    """Return the name of a set, or of a group of sets, in messages."""
    return f"set {which}" if data.origins is None else f"the group of sets with the {('higher', 'lower')[which]} priors"
