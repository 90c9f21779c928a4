"""Properties of any table and any file: round trips are exact, and a bad file is rejected with one sentence."""

import csv
import gzip
import io
import json
import math
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from uulearn.exceptions import TableError
from uulearn.io import csv_files
from uulearn.io.csv_files import MISSING_FIELDS
from uulearn.io.formats import MISSING
from uulearn.io.reading import open_table, read_table
from uulearn.io.writing import TableWriter

CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
SPECIAL = st.sampled_from([*",;\t\"\r\n '#|=é𝄞\ufeff\u2028", "\r\n", '""', '",', "\\", "NA"])
TEXTS = st.one_of(
    st.lists(SPECIAL | CHARACTERS, max_size=6).map("".join),
    st.floats().map(repr),
    st.integers(-(10**40), 10**40).map(str),
    st.sampled_from(MISSING),
)
NAMES = st.text("abcdefghijk", min_size=1, max_size=5)
CHUNKS = st.sampled_from([1, 2, 3, 100])
BLOCKS = st.sampled_from([2000, 1 << 22])  # a record must fit into a block


@contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@st.composite
def tables(draw, cells, names=NAMES):
    """Draw column names and rows."""
    columns = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    rows = draw(st.lists(st.lists(cells, min_size=len(columns), max_size=len(columns)), max_size=6))
    return columns, rows


def plain(frame):
    return [[None if pd.isna(value) else value for value in row] for row in frame.astype(object).values.tolist()]


def read(path, chunk_rows, block_bytes):
    """Read columns and rows with the given sizes of chunks and blocks."""
    small = mock.patch.object(csv_files, "BLOCK_BYTES", block_bytes)
    with small, open_table(path, chunk_rows=chunk_rows) as reader:
        frames = list(reader)
    assert all(list(frame.columns) == reader.columns for frame in frames)
    assert all(len(frame) == chunk_rows for frame in frames[:-1])
    return reader.columns, [row for frame in frames for row in plain(frame)]


def outcome(path, chunk_rows, block_bytes):
    """Read columns and rows, or return the error message."""
    try:
        return read(path, chunk_rows, block_bytes)
    except TableError as error:
        return str(error)


def as_read(rows):
    """Return rows of strings as text formats read them."""
    return [[None if cell is None or cell in MISSING_FIELDS else cell for cell in row] for row in rows]


def encode(text, encoding):
    return {"gzip": gzip.compress, "zstd": compress_zstd, "": bytes}[encoding[1]](text.encode(encoding[0]))


def compress_zstd(data):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


ENCODINGS = st.tuples(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), st.sampled_from(["", "gzip", "zstd"]))
SUFFIX = {"": "", "gzip": ".gz", "zstd": ".zst"}


# Written and read back


@example((["a", "b"], [["", ""], ["", ",\r\n"]]), (".csv", ";"), csv.QUOTE_MINIMAL, "\n", ("utf-8", ""), 0, 1, 99)
@given(
    tables(TEXTS),
    st.sampled_from([(".csv", ","), (".tsv", "\t"), (".csv", ";"), (".csv", "\t")]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    ENCODINGS,
    st.integers(0, 2),
    CHUNKS,
    BLOCKS,
)
def test_reads_what_the_csv_module_writes(table, dialect, quoting, end, encoding, n_blank, chunk_rows, block_bytes):
    columns, rows = table
    suffix, separator = dialect
    # A separator other than that of the suffix can be detected only if one occurs.
    assume(len(columns) > 1 or (suffix, separator) in {(".csv", ","), (".tsv", "\t")})
    if quoting == csv.QUOTE_MINIMAL:
        end = "\r\n"  # the module quotes only the characters of its own line end
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator=end).writerows([columns, *rows])
    with folder() as where:
        path = where / f"t{suffix}{SUFFIX[encoding[1]]}"
        path.write_bytes(encode(stream.getvalue() + end * n_blank, encoding))
        assert read(path, chunk_rows, block_bytes) == (columns, as_read(rows))


@given(tables(st.one_of(st.none(), TEXTS)), ENCODINGS, CHUNKS, BLOCKS)
def test_reads_what_pandas_writes(table, encoding, chunk_rows, block_bytes):
    columns, rows = table
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    text = frame.to_csv(index=False, lineterminator="\r\n")
    with folder() as where:
        path = where / f"t.csv{SUFFIX[encoding[1]]}"
        path.write_bytes(encode(text, encoding))
        assert read(path, chunk_rows, block_bytes) == (columns, as_read(rows))


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(10**40), 10**40), st.floats(allow_infinity=False), TEXTS)


def same(left, right):
    """Return whether two values and their types are equal; NaN is a missing value."""
    left = None if isinstance(left, float) and math.isnan(left) else left
    right = None if isinstance(right, float) and math.isnan(right) else right
    return type(left) is type(right) and left == right


