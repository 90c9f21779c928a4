"""The rows of a stream written once in random order, so that every piece of them is a random draw of the set."""

from __future__ import annotations

import contextlib
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
from uulearn.storage import one_at_a_time, remove_leftovers, write_atomically

FORMAT = 1
INDEX, ROWS, LOCK = "index.json", "rows.bin", ".lock"
PIECES_A_WINDOW = 16
MOST_PIECES = 4096
WAITING_BYTES = 64 * 2**20
"""Of rows that are collected before they are written, each to its piece."""


def shuffled(stream: RowStream, folder: str | Path, *, seed: int = 0) -> RowStream:
    """The same rows in random order, in a folder into which they are written once.

    Rows that are sorted, by day or by site, reach a stream's window in pieces that resemble each other, so that its
    batches are no random draws of the set. Here every row goes to a piece that is drawn for it, and the pieces to one
    file of float32 numbers, which needs as much disk space as that takes. Reading them is faster than the original,
    since nothing is decoded or transformed.

    Parameters
    ----------
    stream : RowStream
        Such as a `uulearn.streaming.ParquetSet`. It is read once, in bounded memory.
    folder : path
        A new folder, or one in which this function has put the same rows before: then nothing is read or written. Of
        several processes that are given the same folder, such as those of torchrun, one writes and the others wait.
    seed : int
        Of the order.

    Examples
    --------
    >>> class Counted(RowStream):
    ...     row_shape, piece_sizes = (1,), (500, 500)
    ...     def read(self, piece): return torch.arange(500.0)[:, None] + 500 * piece
    ...     def describe(self): return "counted: 1000"
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     mixed = shuffled(Counted(), place)
    ...     (mixed.n_rows, float((mixed.read(0) < 500).float().mean().round(decimals=1)))
    (1000, 0.5)
    """
    if not isinstance(stream, RowStream):
        raise TypeError(f"stream must be a RowStream such as ParquetSet(path), got {type(stream).__name__}.")
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ValueError(f"folder must be a folder, and {place} is a file; pass another.")
    if seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed}.")
    wanted: dict[str, Any] = {
        "format": FORMAT,
        "rows": stream.describe(),
        "row_shape": list(stream.row_shape),
        "seed": seed,
    }
    found = _read_index(place, wanted)
    if found is None:
        with _writable(place, stream), one_at_a_time(place / LOCK, f"{place} is being written by another process"):
            found = _read_index(place, wanted)  # another process may have been faster
            if found is None:
                _check_ours(place)
                for name in (INDEX, ROWS):
                    remove_leftovers(place, name)
                found = wanted | {"sizes": _write_rows(stream, place, seed)}
                text = json.dumps(found)
                write_atomically(place / INDEX, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return _Shuffled(stream, place / ROWS, found["sizes"], seed)


class _Shuffled(RowStream):
    """Pieces one after another in a file."""

    in_random_order = True

    def __init__(self, source: RowStream, path: Path, sizes: Sequence[int], seed: int) -> None:
        self.row_shape, self.buffer_bytes = tuple(source.row_shape), source.buffer_bytes
        self.path, self.seed, self._sizes = path, seed, sizes
        self.columns, self.transform = (getattr(source, name, None) for name in ("columns", "transform"))
        self._described = f"{source.describe()}; in the order of seed {seed}"
        self._starts = np.concatenate([[0], np.cumsum(sizes)]) * row_bytes(source)
        size = path.stat().st_size if path.exists() else 0
        if size != self._starts[-1]:
            raise ValueError(
                f"{path} has {size:,} bytes and should have {self._starts[-1]:,}; delete {INDEX} beside it to write "
                "the rows again."
            )

    @property
    def piece_sizes(self) -> Sequence[int]:
        """Rows of each piece."""
        return self._sizes

    def read(self, piece: int) -> Tensor:
        """The rows of a piece."""
        values = math.prod(self.row_shape) * self._sizes[piece]
        rows = np.fromfile(self.path, np.float32, count=values, offset=int(self._starts[piece]))
        # Within a piece they lie in the order of the source.
        order = np.random.default_rng([self.seed, piece]).permutation(self._sizes[piece])
        return torch.from_numpy(rows.reshape(-1, *self.row_shape)[order])

    def describe(self) -> str:
        """The source, and the order."""
        return self._described


def _read_index(place: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """What the folder holds, if that is what is wanted; None where it holds nothing that is complete."""
    path = place / INDEX
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name, value in wanted.items() if found[name] != value]
        if not all(isinstance(size, int) and size > 0 for size in found["sizes"]):
            raise ValueError("its sizes are not numbers of rows")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged or was not written by uulearn ({error}); pass another folder.") from error
    if differing:
        raise ValueError(
            f"{place} holds the rows of another set (different: {', '.join(differing)}); pass another folder, or "
            "delete this one."
        )
    return dict(found)


def _check_ours(place: Path) -> None:
    """Refuse a folder with anything but what killed processes left behind in it."""
    left = tuple(f".{name}." for name in (INDEX, ROWS))
    strange = [one.name for one in place.iterdir() if one.name not in (ROWS, LOCK) and not one.name.startswith(left)]
    if strange:
        raise ValueError(
            f"{place} holds {min(strange)!r}, and rows are written to a folder of their own; pass another."
        )


def _write_rows(stream: RowStream, place: Path, seed: int) -> list[int]:
    """Write every row to its piece; the numbers of rows of the pieces."""
    total = stream.n_rows * row_bytes(stream)
    n_pieces = min(MOST_PIECES, max(1, math.ceil(total / max(1, stream.buffer_bytes // PIECES_A_WINDOW))))
    sizes = np.zeros(n_pieces, np.int64)
    for drawn in _draws(stream, n_pieces, seed):
        sizes += np.bincount(drawn, minlength=n_pieces)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) * row_bytes(stream)
    free = shutil.disk_usage(place).free
    if free < total:
        raise ValueError(
            f"the rows take {total / 1e9:.1f} GB and {place} has {free / 1e9:.1f} GB free; pass a folder with more."
        )

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            for rows, pieces in _gathered(stream, n_pieces, seed):
                counts = np.bincount(pieces, minlength=n_pieces)
                values = rows.reshape(len(rows), -1).numpy()[np.argsort(pieces, kind="stable")]
                ends = np.cumsum(counts)
                for piece in np.flatnonzero(counts):
                    file.seek(int(starts[piece]))
                    file.write(values[ends[piece] - counts[piece] : ends[piece]].tobytes())
                starts[:] += counts * row_bytes(stream)

    write_atomically(place / ROWS, write)
    return [int(size) for size in sizes if size]


@contextlib.contextmanager
def _writable(place: Path, stream: RowStream) -> Iterator[None]:
    """A folder to write to; what the system refuses is said with the remedy."""
    try:
        yield
    except OSError as error:
        size = stream.n_rows * row_bytes(stream) / 1e9
        raise ValueError(
            f"{place} cannot be written ({error.strerror or error}); pass a folder that can, with {size:.1f} GB free."
        ) from error


def _draws(stream: RowStream, n_pieces: int, seed: int) -> Iterator[Numbers]:
    """The new piece of every row, for one piece of the stream after another; the same each time."""
    rng = np.random.default_rng([seed, 5])
    return (rng.integers(n_pieces, size=size) for size in stream.piece_sizes)


def _gathered(stream: RowStream, n_pieces: int, seed: int) -> Iterator[tuple[Tensor, Numbers]]:
    """Rows of several pieces of the stream together, and the new piece of each."""
    rows, pieces, waiting = [], [], 0
    for number, drawn in enumerate(_draws(stream, n_pieces, seed)):
        rows.append(stream.checked(number))
        pieces.append(drawn)
        waiting += rows[-1].nbytes
        if waiting >= WAITING_BYTES:
            yield torch.cat(rows), np.concatenate(pieces)
            rows, pieces, waiting = [], [], 0
    if rows:
        yield torch.cat(rows), np.concatenate(pieces)
