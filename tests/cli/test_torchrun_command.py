"""Commands that torchrun started in several processes: errors are printed once, and all processes end cleanly."""

import errno
import os
import re
import socket
import sys

import numpy as np
import pandas as pd
import pytest
import torch.distributed as dist

from helpers.processes import Program, python, several
from uulearn.app import sharing
from uulearn.app.fitting import SHARED_ROWS
from uulearn.app.output import FitRun, OutputFolder
from uulearn.app.settings import FitSettings
from uulearn.cli import distributed, main
from uulearn.engines import ray_training
from uulearn.exceptions import TableError
from uulearn.tabular.matrices import Prepared, RowSource
from uulearn.training.progress import no_progress
from uulearn.training.workers import Workers

RAY = "--engine ray starts its own processes; remove torchrun, or remove --engine."
FIT = (
    "fit",
    "a.csv",
    "b.csv",
    "--set-priors",
    "0.8 0.2",
    "--model",
    "linear",
    "--n-estimators",
    "1",
    "--no-sensitivity",
)
BY_RAY = {
    "fit": (*FIT, "--engine", "ray", "--workers", "2"),
    "predict": ("predict", "model", "rows", "--out", "scored", "--engine", "ray"),
    "reproduce": ("reproduce", "table2", "--quick", "--engine", "ray"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, share in (("a", 0.8), ("b", 0.2)):
        x = rng.normal(size=300) + 2 * (rng.random(300) < share)
        pd.DataFrame({"x": x, "kind": rng.choice(["one", "two"], 300)}).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def place(files, tmp_path):
    """An empty folder with links to the files."""
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).symlink_to(files / name)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def start(n, *arguments, cwd):
    """Start the processes of a command, with a separate folder for temporary files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(n), "OMP_NUM_THREADS": "1"}
    return [
        Program("-m", "uulearn", *arguments, cwd=cwd, env={**known, "RANK": str(rank), "TMPDIR": str(cwd / "tmp")})
        for rank in range(n)
    ]


def errors_of(ended):
    """The error lines of all processes; everything else must be progress."""
    lines = [line for _, _, said in ended for line in said.splitlines()]
    errors = [line for line in lines if line.startswith("error: ")]
    assert not re.search("gloo|peer|Traceback|terminate", "\n".join(lines))
    return errors


# ----------------------------------------------------------------------------------------------------- Ray in torchrun


@pytest.mark.parametrize("command", BY_RAY)
def test_ray_is_refused_under_torchrun(command, files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["uulearn", *BY_RAY[command]])
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match="^2$"):
        main()
    assert capsys.readouterr().err == f"error: {RAY}\n"

    def ended_by_torchrun(seconds):
        assert seconds == distributed.FIRST_PROCESS_SECONDS
        raise SystemExit(143)

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(distributed.time, "sleep", ended_by_torchrun)
    with pytest.raises(SystemExit, match="^143$"):
        main()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(
        distributed.time, "sleep", lambda seconds: None
    )  # the first process continues, so the error is specific to this one
    with pytest.raises(SystemExit, match="^2$"):
        main()
    assert capsys.readouterr().err == f"error: {RAY}\n"


def test_torchrun_ends_all_processes_after_the_first_printed_the_error(files):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "uulearn")
    code, _, err = python(*launcher, *BY_RAY["fit"], cwd=files, env={"OMP_NUM_THREADS": "1"})
    assert code == 1
    assert err.count("starts its own processes") == err.count(f"error: {RAY}\n") == 1
    assert not list(files.glob(".*"))


# ------------------------------------------------------------------------------------------------------------ mistakes


def test_usage_errors_are_printed_by_the_first_process(files, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["uulearn", *FIT, "--nonsense"])
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: None)  # for the first process
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit, match="^2$"):
            main()
    assert capsys.readouterr().err.count("--nonsense") == 1
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "uulearn")
    code, _, err = python(*launcher, *FIT, "--nonsense", cwd=files, env={"OMP_NUM_THREADS": "1"})
    assert code == 1
    assert err.count("No such option: --nonsense") == 1


@pytest.mark.parametrize("world", ["1", "2"])
def test_interrupt_is_printed_by_the_first_process(world, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt("nothing was written")

    monkeypatch.setattr(sys, "argv", ["uulearn", *FIT])
    monkeypatch.setattr("uulearn.app.output.start_fit", interrupt)
    monkeypatch.setenv("WORLD_SIZE", world)
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit, match="^130$"):
            main()
        printed = "interrupted: nothing was written\n" if rank == "0" or world == "1" else ""
        assert capsys.readouterr().err.endswith(printed) if printed else not capsys.readouterr().err
    monkeypatch.setattr("uulearn.cli.app.main", interrupt)  # during imports
    with pytest.raises(SystemExit, match="^130$"):
        main()
    assert capsys.readouterr().err == ("interrupted\n" if world == "1" else "")


def test_unusable_output_is_reported_once(place):
    (place / "taken").write_text("mine")
    (place / "full").mkdir()
    (place / "full" / "letter.txt").write_text("mine")
    for out, said in {"taken": "taken is a file", "full": "full contains files that are not a model"}.items():
        ended = several(2, "-m", "uulearn", *FIT, "--out", out, cwd=place)
        assert [code for code, _, _ in ended] == [2, 1]
        (error,) = errors_of(ended)
        assert said in error
    assert {path.name for path in place.iterdir()} == {"a.csv", "b.csv", "tmp", "taken", "full"}


def test_fit_that_cannot_be_resumed_is_reported_once(place):
    ended = several(3, "-m", "uulearn", *FIT, "--resume", cwd=place)
    assert [code for code, _, _ in ended] == [2, 1, 1]
    assert errors_of(ended) == ["error: there is no unfinished fit of model to continue; remove --resume."]
    unfinished = place / ".model.unfinished"
    begun = Program("-m", "uulearn", *FIT, "--epochs", "3000", cwd=place)
    begun.wait_for((unfinished / "checkpoint.safetensors").exists)
    begun.kill()
    begun.read()
    ended = several(2, "-m", "uulearn", *FIT, "--method", "relu", "--resume", cwd=place)
    assert [code for code, _, _ in ended] == [2, 1]
    (error,) = errors_of(ended)
    assert "the unfinished fit of model used other rows or settings" in error
    assert "remove --resume to train from the start" in error
    assert [path.name for path in unfinished.iterdir()] == ["checkpoint.safetensors"]


def test_wrong_settings_are_reported_by_the_first_process(files, monkeypatch, capsys):
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "argv", ["uulearn", "fit", "a.csv", "b.csv"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    waited = []
    monkeypatch.setattr(distributed.time, "sleep", waited.append)
    with pytest.raises(SystemExit, match="^2$"):
        main()
    assert waited == [distributed.FIRST_PROCESS_SECONDS]
    assert "fit needs --set-priors" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------- workers that are lost


def begun(place):
    """Two processes that train, with shared rows."""
    programs = start(2, *FIT, "--epochs", "80", "--out", "m", cwd=place)
    programs[0].wait_for((place / ".m.unfinished" / "checkpoint.safetensors").exists)
    return programs


def test_other_worker_ends_if_the_first_is_killed(place):
    first, second = begun(place)
    unfinished = place / ".m.unfinished"
    shared = sorted(path.name for path in (unfinished / SHARED_ROWS).iterdir())
    first.kill()
    assert first.read()[0] == -9
    assert second.read() == (1, "", "")
    assert shared == sorted(path.name for path in (unfinished / SHARED_ROWS).iterdir()) == ["0.npy", "1.npy"]
    assert not list((place / "tmp").glob("uulearn*"))
    (unfinished / SHARED_ROWS / "0.npy").write_bytes(b"of a process that was killed")
    for program in start(2, *FIT, "--epochs", "80", "--out", "m", "--resume", cwd=place):
        code, _, said = program.read()
        assert code == 0, said
    assert not list(place.glob(".*"))
    assert not list((place / "tmp").glob("uulearn*"))


def test_first_worker_prints_how_to_resume_if_another_is_killed(place):
    first, second = begun(place)
    second.kill()
    second.read()
    ended = [first.read()]
    assert ended[0][:2] == (1, "")
    (error,) = errors_of(ended)
    assert error.startswith("error: another training process has exited or cannot be reached; ")
    assert "continue with uulearn fit … --resume" in error
    assert [path.name for path in (place / ".m.unfinished").iterdir()] == ["checkpoint.safetensors"]
    assert not list((place / "tmp").glob("uulearn*"))


def test_other_errors_are_not_changed(monkeypatch, tmp_path):
    for together, error in ((True, RuntimeError("no kernel")), (False, RuntimeError("[/gloo/] closed"))):
        monkeypatch.setattr(dist, "is_initialized", lambda together=together: together)
        with pytest.raises(RuntimeError, match=re.escape(str(error))), distributed.exit_together(tmp_path):
            raise error


def test_single_and_first_processes_do_not_wait(monkeypatch):
    monkeypatch.setattr(distributed.time, "sleep", lambda seconds: pytest.fail("must not wait"))
    assert not distributed.first_process_ended()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert not distributed.first_process_ended()


GOES_ON = """
import sys, time
import torch.distributed as dist
from uulearn.cli import distributed
distributed.FIRST_PROCESS_SECONDS = 0.4
dist.init_process_group("gloo")
dist.barrier()  # the first process must not end before the other one is connected
if dist.get_rank() == 0:
    time.sleep(float(sys.argv[1]))
else:
    print(distributed.first_process_ended())
"""


@pytest.mark.parametrize(("seconds", "said"), [("0", "True"), ("1.5", "False")])
def test_worker_notices_whether_the_first_process_ended(seconds, said):
    (_, other) = several(2, "-c", GOES_ON, seconds)
    assert other[:2] == (0, f"{said}\n"), other[2]


# --------------------------------------------------------------------------------------------------- rows for all


class Alone(Workers):
    """A worker without any connection."""

    def run_on_first(self, work):
        return work()


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setattr(dist, "barrier", lambda: None)
    return Alone(0, 2)


def read():
    """The result of reading two files."""
    known = Prepared((RowSource("a.csv"), RowSource("b.csv")), None, None, [], [], (3, 4), {})
    return known, (np.ones((3, 2), np.float32), np.zeros((4, 2), np.float32))


def test_shared_rows_exist_until_all_workers_are_done(alone, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(dist, "barrier", lambda: seen.extend((tmp_path / "new" / "rows").iterdir()))
    with sharing.read_once(read, tmp_path / "new" / "rows", alone) as (_, rows):
        assert sorted(path.name for path in (tmp_path / "new" / "rows").iterdir()) == ["0.npy", "1.npy"]
        for ours, theirs in zip(rows, read()[1], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert len(seen) == 2
    assert not (tmp_path / "new" / "rows").exists()
    with pytest.raises(ZeroDivisionError), sharing.read_once(read, tmp_path / "rows", alone):
        raise ZeroDivisionError
    assert not (tmp_path / "rows").exists()


def test_leftover_rows_are_replaced_not_overwritten(alone, tmp_path):
    """A process that is about to end may still have them mapped."""
    left = np.full(4, 7.0)
    np.save(tmp_path / "0.npy", left)
    mapped = np.load(tmp_path / "0.npy", mmap_mode="r")
    (tmp_path / "2.npy").touch()
    with sharing.read_once(read, tmp_path, alone):
        np.testing.assert_array_equal(mapped, left)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npy", "1.npy"]


def test_rejects_invisible_shared_rows_and_a_full_disk(alone, tmp_path, monkeypatch):
    other = Alone(1, 2)
    monkeypatch.setattr(Alone, "run_on_first", lambda self, work: (None, [tmp_path / "0.npy"]))
    with pytest.raises(
        TableError, match=r"0\.npy is not visible on this node; --out must be on storage that all nodes share"
    ):
        sharing.read_once(read, tmp_path, other).__enter__()
    assert tmp_path.exists()
    monkeypatch.undo()

    def full(file, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(
        TableError,
        match=r"need 0.0 MiB in .*rows \(No space left on device\); free .* pass an --out folder with more space",
    ):
        sharing.read_once(read, tmp_path / "rows", alone).__enter__()
    assert not (tmp_path / "rows").exists()


def test_failed_ray_training_removes_shared_rows(monkeypatch, tmp_path):
    folder = OutputFolder.at(tmp_path / "m")
    unfinished = folder.unfinished

    def fail(*_, **__):
        (unfinished / SHARED_ROWS).mkdir(parents=True)
        (unfinished / "checkpoint.safetensors").write_bytes(b"")
        raise RuntimeError("training on Ray failed 4 times")

    monkeypatch.setattr(ray_training, "train_on_ray", fail)
    settings = FitSettings("a.csv", "b.csv", (0.8, 0.2))
    with pytest.raises(RuntimeError, match="failed 4 times"):
        ray_training.fit_on_ray(FitRun(settings, folder, resumed=False), "", no_progress, 2, None)
    assert [path.name for path in unfinished.iterdir()] == ["checkpoint.safetensors"]
