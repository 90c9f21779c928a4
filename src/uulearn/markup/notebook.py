"""Show results in notebooks: tables, intervals and curves as HTML.

A notebook has a light or a dark theme, which the output does not know. Text and lines therefore have the color of the
surrounding text, and curves have colors that are visible on both backgrounds. Styles are attributes, so there are no
style sheets, ids, scripts or external resources, and several outputs on a page cannot affect each other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from uulearn.markup.svg import Axis, element, make_axis
from uulearn.markup.text import label

BLUE, ORANGE, AMBER = "#2f7fd0", "#d9730d", "#c98a00"
PLOT_COLORS = (BLUE, ORANGE)
"""Colors of the curves of a plot."""
BAR_WIDTH, BAR_HEIGHT = 120, 18
PLOT_WIDTH, PLOT_HEIGHT = 460, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 8, 34
"""Space around the curves of a plot, for the labels."""
CELL = "padding:2px 8px 2px 0;text-align:left;vertical-align:middle;border:0;background:none"
MUTED = "opacity:.75"
MAX_TEXT = 400
"""Maximum length of a text in a table or a note, in characters."""


class Bar(NamedTuple):
    """An estimate and its interval, drawn on a line from 0 to 1; not drawn if it is outside, such as a difference."""

    name: str
    value: float
    interval: tuple[float, float]

    @property
    def text(self) -> str:
        """The estimate and its interval as text."""
        low, high = self.interval
        return f"{self.value:.3f} ({low:.3f} to {high:.3f})"


class Curve(NamedTuple):
    """A curve over the epochs."""

    name: str
    values: Sequence[float | None]


def join(*parts: Markup) -> str:
    """Return one block of HTML."""
    style = "font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;max-width:640px;overflow-x:auto"
    return str(element("div", Markup("").join(parts), style=style))


def heading(text: str) -> Markup:
    """Return a heading."""
    return element("div", text, style="font-weight:600;margin:8px 0 2px")


def note(text: str) -> Markup:
    """Return a remark below a table or a plot."""
    return element("div", label(text, MAX_TEXT), style=f"{MUTED};margin:2px 0")


def warning(text: str) -> Markup:
    """Return a warning."""
    style = f"border-left:4px solid {AMBER};padding:2px 8px;margin:4px 0"
    return element("div", element("b", "Warning: ") + label(text, MAX_TEXT), style=style)


def fact_table(rows: Sequence[tuple[str, str]]) -> Markup:
    """Return a table of names and values."""
    return _table(Markup("").join(_row(_head(name), _cell(label(text, MAX_TEXT))) for name, text in rows))


def bar_table(bars: Sequence[Bar]) -> Markup:
    """Return a table of estimates, each with its interval on a line from 0 to 1."""
    drawn = [not any(number < 0 or number > 1 for number in (bar.value, *bar.interval)) for bar in bars]
    rows = [
        _row(_head(bar.name), _cell(bar.text, ";white-space:nowrap"), _cell(_interval(bar) if inside else ""))
        for bar, inside in zip(bars, drawn, strict=True)
    ]
    return _table(Markup("").join([*rows, *([_row(_head(""), _cell(""), _cell(_scale()))] if any(drawn) else [])]))


def curve_plot(title: str, epochs: Sequence[int], curves: Sequence[Curve], best: int | None = None) -> Markup:
    """Return a plot of at most two curves over the epochs, with a line at zero and, if known, at the best epoch."""
    known = [value for curve in curves for value in curve.values if value is not None and math.isfinite(value)]
    if not known or not epochs:
        return Markup()
    x, y = make_axis(epochs, integers=True, tight=True), make_axis([*known, 0.0], n_ticks=4)
    drawn = [_line(LEFT, _down(y, tick), PLOT_WIDTH - RIGHT, _down(y, tick), 0.15) for tick in y.ticks]
    drawn.append(_line(LEFT, _down(y, 0.0), PLOT_WIDTH - RIGHT, _down(y, 0.0), 0.8))
    drawn += [_text(text, LEFT - 6, _down(y, tick) + 4, "end") for tick, text in zip(y.ticks, y.labels, strict=True)]
    bottom = PLOT_HEIGHT - BOTTOM
    drawn += [_text(text, _right(x, tick), bottom + 14) for tick, text in zip(x.ticks, x.labels, strict=True)]
    drawn.append(_text("epoch", (LEFT + PLOT_WIDTH - RIGHT) / 2, bottom + 29))
    if best is not None:
        drawn.append(_line(_right(x, best), TOP, _right(x, best), bottom, 0.6, stroke_dasharray="3 3"))
    for curve, color in zip(curves, PLOT_COLORS, strict=False):
        points = [
            f"{_right(x, epoch):.1f},{_down(y, value):.1f}"
            for epoch, value in zip(epochs, curve.values, strict=True)
            if value is not None and math.isfinite(value)
        ]
        if len(points) == 1:
            cx, cy = points[0].split(",")
            drawn.append(element("circle", cx=cx, cy=cy, r=3, fill=color))
        drawn.append(
            element("polyline", points=" ".join(points), fill="none", stroke=color, stroke_width=2, class_="curve")
        )
    legend = [
        element("span", element("span", "━ ", style=f"color:{color}") + curve.name, style="margin-right:14px")
        for curve, color in zip(curves, PLOT_COLORS, strict=False)
    ]
    if best is not None:
        legend.append(element("span", f"┆ best epoch: {best}"))
    style = f"width:100%;max-width:{PLOT_WIDTH}px;height:auto;display:block"
    svg = element(
        "svg", element("title", title) + Markup("").join(drawn), xmlns="http://www.w3.org/2000/svg", role="img",
        viewBox=f"0 0 {PLOT_WIDTH} {PLOT_HEIGHT}", style=style,
    )  # fmt: skip
    return heading(title) + svg + element("div", Markup("").join(legend))


def _interval(bar: Bar) -> Markup:
    """Draw an estimate as a dot, and its interval as a thick line."""
    low, high = bar.interval
    middle, parts = BAR_HEIGHT / 2, [_line(_at(0), BAR_HEIGHT / 2, _at(1), BAR_HEIGHT / 2, 0.3)]
    if all(map(math.isfinite, (bar.value, *bar.interval))):
        parts.append(
            element("line", x1=_at(low), x2=_at(high), y1=middle, y2=middle, stroke=BLUE, stroke_width=8,
                    stroke_linecap="round", class_="interval")
        )  # fmt: skip
        parts.append(element("circle", cx=_at(bar.value), cy=middle, r=3.2, fill="currentColor"))
    return _small_svg(parts, f"{bar.name}: {bar.text}")


def _scale() -> Markup:
    return _small_svg([_text(text, _at(place), 11) for place, text in ((0, "0"), (0.5, "0.5"), (1, "1"))], "scale")


def _small_svg(parts: Sequence[Markup], title: str) -> Markup:
    return element(
        "svg", element("title", title) + Markup("").join(parts), xmlns="http://www.w3.org/2000/svg", role="img",
        width=BAR_WIDTH, height=BAR_HEIGHT, style="display:block",
    )  # fmt: skip


def _at(place: float) -> str:
    """Return the position on the line of a bar, with room for the dots and the labels at the ends."""
    return f"{10 + (BAR_WIDTH - 20) * place:.1f}"


def _right(x: Axis, epoch: float) -> float:
    return LEFT + x.place(epoch) * (PLOT_WIDTH - LEFT - RIGHT)


def _down(y: Axis, value: float) -> float:
    return TOP + (1 - y.place(value)) * (PLOT_HEIGHT - TOP - BOTTOM)


def _line(x1: object, y1: object, x2: object, y2: object, opacity: float, **more: object) -> Markup:
    known = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": "currentColor", "stroke_opacity": opacity}
    return element("line", **known, **more)


def _text(text: str, x: object, y: object, anchor: str = "middle") -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, fill="currentColor", font_size=11)


def _table(rows: Markup) -> Markup:
    style = "border-collapse:collapse;margin:2px 0;border:0;font-size:13px;color:inherit"
    return element("table", element("tbody", rows), style=style)


def _row(*cells: Markup) -> Markup:
    return element("tr", Markup("").join(cells), style="background:none")


def _head(text: str) -> Markup:
    return element("th", text, style=f"{CELL};font-weight:normal;{MUTED}")


def _cell(content: object, style: str = "") -> Markup:
    return element("td", content, style=CELL + style)
