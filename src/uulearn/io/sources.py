"""Bytes of a file or of standard input: decompressed, in UTF-8, and readable from the start more than once."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from uulearn.exceptions import TableError
from uulearn.io.formats import STANDARD, in_one_line

MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}  # first bytes of compressed files
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
COPY_BYTES = 1 << 22  # bytes copied at once
READ_AHEAD_BYTES = 1 << 18  # bytes read ahead


def open_file(source: str | Path, name: str, stack: ExitStack) -> BinaryIO:
    """Open a file, or standard input, for reading in any order; a pipe is copied into a temporary file first."""
    if str(source) == STANDARD:
        file: BinaryIO = sys.stdin.buffer
    else:
        file = _open_path(Path(source), name, stack)
    try:
        seekable = file.seekable() and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError):
        seekable = False
    return file if seekable else _unpack(file, name, "cannot be read", stack)


def _open_path(path: Path, name: str, stack: ExitStack) -> BinaryIO:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError as error:
        raise TableError(f"{name} does not exist; check the path.") from error
    except IsADirectoryError as error:
        raise TableError(f"{name} is a folder; pass a file of rows.") from error
    except PermissionError as error:
        raise TableError(f"{name} may not be read; ask for permission to read it.") from error
    except (OSError, ValueError) as error:  # ValueError: a nul character in the path
        raise TableError(f"{name} cannot be opened ({_reason(error)}); check the path.") from error


def open_unpacked(source: str | Path, name: str, compression: str | None, stack: ExitStack) -> BinaryIO:
    """Open a binary file for reading in any order; a compressed file is unpacked into a temporary file first."""
    file = open_file(source, name, stack)
    if compression is None:
        return file
    _check_compression(file, name, compression)
    return _unpack(_decompressed(file, name, compression), name, f"is damaged {compression} data", stack)


def _unpack(stream: Any, name: str, failure: str, stack: ExitStack) -> BinaryIO:
    with temporary_file(name, stack) as unpacked:
        while block := _read(stream, COPY_BYTES, name, failure):
            unpacked.write(block)
    return unpacked


@contextmanager
def temporary_file(name: str, stack: ExitStack) -> Iterator[BinaryIO]:
    """Yield a temporary file to write to; it is at its start afterwards and is deleted with ``stack``."""
    try:
        unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (the stack closes it)
        yield unpacked
        unpacked.seek(0)
    except OSError as error:
        raise TableError(
            f"{name} cannot be copied to {tempfile.gettempdir()} ({_reason(error)}); free space there, or set TMPDIR "
            "to a folder with more space."
        ) from error


class TextSource:
    """A text file, perhaps compressed, in UTF-8 or in UTF-16 with a byte-order mark.

    Parameters
    ----------
    source : path, or "-" for standard input
    name : str
        The name used in messages.
    compression : {"gzip", "zstd"}, optional
        What the file name says; compressed content is recognized without it.
    """

    def __init__(self, source: str | Path, name: str, compression: str | None, stack: ExitStack) -> None:
        self.name = name
        self._file = open_file(source, name, stack)
        found = _check_compression(self._file, name, compression)
        self._compression = found
        start = self._open().read(3)
        self._utf16 = start[:2] in UTF16
        self._skipped = 3 if start == codecs.BOM_UTF8 else 0

    def open(self) -> io.BufferedReader:
        """Return the content from its start, as UTF-8 without byte-order mark."""
        stream: Any = self._open()
        if self._utf16:
            stream = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-16", newline="")
        else:
            stream.read(self._skipped)
        return io.BufferedReader(_TextStream(stream, self.name, self._skipped), READ_AHEAD_BYTES)

    def open_text(self) -> io.TextIOWrapper:
        """Return the content from its start as text, with its line ends."""
        return io.TextIOWrapper(self.open(), encoding="utf-8", newline="")

    def _open(self) -> _Explained:
        self._file.seek(0)
        stream = self._file if self._compression is None else _decompressed(self._file, self.name, self._compression)
        failure = "cannot be read" if self._compression is None else f"is damaged {self._compression} data"
        return _Explained(stream, self.name, failure)

    def not_utf8(self) -> TableError:
        """Return the error that names the first byte that is not UTF-8."""
        position, line = self._skipped, 1
        for content in self.open():
            try:
                content.decode()
            except UnicodeDecodeError as error:
                value, start = content[error.start], error.start
                line += count_lines(content[:start])
                place = f"at position {position + start:,} (line {line:,})"
                return TableError(f"{self.name} is not UTF-8: byte 0x{value:02x} {place}; save it as UTF-8.")
            position += len(content)
            line += count_lines(content)
        return TableError(f"{self.name} is not UTF-8; save it as UTF-8.")


class _Explained(io.RawIOBase):
    """A stream whose errors are `TableError`, and which is not closed with its readers."""

    def __init__(self, stream: Any, name: str, failure: str) -> None:
        self._stream, self._name, self._failure = stream, name, failure

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = _read(self._stream, len(buffer), self._name, self._failure)
        buffer[: len(data)] = data
        return len(data)


class _TextStream(io.RawIOBase):
    """UTF-8 that contains no nul byte, from a stream of bytes or of characters."""

    def __init__(self, stream: Any, name: str, position: int) -> None:
        self._stream, self._name, self._position, self._lines = stream, name, position, 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(max(1, len(buffer) // 4))  # a character has up to four bytes
        except UnicodeError as error:
            raise TableError(
                f"{self._name} is not the UTF-16 that its byte-order mark announces ({error}); save it as UTF-8."
            ) from error
        data = data.encode() if isinstance(data, str) else data
        place = data.find(b"\0")
        if place >= 0:
            line = self._lines + count_lines(data[:place])
            raise TableError(
                f"{self._name} contains a nul byte at position {self._position + place:,} (line {line:,}), so it is "
                "not a text file in UTF-8; save it as UTF-8."
            )
        buffer[: len(data)] = data
        self._position += len(data)
        self._lines += count_lines(data)
        return len(data)


def count_lines(data: bytes) -> int:
    """Return the number of line ends: LF, CRLF or CR.

    Examples
    --------
    >>> count_lines(b"LF\\nCRLF\\r\\nCR\\r")
    3
    """
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _check_compression(file: BinaryIO, name: str, expected: str | None) -> str | None:
    """Return the compression that the first bytes show; it must be the expected one, if there is one."""
    file.seek(0)
    start = _read(file, 4, name, "cannot be read")
    file.seek(0)
    found = next((kind for kind, magic in MAGIC.items() if start.startswith(magic)), None)
    if expected is not None and start and found != expected:
        raise TableError(
            f"{name} is not compressed with {expected}, as its name says: it starts with the bytes {start.hex(' ')}; "
            "rename it, or replace it with an intact copy."
        )
    return found


def _decompressed(file: BinaryIO, name: str, compression: str) -> Any:
    file.seek(0)
    return pa.CompressedInputStream(pa.PythonFile(_Explained(file, name, "cannot be read"), "r"), compression)


def _read(stream: Any, size: int, name: str, failure: str) -> bytes:
    try:
        return bytes(stream.read(size))
    except (OSError, EOFError) as error:
        raise TableError(f"{name} {failure} ({_reason(error)}); replace it with an intact copy.") from error


def _reason(error: Exception) -> str:
    return in_one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
