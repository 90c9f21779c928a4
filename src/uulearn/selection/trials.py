"""Train the models of a search, one per setting and fold, with an optional executor and an optional model store.

The file name of a stored model is a digest of everything that the model depends on.
"""

import contextlib
import dataclasses
import re
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from uulearn._version import __version__
from uulearn.data.identity import digest
from uulearn.data.rows import TwoSets
from uulearn.estimator.learners import (
    Folds,
    FoldScores,
    Learner,
    ModelState,
    ModelTask,
    NetworkLearner,
    OutOfFold,
    make_learner,
    merge_folds,
)
from uulearn.estimator.plan import FitPlan
from uulearn.exceptions import CheckpointError, NonFiniteRiskError
from uulearn.storage import finish_moves, load_tree, save_tree, write_together
from uulearn.training.batched.out_of_fold import Variant
from uulearn.training.history import History
from uulearn.training.identity import describe
from uulearn.training.out_of_fold import count_folds

# Parameters that may differ between networks that are trained together.
BATCHED_PARAMETERS = ("method", "slope", "lr", "l2", "training__weight_decay")
# Parameters that do not affect the model of a fold, except for rounding.
IRRELEVANT_PARAMETERS = (
    "training__checkpoint_dir", "training__checkpoint_every", "training__distributed", "progress", "device",
    "calibrated", "self_training_rounds",
)  # fmt: skip

# Format 2 stores models as the state of a learner; format 3 stores scores at epochs selected on other rows.
STORE_FORMAT = 3
STORE_SUFFIX = ".safetensors"

Result = FoldScores | NonFiniteRiskError
Place = tuple[int, int]
"""Index of a setting and index of a fold."""


@dataclass(frozen=True)
class Trials:
    """Fit plans of all settings, which share the rows, the folds and the seed."""

    plans: Sequence[FitPlan]

    @property
    def data(self) -> TwoSets:
        """The rows of both sets."""
        data = self.plans[0].data
        assert isinstance(data, TwoSets)
        return data

    @property
    def folds(self) -> Folds:
        """The fold of every row."""
        folds = self.plans[0].folds
        assert folds is not None
        return folds

    def task(self, setting: int) -> ModelTask:
        """Return the training task for the models of a setting; each setting has its own checkpoint folder."""
        plan = self.plans[setting]
        priors, target_prior = plan.parameters.training_priors, plan.parameters.target_prior
        return ModelTask(self.data, priors, target_prior, plan.seed, (f"setting-{setting}",), folds=self.folds)

    def learner(self, setting: int) -> Learner:
        """Return the learner of a setting for the devices of this process, which may differ from the plan's devices."""
        return make_learner(self.plans[setting].parameters)

    def parameters(self, setting: int) -> dict[str, Any]:
        """Return the parameters of a setting, including training options."""
        found = dict(vars(self.plans[setting].parameters))
        training = found.pop("training")
        return found | {f"training__{name}": value for name, value in vars(training).items()}

    def is_batched(self, setting: int) -> bool:
        """Return whether the models of the setting can be trained together with models of similar settings."""
        learner = self.learner(setting)
        return isinstance(learner, NetworkLearner) and learner.can_be_batched(self.data)


@dataclass(frozen=True)
class TrainingJob:
    """Training job for some folds of one setting, or of several settings that are trained together."""

    settings: tuple[int, ...]
    folds: tuple[int, ...]


class Executor(Protocol):
    """Interface of objects that train the models of a search, such as `uulearn.engines.ray_search.RayExecutor`."""

    def train(self, trials: Trials, jobs: Sequence[TrainingJob]) -> Generator[dict[Place, Result]]:
        """Run `train_job` for every job, in any order, and yield the results of each job when it finishes."""


