"""The parts of batched training, compared with torch and with the risk of single runs."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from helpers.batched_runs import CPU, X, alone, assert_same_model, histories, options, run_of, steep, train_batched
from uulearn.risk.functional import row_weights, weighted_risk
from uulearn.risk.losses import get_loss
from uulearn.training.batched import Run
from uulearn.training.batched.layers import NormalizeReLU, OutputUnit, concatenate_runs, split_runs
from uulearn.training.batched.optimizer import BatchedOptimizer
from uulearn.training.batched.risk import BatchedRisk

# ---------------------------------------------------------------------------------------------------------------- parts


SCORES = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12)


@settings(max_examples=40)
@given(
    scores=SCORES,
    share=st.floats(0.1, 0.9),
    priors=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    pi=st.floats(0.05, 0.95),
    loss=st.sampled_from(["logistic", "sigmoid", "ramp", "double_hinge", "squared"]),
)
def test_batched_risk_equals_risk_of_each_run(scores, share, priors, pi, loss):
    assume(abs(priors[0] - priors[1]) > 0.1)
    n0 = min(max(1, round(share * len(scores))), len(scores) - 1)
    counts = (n0, len(scores) - n0)
    methods = ["biased", "unbiased", "abs", "relu", "leaky_relu", ("abs", steep), (steep, "relu")]
    runs = [Run(([0], [1]), priors, pi, method, slope=-0.3) for method in methods]
    batched = BatchedRisk(runs, get_loss(loss), CPU)
    leaf = torch.tensor([scores] * len(runs), requires_grad=True)
    found = batched.risk(leaf, batched.weights(counts))
    (gradients,) = torch.autograd.grad(found.objective.sum(), leaf)
    sets = torch.repeat_interleave(torch.arange(2), torch.tensor(counts))
    for place, run in enumerate(runs):
        own = torch.tensor(scores, requires_grad=True)
        weights = row_weights(sets, run.coefficients)
        expected = weighted_risk(own, weights, get_loss(loss), run.resolved_method)
        size = 1 + (weights.positive.abs() @ own.abs().square()).item()
        for name in ("positive", "negative", "corrected", "objective"):
            ours, theirs = getattr(found, name)[place], getattr(expected, name)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * size)
        zero_one = weighted_risk(own, weights, get_loss("zero_one"), runs[1].resolved_method).unbiased
        torch.testing.assert_close(found.zero_one[place], zero_one, rtol=1e-4, atol=1e-5)
        if min(abs(expected.positive.item()), abs(expected.negative.item())) > 1e-3 * size:  # not at a kink
            (gradient,) = torch.autograd.grad(expected.objective, own)
            torch.testing.assert_close(gradients[place], gradient, rtol=1e-4, atol=1e-5)


def test_rows_of_weight_zero_are_ignored_even_with_infinite_loss():
    """As in `weighted_risk`: with set_priors (1, 0) a row of set 0 does not contribute to the negative term."""
    runs = [Run(([0], [1]), (1.0, 0.0), 0.5, method) for method in ("relu", "biased")]
    batched = BatchedRisk(runs, get_loss(lambda z: torch.exp(-z)), CPU)
    scores = torch.tensor([[100.0, -100.0]] * 2, requires_grad=True)
    risk = batched.risk(scores, batched.weights((1, 1)))
    (gradient,) = torch.autograd.grad(risk.objective.sum(), scores)
    assert risk.objective.tolist() == pytest.approx([0.0, 0.0], abs=1e-30)
    assert gradient.isfinite().all()


def test_correction_is_applied_only_to_its_own_runs():
    """√(1 − x) − 1 below zero: for a term above one, the root and its gradient would be NaN."""

    def root(x):
        return torch.where(x < 0, torch.sqrt(1 - x) - 1, x)

    runs = [Run(([0], [1]), (0.9, 0.1), 0.5, (root, root)), Run(([0], [1]), (0.9, 0.1), 0.5, "abs")]
    batched = BatchedRisk(runs, get_loss("logistic"), CPU)
    scores = torch.tensor([[0.5, -0.5], [-9.0, 9.0]], requires_grad=True)
    risk = batched.risk(scores, batched.weights((1, 1)))
    assert (risk.positive[1] > 1) & (risk.positive[0] < 1)
    assert torch.autograd.grad(risk.objective.sum(), scores)[0].isfinite().all()


STACKED = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(2, 40), st.integers(1, 4))
"""Groups, runs in each, rows, units."""


def normal(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@given(shape=STACKED, seed=st.integers(0, 2**31))
def test_concatenate_runs_is_the_inverse_of_split_runs(shape, seed):
    groups, width, n, h = shape
    (x,) = normal(seed, (groups * width, n, h))
    together = concatenate_runs(x, width)
    assert together.shape == (groups, n, width * h)
    assert torch.equal(split_runs(together, width), x)
    for run in range(groups * width):
        place = (run % width) * h
        assert torch.equal(together[run // width, :, place : place + h], x[run])


@settings(max_examples=40)
@given(shape=STACKED, offset=st.floats(-3, 3), seed=st.integers(0, 2**31))
def test_normalization_equals_torch(shape, offset, seed):
    """Values, statistics and gradients of batch normalization and ReLU, for each run."""
    groups, width, n, h = shape
    runs = groups * width
    unit = (runs, 1, h)
    values, direction, gamma, beta = normal(seed, (runs, n, h), (runs, n, h), unit, unit)
    values = values + offset
    theirs = [t.double().requires_grad_() for t in (values, gamma, beta)]
    expected = torch.stack(
        [
            F.relu(F.batch_norm(x, None, None, g[0], b[0], training=True, eps=1e-3))
            for x, g, b in zip(*theirs, strict=True)
        ]
    )
    ours = [t.requires_grad_() for t in (concatenate_runs(values, width), gamma, beta)]
    out, mean, var = NormalizeReLU.apply(*ours, 1e-3, width)
    torch.testing.assert_close(mean, values.mean(1, keepdim=True), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(var, values.var(1, keepdim=True, correction=0), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)
    assume(torch.equal(out > 0, expected > 0))  # rounding can move a unit across the kink
    found = list(torch.autograd.grad(out, ours, direction))
    found[0] = split_runs(found[0], width)
    for one, other in zip(found, torch.autograd.grad(expected, theirs, direction.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-2, atol=1e-2 * (1 + other.abs().max().item()))


@given(shape=STACKED, seed=st.integers(0, 2**31))
def test_output_unit_equals_matrix_product(shape, seed):
    groups, width, n, h = shape
    runs = groups * width
    hidden, kernel, bias, direction = normal(seed, (runs, n, h), (runs, h, 1), (runs, 1, 1), (runs, n))
    leaves = [t.requires_grad_() for t in (hidden, kernel, bias)]
    expected = torch.einsum("rnh,rh->rn", hidden, kernel[:, :, 0]) + bias[:, 0]
    found = OutputUnit.apply(*leaves)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [30.0, 100.0])
def test_normalizes_columns_far_from_zero(offset):
    """The moments must not cancel, even before the running mean has converged."""
    run, table = run_of(), X + offset
    trainer, batched = alone(run, table=table), train_batched([run], table=table)
    torch.testing.assert_close(
        batched.models()[0].hidden[1].running_var, trainer.final_model.hidden[1].running_var, rtol=1e-3, atol=1e-5
    )
    objectives = trainer.history.column("objective")
    np.testing.assert_allclose(histories(batched)[0].column("objective"), objectives, rtol=1e-4)


TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
BETAS = st.tuples(st.floats(0.01, 0.99), st.floats(0.5, 0.999))
SETTINGS = st.one_of(
    st.tuples(st.sampled_from(["adam", "adamw"]), st.fixed_dictionaries({"betas": BETAS, "eps": st.just(1e-6)})),
    st.tuples(st.just("sgd"), st.fixed_dictionaries({"momentum": st.floats(0, 0.95), "dampening": st.floats(0, 0.9)})),
    st.tuples(st.just("sgd"), st.fixed_dictionaries({"momentum": st.floats(0.1, 0.95), "nesterov": st.just(True)})),
)


@settings(max_examples=40)
@given(chosen=SETTINGS, seed=st.integers(0, 2**31))
def test_optimizers_equal_torch(chosen, seed):
    name, params = chosen
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(3, 2, 4, generator=generator)
    lr, decay = torch.tensor([0.1, 0.01, 0.05]), torch.tensor([0.0, 0.1, 0.3])
    own = {"kernel": start.clone()}
    network = SimpleNamespace(
        params=own, per_run=lambda values, _: values[:, None, None], kernel_names=[], groups=SimpleNamespace(width=1)
    )
    rates = {"lr": lr, "lr_decay": torch.zeros(3), "weight_decay": decay, "l2": torch.zeros(3)}
    batched = BatchedOptimizer(name, network, params, **rates)
    theirs = [nn.Parameter(value.clone()) for value in start]
    optimizers = [
        TORCH[name]([p], lr=rate.item(), weight_decay=share.item(), **params)
        for p, rate, share in zip(theirs, lr, decay, strict=True)
    ]
    for step in range(5):
        gradient = torch.randn(3, 2, 4, generator=generator)
        alive = torch.tensor([True, True, step < 2])  # the third run does not change any more
        batched.update({"kernel": gradient}, alive)
        for p, g, optimizer, lives in zip(theirs, gradient, optimizers, alive.tolist(), strict=True):
            if lives:
                p.grad = g.clone()
                optimizer.step()
    torch.testing.assert_close(own["kernel"], torch.stack([p.detach() for p in theirs]), rtol=1e-4, atol=1e-5)


def test_adam_with_zero_betas():
    run = run_of()
    settings = options(optimizer_params={"betas": (0.0, 0.999)})
    assert_same_model(train_batched([run], options=settings).models()[0], alone(run, options=settings).final_model)


def test_l2_does_not_act_on_output_layer_of_mlp():
    run, params = run_of(l2=0.5), {"hidden": ()}
    assert_same_model(
        train_batched([run], model_params=params).models()[0], alone(run, model_params=params).final_model
    )
