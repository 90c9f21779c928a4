"""`UURisk` as a criterion: shapes, missing sets, compilation, precision, and training in a plain loop."""

import pickle
import shutil

import pytest
import torch
from torch import nn

from uulearn import UURisk

METHODS = ["biased", "unbiased", "abs", "relu", "leaky_relu"]


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, generator=generator), (torch.arange(12) % 3 == 0).long()


def make(method="leaky_relu", **changes):
    arguments = {"set_priors": (0.8, 0.3), "target_prior": 0.4, "method": method} | changes
    return UURisk(**arguments)


@pytest.mark.parametrize("method", METHODS)
def test_order_and_shape_do_not_matter(method, batch):
    scores, sets = batch
    expected = make(method)(scores, sets)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(make(method)(scores[order], sets[order]), expected)
    assert make(method)(scores[:, None], sets) == expected
    assert make(method)(scores[:, None], sets[:, None]) == expected
    assert make(method)(scores, sets.bool()) == expected
    assert make(method)(scores, sets.float()) == expected


@pytest.mark.parametrize("shape", [(12, 2), (3, 4), ()])
def test_rejects_other_shapes(shape, batch):
    with pytest.raises(ValueError, match=r"shape \(n,\) or \(n, 1\)"):
        make()(torch.zeros(shape), batch[1])


def test_rejects_bad_sets_and_integer_scores(batch):
    with pytest.raises(ValueError, match="one value per score"):
        make()(batch[0], batch[1][:5])
    with pytest.raises(ValueError, match="sets must be 0 or 1.*got 2"):
        make()(batch[0], batch[1] + 1)
    with pytest.raises(ValueError, match="floating-point"):
        make()(batch[0].long(), batch[1])


def test_invalid_sets_give_nan_inside_vmap(batch):
    scores, sets = batch
    values = torch.func.vmap(make())(scores[None], sets[None] + 1)
    assert values.isnan().all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", [0, 1])
def test_missing_set_gives_zero_terms_and_zero_gradient(method, which, batch):
    scores = batch[0].clone().requires_grad_()
    criterion = make(method)
    parts = criterion.parts(scores, torch.full((12,), which))
    assert parts.positive == parts.negative == parts.unbiased == parts.corrected == 0
    parts.objective.backward()
    if method == "biased":  # all rows have one pseudo-class: an ordinary supervised batch
        assert scores.grad.abs().min() > 0
    else:
        assert parts.objective == 0
        assert (scores.grad == 0).all()


def test_infinite_loss_of_a_row_without_weight_gives_no_nan():
    scores = torch.tensor([-200.0, 1.0], requires_grad=True)
    value = make(loss=lambda z: torch.exp(-z))(scores, torch.tensor([0, 0]))
    value.backward()
    assert value == 0
    assert (scores.grad == 0).all()


@pytest.mark.parametrize("loss", ["logistic", "sigmoid", "ramp", "double_hinge", "squared", "zero_one"])
@pytest.mark.parametrize("method", METHODS)
def test_pickles(loss, method, batch):
    criterion = pickle.loads(pickle.dumps(make(method, loss=loss)))
    assert criterion(*batch) == make(method, loss=loss)(*batch)


@pytest.mark.parametrize("method", METHODS)
def test_empty_batch_gives_zero(method):
    assert make(method)(torch.zeros(0), torch.zeros(0, dtype=torch.long)) == 0


def test_set_with_zero_coefficient_is_not_needed():
    scores = torch.tensor([1.0, -1.0], requires_grad=True)
    parts = UURisk((1.0, 0.0), 0.5).parts(scores, torch.tensor([0, 0]))
    assert parts.positive > 0
    assert parts.negative == 0
    pu = UURisk((1.0, 0.5), 0.5, method="relu").parts(scores, torch.tensor([0, 0]))
    assert pu.positive > 0  # labeled positives alone still train the positive term
    assert pu.negative == 0


@pytest.mark.parametrize("method", METHODS)
def test_double_backward(method, batch):
    scores, sets = batch
    scores = scores.double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda g: make(method)(g, sets), scores)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", ["logistic", "sigmoid", "ramp", "double_hinge", "squared"])
def test_vmap_over_a_stack_of_runs(method, loss, batch):
    criterion = make(method, loss=loss)
    generator = torch.Generator().manual_seed(4)
    stack = torch.randn(5, 12, generator=generator)
    memberships = torch.randint(0, 2, (5, 12), generator=generator)
    batched = torch.func.vmap(criterion)(stack, memberships)
    separate = torch.stack([criterion(g, s) for g, s in zip(stack, memberships, strict=True)])
    torch.testing.assert_close(batched, separate)
    shared = torch.func.vmap(torch.func.grad(criterion), in_dims=(0, None))(stack, batch[1])
    for row, gradient in zip(stack, shared, strict=True):
        row = row.clone().requires_grad_()
        criterion(row, batch[1]).backward()
        torch.testing.assert_close(gradient, row.grad)


@pytest.mark.parametrize("method", METHODS)
def test_compiles_without_graph_break(method, batch):
    scores, sets = batch
    criterion = make(method)
    compiled = torch.compile(criterion, backend="aot_eager", fullgraph=True)
    one, other = (scores.clone().requires_grad_() for _ in range(2))
    compiled(one, sets).backward()
    criterion(other, sets).backward()
    torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # raised inside torch
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default compiler backend needs a C++ compiler")
def test_compiles_with_the_default_backend(batch):
    scores, sets = batch
    torch.testing.assert_close(torch.compile(make())(scores, sets), make()(scores, sets))


def test_large_margins_and_bfloat16(batch):
    _, sets = batch
    scores = torch.linspace(-1e4, 1e4, 12)
    for loss in ("logistic", "sigmoid", "ramp", "double_hinge", "squared"):
        one = scores.clone().requires_grad_()
        value = make(loss=loss)(one, sets)
        value.backward()
        assert value.isfinite()
        assert one.grad.isfinite().all()
        half = make(loss=loss)(scores.bfloat16(), sets)
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, make(loss=loss)(scores.bfloat16().double(), sets).float())


def test_mean_of_many_bfloat16_scores_keeps_precision():
    """Summing 100,000 values of about 1 in bfloat16 would stop at 256."""
    n = 100_000
    sets = torch.arange(n) % 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        risk = UURisk((0.9, 0.1), 0.5, "logistic", "unbiased")(torch.zeros(n, dtype=torch.bfloat16), sets)
    assert risk.item() == pytest.approx(0.6931472, rel=1e-5)


def test_trains_a_model_in_a_plain_loop_with_random_batches(gaussians):
    torch.manual_seed(0)
    X, sets = torch.from_numpy(gaussians["X"]).float(), torch.from_numpy(gaussians["sets"])
    model, criterion = nn.Linear(3, 1), UURisk((0.8, 0.2), 0.5, method="abs")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        rows = torch.randint(0, len(X), (64,))
        optimizer.zero_grad()
        criterion(model(X[rows]), sets[rows]).backward()
        optimizer.step()
    predicted = (model(torch.from_numpy(gaussians["X_test"]).float()) > 0).flatten().numpy()
    assert (predicted == gaussians["y_test"]).mean() > 0.95


def test_repr_and_state():
    criterion = make()
    assert repr(criterion) == (
        "UURisk(set_priors=(0.8, 0.3), target_prior=0.4, loss='sigmoid', method='leaky_relu', slope=-0.1)"
    )
    assert criterion.state_dict() == {}
