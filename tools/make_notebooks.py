"""Write the start pages as executed notebooks: ``python tools/make_notebooks.py [PAGE …]``.

The Markdown pages under ``docs/start`` are the only source. Each code block of a page becomes cells of
``notebooks/<page>.ipynb``:

- a Python block with prompts (``>>>``) becomes one cell per printed output, without the prompts;
- a ``console`` block becomes ``!uulearn …`` cells (``%cd`` for ``cd``);
- a ``bash`` block is shown but not executed, because it installs a package, needs a download or runs for hours.

This script is used instead of markdown-exec, mkdocs-jupyter or Sybil, because the pages stay readable on GitHub with
their output, every block runs in the tests (pytest's doctest for Python, nbclient for whole pages), and numbers are
compared with a tolerance: doctest's NUMBER option compares the shown digits, and `matches` compares consoles and
notebooks. Output generated at build time would not be checked, and a second source would diverge from the first.
"""

from __future__ import annotations

import doctest
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "start"
NOTEBOOKS = ROOT / "notebooks"
STARTS = ("two-files", "tables", "notebook", "own-loop", "paper")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d[\d,]*(?:\.\d+)?(?!\w)")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RELATIVE, ABSOLUTE, POINTS = 0.05, 0.02, 2.0
"""Tolerances of decimal numbers above 1, of other decimal numbers, and of percentages."""
INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
}  # fmt: skip
"""Vector instructions of torch, oneDNN, MKL and OpenBLAS on x86 processors.

Processors with other instructions round differently, and training amplifies the difference beyond the tolerances.
"""


class Block(NamedTuple):
    """A part of a page: prose (kind ``markdown``), a Python statement or a command, with its expected output."""

    kind: str
    source: str
    output: str = ""


# ---------------------------------------------------------------------------------------------------------- the pages


def read_blocks(text: str) -> list[Block]:
    """Split a page into prose, Python statements and commands."""
    blocks, place = [], 0
    for fence in FENCE.finditer(text):
        language, body = fence.groups()
        if language == "console" or (language == "python" and body.startswith(">>> ")):
            blocks.append(Block("markdown", text[place : fence.start()].strip()))
            blocks += read_console(body) if language == "console" else _read_python(body)
            place = fence.end()
    blocks.append(Block("markdown", text[place:].strip()))
    return [block for block in blocks if block.source]


def read_console(body: str) -> list[Block]:
    """Split a console block at its prompts.

    >>> read_console("$ cd there\\n$ ls\\na\\nb\\n")
    [Block(kind='console', source='cd there', output=''), Block(kind='console', source='ls', output='a\\nb\\n')]
    """
    commands = re.split(r"^\$ ", body, flags=re.MULTILINE)
    if commands[0].strip():
        raise ValueError(f"a console block must start with a prompt, got {body!r}; start it with '$ '.")
    joined = (re.sub(r"\\\n\s*", "", command) for command in commands[1:])
    split = (command.partition("\n") for command in joined)
    return [Block("console", re.sub(r"\s+#.*", "", line).strip(), output) for line, _, output in split]


def _read_python(body: str) -> Iterator[Block]:
    """Yield Python statements, joined up to the next one that prints output."""
    source, end = "", 0
    for example in doctest.DocTestParser().get_examples(body):
        blank = "\n" if source and example.lineno > end else ""
        source, end = source + blank + example.source, example.lineno + example.source.count("\n")
        if example.want:
            yield Block("python", source.strip(), example.want)
            source = ""
    if source:
        yield Block("python", source.strip())


# ------------------------------------------------------------------------------------------------------ the notebooks


def make_cells(page: Path, folder: Path = NOTEBOOKS) -> list[tuple[str, str]]:
    """Return the type and source of every cell of a page's notebook."""
    cells = []
    for block in read_blocks(page.read_text(encoding="utf-8")):
        if block.kind == "markdown":
            cells.append(("markdown", _adapt_prose(block.source, page.parent, folder)))
        elif block.kind == "python":
            cells.append(("code", block.source))
        else:
            cells.append(("code", f"%{block.source}" if block.source.startswith("cd ") else f"!{block.source}"))
    return [(kind, source) for kind, source in cells if source]


def _adapt_prose(text: str, page_folder: Path, folder: Path) -> str:
    """Make links relative to the notebook's folder, and remove the markers of measured numbers."""

    def turn(link: re.Match[str]) -> str:
        image, label, target, anchor = link.groups()
        if image and "/start-" in target:
            return ""  # the plot of the cell above
        if "://" in target or not target:
            return link[0]
        place = os.path.relpath(page_folder / target, folder)
        return f"{image}[{label}]({Path(place).as_posix()}{anchor or ''})"

    return LINK.sub(turn, re.sub(r"<!-- (?:fact: \S+|end) -->", "", text)).strip()


