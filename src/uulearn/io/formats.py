"""What a file of rows is by its name, and how its columns are called; plain Python, no optional library."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from uulearn.exceptions import TableError

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
SEPARATORS = {"csv": ",", "tsv": "\t"}
PARQUET = ".parquet"
DELTA_LOG = "_delta_log"
STANDARD = "-"  # as a path: standard input, or standard output

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Text fields that mean: no value."""


def format_of(path: str | Path) -> tuple[str, str | None]:
    """Format and compression that a file's name stands for; ``"-"`` is CSV.

    Returns
    -------
    format : ``"csv"``, ``"tsv"``, ``"parquet"``, ``"feather"``, ``"jsonl"``, ``"npy"`` or ``"npz"``
    compression : ``"gzip"``, ``"zstd"`` or None

    Examples
    --------
    >>> format_of("clinic_a.csv.gz")
    ('csv', 'gzip')
    >>> format_of("clinic_a.parquet")
    ('parquet', None)
    """
    if str(path) == STANDARD:
        return "csv", None
    compression = compression_of(path)
    inner = Path(Path(path).stem if compression else path)
    known = SUFFIXES.get(inner.suffix.lower())
    if known is None:
        raise TableError(
            f"{path} does not end in a suffix of a known format; rename or save it as one of "
            f"{' '.join(SUFFIXES)} (after which .gz or .zst may stand), or name its format."
        )
    return known, compression


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files in a folder and its subfolders, in the order of their names; not what is hidden or a marker.

    A Delta table is refused, since files of earlier versions stay in its folder: rows would be read that it has no
    more, or twice.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        if DELTA_LOG in folders:
            raise TableError(
                f"{place} is a Delta table, whose folder also holds files of earlier versions; write the rows of its "
                "present version to a folder of their own."
            )
        folders[:] = [name for name in folders if not _is_passed_over(name)]
        names = [name for name in files if name.endswith(PARQUET) and not _is_passed_over(name)]
        found += [path for path in (Path(place, name) for name in names) if path.is_file()]
    return sorted(found)


def check_not_read_again(out: Path, rows: str, named: str) -> None:
    """Refuse a file, meant to be written as ``named``, that would be one of the rows when their folder is read again.

    Examples
    --------
    >>> check_not_read_again(Path("rows/scored.parquet"), "rows", "rows/scored.parquet")
    Traceback (most recent call last):
    ValueError: rows/scored.parquet lies in rows, and would be read as rows the next time; write to another place.
    >>> check_not_read_again(Path("rows/scored.csv"), "rows", "rows/scored.csv")
    """
    folder, place = (Path(os.path.realpath(path)) for path in (rows, out))
    if folder not in place.parents or place.suffix != PARQUET:
        return
    if not any(map(_is_passed_over, place.relative_to(folder).parts)):
        raise ValueError(f"{named} lies in {rows}, and would be read as rows the next time; write to another place.")


def _is_passed_over(name: str) -> bool:
    """Whether a file or folder is hidden or a marker; ``_site=1`` is neither, but the rows where _site is 1."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def compression_of(path: str | Path) -> str | None:
    """The compression that the last suffix of a name stands for, if any."""
    return COMPRESSIONS.get(Path(path).suffix.lower())


def settle_format(path: str | Path, format: str | None) -> tuple[str, str | None]:
    """Format and compression of a file whose format the user may have named."""
    if format is None:
        return format_of(path)
    if format not in SUFFIXES.values():
        known = ", ".join(dict.fromkeys(SUFFIXES.values()))
        raise ValueError(f"format must be one of {known}, got {format!r}.")
    return format, compression_of(path)


def clean_names(names: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Names of columns without surrounding blanks, and a note on those that had none; twins are refused.

    Nameless columns are called by their position, as pandas calls them: it writes an index without a name.

    Examples
    --------
    >>> clean_names(["", " age", "city "], "rows.csv")
    (['Unnamed: 0', 'age', 'city'], ["rows.csv has a column without a name; it is called 'Unnamed: 0'."])
    """
    stripped = [each.strip() for each in names]
    cleaned = [each or f"Unnamed: {position}" for position, each in enumerate(stripped)]
    if twins := twins_among(cleaned):
        raise TableError(
            f"{name} has more than one column called {quote_some(twins)}; give every column a name of its own."
        )
    nameless = [new for new, old in zip(cleaned, stripped, strict=True) if not old]
    if not nameless:
        return cleaned, []
    which = "a column" if len(nameless) == 1 else f"{len(nameless):,} columns"
    verb = "it is called" if len(nameless) == 1 else "they are called"
    return cleaned, [f"{name} has {which} without a name; {verb} {quote_some(nameless)}."]


def twins_among(names: Sequence[str]) -> list[str]:
    """The names that occur more than once."""
    return [each for each, count in Counter(names).items() if count > 1]


def quote_some(names: Sequence[str], most: int = 5) -> str:
    """The first names, quoted and cut to a readable length, and how many more there are."""
    shown = ", ".join(repr(each if len(each) <= 60 else f"{each[:57]}...") for each in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def in_one_line(error: object) -> str:
    """The first sentence that a library said, in one line of bearable length and without its full stop."""
    text = " ".join(str(error).split()).split(". ")[0].rstrip(".")
    return (text if len(text) <= 200 else f"{text[:197]}...") or type(error).__name__


def check_installed() -> None:
    """Raise ImportError with the remedy where the libraries behind files are missing."""
    missing = [library for library in ("pandas", "pyarrow") if find_spec(library) is None]
    if missing:
        raise ImportError("Files of rows need pandas and pyarrow; install them with pip install 'uulearn[files]'.")
