import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import reference
from uulearn.risk import LOSSES, get_loss

TRAINABLE = [name for name, loss in LOSSES.items() if loss.trainable]


@pytest.mark.parametrize("name", LOSSES)
@given(z=st.floats(-1e4, 1e4, width=32))
def test_values_equal_reference_implementation(name, z):
    value = LOSSES[name](torch.tensor([z], dtype=torch.float64)).item()
    assert value == pytest.approx(reference.loss(name, z), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_finite_in_float32_for_large_margins(name):
    z = torch.cat([torch.linspace(-1e4, 1e4, 4001), torch.tensor([0.0, -0.0])]).requires_grad_()
    values = LOSSES[name](z)
    assert values.isfinite().all()
    assert (values >= 0).all()
    if LOSSES[name].trainable:
        values.sum().backward()
        assert z.grad.isfinite().all()


@pytest.mark.parametrize("name", ["sigmoid", "ramp", "zero_one"])
@given(z=st.floats(-50, 50))
def test_symmetric_losses_sum_to_one(name, z):
    z = torch.tensor(z, dtype=torch.float64)
    assert (LOSSES[name](z) + LOSSES[name](-z)).item() == pytest.approx(1)


@pytest.mark.parametrize("name", ["logistic", "double_hinge", "squared"])
@given(z=st.floats(-50, 50))
def test_difference_to_mirrored_loss_is_linear(name, z):
    z = torch.tensor(z, dtype=torch.float64)
    assert (LOSSES[name](z) - LOSSES[name](-z)).item() == pytest.approx(-z.item(), abs=1e-9)


@pytest.mark.parametrize("name", TRAINABLE)
def test_gradients_against_finite_differences(name):
    # Off the kinks of ramp (±1) and double hinge (±1).
    z = torch.tensor([-3.3, -1.2, -0.4, 0.3, 0.9, 2.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LOSSES[name], z)


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].proper])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_proper_losses_recover_the_probability(name, p):
    """The score that minimizes p·ℓ(z) + (1 − p)·ℓ(−z) maps back to p."""
    z = torch.linspace(-4, 4, 80001, dtype=torch.float64)
    expected = p * LOSSES[name](z) + (1 - p) * LOSSES[name](-z)
    assert LOSSES[name].probability(z[expected.argmin()]).item() == pytest.approx(p, abs=1e-3)


def test_zero_one_at_zero_is_a_half():
    assert LOSSES["zero_one"](torch.tensor([0.0, 1.0, -1.0])).tolist() == [0.5, 0.0, 1.0]


def test_accepts_a_function():
    own = get_loss(lambda z: torch.exp(-z))
    assert own(torch.zeros(2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("loss", "error", "text"),
    [
        ("hinge", ValueError, "'hinge'"),
        (7, TypeError, "name or a function"),
        (lambda z: z.mean(), ValueError, "same shape"),
        (lambda z: -z, ValueError, "non-negative, but is -0.5 at margin 0.5"),
        (lambda z: z * float("nan"), ValueError, "non-negative"),
    ],
)
def test_rejects_bad_losses(loss, error, text):
    with pytest.raises(error, match=text):
        get_loss(loss)
