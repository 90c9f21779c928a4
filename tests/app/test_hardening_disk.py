"""A full, read-only or limited disk: one sentence, nothing half-written, and the old model is unchanged."""

import errno
import io
import itertools
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import SMALL, assert_one_sentence, contents, run, weights_of, write_files
from uulearn.app.model import TableModel
from uulearn.app.output import find_os_error
from uulearn.estimator import model_directory
from uulearn.exceptions import TableError
from uulearn.tabular import matrices

resource = pytest.importorskip("resource", reason="no limits on file sizes on this platform")
ENOSPC = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def model(files):
    """An old model, with another seed."""
    assert fit(files, files / "model", "--seed", "5").code == 0
    return files / "model"


@pytest.fixture(scope="module")
def expected(files):
    """The weights of an undisturbed fit."""
    assert fit(files, files / "undisturbed").code == 0
    return weights_of(files / "undisturbed")


def fit(files, out, *options):
    return run("fit", files / "a.csv", files / "b.csv", *SMALL, "--out", out, *options)


@contextmanager
def largest_file(size):
    """Limit the size of files in bytes; the operating system enforces it for every library."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts or resizes a disk of this many KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system")

    def resize(kib):
        subprocess.run(["mount", "-o", f"remount,size={kib}k", str(place)], check=True)
        return place

    yield resize
    subprocess.run(["umount", str(place)], check=True)


def fail_at(monkeypatch, number):
    """Make the write with this number stop halfway, as on a full disk."""
    fill, calls = model_directory.write_bytes, []

    def fails(path, content):
        calls.append(path)
        if len(calls) == number:
            fill(path, content[: len(content) // 2])
            raise ENOSPC
        fill(path, content)

    monkeypatch.setattr(model_directory, "write_bytes", fails)


# ---------------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(  # weights, history, schema, facts, pipeline, manifest, config, card
    ("there", "number"),
    [*itertools.product(["nothing", "a model"], range(1, 9)), ("an empty folder", 1), ("an empty folder", 8)],
)
def test_model_is_written_atomically(files, model, expected, tmp_path, monkeypatch, there, number):
    out = tmp_path / "m"
    if there == "a model":
        shutil.copytree(model, out)
    elif there == "an empty folder":
        out.mkdir()
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        fail_at(patch, number)
        result = fit(files, out)
    assert_one_sentence(result, f"{out} cannot be written (No space left on device); free some space", "--resume")
    kept = {name for name in contents(tmp_path) if name.startswith(".m.unfinished/")}
    assert kept == {".m.unfinished/checkpoint.safetensors"}
    assert {name: content for name, content in contents(tmp_path).items() if name not in kept} == before
    assert out.exists() == (there != "nothing")
    if number in (1, 8):  # the checkpoint is kept
        assert fit(files, out, "--resume").code == 0
        assert weights_of(out) == expected
        assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("size", [0, 1_000, 5_000, 8_400])
@pytest.mark.parametrize("there", ["nothing", "a model"])
def test_file_size_limit_keeps_the_old_model(files, model, tmp_path, size, there):
    """Limits from below the size of the first checkpoint to below that of the largest model file."""
    out = tmp_path / "m"
    if there == "a model":
        shutil.copytree(model, out)
    before = contents(tmp_path)
    with largest_file(size):
        result = fit(files, out)
    assert_one_sentence(result, "cannot be written (File too large); allow larger files")
    after = {name: content for name, content in contents(tmp_path).items() if not name.startswith(".m.unfinished/")}
    assert after == before
    resumes = (tmp_path / ".m.unfinished").exists()
    assert resumes == ("--resume" in result.said[0])
    assert resumes == (size == 8_400)
    assert fit(files, out, *["--resume"][:resumes]).code == 0
    TableModel.load(out)


def test_full_disk_keeps_the_old_model(files, model, expected, small_disk):
    outcomes = []
    for there in (False, True):
        for free in (4, 24, 72, 160):
            place = small_disk(1024)
            if there:
                shutil.copytree(model, place / "m")
            used = sum(-(-len(content) // 4096) * 4 for content in contents(place).values())
            before = contents(place)
            small_disk(used + free)
            result = fit(files, place / "m")
            outcomes.append(result.code)
            if result.code:
                assert_one_sentence(
                    result, f"{place / 'm'} cannot be written (No space left on device); free some space"
                )
                after = contents(place)
                after.pop(".m.unfinished/checkpoint.safetensors", None)
                assert after == before
                small_disk(1024)
                assert fit(files, place / "m", *["--resume"][: (place / ".m.unfinished").exists()]).code == 0
            assert weights_of(place / "m") == expected
            assert [path.name for path in place.iterdir()] == ["m"]
            shutil.rmtree(place / "m")
    assert outcomes.count(0) >= 2
    assert outcomes.count(2) >= 4


def test_mount_point_can_be_the_model_directory(files, small_disk):
    place = small_disk(1024)
    assert fit(files, place).code == 0
    TableModel.load(place)
    assert not [path for path in place.parent.iterdir() if path != place]


def test_failed_fit_leaves_no_files(files, tmp_path, monkeypatch):
    from uulearn.app import fitting

    def refuse(*_, **__):
        raise TableError("these rows cannot be evaluated; use others.")

    monkeypatch.setattr(fitting, "evaluation_facts", refuse)
    assert_one_sentence(fit(files, tmp_path / "m"), "these rows cannot be evaluated; use others.")
    assert not list(tmp_path.iterdir())


def test_wrong_option_keeps_the_checkpoint(files, expected, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        fail_at(patch, 1)
        fit(files, tmp_path / "m")
    kept = contents(tmp_path)
    assert_one_sentence(fit(files, tmp_path / "m", "--resume", "--drop", "agee"), "agee")
    assert contents(tmp_path) == kept
    assert fit(files, tmp_path / "m", "--resume").code == 0
    assert weights_of(tmp_path / "m") == expected


def test_failed_start_without_resume_keeps_the_earlier_checkpoint(files, expected, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        fail_at(patch, 1)
        fit(files, tmp_path / "m")
    kept = contents(tmp_path)
    assert kept
    failed = fit(files, tmp_path / "m", "--drop", "agee")
    assert failed.code == 2
    assert any("agee" in line for line in failed.said)
    assert contents(tmp_path) == kept
    assert fit(files, tmp_path / "m", "--resume").code == 0
    assert weights_of(tmp_path / "m") == expected


def test_new_model_removes_the_old_report(files, model, tmp_path):
    shutil.copytree(model, tmp_path / "m")
    assert run("report", tmp_path / "m").code == 0
    (tmp_path / "m" / "mine.txt").write_text("mine")
    assert fit(files, tmp_path / "m").code == 0
    assert not (tmp_path / "m" / "report.html").exists()
    assert (tmp_path / "m" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("out", ["FILE/m", "NAME", "PROC"])
def test_unwritable_output_is_reported_before_any_work(files, tmp_path, out):
    places = {"FILE": str(files / "a.csv"), "NAME": str(tmp_path / ("n" * 250)), "PROC": "/proc/nowhere/m"}
    for name, place in places.items():
        out = out.replace(name, place)
    if out.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("no /proc on this platform")
    result = run("fit", files / "nothing.csv", files / "b.csv", *SMALL, "--out", out)  # fails before the files are read
    assert_one_sentence(result, f"{out} cannot be written (", "pass another --out")
    assert not list(tmp_path.iterdir())


def test_link_to_a_folder_is_kept(files, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for _ in range(2):  # created, then replaced
        assert fit(files, tmp_path / "link").code == 0
        assert (tmp_path / "link").is_symlink()
        TableModel.load(tmp_path / "there")
    assert {path.name for path in tmp_path.iterdir()} == {"link", "there"}


def test_current_folder_can_be_the_output(files, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert fit(files, ".").code == 0
    TableModel.load(tmp_path / "here")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize(
    ("cause", "found"),
    [
        (ENOSPC, errno.ENOSPC),
        (TypeError("no tensor"), None),
        (None, None),
    ],
)
def test_finds_the_os_error_among_the_causes(cause, found):
    error = ValueError("outer")
    error.__cause__ = cause
    os_error = find_os_error(error)
    assert (None if os_error is None else (os_error.errno, os_error.strerror)) == (
        found and (found, os.strerror(found))
    )


# --------------------------------------------------------------------------------------------------- the other commands


@pytest.mark.parametrize("name", ["s.csv", "s.tsv", "s.jsonl", "s.parquet", "s.feather", "s.csv.gz", "s.jsonl.zst"])
@pytest.mark.parametrize("old", [True, False])
def test_scores_are_written_atomically(files, model, tmp_path, name, old):
    if old:
        (tmp_path / name).write_bytes(b"old")
    before = contents(tmp_path)
    with largest_file(300):
        result = run("predict", model, files / "new.csv", "--out", tmp_path / name)
    assert_one_sentence(result, f"{tmp_path / name} cannot be written (File too large)")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("command", ["report", "numbers", "export"])
@pytest.mark.parametrize("old", [True, False])
def test_other_outputs_are_written_atomically(files, model, tmp_path, tmp_path_factory, monkeypatch, command, old):
    import onnx

    from uulearn import UUClassifier
    from uulearn.export import writing

    class Graph:
        """Replaces the graph, which takes seconds to export."""

        def SerializeToString(self, deterministic):
            return bytes(50_000)

    monkeypatch.setattr(writing, "_translate", lambda *_: Graph())
    monkeypatch.setattr(writing, "describe", lambda *_: None)
    monkeypatch.setattr(onnx.checker, "check_model", lambda _: None)
    alone = tmp_path_factory.mktemp("alone") / "model"
    UUClassifier.load(model).with_encoder(None).save(alone)
    np.savetxt(alone.parent / "rows.csv", np.zeros((900, 2)), delimiter=",")
    out = tmp_path / "out.csv"  # the suffix chooses the format of scores
    arguments = {
        "report": ("report", model),
        "numbers": ("predict", alone, alone.parent / "rows.csv"),
        "export": ("export", alone),
    }[command]
    if old:
        out.write_bytes(b"old")
    before = contents(tmp_path)
    with largest_file(5_000):
        result = run(*arguments, "--out", out)
    assert_one_sentence(result, f"{out} cannot be written (File too large)")
    assert contents(tmp_path) == before


class FullDevice(io.RawIOBase):
    """Refuses all data, as /dev/full does, until the test closes it."""

    accepts = False

    def writable(self):
        return True

    def write(self, data):
        if not self.accepts:
            raise ENOSPC
        return len(data)


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "report"])
def test_full_standard_output_gets_one_sentence(files, model, tmp_path, command):
    arguments = {
        "fit": ("fit", files / "a.csv", files / "b.csv", *SMALL, "--out", tmp_path / "m"),
        "predict": ("predict", model, files / "new.csv"),
        "evaluate": ("evaluate", model, files / "a.csv", files / "b.csv"),
        "report": ("report", model, "--out", tmp_path / "page.html"),
    }[command]
    device = FullDevice()
    with io.TextIOWrapper(io.BufferedWriter(device)) as full:
        result = run(*arguments, into=full)
        device.accepts = True
    assert_one_sentence(result, "cannot be written (No space left on device); free some space")
    if command == "fit":
        assert f"the model is in {tmp_path / 'm'}, but standard output cannot be written" in result.said[0]
        TableModel.load(tmp_path / "m")


def test_reports_missing_space_for_temporary_rows(files, tmp_path, monkeypatch):
    """Without reserved space, writing to a mapped file on a full disk would kill the process with SIGBUS."""
    monkeypatch.setattr(matrices, "MEMORY_BYTES", 100)

    def full(file, start, size):
        assert (start, size) == (0, 60 * 2 * 4)
        raise ENOSPC

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    assert_one_sentence(fit(files, tmp_path / "m"), "the encoded rows need", "set TMPDIR to a folder with more space")
    assert not list(tmp_path.iterdir())

    def unknown(file, start, size):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    assert fit(files, tmp_path / "m").code == 0
