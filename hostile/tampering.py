"""Tampering with a model directory, with correct checksums, while an audit hook watches for code and other files.

A command on a tampered directory may be refused with one sentence, or score every row with finite numbers. It may not
import a module, run or compile code, start a process, use the network, or open files elsewhere.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import sys
import tempfile
import types
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile.cases import Area, Case, Trial
from hostile.commands import run
from hostile.tables import contents, fit_small, write_tables

FORBIDDEN = (
    "import", "exec", "compile", "subprocess.", "os.system", "os.exec", "os.spawn", "os.posix_spawn", "os.fork",
    "socket.", "urllib.", "http.", "ftplib.", "ctypes.", "pickle.find_class", "marshal.", "code.__new__",
    "function.__new__",
)  # fmt: skip
"""Prefixes of audit events that no command may raise while it reads a model."""
WATCHED_PATHS = (
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "shutil.",
)
"""Prefixes of audit events whose path must be inside the allowed folders."""
REPEATS = 2
"""Number of times that a kind of tampering runs; some kinds choose at random."""


class Watch:
    """An audit hook that can be switched on and off, because Python cannot remove hooks.

    It watches from the moment when the command opens the first file of the model; before, Typer evaluates annotations.
    """

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] | None = None
        self.model, self.started = "", False
        self.violations: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.allowed is None:
            return
        self.started = self.started or (event == "open" and str(arguments[0]).startswith(self.model))
        if not self.started:
            return
        if event in ("compile", "exec") and fingerprint(arguments[0]) in ANNOTATIONS:
            return
        if event.startswith(FORBIDDEN):
            self.violations.append(f"{event} {str(arguments[:1])[:200]}")
        elif event.startswith(WATCHED_PATHS) and arguments and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            if not path.startswith(self.allowed):
                self.violations.append(f"{event} {path[:200]}")


WATCH: list[Watch] = []
ANNOTATIONS: set[object] = set()
"""Type annotations of uulearn's own classes, which `typing.get_type_hints` evaluates when it checks stored values."""


def fingerprint(source: object) -> object:
    """Return something comparable for a source text or a code object."""
    if isinstance(source, bytes):
        return source.decode(errors="replace").strip()
    code = source if isinstance(source, types.CodeType) else None
    return source if code is None else (code.co_code, code.co_names, code.co_consts, code.co_filename)


def collect_annotations() -> None:
    """Collect the type annotations of all classes of uulearn that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "uulearn"]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    found = [vars(one).get("__annotations__") for one in classes]
    for text in {text for one in found if isinstance(one, dict) for text in one.values()}:
        if isinstance(text, str):
            ANNOTATIONS.update({text, fingerprint(compile(text, "<string>", "eval"))})


class Evil:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/uulearn-hostile-was-here",)


# ------------------------------------------------------------------------------------------------------- helpers


def read_manifest(model: Path) -> dict[str, Any]:
    """Return the manifest without its checksum."""
    manifest: dict[str, Any] = json.loads((model / "model.json").read_text())
    manifest.pop("checksum")
    return manifest


def sign(model: Path, manifest: Any) -> None:
    """Write a manifest with the right checksum."""
    from uulearn.estimator import model_directory

    manifest["checksum"] = model_directory.checksum(manifest)
    (model / "model.json").write_text(json.dumps(manifest))


def set_entry(*keys_and_value: Any) -> Callable[[Trial, Path], None]:
    """Return a change of one entry of the manifest."""

    def change(trial: Trial, model: Path) -> None:
        *keys, last, value = keys_and_value
        manifest = node = read_manifest(model)
        for key in keys:
            node = node[key]
        node[last] = value
        sign(model, manifest)

    return change


def remove_entry(*keys: str) -> Callable[[Trial, Path], None]:
    """Return the removal of one entry of the manifest."""

    def change(trial: Trial, model: Path) -> None:
        *path, last = keys
        manifest = node = read_manifest(model)
        for key in path:
            node = node[key]
        del node[last]
        sign(model, manifest)

    return change


def replace_file(stem: str, new: Callable[[bytes], bytes]) -> Callable[[Trial, Path], None]:
    """Return a replacement of a file with a consistent name, size and hash."""

    def change(trial: Trial, model: Path) -> None:
        manifest = read_manifest(model)
        entry = manifest["files"][stem]
        content = new((model / entry["name"]).read_bytes())
        digest = hashlib.sha256(content).hexdigest()
        name = f"{stem}-{digest[:16]}.{entry['name'].split('.')[1]}"
        entry.update({"name": name, "bytes": len(content), "sha256": digest})
        (model / name).write_bytes(content)
        sign(model, manifest)

    return change


def edit_json(stem: str, edit: Callable[[Any], Any]) -> Callable[[Trial, Path], None]:
    """Return a change of a JSON file."""

    def new(content: bytes) -> bytes:
        tree = json.loads(content)
        edited = edit(tree)
        return json.dumps(tree if edited is None else edited).encode()

    return replace_file(stem, new)


def edit_tensors(stem: str, edit: Callable[[dict[str, Any]], Any]) -> Callable[[Trial, Path], None]:
    """Return a change of a safetensors file."""

    def new(content: bytes) -> bytes:
        from safetensors.numpy import load, save

        tensors = {name: np.array(value) for name, value in load(content).items()}
        edit(tensors)
        return save(tensors)

    return replace_file(stem, new)


def fill(value: float) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets the floats of all tensors."""

    def edit(tensors: dict[str, Any]) -> None:
        for tensor in tensors.values():
            if tensor.dtype.kind == "f":
                tensor[...] = value

    return edit


