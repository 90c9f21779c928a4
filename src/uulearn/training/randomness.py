"""Seed random numbers for a run without changing the state of the caller's generators."""

import contextlib
from collections.abc import Iterator

import torch

CPU = torch.device("cpu")


@contextlib.contextmanager
def isolated_rng(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed torch's CPU and device generators within a context, and restore their state at the end."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        seed_generators(seed, device)
        yield


def seed_generators(seed: int, device: torch.device = CPU) -> None:
    """Seed the generators of the CPU and of this device only; `torch.manual_seed` seeds all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
