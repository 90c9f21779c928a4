"""Reading files: values, types, and the messages for bad files."""

import datetime
import decimal
import gzip
import io
import os
import struct
import sys
import threading
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uulearn.exceptions import TableError
from uulearn.io import csv_files, other_formats
from uulearn.io.reading import CHUNK_ROWS, format_of, open_table, read_table
from uulearn.io.writing import TableWriter


def save(folder, content, name="rows.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def cells(frame):
    """Return rows as lists, with None for missing cells."""
    return [[None if pd.isna(value) else value for value in row] for row in frame.astype(object).values.tolist()]


def refusal(path, **arguments):
    """Return the message for a bad file, which must name the file and be one line."""
    with pytest.raises(TableError) as caught:
        read_table(path, **arguments)
    sentence = str(caught.value)
    assert str(path) in sentence or str(path) == "-"
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return sentence.replace(str(path), "FILE")


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", ("csv", None)),
        ("A.CSV.GZ", ("csv", "gzip")),
        ("a.tsv.zst", ("tsv", "zstd")),
        ("a.b.parquet", ("parquet", None)),
        ("a.feather", ("feather", None)),
        ("a.arrow", ("feather", None)),
        ("a.jsonl", ("jsonl", None)),
        (Path("folder.csv") / "a.ndjson.gz", ("jsonl", "gzip")),
        ("a.npy", ("npy", None)),
        ("a.npz", ("npz", None)),
        ("a.xlsx", ("xlsx", None)),
        ("-", ("csv", None)),
    ],
)
def test_suffix_decides_the_format(name, expected):
    assert format_of(name) == expected


def test_archives_must_be_unpacked():
    with pytest.raises(TableError, match=r"rows\.csv\.zip is an archive; unpack it, and pass the file of rows in it\."):
        format_of("rows.csv.zip")


@pytest.mark.parametrize("name", ["a.xls", "a", "a.gz", "a.txt.gz", ".csv", "a.json"])
def test_rejects_other_suffixes(name):
    with pytest.raises(TableError, match=r"has no supported suffix.*\.csv.*\.npz"):
        format_of(name)


def test_format_argument_overrules_the_suffix(tmp_path):
    path = save(tmp_path, "a\tb\n1\t2\n", "rows.txt")
    assert cells(read_table(path, format="tsv")) == [["1", "2"]]
    assert cells(read_table(save(tmp_path, gzip.compress(b"a\n1\n"), "rows.txt.gz"), format="csv")) == [["1"]]
    with pytest.raises(ValueError, match="format must be one of csv, tsv.*got 'excel'"):
        read_table(path, format="excel")


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, "3"])
def test_chunk_rows_must_be_a_positive_integer(tmp_path, rows):
    with pytest.raises(ValueError, match="chunk_rows must be an integer of at least 1"):
        open_table(save(tmp_path, "a\n1\n"), chunk_rows=rows)


# Files that cannot be opened


def test_rejects_paths_that_are_not_files(tmp_path, monkeypatch):
    assert refusal(tmp_path / "absent.csv") == "FILE does not exist; check the path."
    (tmp_path / "clinic_a.csv").touch()
    assert refusal(tmp_path / "clinic_A.txt") == "FILE does not exist (did you mean 'clinic_a.csv'?); check the path."
    (tmp_path / "folder.csv").mkdir()
    assert refusal(tmp_path / "folder.csv") == "FILE is a folder; pass a file of rows."
    assert "is a folder" in refusal(tmp_path / "folder.csv", format="parquet")
    assert "cannot be opened (embedded null byte); check the path." in refusal("a\0.csv")
    assert "Not a directory" in refusal(save(tmp_path, "a\n") / "b.csv")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(tmp_path / "rows.csv") == "FILE cannot be read; request read permission."


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.jsonl", "e.csv.gz", "e.jsonl.zst"])
def test_rejects_empty_text(tmp_path, name):
    assert "FILE is empty; pass a file with" in refusal(save(tmp_path, b"", name))


@pytest.mark.parametrize("content", [b"\n\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xff\xfe", b"\xff\xfe\n\0"])
def test_rejects_blank_text_like_empty_text(tmp_path, content):
    assert "FILE is empty" in refusal(save(tmp_path, content))
    assert "FILE is empty" in refusal(save(tmp_path, content, "rows.jsonl"))


@pytest.mark.parametrize("name", ["e.parquet", "e.feather", "e.npy", "e.npz", "e.parquet.gz"])
@pytest.mark.parametrize("content", [b"", b"age,city\n41,Basel\n", b"PAR1", b"ARROW1", b"FEA1" + bytes(50)])
def test_rejects_content_of_another_format(tmp_path, name, content):
    if name.endswith(".gz"):
        content = gzip.compress(content)
    found = refusal(save(tmp_path, content, name))
    assert "FILE is not a readable" in found
    assert found.endswith("; replace it with an intact copy.")


# Text


def test_every_cell_of_a_csv_is_text_or_missing(tmp_path):
    path = save(tmp_path, 'n,text,x\n1,a,\n-2.50,"",NA\n007,None,?\n"",nan,"null"\n')
    with open_table(path) as reader:
        assert (reader.name, reader.columns, reader.typed, reader.notes) == (str(path), ["n", "text", "x"], False, [])
        (frame,) = reader
    assert cells(frame) == [
        ["1", "a", None],
        ["-2.50", None, None],
        ["007", None, None],
        [None, None, None],
    ]
    assert all(pd.api.types.is_string_dtype(column) for _, column in frame.items())


