"""Compare parsers of CSV (pyarrow, DuckDB, polars, pandas) and of .xlsx (calamine, openpyxl).

    python benchmarks/csv_engines.py [--csv FILE] [--cases 1000]

Agreement: each engine parses random texts like those of ``tests/io/test_fuzz.py``, with all columns as text, and the
cells are compared with Python's ``csv`` module. A text is valid if all records have two fields and every quote is
closed. The counts are ``same`` and ``different`` cells of a valid text, ``rejected`` valid text, ``accepted`` and
``refused`` invalid text, and ``line``: refused with the correct line number. uulearn intentionally accepts separators
at the end of lines. Detection: whether the engine detects the separator of a small table. Speed: each engine streams
``FILE`` (by default, one like those of ``encode_csv.py``) as text in a new process; DuckDB also with type detection
over the whole file. All results are stored in ``benchmarks/results/csv_engines.json``.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIECES = ["a", "1", ",", ",", '"', '"', '""', "\n", "\n", "\r", "\r\n", ";", " ", "\t"]
ENGINES = ("pyarrow", "duckdb", "polars", "pandas")
OUT = Path(__file__).resolve().parent / "results" / "csv_engines.json"
Rows = list[list[str]]


def parse(engine: str, path: Path) -> Rows:
    """Return the cells of two text columns after a header; raises if the engine refuses the file."""
    if engine == "uulearn":
        from uulearn.io.reading import read_table

        return [["" if cell != cell or cell is None else cell for cell in row] for row in read_table(path).to_numpy()]
    if engine == "pyarrow":
        import pyarrow as pa
        import pyarrow.csv as arrow

        convert = arrow.ConvertOptions(column_types={"x": pa.string(), "y": pa.string()})
        options = arrow.ParseOptions(newlines_in_values=True)
        read = arrow.ReadOptions(use_threads=False)  # with threads, errors have no row number
        reader = arrow.open_csv(path, read_options=read, parse_options=options, convert_options=convert)
        return [[row["x"], row["y"]] for row in reader.read_all().to_pylist()]
    if engine == "duckdb":
        import duckdb

        query = "SELECT * FROM read_csv(?, header=true, all_varchar=true, delim=',', quote='\"', escape='\"')"
        return [["" if cell is None else cell for cell in row] for row in duckdb.execute(query, [str(path)]).fetchall()]
    if engine == "polars":
        import polars as pl

        frame = pl.read_csv(path, infer_schema=False, empty_string_is_null=False)
        return [["" if cell is None else cell for cell in row] for row in frame.rows()]
    import pandas as pd

    return [list(row) for row in pd.read_csv(path, dtype=str, keep_default_na=False).to_numpy()]


def agreement(cases: int) -> dict[str, dict[str, int]]:
    """Compare each engine with the ``csv`` module on random texts."""
    found = {
        engine: dict.fromkeys(("same", "different", "accepted", "rejected", "refused", "line"), 0)
        for engine in (*ENGINES, "uulearn")
    }
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        for _ in range(cases):
            text = "x,y\n" + "".join(rng.choices(PIECES, k=rng.randrange(30)))
            path.write_bytes(text.encode())
            expected, line = reference(text)
            for engine, counts in found.items():
                try:
                    rows = parse(engine, path)
                except Exception as error:  # each engine has its own exceptions
                    if expected is not None:
                        counts["rejected"] += 1
                    else:
                        counts["refused"] += 1
                        named = re.search(r"(?i)(?:line:?|row #) ?(\d+)", str(error))
                        counts["line"] += named is not None and int(named[1]) == line
                    continue
                plain = [["" if cell.isspace() else cell for cell in row] for row in rows]
                counts["accepted" if expected is None else "same" if plain == expected else "different"] += 1
    return found


def reference(text: str) -> tuple[Rows | None, int]:
    """Return the rows of a valid text, or None and the line of the first bad record of an invalid one."""
    reader = csv.reader(io.StringIO(f"{text}\nEND,END", newline=""))
    rows: Rows = []
    while True:
        line = reader.line_num + 1
        fields = next(reader)
        if fields == ["END", "END"]:
            return [["" if cell.isspace() else cell for cell in row] for row in rows[1:]], 0
        if fields and (len(fields) != 2 or fields[-1].endswith("END")):
            return None, line
        if fields:
            rows.append(fields)


def detection() -> dict[str, dict[str, bool]]:
    """Return whether each engine detects the separator of a small table."""
    import duckdb
    import pandas as pd

    found: dict[str, dict[str, bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        for separator in ",;\t|":
            path.write_text("".join(f"{i}{separator}a b{separator}2,5\n".replace("2,5", '"2,5"') for i in range(9)))
            query = "SELECT Delimiter FROM sniff_csv(?)"
            detected = {
                "duckdb": duckdb.execute(query, [str(path)]).fetchone() == (separator,),
                "pandas": pd.read_csv(path, sep=None, engine="python", header=None).shape[1] == 3,
                "csv.Sniffer": csv.Sniffer().sniff(path.read_text()).delimiter == separator,
            }
            for engine, right in detected.items():
                found.setdefault(engine, {})[repr(separator)] = bool(right)
    return found


def stream(engine: str, path: str) -> int:
    """Read a file as text in batches and return the number of rows."""
    if engine == "pyarrow":
        import pyarrow as pa
        import pyarrow.csv as arrow

        with Path(path).open(encoding="utf-8") as file:
            header = file.readline().strip().split(",")
        convert = arrow.ConvertOptions(column_types=dict.fromkeys(header, pa.large_string()))
        options = arrow.ParseOptions(newlines_in_values=True)
        reader = arrow.open_csv(path, parse_options=options, convert_options=convert)
        return sum(batch.num_rows for batch in reader)
    if engine.startswith("duckdb"):
        import duckdb

        types = "sample_size=-1" if engine == "duckdb, types" else "all_varchar=true, delim=','"
        connection = duckdb.connect(config={"memory_limit": "400MB"})
        reader = connection.execute(f"SELECT * FROM read_csv(?, {types})", [path]).to_arrow_reader(100_000)
        return sum(batch.num_rows for batch in reader)
    if engine == "polars":
        import polars as pl

        return sum(batch.height for batch in pl.scan_csv(path, infer_schema=False).collect_batches(chunk_size=100_000))
    if engine == "uulearn":
        from uulearn.io.reading import open_table

        return sum(len(frame) for frame in open_table(path))
    import pandas as pd

    return sum(len(frame) for frame in pd.read_csv(path, chunksize=100_000, dtype=str, keep_default_na=False))


def excel(engine: str, path: str) -> int:
    """Read a sheet and return the number of rows."""
    if engine == "calamine":
        from python_calamine import CalamineWorkbook

        return len(CalamineWorkbook.from_path(path).get_sheet_by_index(0).to_python())
    from openpyxl import load_workbook

    return sum(1 for _ in load_workbook(path, read_only=True).active.iter_rows(values_only=True))


def write_sheet(path: Path, rows: int) -> None:
    """Write a sheet of numbers and words."""
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    sheet = book.create_sheet("rows")
    sheet.append([f"c{i}" for i in range(10)])
    for row in range(rows):
        sheet.append([row * 0.1 + i if i < 8 else f"word {row % 50}" for i in range(10)])
    book.save(path)


def measure(task: str, engine: str, path: Path) -> dict[str, float]:
    """Run `stream` or `excel` in a new process."""
    command = [sys.executable, __file__, "--task", task, "--engine", engine, "--csv", str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    print(task, engine, result, flush=True)
    return result


def main() -> None:
    """Measure and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--sheet-rows", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.task:
        tasks: dict[str, Callable[[str, str], int]] = {"stream": stream, "excel": excel}
        wall = time.perf_counter()
        rows = tasks[asked.task](asked.engine, str(asked.csv))
        wall = time.perf_counter() - wall
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime
        peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())  # ru_maxrss includes the parent
        peak_kib = int(peak[1]) if peak else 0
        print(json.dumps({"rows": rows, "wall_s": wall, "cpu_s": cpu, "peak_resident_mib": peak_kib / 1024}))
        return
    from common import FORMAT, machine, versions, write_json
    from encode_csv import write_set

    found: dict[str, Any] = {"agreement": agreement(asked.cases), "detection": detection()}
    print(found, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = asked.csv
        if path is None:
            path = Path(folder) / "rows.csv"
            write_set(path, 9_200_000, 0.5, 0)
        size = path.stat().st_size
        found["stream"] = {engine: measure("stream", engine, path) for engine in (*ENGINES, "duckdb, types", "uulearn")}
        sheet = Path(folder) / "rows.xlsx"
        write_sheet(sheet, asked.sheet_rows)
        found["excel"] = {engine: measure("excel", engine, sheet) for engine in ("calamine", "openpyxl")}
    packages = ("pyarrow", "duckdb", "polars", "pandas", "python-calamine", "openpyxl")
    own = {name: importlib.metadata.version(name) for name in packages}
    configuration = {"cases": asked.cases, "csv_bytes": size, "sheet": [asked.sheet_rows, 10]}
    record = {"configuration": configuration, **found, "versions": versions() | own, "machine": machine()}
    write_json(asked.out, record | {"format": FORMAT})


if __name__ == "__main__":
    main()
