"""What happened in training, as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any


@dataclass
class History:
    """One record an epoch, and how the run ended.

    Each record in ``epochs`` is a flat dict (``pandas.DataFrame(history.epochs)`` is a table), all means over the
    batches of the epoch, taken while the weights moved:

    ===========================  ==========================================================================
    ``epoch``                    counted from 1
    ``positive``, ``negative``   the signed brackets
    ``unbiased``                 their sum, the empirical risk of Eq. 4; may be below zero
    ``corrected``                the corrected risk of Eq. 6
    ``objective``                what was minimised, without L2 or weight decay
    ``zero_one``                 the unbiased risk with the zero-one loss, an estimate of the error rate
    ``positive_below_zero``,     share of the batches in which the bracket was below zero, that is in which a
    ``negative_below_zero``      correction acts
    ``lr``                       learning rate of the first parameter group at the end of the epoch
    ``seconds``                  time of the epoch, evaluation included
    ``validation_…``             the risk on held-out rows of both sets, when they were given
    ``test_accuracy``,           accuracy on labelled rows and their labelled risk (Eq. 2), when they were given
    ``test_risk``
    ===========================  ==========================================================================
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    labels_used: bool = False
    resumed_at: list[int] = field(default_factory=list)
    best_epoch: int | None = None
    """The epoch whose weights were kept, chosen on held-out rows; None where the last were."""
    models: list[History] = field(default_factory=list)
    """The history of each model of an ensemble; the records here are their means."""

    @property
    def first_negative_epoch(self) -> int | None:
        """The epoch in which the empirical (unbiased) risk first went below zero, if it did."""
        return next((record["epoch"] for record in self.epochs if record["unbiased"] < 0), None)

    def column(self, name: str) -> list[Any]:
        """One figure over all epochs; None for epochs that lack it (a resumed run may be given more to evaluate)."""
        if self.epochs and not any(name in record for record in self.epochs):
            known = sorted({key for record in self.epochs for key in record})
            raise KeyError(f"no epoch recorded {name!r}; recorded are {', '.join(known)}")
        return [record.get(name) for record in self.epochs]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> History:
        """The inverse of `to_dict`."""
        return cls(**data | {"models": [cls.from_dict(model) for model in data.get("models", [])]})

    @classmethod
    def mean(cls, histories: Sequence[History]) -> History:
        """One history of several: each record has the means over the models that were trained that long."""
        longest = max(histories, key=len)
        epochs = []
        for position, record in enumerate(longest):
            running = [history[position] for history in histories if len(history) > position]
            names = dict.fromkeys(name for other in running for name in other if name != "epoch")
            means = {name: fmean(float(other[name]) for other in running if name in other) for name in names}
            epochs.append({"epoch": record["epoch"], **means})
        reasons = list(dict.fromkeys(history.stop_reason for history in histories if history.stop_reason))
        return cls(
            epochs,
            stop_reason="; ".join(reasons),
            labels_used=any(history.labels_used for history in histories),
            models=list(histories),
        )

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.epochs[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.epochs)
