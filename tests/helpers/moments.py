"""Kill or interrupt `uulearn fit` at chosen moments, each time in a forked copy of one prepared process.

A moment is the number of file-system calls below the model's folder so far or, if negative, the number of calls that
remain. Run as a script with a folder that contains a.csv and b.csv; trials are read as JSON from standard input, and
their outcomes are written to standard output.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from helpers.command_line import PROGRESS, SMALL, ended, run, weights_of
from uulearn.app.model import TableModel
from uulearn.estimator.model_directory import could_be_model

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.listdir", "os.scandir"}
CARDS = {"README.md", "config.toml"}


def signal_at(number, sent, folder):
    """Send the signal to this process at its n-th step in the folder; return the counter of steps."""
    steps = []

    def hook(event, arguments):
        if event in EVENTS and arguments and str(arguments[0]).startswith(folder):
            steps.append(event)
            if len(steps) == number:
                os.kill(os.getpid(), sent)

    sys.addaudithook(hook)
    return steps


def attempt(arguments, number, sent, place):
    """Run the command in a copy of this process; return exit code, standard error and number of steps."""
    errors, count = place.with_name("errors.txt"), place.with_name("count.txt")
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            for path, stream in ((os.devnull, 1), (errors, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            sys.argv = ["uulearn", *map(str, arguments)]
            steps = signal_at(number, sent, str(place))
            code = ended()
            sys.stderr.flush()
            count.write_text(str(len(steps)))
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = [line for line in errors.read_text().splitlines() if not PROGRESS.fullmatch(line)]
    return code, said, int(count.read_text()) if code == 0 else None


def state(model, old):
    """Return the state of the model folder: empty, old model, new model, unfinished or broken."""
    if not model.exists():
        return "nothing"
    if not any(model.iterdir()):
        return "empty"
    if not (model / "model.json").exists() and could_be_model(model):
        return "remains"
    try:
        TableModel.load(model)
    except ValueError as error:
        return f"broken: {error}"
    named = json.loads((model / "model.json").read_text())["files"]["weights"]["name"]
    if named == old:
        return "old"
    return "new" if {path.name for path in model.iterdir()} >= CARDS else "new, without its card"


def prepare(folder, there):
    """Prepare a folder with its initial content, and the command."""
    place = folder / "work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if there == "old":
        shutil.copytree(folder / "old", place / "m")
    elif there == "empty":
        (place / "m").mkdir()
    return place, ("fit", folder / "a.csv", folder / "b.csv", *SMALL, "--out", place / "m")


@functools.cache
def steps_of(folder, there):
    """Return the number of steps of an undisturbed fit."""
    place, arguments = prepare(folder, there)
    return attempt(arguments, 0, 0, place)[2]


def trial(folder, there, sent, number):
    """Interrupt a fit, check the folder, and fit again."""
    number += steps_of(folder, there) if number < 0 else 0
    place, arguments = prepare(folder, there)
    code, said, _ = attempt(arguments, number, getattr(signal, sent), place)
    outcome = {"code": code, "said": said, "state": state(place / "m", weights_of(folder / "old"))}
    unfinished = (place / ".m.unfinished").exists()
    again = run(*arguments, *["--resume"][:unfinished])
    return outcome | {
        "unfinished": unfinished,
        "again": [again.code, *again.said],
        "weights": weights_of(place / "m") if again.code == 0 else None,
        "left": sorted(path.name for path in place.rglob("*") if path.name.startswith(".")),
        "files": len(list((place / "m").iterdir())) if again.code == 0 else None,
    }


def main():
    folder = Path(sys.argv[1])
    for name, seed in (("old", 5), ("expected", 0)):
        result = run("fit", folder / "a.csv", folder / "b.csv", *SMALL, "--out", folder / name, "--seed", seed)
        assert result.code == 0, result
    outcomes = [trial(folder, *wanted) for wanted in json.load(sys.stdin)]
    json.dump({"expected": weights_of(folder / "expected"), "outcomes": outcomes}, sys.stdout)


if __name__ == "__main__":
    main()
