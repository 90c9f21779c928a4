"""Two files in, a model out, with everything that is known about it without a label."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import platform
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from uulearn import defaults
from uulearn._version import __version__
from uulearn.app.evaluating import both, evaluate_on_split, evaluate_out_of_fold, evaluates_out_of_fold
from uulearn.app.facts import evaluation_facts, finite, importance_facts, sensitivity_facts, sensitivity_models
from uulearn.app.model import TableModel
from uulearn.app.settings import SET_HERE, FitSettings
from uulearn.app.sharing import read_once
from uulearn.data import DenseRows, TwoSets
from uulearn.data.holdout import has_few_unique_rows
from uulearn.defaults import AUTO
from uulearn.estimator import UUClassifier
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.self_training import max_trainings
from uulearn.exceptions import BeyondPriorsWarning, TableError
from uulearn.io.reading import is_table_folder
from uulearn.models import IMAGE_MODELS
from uulearn.priors import SetPriorsEstimate, estimate_set_priors
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.leakage import compare_sets_beyond_priors
from uulearn.tabular.matrices import Matrix, Prepared, prepare, prepare_images, split_rows
from uulearn.tabular.pipeline import feature_groups
from uulearn.tabular.schema import Schema
from uulearn.tabular.storing import check_can_be_saved
from uulearn.training.workers import Workers

PRIOR_ROWS = 20_000
"""Of each file at most so many rows estimate the priors."""
QUICK_SECONDS = 10.0
"""A training that took less is done again with altered priors without being asked to."""
FILE_DEFAULTS: dict[str, Any] = {"calibrated": True}
"""`uulearn predict` writes probabilities, so `uulearn fit` asks for calibration; all else is as in Python."""
REMEDY = "Check the shares, and leave out columns that have to do with where rows come from (--drop)."
SMALL_CELLS = 500_000
ROWS = "rows"
"""Below the checkpoint, the folder of what several workers share."""
FOR_IMAGES: dict[str, Any] = {"model": defaults.IMAGE_MODEL, "training__input_scale": defaults.PIXEL_SCALE}


class Tell(Protocol):
    """Whoever is told what is being done."""

    def __call__(self, what: str, models: int = 0, /) -> None:
        """This is begun, in a few words, and so many models are going to be trained for it at most."""


def no_progress(what: str, models: int = 0, /) -> None: ...


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The model, the settings it was fitted with in full, and the warnings that were raised."""

    model: TableModel
    settings: FitSettings


def fit_files(
    settings: FitSettings,
    *,
    command: str = "",
    checkpoint: Path | None = None,
    tell: Tell = no_progress,
    workers: Workers | None = None,
) -> Fitted:
    """Fit a classifier to two files.

    Parameters
    ----------
    settings : FitSettings
    command : str
        The command line that asked for it, for the record.
    checkpoint : Path, optional
        A folder where the training goes on if it was interrupted.
    tell : callable
        Told in a few words what is being done, and of how many models. How far each model is, is told to whoever
        watches the training (`uulearn.training.progress.watch_training`).
    workers : Workers, optional
        The processes that train together, each of which calls this. The first reads the files; the rows as numbers lie
        in a folder below ``checkpoint``, which all must see, and each reads what it trains on. Without a checkpoint
        each reads the files.
    """
    check_can_be_saved()
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        known = None if settings.set_priors == AUTO else _pair(settings.set_priors)
        folder = Path(tempfile.gettempdir())
        reading = _read(settings, known, folder, checkpoint, tell, workers)
        with reading as (prepared, X), _few_threads(sum(rows.size for rows in X)):
            model, facts = _fit_rows(settings, prepared, X, known, folder, checkpoint, tell, workers)
    facts |= {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "uulearn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seconds": time.perf_counter() - started,
        "command": command,
        "warnings": _told(raised),
    }
    facts = {"notes": prepared.notes, **finite(facts)}
    full = dataclasses.replace(settings, classifier=_written(model))
    facts["configuration"] = finite(dataclasses.asdict(full))
    return Fitted(TableModel(prepared.schema, prepared.pipeline, model, facts), full)


