"""Writing files: text and types, atomic files, and the messages for bad input."""

import csv
import datetime
import decimal
import gzip
import io
import json
import math
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from uulearn.exceptions import TableError
from uulearn.io import writing
from uulearn.io.reading import read_table
from uulearn.io.writing import TableWriter

FRAME = pd.DataFrame({"id": ["a", "b"], "score": [0.1, -2.0]})
TEXT_FORMATS = ["t.csv", "t.tsv", "t.jsonl", "t.csv.gz", "t.csv.zst", "t.tsv.gz", "t.ndjson.zst"]
ARROW_FORMATS = ["t.parquet", "t.feather", "t.arrow", "t.parquet.gz", "t.feather.zst"]


def write(path, *frames, **arguments):
    with TableWriter(path, **arguments) as writer:
        for frame in frames:
            writer.write(frame)
    return path


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir())


# Written content


def test_writes_csv(tmp_path):
    frame = pd.DataFrame(
        {
            "plain": ["a", None, ""],
            'a "name", quoted': ['x,"y"', "line\nend", "cr\rhere"],
            "float": [0.1, math.nan, 1e300],
            "int": [1, -2, 3],
            "nullable": pd.array([2**62, None, -1], dtype="Int64"),
            "bool": [True, False, True],
            "maybe": pd.array([True, None, False], dtype="boolean"),
            "semicolon": ["a;b", " padded ", "tab\t"],
        }
    )
    write(tmp_path / "t.csv", frame)
    assert (tmp_path / "t.csv").read_bytes().decode() == (
        '"plain","a ""name"", quoted","float","int","nullable","bool","maybe","semicolon"\n'
        '"a","x,""y""",0.1,1,4611686018427387904,True,True,"a;b"\n'
        '"","line\nend","",-2,"",False,""," padded "\n'
        '"","cr\rhere",1e+300,3,-1,True,False,"tab\t"\n'
    )
    write(tmp_path / "t.tsv", frame[["semicolon", "int"]])
    assert (tmp_path / "t.tsv").read_text() == 'semicolon\tint\na;b\t1\n padded \t-2\n"tab\t"\t3\n'


