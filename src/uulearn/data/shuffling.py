"""Write the rows of a stream once in random order, so that every piece is a random sample of the set."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn.data.streams import Numbers, RowStream, row_bytes
from uulearn.storage import file_lock, remove_temporary_files, write_atomically

SHUFFLED_FORMAT = 1
INDEX_FILE, ROWS_FILE, LOCK_FILE = "index.json", "rows.bin", ".lock"
PIECES_PER_BUFFER = 16
"""Number of written pieces that fit into the buffer of the stream."""
MAX_PIECES = 4096
"""Maximum number of pieces, limited because each write operation seeks to the end of every piece."""
WRITE_BYTES = 64 * 2**20
"""Number of bytes of rows that are collected before they are written to their pieces."""


def shuffled(stream: RowStream, folder: str | Path, *, seed: int = 0) -> RowStream:
    """Return the same rows in random order, written once to a folder as float32 values.

    Use this function if rows are sorted, for example by day or by site: neighboring rows then resemble each other, so
    batches of the stream are not random samples of the set. The result is also faster to read than the original.

    ``folder`` must be new or empty, or contain the same rows from an earlier call, which are then reused.
    If several processes pass the same folder, for example with torchrun, one process writes and the others wait.

    >>> class Counted(RowStream):
    ...     row_shape, piece_sizes = (1,), (500, 500)
    ...     def read(self, piece): return torch.arange(500.0)[:, None] + 500 * piece
    ...     def describe(self): return "counted: 1000"
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     shuffled(Counted(), place).n_rows
    1000
    """
    if not isinstance(stream, RowStream):
        raise TypeError(f"stream must be a RowStream such as ParquetSet(path), got {type(stream).__name__}.")
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise ValueError(f"folder must be a directory, but {path} is a file; pass another path.")
    if seed < 0:
        raise ValueError(f"seed must be an integer of at least 0, got {seed}.")
    wanted: dict[str, Any] = {"format": SHUFFLED_FORMAT, "rows": stream.describe(), "seed": seed}
    wanted["row_shape"] = list(stream.row_shape)
    found = _read_index(path, wanted)
    if found is None:
        try:
            with file_lock(path / LOCK_FILE, f"{path} is being written by another process"):
                found = _read_index(path, wanted) or _write(stream, path, wanted)  # another process may have written it
        except OSError as error:
            size = stream.n_rows * row_bytes(stream) / 1e9
            raise ValueError(
                f"{path} cannot be written ({error.strerror or error}); pass a writable folder with {size:.1f} GB free."
            ) from error
    return _ShuffledStream(stream, path / ROWS_FILE, found["sizes"], seed)


class _ShuffledStream(RowStream):
    """Stream whose pieces are stored one after another in a file."""

    in_random_order = True

    def __init__(self, source: RowStream, path: Path, sizes: Sequence[int], seed: int) -> None:
        self.row_shape, self.buffer_bytes = tuple(source.row_shape), source.buffer_bytes
        self.path, self.seed, self._sizes = path, seed, sizes
        self.columns, self.transform = (getattr(source, name, None) for name in ("columns", "transform"))
        self._description = f"{source.describe()}; in the order of seed {seed}"
        self._starts = np.concatenate([[0], np.cumsum(sizes)]) * row_bytes(source)
        size = path.stat().st_size if path.exists() else 0
        if size != self._starts[-1]:
            raise ValueError(
                f"{path}: expected {self._starts[-1]:,} bytes, found {size:,}; delete {INDEX_FILE} in the same folder "
                "to write the rows again."
            )

    @property
    def piece_sizes(self) -> Sequence[int]:
        """Number of rows in each piece."""
        return self._sizes

    def read(self, piece: int) -> Tensor:
        """Return the rows of a piece."""
        values = math.prod(self.row_shape) * self._sizes[piece]
        rows = np.fromfile(self.path, np.float32, count=values, offset=int(self._starts[piece]))
        # Within a piece, the rows are stored in the order of the source.
        order = np.random.default_rng([self.seed, piece]).permutation(self._sizes[piece])
        return torch.from_numpy(rows.reshape(-1, *self.row_shape)[order])

    def describe(self) -> str:
        """Return the source and the seed as text."""
        return self._description


def _read_index(folder: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the index of the folder, or None if it has no index; raise an error if the index belongs to other rows."""
    path = folder / INDEX_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name, value in wanted.items() if found[name] != value]
        if not all(isinstance(size, int) and size > 0 for size in found["sizes"]):
            raise ValueError("its piece sizes are not positive integers")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged or was not written by uulearn ({error}); pass another folder.") from error
    if differing:
        raise ValueError(
            f"{folder} contains the rows of another set (different: {', '.join(differing)}); pass another folder, or "
            "delete this one."
        )
    return dict(found)


