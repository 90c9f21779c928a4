"""The risk of more than two sets: unbiased, with the smallest variance, and equal to the two-set risk for two sets."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import expit
from torch.profiler import ProfilerActivity, profile

from helpers.distributed_cases import gradients, network
from uulearn import UURisk, uu_coefficients, uu_risk
from uulearn.risk import accumulate, estimation_cost, get_loss, multi_set_coefficients, pn_risk
from uulearn.risk.functional import flat_sets
from uulearn.risk.multiple_sets import count_rows, surrogate_loss, surrogate_weights
from uulearn.surrogate import accuracy_weights, estimate_accuracy, set_posterior

PRIORS = (0.9, 0.6, 0.35, 0.1)
probability = st.floats(0.0, 1.0)
pis = st.floats(0.05, 0.95)


@st.composite
def cases(draw, least=2):
    """Class priors, sizes and a target prior of several sets."""
    priors = draw(st.lists(probability, min_size=least, max_size=6))
    assume(max(priors) - min(priors) > 0.05)
    sizes = draw(st.lists(st.integers(1, 1000), min_size=len(priors), max_size=len(priors)))
    return priors, sizes, draw(pis)


def variances(values, sizes):
    """Return the variance of a risk term if the loss has variance 1 in every set."""
    return sum(value**2 / n for value, n in zip(values, sizes, strict=True))


def batch_of(sizes, seed=0, dtype=torch.float64):
    sets = torch.from_numpy(np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)))
    return torch.randn(len(sets), generator=torch.Generator().manual_seed(seed), dtype=dtype), sets


# --------------------------------------------------------------------------------------------------------- coefficients


@given(cases())
def test_constraints_hold(case):
    priors, sizes, pi = case
    a, b = map(np.array, multi_set_coefficients(priors, sizes, pi))
    theta, scale = np.array(priors), 1e-9 * max(1.0, np.abs(a).max(), np.abs(b).max())
    sums = [a @ theta - pi, a @ (1 - theta), b @ (1 - theta) - (1 - pi), b @ theta]
    assert np.abs(sums).max() < scale


@given(probability, probability, st.integers(1, 99), st.integers(1, 99), pis)
def test_two_sets_have_exactly_the_coefficients_of_the_paper(theta, theta_prime, n, n_prime, pi):
    assume(abs(theta - theta_prime) > 1e-3)
    a, b, c, d = uu_coefficients((theta, theta_prime), pi)
    assert multi_set_coefficients((theta, theta_prime), (n, n_prime), pi) == ((a, -c), (-b, d))


@given(cases(least=3))
def test_variance_is_never_higher_than_that_of_two_of_the_sets(case):
    priors, sizes, pi = case
    found = multi_set_coefficients(priors, sizes, pi)
    for pair in itertools.combinations(range(len(priors)), 2):
        own, rows = [priors[which] for which in pair], [sizes[which] for which in pair]
        if abs(own[0] - own[1]) > 1e-3:
            two = multi_set_coefficients(own, rows, pi)
            for ours, theirs in zip(found, two, strict=True):
                assert variances(ours, sizes) <= variances(theirs, rows) * (1 + 1e-9)
            assert estimation_cost(priors, pi, sizes)[0] <= estimation_cost(own, pi, rows)[0] * (1 + 1e-9)


@given(cases(least=3))
def test_equal_the_best_combination_of_pairs(case):
    """All unbiased risks are combinations of two-set risks; the one with the smallest variance is found numerically."""
    priors, sizes, pi = case
    assume(min(abs(x - y) for x, y in itertools.combinations(priors, 2)) > 0.02)
    for term in (0, 1):
        pairs = []
        for pair in itertools.combinations(range(len(priors)), 2):
            own = np.zeros(len(priors))
            own[list(pair)] = multi_set_coefficients([priors[i] for i in pair], [sizes[i] for i in pair], pi)[term]
            pairs.append(own)
        # The weights of the pairs sum to 1: start at the first pair and add differences, scaled by 1/√n.
        first, others = pairs[0], np.array(pairs[1:]) - pairs[0]
        roots = np.sqrt(sizes)
        mix, *_ = np.linalg.lstsq((others / roots).T, -first / roots, rcond=1e-12)
        best = first + mix @ others
        found = np.array(multi_set_coefficients(priors, sizes, pi)[term])
        assert np.abs(best - found).max() < 1e-6 * max(1.0, np.abs(pairs).max())


@given(cases(), st.data())
def test_splitting_a_set_changes_nothing(case, data):
    priors, sizes, pi = case
    which = data.draw(st.integers(0, len(priors) - 1))
    assume(sizes[which] > 1)
    part = data.draw(st.integers(1, sizes[which] - 1))
    whole = multi_set_coefficients(priors, sizes, pi)
    moved = [*sizes[:which], sizes[which] - part, *sizes[which + 1 :], part]
    split = multi_set_coefficients([*priors, priors[which]], moved, pi)
    for ours, theirs in zip(split, whole, strict=True):
        together = [*ours[:-1]]
        together[which] += ours[-1]
        np.testing.assert_allclose(together, theirs, rtol=1e-6, atol=1e-9 * max(map(abs, theirs)))


def test_rejects_bad_values():
    with pytest.raises(ValueError, match=r"sizes must be 3 numbers of rows above 0, one per set, got \(5, 0, 5\)"):
        multi_set_coefficients((0.9, 0.5, 0.1), (5, 0, 5), 0.5)
    with pytest.raises(ValueError, match="class prior of set 2 must lie in"):
        multi_set_coefficients((0.9, 0.5, 1.1), (5, 5, 5), 0.5)
    with pytest.raises(ValueError, match="set_priors must differ"):
        UURisk((0.5, 0.5, 0.5), 0.5)
    with pytest.raises(ValueError, match="method='biased' treats two sets as classes, but there are 3 sets"):
        UURisk((0.9, 0.5, 0.1), 0.5, method="biased")
    with pytest.raises(ValueError, match="sets must be whole numbers from 0 to 2, .* got 3"):
        UURisk((0.9, 0.5, 0.1), 0.5)(torch.zeros(2), torch.tensor([0, 3]))


# ----------------------------------------------------------------------------------------------------------------- risk


@pytest.mark.parametrize("loss", ["sigmoid", "logistic", "zero_one"])
def test_risk_terms_are_weighted_means_of_the_sets(loss):
    sizes = (5, 9, 4, 7)
    scores, sets = batch_of(sizes)
    parts = uu_risk(scores, sets, PRIORS, 0.3, loss=loss, method="abs")
    ell = get_loss(loss)
    a, b = multi_set_coefficients(PRIORS, sizes, 0.3)
    for ours, coefficients, sign in zip(parts[:2], (a, b), (1, -1), strict=True):
        means = [ell(sign * scores[sets == j]).mean().item() for j in range(4)]
        assert ours.item() == pytest.approx(np.dot(coefficients, means), rel=1e-12)
    assert parts.corrected.item() == pytest.approx(abs(parts.positive.item()) + abs(parts.negative.item()))


@pytest.mark.parametrize("method", ["unbiased", "abs", "relu", "leaky_relu", "surrogate"])
def test_two_sets_with_an_empty_third_set_equal_two_sets(method):
    scores, sets = batch_of((20, 30))
    two = uu_risk(scores, sets, (0.8, 0.3), 0.4, method=method)
    three = uu_risk(scores, sets, (0.8, 0.3, 0.5), 0.4, method=method)
    for ours, theirs in zip(three, two, strict=True):
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)


def test_unbiased_against_labels():
    """The mean over many samples is the supervised risk; the standard error is computed from the samples."""
    rng, pi = np.random.default_rng(0), 0.3
    sizes = (30, 50, 20, 40)
    sets = torch.from_numpy(np.repeat(np.arange(4), sizes))

    def draw(positive):
        return torch.from_numpy(rng.normal(2.0 * positive - 1.0))

    labels = np.repeat([1, 0], 200_000)
    wanted = pn_risk(draw(labels), torch.from_numpy(labels), pi, loss="sigmoid")
    found = []
    for _ in range(1000):
        y = rng.random(len(sets)) < np.repeat(PRIORS, sizes)
        found.append(torch.stack(uu_risk(draw(y), sets, PRIORS, pi, loss="sigmoid")[:3]))
    values = torch.stack(found)
    error = values.std(0) / len(values) ** 0.5
    assert ((values.mean(0) - torch.stack(wanted)).abs() < 4 * error + 0.002).all()


def test_zero_one_risk_is_the_estimated_error():
    sizes = (5, 9, 4, 7)
    scores, sets = batch_of(sizes)
    risk = uu_risk(scores, sets, PRIORS, 0.3, loss="zero_one", method="unbiased").unbiased.item()
    assert risk == pytest.approx(1 - estimate_accuracy(scores, sets.numpy(), PRIORS, 0.3))
    weights, cost = accuracy_weights(PRIORS, sizes, 0.3), estimation_cost(PRIORS, 0.3, sizes)
    assert weights.standard_error == pytest.approx(cost.standard_error)


@pytest.mark.parametrize(
    ("sizes", "known"),
    [((3, 0, 0), (True, False)), ((0, 3, 0), (False, False)), ((0, 0, 3), (False, True)), ((1, 2, 0), (True, True))],
)
def test_batches_without_rows_of_some_sets(sizes, known):
    """With one class prior, a term is known only if all rows are of its class; a sum over no rows is zero."""
    scores, sets = batch_of(sizes)
    scores.requires_grad_()
    parts = uu_risk(scores, sets, (1.0, 0.5, 0.0), 0.4, loss="sigmoid")
    assert [part.item() != 0 for part in parts[:2]] == list(known)
    parts.objective.backward()
    assert scores.grad.isfinite().all()
    if sizes == (3, 0, 0):
        assert parts.positive.item() == pytest.approx(0.4 * torch.sigmoid(-scores).mean().item())
    assert UURisk((1.0, 0.5, 0.0), 0.4)(torch.zeros(0), torch.zeros(0)).item() == 0


@pytest.mark.parametrize("method", ["unbiased", "abs", "relu", "surrogate"])
@pytest.mark.parametrize("cuts", [(), (1, 30)])
def test_micro_batches_equal_the_whole_batch(method, cuts):
    sizes = (10, 20, 5, 25)
    _, sets = batch_of(sizes)
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(1))
    ends = sorted({0, *cuts, 60})
    criterion, model, whole = UURisk(PRIORS, 0.3, "sigmoid", method), network(), network()
    returned = accumulate(criterion, model, [(x[a:b], sets[a:b]) for a, b in itertools.pairwise(ends)])
    wanted = criterion.parts(whole(x), sets)
    wanted.objective.backward()
    for ours, theirs in zip(returned, wanted, strict=True):
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["abs", "surrogate"])
def test_compiled_and_batched_scores(method):
    scores, sets = batch_of((4, 6, 5), dtype=torch.float32)
    criterion = UURisk((0.9, 0.5, 0.1), 0.3, method=method)
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    assert compiled(scores, sets).item() == pytest.approx(criterion(scores, sets).item(), rel=1e-6)
    runs = torch.stack([scores, -scores])
    both = torch.func.vmap(criterion, in_dims=(0, None))(runs, sets)
    assert both.tolist() == pytest.approx([criterion(run, sets).item() for run in runs], rel=1e-6)
    own = torch.stack([sets, sets.roll(1)])
    each = [criterion(run, numbers).item() for run, numbers in zip(runs, own, strict=True)]
    assert torch.func.vmap(criterion)(runs, own).tolist() == pytest.approx(each, rel=1e-6)


@pytest.mark.parametrize("others", [(0.3, 0.1 + 0.2, 0.9), (1.0, 1 - 1e-9, 0.1), (0.0, 1e-9, 0.9)])
@pytest.mark.parametrize("reverse", [False, True])
def test_priors_that_differ_only_by_rounding_are_equal(others, reverse):
    """The first two priors are equal up to rounding errors, and the batch has no rows of the third set."""
    priors = (*others[:2][::-1], others[2]) if reverse else others
    scores, sets = batch_of((2, 3))
    found = uu_risk(scores, sets, priors, 0.4, method="unbiased")
    ell = get_loss("sigmoid")
    wanted = [0.4 * ell(scores).mean() * (others[0] == 1), 0.6 * ell(-scores).mean() * (others[0] == 0)]
    assert [found.positive.item(), found.negative.item()] == pytest.approx([float(value) for value in wanted], abs=1e-6)


def test_coefficients_of_rows_ignore_sets_without_rows():
    """A classifier that always predicts one class has the error π or 1 − π on every selection of rows."""
    priors = (0.9, 0.1) + (0.2,) * 20 + (0.3,) * 20
    criterion = UURisk(priors, 0.3)
    for sets in (torch.tensor([0] * 20 + [1] * 20), torch.arange(42), torch.tensor([1, 0, 30, 30])):
        positive, negative = map(np.array, criterion.coefficients_of(sets))
        assert (positive.sum(), negative.sum()) == (pytest.approx(0.3), pytest.approx(0.7))
        weights = criterion.row_weights(sets)
        for ours, theirs in ((positive, weights.positive), (negative, weights.negative)):
            sums = np.bincount(sets.numpy(), theirs.numpy(), minlength=42)
            np.testing.assert_allclose(ours, sums, atol=1e-6)
    assert UURisk(PRIORS, 0.3).coefficients_of(torch.tensor([1, 1])) == ((0.0,) * 4, (0.0,) * 4)
    pure = UURisk((1.0, 0.5, 0.0, 0.0), 0.3)
    assert pure.coefficients_of(torch.tensor([0, 0])).positive == pytest.approx((0.3, 0, 0, 0))
    assert pure.coefficients_of(torch.tensor([2, 3, 3, 3])).negative == pytest.approx((0, 0, 0.175, 0.525))
    with pytest.raises(ValueError, match="sets must be whole numbers from 0 to 3, .* got 4"):
        pure.coefficients_of(torch.tensor([0, 4]))
    with pytest.raises(ValueError, match="with 4 sets, the coefficients depend on the numbers of rows"):
        _ = pure.coefficients
    two = UURisk((0.8, 0.3), 0.4)
    assert two.coefficients_of(torch.tensor([0])) == two.coefficients.of_sets


def test_memory_does_not_depend_on_the_number_of_sets():
    """With 1,000 sets, no tensor has one value per row and set."""
    n_sets, n = 1000, 2000
    sets, scores = torch.arange(n) % n_sets, torch.zeros(n, dtype=torch.float64)
    criterion = UURisk(torch.linspace(0.9, 0.1, n_sets).tolist(), 0.5)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        criterion(scores, sets)
    assert max(event.self_cpu_memory_usage for event in profiler.events()) < 100 * n


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64])
def test_values_that_are_not_set_numbers(dtype):
    sets = torch.tensor([0, 2, 1, 2, 0, 2], dtype=dtype)
    assert count_rows(sets, 3).tolist() == [2, 1, 3]
    for value in (3, 200) if dtype == torch.uint8 else (3, -1, 1.5, torch.nan, torch.inf, -torch.inf):
        if not dtype.is_floating_point and not isinstance(value, int):
            continue
        wrong = torch.cat([sets, torch.tensor([value], dtype=dtype)])
        assert count_rows(wrong, 3).tolist() == [2, 1, 3]
        with pytest.raises(ValueError, match="sets must be whole numbers from 0 to 2"):
            flat_sets(wrong, 7, 3)
    assert count_rows(torch.tensor([True, False, True]), 2).tolist() == [1, 2]


# ------------------------------------------------------------------------------------------------------------ surrogate


@pytest.mark.parametrize("priors", [(0.8, 0.3), (1.0, 0.5, 0.0), PRIORS])
def test_surrogate_is_the_log_loss_of_the_set(priors):
    sizes = range(3, 3 + len(priors))
    scores, sets = batch_of(sizes)
    expected = set_posterior(expit(scores.numpy()), priors, list(sizes), 0.3)[np.arange(len(sets)), sets]
    assert UURisk(priors, 0.3, method="surrogate")(scores, sets).item() == pytest.approx(-np.log(expected).mean())


def test_surrogate_is_minimized_by_the_log_odds():
    """With infinitely many rows at four values of x, the gradient vanishes at the log-odds at class prior π."""
    pi, sizes = 0.3, np.array([1.0, 3.0, 2.0, 4.0])
    positive, negative = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.4, 0.1, 0.1])  # P(x | class)
    log_odds = torch.from_numpy(np.log(pi * positive / ((1 - pi) * negative)))
    theta = np.array(PRIORS)[:, None]
    mass = torch.from_numpy(sizes[:, None] / sizes.sum() * (theta * positive + (1 - theta) * negative))  # (set, x)
    sets = torch.arange(4).repeat_interleave(4)
    counts = torch.from_numpy(sizes)
    weights = surrogate_weights(sets, PRIORS, pi, counts, torch.float64)._replace(weight=mass.flatten())
    g = log_odds.clone().requires_grad_()
    surrogate_loss(g.repeat(4), weights).backward()
    assert g.grad.abs().max() < 1e-12


@pytest.mark.parametrize("priors", [(1.0, 0.5, 0.0), (1.0, 0.0), (0.9, 0.1)])
@pytest.mark.parametrize("values", [(1.5, -0.5), (100.0, -100.0), (1e5, -1e5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_of_the_surrogate_are_finite(priors, values, dtype):
    scores = torch.tensor(values * 2, dtype=dtype, requires_grad=True)
    objective = uu_risk(scores, torch.tensor([0, 0, 1, 1]), priors, 0.5, method="surrogate").objective
    (gradient,) = torch.autograd.grad(objective, scores, create_graph=True)
    assert gradient.isfinite().all()
    assert torch.autograd.grad(gradient.sum(), scores)[0].isfinite().all()


@pytest.mark.parametrize("priors", [(1.0, 0.5, 0.0), (1.0, 0.0), PRIORS])
def test_double_backward_of_the_surrogate(priors):
    scores, sets = batch_of((2,) * len(priors))
    criterion = UURisk(priors, 0.3, method="surrogate")
    assert torch.autograd.gradgradcheck(lambda g: criterion(g, sets), scores.requires_grad_())
