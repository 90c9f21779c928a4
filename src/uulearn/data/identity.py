"""Hash of rows and settings, used to check that a stored state belongs to the current run."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def digest(parts: Iterable[Tensor | str]) -> str:
    """Return a short hash of strings and tensors."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        else:
            found.update(f"{tuple(part.shape)}{part.dtype}".encode())
            found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
