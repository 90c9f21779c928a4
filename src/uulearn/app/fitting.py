"""Fit a classifier to two files: read, encode, train, evaluate, and collect the facts about the model.

`fit_files` calls `make_classifier`, `read_and_encode`, `resolve_priors`, `train` and `collect_facts` in this order;
each takes and returns plain values. `uulearn.app.output.FitRun` calls `fit_files` and saves the model.
"""

import contextlib
import dataclasses
import math
import platform
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from uulearn import defaults
from uulearn._version import __version__
from uulearn.app.estimates import MEASURE_ALL, evaluation_facts, sensitivity_facts
from uulearn.app.facts import ColumnFacts, FitFacts, RaisedWarning, SensitivityFacts, SetFacts, to_json
from uulearn.app.formatting import sentence
from uulearn.app.model import TableModel
from uulearn.app.settings import SET_BY_FIT, FitSettings, check_different_files
from uulearn.app.sharing import read_once
from uulearn.app.training import EvaluationRows, Matrices, join_sets, train_and_score
from uulearn.data.augmentation import describe_names, is_augmentation
from uulearn.estimator import UUClassifier
from uulearn.estimator.boosting import import_lightgbm
from uulearn.estimator.parameters import PURE_PRIORS, check_parameters
from uulearn.exceptions import TableError
from uulearn.io.formats import check_exists
from uulearn.io.reading import is_table_folder
from uulearn.models import is_image_model, is_torchvision_name
from uulearn.models.torchvision_networks import check_torchvision
from uulearn.priors import SetPriorsEstimate, estimate_set_priors
from uulearn.selection.sensitivity import MIN_MODELS
from uulearn.tabular import TableEncoder
from uulearn.tabular.images import DEFAULT_SIZE, PHOTO_SIZE, ImageSchema
from uulearn.tabular.leakage import LeakingColumn
from uulearn.tabular.matrices import Prepared, prepare, prepare_images
from uulearn.tabular.schema import group_columns
from uulearn.training.progress import ProgressCallback, StageStarted, format_duration, no_progress
from uulearn.training.workers import Workers

PRIOR_ROWS = 20_000
"""Maximum number of rows per file used to estimate the priors; more rows hardly change the estimate."""
TABLE_DEFAULTS: dict[str, Any] = {"model": defaults.AUTO}
IMAGE_DEFAULTS: dict[str, Any] = {"model": defaults.IMAGE_MODEL, "training__input_scale": defaults.PIXEL_SCALE}
SENSITIVITY_MARGIN = 1.3
"""Factor of the expected time of the sensitivity analysis, because the training of a model takes different times."""
SHARED_ROWS = "rows"
"""Subfolder of the checkpoint folder that contains the rows shared by several workers."""

Priors = tuple[float, float]


class TrainingOutcome(NamedTuple):
    """A fitted classifier and the data used to evaluate it."""

    classifier: UUClassifier
    rows: EvaluationRows
    device: str
    seconds: float
    sensitivity_seconds: float | None
    """Time budget of the sensitivity analysis, or None if a few models take longer than the training."""


def fit_files(
    settings: FitSettings,
    *,
    command: str = "",
    checkpoint: Path | None = None,
    progress: ProgressCallback = no_progress,
    workers: Workers | None = None,
) -> tuple[TableModel, FitSettings]:
    """Fit a classifier to two files; return the model and the complete settings needed to repeat the fit.

    ``command`` is the command line, which is stored with the facts. Interrupted training continues from the checkpoints
    in the folder ``checkpoint``. If several ``workers`` train together, each calls this function; the first one reads
    the files and writes the encoded rows to a subfolder of ``checkpoint``, which all workers must be able to read.
    """
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        folder = Path(tempfile.gettempdir())
        classifier = make_classifier(settings, checkpoint)
        with read_and_encode(settings, folder, checkpoint, progress, workers) as (prepared, X):
            priors, estimate = resolve_priors(settings, X, progress)
            classifier.set_params(set_priors=priors)
            if isinstance(prepared.schema, ImageSchema) and prepared.schema.flat:
                classifier.set_params(training__image_shape=prepared.schema.image_shape)
            trained = train(settings, classifier, X, folder, progress, workers, prepared.encoder)
            measured = collect_facts(settings, prepared, X, priors, estimate, trained, progress)
    classifier = trained.classifier.set_params(training__distributed=False)
    plain = (bool, int, float, str, tuple, list, dict)
    parameters = classifier.get_params(deep=True).items()
    stored = {name: value for name, value in parameters if name not in SET_BY_FIT and isinstance(value, plain)}
    complete = dataclasses.replace(settings, classifier=stored)
    messages = {(warning.category.__name__, str(warning.message)) for warning in raised}
    facts = FitFacts(
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        versions={"uulearn": __version__, "torch": torch.__version__, "python": platform.python_version()},
        seconds=time.perf_counter() - started,
        command=command,
        notes=tuple(prepared.notes),
        warnings=tuple(RaisedWarning(category, message) for category, message in sorted(messages)),
        configuration=to_json(dataclasses.asdict(complete)),
        **measured,
    )
    images = prepared.schema if isinstance(prepared.schema, ImageSchema) else None
    return TableModel(classifier, facts, images), complete


