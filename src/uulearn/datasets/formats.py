"""Readers of the two file layouts, IDX and CIFAR-10's binary records, which refuse files that are not what they say.

Layout is checked before the checksum, so that an error tells what is wrong with a file and not only that it differs.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 8  # IDX's code for the only element type that the image datasets use
REMEDY = "delete it to have it downloaded again, or put an intact copy in its place"


class DatasetFileError(ValueError):
    """A dataset's file is damaged, truncated or another file; the text names it."""


def read_idx(path: Path, shape: tuple[int, ...], sha256: str, title: str) -> Bytes:
    """Read an IDX file of bytes, gzip-compressed where its name ends in ``.gz``, as an array of the given shape.

    Refuses the file unless header, length and the SHA-256 of the uncompressed content are as they must be.
    """
    start, size = 4 + 4 * len(shape), math.prod(shape)
    content = _read(path, limit=start + size)
    announced = _idx_shape(content, path)
    if announced != shape:
        raise DatasetFileError(
            f"{path} announces {_times(announced)} bytes where {title} has {_times(shape)}; {REMEDY}."
        )
    if len(content) != start + size:
        state = f"truncated: {len(content) - start:,}" if len(content) < start + size else "too long: more"
        raise DatasetFileError(f"{path} is {state} bytes follow where its header announces {_times(shape)}; {REMEDY}.")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DatasetFileError(f"{path} has {title}'s layout but not its content (SHA-256 differs); {REMEDY}.")
    # A copy, because arrays over bytes are read-only and PyTorch warns of those.
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _idx_shape(content: bytes, path: Path) -> tuple[int, ...]:
    if content[:2] == GZIP_MAGIC:
        raise DatasetFileError(f"{path} is gzip-compressed but its name lacks .gz; rename it to {path.name}.gz.")
    if len(content) < 4 or content[:2] != b"\0\0":
        begin = content[:4].hex(" ") or "nothing"
        raise DatasetFileError(f"{path} is not an IDX file: it starts with {begin}, not with 00 00; {REMEDY}.")
    kind, n_dimensions = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise DatasetFileError(
            f"{path} holds elements of IDX type 0x{kind:02x} where 0x08, unsigned bytes, is expected; {REMEDY}."
        )
    if len(content) < 4 + 4 * n_dimensions:
        raise DatasetFileError(f"{path} is truncated: it ends within its header; {REMEDY}.")
    return tuple(int(size) for size in np.frombuffer(content, ">u4", n_dimensions, 4))


def read_records(path: Path, count: int, image_shape: tuple[int, ...], n_classes: int) -> Bytes:
    """Read a file of CIFAR-10's records, each a label byte and the pixels' bytes, as an array (count, 1 + pixels)."""
    width = 1 + math.prod(image_shape)
    size, expected = path.stat().st_size, count * width
    if size != expected:
        state = "truncated" if size < expected else "too long"
        raise DatasetFileError(
            f"{path} is {state}: {size:,} bytes where {count:,} records of {width:,} make {expected:,}; {REMEDY}."
        )
    records = np.fromfile(path, np.uint8).reshape(count, width)
    if (largest := records[:, 0].max()) >= n_classes:
        raise DatasetFileError(
            f"{path} does not hold CIFAR-10's records: a label is {largest} where at most {n_classes - 1} is possible; "
            f"{REMEDY}."
        )
    return records


def check_records(records: Bytes, paths: Sequence[Path], part: str, n_classes: int, sha256: str) -> None:
    """Refuse files whose records together are not the expected ones, in whatever order they are.

    Copies of CIFAR-10 differ in the order of their records, so no checksum of a single file will do.
    """
    counts = np.bincount(records[:, 0], minlength=n_classes)
    if counts.min() != counts.max():
        reason = f"{counts.min():,} to {counts.max():,} per class in place of {len(records) // n_classes:,} of each"
    elif digest_of_records(records) != sha256:
        reason = "the layout is right, the SHA-256 is not"
    else:
        return
    where = ", ".join(map(str, paths))
    raise DatasetFileError(
        f"the records in {where} are not those of CIFAR-10's {part} set ({reason}); delete every file named to have "
        "it downloaded again, or put intact copies in place."
    )


def digest_of_records(records: Bytes) -> str:
    """SHA-256 of the sorted SHA-256 digests of the records: the same for every order of the same records.

    Examples
    --------
    >>> records = np.arange(12, dtype=np.uint8).reshape(3, 4)
    >>> digest_of_records(records) == digest_of_records(records[::-1])
    True
    """
    digests = sorted(hashlib.sha256(record).digest() for record in np.ascontiguousarray(records))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _read(path: Path, limit: int) -> bytes:
    """Uncompressed content; at most one byte over the limit, so that no small file can fill the memory."""
    if path.suffix != ".gz":
        with path.open("rb") as file:
            return file.read(limit + 1)
    try:
        with gzip.open(path) as file:
            return file.read(limit + 1)
    except EOFError:
        raise DatasetFileError(f"{path} is truncated: its compressed data end early; {REMEDY}.") from None
    except gzip.BadGzipFile as error:
        raise DatasetFileError(f"{path} is not an intact gzip file ({error}); {REMEDY}.") from None
    except zlib.error as error:
        raise DatasetFileError(f"{path} is damaged: it cannot be uncompressed ({error}); {REMEDY}.") from None


def _times(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "no"
