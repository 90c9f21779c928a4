"""Write frames to one file (CSV, TSV, Parquet, Feather, JSON lines; optionally compressed) or to standard output.

Rows are written to a hidden temporary file in the same folder. When all rows are written, the file is flushed to disk
and renamed. After an error, the temporary file is removed.
"""

import csv
import datetime
import errno
import glob
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from uulearn.exceptions import TableError
from uulearn.io.formats import (
    SEPARATORS,
    STANDARD,
    in_one_line,
    printable,
    quote_some,
    repeated_names,
    resolve_format,
)
from uulearn.storage import remove_temporary_files, write_atomically

ROWS_PER_WRITE = 50_000  # rows converted to text per write
NO_SPACE, NOT_ALLOWED = "free some space, or write elsewhere", "write to a folder that you own"
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # first characters of a formula in spreadsheets
REMEDIES = {
    errno.ENOSPC: NO_SPACE,
    errno.EDQUOT: NO_SPACE,
    errno.EFBIG: "allow larger files (ulimit -f), or write elsewhere",
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: NOT_ALLOWED,
}


class TableWriter:
    """Context manager that writes frames to one file or to standard output.

    The first frame determines the columns, and for Parquet and Feather also their types. If the program that reads a
    pipe exits early, as ``head`` does, the ``with`` block ends without an error.

    Parameters
    ----------
    out : path, or "-" for standard output
        The suffix determines the format and the compression, as in `open_table`. Missing folders are created.
    format : {"csv", "tsv", "parquet", "feather", "jsonl"}, optional
        Default: the format implied by the suffix, or CSV for standard output.
    float_format : str, optional
        Format of floats in CSV and TSV, such as ``"%.6g"``; by default, numbers are written with full precision.
    escape_formulas : bool
        Write an apostrophe before texts in CSV and TSV that a spreadsheet would run as a formula.

    Examples
    --------
    >>> import pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scored.csv"
    ...     with TableWriter(path, float_format="%.3g") as writer:
    ...         writer.write(pd.DataFrame({"id": ["a", "b"], "score": [0.12345, None]}))
    ...     path.read_text().split()
    ['id,score', 'a,0.123', 'b,']
    """

    def __init__(
        self,
        out: str | Path,
        *,
        format: str | None = None,
        float_format: str | None = None,
        escape_formulas: bool = False,
    ) -> None:
        self.name = "standard output" if str(out) == STANDARD else str(out)
        self._format, self._compression = resolve_format(out, format)
        if self._format in {"npy", "npz", "xlsx"}:
            raise TableError(
                f"{self.name} cannot be written: .{self._format} is supported only as input; write .csv or .parquet."
            )
        if float_format is not None:
            try:
                float(str.__mod__(float_format, 0.5))
            except (TypeError, ValueError) as error:
                raise ValueError(f"float_format must be a format such as '%.6g', got {float_format!r}.") from error
        self._float_format, self._escape_formulas = float_format, escape_formulas
        self._out = None if str(out) == STANDARD else Path(out)
        if "\0" in self.name:
            raise TableError(f"{self.name!r} is not a valid path: it contains a null character; remove the character.")
        if self._out is not None and os.path.isdir(self._out):
            raise TableError(f"{out} is a folder; pass the name of the file to write.")
        self._stack = ExitStack()
        self._sink: _Sink | None = None
        self._temporary: Path | None = None
        self._write: Callable[[pd.DataFrame], None] | None = None
        self._columns: list[str] | None = None

    def __enter__(self) -> Self:
        try:
            with explained(self.name):
                self._open()
        except BaseException:
            self._abandon()
            raise
        return self

    def write(self, frame: pd.DataFrame) -> None:
        """Append the rows of a frame; its index is not written."""
        if self._write is None:
            raise TableError(f"{self.name} is not open for writing; use the writer in a with statement.")
        columns = [str(column) for column in frame.columns]
        repeated = repeated_names(columns)
        if repeated or not columns:
            what = f"more than one column named {quote_some(repeated)}" if repeated else "no columns"
            raise TableError(f"a frame for {self.name} has {what}; give each column a unique name.")
        if self._columns not in (None, columns):
            raise TableError(
                f"a frame for {self.name} has the columns {quote_some(columns)}, but the first frame had "
                f"{quote_some(self._columns or [])}; write the same columns in the same order."
            )
        with explained(self.name):
            self._write(frame.set_axis(columns, axis=1))
        self._columns = columns

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if error is None:
                with suppress(BrokenPipeError), explained(self.name):
                    self._finish()
        finally:
            self._abandon()
        broken = self._sink is not None and self._sink.broken and (error is None or isinstance(error, BrokenPipeError))
        if broken and self._out is None:  # Python flushes standard output again when it exits
            with suppress(OSError, ValueError):  # a test or a notebook may have replaced standard output
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
        return broken

    def _open(self) -> None:
        if self._out is None:
            sys.stdout.flush()
            file: Any = getattr(sys.stdout, "buffer", sys.stdout)
        elif self._out.exists() and not self._out.is_file():  # a device or a named pipe
            file = self._stack.enter_context(self._out.open("wb"))
        else:
            self._out = Path(os.path.realpath(self._out))  # replace the target of a link, not the link
            self._out.parent.mkdir(parents=True, exist_ok=True)
            remove_temporary_files(self._out.parent, glob.escape(self._out.name))
            handle, temporary = tempfile.mkstemp(prefix=f".{self._out.name}.", suffix=".tmp", dir=self._out.parent)
            self._temporary = Path(temporary)
            file = self._stack.enter_context(os.fdopen(handle, "wb"))
        self._sink = stream = _Sink(file)
        if self._compression is not None:
            stream = self._stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(stream, "w"), self._compression))
        if self._format in {"parquet", "feather"}:
            encoder = _ArrowEncoder(stream, self._format, self.name)
            self._stack.callback(encoder.close)
            self._write = encoder.write
        else:
            self._write = lambda frame: self._write_text(frame, stream)

    def _write_text(self, frame: pd.DataFrame, stream: Any) -> None:
        for start in range(0, max(1, len(frame)), ROWS_PER_WRITE):
            part = frame.iloc[start : start + ROWS_PER_WRITE]
            if self._format == "jsonl":
                text = json_lines(part, self.name)
            else:
                header = self._columns is None and start == 0
                part = _without_formulas(part) if self._escape_formulas else part
                text = csv_lines(part, SEPARATORS[self._format], self._float_format, self.name, header=header)
            if self._out is None and sys.stdout.isatty():  # names and cells could control the terminal
                text = "\n".join(map(printable, text.split("\n")))
            try:
                stream.write(text.encode())
            except UnicodeEncodeError as error:
                raise TableError(
                    f"a value for {self.name} contains an unpaired surrogate, which is not valid text; fix the value."
                ) from error

    def _finish(self) -> None:
        """Close all streams, and rename the temporary file to its final name."""
        if self._columns is None:
            raise TableError(f"nothing was written to {self.name}; write at least one frame, which may be empty.")
        self._stack.close()
        assert self._sink is not None
        self._sink.flush()
        if self._temporary is not None and self._out is not None:
            write_atomically(self._out, self._temporary.replace)

    def _abandon(self) -> None:
        """Close all streams, and remove the temporary file unless it was renamed."""
        self._write = None
        if self._sink is not None:
            self._sink.discards = True  # closing Parquet writes a footer, which may fail again
        with suppress(Exception):
            self._stack.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)