@pytest.mark.parametrize("mark", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"])
def test_reads_markers_as_missing_values(tmp_path, mark):
    content = f'a,b,c\n{mark},"{mark}", {mark}\nx{mark},{mark}{mark or "y"}x,z\n'
    assert cells(read_table(save(tmp_path, content))) == [[None] * 3, [f"x{mark}", f"{mark}{mark or 'y'}x", "z"]]


@pytest.mark.parametrize("word", ["na", "Null", "NONE", "n/a", "-", ".", "??", "none"])
def test_reads_other_words_as_values(tmp_path, word):
    assert cells(read_table(save(tmp_path, f"a,b\n{word},1\n"))) == [[word, "1"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("tail", ["", "END", "ENDENDEND"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be-marked"])
def test_reads_all_line_ends_and_encodings(tmp_path, end, tail, encoding):
    text = f'naïve,b{end}"1{end}2",Ж{end}{end}"a,""b""",𝄞{tail.replace("END", end)}'
    data = b"\xfe\xff" + text.encode("utf-16-be") if encoding == "utf-16-be-marked" else text.encode(encoding)
    frame = read_table(save(tmp_path, data))
    assert list(frame.columns) == ["naïve", "b"]
    assert cells(frame) == [[f"1{end}2", "Ж"], ['a,"b"', "𝄞"]]


def test_quotes_follow_the_csv_module(tmp_path):
    path = save(tmp_path, 'a,b\n5" pipe,x"y"\n"in"side,""""\n" padded ",  \n')
    assert cells(read_table(path)) == [['5" pipe', 'x"y"'], ["inside", '"'], [" padded ", "  "]]


def test_reads_line_ends_in_fields_of_long_files(tmp_path):
    path = save(tmp_path, "a,b\n" + '"line\nend",1\n' * 120_000)
    with open_table(path) as reader:
        frames = list(reader)
    assert [len(frame) for frame in frames] == [100_000, 20_000]
    assert all((frame["a"] == "line\nend").all() for frame in frames)


def test_leading_blank_lines_are_skipped(tmp_path):
    path = save(tmp_path, "\n\r\n\na,b\n1,2\n3\n")
    assert "line 6 of FILE: expected 2 fields, found 1" in refusal(path)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_reads_compressed_text(tmp_path, compression):
    text = b"a,b\n" + b"1,2\n" * 50_000
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, compression) as stream:
        stream.write(text)
    data = sink.getvalue().to_pybytes()
    suffix = {"gzip": ".gz", "zstd": ".zst"}[compression]
    whole = save(tmp_path, data, f"rows.csv{suffix}")
    assert len(read_table(whole)) == 50_000
    assert len(read_table(save(tmp_path, data))) == 50_000, "recognized without its suffix"
    two = save(tmp_path, data + data.replace(b"nothing", b""), f"two.csv{suffix}")
    assert len(read_table(two)) == 100_001, "a second gzip stream continues the first"
    damaged = save(tmp_path, data[:-5], f"cut.csv{suffix}")
    assert (
        f"FILE is damaged {compression} data (Truncated compressed stream); replace it with an intact copy"
        in refusal(damaged)
    )
    plain = save(tmp_path, text, f"plain.csv{suffix}")
    assert f"has a {compression} suffix but is not compressed with {compression} (first bytes: 61 2c" in refusal(plain)


def test_rejects_other_encodings_with_position_and_line(tmp_path):
    latin = save(tmp_path, "a,b\n1,2\n3,Zürich\n".encode("latin-1"))
    assert (
        refusal(latin)
        == "FILE is not UTF-8: byte 0xfc at position 11 (line 3); save it as UTF-8 (in Excel: CSV UTF-8)."
    )
    marked = save(tmp_path, "\ufeffa,b\n1,2\n".encode() + b"\x80,\n")
    assert "0x80 at position 11 (line 3)" in refusal(marked)
    header = save(tmp_path, "größe\n1\n".encode("latin-1"))
    assert "0xf6 at position 2 (line 1)" in refusal(header)
    lines = save(tmp_path, b'{"a": 1}\n{"a": "\xe9"}\n', "rows.jsonl")
    assert "0xe9 at position 16 (line 2)" in refusal(lines)


@pytest.mark.parametrize("tail", [b"\x00\xd8", b"x"])
def test_rejects_invalid_utf16(tmp_path, tail):
    data = "a,b\n1,2\n".encode("utf-16") + tail
    assert "has a UTF-16 byte-order mark but is not valid UTF-16" in refusal(save(tmp_path, data))


def test_rejects_nul_bytes_with_position_and_line(tmp_path):
    assert "FILE contains a null byte at position 4 (line 2)" in refusal(save(tmp_path, b"a,b\n\0,1\n"))
    assert "null byte at position 1 (line 1)" in refusal(save(tmp_path, "a,b\n1,2\n".encode("utf-16-le")))
    assert "null byte at position 6" in refusal(save(tmp_path, b'{"a": \0}', "rows.jsonl"))


@pytest.mark.parametrize(
    ("content", "line", "found"),
    [
        ("a,b\n1,2\n3\n", "3", "expected 2 fields, found 1"),
        ("a,b\n1,2,3\n1,2\n", "2", "expected 2 fields, found 3"),
        ('a,b\n"1\n\n",2\n\n"x\r\ny",2\n1,2,3\n', "8", "expected 2 fields, found 3"),
        ("a,b\r1,2\r\r3\r", "4", "expected 2 fields, found 1"),
        ("a,b\n" + "1,2\n" * 300 + '1, "x,y"\n', "302", "expected 2 fields, found 3"),
        ("a\n1\n2,3\n", "3", "expected 1 field, found 2"),
        ("1,2\n3\n", "2", "expected 2 fields, found 1"),
    ],
)
def test_rejects_ragged_lines_with_line_number(tmp_path, content, line, found, monkeypatch):
    path = save(tmp_path, content)
    assert f"line {line} of FILE: {found}; fix the line" in refusal(path)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 200)
    assert f"line {line} of FILE: {found}; fix the line" in refusal(path)


def test_rejects_open_quotes_with_line_number(tmp_path, monkeypatch):
    assert "line 3 of FILE: a quote is never closed" in refusal(save(tmp_path, 'a,b\n1,2\n3,"4\n5,6\n'))
    assert "line 1 of FILE: a quote is never closed" in refusal(save(tmp_path, '"a,b\n1,2\n'))
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 2000)
    path = save(tmp_path, 'a,b\n1,2\n3,"4\n' + "5,6\n" * 5000)
    assert "line 3 of FILE: a record is longer than 2,000 bytes; it probably contains a quote" in refusal(path)
    long = save(tmp_path, f'a,b\n1,"{"x,y" * 300}"\n3,4\n')
    assert len(read_table(long)) == 2


# Separators


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_detects_another_separator_and_notes_it(tmp_path, separator, word):
    path = save(tmp_path, f'"a, b"{separator}c\n1,500{separator}x\n2,500{separator}y\n')
    with open_table(path) as reader:
        assert reader.notes == [f"{path} is read with {word} as field separators."]
        assert cells(pd.concat(reader)) == [["1,500", "x"], ["2,500", "y"]]


def test_reads_decimal_commas_if_they_are_unambiguous(tmp_path):
    path = save(tmp_path, "a;b\n3,5;x, y\n1.234,5;0,25\n -2,125 ;NA\n7;1.1.2024\n")
    with open_table(path) as reader:
        assert reader.notes[1:] == [f"{path} is read with decimal commas (3,5 is 3.5)."]
        assert cells(pd.concat(reader)) == [["3.5", "x, y"], ["1234.5", "0.25"], [" -2.125 ", None], ["7", "1.1.2024"]]


@pytest.mark.parametrize("rows", ["1,234;x\n5,678;y\n", "3,5;2.5\n"])  # thousands or decimals; both kinds of decimals
def test_does_not_guess_decimal_commas(tmp_path, rows):
    path = save(tmp_path, f"a;b\n{rows}")
    with open_table(path) as reader:
        assert len(reader.notes) == 1
        assert cells(pd.concat(reader))[0][0] == rows.split(";")[0]


def test_rejects_a_point_that_may_separate_thousands_next_to_decimal_commas(tmp_path):
    path = save(tmp_path, "a;b\n3,5;2\n4,5;1.234\n")
    with pytest.raises(TableError, match=r"has decimal commas, but also '1\.234' in column 'b'"):
        read_table(path)


def test_thousands_next_to_a_column_of_decimal_commas_are_not_decimals(tmp_path):
    path = save(tmp_path, "a\tb\tc\n52,13\t12,345\t1\n1,250\t1,000\t2\n", "rows.tsv")
    assert cells(read_table(path)) == [["52.13", "12,345", "1"], ["1.250", "1,000", "2"]]


def test_clear_decimal_commas_after_the_sampled_rows_are_converted(tmp_path):
    path = save(tmp_path, "a;b\n" + "3,5;7\n" * 150 + "3,5;2,5\n3,5;1,234\n")
    assert [row[1] for row in cells(read_table(path))[-2:]] == ["2.5", "1,234"]


def test_points_in_columns_that_are_not_used_are_not_an_error(tmp_path):
    path = save(tmp_path, "a;version\n3,5;1.234\n4,5;1.235\n")
    with open_table(path) as reader:
        assert cells(pd.concat(reader)) == [["3.5", "1.234"], ["4.5", "1.235"]]
        assert reader.ambiguous == {"version": "1.234"}


def test_tsv_may_contain_commas(tmp_path):
    path = save(tmp_path, "a,b\n1,2\n", "rows.tsv")
    with open_table(path) as reader:
        assert reader.columns == ["a", "b"]
        assert reader.notes == [f"{path} is read with commas as field separators."]


def test_expected_separator_has_priority(tmp_path):
    path = save(tmp_path, "a;x,b;y\n1;2,3;4\n")
    with open_table(path) as reader:
        assert reader.columns == ["a;x", "b;y"]
        assert reader.notes == []


@pytest.mark.parametrize("content", ["a;b\n1;2\n3\n", "a;b\tc\n1;2\t3\n", "a;b\n1;2;3\n"])
def test_rejects_separators_with_unequal_fields(tmp_path, content):
    found = refusal(save(tmp_path, content))
    assert "cannot detect the separator of FILE: its first line has no commas, and semicolons" in found
    assert "use commas as separators" in found


def test_one_column_needs_no_separator(tmp_path):
    assert cells(read_table(save(tmp_path, 'text\nsemi;colon\n"com,ma"\ntab\tbed\n'))) == [
        ["semi;colon"],
        ["com,ma"],
        ["tab\tbed"],
    ]


@pytest.mark.parametrize(
    ("content", "columns", "rows"),
    [
        ("a,b,\n1,2,\n3,4,\n", ["a", "b", "Unnamed: 2"], [["1", "2", None], ["3", "4", None]]),
        ("a,b,\n", ["a", "b", "Unnamed: 2"], []),
        ("1,2,\n3,4,5\n", ["0", "1", "2"], [["1", "2", None], ["3", "4", "5"]]),
        (",,\n1,2,3\n", ["Unnamed: 0", "Unnamed: 1", "Unnamed: 2"], [["1", "2", "3"]]),
    ],
)
def test_trailing_separator_gives_an_unnamed_column(tmp_path, content, columns, rows):
    with open_table(save(tmp_path, content)) as reader:
        assert reader.columns == columns
        assert [row for frame in reader for row in cells(frame)] == rows


def test_rejects_trailing_separators_only_in_rows(tmp_path):
    assert "line 2 of FILE: expected 2 fields, found 3" in refusal(save(tmp_path, "a,b\n1,2,\n3,4,\n"))
    ragged = save(tmp_path, "a,b,\n" + "1,2,\n" * 200 + "1,2\n")
    assert "line 202 of FILE: expected 3 fields, found 2" in refusal(ragged)


# Headers


def test_names_are_stripped(tmp_path):
    assert list(read_table(save(tmp_path, ' a ,"\tb\u00a0",c d\n1,2,3\n')).columns) == ["a", "b", "c d"]


def test_rejects_repeated_column_names(tmp_path):
    found = refusal(save(tmp_path, "a,b, a,c,b\n1,2,3,4,5\n"))
    assert found == "FILE has more than one column named 'a', 'b'; use unique column names."
    many = ",".join(f"x{i},x{i}" for i in range(20))
    assert "'x0', 'x1', 'x2', 'x3', 'x4' and 15 more;" in refusal(save(tmp_path, f"{many}\n"))
    assert "more than one column named 'Unnamed: 0'" in refusal(save(tmp_path, ",Unnamed: 0\n1,2\n"))


def test_columns_without_name_are_named_by_position(tmp_path):
    path = tmp_path / "rows.csv"
    pd.DataFrame({"age": [41, 38]}).to_csv(path)
    with open_table(path) as reader:
        assert reader.columns == ["Unnamed: 0", "age"]
        assert reader.notes == [f"{path} has columns without a name; they are named 'Unnamed: 0'."]
    with open_table(save(tmp_path, "a, ,,d\n1,2,3,4\n")) as reader:
        assert reader.columns == ["a", "Unnamed: 1", "Unnamed: 2", "d"]
        assert "has columns without a name; they are named 'Unnamed: 1', 'Unnamed: 2'." in reader.notes[0]


@pytest.mark.parametrize("first", ["1,2.5", "-1e3,nan", "1.5,", '"3","2"', " 3, 2", "inf,0", "NA,3"])
def test_first_line_of_numbers_is_not_a_header(tmp_path, first):
    path = save(tmp_path, f"{first}\n7,8\n")
    with open_table(path) as reader:
        assert reader.columns == ["0", "1"]
        assert reader.notes == [
            f"{path} has no header (its first line contains only numbers); the columns are named 0, 1, ..."
        ]
        assert len(pd.concat(reader)) == 2


@pytest.mark.parametrize("first", ["0,1", "1,2", ",0", "age,2019", "a,", "?,NA"])
def test_names_and_counted_numbers_are_a_header(tmp_path, first):
    with open_table(save(tmp_path, f"{first}\n7,8\n")) as reader:
        assert cells(pd.concat(reader)) == [["7", "8"]]


def test_one_number_is_not_a_header(tmp_path):
    assert cells(read_table(save(tmp_path, "0\n1\n"))) == [["0"], ["1"]]


def test_header_without_rows_is_an_empty_table(tmp_path):
    path = save(tmp_path, "a,b")
    with open_table(path) as reader:
        assert reader.columns == ["a", "b"]
        assert list(reader) == []
    frame = read_table(path)
    assert frame.shape == (0, 2)
    assert frame.dtypes.equals(read_table(save(tmp_path, "a,b\nx,y")).dtypes)


def test_reads_wide_tables(tmp_path):
    names, row = [f"c{i}" for i in range(10_000)], [str(i) for i in range(10_000)]
    frame = read_table(save(tmp_path, f"{','.join(names)}\n{','.join(row)}\n{','.join(row)}\n"))
    assert list(frame.columns) == names
    assert frame.iloc[1].tolist() == row
    assert "line 3 of FILE: expected 10,000 fields, found 9,999" in refusal(
        save(tmp_path, f"{','.join(names)}\n{','.join(row)}\n{','.join(row[1:])}\n")
    )


# Chunks


def write_all_formats(folder, rows):
    """Write the same table, of whole numbers, in every format."""
    table = np.arange(3.0 * rows).reshape(rows, 3)
    frame = pd.DataFrame(table, columns=["0", "1", "2"])
    for name in ("t.csv", "t.tsv.gz", "t.parquet", "t.feather", "t.jsonl.zst", "t.parquet.gz"):
        with TableWriter(folder / name) as writer:
            for start in range(0, rows, 7):
                writer.write(frame.iloc[start : start + 7])
    np.save(folder / "t.npy", table)
    np.save(folder / "f.npy", np.asfortranarray(table))
    np.savez_compressed(folder / "t.npz", X=table, other=table[:2])
    with pa.ipc.new_stream(str(folder / "t.arrow"), pa.Table.from_pandas(frame).schema) as stream:
        stream.write(pa.Table.from_pandas(frame))
    return frame, sorted(folder.iterdir())


@pytest.mark.parametrize("chunk_rows", [1, 5, 7, 20, 21, CHUNK_ROWS])
def test_chunks_of_any_size_give_the_same_table(tmp_path, chunk_rows, monkeypatch):
    frame, paths = write_all_formats(tmp_path, 20)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 200)
    for path in paths:
        with open_table(path, chunk_rows=chunk_rows) as reader:
            chunks = list(reader)
        assert [len(chunk) for chunk in chunks[:-1]] == [chunk_rows] * (len(chunks) - 1), path
        assert all(list(chunk.columns) == reader.columns == ["0", "1", "2"] for chunk in chunks)
        whole = pd.concat(chunks)
        assert whole.index.tolist() == list(range(20))
        assert reader.typed == (".csv" not in path.name and ".tsv" not in path.name)
        pd.testing.assert_frame_equal(whole.astype("float64"), frame, check_index_type=False)
        pd.testing.assert_frame_equal(whole, read_table(path))


def test_frames_of_wide_or_long_rows_are_shorter(tmp_path, monkeypatch):
    _, paths = write_all_formats(tmp_path, 20)
    monkeypatch.setattr("uulearn.io.arrow.FRAME_BYTES", 100)
    monkeypatch.setattr("uulearn.io.other_formats.FRAME_BYTES", 100)
    monkeypatch.setattr(other_formats, "SURVEYED_BYTES", 100)
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 120)
    for path in paths:
        with open_table(path) as reader:
            sizes = [len(chunk) for chunk in reader]
        assert sum(sizes) == 20, path
        assert max(sizes) <= 10, path