def on_disk(change: Callable[[Path], object]) -> Callable[[Trial, Path], None]:
    """Return a change of the folder that needs no random choices."""

    def applied(trial: Trial, model: Path) -> None:
        change(model)

    return applied


def stored_name(model: Path, stem: str) -> Path:
    """Return the path of a file of the model."""
    return model / str(read_manifest(model)["files"][stem]["name"])


def link_outside(stem: str) -> Callable[[Trial, Path], None]:
    """Return the replacement of a file by a link to a copy outside the directory."""

    def change(trial: Trial, model: Path) -> None:
        path = model / stem if "." in stem else stored_name(model, stem)
        elsewhere = model.parent / f"outside-{path.name}"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    return change


def special_file(make: Callable[[Path], object], stem: str = "facts") -> Callable[[Trial, Path], None]:
    """Return the replacement of a file by a folder, a pipe or a device."""

    def change(trial: Trial, model: Path) -> None:
        path = stored_name(model, stem)
        path.unlink()
        make(path)

    return change


def convert(change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Return a function that changes every tensor."""

    def edit(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            tensors[name] = change(tensor)

    return edit


def other_tensors(tensors: dict[str, Any]) -> None:
    """Replace all tensors by another one."""
    tensors.clear()
    tensors["evil"] = np.zeros(3)


def link_documents(model: Path) -> None:
    """Replace the documents by links to a file of the system."""
    for name in ("README.md", "config.toml"):
        (model / name).unlink()
        (model / name).symlink_to("/etc/hostname")


def add_modules(model: Path) -> None:
    """Add Python files with the names of modules that a careless loader would import."""
    code = "import os\nos.system('touch /tmp/uulearn-hostile-was-here')\n"
    for name in (
        "torch.py",
        "safetensors.py",
        "json.py",
        "__init__.py",
        "sitecustomize.py",
        "uulearn.py",
        "conftest.py",
    ):
        (model / name).write_text(code)


def torch_file(content: bytes) -> bytes:
    """Return a file in the format of torch.save, with a pickle inside."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
        archive.writestr("archive/version", "3")
    return out.getvalue()


def numpy_file(content: bytes) -> bytes:
    """Return a NumPy file that contains a pickle."""
    out = io.BytesIO()
    np.save(out, np.array([Evil()], dtype=object), allow_pickle=True)
    return out.getvalue()


def header(text: bytes) -> Callable[[bytes], bytes]:
    """Return a function that replaces the header of a safetensors file."""
    return lambda content: len(text).to_bytes(8, "little") + text + content[-64:]


def random_value(which: str) -> Callable[[Trial, Path], None]:
    """Return a change of a random value of a JSON file to a random odd value."""
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        10**30,
        0.5,
        1e308,
        "",
        "x",
        "../x",
        "auto",
        [],
        {},
        [[]],
        {"code": "os.system"},
    ]
    odd += [
        {"torch.optim": "Adam"},
        {"tuple": []},
        math.nan,
        math.inf,
        "__import__('os')",
        "{{7*7}}",
        "%s%n",
        "\0",
        "’",
    ]

    def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        inside = node.items() if isinstance(node, dict) else enumerate(node[:4]) if isinstance(node, list) else ()
        return [path, *(place for key, value in inside for place in places(value, (*path, key)))]

    def edit(trial: Trial, tree: Any) -> Any:
        found = places(tree)[1:]
        *path, last = found[int(trial.rng.integers(len(found)))]
        node = tree
        for key in path:
            node = node[key]
        node[last] = odd[int(trial.rng.integers(len(odd)))]
        return tree

    def change(trial: Trial, model: Path) -> None:
        if which == "manifest":
            sign(model, edit(trial, read_manifest(model)))
        else:
            edit_json(which, partial(edit, trial))(trial, model)

    return change


