"""Open files and standard input as decompressed streams that can be read more than once; text is UTF-8."""

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
UNPACKED_BLOCK_BYTES = 1 << 22  # bytes copied per step
READ_AHEAD_BYTES = 1 << 18  # bytes read ahead
OPEN_ERRORS: dict[type[Exception], str] = {
    FileNotFoundError: "does not exist; check the path",
    IsADirectoryError: "is a folder; pass a file of rows",
    PermissionError: "cannot be read; request read permission",
}


def open_file(source: str | Path, name: str, stack: ExitStack) -> BinaryIO:
    """Open a file, or standard input, with random access; a pipe is first copied into a temporary file."""
    try:
        standard = str(source) == STANDARD
        file = sys.stdin.buffer if standard else stack.enter_context(Path(source).open("rb"))  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        why = OPEN_ERRORS.get(type(error), f"cannot be opened ({_reason(error)}); check the path")
        raise TableError(f"{name} {why}.") from error
    try:
        seekable = file.seekable() and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (OSError, ValueError):
        seekable = False
    return file if seekable else _unpack(_Unclosed(file, name), name, stack)


def open_unpacked(source: str | Path, name: str, compression: str | None, stack: ExitStack) -> BinaryIO:
    """Open a binary file with random access; a compressed file is first unpacked into a temporary file."""
    file = open_file(source, name, stack)
    if compression is None:
        return file
    return _unpack(_decompressed(file, name, _check_compression(file, name, compression)), name, stack)


def _unpack(stream: _Unclosed, name: str, stack: ExitStack) -> BinaryIO:
    with temporary_file(name, stack) as unpacked:
        while block := stream.read(UNPACKED_BLOCK_BYTES):
            unpacked.write(block)
    return unpacked


@contextmanager
def temporary_file(name: str, stack: ExitStack) -> Iterator[BinaryIO]:
    """Yield a writable temporary file; it is rewound afterwards, and deleted when ``stack`` is closed."""
    try:
        unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (the stack closes it)
        yield unpacked
        unpacked.seek(0)
    except OSError as error:
        raise TableError(
            f"{name} cannot be copied to {tempfile.gettempdir()} ({_reason(error)}); free up space there, or set "
            "TMPDIR to a folder with more space."
        ) from error


class TextSource:
    """A text file, optionally compressed, in UTF-8 or in UTF-16 with a byte-order mark.

    ``compression`` is the compression implied by the file name; if it is None, the content determines the compression.
    """

    def __init__(self, source: str | Path, name: str, compression: str | None, stack: ExitStack) -> None:
        self.name = name
        self._file = open_file(source, name, stack)
        self._compression = _check_compression(self._file, name, compression)
        start = self._bytes().read(3)
        self._utf16 = start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        self._skipped = 3 if start == codecs.BOM_UTF8 else 0

    def open(self) -> io.BufferedReader:
        """Open the content from its start, as UTF-8 without a byte-order mark."""
        return io.BufferedReader(_TextStream(self), READ_AHEAD_BYTES)

    def open_text(self) -> io.TextIOWrapper:
        """Open the content from its start as text, with unchanged line endings."""
        return io.TextIOWrapper(self.open(), encoding="utf-8", newline="")

    def raw(self) -> Any:
        """Open the content after its byte-order mark; UTF-16 is opened as text, UTF-8 as bytes without validation."""
        stream = self._bytes()
        if self._utf16:
            return io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-16", newline="")
        stream.read(self._skipped)
        return stream

    def _bytes(self) -> _Unclosed:
        return _decompressed(self._file, self.name, self._compression)

    def not_text(self) -> TableError:
        """Return an error that states the position of the first byte that is null or not valid UTF-8."""
        stream = self.raw()
        if not self._utf16:
            stream = io.TextIOWrapper(io.BufferedReader(stream), "utf-8", errors="surrogateescape", newline="")
        position, line = self._skipped, 1
        while text := stream.readline(READ_AHEAD_BYTES):
            content = text.encode("utf-8", "surrogateescape")
            try:
                place = content.find(b"\0")
                content[: None if place < 0 else place].decode()
            except UnicodeDecodeError as error:
                place = error.start
            if place >= 0:
                what = f"is not UTF-8: byte 0x{content[place]:02x}" if content[place] else "contains a null byte"
                return TableError(
                    f"{self.name} {what} at position {position + place:,} (line {line:,}); save it as UTF-8 "
                    "(in Excel: CSV UTF-8)."
                )
            position += len(content)
            line += content.endswith((b"\n", b"\r"))
        return TableError(f"{self.name} is not UTF-8; save it as UTF-8.")


class _Unclosed(io.RawIOBase):
    """A stream that converts read errors to `TableError` and stays open when its readers are closed."""

    def __init__(self, stream: Any, name: str, failure: str = "cannot be read") -> None:
        self._stream, self._name, self._failure = stream, name, failure

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (OSError, EOFError) as error:
            raise TableError(
                f"{self._name} {self._failure} ({_reason(error)}); replace it with an intact copy."
            ) from error
        buffer[: len(data)] = data
        return len(data)


class _TextStream(io.RawIOBase):
    """A stream of the content of a source as UTF-8; a null byte raises an error."""

    def __init__(self, source: TextSource) -> None:
        self._source, self._stream = source, source.raw()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(max(1, len(buffer) // 4))  # a character has up to four bytes
        except UnicodeError as error:
            name = self._source.name
            raise TableError(
                f"{name} has a UTF-16 byte-order mark but is not valid UTF-16 ({error}); save it as UTF-8."
            ) from error
        data = data.encode() if isinstance(data, str) else data
        if b"\0" in data:
            raise self._source.not_text()
        buffer[: len(data)] = data
        return len(data)


def _check_compression(file: BinaryIO, name: str, expected: str | None) -> str | None:
    """Detect the compression from the first bytes; raise `TableError` if it is not the expected compression."""
    file.seek(0)
    start = _Unclosed(file, name).read(4) or b""
    found = next((kind for kind, magic in MAGIC.items() if start.startswith(magic)), None)
    if expected is not None and start and found != expected:
        raise TableError(
            f"{name} has a {expected} suffix but is not compressed with {expected} (first bytes: {start.hex(' ')}); "
            "rename it, or replace it with an intact copy."
        )
    return found


def _decompressed(file: BinaryIO, name: str, compression: str | None) -> _Unclosed:
    """Return a stream of the decompressed content of a file, positioned at its start."""
    file.seek(0)
    stream = _Unclosed(file, name)
    if compression is None:
        return stream
    unpacked = pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression)
    return _Unclosed(unpacked, name, f"is damaged {compression} data")


def _reason(error: Exception) -> str:
    return in_one_line(error.strerror if isinstance(error, OSError) and error.strerror else error)
