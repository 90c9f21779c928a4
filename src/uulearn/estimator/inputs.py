"""From what users hold (NumPy, pandas, SciPy sparse, torch, lists) to rows, sets and labels; copied only if it must be.

Errors name the offending value and what to do about it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, column_or_1d
from torch import Tensor

from uulearn.data import DenseRows, Rows, SparseRows
from uulearn.data.streams import RowStream

CHECKED_BYTES = 16 * 2**20
DIRECT = {
    np.dtype(name) for name in ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
}


def read_rows(X: Any, estimator: Any, *, reset: bool, any_shape: bool, name: str = "X") -> Rows:
    """Rows of X, finite and of the right shape.

    With ``reset`` the estimator learns the number and names of the columns, otherwise they must agree with what it
    learned. ``any_shape`` admits rows that are images or sequences.
    """
    if isinstance(X, RowStream):
        raise TypeError(
            f"{name} is a {type(X).__name__}, a stream of rows, which UUClassifier.fit_sets alone takes, both sets as "
            "streams; pass rows in memory here, such as those of a piece, which its read(piece) gives."
        )
    if isinstance(X, Tensor):
        rows: Rows = _from_tensor(X, any_shape, name)
    else:
        _check_feature_names(estimator, X, reset=reset)
        array = _as_numbers(X, any_shape, name)
        rows = SparseRows(array) if sparse.issparse(array) else DenseRows(_as_tensor(array))
    _check_finite(rows, name)
    if reset:
        estimator.n_features_in_ = rows.row_shape[0]
        estimator.row_shape_ = rows.row_shape
    elif rows.row_shape != estimator.row_shape_:
        expected = estimator.row_shape_
        kind = type(estimator).__name__
        if name == "X1":
            raise ValueError(
                f"X0 has rows of shape {expected} and X1 of shape {rows.row_shape}; both sets need the same columns."
            )
        if len(rows.row_shape) == len(expected) == 1:
            raise ValueError(
                f"{name} has {rows.row_shape[0]} features, but {kind} is expecting {expected[0]} features as input; "
                "pass the same columns as in fit."
            )
        raise ValueError(
            f"{name} has rows of shape {rows.row_shape}, but {kind} was fitted on rows of shape {expected}."
        )
    return rows


def read_sets(sets: Any, n_rows: int) -> Tensor:
    """Set memberships as a tensor of 0 and 1, one per row."""
    if sets is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: pass sets, the set (0 or 1) that each row came from, "
            "or use fit_sets(X0, X1)."
        )
    if np.ndim(sets) == 2 and np.shape(sets)[1] != 1:
        raise ValueError(
            f"sets must hold one value per row, 0 or 1, got a table of shape {tuple(np.shape(sets))}; to pass two "
            "tables, use fit_sets(X0, X1)."
        )
    values = column_or_1d(sets.detach().cpu().numpy() if isinstance(sets, Tensor) else sets, warn=True)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("Input y contains NaN or infinity: sets must be 0 or 1, the set that each row came from.")
    check_classification_targets(values)
    if len(values) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and sets {len(values)}."
        )
    unknown = [value for value in np.unique(values).tolist() if value not in (0, 1)]
    if unknown:
        raise ValueError(
            f"sets must be 0 or 1, the set that each row came from, got {unknown[0]!r}. "
            "Only binary classification is supported: number the sets 0 and 1."
        )
    return torch.from_numpy(np.asarray(values).astype(np.int64))


def read_labels(labels: Any, n_rows: int) -> Tensor:
    """Labels for evaluation as a tensor of 0 and 1; accepts 0/1, −1/1 and booleans."""
    values = column_or_1d(labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels)
    if len(values) != n_rows:
        raise ValueError(f"test_data has {n_rows} rows and {len(values)} labels; pass one label per row.")
    found = set(np.unique(values).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        shown = sorted(found, key=str)[:5]
        raise ValueError(f"labels must be 1 and 0, or 1 and -1, with 1 for positive, got the values {shown}.")
    return torch.from_numpy(np.asarray(values == 1).astype(np.int64))


def check_streams(first: Any, second: Any) -> tuple[RowStream, RowStream]:
    """Both sets as streams of rows of one shape."""
    for name, given in (("X0", first), ("X1", second)):
        if not isinstance(given, RowStream):
            raise TypeError(
                f"{name} is {type(given).__name__} while the other set is streamed; pass both as streams, or both as "
                "arrays."
            )
    if first.row_shape != second.row_shape:
        raise ValueError(
            f"the sets have rows of shape {first.row_shape} and {second.row_shape}; give both the same columns."
        )
    _check_same_columns(first, second)
    return first, second


def _check_same_columns(first: RowStream, second: RowStream) -> None:
    """Where columns have names, and are used as they are, both sets must have them in the same order."""
    streams = first, second
    if any(getattr(stream, "transform", None) is not None for stream in streams):
        return
    pairs = zip(*(getattr(stream, "columns", None) or () for stream in streams), strict=False)
    for number, (ours, theirs) in enumerate(pairs, 1):
        if ours != theirs:
            raise ValueError(
                f"column {number} is {ours!r} in the first set and {theirs!r} in the second; pass the same columns to "
                "both, as in ParquetSet(path, columns=[…])."
            )


def check_set_sizes(sizes: tuple[int, int]) -> None:
    """Each set needs two rows at least."""
    for which, size in enumerate(sizes):
        if size == 0:
            raise ValueError(
                f"set {which} is empty: all rows are of one set (one class of sets), but learning needs rows of both; "
                "pass rows with sets == 0 and rows with sets == 1."
            )
        if size == 1:
            raise ValueError(f"set {which} has only 1 sample, at least 2 rows of each set are needed; add rows to it.")


def check_both_sets(sets: Tensor) -> None:
    """An estimate from two sets needs a row of each."""
    for which in (0, 1):
        if not (sets == which).any():
            raise ValueError(
                f"sets has no row of set {which}, but an accuracy without labels needs rows of both; for rows with "
                "labels use sklearn.metrics.accuracy_score(y, clf.predict(X))."
            )


def _from_tensor(X: Tensor, any_shape: bool, name: str) -> DenseRows:
    if X.ndim < 2 or (X.ndim > 2 and not any_shape):
        raise ValueError(
            f"Expected 2D array, got a tensor of shape {tuple(X.shape)} for {name}; reshape it to (rows, columns), or "
            "pass a model of your own for rows of another shape."
        )
    if X.layout != torch.strided:
        raise ValueError(f"{name} is a sparse tensor ({X.layout}); pass X.to_dense(), or a SciPy sparse matrix.")
    if X.is_complex():
        raise ValueError(f"Complex data not supported: {name} is {X.dtype}; pass real numbers.")
    if X.numel() == 0:
        missing = "sample(s)" if len(X) == 0 else "feature(s)"
        raise ValueError(f"Found array with 0 {missing} (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    return DenseRows(X)


def _as_numbers(X: Any, any_shape: bool, name: str) -> Any:
    """A NumPy array or CSR matrix of numbers; scikit-learn's checks, with one sentence where theirs are longer."""
    shape = np.shape(X) if not sparse.issparse(X) else X.shape
    if len(shape) < 2:
        raise ValueError(
            f"Expected 2D array, got {len(shape)}D array instead: {name} has shape {tuple(shape)}. Reshape your data "
            "to (rows, columns), a single row as (1, columns)."
        )
    try:
        return check_array(
            X, accept_sparse="csr", dtype="numeric", ensure_all_finite=False, allow_nd=any_shape, input_name=name
        )
    except (ValueError, TypeError) as error:
        text = _first_text(X)
        if text is None:
            raise
        raise ValueError(
            f"{name} holds text in column {text[0]!r}: {str(text[1])[:40]!r}; turn it into numbers first, for example "
            "with sklearn.preprocessing.OneHotEncoder, or drop it."
        ) from error


