"""Convert tables in memory (pandas, polars, Arrow, arrays, lists of dicts) to pandas frames, as if read from a file."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from sklearn.utils import check_array

from uulearn.io.arrow import from_arrow
from uulearn.io.formats import clean_names
from uulearn.tabular.schema import Schema


def to_frame(X: Any, name: str) -> pd.DataFrame:
    """Return the rows of a table as a pandas frame with text column names and the row number as index.

    X is a pandas frame, an object with the Arrow stream interface (polars, pyarrow), a list of dicts, or a 2-D array,
    whose columns are named x0, x1, and so on. ``name`` is the name of X in error messages.

    >>> to_frame([{"age": 41, "city": "Ulm"}, {"age": 19}], "X").columns.tolist()
    ['age', 'city']
    """
    if isinstance(X, pd.DataFrame):
        frame = X.set_axis(clean_names([str(column) for column in X.columns], name)[0], axis=1)
        return frame.set_axis(pd.RangeIndex(len(frame)))
    if hasattr(X, "__arrow_c_stream__") or isinstance(X, pa.RecordBatch):
        return from_arrow(pa.table(X), name)
    if isinstance(X, Sequence) and len(X) and all(isinstance(row, Mapping) for row in X):
        return to_frame(pd.DataFrame.from_records(list(X)), name)
    array = check_array(X, dtype=None, ensure_all_finite=False, input_name=name)
    return pd.DataFrame(array, columns=[f"x{position}" for position in range(array.shape[1])])


class FrameSource:
    """A table in memory, with the same interface as a table file (`uulearn.tabular.encoder.Source`)."""

    def __init__(self, frame: pd.DataFrame, name: str) -> None:
        self.frame, self.name, self.rows = frame, name, len(frame)

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in one chunk."""
        yield self.frame

    def apply(self, schema: Schema) -> None:
        """Do nothing: the columns of a frame have the same types for all schemas."""