def test_memory_is_bounded_by_the_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr("uulearn.io.arrow.COLUMN_BUFFER_BYTES", 1 << 14)
    rng = np.random.default_rng(0)
    table = pa.table({f"c{i}": rng.normal(size=200_000) for i in range(6)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=200_000, use_dictionary=False)
    table.to_pandas().to_csv(
        tmp_path / "t.csv.gz", index=False, float_format="%.6g", compression={"method": "gzip", "compresslevel": 1}
    )
    for name in ("t.parquet", "t.csv.gz"):
        before = pa.total_allocated_bytes()
        most = 0
        tracemalloc.start()  # Python's own memory; Arrow counts what it allocates
        with open_table(tmp_path / name, chunk_rows=5000) as reader:
            for frame in reader:
                most = max(most, pa.total_allocated_bytes() - before)
                del frame
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < table.nbytes / 2, name
        assert peak < table.nbytes / 2, name


def test_table_is_read_once_and_closed(tmp_path):
    path = save(tmp_path, "a\n1\n")
    reader = open_table(path)
    assert len(list(reader)) == 1
    with pytest.raises(TableError, match="has already been read; open it again"):
        iter(reader)
    with open_table(path) as reader:
        pass
    with pytest.raises(TableError, match="has already been read"):
        iter(reader)


def test_files_are_closed_at_the_end_and_after_errors(tmp_path):
    # Warnings are errors here, and a file that is left open warns when it is collected.
    _, paths = write_all_formats(tmp_path, 20)
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for path in paths:
        with open_table(path):
            pass
        list(open_table(path))
        with pytest.raises(TableError):
            read_table(save(tmp_path, path.read_bytes()[: path.stat().st_size // 2] + b"\0", f"cut{path.name}"))
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


# JSON lines


def test_json_values_keep_their_types(tmp_path):
    text = (
        '{"a": 1, "b": "x"}\n\n {"b": null, "c": 2.5, "a": true}\r\n{}\n{"a": 123456789012345678901234567890, "c": NaN}'
    )
    frame = read_table(save(tmp_path, text, "rows.jsonl"))
    assert list(frame.columns) == ["a", "b", "c"]
    assert set(frame.dtypes) == {np.dtype(object)}
    assert cells(frame) == [[1, "x", None], [True, None, 2.5], [None] * 3, [123456789012345678901234567890, None, None]]
    assert type(frame["a"][1]) is bool


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"a": 1}\n{"a": 1\n', "line 2 of FILE is not JSON (Expecting ',' delimiter, column 8)"),
        ("[1, 2]\n", "line 1 of FILE is '[1, 2]', which is not an object"),
        ("a,b\n1,2\n", "line 1 of FILE is not JSON"),
        ('\n\n{"a": {"b": 1}}\n', "line 3 of FILE: 'a' contains a list or an object"),
        ('{"a": []}\n', "line 1 of FILE: 'a' contains a list or an object"),
        ('{"a": 1, "b": 2, "a": 3}\n', "line 1 of FILE: key 'a' occurs more than once"),
        ('{"a": 1, " a": 2}\n', "FILE has more than one column named 'a'"),
        ("{}\n{}\n", "FILE is empty"),
        ('{"a": "\\ud83d"}\n', "line 1 of FILE is not JSON ('utf-8' codec can't encode"),
        ('{"\\udc00": 1}\n', "line 1 of FILE is not JSON ('utf-8' codec can't encode"),
        ('{"a": ' + "9" * 5000 + "}\n", "line 1 of FILE is not JSON (Exceeds the limit"),
        ("[" * 100_000, "line 1 of FILE is not JSON (maximum recursion depth exceeded"),
        ('{"a": 1} {"a": 2}\n', "line 1 of FILE is not JSON (Extra data, column 10)"),
    ],
)
def test_rejects_bad_json_lines_with_line_number(tmp_path, content, found):
    assert found in refusal(save(tmp_path, content, "rows.jsonl"))


def test_escaped_characters_are_read(tmp_path):
    text = '{"a": "\\ud83d\\ude00 \\u00e9 \\\\u"}\r{"a": "\u2028"}\r'
    assert cells(read_table(save(tmp_path, text, "rows.jsonl"))) == [["😀 é \\u"], ["\u2028"]]


def test_rejects_new_key_after_the_surveyed_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(other_formats, "SURVEYED_LINES", 3)
    path = save(tmp_path, '{"a": 1}\n{}\n{"b": 2}\n{"b": 3}\n\n{"b": 1, "c": 2}\n', "rows.jsonl")
    for chunk_rows in (1, 2, 100):
        with open_table(path, chunk_rows=chunk_rows) as reader:
            assert reader.columns == ["a", "b"]
            with pytest.raises(TableError, match="line 6 of .*: key 'c' does not occur in earlier lines; add it"):
                list(reader)


# NumPy


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i2", "u1", "?", ">f8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_keep_their_type(tmp_path, dtype, order):
    array = np.asarray(np.arange(12).reshape(4, 3) % 5, dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        frame = read_table(tmp_path / name)
        assert list(frame.columns) == ["0", "1", "2"]
        assert set(frame.dtypes) == {np.dtype(dtype).newbyteorder("=")}
        np.testing.assert_array_equal(frame.to_numpy(), array)


def test_long_floats_become_float64(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 1), np.longdouble))
    assert read_table(tmp_path / "a.npy")["0"].dtype == np.float64


def test_reads_array_without_rows(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((0, 2), np.float32))
    frame = read_table(tmp_path / "a.npy")
    assert (frame.shape, set(frame.dtypes)) == ((0, 2), {np.dtype(np.float32)})


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_nothing_is_unpickled(tmp_path):
    sprung = tmp_path / "sprung"
    np.save(tmp_path / "a.npy", np.array([[Trap(sprung)]], object), allow_pickle=True)
    assert "FILE contains an array of object, not of numbers" in refusal(tmp_path / "a.npy")
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.ones(3), r"shape (3,), but a table needs two dimensions"),
        (np.ones((2, 3, 4)), r"shape (2, 3, 4), but a table needs two dimensions"),
        (np.ones((2, 0)), r"shape (2, 0), but a table needs two dimensions"),
        (np.float64(1), r"shape (), but a table needs two dimensions"),
        (np.ones((2, 2), complex), "contains an array of complex128, not of numbers"),
        (np.array([["a"]]), "contains an array of <U1, not of numbers"),
        (np.zeros((2, 2), [("x", "f8")]), "not of numbers"),
    ],
)
def test_rejects_other_arrays(tmp_path, array, found):
    np.save(tmp_path / "a.npy", array)
    assert found in refusal(tmp_path / "a.npy")


