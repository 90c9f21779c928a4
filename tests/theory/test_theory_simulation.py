"""Bounds against simulations, and against exact probabilities.

With the zero-one loss a set is a binomial number of rows predicted positive, so both risk terms have known
distributions. `exact` sums over them and uses nothing of the package but the coefficients.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from helpers.risk_simulation import printed_bound, simulate_risk_terms
from uulearn import uu_coefficients
from uulearn.theory import (
    NetworkNorms,
    alternative_deviation_bound,
    anticipated_spread,
    bias_bound,
    correction_lipschitz,
    deviation_bound,
    estimation_error_bound,
    guaranteed_spread,
    hoeffding_half_width,
    negative_term_bound,
    worst_spread,
)

SLOPES = {"relu": 0.0, "abs": -1.0, "leaky_relu": -3.0}  # L_f = 1, 1, 3


def correct(term, slope):
    return np.where(term < 0, slope * term, term)


def predicted_positive(set_priors, tpr, fpr):
    return [theta * tpr + (1 - theta) * fpr for theta in set_priors]


def terms_of(set_priors, pi, s, s_prime):
    a, b, c, d = uu_coefficients(set_priors, pi)
    return a * (1 - s) - c * (1 - s_prime), d * s_prime - b * s


def exact(set_priors, pi, sizes, tpr, fpr):
    """Return the probability that a risk term is negative, and E[(−X)⁺] summed over both terms X."""
    p, p_prime = predicted_positive(set_priors, tpr, fpr)
    k, k_prime = np.arange(sizes[0] + 1)[:, None], np.arange(sizes[1] + 1)[None, :]
    weight = binom.pmf(k, sizes[0], p) * binom.pmf(k_prime, sizes[1], p_prime)
    positive, negative = terms_of(set_priors, pi, k / sizes[0], k_prime / sizes[1])
    noise = 1e-12  # terms that are zero up to rounding
    below = weight[(positive < -noise) | (negative < -noise)].sum()
    depth = (weight * (np.maximum(-positive, 0) + np.maximum(-negative, 0))).sum()
    return below, depth


def parts(pi, tpr, fpr):
    """Return the largest α and β of a classifier with these rates, for the zero-one loss."""
    return {"alpha": pi * (1 - tpr), "beta": (1 - pi) * fpr}


# ------------------------------------------------------------------------------------------------- Lemma 2 and the bias

probability = st.floats(0, 1)
some_priors = st.tuples(probability, probability).filter(lambda pair: abs(pair[0] - pair[1]) > 0.05)


@given(some_priors, st.floats(0.05, 0.95), st.tuples(st.integers(1, 60), st.integers(1, 60)), probability, probability)
def test_exact_bias_and_probability_are_within_their_bounds(priors, pi, sizes, tpr, fpr):
    below, depth = exact(priors, pi, sizes, tpr, fpr)
    assert below <= negative_term_bound(priors, pi, sizes, **parts(pi, tpr, fpr)).value + 1e-12
    for method, slope in SLOPES.items():
        bound = bias_bound(
            priors, pi, sizes, **parts(pi, tpr, fpr), correction_lipschitz=correction_lipschitz(method, slope)
        )
        bias = (1 - slope) * depth  # f(x) − x = (λ − 1)·x for x < 0
        assert 0 <= bias <= bound.sharp + 1e-12
        assert bound.sharp <= bound.value


@pytest.mark.parametrize("method", SLOPES)
def test_simulated_bias_is_positive_and_below_its_bound(method):
    priors, pi, sizes, accuracy = (0.8, 0.2), 0.5, (60, 40), 0.85
    slope = SLOPES[method]
    terms = simulate_risk_terms(priors, pi, sizes, accuracy, 400_000, np.random.default_rng(0))
    corrected = sum(correct(term, slope) for term in terms)
    bias, error = corrected.mean() - (1 - accuracy), corrected.std() / math.sqrt(len(corrected))
    bound = bias_bound(
        priors, pi, sizes, **parts(pi, accuracy, 1 - accuracy), correction_lipschitz=correction_lipschitz(method, slope)
    )
    assert bias > 5 * error  # significantly above zero
    assert bias < bound.sharp < bound.value
    assert bias == pytest.approx((1 - slope) * exact(priors, pi, sizes, accuracy, 1 - accuracy)[1], abs=4 * error)


def test_bias_decays_exponentially_and_at_least_as_fast_as_its_bound():
    priors, pi, accuracy = (0.7, 0.3), 0.5, 0.8
    risk_parts = parts(pi, accuracy, 1 - accuracy)
    sizes = np.arange(40, 241, 40)
    rng = np.random.default_rng(0)
    simulated = []
    for n in sizes.tolist():
        positive, negative = simulate_risk_terms(priors, pi, (n, n), accuracy, 1_000_000, rng)
        simulated.append((np.maximum(-positive, 0) + np.maximum(-negative, 0)).mean())
    exactly = [exact(priors, pi, (n, n), accuracy, 1 - accuracy)[1] for n in sizes.tolist()]
    np.testing.assert_allclose(simulated, exactly, rtol=0.15)
    bounds = [bias_bound(priors, pi, (n, n), **risk_parts).value for n in sizes.tolist()]
    log_bounds = np.log(bounds)
    np.testing.assert_allclose(np.diff(log_bounds), log_bounds[1] - log_bounds[0], rtol=1e-9)  # exactly exponential
    slope, _ = np.polyfit(sizes, np.log(simulated), 1)
    assert np.corrcoef(sizes, np.log(simulated))[0, 1] < -0.99
    assert slope < (log_bounds[-1] - log_bounds[0]) / (sizes[-1] - sizes[0]) < 0
    # For large n the polynomial factor matters little: the rate is close to that of the bound, and still steeper.
    late = np.log([exact(priors, pi, (n, n), accuracy, 1 - accuracy)[1] for n in (600, 700)])
    rate = (late[1] - late[0]) / 100
    bound_rate = (log_bounds[1] - log_bounds[0]) / 40
    assert 1.5 * bound_rate < rate < bound_rate


def test_printed_exponent_fails_and_corrected_exponent_holds():
    """Many rows of set 0 and few of set 1: the noise of the negative term comes from d·R̂_u′⁻, that is from few rows."""
    priors, pi, sizes, accuracy = (0.8, 0.2), 0.5, (2000, 40), 0.9
    risk_parts = parts(pi, accuracy, 1 - accuracy)
    positive, negative = simulate_risk_terms(priors, pi, sizes, accuracy, 100_000, np.random.default_rng(0))
    below = ((positive < 0) | (negative < 0)).mean()
    assert below == pytest.approx(exact(priors, pi, sizes, accuracy, 1 - accuracy)[0], abs=0.005)
    ours, printed = (
        negative_term_bound(priors, pi, sizes, **risk_parts).value,
        printed_bound(priors, pi, sizes, **risk_parts),
    )
    assert below <= ours < 1
    assert below > 10 * printed
    # The bias bound based on the printed exponent fails too.
    sizes = (2000, 30)
    a, b, c, d = uu_coefficients(priors, pi)
    bias = exact(priors, pi, sizes, 0.8, 0.2)[1]
    risk_parts = parts(pi, 0.8, 0.2)
    assert 2 * (a + b + c + d) * printed_bound(priors, pi, sizes, **risk_parts) < bias
    assert bias <= bias_bound(priors, pi, sizes, **risk_parts).sharp


@given(some_priors, st.floats(0.05, 0.95), st.integers(1, 500), probability, probability)
def test_both_exponents_agree_for_equal_sizes(priors, pi, n, tpr, fpr):
    risk_parts = parts(pi, tpr, fpr)
    ours = negative_term_bound(priors, pi, (n, n), **risk_parts).value
    assert ours == pytest.approx(printed_bound(priors, pi, (n, n), **risk_parts), rel=1e-9, abs=1e-300)


# ---------------------------------------------------------------------------------------------------------- deviations


def simulated_risks(set_priors, pi, sizes, accuracy, draws=50_000, seed=0):
    return simulate_risk_terms(set_priors, pi, sizes, accuracy, draws, np.random.default_rng(seed))


@pytest.mark.parametrize("method", SLOPES)
@pytest.mark.parametrize(
    ("set_priors", "pi", "sizes", "accuracy"),
    [((0.8, 0.2), 0.5, (100, 100), 0.8), ((0.9, 0.3), 0.3, (400, 150), 0.75), ((0.6, 0.4), 0.5, (200, 300), 0.7)],
)
def test_deviation_bounds_have_at_least_nominal_coverage(set_priors, pi, sizes, accuracy, method):
    slope, delta = SLOPES[method], 0.2
    lipschitz = correction_lipschitz(method, slope)
    terms = simulated_risks(set_priors, pi, sizes, accuracy)
    deviation = np.abs(sum(correct(term, slope) for term in terms) - (1 - accuracy))
    keywords = parts(pi, accuracy, 1 - accuracy) | {"correction_lipschitz": lipschitz, "delta": delta}
    exceed = negative_term_bound(set_priors, pi, sizes, **parts(pi, accuracy, 1 - accuracy))
    first = deviation_bound(set_priors, pi, sizes, **keywords)
    second = alternative_deviation_bound(set_priors, pi, sizes, **keywords)
    for bound in (first, second):
        assert bound.sharp < bound.value
        assert (deviation <= bound.sharp).mean() >= bound.confidence
    assert first.confidence == 1 - delta
    assert second.confidence == pytest.approx(1 - delta - exceed.value)
    # The bounds are informative: the quantile is within a small factor of C_δ·χ.
    assert np.quantile(deviation, 1 - delta) > second.value / (6 * lipschitz)


def test_deviation_bounds_hold_for_a_smooth_loss_on_gaussians():
    """Sigmoid loss, C_ℓ = 1, g(x) = 2x, classes N(±1, 1); the parts of the risk are computed by quadrature."""
    set_priors, pi, sizes, draws, delta = (0.75, 0.35), 0.4, (80, 50), 20_000, 0.1
    rng = np.random.default_rng(0)

    def loss(z):
        return 1 / (1 + np.exp(z))

    def mean_loss(sign):
        return quad(lambda x: loss(2 * sign * x) * norm.pdf(x, loc=sign), -12, 12)[0]

    alpha, beta = pi * mean_loss(1), (1 - pi) * mean_loss(-1)
    a, b, c, d = uu_coefficients(set_priors, pi)
    scores = []
    for theta, n in zip(set_priors, sizes, strict=True):
        label = np.where(rng.random((draws, n)) < theta, 1, -1)
        scores.append(2 * rng.normal(loc=label))
    plus, minus = ([loss(sign * g).mean(1) for g in scores] for sign in (1, -1))
    positive, negative = a * plus[0] - c * plus[1], d * minus[1] - b * minus[0]
    risk = alpha + beta
    assert (positive.mean(), negative.mean()) == pytest.approx((alpha, beta), abs=0.005)
    below = ((positive < 0) | (negative < 0)).mean()
    exceed = negative_term_bound(set_priors, pi, sizes, alpha=alpha, beta=beta)
    assert 0 < below <= exceed.value
    for slope in (0.0, -1.0):
        corrected = correct(positive, slope) + correct(negative, slope)
        bias = corrected.mean() - (positive + negative).mean()
        assert 0 < bias <= bias_bound(set_priors, pi, sizes, alpha=alpha, beta=beta).sharp
        for bound in (deviation_bound, alternative_deviation_bound):
            promised = bound(set_priors, pi, sizes, alpha=alpha, beta=beta, delta=delta)
            assert (np.abs(corrected - risk) <= promised.sharp).mean() >= promised.confidence
            assert promised.sharp < promised.value
    unbiased = np.abs(positive + negative - risk)
    assert (unbiased <= hoeffding_half_width(set_priors, pi, sizes, delta=delta)).mean() >= 1 - delta


@pytest.mark.parametrize(
    ("set_priors", "pi", "sizes", "accuracy"),
    [
        ((0.8, 0.2), 0.5, (1000, 1000), 0.9),
        ((0.6, 0.4), 0.3, (3000, 500), 0.8),
        ((0.95, 0.5), 0.7, (400, 2500), 0.95),
        ((0.55, 0.45), 0.5, (5000, 5000), 0.5),
    ],
)
@pytest.mark.parametrize("delta", [0.05, 0.3])
def test_intervals_for_the_accuracy_have_nominal_coverage(set_priors, pi, sizes, accuracy, delta):
    positive, negative = simulated_risks(set_priors, pi, sizes, accuracy, seed=1)
    deviation = np.abs(positive + negative - (1 - accuracy))

    def coverage(spread):
        return (deviation <= spread.half_width(sizes)).mean()

    assert coverage(anticipated_spread(set_priors, pi, accuracy=accuracy, delta=delta)) == pytest.approx(
        1 - delta, abs=0.012
    )
    assert coverage(worst_spread(set_priors, pi, delta=delta)) >= 1 - delta - 0.012
    assert coverage(guaranteed_spread(set_priors, pi, delta=delta)) >= 1 - delta


def test_planned_rows_give_the_requested_half_width():
    set_priors, pi, accuracy, half_width = (0.7, 0.2), 0.3, 0.85, 0.05
    spread = anticipated_spread(set_priors, pi, accuracy=accuracy)
    for fraction in (None, 0.5, 0.2):
        positive, negative = simulated_risks(set_priors, pi, spread.rows(half_width, fraction), accuracy, seed=2)
        within = (np.abs(positive + negative - (1 - accuracy)) <= half_width).mean()
        assert within == pytest.approx(0.95, abs=0.008)


# ------------------------------------------------------------------------------------------------- trained classifiers


def test_minimizer_over_a_class_is_within_theorem_4():
    """g_w(x) = w·x with |w| ≤ 1 on [−1, 1], class densities (1 ± x)/2, sigmoid loss; minimized over a grid of w."""
    set_priors, pi, n, draws, delta = (0.7, 0.4), 0.4, 60, 500, 0.1
    weights = np.linspace(-1, 1, 81)
    x = np.linspace(-1, 1, 2001)

    def loss(z):
        return 1 / (1 + np.exp(z))

    margins = weights[:, None] * x
    positive_part, negative_part = (
        np.trapezoid(loss(sign * margins) * (1 + sign * x) / 2, x, axis=1) for sign in (1, -1)
    )
    risk = pi * positive_part + (1 - pi) * negative_part
    a, b, c, d = uu_coefficients(set_priors, pi)
    rng = np.random.default_rng(0)
    excess, largest = [], []
    for _ in range(draws):
        terms = []
        for theta in set_priors:
            label = np.where(rng.random(n) < theta, 1, -1)
            rows = label * (2 * np.sqrt(rng.random(n)) - 1)  # density (1 + x)/2, mirrored for negatives
            z = weights[:, None] * rows
            terms.append((loss(z).mean(1), loss(-z).mean(1)))
        (plus, minus), (plus_prime, minus_prime) = terms
        corrected = np.maximum(a * plus - c * plus_prime, 0) + np.maximum(d * minus_prime - b * minus, 0)
        excess.append(risk[corrected.argmin()] - risk.min())
        largest.append(np.abs(corrected - risk).max())
    # ℜ_n = E|Σ ε x|/n ≤ √(E x²/n); the class is closed under negation.
    rademacher = math.sqrt(1 / 3 / n)
    bound = estimation_error_bound(
        set_priors, pi, (n, n), rademacher=(rademacher, rademacher), alpha=pi * positive_part.min(),
        beta=(1 - pi) * negative_part.min(), loss_bound=loss(-1.0), loss_lipschitz=0.25, delta=delta,
    )  # fmt: skip
    assert np.mean(np.array(excess) <= bound.value) >= 1 - delta
    assert 0.01 < np.mean(np.array(excess) > 0) < 0.5  # the noise sometimes leads to a wrong choice
    # Theorem 4 is twice a bound on the largest deviation over the class, which is within a factor of ten.
    assert np.mean(np.array(largest) <= bound.value / 2) >= 1 - delta
    assert bound.value / 2 < 10 * np.quantile(largest, 1 - delta)


@pytest.mark.parametrize("depth", [1, 2])
def test_complexity_of_small_networks_is_within_the_corollary(depth):
    """The supremum is ‖Σ ε x‖/n for one layer, and the maximum over directions v of |Σ ε σ(v·x)|/n for two."""
    rng = np.random.default_rng(0)
    n, draws = 40, 400
    rows = rng.normal(size=(draws, n, 2))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=2, keepdims=True))
    signs = rng.choice([-1.0, 1.0], size=(draws, n))
    if depth == 1:
        largest = np.linalg.norm(np.einsum("di,dij->dj", signs, rows), axis=1)
    else:
        angle = np.linspace(0, 2 * np.pi, 120)
        along = np.maximum(rows @ np.stack([np.cos(angle), np.sin(angle)]), 0)
        largest = np.abs(np.einsum("di,dik->dk", signs, along)).max(1)
    simulated = 1.5 ** (depth - 1) * 2.0 * (largest / n).mean()
    norms = NetworkNorms(tuple([2.0, 1.5][:depth]), input_bound=1.0)
    assert simulated <= norms.complexity / math.sqrt(n) < 8 * simulated
