"""Training on a CUDA device; skipped without one."""

import dataclasses
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from helpers.plain import plain_classifier
from uulearn import UUClassifier, UURisk
from uulearn.data import BatchPlan, DenseRows, TwoSets
from uulearn.data.augmentation import get_augmentation
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import MLP, ResNet32
from uulearn.risk import LOSSES
from uulearn.training import ConsistencyOptions, RunOptions, Trainer, TrainingOptions
from uulearn.training.batched import BatchedTrainer, Run, layers
from uulearn.training.cuda_graphs import GraphedFunction

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def train(X, sets, **options):
    torch.manual_seed(0)
    data = TwoSets.from_membership(DenseRows(X), sets)
    settings = {"epochs": 3, "batch_size": 100, "device": "cuda", "precision": "float32"} | options
    run = Trainer(MLP(X.shape[1], hidden=(32,)), data, UURisk((0.8, 0.2), 0.5), RunOptions(**settings))
    run.run()
    return run


@pytest.fixture
def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(512, 12, generator=generator), (torch.arange(512) % 3 == 0).long()


def test_cuda_agrees_with_cpu(table):
    there, here = train(*table), train(*table, device="cpu")
    for one, other in zip(there.model.parameters(), here.model.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_rows_copied_per_batch_train_the_same_weights(table, dtype, monkeypatch):
    X = (table[0] * 20).abs().to(dtype)
    resident = train(X, table[1], input_scale=0.05)
    assert resident.data.rows[0].device.type == "cuda"
    monkeypatch.setattr("uulearn.data.rows.RESIDENT_SHARE", 0.0)
    streamed = train(X, table[1], input_scale=0.05)
    assert streamed.data.rows[0].device.type == "cpu"
    for one, other in zip(resident.model.parameters(), streamed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_rows_copied_per_batch_are_used_once(monkeypatch):
    monkeypatch.setattr("uulearn.data.rows.RESIDENT_SHARE", 0.0)
    values = torch.arange(5000.0)[:, None]
    data = TwoSets.from_membership(DenseRows(values), (torch.arange(5000) % 4 == 0).long()).to_device(
        torch.device("cuda")
    )
    plan = BatchPlan(data.sizes, 64)
    seen = []
    for x, _ in data.epoch(plan, 0, 1, torch.device("cuda")):
        seen += (x * 1.0).flatten().tolist()
    assert sorted(seen) == values.flatten().tolist()


@pytest.mark.parametrize("options", [{"ema": 0.9}, {"precision": "bfloat16"}, {"clip_norm": 1.0, "l2": 1e-3}])
def test_options_work_on_cuda(table, options):
    history = train(*table, epochs=20, **options).history
    assert history[-1]["corrected"] < history[0]["corrected"]


def test_model_trained_on_cuda_loads_on_cpu(tmp_path, gaussians, quick):
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


def test_tensors_on_the_device_are_not_copied(gaussians, quick):
    X, sets = torch.tensor(gaussians["X"], device="cuda"), torch.tensor(gaussians["sets"], device="cuda")
    classifier = UUClassifier(**quick).fit(X, sets)
    assert (classifier.predict(torch.tensor(gaussians["X_test"], device="cuda")) == gaussians["y_test"]).mean() > 0.9


def test_resume_on_cuda_equals_uninterrupted_run(tmp_path, table):
    whole = train(*table, epochs=6)
    train(*table, epochs=3, checkpoint_dir=tmp_path)
    resumed = train(*table, epochs=6, checkpoint_dir=tmp_path)
    assert resumed.history.resumed_at == [3]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_non_finite_risk_is_detected(table):
    with pytest.raises(NonFiniteRiskError, match="epoch 1"):
        train(*table, lr=1e38, optimizer="sgd")


def test_rejects_invalid_sets():
    values = UURisk((0.8, 0.2), 0.5)(torch.zeros(4, device="cuda"), torch.tensor([0, 1, 2, 1], device="cuda"))
    assert values.isnan()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_captured_step_trains_the_same_weights(table, optimizer, monkeypatch):
    """Batches of two sizes need two graphs; the warm-up of each must have no effect."""
    graphs = []
    capture = GraphedFunction._capture
    monkeypatch.setattr(GraphedFunction, "_capture", lambda *given: graphs.append(given) or capture(*given))
    options = {"optimizer": optimizer, "l2": 1e-3, "batch_size": 150, "ema": 0.9}
    if optimizer == "sgd":
        options["optimizer_params"] = {"momentum": 0.9}
    plain, captured = train(*table, **options), train(*table, graph=True, **options)
    assert len(graphs) == len({plain.plan.counts(b) for b in range(plain.plan.n_batches)}) > 1
    for one, other in zip(
        plain.final_model.state_dict().values(), captured.final_model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert captured.history.column("objective") == pytest.approx(plain.history.column("objective"), abs=1e-4)


def test_estimator_captures_steps_of_named_models(gaussians, quick, monkeypatch, tmp_path):
    graphs = []
    capture = GraphedFunction._capture
    monkeypatch.setattr(GraphedFunction, "_capture", lambda *given: graphs.append(given) or capture(*given))
    X, sets, epochs = gaussians["X"], gaussians["sets"], quick["epochs"]
    captured = UUClassifier(**quick).fit(X, sets)
    assert graphs
    half = quick | {"training": TrainingOptions(checkpoint_dir=tmp_path)}
    UUClassifier(**half | {"epochs": epochs // 2}).fit(X, sets)
    continued = UUClassifier(**half).fit(X, sets)
    graphs.clear()
    plain = UUClassifier(**quick | {"loss": LOSSES["logistic"]}).fit(X, sets)
    assert not graphs
    for other in captured, continued:
        np.testing.assert_allclose(other.decision_function(X), plain.decision_function(X), rtol=1e-2, atol=1e-3)


# -------------------------------------------------------------------------------------------------- batched training


def train_batched_runs(X, sets, **changes):
    rows = ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten())
    held_out, rows = tuple(index[-20:] for index in rows), tuple(index[:-20] for index in rows)
    methods = (("biased", 0.0), ("unbiased", 0.0), ("abs", 0.0), ("leaky_relu", -0.3))
    runs = [
        Run(rows, priors, 0.5, method, slope, seed=seed, held_out=held_out, lr=0.01 if method == "abs" else None)
        for seed, priors in ((0, (0.8, 0.2)), (1, (0.6, 0.4)))
        for method, slope in methods
    ]
    model = {"model": "mlp", "model_params": {"hidden": (24, 40), "momentum": 0.01}} | changes.pop("model", {})
    settings = {"epochs": 4, "batch_size": 130, "lr": 0.003, "l2": 1e-3, "ema": None, "precision": "float32"}
    options = RunOptions(**settings | {"device": "cuda", "progress": False} | changes)
    batched = BatchedTrainer(X, runs, options=options, test=(X, sets), **model)
    return batched, batched.run()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("model", [{}, {"model": "linear", "model_params": None}])
def test_batched_training_on_cuda_equals_cpu(table, optimizer, model):
    params = {"momentum": 0.9} if optimizer == "sgd" else {}
    changes = {"optimizer": optimizer, "optimizer_params": params, "weight_decay": 0.01, "ema": 0.9, "model": model}
    (there, found), (here, expected) = (train_batched_runs(*table, device=d, **changes) for d in ("cuda", "cpu"))
    for one, other in zip(there.models(), here.models(), strict=True):
        for mine, its in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, its, rtol=5e-3, atol=1e-3, check_dtype=False)
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other) == 4
        for name in ("positive", "negative", "objective", "zero_one", "test_risk", "validation_unbiased"):
            assert one.column(name) == pytest.approx(other.column(name), abs=3e-3)


def test_batched_half_precision_is_close_to_float32(table):
    """Widths that are not multiples of eight are padded; the padding must have no effect."""
    model = {"model_params": {"hidden": (27, 13)}}
    (half, _), (full, _) = (train_batched_runs(*table, precision=p, model=model) for p in ("bfloat16", "float32"))
    for name, value in half.network.params.items():
        if name.endswith("gamma") or name.endswith("beta"):
            assert not value[:, :, 27 if name.startswith("0") else 13 :].any()
    scores = [batched.scores(table[0]) for batched in (half, full)]
    assert (scores[0] - scores[1]).abs().mean() < 0.1 * scores[1].abs().mean()


@pytest.mark.skipif(not layers.HAS_TRITON, reason="Triton is not installed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("groups", "width", "n", "h"), [(2, 3, 50, 24), (1, 2, 131, 136), (4, 1, 7, 304)])
def test_triton_kernels_agree_with_torch_formulas(groups, width, n, h, dtype, monkeypatch):
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, device="cuda", generator=generator)

    runs = groups * width
    x, gamma, beta = draw(groups, n, width * h).to(dtype), draw(runs, 1, h), draw(runs, 1, h)
    kernel, bias, back = draw(runs, h, 1), draw(runs, 1, 1), draw(runs, n)

    def everything():
        leaves = [tensor.clone().requires_grad_() for tensor in (x, gamma, beta, kernel, bias)]
        hidden, mean, var = layers.NormalizeReLU.apply(*leaves[:3], 1e-3, width)
        scores = layers.OutputUnit.apply(hidden, *leaves[3:])
        return [hidden, mean, var, scores, *torch.autograd.grad(scores, leaves, back)]

    by_kernels = everything()
    monkeypatch.setattr(layers, "HAS_TRITON", False)
    for one, other in zip(by_kernels, everything(), strict=True):
        near = 1e-3 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(one, other, rtol=near, atol=near * (1 + other.abs().max().item() / 10))


def test_resnet_with_packed_convolutions_equals_cpu():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (48, 3, 32, 32), dtype=torch.uint8, generator=generator)
    outcomes = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        data = TwoSets.from_membership(DenseRows(images), torch.arange(48) % 2)
        options = RunOptions(epochs=2, batch_size=24, device=device, precision="float32", input_scale=1 / 255)
        run = Trainer(ResNet32(), data, UURisk((0.8, 0.2), 0.5), options)
        outcomes.append(run.run().column("objective"))
    assert outcomes[0] == pytest.approx(outcomes[1], rel=0.02)


def test_non_finite_run_on_cuda_does_not_affect_others(table):
    """One of two runs has a learning rate that overflows: it keeps finite weights and reports the failure."""
    X, sets = table
    rows = ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten())
    options = RunOptions(epochs=3, batch_size=130, device="cuda", precision="float32", ema=None, progress=False)
    params = {"model_params": {"hidden": (24, 40)}}
    both = BatchedTrainer(X, [Run(rows, (0.8, 0.2), 0.5, lr=lr) for lr in (0.003, 1e38)], options=options, **params)
    good, bad = both.run()
    alone = BatchedTrainer(X, [Run(rows, (0.8, 0.2), 0.5, lr=0.003)], options=options, **params)
    assert good.column("objective") == pytest.approx(alone.run()[0].column("objective"), abs=1e-4)
    assert "not finite" in bad.stop_reason
    assert all(p.isfinite().all() for p in both.models()[1].parameters())