def cannot_be_written(name: str | Path, error: OSError) -> str:
    """Return a message that says why a file cannot be written and how to fix the problem, without a final period.

    >>> cannot_be_written("scored.csv", OSError(errno.ENOSPC, "No space left on device"))
    'scored.csv cannot be written (No space left on device); free some space, or write elsewhere'
    """
    remedy = REMEDIES.get(error.errno or 0, "check the path, or write elsewhere")
    return f"{name} cannot be written ({in_one_line(error.strerror or error)}); {remedy}"


@contextmanager
def explained(name: str | Path) -> Iterator[None]:
    """Convert an `OSError` during writing to a `TableError` with a one-sentence message."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TableError(f"{cannot_be_written(name, error)}.") from error


class _Sink:
    """File object that encoders write to; closing it has no effect, and it can discard output."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self.broken = self.discards = False

    def write(self, data: Any) -> int:
        if not self.discards:
            text = self._file is sys.stdout  # in a notebook, it accepts only text
            self._call(self._file.write, bytes(data).decode() if text else data)
        return len(data)

    def flush(self) -> None:
        if not self.discards and not self._file.closed:
            self._call(self._file.flush)

    def _call(self, method: Callable[..., object], *arguments: Any) -> None:
        try:
            method(*arguments)
        except BrokenPipeError:
            self.broken = True
            raise

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _ArrowEncoder:
    """Encoder for Parquet and Feather that writes each frame as one row group or batch.

    The first frame determines the types. Categorical columns are written as plain values, and empty columns as text.
    """

    def __init__(self, stream: Any, format: str, name: str) -> None:
        self._stream, self._format, self._name = stream, format, name
        self._schema: Any = None
        self._writer: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        columns = [self._convert(frame.iloc[:, i], i, str(column)) for i, column in enumerate(frame.columns)]
        if self._schema is None:
            types = [values.type for values in columns]
            self._schema = pa.schema(list(zip(map(str, frame.columns), types, strict=True)))
            if self._format == "parquet":
                self._writer = pq.ParquetWriter(self._stream, self._schema, write_page_checksum=True)
            else:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_file(self._stream, self._schema, options=options)
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _convert(self, column: pd.Series, position: int, name: str) -> Any:
        expected = None if self._schema is None else self._schema.field(position).type
        try:
            values = pa.array(column, from_pandas=True)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
            if pa.types.is_null(values.type):
                values = values.cast(pa.large_string())
            return values if expected is None else values.cast(expected)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            kind = "" if expected is None else f" as {expected}, its type in the first frame"
            raise TableError(
                f"column {name!r} cannot be written to {self._name}{kind} ({in_one_line(error)}); use one type for all "
                "of its values."
            ) from error


