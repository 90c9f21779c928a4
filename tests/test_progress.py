"""The progress bar: there on a terminal, silent elsewhere and when asked."""

import os
import pty
import select
import textwrap

import pytest

from processes import Program, python

RUN = """
    import sys, time, numpy as np
    import uulearn.training.progress as progress
    from uulearn import UUClassifier

    progress.PATIENCE = float(sys.argv[2])
    rng = np.random.default_rng(0)
    classifier = UUClassifier(
        (0.8, 0.2), model="linear", epochs=5, members=1, progress=sys.argv[1] == "on", random_state=0
    )
    classifier.fit_sets(rng.normal(size=(50, 2)) + 1, rng.normal(size=(50, 2)), callback=lambda *_: time.sleep(0.15))
"""


def run_on_terminal(*arguments, columns=100):
    """What Python, called with these, writes to standard error when that is a terminal, and to standard output."""
    terminal, other_end = pty.openpty()
    program = Program(*arguments, env={"TERM": "xterm", "COLUMNS": str(columns)}, err=os.ttyname(other_end))
    shown = b""
    while program.running() or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.05)[0]:
            shown += os.read(terminal, 65536)
    for end in (terminal, other_end):
        os.close(end)
    code, out, _ = program.read()
    assert code == 0
    return shown.decode(), out


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "run.py"
    path.write_text(textwrap.dedent(RUN))
    return str(path)


def test_on_a_terminal_it_shows_epochs_time_left_and_risk(script):
    shown = run_on_terminal(script, "on", "0")[0]
    assert "training" in shown
    assert "5/5" in shown
    assert "risk +0." in shown


def test_short_work_and_progress_false_are_silent(script):
    assert run_on_terminal(script, "on", "60")[0] == ""
    assert run_on_terminal(script, "off", "0")[0] == ""


def test_away_from_a_terminal_it_is_silent(script):
    assert python(script, "on", "0") == (0, "", "")
