"""Validation of sets, tables and base classifiers for `SurrogateSetClassifier`.

Rows are validated by the base classifier, which may accept missing values, text or categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, column_or_1d, has_fit_parameter

CALIBRATIONS = ("mixture", "sigmoid", "isotonic", None)


def read_sets(sets: Any, n_rows: int, n_sets: int) -> NDArray[np.int64]:
    """Return set memberships as integers from 0 to m − 1, one per row."""
    if sets is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: pass sets, the number of the set that each row came "
            "from, or use fit_sets(X0, X1, ...)."
        )
    values = column_or_1d(sets, warn=True)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("Input y contains NaN or infinity: sets must be the number of the set each row came from.")
    check_classification_targets(values)
    if len(values) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and sets {len(values)}."
        )
    unknown = [value for value in np.unique(values).tolist() if value not in range(n_sets)]
    if unknown:
        raise ValueError(
            f"sets must be whole numbers from 0 to {n_sets - 1}, one for each of the {n_sets} set_priors, got "
            f"{unknown[0]!r}; number the sets from 0 and pass one prior per set."
        )
    return np.asarray(values).astype(np.int64)


def check_every_set(membership: NDArray[np.int64], n_sets: int, least: int = 1) -> None:
    """Raise a ValueError unless every set has at least the given number of rows."""
    for which, size in enumerate(np.bincount(membership, minlength=n_sets).tolist()):
        if size == 0:
            raise ValueError(
                f"set {which} is empty: sets has no row of it (one class of sets is missing); pass rows with "
                f"sets == {which}, or drop its prior."
            )
        if size < least:
            raise ValueError(
                f"set {which} has only {size} {'sample' if size == 1 else 'samples'}, but calibration by {least}-fold "
                "cross-validation needs a row of every set in every fold; lower cv, or pass calibration=None."
            )


def weighted_fractions(membership: NDArray[np.int64], weight: NDArray[np.float64], n_sets: int) -> NDArray[np.float64]:
    """Return the fraction of each set in the total weight, shape (m,)."""
    mass = np.bincount(membership, weights=weight, minlength=n_sets)
    if not (mass > 0).all():
        raise ValueError(
            f"all rows of set {int(mass.argmin())} have sample_weight 0, so that one class of sets is missing; use "
            "positive weights."
        )
    return np.asarray(mass / mass.sum())


def stack_rows(tables: Sequence[Any]) -> Any:
    """Concatenate tables of the same type, or convert them to arrays first."""
    if len({type(table) for table in tables}) == 1:
        first = tables[0]
        if isinstance(first, list):
            return list(chain.from_iterable(tables))
        if sparse.issparse(first):
            return sparse.vstack(tables, format="csr")
        if hasattr(first, "iloc"):
            import pandas as pd

            for which, table in enumerate(tables):
                if list(getattr(table, "columns", [])) != list(getattr(first, "columns", [])):
                    raise ValueError(
                        f"set 0 and set {which} have different columns, {list(first.columns)} and "
                        f"{list(table.columns)}; pass tables with the same columns in the same order."
                    )
            return pd.concat(tables, ignore_index=True)
    return np.concatenate([np.asarray(table) for table in tables])


def check_base(base: Any, calibration: str | None, weighted: bool) -> None:
    """Raise unless the base classifier can be fitted on sets and return the required probabilities."""
    name = type(base).__name__
    if isinstance(base, type) or not (hasattr(base, "fit") and hasattr(base, "get_params")):
        raise TypeError(
            f"estimator must be a scikit-learn classifier such as RandomForestClassifier(), got {base!r}; pass an "
            "instance, not a class."
        )
    if calibration is None and not hasattr(base, "predict_proba"):
        raise TypeError(
            f"{name} has no predict_proba; pass calibration='mixture', which uses its decision function, or another "
            "estimator."
        )
    if not hasattr(base, "predict_proba") and not hasattr(base, "decision_function"):
        raise TypeError(f"{name} has neither predict_proba nor decision_function; pass a classifier that has one.")
    if weighted and not has_fit_parameter(base, "sample_weight"):
        raise TypeError(
            f"{name}.fit has no sample_weight; omit the weights, or pass an estimator that supports them (instead of a "
            "pipeline, put its first steps before SurrogateSetClassifier)."
        )
    for parameter, value in base.get_params(deep=True).items():
        if parameter.split("__")[-1] == "class_weight" and value is not None:
            raise ValueError(
                f"{parameter}={value!r} of {name} changes the fractions of the sets, which makes the inversion of its "
                "probabilities wrong; pass class_weight=None, or use sample_weight, which is taken into account."
            )


def check_calibration(calibration: Any, cv: Any) -> None:
    """Raise a ValueError unless both values are allowed."""
    if not (calibration is None or isinstance(calibration, str)) or calibration not in CALIBRATIONS:
        raise ValueError(f"calibration must be one of {', '.join(map(repr, CALIBRATIONS))}, got {calibration!r}.")
    folds = isinstance(cv, Integral) and not isinstance(cv, bool) and int(cv) >= 2
    if not (folds or hasattr(cv, "split")):
        raise ValueError(f"cv must be a whole number of folds, at least 2, or a splitter, got {cv!r}.")


def n_rows_of(X: Any) -> int:
    """Return the number of rows of any table that scikit-learn accepts."""
    return int(_num_samples(X))
