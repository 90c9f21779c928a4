"""Mutated input files through predict, evaluate and fit: one sentence, or one row of scores per input row in order.

The rows of a mutated file are read a second time by an independent reader (Python's csv and json, pyarrow, openpyxl),
and the ids that predict copies must be the ids of these rows, in order.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import run
from hostile.tables import HEADER, ROWS, SMALL, Rows, csv_text, draw_rows, fit_small, write_tables

FILES = 3000
FORMATS = {"csv": 0.46, "tsv": 0.08, "csv.gz": 0.05, "jsonl": 0.17, "parquet": 0.12, "xlsx": 0.12}
"""Fraction of the files in each format."""
MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-", ".", "nat", "<na>", "#n/a", "missing", "unknown"}
ODD_CELLS = (
    "", " ", "NA", "nan", "inf", "-inf", "1e400", "1e-400", "-0", "9" * 40, "0x1F", "1_000", "1,5",
    "1.234,5", "$5", "45%", "true", "TRUE", "yes", "'", '"', '""', ",", ";", "\t", "a\nb", "a\r\nb",
    "\r", "\u2028", "\ufeff", "\u202eabc", "\x1b[31m", "=1+1", "@SUM(A1)", "<b>", "&amp;", "{{7*7}}",
    "'; DROP TABLE", "é", "e\u0301", "𝟙", "１２", "٣", "2024-02-30", "31/12/1999", "2024-01-01T00:00:00Z",
    "0000-00-00", "99999-01-01", "null", "[]", "{}", "x" * 5_000, "-", "--", "1-2", "None", "\x7f",
)  # fmt: skip
MODEL_COLUMNS = HEADER[1:]


# ------------------------------------------------------------------------------------------ changes of the rows


def odd_cells(trial: Trial, header: list[str], rows: Rows) -> None:
    """Replace some cells by odd ones."""
    for _ in range(int(trial.rng.integers(1, 6))):
        column = int(trial.rng.integers(1, len(header)))
        rows[int(trial.rng.integers(len(rows)))][column] = trial.choose(*ODD_CELLS)


def odd_column(trial: Trial, header: list[str], rows: Rows) -> None:
    """Fill a column with one odd value."""
    column, value = int(trial.rng.integers(1, len(header))), trial.choose(*ODD_CELLS)
    for row in rows:
        row[column] = value


def empty_column(trial: Trial, header: list[str], rows: Rows) -> None:
    """Empty a column."""
    column = int(trial.rng.integers(1, len(header)))
    for row in rows:
        row[column] = ""


def duplicate_name(trial: Trial, header: list[str], rows: Rows) -> None:
    """Give two columns one name."""
    header[int(trial.rng.integers(1, len(header)))] = header[int(trial.rng.integers(1, len(header)))]


def odd_name(trial: Trial, header: list[str], rows: Rows) -> None:
    """Rename a column."""
    header[int(trial.rng.integers(1, len(header)))] = trial.choose(*ODD_CELLS)


def remove_column(trial: Trial, header: list[str], rows: Rows) -> None:
    """Remove a column."""
    column = int(trial.rng.integers(1, len(header)))
    del header[column]
    for row in rows:
        del row[column]


def add_column(trial: Trial, header: list[str], rows: Rows) -> None:
    """Add a column of odd cells."""
    header.append(trial.choose("extra", "score", "class", "", "id.1", "Unnamed: 0", "index"))
    for row in rows:
        row.append(trial.choose(*ODD_CELLS[:40]))


def shuffle_columns(trial: Trial, header: list[str], rows: Rows) -> None:
    """Reorder the columns."""
    order = trial.rng.permutation(len(header))
    header[:] = [header[i] for i in order]
    for row in rows:
        row[:] = [row[i] for i in order]


def shuffle_rows(trial: Trial, header: list[str], rows: Rows) -> None:
    """Reorder the rows and repeat some."""
    rows[:] = [list(rows[int(i)]) for i in trial.rng.integers(len(rows), size=len(rows))]


def few_rows(trial: Trial, header: list[str], rows: Rows) -> None:
    """Keep no row, one row or two."""
    del rows[int(trial.rng.integers(0, 3)) :]


def extreme_numbers(trial: Trial, header: list[str], rows: Rows) -> None:
    """Scale a column of numbers to the limits of floats."""
    column = header.index("age") if "age" in header else len(header) - 1
    scale = trial.choose("1e300", "1e-300", "1e38", "1e30", "5e-324", "1e18", "-1e308")
    for row in rows:
        try:
            row[column] = repr(float(row[column]) * float(scale))
        except ValueError:
            row[column] = scale


ROW_CHANGES = (
    odd_cells, odd_cells, odd_column, empty_column, duplicate_name, odd_name, remove_column, add_column,
    shuffle_columns, shuffle_rows, few_rows, extreme_numbers,
)  # fmt: skip


# ------------------------------------------------------------------------------------------ changes of the bytes


def flip_bytes(trial: Trial, data: bytes) -> bytes:
    """Change some bytes."""
    content = bytearray(data)
    for _ in range(int(trial.rng.integers(1, 4))):
        if content:
            content[int(trial.rng.integers(len(content)))] = int(trial.rng.integers(256))
    return bytes(content)


def cut(trial: Trial, data: bytes) -> bytes:
    """Cut the end off."""
    return data[: int(trial.rng.integers(len(data) + 1))]


def insert(trial: Trial, data: bytes) -> bytes:
    """Insert special bytes."""
    special = (
        b'"',
        b"'",
        b",",
        b";",
        b"\t",
        b"\n",
        b"\r",
        b"\r\n",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\\",
        b"{",
        b"\x1a",
    )
    place = int(trial.rng.integers(len(data) + 1))
    return data[:place] + special[int(trial.rng.integers(len(special)))] + data[place:]


def delete_part(trial: Trial, data: bytes) -> bytes:
    """Delete a part from the middle."""
    start = int(trial.rng.integers(len(data) + 1))
    return data[:start] + data[start + int(trial.rng.integers(1, 200)) :]


def repeat_part(trial: Trial, data: bytes) -> bytes:
    """Repeat a part."""
    start = int(trial.rng.integers(len(data) + 1))
    end = start + int(trial.rng.integers(1, 300))
    return data[:end] + data[start:]


def empty(trial: Trial, data: bytes) -> bytes:
    """Return an almost empty file."""
    return (b"", b"\n", b" ", b"\0", b"\xef\xbb\xbf", b'"', b",", b"{}", b"[]")[int(trial.rng.integers(9))]


BYTE_CHANGES = (flip_bytes, flip_bytes, cut, insert, insert, delete_part, repeat_part, empty)


# ------------------------------------------------------------------------------------------ changes of text files


def recode(trial: Trial, text: str) -> bytes:
    """Encode in another way."""
    encoding = trial.choose("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "latin-1", "cp1252", "utf-32", "utf-7")
    return text.encode(encoding, errors="replace")


def ragged(trial: Trial, text: str) -> bytes:
    """Add or remove a field in one line."""
    lines = text.split("\n")
    place = int(trial.rng.integers(len(lines)))
    lines[place] = lines[place] + trial.choose(",", ",x", ",,,,,,,", '"', ',"') if trial.rng.random() < 0.5 else "x"
    return "\n".join(lines).encode()


def delimiter(trial: Trial, text: str) -> bytes:
    """Use another separator, in the whole file or in one line."""
    new = trial.choose(";", "\t", "|", " ", "::", ":")
    if trial.rng.random() < 0.7:
        return text.replace(",", new).encode()
    lines = text.split("\n")
    place = int(trial.rng.integers(len(lines)))
    lines[place] = lines[place].replace(",", new)
    return "\n".join(lines).encode()


def quotes(trial: Trial, text: str) -> bytes:
    """Put quotes around everything, or leave one open."""
    if trial.rng.random() < 0.5:
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL).writerows(csv.reader(text.splitlines()))
        return out.getvalue().encode()
    place = int(trial.rng.integers(len(text) + 1))
    return (text[:place] + '"' + text[place:]).encode()


def line_ends(trial: Trial, text: str) -> bytes:
    """Use other line ends, blank lines or lines before the header."""
    new = trial.choose("\r", "\r\n", "\n\r", "\n\n", "\n \n", "\r\r\n", "\u2028")
    start = trial.choose("", "", "\n\n", "# comment\n", "sep=,\n", "﻿", "-----\n", "  ")
    return (start + text.replace("\n", new)).encode()


def huge_field(trial: Trial, text: str) -> bytes:
    """Put a huge field into one line."""
    lines = text.split("\n")
    place = int(trial.rng.integers(len(lines)))
    lines[place] = lines[place].replace(",", "," + "7" * int(trial.rng.choice([10**5, 10**6])), 1)
    return "\n".join(lines).encode()


def no_header(trial: Trial, text: str) -> bytes:
    """Remove the line of names, or repeat it."""
    first, _, rest = text.partition("\n")
    return (rest if trial.rng.random() < 0.5 else f"{first}\n{text}").encode()


TEXT_CHANGES = (recode, ragged, ragged, delimiter, quotes, line_ends, huge_field, no_header)


def json_lines(trial: Trial, header: list[str], rows: Rows) -> list[str]:
    """Return JSON lines; numbers become numbers."""
    return [json.dumps(dict(zip(header, map(plain, row), strict=True)), ensure_ascii=False) for row in rows]


def plain(cell: str) -> Any:
    """Return a cell as a JSON value."""
    try:
        number = float(cell)
    except ValueError:
        return cell or None
    return number if math.isfinite(number) and "_" not in cell else cell


def odd_json(trial: Trial, lines: list[str]) -> list[str]:
    """Change lines of JSON in ways that are odd or wrong."""
    place = int(trial.rng.integers(max(1, len(lines))))
    odd = (
        "[]", "null", "1", '"text"', "{}", "{", "{'a': 1}", '{"age": NaN}', '{"age": Infinity}',
        '{"age": 1e999}', '{"age": [1]}', '{"age": {"b": 1}}', '{"age": 1, "age": 2}', "", "  ", "[" * 5000,
        '{"age": ' + "9" * 5000 + "}", '{"age": "\\ud800"}', '{"\\u0000": 1}', '{"id": true}', "// comment",
        '{"age": 1}{"age": 2}', '{"age": 1},', '{"age": ' + "9" * 400 + "}", '{"dose": -1e-999}',
        '{"city": ["Zug"]}',
    )  # fmt: skip
    lines[place : place + int(trial.rng.integers(2))] = [trial.choose(*odd)]
    return lines


# ------------------------------------------------------------------------------------------ files


def make_file(trial: Trial, format: str, prior: float) -> Path:
    """Write a mutated file and return its path."""
    header, rows = list(HEADER), draw_rows(ROWS, prior, 7)
    kind = trial.choose("rows", "bytes", "text", "both")
    if kind in ("rows", "both"):
        for _ in range(int(trial.rng.integers(1, 3))):
            if rows:
                ROW_CHANGES[int(trial.rng.integers(len(ROW_CHANGES)))](trial, header, rows)
    path = trial.folder / f"mutated.{format}"
    data = encode(trial, format, header, rows, kind)
    if kind in ("bytes", "both"):
        data = BYTE_CHANGES[int(trial.rng.integers(len(BYTE_CHANGES)))](trial, data)
    if format == "csv.gz":
        data = gzip.compress(data) if trial.rng.random() < 0.6 else flip_bytes(trial, gzip.compress(data))
    path.write_bytes(data)
    trial.counts[f"files_{kind}"] += 1
    return path


def encode(trial: Trial, format: str, header: list[str], rows: Rows, kind: str) -> bytes:
    """Encode the rows; ``kind="text"`` also changes the text."""
    if format == "jsonl":
        lines = json_lines(trial, header, rows)
        return "\n".join(odd_json(trial, lines) if kind == "text" else lines).encode(errors="surrogatepass")
    if format == "parquet":
        return parquet(trial, header, rows)
    if format == "xlsx":
        return workbook(trial, header, rows)
    text = csv_text(rows, header, "\t" if format == "tsv" else ",")
    if kind != "text":
        return text.encode(errors="surrogatepass")
    return TEXT_CHANGES[int(trial.rng.integers(len(TEXT_CHANGES)))](trial, text)


def parquet(trial: Trial, header: list[str], rows: Rows) -> bytes:
    """Return a Parquet file whose columns have various types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = []
    for place, name in enumerate(header):
        cells = [plain(row[place]) for row in rows]
        if not all(isinstance(cell, float | None) for cell in cells):
            cells = [None if cell is None else str(cell) for cell in cells]
        column = pa.array(cells)
        how = trial.choose("plain", "plain", "plain", "dictionary", "list", "binary", "float16", "null")
        if name == "id" or not len(rows):
            how = "plain"
        if how == "dictionary" and not pa.types.is_null(column.type):  # pyarrow cannot write such a dictionary
            column = column.dictionary_encode()
        elif how == "list":
            column = pa.array([[cell] for cell in cells])
        elif how == "binary" and pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        elif how == "float16" and pa.types.is_floating(column.type):
            with np.errstate(over="ignore"):
                column = pa.array(np.array(column.to_numpy(zero_copy_only=False), np.float16))
        elif how == "null":
            column = pa.nulls(len(rows))
        columns.append(column)
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=header), out, row_group_size=int(trial.rng.integers(1, 100)))
    return out.getvalue()