def test_rejects_arrays_of_wrong_length(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 2)))
    data = (tmp_path / "a.npy").read_bytes()
    assert "FILE is not a readable .npy file" in refusal(save(tmp_path, data[:-1], "b.npy"))
    for text in ("(-4, 2)", "(4, -2)", f"({2**70}, 2)", "(4, 2.0)", "(True, 2)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {text}, }}".ljust(117) + "\n"
        forged = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(64)
        refusal(save(tmp_path, forged, "c.npy"))


@pytest.mark.parametrize(("arrays", "names"), [({"a": 1, "b": 2}, "'a', 'b'"), ({"x": 1, "y": 2}, "'x', 'y'")])
def test_rejects_archive_with_several_arrays(tmp_path, arrays, names):
    np.savez(tmp_path / "a.npz", **{name: np.ones((2, 2)) for name in arrays})
    assert f"must contain one array, or one named X, but contains {names}; save" in refusal(tmp_path / "a.npz")


def test_rejects_empty_archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w"):
        pass
    assert "but contains none;" in refusal(tmp_path / "a.npz")


def test_full_temporary_folder_gives_one_sentence(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", np.ones((2, 2)))

    def fail():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uulearn.io.sources.tempfile.TemporaryFile", fail)
    assert "cannot be copied to" in refusal(tmp_path / "a.npz")
    assert "(No space left on device); free up space there" in refusal(tmp_path / "a.npz")


# Parquet and Feather


def write_arrow(folder, table):
    """Write one Parquet and one Feather file."""
    pq.write_table(table, folder / "t.parquet")
    with pa.ipc.new_file(str(folder / "t.feather"), table.schema) as file:
        file.write_table(table)
    return [folder / "t.parquet", folder / "t.feather"]


DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 30)
TYPES = {
    "bool": (pa.array([True, None]), "boolean", [True, None]),
    "int8": (pa.array([-1, None], pa.int8()), "Int8", [-1, None]),
    "int64": (pa.array([2**53 + 1, None]), "Int64", [2**53 + 1, None]),
    "int64 without nulls": (pa.array([1, 2]), "Int64", [1, 2]),
    "uint64": (pa.array([2**64 - 1, None], pa.uint64()), "UInt64", [2**64 - 1, None]),
    "float32": (pa.array([0.5, None], pa.float32()), "float32", [0.5, None]),
    "float64": (pa.array([0.1, float("nan")]), "float64", [0.1, None]),
    "decimal": (pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 2)), "float64", [1.5, None]),
    "decimal256": (pa.array([decimal.Decimal("0.1"), None], pa.decimal256(50, 30)), "float64", [0.1, None]),
    "text": (pa.array(["Zürich", None]), "text", ["Zürich", None]),
    "large text": (pa.array(["a\0b", None], pa.large_string()), "text", ["a\0b", None]),
    "category": (pa.array(["b", None]).dictionary_encode(), "text", ["b", None]),
    "category of numbers": (pa.array([3, None]).dictionary_encode(), "Int64", [3, None]),
    "category of dates": (pa.array([DAY, None]).dictionary_encode(), "datetime64[ms]", [pd.Timestamp(DAY), None]),
    "nulls": (pa.nulls(2), "text", [None, None]),
    "date32": (pa.array([DAY, None]), "datetime64[ms]", [pd.Timestamp(DAY), None]),
    "date64": (pa.array([DAY, None], pa.date64()), "datetime64[ms]", [pd.Timestamp(DAY), None]),
    "timestamp": (pa.array([MOMENT, None], pa.timestamp("us")), "datetime64[us]", [pd.Timestamp(MOMENT), None]),
    "zoned": (
        pa.array([MOMENT, None], pa.timestamp("ns", "Europe/Zurich")),
        "datetime64[ns, Europe/Zurich]",
        [pd.Timestamp(MOMENT, tz="UTC"), None],
    ),
    "duration": (pa.array([1500, None], pa.duration("ms")), "float64", [1.5, None]),
    "time": (pa.array([datetime.time(1, 0, 0, 500_000), None], pa.time64("us")), "float64", [3600.5, None]),
    "time32": (pa.array([datetime.time(1), None], pa.time32("s")), "float64", [3600.0, None]),
}


