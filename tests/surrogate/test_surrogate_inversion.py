"""Conversion between set and class probabilities, accuracies from m sets, and the calibration curve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit

from uulearn.metrics.calibration import shift_log_odds
from uulearn.risk import estimation_cost, uu_coefficients
from uulearn.surrogate import (
    accuracy_weights,
    estimate_accuracy,
    invert_set_posterior,
    set_posterior,
    shift_prior,
)
from uulearn.surrogate.calibration import RIDGE, fit_mixture_curve
from uulearn.surrogate.inversion import invert_many, invert_two, segment_ends

ETA = np.concatenate([[0.0, 1e-9, 1e-4], np.linspace(0.01, 0.99, 25), [1 - 1e-4, 1.0]])


@st.composite
def problems(draw, most_sets=6):
    """Draw clearly different priors (including 0 and 1), sizes and π."""
    m = draw(st.integers(2, most_sets))
    prior = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1).map(lambda value: round(value, 9)))
    theta = draw(st.lists(prior, min_size=m, max_size=m).filter(lambda values: np.ptp(values) > 0.05))
    sizes = draw(st.lists(st.integers(1, 1000), min_size=m, max_size=m))
    return theta, sizes, draw(st.floats(1e-3, 1 - 1e-3))


two_sets = problems(most_sets=2)


# ------------------------------------------------------------------------------------------------------------- forward


@given(problems())
def test_set_posterior_equals_bayes_rule(problem):
    """P(set = j | x) = ρ_j·p_j(x)/Σ_k ρ_k·p_k(x), with the densities of the classes that η stands for."""
    theta, sizes, pi = problem
    p, n = ETA / pi, (1 - ETA) / (1 - pi)  # divided by the density of x, which cancels
    joint = np.array([size * (t * p + (1 - t) * n) for t, size in zip(theta, sizes, strict=True)]).T
    expected = joint / joint.sum(1, keepdims=True)
    np.testing.assert_allclose(set_posterior(ETA, theta, sizes, pi), expected, rtol=1e-9, atol=1e-12)


@given(problems())
def test_set_posterior_equals_the_linear_fractional_form_of_the_paper(problem):
    """(a_j·η + b_j)/(c·η + d) with a_j = ρ_j(θ_j − π), b_j = ρ_j·π(1 − θ_j), c = Σ a_j, d = Σ b_j."""
    theta, sizes, pi = np.asarray(problem[0]), np.asarray(problem[1]), problem[2]
    a, b = sizes * (theta - pi), sizes * pi * (1 - theta)
    expected = (np.outer(ETA, a) + b) / (ETA * a.sum() + b.sum())[:, None]
    np.testing.assert_allclose(set_posterior(ETA, theta, sizes, pi), expected, rtol=1e-7, atol=1e-9)


@given(problems())
def test_at_the_pooled_prior_set_probabilities_lie_on_a_segment(problem):
    theta, sizes, _ = problem
    rho = np.array(sizes) / sum(sizes)
    u, v = segment_ends(np.array(theta), rho)
    pooled = float(rho @ theta)
    np.testing.assert_allclose(set_posterior(ETA, theta, sizes, pooled), np.outer(1 - ETA, u) + np.outer(ETA, v))


# ------------------------------------------------------------------------------------------------------------- inverse


def pooled_eta(problem):
    """Return ETA at the pooled prior, where the equations are linear and errors are uniform."""
    theta, sizes, pi = problem
    return shift_prior(ETA, float(np.dot(theta, sizes) / np.sum(sizes)), pi)


@given(problems())
def test_inversion_recovers_eta(problem):
    theta, sizes, pi = problem
    eta = pooled_eta(problem)
    back = invert_set_posterior(set_posterior(eta, theta, sizes, pi), theta, sizes, pi)
    pooled = float(np.dot(theta, sizes) / np.sum(sizes))
    np.testing.assert_allclose(shift_prior(back.positive, pi, pooled), ETA, atol=2e-6)
    assert not back.clipped.any()


@given(two_sets)
def test_closed_form_equals_maximum_likelihood(problem):
    """Includes probabilities outside the segment, which both methods clip."""
    theta, rho = np.asarray(problem[0]), np.array(problem[1]) / sum(problem[1])
    q = np.stack([np.linspace(0, 1, 41), 1 - np.linspace(0, 1, 41)], axis=1)
    closed, likelihood = invert_two(q, theta, rho), invert_many(q, theta, rho)
    np.testing.assert_allclose(closed.positive, likelihood.positive, atol=1e-9)
    outside = np.abs(q[:, 0] - np.clip(q[:, 0], *sorted(ends[0] for ends in segment_ends(theta, rho)))) > 1e-6
    np.testing.assert_array_equal(closed.clipped[outside], True)
    np.testing.assert_array_equal(likelihood.clipped[outside], True)
    inside = np.abs(closed.positive - 0.5) < 0.5 - 1e-6
    assert not closed.clipped[inside].any()
    assert not likelihood.clipped[inside].any()


@given(problems(), st.integers(0, 10**6))
def test_maximum_likelihood_equals_scipy(problem, seed):
    """Includes probabilities that are not on the segment, as a classifier predicts them."""
    theta, rho = np.asarray(problem[0]), np.array(problem[1]) / sum(problem[1])
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(len(theta)), size=4)
    u, v = segment_ends(theta, rho)
    found = invert_many(q, theta, rho).positive

    def loss(t, row):
        mixture = (1 - t) * u + t * v
        return -(row[row > 0] * np.log(mixture[row > 0])).sum()

    for row, t in zip(q, found, strict=True):
        with np.errstate(divide="ignore"):
            best = minimize_scalar(loss, args=(row,), bounds=(0, 1), method="bounded", options={"xatol": 1e-12})
            assert loss(t, row) <= best.fun + 1e-9
            assert t == pytest.approx(best.x, abs=1e-4)  # the position of a flat maximum has half the precision


@given(problems(), st.randoms(use_true_random=False))
def test_order_of_the_sets_does_not_matter(problem, random):
    theta, sizes, pi = problem
    order = list(range(len(theta)))
    random.shuffle(order)
    q = np.random.default_rng(random.randrange(10**6)).dirichlet(np.ones(len(theta)), size=20)
    plain = invert_set_posterior(q, theta, sizes, pi)
    shuffled = invert_set_posterior(q[:, order], [theta[k] for k in order], [sizes[k] for k in order], pi)
    np.testing.assert_allclose(plain.positive, shuffled.positive, atol=1e-9)


@given(problems(), st.integers(0, 10**6))
def test_swapping_the_classes_gives_one_minus_eta(problem, seed):
    theta, sizes, pi = problem
    q = np.random.default_rng(seed).dirichlet(np.ones(len(theta)), size=20)
    plain = invert_set_posterior(q, theta, sizes, pi)
    swapped = invert_set_posterior(q, [1 - t for t in theta], sizes, 1 - pi)
    np.testing.assert_allclose(plain.positive, 1 - swapped.positive, atol=1e-9)


@given(problems(), st.integers(0, 10**6))
def test_eta_increases_with_the_probability_of_the_highest_prior_set(problem, seed):
    """Moving probability from the set with the lowest prior to the set with the highest prior never decreases η."""
    theta, sizes, pi = problem
    q = np.random.default_rng(seed).dirichlet(np.ones(len(theta)))
    high, low = int(np.argmax(theta)), int(np.argmin(theta))
    moved = np.tile(q, (30, 1))
    step = np.linspace(0, q[low], 30)
    moved[:, low] -= step
    moved[:, high] += step
    log_odds = invert_set_posterior(moved.clip(0), theta, sizes, pi).log_odds
    with np.errstate(invalid="ignore"):  # ∞ − ∞ if both rows are clipped
        assert not (np.diff(log_odds) < -1e-9).any()


@given(problems(), st.integers(0, 10**6), st.floats(0.01, 0.99))
def test_eta_increases_with_the_target_prior(problem, seed, other):
    theta, sizes, pi = problem
    q = np.random.default_rng(seed).dirichlet(np.ones(len(theta)), size=20)
    low, high = (invert_set_posterior(q, theta, sizes, prior).positive for prior in sorted((pi, other)))
    assert (high >= low - 1e-12).all()


@given(problems(most_sets=4), st.integers(0, 5), st.integers(0, 10**6))
def test_splitting_a_set_changes_nothing(problem, which, seed):
    """Sets with equal priors are allowed and equivalent to their union."""
    theta, sizes, pi = problem
    which %= len(theta)
    q = np.random.default_rng(seed).dirichlet(np.ones(len(theta)), size=10)
    halves = np.column_stack([q, q[:, which] * 0.3])
    halves[:, which] *= 0.7
    split = [*sizes, 0.3 * sizes[which]]
    split[which] = 0.7 * sizes[which]
    whole = invert_set_posterior(q, theta, sizes, pi).positive
    np.testing.assert_allclose(
        invert_set_posterior(halves, [*theta, theta[which]], split, pi).positive, whole, atol=1e-7
    )


def test_pure_sets_equal_ordinary_classification():
    """With priors (1, 0) and equal sizes, the probability of set 0 is η."""
    q = np.array([1e-15, 1e-6, 0.3, 0.999])
    found = invert_set_posterior(np.stack([q, 1 - q], axis=1), (1.0, 0.0), (1, 1), 0.5)
    np.testing.assert_allclose(found.log_odds, logit(q), rtol=1e-12)
    many = invert_many(np.stack([q, 1 - q], axis=1), np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(many.log_odds, logit(q), rtol=1e-9)


def test_inversion_by_hand():
    """θ = (0.9, 0.1), equal sizes, π = ½: q₀ = 0.1 + 0.8·η."""
    found = invert_set_posterior([[0.1, 0.9], [0.3, 0.7], [0.05, 0.95], [1.0, 0.0]], (0.9, 0.1), (50, 50), 0.5)
    np.testing.assert_allclose(found.positive, [0.0, 0.25, 0.0, 1.0], atol=1e-12)
    assert found.clipped.tolist() == [False, False, True, True]
    assert found.clipped_fraction == 0.5
    assert found.log_odds[2:].tolist() == [-np.inf, np.inf]


def test_clipping_for_more_sets():
    theta, sizes = (0.9, 0.5, 0.1), (1, 1, 1)
    u, v = segment_ends(np.array(theta), np.full(3, 1 / 3))
    beyond = [u - 0.05 * (v - u), v + 0.05 * (v - u), (u + v) / 2]
    found = invert_set_posterior(beyond, theta, sizes, 0.3)
    np.testing.assert_allclose(found.positive, [0, 1, 0.3], atol=1e-12)
    assert found.clipped.tolist() == [True, True, False]


@pytest.mark.parametrize("pi", [1e-12, 1 - 1e-12])
def test_extreme_target_priors(pi):
    found = invert_set_posterior([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]], (0.8, 0.2), (1, 1), pi)
    assert found.log_odds[0] == pytest.approx(logit(pi), rel=1e-6)
    assert found.positive[1:].tolist() == [1.0, 0.0]


# ---------------------------------------------------------------------------------------------------------- prior shift


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_prior_shift_equals_bayes_rule_and_composes(first, second, third):
    expected = ETA * second / first / (ETA * second / first + (1 - ETA) * (1 - second) / (1 - first))
    np.testing.assert_allclose(shift_prior(ETA, first, second), expected, rtol=1e-9)
    np.testing.assert_allclose(
        shift_prior(shift_prior(ETA, first, second), second, third), shift_prior(ETA, first, third)
    )
    np.testing.assert_allclose(shift_prior(ETA, first, first), ETA)


def test_prior_shift_shifts_log_odds():
    assert shift_log_odds(1.5, 0.5, 0.2) == pytest.approx(1.5 + np.log(0.25))


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"set_priors": (0.5,)}, r"two or more numbers.*got \(0\.5,\); for example"),
        ({"set_priors": 0.5}, r"two or more numbers.*got 0\.5"),
        ({"set_priors": ("a", "b")}, "two or more numbers"),
        ({"set_priors": (0.5, 1.2, 0.1)}, r"set 1 must lie in \[0, 1\], got 1\.2"),
        ({"set_priors": (0.5, float("nan"), 0.1)}, r"set 1 must lie in \[0, 1\], got nan"),
        ({"set_priors": (0.4, 0.4, 0.4)}, r"must differ, got \(0\.4, 0\.4, 0\.4\).*use sets with different"),
        ({"set_fractions": (1, 1)}, "must be 3 positive numbers"),
        ({"set_fractions": (1, 0, 1)}, "must be 3 positive numbers"),
        ({"target_prior": 1.0}, r"strictly between 0 and 1, got 1\.0"),
        ({"probabilities": [[0.5, 0.5]]}, r"shape \(n, 3\).*got shape \(1, 2\)"),
        ({"probabilities": [[1 / 3] * 3, [0.5, 0.6, -0.1]]}, r"got \[0\.5, 0\.6, -0\.1\] in row 1"),
        ({"probabilities": [[0.5, 0.5, 0.5]]}, r"sum to 1, got \[0\.5, 0\.5, 0\.5\] in row 0"),
        ({"probabilities": [[np.nan, 0.5, 0.5]]}, "sum to 1, got"),
    ],
)
def test_rejects_bad_arguments(changes, text):
    good = {
        "probabilities": [[1 / 3] * 3],
        "set_priors": (0.9, 0.5, 0.1),
        "set_fractions": (1, 1, 1),
        "target_prior": 0.5,
    }
    assert invert_set_posterior(**good).positive == pytest.approx(0.5)
    with pytest.raises(ValueError, match=text):
        invert_set_posterior(**good | changes)


# ------------------------------------------------------------------------------------------- accuracy without labels


@given(problems())
def test_weights_are_unbiased_with_smallest_variance(problem):
    """The reference solves the linear system of the Lagrangian."""
    theta, sizes, pi = np.asarray(problem[0]), np.asarray(problem[1], dtype=float), problem[2]
    offset, weights, standard_error = accuracy_weights(theta, sizes, pi)
    assert offset == 1 - pi
    assert weights @ theta == pytest.approx(pi, abs=1e-9)
    assert weights @ (1 - theta) == pytest.approx(-(1 - pi), abs=1e-9)
    constraints = np.stack([theta, 1 - theta])
    system = np.block([[np.diag(1 / sizes), constraints.T], [constraints, np.zeros((2, 2))]])
    expected = np.linalg.lstsq(system, np.concatenate([np.zeros(len(theta)), [pi, pi - 1]]))[0][: len(theta)]
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)
    assert standard_error == pytest.approx(0.5 * np.sqrt((weights**2 / sizes).sum()))


@given(two_sets)
def test_two_sets_have_the_weights_of_the_uu_risk(problem):
    theta, sizes, pi = problem
    a, b, c, d = uu_coefficients(theta, pi)
    offset, weights, standard_error = accuracy_weights(theta, sizes, pi)
    assert (offset, *weights) == pytest.approx((1 - pi, a + b, -(c + d)), rel=1e-6, abs=1e-9)
    assert standard_error == pytest.approx(estimation_cost(theta, pi, sizes).standard_error)


@given(two_sets, st.integers(0, 10**6))
def test_splitting_a_set_keeps_the_estimated_accuracy(problem, seed):
    """Compares the computation from uu_risk with the weighted one; a score of 0 counts half."""
    theta, _, pi = problem
    rng = np.random.default_rng(seed)
    sets = np.repeat([0, 1, 2], [6, 4, 9])
    scores = rng.integers(-1, 2, len(sets)).astype(float)
    pooled = np.where(sets == 0, 0, sets - 1)
    split = estimate_accuracy(scores, sets, (theta[0], theta[0], theta[1]), pi)
    assert split == pytest.approx(estimate_accuracy(scores, pooled, theta, pi), abs=1e-9)


def test_estimated_accuracy_is_unbiased_and_more_precise_than_pairs():
    rng = np.random.default_rng(0)
    theta, sizes, pi, tpr, fpr = np.array([0.9, 0.6, 0.4, 0.2]), np.array([200, 400, 300, 100]), 0.3, 0.8, 0.25
    offset, weights, bound = accuracy_weights(theta, sizes, pi)
    predicted = rng.binomial(sizes, theta * tpr + (1 - theta) * fpr, size=(20_000, 4)) / sizes
    estimates = offset + predicted @ weights
    truth = pi * tpr + (1 - pi) * (1 - fpr)
    assert abs(estimates.mean() - truth) < 4 * estimates.std() / np.sqrt(20_000)
    assert estimates.std() < bound
    for pair in ([0, 3], [0, 2], [1, 3]):
        of_pair = accuracy_weights(theta[pair], sizes[pair], pi)
        assert (of_pair.offset + predicted[:, pair] @ of_pair.weights).std() > 1.2 * estimates.std()


def test_largest_standard_error_is_that_of_random_predictions():
    rng = np.random.default_rng(1)
    theta, sizes = (0.7, 0.5, 0.2), np.array([50, 80, 60])
    offset, weights, bound = accuracy_weights(theta, sizes, 0.4)
    estimates = offset + rng.binomial(sizes, 0.5, size=(20_000, 3)) / sizes @ weights
    assert estimates.std() == pytest.approx(bound, rel=0.03)


# ------------------------------------------------------------------------------------------------ calibration curve


def mixture_draw(seed, n, theta, fractions, slope, intercept):
    """Draw scores and sets of rows whose η at the pooled prior is a logistic curve in the score."""
    rng = np.random.default_rng(seed)
    score = rng.normal(1.0, 3.0, n)
    theta, rho = np.array(theta), np.array(fractions)
    u, v = segment_ends(theta, rho)
    t = expit(slope * score + intercept)
    q = np.outer(1 - t, u) + np.outer(t, v)
    return score, (rng.random((n, 1)) > q.cumsum(1)).sum(1), theta, rho


@pytest.mark.parametrize(
    ("theta", "rho"), [((0.8, 0.3), (0.5, 0.5)), ((0.1, 0.9, 0.5), (0.2, 0.5, 0.3)), ((1.0, 0.0), (0.4, 0.6))]
)
def test_curve_recovers_its_parameters(theta, rho):
    curve = fit_mixture_curve(*mixture_draw(0, 50_000, theta, rho, 0.7, -0.4))
    slope = curve.slope / curve.scale
    assert slope == pytest.approx(0.7, rel=0.1)
    assert curve.intercept - slope * curve.center == pytest.approx(-0.4, abs=0.08)
    assert curve.positive(np.array([0.4 / 0.7])) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_curve_maximizes_its_likelihood(seed):
    score, sets, theta, rho = mixture_draw(seed, 300, (0.9, 0.6, 0.2), (0.3, 0.3, 0.4), 1.0, 0.5)
    weight = np.random.default_rng(seed).random(300)
    curve = fit_mixture_curve(score, sets, theta, rho, weight)
    u, v = segment_ends(theta, rho)
    z = (score - score.mean()) / score.std()

    def loss(parameters):
        t = expit(parameters[0] * z + parameters[1])
        likelihood = ((1 - t) * u[sets] + t * v[sets]).clip(1e-300)
        return -(weight / weight.mean() * np.log(likelihood)).sum() + RIDGE / 2 * (parameters**2).sum()

    best = min(minimize(loss, start, method="Nelder-Mead").fun for start in ([0.5, 0], [4, 2], [4, -2]))
    assert loss(np.array([curve.slope, curve.intercept])) == pytest.approx(best, abs=1e-4)


def test_curve_is_finite_for_a_step_and_flat_for_reversed_or_constant_scores():
    sets = np.repeat([0, 1], 50)
    step = fit_mixture_curve(np.where(sets == 0, 1.0, -1.0), sets, np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    weak_prior = minimize_scalar(lambda slope: 100 * np.log1p(np.exp(-slope)) + 0.01 / 2 * slope**2)
    assert step.slope == pytest.approx(weak_prior.x, rel=0.02)
    reversed_scores = fit_mixture_curve(
        np.where(sets == 0, -1.0, 1.0), sets, np.array([0.8, 0.2]), np.array([0.5, 0.5])
    )
    assert reversed_scores.slope == 0.0  # scores worse than chance are not reversed
    constant = fit_mixture_curve(np.full(100, 7.0), sets, np.array([0.8, 0.2]), np.array([0.5, 0.5]))
    np.testing.assert_allclose(constant.positive(np.array([7.0])), 0.5, atol=1e-4)


def test_row_weights_equal_repetitions():
    score, sets, theta, rho = mixture_draw(3, 5000, (0.9, 0.2), (0.5, 0.5), 1.0, 0.0)
    count = np.random.default_rng(0).integers(1, 4, 5000)
    repeated = fit_mixture_curve(np.repeat(score, count), np.repeat(sets, count), theta, rho)
    weighted = fit_mixture_curve(score, sets, theta, rho, count.astype(float))
    at = np.linspace(-5, 7, 13)
    np.testing.assert_allclose(weighted.positive(at), repeated.positive(at), atol=1e-3)