def make_notebook(page: Path) -> Any:
    """Return the notebook of a page without executing it."""
    from nbformat import v4

    notebook = v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for number, (kind, source) in enumerate(make_cells(page)):
        make = v4.new_markdown_cell if kind == "markdown" else v4.new_code_cell
        notebook.cells.append(make(source, id=f"{page.stem}-{number}"))
    return notebook


def use_common_instructions() -> None:
    """Use the vector instructions that x86 processors have in common; call it before torch and NumPy are imported."""
    if platform.machine() in ("x86_64", "AMD64"):
        for name, value in INSTRUCTIONS.items():
            os.environ.setdefault(name, value)


def execute(notebook: Any, timeout: float = 300) -> None:
    """Run a notebook in an empty folder."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        environment = os.environ | {"PATH": path, "COLUMNS": "100"}
        client = NotebookClient(
            notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env=environment)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # contains the time of day
        if cell.cell_type != "code":
            continue
        cell.outputs = _join_streams(cell.outputs)
        if cell.source.startswith("%cd "):
            cell.outputs = []  # shows the folder of this run


def _join_streams(outputs: list[Any]) -> list[Any]:
    """Join consecutive pieces of printed text, and remove the control characters of progress bars."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream" and output.name == joined[-1].name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            output.text = clean_output(output.text)
    return joined


def clean_output(text: str) -> str:
    """Remove escape sequences and lines that were overwritten or erased.

    >>> clean_output("10%\\r\\x1b[2K20%\\r\\n\\r\\x1b[1A\\x1b[2Kdone\\r\\n")
    'done\\n'
    """
    text = re.sub(r"\n\r?\x1b\[1A", "\r", text.replace("\r\n", "\n"))  # one line up
    lines = ESCAPE.sub("", text.replace("\x1b[2K", "\r")).split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def read_output(cell: Any) -> str:
    """Return the printed and displayed output of a code cell as text."""
    parts = [
        output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "") + "\n"
        for output in cell.outputs
    ]
    return "".join(parts)


# --------------------------------------------------------------------------------------------------------- comparison


def matches(expected: str, got: str) -> bool:
    """Return whether an output matches the one on a page: the same text and similar numbers.

    White space is normalized and ``...`` stands for any text. Whole numbers must be equal, unless a percent sign
    follows; decimal numbers may differ by 0.02, or by 5% if they are above 1, and percentages by 2 points.

    >>> matches("accuracy 93.8% of 500 rows ...", "accuracy   93.1% of 500 rows\\nin 3 s")
    True
    >>> matches("500 rows", "501 rows"), matches("AUC 0.977", "AUC 0.95"), matches("between 88%", "between 89%")
    (False, False, True)
    """
    wanted, found = (" ".join(text.split()) for text in (expected, got))
    parts = [re.escape(part) for part in NUMBER.sub("\0", wanted).split("...")]
    pattern = ".*?".join(parts).replace("\0", f"({NUMBER.pattern})")
    # Numbers in skipped text are not compared, so the expected numbers are those of the pattern's groups.
    if (match := re.fullmatch(pattern, found)) is None:
        return False
    numbers = list(NUMBER.finditer(wanted))
    return all(
        _close(number[0], own, wanted[number.end() : number.end() + 1] == "%")
        for number, own in zip(numbers, match.groups(), strict=True)
    )


def _close(expected: str, got: str, percentage: bool) -> bool:
    first, second = (float(text.replace(",", "").replace("−", "-")) for text in (expected, got))
    if "." in expected:
        return abs(first - second) <= max(ABSOLUTE, RELATIVE * abs(first) * (abs(first) > 1), POINTS * percentage)
    return abs(first - second) <= POINTS * percentage


def differences(page: Path, notebook: Any) -> list[str]:
    """Return one text per cell of an executed notebook whose output differs from the page."""
    blocks = [block for block in read_blocks(page.read_text(encoding="utf-8")) if block.kind != "markdown"]
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = []
    for block, cell in zip(blocks, cells, strict=True):
        got = read_output(cell)
        plots = any(output.output_type == "display_data" for output in cell.outputs)
        if not plots and not block.source.startswith("cd ") and not matches(block.output, got):
            found.append(f"{cell.source}\nprinted\n{got}\ninstead of\n{block.output}")
    return found


def main() -> int:
    """Write the notebooks of the given pages, or of all pages."""
    import nbformat

    use_common_instructions()
    NOTEBOOKS.mkdir(exist_ok=True)
    failed = 0
    for name in sys.argv[1:] or STARTS:
        page = PAGES / f"{name}.md"
        notebook = make_notebook(page)
        execute(notebook)
        nbformat.write(notebook, NOTEBOOKS / f"{name}.ipynb")
        print(f"wrote {(NOTEBOOKS / f'{name}.ipynb').relative_to(ROOT)}")
        for difference in differences(page, notebook):
            failed = 1
            print(f"{page.relative_to(ROOT)}: {difference}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
