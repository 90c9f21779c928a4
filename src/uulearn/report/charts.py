"""Draw the charts of the report as SVG with fixed font sizes and stroke widths at any chart width.

The labels are in the padding of the outer ``svg`` element; the plot is in its content box. Positions in the plot are
percentages. Curves are drawn in an inner ``svg`` of 1000 × 1000 units that is stretched to fit; their stroke width does
not scale. The same drawing fits desktops, phones and paper. Colors are defined by CSS classes of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from uulearn.app.facts import ColumnImportance, FitFacts, PriorError
from uulearn.app.formatting import NO_VALUE, count, interval, number, percent, plural, prior, signed
from uulearn.markup.svg import Axis, element, make_axis
from uulearn.markup.text import label, name
from uulearn.report.html import HtmlTable
from uulearn.report.training import TrainingCurves, Values

UNITS = 1000
"""Width and height of the stretched inner drawing, in SVG units."""
MAX_TABLE_EPOCHS = 200
"""Maximum number of epochs in a table; longer tables list every k-th epoch and a few important ones."""
MAX_BARS = 12
"""Maximum number of columns in the importance chart; its table lists all columns."""
MAX_LABEL_WIDTH = 40
"""Maximum length of a name in a chart or in its description, in characters."""
CLEAR_DIRECTION = 0.1
"""Correlation of a column with the score below which no direction is shown."""
UNCHANGED = "unchanged"
"""Name of the row that shows the priors used for training."""

Points = Sequence[tuple[float, float | None]]


class LegendEntry(NamedTuple):
    """A legend entry: a symbol (``curve``, ``fill``, ``dot`` or ``whisker``), its CSS classes and its label."""

    text: str
    style: str
    kind: str = "curve"


class Marker(NamedTuple):
    """A labeled vertical dashed line, for example at the best epoch."""

    at: float
    label: str
    muted: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart with its caption, legend and table of numbers; the template ``charts.html.jinja`` draws it.

    A chart has either layers on a grid with two axes, or rows with a name and marks. Names are to the left of the plot,
    or above each row if ``left`` is 0.
    """

    id: str
    title: str
    note: str
    description: str
    legend: Sequence[LegendEntry]
    table: HtmlTable
    x: Axis
    x_label: str
    y: Axis | None = None
    y_label: str = ""
    layers: Sequence[Markup] = ()
    rows: Sequence[tuple[str, Markup]] = ()
    left: int = 0
    markers: Sequence[Marker] = ()
    tips_at: Sequence[float] = ()
    """Positions on the x axis of the rows of the table, which are shown as tooltips there."""

    @property
    def tips(self) -> list[str]:
        """The rows of the table as text, for tooltips."""
        head = list(map(_plain, self.table.head))
        pairs = [zip(head, map(_plain, row), strict=True) for row in self.table.rows]
        return ["\n".join(f"{title}: {cell}" for title, cell in own) for own in pairs]

    @property
    def placed_tips(self) -> list[tuple[str, str, str]]:
        """Text, left end and width of each tooltip; its area ends in the middle between two positions."""
        places = [self.x.place(at) for at in self.tips_at]
        ends = [0.0, *((left + right) / 2 for left, right in pairwise(places)), 1.0]
        spans = [(f"{100 * left:.2f}%", f"{100 * (right - left):.2f}%") for left, right in pairwise(ends)]
        return [(text, *span) for text, span in zip(self.tips, spans, strict=True)] if places else []

    @property
    def placed_markers(self) -> list[tuple[Marker, float]]:
        """Markers with their horizontal positions; the outermost marker comes first, so few lines cross a label."""
        placed = [(marker, self.x.place(marker.at)) for marker in self.markers]
        return sorted(placed, key=lambda pair: -abs(pair[1] - 0.5))


def _plain(cell: Any) -> str:
    return cell.striptags() if isinstance(cell, Markup) else str(cell)


# ------------------------------------------------------------------------------------------------------------ marks


def _curve(x: Axis, y: Axis, points: Points, style: str) -> Markup:
    """Draw a line through the points, with gaps at missing values; an isolated point becomes a dot."""
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    path = "".join(_path(x, y, run) for run in runs if len(run) > 1)
    dots = [
        element("circle", cx=x.at(run[0][0]), cy=y.up(run[0][1]), r=4, class_=f"dot {style}")
        for run in runs
        if len(run) == 1
    ]
    drawn = _canvas(element("path", d=path, class_=f"curve {style}")) if path else Markup()
    return drawn + Markup().join(dots)


