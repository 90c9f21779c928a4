"""The linear model and the multi-layer MLP of the paper's experiments (Appendix C)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from uulearn.models.initializers import get_initialiser, lecun_normal_


class Linear(nn.Module):
    """The linear-in-input model g(x) = ωᵀx + b.

    Examples
    --------
    >>> Linear(784)(torch.zeros(5, 784)).shape
    torch.Size([5])
    """

    accepts_bfloat16_rows = True

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.output = nn.Linear(n_features, 1)
        lecun_normal_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (n,) for rows of shape (n, n_features)."""
        scores: Tensor = self.output(x)
        return scores.squeeze(1)

    def kernels(self) -> list[Tensor]:
        """The weights that Keras-style L2 acts on."""
        return [self.output.weight]


class MLP(nn.Module):
    """Multi-layer MLP with batch normalisation and ReLU; by default the paper's d-300-300-300-300-1.

    Each hidden layer is a product, batch normalisation (then the layer has no bias),
    ReLU and, if asked, dropout. The output layer is computed in float32 even under autocast, so that scores keep
    their full resolution.

    Parameters
    ----------
    n_features : int
        Number of input columns.
    hidden : sequence of int
        Width of each hidden layer.
    batch_norm : bool
        Whether to normalise before each activation.
    momentum, eps : float
        Of the batch normalisation, in PyTorch's sense (Keras's momentum 0.99 is 0.01 here).
    dropout : float
        Share of hidden units dropped while training.
    initialiser : str
        Of all kernels: ``"lecun_normal"``, ``"he_normal"`` or ``"glorot_uniform"``, in Keras's sense.

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
        initialiser: str = "lecun_normal",
    ) -> None:
        super().__init__()
        initialise_ = get_initialiser(initialiser)
        layers: list[nn.Module] = []
        width = n_features
        for size in hidden:
            product = nn.Linear(width, size, bias=not batch_norm)
            initialise_(product.weight)
            layers.append(product)
            if batch_norm:
                layers.append(nn.BatchNorm1d(size, eps=eps, momentum=momentum))
            else:
                nn.init.zeros_(product.bias)
            layers.append(nn.ReLU(inplace=True))
            if dropout:
                layers.append(nn.Dropout(dropout))
            width = size
        self.hidden = nn.Sequential(*layers)
        self.output = nn.Linear(width, 1)
        initialise_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (n,) for rows of shape (n, n_features)."""
        x = self.hidden(x)
        with torch.autocast(x.device.type, enabled=False):
            scores: Tensor = self.output(x.to(self.output.weight.dtype))
        return scores.squeeze(1)

    def kernels(self) -> list[Tensor]:
        """The weights that Keras-style L2 acts on: the kernels of the hidden layers."""
        return [layer.weight for layer in self.hidden if isinstance(layer, nn.Linear)]

    def for_inference(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """A copy for scoring: normalisation folded into the products, hidden layers in the given type."""
        folded = copy.deepcopy(self).eval()
        layers: list[nn.Module] = []
        for layer in folded.hidden:
            if isinstance(layer, nn.BatchNorm1d):
                product = layers[-1]
                assert isinstance(product, nn.Linear)
                layers[-1] = fuse_linear_bn_eval(product, layer)
            elif not isinstance(layer, nn.Dropout):
                layers.append(layer)
        folded.hidden = nn.Sequential(*layers).to(dtype)
        return folded
