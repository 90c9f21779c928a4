"""What settings and rows are known by, in any process alike: whether work that was stored is this work."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor


def describe(value: Any, inside: tuple[int, ...] = ()) -> str:
    """Values as they print, in any process alike.

    Functions are known by name, code, defaults and what they close over, objects by their class and attributes, so that
    two lambdas are two, and so are two calls of one factory.
    """
    if id(value) in inside:
        return "itself"
    inner = functools.partial(describe, inside=(*inside, id(value)))
    if isinstance(value, Tensor | np.ndarray):
        return f"{type(value).__name__} {digest([torch.as_tensor(value)])}"
    if isinstance(value, functools.partial):
        return f"partial({inner(value.func)}, {inner(value.args)}, {inner(value.keywords)})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(inner, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {inner(item)}' for key, item in value.items())}}}"
    code = getattr(value, "__code__", None)
    if code is not None:
        cells = [_contents(cell) for cell in getattr(value, "__closure__", None) or ()]
        more = (cells, getattr(value, "__defaults__", None), getattr(value, "__kwdefaults__", None))
        return f"{value.__module__}.{value.__qualname__} {digest([_code(code), inner(more)])}"
    if isinstance(value, type) or (callable(value) and not hasattr(value, "__dict__")):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if hasattr(value, "__dict__"):
        kind = type(value)
        return f"{kind.__module__}.{kind.__qualname__} {digest([inner(vars(value))])}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _code(code: CodeType) -> str:
    constants = (_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} ({', '.join(constants)})"


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def digest(parts: Iterable[Tensor | str]) -> str:
    """A short name of texts and tensors, equal where all of them are."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
        else:
            found.update(f"{tuple(part.shape)}{part.dtype}".encode())
            found.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
