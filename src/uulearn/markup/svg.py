"""Elements, axes and tick labels of SVG drawings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape


def element(tag: str, content: object = "", **attributes: object) -> Markup:
    """Return an SVG element with escaped content and attributes; ``text_anchor`` becomes ``text-anchor``.

    >>> element("text", "a < b", x=-8, text_anchor="end")
    Markup('<text x="-8" text-anchor="end">a &lt; b</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, escape(content))


@dataclass(frozen=True)
class Axis:
    """A range of values with labeled ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float) -> float:
        """Return the position of the value, from 0 (low end) to 1 (high end)."""
        return (value - self.low) / (self.high - self.low)

    def at(self, value: float) -> str:
        """Return the position in percent, for an SVG attribute."""
        return f"{100 * self.place(value):.2f}%"

    def up(self, value: float) -> str:
        """Return the position from the top in percent, because the SVG y axis points down."""
        return f"{100 * (1 - self.place(value)):.2f}%"


def make_axis(
    values: Iterable[float], *, percents: bool = False, integers: bool = False, tight: bool = False, n_ticks: int = 5
) -> Axis:
    """Return an axis that contains the values, with about ``n_ticks`` ticks at round numbers.

    With ``percents``, fractions are labeled in percent; with ``integers``, ticks are only at whole numbers; with
    ``tight``, the axis ends at the outermost values instead of at ticks.

    >>> make_axis([0.62, 0.97], percents=True).labels
    ('60%', '70%', '80%', '90%', '100%')
    >>> make_axis([1, 60], integers=True, tight=True).labels
    ('20', '40', '60')
    """
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):  # only one value: add space on both sides
        room = max(1.0 if integers else 0.05 if percents else abs(low) / 10 or 1.0, 1e-6 * abs(low))
        low, high = low - room, high + room
    step = _round_step((high - low) / n_ticks, integers)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if tight:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(step * place for place in range(first, last + 1))
    ends = (low, high) if tight else (ticks[0], ticks[-1])
    return Axis(*ends, ticks, tuple(_tick_label(value, step, percents) for value in ticks))


def _round_step(step: float, integers: bool) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    found = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))
    return max(1.0, round(found)) if integers else found


def _tick_label(value: float, step: float, percents: bool) -> str:
    if percents:
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
    return text.replace("-", "−") + ("%" if percents else "")
