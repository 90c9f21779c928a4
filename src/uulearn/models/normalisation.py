"""Batch normalisation by the statistics of all workers, so that it sees the whole batch and not a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uulearn.risk.distributed import workers


class _Total(torch.autograd.Function):
    """A sum over workers whose result every worker uses: backwards, what all of them make of it comes together."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        total = values.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


def _forward(self: Any, x: Tensor) -> Tensor:
    """As the module it stands in for, with mean and variance over the rows of all workers."""
    self._check_input_dim(x)
    if not self.training or workers(self.group) == 1:
        plain: Tensor = super(type(self), self).forward(x)
        return plain
    exact = x.float()
    inner = [place for place in range(x.ndim) if place != 1]
    shape = [1, -1, *([1] * (x.ndim - 2))]
    ones = exact.new_full((1,), exact.numel() / exact.shape[1])
    sums: Tensor = _Total.apply(torch.cat([exact.sum(inner), ones]), self.group)  # type: ignore[no-untyped-call]
    n = sums[-1].detach()
    mean = sums[:-1] / n
    centred = exact - mean.view(shape)
    variance: Tensor = _Total.apply(centred.square().sum(inner), self.group) / n  # type: ignore[no-untyped-call]
    if self.track_running_stats:
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_((variance * n / (n - 1)).to(self.running_var.dtype), share)
    out = centred * torch.rsqrt(variance + self.eps).view(shape)
    if self.affine:
        out = out * self.weight.view(shape) + self.bias.view(shape)
    return out.to(x.dtype)


_SYNCHRONISED: dict[type[nn.Module], type[nn.Module]] = {
    kind: type(f"Synchronised{kind.__name__}", (kind,), {"forward": _forward, "group": None})
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
}


@contextmanager
def synchronised(model: nn.Module, group: Any = None) -> Iterator[nn.Module]:
    """Within it, the model's batch normalisation takes its statistics over the rows of all workers while it trains.

    W workers with parts of a batch then normalise as one with the whole of it: the forward pass, the running
    statistics and the gradients are the same. Works on any device; torch's ``SyncBatchNorm`` serves GPUs only. Without
    a process group nothing changes.

    Parameters
    ----------
    model : nn.Module
        Changed in place, and changed back at the end; its weights and state dict stay as they are.
    group : optional
        Process group; the default one if None.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    >>> with synchronised(model):
    ...     type(model[1]).__name__
    'SynchronisedBatchNorm1d'
    >>> type(model[1]).__name__
    'BatchNorm1d'
    """
    unknown = [m for m in model.modules() if isinstance(m, _BatchNorm | nn.LazyBatchNorm1d) and not _can_be(m)]
    if unknown and workers(group) > 1:
        raise ValueError(
            f"{type(unknown[0]).__name__} cannot be synchronised over workers; use nn.BatchNorm1d, 2d or 3d, or "
            "another kind of normalisation such as nn.GroupNorm."
        )
    changed = [module for module in model.modules() if type(module) in _SYNCHRONISED]
    for module in changed:
        module.__class__ = _SYNCHRONISED[type(module)]
        module.group = group
    try:
        yield model
    finally:
        for module in changed:
            module.__class__ = type(module).__mro__[1]
            del module.group


def _can_be(module: nn.Module) -> bool:
    return type(module) in _SYNCHRONISED or isinstance(module, nn.SyncBatchNorm)
