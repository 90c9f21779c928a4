"""Sums over all workers of a process group, with the gradient that data parallelism needs."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def workers(group: Any = None) -> int:
    """Number of workers in the group (None: in the default one); 1 where there is none.

    Examples
    --------
    >>> workers()
    1
    """
    if not (dist.is_available() and dist.is_initialized()):
        return 1
    return dist.get_world_size(group)


def sum_over_workers(values: Tensor, group: Any = None) -> Tensor:
    """The sum over all workers, the same for each of them.

    Every worker must call it, however few rows it holds. The gradient is that of the sum times the number of workers,
    since data parallelism (DDP, FSDP, and what is built on them) averages the gradients of all workers: what it arrives
    at is then the gradient of the sum.

    Examples
    --------
    >>> sum_over_workers(torch.tensor([2.0, 3.0]))  # no process group
    tensor([2., 3.])
    """
    if workers(group) == 1:
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
        ctx.workers = workers(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.workers * gradient, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], values: Tensor, group: Any) -> tuple[Tensor, int]:
        """Sums are elementwise: a stack of them is added up in one exchange."""
        return sum_over_workers(values, group), in_dims[0]
