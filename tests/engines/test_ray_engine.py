"""Ray gives the same results as local work, even if processes of the cluster are killed."""

import json
import math
import os
import shlex
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from helpers.manifests import rewrite
from helpers.processes import python
from helpers.small_datasets import curves, expect_small_files, pages_in, write_small_files
from uulearn import UUClassifier
from uulearn.app.model import TableModel
from uulearn.cli import main
from uulearn.cli.options import uses_ray
from uulearn.engines import ray_cluster as ray_cluster_module
from uulearn.engines import ray_training
from uulearn.engines.ray_cluster import check_address, finished_tasks, full_address, import_ray, ray_cluster
from uulearn.engines.ray_search import RayExecutor
from uulearn.engines.ray_training import train_on_ray
from uulearn.exceptions import TableError
from uulearn.reproduction.experiments import PAPER_TARGET_PRIORS
from uulearn.selection import UUClassifierCV
from uulearn.storage import load_tree

ray = pytest.importorskip("ray")
FILES = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of two processes on this machine, used by all commands in this process."""
    with pytest.MonkeyPatch.context() as patch:
        # Ray Train looks every two seconds, unless this is set, whether its processes have started, ended or died.
        patch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.1")
        with ray_cluster(workers=2) as started:
            yield started


def call(monkeypatch, capsys, *arguments):
    """Run a command in this process; returns exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["uulearn", *map(str, arguments)])
    with pytest.raises(SystemExit) as exited:
        main()
    printed = capsys.readouterr()
    return exited.value.code, printed.out, printed.err


@pytest.fixture
def uulearn(monkeypatch, capsys, cluster):
    monkeypatch.setattr("uulearn.cli.progress.FIRST_LINE", math.inf)  # else slow machines print progress of predict
    return lambda *arguments: call(monkeypatch, capsys, *arguments)


class Killer(threading.Thread):
    """Kills one process of the cluster that runs a task of this title, as soon as ``ready()`` is true."""

    def __init__(self, title, ready):
        super().__init__(daemon=True)
        self.title, self.ready, self.killed, self.stop = title, ready, None, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.join()

    def run(self):
        while not self.stop.is_set():
            if self.ready() and (found := running_tasks(self.title)):
                os.kill(found[0], signal.SIGKILL)
                self.killed = found[0]
                return
            time.sleep(0.002)


