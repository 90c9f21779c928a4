"""Save a classifier as a model directory of safetensors and JSON files, and load it without executing code.

The manifest contains the parameters, the fitted attributes, the kind of the learner, and the JSON part of its
`uulearn.estimator.learners.ModelState`. The file ``weights`` contains the tensors, and ``reference`` the statistics of
the two sets with which new rows are compared. A classifier for tables also has the files ``schema`` (the columns) and
``encoder`` (the arrays of the encoder). To load a model of your own learner, call
``UUClassifier.load(folder, model=learner)``; ``learner.restore`` recreates the model from its state.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from uulearn.data.inputs import Columns
from uulearn.estimator.fitting import FitResult
from uulearn.estimator.learners import Learner, ModelState, make_learner, restore_model
from uulearn.estimator.model_directory import Contents, read_file, read_manifest, write_directory
from uulearn.estimator.parameters import TRAINING_NAMES, TRAINING_PREFIX, check_parameters, is_auto
from uulearn.estimator.resolving import AUTO_PARAMETERS, resolve
from uulearn.estimator.self_training import Round
from uulearn.exceptions import ModelFormatError
from uulearn.metrics import Evaluation
from uulearn.metrics.calibration import PlattScaling
from uulearn.metrics.new_rows import RowReference
from uulearn.storage import read_value
from uulearn.training import ConsistencyOptions, History, TrainingOptions

if TYPE_CHECKING:
    from uulearn.estimator.classifier import UUClassifier
    from uulearn.tabular import TableEncoder

Classifier = TypeVar("Classifier", bound="UUClassifier")


def save(
    classifier: UUClassifier,
    folder: Path,
    attached: Contents | None = None,
    documents: Mapping[str, bytes] | None = None,
) -> None:
    """Save a fitted classifier together with application-specific files and human-readable documents."""
    state = classifier.trained_.state()
    history = json.dumps(classifier.history_.to_dict(), indent=1).encode()
    contents = {"weights": ("safetensors", save_tensors(state.tensors)), "history": ("json", history)}
    encoder = classifier.encoder_
    if encoder is not None:
        schema, arrays = encoder.to_bytes()
        contents |= {"schema": ("json", schema), "encoder": ("safetensors", arrays)}
    reference = classifier.row_reference_
    if isinstance(reference, RowReference):
        contents["reference"] = ("safetensors", save_arrays(reference.to_arrays()))
    own = {*inspect.signature(type(classifier)).parameters, *TRAINING_NAMES} - {"training"}
    named = classifier.get_params(deep=classifier.training is not None)
    named["random_state"] = None if classifier.random_state is None else classifier.seed_
    parameters = {name: _encode(value) for name, value in named.items() if name in own}
    if classifier.training is not None:
        # The checkpoint folder is specific to the training machine; a later fit must not write to it by default.
        parameters[f"{TRAINING_PREFIX}checkpoint_dir"] = None
    names = getattr(classifier, "feature_names_in_", None) if encoder is None else None
    about = {
        "class": "UUClassifier",
        "parameters": parameters,
        "learner": {"kind": classifier.learner_.kind, "config": state.config},
        "fitted": {
            "row_shape": classifier.row_shape_,
            "feature_names": None if names is None else [str(name) for name in names],
            "set_sizes": classifier.set_sizes_,
            "held_out_sizes": classifier.held_out_sizes_,
            "out_of_fold_evaluation": _as_dict(classifier.out_of_fold_evaluation_),
            "self_training": classifier.self_training_ and [_as_dict(done) for done in classifier.self_training_],
            "scaling": _as_dict(classifier.scaling_),
            "seed": classifier.seed_,
            "resolved_params": classifier.resolved_params_,
            "no_reference": reference if isinstance(reference, str) else None,
        },
    }
    write_directory(folder, about, {**contents, **(attached or {})}, documents)


def _as_dict(value: Any) -> Any:
    return None if value is None else dataclasses.asdict(value)


def _encode(value: Any) -> Any:
    """Encode a parameter as readable JSON; code is replaced by a note that it must be passed again."""
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
    if isinstance(value, ConsistencyOptions):
        return {"ConsistencyOptions": {key: _encode(item) for key, item in vars(value).items()}}
    if hasattr(value, "encode_table"):
        return {"TableEncoder": {key: _encode(item) for key, item in value.get_params(deep=False).items()}}
    if not callable(value) and not isinstance(value, Learner):
        raise ValueError(f"{value!r} cannot be stored as JSON; use numbers, strings, lists and dicts in parameters.")
    return {"code": name}


def load(cls: type[Classifier], folder: Path, replaced: Mapping[str, Any]) -> Classifier:
    """Read a classifier; parameters in ``replaced`` override the stored ones."""
    manifest = read_manifest(folder)
    known = {*inspect.signature(cls).parameters, *TRAINING_NAMES}
    if unknown := sorted(replaced.keys() - known):
        raise TypeError(f"load got unknown parameters: {', '.join(unknown)}.")
    try:
        parameters = _read_parameters(manifest["parameters"], replaced, known, folder)
        files = manifest["files"]
        tensors = load_tensors(read_file(folder, files["weights"]))
        history = History.from_dict(json.loads(read_file(folder, files["history"])))
        if not isinstance(history.epochs, list) or not all(isinstance(record, dict) for record in history.epochs):
            raise ValueError("the history is not a list of epochs")
        encoder = _read_encoder(folder, files) if "encoder" in files else None
        result = _read_result(parameters, manifest, tensors, history, encoder)
        if "reference" in files:
            arrays = load_arrays(read_file(folder, files["reference"]))
            found = RowReference.from_arrays(arrays, math.prod(result.columns.row_shape))
            result = dataclasses.replace(result, reference=found)
        elif reason := manifest["fitted"].get("no_reference"):
            result = dataclasses.replace(result, reference=read_value(str, reason, "no_reference"))
        return cls(**parameters).set_fitted(result)
    except ModelFormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, SafetensorError) as error:
        reason = str(error).rstrip(".")
        raise ModelFormatError(f"the model in {folder} cannot be loaded ({reason}); save it again.") from error


def _read_encoder(folder: Path, files: Mapping[str, Any]) -> TableEncoder:
    """Read the encoder of tables."""
    from uulearn.tabular import TableEncoder

    return TableEncoder.from_bytes(read_file(folder, files["schema"]), read_file(folder, files["encoder"]))


def _read_result(
    parameters: dict[str, Any],
    manifest: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    history: History,
    encoder: TableEncoder | None,
) -> FitResult:
    """Read the stored result of the fit."""
    fitted = manifest["fitted"]
    resolved = fitted["resolved_params"]
    readable = isinstance(resolved, dict) and resolved.keys() <= {"model", *AUTO_PARAMETERS}
    if not readable or any(is_auto(value) for name, value in resolved.items() if name != "model"):
        raise ValueError(f"the resolved parameters are not readable: {resolved}")
    for used in (parameters, parameters | resolved):
        check_parameters(used)
    n_sets = 2 if parameters["set_priors"] is None else len(parameters["set_priors"])
    sizes = [read_value(tuple[int, ...], fitted[name], name) for name in ("set_sizes", "held_out_sizes")]
    if any(len(own) != n_sets for own in sizes):
        raise ValueError(f"it has the sizes {sizes[0]} and {sizes[1]} of {n_sets} sets")
    learner = _read_learner(parameters | resolved, str(manifest["learner"]["kind"]), sizes[0])
    row_shape = tuple(int(size) for size in fitted["row_shape"])
    names, rounds = fitted["feature_names"], fitted["self_training"]
    if names is not None and (not isinstance(names, list) or row_shape != (len(names),)):
        raise ValueError(f"it has {row_shape} features, but its feature names do not fit")
    columns = Columns(row_shape, None if names is None else np.array(names, dtype=object))
    if encoder is not None:
        if row_shape != (n_features := len(encoder.get_feature_names_out()),):
            raise ValueError(f"it has {row_shape} features, but its encoder has {n_features}")
        columns = Columns(row_shape, encoder.feature_names_in_, encoder)
    scaling = read_value(PlattScaling | None, fitted["scaling"], "scaling")
    if scaling and not 0 < scaling.prior < 1:
        raise ValueError(f"the calibration prior must be between 0 and 1, got {scaling.prior}")
    return FitResult(
        learner,
        restore_model(learner, ModelState(tensors, manifest["learner"]["config"]), row_shape),
        history,
        columns,
        sizes[0],
        sizes[1],
        int(fitted["seed"]),
        resolved,
        scaling,
        read_value(Evaluation | None, fitted["out_of_fold_evaluation"], "out_of_fold_evaluation"),
        None if rounds is None else tuple(read_value(Round, done, "self_training") for done in rounds),
    )


def _read_learner(parameters: Mapping[str, Any], kind: str, sizes: tuple[int, ...]) -> Learner:
    """Return the learner of this kind: a `NetworkLearner`, or the learner passed as ``model``."""
    learner = make_learner(resolve(parameters, sizes), device="cpu")
    if learner.kind != kind:
        raise ModelFormatError(
            f"the model needs a learner of kind {kind!r}, got {learner.kind!r}; pass the learner that trained it "
            "as model=…."
        )
    return learner


def _read_parameters(
    stored: dict[str, Any], replaced: Mapping[str, Any], known: set[str], folder: Path
) -> dict[str, Any]:
    if unknown := sorted(stored.keys() - known):
        raise ModelFormatError(f"{folder} has parameters that this version does not support: {', '.join(unknown)}.")
    parameters = dict(replaced)
    for name, value in stored.items():
        if name in replaced or ("training" in replaced and name.startswith(TRAINING_PREFIX)):
            continue
        missing: list[str] = []
        parameters[name] = _decode(value, missing)
        if missing:
            raise ModelFormatError(
                f"the model in {folder} was trained with {name}={missing[0]}, which is code and therefore not stored; "
                f"pass it again: UUClassifier.load({str(folder)!r}, {name}=...)."
            )
    options = {
        name.removeprefix(TRAINING_PREFIX): parameters.pop(name) for name in TRAINING_NAMES if name in parameters
    }
    if options:
        parameters["training"] = dataclasses.replace(parameters.get("training") or TrainingOptions(), **options)
    return {"training": None} | parameters


def _decode(value: Any, missing: list[str]) -> Any:
    """Decode a parameter stored by `_encode`; if its value is code, add its name to ``missing``."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind in ("tuple", "list"):
        items = [_decode(item, missing) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: _decode(item, missing) for key, item in content.items()}
    if kind == "ConsistencyOptions":
        return ConsistencyOptions(**{key: _decode(item, missing) for key, item in content.items()})
    if kind == "TableEncoder":
        from uulearn.tabular import TableEncoder

        return TableEncoder(**{key: _decode(item, missing) for key, item in content.items()})
    if kind == "torch.optim":
        found = getattr(torch.optim, content, None)
        if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
            raise ModelFormatError(f"torch.optim has no optimizer {content!r}; pass training__optimizer=... to load.")
        return found
    missing.append(str(content))
    return None
