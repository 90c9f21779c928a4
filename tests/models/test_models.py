"""The named models: parameter counts and layers of the paper's Appendices B and C."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.models import IMAGE_MODELS, MLP, AllConvNet, Linear, ResNet32, build_model
from uulearn.models.convolutional import PackedConv2d
from uulearn.models.dense import FastDropout, he_normal_, lecun_normal_
from uulearn.training.options import kernel_parameters

CONVOLUTIONAL = [AllConvNet, ResNet32]


@pytest.fixture(scope="module")
def networks():
    """One network of each kind for 32×32 color images; tests must not change them."""
    torch.manual_seed(0)
    return {network: network().eval() for network in CONVOLUTIONAL}


def n_parameters(model):
    return sum(p.numel() for p in model.parameters())


def traced(model, x):
    """All convolutions and linear layers in the order of their calls, with input and output shapes."""
    seen = []

    def note(layer, inputs, output):
        seen.append((layer, tuple(inputs[0].shape[1:]), tuple(output.shape[1:])))

    handles = [
        layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return seen


# ------------------------------------------------------------------------------------------------------ dense models


def test_parameter_counts_and_shapes():
    assert n_parameters(Linear(784)) == 785
    # four linear layers without bias, four normalizations, one output with bias
    assert n_parameters(MLP(784)) == 784 * 300 + 3 * 300 * 300 + 4 * 600 + 301
    assert MLP(5)(torch.zeros(7, 5)).shape == (7,)
    assert MLP(5, hidden=())(torch.zeros(7, 5)).shape == (7,)
    assert [k.shape for k in kernel_parameters(MLP(5, hidden=(4, 3)))] == [(4, 5), (3, 4)]
    assert [layer.bias for layer in MLP(5, hidden=(4,)).hidden if isinstance(layer, nn.Linear)] == [None]


def test_scores_keep_float32_under_autocast():
    model = MLP(16, hidden=(32,)).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(torch.randn(200, 16))
    assert scores.dtype == torch.float32
    assert len(scores.unique()) > 150  # in bfloat16 many would coincide


# ------------------------------------------------------------------------------------------------------ initializers


@pytest.mark.parametrize(("fill", "scale"), [(lecun_normal_, 1.0), (he_normal_, 2.0)])
@pytest.mark.parametrize("shape", [(500, 400), (300, 40, 3, 3)])
def test_initializers_have_the_requested_variance_and_truncation(fill, scale, shape):
    weight = torch.empty(shape)
    fill(weight)
    fan_in = math.prod(shape[1:])
    assert weight.mean().item() == pytest.approx(0, abs=4 * math.sqrt(scale / fan_in / weight.numel()))
    assert weight.var().item() == pytest.approx(scale / fan_in, rel=0.02)
    cut = 2 * math.sqrt(scale / fan_in) / 0.8796  # two standard deviations before truncation
    assert 0.98 * cut < weight.abs().max() <= cut * (1 + 1e-4)


def test_models_use_their_initializers(networks):
    for kernel in kernel_parameters(MLP(400, hidden=(300, 200))):
        assert kernel.var().item() * kernel.shape[1] == pytest.approx(1, rel=0.03)
    for model in networks.values():
        for kernel in kernel_parameters(model):
            rough = 6 / math.sqrt(kernel.numel())
            assert kernel.var().item() * kernel[0].numel() == pytest.approx(2, rel=rough)
        assert model.output.bias.item() == 0
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                assert torch.equal(layer.weight, torch.ones_like(layer.weight))
                assert torch.equal(layer.bias, torch.zeros_like(layer.bias))


# ----------------------------------------------------------------------------------------- the convolutional networks


def test_parameter_count_of_the_all_convolutional_net(networks):
    convolutions = 9 * (3 * 96 + 2 * 96 * 96 + 96 * 192 + 3 * 192 * 192) + 192 * 192 + 192 * 10
    products = 10 * 8 * 8 * 1000 + 1000 * 1000
    normalizations = 2 * (3 * 96 + 5 * 192 + 10 + 2 * 1000)
    assert n_parameters(networks[AllConvNet]) == convolutions + products + normalizations + 1001


def test_parameter_count_of_the_residual_network(networks):
    stem = 9 * 3 * 16
    groups = 9 * (10 * 16 * 16 + (16 * 32 + 9 * 32 * 32) + (32 * 64 + 9 * 64 * 64))
    shortcuts = 16 * 32 + 32 * 64
    # before each convolution except the stem, and one after the last
    normalizations = 2 * (10 * 16 + (16 + 9 * 32) + (32 + 9 * 64) + 64)
    assert n_parameters(networks[ResNet32]) == stem + groups + shortcuts + normalizations + 65


def test_layers_of_the_all_convolutional_net(networks):
    layers = traced(networks[AllConvNet], torch.zeros(1, 3, 32, 32))
    found = [
        (layer.kernel_size[0], layer.out_channels, layer.stride[0]) if isinstance(layer, nn.Conv2d)
        else layer.out_features
        for layer, _, _ in layers
    ]  # fmt: skip
    assert found == [
        (3, 96, 1), (3, 96, 1), (3, 96, 2), (3, 192, 1), (3, 192, 1), (3, 192, 2), (3, 192, 1), (1, 192, 1), (1, 10, 1),
        1000, 1000, 1,
    ]  # fmt: skip
    sizes = [output[1] for layer, _, output in layers if isinstance(layer, nn.Conv2d)]
    assert sizes == [32, 32, 16, 16, 16, 8, 8, 8, 8]
    assert all(layer.bias is None for layer, _, _ in layers[:-1])
    assert layers[-1][0].bias is not None
    kinds = [type(layer).__name__ for layer in networks[AllConvNet].hidden]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU"] * 9 + ["Flatten"] + ["Linear", "BatchNorm1d", "ReLU"] * 2


def test_layers_of_the_residual_network(networks):
    model = networks[ResNet32]
    layers = traced(model, torch.zeros(1, 3, 32, 32))
    carried = [call for call in layers if getattr(call[0], "kernel_size", None) == (1, 1)]
    main = [call for call in layers if call not in carried]
    assert len(main) == 32
    assert [output for _, _, output in main] == [
        *[(16, 32, 32)] * 11, *[(32, 16, 16)] * 10, *[(64, 8, 8)] * 10, (1,)
    ]  # fmt: skip
    assert [layer.kernel_size for layer, _, _ in main[:-1]] == [(3, 3)] * 31
    strides = [layer.stride for layer, _, _ in main[:-1]]
    assert [place for place, stride in enumerate(strides) if stride != (1, 1)] == [11, 21]
    assert strides[11] == strides[21] == (2, 2)
    assert [(inputs, output, layer.stride) for layer, inputs, output in carried] == [
        ((16, 32, 32), (32, 16, 16), (2, 2)),
        ((32, 16, 16), (64, 8, 8), (2, 2)),
    ]
    assert main[-1][1] == (64,)  # after global average pooling
    assert all(layer.bias is None for layer, _, _ in layers[:-1])
    assert layers[-1][0] is model.output


def test_residual_network_normalizes_before_convolutions():
    """A direct computation, block by block; the input of the first block is the plain output of the stem."""
    model, x = ResNet32((2, 8, 8)).eval(), torch.randn(4, 2, 8, 8)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(std=0.1)
            layer.running_var.uniform_(0.5, 2.0)

    def normalize(layer, x):
        scale = layer.weight / torch.sqrt(layer.running_var + 1e-3)
        return F.relu((x - layer.running_mean[:, None, None]) * scale[:, None, None] + layer.bias[:, None, None])

    entered = []
    handle = model.blocks[0].register_forward_pre_hook(lambda block, inputs: entered.append(inputs[0]))
    with torch.no_grad():
        scores = model(x)
        expected = F.conv2d(x, model.stem.weight, padding=1)
        torch.testing.assert_close(entered[0], expected)
        assert (entered[0] < 0).any()
        for block in model.blocks:
            active = normalize(block.norm1, expected)
            stride = block.conv1.stride
            inner = F.conv2d(active, block.conv1.weight, stride=stride, padding=1)
            inner = F.conv2d(normalize(block.norm2, inner), block.conv2.weight, padding=1)
            if block.shortcut is not None:
                expected = F.conv2d(active, block.shortcut.weight, stride=stride)
            expected = expected + inner
        pooled = normalize(model.norm, expected).mean((2, 3))
        torch.testing.assert_close(scores, pooled @ model.output.weight[0] + model.output.bias, rtol=1e-4, atol=1e-5)
    handle.remove()


@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_normalization_has_the_settings_of_the_paper(network, networks):
    layers = [layer for layer in networks[network].modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert {(layer.momentum, layer.eps) for layer in layers} == {(0.01, 1e-3)}  # Keras's momentum 0.99
    assert len(layers) == {AllConvNet: 11, ResNet32: 31}[network]
    own = network((1, 4, 4), momentum=0.2, eps=1e-4)
    layers = [layer for layer in own.modules() if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert {(layer.momentum, layer.eps) for layer in layers} == {(0.2, 1e-4)}


@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_accepts_images_of_any_size(network, networks):
    assert networks[network](torch.zeros(2, 3, 32, 32)).shape == (2,)
    for shape in ((1, 28, 28), (4, 7, 10), (2, 1, 1)):
        model = network(shape)
        scores = model(torch.randn(3, *shape))  # in training mode
        assert scores.shape == (3,)
        scores.sum().backward()
        assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_kernels_are_the_weights_of_the_hidden_layers(network, networks):
    model = networks[network]
    names = {id(p): name for name, p in model.named_parameters()}
    named = [names[id(kernel)] for kernel in kernel_parameters(model)]
    expected = {name for name, p in model.named_parameters() if p.ndim > 1 and name != "output.weight"}
    assert set(named) == expected
    assert len(named) == len(expected) == {AllConvNet: 11, ResNet32: 33}[network]


@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_image_scores_keep_float32_under_autocast(network):
    model = network((2, 8, 8)).eval()
    x = torch.randn(100, 2, 8, 8)
    with torch.no_grad():
        plain = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = model(x)
    assert scores.dtype == plain.dtype == torch.float32
    assert len(scores.unique()) > 80  # in bfloat16 many would coincide
    torch.testing.assert_close(scores, plain, rtol=0.1, atol=0.1 * plain.std().item())


@pytest.mark.parametrize("network", CONVOLUTIONAL)
def test_double_precision_network_computes_in_float64(network):
    model = network((1, 6, 6)).eval()
    x = torch.randn(5, 1, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        single, double = model(x.float()), model.double()(x)
        assert model.features(x).dtype == double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)


# --------------------------------------------------------------------------------------------------- packed convolution


@settings(max_examples=40)
@given(
    channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    height=st.integers(1, 6),
    blocks=st.integers(1, 4),
    packing=st.sampled_from([1, 2, 3, 4]),
    seed=st.integers(0, 2**31),
)
def test_packed_convolution_equals_plain_convolution(channels, height, blocks, packing, seed):
    """Values and both gradients of the code path for CUDA."""
    torch.manual_seed(seed)
    layer = PackedConv2d(*channels).double()
    layer.packing = packing
    x = torch.randn(2, channels[0], height, packing * blocks, dtype=torch.float64, requires_grad=True)
    plain, packed = F.conv2d(x, layer.weight, padding=1), layer._convolve_packed(x)
    torch.testing.assert_close(packed, plain)
    direction = torch.randn_like(plain)
    for ours, theirs in zip(
        torch.autograd.grad(packed, (x, layer.weight), direction),
        torch.autograd.grad(plain, (x, layer.weight), direction),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("channels", "packing"), [((3, 16), 4), ((16, 16), 4), ((16, 32), 2), ((64, 64), 1)])
def test_packing_fills_a_tile_of_64_channels(channels, packing):
    layer = PackedConv2d(*channels)
    assert layer.packing == packing
    assert layer._packed_kernel().shape == (packing * channels[1], packing * channels[0], 3, 3)
    assert layer._packed_kernel().count_nonzero() == packing * layer.weight.numel()  # the same weights and zeros
    x = torch.randn(2, channels[0], 5, 8)
    assert torch.equal(layer(x), F.conv2d(x, layer.weight, padding=1))  # the plain path, on the CPU
    assert list(layer.state_dict()) == ["weight"]


def test_only_narrow_convolutions_are_packed(networks):
    packed = [layer for layer in networks[ResNet32].modules() if isinstance(layer, PackedConv2d)]
    assert len(packed) == 1 + 10 + 9  # the stem, all blocks of 16 channels, and those of 32 without stride
    assert not any(isinstance(layer, PackedConv2d) for layer in networks[AllConvNet].modules())


# --------------------------------------------------------------------------------------------------- in the estimator


@pytest.fixture(scope="module")
def images():
    """Two sets of 3×8×8 images of bright and dark squares, as bytes."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 60)
    is_positive = rng.random(120) < np.where(sets == 0, 0.9, 0.1)
    X = rng.integers(0, 150, (120, 3, 8, 8)) + 100 * is_positive[:, None, None, None]
    return X.astype(np.uint8), sets


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_named_network_is_trained_saved_and_loaded(name, images, tmp_path):
    X, sets = images
    classifier = plain_classifier(
        (0.9, 0.1),
        0.5,
        model=name,
        model_params={"momentum": 0.5},  # the running statistics converge within two epochs
        epochs=2,
        batch_size=30,
        input_scale=1 / 255,
        ema=None,
        random_state=0,
    ).fit(X, sets)
    assert isinstance(classifier.model_, {"allconvnet": AllConvNet, "resnet32": ResNet32}[name])
    scores = classifier.decision_function(X)
    assert scores.shape == (120,)
    assert np.isfinite(scores).all()
    classifier.save(tmp_path)
    np.testing.assert_array_equal(UUClassifier.load(tmp_path).decision_function(X), scores)
    with pytest.raises(ValueError, match=r"^X has rows of shape \(3, 8, 7\), but .* rows of shape \(3, 8, 8\)\.$"):
        classifier.predict(X[..., :7])


