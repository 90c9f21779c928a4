"""Read rows, sets and labels from NumPy, pandas, SciPy sparse, torch or lists; data are copied only if necessary."""

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, _get_feature_names, column_or_1d
from torch import Tensor

from uulearn.data.groups import SetGroups, set_name
from uulearn.data.rows import DenseRows, Rows, SparseRows, TwoSets
from uulearn.data.streams import RowStream, StreamedSets

# Number of bytes of rows that are checked for NaN and infinity at a time, to save memory.
CHECKED_BYTES = 16 * 2**20
# Types that torch accepts without a copy.
TORCH_TYPES = set(map(np.dtype, ("f2", "f4", "f8", "u1", "i1", "i2", "i4", "i8", "?")))
# Largest magnitude of an input. Networks compute in float32, which ends at 3.4e38: batch normalization sums the squares
# of a batch and Adam squares gradients. On two-class data, weights and scores of an MLP became NaN from 1e18 on, and a
# linear model no longer learned from 1e20 on; at 1e15 the squares of a hundred million rows can be summed.
LARGEST_INPUT = 1e15


class RowEncoder(Protocol):
    """A fitted encoder, such as `uulearn.tabular.TableEncoder`, that converts tables to arrays."""

    feature_names_in_: NDArray[np.object_]

    def encode_table(self, X: Any, name: str) -> NDArray[Any]:
        """Return one row of numbers per row of a training table, called ``name`` in error messages."""
        ...

    def encode_new_table(self, X: Any, name: str) -> NDArray[Any]:
        """Return one row of numbers per row of a new table; cells that cannot be read are missing values."""
        ...

    def get_feature_names_out(self) -> NDArray[np.object_]:
        """Return the names of the numbers of a row."""
        ...

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return the fitted encoder as JSON and safetensors."""
        ...


@dataclass(frozen=True)
class Columns:
    """Row shape and optional column names, which must be the same in all tables that are passed to an estimator."""

    row_shape: tuple[int, ...]
    names: NDArray[np.object_] | None = None
    encoder: RowEncoder | None = None
    """Encoder that converts all tables to rows of this shape."""


def read_table(X: Any, *, any_shape: bool, name: str = "X", encoder: RowEncoder | None = None) -> tuple[Rows, Columns]:
    """Return the validated rows of X and their columns; ``any_shape`` allows images and sequences."""
    if encoder is not None:
        rows = _read(encoder.encode_table(X, name), any_shape, name)
        return rows, Columns(rows.row_shape, encoder.feature_names_in_, encoder)
    rows = _read(X, any_shape, name)
    return rows, Columns(rows.row_shape, _column_names(X))


def read_same_columns(
    X: Any, columns: Columns, *, any_shape: bool, name: str = "X", estimator: str = "UUClassifier", new: bool = False
) -> Rows:
    """Return the rows of X; raise an error that names ``estimator`` if the values or the columns are invalid.

    ``new`` says that the rows are not part of a fit, so cells that cannot be read are treated as missing values.
    """
    if columns.encoder is not None:
        encode = columns.encoder.encode_new_table if new else columns.encoder.encode_table
        return _read(encode(X, name), any_shape, name)
    if not isinstance(X, Tensor | RowStream):
        known = type(estimator, (), {})()
        if columns.names is not None:
            known.feature_names_in_ = columns.names
        _check_feature_names(known, X, reset=False)
    rows = _read(X, any_shape, name)
    found, expected = rows.row_shape, columns.row_shape
    if found == expected:
        return rows
    if name == "X1":
        raise ValueError(f"X0 has rows of shape {expected}, but X1 has shape {found}; both sets need the same columns.")
    if len(found) == len(expected) == 1:
        raise ValueError(
            f"{name} has {found[0]} features, but {estimator} is expecting {expected[0]} features as input; pass the "
            "same columns as in fit."
        )
    raise ValueError(f"{name} has rows of shape {found}, but {estimator} was fitted on rows of shape {expected}.")


@dataclass(frozen=True)
class FitData:
    """Validated inputs of `fit`: the rows of both sets and, if they were passed, the held-out rows.

    >>> read_two_tables(np.ones((3, 2)), np.zeros((4, 2)), any_shape=False).data.sizes
    (3, 4)
    """

    data: TwoSets | StreamedSets
    columns: Columns
    validation: TwoSets | None = None
    test: tuple[Rows, Tensor] | None = None
    """Rows with labels, used for evaluation only."""


def read_two_tables(
    X0: Any, X1: Any, *, any_shape: bool, encoder: RowEncoder | None = None, **held_out: Any
) -> FitData:
    """Read both sets from separate tables, and return them with the held-out rows."""
    first, columns = read_table(X0, any_shape=any_shape, name="X0", encoder=encoder)
    data = TwoSets((first, read_same_columns(X1, columns, any_shape=any_shape, name="X1")))
    return read_held_out(data, columns, any_shape=any_shape, **held_out)


def read_joint_table(
    X: Any,
    sets: Any,
    *,
    any_shape: bool,
    encoder: RowEncoder | None = None,
    groups: SetGroups | None = None,
    **held_out: Any,
) -> FitData:
    """Read all sets from one table, and return them with the held-out rows; ``sets`` contains the set of each row.

    More than two sets are returned as two ``groups``.
    """
    rows, columns = read_table(X, any_shape=any_shape, encoder=encoder)
    data = _two_sets(rows, read_sets(sets, rows.n_rows, _number_of_sets(groups)), groups)
    return read_held_out(data, columns, any_shape=any_shape, groups=groups, **held_out)


def _number_of_sets(groups: SetGroups | None) -> int:
    return 2 if groups is None else len(groups.set_priors)


def _two_sets(rows: Rows, sets: Tensor, groups: SetGroups | None) -> TwoSets:
    return TwoSets.from_membership(rows, sets) if groups is None else groups.split(rows, sets)


def read_held_out(
    data: TwoSets | StreamedSets,
    columns: Columns,
    validation_data: Any = None,
    test_data: Any = None,
    *,
    any_shape: bool,
    groups: SetGroups | None = None,
) -> FitData:
    """Return both sets together with the rows of ``validation_data``, (X, sets), and ``test_data``, (X, y)."""
    for which, size in enumerate(data.sizes):
        if size == 0:
            raise ValueError(
                f"sets contains only one class: set {which} is empty, but training needs rows of both sets; "
                "pass rows with sets == 0 and rows with sets == 1."
            )
        if size == 1:
            each = "set" if groups is None else "group"
            raise ValueError(
                f"{set_name(data, which)} has only 1 sample, but at least 2 rows of each {each} are required; add rows."
            )
    n_sets = _number_of_sets(groups)
    read_numbers = functools.partial(read_sets, n_sets=n_sets)
    validation = read_pair(validation_data, columns, read_numbers, any_shape=any_shape, name="validation_data")
    if validation is not None:
        _check_validation_sets(validation[1], groups)
    test = read_pair(test_data, columns, read_labels, any_shape=any_shape, name="test_data")
    return FitData(data, columns, None if validation is None else _two_sets(*validation, groups), test)


def read_pair(
    pair: tuple[Any, Any] | None,
    columns: Columns,
    read_values: Callable[[Any, int], Tensor],
    *,
    any_shape: bool,
    name: str,
) -> tuple[Rows, Tensor] | None:
    """Return rows and one value per row from ``validation_data`` or ``test_data``; None if ``pair`` is None."""
    if pair is None:
        return None
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair of rows and one value per row, got {type(pair).__name__}.")
    rows = read_same_columns(pair[0], columns, any_shape=any_shape, name=name)
    return rows, read_values(pair[1], rows.n_rows)


def _read(X: Any, any_shape: bool, name: str) -> Rows:
    if isinstance(X, RowStream):
        raise TypeError(
            f"{name} is a stream of rows ({type(X).__name__}), but only UUClassifier.fit_sets supports streams; "
            "pass rows in memory here, for example one piece: stream.read(piece)."
        )
    if isinstance(X, Tensor):
        rows: Rows = _from_tensor(X, any_shape, name)
    else:
        array = _as_numbers(X, any_shape, name)
        rows = SparseRows(_as_torch_type(array)) if sparse.issparse(array) else DenseRows(_as_tensor(array))
    _check_values(rows, name, _column_names(X))
    return rows


def _column_names(X: Any) -> NDArray[np.object_] | None:
    return None if isinstance(X, Tensor) else _get_feature_names(X)


def read_sets(sets: Any, n_rows: int, n_sets: int = 2) -> Tensor:
    """Return the set of each row as a tensor of integers from 0 to ``n_sets`` − 1."""
    numbers = "0 or 1" if n_sets == 2 else f"whole numbers from 0 to {n_sets - 1}"
    tables = "X0, X1" if n_sets == 2 else "X0, X1, X2, …"
    if sets is None:
        raise ValueError(
            f"requires y to be passed, but the target y is None: pass sets, the set ({numbers}) of each row, or use "
            f"fit_sets({tables})."
        )
    if np.ndim(sets) == 2 and np.shape(sets)[1] != 1:
        raise ValueError(
            f"sets must have one value per row, {numbers}, got a table of shape {tuple(np.shape(sets))}; to pass one "
            f"table per set, use fit_sets({tables})."
        )
    values = column_or_1d(sets.detach().cpu().numpy() if isinstance(sets, Tensor) else sets, warn=True)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"Input y contains NaN or infinity: sets must be {numbers}, the set that each row came from.")
    if n_sets == 2:
        check_classification_targets(values)  # it warns about many small sets
    elif values.dtype.kind not in "biuf":
        wrong = next((value for value in values.tolist() if not isinstance(value, int | float)), values.tolist()[0])
        raise ValueError(f"sets must be {numbers}, the set that each row came from, got {wrong!r}; use a numeric type.")
    if len(values) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows, but sets has "
            f"{len(values)}; pass one set per row."
        )
    unknown = [value for value in np.unique(values).tolist() if value not in range(n_sets)]
    if unknown and n_sets == 2:
        raise ValueError(
            f"sets must be 0 or 1, the set that each row came from, got {unknown[0]!r}. "
            "Only binary classification is supported: number the sets 0 and 1, or pass one class prior per set."
        )
    if unknown:
        raise ValueError(
            f"sets must be whole numbers from 0 to {n_sets - 1}, because there are {n_sets} set_priors, got "
            f"{unknown[0]!r}; number the sets from 0, and pass one class prior per set."
        )
    return torch.from_numpy(np.asarray(values).astype(np.int64))


def read_labels(labels: Any, n_rows: int) -> Tensor:
    """Return labels for evaluation as a tensor of 0 and 1; accepts 0/1, −1/1 and booleans."""
    values = column_or_1d(labels.detach().cpu().numpy() if isinstance(labels, Tensor) else labels)
    if len(values) != n_rows:
        raise ValueError(f"test_data has {n_rows} rows and {len(values)} labels; pass one label per row.")
    found = set(np.unique(values).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        shown = sorted(found, key=str)[:5]
        raise ValueError(f"labels must be 1 and 0, or 1 and -1, with 1 for positive, got the values {shown}.")
    return torch.from_numpy(np.asarray(values == 1).astype(np.int64))


def check_streams(first: Any, second: Any) -> tuple[RowStream, RowStream]:
    """Return both sets as streams whose rows have the same shape."""
    for name, given in (("X0", first), ("X1", second)):
        if not isinstance(given, RowStream):
            raise TypeError(
                f"{name} is a {type(given).__name__}, but the other set is a stream; pass two streams or two arrays."
            )
    if first.row_shape != second.row_shape:
        raise ValueError(
            f"the sets have rows of shape {first.row_shape} and {second.row_shape}; both need the same columns."
        )
    # Named columns must have the same order in both sets, unless a transform reads them by name.
    by_name = any(getattr(stream, "transform", None) is not None for stream in (first, second))
    pairs = zip(*(getattr(stream, "columns", None) or () for stream in (first, second)), strict=False)
    for number, (first_name, second_name) in enumerate(pairs, 1):
        if first_name != second_name and not by_name:
            raise ValueError(
                f"column {number} is {first_name!r} in the first set and {second_name!r} in the second; select the "
                "same columns in both sets, for example with ParquetSet(path, columns=[…])."
            )
    return first, second


def _check_validation_sets(sets: Tensor, groups: SetGroups | None) -> None:
    if groups is None:
        check_both_sets(sets)
    elif len(torch.bincount(groups.of_rows(sets)).nonzero()) < 2:
        n_used = len(torch.bincount(sets).nonzero())
        raise ValueError(
            f"validation_data has rows of {n_used} of the {len(groups.set_priors)} sets, and all of them have high "
            "priors or all have low priors; pass rows of sets with high and with low priors."
        )


def check_both_sets(sets: Tensor) -> None:
    """Raise an error if one of two sets has no rows, because an estimate without labels needs both."""
    for which in (0, 1):
        if not (sets == which).any():
            raise ValueError(
                f"sets contains no rows from set {which}; estimating the accuracy without labels requires both sets. "
                "For labeled rows, use sklearn.metrics.accuracy_score(y, clf.predict(X))."
            )


def check_training_sets(sets: Tensor, n_sets: int) -> None:
    """Raise an error if one of more than two sets has no rows for training."""
    for which, size in enumerate(torch.bincount(sets, minlength=n_sets).tolist()):
        if size == 0:
            raise ValueError(
                f"set {which} is empty, but training needs rows of all {n_sets} sets; pass rows with sets == {which}, "
                "or remove its class prior from set_priors."
            )


def _from_tensor(X: Tensor, any_shape: bool, name: str) -> DenseRows:
    if X.ndim < 2 or (X.ndim > 2 and not any_shape):
        raise ValueError(
            f"Expected 2D array, got a tensor of shape {tuple(X.shape)} for {name}; reshape it to (rows, columns), or "
            "pass a custom model for rows of another shape."
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
    """Return a NumPy array or CSR matrix, validated by scikit-learn; raise a shorter error if X contains text."""
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
        table = np.asarray(X, dtype=object)
        names = getattr(X, "columns", range(table[0].size if len(table) else 0))
        cells = ((names[column], value) for row in table for column, value in enumerate(np.ravel(row)))
        for column, value in cells:
            if isinstance(value, str | bytes):
                raise ValueError(
                    f"{name} contains text in column {column!r}: {str(value)[:40]!r}; convert it to numbers first, for "
                    "example with sklearn.preprocessing.OneHotEncoder, or drop the column."
                ) from error
        raise


def _as_torch_type(matrix: Any) -> Any:
    return matrix if matrix.dtype in TORCH_TYPES and matrix.dtype.isnative else matrix.astype(np.float64)


def _as_tensor(array: Any) -> Tensor:
    if array.dtype not in TORCH_TYPES or not array.dtype.isnative:
        array = array.astype(np.float32 if array.dtype.itemsize <= 4 else np.float64)
    # Gathering rows of a column-major table (such as most DataFrames) would read one element at a time.
    array = np.ascontiguousarray(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)  # never written to


def _check_values(rows: Rows, name: str, columns: NDArray[np.object_] | None) -> None:
    """Raise an error for NaN, infinity or values above `LARGEST_INPUT`; dense rows are checked in small chunks."""
    if isinstance(rows, SparseRows):
        values = torch.from_numpy(rows.matrix.data)
        chunks = [values] if len(values) else []
    elif isinstance(rows, DenseRows):
        if not rows.dtype.is_floating_point and rows.dtype != torch.int64:
            return  # cannot be that large
        per_row = max(1, rows.n_bytes // max(1, rows.n_rows))
        chunks = list(torch.split(rows.tensor, max(1, CHECKED_BYTES // per_row)))
    for number, chunk in enumerate(chunks):
        ends = chunk.aminmax()  # NaN if the chunk has one
        if all(abs(end.item()) <= LARGEST_INPUT for end in ends):
            continue
        where = (~(chunk.double().abs() <= LARGEST_INPUT)).nonzero()[0].tolist()
        value = chunk[tuple(where)].item()
        if isinstance(rows, SparseRows):
            row = int(np.searchsorted(rows.matrix.indptr, where[0], side="right")) - 1
            where = [row, int(rows.matrix.indices[where[0]])]
        row, column = where[0] + number * len(chunks[0]), where[1]
        at = f"(row {row}, column {column if columns is None else repr(columns[column])})"
        if not math.isfinite(value):
            frames = math.isnan(value) and columns is None and chunk.ndim == 2
            other = ", or fit on data frames, which may have missing values" if frames else ""
            raise ValueError(
                f"Input {name} contains NaN or infinity: {value} {at}; remove or impute these values first{other}."
            )
        raise ValueError(
            f"Input {name} contains {value:g} {at}, but values above {LARGEST_INPUT:g} may overflow in float32, the "
            "type used by networks; correct the value, or divide the column by a constant before fit and predict."
        )
