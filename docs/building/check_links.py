"""Check that every link of the built site has a target, and that no page loads resources from another server.

``python docs/building/check_links.py site`` prints all errors and exits with 1, or prints the number of links.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

LEFT_OVER = re.compile(r"\]\[uulearn[\w.]*\]|:::\s*uulearn")
"""Pattern of unresolved cross-references and directives in the text of a page."""


class Reference(NamedTuple):
    """A link or resource of a page."""

    target: str
    is_fetched: bool
    """Whether the browser loads it automatically, as for an image, script or style sheet."""


class PageReader(HTMLParser):
    """Parser that collects the anchors, references and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.references: list[Reference] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the anchors and references of the tag."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given and (name == "id" or tag == "a")}
        if "href" in given and tag in ("a", "link"):
            fetched = tag == "link" and given.get("rel") not in ("canonical", "prev", "next")
            self.references.append(Reference(given["href"], fetched))
        if "src" in given:
            self.references.append(Reference(given["src"], True))

    def handle_data(self, data: str) -> None:
        """Collect the text."""
        self.text.append(data)


def read_page(html: str) -> PageReader:
    """Parse a page.

    >>> page = read_page('<h1 id="a">b</h1><a href="c.html#d">e</a><img src="f.png">')
    >>> page.anchors, page.references
    ({'a'}, [Reference(target='c.html#d', is_fetched=False), Reference(target='f.png', is_fetched=True)])
    """
    reader = PageReader()
    reader.feed(html)
    reader.close()
    return reader


def find_faults(site: Path) -> Iterator[str]:
    """Yield one message per reference without a target or outside the site, and per unresolved directive."""
    pages = {path: read_page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for left_over in LEFT_OVER.findall(" ".join(page.text)):
            yield f"{name}: {left_over!r} was not resolved"
        for reference in dict.fromkeys(page.references):
            fault = _fault(reference, path, pages, site)
            if fault:
                yield f"{name}: {reference.target} {fault}"


def _fault(reference: Reference, path: Path, pages: dict[Path, PageReader], site: Path) -> str | None:
    parts = urlsplit(reference.target)
    if parts.scheme in ("http", "https") or parts.netloc:
        return "is loaded from another server" if reference.is_fetched else None
    if parts.scheme:  # mailto:, data:, javascript:
        return None
    # 404.html is shown at any depth, so its links start at the root of the site.
    place = unquote(urlsplit(urljoin(path.as_posix(), parts.path)).path) if parts.path else path.as_posix()
    target = site / place.lstrip("/") if parts.path.startswith("/") else Path(place)
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(site):
        return "is outside the site"
    if not target.is_file():
        return "does not exist"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors and not anchor.startswith("__"):
        return "has no such anchor"
    return None


def count_references(site: Path) -> int:
    """Return the number of references on all pages of the site."""
    return sum(len(read_page(path.read_text(encoding="utf-8")).references) for path in site.rglob("*.html"))


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    faults = list(find_faults(folder))
    print("\n".join(faults) or f"{count_references(folder):,} links, images and scripts: all have a target")
    sys.exit(bool(faults))
