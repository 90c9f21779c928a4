"""Train a classifier and return rows for its evaluation: all rows with out-of-fold scores, or held-out rows.

An ensemble over folds scores every row with the model that was not trained on it; the epoch and the threshold are
chosen on other rows. A single model or a self-trained ensemble is evaluated on rows that are held out before the fit.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uulearn import defaults
from uulearn.app.facts import RowUse
from uulearn.data import DenseRows, TwoSets
from uulearn.data.holdout import has_few_unique_rows
from uulearn.estimator import UUClassifier
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.self_training import max_trainings
from uulearn.metrics.out_of_fold import OutOfFoldCorrection
from uulearn.models import is_image_model
from uulearn.tabular.matrices import Matrix, split_rows, take
from uulearn.training.progress import ProgressCallback, StageStarted

Matrices = tuple[Matrix, Matrix]
Integers = NDArray[np.int64]
ScoreFunction = Callable[[Matrix, Integers], NDArray[np.float32]]
IMPORTANCE_ROWS = 20_000
"""Maximum total number of rows from both sets that are scored again to measure column importance."""


@dataclass(frozen=True)
class EvaluationRows:
    """Evaluation rows of a classifier, with their log-odds from models that were not trained on them."""

    scores: NDArray[np.float32]
    sets: Integers
    sample: Matrix
    """A sample of the evaluation rows, used to measure column importance."""
    sample_sets: Integers
    sample_folds: Integers
    """The fold of each sampled row; rows of different folds are scored by different models."""
    score: ScoreFunction
    """Maps rows and their folds to log-odds."""
    row_use: RowUse
    trained: Matrices
    correction: OutOfFoldCorrection | None = None
    """Correction of estimates from out-of-fold scores to the ensemble."""
    note: str | None = None
    out_of_fold: bool = False
    few_unique_rows: bool = False
    """Whether there are too few unique rows to hold out some of them."""


def train_and_score(
    classifier: UUClassifier, X: Matrices, fraction: float, seed: int, folder: Path, progress: ProgressCallback
) -> EvaluationRows:
    """Train the classifier, and score evaluation rows with models that were not trained on them.

    An ensemble over folds scores all rows. A single model or a self-trained ensemble scores a ``fraction`` of the rows,
    which is held out before the fit. The "auto" parameters of the classifier are replaced by their resolved values.
    """
    number, rounds, sizes = classifier.n_estimators, classifier.self_training_rounds, (len(X[0]), len(X[1]))
    place = _sample(sum(sizes), seed)
    single = number == 1 or (is_auto(number) and is_image_model(classifier.model))
    plan = None if single or rounds else classifier.plan_sets(*X)
    if plan is None or plan.folds is None:
        models = defaults.N_ESTIMATORS if is_auto(number) else int(number)
        progress(StageStarted("training", models * max_trainings(rounds) if rounds else 1))
        return _train_with_holdout(classifier, X, fraction, seed, folder)
    if not is_auto(plan.parameters.model):  # otherwise, each compared model is a stage
        progress(StageStarted("training", plan.parameters.n_estimators, "fold"))
    classifier.set_params(**plan.resolved).fit_plan(plan)
    classifier.set_params(**classifier.resolved_params_)  # some depend on the choice of consistency="auto"
    assert classifier.out_of_fold_scores_ is not None
    submodels = [classifier.submodel(number) for number in range(plan.parameters.n_estimators)]

    def score(rows: Matrix, folds: Integers) -> NDArray[np.float32]:
        out = np.empty(len(rows), dtype=np.float32)
        for fold, model in enumerate(submodels):
            if (own := folds == fold).any():
                out[own] = model.decision_function(rows[own])
        return out

    sets = np.repeat([0, 1], sizes)
    return EvaluationRows(
        scores=classifier.out_of_fold_scores_,
        sets=sets,
        sample=np.concatenate([X[0][place[place < sizes[0]]], X[1][place[place >= sizes[0]] - sizes[0]]]),
        sample_sets=sets[place],
        sample_folds=np.concatenate(plan.folds)[place],
        score=score,
        row_use=RowUse(sizes, sizes, sizes),
        trained=X,
        correction=classifier.out_of_fold_correction_,
        out_of_fold=True,
    )


def _train_with_holdout(
    classifier: UUClassifier, X: Matrices, fraction: float, seed: int, folder: Path
) -> EvaluationRows:
    """Hold out a fraction of the rows for evaluation, and fit the classifier on the remaining rows.

    If there are few unique rows, validation rows are also held out here and passed to the classifier. The classifier is
    calibrated, because `uulearn predict` writes probabilities.
    """
    splits, note = split_rows(X, 2 * fraction, seed)
    first, second = map(torch.from_numpy, X)
    few_unique_rows = has_few_unique_rows(TwoSets((DenseRows(first), DenseRows(second))))
    classifier.set_params(calibrated=True if is_auto(classifier.calibrated) else classifier.calibrated)
    validates = few_unique_rows and not classifier.self_training_rounds
    train, validation, evaluation = [], [], []
    for rows, split in zip(X, splits, strict=True):
        kept = split.train if validates else np.sort(np.concatenate([split.train, split.choose]))
        train.append(take(rows, kept, folder))
        validation.append(take(rows, split.choose, folder) if validates else rows[:0])
        evaluation.append(take(rows, split.evaluate, folder))
    classifier.fit_sets(train[0], train[1], validation_data=join_sets(validation) if validates else None)
    classifier.set_params(**classifier.resolved_params_)
    rows, sets = join_sets(evaluation)
    place = _sample(len(sets), seed)
    return EvaluationRows(
        scores=classifier.decision_function(rows),
        sets=sets,
        sample=rows[place],
        sample_sets=sets[place],
        sample_folds=np.zeros(len(place), dtype=np.int64),
        score=lambda rows, folds: classifier.decision_function(rows),
        row_use=RowUse(_pair(classifier.set_sizes_), _pair(classifier.held_out_sizes_), _pair(map(len, evaluation))),
        trained=(train[0], train[1]),
        note=note,
        few_unique_rows=few_unique_rows,
    )


def _pair(sizes: Iterable[int]) -> tuple[int, int]:
    first, second = sizes
    return first, second


def _sample(n_rows: int, seed: int) -> Integers:
    """Return the sorted positions of at most `IMPORTANCE_ROWS` rows."""
    if n_rows <= IMPORTANCE_ROWS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng([seed, 8]).permutation(n_rows)[:IMPORTANCE_ROWS])


def join_sets(parts: tuple[Matrix, Matrix] | list[Matrix]) -> tuple[Matrix, Integers]:
    """Return the rows of both sets in one matrix, and the set of each row."""
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
