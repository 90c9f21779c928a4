"""SIGKILL at random moments of fit, search, reproduce and predict; the resumed command gives bit-identical results."""

from __future__ import annotations

import functools
import json
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hostile.cases import Area, Case, Trial, scaled
from hostile.commands import Forked, command, count_steps, killed_after, run, seconds_of, signal_at_step
from hostile.tables import PRIORS, contents, csv_text, draw_rows, expect, fit_small, weights_of, write_tables

FIT = (*PRIORS, "--epochs", "24", "--n-estimators", "2", "--no-sensitivity", "--id", "id")
"""A fit of two MLPs with checkpoints after epochs 10 and 20."""
REPRODUCE = ("table2", "--quick", "--dataset", "mnist", "--trials", "1", "--epochs", "2", "--no-selection")
PREDICT_ROWS = 20_000
MOST_KILLS = 2
"""Number of times that the same command is killed before it may finish."""
SEARCH_FILE = "search.json"


def search(shared: Path, folder: Path) -> None:
    """Search over two learning rates with a store, and write the result."""
    from uulearn import UUClassifier
    from uulearn.selection import UUClassifierCV

    rng = np.random.default_rng(0)
    X0, X1 = rng.normal(size=(80, 3)) + 0.6, rng.normal(size=(80, 3)) - 0.6
    base = UUClassifier((0.8, 0.2), model="mlp", epochs=20, n_estimators=2, random_state=0)
    grid = {"training__ema": [0.9, 0.99], "lr": [1e-3, 1e-2]}
    found = UUClassifierCV(base, grid, store=folder / "store").fit_sets(X0, X1)
    result = {
        "best": repr(found.best_params_),
        "accuracies": [candidate.evaluation.accuracy.value.hex() for candidate in found.candidates_],
        "scores": [float(score).hex() for score in found.decision_function(X0)],
    }
    (folder / SEARCH_FILE).write_text(json.dumps(result))


def fit_task(shared: Path, folder: Path) -> Callable[[], None]:
    """Return the fit into a folder, which continues an interrupted one."""
    resume = ["--resume"][: (folder / ".m.unfinished").exists()]
    return command("fit", shared / "a.csv", shared / "b.csv", *FIT, "--out", folder / "m", *resume)


def search_task(shared: Path, folder: Path) -> Callable[[], None]:
    """Return the search into a folder."""
    return functools.partial(search, shared, folder)


def reproduce_task(shared: Path, folder: Path) -> Callable[[], None]:
    """Return the reproduction into a folder."""
    return command("reproduce", *REPRODUCE, "--data-dir", shared / "data", "--out", folder / "r")


def predict_task(shared: Path, folder: Path) -> Callable[[], None]:
    """Return the prediction of a larger file."""
    return command("predict", shared / "model", shared / "large.csv", "--out", folder / "s.csv")


def fit_result(folder: Path) -> Any:
    """Return everything in a model directory except times."""
    model = folder / "m"
    files = {path.name.partition("-")[0]: path for path in model.iterdir()}
    facts = json.loads(files["facts"].read_text())
    history = json.loads(files["history"].read_text())
    for key in ("created", "seconds", "command", "commands", "configuration"):
        facts.pop(key, None)
    for compared in facts["comparison"] or ():
        compared.pop("seconds")
    exact = {name: files[name].read_bytes() for name in ("weights", "schema", "encoder")}
    return exact, facts, _without_times(history), sorted(files)


def _without_times(history: Any) -> Any:
    if isinstance(history, dict):
        skipped = ("seconds", "resumed_at")
        return {name: _without_times(value) for name, value in history.items() if name not in skipped}
    return [_without_times(value) for value in history] if isinstance(history, list) else history


def search_result(folder: Path) -> Any:
    """Return the result of a search and the names of its stored models."""
    stored = sorted(path.name for path in (folder / "store").iterdir() if not path.name.startswith("."))
    return (folder / SEARCH_FILE).read_text(), stored


def reproduce_result(folder: Path) -> Any:
    """Return the curves of all runs, and the pages."""
    from helpers.small_datasets import curves

    pages = {path.name: path.read_bytes() for path in (folder / "r").iterdir() if path.suffix in (".md", ".tex")}
    return curves(folder / "r"), pages


def predict_result(folder: Path) -> Any:
    """Return the scored file."""
    return (folder / "s.csv").read_bytes()


COMMANDS: dict[str, tuple[Callable[[Path, Path], Callable[[], Any]], Callable[[Path], Any]]] = {
    "fit": (fit_task, fit_result),
    "search": (search_task, search_result),
    "reproduce": (reproduce_task, reproduce_result),
    "predict": (predict_task, predict_result),
}
CASES = {"fit": 40, "search": 20, "reproduce": 20, "predict": 20}
SCALES: dict[str, tuple[float, int]] = {}
"""Duration in seconds and number of file-system operations of each undisturbed command."""
EXPECTED: dict[str, Any] = {}
"""Results of the undisturbed commands."""


