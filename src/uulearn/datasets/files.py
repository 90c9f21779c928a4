"""Find the files of a dataset in a data folder or the user cache directory, or download them."""

import contextlib
import functools
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

from uulearn.datasets.catalog import CIFAR_ARCHIVE, DatasetSource
from uulearn.storage import UMASK, write_atomically

DATA_VARIABLE = "UULEARN_DATA"
DOWNLOAD_TIMEOUTS = (10, 60)  # timeout in seconds for connecting and for each packet
DOWNLOAD_BLOCK_BYTES = 1 << 20  # number of bytes copied at a time


class DatasetNotFoundError(FileNotFoundError):
    """Error raised if files of a dataset are missing and could not be downloaded; the message lists the files."""


class _DownloadError(Exception):
    """Error raised if a download fails; the message contains the reason."""


def find_files(source: DatasetSource, data_dir: str | os.PathLike[str] | None, download: bool) -> dict[str, Path]:
    """Return the paths of all files of a dataset; missing files are downloaded if ``download`` is True."""
    try:
        pooch: ModuleType | None = importlib.import_module("pooch")
    except ImportError:
        pooch = None
    folders = _data_folders(data_dir, pooch)
    found = _look_up(source, folders)
    missing = [file for file in source.files if file not in found]
    if not missing:
        return found
    if not download:
        raise _not_found(source, missing, folders, "is incomplete and download=False;", data_dir)
    if pooch is None:
        reason = "is incomplete, and downloading it requires pooch; run pip install 'uulearn[data]', or"
        raise _not_found(source, missing, folders, reason, data_dir)
    try:
        _download(source, missing, folders[-1], pooch)
    except _DownloadError as error:
        missing = [file for file in missing if file not in _look_up(source, folders)]
        raise _not_found(source, missing, folders, f"could not be downloaded ({error});", data_dir) from None
    return _look_up(source, folders)


def _data_folders(data_dir: str | os.PathLike[str] | None, pooch: ModuleType | None) -> list[Path]:
    """Return the data folders in the order in which they are searched; downloads are saved in the last folder."""
    if data_dir is not None:
        return [Path(data_dir).expanduser()]
    folders = [Path(os.environ[DATA_VARIABLE]).expanduser()] if os.environ.get(DATA_VARIABLE) else []
    if pooch is not None:
        folders.append(Path(pooch.os_cache("uulearn")))
    return folders


def _look_up(source: DatasetSource, folders: Sequence[Path]) -> dict[str, Path]:
    """Return the paths of the files that were found, preferably all from the same folder."""
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
    source: DatasetSource, missing: Sequence[str], folders: Sequence[Path], reason: str, data_dir: object
) -> DatasetNotFoundError:
    names = ", ".join(f"{file}.gz" if source.is_idx else file for file in missing)
    places = [str(folder / source.folders[0]) for folder in folders[:1]]
    if data_dir is None:
        places.append(f"{source.folders[0]}/ in the folder set by data_dir or {DATA_VARIABLE}")
    return DatasetNotFoundError(f"{source.title} {reason} put {names} into {', or into '.join(places)}.")


def _download(source: DatasetSource, missing: Sequence[str], folder: Path, pooch: ModuleType) -> None:
    target = folder / source.folders[0]
    created = [path for path in (target, folder) if not path.exists()]
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
        for path in created:  # remove folders that stayed empty
            with contextlib.suppress(OSError):
                path.rmdir()


def _fetch(source: DatasetSource, name: str, folder: Path, pooch: ModuleType) -> Path:
    """Download one file from the first address that provides it, and compare it with the published checksum."""
    from requests.exceptions import RequestException

    # Without "identity" a server may send a .gz file uncompressed, which changes the checksum.
    headers = {"Accept-Encoding": "identity"}
    downloader = pooch.HTTPDownloader(chunk_size=DOWNLOAD_BLOCK_BYTES, timeout=DOWNLOAD_TIMEOUTS, headers=headers)
    failures = []
    for address in source.addresses:
        host = urlsplit(address).netloc
        try:
            checksum = f"md5:{source.downloads[name]}"
            path = Path(pooch.retrieve(address + name, checksum, fname=name, path=folder, downloader=downloader))
        except RequestException as error:
            status = error.response.status_code if error.response is not None else None
            failures.append(f"{host} returned {status} for {name}" if status else f"the connection to {host} failed")
        except ValueError:  # raised by pooch for a wrong checksum
            failures.append(f"{name} from {host} has a wrong checksum")
        else:
            path.chmod(0o666 & ~UMASK)  # pooch creates private files, which others could not read in a shared folder
            return path
    raise _DownloadError(", ".join(dict.fromkeys(failures)))  # several addresses may have the same host


def _unpack(archive: Path, wanted: Sequence[str], folder: Path) -> None:
    """Extract only the requested files, which are found by file name; paths in the archive are ignored."""
    missing = set(wanted)
    with tarfile.open(archive, "r:gz") as tar:
        for entry in tar:
            name = entry.name.rpartition("/")[2]
            content = tar.extractfile(entry) if name in missing and entry.isreg() else None
            if content is not None:
                write_atomically(folder / name, functools.partial(_copy, content))
                missing.remove(name)
    if missing:
        raise _DownloadError(f"{archive.name} does not contain {', '.join(sorted(missing))}")


def _copy(content: IO[bytes], path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, DOWNLOAD_BLOCK_BYTES)
