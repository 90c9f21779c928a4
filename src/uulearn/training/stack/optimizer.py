"""Adam, AdamW and SGD on stacked parameters, with a learning rate, decay and L2 of its own for every run.

The arithmetic is torch's; Keras-style L2 (gradient 2·l2·W on kernels) is added to the gradient before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from uulearn.training.stack.layers import use_kernels

DEFAULTS: dict[str, dict[str, Any]] = {
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8},
    "adamw": {"betas": (0.9, 0.999), "eps": 1e-8},
    "sgd": {"momentum": 0.0, "dampening": 0.0, "nesterov": False},
}


class StackedOptimizer:
    """State and update of one of the named optimizers.

    Parameters
    ----------
    name : str
        ``"adam"``, ``"adamw"`` or ``"sgd"``.
    params : dict of tensors
        Updated in place.
    spread : callable
        Turns values of shape (R,) into a shape that multiplies the named parameter.
    kernels : names
        What ``l2`` acts on.
    width : int
        How many runs lie side by side in ``0.kernel``.
    lr, lr_decay, weight_decay, l2 : tensors of shape (R,)
    """

    def __init__(
        self,
        name: str,
        params: dict[str, Tensor],
        spread: Callable[[Tensor, str], Tensor],
        kernels: list[str],
        width: int,
        settings: Mapping[str, Any],
        *,
        lr: Tensor,
        lr_decay: Tensor,
        weight_decay: Tensor,
        l2: Tensor,
    ) -> None:
        if name not in DEFAULTS:
            raise ValueError(f"a stack is trained by one of {', '.join(map(repr, DEFAULTS))}, got {name!r}.")
        unknown = set(settings) - set(DEFAULTS[name])
        if unknown:
            known = ", ".join(DEFAULTS[name])
            raise ValueError(f"optimizer_params of {name!r} in a stack may set {known}, got {sorted(unknown)[0]!r}.")
        self.name, self.params, self.spread, self.kernels = name, params, spread, set(kernels)
        self.width = width
        self.settings = DEFAULTS[name] | dict(settings)
        self.lr, self.lr_decay, self.weight_decay, self.l2 = lr, lr_decay, weight_decay, l2
        self.decays = bool((weight_decay > 0).any())
        self.regularises = bool((l2 > 0).any())
        self.step = torch.zeros((), device=lr.device)
        slots = {"adam": 2, "adamw": 2, "sgd": 1 if self.settings.get("momentum") else 0}[name]
        self.slots = {key: [torch.zeros_like(p) for _ in range(slots)] for key, p in params.items()}

    def update(self, gradients: Mapping[str, Tensor], alive: Tensor) -> None:
        """One step for the runs that are alive."""
        lr = self.lr / (1 + self.lr_decay * self.step)
        self.step += 1
        if self.name != "sgd" and len(self.kernels) > 1 and use_kernels(lr):
            self._update_by_kernel(gradients, lr, alive)  # a single layer is not worth compiling one
            return
        for key, p in self.params.items():
            g = gradients[key]
            if self.regularises and key in self.kernels:
                g = g + 2 * self.spread(self.l2, key) * p
            if self.decays and self.name != "adamw":
                g = g + self.spread(self.weight_decay, key) * p
            new, slots = self._advance(p, g, self.slots[key], self.spread(lr, key), key)
            living = self.spread(alive, key)
            p.copy_(torch.where(living, new, p))
            for slot, value in zip(self.slots[key], slots, strict=True):
                slot.copy_(torch.where(living, value, slot))

    def _update_by_kernel(self, gradients: Mapping[str, Tensor], lr: Tensor, alive: Tensor) -> None:
        from uulearn.training.stack import kernels

        corrections = torch.stack(self._corrections())
        for key, p in self.params.items():
            l2 = self.l2 if key in self.kernels else torch.zeros_like(self.l2)
            width = self.width if key == "0.kernel" else 1
            per_run = (lr, l2, self.weight_decay, alive)
            kernels.adam(
                p, gradients[key].contiguous(), self.slots[key], per_run, corrections, width, self.settings,
                self.name == "adamw",
            )  # fmt: skip

    def _corrections(self) -> list[Tensor]:
        """1 − β₁ᵗ and 1 − β₂ᵗ, in a form that keeps its digits in float32."""
        return [-torch.expm1(self.step * math.log(beta)) for beta in self.settings["betas"]]

    def _advance(self, p: Tensor, g: Tensor, slots: list[Tensor], lr: Tensor, key: str) -> tuple[Tensor, list[Tensor]]:
        if self.name == "sgd":
            momentum = self.settings["momentum"]
            if not momentum:
                return p - lr * g, []
            # torch starts the buffer with the bare gradient.
            taken = torch.where(self.step == 1, 1.0, 1.0 - self.settings["dampening"])
            buffer = momentum * slots[0] + taken * g
            move = g + momentum * buffer if self.settings["nesterov"] else buffer
            return p - lr * move, [buffer]
        beta1, beta2 = self.settings["betas"]
        if self.decays and self.name == "adamw":
            p = p * (1 - lr * self.spread(self.weight_decay, key))
        first = torch.lerp(slots[0], g, 1 - beta1)
        second = beta2 * slots[1] + (1 - beta2) * g * g
        correction1, correction2 = self._corrections()
        return p - lr / correction1 * first / ((second / correction2).sqrt() + self.settings["eps"]), [first, second]
