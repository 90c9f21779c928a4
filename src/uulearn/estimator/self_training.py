"""Self-training: models relabel the rows into two purer sets and are trained on them again.

Every row is scored by the model that was not trained on its fold. The numbers of rows of each original set that are
predicted positive give the true- and false-positive rates without labels, and with them the class priors of the rows
predicted positive and of those predicted negative. These pseudo-labeled rows form two new sets whose priors are much
further apart than the original ones. Training on them is a round.

Pseudo-labels are not random, so a round may gain or lose accuracy, and out-of-fold scores cannot tell: a model has not
seen the rows of its fold, but the rows it learned from were labeled by models that have. So the number of rounds is
chosen on halves of the rows. Each half runs the rounds on its own, and the ensemble of every round scores the other
half, which neither its models nor those that labeled their rows have seen. The rounds are compared on these scores,
with the original sets and priors; the best number of rounds may be 0. The chosen number is then run on all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uulearn.data import Rows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.data.holdout import Positions
from uulearn.estimator.learners import Folds, Priors
from uulearn.estimator.out_of_fold import OutOfFold
from uulearn.estimator.resolving import PURE_PRIORS
from uulearn.metrics import Estimate, Evaluation, evaluate, uu_accuracy_difference

# Difference of the true- and false-positive rates below which pseudo-labels are hardly better than chance.
MIN_RATE_GAP = 0.05


class Stage(NamedTuple):
    """Which training it is: the number of the round, 0 for the first, and the half of the rows, None for all."""

    number: int
    half: int | None

    @property
    def is_first(self) -> bool:
        """Whether it is the first training on all rows, which a fit without self-training does as well."""
        return self == (0, None)

    def seed(self, seed: int) -> int:
        """The seed of the stage, derived from that of the fit."""
        if self.is_first:
            return seed
        entropy = [seed, self.number, 1 if self.half is None else 2 + self.half]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    @property
    def path(self) -> tuple[str, ...]:
        """The checkpoint folder of the stage, in parts."""
        half = () if self.half is None else (f"half-{self.half}",)
        return (*half, f"round-{self.number}") if self.number else half


Train = Callable[[TwoSets, Folds, Priors, Stage], OutOfFold]
Score = Callable[[OutOfFold, Rows], Tensor]


@dataclass(frozen=True)
class Round:
    """One round: the pseudo-labeled sets, and what training on them gained."""

    number: int
    set_priors: Priors
    """Estimated class priors of the sets; the mean of both halves if the round was run on halves only."""
    set_sizes: tuple[int, int]
    """The sum of both halves if the round was run on halves only."""
    evaluation: Evaluation
    """Of the ensembles of each half on the other half: unbiased, but lower than for models of all rows."""
    gain: Estimate | None
    """Accuracy gained over the best round before, on the same scores; None for the first training."""
    better: bool
    """Whether it replaced the best round before it. The last such round is used."""


@dataclass(frozen=True)
class SelfTraining:
    """All rounds, and the models of the best one."""

    rounds: list[Round]
    best_round: int
    best: OutOfFold
    """Models of the best round, trained on all rows."""
    scores: tuple[Tensor, Tensor]
    """Scores of the original sets by models that were not influenced by them: out-of-fold scores if no round was used,
    else those of the best round's ensembles of the other half."""
    stop_reason: str


