"""A fit that is killed or interrupted: the old model, the new one or none, and the next fit goes on or begins again."""

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
"""What is there before, what is sent, and when; see `moments`."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no copies of processes here")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The trials and what became of each, and the weights of a fit that nothing disturbs."""
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


def test_there_is_never_half_a_model(told):
    allowed = {
        "nothing": {"nothing", "new"},
        "old": {"old", "new", "new, without its card"},  # the last between two renames
        "empty": {"empty", "new", "remains"},
    }
    for (there, sent, number), outcome in told[0]:
        assert outcome["state"] in allowed[there], (there, sent, number, outcome)
    states = {(there, outcome["state"]) for (there, _, _), outcome in told[0]}
    assert states >= {("nothing", "nothing"), ("nothing", "new"), ("old", "old"), ("old", "new")}


def test_the_next_fit_ends_as_if_nothing_had_happened(told):
    outcomes, expected = told
    for wanted, outcome in outcomes:
        assert outcome["again"] == [0], (wanted, outcome)
        assert (outcome["weights"], outcome["files"], outcome["left"]) == (expected, 8, []), (wanted, outcome)
    assert {outcome["unfinished"] for _, outcome in outcomes} == {True, False}  # resumed, and begun again


def test_an_interrupted_fit_says_so_and_what_is_there(told):
    for (there, sent, number), outcome in told[0]:
        if sent == "SIGKILL":
            assert (outcome["code"], outcome["said"]) == (-9, []), (there, number, outcome)
            continue
        assert outcome["code"] == 130
        (sentence,) = outcome["said"]
        written = outcome["state"].startswith("new")
        if written:
            assert sentence.startswith("interrupted: the model had just been written to ")
        else:
            assert sentence == "interrupted" or sentence.startswith("interrupted: nothing was written to ")
        assert ("--resume goes on from there" in sentence) == (outcome["unfinished"] and not written)
    sentences = {outcome["said"][0].split(" to /")[0] for (_, sent, _), outcome in told[0] if sent == "SIGINT"}
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
    time.sleep(0.01)  # an interrupt is noticed here at the latest
atexit.register(interrupt)  # before those of the command, so it runs after them
sys.argv = ["uulearn", "--version"]
from uulearn.cli import main
main()
"""


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize("module", ["typer", "uulearn.cli.predict", "torch"])
def test_an_interrupt_while_modules_are_imported(module):
    assert python(INTERRUPTED.format(module=module)) == (130, "", "interrupted")


def test_an_interrupt_when_all_is_done_is_too_late():
    code, said, error = python(AT_THE_END)
    assert (code, error) == (0, "")
    assert said.startswith("uulearn ")
