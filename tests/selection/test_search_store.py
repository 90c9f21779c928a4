"""A search with a store: it resumes and trains no model twice."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from helpers.plain import plain_classifier
from helpers.processes import Program
from uulearn import UUClassifier
from uulearn.data.folds import assign_folds
from uulearn.estimator import plan
from uulearn.exceptions import CheckpointError, FailedSettingWarning
from uulearn.selection import UUClassifierCV, trials
from uulearn.selection.trials import FoldStore

GRID = {"slope": [0.0, -1.0], "lr": [1e-3, 0.02]}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    first, second = (
        rng.normal(size=(n, 4)) + 0.6 * np.sign(prior - rng.random(n))[:, None] for n, prior in ((150, 0.8), (120, 0.3))
    )
    return first, second


def base(**changes):
    settings = {"model_params": {"hidden": (6,)}, "epochs": 4, "batch_size": 60, "n_estimators": 3, "random_state": 0}
    return plain_classifier((0.8, 0.3), 0.4, **settings | {"progress": False, "precision": "float32"} | changes)


class Own(nn.Module):
    """A custom model, which cannot be batched."""

    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture
def trained(monkeypatch):
    """Record the models that are trained from now on, as (settings, fold) of each job."""
    jobs, original = [], trials.train_job

    def spy(shared, job):
        jobs.append((job.settings, *job.folds))
        return original(shared, job)

    monkeypatch.setattr(trials, "train_job", spy)
    return jobs


def assert_same(one, other, rows):
    assert one.best_params_ == other.best_params_
    assert [candidate.evaluation for candidate in one.candidates_] == [c.evaluation for c in other.candidates_]
    np.testing.assert_array_equal(one.decision_function(rows), other.decision_function(rows))
    assert one.best_estimator_.history_.to_dict() == other.best_estimator_.history_.to_dict()


def interrupted_after(monkeypatch, search, data, n_jobs):
    """Run the search and interrupt it after this number of jobs."""
    original, done = trials.train_job, []

    def stopping(*call):
        if len(done) == n_jobs:
            raise KeyboardInterrupt
        done.append(call)
        return original(*call)

    with monkeypatch.context() as patch:
        patch.setattr(trials, "train_job", stopping)
        with pytest.raises(KeyboardInterrupt):
            search.fit_sets(*data)


def seconds_apart(search):
    """Remove values that differ between runs."""
    for history in [search.best_estimator_.history_, *search.best_estimator_.history_.models]:
        for record in history.epochs:
            record["seconds"] = 0.0
    return search


def test_resumed_search_equals_uninterrupted_search(data, tmp_path, monkeypatch, trained):
    whole = seconds_apart(UUClassifierCV(base(), GRID).fit_sets(*data))
    assert trained == [((0, 1, 2, 3), 0, 1, 2)]
    search = UUClassifierCV(base(), GRID, store=tmp_path / "new" / "store")
    interrupted_after(monkeypatch, search, data, 2)
    assert not hasattr(search, "best_params_")
    trained.clear()
    search.fit_sets(*data)
    assert trained == [((0, 1, 2, 3), 2)]
    assert_same(seconds_apart(search), whole, data[0])
    trained.clear()
    assert_same(seconds_apart(UUClassifierCV(base(), GRID, store=search.store).fit_sets(*data)), whole, data[0])
    assert trained == []


def test_extended_search_trains_only_new_settings(data, tmp_path, trained):
    UUClassifierCV(base(), {"lr": [1e-3]}, store=tmp_path).fit_sets(*data)
    trained.clear()
    search = UUClassifierCV(base(), {"lr": [0.02, 1e-3]}, store=str(tmp_path)).fit_sets(*data)
    assert trained == [((0,), 0), ((0,), 1), ((0,), 2)]
    whole = UUClassifierCV(base(), {"lr": [0.02, 1e-3]}).fit_sets(*data)  # from other batches, with different rounding
    assert search.best_params_ == whole.best_params_
    np.testing.assert_allclose(search.decision_function(data[0]), whole.decision_function(data[0]), atol=1e-4)


def test_stored_name_depends_on_data_and_parameters(data, tmp_path, trained):
    first, second = data

    def jobs(estimator, *sets, **grid):
        trained.clear()
        UUClassifierCV(estimator, grid or {"lr": [0.02]}, store=tmp_path).fit_sets(*sets)
        return len(trained)

    assert jobs(base(), first, second) == 3
    assert jobs(base(calibrated=True, progress=True), first, second) == 0
    assert jobs(base(random_state=1), first, second) == 3
    assert jobs(base(epochs=5), first, second) == 3
    assert jobs(base().set_params(set_priors=(0.7, 0.3)), first, second) == 3
    assert jobs(base(), second, first) == 3
    assert jobs(base(), first + 1e-3, second) == 3
    assert jobs(base(n_estimators=2), first, second) == 2
    own = base(model=Own, model_params=None)
    assert jobs(own, first, second) == 3
    assert jobs(own, first, second) == 0
    assert jobs(base(model=lambda n_features: Own(n_features), model_params=None), first, second) == 3
    assert jobs(base(model=nn.Linear(4, 1), model_params=None), first, second) == 3


def test_stored_name_depends_on_initial_weights_and_folds(data, tmp_path, trained, monkeypatch):
    def jobs(estimator):
        trained.clear()
        UUClassifierCV(estimator, {"lr": [0.02]}, store=tmp_path).fit_sets(*data)
        return len(trained)

    assert jobs(base()) == 3
    with monkeypatch.context() as patch:
        patch.setattr(plan, "assign_folds", lambda rows, n, seed: assign_folds(rows, n, seed + 1))
        assert jobs(base()) == 3
    begins = base(model=Begins, model_params=None)
    monkeypatch.setenv("BEGINS", "0.1")
    assert jobs(begins) == 3
    assert jobs(begins) == 0
    monkeypatch.setenv("BEGINS", "0.2")
    assert jobs(begins) == 3


class Begins(nn.Linear):
    """A model whose initial weights are not part of the settings."""

    def __init__(self, n_features):
        super().__init__(n_features, 1)
        nn.init.constant_(self.weight, float(os.environ["BEGINS"]))


def test_failed_setting_is_not_trained_again(data, tmp_path, trained):
    for model, hidden in (("mlp", {"hidden": (6,)}), (Own, None)):
        search = UUClassifierCV(
            base(
                model=model,
                model_params=hidden,
                loss="logistic",
                method="unbiased",
                optimizer="sgd",
                early_stopping=False,
            ),
            {"lr": [0.01, 3e38]},
            store=tmp_path,
        )
        with pytest.warns(FailedSettingWarning, match=r"lr=3e\+38"):
            first = search.fit_sets(*data).candidates_
        trained.clear()
        with pytest.warns(FailedSettingWarning, match=r"lr=3e\+38"):
            again = search.fit_sets(*data).candidates_
        assert trained == []
        assert [one.failure for one in again] == [one.failure for one in first]
        assert again[1].failure


def test_rejects_damaged_file_by_name(data, tmp_path):
    search = UUClassifierCV(base(), {"lr": [0.02]}, store=tmp_path).fit_sets(*data)
    damaged = sorted(tmp_path.glob("*.safetensors"))[0]
    content = damaged.read_bytes()
    entry = f'[\\"format\\", {trials.STORE_FORMAT}]'.encode()
    assert entry in content
    for wrong in (b"", content[:100], content.replace(entry, b'[\\"format\\", 9]')):
        damaged.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=rf"{damaged.name} .* Delete the file to train this model again\.$"):
            search.fit_sets(*data)
    damaged.unlink()
    assert search.fit_sets(*data).best_params_ == {"lr": 0.02}


def test_searches_can_share_a_store(tmp_path):
    theirs, left = (tmp_path / f".together.{name}.tmp" for name in ("theirs", "left"))
    for path in (theirs, left):
        path.mkdir()
    os.utime(left, (0, 0))  # from a process that was killed long ago
    FoldStore(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [theirs.name]


def test_models_of_one_job_are_stored_together_if_the_process_is_killed(data, tmp_path, monkeypatch, trained):
    """The rounding of a model depends on the models trained with it, so a part of a job is never trained again."""
    moved, replace = [], Path.replace

    def killed(path, target):
        if Path(target).parent == tmp_path:
            moved.append(target)
            if len(moved) == 2:
                raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            UUClassifierCV(base(), GRID, store=tmp_path).fit_sets(*data)
    UUClassifierCV(base(), GRID, store=tmp_path).fit_sets(*data)
    assert trained == [((0, 1, 2, 3), fold) for fold in range(3)]


def test_rejects_invalid_store(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="store must be a folder, but .*file is a file"):
        UUClassifierCV(base(), GRID, store=tmp_path / "file").fit_sets(*data)
    with pytest.raises(CheckpointError, match=r"cannot be written \(.*\); choose another store"):
        UUClassifierCV(base(), GRID, store=tmp_path / "file" / "below").fit_sets(*data)
    with pytest.raises(ValueError, match=r"with an integer random_state, .*; got None\.$"):
        UUClassifierCV(base(random_state=None), GRID, store=tmp_path).fit_sets(*data)


class Reversed:
    """An executor that trains the jobs in another order."""

    def __init__(self):
        self.jobs = []

    def train(self, some, jobs):
        for job in reversed(jobs):
            self.jobs.append(job)
            yield trials.train_job(some, job)


def test_executor_trains_all_jobs_with_the_same_result(data):
    executor = Reversed()
    alone = UUClassifierCV(base(), GRID).fit_sets(*data)
    search = UUClassifierCV(base(), GRID, executor=executor)
    search.fit_sets(*data)
    assert sorted(job.folds for job in executor.jobs) == [(0,), (1,), (2,)]
    assert search.best_params_ == alone.best_params_
    np.testing.assert_allclose(
        search.decision_function(data[0]), alone.decision_function(data[0]), rtol=1e-4, atol=1e-4
    )


def test_rejects_executor_without_train(data):
    with pytest.raises(TypeError, match=r"executor must have a method train\(trials, jobs\), got 'ray'"):
        UUClassifierCV(base(), GRID, executor="ray").fit_sets(*data)


KILLED = """
import sys
import numpy as np
from uulearn import UUClassifier
from uulearn.selection import UUClassifierCV

