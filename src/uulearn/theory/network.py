"""The size of a trained network that Corollary 5 needs: Frobenius norms, depth, and the bounds they imply.

The corollary is about g(x) = W_m σ(W_{m−1} σ(… σ(W_1 x))): fully connected, one output, no biases, no normalisation,
and an element-wise σ that is 1-Lipschitz with σ(tz) = tσ(z) for t ≥ 0. What is read here:

* ReLU, and leaky ReLU with |slope| ≤ 1; no activation at all between two layers is fine too;
* batch normalisation right after a linear layer. In evaluation mode it is an affine map with fixed numbers, so folding
  it into the layer before it changes no score; the bound is then about the class of the folded networks;
* dropout, which does nothing in evaluation mode;
* biases. A constant κ > 0 is appended to the rows and handed on from layer to layer, since σ(κ) = κ: layer j becomes
  [[W_j, b_j/κ_j], [0, κ_{j+1}/κ_j]], so that the network has the corollary's form and the same scores. The κ are free;
  they are chosen to make the bound smallest, which is a convex problem in their logarithms (a geometric programme).

Anything else (convolutions, residual connections, layer normalisation, tanh, GELU) is refused.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from uulearn.models import MLP, Ensemble, Linear
from uulearn.theory.checks import check_at_least

Floats = NDArray[np.float64]

_LARGEST_LOG = 60.0  # of the carried constants: keeps a network with a layer of zeros from driving one to infinity


class FittedClassifier(Protocol):
    """A fitted `uulearn.UUClassifier`."""

    model_: Any
    trained_: Any


class AffineLayer(NamedTuple):
    """x ↦ weight·x + bias, with normalisation folded in."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True)
class NetworkNorms:
    """A network as Corollary 5 sees it."""

    frobenius: tuple[float, ...]
    """M_F(1), …, M_F(m): the norms of the weight matrices, with biases and carried constants inside."""
    input_bound: float
    """C_x, with the carried constant inside."""
    constants: tuple[float, ...] = ()
    """κ_1, κ_2, …: the constant that enters each layer as far as the last layer with a bias; empty without biases."""

    @property
    def depth(self) -> int:
        """m, the number of weight matrices."""
        return len(self.frobenius)

    @property
    def score_bound(self) -> float:
        """C_g = C_x·∏ M_F(j), which no score of a network with these norms exceeds."""
        return self.input_bound * math.prod(self.frobenius)

    @property
    def complexity(self) -> float:
        """C_x·(√(2m ln 2) + 1)·∏ M_F(j): the Rademacher complexity of such networks is at most this over √n."""
        return (math.sqrt(2 * self.depth * math.log(2)) + 1) * self.score_bound


def network_norms(model: nn.Module | FittedClassifier, input_bound: float) -> NetworkNorms:
    """Frobenius norms of a trained network, as Corollary 5 needs them.

    Parameters
    ----------
    model : nn.Module or fitted UUClassifier
        `uulearn.models.Linear`, `uulearn.models.MLP`, ``nn.Linear``, or an ``nn.Sequential`` of what the top of this
        module lists. The ``input_scale`` of a classifier is folded into its first layer.
    input_bound : float
        C_x, a bound of the Euclidean norm of every row that can occur, in the units of the rows as the model (or the
        classifier) is given them.

    Notes
    -----
    The corollary is about a class of networks fixed before the rows were seen. With norms read off the trained network
    it describes the smallest such class that holds this network, which is how it is used in practice; taken strictly,
    the norms would have to be bounded beforehand.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0]])), model.bias.data.fill_(1.0)
    >>> round(network_norms(model, input_bound=2.0).score_bound, 6)  # |w·x + b| ≤ 5·2 + 1
    11.0
    """
    remedy = "it bounds the Euclidean norm of every row."
    bound = check_at_least("input_bound", input_bound, 0, remedy, strictly=True)
    layers = affine_layers(model)
    weights = np.array([np.linalg.norm(layer.weight) for layer in layers])
    biases = np.array([np.linalg.norm(layer.bias) for layer in layers])
    if not biases.any():
        return NetworkNorms(tuple(weights.tolist()), bound)
    n_constants = int(np.flatnonzero(biases)[-1]) + 1  # after the last bias nothing has to be carried on
    log_constants = _best_log_constants(weights, biases, bound, n_constants)
    log_input, log_norms = _log_norms(log_constants, weights, biases, bound)
    return NetworkNorms(tuple(np.exp(log_norms).tolist()), math.exp(log_input), tuple(np.exp(log_constants).tolist()))