class FoldStore:
    """Folder that stores the trained models of one or more searches; it is created if necessary.

    Several searches may share a folder, because files are written atomically and files with the same name have the same
    content. No file is unpickled.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"store must be a folder, but {self.folder} is a file; pass another path.")
        with contextlib.suppress(OSError):  # a store that cannot be written can still be read
            finish_moves(self.folder)

    def get(self, name: str, learner: Learner, row_shape: tuple[int, ...]) -> FoldScores | NonFiniteRiskError | None:
        """Return the model with this name, restored by the learner, or the stored error; None if it is not stored."""
        path = self.folder / f"{name}{STORE_SUFFIX}"
        if not path.exists():
            return None
        try:
            stored = load_tree(path)
            if stored["format"] != STORE_FORMAT:
                raise ValueError(f"{path} has format {stored['format']!r}, expected format {STORE_FORMAT}.")
            if "failure" in stored:
                return NonFiniteRiskError(stored["failure"])
            model = learner.restore(ModelState(stored["tensors"], stored["config"]), row_shape)
            return FoldScores(model, History.from_dict(stored["history"]), stored["scores"])
        except (ValueError, LookupError, TypeError, RuntimeError, AttributeError) as error:
            reason = str(error) if str(path) in str(error) else f"{path} is damaged ({error})."
            raise CheckpointError(f"{reason} Delete the file to train this model again.") from error

    def put(self, results: Mapping[str, Result]) -> None:
        """Store the models of one job, or the errors of failed ones, by name.

        A killed process stores all of them or none: the rounding of a model depends on the models trained with it.
        """
        try:
            with write_together(self.folder) as temporary:
                for name, result in results.items():
                    about: dict[str, Any] = {"failure": str(result)}
                    if not isinstance(result, NonFiniteRiskError):
                        about = vars(result.model.state()) | {
                            "history": result.history.to_dict(),
                            "scores": result.scores,
                        }
                    save_tree(temporary / f"{name}{STORE_SUFFIX}", {"format": STORE_FORMAT, **about})
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} cannot be written ({error.strerror or error}); choose another store, or check its "
                "permissions and free space."
            ) from error


def train_all(
    trials: Trials, *, store: FoldStore | None = None, executor: Executor | None = None
) -> list[OutOfFold | NonFiniteRiskError]:
    """Return the out-of-fold models or the error of every setting; models in the store are not trained again."""
    found: dict[Place, Result] = {}
    names = {} if store is None else model_names(trials)
    for place, name in names.items():
        assert store is not None
        if (stored := store.get(name, trials.learner(place[0]), trials.data.row_shape)) is not None:
            found[place] = stored
    jobs = plan_jobs(trials, found, by_fold=store is not None or executor is not None)
    running = (train_job(trials, job) for job in jobs) if executor is None else executor.train(trials, jobs)
    with contextlib.closing(running) as finished:
        for results in finished:
            if store is not None:
                store.put({names[place]: result for place, result in results.items()})
            found |= results
    return [_merge(trials, found, setting) for setting in range(len(trials.plans))]


def plan_jobs(trials: Trials, found: Collection[Place], *, by_fold: bool) -> list[TrainingJob]:
    """Return jobs for all models that are not in ``found``.

    With ``by_fold``, each job contains only one fold, unless the models of the folds depend on one another.
    """
    groups: dict[str, list[int]] = {}
    for setting in range(len(trials.plans)):
        shared = {name: v for name, v in trials.parameters(setting).items() if name not in BATCHED_PARAMETERS}
        group = describe(shared) if trials.is_batched(setting) else f"setting {setting}"
        groups.setdefault(group, []).append(setting)
    n_folds = count_folds(trials.folds)
    one_by_one, together = [(fold,) for fold in range(n_folds)], [tuple(range(n_folds))]
    return [
        TrainingJob(left, folds)
        for settings in groups.values()
        for folds in (one_by_one if by_fold and not trials.learner(settings[0]).folds_together else together)
        if (left := tuple(s for s in settings if any((s, fold) not in found for fold in folds)))
    ]


def train_job(trials: Trials, job: TrainingJob) -> dict[Place, Result]:
    """Run a job and return its results; if a single setting fails in one fold, its other folds are skipped."""
    first = job.settings[0]
    learner, task = trials.learner(first), trials.task(first)
    if isinstance(learner, NetworkLearner) and trials.is_batched(first):
        variants = []
        for own in (trials.plans[setting].parameters for setting in job.settings):
            risk = dataclasses.replace(learner, method=own.method, slope=own.slope).risk(
                task.set_priors, task.target_prior
            )
            variants.append(Variant(risk, own.lr, own.l2, own.training.weight_decay))
        batched = learner.train_variants(task, variants, job.folds)
        return {
            (setting, fold): _check_finite(part)
            for setting, parts in zip(job.settings, batched, strict=True)
            for fold, part in zip(job.folds, parts, strict=True)
        }
    results: dict[Place, Result] = {}
    for folds in [job.folds] if learner.folds_together else [(fold,) for fold in job.folds]:
        try:
            parts = learner.train_folds(task, folds)
        except NonFiniteRiskError as error:
            return results | {(first, folds[0]): _without_advice(error)}
        results |= {(first, fold): _check_finite(part) for fold, part in zip(folds, parts, strict=True)}
    return results


def _check_finite(fitted: FoldScores) -> Result:
    """Return the fit, or an error if training diverged."""
    try:
        return fitted.check_finite()
    except NonFiniteRiskError as error:
        return _without_advice(error)


def _without_advice(error: NonFiniteRiskError) -> NonFiniteRiskError:
    return NonFiniteRiskError(re.split("[:;]", str(error))[0])


def model_names(trials: Trials) -> dict[Place, str]:
    """Return the name of each model: a digest of everything that the model depends on, equal in all processes."""
    rows = trials.data.identity()
    folds = digest(map(torch.from_numpy, trials.folds))
    names: dict[Place, str] = {}
    for setting, plan in enumerate(trials.plans):
        learner = trials.learner(setting)
        own = {name: v for name, v in sorted(trials.parameters(setting).items()) if name not in IRRELEVANT_PARAMETERS}
        own["random_state"] = plan.seed
        about: list[str | Tensor] = [__version__, learner.kind, describe(own)]
        if isinstance(learner, NetworkLearner):
            module = learner.build(trials.data.row_shape, plan.seed)
            about += [repr(module), *(v for v in module.state_dict().values() if isinstance(v, Tensor))]
        for fold in range(count_folds(trials.folds)):
            names[setting, fold] = digest([*about, rows, folds, str(fold)])
    return names


def _merge(trials: Trials, found: Mapping[Place, Result], setting: int) -> OutOfFold | NonFiniteRiskError:
    parts: list[FoldScores] = []
    for fold in range(count_folds(trials.folds)):
        part = found[setting, fold]  # the later folds of a setting that failed may be missing
        if isinstance(part, NonFiniteRiskError):
            return part
        parts.append(part)
    return merge_folds(parts, trials.folds)
