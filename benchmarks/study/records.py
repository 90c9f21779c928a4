"""Store finished fits in a file of JSON lines, identified by a hash of their configuration.

A line is either a fit or, once for each kind of environment, the versions and the machine that fits refer to by
``environment``. Lines are only appended. An incomplete line, written by a killed process, is ignored, so that its fit
is repeated.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from uulearn.reproduction.store import key

FORMAT = 1

Record = dict[str, Any]


class Stored(NamedTuple):
    """Contents of a file of records."""

    fits: dict[str, Record]
    """Fits by the key of their configuration; the first one if there are several."""
    environments: dict[str, Record]


def read(paths: Iterable[Path]) -> Stored:
    """Read files of records, which may be compressed (.gz); a missing file counts as empty."""
    stored = Stored({}, {})
    for path in paths:
        for line in _lines(path):
            try:
                entry: Record = json.loads(line)
            except json.JSONDecodeError:
                continue  # incomplete line of a killed process
            if entry["format"] > FORMAT:
                raise ValueError(f"{path} has format {entry['format']}, but this code reads up to {FORMAT}; update it.")
            if "configuration" in entry:
                stored.fits.setdefault(key(entry["configuration"]), entry)
            else:
                stored.environments.setdefault(entry["environment"], entry)
    return stored


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()


class Writer:
    """Writer that appends fits to a file; each fit is on disk before `add` returns."""

    def __init__(self, path: Path, versions: Record, machine: Record) -> None:
        if path.suffix == ".gz":
            raise ValueError(f"{path} is compressed, so lines cannot be appended to it; unpack it first (gunzip).")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._environment = {"versions": versions, "machine": machine}
        self._name = key(self._environment)
        self._known = self._name in read([path]).environments

    def add(self, record: Record) -> None:
        """Store one finished fit, a dict with a ``configuration``."""
        entries = [{**record, "environment": self._name}]
        if not self._known:
            entries.insert(0, {"environment": self._name, **self._environment})
        with self._path.open("a+b") as file:
            if file.tell() > 0 and not self._ends_in_newline():
                file.write(b"\n")
            file.write("".join(map(_line, entries)).encode())
            file.flush()
            os.fsync(file.fileno())
        self._known = True

    def _ends_in_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _line(entry: Record) -> str:
    return json.dumps({"format": FORMAT, **entry}, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
