"""The runner of the hostile suite: outcomes are counted, a planted failure is reported, and a crash is a failure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.runner import Workers

ROOT = Path(__file__).resolve().parents[1]

PLANTED = """
import os, signal, sys, time
from hostile.cases import Area, Case
from hostile.commands import run
from hostile.runner import main

def right(trial):
    trial.right()

def refused(trial):
    trial.refused(run("predict", trial.folder / "nothing", "rows.csv"), "does not exist")

def planted(trial):
    trial.check(1 + 1 == 3, "a planted failure")

def traceback(trial):
    raise ZeroDivisionError("a planted error")

def dies(trial):
    os.kill(os.getpid(), signal.SIGKILL)

def hangs(trial):
    time.sleep(60)

def loses_the_next(trial):
    read = os.read
    os.read = lambda *arguments: read(*arguments) and os._exit(3)

functions = {name: globals()[name] for name in sys.argv[2:]}
cases = [Case(name, function) for name, function in functions.items()]
area = Area("planted", "planted cases", lambda shared: None, lambda scale: cases, limit=2.0)
sys.exit(main(["--seed", "3", "--jobs", os.environ["JOBS"], "--record", sys.argv[1]], [area]))
"""


def run_planted(record, *names, jobs=2):
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "JOBS": str(jobs)}
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, str(record), *names],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout, json.loads(record.read_text())["areas"]["planted"]


def test_counts_right_and_refused_cases(tmp_path):
    code, out, area = run_planted(tmp_path / "r.json", "right", "refused")
    assert code == 0
    assert out.startswith("seed 3\n")
    assert [area[name] for name in ("cases", "right", "refused", "failures")] == [2, 1, 1, 0]
    assert area["configuration"] == {"seed": 3, "scale": 1.0, "jobs": 2}
    assert area["versions"]["torch"]


def test_reports_failures_crashes_and_hangs(tmp_path):
    code, out, area = run_planted(tmp_path / "r.json", "planted", "right", "traceback", "dies", "hangs", "right")
    assert code == 1
    assert "FAILED planted (number 0): a planted failure" in out
    messages = {failure["case"]: failure["message"] for failure in area["listed_failures"]}
    assert messages.keys() == {"planted", "traceback", "dies", "hangs"}
    assert "ZeroDivisionError" in messages["traceback"]
    assert messages["dies"].startswith("the process died (-9)")
    assert messages["hangs"].startswith("hangs")
    assert area["right"] == 1


def test_cases_lost_by_a_process_that_dies_between_cases_are_failures(tmp_path):
    code, out, area = run_planted(tmp_path / "r.json", "loses_the_next", "right", "refused", jobs=1)
    assert code == 1
    assert "FAILED right (number 1): was not run: a process died between cases" in out
    assert [area[name] for name in ("cases", "right", "refused", "failures")] == [3, 0, 1, 1]


def test_rejects_more_cases_than_the_queue_holds(tmp_path):
    with pytest.raises(ValueError, match=r"an area can have at most [\d,]+ cases, got 1,000,000; split the area"):
        Workers(None, range(1_000_000), 0, tmp_path)


def test_rejects_an_unknown_area():
    done = subprocess.run(
        [sys.executable, "-m", "hostile", "--only", "nothing"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 2
    assert "unknown area 'nothing'" in done.stderr
