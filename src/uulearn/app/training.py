"""Train a classifier and keep rows for its evaluation.

With many rows, some rows of each set are held out: half of them choose the epoch and calibrate, half evaluate.
With few rows, the rows are split into folds, one model of the ensemble is trained without each fold, and every row is
evaluated by the model that was not trained on it. Its fold chose the epoch of that model, so the estimate is slightly
optimistic: about one point if the priors are close, far less than the width of its interval.
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
from uulearn.estimator import UUClassifier
from uulearn.tabular.matrices import Matrix, Split, split_rows, take

ScoreFunction = Callable[[Matrix], NDArray[np.float32]]


@dataclass(frozen=True)
class EvaluationRows:
    """Rows that evaluate a trained classifier, and a function that scores them."""

    X: Matrix
    sets: NDArray[np.int64]
    folds: NDArray[np.int64]
    """Fold of each row; rows of different folds are scored by different models."""
    score: ScoreFunction
    """From rows in the same order as X to log-odds of models that were not trained on them."""
    split: dict[str, list[int]]
    trained: tuple[Matrix, Matrix]
    note: str | None


def train_with_holdout(
    classifier: UUClassifier, X: tuple[Matrix, Matrix], fraction: float, seed: int, folder: Path
) -> EvaluationRows:
    """Train on most rows; the others choose the epoch and evaluate. An ensemble chooses epochs by its own folds."""
    splits, note = split_rows(X, fraction, seed)
    alone = classifier.members == 1
    if not alone:
        splits = (_without_choosing(splits[0]), _without_choosing(splits[1]))
    parts = {
        part: [take(rows, getattr(split, part), folder) for rows, split in zip(X, splits, strict=True)]
        for part in ("train", "choose", "evaluate")
    }
    first, second = parts["train"]
    classifier.fit_sets(first, second, validation_data=join_sets(parts["choose"]) if alone else None)
    rows, sets = join_sets(parts["evaluate"])
    split = {part: [len(rows) for rows in own] for part, own in parts.items()}
    one_fold = np.zeros(len(rows), dtype=np.int64)
    return EvaluationRows(rows, sets, one_fold, classifier.decision_function, split, (first, second), note)


def train_out_of_fold(
    classifier: UUClassifier, X: tuple[Matrix, Matrix], fraction: float, seed: int, folder: Path
) -> EvaluationRows:
    """Train each model of the ensemble on all rows except one fold, and evaluate it on that fold."""
    classifier.fit_sets(*X)
    data = TwoSets((DenseRows(torch.from_numpy(X[0])), DenseRows(torch.from_numpy(X[1]))))
    members = classifier._trained_with()["members"]
    folds = np.concatenate(assign_folds(data.joined(), members, classifier.seed_))
    rows, sets = join_sets(X)
    sizes = [len(own) for own in X]

    def score(like: Matrix) -> NDArray[np.float32]:
        out = np.empty(len(like), dtype=np.float32)
        for fold in range(members):
            out[folds == fold] = classifier.member(fold).decision_function(like[folds == fold])
        return out

    split = {"train": sizes, "choose": sizes, "evaluate": sizes}
    return EvaluationRows(rows, sets, folds, score, split, X, None)


def _without_choosing(split: Split) -> Split:
    return split._replace(train=np.sort(np.concatenate([split.train, split.choose])), choose=split.choose[:0])


def join_sets(parts: tuple[Matrix, Matrix] | list[Matrix]) -> tuple[Matrix, NDArray[np.int64]]:
    """Rows of both sets in one matrix, and the set of each row."""
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
