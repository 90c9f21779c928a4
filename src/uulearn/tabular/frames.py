"""Convert tables in memory (pandas, polars, Arrow, arrays, lists of dicts) to pandas frames, as if read from a file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.utils import check_array

from uulearn.io.arrow import from_arrow
from uulearn.io.embeddings import ARRAY, element_type, expand_names, list_lengths, with_lengths
from uulearn.io.formats import array_columns, clean_names
from uulearn.tabular.schema import Schema


def to_frame(X: Any, name: str) -> pd.DataFrame:
    """Return the rows of a table as a pandas frame with text column names and the row number as index.

    X is a pandas frame, an object with the Arrow stream interface (polars, pyarrow), a list of dicts, or a 2-D array,
    whose columns are named 0, 1, and so on. A column of lists of numbers is replaced by one column per position
    (`uulearn.io.embeddings`). ``name`` is the name of X in error messages.

    >>> to_frame([{"age": 41, "city": "Ulm"}, {"age": 19}], "X").columns.tolist()
    ['age', 'city']
    """
    if isinstance(X, pd.DataFrame):
        frame = X.set_axis(clean_names([str(column) for column in X.columns], name)[0], axis=1)
        expanded = _expand_embeddings(frame.set_axis(pd.RangeIndex(len(frame))), name)
        width = len(X.columns)
        unnamed = X.columns.equals(pd.RangeIndex(width)) and not list_lengths(expanded)
        return with_lengths(expanded, {ARRAY: width}) if unnamed else expanded
    if hasattr(X, "__arrow_c_stream__") or isinstance(X, pa.RecordBatch):
        return from_arrow(pa.table(X), name)
    if isinstance(X, Sequence) and len(X) and all(isinstance(row, Mapping) for row in X):
        return to_frame(pd.DataFrame.from_records(list(X)), name)
    array = check_array(X, dtype=None, ensure_all_finite=False, input_name=name)
    width = array.shape[1]
    return with_lengths(pd.DataFrame(array, columns=array_columns(width)), {ARRAY: width})


def _expand_embeddings(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Replace each column of lists or arrays of numbers by one column per position."""
    lists = {column: own for column in frame if (own := _lists_of_numbers(frame[column])) is not None}
    if not lists:
        return frame
    expanded = from_arrow(pa.table(lists), name)
    lengths = list_lengths(expanded)
    order = expand_names(frame.columns, lengths)
    clean_names(order, name)  # refuses repeated names
    return with_lengths(pd.concat([frame.drop(columns=list(lists)), expanded], axis=1)[order], lengths)


def _lists_of_numbers(column: pd.Series) -> Any:
    """Return the column as an Arrow array if its values are lists or arrays of numbers, otherwise None."""
    if isinstance(column.dtype, pd.ArrowDtype):
        kind = column.dtype.pyarrow_dtype
    elif column.dtype == object and isinstance(next(iter(column.dropna()), None), list | tuple | np.ndarray):
        kind = None
    else:
        return None
    if kind is not None and element_type(kind) is None:
        return None
    try:
        array = pa.array(column, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError):  # other lists; the survey refuses them, with an example
        return None
    return array if element_type(array.type) is not None else None


class FrameSource:
    """A table in memory, with the same interface as a table file (`uulearn.tabular.encoder.Source`)."""

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self.frame, self.name, self.rows = frame, name, len(frame)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in one chunk."""
        yield self.frame

    def apply(self, schema: Schema) -> None:
        """Do nothing: the columns of a frame have the same types for all schemas."""
