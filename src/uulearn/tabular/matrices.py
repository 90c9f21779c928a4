"""From two files, or two folders of images, to two matrices, in memory that does not grow with them.

Each file is read three times: to survey its columns, to draw the rows that the pipeline is fitted on, and to transform
it. A file of few rows is read once and kept.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from uulearn.data import DenseRows
from uulearn.data.holdout import Positions, choose_held_out, digests_of
from uulearn.exceptions import TableError
from uulearn.tabular.images import ImageSchema, base_folder, load_images, open_rows, survey_images
from uulearn.tabular.leakage import LeakingColumn, find_leaking_columns
from uulearn.tabular.pipeline import build_pipeline
from uulearn.tabular.schema import Schema, typed
from uulearn.tabular.survey import Survey

if TYPE_CHECKING:
    import pandas as pd

KEPT_CELLS = 20_000_000
"""A file of at most so many cells is read once and kept."""
SAMPLED_ROWS = 100_000
"""Of each file at most so many rows fit the pipeline and are looked at for leaking_columns."""
MEMORY_BYTES = 2**30
"""A larger matrix is kept in a temporary file."""
MOSTLY_COPIES = 0.5
"""Where a smaller share of the rows is distinct, copies are how the data are, not an accident."""

Matrix = NDArray[Any]
"""Rows of numbers, float32 of shape (n, columns), or of images, bytes of shape (n, channels, height, width)."""


class Source:
    """A file of rows that can be read again and again."""

    def __init__(self, path: str | Path, images: bool = False) -> None:
        self.path, self.images, self.rows, self.notes = path, images, 0, list[str]()
        self._kept: list[pd.DataFrame] | None = []

    @property
    def name(self) -> str:
        """For messages."""
        return Path(self.path).name

    def closed(self) -> Source:
        """Its name and what is known of it, without its rows."""
        twin = Source(self.path, self.images)
        twin.rows, twin.notes, twin._kept = self.rows, self.notes, None
        return twin

    def frames(self) -> Iterator[pd.DataFrame]:
        """The rows, chunk by chunk."""
        if self._kept:
            yield from self._kept
            return
        cells = self.rows = 0
        keeping = self._kept is not None
        with open_rows(self.path, images=self.images) as reader:
            self.notes = list(reader.notes)
            for frame in reader:
                self.rows += len(frame)
                cells += frame.size
                if keeping and self._kept is not None:
                    self._kept.append(frame)
                    if cells > KEPT_CELLS:
                        self._kept, keeping = None, False
                yield frame


@dataclass(frozen=True)
class Prepared:
    """Two files, understood: their columns, the fitted pipeline, and what was noticed; of images, no pipeline."""

    sources: tuple[Source, Source]
    schema: Schema | ImageSchema
    pipeline: Any
    leaking_columns: list[LeakingColumn]
    notes: list[str]
    sizes: tuple[int, int]
    missing: dict[str, tuple[float, float]]
    """Column to its share of missing values in each file."""

    def matrices(self, folder: Path) -> tuple[Matrix, Matrix]:
        """The rows of both files as numbers; large ones lie in nameless files in ``folder``, gone with the process."""
        first, second = (self._matrix(which, folder) for which in (0, 1))
        return first, second

    def _matrix(self, which: int, folder: Path) -> Matrix:
        source, out, start = self.sources[which], None, 0
        for frame in source.frames():
            block = as_numbers(frame, self.schema, self.pipeline, base_folder(source.path), source.name)
            if out is None:
                out = _empty((self.sizes[which], *block.shape[1:]), block.dtype, folder)
            if start + len(block) > len(out):
                raise TableError(f"{source.name} grew while it was read; let nobody write to it and run again.")
            out[start : start + len(block)] = block
            start += len(block)
        if out is None or start != len(out):
            raise TableError(f"{source.name} shrank while it was read; let nobody write to it and run again.")
        return out


def prepare(
    first: str | Path,
    second: str | Path,
    set_priors: tuple[float, float] | None,
    *,
    drop: Sequence[str] = (),
    ids: Sequence[str] = (),
    only: Sequence[str] = (),
    seed: int = 0,
) -> Prepared:
    """Survey both files, fit the pipeline, look for columns that give the set away."""
    sources = (Source(first), Source(second))
    survey = Survey(drop=drop, ids=ids, only=only, files=(sources[0].name, sources[1].name))
    missing: dict[str, list[int]] = {}
    for which, source in enumerate(sources):
        for frame in source.frames():
            survey.add(frame, which)
            for column, count in frame.isna().sum().items():
                missing.setdefault(str(column), [0, 0])[which] += int(count)
        if source.rows < 2:
            raise TableError(f"{source.name} holds {source.rows} rows; each file needs two at least.")
    schema, notes = survey.finish()
    samples = [_sample(source, schema, [seed, which]) for which, source in enumerate(sources)]
    names = (sources[0].name, sources[1].name)
    leaking_columns = find_leaking_columns(samples[0], samples[1], schema, set_priors or (1.0, 0.0), files=names)
    import pandas as pd

    pipeline = build_pipeline(schema).fit(pd.concat(samples, ignore_index=True))
    sizes = (sources[0].rows, sources[1].rows)
    return Prepared(
        sources,
        schema,
        pipeline,
        leaking_columns,
        [f"{source.name}: {note}" for source in sources for note in source.notes] + notes,
        sizes,
        {name: (counts[0] / sizes[0], counts[1] / sizes[1]) for name, counts in missing.items()},
    )


def prepare_images(
    first: str | Path,
    second: str | Path,
    *,
    column: str | None,
    size: int | None,
    ids: Sequence[str] = (),
    flat: bool = False,
) -> Prepared:
    """Look at the images of two folders, or of two tables with a column of paths."""
    sources = (Source(first, images=True), Source(second, images=True))
    schema, notes = survey_images((first, second), column, size, ids, flat)
    for source in sources:
        for _ in source.frames():
            pass  # counts
        if source.rows < 2:
            raise TableError(f"{source.name} holds {source.rows} images; each source needs two at least.")
    told = [f"{source.name}: {note}" for source in sources for note in source.notes] + notes
    return Prepared(sources, schema, None, [], told, (sources[0].rows, sources[1].rows), {})


def as_numbers(frame: pd.DataFrame, schema: Schema | ImageSchema, pipeline: Any, folder: Path, name: str) -> Matrix:
    """The rows of a chunk as a classifier takes them."""
    if isinstance(schema, ImageSchema):
        if schema.column not in frame:
            raise TableError(f"{name} has no column {schema.column!r} of image paths; add it, or pass a folder.")
        return load_images(frame[schema.column].tolist(), folder, schema)
    return np.ascontiguousarray(pipeline.transform(typed(frame, schema, name=name)), dtype=np.float32)


class Split(NamedTuple):
    """Which rows of a set are trained on, which choose the epoch, and which evaluate the result."""

    train: Positions
    choose: Positions
    evaluate: Positions


def split_rows(X: tuple[Matrix, Matrix], fraction: float, seed: int) -> tuple[tuple[Split, Split], str | None]:
    """Hold rows of both sets out, half of them to choose and half to evaluate; and a note where copies are torn apart.

    All copies of a row are on one side. Not so where most rows have copies, as in tables of few categories: there
    a copy is another row that happens to be alike.
    """
    digests = [digests_of(DenseRows(torch.from_numpy(rows))) for rows in X]
    distinct = len(np.unique(np.concatenate(digests))) / sum(map(len, digests))
    note = None
    if distinct < MOSTLY_COPIES:
        note = f"only {100 * distinct:.0f}% of the rows are distinct, so equal rows were taken for different cases"
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
                f"set {which} has {len(X[which])} rows, too few to hold {fraction:g} of them out; use more rows, or a "
                "larger --hold-out."
            )
        splits.append(Split(train, choose, evaluate))
    return (splits[0], splits[1]), note


def take(X: Matrix, positions: Positions, folder: Path) -> Matrix:
    """Some rows as a matrix of their own, copied a piece at a time."""
    out = _empty((len(positions), *X.shape[1:]), X.dtype, folder)
    step = max(1, 2**24 // max(1, X[:1].nbytes))
    for start in range(0, len(positions), step):
        out[start : start + step] = X[positions[start : start + step]]
    return out


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], folder: Path) -> Matrix:
    size = math.prod(shape) * dtype.itemsize
    if size <= MEMORY_BYTES:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # gone when the last array that uses it is
            reserve(file.fileno(), size)
            return np.memmap(file, dtype=dtype, mode="w+", shape=shape)
    except OSError as error:
        raise no_room(size, folder, error, "name a roomier folder in TMPDIR") from error


def no_room(size: int, folder: Path, error: OSError, remedy: str) -> TableError:
    """What to say where the system has no place for rows."""
    return TableError(
        f"the rows as numbers take {size / 2**20:,.1f} MiB in {folder} ({error.strerror or error}); free space there, "
        f"or {remedy}."
    )


def reserve(file: int, size: int) -> None:
    """Take the space of a mapped file now; where a page has no place on the disk later, the system kills."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise  # any other: the disk does not know how


def _sample(source: Source, schema: Schema, seed: Sequence[int]) -> pd.DataFrame:
    import pandas as pd

    rng = np.random.default_rng([*seed, 5])
    wanted = np.arange(source.rows)
    if source.rows > SAMPLED_ROWS:
        wanted = np.sort(rng.choice(source.rows, SAMPLED_ROWS, replace=False))
    parts, start = [], 0
    for frame in source.frames():
        own = wanted[(wanted >= start) & (wanted < start + len(frame))] - start
        if len(own):
            parts.append(typed(frame.iloc[own], schema, name=source.name))
        start += len(frame)
    return pd.concat(parts, ignore_index=True)
