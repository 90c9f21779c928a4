"""Full disks, limits on file sizes, and output that cannot be written: one sentence, and old files stay."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hostile import kills
from hostile.cases import Area, Case, Failed, Trial, scaled
from hostile.commands import Ended, Forked, command, fork
from hostile.tables import SMALL, contents, fit_small, weights_of, write_tables

NOBODY = 65534
"""User without privileges; the superuser may write everywhere."""
SMALLEST = 1_000
"""Smallest limit on file sizes, in bytes: the file that receives standard error must hold one sentence."""
LARGEST = 60_000
"""Largest limit on file sizes, in bytes: all output files of the suite are smaller."""
DISKS = (4, 400)
"""Smallest and largest size of the small disks, in KiB."""
OUTPUTS = ("s.csv", "s.jsonl", "s.parquet", "s.csv.gz", "s.feather", "s.tsv")
EXPECTED: dict[str, Any] = {}


def prepare(shared: Path) -> None:
    """Make two models and the small datasets."""
    kills.prepare_files(shared)
    write_tables(shared)
    fit_small(shared, shared / "model")
    whole = shared / "fit"
    whole.mkdir()
    if fork("fit", shared / "a.csv", shared / "b.csv", *SMALL, "--seed", "5", "--out", whole / "m").code:
        raise RuntimeError("an undisturbed fit failed")
    EXPECTED["weights"] = weights_of(whole / "m")


def commands(trial: Trial, place: Path) -> dict[str, tuple[object, ...]]:
    """Return the commands that write to a folder."""
    shared = trial.shared
    return {
        "fit": ("fit", shared / "a.csv", shared / "b.csv", *SMALL, "--seed", "5", "--out", place / "m"),
        "predict": ("predict", shared / "model", shared / "new.csv", "--out", place / trial.choose(*OUTPUTS)),
        "report": ("report", shared / "model", "--out", place / "r.html"),
        "reproduce": ("reproduce", *kills.REPRODUCE, "--data-dir", shared / "data", "--out", place / "r"),
    }


def limited(task: Callable[[], object], size: int) -> Callable[[], object]:
    """Return a function that runs with a limit on the size of files."""

    def start() -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        return task()

    return start


def as_nobody(task: Callable[[], object]) -> Callable[[], object]:
    """Return a function that runs without privileges."""

    def start() -> object:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return task()

    return start


def put_old(trial: Trial, name: str, words: tuple[object, ...], place: Path) -> None:
    """Put an older result where the command writes, half of the time."""
    if trial.rng.random() < 0.5 or name == "reproduce":
        return
    out = Path(str(words[words.index("--out") + 1]))
    if name == "fit":
        shutil.copytree(trial.shared / "model", out)
    else:
        out.write_bytes(b"old")


def check(trial: Trial, name: str, words: tuple[object, ...], ended: Ended, before: dict[str, bytes]) -> None:
    """Check that a failed command changed nothing, and that it succeeds when the limit is gone."""
    place = Path(str(words[words.index("--out") + 1])).parent
    if ended.code == 0:
        trial.right(ended)
    else:
        trial.refused(ended)
        after = contents(place)
        kept = {path: data for path, data in after.items() if ".unfinished" not in path}
        if name == "reproduce":  # finished runs stay
            kept = {path: data for path, data in kept.items() if not path.startswith("r/runs/")}
            trial.check(not any(".tmp" in path for path in kept), f"reproduce left {sorted(kept)}")
        else:
            trial.check(kept == before, f"a failed {name} changed {sorted(set(kept) ^ set(before)) or 'a file'}")
    again = fork(*words, *["--resume"][: int((place / ".m.unfinished").exists())])
    trial.check(again.code == 0, f"{name} without the limit: {again.brief()}")
    if name == "fit":
        trial.check(weights_of(place / "m") == EXPECTED["weights"], "the model differs after a full disk")
        trial.check(not list(place.glob(".*")), f"fit left {[path.name for path in place.glob('.*')]}")


def file_size(name: str, trial: Trial) -> None:
    """Limit the size of files; the system enforces it for every library."""
    words = commands(trial, trial.folder)[name]
    put_old(trial, name, words, trial.folder)
    before = contents(trial.folder)
    size = int(trial.rng.integers(SMALLEST, LARGEST if trial.rng.random() < 0.5 else 4_000))
    ended = Forked(limited(command(*words), size)).result()
    check(trial, name, words, ended, before)


@contextlib.contextmanager
def small_disk(place: Path, kib: int) -> Iterator[None]:
    """Mount a small disk."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        raise Failed(f"cannot mount a disk: {done.stderr.decode()[:200]}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def can_mount() -> bool:
    """Return whether this process may mount disks."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def full_disk(name: str, trial: Trial) -> None:
    """Write to a small disk."""
    place = trial.folder / "disk"
    free = int(trial.rng.integers(*DISKS))
    with small_disk(place, 4096):
        words = commands(trial, place)[name]
        put_old(trial, name, words, place)
        before = contents(place)
        used = sum(-(-len(data) // 4096) * 4 + 4 for data in before.values()) + 8
        subprocess.run(["mount", "-o", f"remount,size={used + free}k", str(place)], check=True)
        ended = fork(*words)
        subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
        check(trial, name, words, ended, before)


def read_only(name: str, trial: Trial) -> None:
    """Write to a folder without permission."""
    place = trial.folder / "closed"
    place.mkdir()
    words = commands(trial, place)[name]
    put_old(trial, name, words, place)
    before = contents(place)
    for path in [*place.rglob("*"), place]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    ended = Forked(as_nobody(command(*words))).result()
    trial.refused(ended, "cannot be written")
    trial.check(contents(place) == before, f"{name} changed a folder that is read-only")


def full_output(name: str, trial: Trial) -> None:
    """Write standard output to a full device."""
    words = list(commands(trial, trial.folder)[name])
    if name == "predict":
        words = words[: words.index("--out")]
    ended = fork(*words, stdout=Path("/dev/full"))
    trial.refused(ended, "No space left on device")


def cases(scale: float) -> Sequence[Case]:
    """Return all commands on all kinds of disks."""
    names = ("fit", "predict", "report", "reproduce")
    number = {"fit": 16, "predict": 16, "report": 6, "reproduce": 8}
    chosen = [
        Case(f"file size limit: {name}", partial(file_size, name))
        for name in names
        for _ in range(scaled(number[name], scale))
    ]
    if can_mount():
        chosen += [
            Case(f"full disk: {name}", partial(full_disk, name))
            for name in names
            for _ in range(scaled(number[name], scale))
        ]
    chosen += [Case(f"read-only folder: {name}", partial(read_only, name)) for name in names for _ in range(2)]
    return [*chosen, *(Case(f"full standard output: {name}", partial(full_output, name)) for name in names)]


AREA = Area("disk", "full disks, limits on file sizes and read-only folders", prepare, cases)
