"""The settings of a fit of two files, which a TOML file can store."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uulearn.defaults import AUTO, EVALUATION_FRACTION
from uulearn.estimator import UUClassifier

CLASSIFIER_TABLE = "classifier"
RESULTS = ("score", "probability", "class")
"""Columns that predict writes."""
SET_HERE = (
    "set_priors", "target_prior", "random_state", "training", "training__checkpoint_dir", "training__distributed",
)  # fmt: skip
"""Parameters of the classifier that the fit sets itself."""


@dataclass(frozen=True)
class FitSettings:
    """Files, priors, columns, and parameters of the classifier.

    ``classifier`` maps parameter names of `uulearn.UUClassifier` to values, training options as ``training__ema``; all
    others have their defaults.
    """

    first: str
    second: str
    set_priors: tuple[float, float] | str
    target_prior: float = 0.5
    drop: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    sheet: str | None = None
    """Name of the sheet of .xlsx files."""
    images: str | None = None
    """Column of image paths, if the files are tables of images."""
    image_size: int | None = None
    hold_out: float = EVALUATION_FRACTION
    """Fraction of the rows that evaluates the model; all rows do if every row has an out-of-fold score."""
    allow_leakage: bool = False
    sensitivity: bool | None = None
    """Whether to train again with wrong priors to measure their effect; None does so if training is fast."""
    seed: int = 0
    classifier: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.set_priors, str) and self.set_priors != AUTO:
            raise ValueError(f"set_priors must be two class priors or 'auto', got {self.set_priors!r}.")
        if not 0 < self.hold_out < 0.5:
            raise ValueError(f"hold_out must be above 0 and below 0.5, got {self.hold_out!r}; 0.1 holds out a tenth.")
        for name in (*self.ids, self.images):
            if name in RESULTS:
                raise ValueError(f"predict writes a column {name!r} itself; rename that column of the files.")
        for name in self.classifier:
            if name in SET_HERE or name not in UUClassifier(None).get_params(deep=True):
                raise ValueError(f"[{CLASSIFIER_TABLE}] {name} is not a parameter that can be set there; remove it.")

    @classmethod
    def merge(cls, stored: Mapping[str, Any], given: Mapping[str, Any]) -> FitSettings:
        """Settings of a configuration file and of the command line, which takes precedence.

        None and empty tuples in ``given`` mean "not given".
        """
        merged = {**stored, **{name: value for name, value in given.items() if value not in (None, ())}}
        merged[CLASSIFIER_TABLE] = {**stored.get(CLASSIFIER_TABLE, {}), **given.get(CLASSIFIER_TABLE, {})}
        for names, what in ((("first", "second"), "two files of rows"), (("set_priors",), "--set-priors")):
            if any(name not in merged for name in names):
                raise ValueError(
                    f"fit needs {what}; for example: uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 "
                    "--out model"
                )
        return cls(**merged)

    def to_toml(self) -> str:
        """All settings as TOML."""
        lines = ["# All settings of this model; `uulearn fit --config FILE` repeats the fit."]
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.name != CLASSIFIER_TABLE and value is not None:
                lines.append(f"{entry.name} = {_toml(value)}")
        lines += ["", f"[{CLASSIFIER_TABLE}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in self.classifier.items() if value is not None]
        return "\n".join(lines) + "\n"


def read_settings(path: Path) -> dict[str, Any]:
    """The values of a TOML file, with checked names and types; `FitSettings` checks the values."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist; pass a TOML file such as the config.toml of a model.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path} cannot be read as TOML ({error}); fix the file.") from error
    for name, value in data.items():
        if name not in _EXPECTED:
            raise ValueError(
                f"{path} sets {name!r}, which is not a setting of fit; remove it, or move it to [{CLASSIFIER_TABLE}]."
            )
        is_valid, expected = _EXPECTED[name]
        if not is_valid(value):
            raise ValueError(f"{path}: {name} must be {expected}, got {value!r}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_pair_or_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)))


_TEXT = (lambda value: isinstance(value, str), "a string")
_NUMBER = (_is_number, "a number")
_COUNT = (_is_count, "an integer of at least 0")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_COLUMNS = (_is_list_of_text, "a list of column names")
_EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "first": _TEXT, "second": _TEXT, "images": _TEXT, "drop": _COLUMNS, "ids": _COLUMNS, "only": _COLUMNS,
    "hold_out": _NUMBER, "target_prior": _NUMBER, "seed": _COUNT, "image_size": _COUNT,
    "allow_leakage": _FLAG, "sensitivity": _FLAG, "set_priors": (_is_pair_or_text, "two class priors or 'auto'"),
    CLASSIFIER_TABLE: (lambda value: isinstance(value, dict), "a table"),
}  # fmt: skip
"""Type check of each setting in a TOML file, and its description in errors."""


def _toml(value: Any) -> str:
    """A value as TOML; strings, numbers and lists are written as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool | int | float | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ValueError(f"{value!r} cannot be written as TOML; use numbers, strings and lists.")
