"""Figures as SVG that keeps its letters and strokes at any width.

The padding of the outer element holds labels, its content box is the plot: what lies in the plot is placed in percent,
curves lie in an inner element of 1000 × 1000 units that is stretched to fit, with strokes that are not. So one drawing
serves a desk, a phone and paper, without a script. Colours come from classes of the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uulearn.report.markup import Child, Html, element

UNITS = 1000
LINE = 18
"""Height of a line of text, in pixels."""

Points = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Axis:
    """A range of values, where its ticks are, and what they are called."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float) -> float:
        """Where the value lies on the axis, 0 being its low end and 1 its high one."""
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Event:
    """A vertical dashed line with a name, such as the epoch that was kept."""

    at: float
    name: str
    quiet: bool = False


def axis(
    values: Iterable[float], *, percent: bool = False, whole: bool = False, tight: bool = False, ticks: int = 5
) -> Axis:
    """An axis that holds the values, with about so many ticks at round numbers.

    ``percent`` labels shares, ``whole`` has no tick between whole numbers, ``tight`` ends at the outermost values
    and not at ticks.

    Examples
    --------
    >>> found = axis([0.62, 0.97], percent=True)
    >>> found.labels
    ('60%', '70%', '80%', '90%', '100%')
    >>> axis([1, 60], whole=True, tight=True).labels
    ('20', '40', '60')
    """
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):  # nothing to spread: some room on both sides
        room = max(1.0 if whole else 0.05 if percent else abs(low) / 10 or 1.0, 1e-6 * abs(low))
        low, high = low - room, high + room
    step = _round_step((high - low) / ticks, whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if tight:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    at = tuple(step * place for place in range(first, last + 1))
    ends = (low, high) if tight else (at[0], at[-1])
    return Axis(*ends, at, tuple(_label(value, step, percent) for value in at))


def _round_step(step: float, whole: bool) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    found = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))
    return max(1.0, round(found)) if whole else found


def _label(value: float, step: float, percent: bool) -> str:
    if percent:
        value, step = 100 * value, 100 * step
    size = max(abs(value), step)
    if size >= 1e6 or step < 1e-4:
        digits = max(1, math.ceil(math.log10(size / step) + 1))
        text = f"{value:.{digits}g}" if abs(value) > step / 2 else "0"
    else:
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:  # a step of 2.5
            decimals += 1
        text = f"{value:,.{decimals}f}"
        text = text.lstrip("-") if float(text.replace(",", "")) == 0 else text
    return text.replace("-", "−") + ("%" if percent else "")


# ------------------------------------------------------------------------------------------------ what lies in a plot