def _write(stream: RowStream, folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Write the rows and the index, and return the index; only files of interrupted processes are overwritten."""
    leftovers = tuple(f".{name}." for name in (INDEX_FILE, ROWS_FILE))
    others = [
        p.name for p in folder.iterdir() if p.name not in (ROWS_FILE, LOCK_FILE) and not p.name.startswith(leftovers)
    ]
    if others:
        raise ValueError(f"{folder} is not empty (it contains {min(others)!r}); pass an empty folder.")
    for name in (INDEX_FILE, ROWS_FILE):
        remove_temporary_files(folder, name)
    seed, total = wanted["seed"], stream.n_rows * row_bytes(stream)
    n_pieces = min(MAX_PIECES, max(1, math.ceil(total / max(1, stream.buffer_bytes // PIECES_PER_BUFFER))))
    sizes = np.zeros(n_pieces, np.int64)
    for drawn in _draw_pieces(stream, n_pieces, seed):
        sizes += np.bincount(drawn, minlength=n_pieces)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) * row_bytes(stream)
    free = shutil.disk_usage(folder).free
    if free < total:
        raise ValueError(
            f"the rows need {total / 1e9:.1f} GB, but {folder} has {free / 1e9:.1f} GB free; pass another folder."
        )

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for rows, pieces in _collect_rows(stream, n_pieces, seed):
                counts = np.bincount(pieces, minlength=n_pieces)
                values = rows.reshape(len(rows), -1).numpy()[np.argsort(pieces, kind="stable")]
                ends = np.cumsum(counts)
                for piece in np.flatnonzero(counts):
                    file.seek(int(starts[piece]))
                    file.write(values[ends[piece] - counts[piece] : ends[piece]].tobytes())
                starts[:] += counts * row_bytes(stream)

    write_atomically(folder / ROWS_FILE, write)
    index = wanted | {"sizes": [int(size) for size in sizes if size]}
    text = json.dumps(index)
    write_atomically(folder / INDEX_FILE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return index


def _draw_pieces(stream: RowStream, n_pieces: int, seed: int) -> Iterator[Numbers]:
    """Yield the random new piece of every row, one piece of the stream at a time; the values are reproducible."""
    rng = np.random.default_rng([seed, 5])
    return (rng.integers(n_pieces, size=size) for size in stream.piece_sizes)


def _collect_rows(stream: RowStream, n_pieces: int, seed: int) -> Iterator[tuple[Tensor, Numbers]]:
    """Yield the combined rows of several pieces of the stream, with the new piece of each row."""
    rows, pieces, n_bytes = [], [], 0
    for number, drawn in enumerate(_draw_pieces(stream, n_pieces, seed)):
        rows.append(stream.read_checked(number))
        pieces.append(drawn)
        n_bytes += rows[-1].nbytes
        if n_bytes >= WRITE_BYTES:
            yield torch.cat(rows), np.concatenate(pieces)
            rows, pieces, n_bytes = [], [], 0
    if rows:
        yield torch.cat(rows), np.concatenate(pieces)
