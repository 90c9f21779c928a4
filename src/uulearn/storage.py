"""Atomic files, and nested plain data with tensors in one safetensors file. Nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


UMASK = _read_umask()  # once: it can only be read by setting it, which other threads must not meet


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, flush it to disk, and move it into place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp makes private files; give the result the mode that a plain open() would have given it.
        temporary.chmod(0o666 & ~UMASK)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path, name: str, older_than: float = 0.0) -> None:
    """Delete temporary files that a killed process left where it wrote files whose names match the pattern.

    Where other processes may be writing, those that were touched in the last ``older_than`` seconds stay.
    """
    for leftover in folder.glob(f".{name}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # whoever wrote it has moved it
            if not older_than or time.time() - leftover.stat().st_mtime > older_than:
                leftover.unlink()


@contextlib.contextmanager
def one_at_a_time(path: Path, busy: str, seconds: float = math.inf) -> Iterator[None]:
    """Let one process at a time in: by ``flock``, which ends with its process, or else by a file that must be new.

    The others wait, but not longer than so many seconds: then a TimeoutError says that it is ``busy``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    while (handle := _try_lock(path)) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{busy}; if there is none, delete {path}.")
        time.sleep(0.02)
    try:
        yield
    finally:
        if fcntl is None:
            os.close(handle)
            path.unlink()
        else:
            path.unlink(missing_ok=True)  # while still locked: who waits for this file finds it gone, and tries again
            os.close(handle)


def _try_lock(path: Path) -> int | None:
    """An open handle that holds the lock, or None while another process has it."""
    flags = os.O_CREAT | os.O_RDWR | (os.O_EXCL if fcntl is None else 0)
    try:
        handle = os.open(path, flags, 0o666)
    except FileExistsError:
        return None
    if fcntl is None:
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_ino == path.stat().st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def sync_folder(folder: Path) -> None:
    """Make a rename durable; not every system can open a folder."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def save_tree(path: Path, tree: Any) -> None:
    """Write nested dicts, lists, tuples, numbers, strings and tensors to one file, atomically and exactly.

    Raises OSError where it cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(tree, tensors), allow_nan=False)

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata={"tree": text})
        except SafetensorError as error:  # what the system refused, in words only
            found = re.search(r"os error (\d+)", str(error))
            raise OSError(*((int(found[1]), os.strerror(int(found[1]))) if found else (str(error),))) from error

    write_atomically(path, write)


def load_tree(path: Path) -> Any:
    """The inverse of `save_tree`; tensors arrive on the CPU. Raises ValueError when the file is damaged."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            text = (file.metadata() or {}).get("tree", "")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _decode(json.loads(text), tensors)
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise ValueError(f"{path} is damaged or was not written by uulearn ({error}).") from error


def _encode(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        name = str(len(tensors))
        tensors[name] = node.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(node, dict):
        return {"dict": [[_encode(key, tensors), _encode(value, tensors)] for key, value in node.items()]}
    if isinstance(node, list | tuple):
        return {type(node).__name__: [_encode(value, tensors) for value in node]}
    if isinstance(node, float):
        return {"float": node.hex()}  # exact, and covers infinities and NaN
    if node is None or isinstance(node, bool | int | str):
        return node
    raise TypeError(f"{type(node).__name__} cannot be stored without pickle")


def _decode(node: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    ((kind, value),) = node.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {_decode(key, tensors): _decode(item, tensors) for key, item in value}
    if kind == "float":
        return float.fromhex(value)
    items = [_decode(item, tensors) for item in value]
    return tuple(items) if kind == "tuple" else items
