"""Model directories: safetensors and JSON, written atomically, read without running any code.

``model.json`` is the manifest: format version, parameters, what was learned about the columns, and for each other file
its name, size and SHA-256. The other files carry a part of their hash in their names, so a directory that is written
again stays whole at every moment: new files first, then the manifest in one step, then the old files go. A new
directory is filled beside its place under a hidden name, and takes its place when it is whole.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import inspect
import json
import math
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from uulearn._version import __version__
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.resolving import SETTLED, is_auto
from uulearn.estimator.self_training import Round
from uulearn.exceptions import ModelFormatError
from uulearn.metrics import Estimate, Evaluation
from uulearn.metrics.calibration import Scaling
from uulearn.models import Ensemble, build_model
from uulearn.storage import _sync_folder, write_atomically
from uulearn.training import History

if TYPE_CHECKING:
    from uulearn.estimator.classifier import UUClassifier

Classifier = TypeVar("Classifier", bound="UUClassifier")

MANIFEST = "model.json"
FORMAT = "uulearn-model"
FORMAT_VERSION = 2
"""2: other files may be attached, such as the encoder of the columns. Without them 1 is written."""
FILE_NAME = re.compile(r"(weights|history|encoder|schema|facts)-[0-9a-f]{16}\.(safetensors|json)")
REMAINS = re.compile(r"\..+\.(json|safetensors|toml|md|html)\..*tmp")
"""Temporary files that a killed process left in a model directory."""
OWN = ("weights", "history")
FOR_PEOPLE = ("README.md", "config.toml", "report.html")
"""What the commands put beside a model that has facts; it is about that model and no other."""
BEFORE = {"validation_fraction": 0.0, "keep": "last", "patience": None, "members": 1, "calibrated": False}
"""What it was to be without parameters that a directory, being older, does not have."""
LARGEST_MANIFEST = 16 * 2**20


# ------------------------------------------------------------------------------------------------------------- writing


def save(
    classifier: UUClassifier,
    folder: Path,
    attached: Mapping[str, tuple[str, bytes]] | None = None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write a fitted classifier, and with it the files attached: name to suffix and content.

    All are named by one manifest, so that a directory holds what belongs together or, after a crash, what it held.
    Files for people, ``beside``, are replaced with them; nothing reads them again.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, a model is saved to a directory; choose another path.")
    state = classifier.model_.state_dict()
    if odd := [name for name, value in state.items() if not isinstance(value, torch.Tensor)]:
        raise ValueError(
            f"the model's state {odd[0]!r} is no tensor and cannot be stored without pickle; make it a buffer."
        )
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    history = json.dumps(classifier.history_.to_dict(), indent=1).encode()
    contents = {"weights": ("safetensors", save_tensors(weights)), "history": ("json", history), **(attached or {})}
    files = {stem: _entry(stem, suffix, content) for stem, (suffix, content) in contents.items()}
    names = getattr(classifier, "feature_names_in_", None)
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION if attached else 1,
        "uulearn_version": __version__,
        "class": "UUClassifier",
        "parameters": {name: _encode(value) for name, value in classifier.get_params(deep=False).items()}
        | {
            "random_state": None if classifier.random_state is None else classifier.seed_,
            "checkpoint_dir": None,  # a folder of the machine that trained; a later fit must not write there unasked
        },
        "fitted": {
            "row_shape": list(classifier.row_shape_),
            "feature_names": None if names is None else [str(name) for name in names],
            "set_sizes": list(classifier.set_sizes_),
            "held_out_sizes": list(classifier.held_out_sizes_),
            "cross_fitted": None if classifier.cross_fitted_ is None else dataclasses.asdict(classifier.cross_fitted_),
            "refinement": None
            if classifier.refinement_ is None
            else [dataclasses.asdict(done) for done in classifier.refinement_],
            "scaling": None if classifier.scaling_ is None else dataclasses.asdict(classifier.scaling_),
            "precision": classifier.precision_,
            "seed": classifier.seed_,
            "settled": classifier.resolved_params_,
        },
        "files": files,
    }
    text = json.dumps(manifest | {"checksum": _checksum(manifest)}, indent=1, ensure_ascii=False)
    named = {files[stem]["name"]: content for stem, (_, content) in contents.items()}
    _place(folder, named, text.encode(), beside or {})


def could_be_model(folder: Path) -> bool:
    """Whether a folder holds a model, the remains of one whose saving was killed, or nothing."""
    names = [path.name for path in folder.iterdir()]
    return MANIFEST in names or all(FILE_NAME.fullmatch(name) or REMAINS.fullmatch(name) for name in names)


def _place(folder: Path, files: Mapping[str, bytes], manifest: bytes, beside: Mapping[str, bytes]) -> None:
    """Put the files of a model into a folder that is there, or make it; the old model stays if anything fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for killed in folder.parent.glob(f".{glob.escape(folder.name)}.{'?' * 8}.saving"):
        shutil.rmtree(killed, ignore_errors=True)
    if folder.is_dir():
        _write_into(folder, files, manifest, beside)
        return
    whole = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.saving")
    try:
        whole.mkdir()
        _write_into(whole, files, manifest, beside)
        whole.rename(folder)
        _sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(whole, ignore_errors=True)
        raise


