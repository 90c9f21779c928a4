"""SIGINT and SIGTERM at random moments: no traceback, the right exit code, and complete results afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hostile import kills
from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import Forked, command, count_steps, killed_after, seconds_of, signal_at_step

NUMBERS = {"fit": 24, "predict": 10, "reproduce": 12, "report": 6}
PROCESSES = 8
"""Number of real processes that are interrupted, some of them while Python imports modules."""


def report_task(shared: Path, folder: Path) -> Callable[[], None]:
    """Return the report of a model."""
    return command("report", shared / "model", "--out", folder / "r.html")


def report_result(folder: Path) -> Any:
    """Return the page."""
    return (folder / "r.html").read_bytes()


COMMANDS = {
    **{name: kills.COMMANDS[name] for name in ("fit", "predict", "reproduce")},
    "report": (report_task, report_result),
}


def prepare(shared: Path) -> None:
    """Write the files, and run every command undisturbed."""
    kills.prepare_files(shared)
    for name, (task, result) in COMMANDS.items():
        folders = [shared / f"{name}-{number}" for number in range(2)]
        for folder in folders:
            folder.mkdir()
        seconds, steps = seconds_of(task(shared, folders[0])), count_steps(task(shared, folders[1]), folders[1])
        kills.SCALES[name], kills.EXPECTED[name] = (seconds, steps), result(folders[0])


def interrupt(name: str, sent: signal.Signals, trial: Trial) -> None:
    """Send a signal at a random moment, check the message, and let the command finish."""
    make, result = COMMANDS[name]
    seconds, steps = kills.SCALES[name]
    task = make(trial.shared, trial.folder)
    if trial.rng.random() < 0.5:
        ended = killed_after(task, float(trial.rng.uniform(0.02, seconds)), sent)
    else:
        number = int(trial.rng.integers(1, steps + 1))
        ended = Forked(signal_at_step(task, trial.folder, number, sent)).result()
    trial.check(not any("Traceback" in line for line in ended.said), f"a traceback: {ended.brief()}")
    if ended.code:
        trial.counts["interrupted"] += 1
        if sent == signal.SIGINT:
            trial.check(ended.code == 130, f"expected exit code 130: {ended.brief()}")
            sentence = ended.said[-1] if ended.said else ""
            trial.check(sentence.startswith("interrupted"), f"no message about the interrupt: {ended.brief()}")
            trial.check(sentence.isprintable() and len(ended.said) == 1, f"not one sentence: {ended.brief()}")
        else:
            trial.check(ended.code in (-signal.SIGTERM, 143), f"expected the end by SIGTERM: {ended.brief()}")
    again = Forked(make(trial.shared, trial.folder)).result()
    trial.check(again.code == 0, f"{name} after {sent.name}: {again.brief()}")
    trial.check(result(trial.folder) == kills.EXPECTED[name], f"the result of {name} after {sent.name} differs")
    trial.right()


def interrupt_process(sent: signal.Signals, trial: Trial) -> None:
    """Interrupt a real process, often while it imports modules; it writes nothing or everything."""
    out = trial.folder / "s.csv"
    arguments = ["predict", str(trial.shared / "model"), str(trial.shared / "large.csv"), "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "uulearn", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(float(trial.rng.uniform(0.3, 4)))
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    before_uulearn = "Traceback" in err and "uulearn" not in err.replace(str(trial.shared), "")
    trial.check(before_uulearn or "Traceback" not in err, f"a traceback: {err[-600:]!r}")
    codes = (0, 130, -signal.SIGINT) if sent == signal.SIGINT else (0, -signal.SIGTERM, 143)
    trial.check(process.returncode in codes, f"exit code {process.returncode}: {err[-300:]!r}")
    trial.counts["interrupted"] += process.returncode != 0
    if out.exists():
        trial.check(out.read_bytes() == kills.EXPECTED["predict"], "an interrupted predict left a part of the file")
    trial.right()


def cases(scale: float) -> Sequence[Case]:
    """Return both signals for all commands."""
    signals = (signal.SIGINT, signal.SIGTERM)
    chosen = [
        Case(f"{sent.name} during {name}", partial(interrupt, name, sent))
        for name, number in NUMBERS.items()
        for sent in signals
        for _ in range(scaled(number // 2, scale))
    ]
    real = [Case(f"{sent.name} to a process", partial(interrupt_process, sent)) for sent in signals]
    return [*chosen, *real * scaled(PROCESSES // 2, scale)]


AREA = Area("signals", "SIGINT and SIGTERM at random moments", prepare, cases)
