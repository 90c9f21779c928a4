"""A classifier with its facts, which `uulearn fit` saves and `uulearn predict` loads.

`uulearn.UUClassifier.save` writes the directory, including the encoder of tables. `uulearn fit` adds the facts about
the model (``facts``) and, for images, their size (``schema``). ``README.md`` and ``config.toml`` are human-readable
documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from uulearn.app.facts import FitFacts
from uulearn.estimator import UUClassifier, model_directory, persistence
from uulearn.estimator.new_rows import RowCounter
from uulearn.exceptions import ModelFormatError
from uulearn.tabular.images import ImageSchema
from uulearn.tabular.matrices import encode_rows
from uulearn.tabular.schema import Schema, read_new_rows
from uulearn.tabular.unfamiliar import UnfamiliarCounts, count_unfamiliar
from uulearn.tabular.unreadable import UnreadableCounter

if TYPE_CHECKING:
    import pandas as pd

    from uulearn.tabular import TableEncoder


class ScoredRows(NamedTuple):
    """The score, the probability of the positive class and the predicted class of each row."""

    score: NDArray[np.float32]
    probability: NDArray[np.float64]
    predicted: NDArray[np.int64]


def score_matrix(classifier: UUClassifier, X: Any, counter: RowCounter | None = None) -> ScoredRows:
    """Score numeric rows, and add them to the counter."""
    scores = classifier.score_and_count(X, counter)
    return ScoredRows(scores, classifier.probabilities_from_scores(scores), (scores > 0).astype(np.int64))


@dataclass(frozen=True)
class TableModel:
    """A classifier for the rows of a table, or for image files."""

    classifier: UUClassifier
    facts: FitFacts | None = None
    """The content of the report; None if `uulearn.UUClassifier.save` wrote the model."""
    images: ImageSchema | None = None
    """How images are read; None for tables."""
    unfamiliar: UnfamiliarCounts = field(default_factory=Counter, compare=False)
    """Number of rows scored so far that have values unlike the training rows, by kind and column."""

    @property
    def encoder(self) -> TableEncoder | None:
        """The encoder of tables; None for images."""
        return cast("TableEncoder | None", self.classifier.encoder_)

    @property
    def schema(self) -> Schema | ImageSchema:
        """The columns of a table, or how images are read."""
        if self.images is not None:
            return self.images
        assert self.encoder is not None  # checked when the model is created
        return self.encoder.schema_

    @property
    def fit_facts(self) -> FitFacts:
        """The facts; raise `ModelFormatError` if there are none."""
        if self.facts is None:
            raise ModelFormatError(
                "this model was written by UUClassifier.save, so there are no facts to report; train it with uulearn "
                "fit, or print UUClassifier.load(...).summary()."
            )
        return self.facts

    def score(
        self,
        frame: pd.DataFrame,
        *,
        name: str = "the table",
        folder: Path = Path(),
        counter: RowCounter | None = None,
        unreadable: UnreadableCounter | None = None,
    ) -> ScoredRows:
        """Score the rows of a data frame returned by a reader of `uulearn.io.reading`.

        The columns can be in any order; additional columns are ignored. ``name`` is the name of the table in error
        messages, and ``folder`` is the base folder of relative image paths. The rows are added to the ``counter``.

        Cells that cannot be read are treated as missing values, see `uulearn.tabular.unreadable`. If the frame is a
        chunk of a table, pass ``unreadable``, to which they are added, and check it after the last chunk.
        """
        if not len(frame):
            return ScoredRows(np.empty(0, np.float32), np.empty(0), np.empty(0, np.int64))
        if self.encoder is None:
            return score_matrix(self.classifier, encode_rows(frame, self.schema, None, folder, name), counter)
        rows, counts = read_new_rows(frame, self.encoder.schema_, name=name)
        found = UnreadableCounter() if unreadable is None else unreadable
        found.add(counts)
        if unreadable is None:
            found.check()
            found.warn(name)
        self.unfamiliar.update(count_unfamiliar(rows, self.encoder))
        return score_matrix(self.classifier.with_encoder(None), self.encoder.encode_rows(rows), counter)

    def with_target_prior(self, target_prior: float | None) -> TableModel:
        """Return the model for a population with another class prior, or the same model if the prior is None."""
        if target_prior is None:
            return self
        return replace(self, classifier=self.classifier.with_target_prior(target_prior))

    def save(self, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
        """Write the model directory and the documents in ``beside``; replace an existing model atomically."""
        attached = {
            name: ("json", json.dumps(data.to_dict(), indent=1, ensure_ascii=False, allow_nan=False).encode())
            for name, data in (("facts", self.facts), ("schema", self.images))
            if data is not None
        }
        persistence.save(self.classifier, folder, attached, beside)

    @classmethod
    def load(cls, folder: Path) -> TableModel:
        """Read a model directory, without executing code from it; raise `ModelFormatError` if it is not for tables."""
        model = load_model(folder)
        if isinstance(model, UUClassifier):
            raise ModelFormatError(
                f"the model in {folder} has no schema, so it accepts numbers, not tables; load it with "
                "UUClassifier.load, or train it with uulearn fit."
            )
        return model


def load_model(folder: Path) -> TableModel | UUClassifier:
    """Load a model saved by `uulearn fit` or by `UUClassifier.save`; each file is read and hashed once."""
    attached = model_directory.read_attached(folder)
    try:
        facts = FitFacts.from_dict(json.loads(attached["facts"])) if "facts" in attached else None
        images = ImageSchema.from_dict(json.loads(attached["schema"])) if "schema" in attached else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"the schema in {folder} cannot be read ({error}); fit the model again.") from error
    classifier = UUClassifier.load(folder, device="auto")
    if facts is not None and images is None and classifier.encoder_ is None:
        raise ModelFormatError(f"{folder} does not contain a column encoder; fit the model again.")
    return classifier if images is None and classifier.encoder_ is None else TableModel(classifier, facts, images)
