"""Self-training: split the rows into two purer sets by their predictions, and train new models on these sets.

Every row is scored by the model that was not trained on its fold. The fraction of each original set that is predicted
positive determines the true- and false-positive rates without labels. These rates determine the class priors of the
rows predicted positive and of the rows predicted negative. These pseudo-labeled rows form two new sets whose priors
differ much more than the original priors. Training on the new sets is called a round.

A round may increase or decrease the accuracy. Out-of-fold scores cannot show whether a round helps, because the
pseudo-labels used to train a model come from models that were trained on its fold. The number of rounds, which may be
0, is therefore chosen on halves of the rows. The rounds are run on each half, and the ensemble of every round is
evaluated on the other half, with the original sets and priors. The chosen number of rounds is then run on all rows.
"""

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
from uulearn.estimator.learners import Folds, OutOfFold, Priors
from uulearn.estimator.parameters import PURE_PRIORS
from uulearn.metrics import Estimate, Evaluation, evaluate, uu_accuracy_difference

# If the true- and false-positive rates differ by less than this, pseudo-labels are hardly better than chance.
MIN_RATE_GAP = 0.05


class Stage(NamedTuple):
    """One training of an ensemble: its round (0 for the first training) and half of the rows (None for all rows)."""

    number: int
    half: int | None

    @property
    def is_first(self) -> bool:
        """Whether this is the first training on all rows, as in a fit without self-training."""
        return self == (0, None)

    def seed(self, seed: int) -> int:
        """Return the seed of the stage, derived from the seed of the fit."""
        if self.is_first:
            return seed
        entropy = [seed, self.number, 1 if self.half is None else 2 + self.half]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    @property
    def path(self) -> tuple[str, ...]:
        """Path components of the checkpoint folder of the stage."""
        half = () if self.half is None else (f"half-{self.half}",)
        return (*half, f"round-{self.number}") if self.number else half


Train = Callable[[TwoSets, Folds, Priors, Stage], OutOfFold]
Score = Callable[[OutOfFold, Rows], Tensor]


@dataclass(frozen=True)
class Round:
    """One round: the pseudo-labeled sets, and the accuracy gained by training on them."""

    number: int
    set_priors: Priors
    """Estimated class priors of the sets; the mean over both halves if the round was run on halves only."""
    set_sizes: tuple[int, int]
    """Number of rows in each set; the sum over both halves if the round was run on halves only."""
    evaluation: Evaluation
    """Accuracy of each half's ensemble on the other half; models trained on all rows are usually more accurate."""
    gain: Estimate | None
    """Accuracy gained over the previous best round, on the same rows; None for the first training."""
    better: bool
    """Whether the round replaced the previous best round; the last round that did so is used."""


@dataclass(frozen=True)
class SelfTraining:
    """All self-training rounds, and the models of the best round."""

    rounds: list[Round]
    best_round: int
    best: OutOfFold
    """Models of the best round, trained on all rows."""
    scores: tuple[Tensor, Tensor]
    """Scores of the original rows: out-of-fold if no round is used, otherwise from the other half's ensemble."""
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
    """Choose the number of rounds, up to ``rounds``, on halves of the rows, and run the chosen number on all rows.

    Parameters
    ----------
    train : callable
        Trains the models of all folds, given the sets, the fold of each row, the priors and the `Stage`.
    score : callable
        Scores rows with the ensemble of the given models; returns an array of shape (n,).
    data, folds
        The original sets as rows of one table (`TwoSets.joined`), and the fold of each row.
    pure : bool
        Whether to train as if all pseudo-labels were correct, instead of using the estimated priors.
    min_gain : float
        A round replaces the previous best one if its estimated gain exceeds this number of standard errors.
    """
    pool = _Pool(data, folds, set_priors, target_prior, None)
    compared: list[Round] = []
    scores: list[Tensor] = []
    stop_reason = "no rounds requested"
    if rounds:
        compared, scores, stop_reason = _try_on_halves(train, score, pool, rounds, seed, pure, min_gain)
    runs = [_run(train, pool, pool.original(), 0, pure)]
    while len(runs) <= _best_round(compared):
        labeled = _relabel(pool, runs[-1].scores)
        if isinstance(labeled, str):  # even if the halves could be relabeled
            stop_reason = labeled
            break
        runs.append(_run(train, pool, labeled, len(runs), pure))
    best = _best_round(compared[: len(runs)])
    first, second = torch.split(scores[best] if best else runs[0].scores, list(data.sizes))
    # Rounds that were run on all rows report their sets; only rounds up to the best one are marked as better.
    for done, run in zip(compared, runs, strict=False):
        labeled = run.labeled
        compared[done.number] = dataclasses.replace(done, set_priors=labeled.priors, set_sizes=labeled.sets.sizes)
    report = [dataclasses.replace(done, better=done.better and done.number <= best) for done in compared]
    return SelfTraining(report, best, runs[best].fitted, (first, second), stop_reason)