def self_train(
    train: Train,
    score: Score,
    data: TwoSets,
    folds: Folds,
    set_priors: Priors,
    target_prior: float,
    *,
    rounds: int,
    seed: int,
    pure: bool = True,
    min_gain: float = 1.0,
) -> SelfTraining:
    """Choose the number of rounds on halves of the rows, then run that many on all rows.

    Parameters
    ----------
    train : callable
        Trains the models of all folds, given sets, the fold of each of their rows, priors, and the `Stage`.
    score : callable
        Scores rows, shape (n,), with the ensemble of the models.
    data, folds
        The original sets as rows of one table (`TwoSets.joined`), and the fold of each row.
    set_priors, target_prior
        (θ, θ′) of the original sets, and π.
    rounds : int
        Maximum number of rounds.
    seed : int
        Seed of the split into halves and of the folds of the halves.
    pure : bool
        Whether pseudo-labeled sets are trained on as if the labels were right, instead of with their estimated priors.
    min_gain : float
        A round replaces the best one before it if its estimated gain exceeds this number of standard errors.
    """
    pool = _Pool(data, folds, set_priors, target_prior, None)
    trials: list[_Trial] = []
    stop_reason = "no rounds requested"
    if rounds:
        trials, stop_reason = _try_on_halves(train, score, pool, rounds, seed, pure)
    compared = _compare(trials, pool, min_gain)
    runs = [_run(train, pool, pool.original(), 0, pure)]
    while len(runs) <= _best_round(compared):
        labeled = _relabel(pool, runs[-1].scores)
        if isinstance(labeled, str):  # although the halves could be relabeled
            stop_reason = labeled
            break
        runs.append(_run(train, pool, labeled, len(runs), pure))
    best = _best_round(compared[: len(runs)])
    first, second = torch.split(trials[best].scores if best else runs[0].scores, list(data.sizes))
    return SelfTraining(_report(compared, runs, best), best, runs[best].fitted, (first, second), stop_reason)


def max_trainings(rounds: int) -> int:
    """How often an ensemble is trained at most: on each half and on all rows, at first and in every round.

    Examples
    --------
    >>> max_trainings(0), max_trainings(2)
    (1, 9)
    """
    return 3 * (rounds + 1) if rounds else 1


# --------------------------------------------------------------------------------------------------- one pool of rows


class _Relabeled(NamedTuple):
    """Two sets to train on, and the positions of their rows in the pool."""

    sets: TwoSets
    folds: Folds
    priors: Priors
    places: Positions


@dataclass(frozen=True)
class _Pool:
    """Rows that are used on their own: all of them, or a half."""

    data: TwoSets
    folds: Folds
    set_priors: Priors
    target_prior: float
    half: int | None

    @property
    def sets(self) -> Positions:
        return np.repeat([0, 1], self.data.sizes)

    def original(self) -> _Relabeled:
        return _Relabeled(self.data, self.folds, self.set_priors, np.arange(sum(self.data.sizes)))


class _Run(NamedTuple):
    """One round of a pool, with the out-of-fold scores of its rows."""

    labeled: _Relabeled
    fitted: OutOfFold
    scores: Tensor


def _run(train: Train, pool: _Pool, labeled: _Relabeled, number: int, pure: bool) -> _Run:
    priors = PURE_PRIORS if pure and number else labeled.priors
    fitted = train(labeled.sets, labeled.folds, priors, Stage(number, pool.half))
    scores = torch.empty(len(labeled.places))
    scores[torch.from_numpy(labeled.places)] = torch.cat(fitted.scores)
    return _Run(labeled, fitted, scores)


def _relabel(pool: _Pool, scores: Tensor) -> _Relabeled | str:
    """The rows in two pseudo-labeled sets, or why that is impossible."""
    evaluated = evaluate(scores.numpy(), pool.sets, pool.set_priors, pool.target_prior)
    t, f = (min(max(e.value, 0.0), 1.0) for e in (evaluated.true_positive_rate, evaluated.false_positive_rate))
    if t - f < MIN_RATE_GAP:
        return f"the models separate the classes too poorly to label rows (rates {t:.3f} and {f:.3f})"
    positive = scores.numpy() > 0
    fold = np.concatenate(pool.folds)
    places = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    for place in places:
        if len(np.unique(fold[place])) <= fold.max():
            return "too few rows are predicted to be of one class to fill all folds"
    prior = float(np.average(pool.set_priors, weights=pool.data.sizes))
    priors = (
        prior * t / (prior * t + (1 - prior) * f),
        prior * (1 - t) / (prior * (1 - t) + (1 - prior) * (1 - f)),
    )
    index = torch.cat([part for part in pool.data.index if part is not None])
    new = TwoSets(pool.data.rows, (index[torch.from_numpy(places[0])], index[torch.from_numpy(places[1])]))
    return _Relabeled(new, (fold[places[0]], fold[places[1]]), priors, np.concatenate(places))


