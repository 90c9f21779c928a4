"""Adam, AdamW and SGD for many runs, with a separate learning rate, decay and L2 penalty for each run.

A Keras-style L2 penalty adds 2·l2·W to the gradient of a kernel. The update formulas are the same as in torch.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from uulearn.training.batched.layers import split_runs, use_kernels
from uulearn.training.batched.network import BatchedNetwork
from uulearn.training.options import OPTIMIZERS

OPTIMIZER_DEFAULTS: dict[str, dict[str, Any]] = {
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8},
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8},
    "sgd": {"momentum": 0.0, "dampening": 0.0, "nesterov": False},
}


class BatchedOptimizer:
    """Batched ``"adam"``, ``"adamw"`` or ``"sgd"`` optimizer, which updates the parameters of the network in place.

    ``settings`` contains arguments of the torch optimizer. The rates are tensors of shape (R,), one value per run.
    """

    def __init__(
        self,
        name: str,
        network: BatchedNetwork,
        settings: Mapping[str, Any],
        *,
        lr: Tensor,
        lr_decay: Tensor,
        weight_decay: Tensor,
        l2: Tensor,
    ) -> None:
        if name not in OPTIMIZER_DEFAULTS:
            raise ValueError(f"optimizer must be one of {', '.join(map(repr, OPTIMIZER_DEFAULTS))}, got {name!r}.")
        self.name, self.settings = name, OPTIMIZER_DEFAULTS[name] | dict(settings)
        if unknown := sorted(set(settings) - set(OPTIMIZER_DEFAULTS[name])):
            known = ", ".join(OPTIMIZER_DEFAULTS[name])
            raise ValueError(f"optimizer_params of {name!r} may contain only {known}, got {unknown[0]!r}.")
        try:
            if settings:
                OPTIMIZERS[name]([torch.zeros(1)], **self.settings)
        except ValueError as error:
            raise ValueError(f"optimizer_params={dict(settings)} cannot be used with {name!r}: {error}.") from error
        self.params, self.spread, self.kernels = network.params, network.per_run, set(network.kernel_names)
        self.width = network.groups.width
        self.lr, self.lr_decay, self.weight_decay, self.l2 = lr, lr_decay, weight_decay, l2
        self.decays, self.regularizes = bool((weight_decay > 0).any()), bool((l2 > 0).any())
        self.step = torch.zeros((), device=lr.device)
        slots = {"adam": 2, "adamw": 2, "sgd": 1 if self.settings.get("momentum") else 0}[name]
        self.slots = {key: [torch.zeros_like(p) for _ in range(slots)] for key, p in self.params.items()}

    def update(self, gradients: Mapping[str, Tensor], alive: Tensor) -> None:
        """Update all active runs; a run becomes inactive if its update would not be finite."""
        lr = self.lr / (1 + self.lr_decay * self.step)
        self.step += 1
        if self.name != "sgd" and len(self.kernels) > 1 and use_kernels(lr):
            self._update_by_kernel(gradients, lr, alive)  # for a single layer, compiling takes more time than it saves
            return
        rates, finite = lr * alive, torch.ones_like(alive)
        for key, p in self.params.items():
            g = torch.where(self.spread(alive, key), gradients[key], 0).float()
            if self.regularizes and key in self.kernels:
                g = torch.addcmul(g, p, self.spread(2 * self.l2, key))
            if self.decays and self.name != "adamw":
                g = torch.addcmul(g, p, self.spread(self.weight_decay, key))
            move = self._move(p, g, self.slots[key], key).mul_(self.spread(rates, key))
            valid = (p - move).isfinite()
            finite &= (split_runs(valid, self.width) if key == "0.kernel" else valid).flatten(1).all(1)
            p.sub_(torch.where(valid, move, 0))
        alive &= finite | ~alive

    def _update_by_kernel(self, gradients: Mapping[str, Tensor], lr: Tensor, alive: Tensor) -> None:
        from uulearn.training.batched import kernels

        corrections = torch.stack(self._corrections())
        living, finite = alive.int(), torch.ones_like(alive, dtype=torch.int32)
        for key, p in self.params.items():
            l2 = self.l2 if key in self.kernels else torch.zeros_like(self.l2)
            width = self.width if key == "0.kernel" else 1
            per_run = (lr, l2, self.weight_decay, living, finite)
            kernels.adam(
                p, gradients[key].contiguous(), self.slots[key], per_run, corrections, width, self.settings,
                self.name == "adamw",
            )  # fmt: skip
        alive &= finite.bool()

    def _corrections(self) -> list[Tensor]:
        """Return 1 − β₁ᵗ and 1 − β₂ᵗ, computed without loss of precision in float32."""
        betas = self.settings["betas"]
        return [-torch.expm1(self.step * math.log(beta)) if beta else torch.ones_like(self.step) for beta in betas]

    def _move(self, p: Tensor, g: Tensor, slots: list[Tensor], key: str) -> Tensor:
        """Update the optimizer state and return the parameter update for a learning rate of 1."""
        if self.name == "sgd":
            momentum = self.settings["momentum"]
            if not momentum:
                return g
            # As in torch, the first gradient enters the buffer without dampening.
            factor = torch.where(self.step == 1, 1.0, 1.0 - self.settings["dampening"])
            buffer = slots[0].mul_(momentum).addcmul_(g, factor)
            return g.add_(buffer, alpha=momentum) if self.settings["nesterov"] else buffer.clone()
        beta1, beta2 = self.settings["betas"]
        correction1, correction2 = self._corrections()
        first = slots[0].lerp_(g, 1 - beta1)
        second = slots[1].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        move = first / (second / correction2).sqrt_().add_(self.settings["eps"]).mul_(correction1)
        if self.decays and self.name == "adamw":
            move.addcmul_(p, self.spread(self.weight_decay, key))
        return move
