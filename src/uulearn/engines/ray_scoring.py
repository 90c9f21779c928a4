"""A folder of Parquet files scored by Ray Data, one task a file."""

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

from uulearn.engines.ray_cluster import plain_errors, ray_cluster
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
"""Scores the rows of one file into another, which appears when it is complete; returns their number."""
GIVEN_UP = ".given-up"
"""A file in the unfinished folder that says to the tasks that the rest need not be scored."""


def score_folder(
    score: ScoreFile, rows: str, out: str, *, address: str | None = None, workers: int | None = None
) -> int:
    """Score every Parquet file of a folder, or one such file, into a new folder; returns the number of rows.

    The new folder has a file of the same name for each that was read, with its rows in their order. It appears when
    all are complete.

    Parameters
    ----------
    score : callable
        Called as ``score(file, output)`` in processes of the cluster, perhaps more than once for a file; it must be
        importable there.
    rows, out : str
        Folders, or for ``rows`` a file, that all machines of the cluster see under the same path.
    address : str, optional
        As for `ray_cluster`.
    workers : int, optional
        Most files that are scored at once.
    """
    files = _files(rows)
    counts = _count_rows(list(files.values()))
    place = _check_out(out, rows)
    unfinished = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    filled = {name: path for name, path in files.items() if counts[path]}
    try:
        for name in files:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        with ray_cluster(address, workers) as ray:
            calls = [{"rows": str(path), "out": str(unfinished / name)} for name, path in filled.items()]
            total = _score_all(ray, score, calls, unfinished / GIVEN_UP, workers)
        _write_empty([unfinished / name for name in files if name not in filled], unfinished / next(iter(filled)))
        _keep_only(files, unfinished)
        unfinished.rename(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return total


def _score_all(ray: Any, score: ScoreFile, calls: list[dict[str, str]], given_up: Path, workers: int | None) -> int:
    """Score the files of a dataset that has one row, in a block of its own, for each; returns the number of rows.

    Where one of them cannot be scored, ``given_up`` is made, which the tasks look for before they begin. To leave a
    dataset before its end would cancel its tasks, which may abort the process; see `finished_tasks`.
    """
    data = importlib.import_module("ray.data")
    total, mistake = 0, ""
    with _silent(data), plain_errors(ray):
        # Blocks of the files' own rows would give names and order to the output that depend on the cluster.
        files = data.from_items(calls, override_num_blocks=len(calls))
        task = functools.partial(_score_one, score, given_up)
        for done in files.map(task, num_cpus=1, concurrency=workers).iter_rows():
            total += done["n_rows"]
            if done["mistake"] and not mistake:
                mistake = done["mistake"]
                given_up.touch()
    if mistake:
        raise TableError(mistake)
    return total


def _score_one(score: ScoreFile, given_up: Path, file: dict[str, str]) -> dict[str, Any]:
    """Score one file; what is wrong with it is told, since Ray Data hides what is raised."""
    if given_up.exists():
        return {"n_rows": 0, "mistake": ""}
    try:
        return {"n_rows": score(file["rows"], file["out"]), "mistake": ""}
    except (ValueError, OSError, ImportError) as error:
        return {"n_rows": 0, "mistake": str(error)}


@contextlib.contextmanager
def _silent(data: Any) -> Iterator[None]:
    """Ray Data draws bars and tells of each plan, on whatever the process writes."""
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
    """The files to read, each by its name in the folder."""
    if is_table_folder(rows):
        top = Path(os.path.realpath(rows))
        return {path.relative_to(top): path for path in parquet_files(top)}
    if rows == STANDARD or not Path(rows).is_file() or resolve_format(rows, None) != ("parquet", None):
        raise TableError(f"{rows} is neither a Parquet file nor a folder of such, which --engine ray reads; pass one.")
    path = Path(os.path.realpath(rows))
    return {Path(path.name): path}


def _count_rows(files: list[Path]) -> dict[Path, int]:
    """The number of rows of each file, all of which must have the same columns, and one at least some rows."""
    import pyarrow.parquet as pq

    from uulearn.io.arrow import check_same_columns, refusing_damage

    counts: dict[Path, int] = {}
    columns: set[str] = set()
    for file in files:
        with refusing_damage(str(file), "Parquet"):
            about = pq.read_metadata(file)
        found = set(about.schema.to_arrow_schema().names)
        if counts:
            check_same_columns(file, found, files[0], columns)
        counts[file], columns = about.num_rows, found
    if not any(counts.values()):
        raise TableError(f"{files[0].parent if len(files) > 1 else files[0]} holds no rows; pass at least one.")
    return counts


def _check_out(out: str, rows: str) -> Path:
    if out == STANDARD:
        raise ValueError("--engine ray writes a folder of Parquet files; name a new one with --out.")
    place = Path(os.path.realpath(out))
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ValueError(f"{out} exists already; pass a new folder as --out, or remove it.")
    check_not_read_again(place / f"part{PARQUET}", rows, out)
    return place


def _write_empty(missing: list[Path], like: Path) -> None:
    """Files without rows have no task of their own; they get the columns of the others."""
    import pyarrow.parquet as pq

    for path in missing:
        pq.write_table(pq.read_schema(like).empty_table(), path)


def _keep_only(files: dict[Path, Path], unfinished: Path) -> None:
    """Remove what processes left that died, and make sure that every file is there."""
    for path in [path for path in unfinished.rglob("*") if path.is_file()]:
        if path.relative_to(unfinished) not in files:
            path.unlink()
    if lost := [name for name in files if not (unfinished / name).is_file()]:
        raise RuntimeError(
            f"{lost[0]} was scored but is not in {unfinished}; is that folder one that all machines share, and used by "
            "no other command?"
        )
