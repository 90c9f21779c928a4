"""Text in: any of three encodings to blocks of UTF-8 that hold whole records, checked, with their line numbers."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import NamedTuple

from uulearn.exceptions import TableError
from uulearn.io.compression import ByteSource

BLOCK_BYTES = 1 << 22
RECORD_BYTES = 1 << 26  # an open quote must not swallow a file larger than memory

UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Block(NamedTuple):
    """Whole records of a text, and where they start."""

    data: bytes
    line: int
    offset: int


class TextBuffer:
    """The part of a text that has been read and not yet taken, as UTF-8 that starts with a record.

    Parameters
    ----------
    source : ByteSource
        UTF-8 with or without byte-order mark, or UTF-16 with one.
    name : str
        For messages.
    """

    def __init__(self, source: ByteSource, name: str) -> None:
        self.name = name
        self.pending = b""
        self.ended = False
        self._source = source
        self._line = 1
        self._offset = 0
        self._decoder: codecs.IncrementalDecoder | None = None
        self._decoded = 0
        start = source.peek(3)
        if start == codecs.BOM_UTF8:
            source.read(3)
            self._offset = 3
        elif start[:2] in UTF16:
            source.read(2)
            self._decoder = codecs.getincrementaldecoder(UTF16[start[:2]])()
            self._decoded = 2

    def grow(self) -> bool:
        """Read more; False at the end, where a last line without a line end is given one."""
        if self.ended:
            return False
        if len(self.pending) > RECORD_BYTES:
            raise TableError(
                f"line {self._line:,} of {self.name} starts a record that does not end within "
                f"{RECORD_BYTES:,} bytes; close the quote that is open there."
            )
        # A record longer than the buffer is searched again after each growth: doubling keeps that cheap.
        more = self._read(max(BLOCK_BYTES, len(self.pending)))
        self.pending += more
        if not more:
            self.ended = True
            if self.pending and not self.pending.endswith(b"\n"):
                self.pending += b"\n"
        return True

    def take(self, size: int) -> Block:
        """The next ``size`` bytes, checked to be text."""
        block = self.look(size)
        self.pending = self.pending[size:]
        self._line += count_lines(block.data)
        self._offset += size
        return block

    def look(self, size: int) -> Block:
        """The same, left where they are."""
        block = Block(self.pending[:size], self._line, self._offset)
        self._check(block)
        return block

    def start(self) -> None:
        """Go to the first line that holds something, and read a block of what follows."""
        while not self.pending and self.grow():
            self.take(len(self.pending) - len(self.pending.lstrip(b"\r\n")))
        while len(self.pending) < BLOCK_BYTES and self.grow():
            pass

    def blocks(self, end_of_records: Callable[[bytes], int]) -> Iterator[Block]:
        """All that is left; ``end_of_records`` says how much of some text is whole records."""
        while self.pending or not self.ended:
            end = end_of_records(self.pending)
            if end:
                yield self.take(end)
            elif not self.grow():
                raise self.open_quote()

    def open_quote(self) -> TableError:
        """The error of a record that the end of the file cuts short."""
        self.look(len(self.pending))  # where it is no text at all, that is the thing to say
        return TableError(
            f"line {self._line:,} of {self.name} opens a quote that is never closed; close it, or put an intact copy "
            "of the file in its place."
        )

    def _read(self, size: int) -> bytes:
        if self._decoder is None:
            return self._source.read(size)
        text = ""
        while not text:  # a block may hold less than one character
            pending = len(self._decoder.getstate()[0])
            block = self._source.read(size)
            try:
                text = self._decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                position = self._decoded - pending + error.start
                raise TableError(
                    f"{self.name} is not the UTF-16 that its byte-order mark announces: position {position:,} cannot "
                    "be read; save it as UTF-8."
                ) from error
            self._decoded += len(block)
            if not block:
                break
        return text.encode()

    def _check(self, block: Block) -> None:
        """Refuse what is no text, with the place."""
        position = block.data.find(b"\0")
        if position >= 0:
            raise TableError(
                f"{self.name} holds a nul byte {_place(block, position)} and is no text; save it as UTF-8."
            )
        if block.data.isascii():
            return
        try:
            block.data.decode()
        except UnicodeDecodeError as error:
            value = block.data[error.start]
            raise TableError(
                f"{self.name} is not UTF-8: it holds the byte 0x{value:02x} {_place(block, error.start)}; save it as "
                "UTF-8."
            ) from error


def count_lines(data: bytes) -> int:
    """Number of line ends, be they LF, CRLF or CR.

    Examples
    --------
    >>> count_lines(b"LF\\nCRLF\\r\\nCR\\r")
    3
    """
    if b"\r" not in data:
        return data.count(b"\n")
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def after_last_line(data: bytes, stop: int | None = None) -> int:
    """Where the last whole line before ``stop`` ends; 0 if there is none.

    A CR that ends the data is no line end yet: an LF that belongs to it may follow.
    """
    stop = len(data) if stop is None else stop
    return max(data.rfind(b"\n", 0, stop), data.rfind(b"\r", 0, min(stop, len(data) - 1))) + 1


def _place(block: Block, position: int) -> str:
    line = block.line + count_lines(block.data[:position])
    return f"at position {block.offset + position:,} (line {line:,})"