@given(tables(VALUES, names=CHARACTERS.map(lambda c: f"x{c}x")), st.booleans(), ENCODINGS, CHUNKS, BLOCKS, st.data())
def test_json_lines_are_read_with_their_types(table, ascii_only, encoding, chunk_rows, block_bytes, data):
    columns, rows = table
    assume(rows)
    kept = [[data.draw(st.booleans()) for _ in columns] for _ in rows]
    kept[0] = [True] * len(columns)  # fixes the order of the columns
    lines = [
        json.dumps({c: v for c, v, keep in zip(columns, row, which, strict=True) if keep}, ensure_ascii=ascii_only)
        for row, which in zip(rows, kept, strict=True)
    ]
    with folder() as where:
        path = where / f"t.jsonl{SUFFIX[encoding[1]]}"
        path.write_bytes(encode("\n".join(lines), encoding))
        found_columns, found = read(path, chunk_rows, block_bytes)
    assert found_columns == columns
    for row, which, back in zip(rows, kept, found, strict=True):
        assert all(same(v if keep else None, b) for v, keep, b in zip(row, which, back, strict=True))


@given(tables(VALUES), st.sampled_from([".csv", ".tsv", ".csv.gz", ".tsv.zst"]), CHUNKS, BLOCKS, st.integers(1, 4))
def test_csv_round_trip(table, suffix, chunk_rows, block_bytes, step):
    columns, rows = table
    frame = pd.DataFrame(rows, columns=columns, dtype=object)
    with folder() as where:
        path = where / f"t{suffix}"
        with TableWriter(path) as writer:
            writer.write(frame[:0])
            for start in range(0, len(frame), step):
                writer.write(frame[start : start + step])
        found_columns, found = read(path, chunk_rows, block_bytes)
    assert found_columns == columns
    for row, back in zip(rows, found, strict=True):
        for value, text in zip(row, back, strict=True):
            if isinstance(value, float) and not math.isnan(value):
                assert float(text) == value
            else:
                missing = value is None or isinstance(value, float)
                assert [text] == as_read([[None if missing else str(value)]])[0]


@given(tables(VALUES), st.sampled_from([".jsonl", ".jsonl.gz"]), CHUNKS)
def test_json_lines_round_trip(table, suffix, chunk_rows):
    columns, rows = table
    assume(rows)
    with folder() as where:
        path = where / f"t{suffix}"
        with TableWriter(path) as writer:
            writer.write(pd.DataFrame(rows, columns=columns, dtype=object))
        found_columns, found = read(path, chunk_rows, 2000)
    assert found_columns == columns
    for row, back in zip(rows, found, strict=True):
        assert all(map(same, row, back))


COLUMNS = {
    "float64": st.floats(),
    "float32": st.floats(width=32),
    "Int64": st.none() | st.integers(-(2**63), 2**63 - 1),
    "UInt8": st.none() | st.integers(0, 255),
    "boolean": st.none() | st.booleans(),
    "str": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    "datetime64[us]": st.none() | st.datetimes(),
    "datetime64[ms, Asia/Tokyo]": st.none() | st.datetimes(min_value=pd.Timestamp(1900, 1, 1).to_pydatetime()),
}


