"""A classifier with its column encoder, which `uulearn fit` saves and `uulearn predict` loads.

`uulearn.UUClassifier.save` writes the directory, with three additional files: the columns (``schema``), the arrays of
the encoder (``encoder``, safetensors) and the facts about the model (``facts``). ``README.md`` and ``config.toml`` are
human-readable documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uulearn.app.facts import FitFacts
from uulearn.estimator import UUClassifier, model_directory, persistence
from uulearn.exceptions import ModelFormatError
from uulearn.tabular.encoder import TableEncoder
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.matrices import encode_rows
from uulearn.tabular.schema import Schema, apply_schema
from uulearn.tabular.unfamiliar import UnfamiliarCounts, count_unfamiliar

if TYPE_CHECKING:
    import pandas as pd


class ScoredRows(NamedTuple):
    """The score, the probability of the positive class and the predicted class of each row."""

    score: NDArray[np.float32]
    probability: NDArray[np.float64]
    predicted: NDArray[np.int64]


def score_matrix(classifier: UUClassifier, X: Any) -> ScoredRows:
    """Score numeric rows with one forward pass."""
    scores = classifier.decision_function(X)
    return ScoredRows(scores, classifier.probabilities_from_scores(scores), (scores > 0).astype(np.int64))


@dataclass(frozen=True)
class TableModel:
    """A classifier for the rows of a table, or for image files."""

    schema: Schema | ImageSchema
    encoder: TableEncoder | None
    """None for images."""
    classifier: UUClassifier
    facts: FitFacts
    unfamiliar: UnfamiliarCounts = field(default_factory=Counter, compare=False)
    """Number of rows scored so far that have values unlike the training rows, by kind and column."""

    def score(self, frame: pd.DataFrame, *, name: str = "the table", folder: Path = Path()) -> ScoredRows:
        """Score the rows of a data frame returned by a reader of `uulearn.io.reading`.

        The columns can be in any order; additional columns are ignored. ``name`` is the name of the table in error
        messages, and ``folder`` is the base folder of relative image paths.
        """
        if not len(frame):
            return ScoredRows(np.empty(0, np.float32), np.empty(0), np.empty(0, np.int64))
        if isinstance(self.schema, ImageSchema) or self.encoder is None:
            return score_matrix(self.classifier, encode_rows(frame, self.schema, self.encoder, folder, name))
        rows = apply_schema(frame, self.schema, name=name)
        self.unfamiliar.update(count_unfamiliar(rows, self.encoder))
        return score_matrix(self.classifier, self.encoder.transform(rows))

    def with_target_prior(self, target_prior: float | None) -> TableModel:
        """Return the model for a population with another class prior, or the same model if the prior is None."""
        if target_prior is None:
            return self
        return replace(self, classifier=self.classifier.with_target_prior(target_prior))

    def save(self, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Write the model directory and the documents in ``beside``; replace an existing model atomically."""
        stored = {"facts": self.facts.to_dict(), "schema": self.schema.to_dict()}
        attached = {
            name: ("json", json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False).encode())
            for name, data in stored.items()
        }
        if self.encoder is not None:
            attached["encoder"] = ("safetensors", self.encoder.to_bytes())
        persistence.save(self.classifier, folder, attached, beside)

    @classmethod
    def load(cls, folder: Path) -> TableModel:
        """Read a model directory, without executing code from it."""
        return cls.from_files(folder, model_directory.read_attached(folder))

    @classmethod
    def from_files(cls, folder: Path, attached: Mapping[str, bytes]) -> TableModel:
        """Create a model from the attached files of its directory, which have already been read."""
        if missing := sorted({"facts", "schema"} - attached.keys()):
            raise ModelFormatError(
                f"the model in {folder} has no {', '.join(missing)}, so it accepts numbers, not tables; load it with "
                "UUClassifier.load, or train it with uulearn fit."
            )
        try:
            columns, facts = json.loads(attached["schema"]), FitFacts.from_dict(json.loads(attached["facts"]))
            schema = ImageSchema.from_dict(columns) if "images" in columns else Schema.from_dict(columns)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelFormatError(f"the schema in {folder} cannot be read ({error}); fit the model again.") from error
        if isinstance(schema, Schema) and "encoder" not in attached:
            raise ModelFormatError(f"{folder} does not contain a column encoder; fit the model again.")
        encoder = TableEncoder.from_bytes(schema, attached["encoder"]) if isinstance(schema, Schema) else None
        return cls(schema, encoder, UUClassifier.load(folder, device="auto"), facts)


def load_model(folder: Path) -> TableModel | UUClassifier:
    """Load a model saved by `uulearn fit` or by `UUClassifier.save`; each file is read and hashed once."""
    attached = model_directory.read_attached(folder)
    return TableModel.from_files(folder, attached) if attached else UUClassifier.load(folder)
