import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uulearn.risk import check_correction
from uulearn.risk.corrections import get_method

real = st.floats(-1e6, 1e6)


def apply(method, x, slope=-0.1):
    return get_method(method, slope).corrections[0](torch.tensor(x, dtype=torch.float64)).item()


@given(real)
def test_abs_and_relu_are_special_cases_of_leaky_relu(x):
    assert apply("abs", x) == apply("leaky_relu", x, slope=-1.0) == abs(x)
    assert apply("relu", x) == apply("leaky_relu", x, slope=0.0) == max(x, 0)
    assert apply("unbiased", x) == x


@given(real, st.floats(-10, 0))
def test_leaky_relu_is_a_consistent_correction(x, slope):
    value = apply("leaky_relu", x, slope)
    assert value >= max(x, 0)
    assert value == (x if x >= 0 else slope * x)


@pytest.mark.parametrize("slope", [-2000.0, -3.0, -1.0, -0.1, 0.0])
def test_leaky_relu_passes_the_check(slope):
    check_correction(get_method("leaky_relu", slope).corrections[0])
    check_correction(lambda x: torch.where(x < 0, (slope * x).clamp(max=5.0), x))  # constant beyond a kink


def negative_part(f):
    return lambda x: torch.where(x < 0, f(x), x)


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: x, r"must be non-negative, but f\(-1\) = -1"),
        (negative_part(lambda x: 0.1 * x), r"must be non-negative, but f\(-1\) = -0\.1"),
        (torch.square, r"not the identity on x ≥ 0: f\(0\.98"),
        (torch.exp, "not the identity on x ≥ 0"),
        (negative_part(torch.ones_like), "not Lipschitz: slope above 1e\\+06 near x = 0"),
        (negative_part(torch.square), "not Lipschitz"),
        (lambda x: torch.where(x < -1, torch.ones_like(x), x.clamp(min=0)), "not Lipschitz.*near x = -1;"),
        (negative_part(lambda x: x.abs().sqrt()), "not Lipschitz"),
        (lambda x: x * float("nan"), "must be non-negative"),
        (lambda x: x.abs().sum(), "same shape"),
        (3, "function of a tensor"),
    ],
)
def test_error_names_the_property_and_the_position(f, text):
    with pytest.raises(ValueError, match=text):
        check_correction(f)


def test_pairs_may_mix_names_and_functions():
    def half_slope(x):
        return torch.where(x < 0, -0.5 * x, x)

    method = get_method(("relu", half_slope))
    x = torch.tensor(-2.0)
    assert [f(x).item() for f in method.corrections] == [0.0, 1.0]
    assert method.name == "relu+half_slope"


@pytest.mark.parametrize("slope", [0.1, 1, float("nan"), float("-inf"), "steep", None])
def test_rejects_slopes_other_than_non_positive_numbers(slope):
    with pytest.raises(ValueError, match="must be a number ≤ 0, got"):
        get_method("leaky_relu", slope)


@pytest.mark.parametrize("method", ["nnpu", ("relu",), ("relu", "unbiased"), 5, (torch.abs, torch.square)])
def test_rejects_unknown_methods(method):
    with pytest.raises(ValueError, match=r"must be one of|pair|correction"):
        get_method(method)
