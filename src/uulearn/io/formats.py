"""Detect file formats, list Parquet files, and clean column names, using only the standard library."""

import difflib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
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
    ".xlsx": "xlsx",
    ".npy": "npy",
    ".npz": "npz",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif")
ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
SEPARATORS = {"csv": ",", "tsv": "\t"}
PARQUET = ".parquet"
STANDARD = "-"  # path that means standard input or standard output
MAX_COMPARED_NAMES = 5_000  # number of names in a folder to compare with a name that does not exist

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?")
"""Text that represents a missing value."""


def format_of(path: str | Path, hint: str = "") -> tuple[str, str | None]:
    """Return the format and the compression implied by a file name; ``"-"`` means CSV.

    The error message for other names ends with ``hint``.

    >>> format_of("clinic_a.csv.gz"), format_of("clinic_a.parquet")
    (('csv', 'gzip'), ('parquet', None))
    """
    if str(path) == STANDARD:
        return "csv", None
    compression = COMPRESSIONS.get(Path(path).suffix.lower())
    inner = Path(Path(path).stem if compression else path)
    known = SUFFIXES.get(inner.suffix.lower())
    if known is None and inner.suffix.lower() in ARCHIVES:
        raise TableError(f"{path} is an archive; unpack it, and pass the file of rows in it.")
    if known is None:
        raise TableError(
            f"{path} has no supported suffix; use one of {' '.join(SUFFIXES)} (optionally followed by .gz or "
            f".zst){hint}."
        )
    return known, compression


def check_exists(path: str | Path) -> None:
    """Raise `TableError` if a file or folder does not exist, and suggest similar names in the same folder.

    >>> check_exists("clinic_a.csv")
    Traceback (most recent call last):
    uulearn.exceptions.TableError: clinic_a.csv does not exist; check the path.
    """
    if str(path) == STANDARD:
        return
    try:
        os.stat(path)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist{_suggest_similar(Path(path))}; check the path.") from None
    except (OSError, ValueError):
        pass  # reading the file reports the reason


def _suggest_similar(path: Path) -> str:
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, MAX_COMPARED_NAMES)]
    except OSError:
        return ""
    return suggest(path.name, (name for name in names if not name.startswith(".")))


def check_table_name(path: str | Path, hint: str = "") -> None:
    """Raise `TableError` if the name of an input file is not the name of a table; see `format_of` for ``hint``.

    >>> check_table_name("photos/1.png")
    Traceback (most recent call last):
    uulearn.exceptions.TableError: photos/1.png is an image; pass the folder that contains the images.
    """
    if Path(path).suffix.lower() in IMAGE_SUFFIXES:
        raise TableError(f"{path} is an image; pass the folder that contains the images.")
    format_of(path, hint)


def resolve_format(path: str | Path, format: str | None) -> tuple[str, str | None]:
    """Return the format and the compression of a file; ``format`` overrides the suffix."""
    if format is None:
        return format_of(path)
    if format not in SUFFIXES.values():
        known = ", ".join(dict.fromkeys(SUFFIXES.values()))
        raise ValueError(f"format must be one of {known}, got {format!r}.")
    return format, COMPRESSIONS.get(Path(path).suffix.lower())


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder and its subfolders, sorted by name, except hidden files and marker files.

    For a Delta table, `TableError` is raised, because its folder also contains files of earlier versions.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=refuse_unreadable):
        if "_delta_log" in folders:
            raise TableError(
                f"{place} is a Delta table, and its folder also contains files of earlier versions; write the rows of "
                "its current version to a new folder."
            )
        folders[:] = [name for name in folders if not _is_ignored(name)]
        names = [name for name in files if name.endswith(PARQUET) and not _is_ignored(name)]
        found += [path for path in (Path(place, name) for name in names) if path.is_file()]
    return sorted(found)


def refuse_unreadable(error: OSError) -> None:
    """Raise `TableError` for a folder that cannot be listed; `os.walk` would skip it and all of its files."""
    raise TableError(
        f"{error.filename} cannot be read ({error.strerror}); request read permission, or move it to another folder."
    ) from error


def check_not_read_again(out: Path, rows: str, named: str) -> None:
    """Raise ValueError if the file ``out`` would later be read as part of the folder ``rows``.

    >>> check_not_read_again(Path("rows/scored.parquet"), "rows", "rows/scored.parquet")
    Traceback (most recent call last):
    ValueError: rows/scored.parquet is inside rows and would be read as input next time; write to another folder.
    >>> check_not_read_again(Path("rows/scored.csv"), "rows", "rows/scored.csv")
    """
    folder, place = (Path(os.path.realpath(path)) for path in (rows, out))
    if folder not in place.parents or place.suffix != PARQUET:
        return
    if not any(map(_is_ignored, place.relative_to(folder).parts)):
        raise ValueError(f"{named} is inside {rows} and would be read as input next time; write to another folder.")


def _is_ignored(name: str) -> bool:
    """Return whether a file or folder is hidden or a marker; partitions such as ``_site=1`` are not ignored."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def clean_names(names: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return column names without surrounding spaces, and a note about unnamed columns.

    An unnamed column is named after its position, as in pandas. `TableError` is raised for duplicate names.

    >>> clean_names(["", " age", "city "], "rows.csv")
    (['Unnamed: 0', 'age', 'city'], ["rows.csv has columns without a name; they are named 'Unnamed: 0'."])
    """
    stripped = [each.strip() for each in names]
    cleaned = [each or f"Unnamed: {position}" for position, each in enumerate(stripped)]
    if repeated := repeated_names(cleaned):
        raise TableError(f"{name} has more than one column named {quote_some(repeated)}; use unique column names.")
    unnamed = [new for new, old in zip(cleaned, stripped, strict=True) if not old]
    if not unnamed:
        return cleaned, []
    return cleaned, [f"{name} has columns without a name; they are named {quote_some(unnamed)}."]


def array_columns(length: int) -> list[str]:
    """Return the names of the columns of a table without column names.

    >>> array_columns(3)
    ['0', '1', '2']
    """
    return [str(position) for position in range(length)]


def repeated_names(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [each for each, count in Counter(names).items() if count > 1]


def quote_some(names: Sequence[str], limit: int = 5) -> str:
    """Format the first names in quotes, shorten long names, and add the number of omitted names."""
    shown = ", ".join(repr(each if len(each) <= 60 else f"{each[:57]}...") for each in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit:,} more"


def printable(text: str) -> str:
    """Replace characters that control a terminal or change the direction of text with escape sequences.

    >>> printable("age\\x1b[2J"), printable("Zürich")
    ('age\\\\x1b[2J', 'Zürich')
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def suggest(name: str, names: Iterable[str], hint: str = "did you mean {}?") -> str:
    """Return similar names as a hint in parentheses, or an empty string.

    >>> suggest("wieght", ["weight", "age"])
    " (did you mean 'weight'?)"
    """
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), folded, n=3)
    return f" ({hint.replace('{}', ' or '.join(repr(folded[other]) for other in close))})" if close else ""


def in_one_line(error: object) -> str:
    """Return the first sentence of a message as one line of limited length, without the final period."""
    text = " ".join(str(error).split()).split(". ")[0].rstrip(".")
    return (text if len(text) <= 200 else f"{text[:197]}...") or type(error).__name__
