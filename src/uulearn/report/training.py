"""Convert the training history to curves for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from uulearn.app.formatting import plural
from uulearn.training.history import History

Values = tuple[float | None, ...]

CURVES = (
    "positive", "negative", "unbiased", "objective", "validation_positive", "validation_negative",
    "validation_unbiased", "validation_zero_one", "test_accuracy",
)  # fmt: skip
LARGEST_VALUE = 1e100
"""Larger values are treated as missing, because an axis cannot show them."""
DAMAGED, FIX = "the training history is damaged", "train the model again with uulearn fit"


@dataclass(frozen=True)
class TrainingCurves:
    """Recorded values per epoch; ``values`` contains only curves with at least one finite value.

    >>> curves = TrainingCurves.from_history(History([{"epoch": 1, "unbiased": 0.2}, {"epoch": 2, "unbiased": -0.1}]))
    >>> curves.first_negative("unbiased"), curves["positive"]
    (2, (None, None))
    """

    epochs: tuple[int, ...]
    values: Mapping[str, Values]
    best_epoch: int | None
    """Best epoch of a single model, or of all models of an ensemble if it is the same."""
    ensemble_epochs: tuple[int | None, ...]
    """Best epoch of each model of an ensemble; empty for a single model."""
    unit: str = "epoch"
    """What an epoch is called: "epoch", or "tree" for boosting, which adds one tree per epoch."""

    @classmethod
    def from_history(cls, history: History, unit: str = "epoch") -> TrainingCurves:
        """Return the curves of a history; raise ValueError if the history is damaged."""
        records = history.epochs if isinstance(history.epochs, list) else [None]
        epochs: tuple[Any, ...] = tuple(r.get("epoch") if isinstance(r, dict) else None for r in records)
        increasing = all(type(epoch) is int and 0 < epoch < LARGEST_VALUE for epoch in epochs)
        if not increasing or list(epochs) != sorted(set(epochs)):
            raise ValueError(f"{DAMAGED}: the epochs must be increasing whole numbers; {FIX}.")
        if not isinstance(history.stop_reason, str | None):
            raise ValueError(f"{DAMAGED}: stop_reason must be a string, got {history.stop_reason!r}; {FIX}.")
        best = [run.best_epoch for run in (history, *history.models) if run.best_epoch is not None]
        values = {name: tuple(_finite(record.get(name), name) for record in history) for name in CURVES}
        return cls(
            epochs,
            {name: curve for name, curve in values.items() if any(value is not None for value in curve)},
            best[0] if best and best[0] in epochs and best.count(best[0]) == len(best) else None,
            tuple(model.best_epoch for model in history.models),
            unit,
        )

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, name: str) -> Values:
        return self.values.get(name, (None,) * len(self))

    def at(self, epoch: int) -> str:
        """Return the name of an epoch, such as "epoch 5" or "5 trees"."""
        return f"epoch {epoch}" if self.unit == "epoch" else plural(epoch, self.unit)

    def when(self, epoch: int) -> str:
        """Return the time of an epoch, such as "in epoch 5" or "after 5 trees"."""
        return f"{self.preposition} {self.at(epoch)}"

    @property
    def preposition(self) -> str:
        """The word before an epoch or a number of trees."""
        return "in" if self.unit == "epoch" else "after"

    def first_negative(self, name: str) -> int | None:
        """Return the first epoch with a negative value, or None if no value is negative."""
        pairs = zip(self.epochs, self[name], strict=True)
        return next((epoch for epoch, value in pairs if value is not None and value < 0), None)

    def count_negative(self, name: str) -> int:
        """Return the number of epochs with a negative value."""
        return sum(value is not None and value < 0 for value in self[name])

    @property
    def has_held_out(self) -> bool:
        """Whether held-out rows were evaluated during training."""
        return any(name.startswith("validation_") for name in self.values)

    @property
    def accuracy(self) -> Values:
        """Accuracy estimated on held-out rows: one minus the zero-one risk, clipped to [0, 1]."""
        return tuple(None if error is None else min(max(1 - error, 0.0), 1.0) for error in self["validation_zero_one"])


def _finite(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{DAMAGED}: {name} must be a number, got {value!r}; {FIX}.")
    return float(value) if abs(value) < LARGEST_VALUE else None
