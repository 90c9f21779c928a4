"""Rows held out of streamed sets: all copies of a row are on one side, for any number of workers."""

import copy
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uulearn import UUClassifier
from uulearn.data import stream_holdout
from uulearn.data.rows import DenseRows
from uulearn.data.stream_holdout import hold_out_streams
from uulearn.data.streams import StreamedSets
from uulearn.streaming import RowStream


class Listed(RowStream):
    """A stream of the given rows, in pieces."""

    def __init__(self, rows, piece=7):
        self.rows = torch.as_tensor(rows, dtype=torch.float32)
        self.rows = self.rows[:, None] if self.rows.ndim == 1 else self.rows
        self.piece, self.row_shape = piece, tuple(self.rows.shape[1:])

    @property
    def piece_sizes(self):
        return [len(part) for part in self.rows.split(self.piece)]

    def read(self, piece):
        return self.rows.split(self.piece)[piece].clone()

    def describe(self):
        return f"listed: {len(self.rows)}"


class Together:
    """Workers in threads of one process."""

    def __init__(self, count):
        self.count, self.reported, self.barrier = count, [None] * count, threading.Barrier(count)

    def run(self, work):
        """The result of each worker."""
        found = [None] * self.count

        def one(rank):
            try:
                found[rank] = work(self.Worker(self, rank))
            except ValueError as error:
                found[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    class Worker:
        def __init__(self, group, rank):
            self.group, self.rank, self.count = group, rank, group.count

        def gather_objects(self, thing):
            self.group.reported[self.rank] = thing
            self.group.barrier.wait()
            reported = copy.deepcopy(self.group.reported)
            self.group.barrier.wait()
            return reported


def values(lengths, kinds, seed):
    rng = np.random.default_rng(seed)
    return tuple(Listed(rng.integers(0, kinds, length)) for length in lengths)


@given(
    st.tuples(st.integers(30, 400), st.integers(30, 400)),
    st.sampled_from([20, 200, 10**6]),
    st.floats(0.05, 0.4),
    st.integers(0, 50),
    st.integers(1, 3),
)
def test_no_copy_of_a_held_out_row_is_trained_on(lengths, kinds, fraction, seed, workers):
    streams = values(lengths, kinds, seed)
    group = Together(workers)
    held_out, *others = group.run(lambda own: hold_out_streams(streams, fraction, seed, own if workers > 1 else None))
    if isinstance(held_out, ValueError):  # every value has too many copies to be held out
        assert kinds == 20
        assert {str(other) for other in others} <= {str(held_out)}
        return
    evaluated, trained = set(), set()
    for which, stream in enumerate(streams):
        numbers, excluded = held_out.numbers[which], held_out.excluded[which]
        assert torch.equal(held_out.rows[which], stream.rows[torch.from_numpy(numbers)])
        assert (np.diff(numbers) > 0).all()
        assert set(numbers) <= set(excluded)
        evaluated |= set(held_out.rows[which][:, 0].tolist())
        kept = np.setdiff1d(np.arange(stream.n_rows), excluded)
        trained |= set(stream.rows[torch.from_numpy(kept), 0].tolist())
        if kinds == 10**6:
            assert abs(len(numbers) - round(fraction * stream.n_rows)) <= 2
    assert not evaluated & trained
    for other in others:
        assert all(np.array_equal(*pair) for pair in zip(held_out.excluded, other.excluded, strict=True))
        assert all(torch.equal(*pair) for pair in zip(held_out.rows, other.rows, strict=True))


def trained_on(streams, held_out):
    """The values of each set that are trained on."""
    return [
        np.delete(stream.rows[:, 0].numpy(), excluded)
        for stream, excluded in zip(streams, held_out.excluded, strict=True)
    ]


@pytest.mark.parametrize("often_in", [0, 1])
def test_row_with_many_copies_in_one_set_is_trained_on_in_both(often_in):
    """If it were held out of one set, it would be missing from the other or be trained on there."""
    rare, frequent = np.arange(100), np.concatenate([np.arange(1000, 1060), np.full(60, 7)])
    sets = (frequent, rare) if often_in == 0 else (rare, frequent)
    for seed in range(10):
        streams = tuple(map(Listed, sets))
        held_out = hold_out_streams(streams, 0.4, seed)
        assert [int((kept == 7).sum()) for kept in trained_on(streams, held_out)] == [int((s == 7).sum()) for s in sets]


def by_key(seed, n):
    """n values in the order in which they are held out."""
    candidates = torch.arange(n, dtype=torch.float32)[:, None]
    keys = stream_holdout._keys(stream_holdout.digests_of(DenseRows(candidates)), seed)
    return np.argsort(keys)


def test_no_copy_is_trained_on_if_copies_fill_the_capacity():
    """Four rows with many copies fill most of the capacity, which leaves fewer other candidates."""
    order = by_key(3, 10_000)
    streams = Listed(np.concatenate([np.repeat(order[:4], 240), order[4:9044]]), 500), Listed(order, 500)
    held_out = hold_out_streams(streams, 0.1, 3)
    evaluated = set(torch.cat(held_out.rows)[:, 0].tolist())
    assert len(evaluated) > 300
    for kept in trained_on(streams, held_out):
        assert not evaluated & set(kept.tolist())


def test_combined_candidates_equal_candidates_of_one_worker():
    order = by_key(3, 10_000)
    several = Listed(np.concatenate([np.repeat(order[:6], 240), order]), 572)  # most copies are in three pieces
    # The first worker has no capacity for the seventh value, and the second has one copy of it.
    seventh = Listed(np.concatenate([np.repeat(order[:7], 240), order[6:10]]), 7 * 240)
    for values, count in ((several, 2), (several, 3), (seventh, 2)):
        whole, *_ = stream_holdout._collect(values, 1000, 3, None, None)
        for found in Together(count).run(lambda own, of=values: stream_holdout._collect(of, 1000, 3, own, None)[0]):
            assert found.limit == whole.limit
            assert set(found.numbers) == set(whole.numbers)


def test_result_does_not_depend_on_number_of_workers():
    streams = values((900, 500), 300, 0)
    alone = hold_out_streams(streams, 0.1, 0)
    for workers in (2, 3):
        for found in Together(workers).run(lambda own: hold_out_streams(streams, 0.1, 0, own)):
            assert all(np.array_equal(*pair) for pair in zip(alone.excluded, found.excluded, strict=True))


def test_number_is_bounded_and_rows_depend_on_the_seed(monkeypatch):
    streams = Listed(torch.arange(5000.0), 1000), Listed(torch.arange(6000.0, 6300.0))
    held_out = hold_out_streams(streams, 0.1, 0)
    assert [len(rows) for rows in held_out.rows] == [500, 30]
    assert not np.array_equal(held_out.numbers[0], hold_out_streams(streams, 0.1, 1).numbers[0])
    assert abs(held_out.numbers[0].mean() - 2500) < 4 * 5000 / np.sqrt(12 * 500)
    monkeypatch.setattr(stream_holdout, "MAX_HELD_OUT_ROWS", 100)
    assert len(hold_out_streams(streams, 0.1, 0).rows[0]) == 100
    monkeypatch.setattr(stream_holdout, "MAX_HELD_OUT_BYTES", 40)
    assert len(hold_out_streams(streams, 0.1, 0).rows[0]) == 10


def test_rows_with_many_copies_are_trained_on(monkeypatch):
    """The set is not distorted by holding out a third of it, and memory does not fill with copies."""
    most = 0
    original = stream_holdout._Candidates.merge_pending

    def spy(candidates):
        nonlocal most
        most = max(most, len(candidates.rows) + sum(len(rows) for _, _, rows in candidates._pending))
        original(candidates)

    monkeypatch.setattr(stream_holdout._Candidates, "merge_pending", spy)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=30_000)
    rows[rng.random(len(rows)) < 0.3] = 0.0
    for seed in range(4):
        held_out = hold_out_streams((Listed(rows, 500), Listed(rng.normal(size=3000))), 0.01, seed)
        assert 0.0 not in held_out.rows[0]
        assert len(held_out.rows[0]) == pytest.approx(300, abs=1)
    assert most < 3000