def running_tasks(title):
    """Return child processes of this process that currently run such a task."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (place / "cmdline").read_bytes().startswith(f"ray::{title}".encode()) and is_descendant(int(place.name)):
                found.append(int(place.name))
        except OSError:  # the process has ended
            continue
    return sorted(found)


def is_descendant(process):
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


# --- Scoring ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A model and a folder of Parquet files; one has no rows, one is in a subfolder."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)

    def draw(n, share):
        positive = rng.random(n) < share
        kinds = rng.choice(["one", "two"], n)
        return pd.DataFrame({"name": np.arange(n), "x": rng.normal(size=n) + 2 * positive, "kind": kinds})

    for name, share in (("a", 0.8), ("b", 0.2)):
        draw(300, share).to_csv(folder / f"{name}.csv", index=False)
    (folder / "rows" / "more").mkdir(parents=True)
    for number in range(FILES):
        draw(10_000, 0.5).to_parquet(folder / "rows" / f"part-{number}.parquet")
    draw(50, 0.5)[["kind", "name", "x"]].to_parquet(folder / "rows" / "more" / "part-0.parquet")
    draw(0, 0.5).astype({"kind": str}).to_parquet(folder / "rows" / "part-8.parquet")
    asked = ["a.csv", "b.csv", "--set-priors", "0.8 0.2", "--id", "name", "--epochs", "3", "--no-sensitivity"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            ["fit", *asked, "--n-estimators", "1"],
            ["predict", "model", "rows", "--out", "scored.parquet"],
        ):
            patch.setattr(sys, "argv", ["uulearn", *command])
            with pytest.raises(SystemExit, match="^0$"):
                main()
    return folder


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def in_order(folder):
    """All rows of a folder, in the order of the files."""
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.rglob("*.parquet"))], ignore_index=True)


def test_folder_scores_equal_local_scores(uulearn, tables, monkeypatch, tmp_path):
    monkeypatch.chdir(tables)
    code, out, err = uulearn("predict", "model", "rows", "--engine", "ray", "--out", tmp_path / "scored")
    assert (code, out, err) == (0, "", f"80,050 rows scored, written to {tmp_path / 'scored'}\n")
    assert set(files_in(tmp_path / "scored")) == set(files_in(tables / "rows"))
    found, expected = in_order(tmp_path / "scored"), pd.read_parquet("scored.parquet")
    pd.testing.assert_frame_equal(found, expected)
    assert list(found) == ["name", "score", "probability", "class"]
    assert len(pd.read_parquet(tmp_path / "scored" / "part-8.parquet")) == 0
    assert not list(tmp_path.glob(".*"))


def test_killed_worker_does_not_change_the_scores(uulearn, tables, monkeypatch, tmp_path):
    monkeypatch.chdir(tables)
    asked = ("predict", "model", "rows", "--engine", "ray", "--keep-columns", "--target-prior", "0.4", "--out")
    assert uulearn(*asked, tmp_path / "unbroken")[0] == 0
    unfinished = tmp_path / ".broken.unfinished"
    with Killer("uulearn-score", lambda: any(unfinished.rglob("*.parquet"))) as killer:
        code, out, _ = uulearn(*asked, tmp_path / "broken")
    assert killer.killed
    assert (code, out) == (0, "")
    assert files_in(tmp_path / "broken") == files_in(tmp_path / "unbroken")
    assert list(in_order(tmp_path / "broken")) == ["kind", "name", "x", "score", "probability", "class"]
    assert not unfinished.exists()


def test_scores_one_file_at_an_address(cluster, tables, tmp_path):
    address = cluster.get_runtime_context().gcs_address
    scored = tmp_path / "new" / "scored"
    asked = ("predict", "model", "rows/more/part-0.parquet", "--engine", "ray", "--workers", "1", "--out", scored)
    code, out, err = python("-m", "uulearn", *asked, "--address", address, cwd=tables)
    assert (code, out, err.splitlines()[-1]) == (0, "", f"50 rows scored, written to {scored}")
    found, expected = in_order(scored), pd.read_parquet(tables / "scored.parquet")[:50]
    pd.testing.assert_frame_equal(found, expected)


def test_scores_with_a_model_of_numbers(uulearn, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sets = np.arange(200) % 2
    frame = pd.DataFrame(rng.normal(size=(200, 2)) + sets[:, None], columns=["u", "v"])
    clf = UUClassifier((0.8, 0.2), model="linear", epochs=2, n_estimators=1, encoder=None, random_state=0)
    clf.fit(frame, sets)
    clf.save(tmp_path / "model")
    (tmp_path / "rows").mkdir()
    for number in range(3):
        frame[["v", "u"]].to_parquet(tmp_path / "rows" / f"{number}.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uulearn.cli.progress.FIRST_LINE", 0.0)  # short commands print no progress
    code, _, err = uulearn("predict", "model", "rows", "--engine", "ray", "--workers", 1, "--out", "scored")
    assert code == 0
    assert "s  scoring: 0 of 3 files, 0 of 600 rows\n" in err
    np.testing.assert_allclose(in_order(Path("scored"))["score"], np.tile(clf.decision_function(frame), 3), rtol=1e-6)
    assert uulearn("predict", "model", "rows", "--out", "scored.parquet")[0] == 0  # without Ray
    pd.testing.assert_frame_equal(pd.read_parquet("scored.parquet"), in_order(Path("scored")))
    code, _, err = uulearn("predict", "model", "rows", "--engine", "ray", "--keep-columns", "--out", "more")
    assert code == 2
    assert "--keep-columns needs a model written by uulearn fit" in err


def test_rejects_bad_input_with_one_sentence(uulearn, tables, monkeypatch, tmp_path):
    monkeypatch.chdir(tables)

    def refused(*arguments):
        code, out, err = uulearn("predict", "model", *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        return err

    on_ray = ("--engine", "ray", "--out")
    assert "--engine ray needs a Parquet file or a folder of Parquet files" in refused("a.csv", *on_ray, tmp_path / "x")
    assert "pass a new folder as --out" in refused("rows", "--engine", "ray")
    assert "already exists; pass a new folder" in refused("rows", *on_ray, "model")
    assert "would be read as input next time" in refused("rows", *on_ray, "rows/scored")
    assert "would be read as input next time" in refused("rows", "--out", "rows/scored.parquet")  # also without Ray
    assert "got --format csv" in refused("rows", *on_ray, tmp_path / "x", "--format", "csv")
    assert "--workers 2 needs --engine ray" in refused("rows", "--workers", "2")
    assert "must be local or ray, got 'spark'" in refused("rows", "--engine", "spark")
    assert "--target-prior" in refused("rows", *on_ray, tmp_path / "x", "--target-prior", "9")
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "odd.parquet")
    error = refused(tmp_path / "odd.parquet", *on_ray, tmp_path / "x")  # found by a process of the cluster
    assert "odd.parquet" in error
    assert "kind" in error
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "other.parquet")
    pd.DataFrame({"z": [1.0]}).to_parquet(tmp_path / "zther.parquet")
    assert "differ in the columns" in refused(tmp_path, *on_ray, tmp_path.parent / "x")
    pd.DataFrame({"x": []}).to_parquet(tmp_path / "odd.parquet")
    assert "has no rows" in refused(tmp_path / "odd.parquet", *on_ray, tmp_path / "x")
    (tmp_path / "odd.parquet").write_bytes(b"PAR1 nothing")
    assert "odd.parquet" in refused(tmp_path / "odd.parquet", *on_ray, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert not list(tmp_path.glob(".*"))


def test_unfamiliar_values_and_bad_rows_are_reported(uulearn, tables, monkeypatch, tmp_path):
    """Counts are added over the files; each process counts every file separately."""
    monkeypatch.chdir(tables)
    rows = pd.read_parquet(tables / "rows" / "part-0.parquet")[:50].astype({"kind": object, "x": object})
    (tmp_path / "rows").mkdir()
    for number in range(4):
        odd = rows.copy()
        odd.loc[0, "kind"], odd.loc[1, "x"] = "three", 1e6
        odd.loc[2, ["kind", "x"]] = None
        odd.astype({"x": float}).to_parquet(tmp_path / "rows" / f"{number}.parquet")
    asked = ("predict", "model", tmp_path / "rows", "--engine", "ray", "--out")
    code, _, err = uulearn(*asked, tmp_path / "scored")
    assert code == 0
    assert err.splitlines() == [
        "note: Categories never or rarely seen in training: 'kind' (4 rows).",
        "note: Numbers far outside the training range: 'x' (4 rows).",
        "note: All columns are empty: 4 rows.",
        f"200 rows scored, written to {tmp_path / 'scored'}",
    ]
    rows["x"] = rows["x"].astype(str)
    for number, bad in ((0, 3), (2, 40)):  # 40 of 50 values of one file, but not most values of all files
        rows.assign(x=rows["x"].where(rows.index >= bad, f"bad {number}")).to_parquet(
            tmp_path / "rows" / f"{number}.parquet"
        )
    code, _, err = uulearn(*asked, tmp_path / "unreadable")
    assert code == 0
    message = "column 'x': 43 of 198 values are not numbers (for example 'bad 0'). They are treated as missing values."
    assert err.splitlines()[0] == f"warning: {tmp_path / 'rows'}: {message}"
    assert uulearn(*asked[:3], "--out", tmp_path / "local.parquet")[2].splitlines()[0] == err.splitlines()[0]
    scored = pd.concat(pd.read_parquet(path) for path in sorted((tmp_path / "unreadable").iterdir()))
    np.testing.assert_allclose(scored["score"], pd.read_parquet(tmp_path / "local.parquet")["score"], rtol=1e-5)
    for number in range(3):
        rows.assign(x="bad").to_parquet(tmp_path / "rows" / f"{number}.parquet")
    code, _, err = uulearn(*asked, tmp_path / "refused")
    assert code == 2
    assert (
        f"{tmp_path / 'rows' / '0.parquet'} has 'bad' in row 1, column 'x', which is not a number (150 of 199 val"
        in err
    )
    assert not (tmp_path / "refused").exists()
    rows.loc[7, "x"] = "1,5"
    rows.to_parquet(tmp_path / "rows" / "2.parquet")
    code, _, err = uulearn(*asked, tmp_path / "again")
    assert code == 2
    assert f"{tmp_path / 'rows' / '2.parquet'} has '1,5' in row 8, column 'x'" in err


def test_rows_of_all_files_are_compared_with_the_sets_together(uulearn, tables, monkeypatch, tmp_path):
    """Each file has too few rows to be compared alone."""
    monkeypatch.chdir(tables)
    rows = pd.read_parquet(tables / "rows" / "part-0.parquet")[:80].astype({"x": float})
    rows["x"] = 5 - 3 * rows["x"]
    (tmp_path / "rows").mkdir()
    for number in range(2):
        rows[number::2].to_parquet(tmp_path / "rows" / f"{number}.parquet")
    asked = ("predict", "model", tmp_path / "rows", "--out")
    warning = uulearn(*asked, tmp_path / "scored.csv")[2].splitlines()[-2]
    assert warning.startswith(f"warning: {tmp_path / 'rows'}: 80 rows are not a mixture of the two sets")
    on_ray = uulearn(*asked, tmp_path / "scored", "--engine", "ray")[2].splitlines()
    assert on_ray[-2] == warning
    off = uulearn(*asked, tmp_path / "again", "--engine", "ray", "--no-check")[2]
    assert "mixture" not in off
    shutil.copytree("model", tmp_path / "old")
    rewrite(tmp_path / "old", lambda manifest: manifest["files"].pop("reference"))
    old = ("predict", tmp_path / "old", tmp_path / "rows", "--out", tmp_path / "old rows", "--engine", "ray")
    assert f"note: {tmp_path / 'rows'}: 80 rows were not compared with the two sets" in uulearn(*old)[2]


def test_remaining_files_are_skipped_after_an_error(cluster, tmp_path):
    def score(number):
        if number == 0:
            raise TableError("a bad row")
        (tmp_path / str(number)).touch()
        time.sleep(0.1)

    with pytest.raises(TableError, match="^a bad row$"):
        list(finished_tasks(cluster, score, [(number,) for number in range(60)]))
    assert len(list(tmp_path.iterdir())) < 30


# --- The paper's runs ------------------------------------------------------------------------------------------------

ASKED = ("reproduce", "table2", "--quick", "--dataset", "mnist", "--epochs", 10)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_small_files(tmp_path_factory.mktemp("data"))


def test_reproduction_equals_local_runs_if_a_worker_is_killed(uulearn, monkeypatch, data, tmp_path):
    expect_small_files(monkeypatch.setitem)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UULEARN_DATA", str(data))
    assert uulearn(*ASKED, "--out", "alone")[0] == 0
    runs = tmp_path / "broken" / "runs"
    with Killer("uulearn-train", lambda: runs.is_dir() and any(runs.glob("*.json"))) as killer:
        code, out, err = uulearn(*ASKED, "--out", "broken", "--engine", "ray")
    assert killer.killed
    assert code == 0
    assert "54 new; 0 already stored" in out
    assert err.count("reading MNIST") == 1
    assert "54 of 54 runs: MNIST linear" in err
    assert curves(tmp_path / "broken") == curves(tmp_path / "alone")
    assert pages_in(tmp_path / "broken") == pages_in(tmp_path / "alone")
    for path in runs.glob("*.json"):
        if (
            json.loads(path.read_text())["configuration"]["seed"] == 1
        ):  # all runs of one batch, because rounding depends on the batch
            path.unlink()
    code, out, err = uulearn(*ASKED, "--out", "broken", "--engine", "ray", "--workers", 1)
    assert "27 new; 27 already stored" in out
    assert curves(tmp_path / "broken") == curves(tmp_path / "alone")
    code, out, err = uulearn(*ASKED, "--out", "broken", "--engine", "ray")
    assert (code, err) == (0, "")
    assert "0 new; 54 already stored" in out


def test_rejects_impossible_reproductions(uulearn, monkeypatch, data, tmp_path):
    expect_small_files(monkeypatch.setitem)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UULEARN_DATA", str(data))
    for device, message in (("cuda", "the Ray cluster has no GPU; use 'auto'"), ("tpu", "got 'tpu'")):
        code, _, err = uulearn(*ASKED, "--engine", "ray", "--device", device)
        assert code == 2
        assert message in err
    assert "--workers 3 needs --engine ray" in uulearn(*ASKED, "--workers", 3)[2]
    monkeypatch.setitem(PAPER_TARGET_PRIORS, "mnist", 0.3)
    code, _, err = uulearn(*ASKED, "--engine", "ray")  # found by a process of the cluster
    assert code == 2
    assert "mnist: expected a class prior of 0.3 in the test data, found 0.5" in err.splitlines()[-1]


# --- Searches --------------------------------------------------------------------------------------------------------


def search(**options):
    base = UUClassifier((0.8, 0.2), method="leaky_relu", epochs=8, n_estimators=3, random_state=0)
    return UUClassifierCV(base, {"loss": ["logistic", "sigmoid"], "slope": [0.0, -1.0]}, **options)


def test_search_continues_if_a_worker_is_killed(cluster, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(600, 5)) + np.sign(share - rng.random((600, 1))) for share in (0.8, 0.2)]
    alone = search().fit_sets(*sets)
    with Killer("uulearn-search", lambda: any(tmp_path.glob("*.safetensors"))) as killer:
        several = search(executor=RayExecutor(), store=tmp_path).fit_sets(*sets)
    assert killer.killed
    assert len(list(tmp_path.glob("*.safetensors"))) == 12
    assert several.best_params_ == alone.best_params_
    np.testing.assert_allclose(several.decision_function(sets[0]), alone.decision_function(sets[0]), atol=1e-4)
    monkeypatch.setattr("uulearn.engines.ray_search.ray_cluster", lambda *_: pytest.fail("must not train anything"))
    again = search(executor=RayExecutor(workers=1), store=tmp_path).fit_sets(*sets)
    np.testing.assert_array_equal(again.decision_function(sets[0]), several.decision_function(sets[0]))


def test_errors_of_a_search_are_raised_locally(cluster):
    sets = np.split(np.random.default_rng(0).normal(size=(40, 2)), 2)

    class FailingModel(nn.Linear):
        def __init__(self, n_features):
            super().__init__(n_features, 1)

        def forward(self, x):
            if self.training and torch.is_grad_enabled():
                raise ValueError("failed in forward")
            return super().forward(x)

    base = UUClassifier((0.8, 0.2), model=FailingModel, epochs=1, n_estimators=2, random_state=0)
    with pytest.raises(ValueError, match="^failed in forward$"):
        UUClassifierCV(base, {"lr": [0.1]}, executor=RayExecutor()).fit_sets(*sets)
    base.set_params(model=LocalModel)
    with pytest.raises(
        RuntimeError, match="cannot unpickle its task .*'test_ray_engine'.* must be importable on all machines"
    ):
        UUClassifierCV(base, {"lr": [0.1]}, executor=RayExecutor()).fit_sets(*sets)


class LocalModel(nn.Linear):
    """A model from a module that the cluster cannot import."""

    def __init__(self, n_features):
        super().__init__(n_features, 1)


# --- Training --------------------------------------------------------------------------------------------------------

FIT = ("fit", "a.csv", "b.csv", "--set-priors", "0.8 0.2", "--model", "linear", "--n-estimators", 1, "--no-sensitivity")
ON_RAY = ("--engine", "ray", "--workers", 2)


def stored_epochs(checkpoint):
    """The number of epochs in a checkpoint that another process writes."""
    try:
        return len(load_tree(checkpoint)["history"]["epochs"])
    except (FileNotFoundError, ValueError):  # not written yet, or replaced while it was read
        return 0


def without_notes(printed):
    """The printed lines without Ray's own note on a killed worker, which may come late."""
    return [line for line in printed.splitlines() if "(raylet)" not in line]