def _band(x: Axis, y: Axis, spans: Sequence[tuple[float, float, float]], style: str) -> Markup:
    """Draw the area between a lower and an upper value."""
    outline = [(at, low) for at, low, _ in spans] + [(at, high) for at, _, high in reversed(spans)]
    return _canvas(element("path", d=_path(x, y, outline) + "Z", class_=f"fill {style}"))


def _steps(x: Axis, y: Axis, edges: Sequence[float], heights: Sequence[float], style: str) -> Markup:
    """Draw a histogram as a filled outline."""
    corners = [(edges[0], 0.0)]
    for left, right, height in zip(edges, edges[1:], heights, strict=False):
        corners += [(left, height), (right, height)]
    path = _path(x, y, [*corners, (edges[-1], 0.0)])
    fill = element("path", d=path + "Z", class_=f"fill {style}")
    return _canvas(fill + element("path", d=path, class_=f"curve {style}"))


def _below_zero(y: Axis) -> Markup:
    """Draw a line at zero and shading below it, because a true risk is never negative."""
    if not y.low < 0 < y.high:
        return Markup()
    zero, height = y.up(0.0), f"{100 * y.place(0.0):.2f}%"
    shading = element("rect", x=0, y=zero, width="100%", height=height, class_="ground")
    return shading + element("line", x1=0, x2="100%", y1=zero, y2=zero, class_="zero")


def _whisker(x: Axis, ends: tuple[float, float], style: str) -> Markup:
    return element("line", x1=x.at(ends[0]), x2=x.at(ends[1]), y1=12, y2=12, class_=f"whisker {style}")


def _canvas(content: Markup) -> Markup:
    box = f"0 0 {UNITS} {UNITS}"
    return element(
        "svg", content, viewBox=box, preserveAspectRatio="none", width="100%", height="100%", class_="canvas"
    )


def _path(x: Axis, y: Axis, points: Iterable[tuple[float, float]]) -> str:
    places = (f"{UNITS * x.place(at):.1f} {UNITS * (1 - y.place(value)):.1f}" for at, value in points)
    return "M" + "L".join(places)


def _isolated(text: str) -> Markup:
    """Return a name enclosed in Unicode marks that isolate its writing direction; SVG has no ``bdi`` element."""
    return Markup("\u2068{}\u2069").format(label(text, MAX_LABEL_WIDTH))


# --------------------------------------------------------------------------------------------------- curves by epoch


class EpochCurve(NamedTuple):
    """A curve over the epochs: its name, an explanation for the legend, its CSS classes and its values."""

    name: str
    meaning: str
    style: str
    values: Values


def risk_chart(curves: TrainingCurves, held_out: bool) -> Chart | None:
    """Draw both signed risk terms and their sum by epoch; return None if they were not recorded."""
    prefix = "validation_" if held_out else ""
    risk = curves[prefix + "unbiased"]
    lines = [
        EpochCurve("positive term", ": loss on positives", "first", curves[prefix + "positive"]),
        EpochCurve("negative term", ": loss on negatives", "second dashed", curves[prefix + "negative"]),
        EpochCurve("risk", ": sum of both terms (unbiased)", "total wide", risk),
    ]
    objective = curves["objective"]
    pairs = zip(objective, risk, strict=True)
    if not held_out and any(a is not None and b is not None and abs(a - b) > 1e-6 for a, b in pairs):
        lines.append(EpochCurve("objective", ": minimized in training (corrected)", "quiet thin dotted", objective))
    negative = curves.first_negative(prefix + "unbiased")
    note = (
        "The risk was never negative." if negative is None else f"The risk was first negative {curves.when(negative)}."
    )
    title = f"Risk on the {'held-out' if held_out else 'training'} rows by {_axis_name(curves)}"
    return _epoch_chart("figure-risk-held-out" if held_out else "figure-risk", title, curves, lines, negative, note)