def max_trainings(rounds: int) -> int:
    """Return the maximum number of ensemble trainings: each round, including round 0, on both halves and all rows."""
    return 3 * (rounds + 1) if rounds else 1


class _Relabeled(NamedTuple):
    """Two sets to train on, and the positions of their rows in the pool."""

    sets: TwoSets
    folds: Folds
    priors: Priors
    places: Positions


@dataclass(frozen=True)
class _Pool:
    """A pool of rows that are relabeled together: all rows, or one half."""

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


class _PoolRound(NamedTuple):
    """The result of one round on a pool, with the out-of-fold scores of its rows."""

    labeled: _Relabeled
    fitted: OutOfFold
    scores: Tensor


def _run(train: Train, pool: _Pool, labeled: _Relabeled, number: int, pure: bool) -> _PoolRound:
    priors = PURE_PRIORS if pure and number else labeled.priors
    fitted = train(labeled.sets, labeled.folds, priors, Stage(number, pool.half))
    scores = torch.empty(len(labeled.places))
    scores[torch.from_numpy(labeled.places)] = torch.cat(fitted.scores)
    return _PoolRound(labeled, fitted, scores)


def _relabel(pool: _Pool, scores: Tensor) -> _Relabeled | str:
    """Split the rows into two pseudo-labeled sets, or return the reason why this is impossible."""
    evaluated = evaluate(scores.numpy(), pool.sets, pool.set_priors, pool.target_prior)
    t, f = evaluated.true_positive_rate.value, evaluated.false_positive_rate.value
    if t - f < MIN_RATE_GAP:
        return f"the models separate the classes too poorly to label rows (rates {t:.3f} and {f:.3f})"
    positive = scores.numpy() > 0
    fold = np.concatenate(pool.folds)
    places = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    if any(len(np.unique(fold[place])) <= fold.max() for place in places):
        return "too few rows are predicted to belong to one of the classes to fill all folds"
    prior = float(np.average(pool.set_priors, weights=pool.data.sizes))
    priors = (prior * t / (prior * t + (1 - prior) * f), prior * (1 - t) / (prior * (1 - t) + (1 - prior) * (1 - f)))
    index = torch.cat([part for part in pool.data.index if part is not None])
    new = TwoSets(pool.data.rows, (index[torch.from_numpy(places[0])], index[torch.from_numpy(places[1])]))
    return _Relabeled(new, (fold[places[0]], fold[places[1]]), priors, np.concatenate(places))


def _try_on_halves(
    train: Train, score: Score, pool: _Pool, rounds: int, seed: int, pure: bool, min_gain: float
) -> tuple[list[Round], list[Tensor], str]:
    """Run rounds until a half cannot be relabeled; return the rounds, cross-half scores and the stop reason."""
    cut = int(np.random.SeedSequence([seed, 0, 4]).generate_state(1)[0])
    half_of = assign_folds(pool.data, 2, cut)
    places = [torch.from_numpy(np.flatnonzero(np.concatenate(half_of) == half)) for half in (0, 1)]
    halves = []
    for which in (0, 1):
        data = pool.data.pick(*(np.flatnonzero(part == which) for part in half_of))
        folds = assign_folds(data, 1 + max(int(part.max()) for part in pool.folds), cut)
        halves.append(_Pool(data, folds, pool.set_priors, pool.target_prior, which))
    known = pool.sets, pool.set_priors, pool.target_prior
    compared: list[Round] = []
    scores: list[Tensor] = []
    relabeled: list[_Relabeled | str] = [half.original() for half in halves]
    for number in range(rounds + 1):
        runs = []
        for half, labeled in zip(halves, relabeled, strict=True):
            assert not isinstance(labeled, str)
            runs.append(_run(train, half, labeled, number, pure))
        own = torch.empty(sum(pool.data.sizes))
        for run, other, place in zip(runs, reversed(halves), reversed(places), strict=True):
            own[place] = torch.cat([score(run.fitted, other.data.rows_of(set_number)) for set_number in (0, 1)])
        scores.append(own)
        best = scores[_best_round(compared)]
        gain = uu_accuracy_difference(own.numpy(), best.numpy(), *known) if number else None
        better = gain is None or gain.unclipped > min_gain * gain.standard_error
        first, second = np.mean([run.labeled.priors for run in runs], axis=0).tolist()
        n, n_prime = np.sum([run.labeled.sets.sizes for run in runs], axis=0).tolist()
        compared.append(Round(number, (first, second), (n, n_prime), evaluate(own.numpy(), *known), gain, better))
        if number < rounds:
            relabeled = [_relabel(half, run.scores) for half, run in zip(halves, runs, strict=True)]
            if reasons := [reason for reason in relabeled if isinstance(reason, str)]:
                return compared, scores, reasons[0]
    return compared, scores, f"all {rounds} rounds done"


def _best_round(rounds: list[Round]) -> int:
    return max((done.number for done in rounds if done.better), default=0)
