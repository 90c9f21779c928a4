"""Figures of the training: both signed brackets, the risk and the accuracy, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from uulearn.report import drawing
from uulearn.report.course import Course, Values
from uulearn.report.drawing import Event, axis
from uulearn.report.figure import ABOVE_ONE, Sample, figure
from uulearn.report.markup import Child, Html, table
from uulearn.report.wording import percent, signed

MOST_EPOCHS = 200
"""How many epochs a table has; of more, every second, third, … is shown, and all that matter."""


class Line(NamedTuple):
    """A curve over the epochs: what it is called, a word more on it, its classes, its values."""

    name: str
    meaning: str
    look: str
    values: Values


def brackets(course: Course, held_out: bool) -> Html | None:
    """Both signed brackets and their sum over the epochs; None where there is none of them."""
    prefix = "validation_" if held_out else ""
    risk = course.curve(prefix + "unbiased")
    lines = [
        Line("positive bracket", ": what positives lose", "first", course.curve(prefix + "positive")),
        Line("negative bracket", ": what negatives lose", "second dashed", course.curve(prefix + "negative")),
        Line("risk", ": their sum (unbiased)", "total wide", risk),
    ]
    objective = course.curve("objective")
    if not held_out and _differ(objective, risk):
        lines.append(Line("objective", ": what training minimised (corrected)", "quiet thin dotted", objective))
    where = "rows held out" if held_out else "rows trained on"
    below = course.first_below_zero(prefix + "unbiased")
    ever = "The risk was never below zero." if below is None else f"The risk was first below zero in epoch {below}."
    return _by_epoch(
        "figure-brackets-held-out" if held_out else "figure-brackets",
        f"Brackets and risk on the {where}, by epoch",
        course,
        lines,
        below=below,
        ever=ever,
        percents=False,
    )


def accuracy(course: Course, judged_apart: bool) -> Html | None:
    """Accuracy over the epochs, estimated on the held-out rows and, where there are labels, known; None without."""
    lines = [
        Line("estimated accuracy", ", no label used", "first", course.accuracy),
        Line("accuracy on labelled test rows", "", "third dashed", course.curve("test_accuracy")),
    ]
    below = course.first_below_zero("unbiased")
    flattered = "The epoch was chosen by this estimate, which flatters it; the accuracy at the top is from other rows."
    more = flattered if judged_apart and course.kept is not None else ""
    return _by_epoch("figure-accuracy", "Accuracy by epoch", course, lines, below=below, percents=True, more=more)


def _by_epoch(
    name: str,
    title: str,
    course: Course,
    lines: Sequence[Line],
    *,
    below: int | None,
    percents: bool,
    ever: str = "",
    more: str = "",
) -> Html | None:
    lines = [line for line in lines if any(value is not None for value in line.values)]
    if not lines:
        return None
    written = percent if percents else signed
    known = [value for line in lines for value in line.values if value is not None]
    x = axis(course.epochs, whole=True, tight=True)
    y = axis(known, percent=True) if percents else axis([*known, 0.0])
    curves = [drawing.curve(x, y, list(zip(course.epochs, line.values, strict=True)), line.look) for line in lines]
    drawn = drawing.plot(
        name,
        title,
        " ".join([*(_described(line, written) for line in lines), ever]),
        x,
        y,
        [None if percents else drawing.below_zero(y), *reversed(curves)],
        x_label="epoch",
        y_label="accuracy" if percents else "risk",
        events=_events(course, below),
    )
    cells: list[list[Child]] = [
        [course.epochs[at], *(percent(line.values[at]) if percents else signed(line.values[at], 4) for line in lines)]
        for at in _chosen_epochs(course, below)
    ]
    stride = _stride(course)
    every = "" if stride == 1 else f", one epoch in {stride} and those that matter"
    numbers = table(title + every, ["epoch", *(line.name for line in lines)], cells)
    legend = [Sample(line.name + line.meaning, line.look) for line in lines]
    if not percents and y.low < 0:
        more = f"{more} The shaded ground is below zero, where no true risk can be.".strip()
    if percents and max(known) > 1:
        more = f"{more} {ABOVE_ONE}".strip()
    return figure(name, drawn, title, more, legend, numbers)


def _differ(one: Values, other: Values) -> bool:
    return any(a is not None and b is not None and abs(a - b) > 1e-6 for a, b in zip(one, other, strict=True))


def _events(course: Course, below: int | None) -> list[Event]:
    last, kept = course.epochs[-1], course.kept
    events = [] if below is None else [Event(below, f"epoch {below}: risk below 0")]
    if kept == last:
        return [*events, Event(last, f"epoch {last}: kept, stopped", quiet=True)]
    events += [] if kept is None else [Event(kept, f"epoch {kept}: kept", quiet=True)]
    return [*events, Event(last, f"epoch {last}: stopped", quiet=True)]


def _described(line: Line, written: Callable[[float | None], str]) -> str:
    """A curve in a sentence, for those who do not see it."""
    known = [value for value in line.values if value is not None]
    ends = f"from {written(known[0])} in the first epoch to {written(known[-1])} in the last"
    return f"{line.name.capitalize()} {ends}, lowest {written(min(known))}, highest {written(max(known))}."


def _chosen_epochs(course: Course, below: int | None) -> list[int]:
    """Places of the epochs that a table shows."""
    stride = _stride(course)
    matters = {below, course.kept, course.epochs[0], course.epochs[-1]}
    return [at for at, epoch in enumerate(course.epochs) if at % stride == stride - 1 or epoch in matters]


def _stride(course: Course) -> int:
    return -(-len(course) // MOST_EPOCHS)
