"""Train a classifier and keep rows for its evaluation: all rows out of fold, or rows that are set aside.

An ensemble over folds scores every row with the model that was not trained on it. (The fold of a row did choose the
epoch of that model, so the estimate is slightly optimistic: by about a point if priors are close, far inside its
interval.) A single model, and an ensemble after self-training, are evaluated on rows that are set aside before the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from uulearn.data import DenseRows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.estimator import UUClassifier, resolve_defaults
from uulearn.tabular.matrices import Matrix, split_rows, take

ScoreFunction = Callable[[Matrix, NDArray[np.int64]], NDArray[np.float32]]

# Rows of both sets together that are scored again to measure the importance of columns.
SAMPLED_ROWS = 20_000


@dataclass(frozen=True)
class EvaluationRows:
    """Log-odds of the rows that evaluate a classifier, by models that were not trained on them."""

    scores: NDArray[np.float32]
    sets: NDArray[np.int64]
    sample: Matrix
    """Some of the rows."""
    sample_sets: NDArray[np.int64]
    sample_folds: NDArray[np.int64]
    """Rows of different folds are scored by different models."""
    score: ScoreFunction
    """From rows and their folds to log-odds."""
    split: dict[str, list[int]]
    trained: tuple[Matrix, Matrix]
    note: str | None


def evaluates_out_of_fold(classifier: UUClassifier, sizes: tuple[int, int], single_model: bool) -> bool:
    """Whether every row gets an out-of-fold score: for an ensemble without self-training."""
    parameters = classifier.get_params(deep=False)
    n_estimators = (parameters | resolve_defaults(parameters, sizes, single_model=single_model))["n_estimators"]
    return bool(n_estimators > 1 and not classifier.self_training_rounds)


def train_with_holdout(
    classifier: UUClassifier, X: tuple[Matrix, Matrix], fraction: float, seed: int, folder: Path, single_model: bool
) -> EvaluationRows:
    """Set a fraction of the rows aside for evaluation, and fit on the rest as `uulearn.UUClassifier` does.

    If the rows are copies of a few, so that the classifier cannot hold out any, it gets validation rows as well.
    """
    splits, note = split_rows(X, 2 * fraction, seed)
    single_model = single_model and not classifier.self_training_rounds
    parts = {
        part: [take(rows, getattr(split, part), folder) for rows, split in zip(X, splits, strict=True)]
        for part in ("train", "choose", "evaluate")
    }
    if not single_model:
        joined = [np.sort(np.concatenate([split.train, split.choose])) for split in splits]
        parts["train"] = [take(rows, positions, folder) for rows, positions in zip(X, joined, strict=True)]
        parts["choose"] = [rows[:0] for rows in parts["choose"]]
    first, second = parts["train"]
    resolve_parameters(classifier, (len(first), len(second)), has_validation_data=single_model)
    classifier.fit_sets(first, second, validation_data=join_sets(parts["choose"]) if single_model else None)
    evaluating, sets = join_sets(parts["evaluate"])
    sizes = {
        "train": list(classifier.set_sizes_),
        "choose": list(classifier.held_out_sizes_),
        "evaluate": [len(rows) for rows in parts["evaluate"]],
    }
    place = _sample(len(sets), seed)
    folds = np.zeros(len(place), dtype=np.int64)

    def score(rows: Matrix, folds: NDArray[np.int64]) -> NDArray[np.float32]:
        return classifier.decision_function(rows)

    return EvaluationRows(
        classifier.decision_function(evaluating), sets, evaluating[place], sets[place], folds, score, sizes,
        (first, second), note,
    )  # fmt: skip


def train_out_of_fold(classifier: UUClassifier, X: tuple[Matrix, Matrix], seed: int) -> EvaluationRows:
    """Fit an ensemble on all rows, and score every row with the model that was not trained on it."""
    sizes = (len(X[0]), len(X[1]))
    resolve_parameters(classifier, sizes)
    classifier.fit_sets(*X)
    data = TwoSets((DenseRows(torch.from_numpy(X[0])), DenseRows(torch.from_numpy(X[1]))))
    models = [classifier.submodel(number) for number in range(int(classifier.n_estimators))]
    folds = assign_folds(data.joined(), len(models), classifier.seed_)

    def score(rows: Matrix, folds: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty(len(rows), dtype=np.float32)
        for fold, model in enumerate(models):
            if (own := folds == fold).any():
                out[own] = model.decision_function(rows[own])
        return out

    sets = np.repeat([0, 1], sizes)
    place = _sample(sum(sizes), seed)
    first, second = place[place < sizes[0]], place[place >= sizes[0]] - sizes[0]
    return EvaluationRows(
        np.concatenate([score(rows, own) for rows, own in zip(X, folds, strict=True)]),
        sets,
        np.concatenate([X[0][first], X[1][second]]),
        sets[place],
        np.concatenate(folds)[place],
        score,
        {"train": list(sizes), "choose": list(sizes), "evaluate": list(sizes)},
        X,
        None,
    )


def resolve_parameters(classifier: UUClassifier, sizes: tuple[int, int], has_validation_data: bool = False) -> None:
    """Replace the parameters that are "auto" by their values, so that the configuration of the fit shows them."""
    parameters = classifier.get_params(deep=False)
    classifier.set_params(**resolve_defaults(parameters, sizes, has_validation_data=has_validation_data))


def _sample(n_rows: int, seed: int) -> NDArray[np.int64]:
    """Positions of at most `SAMPLED_ROWS` rows, sorted."""
    if n_rows <= SAMPLED_ROWS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng([seed, 8]).permutation(n_rows)[:SAMPLED_ROWS])


def join_sets(parts: tuple[Matrix, Matrix] | list[Matrix]) -> tuple[Matrix, NDArray[np.int64]]:
    """Rows of both sets in one matrix, and the set of each row."""
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
