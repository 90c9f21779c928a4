"""Random numbers of a run's own: seeded for it, and the caller's generators left as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

CPU = torch.device("cpu")


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Within it, whatever torch draws on the CPU and on the device follows from the seed.

    Examples
    --------
    >>> _ = torch.manual_seed(5)
    >>> expected = torch.rand(1)
    >>> _ = torch.manual_seed(5)
    >>> with own_randomness(7):
    ...     drawn = torch.rand(1)
    >>> torch.equal(torch.rand(1), expected)
    True
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_generators(seed, device)
        yield


def seed_generators(seed: int, device: torch.device = CPU) -> None:
    """Seed the generators of the CPU and of this device; `torch.manual_seed` would seed every other device too."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