# --------------------------------------------------------------------------------------------------------- kinds

KINDS: dict[str, Callable[[Trial, Path], None]] = {
    "manifest: another format": set_entry("format", "pickle"),
    "manifest: an older version": set_entry("format_version", 1),
    "manifest: a newer version": set_entry("format_version", 99),
    "manifest: a version as text": set_entry("format_version", "3"),
    "manifest: a version as true": set_entry("format_version", True),
    "manifest: another class": set_entry("class", "os.system"),
    "manifest: no files": set_entry("files", {}),
    "manifest: files as a list": set_entry("files", ["weights"]),
    "manifest: a file without a hash": remove_entry("files", "weights", "sha256"),
    "manifest: a file without a name": remove_entry("files", "schema", "name"),
    "manifest: a negative size": set_entry("files", "weights", "bytes", -1),
    "manifest: a path upwards": set_entry("files", "facts", "name", "../../secret.json"),
    "manifest: an absolute path": set_entry("files", "schema", "name", "/etc/passwd"),
    "manifest: a device": set_entry("files", "facts", "name", "/dev/zero"),
    "manifest: a name with a null": set_entry("files", "facts", "name", "facts-0000000000000000.json\0"),
    "manifest: a name that is a list": set_entry("files", "facts", "name", ["facts"]),
    "manifest: one more file": set_entry(
        "files", "evil", {"name": "evil-0000000000000000.py", "bytes": 1, "sha256": "0" * 64}
    ),
    "manifest: no parameters": remove_entry("parameters"),
    "manifest: an unknown parameter": set_entry("parameters", "evil", 1),
    "manifest: code as the model": set_entry("parameters", "model", {"code": "os.system"}),
    "manifest: a module as the model": set_entry("parameters", "model", "os.system"),
    "manifest: an optimizer from builtins": set_entry("parameters", "model", {"torch.optim": "__builtins__"}),
    "manifest: eval as the loss": set_entry("parameters", "loss", "eval"),
    "manifest: code as the loss": set_entry("parameters", "loss", {"code": "eval"}),
    "manifest: an unknown method": set_entry("parameters", "method", "__import__"),
    "manifest: a wrong device": set_entry("parameters", "device", "meta"),
    "manifest: equal priors": set_entry("parameters", "set_priors", {"tuple": [0.5, 0.5]}),
    "manifest: NaN as a prior": set_entry("parameters", "set_priors", {"tuple": [math.nan, 0.5]}),
    "manifest: a prior of 2": set_entry("parameters", "target_prior", 2),
    "manifest: an enormous layer": set_entry("parameters", "model_params", {"dict": {"hidden": {"list": [10**9] * 9}}}),
    "manifest: ten thousand models": set_entry("learner", "config", {"n_models": 10**4, "precision": "float32"}),
    "manifest: another learner": set_entry("learner", "kind", "pickle"),
    "manifest: another precision": set_entry("learner", "config", "precision", "float64"),
    "manifest: enormous rows": set_entry("fitted", "row_shape", [10**12]),
    "manifest: negative rows": set_entry("fitted", "row_shape", [-1]),
    "manifest: rows as text": set_entry("fitted", "row_shape", "7"),
    "manifest: NaN as the calibration": set_entry("fitted", "scaling", {"slope": math.nan, "offset": 0, "prior": 0.5}),
    "manifest: a calibration prior of 0": set_entry("fitted", "scaling", {"slope": 1, "offset": 0, "prior": 0}),
    "manifest: unknown resolved parameters": set_entry("fitted", "resolved_params", {"__class__": 1}),
    "manifest: one wrong value": random_value("manifest"),
    "manifest: wrong checksum": on_disk(
        lambda m: (m / "model.json").write_text(json.dumps(read_manifest(m) | {"checksum": "0" * 64}))
    ),
    "manifest: nested too deeply": on_disk(lambda m: (m / "model.json").write_text("[" * 200_000)),
    "manifest: an array": on_disk(lambda m: (m / "model.json").write_text("[]")),
    "manifest: empty": on_disk(lambda m: (m / "model.json").write_bytes(b"")),
    "manifest: UTF-16": on_disk(lambda m: (m / "model.json").write_text("{}", encoding="utf-16")),
    "manifest: a number with a million digits": on_disk(
        lambda m: (m / "model.json").write_text('{"format": ' + "9" * 10**6 + "}")
    ),
    "manifest: a link": link_outside("model.json"),
    "manifest: too large": on_disk(lambda m: os.truncate(m / "model.json", 2**30)),
    "weights: a pickle": replace_file("weights", lambda content: pickle.dumps(Evil())),
    "weights: a file of torch.save": replace_file("weights", torch_file),
    "weights: an enormous header": replace_file("weights", lambda content: (2**62).to_bytes(8, "little") + content[8:]),
    "weights: offsets beyond the end": replace_file(
        "weights", header(b'{"weight":{"dtype":"F32","shape":[1,7],"data_offsets":[0,99999999]}}')
    ),
    "weights: a header that is not JSON": replace_file("weights", header(b"__import__('os').system('true')")),
    "weights: NaN": edit_tensors("weights", fill(math.nan)),
    "weights: infinity": edit_tensors("weights", fill(math.inf)),
    "weights: the largest floats": edit_tensors("weights", fill(3e38)),
    "weights: one more tensor": edit_tensors("weights", lambda t: t.update(evil=np.zeros(3, np.float32))),
    "weights: no tensors": edit_tensors("weights", lambda t: t.clear()),
    "weights: another type": edit_tensors("weights", convert(lambda v: v.astype(np.float64))),
    "weights: another shape": edit_tensors("weights", convert(lambda v: np.repeat(v, 2))),
    "weights: a link": link_outside("weights"),
    "encoder: a pickle": replace_file("encoder", lambda content: pickle.dumps(Evil())),
    "encoder: a NumPy pickle": replace_file("encoder", numpy_file),
    "encoder: NaN": edit_tensors("encoder", fill(math.nan)),
    "encoder: infinity": edit_tensors("encoder", fill(math.inf)),
    "encoder: zeros": edit_tensors("encoder", fill(0.0)),
    "encoder: negative numbers": edit_tensors("encoder", fill(-1e308)),
    "encoder: other tensors": edit_tensors("encoder", other_tensors),
    "encoder: one tensor less": edit_tensors("encoder", lambda t: t.pop(sorted(t)[0])),
    "schema: no columns": edit_json("schema", lambda tree: tree.update(columns=[])),
    "schema: columns twice": edit_json("schema", lambda tree: tree.update(columns=tree["columns"] * 2)),
    "schema: an unknown kind": edit_json("schema", lambda tree: tree["columns"][0].update(kind="code")),
    "schema: images": edit_json("schema", lambda tree: tree.update(images={"column": "../../etc/passwd"})),
    "schema: ids that are numbers": edit_json("schema", lambda tree: tree.update(ids=[1, 2])),
    "schema: a list": edit_json("schema", lambda tree: [tree]),
    "schema: one wrong value": random_value("schema"),
    "facts: nested too deeply": replace_file("facts", lambda content: b"[" * 100_000),
    "facts: markup": edit_json("facts", lambda tree: tree.update(command="<script>alert(1)</script>")),
    "facts: a template": edit_json("facts", lambda tree: tree.update(notes=["{{ self.__init__.__globals__ }}"])),
    "facts: one wrong value": random_value("facts"),
    "facts: a folder": special_file(lambda path: path.mkdir()),
    "facts: a named pipe": special_file(os.mkfifo),
    "facts: a link": link_outside("facts"),
    "facts: missing": special_file(lambda path: None),
    "history: epochs as text": edit_json("history", lambda tree: tree.update(epochs="all")),
    "history: an unknown entry": edit_json("history", lambda tree: tree.update(__class__="evil")),
    "history: models inside models": edit_json("history", lambda t: t.update(models=[{"models": [{}] * 50}] * 50)),
    "history: one wrong value": random_value("history"),
    "folder: Python modules": on_disk(add_modules),
    "folder: documents that are links": on_disk(link_documents),
    "folder: a configuration with code": on_disk(lambda m: (m / "config.toml").write_text("first = __import__('os')")),
}  # fmt: skip


