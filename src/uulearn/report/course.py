"""The course of a training, checked: its curves, where the risk went below zero, what was kept and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uulearn.report.reading import Reader
from uulearn.training.history import History

Values = tuple[float | None, ...]

FIGURES = ("positive", "negative", "unbiased", "objective")
HELD_OUT = ("validation_positive", "validation_negative", "validation_unbiased", "validation_zero_one")
LABELLED = ("test_accuracy",)


@dataclass(frozen=True)
class Course:
    """Curves over the epochs, and how the training ended."""

    epochs: tuple[int, ...]
    curves: Mapping[str, Values]
    """Only those with a number in at least one epoch."""
    stop_reason: str | None
    kept: int | None
    labels_used: bool
    kept_by_members: tuple[int | None, ...]
    """Where several models were trained, the epoch that each kept."""

    def __len__(self) -> int:
        return len(self.epochs)

    def curve(self, name: str) -> Values:
        """One figure over all epochs, None where it is missing."""
        return self.curves.get(name, (None,) * len(self))

    def first_below_zero(self, name: str) -> int | None:
        """The first epoch in which the figure was below zero, if it ever was."""
        return next(
            (e for e, value in zip(self.epochs, self.curve(name), strict=True) if value is not None and value < 0), None
        )

    def times_below_zero(self, name: str) -> int:
        """In how many epochs it was."""
        return sum(value is not None and value < 0 for value in self.curve(name))

    @property
    def accuracy(self) -> Values:
        """Accuracy estimated on the held-out rows, one minus the zero-one risk."""
        return tuple(None if error is None else 1 - error for error in self.curve("validation_zero_one"))


def read_course(history: History) -> Course:
    """The history, checked; a ValueError names what has a wrong type.

    Examples
    --------
    >>> course = read_course(History([{"epoch": 1, "unbiased": 0.2}, {"epoch": 2, "unbiased": -0.1}], best_epoch=1))
    >>> course.first_below_zero("unbiased"), course.kept, course.curve("positive")
    (2, 1, (None, None))
    """
    if not isinstance(history, History):
        raise TypeError(
            f"history must be a uulearn.training.History, got {type(history).__name__}; pass the classifier's history_."
        )
    records = [Reader(record, f"history[{place}]") for place, record in enumerate(history.epochs)]
    curves = {name: tuple(record.number(name) for record in records) for name in FIGURES + HELD_OUT + LABELLED}
    end = Reader({"stop_reason": history.stop_reason, "best_epoch": history.best_epoch}, "history")
    epochs = tuple(record.count("epoch") or place for place, record in enumerate(records, start=1))
    kept = end.count("best_epoch")
    return Course(
        epochs=epochs,
        curves={name: values for name, values in curves.items() if any(value is not None for value in values)},
        stop_reason=end.text("stop_reason"),
        kept=kept if kept in epochs else None,
        labels_used=bool(history.labels_used),
        kept_by_members=tuple(model.best_epoch for model in history.models),
    )
