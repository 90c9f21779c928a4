"""The Python code on a page of the documentation."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def read_section(page: str, title: str) -> str:
    """The text of a page below a second-level heading, up to the next one."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {title!r}"
    return found[1]


def blocks_in(text: str, language: str) -> list[str]:
    """The fenced code blocks of a language that are not indented."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def python_in(page: str, *titles: str) -> list[str]:
    """The Python blocks of some sections in order, without the prompts and outputs of doctests."""
    parser = doctest.DocTestParser()
    return [
        "".join(example.source for example in parser.get_examples(block)) if ">>> " in block else block
        for title in titles
        for block in blocks_in(read_section(page, title), "python")
    ]