@pytest.mark.parametrize("case", TYPES)
def test_parquet_and_feather_keep_types(tmp_path, case):
    values, dtype, expected = TYPES[case]
    for path in write_arrow(tmp_path, pa.table({"x": values})):
        frame = read_table(path)
        assert cells(frame) == [[value] for value in expected], path
        if dtype == "text":
            assert pd.api.types.is_string_dtype(frame["x"]) or frame["x"].dtype == object
        else:
            assert str(frame["x"].dtype) == dtype
        nothing = tmp_path / "nothing"
        nothing.mkdir()
        for empty in write_arrow(nothing, pa.table({"x": values})[:0]):
            pd.testing.assert_series_equal(read_table(empty).dtypes, frame.dtypes)
            empty.unlink()
        nothing.rmdir()


NESTED = {
    "list<": pa.array([["a"]]),
    "struct<": pa.array([{"a": 1}]),
    "map<": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"\xff"]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_rejects_nested_columns_by_name(tmp_path, kind):
    for path in write_arrow(tmp_path, pa.table({"fine": [1], "odd one": NESTED[kind]})):
        found = refusal(path)
        assert found.startswith(f"column 'odd one' of FILE has type {kind}")
        assert "drop it" in found


def test_column_names_are_cleaned_in_typed_formats(tmp_path):
    for path in write_arrow(tmp_path, pa.table({" a ": [1], "": [2]})):
        with open_table(path) as reader:
            assert reader.columns == ["a", "Unnamed: 1"]
            assert "has columns without a name" in reader.notes[0]
    for path in write_arrow(tmp_path, pa.table({"a": [1], "a ": [2]})):
        assert "more than one column named 'a'" in refusal(path)
    for path in write_arrow(tmp_path, pa.table({})):
        assert "FILE has no columns" in refusal(path)


