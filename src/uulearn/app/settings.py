"""Everything that a fit of two files depends on, as one TOML file can hold it."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uulearn.defaults import AUTO, EVALUATION_FRACTION
from uulearn.estimator import UUClassifier

OWN_TABLE = "classifier"
RESULTS = ("score", "probability", "class")
"""Columns that predict writes."""
SET_HERE = (
    "set_priors", "target_prior", "random_state", "training", "training__checkpoint_dir", "training__distributed",
)  # fmt: skip
"""Parameters of the classifier that the fit sets itself."""


@dataclass(frozen=True)
class FitSettings:
    """Files, priors, columns, and what the classifier is told.

    ``classifier`` holds parameters of `uulearn.UUClassifier` by name, training options as ``training__ema``.
    """

    first: str
    second: str
    set_priors: tuple[float, float] | str
    target_prior: float = 0.5
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    images: str | None = None
    """The column of image paths, where the files are tables of such."""
    image_size: int | None = None
    hold_out: float = EVALUATION_FRACTION
    """Fraction of the rows that evaluates the model; all rows do if every row has an out-of-fold score."""
    allow_leakage: bool = False
    sensitivity: bool | None = None
    """Train again with priors altered, to see what they matter; None where that is quick."""
    seed: int = 0
    classifier: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.set_priors, str) and self.set_priors != AUTO:
            raise ValueError(f"set_priors must be two shares or 'auto', got {self.set_priors!r}.")
        if not 0 < self.hold_out < 0.5:
            raise ValueError(f"hold_out must be above 0 and below 0.5, got {self.hold_out!r}; 0.1 holds a tenth out.")
        for name in (*self.ids, self.images):
            if name in RESULTS:
                raise ValueError(f"the column {name!r} has the name of one that predict writes; call it otherwise.")
        for name in self.classifier:
            if name in SET_HERE or name not in UUClassifier(None).get_params(deep=True):
                raise ValueError(
                    f"[{OWN_TABLE}] {name} is not a parameter that can be set there; remove or correct it."
                )

    def to_toml(self) -> str:
        """As TOML, every value written out."""
        lines = ["# Everything this model was fitted with; `uulearn fit --config FILE` repeats it."]
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.name != OWN_TABLE and value is not None:
                lines.append(f"{entry.name} = {_toml(value)}")
        lines += ["", f"[{OWN_TABLE}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in self.classifier.items() if value is not None]
        return "\n".join(lines) + "\n"


def read_settings(path: Path) -> dict[str, Any]:
    """The values of a TOML file, checked for names and kinds; `FitSettings` checks the rest."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there; pass a TOML file such as the config.toml of a model.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read as TOML ({error}); fix that place.") from error
    kinds = {entry.name: entry for entry in dataclasses.fields(FitSettings)}
    for name, value in data.items():
        if name not in kinds:
            raise ValueError(f"{path} sets {name!r}, which fit does not know; remove it or put it under [{OWN_TABLE}].")
        if name in ("drop", "ids", "only") and not _all(value, str):
            raise ValueError(f"{path}: {name} must be a list of column names, got {value!r}.")
        if name in ("first", "second", "images") and not isinstance(value, str):
            raise ValueError(f"{path}: {name} must be a name in quotes, got {value!r}.")
        if name == "set_priors" and not (isinstance(value, str) or (_all(value, int | float) and len(value) == 2)):
            raise ValueError(f"{path}: set_priors must be two shares or 'auto', got {value!r}.")
        if name in ("hold_out", "target_prior") and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{path}: {name} must be a number, got {value!r}.")
        if name in ("seed", "image_size") and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{path}: {name} must be a whole number of at least 0, got {value!r}.")
        if name in ("allow_leakage", "sensitivity") and not isinstance(value, bool):
            raise ValueError(f"{path}: {name} must be true or false, got {value!r}.")
        if name == OWN_TABLE and not isinstance(value, dict):
            raise ValueError(f"{path}: [{OWN_TABLE}] must be a table, got {value!r}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _all(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)


def _toml(value: Any) -> str:
    """A value as TOML; JSON's strings, numbers and lists are TOML's too."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(key))} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"{value!r} cannot be written as TOML; use numbers, words and lists.")
