"""The rows of two files for several processes that train together: read by the first, and seen by all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch.distributed as dist

from uulearn.exceptions import TableError
from uulearn.tabular.matrices import Matrix, Prepared, no_room, reserve
from uulearn.training.workers import Workers


@contextlib.contextmanager
def read_once(
    read: Callable[[], tuple[Prepared, tuple[Matrix, Matrix]]], folder: Path, workers: Workers
) -> Iterator[tuple[Prepared, tuple[Matrix, Matrix]]]:
    """What ``read`` gives in the first worker, for all of them: the matrices as files in a folder, opened by each.

    The folder, which all must see, is gone at the end. Where the first worker is killed it stays, until the same folder
    is used again. The files keep their names while they are in use: on another machine a nameless one would be lost.
    """

    def written() -> tuple[Prepared, list[Path]]:
        shutil.rmtree(folder, ignore_errors=True)
        prepared, matrices = read()
        paths = [folder / f"{which}.npy" for which in (0, 1)]
        for path, rows in zip(paths, matrices, strict=True):
            _save(path, rows)
        # The files themselves are of no use to the others, who see what is known about them.
        return replace(prepared, sources=(prepared.sources[0].closed(), prepared.sources[1].closed())), paths

    try:
        prepared, paths = workers.run_on_first(written)
        missing = next((path for path in paths if not path.exists()), None)
        if missing is not None:
            raise TableError(
                f"{missing}, which the first worker has written, is not to be seen from here; pass as --out a place "
                "that all workers share."
            )
        first, second = (np.load(path, mmap_mode="c") for path in paths)  # a change would be private
        yield prepared, (first, second)
        dist.barrier()  # the others may still be reading
    finally:
        if workers.first:
            shutil.rmtree(folder, ignore_errors=True)


def _save(path: Path, rows: Matrix) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            reserve(file.fileno(), rows.nbytes)
            np.save(file, rows)
    except OSError as error:
        raise no_room(rows.nbytes, path.parent, error, "write the model to a roomier one (--out)") from error
