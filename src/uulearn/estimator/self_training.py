"""Refinement: the rows are sorted again, by models that have not seen them, into two purer sets, and trained on again.

Models of all folds score the rows of the fold they have not seen. How many of each original set they call positive
gives their true- and false-positive rate without labels, and with them the shares of positives among the rows called
positive and among those called negative: two new sets, much further apart than the original ones. Training on these
is a round.

Rows are not sorted at random, so that a round may gain or lose, and out-of-fold scores cannot tell which: no model has
seen the rows of its fold, but the rows it learned from were sorted by models that have, and hand on to it something of
the sets those rows came from. So the number of rounds is chosen on halves. Each half of the rows is refined apart, and
the ensemble of every round scores the other half, of which neither its models nor those that sorted rows for them have
seen a row. On these scores the rounds are compared, by the original sets and their priors, and the answer may be that
none is to be kept. The number that was chosen is then run on all rows.
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
from uulearn.metrics import Estimate, Evaluation, evaluate, uu_gain
from uulearn.training.out_of_fold import OutOfFoldFit

LEAST_GAP = 0.05
"""Rates that are nearer than this sort the rows hardly better than chance."""
PURE = (1.0, 0.0)

Folds = tuple[Positions, Positions]
Priors = tuple[float, float]


class Stage(NamedTuple):
    """Which training it is: the number of the round, 0 for the first, and the half of the rows, None for all."""

    number: int
    half: int | None


FIRST = Stage(0, None)
Train = Callable[[TwoSets, Folds, Priors, Stage], OutOfFoldFit]
Score = Callable[[OutOfFoldFit, Rows], Tensor]


@dataclass(frozen=True)
class Round:
    """One round: the sets that were trained on, and what it is worth on the original ones."""

    number: int
    set_priors: Priors
    """Estimated shares of positives in the sets; where the round was run on halves only, their mean."""
    set_sizes: tuple[int, int]
    """Where the round was run on halves only, their sum."""
    evaluation: Evaluation
    """Of the ensembles that were trained on one half, on the other: fair, and rather low for models of all rows."""
    gain: Estimate | None
    """Over the best round before it, in accuracy, on the same scores; None for the first training."""
    better: bool
    """Whether it took the place of the best round before it. The last that did was kept."""


@dataclass(frozen=True)
class Refinement:
    """All rounds, and the models of the one that was kept."""

    rounds: list[Round]
    kept: int
    best: OutOfFoldFit
    """Trained on all rows."""
    scores: tuple[Tensor, Tensor]
    """Of the original sets' rows, by models that know nothing of them: those of their fold where the first training was
    kept, else the kept round's ensemble of the other half."""
    stop_reason: str


def refine(
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
    doubt: float = 1.0,
) -> Refinement:
    """Choose a number of rounds on halves of the rows, and run so many on all rows.

    Parameters
    ----------
    train : callable
        Trains the models of all folds, given sets, the fold of each of their rows, priors, and the `Stage`.
    score : callable
        Scores of rows, shape (n,), by the ensemble of what was trained.
    data, folds
        The original sets, as row numbers of one table (`TwoSets.joined`), and the fold of each row.
    set_priors, target_prior
        (θ, θ′) of the original sets, and π.
    rounds : int
        The largest number of rounds; with 0 nothing is cut into halves, and no round is reported.
    seed : int
        Of the cut into halves, and of the halves' folds.
    pure : bool
        Whether sorted sets are trained on as if all rows of one were positive and none of the other, instead of with
        their estimated shares.
    doubt : float
        In the order of their numbers, a round takes the place of the best so far when its estimated gain over that
        one exceeds this many standard errors.
    """
    pool = _Pool(data, folds, set_priors, target_prior, None)
    trials: list[_Trial] = []
    stop_reason = "no rounds asked for"
    if rounds:
        trials, stop_reason = _try_on_halves(train, score, pool, rounds, seed, pure)
    compared = _compare(trials, pool, doubt)
    runs = [_run(train, pool, pool.unsorted(), 0, pure)]
    while len(runs) <= _last_better(compared):
        sorting = _sort(pool, runs[-1].scores)
        if isinstance(sorting, str):  # though the halves could be sorted
            stop_reason = sorting
            break
        runs.append(_run(train, pool, sorting, len(runs), pure))
    kept = _last_better(compared[: len(runs)])
    scores = trials[kept].scores if kept else runs[0].scores
    first, second = torch.split(scores, list(data.sizes))
    return Refinement(_report(compared, runs, kept), kept, runs[kept].fitted, (first, second), stop_reason)


def trainings_at_most(rounds: int) -> int:
    """How often the models of all folds are trained at most: on either half and on all rows, at first and every round.

    Examples
    --------
    >>> trainings_at_most(0), trainings_at_most(2)
    (1, 9)
    """
    return 3 * (rounds + 1) if rounds else 1


def check_half_sizes(sizes: tuple[int, int], members: int, rounds: int) -> None:
    """Refuse sets of which a half has fewer rows than there are folds."""
    if rounds and min(sizes) < 2 * members:
        raise ValueError(
            f"rounds={rounds} with members={members} cuts both sets into halves of {members} folds, for which "
            f"{2 * members} rows of each are needed, and one has {min(sizes)}; use fewer members, or rounds=0."
        )


# --------------------------------------------------------------------------------------------------- one pool of rows


class _Sorting(NamedTuple):
    """Two sets to train on, and the places of their rows among those of the pool."""

    sets: TwoSets
    folds: Folds
    priors: Priors
    places: Positions


