"""``uulearn predict``: write the score, probability and class of each row of a file."""

import sys
from pathlib import Path
from typing import Annotated

from uulearn.cli.options import Address, Engine, RayWorkers, Sheet, argument, flag, option
from uulearn.io.formats import STANDARD, printable


def predict(
    model: Annotated[Path, argument("MODEL", "Directory written by fit, or by UUClassifier.save.")],
    rows: Annotated[str, argument("ROWS", "File of rows, folder of Parquet files, or - for standard input.")],
    out: Annotated[str, option("FILE", "File to write, or - for standard output.")] = STANDARD,
    format_: Annotated[
        str | None, option("NAME", "Format of ROWS if the file name does not show it: csv, jsonl, …", "--format")
    ] = None,
    sheet: Sheet = None,
    target_prior: Annotated[float | None, option("π", "Class prior of these rows. Default: as in the fit.")] = None,
    keep_columns: Annotated[bool, flag("Copy the columns of ROWS to the output.", "--keep-columns")] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Score the rows of a file with a saved model."""
    from uulearn.app.scoring import load_for_scoring, score_file
    from uulearn.cli.distributed import uses_ray

    if uses_ray(engine, address, workers):
        if format_ is not None:
            raise ValueError(f"--engine ray reads only Parquet files, got --format {format_}; remove one option.")
        from uulearn.engines.ray_scoring import score_on_ray

        count = score_on_ray(
            model, rows, out, target_prior=target_prior, keep_columns=keep_columns, address=address, workers=workers
        )
    else:
        _check_paths(rows, out)
        loaded = load_for_scoring(model, keep_columns)
        count = score_file(
            loaded, rows, out, format=format_, sheet=sheet, target_prior=target_prior, keep_columns=keep_columns
        )
    if out != STANDARD:  # on standard error, because standard output may contain the scores
        print(f"{count:,} rows scored, written to {printable(str(Path(out)))}", file=sys.stderr)


def _check_paths(rows: str, out: str) -> None:
    from uulearn.io.formats import check_not_read_again

    if out != STANDARD and Path(out).is_dir():
        raise ValueError(f"{out} is a folder; pass a file name as --out.")
    if STANDARD not in (rows, out) and Path(rows).exists() and Path(out).exists() and Path(rows).samefile(out):
        raise ValueError(f"{out} is the input file, which would be overwritten; pass another file as --out.")
    if Path(rows).is_dir():
        check_not_read_again(Path(out), rows, out)
