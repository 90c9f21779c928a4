"""`uulearn doctor` works in damaged and incomplete installations, and prints nothing private."""

import json
import os
import re
import socket
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from uulearn import __version__
from uulearn.app import diagnostics
from uulearn.cli.app import app

ROOT = Path(__file__).resolve().parents[2]


def doctor(*arguments):
    done = CliRunner().invoke(app, ["doctor", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def lines():
    """The printed lines by their label; all texts start in the same column."""
    return {line[:21].rstrip(): line[21:] for line in doctor().splitlines()}


def test_packages_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def names(requirements):
        return tuple(re.match(r"[\w-]+", requirement)[0] for requirement in requirements)

    assert names(project["dependencies"]) == diagnostics.CORE
    extras = {extra: names(listed) for extra, listed in project["optional-dependencies"].items()}
    tools = {"bench", "docs", "test", "check", "dist", "dev"}  # for work on uulearn itself
    assert {extra: packages for extra, packages in extras.items() if extra not in tools} == diagnostics.EXTRAS


def test_prints_aligned_lines(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    found = lines()
    assert found["uulearn"] == __version__
    assert found["numpy"] == metadata.version("numpy")
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("3", "not set")
    assert found["threads of torch"].startswith("1, and ")  # set in conftest.py
    assert re.search(r"bfloat16 (yes|no)$", found["CPU capability"])
    assert all(text and not text.startswith(" ") for text in found.values())
    assert {f"extra {extra}" for extra in diagnostics.EXTRAS} | set(diagnostics.CORE) <= found.keys()


def test_json_has_the_same_content():
    found = json.loads(doctor("--json"))
    assert found["uulearn"] == __version__
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert found["torch"]["error"] is None
    assert found["torch"]["threads"] == 1


def test_prints_no_private_names(monkeypatch):
    monkeypatch.setenv("OMP_PROC_BIND", str(Path.home() / "settings"))
    text = doctor() + doctor("--json")
    private = {str(Path.home()), sys.prefix, os.getcwd(), socket.gethostname()}
    assert [name for name in private if len(name) > 4 and name in text] == []
    assert lines()["OMP_PROC_BIND"] == "…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[Errno 13] Permission denied: '/Users/Ada Lovelace'", "[Errno 13] Permission denied: '…'"),
        ("Permission denied: '/data/Ada Lovelace'", "Permission denied: '…'"),
        ("Permission denied: '/data/Ada O'Brien' (no such file)", "Permission denied: '…' (no such file)"),
        (r"C:\Users\Ada Lovelace missing", "…"),
        (r"[WinError 3] not found: 'C:\\Users\\Ada Lovelace\\env'", "[WinError 3] not found: '…'"),
        (
            r'Error loading "C:\Users\Ada Lovelace\env\shm.dll" or a dependency',
            'Error loading "shm.dll" or a dependency',
        ),
        ("/home/Ada Lovelace: missing", "…: missing"),
        ("dlopen(/Users/ada/lib.so, 0x0006)", "dlopen(lib.so, 0x0006)"),
        ("tried: '/opt/lib.dylib' (no such file), '/usr/lib.dylib'", "tried: 'lib.dylib' (no such file), 'lib.dylib'"),
        ("home folder named like a library: /Users/ada.so", "home folder named like a library: …"),
        ("see https://pytorch.org/get-started", "see https://pytorch.org/get-started"),
        (
            "/opt/ada/lib.so: see 'https://x.org/a/b?c=d#e' (http://x.org/~y), or /home/ada",
            "lib.so: see 'https://x.org/a/b?c=d#e' (http://x.org/~y), or …",
        ),
        ("https://x.org:/srv/ada/lib.so, http://x.org:80/a: /srv/ada", "https://x.org:lib.so, http://x.org:80/a: …"),
        ("index https://ada:s,t@x.org/simple, and https://x.org/home/ada", "index … and https://x.org/…"),
        ("file:///srv/ada/lib.so", "file:lib.so"),
        ('read and/or write, it\'s 1/2 of ""', 'read and/or write, it\'s 1/2 of ""'),
    ],
)
def test_hides_names_in_paths(text, shown):
    assert diagnostics.hide_folders(text) == shown