def accuracy_chart(curves: TrainingCurves, separate_evaluation: bool) -> Chart | None:
    """Draw the accuracy by epoch, estimated on held-out rows and, if given, measured on labeled test rows."""
    lines = [
        EpochCurve("estimated accuracy", ", no label used", "first", curves.accuracy),
        EpochCurve("accuracy on labeled test rows", "", "third dashed", curves["test_accuracy"]),
    ]
    note = ""
    if separate_evaluation and curves.best_epoch is not None:
        chosen = ("best epoch", "at that epoch") if curves.unit == "epoch" else ("number of trees", "there")
        note = "Early stopping uses this estimate to choose the {}, so it is too high {}. The ".format(*chosen)
        note += "accuracy at the top of the page is estimated from other rows."
    negative = curves.first_negative("unbiased")
    return _epoch_chart(
        "figure-accuracy", f"Accuracy by {_axis_name(curves)}", curves, lines, negative, note, percents=True
    )


def _epoch_chart(
    id_: str,
    title: str,
    curves: TrainingCurves,
    lines: Sequence[EpochCurve],
    negative: int | None,
    note: str,
    percents: bool = False,
) -> Chart | None:
    lines = [line for line in lines if any(value is not None for value in line.values)]
    if not lines:
        return None
    known = [value for line in lines for value in line.values if value is not None]
    x = make_axis(curves.epochs, integers=True, tight=True)
    y = make_axis(known if percents else [*known, 0.0], percents=percents)
    drawn = [_curve(x, y, list(zip(curves.epochs, line.values, strict=True)), line.style) for line in reversed(lines)]
    described = [*(_described(line, curves, percent if percents else signed) for line in lines), note]
    stride = -(-len(curves) // MAX_TABLE_EPOCHS)
    important = {negative, curves.best_epoch, curves.epochs[0], curves.epochs[-1]}
    shown = [at for at, epoch in enumerate(curves.epochs) if at % stride == stride - 1 or epoch in important]
    rows = [
        [curves.epochs[at], *(percent(line.values[at]) if percents else signed(line.values[at], 4) for line in lines)]
        for at in shown
    ]
    caption = title if stride == 1 else f"{title}, every {stride} {curves.unit}s and important {curves.unit}s"
    if not percents and y.low < 0:
        note += " The shaded area is below zero; a true risk is never negative."
    return Chart(
        id_,
        title,
        note.strip(),
        " ".join(described).strip(),
        [LegendEntry(line.name + line.meaning, line.style) for line in lines],
        HtmlTable(caption, [_axis_name(curves), *(line.name for line in lines)], rows),
        *(x, _axis_name(curves), y, "accuracy" if percents else "risk"),
        layers=drawn if percents else [_below_zero(y), *drawn],
        markers=_epoch_markers(curves, negative),
        tips_at=[curves.epochs[at] for at in shown],
    )


def _epoch_markers(curves: TrainingCurves, negative: int | None) -> list[Marker]:
    last, best = curves.epochs[-1], curves.best_epoch
    markers = [] if negative is None else [Marker(negative, f"{curves.at(negative)}: risk below 0")]
    if best == last:
        return [*markers, Marker(last, f"{curves.at(last)}: best and last", muted=True)]
    markers += [] if best is None else [Marker(best, f"{curves.at(best)}: best", muted=True)]
    return [*markers, Marker(last, f"{curves.at(last)}: last", muted=True)]


def _axis_name(curves: TrainingCurves) -> str:
    return "epoch" if curves.unit == "epoch" else f"number of {curves.unit}s"


def _described(line: EpochCurve, curves: TrainingCurves, written: Callable[[float | None], str]) -> str:
    """Describe a curve in one sentence, for screen readers."""
    known = [value for value in line.values if value is not None]
    first = f"{curves.preposition} the first {curves.unit}"
    ends = f"from {written(known[0])} {first} to {written(known[-1])} {curves.preposition} the last"
    return f"{line.name.capitalize()} {ends}, lowest {written(min(known))}, highest {written(max(known))}."


# ------------------------------------------------------------------------------------------- charts of the evaluation


def _known(*values: float) -> bool:
    return all(map(math.isfinite, values))


def target_chart(facts: FitFacts) -> Chart | None:
    """Draw the estimated accuracy by target prior."""
    id_, title = "figure-targets", "Estimated accuracy by target prior"
    targets = [t for t in facts.targets if _known(t.target_prior, t.accuracy.value, *t.accuracy.interval)]
    if not targets:
        return None
    own = [facts.target_prior] if _known(facts.target_prior) else []
    spans = [(target.target_prior, *target.accuracy.interval) for target in targets]
    majority = [(target.target_prior, max(target.target_prior, 1 - target.target_prior)) for target in targets]
    values = [(target.target_prior, target.accuracy.value) for target in targets]
    x = make_axis([*(at for at, _ in values), *own], percents=True, tight=True)
    heights = [end for span in spans for end in span[1:]] + [height for _, height in (*values, *majority)]
    y = make_axis(heights, percents=True)
    low, high = (pick(values, key=lambda point: point[1]) for pick in (min, max))
    description = (
        f"Target priors from {prior(values[0][0])} to {prior(values[-1][0])}. Lowest estimated accuracy "
        f"{percent(low[1])} at {prior(low[0])}, highest {percent(high[1])} at {prior(high[0])}."
    )
    layers = [
        _band(x, y, spans, "first"),
        _curve(x, y, majority, "quiet thin dotted"),
        _curve(x, y, values, "first wide"),
    ]
    markers = [Marker(at, f"trained for {prior(at)}", muted=True) for at in own]
    confidence = f"{percent(targets[0].accuracy.confidence, 0)} interval"
    rows = [
        [
            prior(target.target_prior),
            percent(target.accuracy.value),
            interval(target.accuracy.interval),
            signed(target.threshold),
            percent(max(target.target_prior, 1 - target.target_prior)),
        ]
        for target in targets
    ]
    head = ["target prior", "accuracy", confidence, "score threshold", "majority class"]
    legend = [
        LegendEntry("estimated accuracy", "first wide"),
        LegendEntry(confidence, "first", "fill"),
        LegendEntry("always predicting the majority class", "quiet thin dotted"),
    ]
    note = "Use the model only at target priors where the solid line is above the dotted line."
    axes = x, "target prior (fraction of positives)", y, "accuracy"
    table, tips_at = HtmlTable(title, head, rows), [at for at, _ in values]
    return Chart(id_, title, note, description, legend, table, *axes, layers=layers, markers=markers, tips_at=tips_at)


def sensitivity_chart(errors: Sequence[PriorError]) -> Chart | None:
    """Draw the estimated accuracy for each changed prior, one row per change."""
    errors = [row for row in errors if _known(row.error, row.accuracy.value, *row.accuracy.interval)]
    if not errors:
        return None
    id_, title = "figure-sensitivity", "Estimated accuracy if a class prior is wrong"
    ends = [end for row in errors for end in row.accuracy.interval]
    x = make_axis([*ends, *(row.accuracy.value for row in errors)], percents=True)
    rows = []
    for row in errors:
        dot = element("circle", cx=x.at(row.accuracy.value), cy="50.00%", r=4, class_="dot first")
        rows.append((_changed_prior(row), _whisker(x, row.accuracy.interval, "first") + dot))
    description = " ".join(f"{_changed_prior(row)}: {percent(row.accuracy.value)}." for row in errors)
    markers = [Marker(row.accuracy.value, UNCHANGED, muted=True) for row in errors if not row.error][:1]
    confidence = f"{percent(errors[0].accuracy.confidence, 0)} interval"
    cells = [[_changed_prior(row), percent(row.accuracy.value), interval(row.accuracy.interval)] for row in errors]
    legend = [LegendEntry("estimated accuracy", "first", "dot"), LegendEntry(confidence, "first", "whisker")]
    note = (
        "Each row shows a model that was trained and evaluated with one prior changed and the others unchanged. To "
        f'save time, these are single models, so "{UNCHANGED}" can differ from the accuracy at the top of the page.'
    )
    table = HtmlTable(title, ["if the prior is", "accuracy", confidence], cells)
    text, x_label = description, "estimated accuracy"
    return Chart(id_, title, note, text, legend, table, x, x_label, rows=rows, left=96, markers=markers)


def _changed_prior(row: PriorError) -> str:
    if not row.error:
        return UNCHANGED
    return f"{label(row.parameter, 6)} {'−' if row.error < 0 else '+'} {abs(row.error):.3g}"


def score_chart(facts: FitFacts) -> Chart:
    """Draw a histogram of the scores of the evaluation rows, as fractions of each set."""
    id_, title, histogram = "figure-scores", "Scores of the evaluation rows by set", facts.histogram
    totals = [sum(counts) for counts in histogram.counts]
    fractions = [
        [value / total if total else 0.0 for value in counts]
        for counts, total in zip(histogram.counts, totals, strict=True)
    ]
    x = make_axis(histogram.edges, tight=True)
    y = make_axis([0.0, *fractions[0], *fractions[1]], percents=True)
    styles = "first", "second dashed"
    above = [
        sum(n for edge, n in zip(histogram.edges, counts, strict=False) if edge >= 0) for counts in histogram.counts
    ]
    description = Markup(" ").join(
        Markup("{}: {}, {} above 0.").format(
            _isolated(which), plural(total, "row"), percent(over / total if total else None, 0)
        )
        for which, total, over in zip(facts.set_names, totals, above, strict=True)
    )
    layers = [_steps(x, y, histogram.edges, side, style) for side, style in zip(fractions, styles, strict=True)]
    markers = [Marker(0.0, "0: threshold")] if histogram.edges[0] < 0 < histogram.edges[-1] else []
    cells = [
        [f"{number(left, 2)} to {number(right, 2)}", count(first), count(second)]
        for left, right, first, second in zip(histogram.edges, histogram.edges[1:], *histogram.counts, strict=False)
    ]
    table = HtmlTable("Number of rows by score", ["score", *map(name, facts.set_names)], cells)
    legend = [LegendEntry(name(which), style) for which, style in zip(facts.set_names, styles, strict=True)]
    note, axes = (
        "Rows to the right of the threshold are predicted positive.",
        (x, "score", y, "fraction of the set's rows"),
    )
    tips_at = [(left + right) / 2 for left, right in pairwise(histogram.edges)]
    return Chart(id_, title, note, description, legend, table, *axes, layers=layers, markers=markers, tips_at=tips_at)


def importance_chart(columns: Sequence[ColumnImportance]) -> Chart | None:
    """Draw a bar chart of the accuracy lost by shuffling each column."""
    columns = [entry for entry in columns if _known(entry.drop, entry.standard_error)]
    if not columns:
        return None
    id_, title, top = "figure-importance", "Most important columns", columns[:MAX_BARS]
    drops = [100 * entry.drop for entry in top]  # in points
    spans = [(100 * (entry.drop - entry.standard_error), 100 * (entry.drop + entry.standard_error)) for entry in top]
    x = make_axis([0.0, *drops, *(end for span in spans for end in span)])
    rows = []
    for entry, drop, span in zip(top, drops, spans, strict=True):
        left, right = sorted((x.place(0.0), x.place(drop)))
        width = f"{100 * (right - left):.2f}%"
        bar = element("rect", x=f"{100 * left:.2f}%", y=6, width=width, height=12, class_="bar")
        arrow, _ = _direction(entry)
        rows.append((_isolated(entry.column) + arrow, bar + _whisker(x, span, "over")))
    losses = [Markup("{}: {}.").format(_isolated(entry.column), _points(entry.drop)) for entry in top]
    cells = [
        [name(entry.column), _direction(entry)[1], _points(entry.drop), _points(entry.standard_error)]
        for entry in columns
    ]
    head = ["column", "more often predicted positive", "accuracy lost", "standard error"]
    table = HtmlTable("All shuffled columns", head, cells, 2)
    note = "Estimated accuracy lost when a column is shuffled; no label was used."
    note += " Rows with higher values are predicted positive more often (▲) or less often (▼)."
    if len(columns) > len(top):
        note += f" The chart shows only the first {len(top)} of {plural(len(columns), 'column')}."
    legend, x_label = [LegendEntry("± one standard error", "over", "whisker")], "accuracy lost (points)"
    return Chart(id_, title, note, Markup(" ").join(losses), legend, table, x, x_label, rows=rows)


def _direction(entry: ColumnImportance) -> tuple[str, str | Markup]:
    """Return an arrow, and which rows are predicted positive more often."""
    if entry.highest is not None:
        return "", Markup('value "{}"').format(name(entry.highest))
    if entry.direction is None or abs(entry.direction) < CLEAR_DIRECTION:
        return "", NO_VALUE
    return (" ▲", "higher values") if entry.direction > 0 else (" ▼", "lower values")


def _points(share: float) -> str:
    text = number(100 * share, 1)
    return text if text == NO_VALUE else f"{text} points"
