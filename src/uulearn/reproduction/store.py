"""Finished training runs on disk, each under a name made from its configuration.

A folder holds ``runs/<key>.json``, one file for each new run, and ``packed/<name>.jsonl.gz``, archives into which
`RunStore.pack` gathers them. Any number of processes may add, read and pack at the same time:

- a record appears under its final name complete or not at all, and is never rewritten;
- a loose record is deleted only after the archive that holds it is safely on disk;
- readers look at the loose records first and at the archives after, so a record that moves meanwhile is still met;
- where a record lies in both, the archive's counts, which came first.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from uulearn.storage import file_lock, write_atomically

Configuration = Mapping[str, Any]
Record = dict[str, Any]

FORMAT = 1
KEY_LENGTH = 20
DIGITS = 6  # of a curve's values: far below the noise of a run, and a third of the bytes
OLD_SECONDS = 3600.0  # a temporary file of this age belongs to a writer that is no more
LOCK_SECONDS = 120.0


def normalised(value: Any) -> Any:
    """Plain JSON data in which equal settings look equal: 1.0 is 1, a tuple is a list, a NumPy number is a number.

    Examples
    --------
    >>> normalised({"epochs": 200.0, "set_priors": (0.8, 0.2), "slope": None})
    {'epochs': 200, 'set_priors': [0.8, 0.2], 'slope': None}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"a configuration holds only finite numbers, got {number}.")
        return int(number) if number.is_integer() else number
    if isinstance(value, Mapping):
        return {str(name): normalised(item) for name, item in value.items()}
    if isinstance(value, Iterable):
        return [normalised(item) for item in value]
    raise ValueError(f"a configuration holds numbers, texts, lists and None, got {type(value).__name__}.")


