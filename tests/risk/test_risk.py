"""The risk estimators against an independent implementation, the labeled risk, and their mathematical properties."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers import reference
from uulearn import pn_risk, uu_risk
from uulearn.risk import LOSSES

METHODS = ["biased", "unbiased", "abs", "relu", "leaky_relu"]
TRAINABLE = [name for name, loss in LOSSES.items() if loss.trainable]

priors = st.tuples(st.floats(0, 1), st.floats(0, 1)).filter(lambda p: abs(p[0] - p[1]) > 0.02)
inner = st.floats(0.02, 0.98)


@st.composite
def batches(draw):
    """Scores of both sets in any order, at least one row of each."""
    n0, n1 = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    scores = draw(st.lists(st.floats(-20, 20), min_size=n0 + n1, max_size=n0 + n1))
    sets = draw(st.permutations([0] * n0 + [1] * n1))
    return torch.tensor(scores, dtype=torch.float64), torch.tensor(sets)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
@given(batch=batches(), set_priors=priors, pi=inner, slope=st.floats(-2, 0))
def test_equals_reference_implementation(loss, method, batch, set_priors, pi, slope):
    scores, sets = batch
    ours = uu_risk(scores, sets, set_priors, pi, loss=loss, method=method, slope=slope)
    theirs = reference.uu_risk(scores.tolist(), sets.tolist(), set_priors, pi, loss, method, slope)
    for name, value in theirs.items():
        assert getattr(ours, name).item() == pytest.approx(value, rel=1e-7, abs=1e-7), name


@given(batch=batches(), set_priors=priors, pi=inner, slope=st.floats(-2, 0))
def test_corrected_is_at_least_unbiased_and_equal_for_non_negative_terms(batch, set_priors, pi, slope):
    for method in ("abs", "relu", "leaky_relu"):
        risk = uu_risk(*batch, set_priors, pi, method=method, slope=slope)
        assert risk.corrected >= risk.unbiased
        if risk.positive >= 0 and risk.negative >= 0:
            assert risk.corrected == risk.unbiased


@given(batch=batches(), set_priors=priors, pi=inner)
def test_abs_and_relu_are_special_cases_of_leaky_relu(batch, set_priors, pi):
    for method, slope in (("abs", -1.0), ("relu", 0.0)):
        one = uu_risk(*batch, set_priors, pi, method=method)
        other = uu_risk(*batch, set_priors, pi, method="leaky_relu", slope=slope)
        assert one == other


@pytest.mark.parametrize("method", METHODS)
@given(batch=batches(), set_priors=priors, pi=inner)
def test_swapping_sets_with_their_priors_changes_nothing(method, batch, set_priors, pi):
    scores, sets = batch
    one = uu_risk(scores, sets, set_priors, pi, method=method)
    other = uu_risk(scores, 1 - sets, set_priors[::-1], pi, method=method)
    for left, right in zip(one, other, strict=True):
        assert left.item() == pytest.approx(right.item(), rel=1e-9, abs=1e-9)


@given(batch=batches(), pi=inner)
def test_supervised_limit(batch, pi):
    scores, sets = batch
    supervised = pn_risk(scores, 1 - sets, pi)
    for method in ("unbiased", "abs", "relu", "leaky_relu"):
        risk = uu_risk(scores, sets, (1.0, 0.0), pi, loss="logistic", method=method)
        assert risk.positive.item() == pytest.approx(supervised.positive.item())
        assert risk.negative.item() == pytest.approx(supervised.negative.item())
        assert risk.corrected.item() == pytest.approx(supervised.total.item())


@given(batch=batches(), pi=inner)
def test_pu_limit_is_the_non_negative_pu_risk(batch, pi):
    scores, sets = batch
    assume(pi < 0.98)

    def loss(z):
        return np.logaddexp(0, -z)

    positives, unlabeled = scores[sets == 0].numpy(), scores[sets == 1].numpy()
    first = pi * loss(positives).mean()
    second = loss(-unlabeled).mean() - pi * loss(-positives).mean()
    risk = uu_risk(scores, sets, (1.0, pi), pi, loss="logistic", method="relu")
    assert risk.unbiased.item() == pytest.approx(first + second, abs=1e-9)
    assert risk.corrected.item() == pytest.approx(first + max(0, second), abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("set_priors", "pi"), [((0.8, 0.2), 0.5), ((0.6, 0.4), 0.3), ((0.1, 0.7), 0.6), ((1.0, 0.3), 0.3)]
)
def test_unbiased_in_simulation(loss, set_priors, pi):
    """Mean of the UU risk over many draws of two sets against the PN risk on many labeled rows: a z-test."""
    rng = np.random.default_rng(20)

    def draw(prior, size):
        y = rng.random(size) < prior
        return torch.from_numpy(np.where(y, 0.7, -0.4) + rng.normal(size=size) * 1.3), torch.from_numpy(y)

    repeats, n0, n1 = 1500, 60, 40
    sets = torch.tensor([0] * n0 + [1] * n1)
    scores = torch.cat([draw(set_priors[0], (repeats, n0))[0], draw(set_priors[1], (repeats, n1))[0]], dim=1)
    estimates = torch.func.vmap(lambda g: uu_risk(g, sets, set_priors, pi, loss=loss, method="unbiased").unbiased)(
        scores
    )
    n_labeled = 200_000
    labeled, y = draw(pi, n_labeled)
    truth = pn_risk(labeled, y, pi, loss=loss).total.item()
    margin_losses = LOSSES[loss](torch.where(y, labeled, -labeled))
    standard_error = (estimates.var() / repeats + margin_losses.var() / n_labeled).sqrt().item()
    z = (estimates.mean().item() - truth) / standard_error
    assert abs(z) < 3.5


def test_swapped_priors_give_a_wrong_estimate():
    """The z-test above can fail: with swapped priors the estimate is far off."""
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.random(4000) < 0.8, rng.random(4000) < 0.2])
    scores = torch.from_numpy(np.where(y, 1.0, -1.0) + rng.normal(size=8000))
    sets = torch.from_numpy(np.repeat([0, 1], 4000))
    right = uu_risk(scores, sets, (0.8, 0.2), 0.5, loss="zero_one", method="unbiased").unbiased
    wrong = uu_risk(scores, sets, (0.2, 0.8), 0.5, loss="zero_one", method="unbiased").unbiased
    assert right < 0.25
    assert wrong > 0.75


@pytest.mark.parametrize("method", ["unbiased", "abs", "relu", "leaky_relu", "biased"])
@pytest.mark.parametrize("sign", [+1, -1])
@pytest.mark.parametrize("loss", TRAINABLE)
def test_gradients_against_finite_differences_on_both_sides_of_the_kink(method, sign, loss):
    """Scores for which both risk terms are clearly negative (sign 1) or clearly positive (sign −1)."""
    generator = torch.Generator().manual_seed(3)
    sets = torch.tensor([0, 1, 1, 0, 0, 1, 1, 0])
    scores = torch.randn(8, generator=generator, dtype=torch.float64) * 0.3 + sign * (1.5 - 3.0 * (sets == 1))
    scores.requires_grad_()
    parts = uu_risk(scores, sets, (0.6, 0.4), 0.5, loss=loss, method=method)
    assert parts.positive * sign < -1e-3
    assert parts.negative * sign < -1e-3
    assert torch.autograd.gradcheck(
        lambda g: uu_risk(g, sets, (0.6, 0.4), 0.5, loss=loss, method=method, slope=-0.3).objective, scores
    )


def test_biased_is_the_mean_loss_over_all_rows():
    scores = torch.tensor([1.0, -2.0, 0.5, -1.0])
    equal = uu_risk(scores, torch.tensor([0, 0, 1, 1]), (0.7, 0.2), 0.4, loss="zero_one", method="biased").objective
    assert equal.item() == pytest.approx(0.5 * 0.5 + 0.5 * 0.5)
    unequal = uu_risk(scores, torch.tensor([0, 1, 1, 1]), (0.7, 0.2), 0.4, loss="zero_one", method="biased").objective
    assert unequal.item() == pytest.approx(1 / 4)
    swapped = uu_risk(scores, torch.tensor([0, 1, 1, 1]), (0.2, 0.7), 0.4, loss="zero_one", method="biased").objective
    assert swapped.item() == pytest.approx(3 / 4)


def test_pn_risk_by_hand():
    scores, labels = torch.tensor([2.0, -1.0, 1.0, -3.0]), torch.tensor([1, 1, -1, -1])
    parts = pn_risk(scores, labels, 0.25, loss="zero_one")
    assert [part.item() for part in parts] == pytest.approx([0.25 * 0.5, 0.75 * 0.5, 0.5])
    assert pn_risk(scores, labels, 0.25).total.item() == pytest.approx(
        pn_risk(scores, (labels + 1) // 2, 0.25).total.item()
    )


def test_different_corrections_for_the_two_terms():
    scores, sets = torch.tensor([3.0, -3.0]), torch.tensor([0, 1])
    parts = uu_risk(scores, sets, (0.6, 0.4), 0.5, method="unbiased")
    assert parts.positive < 0
    assert parts.negative < 0
    mixed = uu_risk(scores, sets, (0.6, 0.4), 0.5, method=("abs", "relu"))
    assert mixed.corrected.item() == pytest.approx(-parts.positive.item())


def test_rejects_labels_other_than_two_classes():
    with pytest.raises(ValueError, match=r"labels must be 1 and 0, or 1 and -1, got \[2, 3\]"):
        pn_risk(torch.zeros(2), torch.tensor([2, 3]), 0.5)
