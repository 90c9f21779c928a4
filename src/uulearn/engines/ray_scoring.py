"""Score Parquet files on a Ray cluster, one task per file."""

import functools
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from uulearn.app.model import TableModel
from uulearn.app.scoring import load_for_scoring, make_counter, score_file
from uulearn.engines.ray_cluster import finished_tasks, ray_cluster
from uulearn.estimator import UUClassifier
from uulearn.estimator.model_directory import MANIFEST
from uulearn.estimator.new_rows import RowCounter
from uulearn.exceptions import TableError
from uulearn.io.arrow import check_same_columns, refusing_damage
from uulearn.io.formats import PARQUET, STANDARD, check_not_read_again, parquet_files, resolve_format
from uulearn.io.reading import is_table_folder
from uulearn.metrics.new_rows import RowCounts
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.unfamiliar import UnfamiliarCounts
from uulearn.tabular.unreadable import UnreadableCounter

TASK = "uulearn-score"


@dataclass(frozen=True)
class FilesScored:
    """Event that reports progress: the number of scored files and rows, and their totals."""

    files: int
    rows: int
    total_files: int
    total_rows: int


def score_on_ray(
    model: Path,
    rows: str,
    out: str,
    *,
    target_prior: float | None,
    keep_columns: bool,
    address: str | None,
    workers: int | None,
    check: bool = True,
    progress: Callable[[FilesScored], None] = lambda event: None,
) -> tuple[int, UnfamiliarCounts, RowCounter | None, UnreadableCounter]:
    """Score one Parquet file or a folder of Parquet files on a Ray cluster, and write a new folder.

    The new folder has one file per input file, with the same name and row order. It appears when all files are
    complete. The model and both folders must be accessible under the same path on all machines of the cluster. Returns
    the number of rows, the counts of values unlike the training rows, with ``check`` the counter that compares all rows
    with the training rows, and the cells that cannot be read, which are checked for all files together. ``progress`` is
    called when the cluster is ready and after every file.
    """
    loaded = load_for_scoring(model, keep_columns)
    if isinstance(loaded, TableModel) and isinstance(loaded.schema, ImageSchema):
        raise ValueError(f"{model} is a model for images, but --engine ray supports only tables; remove --engine.")
    if target_prior is not None:
        loaded.with_target_prior(target_prior)
    model = model.resolve()
    options: dict[str, Any] = {"target_prior": target_prior, "keep_columns": keep_columns, "check": check}
    score = functools.partial(_score_on_worker, model, _digest(model), **options)
    files = _find_files(rows)
    counts = _count_rows(list(files.values()))
    place = _check_out(out, rows)
    unfinished = place.with_name(f".{place.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    total, n_rows, unfamiliar = 0, sum(counts.values()), UnfamiliarCounts()
    unreadable, of_files = UnreadableCounter(), dict[int, UnreadableCounter]()
    counter = make_counter(loaded) if check else None
    non_empty = [name for name, path in files.items() if counts[path]]
    try:
        for name in files:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        with ray_cluster(address, workers) as ray:
            calls = [(str(files[name]), str(unfinished / name)) for name in non_empty]
            finished = finished_tasks(ray, score, calls, at_once=workers, what=TASK)
            progress(FilesScored(0, 0, len(calls), n_rows))
            for done, (number, (scored, found, own, bad)) in enumerate(finished, 1):
                total += scored
                unfamiliar.update(found)
                of_files[number] = bad
                if counter is not None and own is not None:
                    counter.add_counts(own)
                progress(FilesScored(done, total, len(calls), n_rows))
        for _, bad in sorted(of_files.items()):  # in the order of the files, not of the tasks
            unreadable.add(bad.columns)
        unreadable.check()
        for name in files.keys() - set(non_empty):
            pq.write_table(pq.read_schema(unfinished / non_empty[0]).empty_table(), unfinished / name)
        _keep_only(files, unfinished)
        unfinished.rename(place)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return total, unfamiliar, counter, unreadable


def _score_on_worker(
    model: Path, digest: str, rows: str, out: str, *, check: bool, **options: Any
) -> tuple[int, UnfamiliarCounts, RowCounts | None, UnreadableCounter]:
    loaded = _load_once(model, digest, options["keep_columns"])
    unfamiliar = loaded.unfamiliar if isinstance(loaded, TableModel) else UnfamiliarCounts()
    unfamiliar.clear()  # counts of the previous file
    counter = make_counter(loaded) if check else None
    unreadable = UnreadableCounter()
    count = score_file(loaded, rows, out, **options, counter=counter, unreadable=unreadable, is_part=True)
    return count, unfamiliar, None if counter is None else counter.counts, unreadable


@functools.lru_cache(maxsize=1)
def _load_once(model: Path, digest: str, keep_columns: bool) -> TableModel | UUClassifier:
    """Load the model and cache it for the next file; raise a RuntimeError if its manifest has changed."""
    loaded = load_for_scoring(model, keep_columns)
    if _digest(model) != digest:
        raise RuntimeError(f"{model} changed while rows were being scored; score them again.")
    return loaded


def _digest(model: Path) -> str:
    return hashlib.sha256((model / MANIFEST).read_bytes()).hexdigest()


def _find_files(rows: str) -> dict[Path, Path]:
    """Return the files to read, keyed by their path within the folder."""
    place = Path(os.path.realpath(rows))
    if is_table_folder(rows):
        return {path.relative_to(place): path for path in parquet_files(place)}
    if rows == STANDARD or not place.is_file() or resolve_format(rows, None) != ("parquet", None):
        raise TableError(f"{rows} is not Parquet; --engine ray needs a Parquet file or a folder of Parquet files.")
    return {Path(place.name): place}


def _count_rows(files: list[Path]) -> dict[Path, int]:
    """Return the number of rows in each file; raise an error if the columns differ or all files are empty."""
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
        raise TableError(f"{files[0].parent if len(files) > 1 else files[0]} has no rows; pass at least one row.")
    return counts


def _check_out(out: str, rows: str) -> Path:
    if out == STANDARD:
        raise ValueError("--engine ray writes a folder of Parquet files; pass a new folder as --out.")
    place = Path(os.path.realpath(out))
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ValueError(f"{out} already exists; pass a new folder as --out, or remove it.")
    check_not_read_again(place / f"part{PARQUET}", rows, out)
    return place


def _keep_only(files: dict[Path, Path], unfinished: Path) -> None:
    """Remove temporary files of dead processes, and check that every output file exists."""
    for path in [path for path in unfinished.rglob("*") if path.is_file()]:
        if path.relative_to(unfinished) not in files:
            path.unlink()
    if lost := [name for name in files if not (unfinished / name).is_file()]:
        raise RuntimeError(
            f"{lost[0]} was scored but is not in {unfinished}; the folder must be on storage that all machines share, "
            "and no other command may use it."
        )