NAMES = st.text(st.sampled_from("aB é,()[]-._+&"), min_size=1).filter(str.strip) | st.just("Ada O'Brien")
ROOTS = st.sampled_from(["/", "C:\\", "/Users/", "/home/", "/mnt/c/Users/", "C:\\Users\\", r"\\server\home\ada" + "\\"])


@given(ROOTS, st.lists(NAMES), st.sampled_from("'\""))
def test_no_folder_survives(root, folders, quote):
    path = root + "".join(name + ("\\" if "\\" in root else "/") for name in folders) + "x/lib.so"
    text = f"dlopen({path}, 0x0006): cannot open {quote}{path}{quote}"
    assert diagnostics.hide_folders(text) == f"dlopen(lib.so, 0x0006): cannot open {quote}lib.so{quote}"


@given(NAMES, st.sampled_from(["/Users/", "/home/", "C:\\Users\\"]), st.sampled_from(["", " missing", ": missing"]))
def test_no_user_name_survives(name, homes, end):
    assert diagnostics.hide_folders(f"open {homes}{name}{end}") == "open …" + (end if ":" in end else "")


def test_missing_extras_are_named(monkeypatch):
    def version(name):
        if name in ("onnxruntime", "lightgbm", "rich"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(diagnostics.metadata, "version", version)
    found = lines()
    assert found["extra onnx"] == "not installed (missing: onnxruntime); run pip install 'uulearn[onnx]'"
    assert found["extra boosting"].startswith("not installed (missing: lightgbm)")
    assert found["extra plot"] == "matplotlib 1.0"
    assert found["rich"] == "missing; run pip install rich"


def test_extras_are_not_imported(monkeypatch):
    extras = ("matplotlib", "pooch", "lightgbm", "onnx", "onnxscript", "onnxruntime", "ray", "fsspec")
    for name in extras:
        monkeypatch.delitem(sys.modules, name, raising=False)
    diagnostics.diagnose()
    assert sys.modules.keys().isdisjoint(extras)


def test_reports_an_extra_that_cannot_be_loaded(monkeypatch):
    def load(name):
        raise RuntimeError(f"/home/ada/env/{name}: operator torchvision::nms does not exist")

    monkeypatch.setattr(diagnostics, "installed_version", lambda name: "1.0")
    monkeypatch.setattr(diagnostics.importlib, "import_module", load)
    found = lines()
    assert found["extra vision"] == "pillow 1.0, torchvision 1.0 (cannot be loaded)"
    assert found["extra images"] == "pillow 1.0"


def test_reports_a_damaged_torch(monkeypatch):
    def fail(name):
        raise OSError("/home/ada/env/lib/libtorch.so: cannot open shared object file")

    monkeypatch.setattr(diagnostics.importlib, "import_module", fail)
    found = lines()
    assert found["torch error"] == "OSError: libtorch.so: cannot open shared object file"
    assert found["torch"] == metadata.version("torch")
    assert "threads of torch" not in found


def test_reports_a_device_that_fails(monkeypatch):
    import torch

    def fail(number):
        raise RuntimeError("CUDA error: unknown error\nCUDA kernel errors might be reported later")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", fail)
    assert lines()["torch error"] == "RuntimeError: CUDA error: unknown error"


def test_describes_cuda_devices(monkeypatch):
    import torch

    device = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=140 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: device)
    monkeypatch.setattr(diagnostics, "nvidia_driver", lambda: "570.86.10")
    found = lines()
    assert found["CUDA"] == "; ".join(["NVIDIA H200, capability 9.0, 140 GiB, bfloat16 yes"] * 2)
    assert found["NVIDIA driver"] == "570.86.10"


@pytest.mark.skipif(os.name == "nt", reason="the fake program is a shell script")
@pytest.mark.parametrize(
    ("script", "version"), [("echo 570.86.10; echo 570.86.10", "570.86.10"), ("echo no devices; exit 9", None)]
)
def test_asks_nvidia_smi_for_the_driver(monkeypatch, tmp_path, script, version):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert diagnostics.nvidia_driver() == version
    program.unlink()
    assert diagnostics.nvidia_driver() is None