def _prepare(settings: FitSettings, known: tuple[float, float] | None) -> Prepared:
    paths = (settings.first, settings.second)
    folders = [Path(path).is_dir() and not is_table_folder(path) for path in paths]
    if any(folders) != all(folders):
        raise TableError(f"{paths[folders.index(True)]} is a folder and the other is a file; pass two of a kind.")
    if all(folders) or settings.images is not None:
        flat = (FOR_IMAGES | dict(settings.classifier))["model"] not in IMAGE_MODELS
        return prepare_images(*paths, column=settings.images, size=settings.image_size, ids=settings.ids, flat=flat)
    return prepare(*paths, known, drop=settings.drop, ids=settings.ids, only=settings.only, seed=settings.seed)


def _read(
    settings: FitSettings,
    known: tuple[float, float] | None,
    folder: Path,
    checkpoint: Path | None,
    tell: Tell,
    workers: Workers | None,
) -> contextlib.AbstractContextManager[tuple[Prepared, tuple[Matrix, Matrix]]]:
    """Both files, understood, and their rows as numbers, to be used within the block."""

    def read() -> tuple[Prepared, tuple[Matrix, Matrix]]:
        tell("reading both files")
        prepared = _prepare(settings, known)
        _refuse_leakage(prepared, settings)
        tell("turning columns into numbers")
        return prepared, prepared.matrices(folder)

    if workers is None or checkpoint is None:
        return contextlib.nullcontext(read())
    return read_once(read, checkpoint / ROWS, workers)


def _fit_rows(
    settings: FitSettings,
    prepared: Prepared,
    X: tuple[Matrix, Matrix],
    known: tuple[float, float] | None,
    folder: Path,
    checkpoint: Path | None,
    tell: Tell,
    workers: Workers | None,
) -> tuple[UUClassifier, dict[str, Any]]:
    estimate = None
    if known is None:
        tell("estimating the shares of positives")
        estimate = _estimate_priors(X, settings.seed)
        known = estimate.set_priors
    copies = _of_few_kinds(X, 2 * settings.hold_out, settings.seed)
    classifier = _unfitted(settings, prepared, known, checkpoint)
    classifier.set_params(training__distributed=workers is not None)
    crossed = evaluates_out_of_fold(classifier, prepared.sizes, copies)
    models = classifier.n_estimators if isinstance(classifier.n_estimators, int) else defaults.N_ESTIMATORS
    single = not crossed and not classifier.self_training_rounds
    tell("training", 1 if single else models * max_trainings(classifier.self_training_rounds))
    began = time.perf_counter()
    if crossed:
        evaluated = evaluate_out_of_fold(classifier, X, settings.seed)
    else:
        evaluated = evaluate_on_split(classifier, X, settings.hold_out, settings.seed, folder, copies)
    seconds = time.perf_counter() - began
    if workers is not None:
        seconds = workers.agree(seconds)  # on which it depends what is done next
    tell("evaluating")
    if evaluated.note:
        prepared.notes.append(evaluated.note)
    priors, target = _pair(known), settings.target_prior
    scores = evaluated.scores
    comparison = compare_sets_beyond_priors(scores, evaluated.sets, priors)
    if comparison.reason is not None:
        warnings.warn(f"{comparison.reason} {REMEDY}", BeyondPriorsWarning, stacklevel=2)
    facts: dict[str, Any] = evaluation_facts(scores, evaluated.sets, priors, target)
    facts["importance"] = None
    if isinstance(prepared.schema, Schema):
        groups = feature_groups(prepared.pipeline, prepared.schema)
        facts["importance"] = importance_facts(
            evaluated.score,
            evaluated.sample,
            evaluated.sample_sets,
            evaluated.sample_folds,
            groups,
            priors,
            target,
            settings.seed,
        )
    facts["sensitivity"] = _sensitivity(settings, classifier, evaluated.trained, copies, seconds, tell)
    facts |= {
        "files": [
            {"name": source.name, "rows": rows, "prior": prior}
            for source, rows, prior in zip(prepared.sources, prepared.sizes, priors, strict=True)
        ],
        "columns": _columns(prepared),
        "features": math.prod(X[0].shape[1:]),
        "set_priors": list(priors),
        "target_prior": target,
        "priors_estimated": None if estimate is None else {"intervals": [list(i) for i in estimate.intervals]},
        "split": evaluated.split,
        "cross_fitted": crossed,
        "device": str(next(classifier.model_.parameters()).device),
    }
    return classifier.set_params(training__distributed=False), facts


