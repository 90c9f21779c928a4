"""Runs the console blocks of a page of the documentation and compares their output with the page."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from helpers.processes import python

ROOT = Path(__file__).resolve().parents[2]


def load_notebook_tool() -> ModuleType:
    """Import tools/make_notebooks.py, which reads pages and compares outputs."""
    spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "tools" / "make_notebooks.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_notebooks"] = module
    spec.loader.exec_module(module)
    return module


def run_console(page: Path, folder: Path) -> list[str]:
    """Run the commands of a page in order, starting in a folder; return one text per output that differs."""
    tool, found = load_notebook_tool(), []
    for block in tool.read_blocks(page.read_text(encoding="utf-8")):
        if block.kind != "console":
            continue
        program, *arguments = shlex.split(block.source)
        if program == "cd":
            folder = folder / arguments[0]
            continue
        code, out, err = _run([program, *arguments], folder)
        if code or not tool.matches(block.output, out + (err if "..." not in block.output else "")):
            found.append(f"$ {block.source}\n{out}{err}\ninstead of\n{block.output}")
    return found


def _run(command: list[str], folder: Path) -> tuple[int, str, str]:
    """Return the exit code, the standard output and the standard error of a command."""
    if command[0] == "uulearn":
        return python("-m", *command, cwd=folder, env={"COLUMNS": "100"})
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr
