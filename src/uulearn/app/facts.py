"""Facts about a fitted model, estimated without labels: frozen dataclasses, stored as JSON in the model directory.

``uulearn fit`` prints them in its last lines, and the model card and the report show them. `FitFacts.from_dict` reads
the output of `FitFacts.to_dict` and raises an error if the structure differs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from uulearn.estimator.learners import ComparedModel
from uulearn.metrics import Estimate, Evaluation
from uulearn.storage import read_value

Interval = tuple[float, float]


@dataclass(frozen=True)
class SetFacts:
    """One of the two sets: the name of its file, its number of rows and its class prior."""

    name: str
    rows: int
    prior: float


@dataclass(frozen=True)
class ColumnFacts:
    """A column of the files; ``missing`` is the fraction of missing values in each set."""

    name: str
    kind: str | None
    used: bool
    reason: str | None = None
    """Reason why the column is not used."""
    missing: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class RowUse:
    """Number of rows of each set used for training, early stopping and evaluation.

    With out-of-fold evaluation, every row is used for all three purposes.
    """

    training: tuple[int, int]
    early_stopping: tuple[int, int]
    evaluation: tuple[int, int]


@dataclass(frozen=True)
class TargetFacts:
    """Estimated accuracy at another target prior, and the score threshold for this prior."""

    target_prior: float
    threshold: float
    accuracy: Estimate


@dataclass(frozen=True)
class ScoreHistogram:
    """Histogram of the scores of each set, with k + 1 bin edges and k counts per set."""

    edges: tuple[float, ...]
    counts: tuple[tuple[int, ...], tuple[int, ...]]

    def __post_init__(self) -> None:
        if len(self.edges) < 2 or any(len(counts) != len(self.edges) - 1 for counts in self.counts):
            sizes = " and ".join(str(len(counts)) for counts in self.counts)
            raise ValueError(
                f"a histogram needs k + 1 edges and k counts per set, got {len(self.edges)} edges and {sizes} counts"
            )
        if not all(left < right for left, right in pairwise(self.edges)):
            raise ValueError("the edges of a histogram must increase")


@dataclass(frozen=True)
class ColumnImportance:
    """Estimated accuracy lost when a column is shuffled."""

    column: str
    drop: float
    standard_error: float
    direction: float | None = None
    """Correlation of the column with the score, from −1 to 1; None for categories and text."""
    highest: str | None = None
    """The value of a category with the highest mean score."""


@dataclass(frozen=True)
class PriorError:
    """Estimated accuracy of a model trained with one prior changed by ``error``; ``parameter`` is θ, θ′ or π."""

    parameter: str
    error: float
    accuracy: Estimate
    differing: float
    """Fraction of the rows that this model classifies differently from the baseline."""


@dataclass(frozen=True)
class SensitivityFacts:
    """The effect of wrong priors on the estimated accuracy, or the reason why it was not measured."""

    rows: tuple[PriorError, ...] = ()
    conclusion: str | None = None
    skipped: str | None = None
    budget_note: str | None = None
    """What was left out because of the time budget, and how to measure it."""


@dataclass(frozen=True)
class RaisedWarning:
    """A warning raised during the fit: the name of its class and its message."""

    category: str
    message: str


@dataclass(frozen=True)
class FitFacts:
    """All stored facts about a model fitted to two files, except the training history."""

    created: str
    """Creation time in UTC, in ISO 8601 format."""
    versions: Mapping[str, str]
    seconds: float
    device: str
    command: str
    sets: tuple[SetFacts, SetFacts]
    columns: tuple[ColumnFacts, ...]
    n_features: int
    target_prior: float
    prior_intervals: tuple[Interval, Interval] | None
    """Confidence intervals of the set priors if they were estimated; None if you passed them."""
    row_use: RowUse
    out_of_fold: bool
    """Whether all rows were evaluated, each by a model not trained on it, instead of held-out rows only."""
    evaluation: Evaluation
    set_auc: Estimate
    """Probability that a row of the set with the higher prior has a higher score than a row of the other set."""
    targets: tuple[TargetFacts, ...]
    histogram: ScoreHistogram
    importance: tuple[ColumnImportance, ...] | None
    """None for images."""
    sensitivity: SensitivityFacts
    notes: tuple[str, ...]
    warnings: tuple[RaisedWarning, ...]
    configuration: Mapping[str, Any]
    commands: Mapping[str, str] = field(default_factory=dict)
    """Commands to run next: ``predict``, ``report``, ``evaluate``, ``repeat``."""
    comparison: tuple[ComparedModel, ...] | None = None
    """The models that were compared, for ``model="auto"``."""
    error_scale: float = 1.0
    """Factor by which the standard errors of ``evaluation`` were multiplied; see `OutOfFoldCorrection`."""

    @property
    def set_priors(self) -> tuple[float, float]:
        """Class priors of set 0 and set 1."""
        return self.sets[0].prior, self.sets[1].prior

    @property
    def set_names(self) -> tuple[str, str]:
        """The names of the two files, or "set 0" and "set 1" if the names are equal."""
        first, second = self.sets
        return (first.name, second.name) if first.name != second.name else ("set 0", "set 1")

    @property
    def sets_by_prior(self) -> tuple[SetFacts, SetFacts]:
        """Both sets, with the higher class prior first."""
        first, second = self.sets
        return (first, second) if first.prior > second.prior else (second, first)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as data that can be stored as JSON."""
        return dict(to_json(dataclasses.asdict(self)))

    @classmethod
    def from_dict(cls, data: Any) -> FitFacts:
        """Create facts from the output of `to_dict`; raise ValueError if ``data`` has a different structure."""
        try:
            facts: FitFacts = read_value(cls, data, "facts")
        except ValueError as error:
            raise ValueError(f"{error}; train the model again with uulearn fit.") from None
        return facts


def to_json(data: Any) -> Any:
    """Convert data to JSON types: lists for tuples, None for NaN and infinities, Python numbers for NumPy numbers."""
    if isinstance(data, Mapping):
        return {str(key): to_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [to_json(value) for value in data]
    if isinstance(data, np.generic):
        data = data.item()
    return None if isinstance(data, float) and not math.isfinite(data) else data
