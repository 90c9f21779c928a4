"""Write files atomically, lock them, and store nested data with tensors in one safetensors file without pickle."""

import contextlib
import dataclasses
import glob
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

STALE_SECONDS = 3600.0  # age at which a temporary folder is deleted: the process that wrote it must have been killed
LARGEST_NUMBER = 1e100  # a stored number beyond this is a sign of tampering


def _read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


UMASK = _read_umask()  # read once at import, because reading it requires setting it, which is not thread-safe


def write_atomically(path: Path, write: Callable[[Path], object], *, alone: bool = False) -> None:
    """Call ``write`` with a temporary file next to ``path``, flush it to disk, and move it into place in one step.

    If ``alone`` is true (no other process writes the file), temporary files of killed processes are deleted first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if alone:
        remove_temporary_files(path.parent, glob.escape(path.name))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        # mkstemp creates private files; use the mode that open() would have used.
        temporary.chmod(0o666 & ~UMASK)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary_files(folder: Path, name: str, older_than: float = 0.0) -> None:
    """Delete temporary files that match the pattern ``name`` and are older than ``older_than`` seconds."""
    for path in folder.glob(f".{name}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # the file was moved into place in the meantime
            if not older_than or time.time() - path.stat().st_mtime > older_than:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def write_together(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files move to ``folder`` after the block: all of them, or none after an error.

    If the process is killed while they move, the next call of `finish_moves` moves the rest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".together.", suffix=".tmp", dir=folder))
    try:
        yield temporary
        temporary.rename(temporary.with_suffix(".complete"))
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(folder)
    finish_moves(folder)


def finish_moves(folder: Path) -> None:
    """Move the files that a killed process wrote completely with `write_together`, and delete incomplete ones."""
    remove_temporary_files(folder, "together", older_than=STALE_SECONDS)
    for complete in folder.glob(".together.*.complete"):
        with contextlib.suppress(FileNotFoundError):  # another process moves the same files
            for path in list(complete.iterdir()):
                path.replace(folder / path.name)
            sync_folder(folder)
            complete.rmdir()


@contextlib.contextmanager
def file_lock(path: Path, busy: str, seconds: float = -1) -> Iterator[None]:
    """Hold an exclusive lock; after ``seconds`` (−1: no limit), raise a TimeoutError that begins with ``busy``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds, poll_interval=0.02)
    except Timeout:
        raise TimeoutError(f"{busy}; if no such process is running, delete {path}.") from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows deletes the file when the lock is released
            path.unlink()  # delete while locked: a waiting process notices this and tries again
        lock.release()


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, if the system supports it, so that renamed files survive a crash."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def save_tree(path: Path, tree: Any, *, alone: bool = False) -> None:
    """Write nested dicts, lists, tuples, numbers, strings and tensors to one file, atomically and without rounding."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(tree, tensors), allow_nan=False)

    def write(temporary: Path) -> None:
        try:
            save_file(tensors, temporary, metadata={"tree": text, "sha256": _tree_digest(text, tensors)})
        except SafetensorError as error:  # only the message contains the error number
            found = re.search(r"os error (\d+)", str(error))
            raise OSError(*((int(found[1]), os.strerror(int(found[1]))) if found else (str(error),))) from error

    write_atomically(path, write, alone=alone)


def load_tree(path: Path) -> Any:
    """Read a file written by `save_tree`, with tensors on the CPU.

    Raise a ValueError if the file is damaged, or if an older version wrote it, without a checksum.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = file.metadata() or {}
            text, tensors = about.get("tree", ""), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if "tree" in about and "sha256" not in about:
            raise ValueError(
                f"{path} was written by another version of uulearn (it has no checksum); finish the run with that "
                "version, or start again."
            )
        if about.get("sha256") != _tree_digest(text, tensors):
            raise SafetensorError("its checksum does not match")
        return _decode(json.loads(text), tensors)
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise ValueError(f"{path} is damaged or was not written by uulearn ({error}).") from error


def _tree_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _encode(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, float):  # JSON has no infinities and no NaN; all other floats are stored without rounding
        return node if math.isfinite(node) else {"float": node.hex()}
    if node is None or isinstance(node, str | int):
        return node
    if isinstance(node, Tensor):
        name = str(len(tensors))
        tensors[name] = node.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(node, dict):
        return {"dict": [[_encode(key, tensors), _encode(value, tensors)] for key, value in node.items()]}
    if isinstance(node, list | tuple):
        return {type(node).__name__: [_encode(value, tensors) for value in node]}
    raise TypeError(
        f"{type(node).__name__} cannot be stored without pickle; convert it to a tensor, number, string, list or dict"
    )


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


def read_value(kind: Any, value: Any, where: str) -> Any:
    """Convert ``value`` from JSON or TOML to the annotated type ``kind``; raise ValueError if it does not match.

    >>> read_value(tuple[float, ...], [1, 2.5], "scores")
    (1.0, 2.5)
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):  # only X | None occurs
        return None if value is None else read_value(arguments[0], value, where)
    if origin is tuple:
        size = "" if arguments[-1] is Ellipsis else f" of {len(arguments)}"
        kinds = arguments if size or not isinstance(value, list) else arguments[:1] * len(value)
        _expect(isinstance(value, list) and len(value) == len(kinds), where, f"a list{size}", value)
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(read_value(kind, item, f"{where}[{place}]") for place, (kind, item) in pairs)
    if kind is float:
        if value is None:  # NaN and infinities are stored as null
            return math.nan
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        _expect(numeric and abs(value) < LARGEST_NUMBER, where, "a number", value)
        return float(value)
    names = {int: "a whole number", str: "a string", bool: "true or false"}
    if kind in names:
        _expect(type(value) is kind, where, names[kind], value)
        return value
    _expect(isinstance(value, dict), where, "an object", value)
    if origin is Mapping:
        return {name: read_value(arguments[1], item, f"{where}.{name}") for name, item in value.items()}
    annotations, fields = get_type_hints(kind), dataclasses.fields(kind)
    if unknown := sorted(value.keys() - annotations.keys()):
        raise ValueError(
            f"{where} must be an object of this version of uulearn, got the unknown entry {', '.join(unknown)}"
        )
    for entry in fields:
        required = entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING
        _expect(not required or entry.name in value, where, f"an object with the entry {entry.name!r}", value)
    return kind(**{name: read_value(annotations[name], item, f"{where}.{name}") for name, item in value.items()})


def _expect(condition: bool, where: str, expected: str, value: Any) -> None:
    if not condition:
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "…"
        raise ValueError(f"{where} must be {expected}, got {shown}")
