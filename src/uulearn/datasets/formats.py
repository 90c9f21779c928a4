"""Read and validate IDX files and CIFAR-10's binary records.

The layout is checked before the checksum, so that error messages can be specific.
"""

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
UNSIGNED_BYTE = 8  # IDX code of the element type that all image datasets use


class DatasetFileError(ValueError):
    """Error raised if a dataset file is damaged, truncated or not the expected file; the message contains the path."""


def _unusable(path: Path, problem: str) -> DatasetFileError:
    return DatasetFileError(f"{path} {problem}; delete it to download it again, or replace it with an intact copy.")


def read_idx(path: Path, shape: tuple[int, ...], sha256: str, title: str) -> Bytes:
    """Read an IDX file (gzip-compressed if its name ends in ``.gz``), and check its header, length and SHA-256."""
    start, size = 4 + 4 * len(shape), math.prod(shape)
    content = _read(path, limit=start + size)
    announced = _idx_shape(content, path)
    if announced != shape:
        raise _unusable(path, f"is not {title}: expected a header for {_times(shape)} bytes, found {_times(announced)}")
    if len(content) != start + size:
        state = f"truncated: found {len(content) - start:,}" if len(content) < start + size else "too long: found more"
        raise _unusable(path, f"is {state} bytes, expected {_times(shape)} after its header")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _unusable(path, f"has the layout of {title} but different content (wrong SHA-256)")
    # Copy, because arrays from bytes are read-only, and PyTorch warns about read-only arrays.
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _idx_shape(content: bytes, path: Path) -> tuple[int, ...]:
    if content[:2] == GZIP_MAGIC:
        raise DatasetFileError(f"{path} is gzip-compressed but has no .gz suffix; rename it to {path.name}.gz.")
    if len(content) < 4 or content[:2] != b"\0\0":
        begin = content[:4].hex(" ") or "nothing"
        raise _unusable(path, f"is not an IDX file: it starts with {begin}, not with 00 00")
    kind, n_dimensions = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise _unusable(path, f"has the wrong element type: expected 0x08 (unsigned bytes), found 0x{kind:02x}")
    if len(content) < 4 + 4 * n_dimensions:
        raise _unusable(path, "is truncated: it ends within its header")
    return tuple(int(size) for size in np.frombuffer(content, ">u4", n_dimensions, 4))


def read_records(path: Path, count: int, image_shape: tuple[int, ...], n_classes: int) -> Bytes:
    """Read a file of CIFAR-10 records (one label byte, then pixel bytes) as an array of shape (count, 1 + pixels)."""
    width = 1 + math.prod(image_shape)
    size, expected = path.stat().st_size, count * width
    if size != expected:
        state = "truncated" if size < expected else "too long"
        raise _unusable(path, f"is {state}: expected {expected:,} bytes ({count:,} × {width:,}), found {size:,}")
    records = np.fromfile(path, np.uint8).reshape(count, width)
    if (largest := records[:, 0].max()) >= n_classes:
        raise _unusable(path, f"is not CIFAR-10 data: expected labels up to {n_classes - 1}, found {largest}")
    return records


def check_records(records: Bytes, paths: Sequence[Path], part: str, n_classes: int, sha256: str) -> None:
    """Raise a DatasetFileError unless the files together contain the expected records, in any order.

    Copies of CIFAR-10 can differ in the order of the records, so checksums of individual files cannot be used.
    """
    counts = np.bincount(records[:, 0], minlength=n_classes)
    if counts.min() != counts.max():
        reason = f"expected {len(records) // n_classes:,} per class, found {counts.min():,} to {counts.max():,}"
    elif digest_of_records(records) != sha256:
        reason = "the layout is correct, but the SHA-256 differs"
    else:
        return
    where = ", ".join(map(str, paths))
    raise DatasetFileError(
        f"the records in {where} are not those of CIFAR-10's {part} set ({reason}); delete these files to download "
        "them again, or replace them with intact copies."
    )


def digest_of_records(records: Bytes) -> str:
    """Return the SHA-256 digest of the sorted digests of all records, which does not depend on their order."""
    digests = sorted(hashlib.sha256(record).digest() for record in np.ascontiguousarray(records))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _read(path: Path, limit: int) -> bytes:
    """Return the decompressed content of a file; the limit protects against decompression bombs."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(limit + 1)
    except EOFError:
        raise _unusable(path, "is truncated: its compressed data are incomplete") from None
    except gzip.BadGzipFile as error:
        raise _unusable(path, f"is not an intact gzip file ({error})") from None
    except zlib.error as error:
        raise _unusable(path, f"is damaged: it cannot be decompressed ({error})") from None


def _times(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "no"