def test_fit_resumes_if_a_worker_and_the_train_controller_are_killed(uulearn, tables, monkeypatch):
    """The killed worker is replaced; after the controller has died, ``--resume`` continues from the checkpoint."""
    monkeypatch.chdir(tables)
    code, alone, _ = uulearn(*FIT, "--epochs", 150, "--out", "alone")
    assert code == 0
    asked = (*FIT, "--epochs", 150, "--out", "several", *ON_RAY)
    checkpoint = tables / ".several.unfinished" / "checkpoint.safetensors"

    def begun(epochs):
        return lambda: stored_epochs(checkpoint) >= epochs

    monkeypatch.setattr(ray_training, "RETRIES", 1)
    with Killer("RayTrainWorker", begun(10)) as first, Killer("TrainController", begun(60)) as second:
        code, printed, err = uulearn(*asked)
    assert first.killed
    assert second.killed
    assert code == 2
    assert "training with 2 processes on Ray" in err
    assert without_notes(printed) == []
    again = shlex.join(map(str, ("uulearn", *asked, "--resume")))
    assert err.splitlines()[-1] == (
        "error: training on Ray failed (attempt 2): the process of Ray's train controller died; find out why, for "
        f"example because memory is exhausted; continue from the checkpoint with: {again}"
    )
    code, several, err = uulearn(*asked, "--resume")
    assert code == 0, err
    assert without_notes(several) == alone.replace("alone", "several").splitlines()
    assert (tables / "several/config.toml").read_text() == (tables / "alone/config.toml").read_text()
    ours, theirs = (TableModel.load(tables / model) for model in ("several", "alone"))
    rows = pd.read_parquet(tables / "rows" / "part-0.parquet")
    np.testing.assert_allclose(ours.score(rows).score, theirs.score(rows).score, atol=1e-3)
    found, expected = ours.classifier.history_, theirs.classifier.history_
    assert len(found.epochs) == 150
    np.testing.assert_allclose(found.column("objective"), expected.column("objective"), atol=1e-3)
    assert len(found.resumed_at) == 2
    assert found.resumed_at[0] >= 10
    assert found.resumed_at[1] >= 60
    assert not list(tables.glob(".several*"))