def prepare(shared: Path) -> None:
    """Write the files, and run every command undisturbed."""
    prepare_files(shared)
    for name, (task, result) in COMMANDS.items():
        folders = [shared / f"{name}-{number}" for number in range(2)]
        for folder in folders:
            folder.mkdir()
        SCALES[name] = seconds_of(task(shared, folders[0])), count_steps(task(shared, folders[1]), folders[1])
        EXPECTED[name] = result(folders[0])
        if EXPECTED[name] != result(folders[1]):
            raise RuntimeError(f"two undisturbed runs of {name} differ")


def prepare_files(shared: Path) -> None:
    """Write the tables, a model, and the small datasets."""
    from helpers.small_datasets import expect_small_files, write_small_files

    write_tables(shared)
    fit_small(shared, shared / "model")
    (shared / "large.csv").write_text(csv_text(draw_rows(PREDICT_ROWS, 0.5, 3)))
    (shared / "data").mkdir()
    expect_small_files()
    write_small_files(shared / "data")
    expect(run("reproduce", *REPRODUCE, "--data-dir", shared / "data", "--out", shared / "warm"))
    folder = shared / "warm-search"
    folder.mkdir()
    search(shared, folder)


def kill(name: str, trial: Trial) -> None:
    """Kill a command at most twice, check what it left, and let it finish."""
    make, result = COMMANDS[name]
    seconds, steps = SCALES[name]
    old = b"old"
    if name == "predict" and (existing := bool(trial.rng.integers(2))):
        (trial.folder / "s.csv").write_bytes(old)
    else:
        existing = False
    for _ in range(MOST_KILLS):
        task = make(trial.shared, trial.folder)
        if trial.rng.random() < 0.5:
            ended = killed_after(task, float(trial.rng.uniform(0, seconds)), signal.SIGKILL)
        else:
            number = int(trial.rng.integers(1, steps + 1))
            ended = Forked(signal_at_step(task, trial.folder, number, signal.SIGKILL)).result()
        trial.check(ended.code in (0, -signal.SIGKILL), f"the killed {name} ended with {ended.brief()}")
        trial.counts["kills"] += ended.code != 0
        trial.counts[f"kills_{name}"] += ended.code != 0
        if name == "predict" and (trial.folder / "s.csv").exists():
            content = (trial.folder / "s.csv").read_bytes()
            allowed = [EXPECTED[name], *[old][: int(existing)]]
            trial.check(content in allowed, f"a killed predict left a file of {len(content):,} bytes")
        if name == "fit" and (trial.folder / "m").exists():
            trial.check(fit_result(trial.folder) == EXPECTED[name], "a killed fit left a model that differs")
        if ended.code == 0:
            break
    ended = Forked(make(trial.shared, trial.folder)).result()
    trial.check(ended.code == 0, f"{name} after a kill: {ended.brief()}")
    trial.check(result(trial.folder) == EXPECTED[name], f"the result of {name} after a kill differs")
    hidden = [path.name for path in trial.folder.rglob(".*") if path.name != ".pack.lock"]
    allowed_age = name in ("search", "reproduce")  # these remove temporary files only after an hour
    trial.check(allowed_age or not hidden, f"{name} left {hidden}")
    trial.right()


def replace(trial: Trial) -> None:
    """Kill a fit that replaces a model: the folder contains the old or the new model at any moment."""
    from uulearn.app.model import TableModel

    shutil.copytree(trial.shared / "model", trial.folder / "m")
    old = contents(trial.folder / "m")
    steps = SCALES["fit"][1] + 10
    task = fit_task(trial.shared, trial.folder)
    number = int(trial.rng.integers(steps // 2, steps + 1))
    ended = Forked(signal_at_step(task, trial.folder, number, signal.SIGKILL)).result()
    trial.check(ended.code in (0, -signal.SIGKILL), f"the killed fit ended with {ended.brief()}")
    trial.counts["kills"] += ended.code != 0
    trial.counts["kills_fit"] += ended.code != 0
    TableModel.load(trial.folder / "m")
    after = contents(trial.folder / "m")
    new = weights_of(trial.folder / "m") if len(list((trial.folder / "m").glob("weights-*"))) == 1 else None
    expected = EXPECTED["fit"][0]["weights"]
    replaced = any(content == expected for name, content in after.items() if name.startswith("weights-"))
    trial.check(replaced or after == old or set(after) >= set(old), f"the folder contains {sorted(after)} ({new})")
    ended = Forked(fit_task(trial.shared, trial.folder)).result()
    trial.check(ended.code == 0, f"fit after a kill: {ended.brief()}")
    trial.check(fit_result(trial.folder) == EXPECTED["fit"], "the model after a kill differs")
    trial.right()


def cases(scale: float) -> Sequence[Case]:
    """Return the kills of all commands."""
    chosen = [
        Case(f"kill {name}", functools.partial(kill, name))
        for name, number in CASES.items()
        for _ in range(scaled(number, scale))
    ]
    return [*chosen, *(Case("kill a fit that replaces a model", replace) for _ in range(scaled(20, scale)))]


AREA = Area("kills", "SIGKILL at random moments of fit, search, reproduce and predict", prepare, cases)
