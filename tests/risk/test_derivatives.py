"""The gradient with respect to scores agrees with the formula in the module, and the Hessian is bounded."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uulearn.estimator.boosting import CURVATURE
from uulearn.risk import LOSSES, uu_coefficients
from uulearn.risk.corrections import METHODS, get_method
from uulearn.risk.derivatives import hessian_bound, risk_and_gradient
from uulearn.risk.functional import row_weights, weighted_risk
from uulearn.risk.losses import get_loss

# Largest second derivatives, by hand; ramp and double hinge are piecewise linear.
CURVATURES = {"logistic": 0.25, "sigmoid": 3**-1.5 / 2, "ramp": 0.0, "double_hinge": 0.0, "squared": 0.5}
SMOOTH = [name for name, curvature in CURVATURES.items() if curvature]
# First derivatives ℓ′(z) by hand, away from kinks.
SLOPES = {
    "logistic": lambda z: -torch.sigmoid(-z),
    "sigmoid": lambda z: -torch.sigmoid(z) * torch.sigmoid(-z),
    "ramp": lambda z: torch.where(z.abs() < 1, -0.5, 0.0),
    "double_hinge": lambda z: torch.where(z < -1, -1.0, torch.where(z < 1, -0.5, 0.0)),
    "squared": lambda z: (z - 1) / 2,
}
TRAINABLE = [name for name, loss in LOSSES.items() if loss.trainable]


@pytest.mark.parametrize("loss", TRAINABLE)
def test_largest_second_derivative(loss):
    """Automatic differentiation agrees with the value by hand, which the assumption of boosting is at least half of."""
    z = torch.linspace(-8, 8, 20_000, dtype=torch.float64).requires_grad_()  # no point is a kink
    (slope,) = torch.autograd.grad(get_loss(loss)(z).sum(), z, create_graph=True)
    curvature = torch.autograd.grad(slope.sum(), z)[0] if slope.requires_grad else torch.zeros(1)
    assert curvature.abs().max().item() == pytest.approx(CURVATURES[loss], rel=1e-6)
    assert CURVATURES[loss] <= 2 * CURVATURE


@settings(deadline=None, max_examples=150)
@given(
    scores=st.lists(st.floats(-4, 4), min_size=4, max_size=12),
    loss=st.sampled_from(SMOOTH),
    method=st.sampled_from(METHODS),
    priors=st.sampled_from([(0.8, 0.2), (0.4, 0.6), (0.55, 0.5)]),
    pi=st.floats(0.05, 0.95),
    n_leaves=st.integers(1, 3),
    lr=st.floats(0.01, 1),
)
def test_a_step_of_boosting_does_not_increase_the_objective(scores, loss, method, priors, pi, n_leaves, lr):
    """The rows of a leaf get the same step; the objective has a kink where a risk term changes its sign."""
    values, weights = problem(scores, len(scores) // 2, priors, pi)
    chosen, margin_loss = get_method(method), get_loss(loss)
    before, gradient = risk_and_gradient(values, weights, margin_loss, chosen)
    bound, leaves = hessian_bound(weights, chosen, CURVATURE), torch.arange(len(scores)) % n_leaves
    totals = [torch.zeros(n_leaves, dtype=torch.float64).index_add(0, leaves, part) for part in (gradient, bound)]
    after = weighted_risk(values - lr * (totals[0] / totals[1])[leaves], weights, margin_loss, chosen)
    if all(first.sign() == second.sign() for first, second in zip(before[:2], after[:2], strict=True)):
        assert after.objective <= before.objective + 1e-12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("priors", [(0.8, 0.2), (1.0, 0.0), (0.3, 0.6)])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])  # one of the risk terms is negative, or none
def test_the_gradient_of_the_sigmoid_loss_is_that_of_automatic_differentiation(method, priors, shift):
    scores = torch.randn(301, generator=torch.Generator().manual_seed(0)) + shift * torch.linspace(1, -1, 301)
    scores[0] = torch.inf
    weights = row_weights((torch.arange(301) > 140).long(), uu_coefficients(priors, 0.4))
    chosen, at = get_method(method, -0.3), scores.clone().requires_grad_()
    expected = weighted_risk(at, weights, get_loss("sigmoid"), chosen)
    found, gradient = risk_and_gradient(scores, weights, get_loss("sigmoid"), chosen)
    assert torch.equal(gradient, torch.autograd.grad(expected.objective, at)[0])
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def problem(draw_scores, n0, priors, pi):
    scores = torch.tensor(draw_scores, dtype=torch.float64)
    sets = (torch.arange(len(scores)) >= n0).long()
    return scores, row_weights(sets, uu_coefficients(priors, pi), torch.float64)


@settings(deadline=None, max_examples=150)
@given(
    scores=st.lists(st.floats(-6, 6).filter(lambda z: abs(abs(z) - 1) > 1e-3), min_size=4, max_size=12),
    loss=st.sampled_from(TRAINABLE),
    method=st.sampled_from([*METHODS, ("relu", "abs")]),
    priors=st.sampled_from([(0.8, 0.2), (0.4, 0.6), (1.0, 0.0), (0.3, 0.0), (0.55, 0.5)]),
    pi=st.floats(0.05, 0.95),
    slope=st.floats(-1, 0),
)
def test_gradient_agrees_with_the_formula_and_the_hessian_is_bounded(scores, loss, method, priors, pi, slope):
    values, weights = problem(scores, len(scores) // 2, priors, pi)
    chosen, margin_loss = get_method(method, slope), get_loss(loss)
    risk, found = risk_and_gradient(values, weights, margin_loss, chosen)
    assert not any(part.requires_grad for part in (*risk, found))

    def objective(g):
        return weighted_risk(g, weights, margin_loss, chosen).objective

    slope_of = SLOPES[loss]
    if chosen.objective == "membership":
        side = weights.membership.sign()
        expected = weights.membership * slope_of(side * values)
    else:
        outer = []
        for correction, term in zip(chosen.corrections, (risk.positive, risk.negative), strict=True):
            at = term.clone().requires_grad_()
            outer.append(torch.autograd.grad(correction(at), at)[0])
        expected = outer[0] * weights.positive * slope_of(values) - outer[1] * weights.negative * slope_of(-values)
    torch.testing.assert_close(found, expected)
    assert risk.objective == objective(values)
    curvature = torch.autograd.functional.hessian(objective, values).diagonal()
    bound = hessian_bound(weights, chosen, CURVATURES[loss])
    assert bool((bound > 0).all() or priors == (0.3, 0.0) or loss not in SMOOTH)
    assert bool((curvature.abs() <= bound + 1e-12).all())


def test_loss_and_corrections_may_be_functions():
    values, weights = problem([-1.0, 0.5, 2.0, -0.3], 2, (0.7, 0.4), 0.5)
    own = risk_and_gradient(values, weights, get_loss(lambda z: torch.exp(-z)), get_method((torch.abs, torch.abs)))[1]
    at = values.clone().requires_grad_()
    positive, negative = (weights.positive * torch.exp(-at)).sum(), (weights.negative * torch.exp(at)).sum()
    (expected,) = torch.autograd.grad(positive.abs() + negative.abs(), at)
    torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("loss", TRAINABLE)
def test_gradient_by_hand(loss):
    values, weights = problem([0.0, 0.0], 1, (1.0, 0.0), 0.5)
    slope = {"squared": -0.5, "logistic": -0.5, "double_hinge": -0.5, "sigmoid": -0.25, "ramp": -0.5}[loss]
    gradient = risk_and_gradient(values, weights, get_loss(loss), get_method("abs"))[1]
    assert gradient.tolist() == [0.5 * slope, -0.5 * slope]