def test_pandas_index_without_name_is_ignored(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame({"a": [1, 2, 3]})
    frame.set_index(pd.Index([5, 1, 7])).to_parquet(path)
    with open_table(path) as reader:
        assert reader.columns == ["a"]
        assert reader.notes == [f"{path} has an unnamed pandas index, which is ignored."]
        assert cells(pd.concat(reader)) == [[1], [2], [3]]
    frame.to_parquet(path)
    with open_table(path) as reader:
        assert (reader.columns, reader.notes) == (["a"], [])
    frame.set_index(pd.Index([7, 9, 4], name="patient")).to_parquet(tmp_path / "named.parquet")
    assert cells(read_table(tmp_path / "named.parquet")) == [[1, 7], [2, 9], [3, 4]]


def test_rejects_damage_in_the_middle_while_reading(tmp_path):
    pq.write_table(
        pa.table({"a": np.arange(50_000)}),
        tmp_path / "t.parquet",
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
    )
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
    path = save(tmp_path, bytes(data), "damaged.parquet")
    with open_table(path) as reader:
        assert reader.columns == ["a"]
        with pytest.raises(TableError, match="damaged.parquet is not a readable Parquet file"):
            list(reader)


def test_rejects_batches_with_invalid_offsets(tmp_path):
    """Arrow does not validate Feather files, and pandas would follow invalid offsets."""
    for offsets, content in (([0, 1000, 2], b"ab"), ([0, 1, 2], b"a\xff")):
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(content)]
        batch = pa.record_batch({"a": pa.Array.from_buffers(pa.string(), 2, buffers)})
        with pa.ipc.new_file(str(tmp_path / "t.feather"), batch.schema) as file:
            file.write_batch(batch)
        assert "FILE is not a readable Feather file (In column 0" in refusal(tmp_path / "t.feather")


