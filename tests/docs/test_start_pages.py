"""The README and the start pages run as printed; their notebooks are up to date and print what the pages show.

pytest collects the Python blocks of the README and the installation page as doctests. The tutorials run as notebooks,
whose cells are the Python blocks and the commands of the page in their order.
"""

from __future__ import annotations

import re

import pytest

from helpers.console_blocks import ROOT, load_notebook_tool, run_console
from helpers.processes import python

START = ROOT / "docs" / "start"
tool = load_notebook_tool()


# ------------------------------------------------------------------------------------------------------------ consoles


def test_commands_of_the_readme_run_after_the_demo(tmp_path):
    assert python("-m", "uulearn", "demo", "--files-only", cwd=tmp_path)[0] == 0
    assert run_console(ROOT / "README.md", tmp_path / "uulearn-demo") == []
    assert (tmp_path / "uulearn-demo" / "scored.csv").stat().st_size > 1000


@pytest.mark.parametrize("name", ["install", "is-this-for-me"])
def test_commands_of_a_page_run(name, tmp_path):
    assert run_console(START / f"{name}.md", tmp_path) == []


def test_a_different_output_is_reported(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo accuracy 0.93\naccuracy 0.87\n```\n")
    assert run_console(page, tmp_path) == ["$ echo accuracy 0.93\naccuracy 0.93\n\ninstead of\naccuracy 0.87\n"]


# ----------------------------------------------------------------------------------------------------------- notebooks


@pytest.mark.parametrize("name", tool.STARTS)
def test_notebook_has_the_cells_of_its_page(name):
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    own = [(cell.cell_type, cell.source) for cell in stored.cells]
    assert own == tool.make_cells(START / f"{name}.md"), f"run: python tools/make_notebooks.py {name}"


@pytest.mark.parametrize("name", tool.STARTS)
def test_stored_outputs_are_those_of_the_page(name):
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    assert tool.differences(START / f"{name}.md", stored) == []
    assert all(cell.execution_count for cell in stored.cells if cell.cell_type == "code")


def line_patterns(text):
    """The lines of an output, with one space between words and without numbers."""
    return [tool.NUMBER.sub("0", " ".join(line.split())) for line in text.splitlines()]


@pytest.mark.parametrize("name", tool.STARTS)
def test_output_of_commands_has_the_line_breaks_of_the_page(name):
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    blocks = [b for b in tool.read_blocks((START / f"{name}.md").read_text(encoding="utf-8")) if b.kind != "markdown"]
    for block, cell in zip(blocks, cells, strict=True):
        if block.kind == "console":
            shown = [line for line in line_patterns(block.output) if line and line != "..."]
            assert [line for line in shown if line not in line_patterns(tool.read_output(cell))] == []


@pytest.mark.parametrize("name", tool.STARTS)
def test_notebook_runs_and_prints_what_the_page_shows(name):
    pytest.importorskip("nbclient")
    page = START / f"{name}.md"
    notebook = tool.make_notebook(page)
    tool.execute(notebook)
    assert tool.differences(page, notebook) == []


def test_links_of_notebooks_lead_somewhere():
    nbformat = pytest.importorskip("nbformat")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        prose = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
        targets = [target for target in re.findall(r"\]\(([^)#\s]+)", prose) if "://" not in target]
        assert targets
        assert [target for target in targets if not (path.parent / target).exists()] == []


def test_the_notebook_page_shows_its_plot():
    text = (START / "notebook.md").read_text(encoding="utf-8")
    assert "../images/start-history.png" in text
    assert (ROOT / "docs" / "images" / "start-history.png").is_file()
    nbformat = pytest.importorskip("nbformat")
    stored = nbformat.read(ROOT / "notebooks" / "notebook.ipynb", as_version=4)
    pictures = [o for c in stored.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(pictures) == 1


# ---------------------------------------------------------------------------------------------------------- comparison


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("accuracy 0.96", "accuracy 0.945\n", True),
        ("accuracy 0.96", "accuracy 0.93", False),
        ("score 5.53", "score 5.29", True),
        ("score 5.53", "score 5.20", False),
        ("between 88% and 94%", "between 86% and 95%", True),
        ("between 88% and 94%", "between 85% and 94%", False),
        ("1,500 rows", "1,501 rows", False),
        ("  padded   text", "padded text", True),
        ("first\n...\nlast 2", "first\nanything 7\nlast 2", True),
        ("first\n...\nlast 2", "first\nanything 7\nlast 3", False),
        ("score -0.78", "score 0.78", False),
        ("", "something", False),
    ],
)
def test_outputs_are_compared_with_a_tolerance(expected, got, same):
    assert tool.matches(expected, got) is same


def test_a_console_block_without_a_prompt_is_refused():
    with pytest.raises(ValueError, match="must start with a prompt"):
        tool.read_console("ls\n")