def workbook(trial: Trial, header: list[str], rows: Rows) -> bytes:
    """Return an Excel file with numbers, text, dates, formulas and error values."""
    import openpyxl
    from openpyxl.utils.exceptions import IllegalCharacterError

    book = openpyxl.Workbook()
    sheet = book.active
    for number, row in enumerate([header, *rows], start=1):
        for column, cell in enumerate(row, start=1):
            try:
                sheet.cell(number, column, plain(cell) if number > 1 else cell)
            except (IllegalCharacterError, ValueError):
                sheet.cell(number, column, "odd")
    for _ in range(int(trial.rng.integers(3))):
        place = sheet.cell(int(trial.rng.integers(2, len(rows) + 3)), int(trial.rng.integers(2, len(header) + 1)))
        place.value = trial.choose("=1/0", "#N/A", "#DIV/0!", "=A1", "  ")
    if trial.rng.random() < 0.1:
        book.create_sheet("second", 0)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


# ------------------------------------------------------------------------------------------ the independent reader


def expected_ids(path: Path, format: str) -> list[str] | None:
    """Return the id of each row as text, or None if the id column cannot be found by a simple reader."""
    try:
        return READERS[format](path)
    except Exception:  # the simple reader gives up; the case then checks only that the rows are finite
        return None


