"""Many linear models or MLPs, computed as one network of batched matrix products.

The R runs form G groups of M consecutive runs (R = G·M). The runs of a group use the same rows, so their first layers
are computed as one matrix product. The first kernels of the M runs are therefore concatenated and have shape (G, d,
M·h). All other kernels have shape (R, h, h′), and parameters of hidden units have shape (R, 1, h).
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from uulearn.models import MLP, Linear
from uulearn.models.dense import random_int16
from uulearn.training.batched.layers import NormalizeReLU, OutputUnit, concatenate_runs, scale_shift_relu, split_runs
from uulearn.training.batched.runs import Groups

Tensors = Mapping[str, Tensor]

NORM_ATTRIBUTES = {"gamma": "weight", "beta": "bias", "mean": "running_mean", "var": "running_var"}
"""Names of the parameters and statistics of a normalization layer in this module, and their names in torch."""


class BatchedNetwork:
    """Batched parameters and statistics of R `Linear` or `MLP` models with the same architecture.

    ``dtype`` is the type of the matrix products; sums, statistics, the output layer and the parameters use float32.
    ``dropout``, of shape (R,), is the fraction of hidden units that each run drops during training. For half-precision
    products, layer widths are padded to a multiple of ``align``; the added units are always zero.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        groups: Groups,
        dtype: torch.dtype,
        device: torch.device,
        dropout: Tensor | None = None,
        align: int = 1,
    ) -> None:
        self.template = copy.deepcopy(models[0]).cpu()
        self.groups, self.dtype, self.device, self.align = groups, dtype, device, align
        self.n_runs = len(models)
        self.norms = _norms(models[0])
        if any(norm.momentum is None for norm in self.norms):
            raise ValueError("batched training requires a number as batch-normalization momentum, got None; use 0.1.")
        self.params: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}
        self.keep_rates = None if dropout is None else (1 - dropout).to(device)[:, None, None]
        products = [_products(model) for model in models]
        self.n_layers = len(products[0])
        for layer in range(self.n_layers):
            last = layer == self.n_layers - 1
            weights = torch.stack([chain[layer].weight.detach().T for chain in products])  # (R, inputs, outputs)
            weights = self._pad(weights, 1) if last else self._pad(self._pad(weights, 1), 2)
            weights = concatenate_runs(weights, groups.width) if layer == 0 else weights
            self.params[f"{layer}.kernel"] = self._place(weights)
            if products[0][layer].bias is not None:
                biases = torch.stack([chain[layer].bias.detach()[None, :] for chain in products])
                self.params[f"{layer}.bias"] = self._place(biases if last else self._pad(biases, 2))
            if not last and self.norms:
                chains = [_norms(model)[layer] for model in models]
                for name, source in NORM_ATTRIBUTES.items():
                    values = torch.stack([getattr(norm, source).detach()[None, :] for norm in chains])
                    tensors = self.buffers if source.startswith("running") else self.params
                    tensors[f"{layer}.{name}"] = self._place(self._pad(values, 2))
        # Keras-style L2 acts on the hidden kernels, or on the only kernel of a linear model.
        hidden = [f"{layer}.kernel" for layer in range(self.n_layers - 1)]
        self.kernel_names = hidden if isinstance(models[0], MLP) else ["0.kernel"]

    def _place(self, values: Tensor) -> Tensor:
        return values.to(self.device).contiguous()

    def _pad(self, values: Tensor, dim: int) -> Tensor:
        extra = -values.shape[dim] % self.align
        return values if not extra else F.pad(values, (0, 0) * (values.ndim - 1 - dim) + (0, extra))

    # --------------------------------------------------------------------------------------------------------- layout

    @property
    def width(self) -> int:
        """Width of the widest layer of one run, including the input layer."""
        widths = [p.shape[2] for name, p in self.params.items() if name != "0.kernel"]
        return max(self.params["0.kernel"].shape[1] // self.groups.width, *widths)

    def pad_rows(self, x: Tensor) -> Tensor:
        """Pad rows with zero columns to the input width of the first layer."""
        return self._pad(x, x.ndim - 1)

    def per_run(self, values: Tensor, name: str) -> Tensor:
        """Reshape values of shape (R,) so that they can be multiplied by the named parameter or statistic."""
        if name != "0.kernel":
            return values[:, None, None]
        width, outputs = self.groups.width, self.params[name].shape[2]
        return values.view(-1, 1, width, 1).expand(-1, 1, width, outputs // width).reshape(-1, 1, outputs)

    def narrowed(self) -> dict[str, Tensor]:
        """Return the parameters, with hidden kernels (and therefore their gradients) in the dtype of the products."""
        hidden = {f"{layer}.kernel" for layer in range(self.n_layers - 1)}
        return {name: value.to(self.dtype) if name in hidden else value for name, value in self.params.items()}

    def module(self, run: int, params: Tensors, buffers: Tensors) -> nn.Module:
        """Return the model of one run, on the CPU, in evaluation mode."""
        model = copy.deepcopy(self.template)
        norms = _norms(model)
        with torch.no_grad():
            for layer, product in enumerate(_products(model)):
                kernel = params[f"{layer}.kernel"]
                own = (split_runs(kernel, self.groups.width) if layer == 0 else kernel)[run]
                outputs, inputs = product.weight.shape
                product.weight.copy_(own[:inputs, :outputs].T)
                if product.bias is not None:
                    product.bias.copy_(params[f"{layer}.bias"][run, 0, :outputs])
                if layer < len(norms):
                    for name, target in NORM_ATTRIBUTES.items():
                        values = {**params, **buffers}[f"{layer}.{name}"]
                        getattr(norms[layer], target).copy_(values[run, 0, :outputs])
        return model.eval()

    # --------------------------------------------------------------------------------------------------------- scores

    def training_scores(self, params: Tensors, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return scores of shape (R, n) for rows of shape (G, n, d), and the batch statistics by name."""
        statistics: dict[str, Tensor] = {}
        hidden = x
        for layer in range(self.n_layers - 1):
            out, width = self._product(params, layer, hidden)
            if self.norms:
                gamma, beta = params[f"{layer}.gamma"], params[f"{layer}.beta"]
                normalize: Any = NormalizeReLU.apply
                hidden, mean, var = normalize(out, gamma, beta, self.norms[layer].eps, width)
                statistics |= {f"{layer}.mean": mean, f"{layer}.var": var}
            else:
                hidden = torch.relu(split_runs(out, width) + params[f"{layer}.bias"]).to(self.dtype)
            if self.keep_rates is not None:
                if self.device.type == "cpu":  # as in FastDropout
                    keep = random_int16(hidden.shape) < self.keep_rates * 2**16 - 2**15
                    hidden = hidden * (keep / self.keep_rates).to(self.dtype)
                else:
                    keep = torch.rand_like(hidden, dtype=torch.float32) < self.keep_rates
                    hidden = torch.where(keep, hidden / self.keep_rates, 0).to(self.dtype)
        return self._output(params, hidden), statistics

    def evaluation_scores(self, params: Tensors, buffers: Tensors, x: Tensor) -> Tensor:
        """Return scores (R, n) based on the running statistics; rows have shape (G, n, d), or (n, d) if shared."""
        hidden = x if x.ndim == 3 else x.expand(self.groups.count, *x.shape)
        for layer in range(self.n_layers - 1):
            out, width = self._product(params, layer, hidden)
            if self.norms:
                mean, shift = buffers[f"{layer}.mean"], params[f"{layer}.beta"]
                scale = params[f"{layer}.gamma"] * torch.rsqrt(buffers[f"{layer}.var"] + self.norms[layer].eps)
            else:
                shift = params[f"{layer}.bias"]
                mean, scale = torch.zeros_like(shift), torch.ones_like(shift)
            hidden = scale_shift_relu(out, mean, scale, shift, width)
        return self._output(params, hidden)

    def _product(self, params: Tensors, layer: int, hidden: Tensor) -> tuple[Tensor, int]:
        """Return the matrix product of a layer, and the number of runs that it contains side by side."""
        return torch.bmm(hidden, params[f"{layer}.kernel"].to(self.dtype)), self.groups.width if layer == 0 else 1

    def _output(self, params: Tensors, hidden: Tensor) -> Tensor:
        layer = self.n_layers - 1
        kernel, bias = params[f"{layer}.kernel"], params[f"{layer}.bias"]
        if layer == 0:
            return torch.bmm(hidden.float(), kernel).transpose(1, 2).reshape(self.n_runs, -1) + bias[:, 0]
        scores: Tensor = OutputUnit.apply(hidden, kernel, bias)  # type: ignore[no-untyped-call]
        return scores

    def update_statistics(self, buffers: Tensors, statistics: Tensors, n_rows: int, alive: Tensor) -> None:
        """Update the running statistics of the active runs with the statistics of a batch."""
        for name, value in statistics.items():
            layer, kind = name.split(".")
            if kind == "var":
                value = value * (n_rows / max(1, n_rows - 1))
            momentum = float(self.norms[int(layer)].momentum or 0.0)
            buffers[name].lerp_(torch.where(alive[:, None, None], value, buffers[name]), momentum)


def _products(model: nn.Module) -> list[nn.Linear]:
    hidden = [layer for layer in model.hidden if isinstance(layer, nn.Linear)] if isinstance(model, MLP) else []
    assert isinstance(model, MLP | Linear)
    return [*hidden, model.output]


def _norms(model: nn.Module) -> list[nn.BatchNorm1d]:
    return [layer for layer in model.hidden if isinstance(layer, nn.BatchNorm1d)] if isinstance(model, MLP) else []