# --------------------------------------------------------------------------------------------------------- cases


def prepare(shared: Path) -> None:
    """Make a model."""
    write_tables(shared)
    fit_small(shared, shared / "model")
    collect_annotations()


def tamper(kind: str, trial: Trial) -> None:
    """Tamper with a copy of the model and run the commands under the audit hook."""
    model, marker = trial.folder / "m", Path("/tmp/uulearn-hostile-was-here")
    shutil.copytree(trial.shared / "model", model)
    KINDS[kind](trial, model)
    if not WATCH:
        WATCH.append(Watch())
    watch = WATCH[0]
    before = {} if "pipe" in kind or "too large" in kind else contents(model)
    new = trial.shared / "new.csv"
    out = trial.folder / "out"
    out.mkdir()
    allowed = (str(model), str(out), str(new), str(trial.shared / "a.csv"), str(trial.shared / "b.csv"), "/dev/null")
    commands: dict[str, tuple[object, ...]] = {
        "predict": ("predict", model, new, "--out", out / "s.csv"),
        "evaluate": ("evaluate", model, trial.shared / "a.csv", trial.shared / "b.csv"),
        "report": ("report", model, "--out", out / "r.html"),
    }
    for name, command in commands.items():
        watch.model, watch.started, watch.violations = str(model), False, []
        watch.allowed = (*allowed, tempfile.gettempdir() + "/tmp")
        here = Path.cwd()
        os.chdir(model)  # a careless import would find the files of the directory
        try:
            ended = run(*command)
        finally:
            watch.allowed = None
            os.chdir(here)
        trial.check(not watch.violations, f"{name}: {'; '.join(watch.violations[:4])}")
        trial.check(not marker.exists(), f"{name} ran code of the model")
        if ended.code:
            trial.refused(ended)
            trial.check(not list(out.iterdir()) or name != "predict", f"a refused {name} left a file")
        else:
            if name == "predict":
                check_scores(trial, out / "s.csv")
            trial.right(ended)
    trial.check(not before or contents(model) == before, "a command changed the model")


def check_scores(trial: Trial, path: Path) -> None:
    """Check that a scored file has one row of finite numbers for each row of new.csv."""
    import pandas as pd

    frame, new = pd.read_csv(path), pd.read_csv(trial.shared / "new.csv")
    trial.check(len(frame) == len(new), f"expected {len(new)} rows, found {len(frame)}")
    numbers = frame[["score", "probability", "class"]]
    trial.check(np.isfinite(numbers.to_numpy(float)).all(), "a row was scored with a number that is not finite")


def cases(scale: float) -> Sequence[Case]:
    """Return all kinds of tampering, several times each; a small scale takes every n-th kind."""
    step = max(1, round(1 / scale))
    repeats = {True: 20 * REPEATS, False: REPEATS}
    return [
        Case(kind, partial(tamper, kind))
        for kind in list(KINDS)[::step]
        for _ in range(repeats["one wrong value" in kind] if scale >= 1 else 1)
    ]


AREA = Area("tampering", "tampering with a model directory, watched by an audit hook", prepare, cases)
