"""Sum values over all workers of a process group, with correct gradients under data parallelism."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size(group: Any = None) -> int:
    """Return the number of workers in the process group (None: the default group), or 1 if there is no group."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def sum_over_workers(values: Tensor, group: Any = None) -> Tensor:
    """Return the sum of ``values`` over all workers.

    Every worker must call this function, even if it has no rows. The gradient is multiplied by the number of workers,
    because data parallelism (DDP, FSDP) averages the gradients; the average is then the gradient of the sum.
    """
    if world_size(group) == 1:
        return values
    total: Tensor = _Sum.apply(values, group)  # type: ignore[no-untyped-call]
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(values: Tensor, group: Any) -> Tensor:
        total = values.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Any], output: Tensor) -> None:
        ctx.world_size = world_size(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.world_size * gradient, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], values: Tensor, group: Any) -> tuple[Tensor, int]:
        return sum_over_workers(values, group), in_dims[0]
