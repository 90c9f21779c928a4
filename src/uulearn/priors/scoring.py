"""Compute out-of-fold scores with a classifier that distinguishes two sets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from uulearn.metrics.estimates import Floats, read_column

FOLDS = 5
# If the fraction of distinct rows is below this number, copies of a row may be in different folds: with few distinct
# rows, a classifier cannot score rows that were not in its training data.
MIN_DISTINCT_FRACTION = 0.5


def default_scorer(seed: int | None = None) -> Any:
    """Return a forest of trees with large leaves, which is robust to label noise (see docs/studies/priors.md)."""
    from sklearn.ensemble import ExtraTreesClassifier  # slow to import

    return ExtraTreesClassifier(n_estimators=100, min_samples_leaf=10, random_state=seed)


def out_of_fold_scores(
    X0: Any, X1: Any, *, scorer: Any = None, folds: int = FOLDS, random_state: int | None = None
) -> tuple[Floats, Floats]:
    """Return an out-of-fold score for each row of two sets; rows that look like set 0 get higher scores.

    Each fold is scored by a classifier that was trained on the other folds to distinguish the sets. Duplicate rows are
    assigned to the same fold, unless more than half of the rows are duplicates.

    ``scorer`` is a scikit-learn classifier with ``decision_function`` or ``predict_proba`` (default: `default_scorer`).
    ``random_state`` is the seed for the folds and for the default scorer.

    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(1, 1, size=(200, 2)), rng.normal(-1, 1, size=(300, 2))
    >>> in_a, in_b = out_of_fold_scores(A, B, scorer=LogisticRegression(), random_state=0)
    >>> in_a.shape, in_b.shape
    ((200,), (300,))
    """
    rows0, rows1 = read_rows(X0, "X0"), read_rows(X1, "X1")
    if rows0.shape[1] != rows1.shape[1]:
        raise ValueError(f"X0 has {rows0.shape[1]} columns, but X1 has {rows1.shape[1]}; use the same columns.")
    smaller = min(len(rows0), len(rows1))
    if not 2 <= folds <= smaller:
        raise ValueError(f"folds must lie between 2 and {smaller:,}, the size of the smaller set, got {folds!r}.")
    rng = np.random.default_rng(random_state)
    seed = int(rng.integers(2**31 - 1))
    model = default_scorer(seed) if scorer is None else _check_scorer(scorer)
    X = np.concatenate([rows0, rows1])
    in_set0 = np.repeat([1, 0], [len(rows0), len(rows1)])
    fold = assign_folds(X, in_set0, folds, rng)
    scores = np.empty(len(X))
    for number in range(folds):
        held_out = fold == number
        if len(np.unique(in_set0[~held_out])) < 2:
            raise ValueError("all rows of one set are identical; pass sets with different rows.")
        if held_out.any():
            scores[held_out] = _score(clone(model).fit(X[~held_out], in_set0[~held_out]), X[held_out])
    return scores[in_set0 == 1], scores[in_set0 == 0]


def read_rows(X: Any, name: str) -> Floats:
    """Return rows as an array of finite values with shape (n, columns); images are flattened."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must contain numbers ({error}); encode text columns first.") from error
    if rows.ndim < 2 or 0 in rows.shape:
        raise ValueError(f"{name} must have shape (n, columns), got {rows.shape}; pass a non-empty table.")
    rows = rows.reshape(len(rows), -1)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"{name} has {rows[row, column]} in row {row}, column {column}; drop the row or impute it.")
    return rows


def _check_scorer(scorer: Any) -> Any:
    if not hasattr(scorer, "fit") or not (hasattr(scorer, "decision_function") or hasattr(scorer, "predict_proba")):
        raise TypeError(f"scorer must be a classifier with decision_function or predict_proba, got {scorer!r}.")
    return scorer


def read_scores(scores: Any, name: str) -> Floats:
    """Return scores as a non-empty array of finite values with shape (n,)."""
    values = read_column(scores, name)
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite numbers, got {'inf' if len(values) else 'no rows'}.")
    return values


def assign_folds(X: Floats, in_set0: NDArray[np.int64], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the fold of each row; folds are stratified by set, and duplicate rows are in the same fold."""
    whole = np.ascontiguousarray(X + 0.0).view(np.dtype((np.void, X.itemsize * X.shape[1]))).ravel()  # −0 becomes 0
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) < MIN_DISTINCT_FRACTION * len(X):
        first = group = np.arange(len(X))
    fold = np.empty(len(first), dtype=np.int64)
    for which in (0, 1):
        rows = np.flatnonzero(in_set0[first] == which)
        fold[rng.permutation(rows)] = np.arange(len(rows)) % folds
    return fold[group]


def _score(model: Any, X: Floats) -> Floats:
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=float)
    else:
        scores = np.asarray(model.predict_proba(X), dtype=float)[:, 1]
    if scores.shape != (len(X),) or not np.isfinite(scores).all():
        raise ValueError(f"scorer must return one finite number per row, got shape {scores.shape} for {len(X)} rows.")
    return scores
