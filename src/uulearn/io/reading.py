"""Tables from files, chunk by chunk, whatever the format: CSV, TSV, Parquet, Feather, JSON lines, NumPy arrays.

Memory is bounded by the chunk, not by the file. Text formats deliver text: what a column is, is decided over all rows
by the survey, never by a chunk on its own. What the typed formats deliver is listed in `reading_arrow` (Parquet and
Feather), `reading_json` and `reading_arrays`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from uulearn.exceptions import TableError
from uulearn.io.formats import STANDARD, check_installed, format_of, parquet_files, settle_format

if TYPE_CHECKING:
    import pandas as pd

    from uulearn.io.reading_arrow import Opened

__all__ = ["CHUNK_ROWS", "TableReader", "format_of", "open_table", "read_table"]

CHUNK_ROWS = 100_000


class TableReader:
    """An open table: its columns at once, its rows as frames, once.

    Attributes
    ----------
    name : str
        The path, or "standard input".
    columns : list of str
        Names of the columns, without surrounding blanks.
    typed : bool
        False for CSV and TSV, where every column is text and missing where the field was empty or a mark such as NA.
    notes : list of str
        What the user should know about how the file was read, in sentences.
    """

    def __init__(self, name: str, opened: Opened, stack: ExitStack) -> None:
        self.name = name
        self.columns: list[str] = opened.columns
        self.typed = opened.typed
        self.notes = opened.notes
        self._frames = opened.frames
        self._empty = opened.empty
        self._stack = stack
        self._begun = False

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Frames with exactly these columns, the index counting on; a table without rows gives none."""
        if self._begun:
            raise TableError(f"{self.name} has been read already; open it again to read it again.")
        self._begun = True
        return self._numbered()

    def all_rows(self) -> pd.DataFrame:
        """All rows in one frame, which has none where the table has none."""
        import pandas as pd

        frames = list(self)
        return pd.concat(frames) if frames else self._empty()

    def _numbered(self) -> Iterator[pd.DataFrame]:
        import pandas as pd

        start = 0
        with self._stack:
            for frame in self._frames:
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield frame

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._begun = True
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_table(source: str | Path, *, chunk_rows: int = CHUNK_ROWS, format: str | None = None) -> TableReader:
    """Open a file of rows, or standard input, for reading in chunks.

    Parameters
    ----------
    source : path, or "-" for standard input
        A folder with Parquet files is read as one table. Names ending in .gz or .zst are decompressed; so is text that
        is compressed though its name does not say it.
    chunk_rows : int
        Most rows a frame may have. Frames of many columns or long texts have fewer, so that they fit into memory.
    format : {"csv", "tsv", "parquet", "feather", "jsonl", "npy", "npz"}, optional
        By default what the suffix says, and CSV for standard input.

    Raises
    ------
    TableError
        With one sentence, when the file cannot be read; for its later parts, while it is read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "clinic_a.csv"
    ...     _ = path.write_text("age; city\\n41;Basel\\n;Genf\\n38;NA\\n", encoding="utf-8")
    ...     with open_table(path, chunk_rows=2) as reader:
    ...         print(reader.columns, reader.notes[0].removeprefix(folder))
    ...         for frame in reader:
    ...             print(frame)
    ['age', 'city'] /clinic_a.csv is read with semicolons between its fields.
       age   city
    0   41  Basel
    1  NaN   Genf
      age city
    2  38  NaN
    """
    check_installed()
    if not isinstance(chunk_rows, Integral) or isinstance(chunk_rows, bool) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be a whole number of at least 1, got {chunk_rows!r}.")
    if is_table_folder(source):
        from uulearn.io.reading_folder import open_folder

        return TableReader(str(source), open_folder(Path(source), int(chunk_rows)), ExitStack())
    if format is None and str(source) != STANDARD and not Path(source).suffix and not Path(source).exists():
        raise TableError(f"{source} does not exist; check the path.")
    kind, compression = settle_format(source, format)
    name = "standard input" if str(source) == STANDARD else str(source)
    with ExitStack() as stack:
        opened = _open(source, name, kind, compression, int(chunk_rows), stack)
        return TableReader(name, opened, stack.pop_all())
    raise AssertionError("unreachable: nothing above is suppressed")


def is_table_folder(source: str | Path) -> bool:
    """Whether it is a folder with Parquet files in it, which make one table; any other folder is of images."""
    return str(source) != STANDARD and Path(source).is_dir() and bool(parquet_files(Path(source)))


def _open(
    source: str | Path, name: str, kind: str, compression: str | None, chunk_rows: int, stack: ExitStack
) -> Opened:
    from uulearn.io.compression import open_seekable, open_stream
    from uulearn.io.reading_arrays import open_npy, open_npz
    from uulearn.io.reading_arrow import open_feather, open_parquet
    from uulearn.io.reading_csv import open_csv
    from uulearn.io.reading_json import open_json_lines
    from uulearn.io.reading_text import TextBuffer

    if kind in {"csv", "tsv", "jsonl"}:
        text = TextBuffer(open_stream(source, name, compression, stack), name)
        return open_json_lines(text, chunk_rows) if kind == "jsonl" else open_csv(text, kind, chunk_rows)
    title = {"parquet": "Parquet", "feather": "Feather"}.get(kind, f".{kind}")
    file = open_seekable(source, name, compression, title, stack)
    if kind == "parquet":
        return open_parquet(file, name, chunk_rows, stack)
    if kind == "feather":
        return open_feather(file, name, chunk_rows)
    if kind == "npy":
        return open_npy(file, name, chunk_rows)
    return open_npz(file, name, chunk_rows, stack)


def read_table(source: str | Path, *, format: str | None = None) -> pd.DataFrame:
    """All rows of a file, or of standard input, in one frame; parameters as for `open_table`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.jsonl"
    ...     _ = path.write_text('{"age": 41}\\n{"age": 38, "city": "Basel"}\\n', encoding="utf-8")
    ...     print(read_table(path))
      age   city
    0  41   None
    1  38  Basel
    """
    with open_table(source, format=format) as reader:
        return reader.all_rows()
    raise AssertionError("unreachable: nothing above is suppressed")
