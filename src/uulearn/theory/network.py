"""Compute the Frobenius norms of a trained network for Corollary 5.

The corollary applies to fully connected networks g(x) = W_m σ(W_{m−1} σ(… σ(W_1 x))) with one output. The activation σ
is applied element-wise, is 1-Lipschitz, and satisfies σ(tz) = tσ(z) for t ≥ 0. Supported layers:

* ReLU, leaky ReLU with |slope| ≤ 1, and no activation;
* batch normalization directly after a linear layer, into which it is folded;
* dropout, which has no effect in evaluation mode;
* biases. A constant κ > 0 is appended to the rows and passed from layer to layer, since σ(κ) = κ: layer j becomes
  [[W_j, b_j/κ_j], [0, κ_{j+1}/κ_j]]. The constants minimize the bound; they are the solution of a geometric program.

Other layers, such as convolutions, residual connections, layer normalization, tanh and GELU, raise an error.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from uulearn.models import MLP, Ensemble, Linear
from uulearn.theory.constants import check_number

Floats = NDArray[np.float64]

_MAX_LOG_CONSTANT = 60.0  # bounds ln κ, which would diverge for a layer of zeros


class AffineLayer(NamedTuple):
    """The affine map x ↦ weight·x + bias, with batch normalization folded in."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class NetworkNorms:
    """Norms of a network and its input that are used in Corollary 5.

    >>> NetworkNorms(frobenius=(2.0, 3.0), input_bound=1.0).score_bound
    6.0
    """

    frobenius: tuple[float, ...]  # M_F(1), …, M_F(m), the norms of the weights, including biases and constants
    input_bound: float  # C_x, including the appended constant
    constants: tuple[float, ...] = ()  # κ_1, κ_2, …: the constant that enters each layer; empty without biases

    @property
    def depth(self) -> int:
        """The number of weight matrices, m in Corollary 5."""
        return len(self.frobenius)

    @property
    def score_bound(self) -> float:
        """The largest possible score, C_g = C_x·∏ M_F(j)."""
        return self.input_bound * math.prod(self.frobenius)

    @property
    def complexity(self) -> float:
        """Bound on √n times the Rademacher complexity: C_x·(√(2m ln 2) + 1)·∏ M_F(j)."""
        return (math.sqrt(2 * self.depth * math.log(2)) + 1) * self.score_bound


def network_norms(model: Any, input_bound: float) -> NetworkNorms:
    """Return the norms of a trained network for Corollary 5.

    ``model`` is a fitted `uulearn.UUClassifier`, `uulearn.models.Linear`, `uulearn.models.MLP`, ``nn.Linear``, or an
    ``nn.Sequential`` of linear layers, ReLU, leaky ReLU, batch normalization and dropout. ``input_bound`` is C_x, an
    upper bound on the Euclidean norm of every row that can be passed to the model or classifier.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0]])), model.bias.data.fill_(1.0)
    >>> round(network_norms(model, input_bound=2.0).score_bound, 6)  # |w·x + b| ≤ 5·2 + 1
    11.0
    """
    bound = check_number("input_bound", input_bound)
    layers = affine_layers(model)
    weights = np.array([np.linalg.norm(layer.weight) for layer in layers])
    biases = np.array([np.linalg.norm(layer.bias) for layer in layers])
    if not biases.any():
        return NetworkNorms(tuple(weights.tolist()), bound)
    n_constants = int(np.flatnonzero(biases)[-1]) + 1  # no constant is needed after the last bias
    log_constants = _best_log_constants(weights, biases, bound, n_constants)
    log_input, log_norms = _log_norms(log_constants, weights, biases, bound)
    return NetworkNorms(tuple(np.exp(log_norms).tolist()), math.exp(log_input), tuple(np.exp(log_constants).tolist()))