def _without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with an apostrophe before names and texts that a spreadsheet would run as a formula.

    >>> _without_formulas(pd.DataFrame({"=A1": ["-5", "+1+cmd", "Basel"]})).to_dict("list")
    {"'=A1": ['-5', "'+1+cmd", 'Basel']}
    """
    columns = []
    for _, values in frame.items():
        if not pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_datetime64_any_dtype(values.dtype):
            values = values.astype(object).map(_escaped_formula, na_action="ignore")
        columns.append(values)
    names = [_escaped_formula(str(name)) for name in frame.columns]
    if repeated := repeated_names(names):
        raise TableError(
            f"more than one column would be named {quote_some(repeated)}, because an apostrophe is written before "
            "names that a spreadsheet would run as formulas; rename one of the columns, or write .parquet."
        )
    return pd.concat(columns, axis=1).set_axis(names, axis=1)


def _escaped_formula(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_lines(frame: pd.DataFrame, separator: str, float_format: str | None, name: str, *, header: bool) -> str:
    """Return the rows of a frame as lines of CSV; fields are quoted if necessary, and missing values are empty.

    >>> frame = pd.DataFrame({"city": ["Basel", 'Genf, "GE", CH', None], "score": [0.1, 2.0, None]})
    >>> print(csv_lines(frame, ",", None, "scored.csv", header=True), end="")
    city,score
    Basel,0.1
    "Genf, ""GE"", CH",2.0
    ,
    """
    columns = {}
    for column, values in frame.reset_index(drop=True).items():
        plain = isinstance(values.dtype, np.dtype | pd.StringDtype) or pd.api.types.is_numeric_dtype(values.dtype)
        if values.dtype == object or not (plain or pd.api.types.is_datetime64_any_dtype(values.dtype)):
            cells = _plain_values(values, f"column {column!r} of {name}", str)
            if float_format:
                cells = [float_format % cell if isinstance(cell, float) else cell for cell in cells]
            values = pd.Series([cell if cell is None else str(cell) for cell in cells], dtype=object)
        columns[column] = values
    options: dict[str, Any] = {"sep": separator, "header": header, "float_format": float_format}
    text: str = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", **options)
    if "\r" in text:  # before Python 3.13 the csv module does not quote a CR that is not part of the line end
        text = pd.DataFrame(columns).to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC, **options)
    if "\0" in text:
        raise TableError(f"a value for {name} contains a null character, which CSV cannot store; write Parquet.")
    return text


def json_lines(frame: pd.DataFrame, name: str) -> str:
    """Return the rows of a frame as one JSON object per line; missing values are null, and dates use ISO 8601.

    >>> print(json_lines(pd.DataFrame({"age": [41, None], "city": ["Zürich", None]}), "rows.jsonl"), end="")
    {"age": 41.0, "city": "Zürich"}
    {"age": null, "city": null}
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    columns = [_plain_values(frame[column], f"column {column!r} of {name}", _json_date) for column in frame]
    try:
        rows = [encode(dict(zip(frame.columns, row, strict=True))) for row in zip(*columns, strict=True)]
    except ValueError as error:
        raise TableError(f"a frame for {name} has an infinite value, which JSON cannot store; remove it.") from error
    return "".join(f"{row}\n" for row in rows)


def _json_date(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, datetime.timedelta) else value.isoformat()


def _plain_values(column: pd.Series, place: str, date: Callable[[Any], Any]) -> list[Any]:
    """Return the values of a column as str, int, float, bool or None; ``date`` converts dates, times and durations."""

    def plain(value: Any) -> Any:
        if value is None or value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bool | np.bool_):
            return bool(value)
        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Decimal) and date is str:
            return str(value)
        if isinstance(value, Real | Decimal):
            return None if math.isnan(value) else float(value)
        if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
            return date(value)
        raise TableError(f"{place} contains unsupported values of type {type(value).__name__}; drop the column.")

    return [plain(value) for value in column.astype(object).tolist()]
