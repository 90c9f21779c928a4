"""Several processes that train one model: each computes a part of every batch, and all apply the same update."""

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

RANK, COUNT, LOCAL = "RANK", "WORLD_SIZE", "LOCAL_RANK"
"""Environment variables that torchrun sets for each process."""


class FirstWorkerError(Exception):
    """Raised in the other workers if the first worker failed; the first worker reports the error."""


@dataclass(frozen=True)
class Workers:
    """The processes that train together, and the rank of this process."""

    rank: int
    count: int

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files, reports progress and makes decisions."""
        return self.rank == 0

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient with its mean over all workers, with one all-reduce per floating-point type."""
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for p in parameters:
            if p.requires_grad:  # even without a gradient: all workers must send the same number of values
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                by_type.setdefault(p.dtype, []).append(p.grad)
        for gradients in by_type.values():
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            parts = torch.split(flat / self.count, [gradient.numel() for gradient in gradients])
            for gradient, part in zip(gradients, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    def share(self, n_rows: int) -> slice:
        """Return the slice of the rows that this worker scores."""
        return slice(self.rank * n_rows // self.count, (self.rank + 1) * n_rows // self.count)

    def gather(self, values: Tensor, n_rows: int, device: torch.device) -> Tensor:
        """Collect the values that all workers computed, and return the values of all rows on the CPU."""
        result = torch.zeros(n_rows, device=device)
        result[self.share(n_rows)] = values.to(device)
        dist.all_reduce(result)
        return result.cpu()

    def broadcast(self, value: Any) -> Any:
        """Return the first worker's value, so that all workers make the same decision."""
        values = [value if self.first else None]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def run_on_first(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in the first worker and return the result; on failure, the others raise `FirstWorkerError`."""
        result, error = None, None
        if self.first:
            try:
                result = work()
            except Exception as failed:  # raised again below, after informing the other workers
                error = failed
        result, text = self.broadcast((result, None if error is None else str(error)))
        if error is not None:
            raise error
        if text is not None:
            raise FirstWorkerError(text)
        return result

    def gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all workers, in the order of their ranks."""
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def copy_weights(self, module: nn.Module) -> None:
        """Copy the weights and statistics of the first worker to all workers."""
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.detach(), src=0)

    def seed(self, seed: int, *more: int) -> int:
        """Return this worker's seed for dropout and augmentation; the first worker uses the seed of the run."""
        if self.first and not more:
            return seed
        return int(np.random.SeedSequence([seed, self.rank, *more]).generate_state(1)[0])


def started_by_torchrun(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether torchrun or a similar launcher started this process as one of several."""
    variables = os.environ if environment is None else environment
    return RANK in variables and int(variables.get(COUNT, "1")) > 1


def join_workers(distributed: bool | str, device: str | torch.device = "cpu") -> Workers | None:
    """Return the workers to train with, or None for a single process; with torchrun, join the process group first.

    "auto" uses the process group if there are several processes; True raises an error if there is only one process.
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


def local_device(device: str) -> str:
    """Return the device of this process; with torchrun, each process on a machine has its own GPU."""
    if device == "cuda" and started_by_torchrun():
        return f"cuda:{os.environ.get(LOCAL, '0')}"
    return device


@contextmanager
def warn_on_rank_zero(workers: Workers | None) -> Iterator[None]:
    """Within this context, show warnings only in the first worker."""
    with warnings.catch_warnings():
        if workers is not None and not workers.first:
            warnings.simplefilter("ignore")
        yield
