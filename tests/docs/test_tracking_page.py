"""The page on experiment trackers: its blocks run with MLflow's file store, and with a stand-in for wandb."""

import sys
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.pages import python_in
from uulearn import UUClassifier

FAST = {"model": "linear", "epochs": 6, "lr": 0.05, "batch_size": 400, "random_state": 0}


@pytest.fixture(scope="module")
def page():
    """The names that the page defines before its section on MLflow."""
    found = {"__name__": "page"}
    exec(compile(python_in("tracking.md", "Example data")[0], "tracking.md", "exec"), found)
    return found


def small(changes=None):
    """Return a class like UUClassifier whose other parameters are fast."""
    return lambda *args, **known: UUClassifier(*args, **known | FAST | (changes or {}))


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = pytest.importorskip("mlflow")
        mlflow.set_tracking_uri((tmp_path_factory.mktemp("runs") / "mlruns").as_uri())
        yield mlflow
        mlflow.set_tracking_uri(None)


def logged(client, run, key):
    """Return the steps and values of a metric in the order in which they were logged."""
    found = client.get_metric_history(run.info.run_id, key)
    return [(metric.step, metric.value) for metric in found]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"n_estimators": 1, "validation_fraction": 0.2}, ["model"]),
        ({"n_estimators": 5}, [f"model-{fold}" for fold in range(5)]),
        ({"n_estimators": 5, "model": "boosting", "lr": 0.1}, [f"model-{fold}" for fold in range(5)]),
    ],
    ids=["single", "ensemble", "boosting"],
)
def test_callback_logs_each_epoch_of_each_model(mlflow, page, changes, names):
    own = dict(page)
    exec(compile(python_in("tracking.md", "MLflow")[0].partition("clf = ")[0], "tracking.md", "exec"), own)
    with mlflow.start_run() as run:
        clf = small(changes)((0.8, 0.2)).fit_sets(own["X_a"], own["X_b"], callback=own["log_epoch"])
    client = mlflow.MlflowClient()
    histories = clf.history_.models or [clf.history_]
    keys = client.get_run(run.info.run_id).data.metrics.keys()
    recorded = histories[0][0].keys() - {"epoch"}
    assert keys == {f"{name}/{key}" for name in names for key in recorded}
    assert recorded >= {"positive", "negative", "lr", "validation_positive", "validation_zero_one"}
    for name, history in zip(names, histories, strict=True):
        for key in ("positive", "validation_zero_one", "lr"):
            expected = [(record["epoch"], record[key]) for record in history]
            assert logged(client, run, f"{name}/{key}") == expected, (name, key)
    assert all("model" not in record for history in histories for record in history)


def test_mlflow_section_stores_evaluation_parameters_and_model(mlflow, page, monkeypatch, tmp_path):
    monkeypatch.setattr("uulearn.UUClassifier", small())
    own = dict(page)
    exec(compile(python_in("tracking.md", "MLflow")[0], "tracking.md", "exec"), own)
    client, clf = mlflow.MlflowClient(), own["clf"]
    run = mlflow.last_active_run()
    accuracy = clf.out_of_fold_evaluation_.accuracy
    metrics = run.data.metrics
    stored = [metrics[name] for name in ("accuracy", "accuracy_low", "accuracy_high")]
    assert stored == [accuracy.value, *accuracy.interval]
    assert run.data.params["target_prior"] == "0.5"
    assert run.data.params["n_estimators"] == "5"  # resolved, not "auto"
    assert run.data.params.keys() == clf.get_params(deep=False).keys()
    folder = client.download_artifacts(run.info.run_id, "model", str(tmp_path))
    loaded = UUClassifier.load(folder)
    np.testing.assert_array_equal(loaded.decision_function(own["X_a"]), clf.decision_function(own["X_a"]))

    history = python_in("tracking.md", "Log after the fit")[0]
    with mlflow.start_run() as other:
        exec(compile(history, "tracking.md", "exec"), own)
    for key in ("model-4/positive", "model-0/validation_unbiased"):
        assert logged(client, other, key) == logged(client, run, key)


class Run:
    """Stand-in for a run of wandb."""

    def __init__(self):
        self.logged, self.metrics, self.config, self.summary, self.artifacts = [], {}, {}, {}, []
        self.log, self.log_artifact = self.logged.append, self.artifacts.append

    def define_metric(self, name, step_metric):
        self.metrics[name] = step_metric

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finished = True


def test_wandb_section_runs_with_a_stand_in(page, monkeypatch, tmp_path):
    run = Run()

    class Artifact:
        def __init__(self, name, type):
            self.name, self.type = name, type

        def add_dir(self, path):
            self.folder = path

    wandb = SimpleNamespace(init=lambda project, mode: run, Artifact=Artifact)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.chdir(tmp_path)
    clf = small()((0.8, 0.2))
    exec(compile(python_in("tracking.md", "Weights & Biases")[0], "tracking.md", "exec"), page | {"clf": clf})
    assert run.finished
    assert run.metrics == {"*": "epoch"}
    curves = defaultdict(list)
    for entry in run.logged:
        for key in entry.keys() - {"epoch"}:
            curves[key].append((entry["epoch"], entry[key]))
    for fold, history in enumerate(clf.history_.models):
        assert curves[f"model-{fold}/negative"] == [(record["epoch"], record["negative"]) for record in history]
    assert run.summary["accuracy_low"] == clf.out_of_fold_evaluation_.accuracy.interval[0]
    assert run.config["model"] == "linear"
    (artifact,) = run.artifacts
    assert artifact.type == "model"
    assert UUClassifier.load(artifact.folder).set_priors == (0.8, 0.2)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (
            {"model": "auto", "model_params": {"models": ("linear", "boosting")}},
            ["linear/model-0", "linear/model-1", "boosting/model-0", "boosting/model-1"],
        ),
        (
            {"self_training_rounds": 1},
            [
                *("half-0/model-0", "half-0/model-1", "half-1/model-0", "half-1/model-1"),
                *("half-0/round-1/model-0", "half-0/round-1/model-1"),
                *("half-1/round-1/model-0", "half-1/round-1/model-1"),
                *("model-0", "model-1"),
            ],
        ),
        (
            {"model": "mlp", "model_params": {"hidden": (4,)}, "consistency": "auto"},
            ["without/model-0", "without/model-1", "with/model-0", "with/model-1"],
        ),
    ],
    ids=["auto", "self-training", "consistency"],
)
def test_each_name_and_epoch_occurs_once(page, changes, names):
    seen = []
    clf = small({"n_estimators": 2, "epochs": 2, "lr": "auto"} | changes)((0.8, 0.2))
    clf.fit_sets(page["X_a"], page["X_b"], callback=lambda record, model: seen.append(record))
    found = [(record["model"], record["epoch"]) for record in seen]
    assert len(set(found)) == len(found)
    # The round of self-training is only repeated on all rows if it is better.
    assert [name for name, epoch in found if epoch == 1 and not name.startswith("round-1")] == names
