"""A classifier with the pipeline in front of it: what `uulearn fit` writes and `uulearn predict` reads.

The directory is that of `uulearn.UUClassifier.save` with three files attached: the columns (``schema``), the
arrays of the encoder (``encoder``, safetensors) and what is known about the model (``facts``). Beside them
lie, for people, ``README.md`` and ``config.toml``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from uulearn.estimator import UUClassifier, persistence
from uulearn.exceptions import ModelFormatError
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.matrices import encode_rows
from uulearn.tabular.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

ATTACHED = ("facts", "schema")


class Scored(NamedTuple):
    """Score, probability of the positive class and class of each row."""

    score: NDArray[np.float32]
    probability: NDArray[np.float64]
    predicted: NDArray[np.int64]


def score_matrix(classifier: UUClassifier, X: NDArray[Any]) -> Scored:
    """Score rows of numbers, with one forward pass if the classifier is calibrated: then scores are log-odds."""
    scores = classifier.decision_function(X)
    calibrated = classifier.scaling_ is not None
    probability = expit(scores.astype(np.float64)) if calibrated else classifier.predict_proba(X)[:, 1]
    return Scored(scores, probability, (scores > 0).astype(np.int64))


@dataclass(frozen=True)
class TableModel:
    """Columns of a table to classes."""

    schema: Schema | ImageSchema
    encoder: TableEncoder | None
    """None for images."""
    classifier: UUClassifier
    facts: dict[str, Any]

    def score(self, frame: pd.DataFrame, *, name: str = "the table", folder: Path = Path()) -> Scored:
        """Score the rows of a frame as a reader of `uulearn.io.reading` gives them.

        Parameters
        ----------
        frame : DataFrame
            Rows with the columns of the schema, in any order; other columns are ignored.
        name : str
            What to call it in errors.
        folder : Path
            Where relative paths of images begin.
        """
        if not len(frame):
            return Scored(np.empty(0, np.float32), np.empty(0), np.empty(0, np.int64))
        X = encode_rows(frame, self.schema, self.encoder, folder, name)
        return score_matrix(self.classifier, X)

    def with_target_prior(self, target_prior: float) -> TableModel:
        """The same model where another share is positive."""
        return TableModel(self.schema, self.encoder, self.classifier.with_target_prior(target_prior), self.facts)

    def save(self, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Write the directory, with files for people beside the model's; one that is there is replaced in one step."""
        attached = {"schema": ("json", _json(self.schema.to_dict())), "facts": ("json", _json(self.facts))}
        if self.encoder is not None:
            attached["encoder"] = ("safetensors", self.encoder.to_bytes())
        persistence.save(self.classifier, folder, attached, beside)

    @classmethod
    def load(cls, folder: Path) -> TableModel:
        """Read a directory; nothing in it is run."""
        attached = persistence.read_attached(folder)
        if lacking := sorted(set(ATTACHED) - attached.keys()):
            raise ModelFormatError(
                f"{folder} holds a model without {', '.join(lacking)}, so it takes numbers, not tables: load it with "
                "UUClassifier.load, or train it with uulearn fit."
            )
        try:
            columns, facts = json.loads(attached["schema"]), json.loads(attached["facts"])
            images = "images" in columns
            schema = ImageSchema.from_dict(columns) if images else Schema.from_dict(columns)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelFormatError(f"{folder} describes no columns that can be read ({error}); fit again.") from error
        if isinstance(schema, Schema) and "encoder" not in attached:
            raise ModelFormatError(f"{folder} lacks the encoder of its columns; train the model again.")
        encoder = TableEncoder.from_bytes(schema, attached["encoder"]) if isinstance(schema, Schema) else None
        return cls(schema, encoder, UUClassifier.load(folder, device="auto"), facts)


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode()
