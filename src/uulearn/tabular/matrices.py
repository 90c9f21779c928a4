"""Convert two files or two folders of images to two matrices, with bounded memory use.

Small files are parsed once and kept in memory. The parsed rows of larger CSV files are stored in a temporary Arrow
file. Large files in other formats are read again to sample and to encode their rows.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from uulearn.data import DenseRows
from uulearn.data.holdout import Positions, choose_held_out, digests_of
from uulearn.exceptions import TableError
from uulearn.io.arrow import refuse_ambiguous
from uulearn.tabular.cells import compact
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.images import DEFAULT_SIZE, ImageSchema, base_folder, load_images, open_rows, survey_images
from uulearn.tabular.leakage import LeakingColumn
from uulearn.tabular.schema import Schema, apply_schema
from uulearn.tabular.survey import COMMAND_LINE

KEPT_CELLS = 2_000_000  # a file with at most this many cells is kept in memory
MEMORY_BYTES = 2**27  # a larger matrix is kept in a temporary file
MIN_DISTINCT_FRACTION = 0.5  # if the fraction of distinct rows is lower, equal rows count as different cases

Matrix = NDArray[Any]
"""Encoded rows, float32 of shape (n, features), or images, bytes of shape (n, channels, height, width)."""


class RowSource:
    """A table file or a folder of images that can be read more than once."""

    def __init__(self, path: str | Path, images: bool = False, sheet: str | None = None) -> None:
        self.path, self.images, self.sheet, self.rows, self.notes = path, images, sheet, 0, list[str]()
        self._kept: list[pd.DataFrame] = []
        self._store: BinaryIO | None = None  # frames in Arrow format, in an unnamed temporary file
        self._parsed = False
        self.ambiguous: dict[str, str] = {}  # see `TableReader.ambiguous`
        self._as_numbers: set[str] = set()  # text columns that were stored as numbers in at least one chunk

    @property
    def name(self) -> str:
        """File name that is shown in messages."""
        return Path(self.path).name

    def closed(self) -> RowSource:
        """Return a copy with the file name, the number of rows and the notes, but without the rows."""
        other = RowSource(self.path, self.images, self.sheet)
        other.rows, other.notes = self.rows, self.notes
        return other

    def apply(self, schema: Schema) -> None:
        """Refuse ambiguous numbers, and parse the file again on the next read if a text such as ``007`` became 7."""
        refuse_ambiguous(self.name, self.ambiguous, (column.name for column in schema.of_kind("number")))
        if not self._as_numbers.isdisjoint(column.name for column in schema.of_kind("text")):
            self._kept, self._store = [], None

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in chunks."""
        if self._store is not None:
            yield from _stored_frames(self._store)
        elif self._kept:
            yield from self._kept
        else:
            yield from self._read()

    def _read(self) -> Iterator[pd.DataFrame]:
        cells = self.rows = 0
        first, store = not self._parsed, None
        self._parsed = True
        kept: list[pd.DataFrame] | None = [] if first else None
        with open_rows(self.path, images=self.images, sheet=self.sheet) as reader:
            self.notes, self.ambiguous = list(reader.notes), reader.ambiguous
            for chunk in reader:
                frame = compact(chunk) if first and not reader.typed else chunk
                if frame is not chunk:
                    self._as_numbers |= {name for name in frame if frame[name].dtype == np.float64}
                self.rows += len(frame)
                cells += frame.size
                if kept is not None:
                    kept.append(frame)
                    if cells > KEPT_CELLS:
                        store = None if reader.typed else _append_frames(None, kept)
                        kept = None
                elif store is not None:
                    store = _append_frames(store, [frame])
                yield frame
        self._kept, self._store = kept or [], store


def _append_frames(file: Any, frames: list[pd.DataFrame]) -> BinaryIO | None:
    """Append frames to the temporary file; return None if the disk is full, in which case the file is parsed again."""
    try:
        file = file or tempfile.TemporaryFile()  # noqa: SIM115  (closed with the source)
        for frame in frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            with pa.ipc.new_stream(file, table.schema) as stream:
                stream.write_table(table)
    except OSError:
        return None
    return file  # type: ignore[no-any-return]