def _write_into(folder: Path, files: Mapping[str, bytes], manifest: bytes, beside: Mapping[str, bytes]) -> None:
    for path in folder.iterdir():
        if REMAINS.fullmatch(path.name):
            path.unlink()
    held_model = (folder / MANIFEST).exists()
    fresh = [path for name in files if not (path := folder / name).exists()]
    waiting = {name: folder / f".{name}.new.tmp" for name in (MANIFEST, *beside)}
    try:
        for name, content in files.items():
            _write(folder / name, content)
        for name, place in waiting.items():
            _write(place, manifest if name == MANIFEST else beside[name])
        for name in beside:  # from here on nothing takes space; and no card is better than that of another model
            (folder / name).unlink(missing_ok=True)
        waiting[MANIFEST].replace(folder / MANIFEST)
    except BaseException:
        if not _holds(folder / MANIFEST, manifest):
            for path in (*fresh, *waiting.values()):
                path.unlink(missing_ok=True)
        raise
    for name in beside:
        waiting[name].replace(folder / name)
    _sync_folder(folder)
    old = [path for path in folder.iterdir() if FILE_NAME.fullmatch(path.name) and path.name not in files]
    if held_model and any(path.name.startswith("facts-") for path in old):
        # Before the facts, so that a process killed here leaves the next one to see what they belong to.
        for name in FOR_PEOPLE:
            if name not in beside and ((folder / name).is_file() or (folder / name).is_symlink()):
                (folder / name).unlink()
    for path in old:
        path.unlink()


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _entry(stem: str, suffix: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"name": f"{stem}-{digest[:16]}.{suffix}", "bytes": len(content), "sha256": digest}


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda temporary: _fill(temporary, content))


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _encode(value: Any) -> Any:
    """A parameter as readable JSON; what is code becomes a note that it must be passed again."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path | torch.device):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_encode(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(item) for key, item in value.items()}}
    name = str(getattr(value, "__qualname__", type(value).__qualname__))
    if getattr(torch.optim, name, None) is value:
        return {"torch.optim": name}
    if not callable(value):
        raise ValueError(f"{value!r} cannot be stored as JSON; use numbers, strings, lists and dicts in parameters.")
    return {"code": name}


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------------- reading


def load(cls: type[Classifier], folder: Path, replaced: dict[str, Any]) -> Classifier:
    """Read a classifier; parameters in ``replaced`` stand in for stored ones."""
    manifest = _read_manifest(folder)
    if unknown := sorted(replaced.keys() - set(inspect.signature(cls).parameters)):
        raise TypeError(f"load got unknown parameters: {', '.join(unknown)}.")
    try:
        parameters = _parameters(cls, manifest["parameters"], replaced, folder)
        fitted, files = manifest["fitted"], manifest["files"]
        weights = load_tensors(_read(folder, files["weights"]))
        history = _history(json.loads(_read(folder, files["history"])))
        classifier = cls(**parameters)
        classifier.resolved_params_ = _settled(fitted.get("settled", {}))
        for used in (classifier.get_params(deep=False), classifier._trained_with()):
            check_parameters(used)
        row_shape = tuple(int(size) for size in fitted["row_shape"])
        classifier.model_ = _rebuild(classifier, row_shape, weights)
        classifier.row_shape_ = row_shape
        classifier.n_features_in_ = row_shape[0]
        if fitted["feature_names"] is not None:
            classifier.feature_names_in_ = np.array(fitted["feature_names"], dtype=object)
        first, second = fitted["set_sizes"]
        classifier.set_sizes_ = (int(first), int(second))
        first, second = fitted.get("held_out_sizes", (0, 0))
        classifier.held_out_sizes_ = (int(first), int(second))
        classifier.cross_fitted_ = _judgement(fitted.get("cross_fitted"))
        rounds = fitted.get("refinement")
        classifier.refinement_ = None if rounds is None else [_round(done) for done in rounds]
        classifier.scaling_ = _scaling(fitted.get("scaling"))
        classifier.precision_ = str(fitted["precision"])
        classifier.seed_ = int(fitted["seed"])
    except ModelFormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        reason = str(error).rstrip(".")
        raise ModelFormatError(f"{folder} is not a model that can be loaded ({reason}); save it again.") from error
    classifier.history_ = history
    classifier.classes_ = np.array([0, 1])
    return classifier


def read_attached(folder: Path) -> dict[str, bytes]:
    """The files that were attached to a classifier, by name, each as it was written."""
    files = _read_manifest(folder).get("files")
    if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
        raise ModelFormatError(f"{folder / MANIFEST} names no files; save the model again.")
    try:
        return {name: _read(folder, entry) for name, entry in files.items() if name not in OWN}
    except KeyError as error:
        raise ModelFormatError(f"{folder / MANIFEST} lacks {error} of a file; save the model again.") from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        what = f"holds no {MANIFEST}" if folder.exists() else "does not exist"
        raise ModelFormatError(f"{folder} {what}; pass a directory that uulearn fit or UUClassifier.save wrote.")
    if path.is_symlink() or path.stat().st_size > LARGEST_MANIFEST:
        raise ModelFormatError(f"{path} is a link or too large to be a manifest; pass a directory written by save.")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is truncated or damaged ({error}); save the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFormatError(f"{path} does not describe a uulearn model; pass a directory written by save.")
    version = manifest.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFormatError(
            f"{folder} has model format {version!r}, written by uulearn {manifest.get('uulearn_version')}; this "
            f"version reads up to {FORMAT_VERSION}, so install a newer uulearn."
        )
    checksum = manifest.pop("checksum", None)
    if checksum != _checksum(manifest):
        raise ModelFormatError(
            f"{path} was altered after it was saved (its checksum does not match); save the model again."
        )
    return manifest


def _read(folder: Path, entry: dict[str, Any]) -> bytes:
    name = entry["name"]
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
        raise ModelFormatError(f"{folder / MANIFEST} names {name!r}, which is no file that save writes; save it again.")
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise ModelFormatError(f"{path} is missing or a link; save the model again.")
    if path.stat().st_size != entry["bytes"]:
        raise ModelFormatError(
            f"{path} is {path.stat().st_size:,} bytes instead of {entry['bytes']}: it is truncated or was replaced; "
            "save the model again."
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise ModelFormatError(
            f"{path} was altered after it was saved (its SHA-256 does not match); save the model again."
        )
    return content


def _parameters(
    cls: type[UUClassifier], stored: dict[str, Any], replaced: dict[str, Any], folder: Path
) -> dict[str, Any]:
    known = set(inspect.signature(cls).parameters)
    if unknown := sorted(stored.keys() - known):
        raise ModelFormatError(f"{folder} has parameters this version does not know: {', '.join(unknown)}.")
    parameters = BEFORE | replaced
    for name, value in stored.items():
        if name in replaced:
            continue
        missing: list[str] = []
        parameters[name] = _decode(value, missing)
        if missing:
            raise ModelFormatError(
                f"the model in {folder} was trained with {name}={missing[0]}, which is code and therefore not stored; "
                f"pass it again: UUClassifier.load({str(folder)!r}, {name}=...)."
            )
    return parameters


def _decode(value: Any, missing: list[str]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tuple":
        return tuple(_decode(item, missing) for item in content)
    if kind == "list":
        return [_decode(item, missing) for item in content]
    if kind == "dict":
        return {key: _decode(item, missing) for key, item in content.items()}
    if kind == "torch.optim":
        found = getattr(torch.optim, content, None)
        if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
            raise ModelFormatError(f"torch.optim has no optimizer {content!r}; pass optimizer=... to load.")
        return found
    missing.append(str(content))
    return None


def _estimate(data: Any) -> Estimate:
    low, high = data["interval"]
    value, error, confidence = (float(data[name]) for name in ("value", "standard_error", "confidence"))
    return Estimate(value, error, (float(low), float(high)), confidence)


def _judgement(data: Any) -> Evaluation | None:
    if data is None:
        return None
    names = [field.name for field in dataclasses.fields(Evaluation) if field.name not in ("sizes", "labels_used")]
    first, second = data["sizes"]
    return Evaluation(
        **{name: _estimate(data[name]) for name in names},
        sizes=(int(first), int(second)),
        labels_used=bool(data["labels_used"]),
    )


def _round(data: Any) -> Round:
    evaluation = _judgement(data["evaluation"])
    if evaluation is None:
        raise ValueError("a round of its refinement has no evaluation")
    first, second = data["set_priors"]
    n, n_prime = data["set_sizes"]
    return Round(
        number=int(data["number"]),
        set_priors=(float(first), float(second)),
        set_sizes=(int(n), int(n_prime)),
        evaluation=evaluation,
        gain=None if data["gain"] is None else _estimate(data["gain"]),
        better=bool(data["better"]),
    )


def _scaling(data: Any) -> Scaling | None:
    if data is None:
        return None
    scaling = Scaling(float(data["slope"]), float(data["intercept"]), float(data["prior"]))
    if not (math.isfinite(scaling.slope) and math.isfinite(scaling.intercept) and 0 < scaling.prior < 1):
        raise ValueError(f"its calibration is no line: {data}")
    return scaling


def _settled(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or not data.keys() <= set(SETTLED) or any(map(is_auto, data.values())):
        raise ValueError(f"what its automatic parameters became is not told: {data}")
    return data


def _history(data: Any) -> History:
    history = History.from_dict(data)
    if not isinstance(history.epochs, list) or not all(isinstance(record, dict) for record in history.epochs):
        raise ValueError("its history is not a list of epochs")
    return history


def _rebuild(classifier: UUClassifier, row_shape: tuple[int, ...], weights: dict[str, torch.Tensor]) -> nn.Module:
    """The module with its weights; a named model is laid out without memory until the shapes are known to agree."""
    named = isinstance(classifier.model, str)
    members = classifier._trained_with()["members"]
    if members > 1 and "scales" in weights:  # of one member alone, `member` has made a classifier with one
        members = min(members, len(weights["scales"]))
    several = classifier._trained_with()["members"] > 1
    layers = members * (1 + len((classifier.model_params or {}).get("hidden", ())))
    if named and layers > len(weights):
        raise ModelFormatError(f"the model claims {layers:,} layers but has {len(weights):,} weights; save it again.")
    with torch.device("meta" if named else "cpu"):
        model = build_model(classifier.model, row_shape, classifier.model_params)
        if several:
            copies = (build_model(classifier.model, row_shape, classifier.model_params) for _ in range(1, members))
            model = Ensemble([model, *copies], [1.0] * members)
    expected = {name: (tuple(value.shape), value.dtype) for name, value in model.state_dict().items()}
    found = {name: (tuple(value.shape), value.dtype) for name, value in weights.items()}
    if expected != found:
        odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ModelFormatError(
            f"the stored weights do not fit the model: {odd[0]} should be {expected.get(odd[0])} and is "
            f"{found.get(odd[0])}; pass the model that was trained."
        )
    if not all(bool(value.isfinite().all()) for value in weights.values()):
        raise ModelFormatError("the stored weights are not all finite numbers; train and save the model again.")
    model.load_state_dict(weights, assign=named)
    return model.eval()