@dataclass(frozen=True)
class _Pool:
    """Rows that are refined by themselves: all of them, or a half."""

    data: TwoSets
    folds: Folds
    set_priors: Priors
    target_prior: float
    half: int | None

    @property
    def sets(self) -> Positions:
        return np.repeat([0, 1], self.data.sizes)

    def unsorted(self) -> _Sorting:
        return _Sorting(self.data, self.folds, self.set_priors, np.arange(sum(self.data.sizes)))


class _Run(NamedTuple):
    """A round of a pool, with the scores of the pool's rows by the models of their folds."""

    sorting: _Sorting
    fitted: OutOfFoldFit
    scores: Tensor


def _run(train: Train, pool: _Pool, sorting: _Sorting, number: int, pure: bool) -> _Run:
    priors = PURE if pure and number else sorting.priors
    fitted = train(sorting.sets, sorting.folds, priors, Stage(number, pool.half))
    scores = torch.empty(len(sorting.places))
    scores[torch.from_numpy(sorting.places)] = torch.cat(fitted.scores)
    return _Run(sorting, fitted, scores)


def _sort(pool: _Pool, scores: Tensor) -> _Sorting | str:
    """The rows in two new sets, or why that cannot be."""
    evaluated = evaluate(scores.numpy(), pool.sets, pool.set_priors, pool.target_prior)
    t, f = (min(max(e.value, 0.0), 1.0) for e in (evaluated.true_positive_rate, evaluated.false_positive_rate))
    if t - f < LEAST_GAP:
        return f"the models tell the classes apart too badly to sort rows by them (rates {t:.3f} and {f:.3f})"
    positive = scores.numpy() > 0
    fold = np.concatenate(pool.folds)
    places = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    for place in places:
        if len(np.unique(fold[place])) <= fold.max():
            return "too few rows are predicted to be of one class to make folds of them"
    share = float(np.average(pool.set_priors, weights=pool.data.sizes))
    priors = (
        share * t / (share * t + (1 - share) * f),
        share * (1 - t) / (share * (1 - t) + (1 - share) * (1 - f)),
    )
    index = torch.cat([part for part in pool.data.index if part is not None])
    new = TwoSets(pool.data.rows, (index[torch.from_numpy(places[0])], index[torch.from_numpy(places[1])]))
    return _Sorting(new, (fold[places[0]], fold[places[1]]), priors, np.concatenate(places))


# --------------------------------------------------------------------------------------------------------- two halves


class _Trial(NamedTuple):
    """A round on both halves: scores of all rows, each row's by the ensemble of the half that it is not in."""

    scores: Tensor
    priors: Priors
    sizes: tuple[int, int]


def _try_on_halves(
    train: Train, score: Score, pool: _Pool, rounds: int, seed: int, pure: bool
) -> tuple[list[_Trial], str]:
    """Every round as long as both halves can be sorted, and why there are no more."""
    cut = int(np.random.SeedSequence([seed, 0, 4]).generate_state(1)[0])
    half_of = assign_folds(pool.data, 2, cut)
    halves = [_half(pool, half_of, half, cut) for half in (0, 1)]
    places = [torch.from_numpy(np.flatnonzero(np.concatenate(half_of) == half)) for half in (0, 1)]

    def trial(runs: list[_Run]) -> _Trial:
        scores = torch.empty(sum(pool.data.sizes))
        for run, other, place in zip(runs, reversed(halves), reversed(places), strict=True):
            scores[place] = torch.cat([score(run.fitted, other.data.rows_of(which)) for which in (0, 1)])
        first, second = np.mean([run.sorting.priors for run in runs], axis=0).tolist()
        n, n_prime = np.sum([run.sorting.sets.sizes for run in runs], axis=0).tolist()
        return _Trial(scores, (first, second), (n, n_prime))

    runs = [_run(train, half, half.unsorted(), 0, pure) for half in halves]
    trials = [trial(runs)]
    for number in range(1, rounds + 1):
        sortings = []
        for half, run in zip(halves, runs, strict=True):
            sorting = _sort(half, run.scores)
            if isinstance(sorting, str):
                return trials, sorting
            sortings.append(sorting)
        runs = [_run(train, half, sorting, number, pure) for half, sorting in zip(halves, sortings, strict=True)]
        trials.append(trial(runs))
    return trials, f"all {rounds} rounds done"


def _half(pool: _Pool, half_of: Folds, half: int, seed: int) -> _Pool:
    n_folds = 1 + max(int(part.max()) for part in pool.folds)
    data = pool.data.pick(*(np.flatnonzero(part == half) for part in half_of))
    return _Pool(data, assign_folds(data, n_folds, seed), pool.set_priors, pool.target_prior, half)


def _compare(trials: list[_Trial], pool: _Pool, doubt: float) -> list[Round]:
    """The rounds, each against the best before it."""
    known = pool.sets, pool.set_priors, pool.target_prior
    compared: list[Round] = []
    for number, trial in enumerate(trials):
        best = trials[_last_better(compared)]
        gain = uu_gain(trial.scores.numpy(), best.scores.numpy(), *known) if number else None
        better = gain is None or gain.value > doubt * gain.standard_error
        evaluated = evaluate(trial.scores.numpy(), *known)
        compared.append(Round(number, trial.priors, trial.sizes, evaluated, gain, better))
    return compared


def _last_better(rounds: list[Round]) -> int:
    return max((done.number for done in rounds if done.better), default=0)


def _report(compared: list[Round], runs: list[_Run], kept: int) -> list[Round]:
    """The rounds with the sets of all rows where there are such, and better only as far as they could be run."""
    ran = [
        dataclasses.replace(done, set_priors=run.sorting.priors, set_sizes=run.sorting.sets.sizes)
        for done, run in zip(compared, runs, strict=False)
    ]
    return [
        dataclasses.replace(done, better=done.better and done.number <= kept) for done in ran + compared[len(ran) :]
    ]
