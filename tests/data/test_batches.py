"""Batches of Algorithm 1: each row once per epoch, in proportion to the sizes of the sets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uulearn.data import BatchPlan, DenseRows, TwoSets
from uulearn.exceptions import UnevenSetsWarning

size = st.integers(2, 300)


@given(size, size, st.integers(2, 400), st.integers(0, 1000), st.integers(1, 50))
def test_every_row_is_used_once_with_exact_counts(n0, n1, batch_size, seed, epoch):
    plan = BatchPlan((n0, n1), batch_size)
    shuffles = plan.shuffles(seed, epoch)
    seen = ([], [])
    for batch in range(plan.n_batches):
        counts = plan.counts(batch)
        for which, (part, n, count) in enumerate(zip(plan.bounds(batch), (n0, n1), counts, strict=True)):
            exact = n / plan.n_batches
            assert math.floor(exact) <= count <= math.ceil(exact)
            assert count >= 1
            seen[which].extend(shuffles[which][part].tolist())
        assert sum(counts) <= plan.largest
    assert sorted(seen[0]) == list(range(n0))
    assert sorted(seen[1]) == list(range(n1))


@given(size, size, st.integers(2, 400))
def test_batches_have_batch_size_unless_a_set_is_too_small(n0, n1, batch_size):
    plan = BatchPlan((n0, n1), batch_size)
    assert plan.n_batches == min(math.ceil((n0 + n1) / batch_size), n0, n1)


def test_batches_of_the_paper():
    plan = BatchPlan((30_000, 30_000), 3_000)
    assert plan.n_batches == 20
    assert {plan.counts(batch) for batch in range(20)} == {(1500, 1500)}


def test_shuffles_depend_only_on_seed_and_epoch():
    plan = BatchPlan((50, 60), 20)
    first, again = plan.shuffles(1, 1), plan.shuffles(1, 1)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], plan.shuffles(1, 2)[0])
    assert not torch.equal(first[0], plan.shuffles(2, 1)[0])
    equal_sizes = BatchPlan((50, 50), 20).shuffles(1, 1)
    assert not torch.equal(*equal_sizes)


def test_warns_if_a_small_set_makes_batches_grow():
    plan = BatchPlan((1000, 4), 100)
    assert plan.n_batches == 4
    assert all(plan.counts(batch)[1] == 1 for batch in range(4))
    with pytest.warns(UnevenSetsWarning, match="batches have up to 251 rows instead of 100"):
        plan.warn_if_grown()


@pytest.mark.parametrize("together", [True, False])
def test_epoch_yields_the_planned_rows(together):
    """Each row arrives once, and rows of set 0 come first in every batch."""
    n0, n1 = 23, 11
    values = torch.arange(n0 + n1, dtype=torch.float32)[:, None]
    if together:
        sets = torch.zeros(n0 + n1, dtype=torch.long)
        sets[::3] = 1
        sets[1] = 1 if (sets == 1).sum() < n1 else 0
        n0, n1 = int((sets == 0).sum()), int((sets == 1).sum())
        data = TwoSets.from_membership(DenseRows(values), sets)
        of_set1 = set(values[sets == 1].flatten().tolist())
    else:
        data = TwoSets((DenseRows(values[:n0]), DenseRows(values[n0:])))
        of_set1 = set(range(n0, n0 + n1))
    plan = BatchPlan(data.sizes, 8)
    seen = []
    for x, (count0, count1) in data.epoch(plan, 0, 1, torch.device("cpu")):
        rows = x.flatten().tolist()
        assert len(rows) == count0 + count1
        assert of_set1.isdisjoint(rows[:count0])
        assert of_set1.issuperset(rows[count0:])
        seen += rows
    assert sorted(seen) == values.flatten().tolist()
