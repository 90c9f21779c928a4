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
def test_equal_inverse_of_mixing_matrix(set_priors, pi):
    np.testing.assert_allclose(
        uu_coefficients(set_priors, pi), reference.coefficients(*set_priors, pi), rtol=1e-8, atol=1e-9
    )


@given(priors, inner)
def test_constant_loss_gives_that_risk(set_priors, pi):
    """A classifier with constant loss 1 has risk 1: π in the positive term and 1 − π in the negative term."""
    a, b, c, d = uu_coefficients(set_priors, pi)
    assert a - c == pytest.approx(pi)
    assert d - b == pytest.approx(1 - pi)


def test_supervised_and_pu_limits():
    assert uu_coefficients((1.0, 0.0), 0.3) == pytest.approx((0.3, 0.0, 0.0, 0.7))
    a, b, c, d = uu_coefficients((1.0, 0.3), 0.3)
    assert (a, b, c, d) == pytest.approx((0.3, 0.3, 0.0, 1.0))  # π·R_p⁺ + (R_u⁻ − π·R_p⁻)


@pytest.mark.parametrize("set_priors", [(0.5, 0.5), (0.3, 0.3 + 1e-9)])
def test_rejects_equal_priors(set_priors):
    with pytest.raises(ValueError, match=r"must differ.*no information.*different class priors"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("set_priors", [(1.2, 0.1), (0.5, -0.1), (float("nan"), 0.1)])
def test_rejects_priors_outside_unit_interval(set_priors):
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\], got"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("set_priors", [0.5, (0.5,), (0.1, 0.2, 0.3), ("a", "b"), None])
def test_rejects_anything_but_two_numbers(set_priors):
    with pytest.raises(ValueError, match="must be two numbers"):
        uu_coefficients(set_priors, 0.5)


@pytest.mark.parametrize("pi", [0.0, 1.0, -0.5, 2, "half", float("nan")])
def test_rejects_target_prior_outside_open_interval(pi):
    with pytest.raises(ValueError, match="strictly between 0 and 1, got"):
        uu_coefficients((0.8, 0.2), pi)


def test_estimation_cost_bounds_simulated_standard_error():
    """A random classifier has the largest standard error, so the bound is nearly reached."""
    rng = np.random.default_rng(0)
    set_priors, pi, n = (0.6, 0.4), 0.5, 500
    a, b, c, d = uu_coefficients(set_priors, pi)
    predicted_positive = rng.random((4000, 2, n)) < 0.5  # random, independent of the class
    fraction0, fraction1 = predicted_positive.mean(2).T
    estimates = a * (1 - fraction0) - b * fraction0 - c * (1 - fraction1) + d * fraction1
    bound = estimation_cost(set_priors, pi, (n, n)).standard_error
    assert 0.95 * bound < estimates.std() < 1.05 * bound


def test_close_priors_warn_with_coefficients_and_precision():
    with pytest.warns(ClosePriorsWarning, match=r"only 0\.04, .* as large as 6\.5.*equivalent to 32 labeled rows"):
        UURisk((0.52, 0.48), 0.5)
