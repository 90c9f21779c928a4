"""Columns of lists of numbers, in which files store embeddings."""

import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from uulearn.exceptions import TableError
from uulearn.io.embeddings import ARRAY, list_lengths, measure
from uulearn.io.reading import open_table, read_table
from uulearn.tabular.frames import to_frame

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
KINDS = {
    "list": pa.array(list(ROWS)),
    "large list": pa.array(list(ROWS), pa.large_list(pa.float32())),
    "fixed-size list": pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 3),
    "half precision": pa.array([list(row.astype(np.float16)) for row in ROWS], pa.list_(pa.float16(), 3)),
    "double precision": pa.array(ROWS.astype(np.float64).tolist()),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS),
}


def write(path, **columns):
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


def refusal(path):
    with pytest.raises(TableError) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
@pytest.mark.parametrize("kind", KINDS)
def test_lists_become_one_column_per_position(tmp_path, kind, suffix):
    frame = read_table(write(tmp_path / f"rows{suffix}", id=list("abcd"), e=KINDS[kind], age=[1, 2, 3, 4]))
    assert list(frame.columns) == ["id", "e[0]", "e[1]", "e[2]", "age"]
    np.testing.assert_array_equal(frame[["e[0]", "e[1]", "e[2]"]], ROWS)
    assert frame["e[0]"].dtype == (np.float64 if kind == "double precision" else np.float32)


@pytest.mark.parametrize("values", [[[1, 0], [0, 1]], [[True, False], [False, True]]])
def test_lists_of_integers_and_booleans_are_numbers(tmp_path, values):
    frame = read_table(write(tmp_path / "rows.parquet", bits=pa.array(values)))
    np.testing.assert_array_equal(frame, np.eye(2))
    assert all(dtype.kind == "f" for dtype in frame.dtypes)


@settings(max_examples=25, deadline=None)
@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 5)), elements=st.floats(-10, 10, width=32)),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
)
def test_rows_keep_their_order_in_chunks_of_any_size(tmp_path_factory, rows, chunk, group, fixed):
    path = tmp_path_factory.mktemp("lists") / "rows.parquet"
    kind = pa.list_(pa.float32(), rows.shape[1]) if fixed else pa.list_(pa.float32())
    pq.write_table(pa.table({"e": pa.array(list(rows), kind)}), path, row_group_size=group)
    with open_table(path, chunk_rows=chunk) as reader:
        frames = list(reader)
    assert max(map(len, frames)) <= chunk
    np.testing.assert_array_equal(pd.concat(frames), rows)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], "column 'e' of FILE has 1 value in row 3, but 2 in row 1; all lists of an"),
        ([[1.0, 2.0], None], "column 'e' of FILE has no list in row 2; remove the row"),
        ([None, [1.0, 2.0]], "column 'e' of FILE has no list in row 1; remove the row"),
        ([[1.0, 2.0], [3.0, float("nan")]], "column 'e' of FILE has nan at position 1 of row 2, which is not a finite"),
        ([[1.0, float("inf")]], "column 'e' of FILE has inf at position 1 of row 1"),
        ([[1.0, None]], "column 'e' of FILE has nan at position 1 of row 1"),
        ([[], []], "column 'e' of FILE contains empty lists; remove the column from the file."),
        ([], "FILE has no rows, so the length of the lists in column 'e' is unknown; pass a file with at least one"),
    ],
)
def test_rejects_lists_that_are_not_embeddings(tmp_path, values, message):
    path = write(tmp_path / "rows.parquet", e=pa.array(values, pa.list_(pa.float64())))
    assert refusal(path).startswith(message)


def test_rows_of_messages_are_counted_over_the_whole_file(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"e": pa.array([[0.0]] * 9 + [[0.0, 1.0]])}), path, row_group_size=4)
    assert "has 2 values in row 10, but 1 in row 1" in refusal(path)


