"""Model directories on disk: files that are written atomically and verified when they are read.

``model.json`` is the manifest. The manifest lists every other file with its size and SHA-256 hash. Other file names
contain part of the file's hash, so new and old files never overwrite each other. To replace a model, uulearn writes the
new files, replaces the manifest atomically, and then removes the old files. A new directory is written under a hidden
temporary name in the same parent directory and renamed when it is complete.
"""

import glob
import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uulearn._version import __version__
from uulearn.exceptions import ModelFormatError
from uulearn.storage import sync_folder, write_atomically

MANIFEST = "model.json"
MODEL_FORMAT = "uulearn-model"
# Format 3 has scikit-learn's parameter names, separate training options, and a learner kind; others raise an error.
MODEL_FORMAT_VERSION = 3
MODEL_FILE = re.compile(r"(weights|history|encoder|reference|schema|facts)-[0-9a-f]{16}\.(safetensors|json)")
# Temporary files that a killed process left in a model directory.
LEFTOVER = re.compile(r"\..+\.(json|safetensors|toml|md|html)\..*tmp")
# Files written by the estimator; all other files were attached by an application, such as the schema of images.
OWN_FILES = ("weights", "history", "encoder", "reference")
# Human-readable files that the commands write next to a model with facts; they describe only this model.
DOCUMENTS = ("README.md", "config.toml", "report.html")
# Maximum size of a manifest in bytes; real manifests are much smaller.
MAX_MANIFEST_BYTES = 16 * 2**20

Contents = Mapping[str, tuple[str, bytes]]
"""Maps the stem of a file name, such as "weights", to the suffix and content of the file."""


