"""Streamed sets: every row once per epoch, well mixed, also with several workers, and trained on as in memory."""

import itertools
import linecache
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.plain import plain_classifier
from helpers.processes import Program
from uulearn import UUClassifier, streaming
from uulearn.data import BatchPlan, shuffling
from uulearn.data.stream_holdout import hold_out_streams
from uulearn.data.streams import StreamedSets, piece_similarity
from uulearn.exceptions import CheckpointError, IndistinguishableSetsWarning, PoorMixingWarning
from uulearn.streaming import ParquetSet, RowStream, shuffled

CPU = torch.device("cpu")


class Counted(RowStream):
    """Rows whose value is their number, in pieces of the given sizes."""

    def __init__(self, sizes, start=0, buffer_bytes=400, columns=1):
        self.sizes, self.start, self.buffer_bytes, self.row_shape = list(sizes), start, buffer_bytes, (columns,)
        self.reads = []

    @property
    def piece_sizes(self):
        return self.sizes

    def read(self, piece):
        self.reads.append(piece)
        first = self.start + sum(self.sizes[:piece])
        return torch.arange(first, first + self.sizes[piece]).float()[:, None].expand(-1, *self.row_shape).clone()

    def describe(self):
        return f"counted: {self.sizes} {self.start}"


def numbers(batches):
    """The numbers of the rows of both sets, in the order of arrival."""
    sides = ([], [])
    for x, (n0, _) in batches:
        sides[0].append(x[:n0, 0].clone())
        sides[1].append(x[n0:, 0].clone())
    return [torch.cat(side).long().numpy() for side in sides]


pieces = st.lists(st.integers(1, 60), min_size=1, max_size=8)


@given(pieces, pieces, st.integers(2, 90), st.integers(4, 2_000), st.floats(0, 0.5), st.integers(1, 3))
def test_every_row_is_used_once_per_epoch_by_one_worker(sizes0, sizes1, batch_size, buffer_bytes, fraction, workers):
    streams = (Counted(sizes0, buffer_bytes=buffer_bytes), Counted(sizes1, 10_000, buffer_bytes))
    enough = fraction and min(sum(sizes0), sum(sizes1)) > 3
    excluded = hold_out_streams(streams, fraction, 3).excluded if enough else None
    data = StreamedSets(streams, excluded)
    plans = [BatchPlan(data.sizes, batch_size, worker, workers) for worker in range(workers)]
    for epoch in (1, 2):
        found = [numbers(data.epoch(plan, 7, epoch, CPU)) for plan in plans]
        for which, (stream, start) in enumerate(zip(streams, (0, 10_000), strict=True)):
            used = np.sort(np.concatenate([each[which] for each in found]))
            left = start + np.setdiff1d(np.arange(stream.n_rows), [] if excluded is None else excluded[which])
            np.testing.assert_array_equal(used, left)


def test_batches_follow_the_plan_for_very_unequal_sets():
    data = StreamedSets((Counted([500] * 20), Counted([37])))
    plan = BatchPlan(data.sizes, 1_000)
    counts = [counts for _, counts in data.epoch(plan, 0, 1, CPU)]
    assert counts == [plan.counts(batch) for batch in range(plan.n_batches)]
    assert {n1 for _, n1 in counts} == {3, 4}


def test_order_depends_on_seed_and_epoch():
    data = StreamedSets((Counted([30] * 10), Counted([30] * 10)))
    plan = BatchPlan(data.sizes, 50)

    def order(seed, epoch):
        return numbers(data.epoch(plan, seed, epoch, CPU))[0].tolist()

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(1, 2)
    assert order(1, 1) != order(2, 1)


