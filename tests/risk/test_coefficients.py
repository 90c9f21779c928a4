import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import reference
from uulearn import uu_coefficients
from uulearn.exceptions import ClosePriorsWarning
from uulearn.risk import UURisk, estimation_cost

probability = st.floats(0, 1)
inner = st.floats(0.01, 0.99)


def different(priors):
    return abs(priors[0] - priors[1]) > 1e-3


priors = st.tuples(probability, probability).filter(different)


@given(priors, inner)
def test_agree_with_the_inverse_of_the_mixing_matrix(set_priors, pi):
    np.testing.assert_allclose(
        uu_coefficients(set_priors, pi), reference.coefficients(*set_priors, pi), rtol=1e-8, atol=1e-9
    )


@given(priors, inner)
def test_constant_losses_are_reproduced(set_priors, pi):
    """A classifier that always loses 1 has risk 1: π in the positive bracket and 1 − π in the negative one."""
    a, b, c, d = uu_coefficients(set_priors, pi)
    assert a - c == pytest.approx(pi)
    assert d - b == pytest.approx(1 - pi)


def test_supervised_and_pu_limits():
    assert uu_coefficients((1.0, 0.0), 0.3) == pytest.approx((0.3, 0.0, 0.0, 0.7))
    a, b, c, d = uu_coefficients((1.0, 0.3), 0.3)
    assert (a, b, c, d) == pytest.approx((0.3, 0.3, 0.0, 1.0))  # π·R_p⁺ + (R_u⁻ − π·R_p⁻)


@pytest.mark.parametrize("set_priors", [(0.5, 0.5), (0.3, 0.3 + 1e-9)])
def test_equal_priors_are_refused(set_priors):
    with pytest.raises(ValueError, match=r"must differ.*infinite.*collect"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("set_priors", [(1.2, 0.1), (0.5, -0.1), (float("nan"), 0.1)])
def test_priors_outside_the_unit_interval_are_refused(set_priors):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("set_priors", [0.5, (0.5,), (0.1, 0.2, 0.3), ("a", "b"), None])
def test_priors_must_be_two_numbers(set_priors):
    with pytest.raises(ValueError, match="must be two numbers"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("pi", [0.0, 1.0, -0.5, 2, "half", float("nan")])
def test_target_prior_must_be_inside(pi):
    with pytest.raises(ValueError, match="strictly between 0 and 1, got"):
        uu_coefficients((0.8, 0.2), pi)


def test_estimation_cost_bounds_the_spread_of_the_estimated_error():
    """Simulated standard error of the zero-one UU risk stays under the bound, and comes near it for g = chance."""
    rng = np.random.default_rng(0)
    set_priors, pi, n = (0.6, 0.4), 0.5, 500
    a, b, c, d = uu_coefficients(set_priors, pi)
    says_positive = rng.random((4000, 2, n)) < 0.5  # a coin, independent of the class
    share0, share1 = says_positive.mean(2).T
    estimates = a * (1 - share0) - b * share0 - c * (1 - share1) + d * share1
    bound = estimation_cost(set_priors, pi, (n, n)).standard_error
    assert 0.95 * bound < estimates.std() < 1.05 * bound


def test_close_priors_warn_with_coefficients_and_cost():
    with pytest.warns(ClosePriorsWarning, match=r"only 0\.04: the coefficients reach 6\.5.*labels on 32 of them"):
        UURisk((0.52, 0.48), 0.5)