def read_text(path: Path, separator: str | None = None) -> list[str] | None:
    """Read CSV with Python's csv module."""
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = data.decode("utf-16" if utf16 else "utf-8-sig")
    first = next(line for line in text.replace("\r", "\n").split("\n") if line.strip())
    best = separator or max(",;\t|", key=first.count)
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=best, strict=True) if any(row)]
    place = rows[0].index("id")
    if any(len(row) != len(rows[0]) for row in rows):
        return None
    return [row[place] for row in rows[1:]]


def read_json(path: Path) -> list[str] | None:
    """Read JSON lines with Python's json module."""
    rows = [json.loads(line) for line in path.read_text("utf-8-sig").split("\n") if line.strip()]
    return ["" if row.get("id") is None else str(row.get("id")) for row in rows]


def read_parquet(path: Path) -> list[str] | None:
    """Read Parquet with pyarrow."""
    import pyarrow.parquet as pq

    column = pq.read_table(path).column("id").to_pylist()
    return ["" if value is None else str(value) for value in column]


def read_workbook(path: Path) -> list[str] | None:
    """Read Excel with openpyxl. Error values are empty cells, and a row of empty or blank cells is not a row."""
    import openpyxl
    from openpyxl.cell.cell import ERROR_CODES

    sheet = openpyxl.load_workbook(path, data_only=True).worksheets[0]
    cells = (
        ["" if cell is None or cell in ERROR_CODES else str(cell) for cell in row]
        for row in sheet.iter_rows(values_only=True)
    )
    rows = [row for row in cells if any(cell.strip() for cell in row)]
    place = rows[0].index("id")
    return [row[place] for row in rows[1:]]


