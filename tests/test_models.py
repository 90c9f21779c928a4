import math

import pytest
import torch
from torch import nn

from uulearn.models import MLP, Linear, build_model
from uulearn.models.dense import lecun_normal_


def test_parameter_counts_and_shapes():
    assert sum(p.numel() for p in Linear(784).parameters()) == 785
    # four products without bias, four pairs of normalisation weights, one output with bias
    assert sum(p.numel() for p in MLP(784).parameters()) == 784 * 300 + 3 * 300 * 300 + 4 * 600 + 301
    assert MLP(5)(torch.zeros(7, 5)).shape == (7,)
    assert MLP(5, hidden=())(torch.zeros(7, 5)).shape == (7,)
    assert [k.shape for k in MLP(5, hidden=(4, 3)).kernels()] == [(4, 5), (3, 4)]
    assert [layer.bias for layer in MLP(5, hidden=(4,)).hidden if isinstance(layer, nn.Linear)] == [None]


def test_lecun_normal_has_variance_one_over_fan_in():
    torch.manual_seed(0)
    weight = torch.empty(500, 400)
    lecun_normal_(weight)
    assert weight.var().item() == pytest.approx(1 / 400, rel=0.02)
    assert weight.abs().max() <= 2 / math.sqrt(400) / 0.8796 + 1e-6


def test_scores_keep_float32_under_autocast():
    model = MLP(16, hidden=(32,)).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(torch.randn(200, 16))
    assert scores.dtype == torch.float32
    assert len(scores.unique()) > 150  # in bfloat16 many would coincide


def test_what_may_be_passed_as_model():
    class Net(nn.Module):
        def __init__(self, width=3):
            super().__init__()
            self.layer = nn.Linear(4, width)

    assert build_model(Net, (4,)).layer.out_features == 3
    assert build_model(Net, (4,), {"width": 5}).layer.out_features == 5
    assert build_model(lambda n_features: nn.Linear(n_features, 1), (4,)).in_features == 4
    instance = Net()
    copied = build_model(instance, (4,))
    assert copied is not instance
    assert torch.equal(copied.layer.weight, instance.layer.weight)


@pytest.mark.parametrize(
    ("model", "shape", "params", "error", "text"),
    [
        ("resnet", (4,), None, ValueError, "'resnet'"),
        ("mlp", (3, 8, 8), None, ValueError, r"rows of shape \(3, 8, 8\)"),
        ("mlp", (4,), {"layers": 3}, ValueError, "correct model_params"),
        (nn.Linear(4, 1), (4,), {"bias": True}, ValueError, "no use when model is an instance"),
        (lambda: "net", (4,), None, TypeError, "must return an nn.Module, got str"),
        (5, (4,), None, TypeError, "got 5"),
    ],
)
def test_bad_models_are_refused(model, shape, params, error, text):
    with pytest.raises(error, match=text):
        build_model(model, shape, params)
