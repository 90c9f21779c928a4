"""Tables to files, frame by frame: CSV, TSV, Parquet, Feather, JSON lines; compressed, atomic, or to standard output.

A file appears under its name only when it is complete: rows go to a hidden temporary file beside it, which is flushed
to disk and moved into place at the end, and removed if anything goes wrong.
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
from typing import TYPE_CHECKING, Any, Self

from uulearn.exceptions import TableError
from uulearn.io.formats import (
    SEPARATORS,
    STANDARD,
    check_installed,
    in_one_line,
    quote_some,
    settle_format,
    twins_among,
)
from uulearn.storage import remove_temporary_files, write_atomically

if TYPE_CHECKING:
    import pandas as pd

TEXT_ROWS = 50_000
REMEDIES = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "free some space, or write elsewhere",
    errno.EFBIG: "allow larger files (ulimit -f), or write elsewhere",
    errno.EACCES: "write to a folder of your own",
    errno.EPERM: "write to a folder of your own",
    errno.EROFS: "write to a folder of your own",
}


class TableWriter:
    """Write frames to one file, or to standard output, as a context manager.

    Parameters
    ----------
    out : path, or "-" for standard output
        The suffix says the format, as for `open_table`; .gz or .zst after it compress. The folder is made if need be.
    format : {"csv", "tsv", "parquet", "feather", "jsonl"}, optional
        By default what the suffix says, and CSV on standard output.
    float_format : str, optional
        How CSV and TSV write floats, such as ``"%.6g"``; by default with all digits that reading them back takes.

    Notes
    -----
    The first frame fixes the columns, and for Parquet and Feather their types. When the reader of standard output has
    gone, as ``head`` does, the ``with`` block ends there, without an error.

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
        check_installed()
        self.name = "standard output" if str(out) == STANDARD else str(out)
        self._format, self._compression = settle_format(out, format)
        if self._format in {"npy", "npz"}:
            raise TableError(f"{self.name} cannot be written: a table has names and types; write .csv or .parquet.")
        _check_float_format(float_format)
        self._float_format = float_format
        self._out = None if str(out) == STANDARD else Path(out)
        if "\0" in self.name:
            raise TableError(f"{self.name!r} is no path: it holds a nul character; check it.")
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
        twins = twins_among(columns)
        if twins or not columns:
            what = f"more than one column called {quote_some(twins)}" if twins else "no columns"
            raise TableError(f"a frame for {self.name} has {what}; give every column a name of its own.")
        if self._columns not in (None, columns):
            raise TableError(
                f"a frame for {self.name} has the columns {quote_some(columns)} where the first had "
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
        elif self._out.exists() and not self._out.is_file():  # a device or a named pipe: nothing to move into place
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
        import pyarrow as pa

        if self._compression is None:
            return sink
        return self._stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(sink, "w"), self._compression))

    def _encoder(self, stream: Any) -> Callable[[pd.DataFrame], None]:
        """A function that encodes frames into the stream; what must be closed goes on the stack."""
        if self._format in {"parquet", "feather"}:
            from uulearn.io.writing_arrow import ArrowEncoder

            return self._stack.enter_context(ArrowEncoder(stream, self._format, self.name)).write
        from uulearn.io.writing_text import csv_header, csv_lines, json_lines

        def write_json(frame: pd.DataFrame) -> None:
            for part in _parts(frame):
                stream.write(json_lines(part, self.name))

        if self._format == "jsonl":
            return write_json
        separator = SEPARATORS[self._format]

        def write_csv(frame: pd.DataFrame) -> None:
            header = b"" if self._columns else csv_header(list(frame.columns), separator, self.name)
            for part in _parts(frame):
                stream.write(header + csv_lines(part, separator, self._float_format, self.name))
                header = b""

        return write_csv

    def _finish(self) -> None:
        """Close all layers, inmost first, and move the file into place."""
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
        """Leave nothing behind."""
        self._write = None
        if self._sink is not None:
            self._sink.deaf = True  # closing Parquet writes a footer, which may be what fails
        with suppress(Exception):
            self._stack.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What the system refuses, as one sentence."""
        try:
            yield
        except OSError as error:
            if self._sink is not None and self._sink.broken:
                raise
            raise TableError(f"{cannot_be_written(self.name, error)}.") from error


def cannot_be_written(name: str | Path, error: OSError) -> str:
    """What the system refuses, with the remedy, as a sentence without its end.

    >>> cannot_be_written("scored.csv", OSError(errno.ENOSPC, "No space left on device"))
    'scored.csv cannot be written (No space left on device); free some space, or write elsewhere'
    """
    remedy = REMEDIES.get(error.errno or 0, "check the path, or write elsewhere")
    return f"{name} cannot be written ({in_one_line(error.strerror or error)}); {remedy}"


@contextmanager
def explained(name: str | Path) -> Iterator[None]:
    """Let what the system refuses while something is written be one sentence."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TableError(f"{cannot_be_written(name, error)}.") from error


def _parts(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A frame in pieces, one at least, whose text fits into memory where the frame does."""
    for start in range(0, max(1, len(frame)), TEXT_ROWS):
        yield frame.iloc[start : start + TEXT_ROWS]


class _Sink:
    """The file below all encoders; they may close it, which does nothing, and it may be told to swallow the rest."""

    closed = False

    def __init__(self, file: Any, *, standard: bool) -> None:
        self._file = file
        self._standard = standard
        self.broken = False
        self.deaf = False

    def write(self, data: Any) -> int:
        if not self.deaf:
            with self._noticing():
                self._file.write(data)
        return len(data)

    def flush(self) -> None:
        if not self.deaf and not self._file.closed:
            with self._noticing():
                self._file.flush()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
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
    """Bytes to a standard output that takes text only, as in a notebook."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        self._file.write(bytes(data).decode())

    def flush(self) -> None:
        self._file.flush()


def _silence_standard_output() -> None:
    """Python flushes standard output once more at its end; let that go nowhere instead of failing."""
    with suppress(OSError, ValueError):  # also where a test or a notebook stands in for it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _check_float_format(float_format: str | None) -> None:
    if float_format is None:
        return
    try:
        float(str.__mod__(float_format, 0.5))
    except (TypeError, ValueError) as error:
        raise ValueError(f"float_format must write a number, as '%.6g' does, got {float_format!r}.") from error
