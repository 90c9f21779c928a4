"""Write frames as Parquet and Feather, one row group or batch per frame; the first frame fixes the types."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from uulearn.exceptions import TableError
from uulearn.io.formats import in_one_line


class ArrowEncoder:
    """Encode frames into a stream; a context manager, because the formats end with a footer.

    Categories are written as their values, and a column in which all values are missing as text.
    """

    def __init__(self, stream: Any, format: str, name: str) -> None:
        self._stream = stream
        self._format = format
        self._name = name
        self._schema: Any = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def write(self, frame: Any) -> None:
        """Append the rows of a frame."""
        columns = [self._convert(frame.iloc[:, i], i, str(column)) for i, column in enumerate(frame.columns)]
        if self._schema is None:
            self._schema = pa.schema(
                [(str(name), values.type) for name, values in zip(frame.columns, columns, strict=True)]
            )
            if self._format == "parquet":
                self._writer = pq.ParquetWriter(self._stream, self._schema, write_page_checksum=True)
            else:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_file(self._stream, self._schema, options=options)
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def _convert(self, column: Any, position: int, name: str) -> Any:
        try:
            values = pa.array(column, from_pandas=True)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if pa.types.is_null(values.type):
                values = values.cast(pa.large_string())
            return values if self._schema is None else values.cast(self._schema.field(position).type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            expected = "" if self._schema is None else f" as {self._schema.field(position).type}, like the first frame"
            raise TableError(
                f"column {name!r} cannot be written to {self._name}{expected} ({in_one_line(error)}); use one "
                "type for all of its values."
            ) from error