# Standard input


@pytest.fixture
def pipe(monkeypatch):
    """Return a function that sends bytes to standard input, slowly, through a real pipe."""
    threads = []

    def feed(data):
        reading, writing = os.pipe()
        stdin = io.TextIOWrapper(os.fdopen(reading, "rb"))
        monkeypatch.setattr(sys, "stdin", stdin)

        def send():
            with os.fdopen(writing, "wb", buffering=0) as file, pytest.MonkeyPatch.context():
                for start in range(0, len(data), 1000):
                    try:
                        file.write(data[start : start + 1000])
                    except BrokenPipeError:
                        return

        thread = threading.Thread(target=send)
        thread.start()
        threads.append((thread, stdin))

    yield feed
    for thread, stdin in threads:
        stdin.close()
        thread.join()


def test_standard_input_is_csv_by_default(pipe):
    pipe(b"a,b\n" + b"1,2\n" * 3000)
    with open_table("-", chunk_rows=1000) as reader:
        assert reader.name == "standard input"
        assert [len(frame) for frame in reader] == [1000, 1000, 1000]
    pipe(b'{"a": 1}\n')
    assert cells(read_table("-", format="jsonl")) == [[1]]
    pipe(gzip.compress(b"a\tb\n1\t2\n"))
    assert cells(read_table("-", format="tsv")) == [["1", "2"]]
    pipe(b"a,b\n1\n")
    with pytest.raises(TableError, match=r"^line 2 of standard input: expected 2 fields, found 1"):
        read_table("-")
    assert not sys.stdin.buffer.closed


