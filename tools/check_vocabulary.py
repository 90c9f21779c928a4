"""Check that code and documentation use the project's vocabulary: ``python tools/check_vocabulary.py [FILE ...]``.

Without arguments, all Python, Markdown, TOML and template files of the project are checked. Each finding is printed as
``path:line: 'word': write 'replacement'``, and the exit code is 1 if there is a finding. A line that needs a listed
word, for example in a quotation, has the comment ``vocabulary: ok``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

# Word or phrase as a regular expression -> replacement. Only letters count as parts of words, so that ``kept_epoch``
# and ``members_`` are found in identifiers, and "amended" is not.
TERMS = {
    # terms of the field
    r"shares? of (the )?positives?": "class prior (or: fraction of positives)",
    r"richer": "(the set with the) higher prior",
    r"poorer": "(the set with the) lower prior",
    r"judg(e|es|ed|ing|ement|ements|ment)": "evaluate, evaluation",
    r"(ensemble )?members?": "ensemble, model, fold",
    r"cross[-_ ]fit(ted|ting)?": "out-of-fold",
    r"kept[-_ ]epochs?": "best epoch",
    r"rounds of refinement": "self-training",
    r"give-?aways?": "leaking column, leakage",
    r"differ in more than their (shares|priors)": "violate the mixture assumption",
    r"(un)?settle[sd]?|settling": "resolve, resolved",
    r"brackets?": "risk term",
    r"perceptrons?": "MLP",
    r"retarget(s|ed|ing)?": "re-target, shift the prior",
    r"twins?": "copy",
    # plain English
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"whoever": "the user, the caller",
    r"(scikit-learn's )?manners": "API",
    r"so many": "the number of",
    r"of which": "a second sentence",
    r"broken off": "interrupted, failed",
    r"left alone": "skipped, unchanged",
    r"(are|is) due": "expected N, found M",
    r"to be had": "available",
    r"(where|if) (that|it|this) is asked( for)?": "if requested",
    r"is no (number|file|folder|integer|word)": "is not a",
    r"luck": "chance",
    r"told": "reported, given",
    r"heard": "received",
    r"drawers?": "folder, group",
    r"whence|thence|thereof|whereof|therein|wherein": "a plain sentence",
    # American spelling; "realised_priors" is a key of stored records and is allowed
    r"colours?": "color",
    r"grey": "gray",
    r"centre[sd]?": "center",
    r"behaviours?": "behavior",
    r"neighbours?(ing|hood)?": "neighbor",
    r"favour(s|ed|ite)?": "favor",
    r"(?!realised_priors)(un)?(normali|initiali|minimi|maximi|optimi|generali|regulari|reali|summari|recogni|organi|standardi|factori"
    r"|vectori|quanti|discreti|binari|seriali|synchroni|utili|penali|parametri|memori|categori|characteri)"
    r"s(e|es|ed|ing|er|ers|ation|ations)": "-ize, -ization",
}
PATTERN = re.compile("|".join(f"(?<![a-z])(?:{term})(?![a-z])" for term in TERMS), re.IGNORECASE)

FOLDERS = ("src", "tests", "docs", "benchmarks", "examples", "tools")
FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "Makefile", "pyproject.toml")
SUFFIXES = {".py", ".md", ".toml", ".html", ".jinja"}
EXCLUDED_FOLDERS = {"results", "work", "__pycache__"}
# These two files list the words. The module docstring of `uulearn.risk` mentions the paper's term for the risk terms.
EXCLUDED_FILES = {"tools/check_vocabulary.py", "tests/test_vocabulary.py"}
ALLOWED = {
    ("src/uulearn/risk/__init__.py", "bracket"),
    ("src/uulearn/report/templates/report.html.jinja", "brackets"),
}
ESCAPE = "vocabulary: ok"


class Finding(NamedTuple):
    """One use of a listed word."""

    line: int
    word: str
    replacement: str


def check_text(text: str) -> Iterator[Finding]:
    """Yield every use of a listed word in a text, in order."""
    for number, line in enumerate(text.splitlines(), start=1):
        if ESCAPE in line:
            continue
        for match in PATTERN.finditer(line):
            word = match.group()
            yield Finding(number, word, next(text for term, text in TERMS.items() if _matches(term, word)))


def _matches(term: str, word: str) -> bool:
    return re.fullmatch(term, word, re.IGNORECASE) is not None


def project_files(root: Path) -> list[Path]:
    """Return the files to check, relative to the project's root."""
    found = [root / name for name in FILES if (root / name).exists()]
    for folder in FOLDERS:
        found += [path for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
    return [path.relative_to(root) for path in found]


def main(names: Iterable[str] = ()) -> int:
    """Print all findings in the given files, or in the whole project; return the exit code."""
    root = Path(__file__).resolve().parents[1]
    paths = [Path(name).resolve().relative_to(root) for name in names] or project_files(root)
    failed = False
    for path in paths:
        shown = path.as_posix()
        if shown in EXCLUDED_FILES or EXCLUDED_FOLDERS & set(path.parts):
            continue
        for line, word, replacement in check_text((root / path).read_text("utf-8")):
            if (shown, word.lower()) not in ALLOWED:
                print(f"{shown}:{line}: {word!r}: write {replacement!r}")
                failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
