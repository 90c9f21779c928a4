"""Render Jinja2 templates for the report and for the reproduction pages.

HTML templates escape every value. Names come from user files, so invisible characters (control characters, direction
overrides, unpaired surrogates) are shown as escape sequences, and long names are shortened.
"""

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from uulearn.app import formatting

NAME_WIDTH = 120
"""Maximum length of a name in a table, in characters; wide characters count twice."""
MESSAGE_WIDTH = 1000
"""Maximum length of a message or note, in characters."""
DIRECTION_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@dataclass(frozen=True)
class HtmlTable:
    """A table for the macro ``data_table``; the first ``text_columns`` columns contain text, the others numbers."""

    caption: str
    head: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    text_columns: int = 1


def render_page(template: str, package: str = "uulearn.report", **values: Any) -> str:
    """Render a template of a package; ``base.html.jinja`` of `uulearn.report` is available to all packages."""
    return _environment(package).get_template(template).render(**values)


@functools.cache
def _environment(package: str) -> Environment:
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "uulearn.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=lambda template: template is not None and template.endswith(".html.jinja"),
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) else value,
    )
    environment.filters["name"] = name
    environment.filters["message"] = lambda text: name(formatting.sentence(text), MESSAGE_WIDTH)
    for function in ("percent", "prior", "count", "interval", "plural", "listing", "sentence", "duration"):
        environment.filters[function] = getattr(formatting, function)
    return environment


def name(text: str, width: int = NAME_WIDTH) -> Markup:
    """Return a shortened name as HTML that cannot change the writing direction of the surrounding text."""
    return Markup("<bdi>{}</bdi>").format(label(text, width))


def label(text: str, width: int = NAME_WIDTH) -> str:
    """Return a shortened name as plain text; see `name`."""
    return shorten(visible(text).strip() or "(no name)", width)


def visible(text: str) -> str:
    """Replace invisible or misleading characters with escape sequences; escaped HTML is unchanged.

    >>> visible("age\\x00 \\u202egpj.exe")
    'age\\\\x00 \\\\u202egpj.exe'
    """
    if isinstance(text, Markup) or (text.isascii() and text.isprintable()):
        return text
    return "".join(c.encode("unicode_escape").decode("ascii") if _is_misleading(c) else c for c in text)


def _is_misleading(character: str) -> bool:
    if character in "\n\t":
        return False
    code = ord(character)
    if code in (0x200B, 0x2060, 0xFEFF):  # spaces and marks without width
        return True
    noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    if noncharacter or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return True
    return unicodedata.bidirectional(character) in DIRECTION_CONTROLS


def shorten(text: str, width: int) -> str:
    """Return the text, truncated to ``width`` characters with an ellipsis; wide characters count twice.

    >>> shorten("mean concave points", 12), shorten("年齢と血圧", 7), shorten("age", 7)
    ('mean concav…', '年齢と…', 'age')
    """
    widths = [_width(character) for character in text]
    if sum(widths) <= width:
        return text
    room = width - 1
    for place, used in enumerate(widths):
        room -= used
        if room < 0:
            return text[:place] + "…"
    return text


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def element(tag: str, content: object = "", **attributes: object) -> Markup:
    """Return an SVG element with escaped content and attributes; ``text_anchor`` becomes ``text-anchor``.

    >>> element("text", "a < b", x=-8, text_anchor="end")
    Markup('<text x="-8" text-anchor="end">a &lt; b</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, escape(content))