def _first_text(X: Any) -> tuple[Any, Any] | None:
    """Column and value of the first entry that is a string, None where there is none."""
    names = getattr(X, "columns", None)
    for row in np.asarray(X, dtype=object):
        for column, value in enumerate(np.ravel(row)):
            if isinstance(value, str | bytes):
                return (names[column] if names is not None else column), value
    return None


def _as_tensor(array: Any) -> Tensor:
    if array.dtype not in DIRECT or not array.dtype.isnative:
        array = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64)
    if not array.flags.c_contiguous:
        # Column-major tables, such as most DataFrames, would be gathered one element at a time.
        array = np.ascontiguousarray(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)  # never written to


def _check_finite(rows: Rows, name: str) -> None:
    """Refuse NaN, infinities and what overflows float32; dense rows are looked at a few megabytes at a time."""
    if isinstance(rows, SparseRows):
        with np.errstate(over="ignore"):  # what overflows is reported below
            chunks = [torch.from_numpy(rows.matrix.data.astype(np.float32))]
    elif isinstance(rows, DenseRows):
        if not rows.dtype.is_floating_point:
            return
        per_row = max(1, rows.n_bytes // max(1, rows.n_rows))
        chunks = list(torch.split(rows.tensor, max(1, CHECKED_BYTES // per_row)))
    for number, chunk in enumerate(chunks):
        if chunk.sum(dtype=torch.float32).isfinite():
            continue  # a sum is finite only if every term is
        bad = (~chunk.float().isfinite()).nonzero()
        if len(bad):
            where = bad[0].tolist()
            value = chunk[tuple(where)].item()
            row = where[0] + number * len(chunks[0])
            at = f" (row {row}, column {where[1]})" if len(where) > 1 else ""
            raise ValueError(
                f"Input {name} contains NaN, infinity or a value too large for dtype('float32'): {value}{at}; remove "
                "or impute such rows first."
            )
