"""Batch normalization with statistics of the whole batch, computed over all workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from uulearn.risk.distributed import world_size

EPS = 1e-5
"""Constant added to a variance and later subtracted, to keep the inverse standard deviation finite."""


class _Normalize(torch.autograd.Function):
    """Normalize with the mean and variance over all workers; forward and backward passes each communicate once.

    Each worker sends the number of its values (possibly zero) and their mean and variance per channel; the combined
    variance is exact even if the mean is far from zero. Half-precision inputs use float32 statistics.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        inner = [dim for dim in range(x.ndim) if dim != 1]
        own, channels = x.numel() // x.shape[1], x.shape[1]
        local = x.new_zeros(1 + 2 * channels, dtype=torch.float64)
        if own:  # without values, mean and variance do not exist
            local = torch.cat([local[:1] + own, *_mean_and_variance(x, wide, inner)])
        table = local.new_empty(world_size(group), len(local))
        dist.all_gather(list(table.unbind()), local, group=group)
        counts, (means, variances) = table[:, :1], table[:, 1:].chunk(2, dim=1)
        n = counts.sum()
        if own < 2 and n < 2:  # a worker with two values skips the check, because reading n would stall a GPU
            raise ValueError(
                f"batch normalization requires at least 2 values per channel for training, got {n:.0f} from all "
                "workers together; use larger batches, or call model.eval() first."
            )
        mean = (counts / n * means).sum(0)
        variance = (counts / n * (variances + (means - mean).square())).sum(0)
        scale = torch.rsqrt(variance + eps).to(wide)
        mean, variance = mean.to(wide), variance.to(wide)
        ctx.save_for_backward(x, weight, mean, variance, scale, n)
        ctx.eps, ctx.group, ctx.inner, ctx.shape = eps, group, inner, [1, -1, *([1] * (x.ndim - 2))]
        # The kernel accepts half-precision rows with float32 statistics only if weight and bias are float32 too.
        weight, bias = (None if parameter is None else parameter.to(wide) for parameter in (weight, bias))
        out = F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
        ctx.mark_non_differentiable(mean, variance, n)
        return out, mean, variance, n

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance, scale, n = ctx.saved_tensors
        d_bias, d_weight = _parameter_gradients(gradient, x, mean, variance, scale, ctx)
        total = torch.cat([d_bias, d_weight]).to(torch.float64, copy=True)  # the local sums are returned below
        dist.all_reduce(total, group=ctx.group)
        d_mean, d_scale = (total / n).to(mean.dtype).chunk(2)
        # Compute in place, because allocating tensors of this size takes longer than filling them.
        d_x = (x - mean.view(ctx.shape)).mul_((-scale * d_scale).view(ctx.shape)).add_(gradient)
        d_x.sub_(d_mean.view(ctx.shape))
        d_x.mul_((scale if weight is None else scale * weight.to(scale.dtype)).view(ctx.shape))
        _, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        return d_x.to(x.dtype), d_weight if needs_weight else None, d_bias if needs_bias else None, None, None


def _mean_and_variance(x: Tensor, wide: torch.dtype, inner: list[int]) -> tuple[Tensor, Tensor]:
    """Return the mean and variance per channel; on a CPU, use a kernel that is ten times faster than `var_mean`."""
    if x.device.type != "cpu":
        return _portable_mean_and_variance(x, wide, inner)
    weight, bias = x.new_ones(x.shape[1], dtype=wide), x.new_zeros(x.shape[1], dtype=wide)
    _, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, EPS)
    return mean, (inverse.double().pow(-2) - EPS).clamp_min(0)


def _portable_mean_and_variance(x: Tensor, wide: torch.dtype, inner: list[int]) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x.to(wide), inner, correction=0)
    return mean, variance


def _parameter_gradients(
    gradient: Tensor, x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, ctx: Any
) -> tuple[Tensor, Tensor]:
    """Return per-channel sums of the gradient and of the gradient times the normalized values."""
    if x.device.type != "cpu" or not len(x):
        return _portable_parameter_gradients(gradient, x, mean, scale, ctx)
    statistics = torch.ones_like(mean), mean, variance, None, None
    _, d_weight, d_bias = torch.ops.aten.native_batch_norm_backward(
        gradient.to(x.dtype), x, *statistics, False, ctx.eps, [False, True, True]
    )
    return d_bias, d_weight


def _portable_parameter_gradients(
    gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, ctx: Any
) -> tuple[Tensor, Tensor]:
    normalized = (x.to(mean.dtype) - mean.view(ctx.shape)).mul_(scale.view(ctx.shape))
    wide = gradient.to(mean.dtype)
    return wide.sum(ctx.inner), (wide * normalized).sum(ctx.inner)


class _Synchronized(_BatchNorm):
    """Mixin that computes the mean and variance over the rows of all workers; `synchronized` applies it."""

    plain: type[_BatchNorm]
    group: Any

    def forward(self: Any, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        if not self.training or world_size(self.group) == 1:
            return super().forward(x)
        out: Tensor
        out, mean, variance, n = _Normalize.apply(x, self.weight, self.bias, self.eps, self.group)  # type: ignore[no-untyped-call]
        if self.track_running_stats:
            with torch.no_grad():
                self.num_batches_tracked += 1
                momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                for running, batch in ((self.running_mean, mean), (self.running_var, variance * n / (n - 1))):
                    running.lerp_(batch.to(running.dtype), momentum)
        return out

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        """Copy the module as the plain class, because a synchronized copy in a single process would wait forever."""
        state = {name: value for name, value in self.__dict__.items() if name != "group"}
        return self.plain, (self.num_features,), state


_SYNCHRONIZED: dict[type[nn.Module], type[nn.Module]] = {
    kind: type(f"Synchronized{kind.__name__}", (_Synchronized, kind), {"plain": kind})
    for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
}


@contextmanager
def synchronized(model: nn.Module, group: Any = None) -> Iterator[nn.Module]:
    """Context manager in which batch normalization uses the statistics of all workers during training.

    If a batch is split across workers, the result is the same as with one worker, even if some workers have no rows.
    All workers must call the model the same number of times. Unlike torch's ``SyncBatchNorm``, this function supports
    all devices. A copy made by ``copy.deepcopy`` or ``torch.save`` has plain batch normalization.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    >>> with synchronized(model):
    ...     type(model[1]).__name__
    'SynchronizedBatchNorm1d'
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm | nn.LazyBatchNorm1d)]
    unsupported = [m for m in norms if type(m) not in _SYNCHRONIZED and not isinstance(m, nn.SyncBatchNorm)]
    if unsupported and world_size(group) > 1:
        raise ValueError(
            f"{type(unsupported[0]).__name__} cannot be synchronized over workers; use nn.BatchNorm1d, 2d or 3d "
            "without separate sharding, or another normalization such as nn.GroupNorm."
        )
    changed: list[Any] = [module for module in model.modules() if type(module) in _SYNCHRONIZED]
    for module in changed:
        module.__class__ = _SYNCHRONIZED[type(module)]
        module.group = group
    try:
        yield model
    finally:
        for module in changed:
            module.__class__ = module.plain
            del module.group
