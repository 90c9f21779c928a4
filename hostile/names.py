"""Hostile column names, categories, ids and file names in the terminal, the report, the model card and the scores."""

from __future__ import annotations

import csv
import html.parser
import os
import pty
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import Ended, Forked, command, run
from hostile.tables import SETS, SMALL, Rows, csv_text, draw_rows, expect, fit_small, write_tables

MARK = "uumark"
"""Text in every payload, by which it is found again."""
PAYLOADS = (
    f"<script>alert('{MARK}')</script>", f"<img src=x onerror={MARK}>", f'"><svg onload={MARK}>',
    f"' onmouseover='{MARK}", f"</title><b>{MARK}", f"</style><script>{MARK}</script>", f"<!-- {MARK}",
    f"&lt;b&gt;{MARK}", f"{{{{7*7}}}}{MARK}", f"{{% for x in y %}}{MARK}", f"\x1b[31m{MARK}\x1b[0m",
    f"\x1b]0;{MARK}\x07", f"\x9b31m{MARK}", f"\x08\x08{MARK}", f"\u202e{MARK}", f"\u2066{MARK}",
    f"\u2028{MARK}", f"=cmd|'/c calc'!{MARK}", f"+1+{MARK}", f"-1+{MARK}", f"@SUM({MARK})", f"\t={MARK}",
    f"\r={MARK}", f"\n={MARK}", f"=HYPERLINK(\"http://evil.example/{MARK}\")", f"`{MARK}` <b>x</b>",
    f"```{MARK}", f"[{MARK}](javascript:alert(1))", f"![{MARK}](http://evil.example/x.png)", f"|{MARK}|",
    f"# {MARK}", f"> {MARK}", f"{MARK}\n\n<script>x</script>", f"{MARK}\r\nSet-Cookie: x", f"%s%n{MARK}",
    f"$({MARK})", f"`{MARK}`; rm -rf x", f"../../{MARK}", f"{MARK}\\", f"\\x1b[31m{MARK}",
    f"{MARK}" + "x" * 3000, f"__class__{MARK}", f"<http://evil.example/{MARK}>", f"**{MARK}**", f"1. {MARK}",
    f"    {MARK}", f"\ufeff{MARK}", f"<a href='javascript:{MARK}'>x</a>", f"data:text/html,{MARK}",
)  # fmt: skip
ROLES = ("column", "unused column", "category", "id value", "id column", "file", "output")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet reads as a formula."""
LAYOUT = "\n\t\u2068\u2069\u00a0\u00ad\u200b\u202f\u2009"
"""Characters that pages may contain: line ends, spaces, and the isolates that the report puts around names."""
ALLOWED_IN_CARD = {
    "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "ul", "li", "strong",
    "em", "span", "div",
}  # fmt: skip
USUAL: dict[str, set[str]] = {"tags": set(), "attributes": set()}
"""Tags and attributes of a report without hostile names."""


class Page(html.parser.HTMLParser):
    """The tags, the attributes and their values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a tag and its attributes."""
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            self.values.append((name, value or ""))

    def handle_comment(self, data: str) -> None:
        """Collect a comment."""
        self.comments.append(data)


def prepare(shared: Path) -> None:
    """Make a usual model and its report."""
    write_tables(shared)
    fit_small(shared, shared / "model")
    expect(run("report", shared / "model", "--out", shared / "usual.html"))
    page = Page((shared / "usual.html").read_text())
    USUAL["tags"], USUAL["attributes"] = page.tags, page.attributes
    import markdown  # noqa: F401  (imported before the fork)


def make_tables(role: str, payload: str, folder: Path, trial: Trial) -> tuple[list[Path], str]:
    """Write the three tables with a payload in one role; return their paths and the name of the id column."""
    header = ["id", "age", "dose", "city", "day", "smoker"]
    if role == "column":
        header[int(trial.rng.choice([1, 3, 4]))] = payload
    if role == "id column":
        header[0] = payload
    paths = []
    for name, prior, seed in SETS:
        rows: Rows = draw_rows(60, prior, seed)
        if role == "category":
            rows = [[payload if cell == "Basel" else cell for cell in row] for row in rows]
        if role == "id value":
            rows = [[payload + row[0] if number % 3 else payload, *row[1:]] for number, row in enumerate(rows)]
        names = [*header, payload] if role == "unused column" else header
        if role == "unused column":
            rows = [[*row, "constant"] for row in rows]
        place = folder
        if role == "file":
            safe = payload.replace("/", "∕").replace("\0", "")[:60].encode()[:150].decode(errors="ignore")
            place = folder / name
            place.mkdir()
            path = place / f"{safe}.csv"
        else:
            path = place / f"{name}.csv"
        path.write_text(csv_text(rows, names), encoding="utf-8", newline="")
        paths.append(path)
    return paths, header[0]


def attack(role: str, number: int, trial: Trial) -> None:
    """Fit, report and predict with a payload in one role, and check everything that was written."""
    payload = PAYLOADS[number]
    paths, id_column = make_tables(role, payload, trial.folder, trial)
    trial.counts["payloads"] += 1
    folder = trial.folder / "out"
    if role == "output":
        folder = trial.folder / payload.replace("/", "∕")[:60]
    model = folder / "m"
    ended = run("fit", paths[0], paths[1], *SMALL, "--id", id_column, "--out", model)
    check_terminal(trial, ended)
    if ended.code:
        trial.refused(ended)
        return
    trial.right(ended)
    card = (model / "README.md").read_text(encoding="utf-8")
    check_card(trial, card)
    settings = tomllib.loads((model / "config.toml").read_text(encoding="utf-8"))
    trial.check(settings["first"] == str(paths[0]), f"config.toml has another path: {settings['first']!r}")
    ended = run("report", model)
    check_terminal(trial, ended)
    trial.check(ended.code == 0, f"report: {ended.brief()}")
    check_page(trial, (model / "report.html").read_text(encoding="utf-8"), USUAL["tags"], USUAL["attributes"])
    trial.right(ended)
    for name in ("s.csv", "s.tsv"):
        out = folder / name
        keep = ["--keep-columns"][: int(trial.rng.integers(2))]
        ended = run("predict", model, paths[2], "--out", out, *keep)
        check_terminal(trial, ended)
        if ended.code:
            trial.refused(ended)
            continue
        check_scores(trial, out)
        trial.right(ended)
    ended = run("predict", model, trial.shared / "usual.html", "--format", "csv")
    check_terminal(trial, ended)
    ended = run("predict", model, trial.shared / "a.csv", "--out", folder / "other.csv")  # other columns: an error
    check_terminal(trial, ended)
    ended = run("evaluate", model, paths[0], paths[1])
    check_terminal(trial, ended)
    trial.check(ended.code == 0, f"evaluate: {ended.brief()}")
    trial.right(ended)


def check_terminal(trial: Trial, ended: Ended) -> None:
    """Check that nothing on standard output and standard error can control a terminal."""
    for line in [*ended.out.split("\n"), *ended.said]:
        trial.check(line.isprintable(), f"the terminal shows {line[:300]!r}")


def check_page(trial: Trial, text: str, tags: set[str], attributes: set[str]) -> None:
    """Check that a page has only the usual tags and attributes, and that no payload became markup."""
    page = Page(text)
    odd = (page.tags - tags) | {name for name in page.attributes - attributes if name.startswith("on") or MARK in name}
    trial.check(not odd, f"the page contains {sorted(odd)}")
    for name, value in page.values:
        harmful = name in ("href", "src", "action", "style") and (MARK in value or "evil" in value)
        trial.check(not harmful and not value.strip().lower().startswith("javascript:"), f"{name}={value[:100]!r}")
    trial.check(not any(MARK in comment for comment in page.comments), "a payload is in a comment")
    control = [letter for letter in text if not letter.isprintable() and letter not in LAYOUT]
    trial.check(not control, f"the page contains {control[:3]!r}")


def check_card(trial: Trial, text: str) -> None:
    """Check the model card as Markdown."""
    import markdown

    rendered = markdown.markdown(text, extensions=["tables", "fenced_code"])
    check_page(trial, rendered, ALLOWED_IN_CARD, {"class"})


def check_scores(trial: Trial, path: Path) -> None:
    """Check that no cell is a formula."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    trial.check(len(rows) == 61, f"expected 61 lines, found {len(rows)}")
    for cell in [cell for row in rows for cell in row]:
        trial.check(not cell.startswith(FORMULA) or is_number(cell), f"a spreadsheet reads {cell[:80]!r} as a formula")


