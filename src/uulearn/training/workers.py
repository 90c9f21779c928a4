"""Several processes that train one model: each takes its share of every batch, and all take the same step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from uulearn.risk.distributed import sum_over_workers

RANK, COUNT, LOCAL = "RANK", "WORLD_SIZE", "LOCAL_RANK"
"""What torchrun tells each process it starts."""


class FirstWorkerError(Exception):
    """The first worker has failed, and tells why itself."""


@dataclass(frozen=True)
class Workers:
    """The processes that train together, and which of them this one is."""

    rank: int
    count: int

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes, reports and decides."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """The sum over all workers, with the gradient that `average_gradients` makes exact."""
        return sum_over_workers(values)

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over all workers, in one exchange for each type of number."""
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for p in parameters:
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad  # all must send the same numbers of values
                by_type.setdefault(p.dtype, []).append(p.grad)
        for gradients in by_type.values():
            together = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(together)
            together /= self.count
            start = 0
            for gradient in gradients:
                gradient.copy_(together[start : start + gradient.numel()].view_as(gradient))
                start += gradient.numel()

    def share(self, n_rows: int) -> slice:
        """The rows of a table that are this worker's to look at."""
        return slice(self.rank * n_rows // self.count, (self.rank + 1) * n_rows // self.count)

    def gather(self, values: Tensor, n_rows: int, device: torch.device) -> Tensor:
        """The values of all rows, each known to the worker in whose `share` it is; a tensor on the CPU."""
        everything = torch.zeros(n_rows, device=device)
        everything[self.share(n_rows)] = values.to(device)
        dist.all_reduce(everything)
        return everything.cpu()

    def agree(self, thing: Any) -> Any:
        """What the first worker has, whatever the others have: no two may decide differently."""
        told = [thing if self.first else None]
        dist.broadcast_object_list(told, src=0)
        return told[0]

    def by_first(self, work: Callable[[], Any]) -> Any:
        """What the first worker's ``work`` gives; where it fails, it fails there, and the others hear that it did."""
        result, error = None, None
        if self.first:
            try:
                result = work()
            except Exception as failed:
                error = failed
        result, text = self.agree((result, None if error is None else str(error)))
        if error is not None:
            raise error
        if text is not None:
            raise FirstWorkerError(text)
        return result

    def gather_objects(self, thing: Any) -> list[Any]:
        """What every worker has, in their order."""
        told: list[Any] = [None] * self.count
        dist.all_gather_object(told, thing)
        return told

    def copy_weights(self, module: nn.Module) -> None:
        """Give every worker the weights and statistics of the first."""
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0)

    def seed(self, seed: int, *more: int) -> int:
        """A seed for what each worker draws for its own rows (dropout, augmentation); the first has the run's own."""
        if self.first and not more:
            return seed
        return int(np.random.SeedSequence([seed, self.rank, *more]).generate_state(1)[0])


def started_by_torchrun(environment: Mapping[str, str] | None = None) -> bool:
    """Whether this process is one of several that torchrun, or something like it, has started.

    Examples
    --------
    >>> started_by_torchrun({"RANK": "0", "WORLD_SIZE": "2"}), started_by_torchrun({})
    (True, False)
    """
    known = os.environ if environment is None else environment
    return RANK in known and int(known.get(COUNT, "1")) > 1


def join_workers(distributed: bool | str, device: str | torch.device = "cpu") -> Workers | None:
    """The workers to train with, None for one alone.

    False is always alone. "auto" looks whether a process group with more than one process is there, or whether torchrun
    has started this process, in which case the group is made now. True insists on it.
    """
    if distributed is False:
        return None
    if not dist.is_initialized() and started_by_torchrun():
        on_cuda = torch.device(device).type == "cuda"
        if on_cuda:
            torch.cuda.set_device(int(os.environ.get(LOCAL, "0")))
        dist.init_process_group("nccl" if on_cuda else "gloo")
    if dist.is_initialized() and dist.get_world_size() > 1:
        return Workers(dist.get_rank(), dist.get_world_size())
    if distributed is True:
        raise ValueError(
            "distributed=True needs several processes; start the script with torchrun --nproc-per-node 2, or set "
            "distributed='auto' or False."
        )
    return None


def own_device(device: str) -> str:
    """The device of this process where torchrun has started several on one machine: each has a GPU of its own."""
    if device == "cuda" and started_by_torchrun():
        return f"cuda:{os.environ.get(LOCAL, '0')}"
    return device


@contextmanager
def warn_on_rank_zero(workers: Workers | None) -> Iterator[None]:
    """Warnings are given by the first worker alone."""
    if workers is None or workers.first:
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
