"""Refinement: the rows are sorted anew, by models that have not seen them, into two purer sets, and trained on again.

Models of all folds score the rows of the fold they have not seen. How many of each original set they call positive
gives their true- and false-positive rate without labels, and with them the shares of positives among the rows called
positive and among those called negative: two new sets, much further apart than the original ones. Training on these
is a round. Rows are not sorted at random, so that what a round gains is not guaranteed; whether it gained anything is
asked of the original sets, with the models' scores for rows they have not seen, and the answer may be no. A yes is too
easily given: no model has seen the rows it is judged by, but the rows it learned from were sorted by models that have,
and something of the sets those rows came from is handed on to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uulearn.metrics import Estimate, Judgement, judge, uu_gain
from uulearn.training import TwoSets
from uulearn.training.crossfit import CrossFit
from uulearn.training.holding import Positions

LEAST_GAP = 0.05
"""Rates that are nearer than this sort the rows hardly better than chance."""
Train = Callable[[TwoSets, tuple[Positions, Positions], tuple[float, float], int], CrossFit]


@dataclass(frozen=True)
class Round:
    """One round: the sets that were trained on, and what the models of all folds are worth on the original ones."""

    number: int
    set_priors: tuple[float, float]
    set_sizes: tuple[int, int]
    judgement: Judgement
    """Too high after the first training, the more so the better the models remember rows."""
    gain: Estimate | None
    """Over the best round before it, in accuracy; None for the first training. Rather too high for round 1."""
    better: bool
    """Whether it was taken in the place of the best round before it."""


@dataclass(frozen=True)
class Refinement:
    """All rounds, and the models of the best."""

    rounds: list[Round]
    best: CrossFit
    scores: tuple[Tensor, Tensor]
    """Scores of the original sets' rows by the best models, each row's by the model of its fold."""
    stop_reason: str

    @property
    def kept(self) -> int:
        """The number of the round whose models were kept."""
        return max(round_.number for round_ in self.rounds if round_.better)


def refine(
    train: Train,
    data: TwoSets,
    folds: tuple[Positions, Positions],
    set_priors: tuple[float, float],
    target_prior: float,
    *,
    rounds: int,
    doubt: float = 1.0,
) -> Refinement:
    """Train, sort, train again, and keep the best round.

    Parameters
    ----------
    train : callable
        Trains the models of all folds, given sets, the fold of each of their rows, priors, and the round's number.
    data, folds
        The original sets, as row numbers of one table (`TwoSets.joined`), and the fold of each row.
    set_priors, target_prior
        (θ, θ′) of the original sets, and π.
    rounds : int
        How many rounds after the first training.
    doubt : float
        A round is taken when its estimated gain exceeds this many standard errors; the rounds go on from the best.
    """
    sets = np.repeat([0, 1], data.sizes)
    best = train(data, folds, set_priors, 0)
    scores = torch.cat(best.scores)
    judgement = judge(scores.numpy(), sets, set_priors, target_prior)
    done = [Round(0, set_priors, data.sizes, judgement, None, True)]
    reason = f"all {rounds} rounds done"
    for number in range(1, rounds + 1):
        sorted_rows = _sort(data, folds, scores, judgement, set_priors)
        if isinstance(sorted_rows, str):
            reason = sorted_rows
            break
        new, new_folds, priors, places = sorted_rows
        fitted = train(new, new_folds, priors, number)
        found = torch.empty_like(scores)
        found[torch.from_numpy(places)] = torch.cat(fitted.scores)
        gain = uu_gain(found.numpy(), scores.numpy(), sets, set_priors, target_prior)
        judged = judge(found.numpy(), sets, set_priors, target_prior)
        better = gain.value > doubt * gain.standard_error
        done.append(Round(number, priors, new.sizes, judged, gain, better))
        if not better:
            reason = f"round {number} was no better"
            break
        best, scores, judgement = fitted, found, judged
    first, second = torch.split(scores, list(data.sizes))
    return Refinement(done, best, (first, second), reason)


def _sort(
    data: TwoSets,
    folds: tuple[Positions, Positions],
    scores: Tensor,
    judgement: Judgement,
    set_priors: tuple[float, float],
) -> tuple[TwoSets, tuple[Positions, Positions], tuple[float, float], Positions] | str:
    """The new sets with their folds and priors, and the places of their rows among the original ones; or why not."""
    t, f = (min(max(e.value, 0.0), 1.0) for e in (judgement.true_positive_rate, judgement.false_positive_rate))
    if t - f < LEAST_GAP:
        return f"the models tell the classes apart too badly to sort rows by them (rates {t:.3f} and {f:.3f})"
    positive = scores.numpy() > 0
    n_folds = 1 + max(int(part.max()) for part in folds)
    fold = np.concatenate(folds)
    places = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    for place in places:
        if len(np.unique(fold[place])) < n_folds:
            return "too few rows are predicted to be of one class to make folds of them"
    share = float(np.average(set_priors, weights=data.sizes))
    priors = (
        share * t / (share * t + (1 - share) * f),
        share * (1 - t) / (share * (1 - t) + (1 - share) * (1 - f)),
    )
    index = torch.cat([part for part in data.index if part is not None])
    new = TwoSets(data.rows, (index[torch.from_numpy(places[0])], index[torch.from_numpy(places[1])]))
    return new, (fold[places[0]], fold[places[1]]), priors, np.concatenate(places)
