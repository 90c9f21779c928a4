"""``uulearn predict``: write the score, probability and class of each row of a file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from uulearn.cli import fast_imports
from uulearn.cli.options import (
    Address,
    Engine,
    NoCheck,
    RayWorkers,
    Sheet,
    argument,
    flag,
    option,
    print_check,
    print_unreadable,
    uses_ray,
)
from uulearn.io.formats import STANDARD, printable


def predict(
    model: Annotated[Path, argument("MODEL", "Model directory written by fit or UUClassifier.save.")],
    rows: Annotated[str, argument("ROWS", "File of rows, folder of Parquet files, or - for standard input.")],
    out: Annotated[str, option("FILE", "File to write, or - for standard output.")] = STANDARD,
    format_: Annotated[
        str | None, option("NAME", "Format of ROWS if the file name does not show it: csv, jsonl, …", "--format")
    ] = None,
    sheet: Sheet = None,
    target_prior: Annotated[float | None, option("π", "Class prior of the rows. Default: same as in the fit.")] = None,
    keep_columns: Annotated[bool, flag("Copy all columns of ROWS to the output.", "--keep-columns")] = False,
    no_check: NoCheck = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Score the rows of a file with a saved model."""
    on_ray = uses_ray(engine, address, workers)
    with fast_imports():
        from uulearn.app.model import TableModel
        from uulearn.app.scoring import load_for_scoring, make_counter, score_file
        from uulearn.tabular.unfamiliar import UnfamiliarCounts, describe_unfamiliar
        from uulearn.tabular.unreadable import UnreadableCounter

    if on_ray:
        if format_ is not None:
            raise ValueError(f"--engine ray reads only Parquet files, got --format {format_}; remove one of them.")
        from uulearn.cli import progress
        from uulearn.engines.ray_scoring import score_on_ray

        with progress.ScoringProgress(progress.progress_output(delay=progress.FIRST_LINE)) as tracker:
            count, unfamiliar, counter, unreadable = score_on_ray(
                model,
                rows,
                out,
                target_prior=target_prior,
                keep_columns=keep_columns,
                address=address,
                workers=workers,
                check=not no_check,
                progress=tracker,
            )
    else:
        _check_paths(model, rows, out)
        loaded = load_for_scoring(model, keep_columns)
        counter, unreadable = None if no_check else make_counter(loaded), UnreadableCounter()
        count = score_file(
            loaded,
            rows,
            out,
            format=format_,
            sheet=sheet,
            target_prior=target_prior,
            keep_columns=keep_columns,
            counter=counter,
            unreadable=unreadable,
        )
        unfamiliar = loaded.unfamiliar if isinstance(loaded, TableModel) else UnfamiliarCounts()
    print_unreadable(unreadable, rows)
    for note in describe_unfamiliar(unfamiliar):
        print(f"note: {printable(note)}", file=sys.stderr)
    print_check(counter, rows)
    if out != STANDARD:  # on standard error, because standard output may contain the scores
        print(f"{count:,} rows scored, written to {printable(str(Path(out)))}", file=sys.stderr)


def _check_paths(model: Path, rows: str, out: str) -> None:
    from uulearn.estimator.model_directory import MANIFEST
    from uulearn.io.formats import check_not_read_again

    if (Path(rows) / MANIFEST).is_file() and not (model / MANIFEST).exists():
        command = printable(shlex.join(["uulearn", "predict", rows, str(model)]))
        raise ValueError(f"{model} contains no {MANIFEST}, but {rows} does; the model comes first: {command}.")
    if out != STANDARD and Path(out).is_dir():
        raise ValueError(f"{out} is a folder; pass a file name as --out.")
    if STANDARD not in (rows, out) and Path(rows).exists() and Path(out).exists() and Path(rows).samefile(out):
        raise ValueError(f"{out} is the input file, which would be overwritten; pass another file as --out.")
    if Path(rows).is_dir():
        check_not_read_again(Path(out), rows, out)
