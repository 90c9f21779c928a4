"""Bounds against values computed by hand, their symmetries and monotonicity, and error messages."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from torch import nn

from uulearn import UUClassifier
from uulearn.models import MLP, Linear, ResNet32
from uulearn.risk import LOSSES, estimation_cost, get_loss, uu_coefficients
from uulearn.theory import (
    IntervalSpread,
    NetworkNorms,
    alternative_deviation_bound,
    anticipated_spread,
    bias_bound,
    correction_lipschitz,
    deviation_bound,
    estimation_error_bound,
    guaranteed_spread,
    hoeffding_half_width,
    loss_constants,
    negative_term_bound,
    network_error_bound,
    network_norms,
    prior_error_effect,
    worst_spread,
)
from uulearn.theory.network import affine_layers
from uulearn.training import TrainingOptions

probability = st.floats(0, 1)
inner = st.floats(0.05, 0.95)
priors = st.tuples(probability, probability).filter(lambda pair: abs(pair[0] - pair[1]) > 0.01)
sizes = st.tuples(st.integers(1, 10_000), st.integers(1, 10_000))
SETTING = ((0.7, 0.4), 0.3, (200, 50))
# By hand: a = .6·.3/.3 = .6, b = .4·.7/.3 = 14/15, c = .3·.3/.3 = .3, d = .7·.7/.3 = 49/30.
A, B, C, D = 0.6, 14 / 15, 0.3, 49 / 30


# ------------------------------------------------------------------------------------------------ Lemma 2 and Theorem 3


def test_negative_term_bound_by_hand():
    bound = negative_term_bound(*SETTING, alpha=0.1, beta=0.3, loss_bound=2.0)
    assert bound.positive == pytest.approx(math.exp(-2 * 0.05**2 / (A**2 / 200 + C**2 / 50)), rel=1e-12)
    assert bound.negative == pytest.approx(math.exp(-2 * 0.15**2 / (B**2 / 200 + D**2 / 50)), rel=1e-12)
    assert bound.value == bound.positive + bound.negative


def test_bias_by_hand():
    bound = bias_bound(*SETTING, alpha=0.1, beta=0.3, loss_bound=2.0, correction_lipschitz=3.0)
    exceed = negative_term_bound(*SETTING, alpha=0.1, beta=0.3, loss_bound=2.0)
    assert bound.value == pytest.approx((3 + 1) * (A + B + C + D) * 2.0 * exceed.value, rel=1e-12)
    parts = []
    for mean, variance, most in ((0.1, A**2 / 200 + C**2 / 50, C * 2), (0.3, B**2 / 200 + D**2 / 50, B * 2)):
        tail = quad(lambda t, m=mean, v=variance: math.exp(-2 * (m + t) ** 2 / (4 * v)), 0, np.inf)[0]
        parts.append(min(tail, most * math.exp(-2 * mean**2 / (4 * variance))))
    assert bound.sharp == pytest.approx(4 * sum(parts), rel=1e-7)


def test_sharp_bias_uses_the_smallest_value_of_a_term():
    """If little is subtracted, a term cannot be far below zero: c·C_ℓ·Δ⁺ is the smaller bound, here with α = 0."""
    bound = bias_bound((0.999, 0.0), 0.5, (1, 1), alpha=0.0, beta=0.5)
    c = 0.001 * 0.5 / 0.999
    assert bound.sharp == pytest.approx(2 * c, rel=1e-9)  # b = 0: the negative term adds nothing
    assert bias_bound((1.0, 0.0), 0.5, (1, 1), alpha=0.0, beta=0.0).sharp == 0.0  # with labels nothing is subtracted


def test_deviations_by_hand():
    keywords = {"alpha": 0.1, "beta": 0.3, "loss_bound": 2.0, "correction_lipschitz": 3.0}
    chi = (A + B) / math.sqrt(200) + (C + D) / math.sqrt(50)
    spread = 2.0 * 3.0 * math.sqrt(math.log(2 / 0.1) / 2) * chi
    first = deviation_bound(*SETTING, **keywords, delta=0.1)
    assert (first.spread, first.confidence) == pytest.approx((spread, 0.9), rel=1e-12)
    assert first.bias == bias_bound(*SETTING, **keywords).value
    assert first.value == first.bias + first.spread
    whole = math.sqrt(math.log(2 / 0.1) / 2) * math.hypot((A + B) / math.sqrt(200), (C + D) / math.sqrt(50))
    assert first.sharp == pytest.approx(bias_bound(*SETTING, **keywords).sharp + 2.0 * 3.0 * whole, rel=1e-12)
    second = alternative_deviation_bound(*SETTING, **keywords, delta=0.1)
    exceed = negative_term_bound(*SETTING, alpha=0.1, beta=0.3, loss_bound=2.0).value
    assert (second.bias, second.value) == (0.0, pytest.approx(spread, rel=1e-12))
    assert second.confidence == pytest.approx(0.9 - exceed, rel=1e-12)
    assert second.sharp == pytest.approx(2.0 * whole, rel=1e-12)


def test_hoeffding_by_hand():
    expected = 2.0 * math.sqrt(math.log(2 / 0.1) / 2 * ((A + B) ** 2 / 200 + (C + D) ** 2 / 50))
    assert hoeffding_half_width(*SETTING, loss_bound=2.0, delta=0.1) == pytest.approx(expected, rel=1e-12)


@given(priors, inner, sizes, st.floats(0, 1), st.floats(0, 1))
def test_swapping_the_sets_changes_no_bound(set_priors, pi, sizes, fraction, other):
    keywords = {"alpha": fraction * pi, "beta": other * (1 - pi)}
    swapped = set_priors[::-1], pi, sizes[::-1]
    straight = set_priors, pi, sizes
    for bound in (negative_term_bound, bias_bound, deviation_bound, alternative_deviation_bound):
        one, two = bound(*straight, **keywords), bound(*swapped, **keywords)
        assert vars(one) == pytest.approx(vars(two), rel=1e-9, abs=1e-300)
    assert hoeffding_half_width(*straight) == pytest.approx(hoeffding_half_width(*swapped))


@given(priors, inner, sizes, st.floats(0, 1), st.floats(0, 1))
def test_swapping_the_classes_changes_no_bound(set_priors, pi, sizes, fraction, other):
    """θ, θ′ and π become 1 − θ, 1 − θ′ and 1 − π, and α and β are swapped.

    The exponent printed in the paper, with n and n′ swapped in one term, does not have this symmetry.
    """
    mirrored = tuple(1 - prior for prior in set_priors)
    assume(abs(mirrored[0] - mirrored[1]) > 0.01)
    alpha, beta = fraction * pi, other * (1 - pi)
    one = negative_term_bound(set_priors, pi, sizes, alpha=alpha, beta=beta)
    two = negative_term_bound(mirrored, 1 - pi, sizes, alpha=min(beta, 1 - pi), beta=min(alpha, pi))
    assert (one.positive, one.negative) == pytest.approx((two.negative, two.positive), rel=1e-6, abs=1e-300)


@given(priors, inner, sizes, st.floats(0.01, 1), st.floats(0.01, 1), st.integers(2, 50))
def test_more_rows_never_increase_a_bound(set_priors, pi, sizes, fraction, other, factor):
    keywords = {"alpha": fraction * pi, "beta": other * (1 - pi)}
    for more in ((sizes[0] * factor, sizes[1]), (sizes[0], sizes[1] * factor)):
        for bound in (negative_term_bound, bias_bound, deviation_bound):
            few, many = (bound(set_priors, pi, n, **keywords).value for n in (sizes, more))
            assert many <= few * (1 + 1e-12)
        few, many = (bias_bound(set_priors, pi, n, **keywords).sharp for n in (sizes, more))
        assert many <= few * (1 + 1e-12)


@given(priors, inner, sizes, st.floats(0, 1), st.floats(0, 1), st.floats(1, 5), st.floats(0.1, 9))
def test_sharp_bias_is_smaller_and_scales_with_the_loss(set_priors, pi, sizes, fraction, other, lipschitz, scale):
    alpha, beta = fraction * pi, other * (1 - pi)
    plain = bias_bound(set_priors, pi, sizes, alpha=alpha, beta=beta, correction_lipschitz=lipschitz)
    assert 0 <= plain.sharp <= plain.value
    scaled = bias_bound(
        set_priors, pi, sizes, alpha=alpha * scale * (1 - 1e-12), beta=beta * scale * (1 - 1e-12), loss_bound=scale,
        correction_lipschitz=lipschitz,
    )  # fmt: skip
    assert (scaled.value, scaled.sharp) == pytest.approx((scale * plain.value, scale * plain.sharp), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"alpha": -0.1}, "alpha must be a number between 0 and 0.3, got -0.1"),
        ({"alpha": 0.31}, "alpha must be a number between 0 and 0.3, got 0.31"),
        ({"beta": 0.71}, "beta must be a number between 0 and 0.7, got 0.71"),
        ({"beta": float("nan")}, "beta must be a number between 0 and 0.7, got nan"),
        ({"loss_bound": 0.0}, "loss_bound must be a number above 0, got 0.0"),
        ({"loss_bound": math.inf}, "loss_bound must be a number above 0, got inf"),
        ({"correction_lipschitz": 0.5}, "correction_lipschitz must be a number of at least 1, got 0.5"),
        ({"delta": 0.0}, "delta must be a number strictly between 0 and 1, got 0.0"),
        ({"delta": "5%"}, "delta must be a number strictly between 0 and 1, got '5%'"),
        ({"sizes": (0, 5)}, r"sizes must be two whole numbers.*got \(0, 5\)"),
        ({"sizes": (2.5, 5)}, r"sizes must be two whole numbers.*got \(2.5, 5\)"),
        ({"sizes": 7}, "sizes must be two whole numbers.*got 7"),
        ({"set_priors": (0.5, 0.5)}, "must differ"),
        ({"target_prior": 1.0}, "strictly between 0 and 1"),
    ],
)
def test_rejects_bad_values_in_one_sentence(changed, text):
    arguments = {"set_priors": (0.7, 0.4), "target_prior": 0.3, "sizes": (20, 20), "alpha": 0.1, "beta": 0.1} | changed
    with pytest.raises(ValueError, match=text) as caught:
        deviation_bound(**arguments)
    assert "\n" not in str(caught.value)


def test_accepts_numpy_numbers():
    plain = deviation_bound((0.7, 0.4), 0.3, (20, 30), alpha=0.1, beta=0.1)
    arrays = deviation_bound(np.array([0.7, 0.4]), np.float64(0.3), np.array([20, 30]), alpha=np.float32(0.1), beta=0.1)
    assert arrays.value == pytest.approx(plain.value, rel=1e-6)


# ------------------------------------------------------------------------------------------------------------ constants


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("score_bound", [0.3, 1.0, 4.0])
def test_loss_constants_equal_a_fine_grid(name, score_bound):
    z = torch.linspace(-score_bound, score_bound, 20_001, dtype=torch.float64)
    values = get_loss(name)(z)
    constants = loss_constants(name, score_bound)
    assert constants.bound == pytest.approx(values.max().item(), abs=1e-9)
    assert constants.least == pytest.approx(values.min().item(), abs=1e-6)
    if name != "zero_one":
        assert constants.lipschitz == pytest.approx((values.diff().abs() / z.diff()).max().item(), rel=1e-3)


def test_correction_constants_and_errors():
    x = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    for slope in (0.0, -0.3, -1.0, -2.5):
        y = torch.where(x < 0, slope * x, x)
        assert correction_lipschitz("leaky_relu", slope) == pytest.approx((y.diff() / x.diff()).abs().max().item())
    assert correction_lipschitz("relu") == correction_lipschitz("abs", slope=-9) == 1.0
    with pytest.raises(ValueError, match="got 'unbiased'; for your own correction"):
        correction_lipschitz("unbiased")
    with pytest.raises(ValueError, match="slope"):
        correction_lipschitz("leaky_relu", 0.5)
    with pytest.raises(ValueError, match="loss must be one of 'logistic'.*got 'hinge'"):
        loss_constants("hinge", 1.0)
    with pytest.raises(ValueError, match="score_bound must be a number above 0, got -1"):
        loss_constants("logistic", -1)


# -------------------------------------------------------------------------------------------- Theorem 4 and Corollary 5


def test_estimation_error_by_hand():
    bound = estimation_error_bound(
        *SETTING, rademacher=(0.2, 0.3), alpha=0.1, beta=0.3, loss_bound=2.0, loss_lipschitz=0.7,
        correction_lipschitz=3.0, delta=0.1,
    )  # fmt: skip
    chi = (A + B) / math.sqrt(200) + (C + D) / math.sqrt(50)
    exceed = math.exp(-2 * 0.05**2 / (A**2 / 200 + C**2 / 50)) + math.exp(-2 * 0.15**2 / (B**2 / 200 + D**2 / 50))
    assert bound.complexity == pytest.approx(8 * (A + B) * 3 * 0.7 * 0.2 + 8 * (C + D) * 3 * 0.7 * 0.3, rel=1e-12)
    assert bound.bias == pytest.approx(2 * (3 + 1) * (A + B + C + D) * 2 * exceed, rel=1e-12)
    assert bound.spread == pytest.approx(2 * 2 * 3 * math.sqrt(math.log(1 / 0.1) / 2) * chi, rel=1e-12)
    assert bound.value == pytest.approx(bound.complexity + bound.bias + bound.spread)
    assert bound.confidence == 0.9


def test_corollary_by_hand():
    norms = NetworkNorms((1.5, 0.5, 2.0), input_bound=0.8)
    product = 1.5 * 0.5 * 2.0
    assert norms.score_bound == pytest.approx(0.8 * product)
    bound = network_error_bound(norms, *SETTING, loss="logistic", method="leaky_relu", slope=-2.0, delta=0.1)
    c_g, l_f = 0.8 * product, 2.0
    c_l, l_l, least = math.log1p(math.exp(c_g)), 1 / (1 + math.exp(-c_g)), math.log1p(math.exp(-c_g))
    chi = (A + B) / math.sqrt(200) + (C + D) / math.sqrt(50)
    exceed = math.exp(-2 * (0.3 * least / c_l) ** 2 / (A**2 / 200 + C**2 / 50))
    exceed += math.exp(-2 * (0.7 * least / c_l) ** 2 / (B**2 / 200 + D**2 / 50))
    rademacher = 8 * l_f * l_l * 0.8 * (math.sqrt(2 * 3 * math.log(2)) + 1) * product
    confidence_term = 2 * c_l * l_f * math.sqrt(math.log(1 / 0.1) / 2)
    expected = (rademacher + confidence_term) * chi + 2 * (l_f + 1) * (A + B + C + D) * c_l * exceed
    assert bound.value == pytest.approx(expected, rel=1e-12)
    named = network_error_bound(norms, *SETTING, method="leaky_relu", slope=-2.0, delta=0.1, alpha=0.2, beta=0.5)
    assert named.bias < bound.bias
    assert named.complexity == bound.complexity


def test_theorem_4_rejects_bad_constants():
    keywords = {"alpha": 0.1, "beta": 0.1, "loss_bound": 1.0}
    with pytest.raises(ValueError, match="loss_lipschitz.*got inf; the zero-one loss has no Lipschitz constant"):
        estimation_error_bound(*SETTING, rademacher=(0.1, 0.1), loss_lipschitz=math.inf, **keywords)
    with pytest.raises(ValueError, match=r"rademacher must be two numbers.*got \(0.1,\)"):
        estimation_error_bound(*SETTING, rademacher=(0.1,), loss_lipschitz=1.0, **keywords)
    with pytest.raises(ValueError, match="rademacher must be a number of at least 0, got -1"):
        estimation_error_bound(*SETTING, rademacher=(0.1, -1), loss_lipschitz=1.0, **keywords)


def test_norms_without_biases_equal_those_of_the_weights():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 1, bias=False))
    norms = network_norms(model, 2.5)
    expected = [torch.linalg.matrix_norm(model[i].weight).item() for i in (0, 3)]
    assert norms.frobenius == pytest.approx(expected, rel=1e-6)
    assert (norms.input_bound, norms.constants, norms.depth) == (2.5, (), 2)
    assert norms.complexity == pytest.approx((math.sqrt(4 * math.log(2)) + 1) * 2.5 * math.prod(expected), rel=1e-6)


def test_score_bound_of_a_linear_model():
    """The best constant for one layer is known: C_x·‖w‖ + |b|."""
    model = Linear(3)
    model.output.weight.data.copy_(torch.tensor([[1.0, -2.0, 2.0]]))
    model.output.bias.data.fill_(-0.5)
    norms = network_norms(model, 4.0)
    assert norms.score_bound == pytest.approx(4 * 3 + 0.5, rel=1e-6)
    assert norms.depth == 1


def trained_like(n_features=5, hidden=(7, 6), seed=0):
    """An MLP whose batch normalization and biases are not at their initial values, in evaluation mode."""
    torch.manual_seed(seed)
    model = MLP(n_features, hidden=hidden, dropout=0.2)
    with torch.no_grad():
        model.output.bias.normal_()
        for layer in model.hidden:
            if isinstance(layer, nn.BatchNorm1d):
                layer.weight.uniform_(-1.5, 1.5)
                layer.bias.normal_()
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.2, 3)
    return model.eval()


def plain_network(model, norms):
    """Return the matrices of the equivalent network without biases."""
    layers = affine_layers(model)
    constants = [*norms.constants, *[None] * (len(layers) + 1 - len(norms.constants))]
    matrices = []
    for (weight, bias), enters, leaves in zip(layers, constants[:-1], constants[1:], strict=True):
        if enters is None:
            matrices.append(weight)
            continue
        matrix = np.hstack([weight, bias[:, None] / enters])
        if leaves is not None:
            matrix = np.vstack([matrix, [0.0] * weight.shape[1] + [leaves / enters]])
        matrices.append(matrix)
    return matrices


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_norms_belong_to_an_equivalent_network_without_biases(scale):
    model = trained_like()
    if scale != 1:
        model = type("Fitted", (), {"model_": model, "trained_": SimpleNamespace(input_scale=scale)})()
    rows = np.random.default_rng(0).normal(size=(50, 5)) / scale
    bound = float(np.linalg.norm(rows, axis=1).max())
    norms = network_norms(model, bound)
    matrices = plain_network(model, norms)
    assert norms.frobenius == pytest.approx([np.linalg.norm(matrix) for matrix in matrices], rel=1e-9)
    assert norms.input_bound == pytest.approx(math.hypot(bound, norms.constants[0]), rel=1e-9)
    hidden = np.hstack([rows, np.full((50, 1), norms.constants[0])])
    for matrix in matrices[:-1]:
        hidden = np.maximum(hidden @ matrix.T, 0)
    scores = (hidden @ matrices[-1].T)[:, 0]
    module = model if scale == 1 else model.model_
    expected = module.double()(torch.from_numpy(rows * scale)).detach().numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-12)
    assert np.abs(expected).max() <= norms.score_bound


def test_constant_is_carried_to_the_last_bias_only():
    model = nn.Sequential(
        nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2), nn.LeakyReLU(-1.0), nn.Linear(2, 1, bias=False)
    )
    norms = network_norms(model, 1.0)
    assert len(norms.constants) == 2
    assert norms.frobenius == pytest.approx(
        [np.linalg.norm(matrix) for matrix in plain_network(model, norms)], rel=1e-9
    )
    assert norms.frobenius[2] == pytest.approx(torch.linalg.matrix_norm(model[4].weight).item(), rel=1e-6)


def test_constants_minimize_the_product_of_norms():
    model = trained_like()
    best = network_norms(model, 3.0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        constants = np.array(best.constants) * np.exp(rng.normal(scale=rng.choice([0.01, 0.3, 2.0]), size=3))
        other = NetworkNorms((1.0,), 1.0, tuple(constants))
        product = math.hypot(3.0, constants[0]) * math.prod(map(np.linalg.norm, plain_network(model, other)))
        assert product >= best.score_bound * (1 - 1e-6)


@pytest.mark.parametrize("unit", [1e-3, 255.0, 1e4])
def test_score_bound_does_not_depend_on_units(unit):
    model = trained_like()
    plain = network_norms(model, 3.0).score_bound
    layer = model.hidden[0]
    layer.weight.data /= unit
    assert network_norms(model, 3.0 * unit).score_bound == pytest.approx(plain, rel=1e-4)


def test_layer_of_zeros_gives_a_finite_bound():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    model[0].weight.data.zero_()
    norms = network_norms(model, 1.0)
    assert math.isfinite(norms.score_bound)
    assert norms.score_bound >= abs(model(torch.zeros(1, 2)).item())


def test_accepts_a_fitted_classifier(gaussians, quick):
    classifier = UUClassifier(**quick, training=TrainingOptions(input_scale=0.5)).fit(gaussians["X"], gaussians["sets"])
    rows = gaussians["X_test"]
    bound = float(np.linalg.norm(rows, axis=1).max())
    norms = network_norms(classifier, bound)
    assert norms.depth == 2
    scores = np.abs(classifier.decision_function(rows))
    assert scores.max() <= norms.score_bound < 100 * scores.max()
    value = network_error_bound(norms, (0.8, 0.2), 0.5, classifier.set_sizes_, loss=classifier.loss).value
    assert 1 < value < 1e6  # vacuous, as expected for a network of this size and a few hundred rows


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)), "requires a fully connected network.*got Tanh()"),
        (nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(2.0), nn.Linear(2, 1)), r"got LeakyReLU\(negative_slope=2.0\)"),
        (nn.Sequential(nn.Conv1d(1, 1, 1)), "got Conv1d"),
        (nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1)), "got LayerNorm"),
        (ResNet32((3, 8, 8)), "got ResNet32; use estimation_error_bound"),
        (
            nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)),
            "must have running statistics and directly follow a linear layer",
        ),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2), nn.Linear(2, 1)), r"after ReLU\(\)"),
        (
            nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False), nn.Linear(2, 1)),
            "must have running statistics",
        ),
        (nn.Linear(2, 2), "ends in a linear layer with one output, got a network that ends in Linear"),
        (nn.Sequential(nn.Linear(2, 1), nn.ReLU()), r"got a network that ends in ReLU\(\)"),
        (nn.Sequential(), "got a network that ends in None"),
    ],
)
def test_rejects_networks_outside_the_corollary(model, text):
    with pytest.raises(ValueError, match=text) as caught:
        network_norms(model, 1.0)
    assert "\n" not in str(caught.value)


def test_rejects_other_objects():
    with pytest.raises(TypeError, match="torch module or a fitted UUClassifier.*call fit first"):
        network_norms(UUClassifier((0.8, 0.2)), 1.0)
    with pytest.raises(ValueError, match="input_bound must be a number above 0, got 0"):
        network_norms(Linear(2), 0)


def test_reading_a_network_does_not_change_it():
    model = trained_like().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    network_norms(model, 1.0)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float32


# ------------------------------------------------------------------------------------------------------------- planning

spreads = st.tuples(st.floats(0, 50), st.floats(0, 50)).map(lambda pair: IntervalSpread(*pair))
half_widths = st.floats(1e-3, 0.5)


@given(spreads, half_widths, st.floats(0.01, 0.99))
def test_rows_are_the_fewest_for_the_half_width(spread, half_width, fraction):
    rows = spread.rows(half_width, fraction)
    assert spread.half_width(rows) <= half_width * (1 + 1e-9)
    if min(rows) > 1:
        assert spread.half_width((rows.set0 - 1, rows.set1 - 1)) > half_width * (1 - 1e-9)


@given(spreads, half_widths, st.floats(0.01, 0.99))
def test_best_fraction_needs_the_fewest_rows(spread, half_width, fraction):
    assert spread.relative_cost(fraction) >= 1 - 1e-9
    best, other = spread.rows(half_width), spread.rows(half_width, fraction)
    assert best.total <= other.total + 2  # each size is rounded up to a whole row
    assert spread.half_width(best) <= half_width * (1 + 1e-9)


@given(st.floats(0.01, 50), st.floats(0.01, 50))
def test_best_fraction_equals_numerical_minimum(first, second):
    spread = IntervalSpread(first, second)
    found = minimize_scalar(lambda w: first**2 / w + second**2 / (1 - w), bounds=(1e-6, 1 - 1e-6), method="bounded")
    assert spread.best_fraction == pytest.approx(found.x, abs=1e-3)
    assert spread.relative_cost(spread.best_fraction) == pytest.approx(1.0)
    assert found.fun == pytest.approx((first + second) ** 2, rel=1e-4)
    assert spread.relative_cost(0.5) == pytest.approx(2 * (first**2 + second**2) / (first + second) ** 2)


@given(spreads, half_widths, st.integers(1, 10_000_000))
def test_rows_needed_for_a_given_size_of_the_other_set(spread, half_width, n):
    for needed, sizes_of in (
        (spread.rows_needed(half_width=half_width, set1=n), lambda rows: (rows, n)),
        (spread.rows_needed(half_width=half_width, set0=n), lambda rows: (n, rows)),
    ):
        if needed is None:
            assert spread.half_width(sizes_of(10**15)) > half_width * (1 - 1e-6)
        else:
            assert spread.half_width(sizes_of(needed)) <= half_width * (1 + 1e-6)
            if needed > 1:
                assert spread.half_width(sizes_of(needed - 1)) > half_width * (1 - 1e-6)


def test_zero_variance_needs_one_row_per_set():
    """With labels and no errors the estimate has no variance."""
    spread = anticipated_spread((1.0, 0.0), 0.5, accuracy=1.0)
    assert spread.rows(0.01) == spread.rows(0.01, 0.3) == (1, 1)
    assert (spread.best_fraction, spread.relative_cost(0.2), spread.rows_needed(half_width=0.01, set0=1)) == (
        0.5,
        1.0,
        1,
    )


@given(priors, inner, sizes, inner)
def test_spreads_are_ordered_and_consistent_with_other_functions(set_priors, pi, sizes, accuracy):
    anticipated = anticipated_spread(set_priors, pi, accuracy=accuracy).half_width(sizes)
    worst = worst_spread(set_priors, pi).half_width(sizes)
    guaranteed = guaranteed_spread(set_priors, pi).half_width(sizes)
    assert anticipated <= worst * (1 + 1e-12)
    assert worst < guaranteed
    assert worst == pytest.approx(1.959964 * estimation_cost(set_priors, pi, sizes).standard_error, rel=1e-6)
    assert guaranteed == pytest.approx(hoeffding_half_width(set_priors, pi, sizes), rel=1e-12)


def test_anticipated_spread_by_hand():
    """θ = .7, θ′ = .4 and accuracy .8: the fractions predicted positive are .62 and .44."""
    spread = anticipated_spread((0.7, 0.4), 0.3, accuracy=0.8, delta=0.1)
    assert spread.set0 == pytest.approx(1.6448536 * (A + B) * math.sqrt(0.62 * 0.38), rel=1e-7)
    assert spread.set1 == pytest.approx(1.6448536 * (C + D) * math.sqrt(0.44 * 0.56), rel=1e-7)


@given(priors, inner, inner)
def test_prior_error_effect_equals_the_derivative_of_the_estimate(set_priors, pi, accuracy):
    fractions = [theta * accuracy + (1 - theta) * (1 - accuracy) for theta in set_priors]

    def estimate(assumed):
        a, b, c, d = uu_coefficients(assumed, pi)
        return 1 - pi + (a + b) * fractions[0] - (c + d) * fractions[1]

    step = 1e-6
    expected = []
    for which in (0, 1):
        inward = step if set_priors[which] < 0.5 else -step
        moved = list(set_priors)
        moved[which] += inward
        expected.append(abs(estimate(moved) - estimate(set_priors)) / step)
    assert prior_error_effect(set_priors, pi, accuracy=accuracy) == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert estimate(set_priors) == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: anticipated_spread((0.8, 0.2), 0.5, accuracy=90),
            "accuracy must be a number between 0 and 1, got 90; ",
        ),
        (lambda: IntervalSpread(1, 1).rows(0), "half_width must be a number strictly between 0 and 1, got 0; "),
        (
            lambda: IntervalSpread(1, 1).rows(0.1, fraction=1),
            "fraction must be a number strictly between 0 and 1, got 1",
        ),
        (lambda: IntervalSpread(1, 1).relative_cost(0), "fraction must be a number strictly between 0 and 1, got 0"),
        (lambda: IntervalSpread(1, 1).half_width((1, 0)), "sizes must be two whole numbers"),
        (lambda: IntervalSpread(1, 1).rows_needed(half_width=0.1, set0=0), "sizes must be two whole numbers"),
        (lambda: IntervalSpread(1, 1).rows_needed(half_width=0.1), "pass the size of exactly one set"),
        (lambda: IntervalSpread(1, 1).rows_needed(half_width=0.1, set0=1, set1=1), "pass the size of exactly one set"),
        (lambda: worst_spread((0.8, 0.2), 0.5, delta=1), "delta must be a number strictly between 0 and 1, got 1"),
    ],
)
def test_rejects_bad_planning_values(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_rejects_an_ensemble_and_accepts_one_of_its_networks():
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 40)
    clf = UUClassifier((0.8, 0.2), model_params={"hidden": (4,)}, n_estimators=2, epochs=1, random_state=0)
    clf.fit(rng.normal(size=(80, 2)) + sets[:, None], sets)
    with pytest.raises(
        ValueError, match=r"requires one network, got a classifier with 2 networks; .* or fit with n_estimators=1"
    ):
        network_norms(clf, 1.0)
    assert network_norms(clf.submodel(0).model_.models[0], 1.0) == network_norms(clf.model_.models[0], 1.0)
