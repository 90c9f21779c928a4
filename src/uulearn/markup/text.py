"""Show names from user files in HTML: escaped, shortened, and with invisible characters made visible."""

import unicodedata

from markupsafe import Markup

NAME_WIDTH = 120
"""Maximum length of a name in a table, in characters; wide characters count twice."""
DIRECTION_CONTROLS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


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