rng = np.random.default_rng(0)
estimator = UUClassifier((0.8, 0.3), model="linear", epochs=100, n_estimators=3, random_state=0)
UUClassifierCV(estimator, {"loss": ["logistic", "sigmoid", "ramp"]}, store=sys.argv[1]).fit_sets(
    rng.normal(size=(600, 4)), rng.normal(size=(600, 4)) + 0.5
)
"""


def test_killed_search_leaves_complete_files(tmp_path, trained):
    program = Program("-c", KILLED, tmp_path)
    program.wait_for(lambda: len(list(tmp_path.glob("*.safetensors"))) >= 2)
    program.kill()
    assert program.read()[0] == -signal.SIGKILL
    kept = len(list(tmp_path.glob("*.safetensors")))
    assert 2 <= kept < 9
    rng = np.random.default_rng(0)
    estimator = UUClassifier((0.8, 0.3), model="linear", epochs=100, n_estimators=3, random_state=0)
    search = UUClassifierCV(estimator, {"loss": ["logistic", "sigmoid", "ramp"]}, store=tmp_path)
    search.fit_sets(rng.normal(size=(600, 4)), rng.normal(size=(600, 4)) + 0.5)
    assert len(trained) == 9 - kept
    assert not list(tmp_path.glob(".*"))
