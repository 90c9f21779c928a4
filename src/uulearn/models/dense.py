"""The linear model and the MLP of the paper's experiments (Appendix C), initialized as in Keras."""

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_linear_bn_weights

TRUNCATED_STD = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated at ±2."""


def lecun_normal_(weight: Tensor, scale: float = 1.0) -> None:
    """Fill a tensor with values from a truncated normal of variance scale/fan_in (LeCun normal in Keras)."""
    std = math.sqrt(scale / weight[0].numel()) / TRUNCATED_STD
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def he_normal_(weight: Tensor) -> None:
    """Fill a tensor with values from a truncated normal of variance 2/fan_in (He normal in Keras)."""
    lecun_normal_(weight, scale=2.0)


INITIALIZERS: dict[str, Callable[[Tensor], object]] = {
    "lecun_normal": lecun_normal_,
    "he_normal": he_normal_,
    "glorot_uniform": nn.init.xavier_uniform_,  # Keras's default, variance 2/(fan_in + fan_out)
}


class Linear(nn.Module):
    """Linear model g(x) = ωᵀx + b.

    >>> Linear(n_features=3)(torch.zeros(2, 3)).shape
    torch.Size([2])
    """

    accepts_bfloat16_rows = True

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.output = output_layer(n_features, lecun_normal_)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of shape (n,) for rows of shape (n, n_features)."""
        scores: Tensor = self.output(x)
        return scores.squeeze(1)


def output_layer(inputs: int, initialize_: Callable[[Tensor], object]) -> nn.Linear:
    """Return the layer that computes the score, with initialized weights and zero bias."""
    layer = nn.Linear(inputs, 1)
    initialize_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class HiddenLayers(nn.Module):
    """Base class of networks: ``features`` maps rows to hidden units, and ``output`` maps these to one score per row.

    The output layer is computed in float32 even under autocast, to preserve the precision of the scores.
    """

    without_l2: ClassVar[tuple[str, ...]] = ("output",)
    """Layers without L2 regularization."""
    hidden: nn.Sequential
    output: nn.Linear

    def features(self, x: Tensor) -> Tensor:
        """Return the activations that are passed to the output layer, of shape (n, d)."""
        units: Tensor = self.hidden(x)
        return units

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of shape (n,) for rows of shape (n, …)."""
        x = self.features(x)
        with torch.autocast(x.device.type, enabled=False):
            scores: Tensor = self.output(x.to(self.output.weight.dtype))
        return scores.squeeze(1)


class FastDropout(nn.Dropout):
    """Dropout that is several times as fast on a CPU, where torch needs more time for it than for the matrix products.

    Each random 64-bit integer decides about four units, so the fraction of dropped units is a multiple of 1/65,536.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Set random units to 0 and scale the others up; return ``x`` itself in evaluation mode."""
        dropped = round(self.p * 2**16)
        if not self.training or x.device.type != "cpu" or dropped == 2**16 or torch.compiler.is_compiling():
            return super().forward(x)
        # NumPy compares 16-bit integers ten times as fast, and torch converts bytes several times as fast as booleans.
        kept = torch.from_numpy(np.asarray(random_int16(x.shape).numpy() >= dropped - 2**15)).view(torch.uint8)
        return x * kept.to(x.dtype).mul_(2**16 / (2**16 - dropped))


def random_int16(shape: torch.Size) -> Tensor:
    """Return random 16-bit integers from −32,768 to 32,767, four from each 64-bit integer of torch's CPU generator."""
    number = math.prod(shape)
    words = torch.empty(-(-number // 4), dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:number].view(shape)


class MLP(HiddenLayers):
    """MLP with batch normalization and ReLU; the default architecture is d-300-300-300-300-1, as in the paper.

    Parameters
    ----------
    n_features : int
        Number of input columns.
    hidden : sequence of int
        Width of each hidden layer.
    batch_norm : bool
        Whether to normalize before each activation. If True, the linear layers have no bias.
    momentum : float
        Momentum of PyTorch's batch normalization (0.99 in Keras corresponds to 0.01).
    eps : float
        Epsilon of PyTorch's batch normalization.
    dropout : float
        Fraction of hidden units dropped during training.
    initializer : str
        Initializer for all weight matrices, as in Keras: ``"lecun_normal"``, ``"he_normal"`` or ``"glorot_uniform"``.

    Examples
    --------
    >>> sum(p.numel() for p in MLP(784).parameters())
    507901
    """

    accepts_bfloat16_rows = True

    def __init__(
        self,
        n_features: int,
        hidden: Sequence[int] = (300, 300, 300, 300),
        batch_norm: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-3,
        dropout: float = 0.0,
        initializer: str = "lecun_normal",
    ) -> None:
        super().__init__()
        if initializer not in INITIALIZERS:
            names = ", ".join(map(repr, INITIALIZERS))
            raise ValueError(f"initializer must be one of {names}, got {initializer!r}.")
        initialize_ = INITIALIZERS[initializer]
        layers: list[nn.Module] = []
        width = n_features
        for size in hidden:
            linear = nn.Linear(width, size, bias=not batch_norm)
            initialize_(linear.weight)
            layers.append(linear)
            if batch_norm:
                layers.append(nn.BatchNorm1d(size, eps=eps, momentum=momentum))
            else:
                nn.init.zeros_(linear.bias)
            layers.append(nn.ReLU(inplace=True))
            if dropout:
                layers.append(FastDropout(dropout))
            width = size
        self.hidden = nn.Sequential(*layers)
        self.output = output_layer(width, initialize_)

    @torch.no_grad()
    def for_inference(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return a module for scoring that folds batch normalization into hidden layers of type ``dtype``."""
        linears = [layer for layer in self.hidden if isinstance(layer, nn.Linear)]
        norms = [layer for layer in self.hidden if isinstance(layer, nn.BatchNorm1d)]
        weights: list[tuple[Tensor, Tensor | None]] = [(layer.weight, layer.bias) for layer in linears]
        for layer, norm in enumerate(norms):
            statistics = norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            weights[layer] = fuse_linear_bn_weights(*weights[layer], *statistics)  # type: ignore[arg-type]
        return _FoldedMLP([(w.to(dtype), None if b is None else b.to(dtype)) for w, b in weights], self.output)


class _FoldedMLP(nn.Module):
    """Linear layers with ReLU between them; the tensors are shared with the model, because copying them is slow."""

    def __init__(self, hidden: list[tuple[Tensor, Tensor | None]], output: nn.Linear) -> None:
        super().__init__()
        self.n_hidden = len(hidden)
        for layer, (weight, bias) in enumerate([*hidden, (output.weight, output.bias)]):
            self.register_buffer(f"weight{layer}", weight.detach())
            self.register_buffer(f"bias{layer}", None if bias is None else bias.detach())
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        for layer in range(self.n_hidden):
            x = F.linear(x, getattr(self, f"weight{layer}"), getattr(self, f"bias{layer}")).relu_()
        weight, bias = getattr(self, f"weight{self.n_hidden}"), getattr(self, f"bias{self.n_hidden}")
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(weight.dtype), weight, bias).squeeze(1)