def test_training_is_retried_with_the_cores_of_a_dead_controller(cluster, monkeypatch, tmp_path):
    attempts = []

    def take_all_cores_and_die(settings, workers, use_gpu):
        group = ray.util.placement_group([{"CPU": 2}])
        ray.get(group.ready(), timeout=60)  # fails unless the cores of the last attempt have been released
        attempts.append(group)
        if len(attempts) < 3:
            (Path(settings["scratch"]) / ray_training.GROUP_FILE).write_text(group.id.hex())
            return ray.exceptions.ActorDiedError()
        ray.util.remove_placement_group(group)

    monkeypatch.setattr(ray_training, "_train_once", take_all_cores_and_die)
    train_on_ray(succeed, tmp_path / "scratch", workers=2)
    assert len(attempts) == 3


def test_controller_that_dies_before_its_processes_start_is_not_retried(cluster, monkeypatch, tmp_path):
    attempts = []

    def die(settings, workers, use_gpu):
        attempts.append(settings)
        return ray.exceptions.ActorDiedError()

    monkeypatch.setattr(ray_training, "_train_once", die)
    with pytest.raises(
        RuntimeError, match=r"failed \(attempt 1\): the process of Ray's train controller died; find out"
    ):
        train_on_ray(succeed, tmp_path / "scratch", workers=1)
    assert len(attempts) == 1


