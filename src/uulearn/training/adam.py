"""Adam for parameters on a CPU, without torch's compiler.

The first `torch.optim` optimizer of a process imports the compiler of torch, which takes about a second: a tenth of the
time of ``uulearn fit`` on a small table.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class CPUAdam:
    """`torch.optim.Adam` with its fused kernel, for one group of parameters on a CPU; the updates are the same.

    >>> weight = nn.Parameter(torch.ones(2))
    >>> optimizer = CPUAdam([weight], lr=0.1)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> [round(value, 6) for value in weight.tolist()]  # the first step of Adam has the length of the learning rate
    [0.9, 0.9]
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [
            {"params": parameters, "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        ]
        self._state = [
            {"step": torch.zeros(()), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            for p in parameters
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Delete the gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        group = self.param_groups[0]
        used = [pair for pair in zip(group["params"], self._state, strict=True) if pair[0].grad is not None]
        if not used:
            return
        parameters, states = zip(*used, strict=True)
        steps, first, second = ([state[name] for state in states] for name in ("step", "exp_avg", "exp_avg_sq"))
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            list(parameters), [parameter.grad for parameter in parameters], first, second, [], steps,
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
            weight_decay=group["weight_decay"], amsgrad=False, maximize=False,
        )  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """Return the current state for `load_state_dict`."""
        settings = {name: value for name, value in self.param_groups[0].items() if name != "params"}
        return {"state": [dict(own) for own in self._state], "settings": settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state_dict`."""
        self.param_groups[0].update(state["settings"])
        for own, stored in zip(self._state, state["state"], strict=True):
            own.update({name: value.clone() for name, value in stored.items()})