READERS: dict[str, Callable[[Path], list[str] | None]] = {
    "csv": read_text, "tsv": partial(read_text, separator="\t"), "csv.gz": read_text, "jsonl": read_json,
    "parquet": read_parquet, "xlsx": read_workbook,
}  # fmt: skip


# ------------------------------------------------------------------------------------------ cases


def prepare(shared: Path) -> None:
    """Make a model, and import the readers of all formats."""
    write_tables(shared)
    fit_small(shared, shared / "model")


def check_rows(trial: Trial, path: Path, format: str, out: Path) -> None:
    """Check that the scored file has the ids of the input in order, and finite numbers."""
    import pandas as pd

    if out.suffix == ".parquet":
        frame = pd.read_parquet(out)
    elif out.suffix == ".jsonl":
        with out.open(encoding="utf-8") as file:
            frame = pd.DataFrame([json.loads(line) for line in file])
    else:
        frame = pd.read_csv(out, dtype={"id": str}, keep_default_na=False, lineterminator="\n")
    numbers = frame[["score", "probability", "class"]].to_numpy(float)
    trial.check(np.isfinite(numbers).all(), "a row was scored with a number that is not finite")
    trial.check(((numbers[:, 1] >= 0) & (numbers[:, 1] <= 1)).all(), "a probability is not between 0 and 1")
    expected = expected_ids(path, format)
    if expected is None:
        trial.counts["rows_unchecked"] += 1
        return
    trial.check(len(frame) == len(expected), f"the file has {len(expected)} rows, predict wrote {len(frame)}")
    if "id" in frame:
        found = ["" if value is None or value != value else str(value) for value in frame["id"]]
        wrong = [i for i, (one, two) in enumerate(zip(expected, found, strict=True)) if not same_id(one, two)]
        trial.check(not wrong, f"row {wrong[:1]}: id {[(expected[i], found[i]) for i in wrong[:1]]}")
        trial.counts["ids_checked"] += len(found)
    trial.counts["rows_checked"] += len(frame)