def test_rows_of_distant_pieces_are_mixed():
    """With a buffer of ten of a hundred pieces, every batch holds rows of many distant pieces."""
    data = StreamedSets((Counted([20] * 100, buffer_bytes=4 * 200), Counted([20] * 100, buffer_bytes=4 * 200)))
    plan = BatchPlan(data.sizes, 80)
    rows = numbers(data.epoch(plan, 0, 1, CPU))[0]
    kinds = [len(np.unique(batch // 20)) for batch in np.split(rows, len(rows) // 40)]
    assert np.mean(kinds) > 7
    assert abs(np.corrcoef(np.arange(len(rows)), rows)[0, 1]) < 0.2  # and not in the order of the files


def test_only_one_piece_is_in_memory_beside_the_buffer():
    stream = Counted([50] * 40, buffer_bytes=4 * 100)
    data = StreamedSets((stream, Counted([50] * 40, buffer_bytes=4 * 100)))
    batches = data.epoch(BatchPlan(data.sizes, 40), 0, 1, CPU)
    for taken in range(1, 11):
        next(batches)
        assert len(stream.reads) * 50 <= taken * 20 + 100 + 3 * 50
    batches.close()


# ------------------------------------------------------------------------------------------------------------- Parquet


def write(folder, X, names=None, group=50, files=3):
    folder.mkdir(parents=True, exist_ok=True)
    names = names or [f"x{i}" for i in range(X.shape[1])]
    for number, part in enumerate(np.array_split(X, files)):
        columns = {name: part[:, i] for i, name in enumerate(names)}
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(0)
    out = []
    for n, share in ((900, 0.8), (500, 0.2)):
        labels = rng.random(n) < share
        order = np.argsort(labels, kind="stable")  # the worst case: all negatives first
        out.append((rng.normal(size=(n, 4)) + 1.5 * labels[:, None]).astype(np.float32)[order])
    return out


@pytest.fixture(scope="module")
def folders(sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    return [write(folder / str(which), X) for which, X in enumerate(sets)]


def streams(folders, **options):
    return [ParquetSet(folder, **options) for folder in folders]


def test_folder_is_read_in_order(sets, folders):
    for X, stream in zip(sets, streams(folders), strict=True):
        assert stream.n_rows == len(X)
        rows = torch.cat([stream.read(piece) for piece in range(len(stream.piece_sizes))])
        np.testing.assert_array_equal(rows.numpy(), X)
    some = ParquetSet(folders[0], columns=["x2", "x0"])
    np.testing.assert_array_equal(some.read(0).numpy(), sets[0][:50][:, [2, 0]])
    one = ParquetSet(folders[0] / "part-1.parquet")
    np.testing.assert_array_equal(one.read(0).numpy(), sets[0][300:350])


def test_streamed_training_is_close_to_training_in_memory(sets, folders):
    rng = np.random.default_rng(9)
    labels = rng.random(2000) < 0.5
    X = (rng.normal(size=(2000, 4)) + 1.5 * labels[:, None]).astype(np.float32)
    found = {"memory": [], "stream": []}
    for seed, (kind, both) in itertools.product(range(3), {"memory": sets, "stream": streams(folders)}.items()):
        clf = UUClassifier(
            (0.8, 0.2), model="linear", epochs=40, lr=0.03, n_estimators=1, batch_size=200, random_state=seed,
            validation_fraction=0.2,
        )  # fmt: skip
        clf.fit_sets(*both)
        found[kind].append((clf.predict(X) == labels).mean())
        assert clf.set_sizes_ == (720, 400)
        assert clf.held_out_sizes_ == (180, 100)
        assert clf.scaling_ is not None
    assert min(found["stream"]) > np.mean(found["memory"]) - 0.015


def test_auto_parameters_for_streams(folders):
    clf = UUClassifier((0.8, 0.2), model="linear", epochs=3, random_state=0).fit_sets(*streams(folders))
    assert clf.resolved_params_["n_estimators"] == 1
    assert clf.resolved_params_["early_stopping"] is True
    assert clf.held_out_sizes_ == (90, 50)
    plain = UUClassifier((0.8, 0.2), model="linear", epochs=3, validation_fraction=0.0).fit_sets(*streams(folders))
    assert plain.held_out_sizes_ == (0, 0)
    assert plain.resolved_params_["early_stopping"] is False


def test_resumed_streamed_run_equals_uninterrupted_run(folders, tmp_path):
    def fit(epochs, folder, given=folders):
        clf = plain_classifier((0.8, 0.2), model="linear", epochs=epochs, random_state=0, checkpoint_dir=folder)
        return clf.fit_sets(*streams(given))

    fit(2, tmp_path)
    resumed = fit(4, tmp_path)
    assert resumed.history_.resumed_at == [2]
    whole = fit(4, None)
    assert [r["objective"] for r in resumed.history_] == [r["objective"] for r in whole.history_]
    with pytest.raises(CheckpointError, match="different: data"):
        fit(5, tmp_path, given=folders[::-1])


def test_test_rows_and_callbacks_work_with_streams(sets, folders):
    records = []
    clf = plain_classifier((0.8, 0.2), model="linear", epochs=3, random_state=0)
    X = np.concatenate(sets)[::7]
    clf.fit_sets(
        *streams(folders), test_data=(X, np.arange(len(X)) % 2), callback=lambda record, model: records.append(record)
    )
    assert len(records) == 3
    assert "test_accuracy" in records[0]


@pytest.mark.parametrize("parameters", [{"n_estimators": 5}, {"self_training_rounds": 1}])
def test_rejects_unsupported_parameters_for_streams(folders, parameters):
    with pytest.raises(ValueError, match="streamed sets support only one model"):
        UUClassifier((0.8, 0.2), **parameters).fit_sets(*streams(folders))


def test_rejects_a_stream_with_an_array(sets, folders):
    with pytest.raises(TypeError, match="X1 is a ndarray, but the other set is a stream"):
        UUClassifier((0.8, 0.2)).fit_sets(ParquetSet(folders[0]), sets[1])
    with pytest.raises(ValueError, match=r"rows of shape \(4,\) and \(1,\)"):
        UUClassifier((0.8, 0.2)).fit_sets(ParquetSet(folders[0]), ParquetSet(folders[1], columns=["x0"]))


def test_rejects_invalid_folders(sets, tmp_path):
    with pytest.raises(ValueError, match="does not exist; pass a Parquet file"):
        ParquetSet(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has no rows in \*\.parquet files"):
        ParquetSet(tmp_path / "empty")
    write(tmp_path / "rowless", sets[0][:0], files=1)
    with pytest.raises(ValueError, match="has no rows"):
        ParquetSet(tmp_path / "rowless")
    folder = write(tmp_path / "mixed", sets[0], files=1)
    write(tmp_path / "other", sets[0], names=["a", "b", "c", "d"], files=1)
    (tmp_path / "other" / "part-0.parquet").rename(folder / "zzz.parquet")
    with pytest.raises(ValueError, match=r"zzz\.parquet has no column 'x0'"):
        ParquetSet(folder)
    (folder / "zzz.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(ValueError, match=r"zzz\.parquet cannot be read as Parquet"):
        ParquetSet(folder)
    holed = sets[0].copy()
    for value in (np.nan, 1e18):
        holed[70, 1] = value
        stream = ParquetSet(write(tmp_path / "holed", holed, files=1))
        with pytest.raises(ValueError, match=r"above 1e\+15, in row group 1: (nan|1e\+18) \(row \d+ .*, column 'x1'\)"):
            stream.read(1)
    words = tmp_path / "words.parquet"
    pq.write_table(pa.table({"name": ["a", "b"]}), words)
    with pytest.raises(ValueError, match="column 'name' of .* contains string, not numbers"):
        ParquetSet(words)
    with pytest.raises(ValueError, match=r"transform must return numbers of shape \(2, features\)"):
        ParquetSet(words, transform=lambda table: table["name"].to_numpy())
    with pytest.raises(ValueError, match="buffer_bytes must be at least 1, got 0"):
        ParquetSet(words, buffer_bytes=0)


def test_detects_a_file_that_changes_during_training(sets, tmp_path):
    stream = ParquetSet(write(tmp_path / "a", sets[0], files=1))
    write(tmp_path / "a", sets[0][:430], files=1, group=43)
    data = StreamedSets((stream, stream))
    with pytest.raises(ValueError, match="the set changed while it was read|cannot be read"):
        numbers(data.epoch(BatchPlan(data.sizes, 100), 0, 1, CPU))


def test_rejects_columns_in_another_order(sets, tmp_path):
    first, second = (ParquetSet(write(tmp_path / str(i), X)) for i, X in enumerate(sets))
    other = ParquetSet(second.path, second.columns[::-1])
    with pytest.raises(ValueError, match=r"column 1 is '.*' in the first set and '.*' in the second; select the same"):
        UUClassifier((0.8, 0.2)).fit_sets(first, other)
    with pytest.raises(ValueError, match="column 1 is"):
        UUClassifier((0.8, 0.2)).fit_sets(first, shuffled(other, tmp_path / "shuffled"))


def test_warns_if_both_sets_are_the_same(sets, tmp_path):
    rows = ParquetSet(write(tmp_path / "a", sets[0]))
    with pytest.warns(IndistinguishableSetsWarning):
        UUClassifier((0.8, 0.2), model="linear", epochs=1, random_state=0).fit_sets(rows, rows)


def test_footers_are_read_once_if_memory_allows(sets, tmp_path, monkeypatch):
    folder = write(tmp_path / "a", sets[0], files=2)
    original, read = pq.ParquetFile, []

    def spy(file, metadata=None):
        read.append(metadata is None)
        return original(file, metadata=metadata)

    monkeypatch.setattr(pq, "ParquetFile", spy)
    ours = ParquetSet(folder)
    monkeypatch.setattr(streaming, "MAX_COLUMN_CHUNKS", 5)
    theirs = ParquetSet(folder)
    read.clear()
    for piece in range(len(ours.piece_sizes)):
        assert torch.equal(ours.read(piece), theirs.read(piece))
    assert read == [False, True] * len(ours.piece_sizes)


def test_warns_about_large_row_groups(sets, tmp_path):
    folder = write(tmp_path / "large", sets[0], files=1, group=900)
    data = StreamedSets((ParquetSet(folder, buffer_bytes=16 * 200), ParquetSet(folder)))
    with pytest.warns(
        PoorMixingWarning, match="large has pieces of up to 900 rows, .* if its files are sorted"
    ) as caught:
        data.warn_if_poorly_mixed()
    assert len(caught) == 1  # the other set fits into its buffer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = write(tmp_path / "small", sets[0], files=1, group=25)
        StreamedSets((ParquetSet(small, buffer_bytes=16 * 200),) * 2).warn_if_poorly_mixed()


def fit_streamed(folders, **changes):
    streams = [ParquetSet(folder, buffer_bytes=16 * 200) for folder in folders]
    return UUClassifier((0.8, 0.2), model="linear", epochs=1, random_state=0, **changes).fit_sets(*streams)


def test_warns_about_sorted_rows_if_few_pieces_are_mixed(sets, tmp_path):
    """The held-out rows show whether the files are sorted."""
    in_order = [X[np.argsort(X[:, 0])] for X in sets]
    folders = [write(tmp_path / f"sorted{i}", X, files=1, group=20) for i, X in enumerate(in_order)]
    with pytest.warns(PoorMixingWarning, match="10 pieces are mixed at a time: because the rows of a piece") as caught:
        fit_streamed(folders)
    assert len(caught) == 2
    lines = [linecache.getline(one.filename, one.lineno) for one in caught if one.filename == __file__]
    assert [".fit_sets(" in line for line in lines] == [True, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_streamed([write(tmp_path / f"mixed{i}", X, files=1, group=100) for i, X in enumerate(sets)])
        rows = [
            shuffled(ParquetSet(folder, buffer_bytes=16 * 200), tmp_path / f"new{i}")
            for i, folder in enumerate(folders)
        ]
        UUClassifier((0.8, 0.2), model="linear", epochs=1, random_state=0).fit_sets(*rows)


@given(st.integers(2, 40), st.integers(5, 30), st.floats(0.0, 3.0), st.integers(0, 100))
def test_piece_similarity_is_the_fraction_of_variance_between_pieces(n_pieces, size, spread, seed):
    rng = np.random.default_rng(seed)
    pieces = np.repeat(np.arange(n_pieces), 20 * size)
    centers = rng.permutation(np.linspace(-1, 1, n_pieces)) * spread
    rows = torch.from_numpy(
        np.column_stack([rng.normal(size=len(pieces)), centers[pieces] + rng.normal(size=len(pieces))])
    )
    found = piece_similarity(pieces, n_pieces, rows)
    variance = centers.var(ddof=1)
    if variance > 0.5:
        assert found == pytest.approx(variance / (1 + variance), rel=0.25)
    if spread == 0:
        assert found == 0
    assert 0 <= found < 1
    assert piece_similarity(pieces, n_pieces, torch.zeros(len(pieces), 3)) == 0
    sites = np.eye(n_pieces)[pieces]  # the same for all rows of a piece
    assert piece_similarity(pieces, n_pieces, torch.from_numpy(sites)) > 0.99


def test_piece_similarity_allows_for_many_columns(monkeypatch):
    monkeypatch.setattr("uulearn.data.streams.P_VALUE", 0.01)
    pieces, rng = np.repeat(np.arange(20), 50), np.random.default_rng(0)
    found = [piece_similarity(pieces, 20, torch.from_numpy(rng.normal(size=(1000, 200)))) for _ in range(20)]
    assert found.count(0) >= 18  # one in a hundred is expected


# ------------------------------------------------------------------------------------------------------------- shuffled


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.sampled_from([16, 400, 4000]), st.integers(1, 3))
def test_shuffled_set_holds_every_row_once(sizes, buffer_bytes, columns):
    source = Counted(sizes, buffer_bytes=buffer_bytes, columns=columns)
    with tempfile.TemporaryDirectory() as place:
        mixed = shuffled(source, place)
        rows = torch.cat([mixed.read(piece) for piece in range(len(mixed.piece_sizes))])
        again = shuffled(source, place, seed=0)
        assert all(torch.equal(again.read(i), mixed.read(i)) for i in range(len(mixed.piece_sizes)))
    assert mixed.row_shape == (columns,)
    assert mixed.n_rows == sum(sizes)
    assert 0 not in mixed.piece_sizes
    assert torch.equal(rows[:, 0].sort().values, torch.cat([source.read(i)[:, 0] for i in range(len(sizes))]))
    assert mixed.describe() != source.describe()


def test_every_piece_of_a_shuffled_set_is_a_random_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "WRITE_BYTES", 1000)  # several writes
    mixed = shuffled(Counted([100] * 100, buffer_bytes=64_000), tmp_path)
    means = np.array([float(mixed.read(piece).mean()) for piece in range(len(mixed.piece_sizes))])
    sizes = np.array(mixed.piece_sizes)
    assert len(sizes) == 10
    deviations = (means - 4999.5) / (10_000 / np.sqrt(12 * sizes))
    assert np.abs(deviations).max() < 4
    assert deviations.std() > 0.3
    steps = np.diff(mixed.read(0)[:, 0].numpy())
    assert 0.4 < (steps > 0).mean() < 0.6  # also within a piece
    other = shuffled(Counted([100] * 100, buffer_bytes=64_000), tmp_path / "other", seed=1)
    assert not torch.equal(other.read(0)[:50], mixed.read(0)[:50])


def test_rejects_folder_with_other_content(tmp_path):
    rows = Counted([10, 10])
    shuffled(rows, tmp_path / "a")
    with pytest.raises(
        ValueError, match=r"a contains the rows of another set \(different: rows\); pass another folder"
    ):
        shuffled(Counted([10, 11]), tmp_path / "a")
    with pytest.raises(ValueError, match=r"different: seed"):
        shuffled(rows, tmp_path / "a", seed=3)
    with pytest.raises(ValueError, match="seed must be an integer of at least 0, got -1"):
        shuffled(rows, tmp_path / "b", seed=-1)
    content = (tmp_path / "a" / "rows.bin").read_bytes()
    (tmp_path / "a" / "rows.bin").write_bytes(content[:-1])
    with pytest.raises(ValueError, match="expected 80 bytes, found 79; delete index.json"):
        shuffled(rows, tmp_path / "a")
    (tmp_path / "a" / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="index.json is damaged or was not written by uulearn"):
        shuffled(rows, tmp_path / "a")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"mine is not empty \(it contains 'notes.txt'\); pass an empty folder"):
        shuffled(rows, tmp_path / "mine")
    with pytest.raises(TypeError, match="stream must be a RowStream such as ParquetSet.path., got str"):
        shuffled("rows", tmp_path / "b")
    with pytest.raises(ValueError, match="folder must be a directory, but .* is a file"):
        shuffled(rows, tmp_path / "a" / "rows.bin")
    with pytest.raises(ValueError, match="below cannot be written"):
        shuffled(rows, tmp_path / "a" / "rows.bin" / "below")


AT_ONCE = """
    import sys
    import pyarrow.parquet
    from uulearn.streaming import ParquetSet, shuffled

    print(shuffled(ParquetSet(sys.argv[1]), sys.argv[2]).read(0).sum().item())
"""


def test_one_of_several_processes_writes(sets, tmp_path):
    rows = write(tmp_path / "rows", sets[0])
    programs = [Program("-c", textwrap.dedent(AT_ONCE), rows, tmp_path / "shuffled") for _ in range(4)]
    reported = [program.read() for program in programs]
    assert {code for code, _, _ in reported} == {0}, reported
    assert len({out for _, out, _ in reported}) == 1
    assert sorted(path.name for path in (tmp_path / "shuffled").iterdir()) == ["index.json", "rows.bin"]


def test_removes_leftovers_of_killed_processes(tmp_path):
    for name in ("rows.bin", ".rows.bin.ab12.tmp", ".index.json.cd34.tmp"):
        (tmp_path / name).write_text("half")
    shuffled(Counted([10, 10]), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "rows.bin"]


def test_writes_nothing_without_disk_space(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=79))
    with pytest.raises(ValueError, match=r"the rows need 0.0 GB, but .* has 0.0 GB free"):
        shuffled(Counted([10, 10]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_failed_shuffle_leaves_nothing(tmp_path, monkeypatch):
    rows = Counted([10, 10])

    def stops(piece):
        if piece:
            raise KeyboardInterrupt
        return Counted.read(rows, piece)

    monkeypatch.setattr(rows, "read", stops)
    with pytest.raises(KeyboardInterrupt):
        shuffled(rows, tmp_path)
    assert not list(tmp_path.iterdir())


BOUNDED = """
    import resource, sys
    import numpy as np, torch
    from uulearn import UUClassifier
    from uulearn.streaming import ParquetSet

    torch.set_num_threads(1)
    few = np.random.default_rng(0).normal(size=(200, 32)).astype(np.float32)
    clf = UUClassifier((0.8, 0.2), model="linear", epochs=1, n_estimators=1, batch_size=1000, device="cpu")
    clf.fit_sets(few, few + 1)  # what training takes anyhow
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    streams = [ParquetSet(f"{sys.argv[1]}/{which}", buffer_bytes=4 * 2**20) for which in (0, 1)]
    clf.set_params(validation_fraction=0.01).fit_sets(*streams)
    print(sum(s.n_rows for s in streams) * 128, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_memory_stays_far_below_the_data_size(tmp_path):
    rng = np.random.default_rng(0)
    for which in (0, 1):
        (tmp_path / str(which)).mkdir()
        for part in range(6):
            X = (rng.normal(size=(100_000, 32)) + which).astype(np.float32)
            names = [f"x{i}" for i in range(32)]
            table = pa.table(list(X.T.copy()), names=names)
            pq.write_table(table, tmp_path / str(which) / f"{part}.parquet", row_group_size=4_000, compression="none")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(BOUNDED), str(tmp_path)],
        capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    size, more = map(int, done.stdout.split())
    assert size > 150e6
    assert more < 0.5 * size


def test_held_out_rows_follow_the_seed_of_the_fit(folders, sets):
    """A fit without a seed is repeated by its `seed_`, rows held out included."""
    drawn = UUClassifier((0.8, 0.2), model="linear", epochs=2).fit_sets(*streams(folders))
    again = UUClassifier((0.8, 0.2), model="linear", epochs=2, random_state=drawn.seed_).fit_sets(*streams(folders))
    np.testing.assert_array_equal(drawn.decision_function(sets[0]), again.decision_function(sets[0]))