def succeed():
    """Work that does nothing."""


def fail_permanently():
    raise ValueError("none.csv does not exist; check the name.")


def lose_connection():
    raise RuntimeError("connection closed by peer")


def test_only_temporary_errors_are_retried(cluster, monkeypatch, tmp_path):
    from ray.train import TrainingFailedError

    calls = []

    def train_in_this_process(settings, workers, use_gpu):
        calls.append((workers, use_gpu))
        try:
            ray_training._work_in_group(settings)
        except Exception:
            return TrainingFailedError("the actor died")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_training, "_train_once", train_in_this_process)
    scratch = tmp_path / "scratch"
    with pytest.raises(ValueError, match="^none.csv does not exist; check the name.$"):
        train_on_ray(fail_permanently, scratch, workers=2)
    assert calls == [(2, False)]
    with pytest.raises(
        RuntimeError, match=r"failed \(attempt 4\): the actor died; find out why, for example because memory"
    ):
        train_on_ray(lose_connection, scratch, workers=1)
    assert len(calls) == 5
    calls.clear()
    train_on_ray(succeed, scratch, workers=1)
    assert len(calls) == 1
    assert not scratch.exists()
    monkeypatch.setattr(ray_training, "_train_once", lambda *_: KeyError("of Ray itself"))
    with pytest.raises(RuntimeError, match=r"failed \(attempt 1\): 'of Ray itself'; find out why"):
        train_on_ray(succeed, scratch, workers=1)