def write_directory(
    folder: Path, about: Mapping[str, Any], contents: Contents, documents: Mapping[str, bytes] | None = None
) -> None:
    """Write the files and a manifest with the entries ``about``; replace an existing model in the folder.

    If an error occurs, the old model is not changed. ``documents`` are human-readable files that uulearn never reads.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but a model is saved to a directory; choose another path.")
    files: dict[str, dict[str, Any]] = {}
    for stem, (suffix, content) in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        files[stem] = {"name": f"{stem}-{digest[:16]}.{suffix}", "bytes": len(content), "sha256": digest}
    written_by = {"format": MODEL_FORMAT, "format_version": MODEL_FORMAT_VERSION, "uulearn_version": __version__}
    manifest = {**written_by, **about, "files": files}
    text = json.dumps(manifest | {"checksum": checksum(manifest)}, indent=1, ensure_ascii=False)
    named = {files[stem]["name"]: content for stem, (_, content) in contents.items()}
    folder.parent.mkdir(parents=True, exist_ok=True)
    for killed in folder.parent.glob(f".{glob.escape(folder.name)}.{'?' * 8}.saving"):
        shutil.rmtree(killed, ignore_errors=True)
    if folder.is_dir():
        _write_into(folder, named, text.encode(), documents or {})
        return
    complete = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.saving")
    try:
        complete.mkdir()
        _write_into(complete, named, text.encode(), documents or {})
        complete.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(complete, ignore_errors=True)
        raise


def could_be_model(folder: Path) -> bool:
    """Return whether a folder is empty, or contains a model or the files of an interrupted save."""
    names = [path.name for path in folder.iterdir()]
    return MANIFEST in names or all(MODEL_FILE.fullmatch(name) or LEFTOVER.fullmatch(name) for name in names)


def _write_into(folder: Path, files: Mapping[str, bytes], manifest: bytes, documents: Mapping[str, bytes]) -> None:
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            path.unlink()
    held_model = (folder / MANIFEST).exists()
    fresh = [path for name in files if not (path := folder / name).exists()]
    waiting = {name: folder / f".{name}.new.tmp" for name in (MANIFEST, *documents)}
    try:
        for name, content in files.items():
            _write(folder / name, content)
        for name, place in waiting.items():
            _write(place, manifest if name == MANIFEST else documents[name])
        for name in documents:  # no further disk space is needed; a missing document is better than an outdated one
            (folder / name).unlink(missing_ok=True)
        waiting[MANIFEST].replace(folder / MANIFEST)
    except BaseException:
        path = folder / MANIFEST
        if not (path.is_file() and path.read_bytes() == manifest):
            for path in (*fresh, *waiting.values()):
                path.unlink(missing_ok=True)
        raise
    for name in documents:
        waiting[name].replace(folder / name)
    sync_folder(folder)
    old = [path for path in folder.iterdir() if MODEL_FILE.fullmatch(path.name) and path.name not in files]
    if held_model and any(path.name.startswith("facts-") for path in old):
        # Remove documents before facts: if this process is killed, the next one checks the documents against the facts.
        for name in DOCUMENTS:
            if name not in documents and ((folder / name).is_file() or (folder / name).is_symlink()):
                (folder / name).unlink()
    for path in old:
        path.unlink()


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: write_bytes(temporary, content))


def write_bytes(path: Path, content: bytes) -> None:
    """Write one file; all files of a model directory are written by this function."""
    path.write_bytes(content)


def checksum(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of a manifest, which is used to detect changes."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read and verify the manifest of a model directory."""
    path = folder / MANIFEST
    if not path.is_file():
        what = f"contains no {MANIFEST}" if folder.exists() else "does not exist"
        raise ModelFormatError(f"{folder} {what}; pass a directory that uulearn fit or UUClassifier.save wrote.")
    if path.is_symlink() or path.stat().st_size > MAX_MANIFEST_BYTES:
        raise ModelFormatError(f"{path} is a link or too large to be a manifest; pass a directory written by save.")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is truncated or damaged ({error}); save the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != MODEL_FORMAT:
        raise ModelFormatError(f"{path} does not describe a uulearn model; pass a directory written by save.")
    version = manifest.get("format_version")
    if version != MODEL_FORMAT_VERSION or type(version) is not int:
        older = type(version) is int and 1 <= version < MODEL_FORMAT_VERSION
        fix = "fit the model again" if older else "install a newer uulearn"
        raise ModelFormatError(
            f"{folder} has model format {version!r}, written by uulearn {manifest.get('uulearn_version')}; this "
            f"version reads format {MODEL_FORMAT_VERSION} only, so {fix}."
        )
    if manifest.pop("checksum", None) != checksum(manifest):
        raise ModelFormatError(
            f"{path} was altered after it was saved (its checksum does not match); save the model again."
        )
    return manifest


def read_file(folder: Path, entry: Mapping[str, Any]) -> bytes:
    """Read and verify a file that the manifest lists."""
    name = entry["name"]
    if not isinstance(name, str) or not MODEL_FILE.fullmatch(name):
        raise ModelFormatError(f"{folder / MANIFEST} lists the unexpected file {name!r}; save the model again.")
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise ModelFormatError(f"{path} is missing or is a link; save the model again.")
    size, problem = path.stat().st_size, None
    content = path.read_bytes() if size == entry["bytes"] else b""
    if size != entry["bytes"]:
        problem = f"has {size:,} bytes instead of {entry['bytes']}: it is truncated or was replaced"
    elif hashlib.sha256(content).hexdigest() != entry["sha256"]:
        problem = "was altered after it was saved (its SHA-256 does not match)"
    if problem:
        raise ModelFormatError(f"{path} {problem}; save the model again.")
    return content


def read_attached(folder: Path) -> dict[str, bytes]:
    """Read the files that were attached to a classifier; return a mapping from stem to content."""
    files = read_manifest(folder).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise ModelFormatError(f"{folder / MANIFEST} lists no files; save the model again.")
    try:
        own = {*OWN_FILES, *(["schema"] if "encoder" in files else [])}
        return {stem: read_file(folder, entry) for stem, entry in files.items() if stem not in own}
    except KeyError as error:
        raise ModelFormatError(f"a file entry in {folder / MANIFEST} has no {error}; save the model again.") from error
