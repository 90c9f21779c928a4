"""HTML that escapes by default: what is not marked as HTML is text, wherever it came from."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence

VOID = frozenset({"br", "hr", "link", "meta"})
"""Elements without content, which have no end tag."""
NAME_UNITS = 120
"""How much of a name is shown in a table; a wide character counts for two."""


MESSAGE_UNITS = 1000
"""How much of a sentence is shown that may hold names."""


class Html(str):
    """Text that is HTML already. Joined to plain text it is plain text again, so that nothing slips through."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]


def element(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """One element; children that are not `Html` are escaped, None is left out.

    In names of attributes a trailing underscore is dropped and others become hyphens; a value of True is a bare
    attribute, of None or False none.

    Examples
    --------
    >>> element("p", "a < b ", element("b", "&"), class_="note", aria_label='"x"')
    '<p class="note" aria-label="&quot;x&quot;">a &lt; b <b>&amp;</b></p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Several children one after another."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str | int | float):
            parts.append(html.escape(visible(str(child))))
        elif child is not None:
            parts.append(join(*child))
    return Html("".join(parts))


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(visible(str(value)))}"'


def visible(text: str) -> str:
    """Spell out characters that cannot be seen but do harm: controls, overrides of direction, broken surrogates.

    Examples
    --------
    >>> visible("age\\x00 \\u202egpj.exe")
    'age\\\\x00 \\\\u202egpj.exe'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(c) if _harmful(c) else c for c in text)


def _harmful(character: str) -> bool:
    if character in "\n\t":
        return False
    code = ord(character)
    never_a_character = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    if never_a_character or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
        return True
    return unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shorten(text: str, units: int) -> str:
    """The text, or its beginning and an ellipsis where it takes more room; wide characters count for two.

    Examples
    --------
    >>> shorten("mean concave points", 12), shorten("年齢と血圧", 7), shorten("age", 7)
    ('mean concav…', '年齢と…', 'age')
    """
    widths = [_width(character) for character in text]
    if sum(widths) <= units:
        return text
    room = units - 1
    for place, width in enumerate(widths):
        room -= width
        if room < 0:
            return text[:place] + "…"
    return text


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def named(text: str, units: int = NAME_UNITS) -> Html:
    """A name that somebody else chose: cut where very long, and unable to change the direction of what surrounds it."""
    return element("bdi", shorten(visible(text).strip() or "(no name)", units))


def table(caption: str, head: Sequence[Child], rows: Iterable[Sequence[Child]], *, plain_columns: int = 1) -> Html:
    """A table in a box of its own to scroll in; the first cells of each row are words, the others numbers."""
    heads = [
        element("th", cell, scope="col", class_=None if place < plain_columns else "number")
        for place, cell in enumerate(head)
    ]
    body = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            [
                element("td", cell, class_=None if place < plain_columns else "number")
                for place, cell in enumerate(row[1:], start=1)
            ],
        )
        for row in rows
    ]
    content = element(
        "table", element("caption", caption), element("thead", element("tr", heads)), element("tbody", body)
    )
    return element("div", content, class_="scroll", role="region", aria_label=caption, tabindex="0")


def folded(summary: str, *content: Child, id_: str | None = None) -> Html:
    """Content that opens on demand, by mouse or keyboard."""
    return element("details", element("summary", summary), *content, id_=id_)


def command(text: str) -> Html:
    """A command to copy."""
    return element("pre", element("code", text, dir="ltr"), tabindex="0")


def paragraph(*content: Child) -> Html:
    """A paragraph."""
    return element("p", *content)
