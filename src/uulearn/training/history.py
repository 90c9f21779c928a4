"""History of a training run, stored as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from uulearn.exceptions import NonFiniteRiskError
from uulearn.markup import notebook

BATCH_METRICS = ("positive", "negative", "corrected", "objective", "zero_one")
"""Metrics that a trainer computes for every batch."""
TRAINING_METRICS = (*BATCH_METRICS, "positive_below_zero", "negative_below_zero")
"""Metrics of an epoch, in the order expected by `make_record`."""
CONSISTENCY_METRICS = ("consistency_loss", "pseudo_label_agreement")
"""Further metrics of a batch in epochs in which the consistency loss has a weight above 0."""
VALIDATION_METRICS = ("positive", "negative", "unbiased", "corrected", "zero_one")
"""Metrics on held-out rows, recorded with the prefix ``validation_``."""


class StopReason:
    """Reasons why a run stopped; ``{}`` is a placeholder for the number of epochs or the epoch number."""

    CALLBACK = "the callback asked to stop"
    EPOCHS_DONE = "all {} epochs done"
    NOT_FINITE = "the risk was not finite in epoch {}"


def make_record(epoch: int, metrics: Sequence[float], lr: float) -> dict[str, Any]:
    """Return the record of an epoch with the given `TRAINING_METRICS`."""
    positive, negative, *others = metrics
    terms = {"positive": positive, "negative": negative, "unbiased": positive + negative}
    return {"epoch": epoch, **terms, **dict(zip(TRAINING_METRICS[2:], others, strict=True)), "lr": lr}


def risk_is_finite(record: dict[str, Any]) -> bool:
    """Return whether the risk terms and the objective of an epoch are finite."""
    return all(math.isfinite(record[name]) for name in ("positive", "negative", "objective"))


def non_finite_error(record: dict[str, Any], advice: str = "") -> NonFiniteRiskError:
    """Return the error of a run that diverged in the epoch of this record; ``advice`` is added to the message."""
    return NonFiniteRiskError(
        f"{'a weight' if risk_is_finite(record) else 'the risk'} stopped being finite in epoch {record['epoch']}: "
        f"positive term {record['positive']:.4g}, negative term {record['negative']:.4g}, objective "
        f"{record['objective']:.4g}. Likely causes: a learning rate that is too high (now {record['lr']:g}), inputs "
        "that are not scaled, a custom loss or model that overflows, or method 'unbiased', whose risk has no lower "
        f"bound.{advice}"
    )


@dataclass
class History:
    """History of a run: one record per epoch, and the reason why the run stopped.

    Each record in ``epochs`` is a flat dict. Training metrics are means over the batches of the epoch:

    ===========================  ==========================================================================
    ``epoch``                    counted from 1
    ``positive``, ``negative``   the two risk terms, with their sign
    ``unbiased``                 their sum, the empirical risk of Eq. 4; may be below zero
    ``corrected``                the corrected risk of Eq. 6
    ``objective``                the minimized value, without L2 or weight decay
    ``zero_one``                 the unbiased risk with the zero-one loss, an estimate of the error rate
    ``…_below_zero``             fraction of batches in which the risk term was below zero
    ``consistency_weight``       weight of the consistency loss, in epochs in which it is above zero
    ``consistency_loss``         logistic loss of the pseudo-labels on the strong view
    ``pseudo_label_agreement``   fraction of the pseudo-labels that equal the model's prediction on the weak view
    ``lr``                       learning rate of the first parameter group at the end of the epoch
    ``seconds``                  duration of the epoch, including evaluation
    ``validation_…``             the risk on held-out rows of both sets, if they were given
    ``test_accuracy, …_risk``    accuracy and supervised risk (Eq. 2) on labeled rows, if they were given
    ===========================  ==========================================================================

    >>> history = History([{"epoch": 1, "unbiased": 0.2}, {"epoch": 2, "unbiased": -0.1}])
    >>> history.column("unbiased"), history.first_negative_epoch
    ([0.2, -0.1], 2)
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    labels_used: bool = False
    resumed_at: list[int] = field(default_factory=list)
    best_epoch: int | None = None
    """The epoch whose weights are used, selected on held-out rows; None if the last epoch is used."""
    models: list[History] = field(default_factory=list)
    """Histories of the models of an ensemble; ``epochs`` then contains means over the models."""

    @property
    def first_negative_epoch(self) -> int | None:
        """First epoch with an empirical (unbiased) risk below zero, or None if there is no such epoch."""
        return next((record["epoch"] for record in self.epochs if record["unbiased"] < 0), None)

    def column(self, name: str) -> list[Any]:
        """Return a metric for all epochs; None for epochs that did not record it (a resumed run may record more)."""
        if self.epochs and not any(name in record for record in self.epochs):
            known = sorted({key for record in self.epochs for key in record})
            raise KeyError(f"{name!r} was not recorded in any epoch; recorded metrics: {', '.join(known)}")
        return [record.get(name) for record in self.epochs]

    def _repr_html_(self) -> str:
        return notebook.join(*self.html_parts())

    def html_parts(self) -> list[Markup]:
        """Return a plot of the unbiased risk on training rows and on held-out rows, and the reason for the stop."""
        names = {"unbiased": "training rows", "validation_unbiased": "held-out rows"}
        curves = [
            notebook.Curve(shown, self.column(name))
            for name, shown in names.items()
            if any(record.get(name) is not None for record in self.epochs)
        ]
        runs = f", mean of {len(self.models)} models" if self.models else ""
        epochs = [record["epoch"] for record in self.epochs]
        parts = [notebook.curve_plot(f"Unbiased risk{runs}", epochs, curves, self.best_epoch)]
        if self.first_negative_epoch is not None:
            parts.append(
                notebook.note(
                    f"The risk on the training rows was first negative in epoch {self.first_negative_epoch}; a true "
                    "risk is never negative."
                )
            )
        return [*parts, notebook.note(f"stopped: {self.stop_reason or 'not finished'}")]

    def to_dict(self) -> dict[str, Any]:
        """Return the history as dicts, lists and numbers that can be written as JSON."""
        return vars(self) | {
            "epochs": [dict(record) for record in self.epochs],
            "resumed_at": list(self.resumed_at),
            "models": [model.to_dict() for model in self.models],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> History:
        """Create a history from the output of `to_dict`."""
        return cls(**data | {"models": [cls.from_dict(model) for model in data.get("models", [])]})

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.epochs[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.epochs)