def test_every_replay_draws_new_dropout(table):
    X, sets = table
    rows = ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten())
    options = RunOptions(epochs=1, batch_size=512, lr=0.0, device="cuda", ema=None, progress=False)
    runs = [Run(rows, (0.8, 0.2), 0.5, dropout=rate) for rate in (0.0, 0.5)]
    batched = BatchedTrainer(X, runs, model_params={"hidden": (64, 64)}, options=options)
    batched._load(batched._shuffle(1))
    seen = []
    for _ in range(5):
        batched.totals.zero_()
        batched._step(batched.plan.counts(0))
        seen.append(batched.totals[3].tolist())  # the objective of each run; with lr = 0 nothing else changes it
    still, moving = zip(*seen, strict=True)
    assert max(still) - min(still) < 1e-3 * abs(still[0])
    assert len(set(moving)) == 5


# At this probability, no cell is ever swapped, so that runs do not depend on the generator of the device.
UNCHANGED = ConsistencyOptions(ramp=(0.2, 0.6), strong="swap", swap=1e-9)


@pytest.mark.parametrize("graph", [False, True])
def test_consistency_training_on_cuda_agrees_with_cpu(table, graph):
    options = {"ema": 0.9, "epochs": 5, "consistency": UNCHANGED}
    there, here = train(*table, graph=graph, **options), train(*table, device="cpu", **options)
    for name in ("objective", "consistency_loss", "pseudo_label_agreement"):
        found, expected = (run.history.column(name)[-3:] for run in (there, here))
        assert found == pytest.approx(expected, abs=2e-3)


