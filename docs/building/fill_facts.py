"""Write measured numbers from stored records into the pages: ``python docs/building/fill_facts.py [--check]``.

A page marks a measured value with two comments, in a sentence, a table cell, or around a whole table:

    The default reaches <!-- fact: finals.mnist-0.8 -->98.2<!-- end -->% on MNIST.

``finals.mnist-0.8`` is the entry ``mnist-0.8`` of the dictionary that ``facts()`` returns in
``docs/building/facts/finals.py``. Such a module reads stored records (``results/``, ``benchmarks/results/``) and
formats them; it measures nothing. Without ``--check`` the pages are rewritten. With it, every value that differs from
its record is printed and the exit code is 1.

In Markdown, a comment at the beginning of a line ends a paragraph. Paragraphs in which a line begins with a marker are
therefore wrapped again.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # for study_tables
WIDTH = 119
MARKER = re.compile(r"<!-- fact: ([\w-]+)\.([^\s]+) -->(.*?)<!-- end -->", re.DOTALL)


@cache
def read_facts(module: str) -> dict[str, str]:
    """Return the facts of one module under ``docs/building/facts``."""
    path = ROOT / "docs" / "building" / "facts" / f"{module}.py"
    spec = importlib.util.spec_from_file_location(f"facts_{module}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"there is no module of facts {module!r}; {path.relative_to(ROOT)} does not exist.")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    facts: dict[str, str] = loaded.facts()
    return facts


def find_pages() -> list[Path]:
    """Return the README and all pages under ``docs`` and ``examples``."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def fill(text: str) -> str:
    """Return the text with every marked value replaced by its fact."""

    def replace(marker: re.Match[str]) -> str:
        module, name, shown = marker.groups()
        facts = read_facts(module)
        if name not in facts:
            raise SystemExit(
                f"docs/building/facts/{module}.py has no fact {name!r}; it has {', '.join(sorted(facts))}."
            )
        value = facts[name]
        # A table keeps the line breaks that separate it from its markers.
        value = f"\n\n{value.strip()}\n\n" if "\n" in shown else value
        return f"<!-- fact: {module}.{name} -->{value}<!-- end -->"

    return MARKER.sub(replace, text)


def rewrap(text: str) -> str:
    """Wrap every paragraph again in which a line begins with a marker that is followed by text.

    >>> print(rewrap("- It has\\n  <!-- fact: a.b -->3<!-- end --> rows."))
    - It has <!-- fact: a.b -->3<!-- end --> rows.
    """
    parts = re.split(r"(^```.*?^```$|\n{2,}|\n(?= *(?:- |\d+\. |\|)))", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [
        _wrap(part) if re.search(r"^ *<!-- fact: \S+ -->.", part, re.MULTILINE) else part for part in parts[::2]
    ]
    return "".join(parts)


def _wrap(paragraph: str) -> str:
    start = re.match(r" *(?:- |\d+\. )?", paragraph)
    indent = start[0] if start else ""
    words = " ".join(paragraph[len(indent) :].split())
    # A marker and the word before it stay together.
    glued = re.sub(r" ?<!-- fact: .*?<!-- end -->", lambda marker: marker[0].replace(" ", "\0"), words)
    lines = textwrap.wrap(
        glued,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ") + paragraph[len(paragraph.rstrip("\n")) :]


def differences(page: Path) -> Iterator[str]:
    """Yield one line for each value of a page that differs from its record."""
    text = page.read_text(encoding="utf-8")
    for shown, filled in zip(MARKER.finditer(text), MARKER.finditer(fill(text)), strict=True):
        if shown[3] != filled[3]:
            place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, shown.start()) + 1}"
            yield f"{place}: {shown[1]}.{shown[2]} is {filled[3].strip()!r}, not {shown[3].strip()!r}"
    if rewrap(text) != text:
        yield f"{page.relative_to(ROOT)}: a line of a paragraph begins with a marker, which ends the paragraph"


def main() -> int:
    """Fill or check all pages."""
    if "--check" in sys.argv[1:]:
        found = [line for page in find_pages() for line in differences(page)]
        print("\n".join(found) or "every marked value equals its record")
        return int(bool(found))
    for page in find_pages():
        text = page.read_text(encoding="utf-8")
        if (filled := rewrap(fill(text))) != text:
            page.write_text(filled, encoding="utf-8")
            print(f"filled {page.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