def is_number(cell: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def on_terminal(number: int, trial: Trial) -> None:
    """Print scores with hostile ids to a terminal."""
    paths, id_column = make_tables("id value", PAYLOADS[number], trial.folder, trial)
    model = trial.folder / "m"
    ended = run("fit", paths[0], paths[1], *SMALL, "--id", id_column, "--out", model)
    if ended.code:
        trial.refused(ended)
        return
    master, slave = pty.openpty()
    process = Forked(command("predict", model, paths[2]), stdout=Path(os.ttyname(slave)))
    os.set_blocking(master, False)
    data = b""
    while not process.wait(0.05):
        data += read_available(master)
    data += read_available(master)
    ended = process.result()
    os.close(master)
    os.close(slave)
    trial.check(ended.code == 0, f"predict to a terminal: {ended.brief()}")
    lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")
    odd = [line for line in lines if not line.isprintable()]
    trial.check(not odd, f"the terminal shows {odd[:1]}")
    trial.check(len(data) > 500, f"the terminal shows only {data[:100]!r}")
    trial.right()


def read_available(file: int) -> bytes:
    """Read what is available."""
    found = b""
    while True:
        try:
            part = os.read(file, 65536)
        except (BlockingIOError, OSError):
            return found
        if not part:
            return found
        found += part


def cases(scale: float) -> Sequence[Case]:
    """Return every payload in every role; a small scale takes every n-th combination."""
    chosen = [
        Case(f"{role}: {PAYLOADS[number][:30]!r}", partial(attack, role, number))
        for role in ROLES
        for number in range(len(PAYLOADS))
    ]
    shown = [Case(f"terminal: {PAYLOADS[n][:30]!r}", partial(on_terminal, n)) for n in range(len(PAYLOADS))]
    every = [*chosen, *shown]
    return every[:: max(1, len(every) // scaled(len(every), scale))]


AREA = Area("names", "hostile names in the terminal, the report, the model card and the scores", prepare, cases)
