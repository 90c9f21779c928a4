"""Run a `uulearn` command in this process."""

import contextlib
import io
import sys
from types import SimpleNamespace

import pytest

from uulearn.cli import main


def run(*arguments):
    """Run a command; return its exit code, standard output and standard error."""
    before, out, err = sys.argv, io.StringIO(), io.StringIO()
    sys.argv = ["uulearn", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    return SimpleNamespace(code=ended.value.code or 0, out=out.getvalue(), err=err.getvalue())