def test_writes_json_lines(tmp_path):
    frame = pd.DataFrame(
        {
            "s": ["Zürich\n", None],
            "f": [0.1, math.nan],
            "i": pd.array([2**62, None], dtype="Int64"),
            "b": [True, False],
            "d": pd.to_datetime(["2024-02-29", None]),
            "o": [np.float32(0.5), decimal.Decimal("1.5")],
            "p": [datetime.date(2024, 2, 29), datetime.timedelta(seconds=90)],
        }
    )
    write(tmp_path / "t.jsonl", frame)
    first, second = map(json.loads, (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines())
    assert first == {
        "s": "Zürich\n",
        "f": 0.1,
        "i": 2**62,
        "b": True,
        "d": "2024-02-29T00:00:00",
        "o": 0.5,
        "p": "2024-02-29",
    }
    assert second == {"s": None, "f": None, "i": None, "b": False, "d": None, "o": 1.5, "p": 90.0}
    assert "Zürich" in (tmp_path / "t.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "object"])
def test_float_round_trip(tmp_path, dtype):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**64, 2000, dtype=np.uint64).view(np.float64)
    values = values[np.isfinite(values) & (np.abs(values) < 1e38) & ((np.abs(values) > 1e-37) | (values == 0))]
    column = pd.Series([*values, 0.1, 1 / 3, -0.0, 5e-324 if dtype != "float32" else 0.0]).astype(dtype)
    write(tmp_path / "t.csv", pd.DataFrame({"x": column}))
    kind = np.float32 if dtype == "float32" else np.float64
    back = read_table(tmp_path / "t.csv")["x"].astype("float64").to_numpy(kind)
    np.testing.assert_array_equal(back, column.to_numpy(kind))
    assert np.signbit(back[-2])


@pytest.mark.parametrize("dtype", ["float64", "float32", "Float64", "object"])
def test_float_format_applies_only_to_floats(tmp_path, dtype):
    frame = pd.DataFrame(
        {"f": pd.Series([1 / 3, 2e10, None]).astype(dtype), "i": [1234567, 2, 3], "s": ["0.123456789"] * 3}
    )
    write(tmp_path / "t.csv", frame, float_format="%.3g")
    assert (tmp_path / "t.csv").read_text() == "f,i,s\n0.333,1234567,0.123456789\n2e+10,2,0.123456789\n,3,0.123456789\n"


@pytest.mark.parametrize("float_format", ["", "%", "%s %s", "x", "{:.3g}", 6, "%.3q", "%d%%"])
def test_rejects_bad_float_formats(tmp_path, float_format):
    with pytest.raises(ValueError, match="float_format must be a format such as '%.6g', got "):
        TableWriter(tmp_path / "t.csv", float_format=float_format)


def test_dates_in_csv(tmp_path):
    frame = pd.DataFrame(
        {
            "plain": pd.to_datetime(["2024-02-29", "2024-02-29 12:00:00.25"], format="ISO8601"),
            "zoned": pd.to_datetime(["2024-07-01", None]).tz_localize("Europe/Zurich"),
            "ns": pd.to_datetime(["2024-02-29", "2024-02-29"]).astype("datetime64[ns]"),
            "date": [datetime.date(2024, 2, 29), None],
            "long": pd.to_timedelta([90, None], unit="s"),
        }
    )
    write(tmp_path / "t.csv", frame)
    rows = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert rows[1][:4] == ["2024-02-29 00:00:00.000", "2024-07-01 00:00:00+02:00", "2024-02-29", "2024-02-29"]
    assert rows[2] == ["2024-02-29 12:00:00.250", "", "2024-02-29", "", ""]
    assert pd.Timedelta(rows[1][4]) == pd.Timedelta(seconds=90)


def test_categories_are_written_as_their_values(tmp_path):
    frame = pd.DataFrame({"c": pd.Categorical(["x,y", None, "z"]), "n": pd.Categorical([3, None, 5])})
    write(tmp_path / "t.csv", frame)
    assert (tmp_path / "t.csv").read_text() == 'c,n\n"x,y",3\n,\nz,5\n'
    other = frame.assign(c=pd.Categorical(["new", "x,y", None]))
    for name in ("t.parquet", "t.feather"):
        back = read_table(write(tmp_path / name, frame, other))
        assert back["c"].isna().tolist() == [False, True, False, False, False, True]
        assert back["c"].dropna().tolist() == ["x,y", "z", "new", "x,y"]
        assert back["n"].dropna().tolist() == [3, 5, 3, 5]


def test_text_formats_accept_mixed_columns(tmp_path):
    values = [
        "x",
        1,
        2.5,
        True,
        None,
        math.nan,
        pd.NA,
        pd.NaT,
        10**30,
        decimal.Decimal("0.10"),
        np.int64(7),
        np.bool_(False),
    ]
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object), "b": "-"})
    write(tmp_path / "t.csv", frame)
    assert [line.removesuffix(",-") for line in (tmp_path / "t.csv").read_text().splitlines()[1:]] == [
        *("x", "1", "2.5", "True", "", "", "", "", f"{10**30}", "0.10", "7", "False")
    ]
    write(tmp_path / "t.jsonl", frame)
    assert [json.loads(line)["a"] for line in (tmp_path / "t.jsonl").read_text().splitlines()] == [
        *("x", 1, 2.5, True, None, None, None, None, 10**30, 0.1, 7, False)
    ]


def test_one_column_of_missing_values_keeps_its_rows(tmp_path):
    for name in TEXT_FORMATS:
        frame = pd.DataFrame({"only": ["a", None, "", "b", None]})
        assert len(read_table(write(tmp_path / name, frame))) == 5


def test_column_names_become_text(tmp_path):
    frame = pd.DataFrame([[1, 2]], columns=[0, ("a", 1)])
    for name in TEXT_FORMATS + ARROW_FORMATS:
        assert list(read_table(write(tmp_path / name, frame)).columns) == ["0", "('a', 1)"]


def test_index_is_not_written(tmp_path):
    for name in TEXT_FORMATS + ARROW_FORMATS:
        back = read_table(write(tmp_path / name, FRAME.set_axis([7, 9])))
        assert list(back.columns) == ["id", "score"]
        assert back.index.tolist() == [0, 1]


@pytest.mark.parametrize("name", TEXT_FORMATS + ARROW_FORMATS)
def test_frames_are_appended(tmp_path, name, monkeypatch):
    monkeypatch.setattr(writing, "ROWS_PER_WRITE", 3)
    frame = pd.DataFrame({"n": np.arange(20), "s": [f"text {i}" for i in range(20)]})
    parts = [frame[:0], frame[:1], frame[1:8], frame[8:8], frame[8:]]
    pieces = read_table(write(tmp_path / name, *parts))
    whole = read_table(write(tmp_path / f"whole.{name}", frame))
    pd.testing.assert_frame_equal(pieces, whole)
    assert pieces["n"].astype(int).tolist() == list(range(20))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", *ARROW_FORMATS])
