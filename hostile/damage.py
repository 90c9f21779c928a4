"""Flipped bytes, truncation and other accidents in models, checkpoints and stores: refused, or the same result."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from hostile import kills
from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import Forked, run
from hostile.tables import contents, expect

NUMBERS = {"model": 120, "checkpoint": 60, "search store": 20, "results store": 20}
EXPECTED: dict[str, str] = {}


def prepare(shared: Path) -> None:
    """Make a model, an unfinished fit, a search store and a results store."""
    kills.prepare_files(shared)
    for name in ("predict", "evaluate"):
        EXPECTED[name] = expect(run(*_command(name, shared / "model", shared))).out
    whole, unfinished = shared / "whole", shared / "unfinished"
    whole.mkdir()
    unfinished.mkdir()
    expect(Forked(kills.fit_task(shared, whole)).result())
    process = Forked(kills.fit_task(shared, unfinished))
    while not list(unfinished.rglob("checkpoint.safetensors")) and not process.wait(0.002):
        pass
    process.send(signal.SIGKILL)
    process.result()
    if (unfinished / "m").exists() or not list(unfinished.rglob("checkpoint.safetensors")):
        raise RuntimeError("the fit was not killed between its checkpoint and its end")
    packed = shared / "packed"
    shutil.copytree(shared / "warm", packed / "r")
    data = ("--data-dir", shared / "data", "--out", packed / "r")
    expect(run("reproduce", *kills.REPRODUCE, *data, "--pack"))


def _command(name: str, model: Path, shared: Path) -> tuple[object, ...]:
    files = (shared / "new.csv",) if name == "predict" else (shared / "a.csv", shared / "b.csv")
    return (name, model, *files)


def damage(trial: Trial, path: Path) -> str:
    """Damage a file in one of several ways; return a description."""
    content = bytearray(path.read_bytes())
    size = len(content)
    how = trial.choose("flip", "flip", "flip", "flips", "truncate", "truncate", "zeros", "extend", "repeat", "swap")
    place = int(trial.rng.integers(max(1, size)))
    if how == "flip" and size:
        content[place] ^= 1 << int(trial.rng.integers(8))
    elif how == "flips" and size:
        for where in trial.rng.integers(size, size=8):
            content[int(where)] ^= int(trial.rng.integers(1, 256))
    elif how == "truncate":
        del content[place:]
    elif how == "zeros":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    elif how == "extend":
        content += trial.rng.bytes(int(trial.rng.integers(1, 100)))
    elif how == "repeat":
        content[place:place] = content[place : place + 16]
    else:
        half = size // 2
        content = content[half:] + content[:half]
    path.write_bytes(content)
    trial.counts["flips" if how.startswith("flip") else "truncations" if how == "truncate" else "other_damage"] += 1
    return f"{how} at {place:,} of {size:,} bytes of {path.name}"


def choose_file(trial: Trial, folder: Path) -> Path:
    """Return one of the files below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
    return paths[int(trial.rng.integers(len(paths)))]


def damage_model(trial: Trial) -> None:
    """Damage a file of a model directory: every command is refused, or gives the same result."""
    model = trial.folder / "m"
    shutil.copytree(trial.shared / "model", model)
    what = damage(trial, choose_file(trial, model))
    before = contents(model)
    for name, expected in EXPECTED.items():
        ended = run(*_command(name, model, trial.shared))
        if ended.code:
            trial.refused(ended)
        else:
            trial.check(ended.out == expected, f"{name} gave another result after: {what}")
            trial.right(ended)
    page = trial.folder / "report.html"
    ended = run("report", model, "--out", page)
    if ended.code:
        trial.refused(ended)
        trial.check(not page.exists(), f"report failed but left a page after: {what}")
    else:
        trial.right()
    trial.check(contents(model) == before, f"a command changed the damaged model after: {what}")


def damage_checkpoint(trial: Trial) -> None:
    """Damage a checkpoint: the fit is refused, or ends with the same model."""
    shutil.copytree(trial.shared / "unfinished", trial.folder, dirs_exist_ok=True)
    what = damage(trial, choose_file(trial, trial.folder))
    ended = Forked(kills.fit_task(trial.shared, trial.folder)).result()
    if ended.code:
        trial.refused(ended)
        trial.check(not (trial.folder / "m").exists(), f"a refused fit wrote a model after: {what}")
        return
    same = kills.fit_result(trial.folder) == kills.fit_result(trial.shared / "whole")
    trial.check(same, f"the resumed model differs after: {what}")
    trial.right()


def damage_search(trial: Trial) -> None:
    """Damage a stored model of a search: the search is refused, or has the same result."""
    from uulearn.exceptions import CheckpointError

    shutil.copytree(trial.shared / "warm-search" / "store", trial.folder / "store")
    what = damage(trial, choose_file(trial, trial.folder))
    try:
        kills.search(trial.shared, trial.folder)
    except CheckpointError as error:
        trial.check(str(error).endswith("."), f"not a sentence: {error}")
        trial.counts["refused"] += 1
        return
    same = kills.search_result(trial.folder) == kills.search_result(trial.shared / "warm-search")
    trial.check(same, f"the search has another result after: {what}")
    trial.right()


def damage_results(trial: Trial) -> None:
    """Damage a run of a results store: reproduce is refused, or writes the same tables."""
    source = "packed" if trial.rng.random() < 0.5 else "warm"
    source_folder = trial.shared / "packed" / "r" if source == "packed" else trial.shared / "warm"
    shutil.copytree(source_folder, trial.folder / "r")
    place = trial.folder / "r" / ("packed" if source == "packed" else "runs")
    what = damage(trial, choose_file(trial, place))
    ended = run("reproduce", *kills.REPRODUCE, "--data-dir", trial.shared / "data", "--out", trial.folder / "r")
    if ended.code:
        trial.refused(ended)
        return
    _, pages = kills.reproduce_result(trial.folder)
    expected = {path.name: path.read_bytes() for path in source_folder.iterdir() if path.name in pages}
    trial.check(pages == expected, f"the tables differ after: {what}")
    trial.right()


def cases(scale: float) -> Sequence[Case]:
    """Return the damages of all kinds of files."""
    functions: dict[str, Callable[[Trial], None]] = {
        "model": damage_model,
        "checkpoint": damage_checkpoint,
        "search store": damage_search,
        "results store": damage_results,
    }
    return [
        Case(f"damage a {name}", functions[name])
        for name, number in NUMBERS.items()
        for _ in range(scaled(number, scale))
    ]


AREA = Area("damage", "flipped bytes and truncation of models, checkpoints and stores", prepare, cases)
