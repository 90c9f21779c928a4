"""Read ``.npy`` and ``.npz``: two-dimensional arrays of numbers, memory-mapped; nothing is ever unpickled.

Columns are named 0, 1, ...; frames have the type of the array (``float64`` for longer floats).
"""

from __future__ import annotations

import math
import os
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.io.arrow import FRAME_BYTES, OpenTable, refusing_damage
from uulearn.io.formats import quote_some
from uulearn.io.sources import COPY_BYTES, temporary_file

NUMERIC_KINDS = "biuf"  # dtype kinds: booleans, integers, floats


def open_npy(file: BinaryIO, name: str, chunk_rows: int) -> OpenTable:
    """Return the columns and rows of a ``.npy`` file."""
    array = _map_array(file, name)
    kind = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    columns = [str(position) for position in range(array.shape[1])]
    rows = max(1, min(chunk_rows, FRAME_BYTES // (kind.itemsize * len(columns))))

    def frames() -> Iterator[Any]:
        for start in range(0, len(array), rows):
            yield pd.DataFrame(np.array(array[start : start + rows], kind), columns=columns)

    empty = pd.DataFrame(np.empty((0, len(columns)), kind), columns=columns)
    return OpenTable(columns, frames(), lambda: empty, typed=True, notes=[])


def open_npz(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> OpenTable:
    """Return the columns and rows of the only array of a ``.npz`` file, or of the one named X."""
    with refusing_damage(name, ".npz"):
        archive = stack.enter_context(zipfile.ZipFile(file))
        members = {each.removesuffix(".npy"): each for each in archive.namelist()}
    chosen = "X" if "X" in members else next(iter(members), "")
    if len(members) != 1 and chosen != "X":
        raise TableError(
            f"{name} must contain one array, or one named X, but contains {quote_some(list(members)) or 'none'}; save "
            "the rows with numpy.savez(path, X=rows)."
        )
    with temporary_file(name, stack) as unpacked, refusing_damage(name, ".npz"):
        with archive.open(members[chosen]) as member:
            shutil.copyfileobj(member, unpacked, COPY_BYTES)
        unpacked.flush()
    return open_npy(unpacked, name, chunk_rows)


def _map_array(file: BinaryIO, name: str) -> NDArray[Any]:
    """Return the memory-mapped array of a ``.npy`` file; it must be a complete table of numbers."""
    shape, fortran_order, dtype = _read_header(file, name)
    if dtype.kind not in NUMERIC_KINDS:
        raise TableError(f"{name} contains an array of {dtype}, not of numbers; save it as an array of floats.")
    if len(shape) != 2 or shape[1] == 0:
        raise TableError(
            f"{name} contains an array of shape {shape}, but a table needs two dimensions and one column or more; "
            "save it as rows.reshape(len(rows), -1)."
        )
    offset = file.tell()
    size, due = os.fstat(file.fileno()).st_size - offset, math.prod(shape) * dtype.itemsize
    if size != due:
        state = "truncated" if size < due else "too long"
        raise TableError(
            f"{name} is {state}: {size:,} bytes follow its header, which announces {due:,}; replace it with an intact "
            "copy."
        )
    if due == 0:
        return np.empty(shape, dtype)
    with refusing_damage(name, ".npy"):
        return np.memmap(file, dtype, "r", offset, shape, "F" if fortran_order else "C")


def _read_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    with refusing_damage(name, ".npy"):
        version = np.lib.format.read_magic(file)
        if version not in {(1, 0), (2, 0), (3, 0)}:
            raise ValueError(f"unknown version {version}")
        # Version 3 differs from 2 only in the encoding of field names, and arrays of numbers have none.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape {shape} is negative")
    return shape, fortran_order, dtype
