"""Settings for fitting two files; they can be stored as TOML."""

from __future__ import annotations

import dataclasses
import filecmp
import inspect
import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from uulearn.defaults import AUTO, EVALUATION_FRACTION, TARGET_PRIOR
from uulearn.estimator import UUClassifier
from uulearn.storage import read_value
from uulearn.training import TrainingOptions

CLASSIFIER_TABLE = "classifier"
RESULT_COLUMNS = ("score", "probability", "class")
"""Columns that predict writes."""
SET_BY_FIT = (
    "set_priors", "target_prior", "random_state", "encoder", "progress", "training", "training__checkpoint_dir",
    "training__distributed",
)  # fmt: skip
"""Classifier parameters that are not settings, because `uulearn fit` chooses them."""
CLASSIFIER_PARAMETERS = {
    *inspect.signature(UUClassifier).parameters,
    *(f"training__{option.name}" for option in dataclasses.fields(TrainingOptions)),
} - set(SET_BY_FIT)
EXAMPLE = "uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --out model"


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit: files, priors, columns, and parameters of the classifier.

    ``classifier`` maps parameter names of `uulearn.UUClassifier` (including training options such as ``training__ema``)
    to values; all other parameters have their default values.
    """

    first: str
    second: str
    set_priors: tuple[float, float] | str
    target_prior: float = TARGET_PRIOR
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    sheet: str | None = None
    """Name of the sheet of .xlsx files."""
    images: str | None = None
    """Column of image paths, if the files are tables of images."""
    image_size: int | None = None
    hold_out: float = EVALUATION_FRACTION
    """Fraction of the rows held out to evaluate the model; unused if every row has an out-of-fold score."""
    allow_leakage: bool = False
    sensitivity: bool | None = None
    """Whether to train again with wrong priors to measure their effect; None means for at most as long as training."""
    seed: int = 0
    classifier: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.set_priors, str) and self.set_priors != AUTO:
            raise ValueError(f"set_priors must be two class priors or 'auto', got {self.set_priors!r}.")
        if not 0 < self.hold_out < 0.5:
            raise ValueError(f"hold_out must be above 0 and below 0.5, got {self.hold_out!r}; 0.1 holds out a tenth.")
        if self.seed < 0 or (self.image_size or 1) < 1:
            raise ValueError(
                f"seed must be at least 0 and image_size at least 1, got {self.seed} and {self.image_size or 1}."
            )
        for name in (*self.ids, self.images):
            if name in RESULT_COLUMNS:
                raise ValueError(f"predict writes a column named {name!r}; rename that column in the files.")
        for name in self.classifier:
            if name not in CLASSIFIER_PARAMETERS:
                raise ValueError(f"[{CLASSIFIER_TABLE}] {name} is not a parameter that can be set there; remove it.")

    @classmethod
    def merge(cls, stored: Mapping[str, Any], given: Mapping[str, Any]) -> FitSettings:
        """Merge settings from a configuration file and command-line options, which take precedence.

        Options have the names of settings or classifier parameters. Options with other names, and options that are None
        or empty, are ignored. The option ``time_budget`` sets ``seconds`` in the parameters of the model "auto", and
        ``weights`` sets the ``weights`` of a network of torchvision.
        """
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        values = {name: value for name, value in values.items() if value not in (None, ())}
        own = {name: value for name, value in values.items() if name in CLASSIFIER_PARAMETERS}
        if (seconds := given.get("time_budget")) is not None and not 0 < seconds < math.inf:
            raise ValueError(f"--time-budget must be a number of seconds above 0, got {seconds:g}.")
        of_model = {"seconds": seconds, "weights": given.get("weights")}
        if of_model := {name: value for name, value in of_model.items() if value is not None}:
            params = stored.get(CLASSIFIER_TABLE, {}).get("model_params")
            own["model_params"] = {**(params if isinstance(params, Mapping) else {}), **of_model}
        settings = {entry.name: values[entry.name] for entry in dataclasses.fields(cls) if entry.name in values}
        merged = {**stored, **settings, CLASSIFIER_TABLE: {**stored.get(CLASSIFIER_TABLE, {}), **own}}
        needed = {"first": "two files of rows", "second": "two files of rows", "set_priors": "--set-priors"}
        for name, what in needed.items():
            if name not in merged:
                raise ValueError(f"fit needs {what}; for example: {EXAMPLE}")
        return cls(**merged)

    def to_toml(self) -> str:
        """Return all settings as TOML."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        tables = [values, values.pop(CLASSIFIER_TABLE)]
        plain, own = ([f"{name} = {_toml(value)}" for name, value in t.items() if value is not None] for t in tables)
        header = "# All settings of this model; `uulearn fit --config FILE` repeats the fit."
        return "\n".join([header, *plain, "", f"[{CLASSIFIER_TABLE}]", *own]) + "\n"


def check_different_files(first: str, second: str) -> None:
    """Raise an error for the same file or a copy of it, because identical sets say nothing about the classes."""
    if first == second or (os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)):
        raise ValueError(f"{first} and {second} are the same file; pass two different files, one for each set.")
    if os.path.isfile(first) and os.path.isfile(second) and filecmp.cmp(first, second, shallow=False):
        raise ValueError(f"{first} and {second} have the same content; pass two different files, one for each set.")


def read_settings(path: Path) -> dict[str, Any]:
    """Read a TOML file and check the names and types of the settings; `FitSettings` checks the values."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; pass a TOML file such as the config.toml of a model.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read as TOML ({error}); fix the file.") from error
    kinds = get_type_hints(FitSettings) | {"set_priors": tuple[float, float]}
    for name in data:
        if name not in kinds:
            raise ValueError(
                f"{path} sets {name!r}, which is not a setting of fit; remove it, or move it to [{CLASSIFIER_TABLE}]."
            )
    return {
        name: value if (name, value) == ("set_priors", AUTO) else read_value(kinds[name], value, f"{path}: {name}")
        for name, value in data.items()
    }


def _toml(value: Any) -> str:
    """Format a value as TOML; strings, finite numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))  # TOML has inf and nan, JSON does not
    if isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"{value!r} cannot be written as TOML; use numbers, strings and lists.")