@contextlib.contextmanager
def _few_threads(cells: int) -> Iterator[None]:
    """One thread for small tables: their products gain nothing by more, and lose much where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if cells < SMALL_CELLS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _of_few_kinds(X: tuple[Matrix, Matrix], fraction: float, seed: int) -> bool:
    """Whether the rows are copies of so few kinds that none can be left out, while equal rows can be held out."""
    if not has_few_unique_rows(TwoSets((DenseRows(torch.from_numpy(X[0])), DenseRows(torch.from_numpy(X[1]))))):
        return False
    try:
        _, torn_apart = split_rows(X, fraction, seed)
    except TableError:  # too few rows for that; folds need fewer
        return False
    return torn_apart is not None


def _unfitted(
    settings: FitSettings, prepared: Prepared, priors: Sequence[float], checkpoint: Path | None
) -> UUClassifier:
    """The classifier with the parameters of the settings; "auto" is resolved as in Python once the rows are known."""
    images = isinstance(prepared.schema, ImageSchema)
    parameters = FILE_DEFAULTS | (FOR_IMAGES if images else {}) | dict(settings.classifier)
    classifier = UUClassifier(priors, settings.target_prior, random_state=settings.seed)
    classifier.set_params(**parameters, training__checkpoint_dir=checkpoint)
    check_parameters(classifier.get_params(deep=False))
    return classifier


def _sensitivity(
    settings: FitSettings,
    classifier: UUClassifier,
    trained: tuple[Matrix, Matrix],
    copies: bool,
    seconds: float,
    tell: Tell,
) -> dict[str, Any]:
    if settings.sensitivity is False:
        return {"skipped": "It was not asked for (--no-sensitivity)."}
    if copies:
        return {"skipped": "The rows are copies of so few kinds that none can be left out to compare the models by."}
    if settings.sensitivity is None and seconds > QUICK_SECONDS:
        said = f"Training took {seconds:.0f} s and would be done twelve times more; --sensitivity asks for it."
        return {"skipped": said}
    tell("training again with other priors, to see how much they matter", sensitivity_models(classifier))
    return sensitivity_facts(classifier, *both(trained))


def _refuse_leakage(prepared: Prepared, settings: FitSettings) -> None:
    if not prepared.leaking_columns:
        return
    said = [leak.reason for leak in prepared.leaking_columns]
    if settings.allow_leakage:
        prepared.notes.extend(said)
        return
    names = " ".join(f"--drop {_quoted(leak.column)}" for leak in prepared.leaking_columns)
    raise TableError(f"{' '.join(said)} Leave out what tells the files apart ({names}), or insist (--allow-leakage).")


def _estimate_priors(X: tuple[Matrix, Matrix], seed: int) -> SetPriorsEstimate:
    rng = np.random.default_rng([seed, 7])
    some = [
        rows[np.sort(rng.permutation(len(rows))[:PRIOR_ROWS])].reshape(min(len(rows), PRIOR_ROWS), -1) for rows in X
    ]
    return estimate_set_priors(some[0], some[1], random_state=seed)


def _columns(prepared: Prepared) -> list[dict[str, Any]]:
    if isinstance(prepared.schema, ImageSchema):
        return [{"name": prepared.schema.column, "kind": "image", "used": True, "why": None, "missing": [0.0, 0.0]}]
    used: list[dict[str, Any]] = [
        {"name": column.name, "kind": column.kind, "used": True, "why": None} for column in prepared.schema.columns
    ]
    ids = [
        {"name": name, "kind": "id", "used": False, "why": "an identifier, kept for the output"}
        for name in prepared.schema.ids
    ]
    left = [{"name": name, "kind": None, "used": False, "why": why} for name, why in prepared.schema.left_out.items()]
    entries: list[dict[str, Any]] = used + ids + left
    return [entry | {"missing": list(prepared.missing.get(entry["name"], (0.0, 0.0)))} for entry in entries]


def _written(classifier: UUClassifier) -> dict[str, Any]:
    """Parameters that are not the fit's own, for the configuration."""
    own = {*SET_HERE, "progress"}
    plain = (bool, int, float, str, tuple, list, dict)
    return {
        name: value
        for name, value in classifier.get_params(deep=True).items()
        if name not in own and isinstance(value, plain)
    }


def _told(raised: list[warnings.WarningMessage]) -> list[dict[str, str]]:
    found = {(warning.category.__name__, str(warning.message)) for warning in raised}
    return [{"category": category, "message": message} for category, message in sorted(found)]


def _pair(priors: Any) -> tuple[float, float]:
    first, second = priors
    return float(first), float(second)


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else repr(name)
