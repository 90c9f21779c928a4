"""Gradient accumulation that equals the whole batch: the correction is differentiated at the brackets of all parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uulearn.risk.criterion import UURisk
from uulearn.risk.distributed import sum_over_workers, workers
from uulearn.risk.functional import UURiskParts, flat_scores
from uulearn.risk.sums import batch_sums, risk_of_sums

MicroBatch = tuple[Any, Tensor]


def accumulate(
    criterion: UURisk,
    model: nn.Module,
    micro_batches: Iterable[MicroBatch],
    *,
    backward: Callable[[Tensor], Any] | None = None,
) -> UURiskParts:
    """Add the gradient of the risk of all micro-batches together to the model's parameters; return that risk.

    The same as ``criterion(model(x), sets).backward()`` on the whole batch, with the memory of one micro-batch: a first
    pass without gradients finds the brackets of the whole batch, a second one differentiates each micro-batch with the
    correction's derivatives there. Dropout draws the same in both passes, and statistics of batch normalisation are
    updated in the second alone; but they are those of a micro-batch, as in any accumulation of gradients.

    In a process group the brackets are those of all micro-batches of all workers, each of which has at least one.
    Gradients of a DDP module are exchanged with the last, so that workers may have different numbers of them. Where
    forward passes exchange something, too (FSDP, batch normalisation over workers), the numbers must be equal; FSDP
    exchanges gradients with every micro-batch, which keeps them sharded.

    Parameters
    ----------
    criterion : UURisk
        The risk.
    model : nn.Module
        From the first item of a micro-batch to scores of shape (n,) or (n, 1).
    micro_batches : iterable of (x, sets)
        The parts of the batch, of any size and composition.
    backward : callable, optional
        Called with the scalar to be differentiated, for example ``accelerator.backward`` or
        ``lambda loss: scaler.scale(loss).backward()``.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> model, criterion = nn.Linear(3, 1), UURisk((0.8, 0.2), 0.5, method="abs")
    >>> x, sets = torch.randn(8, 3), torch.tensor([0, 1] * 4)
    >>> parts = accumulate(criterion, model, [(x[:5], sets[:5]), (x[5:], sets[5:])])
    >>> in_parts = model.weight.grad.clone()
    >>> model.zero_grad()
    >>> criterion(model(x), sets).backward()
    >>> torch.allclose(in_parts, model.weight.grad, atol=1e-6)
    True
    """
    batches = list(micro_batches)
    if not batches:
        raise ValueError("there is no micro-batch to accumulate; pass at least one pair (x, sets).")
    group = criterion.process_group
    together = workers(group) if criterion.distributed else 1
    sharded = workers() > 1 and any(_is_sharded(module) for module in model.modules())
    if together > 1:
        _check_numbers(batches, model, group)
    states: list[list[Tensor]] = []
    with torch.no_grad(), _unchanged_buffers(model):
        sums = []
        for x, sets in batches:
            states.append(_random_states())
            scores = flat_scores(model(x))
            sums.append(batch_sums(scores, sets, criterion.loss))
    total = torch.stack(sums).sum(0)
    if together > 1:
        total = sum_over_workers(total, group)
    total.requires_grad_()
    with torch.enable_grad():
        parts = risk_of_sums(total, criterion.coefficients, criterion.method)
        (direction,) = torch.autograd.grad(parts.objective, total)
    wait = None if sharded else getattr(model, "no_sync", None)  # FSDP would hold whole gradients while it waits
    for number, ((x, sets), state) in enumerate(zip(batches, states, strict=True), start=1):
        _set_random_states(state)
        torch.clear_autocast_cache()  # weights cast in another pass have no gradient (torch 2.6) or lose it (FSDP2)
        with wait() if wait is not None and number < len(batches) else contextlib.nullcontext():
            own = together * (direction * batch_sums(model(x), sets, criterion.loss)).sum()
            own.backward() if backward is None else backward(own)  # type: ignore[no-untyped-call]
    return UURiskParts(*(part.detach().to(scores.dtype) for part in parts))


def _check_numbers(batches: list[MicroBatch], model: nn.Module, group: Any) -> None:
    """Refuse, in every worker alike, numbers of micro-batches with which some would wait for the others forever."""
    talking = next((module for module in model.modules() if _exchanges_forwards(module)), None)
    if talking is None:
        return
    extremes = torch.tensor([len(batches), -len(batches)], device=batches[0][1].device)
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=group)
    most, least = extremes[0].item(), -extremes[1].item()
    if least < most:
        raise ValueError(
            f"workers have from {least} to {most} micro-batches, but {type(talking).__name__} exchanges something in "
            "every forward pass; give each worker the same number."
        )


def _exchanges_forwards(module: nn.Module) -> bool:
    joined = isinstance(module, _BatchNorm) and (hasattr(module, "process_group") or hasattr(module, "group"))
    return joined or _is_sharded(module)


def _is_sharded(module: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return isinstance(module, FSDPModule | FullyShardedDataParallel)


@contextlib.contextmanager
def _unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Put running statistics back to what they were."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _random_states() -> list[Tensor]:
    cuda = [torch.cuda.get_rng_state(device) for device in range(torch.cuda.device_count())]
    return [torch.get_rng_state(), *cuda]


def _set_random_states(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for device, state in enumerate(states[1:]):
        torch.cuda.set_rng_state(state, device)
