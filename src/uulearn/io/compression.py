"""Bytes in: a file or standard input, gzip and zstd undone, every failure a TableError that names the file."""

from __future__ import annotations

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

MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
COPY_BYTES = 1 << 22


class ByteSource:
    """Bytes in order, with a look at the first ones; the little of a file object that pyarrow asks for."""

    closed = False

    def __init__(self, stream: Any, name: str, damage: str = "cannot be read") -> None:
        self._stream = stream
        self._ahead = b""
        self._name = name
        self._damage = damage

    def peek(self, size: int) -> bytes:
        """The next bytes, fewer only where the source ends; they are read again later."""
        while len(self._ahead) < size and (more := self._fetch(size)):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        """Some of the next bytes, at most ``size``; none at the end."""
        if not self._ahead:
            return self._fetch(size)
        given, self._ahead = self._ahead[:size], self._ahead[size:]
        return given

    def _fetch(self, size: int) -> bytes:
        try:
            return bytes(self._stream.read(size))
        except (OSError, EOFError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise TableError(
                f"{self._name} {self._damage} ({in_one_line(reason)}); put an intact copy in its place."
            ) from error

    def readable(self) -> bool:
        """Always; pyarrow asks."""
        return True

    def close(self) -> None:
        """Nothing: whoever opened the file closes it."""


def open_file(source: str | Path, name: str, stack: ExitStack) -> BinaryIO:
    """Open a file for reading, or give standard input, which stays open."""
    if str(source) == STANDARD:
        return sys.stdin.buffer
    try:
        file = stack.enter_context(Path(source).open("rb"))  # noqa: SIM115  (the stack closes it)
    except FileNotFoundError as error:
        raise TableError(f"{name} does not exist; check the path.") from error
    except IsADirectoryError as error:
        raise TableError(f"{name} is a folder; pass a file of rows.") from error
    except PermissionError as error:
        raise TableError(f"{name} may not be read; ask for permission to read it.") from error
    except (OSError, ValueError) as error:  # ValueError: a nul in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TableError(f"{name} cannot be opened ({in_one_line(reason)}); check the path.") from error
    return file


def open_stream(source: str | Path, name: str, compression: str | None, stack: ExitStack) -> ByteSource:
    """The content of a file or of standard input, decompressed as its name says or its first bytes show."""
    raw = ByteSource(open_file(source, name, stack), name)
    start = raw.peek(4)
    found = next((kind for kind, magic in MAGIC.items() if start.startswith(magic)), None)
    if compression is not None and start and found != compression:
        raise TableError(
            f"{name} is not compressed with {compression}, as its name says: it starts with the bytes "
            f"{start.hex(' ')}; rename it to what it is, or put an intact copy in its place."
        )
    if found is None:
        return raw
    return ByteSource(pa.CompressedInputStream(pa.PythonFile(raw, "r"), found), name, f"is damaged {found} data")


def open_seekable(source: str | Path, name: str, compression: str | None, title: str, stack: ExitStack) -> BinaryIO:
    """A file that can be read in any order; a compressed one is unpacked into a temporary file first."""
    if compression is None:
        file = open_file(source, name, stack)
        if not (file.seekable() and stat.S_ISREG(os.fstat(file.fileno()).st_mode)):
            raise TableError(
                f"{name} is a pipe and {title} must be read from a file; write it to one first, or send CSV instead."
            )
        return file
    stream = open_stream(source, name, compression, stack)
    with spooling(name, stack) as unpacked:
        while block := stream.read(COPY_BYTES):
            unpacked.write(block)
    return unpacked


@contextmanager
def spooling(name: str, stack: ExitStack) -> Iterator[BinaryIO]:
    """A temporary file to unpack into, at its beginning again afterwards; gone when the reader is closed."""
    try:
        unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  (the stack closes it)
        yield unpacked
        unpacked.seek(0)
    except OSError as error:
        raise TableError(
            f"{name} cannot be unpacked into {tempfile.gettempdir()} ({in_one_line(error.strerror or error)}); "
            "free space there, or name a roomier folder in TMPDIR."
        ) from error
