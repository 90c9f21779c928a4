"""Gradient accumulation over micro-batches that gives exactly the gradient of the whole batch."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uulearn.risk.criterion import UURisk
from uulearn.risk.distributed import sum_over_workers, world_size
from uulearn.risk.functional import UURiskParts, flat_scores, flat_sets, read_weights, risk_from_terms, risk_terms
from uulearn.risk.multiple_sets import count_rows


def accumulate(
    criterion: UURisk,
    model: nn.Module,
    micro_batches: Iterable[tuple[Any, Tensor]],
    *,
    backward: Callable[[Tensor], Any] | None = None,
) -> UURiskParts:
    """Compute the risk of all micro-batches together and add its gradient to the model's parameters.

    The result is the same as that of ``criterion(model(x), sets).backward()`` on the whole batch, but needs memory for
    only one micro-batch. The first pass computes the risk terms of the whole batch without gradients. The second pass
    computes the gradient of each micro-batch. Dropout uses the same random numbers in both passes. Batch normalization
    updates its running statistics in the second pass only. In a process group, the risk terms include the micro-batches
    of all workers. Each worker needs at least one micro-batch. If forward passes communicate (FSDP, synchronized batch
    normalization), all workers need the same number of micro-batches.

    Parameters
    ----------
    criterion : UURisk
    model : nn.Module
        Maps the first item of a micro-batch to scores of shape (n,) or (n, 1).
    micro_batches : iterable of (x, sets)
        Parts of the batch; each may have any number of rows from each set.
    backward : callable, optional
        Function that is called with a scalar loss, for example ``accelerator.backward`` or ``lambda loss:
        scaler.scale(loss).backward()``.

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
        raise ValueError("micro_batches is empty; pass at least one pair (x, sets).")
    group = criterion.process_group
    n_workers = world_size(group) if criterion.distributed else 1
    sharded = world_size() > 1 and any(_is_sharded(module) for module in model.modules())
    if n_workers > 1:
        _check_equal_counts(batches, model, group)
    about = criterion.set_priors, criterion.target_prior, criterion.method
    n_sets = len(criterion.set_priors)
    counts = torch.stack([count_rows(flat_sets(sets, len(sets), n_sets)[0], n_sets) for _, sets in batches]).sum(0)
    counts = sum_over_workers(counts, group) if n_workers > 1 else counts

    def terms(x: Any, sets: Tensor) -> Tensor:
        """Return the contributions of a micro-batch to the risk terms of the whole batch."""
        scores = flat_scores(model(x))
        weights = read_weights(sets, scores, *about, counts)
        return torch.stack(risk_terms(scores, weights, criterion.loss, criterion.method))

    states, found = [], []
    with torch.no_grad(), _restored_buffers(model):
        for x, sets in batches:
            states.append(_random_states())
            found.append(terms(x, sets))
    total = torch.stack(found).double().sum(0)
    total = (sum_over_workers(total, group) if n_workers > 1 else total).requires_grad_()
    with torch.enable_grad():
        parts = risk_from_terms(criterion.method, *total.unbind())
        (derivatives,) = torch.autograd.grad(parts.objective, total)
    no_sync = None if sharded else getattr(model, "no_sync", None)  # FSDP would hold unsharded gradients
    for number, ((x, sets), state) in enumerate(zip(batches, states, strict=True), start=1):
        _set_random_states(state)
        torch.clear_autocast_cache()  # weights cast in the first pass have no gradient
        with no_sync() if no_sync is not None and number < len(batches) else contextlib.nullcontext():
            loss = n_workers * (derivatives * terms(x, sets)).sum()
            loss.backward() if backward is None else backward(loss)  # type: ignore[no-untyped-call]
    return UURiskParts(*(part.detach().to(found[0].dtype) for part in parts))


def _check_equal_counts(batches: list[tuple[Any, Tensor]], model: nn.Module, group: Any) -> None:
    """Raise an error on every worker if unequal numbers of micro-batches would deadlock the forward passes."""
    communicating = next((m for m in model.modules() if _is_synchronized(m) or _is_sharded(m)), None)
    if communicating is None:
        return
    extremes = torch.tensor([len(batches), -len(batches)], device=batches[0][1].device)
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=group)
    most, least = extremes[0].item(), -extremes[1].item()
    if least < most:
        raise ValueError(
            f"workers have between {least} and {most} micro-batches, but {type(communicating).__name__} communicates "
            "in every forward pass; give each worker the same number of micro-batches."
        )


def _is_synchronized(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and (hasattr(module, "process_group") or hasattr(module, "group"))


def _is_sharded(module: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return isinstance(module, FSDPModule | FullyShardedDataParallel)


@contextlib.contextmanager
def _restored_buffers(model: nn.Module) -> Iterator[None]:
    """Restore the buffers of the model, such as running statistics, on exit."""
    before = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _random_states() -> list[Tensor]:
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def _set_random_states(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    torch.cuda.set_rng_state_all(states[1:])
