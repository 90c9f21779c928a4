"""The progress bar: shown on a terminal, silent elsewhere and if disabled."""

import textwrap

import pytest

from helpers.processes import python
from helpers.terminal import run_on_terminal

RUN = """
    import sys, time, numpy as np
    import uulearn.training.progress as progress
    from uulearn import UUClassifier

    progress.BAR_DELAY = float(sys.argv[2])
    rng = np.random.default_rng(0)
    classifier = UUClassifier(
        (0.8, 0.2), model="linear", epochs=5, n_estimators=1, progress=sys.argv[1] == "on", random_state=0
    )
    classifier.fit_sets(rng.normal(size=(50, 2)) + 1, rng.normal(size=(50, 2)), callback=lambda *_: time.sleep(0.15))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "run.py"
    path.write_text(textwrap.dedent(RUN))
    return str(path)


def test_shows_epochs_time_left_and_risk_on_a_terminal(script):
    shown = run_on_terminal(script, "on", "0")[0]
    assert "training" in shown
    assert "5/5" in shown
    assert "risk +0." in shown


def test_is_silent_for_short_runs_and_without_progress(script):
    assert run_on_terminal(script, "on", "60")[0] == ""
    assert run_on_terminal(script, "off", "0")[0] == ""


def test_is_silent_without_a_terminal(script):
    assert python(script, "on", "0") == (0, "", "")
