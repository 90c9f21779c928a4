"""What every figure has: a drawing, a legend, a caption, and its numbers in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from uulearn.report import drawing
from uulearn.report.markup import Child, Html, element, folded

ABOVE_ONE = "Estimates are right on average, so that they can come out above 100%; no interval does."


class Sample(NamedTuple):
    """An entry of a legend."""

    name: Child
    look: str
    kind: str = "curve"


def figure(name: str, drawn: Html, title: str, more: str, legend: Sequence[Sample], numbers: Html) -> Html:
    """All of it in one element that is never cut across pages."""
    samples = [element("li", drawing.swatch(sample.look, sample.kind), sample.name) for sample in legend]
    return element(
        "figure",
        element("figcaption", element("strong", f"{title}."), f" {more}" if more else None),
        drawn,
        element("ul", samples, class_="legend") if samples else None,
        folded(f"The numbers: {title[0].lower()}{title[1:]}", numbers),
        id_=name,
    )