def test_standard_input_accepts_a_pipe_of_any_format(pipe, tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    pipe((tmp_path / "t.parquet").read_bytes())
    assert cells(read_table("-", format="parquet")) == [[1]]
    pipe(b"PAR1")
    with pytest.raises(TableError, match="standard input is not a readable Parquet file"):
        read_table("-", format="parquet")


def test_standard_input_accepts_a_parquet_file(tmp_path, monkeypatch):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    with (tmp_path / "t.parquet").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        assert cells(read_table("-", format="parquet")) == [[1]]


def test_read_failure_gives_one_sentence(monkeypatch):
    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", type("", (), {"buffer": Failing()}))
    with pytest.raises(TableError, match=r"standard input cannot be read \(Input/output error\)"):
        read_table("-")


# Excel


def write_sheets(path, **sheets):
    """Write an .xlsx file; each sheet is a list of rows."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


DAY_AND_TIME = datetime.datetime(2024, 2, 29, 12, 30)


def test_cells_of_a_sheet_keep_their_types(tmp_path):
    rows = [["n", " word ", "when", "flag"], [1, "a", DAY_AND_TIME, True], [2.5, "NA", None, False], [None] * 4]
    path = write_sheets(tmp_path / "t.xlsx", rows=rows)
    with open_table(path) as reader:
        assert (reader.columns, reader.typed, reader.notes) == (["n", "word", "when", "flag"], True, [])
        assert cells(pd.concat(reader)) == [[1, "a", DAY_AND_TIME, True], [2.5, None, None, False]]
    assert cells(read_table(path, sheet="rows")) == cells(read_table(path))
    with open_table(path, chunk_rows=1) as reader:
        assert [frame.index.tolist() for frame in reader] == [[0], [1]]


def test_sheet_is_chosen_by_name(tmp_path):
    path = write_sheets(tmp_path / "t.xlsx", one=[["a"], [1]], two=[["b"], [2]])
    assert list(read_table(path, sheet="two").columns) == ["b"]
    with open_table(path) as reader:
        assert reader.columns == ["a"]
        assert reader.notes == [f"{path} has 2 sheets; the first, 'one', is read (choose with --sheet)."]
    with pytest.raises(TableError, match=r"has no sheet 'three'; its sheets are 'one', 'two'\."):
        read_table(path, sheet="three")
    with pytest.raises(TableError, match="has no sheets; remove --sheet one"):
        read_table(save(tmp_path, "a\n1\n"), sheet="one")


def test_rejects_bad_sheets(tmp_path):
    assert "is empty: sheet 'rows' has no cells" in refusal(write_sheets(tmp_path / "e.xlsx", rows=[]))
    assert "more than one column named 'a'" in refusal(write_sheets(tmp_path / "r.xlsx", rows=[["a", "a"], [1, 2]]))
    assert "has no header" in refusal(write_sheets(tmp_path / "h.xlsx", rows=[[5, 7], [1, 2]]))
    whole = (tmp_path / "h.xlsx").read_bytes()
    for number, content in enumerate((b"", b"a,b\n1,2\n", whole[:500], whole[:-200])):
        assert "is not a readable .xlsx file" in refusal(save(tmp_path, content, f"{number}.xlsx"))
