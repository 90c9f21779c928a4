"""What was stored of a trained model, checked, as the page needs it.

Keys that are not known here are ignored and those that are missing leave None or nothing, so that facts of an older or
a newer version still make a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from uulearn.report.reading import Reader

CONFIDENCE = 0.95
LETTERS = {"theta": "θ", "theta_prime": "θ′", "pi": "π", "θ'": "θ′"}
"""Names under which a prior may be stored."""


@dataclass(frozen=True)
class Shown:
    """An estimate with its interval, as far as they are known."""

    value: float
    interval: tuple[float, float] | None
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class File:
    """A set: where it came from, its rows, its share of positives."""

    name: str
    rows: int | None
    prior: float | None


@dataclass(frozen=True)
class Column:
    """A column of the files; ``missing`` are shares of the rows of each set."""

    name: str
    kind: str | None
    used: bool
    why: str | None
    missing: tuple[float, float] | None


@dataclass(frozen=True)
class Evaluated:
    """Figures of the classifier on rows that nothing else was done with."""

    accuracy: Shown | None
    balanced_accuracy: Shown | None
    auc: Shown | None
    true_positive_rate: Shown | None
    false_positive_rate: Shown | None
    sizes: tuple[int, int] | None
    labels_used: bool | None


@dataclass(frozen=True)
class Target:
    """The classifier where another share is positive."""

    prior: float
    accuracy: Shown
    threshold: float | None


@dataclass(frozen=True)
class Histogram:
    """Numbers of rows of each set between edges of scores."""

    edges: tuple[float, ...]
    counts: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Importance:
    """What is lost when a column is shuffled."""

    column: str
    drop: float
    standard_error: float | None


@dataclass(frozen=True)
class Doubt:
    """The accuracy shown if one prior were off by an error."""

    parameter: str
    error: float
    accuracy: Shown


@dataclass(frozen=True)
class Warned:
    """A warning: its category, an identifier, and its sentence."""

    category: str
    message: str


@dataclass(frozen=True)
class Facts:
    """Everything that the page says, apart from the history."""

    created: str | None
    versions: tuple[tuple[str, str], ...]
    seconds: float | None
    device: str | None
    command: str | None
    files: tuple[File, ...]
    columns: tuple[Column, ...]
    features: int | None
    set_priors: tuple[float, float] | None
    target_prior: float | None
    prior_intervals: tuple[tuple[float, float] | None, ...] | None
    """Where the shares of positives were estimated, their intervals."""
    split: tuple[tuple[str, tuple[int, int]], ...]
    """Rows of each set that served to train, to choose the epoch, to evaluate."""
    set_auc: Shown | None
    evaluated: Evaluated
    targets: tuple[Target, ...]
    histogram: Histogram | None
    importance: tuple[Importance, ...] | None
    doubts: tuple[Doubt, ...]
    sensitivity_words: str | None
    """The conclusion, or why there is none."""
    notes: tuple[str, ...]
    warnings: tuple[Warned, ...]
    commands: tuple[tuple[str, str], ...]
    configuration: Mapping[str, Any]

    @property
    def names(self) -> tuple[str, str]:
        """What to call the two sets."""
        if len(self.files) == 2 and self.files[0].name != self.files[1].name:
            return self.files[0].name, self.files[1].name
        return "set 0", "set 1"

    def rows_for(self, purpose: str) -> tuple[int, int] | None:
        """Rows of each set that served the purpose, ``"train"``, ``"choose"`` or ``"evaluate"``."""
        return dict(self.split).get(purpose)

    def shared(self, purpose: str) -> bool:
        """Whether some rows served both the purpose and the evaluating, as where models are trained on folds."""
        own, evaluating = self.rows_for(purpose), self.rows_for("evaluate")
        if own is None or evaluating is None:
            return False
        totals = [file.rows for file in self.files]
        if len(totals) != 2 or None in totals:
            return own == evaluating
        return any(a + b > (total or 0) for a, b, total in zip(own, evaluating, totals, strict=True))

    @property
    def judged_apart(self) -> bool:
        """Whether the evaluating rows served nothing else."""
        return self.rows_for("evaluate") is not None and not (self.shared("train") or self.shared("choose"))


def read_facts(facts: Mapping[str, Any]) -> Facts:
    """The stored facts, checked; a ValueError names what has a wrong type."""
    if not isinstance(facts, Mapping):
        raise ValueError(
            f"facts must be a mapping from names to values, got {type(facts).__name__}; pass what uulearn fit stored."
        )
    given = Reader(facts, "facts")
    sensitivity, commands = given.within("sensitivity"), given.within("commands")
    importance = [_importance(entry) for entry in given.each("importance")]
    estimated = given.within("priors_estimated")
    return Facts(
        created=given.text("created"),
        versions=tuple((name, text) for name in ("uulearn", "torch") if (text := given.text(name))),
        seconds=given.number("seconds"),
        device=given.text("device"),
        command=given.text("command"),
        files=tuple(
            File(entry.text("name") or f"set {place}", entry.count("rows"), entry.number("prior"))
            for place, entry in enumerate(given.each("files"))
        ),
        columns=tuple(_column(entry) for entry in given.each("columns")),
        features=given.count("features"),
        set_priors=given.pair("set_priors"),
        target_prior=given.number("target_prior"),
        prior_intervals=_intervals(estimated) if estimated else None,
        split=tuple(
            (name, (round(pair[0]), round(pair[1])))
            for name in ("train", "choose", "evaluate")
            if (pair := given.within("split").pair(name))
        ),
        set_auc=_shown(given.within("set_auc")),
        evaluated=_is_evaluated(given.within("evaluation")),
        targets=tuple(sorted(filter(None, map(_target, given.each("targets"))), key=lambda target: target.prior)),
        histogram=_histogram(given.within("histogram")),
        importance=tuple(filter(None, importance)) or None,
        doubts=tuple(filter(None, map(_doubt, sensitivity.each("rows")))),
        sensitivity_words=sensitivity.text("conclusion") or sensitivity.text("skipped"),
        notes=tuple(note for note in given.texts("notes") if note.strip()),
        warnings=tuple(
            Warned(entry.text("category") or "UUWarning", entry.text("message") or "")
            for entry in given.each("warnings")
        ),
        commands=tuple((str(name), text) for name in commands.data if (text := commands.text(name))),
        configuration=given.within("configuration").data,
    )


def _column(entry: Reader) -> Column:
    used = entry.truth("used")
    return Column(
        entry.text("name") or "", entry.text("kind"), used is not False, entry.text("why"), entry.pair("missing")
    )


def _intervals(estimated: Reader) -> tuple[tuple[float, float] | None, ...]:
    within = Reader(dict(enumerate(estimated.lists("intervals"))), f"{estimated.where}['intervals']")
    return tuple(within.pair(place) for place in within.data)


def _shown(entry: Reader, name: str = "value") -> Shown | None:
    value = entry.number(name)
    if value is None:
        return None
    return Shown(value, entry.pair("interval"), entry.number("confidence") or CONFIDENCE)


def _is_evaluated(entry: Reader) -> Evaluated:
    sizes = entry.pair("sizes")
    return Evaluated(
        accuracy=_shown(entry.within("accuracy")),
        balanced_accuracy=_shown(entry.within("balanced_accuracy")),
        auc=_shown(entry.within("auc")),
        true_positive_rate=_shown(entry.within("true_positive_rate")),
        false_positive_rate=_shown(entry.within("false_positive_rate")),
        sizes=None if sizes is None else (round(sizes[0]), round(sizes[1])),
        labels_used=entry.truth("labels_used"),
    )


def _target(entry: Reader) -> Target | None:
    prior, accuracy = entry.number("target_prior"), _shown(entry, "accuracy")
    return None if prior is None or accuracy is None else Target(prior, accuracy, entry.number("threshold"))


def _histogram(entry: Reader) -> Histogram | None:
    edges, counts = entry.numbers("edges"), entry.lists("counts")
    if not edges or not counts:
        return None
    if len(edges) < 2 or [len(side) for side in counts] != 2 * [len(edges) - 1]:
        raise ValueError(
            f"{entry.where} must have k + 1 edges and k counts for each of the two sets, got {len(edges)} edges and "
            f"{' and '.join(str(len(side)) for side in counts)} counts; train again with uulearn fit, which writes it."
        )
    at = [edge for edge in edges if edge is not None]
    if len(at) < len(edges) or any(left >= right for left, right in pairwise(at)):
        return None
    first, second = (tuple(count or 0.0 for count in side) for side in counts)
    return Histogram(tuple(at), (first, second))


def _importance(entry: Reader) -> Importance | None:
    column, drop = entry.text("column"), entry.number("drop")
    return None if column is None or drop is None else Importance(column, drop, entry.number("standard_error"))


def _doubt(entry: Reader) -> Doubt | None:
    parameter, error = entry.text("parameter"), entry.number("error")
    accuracy = _shown(entry, "accuracy")
    if parameter is None or error is None or accuracy is None:
        return None
    return Doubt(LETTERS.get(parameter, parameter), error, accuracy)
