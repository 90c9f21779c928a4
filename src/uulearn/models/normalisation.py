"""Batch normalisation by the statistics of all workers, so that it sees the whole batch and not a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from uulearn.risk.distributed import workers


class _Normalise(torch.autograd.Function):
    """Normalise by the mean and variance of the rows of all workers: one exchange forwards, one backwards.

    Each worker sends its number of values and, of each channel, their sum and the sum of their squares, in float64, in
    which the difference of the two loses nothing. Backwards, what all make of the mean and the variance comes together.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        inner = [place for place in range(x.ndim) if place != 1]
        variance, mean = torch.var_mean(x.float(), inner, correction=0)
        mean, variance = mean.double(), variance.double()
        own = x.numel() // x.shape[1]
        sums = torch.cat([mean.new_tensor([own]), own * mean, own * (variance + mean.square())])
        dist.all_reduce(sums, group=group)
        n, (mean, squares) = sums[0], (sums[1:] / sums[0]).chunk(2)
        variance = (squares - mean.square()).clamp(min=0)
        ctx.save_for_backward(x, weight, mean.float(), torch.rsqrt(variance + eps).float(), n)
        ctx.group, ctx.inner, ctx.shape = group, inner, [1, -1, *([1] * (x.ndim - 2))]
        mean, variance = mean.float(), variance.float()
        out = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
        ctx.mark_non_differentiable(mean, variance, n)
        return out, mean, variance, n

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, n = ctx.saved_tensors
        gradient = gradient.float()
        normal = (x.float() - mean.view(ctx.shape)).mul_(scale.view(ctx.shape))
        own = torch.cat([gradient.sum(ctx.inner), (gradient * normal).sum(ctx.inner)])
        total = own.double()
        dist.all_reduce(total, group=ctx.group)
        of_mean, of_scale = (total / n).float().chunk(2)
        back = gradient - of_mean.view(ctx.shape) - normal.mul_(of_scale.view(ctx.shape))
        back *= (scale if weight is None else scale * weight.float()).view(ctx.shape)
        bias, slope = own.chunk(2)
        return back.to(x.dtype), *((slope, bias) if weight is not None else (None, None)), None, None


def _forward(self: Any, x: Tensor) -> Tensor:
    """As the module it stands in for, with mean and variance over the rows of all workers."""
    self._check_input_dim(x)
    if not self.training or workers(self.group) == 1:
        plain: Tensor = super(type(self), self).forward(x)
        return plain
    out: Tensor
    out, mean, variance, n = _Normalise.apply(x, self.weight, self.bias, self.eps, self.group)  # type: ignore[no-untyped-call]
    if self.track_running_stats:
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_((variance * n / (n - 1)).to(self.running_var.dtype), share)
    return out


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
