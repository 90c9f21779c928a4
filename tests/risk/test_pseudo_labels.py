"""Laws of pseudo-labels: their number in each set, their order, ties, and batches of extreme composition."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from uulearn import pn_risk, pseudo_labels
from uulearn.risk.pseudo_labeling import label_by_rank

PRIORS = st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda pair: abs(pair[0] - pair[1]) > 1e-3)
FRACTIONS = st.floats(0.01, 1)
SCORES = st.floats(-5, 5, width=32)


@st.composite
def batches(draw, values=SCORES, min_rows=1):
    sets = draw(st.lists(st.integers(0, 1), min_size=min_rows, max_size=40))
    scores = draw(st.lists(values, min_size=len(sets), max_size=len(sets)))
    return torch.tensor(scores), torch.tensor(sets)


def sorted_reference(scores, sets, set_priors, fraction):
    """Pseudo-labels by sorting the rows of each set in Python; earlier rows win ties."""
    labels = [-1.0] * len(scores)
    for which, prior in enumerate(set_priors):
        rows = sorted((row for row in range(len(sets)) if sets[row] == which), key=lambda row: -scores[row])
        labeled, positive = (math.floor(part * len(rows) + 0.5) for part in (fraction, fraction * prior))
        for row in rows[:positive]:
            labels[row] = 1.0
        for row in rows[len(rows) - (labeled - positive) :]:
            labels[row] = 0.0
    return labels


@given(batches(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0.25, 0.5, 1.0]))
def test_equals_sorting_in_python(batch, prior, fraction):
    """The values are exact in float32, so that rounding is the same."""
    scores, sets = batch
    priors = (prior, 1.0 if prior < 1 else 0.5)
    found = pseudo_labels(scores, sets, priors, fraction)
    assert found.tolist() == sorted_reference(scores.tolist(), sets.tolist(), priors, fraction)


@given(batches(), PRIORS, FRACTIONS)
def test_number_of_labels_in_each_set(batch, priors, fraction):
    scores, sets = batch
    labels = pseudo_labels(scores, sets, priors, fraction)
    for which, prior in enumerate(priors):
        own = labels[sets == which]
        n = len(own)
        assert abs(int((own >= 0).sum()) - fraction * n) <= 0.501
        assert abs(int((own == 1).sum()) - fraction * prior * n) <= 0.501
        assert abs(int((own == 0).sum()) - fraction * (1 - prior) * n) <= 1.001


@given(batches(), PRIORS, FRACTIONS)
def test_positives_score_highest_and_negatives_lowest(batch, priors, fraction):
    scores, sets = batch
    labels = pseudo_labels(scores, sets, priors, fraction)
    assert set(labels.tolist()) <= {1.0, 0.0, -1.0}
    for which in (0, 1):
        parts = [scores[(sets == which) & (labels == label)] for label in (1, -1, 0)]
        present = [part for part in parts if len(part)]
        for higher, lower in itertools.pairwise(present):
            assert higher.min() >= lower.max()


@given(batches(min_rows=2), PRIORS, FRACTIONS, st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter_without_ties(batch, priors, fraction, random):
    scores, sets = batch
    assume(len(scores.unique()) == len(scores))
    order = torch.tensor(random.sample(range(len(sets)), len(sets)))
    found = pseudo_labels(scores[order], sets[order], priors, fraction)
    assert torch.equal(found, pseudo_labels(scores, sets, priors, fraction)[order])


@given(batches(values=st.sampled_from([0.0, 1.0])), PRIORS, FRACTIONS)
def test_earlier_rows_rank_higher_if_scores_are_equal(batch, priors, fraction):
    scores, sets = batch
    later_is_lower = scores.double() - torch.arange(len(scores)) / 100
    assert torch.equal(
        pseudo_labels(scores, sets, priors, fraction), pseudo_labels(later_is_lower, sets, priors, fraction)
    )


@given(batches(), PRIORS)
def test_every_row_gets_a_label_if_the_fraction_is_one(batch, priors):
    assert (pseudo_labels(*batch, priors, 1.0) >= 0).all()


@given(batches(), FRACTIONS)
def test_pure_sets_have_labels_of_one_class(batch, fraction):
    scores, sets = batch
    labels = pseudo_labels(scores, sets, (1.0, 0.0), fraction)
    assert not (labels[sets == 0] == 0).any()
    assert not (labels[sets == 1] == 1).any()


@pytest.mark.parametrize(("prior", "fraction", "label"), [(0.9, 1.0, 1.0), (0.1, 1.0, 0.0), (0.9, 0.4, -1.0)])
def test_one_row(prior, fraction, label):
    other = 0.5
    assert pseudo_labels(torch.tensor([0.3]), torch.tensor([1]), (other, prior), fraction).tolist() == [label]
    assert pseudo_labels(torch.zeros(0), torch.zeros(0), (other, prior), fraction).shape == (0,)


def test_separate_batches_are_labeled_separately():
    torch.manual_seed(0)
    scores, in1 = torch.randn(3, 20), torch.arange(20) >= 12
    priors = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]])
    found = label_by_rank(scores, in1, torch.where(in1, priors[:, 1:], priors[:, :1]), 0.7)
    for own, labels, pair in zip(scores, found, priors.tolist(), strict=True):
        assert torch.equal(labels, pseudo_labels(own, in1, pair, 0.7))


def test_accepts_columns_and_narrow_types_and_has_no_gradient():
    scores, sets = torch.tensor([[2.0], [1.0], [0.0], [-1.0]], requires_grad=True), torch.tensor([[0], [1], [0], [1]])
    labels = pseudo_labels(scores, sets, (1.0, 0.0), 1.0)
    assert labels.tolist() == [1, 0, 1, 0]
    assert not labels.requires_grad
    assert torch.equal(pseudo_labels(scores.bfloat16(), sets.bool(), (1.0, 0.0), 1.0), labels)
    loss = pn_risk(scores, labels, 0.5).total
    loss.backward()
    assert scores.grad is not None


def test_runs_in_a_compiled_graph():
    def label(scores, sets):
        return pseudo_labels(scores, sets, (0.8, 0.2), 0.8)

    torch.manual_seed(0)
    scores, sets = torch.randn(50), torch.arange(50) % 2
    compiled = torch.compile(label, backend="eager", fullgraph=True)
    assert torch.equal(compiled(scores, sets), label(scores, sets))
    assert compiled(scores, sets + (torch.arange(50) == 7)).isnan().sum() == 1  # invalid sets are not hidden


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fraction": 0}, r"fraction must be a number above 0 and at most 1, got 0; 0.8 labels 80% of rows"),
        ({"fraction": 1.5}, "got 1.5"),
        ({"fraction": True}, "got True"),
        ({"sets": torch.tensor([0, 2])}, "sets must be 0 or 1, the set that each row came from, got 2"),
        ({"sets": torch.tensor([0])}, "one value per score"),
        ({"scores": torch.zeros(2, 3)}, "one per row"),
        ({"set_priors": (0.5, 0.5)}, "must differ"),
        ({"set_priors": (80, 20)}, r"the class prior of set 0 must lie in \[0, 1\]"),
    ],
)
def test_rejects_invalid_arguments(changes, said):
    arguments = {"scores": torch.zeros(2), "sets": torch.tensor([0, 1]), "set_priors": (0.8, 0.2), "fraction": 0.8}
    with pytest.raises(ValueError, match=said):
        pseudo_labels(**arguments | changes)