# --------------------------------------------------------------------------------------------------------- two halves


class _Trial(NamedTuple):
    """A round on both halves: the score of every row is by the ensemble of the other half."""

    scores: Tensor
    priors: Priors
    sizes: tuple[int, int]


def _try_on_halves(
    train: Train, score: Score, pool: _Pool, rounds: int, seed: int, pure: bool
) -> tuple[list[_Trial], str]:
    """The rounds until a half cannot be relabeled, and why there are no more."""
    cut = int(np.random.SeedSequence([seed, 0, 4]).generate_state(1)[0])
    half_of = assign_folds(pool.data, 2, cut)
    halves = [_half(pool, half_of, half, cut) for half in (0, 1)]
    places = [torch.from_numpy(np.flatnonzero(np.concatenate(half_of) == half)) for half in (0, 1)]

    def trial(runs: list[_Run]) -> _Trial:
        scores = torch.empty(sum(pool.data.sizes))
        for run, other, place in zip(runs, reversed(halves), reversed(places), strict=True):
            scores[place] = torch.cat([score(run.fitted, other.data.rows_of(which)) for which in (0, 1)])
        first, second = np.mean([run.labeled.priors for run in runs], axis=0).tolist()
        n, n_prime = np.sum([run.labeled.sets.sizes for run in runs], axis=0).tolist()
        return _Trial(scores, (first, second), (n, n_prime))

    runs = [_run(train, half, half.original(), 0, pure) for half in halves]
    trials = [trial(runs)]
    for number in range(1, rounds + 1):
        relabeled = []
        for half, run in zip(halves, runs, strict=True):
            labeled = _relabel(half, run.scores)
            if isinstance(labeled, str):
                return trials, labeled
            relabeled.append(labeled)
        runs = [_run(train, half, labeled, number, pure) for half, labeled in zip(halves, relabeled, strict=True)]
        trials.append(trial(runs))
    return trials, f"all {rounds} rounds done"


def _half(pool: _Pool, half_of: Folds, half: int, seed: int) -> _Pool:
    n_folds = 1 + max(int(part.max()) for part in pool.folds)
    data = pool.data.pick(*(np.flatnonzero(part == half) for part in half_of))
    return _Pool(data, assign_folds(data, n_folds, seed), pool.set_priors, pool.target_prior, half)


def _compare(trials: list[_Trial], pool: _Pool, min_gain: float) -> list[Round]:
    """Each round compared with the best before it."""
    known = pool.sets, pool.set_priors, pool.target_prior
    compared: list[Round] = []
    for number, trial in enumerate(trials):
        best = trials[_best_round(compared)]
        gain = uu_accuracy_difference(trial.scores.numpy(), best.scores.numpy(), *known) if number else None
        better = gain is None or gain.value > min_gain * gain.standard_error
        evaluated = evaluate(trial.scores.numpy(), *known)
        compared.append(Round(number, trial.priors, trial.sizes, evaluated, gain, better))
    return compared


def _best_round(rounds: list[Round]) -> int:
    return max((done.number for done in rounds if done.better), default=0)


def _report(compared: list[Round], runs: list[_Run], best: int) -> list[Round]:
    """The rounds with the sets of all rows if they were run on all rows; better only up to the best round."""
    ran = [
        dataclasses.replace(done, set_priors=run.labeled.priors, set_sizes=run.labeled.sets.sizes)
        for done, run in zip(compared, runs, strict=False)
    ]
    return [
        dataclasses.replace(done, better=done.better and done.number <= best) for done in ran + compared[len(ran) :]
    ]
