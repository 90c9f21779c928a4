"""Compare the output of the README and the start pages with a tolerance.

These pages show the exact output of one machine. Other machines may print slightly different numbers.
"""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


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