def test_rejects_a_column_with_the_name_of_a_position(tmp_path):
    path = write(tmp_path / "rows.parquet", e=KINDS["list"], **{"e[1]": [1, 2, 3, 4]})
    assert "more than one column named 'e[1]'" in refusal(path)
    with pytest.raises(TableError, match=r"more than one column named 'e\[1\]'"):
        to_frame(pd.read_parquet(path), "X")


@pytest.mark.parametrize("kind", ["list", "fixed-size list", "half precision", "double precision"])
def test_data_frames_have_the_columns_of_a_file(tmp_path, kind):
    path = write(tmp_path / "rows.parquet", id=list("abcd"), e=KINDS[kind], age=[1.0, 2.0, 3.0, 4.0])
    expected = read_table(path)
    for frame in (
        pd.read_parquet(path),
        pq.read_table(path),
        pq.read_table(path).to_pandas(types_mapper=pd.ArrowDtype),
    ):
        found = to_frame(frame, "X")
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_frames_contain_the_lengths_of_their_lists(tmp_path, suffix):
    """Ordinary columns may have the same names as the positions of a list."""
    path = write(tmp_path / f"rows{suffix}", **{"x[0]": [1, 2, 3, 4], "x[1]": [5, 6, 7, 8]}, e=KINDS["list"])
    with open_table(path, chunk_rows=3) as reader:
        assert [list_lengths(frame) for frame in reader] == [{"e": 3}, {"e": 3}]
    frame = read_table(path)
    assert list_lengths(frame) == {"e": 3}
    assert list_lengths(frame[frame["x[0]"] > 1]) == {"e": 3}
    assert list_lengths(to_frame(frame, "X")) == {"e": 3}
    assert list_lengths(frame.drop(columns="e[1]")) == list_lengths(frame.add_prefix("new ")) == {}
    given = pd.DataFrame({"e": list(ROWS), "x[0]": [1, 2, 3, 4]})
    assert list_lengths(to_frame(given, "X")) == list_lengths(to_frame(pa.Table.from_pandas(given), "X")) == {"e": 3}
    assert given.attrs == {}


def test_folders_of_files_contain_the_lengths_of_their_lists(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.parquet", e=KINDS["list"])
    assert list_lengths(read_table(tmp_path)) == {"e": 3}


def test_arrays_are_lists_without_a_name(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    np.savez(tmp_path / "rows.npz", ROWS)
    pd.DataFrame(ROWS).to_csv(tmp_path / "rows.csv", index=False, header=["a", "1", "2"])
    for rows in (read_table(tmp_path / "rows.npy"), read_table(tmp_path / "rows.npz"), ROWS, pd.DataFrame(ROWS)):
        assert list_lengths(to_frame(rows, "X")) == {ARRAY: 3}
    assert list_lengths(read_table(tmp_path / "rows.csv")) == {}
    assert list_lengths(to_frame(pd.DataFrame({0: list(ROWS)}), "X")) == {"0": 3}
    assert list_lengths(to_frame(pd.DataFrame(ROWS, columns=[0.0, 1.0, 2.0]), "X")) == {}


def test_batches_are_not_kept_after_they_have_been_read():
    parts = [weakref.ref(batch := pa.record_batch({"e": pa.array([[1.0]])})), batch]

    def batches():
        yield parts.pop()
        yield pa.record_batch({"e": pa.array([[2.0]])})

    del batch
    unread, lengths = measure(batches(), {0: pa.list_(pa.float64())}, ["e"], "FILE")
    assert lengths == {0: 1}
    assert next(unread).column(0).to_pylist() == [[1.0]]
    assert parts[0]() is None
    assert next(unread).column(0).to_pylist() == [[2.0]]
    assert next(unread, None) is None


def test_polars_arrays_are_embeddings():
    pl = pytest.importorskip("polars")
    frame = to_frame(pl.DataFrame({"e": pl.Series(ROWS.tolist(), dtype=pl.Array(pl.Float32, 3))}), "X")
    np.testing.assert_array_equal(frame, ROWS)


def test_columns_of_tuples_of_words_are_not_embeddings():
    frame = pd.DataFrame({"tags": [("a", "b"), ("c",)]})
    assert list(to_frame(frame, "X").columns) == ["tags"]