def affine_layers(model: Any) -> list[AffineLayer]:
    """Return the affine layers of a network with batch normalization folded in; raise a ValueError for other layers."""
    module, scale = (model, 1.0) if isinstance(model, nn.Module) else _network_of(model)
    linear: list[nn.Linear] = []
    last: nn.Module | None = None
    for layer in _flatten(module):
        if isinstance(layer, nn.Dropout | nn.Identity):
            continue
        if isinstance(layer, nn.Linear):
            linear.append(layer)
        elif isinstance(layer, nn.BatchNorm1d):
            linear[-1:] = [_fold(last, layer)]
        elif not isinstance(layer, nn.ReLU) and not (
            isinstance(layer, nn.LeakyReLU) and abs(layer.negative_slope) <= 1
        ):
            raise ValueError(
                "Corollary 5 requires a fully connected network with ReLU, or leaky ReLU with slope at most 1, got "
                f"{_brief(layer)}; use estimation_error_bound with the Rademacher complexity of your model."
            )
        last = layer
    if not isinstance(last, nn.Linear | nn.BatchNorm1d) or linear[-1].out_features != 1:
        raise ValueError(
            f"Corollary 5 requires a network that ends in a linear layer with one output, got a network that ends in "
            f"{_brief(last)}; use one output without an activation."
        )
    layers = []
    for layer in linear:
        weight = layer.weight.detach().double().cpu().numpy()
        bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().double().cpu().numpy()
        layers.append(AffineLayer(weight, bias))
    return [AffineLayer(layers[0].weight * scale, layers[0].bias), *layers[1:]]


def _network_of(classifier: Any) -> tuple[nn.Module, float]:
    module = getattr(classifier, "model_", None)
    if not isinstance(module, nn.Module):
        raise TypeError(f"model must be a torch module or a fitted UUClassifier, got {classifier!r}; call fit first.")
    if isinstance(module, Ensemble):
        raise ValueError(
            f"Corollary 5 requires one network, got a classifier with {len(module.models)} networks; pass one of them, "
            "classifier.submodel(0).model_.models[0], or fit with n_estimators=1."
        )
    return module, float(classifier.trained_.input_scale)


def _flatten(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules in the order in which they are applied."""
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from _flatten(child)
    elif isinstance(module, MLP):
        yield from _flatten(module.hidden)
        yield module.output
    elif isinstance(module, Linear):
        yield module.output
    else:
        yield module


def _fold(product: nn.Module | None, norm: nn.BatchNorm1d) -> nn.Linear:
    if not isinstance(product, nn.Linear) or norm.running_mean is None:
        raise ValueError(
            "batch normalization must have running statistics and directly follow a linear layer, "
            f"got {norm} after {_brief(product)}; fold it into the linear layer yourself."
        )
    return fuse_linear_bn_eval(copy.deepcopy(product).double().eval(), copy.deepcopy(norm).double().eval())


def _brief(module: nn.Module | None) -> str:
    return type(module).__name__ if "\n" in str(module) else str(module)


def _log_norms(u: Floats, weights: Floats, biases: Floats, bound: float) -> tuple[float, Floats]:
    """Return the logarithms of √(C_x² + κ_1²) and of the norms of the layers, for constants κ = exp(u)."""
    k = len(u)
    with np.errstate(divide="ignore"):  # ln 0 = −∞ is a valid input of logaddexp
        log_weights, log_biases = np.log(weights), np.log(biases)
    squares = 2 * log_weights
    squares[:k] = np.logaddexp(squares[:k], 2 * (log_biases[:k] - u))
    squares[: k - 1] = np.logaddexp(squares[: k - 1], 2 * np.diff(u))
    return 0.5 * float(np.logaddexp(2 * math.log(bound), 2 * u[0])), squares / 2


def _best_log_constants(weights: Floats, biases: Floats, bound: float, k: int) -> Floats:
    """Return the logarithms of the constants that minimize the product of all norms; any constants give a bound."""

    def log_product(u: Floats) -> float:
        log_input, log_norms = _log_norms(u, weights, biases, bound)
        return log_input + float(log_norms[:k].sum())

    start = np.log(bound) + np.concatenate([[0.0], np.cumsum(np.log(np.maximum(weights[: k - 1], 1e-3)))])
    best = minimize(log_product, start, method="L-BFGS-B", bounds=[(-_MAX_LOG_CONSTANT, _MAX_LOG_CONSTANT)] * k)
    return np.asarray(best.x, dtype=np.float64)