def test_frame_without_rows_gives_an_empty_table(tmp_path, name):
    back = read_table(write(tmp_path / name, FRAME[:0]))
    assert (list(back.columns), len(back)) == (["id", "score"], 0)


def test_other_libraries_read_written_files(tmp_path):
    """Nothing here passes through this library's own reader."""
    assert pd.read_csv(write(tmp_path / "t.csv.gz", FRAME)).equals(FRAME)
    assert gzip.decompress((tmp_path / "t.csv.gz").read_bytes()).startswith(b"id,score\na,0.1\n")
    with pa.CompressedInputStream(str(write(tmp_path / "t.csv.zst", FRAME)), "zstd") as stream:
        assert stream.read() == b"id,score\na,0.1\nb,-2.0\n"
    assert pd.read_parquet(write(tmp_path / "t.parquet", FRAME)).equals(FRAME)
    assert pd.read_feather(write(tmp_path / "t.feather", FRAME)).equals(FRAME)
    assert pd.read_json(write(tmp_path / "t.jsonl", FRAME), lines=True).equals(FRAME)


def test_first_frame_fixes_parquet_types(tmp_path):
    first = pd.DataFrame({"f": [0.5], "none": pd.Series([None], dtype=object), "i": [1]})
    second = pd.DataFrame({"f": [1], "none": ["text"], "i": pd.array([None], dtype="Int64")})
    for name in ("t.parquet", "t.feather"):
        back = read_table(write(tmp_path / name, first, second))
        assert back["f"].tolist() == [0.5, 1.0]
        assert back["none"].isna().tolist() == [True, False]
        assert back["i"].isna().tolist() == [False, True]
    assert pq.read_schema(tmp_path / "t.parquet").types == [pa.float64(), pa.large_string(), pa.int64()]


# Rejected input


def refused(path, *frames, match, **arguments):
    with pytest.raises(TableError, match=match) as caught:
        write(path, *frames, **arguments)
    assert "\n" not in str(caught.value)
    assert left_behind(path.parent) == []


def test_first_frame_fixes_the_columns(tmp_path):
    for name in TEXT_FORMATS + ARROW_FORMATS:
        for second in (FRAME[["score", "id"]], FRAME[["id"]], FRAME.assign(more=1)):
            refused(tmp_path / name, FRAME, second, match=r"but the first frame had 'id', 'score'; write the same")


def test_rejects_frames_with_repeated_columns(tmp_path):
    for name in TEXT_FORMATS + ARROW_FORMATS:
        repeated = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
        refused(tmp_path / name, repeated, match="has more than one column named 'a'; give each column a unique name")
        refused(tmp_path / name, pd.DataFrame(index=[0]), match="has no columns")
        refused(tmp_path / name, match="nothing was written to .*; write at least one frame, which may be empty")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_arrays_are_not_written(tmp_path, name):
    with pytest.raises(TableError, match=f"{name} cannot be written: .* is supported only as input"):
        TableWriter(tmp_path / name)


def test_suffix_decides_the_written_format(tmp_path):
    with pytest.raises(TableError, match="is supported only as input"):
        TableWriter(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match="format must be one of"):
        TableWriter(tmp_path / "a.csv", format="excel")
    write(tmp_path / "a.txt", FRAME, format="tsv")
    assert (tmp_path / "a.txt").read_text() == "id\tscore\na\t0.1\nb\t-2.0\n"


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, b"bytes", 1j])
def test_rejects_values_that_text_cannot_hold(tmp_path, name, value):
    frame = pd.DataFrame({"odd": pd.Series([None, value], dtype=object)})
    refused(
        tmp_path / name, frame, match=f"column 'odd' of .* contains unsupported values of type {type(value).__name__};"
    )


def test_rejects_text_that_utf8_cannot_hold(tmp_path):
    frame = pd.DataFrame({"a": pd.Series(["\ud83d"], dtype=object)})
    for name in ("t.csv", "t.jsonl"):
        refused(tmp_path / name, frame, match="an unpaired surrogate")
    refused(tmp_path / "t.parquet", frame, match="column 'a' cannot be written to")
    refused(tmp_path / "t.csv", pd.DataFrame({"a": ["x\0y"]}), match="contains a null character")


def test_rejects_infinity_in_json(tmp_path):
    frame = pd.DataFrame({"x": [1.0, math.inf]})
    refused(tmp_path / "t.jsonl", frame, match="a frame for .* has an infinite value")
    assert read_table(write(tmp_path / "t.csv", frame))["x"].tolist() == ["1.0", "inf"]


