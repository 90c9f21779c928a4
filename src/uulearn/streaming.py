"""Sets that do not fit in memory: `ParquetSet` reads Parquet files, `shuffled` writes sorted rows in random order, and
`RowStream` is the base class for other sources of rows. Pass such sets to `UUClassifier.fit_sets` instead of arrays.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from uulearn.data.inputs import LARGEST_INPUT
from uulearn.data.shuffling import shuffled
from uulearn.data.streams import MIXING_BYTES, RowStream
from uulearn.io.formats import parquet_files
from uulearn.training.identity import describe

__all__ = ["ParquetSet", "RowStream", "shuffled"]


SAMPLED_BLOCKS, SAMPLED_BLOCK_BYTES = 1024, 2**12  # number and size of the hashed blocks, over all files
MAX_COLUMN_CHUNKS = 100_000  # footers with more column chunks are not cached; a chunk takes about 700 bytes


class ParquetSet(RowStream):
    """A set of rows in Parquet files; only a few row groups are in memory at any time.

    Parameters
    ----------
    path : path
        A Parquet file, or a folder that contains Parquet files, possibly in subfolders.
    columns : sequence of str, optional
        The columns to train on, in this order (default: all columns of the first file). The columns must contain
        numbers without missing values, unless ``transform`` converts them.
    transform : callable, optional
        A function that converts a pyarrow Table to an array of shape (rows, features).
    buffer_bytes : int
        Size in bytes of the buffer in which rows are mixed. For sorted files, the buffer should hold several hundred
        row groups. Alternatively, write the rows in random order with `shuffled`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pa.table({"age": [40, 50, 60, 70], "dose": [0.5, 0.1, 0.2, 0.9]})
    >>> pq.write_table(table, f"{folder.name}/part-0.parquet", row_group_size=2)
    >>> def scale(table):
    ...     return np.column_stack([table["age"].to_numpy() / 100, table["dose"]])
    >>> rows = ParquetSet(folder.name, transform=scale)
    >>> rows.n_rows, rows.row_shape, list(rows.piece_sizes)
    (4, (2,), [2, 2])
    >>> rows
    ParquetSet('...', n_rows=4, row_shape=(2,), row_groups=2, files=1)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | Path,
        columns: Sequence[str] | None = None,
        transform: Callable[[pa.Table], Any] | None = None,
        buffer_bytes: int = MIXING_BYTES,
    ) -> None:
        if buffer_bytes < 1:
            raise ValueError(f"buffer_bytes must be at least 1, got {buffer_bytes}; the default is {MIXING_BYTES:,}.")
        self.path, self.transform, self.buffer_bytes = Path(path), transform, buffer_bytes
        self.columns: tuple[str, ...] = tuple(columns or ())
        if not self.path.exists():
            raise ValueError(f"{path} does not exist; pass a Parquet file or a folder of Parquet files.")
        self.files = parquet_files(self.path) if self.path.is_dir() else [self.path]
        self._footers: list[pq.FileMetaData | None] = []  # slow to read with many columns and row groups
        self._groups: list[tuple[int, int]] = []
        self._sizes: list[int] = []
        described, n_chunks = [], 0
        for number, file in enumerate(self.files):
            try:
                metadata = pq.read_metadata(file)
            except (OSError, pa.ArrowException) as error:
                raise ValueError(f"{file} cannot be read as Parquet ({error}); replace or remove it.") from error
            names = metadata.schema.to_arrow_schema().names
            self.columns = self.columns or tuple(names)
            missing = [name for name in self.columns if name not in names]
            if missing:
                raise ValueError(
                    f"{file} has no column {missing[0]!r}; it has {', '.join(map(repr, names[:20]))}. Write the same "
                    "columns to all files, or list the columns to use."
                )
            n_chunks += metadata.num_columns * metadata.num_row_groups
            self._footers.append(metadata if n_chunks <= MAX_COLUMN_CHUNKS else None)
            name = file.name if file == self.path else str(file.relative_to(self.path))
            described.append(f"{name} {metadata.num_rows}")
            for group in range(metadata.num_row_groups):
                if metadata.row_group(group).num_rows:
                    self._groups.append((number, group))
                    self._sizes.append(metadata.row_group(group).num_rows)
        if not self._sizes:
            raise ValueError(f"{path} has no rows in *.parquet files; pass a file or a folder that contains rows.")
        described += [_content_digest(self.files), str(self.columns), describe(transform)]
        self._described = f"{self.path.name}: {'; '.join(described)}"
        self.row_shape = tuple(self.read(0).shape[1:])

    def __repr__(self) -> str:
        sizes = f"n_rows={self.n_rows}, row_shape={self.row_shape}, row_groups={len(self._sizes)}"
        return f"ParquetSet({str(self.path)!r}, {sizes}, files={len(self.files)})"

    @property
    def piece_sizes(self) -> Sequence[int]:
        """Number of rows in each row group."""
        return self._sizes

    def read(self, piece: int) -> Tensor:
        """Return the rows of the given row group."""
        number, group = self._groups[piece]
        file = self.files[number]
        try:
            with pq.ParquetFile(file, metadata=self._footers[number]) as opened:
                table = opened.read_row_group(group, columns=list(self.columns), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"row group {group} of {file} cannot be read ({error}); replace or remove it.") from error
        rows = np.asarray(self.transform(table.select(self.columns)) if self.transform else self._numbers(table, file))
        if rows.ndim < 2 or len(rows) != table.num_rows or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"transform must return numbers of shape ({table.num_rows}, features), got {rows.dtype} of shape "
                f"{rows.shape}."
            )
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        bad = ~(np.abs(rows) <= LARGEST_INPUT)
        if bad.any():
            row, column, *_ = np.argwhere(bad)[0].tolist()
            at = column if self.transform else repr(self.columns[column])
            raise ValueError(
                f"{file} has missing or infinite values, or values above {LARGEST_INPUT:g}, in row group {group}: "
                f"{rows[bad][0]:g} (row {row} of the group, column {at}); fill or scale them, for example in transform."
            )
        return torch.from_numpy(rows)

    def describe(self) -> str:
        """Return a description of the files (names, sizes, columns and digest) and of the transform."""
        return self._described

    def _numbers(self, table: pa.Table, file: Path) -> np.ndarray[Any, Any]:
        columns = []
        for name in self.columns:
            column = table[name]
            kind = column.type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                raise ValueError(
                    f"column {name!r} of {file} contains {kind}, not numbers; select other columns, or pass a "
                    "transform that returns numbers."
                )
            columns.append(column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False))
        return np.column_stack(columns)


def _content_digest(files: Sequence[Path]) -> str:
    """Return a digest of the file footers, which contain the range of every column, and of some data blocks."""
    found = hashlib.blake2b(digest_size=16)
    blocks = max(1, SAMPLED_BLOCKS // len(files))
    for path in files:
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(0, size - 8))
            footer = int.from_bytes(file.read(4), "little")
            file.seek(max(0, size - 8 - footer))
            found.update(file.read())
            for place in np.linspace(0, max(0, size - SAMPLED_BLOCK_BYTES), blocks, dtype=np.int64):
                file.seek(int(place))
                found.update(file.read(SAMPLED_BLOCK_BYTES))
    return found.hexdigest()
