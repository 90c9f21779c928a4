"""A killed or interrupted fit leaves the old model, the new one or none, and the next fit resumes or restarts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.command_line import write_files

HELPERS = Path(__file__).parents[1] / "helpers"
TRIALS = [
    *(("nothing", "SIGKILL", number) for number in (2, 22, -25, -2)),
    *(("old", "SIGKILL", number) for number in (30, -30, -2)),
    ("empty", "SIGKILL", -30),
    *(("nothing", "SIGINT", number) for number in (1, 17)),
    *(("old", "SIGINT", number) for number in (-30, -2)),
]
"""What the folder holds before, the signal, and when it is sent; see `moments`."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Each trial with its outcome, and the weights of an undisturbed fit."""
    folder = write_files(tmp_path_factory.mktemp("moments"))
    done = subprocess.run(
        [sys.executable, str(HELPERS / "moments.py"), str(folder)],
        input=json.dumps(TRIALS),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return list(zip(TRIALS, result["outcomes"], strict=True)), result["expected"]


def test_model_is_complete_or_absent(trials):
    allowed = {
        "nothing": {"nothing", "new"},
        "old": {"old", "new", "new, without its card"},  # the last state is between two renames
        "empty": {"empty", "new", "remains"},
    }
    for (there, sent, number), outcome in trials[0]:
        assert outcome["state"] in allowed[there], (there, sent, number, outcome)
    states = {(there, outcome["state"]) for (there, _, _), outcome in trials[0]}
    assert states >= {("nothing", "nothing"), ("nothing", "new"), ("old", "old"), ("old", "new")}


def test_next_fit_equals_an_undisturbed_fit(trials):
    outcomes, expected = trials
    for wanted, outcome in outcomes:
        assert outcome["again"] == [0], (wanted, outcome)
        assert (outcome["weights"], outcome["files"], outcome["left"]) == (expected, 8, []), (wanted, outcome)
    assert {outcome["unfinished"] for _, outcome in outcomes} == {True, False}  # resumed, and restarted


def test_interrupted_fit_reports_what_was_written(trials):
    for (there, sent, number), outcome in trials[0]:
        if sent == "SIGKILL":
            assert (outcome["code"], outcome["said"]) == (-9, []), (there, number, outcome)
            continue
        assert outcome["code"] == 130
        (sentence,) = outcome["said"]
        written = outcome["state"].startswith("new")
        if written:
            assert sentence.startswith("interrupted: the model was already written to ")
        else:
            assert sentence == "interrupted" or sentence.startswith("interrupted: nothing was written to ")
        assert ("continue with uulearn fit … --resume" in sentence) == (outcome["unfinished"] and not written)
    sentences = {outcome["said"][0].split(" to /")[0] for (_, sent, _), outcome in trials[0] if sent == "SIGINT"}
    assert len(sentences) == 3


INTERRUPTED = """
import os, signal, sys
def hook(event, arguments):
    if event == "import" and arguments[0] == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(hook)
sys.argv = ["uulearn", "predict", "model", "rows.csv"]
from uulearn.cli import main
main()
"""

AT_THE_END = """
import atexit, os, signal, sys, time
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)  # gives Python time to handle the signal
atexit.register(interrupt)  # registered first, so it runs last
sys.argv = ["uulearn", "--version"]
from uulearn.cli import main
main()
"""


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("module", ["typer", "uulearn.app.scoring", "torch"])
def test_interrupt_during_imports_is_reported(module):
    assert python(INTERRUPTED.format(module=module)) == (130, "", "interrupted")


def test_interrupt_at_exit_is_ignored():
    code, said, error = python(AT_THE_END)
    assert (code, error) == (0, "")
    assert said.startswith("uulearn ")
