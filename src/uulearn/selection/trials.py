"""The models of a search: one a setting and fold, trained in jobs, here or elsewhere, and kept where that is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from uulearn._version import __version__
from uulearn.data import TwoSets
from uulearn.data.holdout import Positions
from uulearn.data.identity import describe, digest
from uulearn.estimator import UUClassifier
from uulearn.exceptions import NonFiniteRiskError
from uulearn.selection.store import FoldStore
from uulearn.training.batched.out_of_fold import Variant, can_be_batched, fit_folds_batched
from uulearn.training.options import TrainingOptions
from uulearn.training.out_of_fold import FoldFit, OutOfFoldFit, combine_folds, count_folds, fit_fold

PER_RUN = ("method", "slope", "lr", "l2", "weight_decay")
"""What the runs of one stack may differ in."""
UNTRAINED = {"checkpoint_dir", "checkpoint_every", "progress", "device", "distributed", "calibrated", "rounds"}
"""What a model of one fold does not depend on, but for rounding."""

Result = FoldFit | NonFiniteRiskError
Place = tuple[int, int]
"""The number of a setting, and a fold."""
TrainJobs = Callable[["Trials", Sequence["Job"]], Generator[dict[Place, Result]]]


@dataclass(frozen=True)
class Trials:
    """Settings to try on the same rows and folds, with the same seed."""

    tried: Sequence[UUClassifier]
    data: TwoSets
    folds: tuple[Positions, Positions]
    seed: int

    def options(self, setting: int) -> TrainingOptions:
        """Those of a setting; checkpoints of settings that have some lie in folders of their own."""
        options = self.tried[setting]._options(self.seed)
        if options.checkpoint_dir is None:
            return options
        return dataclasses.replace(options, checkpoint_dir=Path(options.checkpoint_dir) / f"setting-{setting}")

    def stacked(self, setting: int) -> bool:
        """Are the models of the setting trained as a stack?"""
        one = self.tried[setting]
        return isinstance(one.model, str) and can_be_batched(one.model, self.data, one._options(self.seed))


@dataclass(frozen=True)
class Job:
    """What is trained in one go: some folds of settings that make a stack, or of one setting."""

    settings: tuple[int, ...]
    folds: tuple[int, ...]


def cross_fit_all(
    trials: Trials, *, store: FoldStore | None = None, train: TrainJobs | None = None
) -> list[OutOfFoldFit | NonFiniteRiskError]:
    """Every setting cross-fitted; those that differ only in what the runs of a stack may differ in, together.

    Parameters
    ----------
    trials : Trials
    store : FoldStore, optional
        What it holds is not trained again; what is trained is added, job by job.
    train : callable, optional
        Trains jobs, and yields the results of each as it is finished. By default they are trained here, one after
        another.
    """
    if store is None:
        jobs = plan_jobs(trials, (), by_fold=train is not None)
        with contextlib.closing((train or _here)(trials, jobs)) as finished:
            found = {place: result for results in finished for place, result in results.items()}
    else:
        found = _found_or_trained(trials, store, train or _here)
    return [_whole(trials, found, setting) for setting in range(len(trials.tried))]


def _found_or_trained(trials: Trials, store: FoldStore, train: TrainJobs) -> dict[Place, Result]:
    names = names_of(trials)
    found: dict[Place, Result] = {}
    for place, name in names.items():
        fresh = functools.partial(trials.tried[place[0]]._build, trials.data.row_shape, trials.seed)
        if (kept := store.get(name, fresh)) is not None:
            found[place] = kept
    with contextlib.closing(train(trials, plan_jobs(trials, found, by_fold=True))) as finished:
        for results in finished:
            for place, result in results.items():
                store.put(names[place], result)
            found |= results
    return found


def plan_jobs(trials: Trials, found: Collection[Place], *, by_fold: bool) -> list[Job]:
    """The jobs that are left to do; each of one fold where they are kept one by one, or trained side by side."""
    alike: dict[str, list[int]] = {}
    for setting, one in enumerate(trials.tried):
        shared = {name: value for name, value in one.get_params(deep=False).items() if name not in PER_RUN}
        group = describe(shared) if trials.stacked(setting) else f"setting {setting}"
        alike.setdefault(group, []).append(setting)
    n_folds = count_folds(trials.folds)
    every = [(fold,) for fold in range(n_folds)] if by_fold else [tuple(range(n_folds))]
    jobs = []
    for settings in alike.values():
        for folds in every:
            if left := tuple(setting for setting in settings if any((setting, fold) not in found for fold in folds)):
                jobs.append(Job(left, folds))
    return jobs


def train_job(trials: Trials, job: Job) -> dict[Place, Result]:
    """What comes of a job; of a single setting that fails in one fold, no further fold is trained."""
    first = job.settings[0]
    one, options = trials.tried[first], trials.options(first)
    if trials.stacked(first):
        variants = [
            Variant(one._risk(one._priors), lr=one.lr, l2=one.l2, weight_decay=one.weight_decay)
            for one in (trials.tried[setting] for setting in job.settings)
        ]
        assert isinstance(one.model, str)
        stacked = fit_folds_batched(
            job.folds, one.model, one.model_params, trials.data, trials.folds, variants, options
        )
        return {
            (setting, fold): _if_finite(part)
            for setting, parts in zip(job.settings, stacked, strict=True)
            for fold, part in zip(job.folds, parts, strict=True)
        }
    results: dict[Place, Result] = {}
    for fold in job.folds:
        try:
            part = fit_fold(
                fold,
                lambda seed: one._build(trials.data.row_shape, seed),
                trials.data,
                trials.folds,
                one._risk(one._priors),
                options,
            )
        except NonFiniteRiskError as error:
            return results | {(first, fold): NonFiniteRiskError(str(error).partition(":")[0])}  # without advice
        results[first, fold] = _if_finite(part)
    return results


def _here(trials: Trials, jobs: Iterable[Job]) -> Generator[dict[Place, Result]]:
    return (train_job(trials, job) for job in jobs)


def _if_finite(fitted: FoldFit) -> Result:
    """What was trained, or the error that a stack does not raise: the other runs go on, and the history says why."""
    reason = fitted.history.stop_reason
    if reason is not None and "not finite" in reason:
        return NonFiniteRiskError(reason)
    # The last step may have gone so far that no risk was taken after it. A mean overflows earlier than its parts.
    if not torch.cat(fitted.scores).abs().mean().isfinite():
        return NonFiniteRiskError("scores of rows that were not trained on are not finite")
    return fitted


def names_of(trials: Trials) -> dict[Place, str]:
    """What each model is known by in any process: everything that it depends on."""
    rows = digest(trials.data.identity())
    folds = digest(map(torch.from_numpy, trials.folds))
    names: dict[Place, str] = {}
    for setting, one in enumerate(trials.tried):
        model = one._build(trials.data.row_shape, trials.seed)
        weights = [value for value in model.state_dict().values() if isinstance(value, Tensor)]
        own = {name: value for name, value in sorted(one.get_params(deep=False).items()) if name not in UNTRAINED}
        own["random_state"] = trials.seed
        about: list[str | Tensor] = [__version__, describe(own), repr(model), *weights, rows, folds]
        for fold in range(count_folds(trials.folds)):
            names[setting, fold] = digest([*about, str(fold)])
    return names


def _whole(trials: Trials, found: Mapping[Place, Result], setting: int) -> OutOfFoldFit | NonFiniteRiskError:
    parts: list[FoldFit] = []
    for fold in range(count_folds(trials.folds)):
        part = found[setting, fold]  # of a setting that failed, the later folds may be missing
        if isinstance(part, NonFiniteRiskError):
            return part
        parts.append(part)
    return combine_folds(parts, trials.folds)