@pytest.mark.parametrize("name", ["t.parquet", "t.feather"])
def test_typed_formats_reject_columns_of_mixed_types(tmp_path, name):
    refused(
        tmp_path / name, pd.DataFrame({"m": pd.Series([1, "x"], dtype=object)}), match="column 'm' cannot be written"
    )
    ints, halves = pd.DataFrame({"m": [1]}), pd.DataFrame({"m": [0.5]})
    refused(tmp_path / name, ints, halves, match="column 'm' cannot .* as int64, its type in the first .*one type")


def test_writing_needs_the_with_statement(tmp_path):
    writer = TableWriter(tmp_path / "t.csv")
    with pytest.raises(TableError, match="is not open for writing; use the writer in a with statement"):
        writer.write(FRAME)
    with writer:
        writer.write(FRAME)
    with pytest.raises(TableError, match="is not open for writing"):
        writer.write(FRAME)
    assert left_behind(tmp_path) == ["t.csv"]


# Atomic writes


@pytest.mark.parametrize("name", TEXT_FORMATS + ARROW_FORMATS)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, BrokenPipeError])
def test_error_leaves_no_file(tmp_path, name, error):
    path = tmp_path / name
    path.write_bytes(b"old")

    def fail_halfway():
        with TableWriter(path) as writer:
            writer.write(FRAME)
            assert path.read_bytes() == b"old"
            assert len(left_behind(tmp_path)) == 2
            raise error

    with pytest.raises(error):
        fail_halfway()
    assert path.read_bytes() == b"old"
    assert left_behind(tmp_path) == [name]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_error_in_the_last_step_leaves_no_file(tmp_path, step, monkeypatch):
    write(tmp_path / "t.csv", FRAME)

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(TableError, match=r"t.csv cannot be written \(Input/output error\); check the path"):
        write(tmp_path / "t.csv", FRAME[:1])
    assert left_behind(tmp_path) == ["t.csv"]
    assert (tmp_path / "t.csv").read_text() == "id,score\na,0.1\nb,-2.0\n"


def test_file_is_flushed_to_disk_with_the_default_mode(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_size), fsync(handle)))
    path = write(tmp_path / "new" / "folder" / "t.csv", FRAME)
    assert path.stat().st_size in synced
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_removes_leftovers_of_a_killed_run(tmp_path):
    for name in (".t[1].csv.abc.tmp", ".t1.csv.abc.tmp", ".t[1].csv.tmp"):
        (tmp_path / name).touch()
    write(tmp_path / "t[1].csv", FRAME)
    assert left_behind(tmp_path) == [".t1.csv.abc.tmp", ".t[1].csv.tmp", "t[1].csv"]


def test_keeps_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "t.csv")
    write(tmp_path / "link.csv", FRAME)
    assert (tmp_path / "link.csv").is_symlink()
    assert left_behind(tmp_path / "real") == ["t.csv"]


def test_rejects_folders_as_output(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match=r"folder.csv is a folder; pass the name of the file to write\."):
        TableWriter(tmp_path / "folder.csv")
    with pytest.raises(TableError, match="is not a valid path: it contains a null character"):
        TableWriter("a\0.csv")
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match=r"t.csv cannot be written \((File exists|Not a directory)\); check the path"):
        write(tmp_path / "file" / "t.csv", FRAME)
    with pytest.raises(TableError, match=r"cannot be written \(File name too long\)"):
        write(tmp_path / f"{'x' * 300}.csv", FRAME)


def test_forbidden_folder_gives_one_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(
        TableError, match=r"t.csv cannot be written \(Permission denied\); write to a folder that you own"
    ):
        write(tmp_path / "t.csv", FRAME)