def key(configuration: Configuration) -> str:
    """The name of a configuration: a digest that does not depend on the order of its entries.

    Examples
    --------
    >>> key({"lr": 5e-3, "epochs": 200}) == key({"epochs": 200.0, "lr": 0.005})
    True
    """
    text = json.dumps(normalised(configuration), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


class RunStore:
    """The finished runs of a folder, which is made by the first `add`.

    Records are read once and shared afterwards: treat them as read-only.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = RunStore(folder.name)
    >>> configuration = {"dataset": "mnist", "model": "mlp", "seed": 0}
    >>> store.add({"configuration": configuration, "curves": {"test_accuracy": [0.5, 0.9]}})
    True
    >>> configuration in store, store.missing([configuration, {**configuration, "seed": 1}])
    (True, [{'dataset': 'mnist', 'model': 'mlp', 'seed': 1}])
    >>> [path.name for path in store.pack("table3")]
    ['table3-mnist-mlp.jsonl.gz']
    >>> [record["curves"]["test_accuracy"] for record in store.records(dataset="mnist")]
    [[0.5, 0.9]]
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._cache: dict[Path, tuple[tuple[int, int, int], dict[str, Record]]] = {}
        self._cleaned = False

    def add(self, record: Record) -> bool:
        """Store one finished run and return True, or False when its configuration has a record already.

        Curves are kept to six significant digits; a value in them that is not finite comes back as NaN.
        """
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[Record]) -> list[bool]:
        """Store runs that were finished together, and tell for each whether it is new.

        All are on disk before the first appears under its name: a process that is killed leaves all or, but for an
        instant, none.
        """
        if not self._cleaned:
            self._remove_leftovers()
            self._cleaned = True
        waiting: list[tuple[Path, Path] | None] = []
        try:
            for data in map(_storable, records):
                waiting.append(None if data["configuration"] in self else self._write_privately(data))
            return [pair is not None and _publish(*pair) for pair in waiting]
        finally:
            for pair in waiting:
                if pair is not None:
                    pair[0].unlink(missing_ok=True)

    def _write_privately(self, data: Record) -> tuple[Path, Path]:
        path, text = self._loose(key(data["configuration"])), _line(data)
        private = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.tmp")
        write_atomically(private, lambda temporary: temporary.write_bytes(text))
        return private, path

    def __contains__(self, configuration: object) -> bool:
        if not isinstance(configuration, Mapping):
            return False
        name = key(configuration)
        return self._loose(name).exists() or any(name in records for _, records in self._archives())

    def get(self, configuration: Configuration) -> Record | None:
        """The record of a configuration, or None."""
        name = key(configuration)
        loose = self._read(self._loose(name))
        for _, records in self._archives():
            if name in records:
                return records[name]
        return loose.get(name)

    def missing(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Those configurations that have no record yet, in order and each once."""
        seen = {path.stem for path in self._loose_files()}
        for _, records in self._archives():
            seen.update(records)
        left: dict[str, Configuration] = {}
        for configuration in configurations:
            left.setdefault(key(configuration), configuration)
        return [configuration for name, configuration in left.items() if name not in seen]

    def records(self, **filters: Any) -> list[Record]:
        """All records whose configuration has these values, sorted by key; None also matches an entry not there."""
        wanted = {name: normalised(value) for name, value in filters.items()}
        found = self._all()
        return [found[name] for name in sorted(found) if _matches(found[name], wanted)]

    def __len__(self) -> int:
        return len(self._all())

    def pack(self, group: str = "runs", **filters: Any) -> list[Path]:
        """Move the loose records into archives, ``packed/<group>-<dataset>-<model>.jsonl.gz``; return those written.

        With ``filters`` only the loose records whose configuration has these values are moved. The bytes of an
        archive depend on its records alone, so that packing again changes nothing.
        """
        wanted = {name: normalised(value) for name, value in filters.items()}
        busy = f"{self.folder} is being packed by another process"
        with file_lock(self.folder / ".pack.lock", busy, seconds=LOCK_SECONDS):
            self._remove_leftovers()
            every = {path: self._read(path) for path in self._loose_files()}
            loose = {path: one for path, one in every.items() if all(_matches(r, wanted) for r in one.values())}
            packed = dict(self._archives())
            known = {name for records in packed.values() for name in records}
            additions: dict[Path, dict[str, Record]] = {}
            for found in loose.values():
                for name, record in found.items():
                    if name not in known:
                        additions.setdefault(self._archive(group, record["configuration"]), {})[name] = record
            for path, new in additions.items():
                merged = packed.get(path, {}) | new
                _write_archive(path, b"".join(_line(merged[name]) for name in sorted(merged)))
            # Every archive is on disk now, its folder too: what follows may be cut short anywhere.
            for path in loose:
                path.unlink(missing_ok=True)
                self._cache.pop(path, None)
        return sorted(additions)

    def _loose(self, name: str) -> Path:
        return self.folder / "runs" / f"{name}.json"

    def _loose_files(self) -> list[Path]:
        return sorted(self.folder.glob("runs/*.json"))

    def _archive(self, group: str, configuration: Configuration) -> Path:
        parts = [group, str(configuration.get("dataset", "data")), str(configuration.get("model", "model"))]
        name = "-".join(re.sub(r"[^\w.]+", "-", part).strip(".-") or "any" for part in parts)
        return self.folder / "packed" / f"{name}.jsonl.gz"

    def _archives(self) -> list[tuple[Path, dict[str, Record]]]:
        """Every archive with its records by key; call it after looking at the loose files, never before."""
        return [(path, self._read(path)) for path in sorted(self.folder.glob("packed/*.jsonl.gz"))]

    def _all(self) -> dict[str, Record]:
        found: dict[str, Record] = {}
        for path in self._loose_files():
            found |= self._read(path)
        for _, records in reversed(self._archives()):
            found |= records
        return found

    def _read(self, path: Path) -> dict[str, Record]:
        """The records of one file by key, from memory while the file stays the same; none if it is not there."""
        try:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                signature = (status.st_mtime_ns, status.st_size, status.st_ino)
                if (cached := self._cache.get(path)) and cached[0] == signature:
                    return cached[1]
                content = file.read()
        except FileNotFoundError:
            self._cache.pop(path, None)
            return {}
        try:
            lines = gzip.decompress(content).splitlines() if path.suffix == ".gz" else [content]
            if not lines:
                raise EOFError("it is empty")
            records = [_parse(line, path) for line in lines]
        except (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
            message = f"{path} is damaged or was not written by uulearn ({error}): delete it and run again."
            raise ValueError(message) from error
        named = {key(record["configuration"]): record for record in records}
        if path.suffix == ".json" and path.stem not in named:
            raise ValueError(f"{path} is named after another configuration than it holds: delete it and run again.")
        self._cache[path] = (signature, named)
        return named

    def _remove_leftovers(self) -> None:
        """Delete the temporary files of writers that were killed; younger ones may belong to a writer at work."""
        oldest = time.time() - OLD_SECONDS
        for leftover in [*self.folder.glob("runs/.*.tmp"), *self.folder.glob("packed/.*.tmp")]:
            with suppress(OSError):  # another process may clean at the same time
                if leftover.stat().st_mtime < oldest:
                    leftover.unlink()


def _publish(private: Path, path: Path) -> bool:
    """Give a private file its name; unlike a rename, a link fails where another writer was first."""
    try:
        os.link(private, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: two records of one configuration are worth the same
        private.replace(path)
    return True


def _storable(record: Record) -> Record:
    """A checked copy of a record, with rounded curves."""
    data = {"format": FORMAT, **record}
    if data["format"] != FORMAT:
        raise ValueError(f"a record of format {data['format']!r} cannot be stored; this uulearn writes {FORMAT}.")
    for part in ("configuration", "curves"):
        if not isinstance(data.get(part), Mapping):
            raise ValueError(f"a record needs a dict {part!r}, got {data.get(part)!r}.")
    data["configuration"] = normalised(data["configuration"])
    data["curves"] = {name: [_rounded(value) for value in curve] for name, curve in data["curves"].items()}
    return data


def _rounded(value: Any) -> float | None:
    """Six significant digits; None, which JSON knows, for what it does not: NaN and the infinities."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _line(record: Record) -> bytes:
    """One line of compact JSON, the same bytes for the same record, whether it was read from a file or is new."""
    curves = {name: [None if value != value else value for value in curve] for name, curve in record["curves"].items()}
    data = {**record, "curves": curves}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, default=normalised)
    return text.encode() + b"\n"


def _parse(line: bytes, path: Path) -> Record:
    record: Record = json.loads(line)
    found = record["format"]
    if found > FORMAT:
        raise ValueError(f"{path} has format {found}, this version of uulearn reads up to {FORMAT}: upgrade uulearn.")
    curves = record["curves"]
    if not isinstance(record["configuration"], dict) or not isinstance(curves, dict):
        raise TypeError("its configuration or its curves are missing")
    for name, curve in curves.items():
        if None in curve:
            curves[name] = [math.nan if value is None else value for value in curve]
    return record


def _matches(record: Record, wanted: Configuration) -> bool:
    configuration = record["configuration"]
    return all(configuration.get(name) == value for name, value in wanted.items())


def _write_archive(path: Path, content: bytes) -> None:
    if path.exists() and gzip.decompress(path.read_bytes()) == content:
        return  # another zlib may compress the same records to other bytes, which is no reason for a new file
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(content)
    write_atomically(path, lambda temporary: temporary.write_bytes(buffer.getvalue()))
