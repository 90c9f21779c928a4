"""The progress bar: there on a terminal, silent elsewhere and when asked."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest

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
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stderr=other_end,
        stdout=subprocess.PIPE,
        env=os.environ | {"TERM": "xterm", "COLUMNS": str(columns)},
    )
    os.close(other_end)
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
    except OSError:  # Linux reports the end of a terminal so
        pass
    os.close(terminal)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return shown.decode(), out.decode()


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
    done = subprocess.run([sys.executable, script, "on", "0"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