def curve(x: Axis, y: Axis, points: Points, look: str) -> Html:
    """A line through the points, broken where a value is missing; a point without neighbours is a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    path = "".join(_path(x, y, run) for run in runs if len(run) > 1)
    alone = [dot(x.place(run[0][0]), 1 - y.place(run[0][1]), look) for run in runs if len(run) == 1]
    return Html((_canvas(element("path", d=path, class_=f"curve {look}")) if path else "") + "".join(alone))


def band(x: Axis, y: Axis, spans: Sequence[tuple[float, float, float]], look: str) -> Html:
    """The area between a lower and an upper value at each place."""
    around = [(at, low) for at, low, _ in spans] + [(at, high) for at, _, high in reversed(spans)]
    return _canvas(element("path", d=_path(x, y, around) + "Z", class_=f"fill {look}"))


def steps(x: Axis, y: Axis, edges: Sequence[float], heights: Sequence[float], look: str) -> Html:
    """A histogram as an outline with a light filling."""
    corners = [(edges[0], 0.0)]
    for left, right, height in zip(edges, edges[1:], heights, strict=False):
        corners += [(left, height), (right, height)]
    path = _path(x, y, [*corners, (edges[-1], 0.0)])
    return _canvas(
        element("path", d=path + "Z", class_=f"fill {look}"), element("path", d=path, class_=f"curve {look}")
    )


def dot(right: float, down: float, look: str) -> Html:
    """A dot at a share of the width and of the height."""
    return element("circle", cx=_percent(right), cy=_percent(down), r=4, class_=f"dot {look}")


def below_zero(y: Axis) -> Html | None:
    """The ground below zero, where no true risk is, and the line at zero."""
    if not y.low < 0 < y.high:
        return None
    zero = _percent(1 - y.place(0.0))
    ground = element("rect", x=0, y=zero, width="100%", height=_percent(y.place(0.0)), class_="ground")
    return Html(ground + element("line", x1=0, x2="100%", y1=zero, y2=zero, class_="zero"))


def _canvas(*content: Child) -> Html:
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {UNITS} {UNITS}",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
        class_="canvas",
    )


def _path(x: Axis, y: Axis, points: Iterable[tuple[float, float]]) -> str:
    places = (f"{UNITS * x.place(at):.1f} {UNITS * (1 - y.place(value)):.1f}" for at, value in points)
    return "M" + "L".join(places)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"


# --------------------------------------------------------------------------------------------------------- whole plots


def plot(
    name: str,
    title: str,
    description: Child,
    x: Axis,
    y: Axis,
    layers: Iterable[Child],
    *,
    x_label: str,
    y_label: str,
    events: Sequence[Event] = (),
    height: int = 260,
) -> Html:
    """Layers on a grid with two labelled axes; each event has its name on a line of its own above the plot."""
    grid = []
    for value, label in zip(y.ticks, y.labels, strict=True):
        down = _percent(1 - y.place(value))
        grid.append(element("line", x1=0, x2="100%", y1=down, y2=down, class_="grid"))
        grid.append(element("text", label, x=-8, y=down, dy="4", text_anchor="end"))
    top = LINE * (len(events) + 1) + 8
    return _drawing(
        name,
        title,
        description,
        [
            element("text", y_label, x=-54, y=-LINE * len(events) - 12),
            *grid,
            *_foot(x, x_label),
            *layers,
            *_named_events(x, events),
        ],
        padding=(top, 16, 46, 56),
        height=height,
    )


def rows(
    name: str,
    title: str,
    description: Child,
    x: Axis,
    lines: Sequence[tuple[Child, Child]],
    *,
    x_label: str,
    left: int,
    events: Sequence[Event] = (),
) -> Html:
    """One line of the chart a row, named at its left or, where ``left`` is 0, above it.

    Each row comes with its name and with what is drawn in it, a stripe of the full width and of its own height.
    """
    above = left == 0
    pitch = 2 * LINE + 4 if above else LINE + 6
    drawn: list[Child] = []
    for place, (label, content) in enumerate(lines):
        if above:
            drawn.append(element("text", label, x=0, y=pitch * place + 13, class_="name"))
        else:
            drawn.append(element("text", label, x=-8, y=pitch * place + 17, text_anchor="end", class_="name"))
        drawn.append(
            element(
                "svg", content, x=0, y=pitch * place + (LINE if above else 0), width="100%", height=24, class_="canvas"
            )
        )
    lattice = [
        element("line", x1=at, x2=at, y1=0, y2="100%", class_="grid" if value else "zero")
        for value in x.ticks
        for at in [_percent(x.place(value))]
    ]
    return _drawing(
        name,
        title,
        description,
        [*lattice, *_foot(x, x_label), *_named_events(x, events), *drawn],
        padding=(LINE * len(events) + 8, 20, 46, left or 22),
        height=max(1, len(lines)) * pitch,
    )


def whisker(x: Axis, low: float, high: float, look: str) -> Html:
    """An interval in a row."""
    return element(
        "line", x1=_percent(x.place(low)), x2=_percent(x.place(high)), y1=12, y2=12, class_=f"whisker {look}"
    )


def bar(x: Axis, value: float) -> Html:
    """A bar from zero in a row."""
    left, right = sorted((x.place(0.0), x.place(value)))
    return element("rect", x=_percent(left), y=6, width=_percent(right - left), height=12, class_="bar")


def row_dot(x: Axis, value: float, look: str) -> Html:
    """A dot in a row."""
    return dot(x.place(value), 0.5, look)


def _foot(x: Axis, label: str) -> list[Html]:
    """Ticks below the plot and what they measure."""
    ticks = [
        element("text", text, x=_percent(x.place(value)), y="100%", dy="18", text_anchor="middle")
        for value, text in zip(x.ticks, x.labels, strict=True)
    ]
    return [*ticks, element("text", label, x="50%", y="100%", dy="38", text_anchor="middle")]


def _named_events(x: Axis, events: Sequence[Event]) -> list[Html]:
    """Each event with its name on a line of its own, the outermost on top, so that few lines pass behind a name."""
    lines, names = [], []
    for row, event in enumerate(sorted(events, key=lambda event: -abs(x.place(event.at) - 0.5))):
        place, up, quiet = x.place(event.at), LINE * (len(events) - row), " quiet" if event.quiet else ""
        at = _percent(place)
        lines.append(element("line", x1=at, x2=at, y1=2 - up, y2="100%", class_=f"event{quiet}"))
        # Names run towards the middle, so that they fit on a phone.
        anchor, gap = ("start", 6) if place < 0.5 else ("end", -6)
        names.append(
            element("text", event.name, x=at, y=13 - up, dx=gap, text_anchor=anchor, class_=f"event-name{quiet}")
        )
    return lines + names


def _drawing(
    name: str, title: str, description: Child, content: Iterable[Child], *, padding: tuple[int, ...], height: int
) -> Html:
    top, right, bottom, left = padding
    return element(
        "svg",
        element("title", title, id_=f"{name}-title"),
        element("desc", description, id_=f"{name}-description"),
        content,
        class_="plot",
        role="img",
        aria_labelledby=f"{name}-title {name}-description",
        style=f"height: {height + top + bottom}px; padding: {top}px {right}px {bottom}px {left}px",
    )


def swatch(look: str, kind: str) -> Html:
    """A small sample of a curve, filling or dot for the legend; nothing to read aloud."""
    if kind == "dot":
        content = element("circle", cx=15, cy=6, r=4, class_=f"dot {look}")
    elif kind == "fill":
        content = element("rect", width=30, height=12, class_=f"fill {look}")
    elif kind == "whisker":
        content = element("line", x1=0, x2=30, y1=6, y2=6, class_=f"whisker {look}")
    else:
        content = element("path", d="M0 6H30", class_=f"curve {look}")
    return element("svg", content, viewBox="0 0 30 12", aria_hidden="true", focusable="false")