def test_rejects_impossible_fits(uulearn, tables, monkeypatch):
    monkeypatch.chdir(tables)
    fit = (*FIT, "--out", "never", "--engine", "ray")
    assert "requires --workers N, the number of training processes" in uulearn(*fit)[2]
    assert "3 workers need 3 cores, but the Ray cluster has 2" in uulearn(*fit, "--workers", 3)[2]
    assert "2 workers need 2 cores and 2 GPUs, but the Ray" in uulearn(*fit, "--workers", 2, "--device", "cuda")[2]
    assert not (tables / "never").exists()
    assert not list(tables.glob(".never*"))


# --- The cluster -----------------------------------------------------------------------------------------------------


def test_gives_up_on_tasks_that_always_die(cluster, tmp_path):
    with pytest.raises(RuntimeError, match="Ray gave up after 4 attempts") as raised:
        list(finished_tasks(cluster, os.kill, [(0, signal.SIGKILL)]))
    assert "\n" not in str(raised.value)


def test_results_have_the_number_of_their_call(cluster):
    assert sorted(finished_tasks(cluster, pow, [(2, n) for n in range(5)], at_once=2)) == [(n, 2**n) for n in range(5)]
    with pytest.raises(ZeroDivisionError, match="negative power") as raised:
        list(finished_tasks(cluster, pow, [(2, 2), (0, -1)]))
    assert type(raised.value) is ZeroDivisionError


