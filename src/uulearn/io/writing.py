"""Write frames to one file (CSV, TSV, Parquet, Feather, JSON lines; perhaps compressed) or to standard output.

A file appears under its name only when it is complete: rows go to a hidden temporary file beside it, which is flushed
to disk and moved into place at the end, and removed after an error.
"""

from __future__ import annotations

import errno
import glob
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from uulearn.exceptions import TableError
from uulearn.io.arrow_writer import ArrowEncoder
from uulearn.io.formats import SEPARATORS, STANDARD, in_one_line, quote_some, repeated_names, resolve_format
from uulearn.io.text_writer import csv_lines, json_lines
from uulearn.storage import remove_temporary_files, write_atomically

ROWS_PER_WRITE = 50_000  # rows that are converted to text at once
REMEDIES = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EFBIG: "allow larger files (ulimit -f), or write elsewhere",
    errno.EACCES: "write to a folder that you own",
    errno.EPERM: "write to a folder that you own",
    errno.EROFS: "write to a folder that you own",
}


class TableWriter:
    """Write frames to one file, or to standard output, as a context manager.

    Parameters
    ----------
    out : path, or "-" for standard output
        The suffix decides the format, as for `open_table`; a further .gz or .zst compresses. A missing folder is made.
    format : {"csv", "tsv", "parquet", "feather", "jsonl"}, optional
        By default the format of the suffix, and CSV for standard output.
    float_format : str, optional
        Format of floats in CSV and TSV, such as ``"%.6g"``; by default all digits needed to read the number back.

    Notes
    -----
    The first frame fixes the columns, and for Parquet and Feather their types. If the reader of standard output stops,
    as ``head`` does, the ``with`` block ends without an error.

    Examples
    --------
    >>> import pandas as pd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scored.csv"
    ...     with TableWriter(path, float_format="%.3g") as writer:
    ...         writer.write(pd.DataFrame({"id": ["a", "b"], "score": [0.12345, 2.0]}))
    ...         writer.write(pd.DataFrame({"id": ["c"], "score": [None]}))
    ...     print(path.read_text(), end="")
    id,score
    a,0.123
    b,2
    c,
    """

    def __init__(self, out: str | Path, *, format: str | None = None, float_format: str | None = None) -> None:
        self.name = "standard output" if str(out) == STANDARD else str(out)
        self._format, self._compression = resolve_format(out, format)
        if self._format in {"npy", "npz", "xlsx"}:
            raise TableError(
                f"{self.name} cannot be written: .{self._format} is for input only; write .csv or .parquet."
            )
        _check_float_format(float_format)
        self._float_format = float_format
        self._out = None if str(out) == STANDARD else Path(out)
        if "\0" in self.name:
            raise TableError(f"{self.name!r} is not a path: it contains a nul character; check it.")
        if self._out is not None and os.path.isdir(self._out):
            raise TableError(f"{out} is a folder; pass the name of the file to write.")
        self._stack = ExitStack()
        self._sink: _Sink | None = None
        self._temporary: Path | None = None
        self._write: Callable[[pd.DataFrame], None] | None = None
        self._columns: list[str] | None = None

    def __enter__(self) -> Self:
        with self._explained():
            try:
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
                f"a frame for {self.name} has the columns {quote_some(columns)}, but the first had "
                f"{quote_some(self._columns or [])}; write the same columns in the same order."
            )
        with self._explained():
            self._write(frame.set_axis(columns, axis=1))
        self._columns = columns

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            try:
                self._finish()
            except BrokenPipeError:
                pass
            except BaseException:
                self._abandon()
                raise
        broken = self._sink is not None and self._sink.broken and (error is None or isinstance(error, BrokenPipeError))
        self._abandon()
        if broken:
            _silence_standard_output()
        return broken

    def _open(self) -> None:
        if self._out is None:
            sys.stdout.flush()
            file: Any = getattr(sys.stdout, "buffer", None) or _Encoded(sys.stdout)
        elif self._out.exists() and not self._out.is_file():  # a device or a named pipe
            file = self._stack.enter_context(self._out.open("wb"))
        else:
            self._out = Path(os.path.realpath(self._out))  # a link stays one
            self._out.parent.mkdir(parents=True, exist_ok=True)
            remove_temporary_files(self._out.parent, glob.escape(self._out.name))
            handle, temporary = tempfile.mkstemp(prefix=f".{self._out.name}.", suffix=".tmp", dir=self._out.parent)
            self._temporary = Path(temporary)
            file = self._stack.enter_context(os.fdopen(handle, "wb"))
        self._sink = _Sink(file, standard=self._out is None)
        self._write = self._encoder(self._compressed(self._sink))

    def _compressed(self, sink: _Sink) -> Any:
        if self._compression is None:
            return sink
        return self._stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(sink, "w"), self._compression))

    def _encoder(self, stream: Any) -> Callable[[pd.DataFrame], None]:
        """Return a function that encodes frames into the stream; the stack closes what needs closing."""
        if self._format in {"parquet", "feather"}:
            return self._stack.enter_context(ArrowEncoder(stream, self._format, self.name)).write

        def write_text(frame: pd.DataFrame) -> None:
            for start in range(0, max(1, len(frame)), ROWS_PER_WRITE):
                part = frame.iloc[start : start + ROWS_PER_WRITE]
                if self._format == "jsonl":
                    stream.write(json_lines(part, self.name))
                else:
                    header = self._columns is None and start == 0
                    separator = SEPARATORS[self._format]
                    stream.write(csv_lines(part, separator, self._float_format, self.name, header=header))

        return write_text

    def _finish(self) -> None:
        """Close all layers, the innermost first, and move the file into place."""
        if self._columns is None:
            raise TableError(f"nothing was written to {self.name}; write at least one frame, which may be empty.")
        with self._explained():
            self._stack.close()
            assert self._sink is not None
            self._sink.flush()
            if self._temporary is not None and self._out is not None:
                temporary, self._temporary = self._temporary, None
                try:
                    write_atomically(self._out, temporary.replace)
                except BaseException:
                    temporary.unlink(missing_ok=True)
                    raise
        self._write = None

    def _abandon(self) -> None:
        """Remove the temporary file."""
        self._write = None
        if self._sink is not None:
            self._sink.discards = True  # closing Parquet writes a footer, which may fail again
        with suppress(Exception):
            self._stack.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of the operating system into one sentence."""
        try:
            yield
        except OSError as error:
            if self._sink is not None and self._sink.broken:
                raise
            raise TableError(f"{cannot_be_written(self.name, error)}.") from error


def cannot_be_written(name: str | Path, error: OSError) -> str:
    """Return why a file cannot be written and what to do, without the full stop.

    >>> cannot_be_written("scored.csv", OSError(errno.ENOSPC, "No space left on device"))
    'scored.csv cannot be written (No space left on device); free some space, or write elsewhere'
    """
    remedy = REMEDIES.get(error.errno or 0, "check the path, or write elsewhere")
    return f"{name} cannot be written ({in_one_line(error.strerror or error)}); {remedy}"


@contextmanager
def explained(name: str | Path) -> Iterator[None]:
    """Turn errors of the operating system while a file is written into one sentence."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TableError(f"{cannot_be_written(name, error)}.") from error


class _Sink:
    """The file below all encoders; closing it does nothing, and it can discard further output."""

    closed = False

    def __init__(self, file: Any, *, standard: bool) -> None:
        self._file = file
        self._standard = standard
        self.broken = False
        self.discards = False

    def write(self, data: Any) -> int:
        if not self.discards:
            with self._detect_broken_pipe():
                self._file.write(data)
        return len(data)

    def flush(self) -> None:
        if not self.discards and not self._file.closed:
            with self._detect_broken_pipe():
                self._file.flush()

    @contextmanager
    def _detect_broken_pipe(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.broken = self._standard
            raise

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _Encoded:
    """A standard output that accepts only text, as in a notebook."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        self._file.write(bytes(data).decode())

    def flush(self) -> None:
        self._file.flush()


def _silence_standard_output() -> None:
    """Redirect standard output, which Python flushes again at its end, to nowhere instead of failing."""
    with suppress(OSError, ValueError):  # a test or a notebook may replace standard output
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _check_float_format(float_format: str | None) -> None:
    if float_format is None:
        return
    try:
        float(str.__mod__(float_format, 0.5))
    except (TypeError, ValueError) as error:
        raise ValueError(f"float_format must format a number, as '%.6g' does, got {float_format!r}.") from error