def _stored_frames(file: BinaryIO) -> Iterator[pd.DataFrame]:
    file.seek(0)
    content, start = pa.PythonFile(file, "r"), 0
    while True:
        try:
            with pa.ipc.open_stream(content) as stream:
                frame = stream.read_all().to_pandas()
        except pa.ArrowInvalid:  # the end of the file
            return
        frame.index = pd.RangeIndex(start, start + len(frame))
        start += len(frame)
        yield frame


@dataclass(frozen=True)
class Prepared:
    """Schema of two files, with the fitted encoder (None for images) and notes for the user."""

    sources: tuple[RowSource, RowSource]
    schema: Schema | ImageSchema
    encoder: TableEncoder | None
    leaking_columns: list[LeakingColumn]
    notes: list[str]
    sizes: tuple[int, int]
    missing: dict[str, tuple[float, float]]
    """Fractions of missing values in each column, one for each file."""

    def matrices(self, folder: Path) -> tuple[Matrix, Matrix]:
        """Return the encoded rows of both files; large matrices are stored in temporary files in ``folder``."""
        first, second = (self._matrix(which, folder) for which in (0, 1))
        return first, second

    def _matrix(self, which: int, folder: Path) -> Matrix:
        source, out, size, rows = self.sources[which], None, self.sizes[which], 0
        for frame in source.frames():
            block = encode_rows(frame, self.schema, self.encoder, base_folder(source.path), source.name)
            out = out or MatrixWriter((size, *block.shape[1:]), block.dtype, folder)
            rows += len(block)
            if rows > size:
                break
            out.append(block)
        if out is None or rows != size:
            raise TableError(f"{source.name} changed while it was being read; run the command again.")
        return out.matrix()


def prepare(
    first: str | Path,
    second: str | Path,
    set_priors: tuple[float, float] | None,
    *,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    only: Sequence[str] = (),
    sheet: str | None = None,
    seed: int = 0,
) -> Prepared:
    """Determine the columns of both files, fit the encoder, and find leaking columns."""
    sources = (RowSource(first, sheet=sheet), RowSource(second, sheet=sheet))
    encoder = TableEncoder(drop=drop, only=only)
    found = encoder.fit_sources(sources, set_priors=set_priors, ids=ids, terms=COMMAND_LINE, seed=seed)
    notes, sizes = _file_notes(sources) + encoder.notes_, (sources[0].rows, sources[1].rows)
    return Prepared(sources, encoder.schema_, encoder, found.leaking_columns, notes, sizes, found.missing)


def _file_notes(sources: tuple[RowSource, RowSource]) -> list[str]:
    """Return the notes about both files; each note starts with the file name."""
    return [note for source in sources for note in source.notes]


def prepare_images(
    first: str | Path,
    second: str | Path,
    *,
    column: str | None,
    size: int | None,
    ids: Sequence[str] = (),
    flat: bool = False,
    default_size: int = DEFAULT_SIZE,
) -> Prepared:
    """Determine the image size and color mode for two folders, or for two tables with a column of image paths."""
    sources = (RowSource(first, images=True), RowSource(second, images=True))
    schema, notes = survey_images((first, second), column, size, ids, flat, default_size)
    for source in sources:
        rows = sum(len(frame) for frame in source.frames())
        if rows < 2:
            raise TableError(f"{source.name} has {rows} images; each file needs at least two.")
    sizes = (sources[0].rows, sources[1].rows)
    return Prepared(sources, schema, None, [], _file_notes(sources) + notes, sizes, {})


def encode_rows(
    frame: pd.DataFrame, schema: Schema | ImageSchema, encoder: TableEncoder | None, folder: Path, name: str
) -> Matrix:
    """Convert a chunk of rows to the input of the classifier."""
    if isinstance(schema, ImageSchema):
        if schema.column not in frame:
            raise TableError(f"{name} has no column {schema.column!r}; add it with the file paths, or pass a folder.")
        return load_images(frame[schema.column].tolist(), folder, schema)
    assert encoder is not None, "rows that are not images require an encoder"
    return encoder.encode_rows(apply_schema(frame, schema, name=name))


