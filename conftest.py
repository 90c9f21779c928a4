"""Limit the threads and vector instructions of all tests, make torchvision importable, and compare output on pages."""

import doctest
import os
from pathlib import Path

import pytest

from helpers.console_blocks import load_notebook_tool

ROOT = Path(__file__).parent

# pytest-xdist runs two workers on two cores, where two threads of one worker wait for each other most of the time.
# NumPy, torch, scikit-learn and LightGBM read this when they are loaded; processes started by a test inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
load_notebook_tool().use_common_instructions()

import helpers.torchvision_operators  # noqa: E402, F401  (it imports torch)

# Hugging Face libraries fail at once instead of downloading a file.
os.environ["HF_HUB_OFFLINE"] = "1"

# tests/docs/test_start_pages.py runs these pages as notebooks, with the commands between their Python blocks.
collect_ignore = [f"docs/start/{name}.md" for name in ("tables", "notebook", "own-loop", "paper")]


class TolerantChecker(doctest.OutputChecker):
    """Accept an output that has the same text and similar numbers."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Return whether the output matches the page."""
        return super().check_output(want, got, optionflags) or load_notebook_tool().matches(want, got)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Replace the checker of doctests on pages; docstrings are compared exactly."""
    if item.path.suffix == ".md":
        item.runner._checker = TolerantChecker()
