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

from uulearn.risk.distributed import world_size

SMALL = 1e-5
"""Added to a variance, and taken away again, so that it can be inverted."""


class _Normalise(torch.autograd.Function):
    """Normalise by the mean and variance of the rows of all workers: one exchange forwards, one backwards.

    Each worker sends its number of values, zero or more, and their mean and variance in each channel; what comes of
    them does not depend on how far the mean is from zero. Backwards, what all make of the mean and the variance comes
    together. Narrow types are widened to float32 for it, as torch does, and float64 stays what it is.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        inner = [place for place in range(x.ndim) if place != 1]
        own, channels = x.numel() // x.shape[1], x.shape[1]
        found = x.new_zeros(1 + 2 * channels, dtype=torch.float64)
        if own:  # of no values there is neither mean nor variance
            found = torch.cat([found[:1] + own, *_mean_and_variance(x, wide, inner)])
        table = found.new_empty(world_size(group), len(found))
        dist.all_gather(list(table.unbind()), found, group=group)
        counts, (means, variances) = table[:, :1], table[:, 1:].chunk(2, dim=1)
        n = counts.sum()
        if own < 2 and n < 2:  # with more of its own a worker need not look, for which a GPU would have to wait
            raise ValueError(
                f"batch normalisation over workers needs 2 or more values of each channel to train, got {n:.0f} from "
                "all of them together; give them more rows, or call model.eval() first."
            )
        mean = (counts / n * means).sum(0)
        variance = (counts / n * (variances + (means - mean).square())).sum(0)
        scale = torch.rsqrt(variance + eps).to(wide)
        mean, variance = mean.to(wide), variance.to(wide)
        ctx.save_for_backward(x, weight, mean, variance, scale, n)
        ctx.eps, ctx.group, ctx.inner, ctx.shape = eps, group, inner, [1, -1, *([1] * (x.ndim - 2))]
        # The kernel takes narrow rows with wide statistics only if weight and bias are as wide.
        weight, bias = (None if parameter is None else parameter.to(wide) for parameter in (weight, bias))
        out = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
        ctx.mark_non_differentiable(mean, variance, n)
        return out, mean, variance, n

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, scale, n = ctx.saved_tensors
        bias, slope = _summed(gradient, x, mean, variance, scale, ctx)
        total = torch.cat([bias, slope]).to(torch.float64, copy=True)  # this worker's share is wanted, too
        dist.all_reduce(total, group=ctx.group)
        of_mean, of_scale = (total / n).to(mean.dtype).chunk(2)
        # In place, since tables of this size cost more to make than to fill.
        back = (x - mean.view(ctx.shape)).mul_((-scale * of_scale).view(ctx.shape)).add_(gradient)
        back.sub_(of_mean.view(ctx.shape))
        back.mul_((scale if weight is None else scale * weight.to(scale.dtype)).view(ctx.shape))
        _, wants_slope, wants_bias, *_ = ctx.needs_input_grad
        return back.to(x.dtype), slope if wants_slope else None, bias if wants_bias else None, None, None


def _mean_and_variance(x: Tensor, wide: torch.dtype, inner: list[int]) -> tuple[Tensor, Tensor]:
    """Of every channel; on a CPU the kernel of batch normalisation is ten times as fast as that of the variance."""
    if x.device.type != "cpu":
        return _mean_and_variance_plainly(x, wide, inner)
    weight, bias = x.new_ones(x.shape[1], dtype=wide), x.new_zeros(x.shape[1], dtype=wide)
    _, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, SMALL)
    return mean, (inverse.double().pow(-2) - SMALL).clamp_min(0)


def _mean_and_variance_plainly(x: Tensor, wide: torch.dtype, inner: list[int]) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x.to(wide), inner, correction=0)
    return mean, variance


def _summed(
    gradient: Tensor, x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, ctx: Any
) -> tuple[Tensor, Tensor]:
    """Sums of the gradient, and of the gradient times the normalised values, of every channel; again by the kernel."""
    if x.device.type != "cpu" or not len(x):
        return _summed_plainly(gradient, x, mean, scale, ctx)
    known = torch.ones_like(mean), mean, variance, None, None
    _, slope, bias = torch.ops.aten.native_batch_norm_backward(
        gradient.to(x.dtype), x, *known, False, ctx.eps, [False, True, True]
    )
    return bias, slope


def _summed_plainly(gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, ctx: Any) -> tuple[Tensor, Tensor]:
    normal = (x.to(mean.dtype) - mean.view(ctx.shape)).mul_(scale.view(ctx.shape))
    wide = gradient.to(mean.dtype)
    return wide.sum(ctx.inner), (wide * normal).sum(ctx.inner)


class _Synchronised(_BatchNorm):
    """What the class of a module becomes for a while: the same, with mean and variance over the rows of all workers."""

    plain: type[_BatchNorm]
    group: Any

    def forward(self: Any, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        if not self.training or world_size(self.group) == 1:
            return super().forward(x)
        out: Tensor
        out, mean, variance, n = _Normalise.apply(x, self.weight, self.bias, self.eps, self.group)  # type: ignore[no-untyped-call]
        if self.track_running_stats:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                for running, found in ((self.running_mean, mean), (self.running_var, variance * n / (n - 1))):
                    running.lerp_(found.to(running.dtype), share)
        return out

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        """A copy, in memory or in a file, is of the plain kind: who uses it may be alone, and would wait forever."""
        state = {name: value for name, value in self.__dict__.items() if name != "group"}
        return self.plain, (self.num_features,), state


_SYNCHRONISED: dict[type[nn.Module], type[nn.Module]] = {
    kind: type(f"Synchronised{kind.__name__}", (_Synchronised, kind), {"plain": kind})
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
}


@contextmanager
def synchronised(model: nn.Module, group: Any = None) -> Iterator[nn.Module]:
    """Within it, the model's batch normalisation takes its statistics over the rows of all workers while it trains.

    W workers with parts of a batch then normalise as one with the whole of it: the forward pass, the running
    statistics and the gradients are the same, also where one of them has no row. Works on any device, with weights of
    any type; torch's ``SyncBatchNorm`` serves GPUs only. Without a process group nothing changes.

    All workers must call the model equally often while it trains. A copy, by ``copy.deepcopy`` or ``torch.save``, is
    of the plain kind and can be used by one alone.

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
    if unknown and world_size(group) > 1:
        raise ValueError(
            f"{type(unknown[0]).__name__} cannot be synchronised over workers; use nn.BatchNorm1d, 2d or 3d, not "
            "sharded by itself, or another kind of normalisation such as nn.GroupNorm."
        )
    changed: list[Any] = [module for module in model.modules() if type(module) in _SYNCHRONISED]
    for module in changed:
        module.__class__ = _SYNCHRONISED[type(module)]
        module.group = group
    try:
        yield model
    finally:
        for module in changed:
            module.__class__ = module.plain
            del module.group


def _can_be(module: nn.Module) -> bool:
    return type(module) in _SYNCHRONISED or isinstance(module, nn.SyncBatchNorm)