class RowSplit(NamedTuple):
    """Positions of the rows of a set for training, for choosing the best epoch and for evaluation."""

    train: Positions
    choose: Positions
    evaluate: Positions


def split_rows(X: tuple[Matrix, Matrix], fraction: float, seed: int) -> tuple[tuple[RowSplit, RowSplit], str | None]:
    """Hold out rows of both sets, half to choose the best epoch and half for evaluation; return the splits and a note.

    Duplicate rows stay together, unless fewer than half of the rows are distinct, as in tables with few categories. In
    that case, duplicates are treated as different cases, and the note says so.
    """
    digests = [digests_of(DenseRows(torch.from_numpy(rows))) for rows in X]
    distinct = len(np.unique(np.concatenate(digests))) / sum(map(len, digests))
    note = None
    if distinct < MIN_DISTINCT_FRACTION:
        note = f"only {100 * distinct:.0f}% of the rows are distinct, so identical rows are treated as different cases"
        starts = (0, len(digests[0]))
        digests = [start + np.arange(len(own)) for start, own in zip(starts, digests, strict=True)]
    held = choose_held_out((digests[0], digests[1]), fraction, seed)
    own = [own[chosen] for own, chosen in zip(digests, held, strict=True)]
    evaluated = choose_held_out((own[0], own[1]), 0.5, seed + 1)
    splits = []
    for which in (0, 1):
        evaluate = held[which][evaluated[which]]
        choose = np.setdiff1d(held[which], evaluate)
        train = np.setdiff1d(np.arange(len(X[which])), held[which])
        if min(len(train), len(choose), len(evaluate)) < 2:
            raise TableError(
                f"set {which} has {len(X[which])} rows, too few to hold out a fraction of {fraction:g}; use more "
                "rows, or a larger --hold-out."
            )
        splits.append(RowSplit(train, choose, evaluate))
    return (splits[0], splits[1]), note


def take(X: Matrix, positions: Positions, folder: Path) -> Matrix:
    """Copy the selected rows to a new matrix, in parts."""
    out = MatrixWriter((len(positions), *X.shape[1:]), X.dtype, folder)
    step = max(1, 2**24 // max(1, X[:1].nbytes))
    for start in range(0, len(positions), step):
        out.append(X[positions[start : start + step]])
    return out.matrix()


class MatrixWriter:
    """Writer for a matrix that is filled in parts; large matrices are written to a temporary file in ``folder``.

    The file is mapped into memory only after all rows are written, so its pages do not count as used memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path) -> None:
        self._rows, self._shape, self._dtype, self._folder = 0, shape, dtype, folder
        self._size = math.prod(shape) * dtype.itemsize
        self._array = np.empty(shape, dtype) if self._size <= MEMORY_BYTES else None
        if self._array is None:
            with self._explained():
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (the mapping keeps it)
                reserve(self._file.fileno(), self._size)

    def append(self, rows: Matrix) -> None:
        """Append rows to the matrix."""
        if self._array is not None:
            self._array[self._rows : self._rows + len(rows)] = rows
            self._rows += len(rows)
            return
        with self._explained():
            self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)

    def matrix(self) -> Matrix:
        """Return the matrix; its temporary file is deleted when no array uses it anymore."""
        if self._array is not None:
            return self._array
        with self._explained(), self._file:
            self._file.flush()
            return np.memmap(self._file, dtype=self._dtype, mode="r+", shape=self._shape)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise no_room(self._size, self._folder, error, "set TMPDIR to a folder with more space") from error


def no_room(size: int, folder: Path, error: OSError, remedy: str) -> TableError:
    """Return the error to raise if the disk has too little space for the matrix."""
    return TableError(
        f"the encoded rows need {size / 2**20:,.1f} MiB in {folder} ({error.strerror or error}); free space there, "
        f"or {remedy}."
    )


def reserve(file: int, size: int) -> None:
    """Allocate disk space for a mapped file in advance, because a full disk would kill the process later."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise  # other errors: the file system cannot allocate
