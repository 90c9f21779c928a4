"""Share the rows of two files between training processes: the first process reads them, the others memory-map them."""

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
    """Call ``read`` in the first worker and send its result to all workers; each worker memory-maps the matrices.

    All workers must have access to the folder, which is removed at the end. The files are not unlinked while they are
    in use, because an unlinked file is lost on a network file system.
    """

    def read_and_write() -> tuple[Prepared, list[Path]]:
        shutil.rmtree(folder, ignore_errors=True)  # left by an earlier first worker that was killed
        prepared, matrices = read()
        paths = [folder / f"{which}.npy" for which in (0, 1)]
        for path, rows in zip(paths, matrices, strict=True):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    reserve(file.fileno(), rows.nbytes)
                    np.save(file, rows)
            except OSError as error:
                raise no_room(rows.nbytes, folder, error, "pass an --out folder with more space") from error
        # The other workers need the metadata of the sources, not their open files.
        return replace(prepared, sources=(prepared.sources[0].closed(), prepared.sources[1].closed())), paths

    try:
        prepared, paths = workers.run_on_first(read_and_write)
        missing = next((path for path in paths if not path.exists()), None)
        if missing is not None:
            raise TableError(f"{missing} is not visible on this node; --out must be on storage that all nodes share.")
        first, second = (np.load(path, mmap_mode="c") for path in paths)  # copy-on-write: changes stay private
        yield prepared, (first, second)
        dist.barrier()  # other workers may still be reading
    finally:
        if workers.first:
            shutil.rmtree(folder, ignore_errors=True)
