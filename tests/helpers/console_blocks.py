"""Runs the console blocks of a page of the documentation and compares their output with the page."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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
        command = [sys.executable, "-m", "uulearn", *arguments] if program == "uulearn" else [program, *arguments]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=300, env=os.environ | {"COLUMNS": "100"}
        )
        printed = done.stdout + (done.stderr if "..." not in block.output else "")
        if done.returncode or not tool.matches(block.output, printed):
            found.append(f"$ {block.source}\n{done.stdout}{done.stderr}\ninstead of\n{block.output}")
    return found
