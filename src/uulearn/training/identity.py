"""Descriptions of settings and functions, used to check whether a checkpoint belongs to the current run."""

import functools
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uulearn.data.identity import digest

IGNORED = {"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__firstlineno__"}
IGNORED |= {"__static_attributes__"}
"""Attributes of a class that do not affect its behavior."""


def describe(value: Any) -> str:
    """Return a description of a value that is the same in every process.

    A function is described by its name, code, defaults, closure and the globals that it reads. A class is described by
    the code of its methods, and an object by its class and attributes. Installed packages are described only by name.
    """
    return _Describer().describe(value)


class _Describer:
    """Builder of one description; repeated values are described only once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}  # also prevents garbage collection, so no id is reused
        self._inside: set[int] = set()

    def describe(self, value: Any) -> str:
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if id(value) in self._inside:
            return "itself"
        if id(value) not in self._known:
            self._inside.add(id(value))
            self._known[id(value)] = value, self._describe_new(value)
            self._inside.remove(id(value))
        return self._known[id(value)][1]

    def _describe_new(self, value: Any) -> str:
        if isinstance(value, Tensor | np.ndarray):
            return self._array(value)
        if isinstance(value, staticmethod | classmethod):
            return f"{type(value).__name__} {self.describe(value.__func__)}"
        if isinstance(value, property):
            return f"property {self._all((value.fget, value.fset, value.fdel))}"
        if isinstance(value, functools.partial):
            return f"partial({self._all((value.func, value.args, value.keywords))})"
        if isinstance(value, tuple | list):
            return f"({self._all(value)})"
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key}: {self.describe(item)}' for key, item in value.items())}}}"
        if isinstance(value, MethodType):
            return f"method {self.describe(value.__func__)} of {self.describe(value.__self__)}"
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if callable(value) and not hasattr(value, "__dict__"):
            return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
        if hasattr(value, "__dict__"):
            return f"{self.describe(type(value))} {digest([self.describe(vars(value))])}"
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

    def _all(self, values: Iterable[Any]) -> str:
        return ", ".join(map(self.describe, values))

    def _array(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biufc":
            return f"ndarray {value.dtype} {digest([repr(value.tolist())])}"
        return f"{type(value).__name__} {digest([torch.as_tensor(value)])}"

    def _class(self, value: type) -> str:
        name = f"{value.__module__}.{value.__qualname__}"
        if _installed(value.__module__):
            return name
        own = {
            key: item
            for key, item in sorted(vars(value).items())
            if key not in IGNORED and not key.startswith("_abc_") and type(item).__name__ != "getset_descriptor"
        }
        return f"{name} {digest([self._all(value.__bases__), self.describe(own)])}"

    def _function(self, value: FunctionType) -> str:
        name = f"{value.__module__}.{value.__qualname__}"
        if _installed(value.__module__):
            return name
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        read = {key: value.__globals__[key] for key in sorted(set(_names(value.__code__))) if key in value.__globals__}
        more = (cells, value.__defaults__, value.__kwdefaults__, read)
        return f"{name} {digest([_code(value.__code__), self.describe(more)])}"


@functools.cache
def _installed(name: str | None) -> bool:
    """Return whether the module belongs to the standard library, to uulearn, or to an installed package."""
    top = (name or "builtins").partition(".")[0]
    if top in sys.stdlib_module_names or top == "uulearn":
        return top != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    paths = sysconfig.get_paths()
    return file is not None and any(
        Path(paths[kind]) in Path(file).resolve().parents or Path(paths[kind]) in Path(file).parents
        for kind in ("purelib", "platlib")
    )


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names used in a code object and in its inner functions."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _code(code: CodeType) -> str:
    constants = (_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} ({', '.join(constants)})"


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None
