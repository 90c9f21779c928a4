"""Store finished training runs on disk; each run is identified by a hash of its configuration.

A new run is stored in its own file, ``runs/<key>.json``. `RunStore.pack` moves runs from these loose files to archives,
``packed/<name>.jsonl.gz``. Several processes can add, read and pack runs at the same time:

- Files are written atomically. Stored records never change.
- A loose file is deleted only after the archive with its record has been written to disk.
- Loose files are read before archives, so a record that is moved in the meantime is not missed.
- If a record is in a loose file and in an archive, the archived record is used.
"""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from uulearn.storage import file_lock, finish_moves, remove_temporary_files, write_atomically, write_together

Configuration = Mapping[str, Any]
Record = dict[str, Any]

RECORD_FORMAT = 1
KEY_LENGTH = 20
CURVE_DIGITS = 6
"""Number of significant digits in stored curves. Rounding reduces the file size to a third."""
ABANDONED_SECONDS = 3600.0
"""Age in seconds after which a temporary file is deleted, because its process was probably killed."""
LOCK_SECONDS = 120.0
"""Maximum time in seconds to wait for another process that is packing the same folder."""


def normalized(value: Any) -> Any:
    """Normalize settings so that equal settings result in equal JSON: 1.0 becomes 1, and tuples become lists.

    >>> normalized({"epochs": 200.0, "set_priors": (0.8, 0.2), "slope": None})
    {'epochs': 200, 'set_priors': [0.8, 0.2], 'slope': None}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"a configuration must contain only finite numbers, got {number}.")
        return int(number) if number.is_integer() else number
    if isinstance(value, Mapping):
        return {str(name): normalized(item) for name, item in value.items()}
    if isinstance(value, Iterable):
        return [normalized(item) for item in value]
    raise ValueError(f"a configuration must contain only numbers, strings, lists and None, got {type(value).__name__}.")


def key(configuration: Configuration) -> str:
    """Return a hash of a configuration that does not depend on the order of its entries."""
    text = json.dumps(normalized(configuration), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


class RunStore:
    """Finished runs stored in a folder, which the first `add` creates. Do not modify records: they are cached.

    >>> store = RunStore(getfixture("tmp_path"))
    >>> configuration = {"dataset": "mnist", "model": "mlp", "seed": 0}
    >>> store.add({"configuration": configuration, "curves": {"test_accuracy": [0.5, 0.9]}})
    True
    >>> configuration in store, store.missing([configuration, {**configuration, "seed": 1}])
    (True, [{'dataset': 'mnist', 'model': 'mlp', 'seed': 1}])
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._cache: dict[Path, tuple[tuple[int, int, int], dict[str, Record]]] = {}

    def add(self, record: Record) -> bool:
        """Store a finished run and return True; return False if its configuration already has a record.

        Curves are rounded to six significant digits; non-finite values are read back as NaN.
        """
        return self.add_all([record])[0]

    def add_all(self, records: Iterable[Record]) -> list[bool]:
        """Store runs that were trained together, and return whether each run is new.

        A killed process stores all of them or none: the rounding of a run depends on the runs trained with it.
        """
        added: list[bool] = []
        waiting: dict[str, bytes] = {}
        for data in [_storable(record) for record in records]:
            name = self._loose(key(data["configuration"])).name
            added.append(name not in waiting and data["configuration"] not in self)
            if added[-1]:
                line = _line(data)
                waiting[name] = _line(data | {"checksum": hashlib.sha256(line).hexdigest()})
        with write_together(self.folder / "runs") as temporary:
            for name, line in waiting.items():
                write_atomically(temporary / name, functools.partial(Path.write_bytes, data=line))
        return added

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.get(configuration) is not None

    def get(self, configuration: Configuration) -> Record | None:
        """Return the record of a configuration, or None if the configuration has no record."""
        name = key(configuration)
        loose = self._read(self._loose(name))  # before the archives, because the record may move there now
        packed = (records[name] for records in self._archives().values() if name in records)
        return next(packed, loose.get(name))

    def missing(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Return the configurations that have no record, in their original order and without duplicates."""
        known = {path.stem for path in self._loose_files()}
        known.update(*self._archives().values())
        wanted: dict[str, Configuration] = {}
        for configuration in configurations:
            wanted.setdefault(key(configuration), configuration)
        return [configuration for name, configuration in wanted.items() if name not in known]

    def records(self, **filters: Any) -> list[Record]:
        """Return the records that match ``filters``, sorted by key; a filter of None also matches a missing entry."""
        found: dict[str, Record] = {}
        for path in self._loose_files():
            found |= self._read(path)
        for records in reversed(self._archives().values()):
            found |= records
        matches = _filter(filters)
        return [found[name] for name in sorted(found) if matches(found[name])]

    def __len__(self) -> int:
        return len(self.records())

    def pack(self, group: str = "runs", **filters: Any) -> list[Path]:
        """Move loose records into archives ``packed/<group>-<dataset>-<model>.jsonl.gz``, and return their paths.

        Only records whose configuration matches ``filters`` are moved. The content of an archive depends only on its
        records, so packing again changes nothing.
        """
        matches = _filter(filters)
        busy = f"{self.folder} is being packed by another process"
        with file_lock(self.folder / ".pack.lock", busy, seconds=LOCK_SECONDS):
            for part in ("runs", "packed"):
                remove_temporary_files(self.folder / part, "*", older_than=ABANDONED_SECONDS)
            every = {path: self._read(path) for path in self._loose_files()}
            loose = {path: one for path, one in every.items() if all(map(matches, one.values()))}
            packed = self._archives()
            known = set().union(*packed.values())
            additions: dict[Path, dict[str, Record]] = {}
            for name, record in [item for one in loose.values() for item in one.items()]:
                if name not in known:
                    entries = [record["configuration"].get(entry, entry) for entry in ("dataset", "model")]
                    parts = (re.sub(r"[^\w.]+", "-", str(part)).strip(".-") or "any" for part in (group, *entries))
                    path = self.folder / "packed" / f"{'-'.join(parts)}.jsonl.gz"
                    additions.setdefault(path, {})[name] = record
            for path, new in additions.items():
                merged = packed.get(path, {}) | new
                _write_archive(path, b"".join(_line(merged[name]) for name in sorted(merged)))
            for path in loose:  # every archive is on disk now, so an interruption is safe
                path.unlink(missing_ok=True)
                self._cache.pop(path, None)
        return sorted(additions)

    def _loose(self, name: str) -> Path:
        return self.folder / "runs" / f"{name}.json"

    def _loose_files(self) -> list[Path]:
        with contextlib.suppress(OSError):  # a store that cannot be written can still be read
            finish_moves(self.folder / "runs")
        return sorted(self.folder.glob("runs/*.json"))

    def _archives(self) -> dict[Path, dict[str, Record]]:
        """Return the records of each archive, by key; call this only after reading the loose files."""
        return {path: self._read(path) for path in sorted(self.folder.glob("packed/*.jsonl.gz"))}

    def _read(self, path: Path) -> dict[str, Record]:
        """Return the records of a file by key (cached until the file changes), or {} if the file does not exist."""
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
            message = f"{path} is damaged or was not written by uulearn ({error}); delete it and run again."
            raise ValueError(message) from error
        named = {key(record["configuration"]): record for record in records}
        if path.suffix == ".json" and path.stem not in named:
            raise ValueError(f"the name of {path} does not match its configuration; delete the file and run again.")
        self._cache[path] = (signature, named)
        return named


def _filter(entries: Configuration) -> Callable[[Record], bool]:
    wanted = normalized(entries)
    return lambda record: all(record["configuration"].get(name) == value for name, value in wanted.items())


def _storable(record: Record) -> Record:
    """Return a validated copy of a record with rounded curves, in which None replaces NaN and infinite values."""
    data = {"format": RECORD_FORMAT, **record}
    if data["format"] != RECORD_FORMAT:
        raise ValueError(f"a record of format {data['format']!r} cannot be stored; expected format {RECORD_FORMAT}.")
    for part in ("configuration", "curves"):
        if not isinstance(data.get(part), Mapping):
            raise ValueError(f"a record must contain a dict {part!r}, got {data.get(part)!r}.")
    data["configuration"] = normalized(data["configuration"])
    data["curves"] = {
        name: [float(f"{v:.{CURVE_DIGITS}g}") if v is not None and math.isfinite(v) else None for v in curve]
        for name, curve in data["curves"].items()
    }
    return data


def _line(record: Record) -> bytes:
    """Return a record as one line of compact JSON; equal records result in equal bytes."""
    curves = {name: [None if value != value else value for value in curve] for name, curve in record["curves"].items()}
    data = {**record, "curves": curves}
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False, default=normalized)
    return text.encode() + b"\n"


def _parse(line: bytes, path: Path) -> Record:
    record: Record = json.loads(line)
    found = record["format"]
    if found > RECORD_FORMAT:
        raise ValueError(f"{path} has format {found}, but this version reads up to {RECORD_FORMAT}; upgrade uulearn.")
    if not isinstance(record["configuration"], dict) or not isinstance(record["curves"], dict):
        raise TypeError("its configuration or its curves are missing")
    curves = record["curves"].items()
    record["curves"] = {name: [math.nan if value is None else value for value in curve] for name, curve in curves}
    checksum = record.pop("checksum", None)  # only in loose files; gzip archives have their own
    if checksum is not None and checksum != hashlib.sha256(_line(record)).hexdigest():
        raise TypeError("its checksum does not match")
    return record


def _write_archive(path: Path, content: bytes) -> None:
    if path.exists() and gzip.decompress(path.read_bytes()) == content:
        return  # other zlib versions may compress the same records to different bytes
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(content)
    write_atomically(path, lambda temporary: temporary.write_bytes(buffer.getvalue()))
