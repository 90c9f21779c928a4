"""Where a dataset's files are: in a data folder, in the per-user cache, or still to be downloaded."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import IO
from urllib.parse import urlsplit

from uulearn.datasets.catalog import CIFAR_ARCHIVE, Source
from uulearn.storage import UMASK, write_atomically

DATA_VARIABLE = "UULEARN_DATA"
CONNECT_SECONDS, READ_SECONDS = 10, 60
CHUNK_BYTES = 1 << 20


class DatasetNotFoundError(FileNotFoundError):
    """Files of a dataset are missing and could not be downloaded; the text says which to put where."""


class _DownloadError(Exception):
    """Why a download failed, in a few words."""


def find_files(source: Source, data_dir: str | os.PathLike[str] | None, download: bool) -> dict[str, Path]:
    """The path of every file of a dataset, after downloading those that are missing where that is allowed.

    Looks in ``data_dir`` alone where it is given; else in the folder that UULEARN_DATA names and then in the per-user
    cache. Downloads go into ``data_dir`` or the cache.
    """
    pooch = _import_pooch()
    folders = _data_folders(data_dir, pooch)
    found = _look_up(source, folders)
    missing = [file for file in source.files if file not in found]
    if not missing:
        return found
    if not download:
        raise _not_found(source, missing, folders, "is incomplete and download=False;", data_dir)
    if pooch is None:
        reason = "is incomplete and pooch, which downloads it, is not installed; run pip install 'uulearn[data]' or"
        raise _not_found(source, missing, folders, reason, data_dir)
    try:
        _download(source, missing, folders[-1], pooch)
    except _DownloadError as error:
        missing = [file for file in missing if file not in _look_up(source, folders)]
        raise _not_found(source, missing, folders, f"could not be downloaded ({error});", data_dir) from None
    return _look_up(source, folders)


def _import_pooch() -> ModuleType | None:
    try:
        return importlib.import_module("pooch")
    except ImportError:
        return None


def _data_folders(data_dir: str | os.PathLike[str] | None, pooch: ModuleType | None) -> list[Path]:
    """Data folders in the order of the search; downloads go into the last."""
    if data_dir is not None:
        return [Path(data_dir).expanduser()]
    folders = [Path(os.environ[DATA_VARIABLE]).expanduser()] if os.environ.get(DATA_VARIABLE) else []
    if pooch is not None:
        folders.append(Path(pooch.os_cache("uulearn")))
    return folders


def _look_up(source: Source, folders: Sequence[Path]) -> dict[str, Path]:
    """The files of the first folder that has them all; else each file from the first folder that has it."""
    found: dict[str, Path] = {}
    for folder in folders:
        here: dict[str, Path] = {}
        for subfolder in source.folders:
            for file in source.files:
                for name in (file, f"{file}.gz") if source.is_idx else (file,):
                    path = folder / subfolder / name
                    if file not in here and path.is_file():
                        here[file] = path
        if len(here) == len(source.files):
            return here
        found = here | found
    return found


def _not_found(
    source: Source, missing: Sequence[str], folders: Sequence[Path], reason: str, data_dir: object
) -> DatasetNotFoundError:
    names = ", ".join(f"{file}.gz" if source.is_idx else file for file in missing)
    places = [str(folder / source.folders[0]) for folder in folders[:1]]
    if data_dir is None:
        places.append(f"{source.folders[0]}/ of a folder that data_dir or {DATA_VARIABLE} names")
    return DatasetNotFoundError(f"{source.title} {reason} put {names} into {', or into '.join(places)}.")


def _download(source: Source, missing: Sequence[str], folder: Path, pooch: ModuleType) -> None:
    target = folder / source.folders[0]
    made = [path for path in (target, folder) if not path.exists()]
    try:
        target.mkdir(parents=True, exist_ok=True)
        if source.is_idx:
            for file in missing:
                _fetch(source, f"{file}.gz", target, pooch)
        else:
            with tempfile.TemporaryDirectory(prefix=".download-", dir=target) as scratch:
                archive = _fetch(source, CIFAR_ARCHIVE, Path(scratch), pooch)
                _unpack(archive, missing, target)
    except OSError as error:
        raise _DownloadError(f"cannot write into {target}: {error.strerror or type(error).__name__}") from None
    finally:
        for path in made:  # a mistyped folder leaves nothing behind
            with contextlib.suppress(OSError):
                path.rmdir()


def _fetch(source: Source, name: str, folder: Path, pooch: ModuleType) -> Path:
    """Download one file with its published checksum from the first address that has it.

    pooch writes to a temporary file and moves it into place only after the checksum agreed.
    """
    from requests.exceptions import RequestException

    # Unencoded, because a server may otherwise offer to uncompress a .gz on the way, and the checksum would differ.
    downloader = pooch.HTTPDownloader(
        chunk_size=CHUNK_BYTES, timeout=(CONNECT_SECONDS, READ_SECONDS), headers={"Accept-Encoding": "identity"}
    )
    failures = []
    for address in source.addresses:
        host = urlsplit(address).netloc
        try:
            path = Path(
                pooch.retrieve(
                    address + name, f"md5:{source.downloads[name]}", fname=name, path=folder, downloader=downloader
                )
            )
        except RequestException as error:
            status = error.response.status_code if error.response is not None else None
            failures.append(f"{host} answered {status} for {name}" if status else f"the connection to {host} failed")
        except ValueError:  # how pooch reports a checksum that differs
            failures.append(f"{host} sent a {name} with a wrong checksum")
        else:
            path.chmod(0o666 & ~UMASK)  # pooch leaves private files, which would make a shared data folder useless
            return path
    raise _DownloadError(", ".join(dict.fromkeys(failures)))  # two addresses may be of one host


def _unpack(archive: Path, wanted: Sequence[str], folder: Path) -> None:
    """Take the wanted files, and nothing else, out of the archive; its own paths are never written to."""
    missing = set(wanted)
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            content = tar.extractfile(member) if name in missing and member.isreg() else None
            if content is not None:
                _write(content, folder / name)
                missing.remove(name)
    if missing:
        raise _DownloadError(f"{archive.name} lacks {', '.join(sorted(missing))}")


def _write(content: IO[bytes], path: Path) -> None:
    def copy(temporary: Path) -> None:
        with temporary.open("wb") as file:
            shutil.copyfileobj(content, file, CHUNK_BYTES)

    write_atomically(path, copy)