def same_id(expected: str, found: str) -> bool:
    """Return whether two ids are equal, apart from spaces and ways to write a missing value."""
    one, two = expected.strip().lstrip("'"), found.strip().lstrip("'")
    return one == two or (one.lower() in MISSING and two.lower() in MISSING)


def mutate(format: str, trial: Trial) -> None:
    """Pass a mutated file to predict, evaluate and fit."""
    path = make_file(trial, format, 0.8)
    model, shared = trial.shared / "model", trial.shared
    trial.counts["files"] += 1
    out = trial.folder / f"scored.{trial.choose('csv', 'csv', 'jsonl', 'parquet')}"
    ended = run("predict", model, path, "--out", out)
    trial.counts["commands"] += 1
    if ended.code:
        trial.refused(ended)
        trial.check(not out.exists(), "a refused predict left a file")
    else:
        check_rows(trial, path, format, out)
        trial.right(ended)
    labels = ("--labels", "smoker") if trial.rng.random() < 0.2 else (shared / "b.csv",)
    ended = run("evaluate", model, path, *labels)
    trial.counts["commands"] += 1
    if ended.code:
        trial.refused(ended)
    else:
        trial.check("nan" not in ended.out and "inf" not in ended.out, f"evaluate printed {ended.out!r}")
        trial.right(ended)
    new = trial.folder / "m"
    ended = run("fit", path, shared / "b.csv", *SMALL, "--id", "id", "--out", new)
    trial.counts["commands"] += 1
    left = {entry.name for entry in trial.folder.iterdir()} - {path.name, out.name, "m"}
    trial.check(not left, f"fit left {left}")
    if ended.code:
        trial.refused(ended)
        trial.check(not new.exists(), "a refused fit left a model")
        return
    trial.check(printable(ended.out), f"the summary of fit contains control characters: {ended.out!r}")
    out = trial.folder / "again.csv"
    again = run("predict", new, shared / "new.csv", "--out", out)
    trial.counts["commands"] += 1
    if again.code:
        trial.refused(again)
    else:
        check_rows(trial, shared / "new.csv", "csv", out)
    trial.right(ended)


def printable(text: str) -> bool:
    """Return whether every line of a text is printable."""
    return all(line.isprintable() for line in text.split("\n"))


def cases(scale: float) -> Sequence[Case]:
    """Return the mutated files of all formats."""
    return [
        Case(f"mutated {format}", partial(mutate, format))
        for format, fraction in FORMATS.items()
        for _ in range(scaled(round(FILES * fraction), scale))
    ]


AREA = Area("inputs", "mutated input files through predict, evaluate and fit", prepare, cases)
assert abs(sum(FORMATS.values()) - 1) < 1e-9
