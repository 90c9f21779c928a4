"""Limit the threads of all tests, and compare the output of the README and the start pages with a tolerance.

These pages show the exact output of one machine. Other machines may print slightly different numbers.
"""

import doctest
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent

# pytest-xdist runs two workers on two cores, where two threads of one worker wait for each other most of the time.
# NumPy, torch, scikit-learn and LightGBM read this when they are loaded; processes started by a test inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# tests/docs/test_start_pages.py runs these pages as notebooks, with the commands between their Python blocks.
collect_ignore = [f"docs/start/{name}.md" for name in ("tables", "notebook", "own-loop", "paper")]


class TolerantChecker(doctest.OutputChecker):
    """Accept an output that has the same text and similar numbers."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Return whether the output matches the page."""
        from helpers.console_blocks import load_notebook_tool

        return want == got or load_notebook_tool().matches(want, got)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replace the checker of doctests in the README and the start pages."""
    if item.path.suffix == ".md" and item.path.parent in (ROOT, ROOT / "docs" / "start"):
        item.runner._checker = TolerantChecker()
