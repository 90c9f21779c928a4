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

from uulearn._version import __version__
from uulearn.app.evaluating import both, evaluate_on_split, evaluate_out_of_fold
from uulearn.app.facts import evaluation_facts, finite, importance_facts, sensitivity_facts, sensitivity_models
from uulearn.app.model import TableModel
from uulearn.app.settings import AUTO, SET_HERE, FitSettings
from uulearn.app.sharing import read_once
from uulearn.data import DenseRows, TwoSets
from uulearn.estimator import UUClassifier
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.resolving import has_few_unique_rows, is_auto
from uulearn.estimator.self_training import trainings_at_most
from uulearn.exceptions import BeyondPriorsWarning, TableError
from uulearn.io.reading import is_table_folder
from uulearn.models import IMAGE_MODELS
from uulearn.priors import SetPriorsEstimate, estimate_set_priors
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.leakage import compare_sets_beyond_priors
from uulearn.tabular.matrices import Matrix, Prepared, prepare, prepare_images, split_rows
from uulearn.training.workers import Workers

PRIOR_ROWS = 20_000
"""Of each file at most so many rows estimate the priors."""
QUICK_SECONDS = 10.0
"""A training that took less is done again with altered priors without being asked to."""
DEFAULTS: dict[str, Any] = {"keep": "best", "calibrated": True}
"""How `fit` sets the classifier where nothing else is said."""
REMEDY = "Check the shares, and leave out columns that have to do with where rows come from (--drop)."
FEW_ROWS = 5000
"""A file of fewer rows has none to spare for evaluating alone."""
FOLDS = 5
SMALL_CELLS = 500_000
ROWS = "rows"
"""Below the checkpoint, the folder of what several workers share."""
FOR_IMAGES: dict[str, Any] = {"model": "resnet32", "input_scale": 1 / 255}


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
    return Fitted(TableModel(prepared.schema, prepared.encoder, model, facts), full)


def _prepare(settings: FitSettings, known: tuple[float, float] | None) -> Prepared:
    paths = (settings.first, settings.second)
    folders = [Path(path).is_dir() and not is_table_folder(path) for path in paths]
    if any(folders) != all(folders):
        raise TableError(f"{paths[folders.index(True)]} is a folder and the other is a file; pass two of a kind.")
    if all(folders) or settings.images is not None:
        flat = (FOR_IMAGES | dict(settings.classifier))["model"] not in IMAGE_MODELS
        return prepare_images(*paths, column=settings.images, size=settings.image_size, ids=settings.ids, flat=flat)
    return prepare(
        *paths,
        known,
        drop=settings.drop,
        ids=settings.ids,
        only=settings.only,
        sheet=settings.sheet,
        seed=settings.seed,
    )


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
    copies = _of_few_kinds(X, settings.hold_out, settings.seed)
    classifier = _unfitted(settings, prepared, copies, known, checkpoint).set_params(distributed=workers is not None)
    tell("training", classifier.members * trainings_at_most(classifier.rounds))
    began = time.perf_counter()
    crossed = classifier.members > 1 and not classifier.rounds  # refined, a row has been seen by way of its sorting
    evaluate = evaluate_out_of_fold if crossed else evaluate_on_split
    evaluated = evaluate(classifier, X, settings.hold_out, settings.seed, folder)
    seconds = time.perf_counter() - began
    if workers is not None:
        seconds = workers.agree(seconds)  # on which it depends what is done next
    tell("evaluating")
    if evaluated.note:
        prepared.notes.append(evaluated.note)
    priors, target = _pair(known), settings.target_prior
    scores = evaluated.score(evaluated.X)
    comparison = compare_sets_beyond_priors(scores, evaluated.sets, priors)
    if comparison.reason is not None:
        warnings.warn(f"{comparison.reason} {REMEDY}", BeyondPriorsWarning, stacklevel=2)
    facts: dict[str, Any] = evaluation_facts(scores, evaluated.sets, priors, target)
    facts["importance"] = None
    if prepared.encoder is not None:
        groups = prepared.encoder.feature_groups()
        facts["importance"] = importance_facts(
            evaluated.score, evaluated.X, evaluated.sets, evaluated.folds, groups, priors, target, settings.seed
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
    return classifier.set_params(distributed=False), facts


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
    settings: FitSettings, prepared: Prepared, copies: bool, priors: Sequence[float], checkpoint: Path | None
) -> UUClassifier:
    """The classifier as the settings have it; of few rows several members, so that all rows train and all evaluate.

    Not so where rows are copies of a few kinds: a fold would be a kind or two that its member has never seen.
    """
    images = isinstance(prepared.schema, ImageSchema)
    parameters = DEFAULTS | (FOR_IMAGES if images else {})
    convolved = isinstance(prepared.schema, ImageSchema) and not prepared.schema.flat
    parameters["members"] = FOLDS if not convolved and min(prepared.sizes) < FEW_ROWS else 1
    parameters |= {"random_state": settings.seed, "checkpoint_dir": checkpoint, **settings.classifier}
    if copies and not parameters.get("rounds") and is_auto(settings.classifier.get("members", AUTO)):
        parameters["members"] = 1
    classifier = UUClassifier(priors, settings.target_prior, **parameters)
    check_parameters(classifier.get_params(deep=False))
    return classifier._settled(prepared.sizes, held_out=parameters["members"] == 1)


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
        for name, value in classifier.get_params(deep=False).items()
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