def test_batched_consistency_training_on_cuda_agrees_with_single_run_on_cpu(table):
    X, sets = table
    rows = ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten())
    settings = {"epochs": 5, "batch_size": 100, "precision": "float32", "ema": 0.9, "consistency": UNCHANGED}
    options = RunOptions(device="cuda", progress=False, **settings)
    runs = [Run(rows, (0.8, 0.2), 0.5, seed=seed) for seed in (0, 1)]
    history = BatchedTrainer(X, runs, model_params={"hidden": (32,)}, options=options).run()[0]
    expected = train(X, sets, device="cpu", ema=0.9, epochs=5, consistency=UNCHANGED).history
    for name in ("objective", "consistency_loss", "pseudo_label_agreement"):
        assert history.column(name)[-3:] == pytest.approx(expected.column(name)[-3:], abs=2e-3)


@pytest.mark.parametrize("strong", ["swap+noise", "shift+flip+cutout"])
def test_every_replay_draws_new_views(table, strong):
    X, sets = table
    rows = ((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten())
    consistency = ConsistencyOptions(ramp=(0, 0), strong=strong)
    options = RunOptions(epochs=1, batch_size=512, lr=0.0, device="cuda", progress=False, consistency=consistency)
    options = dataclasses.replace(options, image_shape=(1, 3, 4), augment="shift")
    batched = BatchedTrainer(X, [Run(rows, (0.8, 0.2), 0.5)], model_params={"hidden": (64,)}, options=options)
    batched._load(batched._shuffle(1))
    batched.views.start_epoch(1)
    seen = []
    for _ in range(5):
        batched.totals.zero_()
        batched._step(batched.plan.counts(0), True)
        seen.append(batched.totals[-2].item())  # the consistency loss
    assert len(set(seen)) == 5


def test_batched_trainer_releases_its_memory(table):
    def once():
        train_batched_runs(*table)
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    once()
    first = once()
    assert all(once() <= first for _ in range(3))


class Flattening(torch.nn.Module):
    """A custom network that flattens with ``view``, which works for one memory layout only."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.output = torch.nn.Linear(4 * 6 * 6, 1)

    def forward(self, x):
        x = torch.relu(self.convolution(x))
        return self.output(x.view(len(x), -1))


def test_custom_network_keeps_its_memory_layout():
    rng = np.random.default_rng(0)
    sets = np.arange(64) % 2
    X = (rng.normal(size=(64, 3, 8, 8)) + sets[:, None, None, None]).astype(np.float32)
    classifier = plain_classifier((0.8, 0.2), model=Flattening, epochs=2, device="cuda", random_state=0).fit(X, sets)
    assert classifier.predict_proba(X).shape == (64, 2)


def train_images(**options):
    generator = torch.Generator().manual_seed(0)
    X, sets = torch.randint(0, 256, (60, 3, 8, 8), dtype=torch.uint8, generator=generator), torch.arange(60) % 2
    settings = {"epochs": 5, "batch_size": 30, "device": "cuda", "precision": "float32", "input_scale": 1 / 255}
    torch.manual_seed(0)
    data = TwoSets.from_membership(DenseRows(X), sets)
    run = Trainer(Flattening(), data, UURisk((0.8, 0.2), 0.5), RunOptions(**settings | options))
    run.run()
    return run


def test_every_replay_draws_new_augmentation():
    """With constant weights and one batch per epoch, the objective depends only on the draws."""
    still = {"lr": 1e-30, "batch_size": 60, "graph": True}
    moving, fixed = (train_images(augment=augment, **still).history for augment in ("shift+flip", None))
    assert len(set(moving.column("objective"))) == 5
    assert np.ptp(fixed.column("objective")) < 1e-5


def test_captured_step_with_augmentation_trains_the_same_weights(tmp_path):
    """The same as without a graph, and as a run that was interrupted and resumed."""
    options = {"augment": "shift+flip", "epochs": 6}
    plain, captured = train_images(**options), train_images(graph=True, **options)
    train_images(**options | {"epochs": 2}, graph=True, checkpoint_dir=tmp_path)
    resumed = train_images(**options, graph=True, checkpoint_dir=tmp_path)
    assert resumed.history.resumed_at == [2]
    for other in (captured, resumed):
        assert other.history.column("objective") == pytest.approx(plain.history.column("objective"), abs=1e-4)
        for one, its in zip(plain.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(one, its, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_augmentation_does_not_synchronize_the_device(memory_format, dtype):
    image = torch.arange(1.0, 3 * 6 * 7 + 1).reshape(1, 3, 6, 7).to("cuda", dtype)
    x = image.expand(2000, 3, 6, 7).contiguous(memory_format=memory_format)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that this mode is experimental
        torch.cuda.set_sync_debug_mode("error")
        try:
            out = get_augmentation("shift+flip")(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert out.is_contiguous(memory_format=memory_format)
    assert out.dtype == dtype
    bordered = torch.nn.functional.pad(image[0], [4] * 4)
    windows = [bordered[:, top : top + 6, left : left + 7] for top in range(9) for left in range(9)]
    allowed = torch.stack(windows + [window.flip(2) for window in windows]).flatten(1).unique(dim=0)
    assert torch.equal(out.flatten(1).unique(dim=0), allowed)


def test_folds_are_trained_together_on_cuda(gaussians, quick, monkeypatch):
    monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("the folds are trained one by one"))
    classifier = UUClassifier(**quick | {"n_estimators": 3, "early_stopping": True, "calibrated": True})
    classifier.fit(gaussians["X"], gaussians["sets"])
    assert (classifier.predict(gaussians["X_test"]) == gaussians["y_test"]).mean() > 0.9
    assert next(classifier.model_.parameters()).device.type == "cuda"
    assert len(classifier.history_.models) == 3


@pytest.mark.parametrize("early_stopping", [True, False])
def test_diverging_fold_raises_on_cuda_as_on_the_cpu(gaussians, early_stopping):
    parameters = {"model": "linear", "loss": "squared", "method": "unbiased", "optimizer": "sgd", "lr": 1e3}
    parameters |= {"epochs": 9, "n_estimators": 3, "batch_size": 10_000, "early_stopping": early_stopping}
    errors = []
    for device in ("cpu", "cuda"):
        classifier = plain_classifier((0.8, 0.2), 0.5, **parameters, precision="float32", device=device, random_state=0)
        with pytest.raises(NonFiniteRiskError, match=r"finite in epoch \d: positive term .*Likely causes") as caught:
            classifier.fit(gaussians["X"], gaussians["sets"])
        assert not hasattr(classifier, "model_")
        errors.append(str(caught.value).partition(":")[0])
    assert errors[0] == errors[1]