def test_error_stops_further_calls_without_aborting_the_process(cluster, tmp_path):
    """Calls that finish at the time of the error must not be canceled: Ray would abort the process."""
    for _ in range(200):
        with pytest.raises(ZeroDivisionError):
            list(finished_tasks(cluster, pow, [(2, 2), (0, -1), (2, 3), (2, 4)]))
    folders = [tmp_path, *(tmp_path / str(number) for number in range(100))]
    with pytest.raises(FileExistsError):
        list(finished_tasks(cluster, os.mkdir, [(str(folder),) for folder in folders]))
    list(finished_tasks(cluster, pow, [(2, 2)] * 4))  # wait for the earlier calls
    assert len(list(tmp_path.iterdir())) < 50


def test_missing_ray_is_reported_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"needs Ray; install it with pip install 'uulearn\[ray\]'"):
        import_ray()


def test_validates_addresses_and_options(monkeypatch):
    assert uses_ray("ray", "auto", 3)
    with pytest.raises(ValueError, match="--address auto needs --engine ray; add --engine ray, or remove --address"):
        uses_ray("local", "auto", None)
    with pytest.raises(ValueError, match="--address must be auto or the HOST:PORT of the head node, got 'ray://head'"):
        full_address("ray://head")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.socket() as bound:  # but not listening
        bound.bind(("127.0.0.1", 0))
        unused = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"cannot connect to a Ray cluster at {unused}; start one with ray start"):
            ray_cluster(unused).__enter__()
        monkeypatch.setenv("RAY_ADDRESS", unused)
        with pytest.raises(ValueError, match=rf"a Ray cluster at {unused} \(from RAY_ADDRESS\); start one with ray"):
            uses_ray("ray", "auto", None)
    with pytest.raises(ValueError, match="--address must be auto or the HOST:PORT of the head node, got 'head:port'"):
        ray_cluster("head:port").__enter__()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 404 Not Found\r\n\r\n", b"\0\0\x01\x01\x04\0\0\0\x01\x8d"])
def test_servers_that_are_not_ray_are_reported_before_ray_is_imported(answer, monkeypatch):
    """Ray would wait minutes for an answer of a silent server, or for another status than 404 (0x8d) of a proxy."""
    monkeypatch.setattr(ray_cluster_module, "CONNECT_SECONDS", 0.5)
    monkeypatch.setitem(sys.modules, "ray", None)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                if answer:
                    connection.sendall(answer)
                else:
                    connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"^cannot connect to a Ray cluster at {place}; start one with ray start"):
            uses_ray("ray", place, None)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["a..b:6379", f"{'a' * 70}.example:6379", "127.0.0.1:99999"])
def test_impossible_addresses_are_reported_without_a_traceback(place, capfd):
    with pytest.raises(ValueError, match=f"^cannot connect to a Ray cluster at {place}; start one with ray start"):
        check_address(place)
    assert capfd.readouterr().err == ""


def test_ipv6_addresses_are_unquoted(monkeypatch):
    asked = []

    def refuse(place, timeout):
        asked.append(place)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ValueError, match=r"^cannot connect to a Ray cluster at \[::1\]:6379; start one"):
        check_address("[::1]:6379")
    assert asked == [("::1", 6379)]


@pytest.mark.parametrize("value", ["", "local", "auto"])
def test_empty_or_local_ray_address_counts_as_unset(value, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", value)
    check_address("auto")


def test_answering_cluster_is_accepted(cluster):
    check_address(cluster.get_runtime_context().gcs_address)
    check_address(None)
