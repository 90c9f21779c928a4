"""The same on an accelerator, where there is one."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from uulearn import UUClassifier, UURisk
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import MLP
from uulearn.training import BatchPlan, DenseRows, Trainer, TrainingOptions, TwoSets

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def train(X, sets, **options):
    torch.manual_seed(0)
    data = TwoSets.from_membership(DenseRows(X), sets)
    settings = {"epochs": 3, "batch_size": 100, "device": "cuda", "precision": "float32"} | options
    run = Trainer(MLP(X.shape[1], hidden=(32,)), data, UURisk((0.8, 0.2), 0.5), TrainingOptions(**settings))
    run.run()
    return run


@pytest.fixture
def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(512, 12, generator=generator), (torch.arange(512) % 3 == 0).long()


def test_agrees_with_the_cpu(table):
    there, here = train(*table), train(*table, device="cpu")
    for one, other in zip(there.model.parameters(), here.model.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_streamed_rows_train_the_same_weights_as_resident_ones(table, dtype, monkeypatch):
    X = (table[0] * 20).abs().to(dtype)
    resident = train(X, table[1], input_scale=0.05)
    assert resident.data.rows[0].device.type == "cuda"
    monkeypatch.setattr("uulearn.training.rows.RESIDENT_SHARE", 0.0)
    streamed = train(X, table[1], input_scale=0.05)
    assert streamed.data.rows[0].device.type == "cpu"
    for one, other in zip(resident.model.parameters(), streamed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_streams_deliver_every_row_once(monkeypatch):
    monkeypatch.setattr("uulearn.training.rows.RESIDENT_SHARE", 0.0)
    values = torch.arange(5000.0)[:, None]
    data = TwoSets.from_membership(DenseRows(values), (torch.arange(5000) % 4 == 0).long()).place(torch.device("cuda"))
    plan = BatchPlan(data.sizes, 64)
    seen = []
    for x, _ in data.batches(plan, plan.shuffles(0, 1), torch.device("cuda")):
        seen += (x * 1.0).flatten().tolist()
    assert sorted(seen) == values.flatten().tolist()


@pytest.mark.parametrize("options", [{"ema": 0.9}, {"precision": "bfloat16"}, {"clip_norm": 1.0, "l2": 1e-3}])
def test_options(table, options):
    history = train(*table, epochs=20, **options).history
    assert history[-1]["corrected"] < history[0]["corrected"]


def test_trained_there_loads_on_a_machine_without_it(tmp_path, gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    assert next(classifier.model_.parameters()).device.type == "cuda"
    expected = classifier.decision_function(gaussians["X_test"])
    (tmp_path / "pickle").write_bytes(pickle.dumps(classifier))
    classifier.save(tmp_path / "model")
    np.save(tmp_path / "rows.npy", gaussians["X_test"])
    code = (
        "import pickle, numpy as np, torch; from uulearn import UUClassifier; assert not torch.cuda.is_available();"
        "X = np.load('rows.npy'); one = pickle.load(open('pickle', 'rb')).decision_function(X);"
        "other = UUClassifier.load('model').decision_function(X); assert (one == other).all();"
        "np.save('scores.npy', one)"
    )
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, rtol=1e-3, atol=1e-4)


def test_tensors_on_the_device_are_used_where_they_are(gaussians, quick):
    X, sets = torch.tensor(gaussians["X"], device="cuda"), torch.tensor(gaussians["sets"], device="cuda")
    classifier = UUClassifier(**quick).fit(X, sets)
    assert (classifier.predict(torch.tensor(gaussians["X_test"], device="cuda")) == gaussians["y_test"]).mean() > 0.9


def test_checkpoints(tmp_path, table):
    whole = train(*table, epochs=6)
    train(*table, epochs=3, checkpoint_dir=tmp_path)
    resumed = train(*table, epochs=6, checkpoint_dir=tmp_path)
    assert resumed.history.resumed_at == [3]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_non_finite_risk_is_noticed(table):
    with pytest.raises(NonFiniteRiskError, match="epoch 1"):
        train(*table, lr=1e38, optimizer="sgd")


def test_wrong_sets_are_loud():
    values = UURisk((0.8, 0.2), 0.5)(torch.zeros(4, device="cuda"), torch.tensor([0, 1, 2, 1], device="cuda"))
    assert values.isnan()
