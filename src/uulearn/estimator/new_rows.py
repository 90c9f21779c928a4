"""Compare new rows with the two sets that a classifier was trained on, see `uulearn.metrics.new_rows`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn.data import Rows, TwoSets
from uulearn.data.rows import PickedRows
from uulearn.metrics.new_rows import MIN_ROWS, RowCheck, RowCounts, RowReference

if TYPE_CHECKING:
    from uulearn.estimator.trained import TrainedClassifier

MAX_COLUMNS = 1_024  # maximum number of columns that are compared; of wider rows, evenly spaced columns
REFERENCE_ROWS = 10_000  # maximum number of rows of each set that are compared; of larger sets, evenly spaced rows
REFERENCE_VALUES = 2**23  # maximum number of values of each set
COUNTED_VALUES = 2**21  # number of values that are read at a time
SCORED_ROWS = 20_000  # maximum number of new rows that are scored by each model of an ensemble
SHOWN_COLUMNS = 5
MIN_SHOWN = 3.0  # smallest difference of a column that is shown, in standard errors

NOT_COMPUTED = "they were not computed"
NO_ROWS = "no rows of the streams were held out; pass validation_fraction"
OLD_VERSION = "it was saved by an older version; fit it again"
TEXT = "scores and text columns were not compared, because the encoder of text is fitted to the rows of the two sets"
NO_SCORES = "scores were not compared, because the model has no scores of rows on which it was not trained"


def make_reference(data: TwoSets | None, scores: tuple[Any, Any] | None) -> RowReference | str:
    """Return the statistics of two sets and of scores of their held-out rows, or the reason why there are none."""
    if data is None:
        return NO_ROWS
    if (fewest := min(data.sizes)) < MIN_ROWS:
        return f"one of its sets has {fewest} rows; at least {MIN_ROWS} are needed"
    n_columns = math.prod(data.row_shape)
    columns = np.unique(np.linspace(0, n_columns - 1, min(n_columns, MAX_COLUMNS)).astype(np.int64))
    most = max(MIN_ROWS, min(REFERENCE_ROWS, REFERENCE_VALUES // len(columns)))
    samples = []
    for which, size in enumerate(data.sizes):
        chosen = torch.linspace(0, size - 1, min(size, most), dtype=torch.float64).long()
        rows = PickedRows(data.rows_of(which), chosen)
        samples.append(np.concatenate([chunk[:, columns] for chunk in _chunks(rows)]))
    reference = RowReference.from_rows(samples[0], samples[1], columns)
    usable = scores is not None and min(map(len, scores)) >= MIN_ROWS
    return reference.with_scores(*scores) if usable and scores is not None else reference


def _chunks(rows: Rows) -> Iterator[NDArray[np.float32]]:
    """Yield the rows as float32 arrays of shape (rows, columns)."""
    step = max(1, COUNTED_VALUES // max(1, math.prod(rows.row_shape)))
    for start in range(0, rows.n_rows, step):
        index = torch.arange(start, min(start + step, rows.n_rows), device=rows.device)
        out = torch.empty((len(index), *rows.row_shape))
        rows.take(index, out)
        yield out.flatten(1).numpy()


class RowCounter:
    """Counts new rows chunk by chunk, and compares them with the two sets of a classifier.

    >>> from uulearn import UUClassifier
    >>> rng = np.random.default_rng(0)
    >>> X0, X1 = (rng.normal(rng.random((500, 1)) < prior, 1, (500, 4)) for prior in (0.8, 0.2))
    >>> clf = UUClassifier((0.8, 0.2), model="linear", epochs=5, random_state=0, progress=False).fit_sets(X0, X1)
    >>> counter = RowCounter(clf)
    >>> scores = [clf.score_and_count(chunk, counter) for chunk in (X0[:100] + 1, X0[100:200] + 1)]  # rows have moved
    >>> counter.check().alarm
    True
    """

    def __init__(self, classifier: TrainedClassifier) -> None:
        self.classifier, self.reference = classifier, classifier.row_reference_
        self.counts = RowCounts(0, np.zeros((), dtype=np.int64), np.zeros((), dtype=np.int64))
        trained = classifier.trained_
        n_models = trained.n_models
        self._models = [trained] if n_models is None else [trained.submodel(number) for number in range(n_models)]
        self._excluded = self._text_features()

    def add(self, rows: Rows, outputs: Tensor | None = None) -> None:
        """Count encoded rows; ``outputs`` are their scores by the whole model, if they are already computed."""
        if isinstance(self.reference, str):
            self.add_counts(dataclasses.replace(self.counts, rows=rows.n_rows))
            return
        scores: list[Tensor] = []
        unscored = min(rows.n_rows, SCORED_ROWS - self.counts.rows)
        if self.reference.has_scores and not self._excluded and unscored > 0:
            if outputs is not None and self.classifier.trained_.n_models is None:
                scores = [outputs[:unscored]]
            else:
                first = rows if unscored == rows.n_rows else PickedRows(rows, torch.arange(unscored))
                scores = [model.score(first) for model in self._models]
        for number, chunk in enumerate(_chunks(rows)):
            self.add_counts(self.reference.count(chunk, () if number else scores))

    def add_counts(self, counts: RowCounts) -> None:
        """Add counts of other rows, for example from another process."""
        self.counts += counts

    def check(self) -> RowCheck:
        """Compare the counted rows with the two sets."""
        priors, counts, reference = self.classifier._known_priors(), self.counts, self.reference
        if isinstance(reference, str):
            return RowCheck(counts.rows, note=f"the model has no statistics of its sets, because {reference}")
        if counts.rows < MIN_ROWS:
            return RowCheck(counts.rows, note=f"at least {MIN_ROWS} rows are needed")
        note = TEXT if self._excluded else None if reference.has_scores else NO_SCORES
        p_inputs, differences = reference.compare_inputs(counts, priors, self._excluded)
        p_scores = None
        if counts.scores.sum():
            p_scores = reference.compare_scores(counts.scores, len(self._models), priors)
        names: dict[str, float] = {}
        for column, z in differences:
            if abs(z) >= MIN_SHOWN and len(names) < SHOWN_COLUMNS:
                names.setdefault(self._name(column), z)
        return RowCheck(counts.rows, p_scores, p_inputs, tuple(names.items()), note)

    def _text_features(self) -> list[int]:
        """Return the features of text columns: the encoder saw these rows, so their values differ from new rows."""
        encoder: Any = self.classifier.encoder_
        schema = getattr(encoder, "schema_", None)
        if schema is None:
            return []
        groups = encoder.feature_groups()
        return [feature for column in schema.of_kind("text") for feature in groups[column.name]]

    def _name(self, feature: int) -> str:
        encoder: Any = self.classifier.encoder_
        if encoder is not None and hasattr(encoder, "feature_groups"):
            return next(str(name) for name, own in encoder.feature_groups().items() if feature in own)
        names, shape = getattr(self.classifier, "feature_names_in_", None), self.classifier.row_shape_
        if names is not None and len(names) == math.prod(shape):
            return str(names[feature])
        place = np.unravel_index(feature, shape)
        return f"column {feature}" if len(shape) == 1 else f"position {tuple(map(int, place))}"