def test_rejects_sets_that_cannot_be_split():
    with pytest.raises(
        ValueError,
        match=r"cannot be held out of the 500 rows of set 1: 500 rows would be left for training and 0 held out",
    ):
        hold_out_streams((Listed(torch.arange(100.0)), Listed(torch.ones(500))), 0.1, 0)


def test_memorized_copies_do_not_improve_the_estimate():
    """Five copies of random rows: the estimated accuracy must not exceed chance, streamed or in memory."""
    rng = np.random.default_rng(0)
    rows = [np.repeat(rng.normal(size=(300, 8)), 5, axis=0) for _ in range(2)]
    rows = [X[rng.permutation(len(X))] for X in rows]
    settings = {"model_params": {"hidden": (200,)}, "epochs": 60, "lr": 0.01, "l2": 0.0, "early_stopping": False}
    clf = UUClassifier((0.9, 0.1), patience=None, n_estimators=1, calibrated=False, random_state=0, **settings)
    clf.fit_sets(*(Listed(X, 100) for X in rows))
    assert abs(clf.history_[-1]["validation_zero_one"] - 0.5) < 0.2


def test_preview_samples_several_pieces():
    streams = Listed(torch.arange(100_000.0), 40_000), Listed(torch.arange(50.0), 40)
    some = StreamedSets(streams).preview()
    assert some.sizes == (20_000, 50)
    looked = some.rows_of(0).slice(0, 20_000)[:, 0]
    assert len(looked.unique()) == 20_000
    assert abs(looked.mean() - 50_000) < 1_500
    drawn = torch.randn(50_000, 1), torch.randn(10, 1)
    assert StreamedSets(streams, None, drawn).preview().sizes == (16_667, 10)
