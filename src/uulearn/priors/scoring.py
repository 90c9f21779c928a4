"""Scores that tell two sets apart, each row scored by a model that has not seen it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier

from uulearn.priors.mixture import Floats

FOLDS = 5
MOSTLY_COPIES = 0.5


def default_scorer(seed: int | None = None) -> Any:
    """A forest of 100 extremely randomised trees with at least ten rows a leaf.

    Chosen by measurement (docs/priors.md): which set a row came from is a very noisy label of its class, and averaging
    over large leaves stands that better than boosting, while it finds what a linear model cannot.
    """
    return ExtraTreesClassifier(n_estimators=100, min_samples_leaf=10, random_state=seed)


def cross_fitted_scores(
    X0: Any, X1: Any, *, scorer: Any = None, folds: int = FOLDS, random_state: int | None = None
) -> tuple[Floats, Floats]:
    """Scores of the rows of two sets, higher for rows that look like set 0.

    The rows are dealt to ``folds`` parts, each of which holds its share of both sets; a part is scored by a classifier
    trained on the others to tell the sets apart. Copies of a row stay in one part, so that no row is scored by a model
    that has seen it; where more than half of the rows are copies, as in tables of few distinct values, they are dealt
    like any other.

    Parameters
    ----------
    X0, X1 : arrays of shape (n, …) and (n′, …)
        Rows of the two sets.
    scorer : scikit-learn classifier, optional
        Anything with ``fit`` and ``decision_function`` or ``predict_proba``; it is cloned. `default_scorer` if not
        given.
    folds : int
        Number of parts, at least 2.
    random_state : int, optional
        Seeds the dealing, and the default scorer.

    Returns
    -------
    scores0, scores1 : arrays of shape (n,) and (n′,)

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(1, 1, size=(200, 2)), rng.normal(-1, 1, size=(300, 2))
    >>> in_a, in_b = cross_fitted_scores(A, B, scorer=LogisticRegression(), random_state=0)
    >>> in_a.shape, in_b.shape, bool(in_a.mean() > in_b.mean())
    ((200,), (300,), True)
    """
    rows0, rows1 = read_rows(X0, "X0"), read_rows(X1, "X1")
    if rows0.shape[1] != rows1.shape[1]:
        raise ValueError(
            f"X0 has {rows0.shape[1]} columns and X1 has {rows1.shape[1]}; both sets need the same columns in the same "
            "order."
        )
    smaller = min(len(rows0), len(rows1))
    if not 2 <= folds <= smaller:
        raise ValueError(f"folds must be between 2 and the rows of the smaller set ({smaller:,}), got {folds!r}.")
    rng = np.random.default_rng(random_state)
    seed = int(rng.integers(2**31 - 1))
    model = default_scorer(seed) if scorer is None else _check_scorer(scorer)
    X = np.concatenate([rows0, rows1])
    in_set0 = np.repeat([1, 0], [len(rows0), len(rows1)])
    part = _deal(X, in_set0, folds, rng)
    scores = np.empty(len(X))
    for held in range(folds):
        out = part == held
        if len(np.unique(in_set0[~out])) < 2:
            raise ValueError("all rows of one set are copies of each other; pass sets of different rows.")
        if out.any():
            scores[out] = _score(clone(model).fit(X[~out], in_set0[~out]), X[out])
    return scores[in_set0 == 1], scores[in_set0 == 0]


def read_rows(X: Any, name: str) -> Floats:
    """Rows as a finite array of shape (n, columns); images are flattened."""
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers ({error}); encode text columns first.") from error
    if rows.ndim < 2 or 0 in rows.shape:
        raise ValueError(
            f"{name} must be rows of columns, got an array of shape {rows.shape}; reshape to (n, columns)."
        )
    rows = rows.reshape(len(rows), -1)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"{name} holds {rows[row, column]} in row {row}, column {column}; remove or impute such rows.")
    return rows


def _check_scorer(scorer: Any) -> Any:
    if not hasattr(scorer, "fit") or not (hasattr(scorer, "decision_function") or hasattr(scorer, "predict_proba")):
        raise TypeError(
            f"scorer must be a classifier with fit and decision_function or predict_proba, got {scorer!r}; pass for "
            "example sklearn.linear_model.LogisticRegression()."
        )
    return scorer


def _deal(X: Floats, in_set0: NDArray[np.int64], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The part of each row: copies together, both sets spread evenly."""
    whole = np.ascontiguousarray(X + 0.0).view(np.dtype((np.void, X.itemsize * X.shape[1]))).ravel()  # −0 as 0
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    if len(first) < MOSTLY_COPIES * len(X):
        first = group = np.arange(len(X))
    part = np.empty(len(first), dtype=np.int64)
    for which in (0, 1):
        members = np.flatnonzero(in_set0[first] == which)
        part[rng.permutation(members)] = np.arange(len(members)) % folds
    return part[group]


def _score(model: Any, X: Floats) -> Floats:
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=float)
    else:
        scores = np.asarray(model.predict_proba(X), dtype=float)[:, 1]
    if scores.shape != (len(X),) or not np.isfinite(scores).all():
        raise ValueError(
            f"scorer gave scores of shape {scores.shape} for {len(X)} rows, or some that are not finite; it must give "
            "one number a row."
        )
    return scores
