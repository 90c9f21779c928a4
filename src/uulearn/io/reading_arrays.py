"""NumPy's .npy and .npz in: two-dimensional arrays of numbers, mapped into memory; nothing is ever unpickled.

Columns are called 0, 1, …; frames have the array's own type (``float64`` for longer floats).
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
from uulearn.io.compression import COPY_BYTES, spooling
from uulearn.io.formats import quote_some
from uulearn.io.reading_arrow import CHUNK_BYTES, Opened, refusing_damage

NUMERIC_KINDS = "biuf"


def open_npy(file: BinaryIO, name: str, chunk_rows: int) -> Opened:
    """Columns and rows of a .npy file."""
    array = _map_array(file, name)
    kind = np.dtype(np.float64) if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    columns = [str(position) for position in range(array.shape[1])]
    rows = max(1, min(chunk_rows, CHUNK_BYTES // (kind.itemsize * len(columns))))

    def frames() -> Iterator[Any]:
        for start in range(0, len(array), rows):
            yield pd.DataFrame(np.array(array[start : start + rows], kind), columns=columns)

    empty = pd.DataFrame(np.empty((0, len(columns)), kind), columns=columns)
    return Opened(columns, frames(), lambda: empty, typed=True, notes=[])


def open_npz(file: BinaryIO, name: str, chunk_rows: int, stack: ExitStack) -> Opened:
    """Columns and rows of the only array of a .npz file, or of the one called X."""
    with refusing_damage(name, ".npz"):
        archive = stack.enter_context(zipfile.ZipFile(file))
        members = {each.removesuffix(".npy"): each for each in archive.namelist()}
    chosen = "X" if "X" in members else next(iter(members), "")
    if len(members) != 1 and chosen != "X":
        raise TableError(
            f"{name} must hold one array, or one called X, and holds {quote_some(list(members)) or 'none'}; save the "
            "rows with numpy.savez(path, X=rows)."
        )
    with spooling(name, stack) as unpacked, refusing_damage(name, ".npz"):
        with archive.open(members[chosen]) as member:
            shutil.copyfileobj(member, unpacked, COPY_BYTES)
        unpacked.flush()
    return open_npy(unpacked, name, chunk_rows)


def _map_array(file: BinaryIO, name: str) -> NDArray[Any]:
    """The array of a .npy file, mapped; refused unless it is a table of numbers and wholly there."""
    shape, fortran_order, dtype = _read_header(file, name)
    if dtype.kind not in NUMERIC_KINDS:
        raise TableError(f"{name} holds an array of {dtype}, not of numbers; save it as an array of floats.")
    if len(shape) != 2 or shape[1] == 0:
        raise TableError(
            f"{name} holds an array of shape {shape} where a table is needed, with one row a case and at least one "
            "column; save it as rows.reshape(len(rows), -1)."
        )
    offset = file.tell()
    size, due = os.fstat(file.fileno()).st_size - offset, math.prod(shape) * dtype.itemsize
    if size != due:
        state = "truncated" if size < due else "too long"
        raise TableError(
            f"{name} is {state}: {size:,} bytes follow its header, which announces {due:,}; put an intact copy in its "
            "place."
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
        # Version 3 differs from 2 in the encoding of field names, which arrays of numbers do not have.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"shape {shape} is negative")
    return shape, fortran_order, dtype
