"""Check the built sdist and wheel, and try the wheel in an empty environment: ``python tools/check_dist.py dist``.

The environment and all files are in a temporary folder, so nothing is imported from the source tree. ``make dist`` runs
this script after it has built the files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "plot,boosting"
"""Extras that the demo and the default models use."""
GENERATED = ("PKG-INFO", "pyproject.toml", ".gitignore")
"""Files that hatchling adds to every sdist."""
DEMO_EPOCHS = 20
"""The full demo takes minutes; this number of epochs runs the same code."""


def find_files(folder: Path) -> tuple[Path, Path]:
    """Return the sdist and the wheel; there must be one of each."""
    sdists, wheels = sorted(folder.glob("*.tar.gz")), sorted(folder.glob("*.whl"))
    if len(sdists) != 1 or len(wheels) != 1:
        sys.exit(f"{folder} must contain one sdist and one wheel, found {len(sdists)} and {len(wheels)}.")
    return sdists[0], wheels[0]


def missing_from_wheel(wheel: Path) -> set[str]:
    """Return the files of the package, templates and data included, that the wheel does not contain."""
    with zipfile.ZipFile(wheel) as opened:
        found = set(opened.namelist())
    source = ROOT / "src"
    own = [path for path in (source / "uulearn").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(source).as_posix() for path in own} - found


def unexpected_in_sdist(sdist: Path) -> set[str]:
    """Return the files that are tracked in the entries of pyproject.toml or in the sdist, but not in both."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [entry.lstrip("/") for entry in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]]
    listed = subprocess.run(["git", "ls-files", "-z", *wanted], cwd=ROOT, check=True, capture_output=True, text=True)
    with tarfile.open(sdist) as opened:
        found = {entry.name.split("/", 1)[1] for entry in opened if entry.isfile()}
    return {*listed.stdout.split("\0")[:-1], *GENERATED} ^ found


def check_metadata(wheel: Path) -> None:
    """Check the version, the license and the Python versions in the metadata of the wheel."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith(".dist-info/METADATA"))
        fields = HeaderParser().parsestr(opened.read(name).decode())
    version = fields["Version"]
    if f"uulearn-{version}-py3-none-any.whl" != wheel.name:
        sys.exit(f"the metadata has version {version}, but the file is {wheel.name}.")
    if (fields["License-Expression"], fields["Requires-Python"]) != ("BSD-3-Clause", ">=3.11"):
        sys.exit(f"unexpected license or Python version: {fields['License-Expression']}, {fields['Requires-Python']}.")
    print(f"uulearn {version}: metadata complete")


def try_wheel(wheel: Path) -> None:
    """Install the wheel into an empty environment; run the demo and the smoke test there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        python = str(folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

        def run(*arguments: str) -> None:
            subprocess.run([python, *arguments], cwd=folder, env=environment, check=True)

        print(f"installing {wheel.name} into an empty environment", flush=True)
        pins = str(ROOT / "constraints.txt")
        run("-m", "pip", "--quiet", "install", "-c", pins, f"{wheel.resolve()}[{EXTRAS}]")
        run("-m", "pip", "check")
        run("-m", "uulearn", "doctor")
        run("-m", "uulearn", "demo", "--epochs", str(DEMO_EPOCHS))
        shutil.copy(ROOT / "tools" / "smoke_test.py", folder)
        run("smoke_test.py", "--installed")


def main(folder: str) -> None:
    """Check the files in a folder."""
    sdist, wheel = find_files(Path(folder))
    if missing := missing_from_wheel(wheel):
        sys.exit(f"missing from the wheel: {', '.join(sorted(missing)[:20])}.")
    if unexpected := unexpected_in_sdist(sdist):
        sys.exit(f"missing from the sdist, or not expected in it: {', '.join(sorted(unexpected)[:20])}.")
    check_metadata(wheel)
    try_wheel(wheel)


if __name__ == "__main__":
    main(sys.argv[1])