@pytest.mark.parametrize("name", IMAGE_MODELS)
@pytest.mark.parametrize("shape", [(192,), (8, 24)])
def test_rejects_rows_that_are_not_images(name, shape, images):
    X, sets = images
    with pytest.raises(ValueError, match=rf"^model='{name}' expects images, got rows of shape \({shape[0]}.*\.$"):
        plain_classifier((0.9, 0.1), 0.5, model=name, epochs=1, random_state=0).fit(X.reshape(-1, *shape), sets)


# ---------------------------------------------------------------------------------------------------------- build_model


def test_build_model_accepts_classes_factories_and_instances():
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


def test_build_model_passes_the_image_shape():
    assert build_model("resnet32", (1, 5, 6)).stem.in_channels == 1
    assert build_model("allconvnet", (2, 5, 9), {"momentum": 0.5})(torch.zeros(3, 2, 5, 9)).shape == (3,)
    assert build_model(lambda shape: nn.Linear(math.prod(shape), 1), (2, 3, 4)).in_features == 24
    assert build_model(ResNet32, (3, 4, 4), {"shape": (7, 4, 4)}).stem.in_channels == 7  # explicit parameters win


@pytest.mark.parametrize(
    ("model", "shape", "params", "error", "text"),
    [
        ("resnet", (4,), None, ValueError, "'resnet'"),
        ("mlp", (3, 8, 8), None, ValueError, r"rows of shape \(3, 8, 8\)"),
        ("linear", (8, 8), None, ValueError, r"rows of shape \(8, 8\)"),
        ("resnet32", (64,), None, ValueError, r"expects images, got rows of shape \(64,\)"),
        ("allconvnet", (8, 8), None, ValueError, r"expects images, got rows of shape \(8, 8\)"),
        ("mlp", (4,), {"layers": 3}, ValueError, "with {'layers': 3}: .*; correct model_params"),
        ("mlp", (4,), {"hidden": (-1,)}, ValueError, "correct model_params"),
        ("resnet32", (3, 8, 8), {"depth": 20}, ValueError, "correct model_params"),
        (nn.Linear(4, 1), (4,), {"bias": True}, ValueError, "cannot be used with a model instance"),
        (lambda: "net", (4,), None, TypeError, "must return an nn.Module, got str"),
        (5, (4,), None, TypeError, "got 5"),
    ],
)
def test_rejects_invalid_models(model, shape, params, error, text):
    with pytest.raises(error, match=text):
        build_model(model, shape, params)


