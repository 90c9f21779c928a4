"""Score a folder of Parquet files with Ray Data, one task per file."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from uulearn.engines.ray_cluster import convert_errors, ray_cluster
from uulearn.exceptions import TableError
from uulearn.io.formats import (
    PARQUET,
    STANDARD,
    check_not_read_again,
    parquet_files,
    resolve_format,
)
from uulearn.io.reading import is_table_folder

ScoreFile = Callable[[str, str], int]
"""Scores the rows of one file, writes the output file atomically, and returns the number of rows."""
STOP_FILE = ".stop"
"""File in the unfinished folder that tells the remaining tasks to skip their files."""


def score_folder(
    score: ScoreFile, rows: str, out: str, *, address: str | None = None, workers: int | None = None
) -> int:
    """Score every Parquet file of a folder, or one Parquet file, into a new folder; returns the number of rows.

    The new folder has one file for each input file, with the same name and the same order of rows. It appears when all
    files are complete.

    Parameters
    ----------
    score : callable
        Called as ``score(file, output)`` in processes of the cluster, where it must be importable. It may be called
        more than once for a file.
    rows, out : str
        Folders (``rows`` can be a file) that all machines of the cluster see under the same path.
    address : str, optional
        As for `ray_cluster`.
    workers : int, optional
        Maximum number of files that are scored at once.
    """
    files = _files(rows)
    counts = _count_rows(list(files.values()))
    place = _check_out(out, rows)
    unfinished = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    non_empty = {name: path for name, path in files.items() if counts[path]}
    try:
        for name in files:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        with ray_cluster(address, workers) as ray:
            calls = [{"rows": str(path), "out": str(unfinished / name)} for name, path in non_empty.items()]
            total = _score_all(ray, score, calls, unfinished / STOP_FILE, workers)
        _write_empty([unfinished / name for name in files if name not in non_empty], unfinished / next(iter(non_empty)))
        _keep_only(files, unfinished)
        unfinished.rename(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return total


def _score_all(ray: Any, score: ScoreFile, calls: list[dict[str, str]], stop_file: Path, workers: int | None) -> int:
    """Score the files with a dataset that has one row and one block per file; returns the number of rows.

    If a file cannot be scored, ``stop_file`` makes the remaining tasks end at once. Leaving the dataset early would
    cancel its tasks, which may abort the process; see `finished_tasks`.
    """
    data = importlib.import_module("ray.data")
    total, error = 0, ""
    with _quiet(data), convert_errors(ray):
        # A dataset of the rows themselves would write files whose names and order depend on the cluster.
        files = data.from_items(calls, override_num_blocks=len(calls))
        task = functools.partial(_score_one, score, stop_file)
        for done in files.map(task, num_cpus=1, concurrency=workers).iter_rows():
            total += done["n_rows"]
            if done["error"] and not error:
                error = done["error"]
                stop_file.touch()
    if error:
        raise TableError(error)
    return total


def _score_one(score: ScoreFile, stop_file: Path, file: dict[str, str]) -> dict[str, Any]:
    """Score one file; errors are returned, because Ray Data hides exceptions."""
    if stop_file.exists():
        return {"n_rows": 0, "error": ""}
    try:
        return {"n_rows": score(file["rows"], file["out"]), "error": ""}
    except (ValueError, OSError, ImportError) as error:
        return {"n_rows": 0, "error": str(error)}


@contextlib.contextmanager
def _quiet(data: Any) -> Iterator[None]:
    """Turn off the progress bars and logs of Ray Data."""
    context, log = data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, log.level
    context.enable_progress_bars = False
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        log.setLevel(before[1])


def _files(rows: str) -> dict[Path, Path]:
    """The files to read, by their path within the folder."""
    if is_table_folder(rows):
        top = Path(os.path.realpath(rows))
        return {path.relative_to(top): path for path in parquet_files(top)}
    if rows == STANDARD or not Path(rows).is_file() or resolve_format(rows, None) != ("parquet", None):
        raise TableError(
            f"{rows} is neither a Parquet file nor a folder of Parquet files, which --engine ray needs; pass one."
        )
    path = Path(os.path.realpath(rows))
    return {Path(path.name): path}


def _count_rows(files: list[Path]) -> dict[Path, int]:
    """The number of rows of each file; refuses files with different columns, and files without any rows."""
    import pyarrow.parquet as pq

    from uulearn.io.arrow import check_same_columns, refusing_damage

    counts: dict[Path, int] = {}
    columns: set[str] = set()
    for file in files:
        with refusing_damage(str(file), "Parquet"):
            metadata = pq.read_metadata(file)
        found = set(metadata.schema.to_arrow_schema().names)
        if counts:
            check_same_columns(file, found, files[0], columns)
        counts[file], columns = metadata.num_rows, found
    if not any(counts.values()):
        raise TableError(f"{files[0].parent if len(files) > 1 else files[0]} holds no rows; pass at least one.")
    return counts


def _check_out(out: str, rows: str) -> Path:
    if out == STANDARD:
        raise ValueError("--engine ray writes a folder of Parquet files; pass a new folder as --out.")
    place = Path(os.path.realpath(out))
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ValueError(f"{out} already exists; pass a new folder as --out, or remove it.")
    check_not_read_again(place / f"part{PARQUET}", rows, out)
    return place


def _write_empty(missing: list[Path], like: Path) -> None:
    """Write files without rows, with the columns of the others."""
    import pyarrow.parquet as pq

    for path in missing:
        pq.write_table(pq.read_schema(like).empty_table(), path)


def _keep_only(files: dict[Path, Path], unfinished: Path) -> None:
    """Remove files of processes that died, and check that every output file exists."""
    for path in [path for path in unfinished.rglob("*") if path.is_file()]:
        if path.relative_to(unfinished) not in files:
            path.unlink()
    if lost := [name for name in files if not (unfinished / name).is_file()]:
        raise RuntimeError(
            f"{lost[0]} was scored but is not in {unfinished}; the folder must be on storage that all machines share, "
            "and no other command may use it."
        )