def read_and_encode(
    settings: FitSettings, folder: Path, checkpoint: Path | None, progress: ProgressCallback, workers: Workers | None
) -> contextlib.AbstractContextManager[tuple[Prepared, Matrices]]:
    """Read both files, reject leaking columns, and encode the rows; the result is valid only in the ``with`` block."""

    def read() -> tuple[Prepared, Matrices]:
        progress(StageStarted("reading both files"))
        prepared = _prepare(settings)
        if prepared.leaking_columns and not settings.allow_leakage:
            raise TableError(_explain_leaks(prepared.leaking_columns, prepared.encoder))
        prepared.notes.extend(leak.reason for leak in prepared.leaking_columns)
        progress(StageStarted("encoding columns"))
        return prepared, prepared.matrices(folder)

    if workers is None or checkpoint is None:
        return contextlib.nullcontext(read())
    return read_once(read, checkpoint / SHARED_ROWS, workers)


def _explain_leaks(leaks: Sequence[LeakingColumn], encoder: TableEncoder | None) -> str:
    """Return the reason for each leaking column, and how to continue; wrong class priors are a cause of some leaks."""
    reasons = " ".join(leak.reason for leak in leaks)
    options = " ".join(f"--drop {_quoted(leak.column)}" for leak in leaks)
    if not any(leak.depends_on_priors for leak in leaks):
        return f"{reasons} Leave out leaking columns ({options}), or keep them (--allow-leakage)."
    what, them = ("this is a leaking column", "it") if len(leaks) == 1 else ("these are leaking columns", "them")
    advice = f"are right, {what}: leave {them} out ({options}), or keep {them} (--allow-leakage)."
    if encoder and 2 * len(leaks) > len(encoder.schema_.columns) > 1:
        check = "Check the class priors: most columns differ by more than they allow."
        return f"{check} {reasons} If the class priors {advice}"
    return f"{reasons} Check the class priors first. If they {advice}"


def takes_images(settings: FitSettings) -> bool:
    """Return whether the sets contain images: two folders of images, or two tables with a column of paths."""
    paths = (settings.first, settings.second)
    folders = [Path(path).is_dir() and not is_table_folder(path) for path in paths]
    if any(folders) != all(folders):
        for path in paths:
            check_exists(path)
        raise TableError(
            f"{paths[folders.index(True)]} is a folder, but the other input is a file; pass two folders or two files."
        )
    return all(folders) or settings.images is not None


def _own_defaults(settings: FitSettings) -> dict[str, Any]:
    """Return the parameters of the classifier, with the defaults of the command line for those that are not given."""
    return (IMAGE_DEFAULTS if takes_images(settings) else TABLE_DEFAULTS) | dict(settings.classifier)


def _prepare(settings: FitSettings) -> Prepared:
    paths = (settings.first, settings.second)
    if takes_images(settings):
        model = _own_defaults(settings)["model"]
        prepared = prepare_images(
            *paths,
            column=settings.images,
            size=settings.image_size,
            ids=settings.ids,
            flat=not is_image_model(model),
            default_size=PHOTO_SIZE if is_torchvision_name(model) else DEFAULT_SIZE,
        )
        if is_torchvision_name(model):
            assert isinstance(prepared.schema, ImageSchema)
            check_torchvision(model, None, prepared.schema.image_shape)
        return prepared
    known = None if isinstance(settings.set_priors, str) else settings.set_priors
    return prepare(
        *paths,
        known,
        drop=settings.drop,
        ids=settings.ids,
        only=settings.only,
        sheet=settings.sheet,
        seed=settings.seed,
    )


