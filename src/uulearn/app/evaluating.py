"""Training a classifier so that some rows, or every row once, are left to evaluate it by.

With many rows some of each set are held out: half of them choose the epoch and calibrate, half evaluate. With few, the
rows are cut into folds, a member is trained without each, and every row is evaluated by the member that has not seen it
(its fold has chosen that member's epoch, so that the estimate is a little too good, by about a point where priors are
close, which is far inside its interval).
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
from uulearn.tabular.matrices import Matrix, RowSplit, split_rows, take

Score = Callable[[Matrix], NDArray[np.float32]]


@dataclass(frozen=True)
class Evaluated:
    """Rows that evaluate a classifier, and how it scores rows in their place."""

    X: Matrix
    sets: NDArray[np.int64]
    folds: NDArray[np.int64]
    """Rows of different folds are scored by different models."""
    score: Score
    """From rows like X, one for one, to log-odds by models that have not seen them."""
    split: dict[str, list[int]]
    trained: tuple[Matrix, Matrix]
    note: str | None


def evaluate_on_split(
    classifier: UUClassifier, X: tuple[Matrix, Matrix], fraction: float, seed: int, folder: Path
) -> Evaluated:
    """Fit on most rows; some of each set choose, some evaluate. Several members choose by their own folds."""
    splits, note = split_rows(X, fraction, seed)
    alone = classifier.members == 1
    if not alone:
        splits = (_without_choosing(splits[0]), _without_choosing(splits[1]))
    parts = {
        part: [take(rows, getattr(split, part), folder) for rows, split in zip(X, splits, strict=True)]
        for part in ("train", "choose", "evaluate")
    }
    first, second = parts["train"]
    classifier.fit_sets(first, second, validation_data=both(parts["choose"]) if alone else None)
    evaluating, sets = both(parts["evaluate"])
    split = {part: [len(rows) for rows in own] for part, own in parts.items()}
    none = np.zeros(len(evaluating), dtype=np.int64)
    return Evaluated(evaluating, sets, none, classifier.decision_function, split, (first, second), note)


def evaluate_out_of_fold(
    classifier: UUClassifier, X: tuple[Matrix, Matrix], fraction: float, seed: int, folder: Path
) -> Evaluated:
    """Fit members to all rows but one fold each, and evaluate each by its fold."""
    classifier.fit_sets(*X)
    data = TwoSets((DenseRows(torch.from_numpy(X[0])), DenseRows(torch.from_numpy(X[1]))))
    members = classifier._trained_with()["members"]
    folds = np.concatenate(assign_folds(data.joined(), members, classifier.seed_))
    rows, sets = both(X)
    sizes = [len(own) for own in X]

    def score(like: Matrix) -> NDArray[np.float32]:
        out = np.empty(len(like), dtype=np.float32)
        for fold in range(members):
            out[folds == fold] = classifier.member(fold).decision_function(like[folds == fold])
        return out

    split = {"train": sizes, "choose": sizes, "evaluate": sizes}
    return Evaluated(rows, sets, folds, score, split, X, None)


def _without_choosing(split: RowSplit) -> RowSplit:
    return split._replace(train=np.sort(np.concatenate([split.train, split.choose])), choose=split.choose[:0])


def both(parts: tuple[Matrix, Matrix] | list[Matrix]) -> tuple[Matrix, NDArray[np.int64]]:
    """Rows of both sets together, and the set of each."""
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