@settings(max_examples=20, deadline=None)
@given(rate=st.floats(0, 1), shape=st.sampled_from([(), (3,), (7, 11), (2, 3, 5)]))
def test_dropout_scales_the_remaining_units(rate, shape):
    """Every unit is either 0 or scaled by 1/(1 − rate), and the gradient of a unit is its factor."""
    x = torch.rand(shape, requires_grad=True)
    out = FastDropout(rate).train()(x)
    out.sum().backward()
    factor = 1 / (1 - round(rate * 2**16) / 2**16) if rate < 1 - 2**-17 else 0.0
    assert all(value == 0 or math.isclose(value, factor, rel_tol=1e-5) for value in x.grad.flatten().tolist())
    torch.testing.assert_close(out, x.detach() * x.grad)
    torch.testing.assert_close(FastDropout(rate).eval()(x), x)


def test_dropout_drops_independent_units_of_the_given_fraction():
    torch.manual_seed(0)
    dropped = (FastDropout(0.25)(torch.ones(40_001, 5)) == 0).double()
    assert abs(dropped.mean().item() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / dropped.numel())
    lagged = [
        torch.corrcoef(torch.stack([dropped.flatten()[:-lag], dropped.flatten()[lag:]]))[0, 1] for lag in range(1, 6)
    ]
    assert max(map(abs, lagged)) < 4 / math.sqrt(dropped.numel())