@pytest.mark.parametrize("format", ["csv", "parquet", "feather", "jsonl"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_device_gives_one_sentence(format):
    with pytest.raises(TableError, match=r"^/dev/full cannot be written \(No space left on device\); free some space"):
        write("/dev/full", FRAME, format=format)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode), "a device is written to, not replaced"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.feather", "t.csv.gz", "t.jsonl.zst"])
def test_full_disk_leaves_no_file(tmp_path, name):
    frame = pd.DataFrame({"x": np.random.default_rng(0).random(20_000)})
    resource = pytest.importorskip("resource")  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        with pytest.raises(TableError, match=rf"{name} cannot be written \(File too large\)"):
            write(tmp_path / name, frame, frame)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert left_behind(tmp_path) == []


# Standard output


def test_standard_output_is_csv_by_default(capsysbinary):
    write("-", FRAME, FRAME[:1])
    assert capsysbinary.readouterr().out == b"id,score\na,0.1\nb,-2.0\na,0.1\n"
    write("-", FRAME[:1], format="jsonl")
    assert capsysbinary.readouterr().out == b'{"id": "a", "score": 0.1}\n'
    write("-", FRAME, format="parquet")
    assert pq.read_table(pa.BufferReader(capsysbinary.readouterr().out)).to_pandas().equals(FRAME)
    assert not sys.stdout.buffer.closed


def test_writes_to_text_only_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    print("before")
    write("-", pd.DataFrame({"city": ["Zürich"]}))
    assert sys.stdout.getvalue() == "before\ncity\nZürich\n"


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "feather"])
@pytest.mark.parametrize("rows", [1, 50_000])
def test_broken_pipe_ends_without_an_error(monkeypatch, format, rows):
    reading, writing_end = os.pipe()
    os.close(reading)
    frame = pd.DataFrame({"x": np.random.default_rng(0).random(rows)})
    with io.TextIOWrapper(os.fdopen(writing_end, "wb")) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        reached = False
        with TableWriter("-", format=format) as writer:
            writer.write(frame)
            writer.write(frame)
            reached = True
        assert reached == (rows == 1), "many rows meet the broken pipe at once, few at the end"
        print("goes nowhere")
        stdout.flush()
        monkeypatch.undo()


def test_other_errors_are_raised(capsysbinary):
    def fail():
        with TableWriter("-") as writer:
            writer.write(FRAME)
            raise BrokenPipeError("of something else")

    with pytest.raises(BrokenPipeError, match="of something else"):
        fail()


def test_interrupted_table_on_standard_output_is_incomplete(capsysbinary):
    def fail():
        with TableWriter("-", format="parquet") as writer:
            writer.write(FRAME)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    written = capsysbinary.readouterr().out
    assert written.startswith(b"PAR1")
    assert not written.endswith(b"PAR1")


def test_no_error_if_the_reader_of_the_pipe_stops():
    program = (
        "import pandas as pd\n"
        "from uulearn.io.reading import open_table\n"
        "from uulearn.io.writing import TableWriter\n"
        "with open_table('-', chunk_rows=1000) as rows, TableWriter('-') as out:\n"
        "    for frame in rows:\n"
        "        out.write(frame)\n"
    )
    command = f'"{sys.executable}" -c "$PROGRAM" | head -n 2'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        input=b"a,b\n" + b"1,2\n" * 50_000,
        capture_output=True,
        env={**os.environ, "PROGRAM": program},
        check=False,
    )
    assert done.stdout == b"a,b\n1,2\n"
    assert re.sub(rb"\s", b"", done.stderr) == b""
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["s.csv", "s.tsv", "s.jsonl"])
def test_formulas_are_escaped_only_for_spreadsheets(tmp_path, name):
    texts = ["=1+1", "+41 79", "-x", "@SUM(A1)", "\t=1", "-5", "+1e3", "Basel", None]
    frame = pd.DataFrame({"=id": texts, "score": [-1.5] * 9})
    with TableWriter(tmp_path / name, escape_formulas=True) as writer:
        writer.write(frame)
    found = read_table(tmp_path / name)
    spreadsheet = name != "s.jsonl"
    expected = ["'=1+1", "'+41 79", "'-x", "'@SUM(A1)", "'\t=1", "-5", "+1e3", "Basel"] if spreadsheet else texts[:8]
    assert list(found) == ["'=id" if spreadsheet else "=id", "score"]
    assert found.iloc[:8, 0].tolist() == expected


def test_no_column_vanishes_if_an_escaped_name_is_taken(tmp_path):
    frame = pd.DataFrame({"=A1": ["x"], "'=A1": ["y"]})
    with pytest.raises(TableError, match=r"more than one column would be named \"'=A1\".*; rename one of the columns"):
        write(tmp_path / "s.csv", frame, escape_formulas=True)
    assert list(tmp_path.iterdir()) == []
    assert read_table(write(tmp_path / "s.jsonl", frame, escape_formulas=True)).columns.tolist() == ["=A1", "'=A1"]


def test_cells_cannot_control_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with TableWriter("-") as writer:
        writer.write(pd.DataFrame({"id": ["\x1b[2Ja", "\u202eb"]}))
    assert capsys.readouterr().out == "id\n\\x1b[2Ja\n\\u202eb\n"
