"""The training loop: its updates, its records and its errors."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from uulearn import UURisk, uu_risk
from uulearn.data import BatchPlan, DenseRows, TwoSets
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import MLP, Linear
from uulearn.training import History, RunOptions, Trainer
from uulearn.training.options import build_optimizer, few_threads, kernel_parameters

PRIORS, PI = (0.8, 0.2), 0.4


def mlp(*hidden, **options):
    return lambda n_features: MLP(n_features, hidden=hidden, **options)


def table(n0=90, n1=60, columns=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n0 + n1, columns, generator=generator)
    sets = torch.cat([torch.zeros(n0), torch.ones(n1)]).long()
    X[sets == 0] += 0.8
    return X, sets


def trainer(build=Linear, method="leaky_relu", data=None, *, loss="logistic", **options):
    X, sets = data or table()
    options = {"epochs": 3, "batch_size": 50, "lr": 0.01, "seed": 1} | options
    arguments = {key: options.pop(key) for key in ("validation", "test", "callback") if key in options}
    torch.manual_seed(0)
    return Trainer(
        build(X.shape[1]),
        TwoSets.from_membership(DenseRows(X), sets),
        UURisk(PRIORS, PI, method=method, loss=loss),
        RunOptions(**options),
        **arguments,
    )


@pytest.mark.parametrize("method", ["biased", "unbiased", "abs", "relu", "leaky_relu"])
def test_equals_direct_transcription_of_algorithm_1(method):
    """Compares the weights after three epochs with a direct implementation by autograd and Adam."""
    X, sets = table()
    run = trainer(method=method)
    model = Linear(3)
    model.load_state_dict(run.model.state_dict())
    run.run()

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    own = [X[sets == which] for which in (0, 1)]
    plan = BatchPlan((90, 60), 50)
    for epoch in (1, 2, 3):
        shuffled = [rows[order] for rows, order in zip(own, plan.shuffles(1, epoch), strict=True)]
        for batch in range(plan.n_batches):
            parts = [rows[part] for rows, part in zip(shuffled, plan.bounds(batch), strict=True)]
            rows_of_batch = torch.cat([torch.full((len(part),), which) for which, part in enumerate(parts)])
            optimizer.zero_grad()
            risk = uu_risk(model(torch.cat(parts)), rows_of_batch, PRIORS, PI, loss="logistic", method=method)
            risk.objective.backward()
            optimizer.step()
    for ours, theirs in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_history_records_the_mean_over_batches():
    """With a learning rate of almost zero the weights are constant, so the metrics can be computed directly."""
    X, sets = table()
    run = trainer(lr=1e-30, epochs=1, batch_size=50)
    scores = run.model(X).detach()
    record = run.run()[0]
    whole = uu_risk(scores, sets, PRIORS, PI, loss="logistic", method="leaky_relu")
    assert record["positive"] == pytest.approx(whole.positive.item(), rel=1e-5)
    assert record["negative"] == pytest.approx(whole.negative.item(), rel=1e-5)
    assert record["unbiased"] == record["positive"] + record["negative"]
    zero_one = uu_risk(scores, sets, PRIORS, PI, loss="zero_one")
    assert record["zero_one"] == pytest.approx(zero_one.unbiased.item(), rel=1e-5)
    plan = BatchPlan((90, 60), 50)
    orders = plan.shuffles(1, 1)
    own = [(sets == which).nonzero().flatten()[orders[which]] for which in (0, 1)]
    corrected = 0.0
    for batch in range(plan.n_batches):
        rows = torch.cat([index[part] for index, part in zip(own, plan.bounds(batch), strict=True)])
        corrected += (
            uu_risk(scores[rows], sets[rows], PRIORS, PI, loss="logistic", method="leaky_relu").corrected.item()
            / plan.n_batches
        )
    assert record["corrected"] == pytest.approx(corrected, rel=1e-5)


def test_records_fraction_of_batches_below_zero():
    """Small batches of unequal size and fixed, well-separated scores: some risk terms are below zero."""
    X, sets = table(n0=33, n1=20)
    run = trainer(data=(X, sets), lr=1e-30, epochs=1, batch_size=8)
    with torch.no_grad():
        run.model.output.weight.fill_(4.0)
    plan = run.plan
    assert len({sum(plan.counts(batch)) for batch in range(plan.n_batches)}) > 1
    scores = run.model(X).detach()
    record = run.run()[0]
    own = [(sets == which).nonzero().flatten()[plan.shuffles(1, 1)[which]] for which in (0, 1)]
    below = []
    for batch in range(plan.n_batches):
        rows = torch.cat([index[part] for index, part in zip(own, plan.bounds(batch), strict=True)])
        parts = uu_risk(scores[rows], sets[rows], PRIORS, PI, loss="logistic", method="leaky_relu")
        below.append([float(parts.positive < 0), float(parts.negative < 0)])
    positive, negative = np.mean(below, axis=0)
    assert 0 < positive < 1
    assert 0 < negative < 1
    assert record["positive_below_zero"] == pytest.approx(positive)
    assert record["negative_below_zero"] == pytest.approx(negative)


def test_history_of_an_overfitting_run():
    X, sets = table(columns=20)
    history = trainer(mlp(32), "unbiased", (X, sets), epochs=40, lr=0.01).run()
    risks = history.column("unbiased")
    first = history.first_negative_epoch
    assert first is not None
    assert risks[first - 1] < 0
    assert all(risk >= 0 for risk in risks[: first - 1])
    assert history[-1]["negative_below_zero"] == 1.0
    assert history.stop_reason == "all 40 epochs done"
    assert not history.labels_used
    assert History.from_dict(history.to_dict()) == history


def test_records_validation_and_test_metrics():
    X, sets = table(seed=5)
    labels = 1 - sets
    run = trainer(validation=(DenseRows(X), sets), test=(DenseRows(X), labels), epochs=2)
    record = run.run()[-1]
    scores = run.final_model(X).detach()
    risk = uu_risk(scores, sets, PRIORS, PI, loss="logistic", method="leaky_relu")
    assert record["validation_unbiased"] == pytest.approx(risk.unbiased.item(), rel=1e-5)
    assert record["validation_corrected"] == pytest.approx(risk.corrected.item(), rel=1e-5)
    zero_one = uu_risk(scores, sets, PRIORS, PI, loss="zero_one").unbiased.item()
    assert record["validation_zero_one"] == pytest.approx(zero_one, rel=1e-5)
    assert record["test_accuracy"] == pytest.approx(((scores > 0) == (labels == 1)).float().mean().item())
    assert run.history.labels_used


def test_is_reproducible_and_preserves_the_global_generator():
    def weights(seed):
        run = trainer(mlp(8, dropout=0.5), seed=seed)
        torch.manual_seed(99)
        run.run()
        after = torch.rand(1).item()
        torch.manual_seed(99)
        assert after == torch.rand(1).item()
        return torch.cat([p.detach().flatten() for p in run.model.parameters()])

    assert torch.equal(weights(4), weights(4))
    assert not torch.equal(weights(4), weights(5))


def test_l2_is_keras_style_and_coupled():
    """One SGD step with l2 = w changes a kernel by another lr·2w·W, but not the bias or the normalization."""
    plain, decayed = (trainer(mlp(5), epochs=1, batch_size=200, optimizer="sgd", l2=l2) for l2 in (0.0, 0.1))
    start = plain.model.hidden[0].weight.detach().clone()
    decayed.model.load_state_dict(plain.model.state_dict())
    plain.run()
    decayed.run()
    expected = plain.model.hidden[0].weight - 0.01 * 2 * 0.1 * start
    torch.testing.assert_close(decayed.model.hidden[0].weight, expected)
    torch.testing.assert_close(decayed.model.output.weight, plain.model.output.weight)
    torch.testing.assert_close(decayed.model.hidden[1].weight, plain.model.hidden[1].weight)


def test_a_model_names_the_layers_without_l2():
    class Net(nn.Module):
        without_l2 = ("head",)

        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(2, 3), nn.Linear(3, 1)

    assert [tuple(k.shape) for k in kernel_parameters(Net())] == [(3, 2)]


def test_kernels_of_a_custom_model_are_its_linear_and_convolution_weights():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 1))
    assert [tuple(k.shape) for k in kernel_parameters(model)] == [(2, 1, 3, 3), (1, 8)]


def test_clip_norm_bounds_the_step():
    start = trainer(optimizer="sgd", lr=1.0)
    before = [p.detach().clone() for p in start.model.parameters()]
    clipped = trainer(optimizer="sgd", lr=1.0, clip_norm=1e-3, epochs=1, batch_size=200)
    clipped.run()
    moved = math.sqrt(
        sum((p - q).square().sum().item() for p, q in zip(clipped.model.parameters(), before, strict=True))
    )
    assert moved == pytest.approx(1e-3, rel=1e-3)


def test_moving_average_equals_its_definition():
    decay, seen = 0.9, []

    class Watched(Trainer):
        def step(self, *batch):
            result = super().step(*batch)
            seen.append(self.model.output.weight.detach().clone())
            return result

    X, sets = table()
    torch.manual_seed(0)
    data = TwoSets.from_membership(DenseRows(X), sets)
    run = Watched(Linear(3), data, UURisk(PRIORS, PI), RunOptions(epochs=8, batch_size=50, lr=0.05, ema=decay))
    run.run()
    average = seen[0]
    for n, weight in enumerate(seen[1:], start=1):
        average = torch.lerp(average, weight, 1 - min(decay, (1 + n) / (10 + n)))
    torch.testing.assert_close(run.final_model.output.weight, average)
    assert run.final_model is not run.model


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        "adamw",
        "sgd",
        torch.optim.RMSprop,
        torch.optim.LBFGS,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ],
)
def test_accepts_any_optimizer(optimizer):
    history = trainer(optimizer=optimizer, epochs=10, batch_size=200, lr=0.05).run()
    assert history[-1]["corrected"] < history[0]["corrected"]


def test_schedulers_step_per_epoch_per_batch_and_on_plateau():
    def halve(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    assert trainer(scheduler=halve, lr=0.08).run().column("lr") == [0.08, 0.04, 0.02]
    by_batch = trainer(scheduler=halve, scheduler_interval="batch", lr=0.08, batch_size=50, epochs=2).run()
    assert by_batch.column("lr") == pytest.approx([0.08 / 2**3, 0.08 / 2**6])

    def plateau(optimizer):
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=10.0, threshold_mode="abs")

    assert trainer(scheduler=plateau, lr=0.1, epochs=4).run()[-1]["lr"] < 0.1


def test_weight_decay_equals_the_option():
    parameter = [nn.Parameter(torch.zeros(2))]
    for name, asked in (("adamw", 0.0), ("adam", 0.0), ("sgd", 0.3), (torch.optim.AdamW, 0.2)):
        optimizer = build_optimizer(RunOptions(optimizer=name, weight_decay=asked), parameter)
        assert optimizer.param_groups[0]["weight_decay"] == asked


def test_custom_optimizers_do_not_need_a_fused_option():
    class Own(torch.optim.Adam):
        def __init__(self, params, lr):
            super().__init__(params, lr=lr)

    assert trainer(optimizer=Own).run().stop_reason == "all 3 epochs done"


@pytest.mark.parametrize(
    ("scheduler", "interval", "text"),
    [
        (lambda optimizer: "cosine", "epoch", "must return a torch learning-rate scheduler, got 'cosine'"),
        (lambda optimizer: None, "epoch", "must return a torch learning-rate scheduler, got None"),
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "batch", "set scheduler_interval='epoch'"),
    ],
)
def test_rejects_invalid_schedulers(scheduler, interval, text):
    with pytest.raises((TypeError, ValueError), match=text):
        trainer(scheduler=scheduler, scheduler_interval=interval)


def test_average_follows_replaced_buffers_and_copies_counters():
    class Centered(nn.Module):
        def __init__(self, n_features):
            super().__init__()
            self.layer, self.norm = Linear(n_features), nn.BatchNorm1d(n_features)
            self.register_buffer("mean", torch.zeros(n_features))

        def forward(self, x):
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return self.layer(self.norm(x - self.mean))

    run = trainer(Centered, ema=0.5, epochs=10)
    run.run()
    torch.testing.assert_close(run.final_model.mean, run.model.mean, rtol=0.3, atol=0.05)
    assert run.final_model.norm.num_batches_tracked == run.model.norm.num_batches_tracked == 30


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"optimizer_params": {"speed": 3}}, "correct optimizer_params"),
        ({"optimizer": lambda p: "fast"}, "must return a torch optimizer"),
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=1), "weight_decay": 0.1}, "set it there"),
    ],
)
def test_rejects_invalid_optimizers(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        build_optimizer(RunOptions(**options), [nn.Parameter(torch.zeros(2))])


def test_callback_can_stop_training():
    seen = []

    def stop_at_two(record, model):
        seen.append((record["epoch"], isinstance(model, nn.Module)))
        return record["epoch"] == 2

    history = trainer(callback=stop_at_two, epochs=10).run()
    assert seen == [(1, True), (2, True)]
    assert history.stop_reason == "the callback asked to stop"


class Exploding(nn.Module):
    """Finite in the first two epochs, then infinite."""

    def __init__(self, at):
        super().__init__()
        self.inner, self.calls, self.at = Linear(3), 0, at

    def forward(self, x):
        self.calls += self.training
        scores = self.inner(x)
        return scores * float("nan") if self.calls > self.at else scores


@pytest.mark.parametrize("ema", [None, 0.9])
def test_non_finite_risk_restores_the_last_finite_weights(ema):
    good = trainer(epochs=2, ema=ema)
    good.run()
    run = trainer(lambda n_features: Exploding(at=2 * 3 + 1), epochs=10, ema=ema)
    with pytest.raises(NonFiniteRiskError, match=r"epoch 3: positive term nan.*Likely causes.*weights after epoch 2"):
        run.run()
    assert len(run.history) == 2
    assert run.history.stop_reason == "the risk was not finite in epoch 3"
    for kept, expected in zip(run.final_model.inner.parameters(), good.final_model.parameters(), strict=True):
        assert torch.equal(kept, expected)


def test_detects_weights_that_overflow_in_the_last_step():
    run = trainer(optimizer="sgd", lr=1e300, epochs=1, batch_size=200, loss="squared", method="unbiased")
    with pytest.raises(NonFiniteRiskError, match="initial weights were restored"):
        run.run()
    assert all(p.isfinite().all() for p in run.model.parameters())


def test_detects_running_statistics_that_overflow():
    X, sets = table()
    run = trainer(mlp(8), data=(X * 1e20, sets), epochs=2)
    with pytest.raises(NonFiniteRiskError, match=r"a weight stopped being finite in epoch 1.*initial weights were"):
        run.run()
    assert all(value.isfinite().all() for value in run.final_model.state_dict().values())


def test_allows_masks_that_are_not_finite():
    def masked(n_features):
        model = Linear(n_features)
        model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        return model

    assert len(trainer(masked, epochs=2).run()) == 2


def test_allows_large_weights_whose_sum_overflows():
    def large(n_features):
        model = Linear(n_features)
        model.register_buffer("large", torch.full((2,), 3e38))
        return model

    assert len(trainer(large, epochs=2).run()) == 2


def test_small_tables_use_one_thread_and_large_models_all(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    used = []
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    with few_threads(1000, (40,), Linear(40)):
        assert used == [1]
    assert used == [1, 8]
    for n_rows, row_shape, model in ((20_000, (40,), None), (10, (3, 8, 8), None), (10, (4000,), MLP(4000))):
        with few_threads(n_rows, row_shape, model):
            assert used == [1, 8]


def test_input_scale_multiplies_every_value():
    X, sets = table()
    scaled = trainer(data=(X / 8, sets), input_scale=8.0, test=(DenseRows(X / 8), sets))
    plain = trainer(data=(X, sets), test=(DenseRows(X), sets))
    assert scaled.run().column("test_accuracy") == plain.run().column("test_accuracy")
    for one, other in zip(scaled.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_bfloat16_is_close_to_float32():
    X, sets = table(columns=20)
    history = {}
    for precision in ("float32", "bfloat16"):
        history[precision] = trainer(mlp(32), data=(X, sets), precision=precision, epochs=5, lr=1e-3).run()
    np.testing.assert_allclose(history["bfloat16"].column("unbiased"), history["float32"].column("unbiased"), atol=0.02)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports its own deprecated modules
def test_compiled_training_agrees_with_plain_training(monkeypatch):
    original = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: original(model, backend="aot_eager"))
    plain, compiled = (trainer(mlp(8), compile=flag) for flag in (False, True))
    plain.run()
    compiled.run()
    for one, other in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
