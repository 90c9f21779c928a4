"""Several processes that write to one place at the same time: a results store, a search store, a model, a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hostile import kills
from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import Ended, Forked, command, run
from hostile.tables import expect

NUMBERS = {"results store": 8, "results store with packing": 6, "search store": 6, "scored file": 8, "model": 8}
EXPECTED: dict[str, Any] = {}


def prepare(shared: Path) -> None:
    """Run every command alone."""
    kills.prepare_files(shared)
    for name, (task, result) in kills.COMMANDS.items():
        folder = shared / name
        folder.mkdir()
        expect(Forked(task(shared, folder)).result())
        EXPECTED[name] = result(folder)


def together(trial: Trial, tasks: Sequence[Callable[[], object]]) -> list[Ended]:
    """Start several functions, each after a short random delay, and wait for all."""
    running = []
    for task in tasks:
        process = Forked(task)
        process.wait(float(trial.rng.uniform(0, 0.3)))
        running.append(process)
    return [process.result() for process in running]


def results_store(trial: Trial) -> None:
    """Reproduce the same table in two processes with one store."""
    task = kills.reproduce_task(trial.shared, trial.folder)
    for ended in together(trial, [task, task]):
        trial.check(ended.code == 0, f"one of two reproductions: {ended.brief()}")
        trial.right(ended)
    runs = kills.reproduce_result(trial.folder)[0]
    trial.check(runs.keys() == EXPECTED["reproduce"][0].keys(), "the store has other runs than one process writes")
    ended = Forked(task).result()
    trial.check(ended.code == 0 and "0 new" in ended.out, f"afterwards: {ended.brief()} {ended.out[:100]!r}")


def packed_store(trial: Trial) -> None:
    """Pack, read and extend one store in three processes."""
    shutil.copytree(trial.shared / "reproduce" / "r", trial.folder / "r")
    words = ("reproduce", *kills.REPRODUCE, "--data-dir", trial.shared / "data", "--out", trial.folder / "r")
    more = ["2" if word == "1" else word for word in words]  # two trials
    tasks = [command(*words, "--pack"), command(*words, "--render-only"), command(*more), command(*words, "--pack")]
    order = trial.rng.permutation(len(tasks))
    for ended in together(trial, [tasks[int(place)] for place in order]):
        trial.check(ended.code == 0, f"one of four processes: {ended.brief()}")
        trial.right(ended)
    runs = kills.reproduce_result(trial.folder)[0]
    same = all(runs.get(name) == run for name, run in EXPECTED["reproduce"][0].items())
    trial.check(same, "a run is missing or has changed")


def search_store(trial: Trial) -> None:
    """Search in two processes with one store."""
    folders = [trial.folder / name for name in ("one", "two")]
    (trial.folder / "store").mkdir()
    for folder in folders:
        folder.mkdir()
        (folder / "store").symlink_to(trial.folder / "store")
    for ended in together(trial, [kills.search_task(trial.shared, folder) for folder in folders]):
        trial.check(ended.code == 0, f"one of two searches: {ended.brief()}")
        trial.right(ended)
    for folder in folders:
        found, expected = kills.search_result(folder), EXPECTED["search"]
        trial.check(found[1] == expected[1], "the store has other models than one process writes")


def count_ends(trial: Trial, ends: Sequence[Ended]) -> None:
    """Count each process as refused or right."""
    for ended in ends:
        if ended.code:
            trial.refused(ended)
        else:
            trial.right(ended)


def scored_file(trial: Trial) -> None:
    """Predict to one file in three processes."""
    task = kills.predict_task(trial.shared, trial.folder)
    ends = together(trial, [task] * 3)
    count_ends(trial, ends)
    trial.check(any(ended.code == 0 for ended in ends), f"all failed: {ends[0].brief()}")
    trial.check(kills.predict_result(trial.folder) == EXPECTED["predict"], "the file is not complete")


def one_model(trial: Trial) -> None:
    """Fit to one directory in two processes: each succeeds or is refused, and the model is complete."""
    task = kills.fit_task(trial.shared, trial.folder)
    ends = together(trial, [task, task])
    count_ends(trial, ends)
    trial.check(any(ended.code == 0 for ended in ends), f"both fits failed: {ends[0].brief()}; {ends[1].brief()}")
    trial.check(kills.fit_result(trial.folder)[0] == EXPECTED["fit"][0], "the model differs from a fit alone")
    ended = run("predict", trial.folder / "m", trial.shared / "new.csv")
    trial.check(ended.code == 0, f"predict afterwards: {ended.brief()}")


def cases(scale: float) -> Sequence[Case]:
    """Return all pairs of processes."""
    functions = {
        "results store": results_store,
        "results store with packing": packed_store,
        "search store": search_store,
        "scored file": scored_file,
        "model": one_model,
    }
    return [
        Case(f"processes in one {name}", partial(functions[name]))
        for name, number in NUMBERS.items()
        for _ in range(scaled(number, scale))
    ]


AREA = Area("stores", "several processes in one results store, search store, file or model", prepare, cases)