@st.composite
def typed_frames(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
    rows = draw(st.integers(0, 8))
    columns = {}
    for position, kind in enumerate(kinds):
        values = draw(st.lists(COLUMNS[kind], min_size=rows, max_size=rows))
        columns[f"c{position}"] = pd.Series(values, dtype=kind)
    return pd.DataFrame(columns)


@given(
    typed_frames(), st.sampled_from([".parquet", ".feather", ".parquet.zst", ".feather.gz"]), CHUNKS, st.integers(1, 4)
)
def test_typed_formats_round_trip_with_types(frame, suffix, chunk_rows, step):
    with folder() as where:
        path = where / f"t{suffix}"
        with TableWriter(path) as writer:
            writer.write(frame[:0])
            for start in range(0, len(frame), step):
                writer.write(frame[start : start + step])
        with open_table(path, chunk_rows=chunk_rows) as reader:
            chunks = list(reader)
        whole = read_table(path)
    pd.testing.assert_frame_equal(whole, frame)
    if chunks:
        pd.testing.assert_frame_equal(pd.concat(chunks), whole)


@given(
    st.sampled_from(["f8", "f4", "i4", "u1", "?"]),
    st.integers(0, 7),
    st.integers(1, 4),
    st.sampled_from("CF"),
    st.sampled_from([".npy", ".npz", ".npy.gz"]),
    CHUNKS,
)
def test_array_round_trip(dtype, rows, width, order, suffix, chunk_rows):
    array = np.asarray(np.random.default_rng(rows).integers(0, 200, (rows, width)), dtype, order=order)
    with folder() as where:
        path = where / f"t{suffix}"
        if suffix == ".npz":
            np.savez_compressed(path, array)
        else:
            stream = io.BytesIO()
            np.save(stream, array)
            path.write_bytes(gzip.compress(stream.getvalue()) if suffix.endswith(".gz") else stream.getvalue())
        with open_table(path, chunk_rows=chunk_rows) as reader:
            chunks = [frame.to_numpy() for frame in reader]
    np.testing.assert_array_equal(np.concatenate([np.empty((0, width), dtype), *chunks]), array)
    assert all(chunk.dtype == array.dtype for chunk in chunks)


# Any text

SCRAPS = st.lists(
    st.sampled_from(["a", "1", ",", ",", '"', '"', '""', "\n", "\n", "\r", "\r\n", ";", " ", "\t"]), max_size=30
)


@settings(max_examples=150)
@given(SCRAPS.map("".join), CHUNKS, BLOCKS)
def test_any_text_is_read_like_the_csv_module_or_rejected(text, chunk_rows, block_bytes):
    text = f"x,y\n{text}"
    with folder() as where:
        path = where / "t.csv"
        path.write_bytes(text.encode())
        result = outcome(path, chunk_rows, block_bytes)
    if isinstance(result, str):
        assert re.search(r"line [0-9]+ of .*: (expected|a quote|there is)", result)
        return
    columns, found = result
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert columns == ["x", "y"]
    assert found == as_read([row[:2] for row in rows[1:]])
    assert all(cell in MISSING_FIELDS for row in rows[1:] for cell in row[2:])


@settings(max_examples=60)
@given(SCRAPS.map("".join), st.sampled_from([".csv", ".tsv"]))
def test_chunks_and_blocks_never_change_the_result(text, suffix):
    with folder() as where:
        path = where / f"t{suffix}"
        path.write_bytes(text.encode())
        whole = outcome(path, 100, 1 << 22)
        assert outcome(path, 1, 1 << 22) == outcome(path, 3, 1 << 22) == whole
        assert outcome(path, 2, 200) == whole


# Any bytes


def valid_files():
    """Return a small file of every format, as bytes."""
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None, 3] * 4, dtype="Int64"),
            "f": np.linspace(0, 1, 12),
            "s": ["é", 'b"c\n', None] * 4,
            "t": pd.date_range("2020", periods=12, tz="Europe/Zurich"),
            "b": [True, False, True] * 4,
        }
    )
    files = {}
    with folder() as where:
        suffixes = [".csv", ".tsv", ".jsonl", ".parquet", ".feather"]
        for suffix in [*suffixes, ".csv.gz", ".csv.zst", ".jsonl.zst", ".parquet.gz", ".feather.zst"]:
            with TableWriter(where / f"t{suffix}") as writer:
                writer.write(frame[:7])
                writer.write(frame[7:])
        np.save(where / "t.npy", np.arange(12.0).reshape(4, 3))
        np.savez_compressed(where / "t.npz", X=np.arange(12.0).reshape(4, 3))
        frame.to_parquet(where / "t.pandas.parquet")
        table = pa.Table.from_pandas(frame)
        with pa.ipc.new_stream(str(where / "t.arrow"), table.schema) as stream:
            stream.write_table(table)
        (where / "t.utf16.csv").write_bytes((where / "t.csv").read_bytes().decode().encode("utf-16"))
        for path in where.iterdir():
            files[path.name] = path.read_bytes()
    return files


FILES = valid_files()


def read_or_refuse(name, data):
    """Return the table, or None after a proper TableError; any other exception fails the test."""
    with folder() as where:
        path = where / name
        path.write_bytes(data)
        try:
            return read_table(path)
        except TableError as error:
            sentence = str(error)
            assert str(path) in sentence
            assert "\n" not in sentence
            assert sentence.endswith(".")
            return None


@pytest.mark.parametrize("name", sorted(FILES))
def test_valid_files_are_read(name):
    assert len(read_or_refuse(name, FILES[name])) in {4, 12}


@settings(max_examples=150)
@given(st.sampled_from(sorted(FILES)), st.binary(max_size=80), st.integers(0, 12))
def test_any_bytes_are_read_or_rejected(name, data, kept):
    read_or_refuse(name, FILES[name][:kept] + data)


@settings(max_examples=150)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_truncated_files_are_rejected_or_give_the_first_rows(name, data):
    length = data.draw(st.integers(0, len(FILES[name]) - 1))
    found = read_or_refuse(name, FILES[name][:length])
    if name not in {"t.csv", "t.tsv", "t.jsonl", "t.utf16.csv"}:
        # Only a stream of batches may end between any two batches.
        assert found is None or (name == "t.arrow" and len(found) in {0, 12})
        return
    if found is None or len(found) == 0:
        return
    whole = read_or_refuse(name, FILES[name])
    rows = len(found) - 1  # the last line may be cut
    if list(found.columns) == list(whole.columns):
        assert plain(found[:rows]) == plain(whole[:rows])


@settings(max_examples=150)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_damaged_files_are_read_or_rejected(name, data):
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(name, bytes(content))