def affine_layers(model: nn.Module | FittedClassifier) -> list[AffineLayer]:
    """The layers of a network that Corollary 5 covers, batch normalisation folded in; a ValueError for any other.

    Examples
    --------
    >>> [layer.weight.shape for layer in affine_layers(MLP(5, hidden=(4, 3)))]
    [(4, 5), (3, 4), (1, 3)]
    """
    module, scale = (model, 1.0) if isinstance(model, nn.Module) else _parts(model)
    products: list[nn.Linear] = []
    last: nn.Module | None = None
    for layer in _flatten(module):
        if isinstance(layer, nn.Dropout | nn.Identity):
            continue
        if isinstance(layer, nn.Linear):
            products.append(layer)
        elif isinstance(layer, nn.BatchNorm1d):
            products[-1:] = [_fold(last, layer)]
        elif not _is_homogeneous(layer):
            raise ValueError(
                "Corollary 5 covers fully connected networks whose activations are ReLU, or leaky ReLU with a slope of "
                f"at most 1, got {_brief(layer)}; use estimation_error_bound with a Rademacher complexity of your own."
            )
        last = layer
    if not isinstance(last, nn.Linear | nn.BatchNorm1d) or products[-1].out_features != 1:
        raise ValueError(
            f"Corollary 5 covers networks that end in a linear layer of one output, got one that ends in "
            f"{_brief(last)}; give it one output and no activation after it."
        )
    layers = [AffineLayer(*map(_array, (layer.weight, layer.bias))) for layer in products]
    layers = [AffineLayer(w, b if b.shape else np.zeros(len(w))) for w, b in layers]
    return [AffineLayer(layers[0].weight * scale, layers[0].bias), *layers[1:]]


def _parts(classifier: FittedClassifier) -> tuple[nn.Module, float]:
    module = getattr(classifier, "model_", None)
    if not isinstance(module, nn.Module):
        raise TypeError(f"model must be a torch module or a fitted UUClassifier, got {classifier!r}; call fit first.")
    if isinstance(module, Ensemble):
        raise ValueError(
            f"Corollary 5 is about one network, and this classifier has {len(module.models)}; look at one of them, "
            "classifier.submodel(0).model_.models[0], or fit with n_estimators=1."
        )
    return module, float(classifier.trained_.input_scale)


def _flatten(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are applied one after the other."""
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


def _is_homogeneous(layer: nn.Module) -> bool:
    return isinstance(layer, nn.ReLU) or (isinstance(layer, nn.LeakyReLU) and abs(layer.negative_slope) <= 1)


def _fold(product: nn.Module | None, norm: nn.BatchNorm1d) -> nn.Linear:
    if not isinstance(product, nn.Linear) or norm.running_mean is None:
        raise ValueError(
            "a batch normalisation can be folded only into a linear layer right before it, and only if it keeps "
            f"running statistics, got {norm} after {_brief(product)}; fold it by hand."
        )
    return fuse_linear_bn_eval(copy.deepcopy(product).double().eval(), copy.deepcopy(norm).double().eval())


def _brief(module: nn.Module | None) -> str:
    text = str(module)
    return text if "\n" not in text else type(module).__name__


def _array(values: Any) -> Floats:
    return np.asarray(values.detach().double().cpu()) if values is not None else np.zeros(())


def _log_norms(u: Floats, weights: Floats, biases: Floats, bound: float) -> tuple[float, Floats]:
    """Logarithms of √(C_x² + κ_1²) and of the layers' norms, for constants exp(u) entering the first layers."""
    k = len(u)
    with np.errstate(divide="ignore"):  # a norm of zero has the logarithm −∞, which logaddexp takes
        log_weights, log_biases = np.log(weights), np.log(biases)
    squares = 2 * log_weights
    squares[:k] = np.logaddexp(squares[:k], 2 * (log_biases[:k] - u))
    squares[: k - 1] = np.logaddexp(squares[: k - 1], 2 * np.diff(u))
    return 0.5 * float(np.logaddexp(2 * math.log(bound), 2 * u[0])), squares / 2


def _best_log_constants(weights: Floats, biases: Floats, bound: float, k: int) -> Floats:
    """Constants that make the product of all norms smallest; whatever is returned gives a valid bound."""
    from scipy.optimize import minimize

    def log_product(u: Floats) -> float:
        log_input, log_norms = _log_norms(u, weights, biases, bound)
        return log_input + float(log_norms[:k].sum())

    start = np.log(bound) + np.concatenate([[0.0], np.cumsum(np.log(np.maximum(weights[: k - 1], 1e-3)))])
    best = minimize(log_product, start, method="L-BFGS-B", bounds=[(-_LARGEST_LOG, _LARGEST_LOG)] * k)
    return np.asarray(best.x, dtype=np.float64)
