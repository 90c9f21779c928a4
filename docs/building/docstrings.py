"""Docstrings as Markdown: their tables, names in backticks as links, and the fields of records as one list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

RULE = re.compile(r"^\s*=+( +=+)+\s*$")
NAME = re.compile(r"(?<![`\[\w])`(?:uulearn\.)?([A-Za-z_][\w.]*)`(?![`\]\w])")
SHARED = re.compile(r"^(\w+(?:, \w+)+)( : [^\n]*)?\n((?:    [^\n]*\n|\n(?=    ))*)", re.MULTILINE)
"""Parameters that one entry of a docstring describes together."""
TYPE = re.compile(r"^\w+ : ")
"""How a line begins that gives the type of a parameter, which is no Markdown."""
RETURNED = re.compile(r"^(?:Returns|Yields|Raises)\n-+\n[^\n]*`[^\n]*", re.MULTILINE)
"""The head of such a section with the type that comes first in it."""


def to_markdown_tables(text: str) -> str:
    """Simple tables, columns under rules of ``=``, as Markdown tables with an empty head.

    >>> print(to_markdown_tables("===  =====\\n`a`  first\\n`b`  rest\\n===  ====="))
    | | |
    |---|---|
    | `a` | first |
    | `b` | rest |
    """
    lines: list[str] = []
    starts: list[int] = []
    for line in text.split("\n"):
        if RULE.match(line):
            if starts:
                starts = []
            else:
                starts = [match.start() for match in re.finditer("=+", line)]
                lines += ["|" + " |" * len(starts), "|" + "---|" * len(starts)]
        elif starts:
            ends = [*starts[1:], len(line)]
            cells = [line[start:end].strip().replace("|", "\\|") for start, end in zip(starts, ends, strict=True)]
            lines.append("| " + " | ".join(cells) + " |")
        else:
            lines.append(line)
    return "\n".join(lines)


def link_names(text: str, places: dict[str, str]) -> str:
    """Names in single backticks as links to where they are described; prompts and types stay code.

    >>> link_names("see `UURisk`, not ``UURisk``", {"UURisk": "uulearn.risk.UURisk"})
    'see [`UURisk`][uulearn.risk.UURisk], not ``UURisk``'
    >>> link_names("history_ : `uulearn.training.History`", {})
    'history_ : uulearn.training.History'
    >>> link_names("Returns\\n-------\\n`UURisk`\\n    of `UURisk`", {"UURisk": "risk.UURisk"})
    'Returns\\n-------\\nUURisk\\n    of [`UURisk`][risk.UURisk]'
    """

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[`{name}`][{places[name]}]" if name in places else found[0]

    def change(line: str) -> str:
        if TYPE.match(line):
            return line.replace("`", "")
        return line if line.lstrip().startswith(">>>") else NAME.sub(link, line)

    text = RETURNED.sub(lambda found: found[0].replace("`", ""), text)
    return "\n".join(map(change, text.split("\n")))


def split_shared_entries(text: str) -> str:
    """One entry for each of the parameters described together, so that each has its own default.

    >>> print(split_shared_entries("Parameters\\n---\\nlow, high : float\\n    The ends.\\n"))
    Parameters
    ---
    low : float
        The ends.
    high : float
        The ends.
    <BLANKLINE>
    """

    def split(entry: re.Match[str]) -> str:
        body = entry[3].rstrip("\n") + "\n" if entry[3].strip() else "    \n"
        after = entry[3][len(entry[3].rstrip("\n")) + 1 :]
        return "".join(f"{name}{entry[2] or ''}\n{body}" for name in entry[1].split(", ")) + after

    return SHARED.sub(split, text)


class Docstrings(griffe.Extension):
    """What griffe calls when it has read the package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite every docstring of the package."""
        self._rewrite(pkg, dict(_public(pkg)))

    def _rewrite(self, thing: Any, places: dict[str, str]) -> None:
        if thing.is_class and _is_record(thing):
            _describe_fields(thing)
        if thing.docstring:
            text = split_shared_entries(thing.docstring.value)
            thing.docstring.value = link_names(to_markdown_tables(text), places)
        for inner in thing.members.values():  # vocabulary: ok
            if not inner.is_alias:
                self._rewrite(inner, places)


def _public(module: griffe.Module) -> Iterator[tuple[str, str]]:
    """Names as docstrings write them, and the address of each."""
    for name, inner in module.modules.items():
        if name.startswith("_") or not inner.exports:
            continue
        short = inner.path.removeprefix("uulearn.")
        for exported in map(str, inner.exports):
            yield exported, f"{inner.path}.{exported}"
            yield f"{short}.{exported}", f"{inner.path}.{exported}"
        yield from _public(inner)


def _is_record(thing: Any) -> bool:
    decorated = any("dataclass" in str(decorator.value) for decorator in thing.decorators)
    return decorated or any("NamedTuple" in str(base) for base in thing.bases)


def _comment(field: Any) -> str:
    """Return the comment at the end of the line that declares a field, as a sentence."""
    comment = field.source.partition("  # ")[2]
    if not comment or comment.startswith(("type:", "noqa", "fmt:")):
        return ""
    return comment[0].upper() + comment[1:].rstrip(".") + "."


def _describe_fields(record: Any) -> None:
    """Move what is said of the fields into the docstring of the record, as its section of attributes."""
    if not record.docstring or re.search(r"^Attributes\n-", record.docstring.value, re.MULTILINE):
        return
    fields = {
        name: field
        for name, field in record.attributes.items()
        if not name.startswith("_") and field.annotation is not None and "property" not in field.labels
    }
    words = {name: field.docstring.value if field.docstring else _comment(field) for name, field in fields.items()}
    if any(words.values()):
        entries = [
            f"{name} : {fields[name].annotation}\n    " + said.replace("\n", "\n    ") for name, said in words.items()
        ]
        section = "\n".join(["Attributes", "----------", *entries])
        for field in fields.values():
            field.docstring = None
    elif fields:
        section = "Fields: " + ", ".join(f"``{name}`` ({field.annotation})" for name, field in fields.items()) + "."
    else:
        return
    text, heading, examples = record.docstring.value.partition("\nExamples\n---")
    record.docstring.value = text.rstrip("\n") + "\n\n" + section + "\n" + heading + examples
