"""MkDocs hooks that change pages before and after rendering.

Pages link to files outside ``docs``, such as tables of results and the changelog. The site contains a copy of each
linked file under ``repository/``, and its links point to the copies. On GitHub they point to the files themselves.

Code blocks that start with ``>>>`` are highlighted as Python sessions. Fields without a description get no dash.
On a phone, long names in tables and titles can be broken after separators. Options, pairs of priors and names with a
hyphen are not broken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

COPIES = "repository"
FENCE = re.compile(r"^(\s*)(```+|~~~+)")
TARGET = re.compile(r"(?<=\]\()([^()\s#]+)(?=[)#])")
"""The address in a Markdown link or image, without its anchor."""
RECORDS = ("studies/", "repository/", "hardening.md")
"""Pages that the search lists after the guides."""
RECORD_BOOST = 0.2
CELL = re.compile(r"<t[dh][^>]*>.*?</t[dh]>", re.DOTALL)
LONG_CODE = re.compile(r"(?<=<code>)[^<]{13,}(?=</code>)")
"""Code of this length in a table may be broken after a separator."""
SEPARATOR = re.compile(r"(?<=\w)([._/(=-]|, ?)(?=[\w&])|(?<=[a-z])(?=[A-Z][a-z])")
PAIR = re.compile(
    r"(?<=>)[\d.]+, [\d.]+(?=</td>)|\([\d.]+, [\d.]+\)"  # two priors
    r"|\([−+±\d.]+ to [−+±\d.]+\)"  # a range after a mean
    r"|[−+]?[\d.]+ ± [\d.]+"
    r"|[θπ]′? [−+] [\d.]+"
    r"|\([\d.]+\) ≠"
    r"|\b[A-Z][\w]*-(?:MNIST|[A-Z]\w*|\d+)\b(?![-/.])"  # a name such as Fashion-MNIST
    r"|\b\de-\d+\b"
)
"""Text in a cell of a table that is kept on one line."""
OUTSIDE_BLOCKS = re.compile(r"<pre.*?</pre>|<[^>]*>|[^<]+", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
MODULE_TITLE = re.compile(r"(?<=>)uulearn(?:\.\w+)+(?=<a class=\"headerlink\"[^>]*>[^<]*</a></h1>)")
NO_DESCRIPTION = re.compile(r'–\s*<div class="doc-md-description">\s*</div>')


def change_outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Apply a function to every line that is not in a fenced block of code.

    >>> change_outside_code("a\\n```\\na\\n```\\na", str.upper)
    'A\\n```\\na\\n```\\nA'
    """
    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = FENCE.match(line)
        if fence:
            lines.append(line)
            fence = "" if mark and mark[2].startswith(fence) and line.strip() == mark[2] else fence
        else:
            fence = mark[2] if mark else ""
            lines.append(line if mark else change(line))
    return "\n".join(lines)


def links_of(markdown: str) -> list[str]:
    """Return the addresses of the relative links and images of a page, in order.

    >>> links_of("[a](b.md#c) ![d](../e.png) [f](https://g.h) [i](#j)")
    ['b.md', '../e.png']
    """
    found: list[str] = []

    def note(line: str) -> str:
        found.extend(TARGET.findall(line))
        return line

    change_outside_code(markdown, note)
    return [target for target in found if "://" not in target and not target.startswith("mailto:")]


def place_in_site(path: Path, docs: Path) -> str:
    """Return the path in the site of a file of the repository.

    >>> place_in_site(Path("/r/docs/a/b.md"), Path("/r/docs")), place_in_site(Path("/r/c/d.md"), Path("/r/docs"))
    ('a/b.md', 'repository/c/d.md')
    """
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    return f"{COPIES}/{path.relative_to(docs.parent).as_posix()}"


def _linked_from(page: Path) -> list[Path]:
    return [Path(os.path.normpath(page.parent / target)) for target in links_of(page.read_text(encoding="utf-8"))]


def _in_nav(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [name for entry in (nav.values() if isinstance(nav, dict) else nav or []) for name in _in_nav(entry)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Copy to ``repository/`` the files that the navigation lists or pages link to, directly or through a copy."""
    docs = Path(config.docs_dir)
    wanted = [docs.parent / name.removeprefix(f"{COPIES}/") for name in _in_nav(config.nav) if name.startswith(COPIES)]
    pages = [Path(str(file.abs_src_path)) for file in files.documentation_pages()]
    wanted += [target for page in pages for target in _linked_from(page)]
    while wanted:
        path = wanted.pop()
        name = place_in_site(path, docs) if path.is_relative_to(docs.parent) else ""
        if path.is_relative_to(docs) or not path.exists() or files.get_file_from_path(name):
            continue  # MkDocs reports missing files itself
        if path.is_dir():
            raise PluginError(f"a page links to the folder {path}; link to a file instead.")
        files.append(File.generated(config, name, abs_src_path=str(path)))
        wanted += _linked_from(path) if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside ``docs`` to copies, highlight Python sessions, and rank records low in search."""
    docs, here = Path(config.docs_dir), Path(str(page.file.abs_src_path))

    def turn(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(here.parent / link[0]))
        if "://" in link[0] or not path.is_relative_to(docs.parent) or not path.exists():
            return link[0]
        return os.path.relpath(place_in_site(path, docs), os.path.dirname(page.file.src_uri))

    if page.file.src_uri.startswith(RECORDS):
        page.meta.setdefault("search", {})["boost"] = RECORD_BOOST
    markdown = change_outside_code(markdown, lambda line: TARGET.sub(turn, line))
    if page.file.src_uri.startswith(f"{COPIES}/"):
        markdown = re.sub(r"\A\s*##+ ", "# ", markdown)  # generated tables start at a lower heading level
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """Remove the dash after a field that has no description, and mark where long names may be broken."""
    html = MODULE_TITLE.sub(lambda title: title[0].replace(".", ".<wbr>"), NO_DESCRIPTION.sub("", html))
    return CELL.sub(lambda cell: allow_breaks(cell[0]), keep_options(html))


def keep_options(html: str) -> str:
    """Keep every option of a command on one line, except in blocks of code, which are not wrapped.

    >>> keep_options("<p>Use <code>--set-priors 0.8 0.2</code></p>")
    '<p>Use <code><span class="option">--set-priors</span> 0.8 0.2</code></p>'
    >>> keep_options("<pre>fit --out</pre>")
    '<pre>fit --out</pre>'
    """

    def mark(part: re.Match[str]) -> str:
        return part[0] if part[0].startswith("<") else OPTION.sub(r'<span class="option">\g<0></span>', part[0])

    return OUTSIDE_BLOCKS.sub(mark, html)


def allow_breaks(cell: str) -> str:
    """Let long code in a cell of a table be broken after separators, and keep pairs and names on one line.

    >>> allow_breaks("<td><code>estimate_set_priors</code></td>")
    '<td><code>estimate_<wbr>set_<wbr>priors</code></td>'
    >>> allow_breaks("<td>(0.8, 0.2)</td>")
    '<td><span class="pair">(0.8, 0.2)</span></td>'
    >>> allow_breaks("<td>Fashion-MNIST, 1.5 (+1.0 to +2.0)</td>")
    '<td><span class="pair">Fashion-MNIST</span>, 1.5 <span class="pair">(+1.0 to +2.0)</span></td>'
    """
    cell = LONG_CODE.sub(lambda code: SEPARATOR.sub(r"\1<wbr>", code[0]), cell)
    return PAIR.sub(r'<span class="pair">\g<0></span>', cell)