def _quoted(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else repr(name)


def resolve_priors(
    settings: FitSettings, X: Matrices, progress: ProgressCallback
) -> tuple[Priors, SetPriorsEstimate | None]:
    """Return the class priors in the settings, or estimate them from a sample of the rows if they are ``"auto"``."""
    if not isinstance(settings.set_priors, str):
        return (float(settings.set_priors[0]), float(settings.set_priors[1])), None
    progress(StageStarted("estimating the class priors"))
    rng = np.random.default_rng([settings.seed, 7])
    samples = [
        rows[np.sort(rng.permutation(len(rows))[:PRIOR_ROWS])].reshape(min(len(rows), PRIOR_ROWS), -1) for rows in X
    ]
    estimate = estimate_set_priors(samples[0], samples[1], random_state=settings.seed)
    return (float(estimate.set_priors[0]), float(estimate.set_priors[1])), estimate


def train(
    settings: FitSettings,
    classifier: UUClassifier,
    X: Matrices,
    folder: Path,
    progress: ProgressCallback,
    workers: Workers | None,
    encoder: TableEncoder | None,
) -> TrainingOutcome:
    """Train the classifier on encoded rows; the rows for evaluation are held out or scored out of fold."""
    classifier.set_params(training__distributed=workers is not None)
    started = time.perf_counter()
    rows = train_and_score(classifier, X, settings.hold_out, settings.seed, folder, progress)
    classifier = classifier.with_encoder(encoder)
    seconds = time.perf_counter() - started
    times = seconds, _sensitivity_seconds(classifier, seconds)
    if workers is not None:
        times = workers.broadcast(times)  # later steps require the same values in all processes
    return TrainingOutcome(classifier, rows, classifier.trained_.device, *times)


def make_classifier(settings: FitSettings, checkpoint: Path | None) -> UUClassifier:
    """Create the classifier from the settings and check its parameters, before any file is read. "auto" parameters are
    resolved once the rows are known, as in Python. If the class priors must be estimated, the classifier has the
    placeholder priors 1 and 0 until then.
    """
    check_different_files(settings.first, settings.second)
    _check_image_options(settings)
    priors = PURE_PRIORS if isinstance(settings.set_priors, str) else settings.set_priors
    classifier = UUClassifier(priors, settings.target_prior, random_state=settings.seed)
    classifier.set_params(**_own_defaults(settings), training__checkpoint_dir=checkpoint)
    check_parameters(classifier.get_params(deep=False))
    if classifier.model == defaults.BOOSTING:
        import_lightgbm()
    options = classifier.model_params
    if isinstance(options, Mapping) and "weights" in options and not is_torchvision_name(classifier.model):
        raise ValueError(
            f"--weights {options['weights']} needs a network of torchvision, but the model is {classifier.model}; add "
            "--model torchvision:resnet18, or remove --weights."
        )
    if isinstance(options, Mapping) and "seconds" in options and classifier.model != defaults.AUTO:
        raise ValueError(
            f"--time-budget (seconds in model_params) limits the comparison of models by --model auto, but the model "
            f"is {classifier.model}; remove the budget of {options['seconds']} s, or use --model auto."
        )
    return classifier


def _check_image_options(settings: FitSettings) -> None:
    """Raise a ValueError if there is no such augmentation, or if the model or the augmentation needs images."""
    own = _own_defaults(settings)
    model, augment = own["model"], own.get("training__augment")
    if isinstance(augment, str) and not is_augmentation(augment):
        raise ValueError(f"--augment must be {describe_names()}, got {augment!r}.")
    if takes_images(settings):
        return
    if is_image_model(model):
        option, fix = f"--model {model}", "choose another --model"
    elif augment is not None and own.get("training__image_shape") is None:
        option, fix = f"--augment {augment}", "remove --augment"
    else:
        return
    for path in (settings.first, settings.second):
        check_exists(path)
    raise ValueError(
        f"{option} needs images, but {settings.first} and {settings.second} are not folders of images; {fix}, or pass "
        "--images COLUMN if a column contains paths of images."
    )


def collect_facts(
    settings: FitSettings,
    prepared: Prepared,
    X: Matrices,
    priors: Priors,
    estimate: SetPriorsEstimate | None,
    trained: TrainingOutcome,
    progress: ProgressCallback,
) -> dict[str, Any]:
    """Evaluate the classifier without labels and return the `FitFacts` fields about files, columns and results."""
    progress(StageStarted("evaluating"))
    rows, target = trained.rows, settings.target_prior
    if rows.note:
        prepared.notes.append(rows.note)
    if (choice := trained.classifier.consistency_) is not None:
        text = str(choice)
        prepared.notes.append(sentence(text[0].upper() + text[1:]))
    encoder = prepared.encoder
    groups, columns = (None, ()) if encoder is None else (_feature_groups(encoder), encoder.schema_.columns)
    first, second = (
        SetFacts(source.name, int(n_rows), prior)
        for source, n_rows, prior in zip(prepared.sources, prepared.sizes, priors, strict=True)
    )
    return {
        "sets": (first, second),
        "columns": tuple(_describe_columns(prepared)),
        "n_features": math.prod(X[0].shape[1:]),
        "target_prior": target,
        "prior_intervals": None if estimate is None else tuple(map(tuple, estimate.intervals)),
        "row_use": rows.row_use,
        "out_of_fold": rows.out_of_fold,
        "error_scale": 1.0 if rows.correction is None else rows.correction.error_scale,
        "device": trained.device,
        "comparison": trained.classifier.trained_.comparison,
        **evaluation_facts(rows, groups, columns, priors, target, settings.seed),
        "sensitivity": _measure_sensitivity(settings, trained, progress),
    }


def _measure_sensitivity(
    settings: FitSettings, trained: TrainingOutcome, progress: ProgressCallback
) -> SensitivityFacts:
    skipped, seconds = None, None if settings.sensitivity else trained.sensitivity_seconds
    if settings.sensitivity is False:
        skipped = "The measurement was disabled with --no-sensitivity."
    elif trained.rows.few_unique_rows:
        skipped = "There are too few distinct rows to hold out some of them for the comparison."
    elif settings.sensitivity is None and seconds is None:
        skipped = (
            f"The measurement trains at least {MIN_MODELS} models, which takes longer than the training "
            f"({format_duration(trained.seconds)}). {MEASURE_ALL}"
        )
    if skipped is not None:
        return SensitivityFacts(skipped=skipped)
    progress(
        StageStarted("training with wrong priors, to measure their effect", 1 + 3 * len(defaults.SENSITIVITY_ERRORS))
    )
    return sensitivity_facts(trained.classifier, *join_sets(trained.rows.trained), seconds)


def _sensitivity_seconds(classifier: UUClassifier, training_seconds: float) -> float | None:
    """Return the time budget of the sensitivity analysis, or None if a few models take longer than the training.

    The budget is a fraction of the training time, or the time that a few models are expected to need if this is more.
    """
    usual, n_models = defaults.SENSITIVITY_TIME * training_seconds, classifier.trained_.n_models
    on_cuda = classifier.trained_.device.startswith("cuda")
    if classifier.model == "linear" or (on_cuda and classifier.model in ("mlp", defaults.AUTO)):
        return usual  # the models are trained together
    if n_models is None:
        return None
    times = [(entry.weight, entry.seconds) for entry in classifier.comparison_ or () if entry.seconds]
    fraction = max(times)[1] / sum(own for _, own in times) if times else 1.0  # of the model with the highest weight
    needed = SENSITIVITY_MARGIN * MIN_MODELS * fraction * training_seconds / n_models
    return max(usual, needed) if needed <= training_seconds else None


def _describe_columns(prepared: Prepared) -> Iterator[ColumnFacts]:
    schema, missing = prepared.schema, prepared.missing
    if isinstance(schema, ImageSchema):
        yield ColumnFacts(schema.column, "image", used=True)
        return
    kinds = {column.name: column.kind for column in schema.columns}
    for name, columns in group_columns(schema.names, schema.lists).items():
        fractions = np.array([missing.get(column, (0.0, 0.0)) for column in columns]).max(axis=0)
        kind = kinds[name] if name in kinds else f"{len(columns):,} columns"
        yield ColumnFacts(name, kind, used=True, missing=(float(fractions[0]), float(fractions[1])))
    for name in schema.ids:
        yield ColumnFacts(name, "id", used=False, reason="identifier, copied to the output")
    for reason in dict.fromkeys(schema.left_out.values()):
        names = [name for name, own in schema.left_out.items() if own == reason]
        for name, columns in group_columns(names, schema.lists).items():
            several = f"{name} ({len(columns):,} columns)" if columns != [name] else name
            yield ColumnFacts(several, None, used=False, reason=reason, missing=missing.get(name, (0.0, 0.0)))


def _feature_groups(encoder: TableEncoder) -> dict[str, list[int]]:
    """Return the features of each column; the columns of an embedding are one group."""
    features = encoder.feature_groups()
    groups = group_columns(encoder.schema_.names, encoder.schema_.lists)
    return {name: [feature for column in own for feature in features[column]] for name, own in groups.items()}
