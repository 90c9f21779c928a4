"""Many runs at once: every run of a stack ends as it would have ended alone."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from uulearn import UURisk, pn_risk
from uulearn.datasets import make_sets
from uulearn.exceptions import NonFiniteRiskError, UnevenSetsWarning
from uulearn.models import MLP, build_model
from uulearn.risk.functional import row_weights, weighted_risk
from uulearn.risk.losses import get_loss
from uulearn.training import BatchPlan, DenseRows, Trainer, TrainingOptions, TwoSets
from uulearn.training.stack import Run, StackTrainer, train_runs
from uulearn.training.stack import trainer as stack_module
from uulearn.training.stack.layers import LastUnit, NormaliseReLU, runs_apart, runs_side_by_side
from uulearn.training.stack.network import DenseStack
from uulearn.training.stack.optimizer import StackedOptimizer
from uulearn.training.stack.risk import RiskStack
from uulearn.training.stack.runs import Groups

CPU = torch.device("cpu")
SIZES, BATCH = (61, 44), 25
COUNTED = ("zero_one", "positive_below_zero", "negative_below_zero", "validation_zero_one", "test_accuracy")
MODELS = {
    "linear": ("linear", None),
    "mlp": ("mlp", {"hidden": (8, 5)}),
    "plain mlp": ("mlp", {"hidden": (7,), "batch_norm": False}),
}


def draw(n=500, columns=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    return torch.randn(n, columns, generator=generator) + 0.7 * y[:, None], y


X, Y = draw()
TEST = (X[400:], Y[400:])


def rows(priors=(0.8, 0.2), seed=0, sizes=SIZES):
    return make_sets(X[:400], Y[:400], priors, sizes, random_state=seed).indices


def run_of(priors=(0.8, 0.2), pi=0.5, method="leaky_relu", *, draws=0, sizes=SIZES, **others):
    return Run(rows(priors, draws, sizes), priors, pi, method, **others)


def options(**changed):
    settings = {"epochs": 3, "batch_size": BATCH, "lr": 0.02, "ema": None, "precision": "float32", "progress": False}
    return TrainingOptions(**(settings | changed))


def stacked(runs, kind="mlp", table=X, **arguments):
    model, model_params = MODELS[kind]
    arguments = {"options": options(), "model": model, "model_params": model_params} | arguments
    stack = StackTrainer(table, runs, **arguments)
    stack.run()
    return stack


def histories(stack):
    return stack._in_given_order(stack.histories)


def alone(run, kind="mlp", table=X, *, loss="logistic", test=None, options=options(), model_params=None):  # noqa: B008
    """The same run by `Trainer`."""
    name, params = MODELS[kind]
    torch.manual_seed(run.seed)
    model = build_model(name, (table.shape[1],), model_params or params)
    own = {key: getattr(run, key) for key in ("lr", "l2", "weight_decay") if getattr(run, key) is not None}
    if run.lr_decay:
        own["scheduler"] = lambda optimizer: LambdaLR(optimizer, lambda step: 1 / (1 + run.lr_decay * step))
        own["scheduler_interval"] = "batch"
    validation = None
    if run.held_out is not None:
        sets = torch.repeat_interleave(torch.arange(2), torch.tensor(run.held_out_sizes))
        validation = (DenseRows(table[torch.cat(run.held_out)]), sets)
    trainer = Trainer(
        model,
        TwoSets((DenseRows(table), DenseRows(table)), run.rows),
        UURisk(run.set_priors, run.target_prior, loss, run.method, run.slope),
        dataclasses.replace(options, seed=run.seed, **own),
        validation=validation,
        test=None if test is None else (DenseRows(test[0]), test[1]),
    )
    trainer.run()
    return trainer


def assert_same_records(found, expected, rel=1e-4, atol=1e-5):
    """All figures that both have. One that counts may differ in one epoch, by a score that is zero but for rounding."""
    assert len(found) == len(expected)
    assert found.stop_reason == expected.stop_reason
    assert found.labels_used == expected.labels_used
    common = set(found[0]) & set(expected[0]) - {"seconds"}
    assert {"epoch", "positive", "negative", "unbiased", "corrected", "objective", *COUNTED[:3]} <= common
    for name in common:
        differ = ~np.isclose(found.column(name), expected.column(name), rtol=rel, atol=atol)
        assert differ.sum() <= (name in COUNTED), (name, found.column(name), expected.column(name))


def assert_same_model(found, expected, rtol=1e-3, atol=3e-5):
    theirs = expected.state_dict()
    for name, ours in found.state_dict().items():
        if ours.is_floating_point():  # not the counters of the normalisation, which nothing reads
            torch.testing.assert_close(
                ours, theirs[name], rtol=rtol, atol=atol, msg=lambda text, at=name: f"{at}: {text}"
            )


def assert_each_as_alone(runs, kind="mlp", table=X, *, loss="logistic", test=TEST, options=options(), **arguments):  # noqa: B008
    stack = stacked(runs, kind, table, loss=loss, test=test, options=options, **arguments)
    models, scores = stack.models(), stack.scores(table)
    for place, run in enumerate(runs):
        trainer = alone(run, kind, table, loss=loss, test=test, options=options)
        assert_same_records(histories(stack)[place], trainer.history)
        assert_same_model(models[place], trainer.final_model)
        with torch.no_grad():
            expected = trainer.final_model(table.float() * options.input_scale)
        torch.testing.assert_close(scores[place], expected, rtol=1e-3, atol=1e-4)
    return stack


def steep(x):
    return torch.where(x < 0, -2 * x, x)


def mixed_runs(**others):
    """Every method, two pairs of sets, three groups of two runs that draw the same batches."""
    return [
        run_of(method="biased", **others),
        run_of((0.3, 0.9), 0.4, "unbiased", draws=1, seed=1, lr=0.005, **others),
        run_of(method="relu", **others),
        run_of((0.3, 0.9), 0.4, "leaky_relu", draws=1, seed=1, slope=-0.5, **others),
        run_of(method=("relu", steep), seed=2, lr=0.03, **others),
        run_of(pi=0.3, method="abs", seed=2, **others),
    ]


# ------------------------------------------------------------------------------------------------ each run as alone

OPTIMIZERS = {
    "adam l2": {"optimizer_params": {"eps": 1e-7}, "l2": 5e-3},
    "adam decay average": {"optimizer_params": {"betas": (0.8, 0.99)}, "weight_decay": 0.02, "ema": 0.9},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.3, "ema": 0.999},
    "sgd": {"optimizer": "sgd", "lr": 0.1, "l2": 0.01},
    "momentum": {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9, "dampening": 0.2}, "weight_decay": 0.05},
    "nesterov": {"optimizer": "sgd", "optimizer_params": {"momentum": 0.8, "nesterov": True}, "ema": 0.95},
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_run_ends_as_it_would_have_ended_alone(kind, optimizer):
    plan = BatchPlan(SIZES, BATCH)
    assert len({plan.counts(batch) for batch in range(plan.n_batches)}) > 1
    stack = assert_each_as_alone(mixed_runs(), kind, options=options(**OPTIMIZERS[optimizer]))
    assert (stack.groups.count, stack.groups.width) == (3, 2)
    assert [run.seed for run in stack.runs] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("loss", ["sigmoid", "ramp", "double_hinge", "squared", lambda z: F.softplus(-2 * z)])
def test_any_loss(loss):
    assert_each_as_alone(mixed_runs()[2:], loss=loss)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_rates_of_its_own(kind, optimizer):
    runs = [
        run_of(lr=0.05, l2=0.02, weight_decay=0.1, lr_decay=0.1),
        run_of(l2=0.0, weight_decay=0.0, lr=0.0),
        run_of(seed=1, lr_decay=0.02, weight_decay=0.5),
        run_of(seed=1),
    ]
    assert_each_as_alone(runs, kind, options=options(optimizer=optimizer, l2=0.01, weight_decay=0.02, ema=0.9))


def test_a_learning_rate_of_zero_leaves_the_weights_as_they_were():
    stack = stacked([run_of(lr=0.0), run_of()], "linear")
    torch.manual_seed(0)
    assert_same_model(stack.models()[0], build_model("linear", (6,)), rtol=0, atol=0)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_held_out_rows(ema):
    def parts(seed, priors=(0.8, 0.2)):
        first, second = (torch.as_tensor(index) for index in rows(priors, seed))
        return {"rows": (first[:45], second[:30]), "held_out": (first[45:], second[30:])}

    runs = [
        Run(**parts(0), set_priors=(0.8, 0.2), target_prior=0.5, method=method, seed=seed)
        for seed, method in ((0, "relu"), (0, "unbiased"), (3, "biased"))
    ]
    runs.append(Run(**parts(1), set_priors=(0.7, 0.1), target_prior=0.2, slope=-2.0))
    stack = assert_each_as_alone(runs, options=options(ema=ema), loss="sigmoid")
    recorded = {name for name in histories(stack)[0][0] if name.startswith("validation_")}
    assert recorded == {f"validation_{name}" for name in ("positive", "negative", "unbiased", "corrected", "zero_one")}


def test_runs_with_the_same_rows_but_other_held_out_rows_are_of_different_groups():
    runs = [run_of(held_out=(index, index)) for index in (range(5), range(5, 10), range(5))]
    assert Groups.of(runs).width == 1
    assert_each_as_alone(runs)


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64, torch.int64])
def test_tables_of_any_type(dtype, scale):
    table = (X * 20 + 100).clamp(0, 255).round() if scale != 1 else (X * 2 + 5).clamp(min=0).round()
    runs = [run_of(method="relu"), run_of(method="abs", seed=1)]
    table = table.to(dtype)
    assert_each_as_alone(runs, table=table, test=(table[400:], Y[400:]), options=options(input_scale=scale))


def test_arrays_are_taken_as_well():
    runs = [Run(tuple(index.tolist() for index in map(torch.as_tensor, rows())), (0.8, 0.2), 0.5)]
    from_array = stacked(runs, table=X.numpy(), test=(TEST[0].numpy(), TEST[1].numpy()))
    from_tensor = stacked([run_of()], test=TEST)
    assert torch.equal(from_array.scores(X.numpy()), from_tensor.scores(X))
    assert without_time(histories(from_array)) == without_time(histories(from_tensor))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("seeds", "shape"),
    [([0], (1, 1)), ([0, 0, 0], (1, 3)), ([0, 1, 2], (3, 1)), ([0, 1, 0, 0], (4, 1)), ([0, 1, 0, 1, 0, 0], (3, 2))],
)
def test_groups_of_any_width(kind, seeds, shape):
    runs = [run_of(seed=seed, slope=-0.3 * place) for place, seed in enumerate(seeds)]
    stack = assert_each_as_alone(runs, kind, options=options(epochs=2))
    assert (stack.groups.count, stack.groups.width) == shape


@pytest.mark.parametrize("hidden", [(), (1,), (9, 3, 4)])
def test_any_number_of_hidden_layers(hidden):
    params = {"hidden": hidden, "momentum": 0.3, "eps": 1e-2}
    stack = stacked([run_of(seed=seed) for seed in (0, 1)], model_params=params)
    for place, model in enumerate(stack.models()):
        assert_same_model(model, alone(run_of(seed=place), model_params=params).final_model)


@pytest.mark.parametrize("sizes", [(1, 1), (40, 3), (20, 20)])
def test_sets_of_any_size(sizes):
    runs = [run_of(sizes=sizes, seed=seed, method="relu") for seed in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # batches grow with sets so uneven; what matters here is what comes of it
        assert_each_as_alone(runs, options=options(batch_size=100))
        assert_each_as_alone(runs, options=options(batch_size=7, epochs=2))


def test_half_precision_stays_close():
    runs = mixed_runs()
    half, full = (stacked(runs, options=options(precision=precision)) for precision in ("bfloat16", "float32"))
    assert half.dtype == torch.bfloat16
    for one, other in zip(histories(half), histories(full), strict=True):
        np.testing.assert_allclose(one.column("unbiased"), other.column("unbiased"), atol=0.03)
    assert stacked(runs, "linear", options=options(precision="bfloat16", epochs=1)).dtype == torch.float32


def test_widths_that_are_padded_train_the_same_models(monkeypatch):
    """On CUDA widths are rounded up with units that must stay zero."""
    runs = mixed_runs()
    plain = {kind: stacked(runs, kind, options=options(l2=0.01, weight_decay=0.01)) for kind in MODELS}
    monkeypatch.setattr(stack_module, "DenseStack", lambda *arguments: DenseStack(*arguments[:-1], 8))
    for kind, expected in plain.items():
        padded = stacked(runs, kind, options=options(l2=0.01, weight_decay=0.01))
        assert padded.network.params["0.kernel"].shape[1] == 8
        for one, other in zip(padded.models(), expected.models(), strict=True):
            assert_same_model(one, other)
        torch.testing.assert_close(padded.scores(X), expected.scores(X), rtol=1e-3, atol=1e-4)


# ----------------------------------------------------------------------------------------- laws of a stack as a whole


POOL = [
    *mixed_runs(),
    run_of(method="relu", lr=0.05),
    run_of((0.9, 0.6), 0.7, draws=3, seed=2, l2=0.01),
]


def results(runs, kind="mlp"):
    stack = stacked(runs, kind, options=options(epochs=2, ema=0.9), test=TEST)
    return histories(stack), stack.models(), stack.scores(X)


@pytest.fixture(scope="module")
def of_the_pool():
    return results(POOL)


@settings(max_examples=15)
@given(chosen=st.lists(st.integers(0, len(POOL) - 1), min_size=1, unique=True))
def test_runs_do_not_depend_on_their_company_or_their_order(of_the_pool, chosen):
    found, expected = results([POOL[place] for place in chosen]), of_the_pool
    for position, place in enumerate(chosen):
        assert_same_records(found[0][position], expected[0][place])
        assert_same_model(found[1][position], expected[1][place])
        torch.testing.assert_close(found[2][position], expected[2][place], rtol=1e-3, atol=1e-4)


def test_a_run_given_twice_ends_the_same_twice():
    found, models, scores = results([POOL[3], POOL[0], POOL[3]])
    assert_same_records(found[0], found[2])
    assert_same_model(models[0], models[2])
    torch.testing.assert_close(scores[0], scores[2])


@given(labels=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=12))
def test_groups_hold_runs_that_draw_the_same_batches_and_are_as_wide_as_can_be(labels):
    sets = [(torch.arange(4), torch.arange(4, 8)), (torch.arange(2, 6), torch.arange(4, 8))]
    runs = [Run(sets[which], (0.8, 0.2), 0.5, seed=seed) for seed, which in labels]
    groups = Groups.of(runs)
    assert sorted(groups.order) == list(range(len(runs)))
    assert groups.count * groups.width == len(runs)
    assert groups.width == math.gcd(*(labels.count(label) for label in labels))
    for start in range(0, len(runs), groups.width):
        assert len({labels[position] for position in groups.order[start : start + groups.width]}) == 1


def without_time(records):
    return [[{k: v for k, v in record.items() if k != "seconds"} for record in history] for history in records]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_the_same_twice_and_the_callers_random_state_is_left_alone(dropout):
    runs = mixed_runs(dropout=dropout)
    before = torch.get_rng_state()
    first = stacked(runs, test=TEST)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    second = stacked(runs, test=TEST)
    assert torch.equal(first.scores(X), second.scores(X))
    assert without_time(histories(first)) == without_time(histories(second))


# ------------------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("ema", [None, 0.9])
def test_scores_are_those_of_the_models(kind, ema, monkeypatch):
    monkeypatch.setattr("uulearn.training.stack.trainer.EVALUATION_BYTES", 4 * 6 * 64)  # chunks of a few rows
    stack = stacked(mixed_runs(), kind, options=options(ema=ema, input_scale=0.5))
    assert len(stack._chunks(X, 0)) > 3
    scores, models = stack.scores(X), stack.models()
    assert scores.shape == (6, len(X))
    for model, own in zip(models, scores, strict=True):
        assert not model.training
        assert next(model.parameters()).device.type == "cpu"
        with torch.no_grad():
            torch.testing.assert_close(own, model(X * 0.5), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        next(models[0].parameters()).zero_()  # the models are the caller's
    torch.testing.assert_close(stack.scores(X), scores)


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "sigmoid"])
def test_labelled_rows_give_accuracy_and_supervised_risk(loss, signs):
    runs = mixed_runs()
    labels = 2 * TEST[1] - 1 if signs else TEST[1]
    stack = stacked(runs, loss=loss, test=(TEST[0], labels))
    for run, history, scores in zip(runs, histories(stack), stack.scores(TEST[0]), strict=True):
        assert history.labels_used
        assert history[-1]["test_accuracy"] == pytest.approx(((scores > 0) == (TEST[1] == 1)).double().mean().item())
        expected = pn_risk(scores, labels, run.target_prior, loss=loss).total.item()
        assert history[-1]["test_risk"] == pytest.approx(expected, rel=1e-5)


def test_the_risk_of_rows_of_one_class_is_finite():
    stack = stacked([run_of(pi=0.3)], test=(X[Y == 1], Y[Y == 1]))
    expected = pn_risk(stack.scores(X[Y == 1])[0], Y[Y == 1], 0.3).total.item()
    assert histories(stack)[0][-1]["test_risk"] == pytest.approx(expected, rel=1e-5)


def test_the_callback_sees_every_run_and_can_stop():
    seen = []

    def stop_at_two(epoch, records):
        seen.append((epoch, records))
        return epoch == 2

    runs = [POOL[place] for place in (1, 0, 3, 5)]
    stack = stacked(runs, options=options(epochs=9), callback=stop_at_two)
    assert [epoch for epoch, _ in seen] == [1, 2]
    for place, history in enumerate(histories(stack)):
        assert history.stop_reason == "the callback asked to stop"
        assert history.epochs == [records[place] for _, records in seen]
        assert not history.labels_used
    assert [history.stop_reason for history in histories(stacked(runs, callback=lambda *_: None))] == [
        "all 3 epochs done"
    ] * 4


def test_history_is_plain_data_that_adds_up():
    for history in histories(stacked(mixed_runs(), test=TEST)):
        assert [record["epoch"] for record in history] == [1, 2, 3]
        for record in history:
            assert all(type(value) in (int, float) for value in record.values())
            assert record["unbiased"] == record["positive"] + record["negative"]
            assert record["seconds"] > 0


# --------------------------------------------------------------------------------------------------- stacks of stacks


@pytest.mark.parametrize("most", [None, 1, 2])
def test_runs_of_different_sizes_are_sorted_into_stacks(most, monkeypatch):
    runs = [
        run_of(sizes=(40, 30), method="relu"),
        run_of(sizes=(30, 40)),
        run_of(sizes=(40, 30), seed=1),
        run_of(sizes=(40, 30), held_out=(range(9), range(9, 14))),
        run_of(sizes=(40, 30), seed=2, method="abs"),
        run_of(sizes=(30, 40), seed=1),
    ]
    built = []
    monkeypatch.setattr(
        "uulearn.training.stack.many.StackTrainer",
        lambda X, runs, **arguments: built.append(len(runs)) or StackTrainer(X, runs, **arguments),
    )
    found = train_runs(X, runs, most=most, model_params={"hidden": (8, 5)}, options=options(), test=TEST)
    assert sorted(built) == {None: [1, 2, 3], 1: [1] * 6, 2: [1, 1, 2, 2]}[most]
    for run, history in zip(runs, found, strict=True):
        assert_same_records(history, alone(run, test=TEST).history)


# ------------------------------------------------------------------------------------------------------------- dropout


def test_dropout_of_one_run_leaves_the_others_alone():
    runs = [run_of(dropout=0.0), run_of(dropout=0.6), run_of(seed=1)]
    stack = stacked(runs)
    for place in (0, 2):
        trainer = alone(runs[place])
        assert_same_records(histories(stack)[place], trainer.history)
        assert_same_model(stack.models()[place], trainer.final_model)
    dropped = alone(runs[1])
    assert histories(stack)[1][0]["objective"] != pytest.approx(dropped.history[0]["objective"], rel=1e-3)


@pytest.mark.parametrize("width", [1, 2])
def test_dropout_keeps_the_expectation_and_drops_the_share_asked_for(width):
    """Scores of one row, many times: their mean is the score without dropout, their variance Σ(w·h)²·p/(1 − p)."""
    rates = [0.2, 0.7]
    runs = [run_of(seed=0 if width == 2 else place, dropout=rate) for place, rate in enumerate(rates)]
    stack = StackTrainer(X, runs, model_params=MODELS["plain mlp"][1], options=options())
    network = stack.network
    assert stack.groups.width == width
    with torch.no_grad():
        exact = network.evaluation_scores(network.params, network.buffers, X[:1])[:, 0]
        many = X[:1].expand(stack.groups.count, 20_000, -1)
        drawn, _ = network.training_scores(network.params, many)
        for place, (model, rate) in enumerate(zip(stack.models(), rates, strict=True)):
            variance = (model.hidden(X[:1]) * model.output.weight).square().sum() * rate / (1 - rate)
            variance = variance.item()
            assert drawn[place].mean().item() == pytest.approx(
                exact[place].item(), abs=5 * math.sqrt(variance / 20_000)
            )
            assert drawn[place].var().item() == pytest.approx(variance, rel=0.06)


def test_dropout_of_the_model_holds_unless_the_run_says_otherwise():
    runs = [run_of(), run_of(dropout=0.0), run_of(dropout=0.5)]
    params = {"hidden": (8,), "dropout": 0.25}
    stack = StackTrainer(X, runs, model_params=params, options=options(epochs=1))
    assert stack.network.keep.flatten().tolist() == [0.75, 1.0, 0.5]
    stack.run()
    scores = stack.scores(X)
    for model, own in zip(stack.models(), scores, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(own, model(X), rtol=1e-4, atol=1e-5)
    assert StackTrainer(X, runs[:1], model_params={"hidden": (8,)}).network.keep is None


# ------------------------------------------------------------------------------------------- when a run stops being one


@pytest.mark.parametrize("kind", ["linear", "plain mlp"])
@pytest.mark.parametrize("same_group", [True, False])
def test_a_run_that_stops_being_finite_does_not_disturb_the_others(kind, same_group):
    wild = run_of(method="unbiased", seed=0 if same_group else 1, lr=1e10)
    runs = [run_of(method="relu"), wild, run_of(method="abs")]
    settings = options(optimizer="sgd", epochs=3, ema=0.9)
    stack = stacked(runs, kind, loss="squared", options=settings, test=TEST)
    found = histories(stack)
    assert found[1].stop_reason == "the risk was not finite in epoch 1"
    assert len(found[1]) == 0
    with pytest.raises(NonFiniteRiskError, match="in epoch 1"):
        alone(wild, kind, loss="squared", options=settings)
    for place in (0, 2):
        trainer = alone(runs[place], kind, loss="squared", options=settings, test=TEST)
        assert_same_records(found[place], trainer.history)
        assert_same_model(stack.models()[place], trainer.final_model)
        assert stack.scores(X)[place].isfinite().all()


def overflowing(z):
    """Finite while |z| < 8, then infinite."""
    return torch.where(z < -8, torch.inf, F.softplus(-z))


@pytest.mark.parametrize("same_group", [True, False])
def test_a_run_that_ends_late_keeps_its_record_and_the_weights_it_had(same_group):
    wild = run_of(method="unbiased", seed=0 if same_group else 1, lr=0.6)
    runs = [wild, run_of(lr=0.001)]
    stack = stacked(runs, "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    broken, sound = histories(stack)
    assert 1 < len(broken) < 20
    assert broken.stop_reason == f"the risk was not finite in epoch {len(broken) + 1}"
    assert all(math.isfinite(record["objective"]) for record in broken)
    assert sound.stop_reason == "all 20 epochs done"
    with pytest.raises(NonFiniteRiskError, match=f"in epoch {len(broken) + 1}"):
        alone(wild, "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    # one batch an epoch: the weights before the fatal step are those after the last recorded epoch
    until_then = alone(wild, "linear", loss=overflowing, options=options(epochs=len(broken), batch_size=200))
    assert_same_model(stack.models()[0], until_then.final_model)
    expected = alone(runs[1], "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    assert_same_records(sound, expected.history)
    assert_same_model(stack.models()[1], expected.final_model)


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("batch_size", [BATCH, 1000])
def test_weights_that_overflow_are_noticed_and_not_kept(ema, batch_size):
    runs = [run_of(method="unbiased", lr=1e300), run_of(method="relu")]
    settings = options(optimizer="sgd", epochs=1, batch_size=batch_size, ema=ema)
    stack = stacked(runs, "linear", loss="squared", options=settings)
    assert histories(stack)[0].stop_reason == "the risk was not finite in epoch 1"
    assert len(histories(stack)[0]) == 0
    assert all(p.isfinite().all() for model in stack.models() for p in model.parameters())
    assert stack.scores(X).isfinite().all()


# --------------------------------------------------------------------------------------------- the pieces, one by one


SCORES = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12)


@settings(max_examples=40)
@given(
    scores=SCORES,
    share=st.floats(0.1, 0.9),
    priors=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    pi=st.floats(0.05, 0.95),
    loss=st.sampled_from(["logistic", "sigmoid", "ramp", "double_hinge", "squared"]),
)
def test_stacked_risks_are_the_risks_of_each_run(scores, share, priors, pi, loss):
    assume(abs(priors[0] - priors[1]) > 0.1)
    n0 = min(max(1, round(share * len(scores))), len(scores) - 1)
    counts = (n0, len(scores) - n0)
    methods = ["biased", "unbiased", "abs", "relu", "leaky_relu", ("abs", steep), (steep, "relu")]
    runs = [Run(([0], [1]), priors, pi, method, slope=-0.3) for method in methods]
    stack = RiskStack(runs, get_loss(loss), CPU)
    leaf = torch.tensor([scores] * len(runs), requires_grad=True)
    found = stack.risk(leaf, stack.weights(counts))
    (gradients,) = torch.autograd.grad(found.objective.sum(), leaf)
    sets = torch.repeat_interleave(torch.arange(2), torch.tensor(counts))
    for place, run in enumerate(runs):
        own = torch.tensor(scores, requires_grad=True)
        weights = row_weights(sets, run.coefficients)
        expected = weighted_risk(own, weights, get_loss(loss), run.resolved_method)
        size = 1 + (weights.positive.abs() @ own.abs().square()).item()
        for name in ("positive", "negative", "corrected", "objective"):
            ours, theirs = getattr(found, name)[place], getattr(expected, name)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * size)
        zero_one = weighted_risk(own, weights, get_loss("zero_one"), runs[1].resolved_method).unbiased
        torch.testing.assert_close(found.zero_one[place], zero_one, rtol=1e-4, atol=1e-5)
        if min(abs(expected.positive.item()), abs(expected.negative.item())) > 1e-3 * size:  # not at a kink
            (gradient,) = torch.autograd.grad(expected.objective, own)
            torch.testing.assert_close(gradients[place], gradient, rtol=1e-4, atol=1e-5)


def test_rows_of_weight_zero_count_nothing_even_if_their_loss_is_infinite():
    """As in `weighted_risk`: with set_priors (1, 0) a row of set 0 has no part in the negative bracket."""
    runs = [Run(([0], [1]), (1.0, 0.0), 0.5, method) for method in ("relu", "biased")]
    stack = RiskStack(runs, get_loss(lambda z: torch.exp(-z)), CPU)
    scores = torch.tensor([[100.0, -100.0]] * 2, requires_grad=True)
    risk = stack.risk(scores, stack.weights((1, 1)))
    (gradient,) = torch.autograd.grad(risk.objective.sum(), scores)
    assert risk.objective.tolist() == pytest.approx([0.0, 0.0], abs=1e-30)
    assert gradient.isfinite().all()


def test_a_correction_is_asked_only_about_the_brackets_of_its_own_runs():
    """√(1 − x) − 1 below zero: of a bracket above one the root, and its gradient, would be no number."""

    def root(x):
        return torch.where(x < 0, torch.sqrt(1 - x) - 1, x)

    runs = [Run(([0], [1]), (0.9, 0.1), 0.5, (root, root)), Run(([0], [1]), (0.9, 0.1), 0.5, "abs")]
    stack = RiskStack(runs, get_loss("logistic"), CPU)
    scores = torch.tensor([[0.5, -0.5], [-9.0, 9.0]], requires_grad=True)
    risk = stack.risk(scores, stack.weights((1, 1)))
    assert (risk.positive[1] > 1) & (risk.positive[0] < 1)
    assert torch.autograd.grad(risk.objective.sum(), scores)[0].isfinite().all()


STACKED = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(2, 40), st.integers(1, 4))
"""Groups, runs in each, rows, units."""


def normal(seed, *shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@given(shape=STACKED, seed=st.integers(0, 2**31))
def test_runs_side_by_side_and_apart(shape, seed):
    groups, width, n, h = shape
    (x,) = normal(seed, (groups * width, n, h))
    together = runs_side_by_side(x, width)
    assert together.shape == (groups, n, width * h)
    assert torch.equal(runs_apart(together, width), x)
    for run in range(groups * width):
        place = (run % width) * h
        assert torch.equal(together[run // width, :, place : place + h], x[run])


@settings(max_examples=40)
@given(shape=STACKED, offset=st.floats(-3, 3), seed=st.integers(0, 2**31))
def test_normalisation_is_that_of_torch(shape, offset, seed):
    """Values, statistics and gradients of batch normalisation and ReLU, for each run of a stack."""
    groups, width, n, h = shape
    runs = groups * width
    unit = (runs, 1, h)
    values, direction, gamma, beta = normal(seed, (runs, n, h), (runs, n, h), unit, unit)
    values = values + offset
    theirs = [t.double().requires_grad_() for t in (values, gamma, beta)]
    expected = torch.stack(
        [
            F.relu(F.batch_norm(x, None, None, g[0], b[0], training=True, eps=1e-3))
            for x, g, b in zip(*theirs, strict=True)
        ]
    )
    ours = [t.requires_grad_() for t in (runs_side_by_side(values, width), gamma, beta)]
    out, mean, var = NormaliseReLU.apply(*ours, 1e-3, width)
    torch.testing.assert_close(mean, values.mean(1, keepdim=True), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(var, values.var(1, keepdim=True, correction=0), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)
    assume(torch.equal(out > 0, expected > 0))  # else rounding has carried a unit over the kink
    found = list(torch.autograd.grad(out, ours, direction))
    found[0] = runs_apart(found[0], width)
    for one, other in zip(found, torch.autograd.grad(expected, theirs, direction.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-2, atol=1e-2 * (1 + other.abs().max().item()))


@given(shape=STACKED, seed=st.integers(0, 2**31))
def test_the_last_unit_is_a_product(shape, seed):
    groups, width, n, h = shape
    runs = groups * width
    hidden, kernel, bias, direction = normal(seed, (runs, n, h), (runs, h, 1), (runs, 1, 1), (runs, n))
    leaves = [t.requires_grad_() for t in (hidden, kernel, bias)]
    expected = torch.einsum("rnh,rh->rn", hidden, kernel[:, :, 0]) + bias[:, 0]
    found = LastUnit.apply(*leaves)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad(found, leaves, direction), torch.autograd.grad(expected, leaves, direction), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offset", [30.0, 100.0])
def test_columns_far_from_zero_are_normalised_as_well(offset):
    """Before the running mean has arrived, too: the moments must not cancel."""
    run, table = run_of(), X + offset
    trainer, stack = alone(run, table=table), stacked([run], table=table)
    torch.testing.assert_close(
        stack.models()[0].hidden[1].running_var, trainer.final_model.hidden[1].running_var, rtol=1e-3, atol=1e-5
    )
    objectives = trainer.history.column("objective")
    np.testing.assert_allclose(histories(stack)[0].column("objective"), objectives, rtol=1e-4)


TORCH = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
BETAS = st.tuples(st.floats(0.01, 0.99), st.floats(0.5, 0.999))
SETTINGS = st.one_of(
    st.tuples(st.sampled_from(["adam", "adamw"]), st.fixed_dictionaries({"betas": BETAS, "eps": st.just(1e-6)})),
    st.tuples(st.just("sgd"), st.fixed_dictionaries({"momentum": st.floats(0, 0.95), "dampening": st.floats(0, 0.9)})),
    st.tuples(st.just("sgd"), st.fixed_dictionaries({"momentum": st.floats(0.1, 0.95), "nesterov": st.just(True)})),
)


@settings(max_examples=40)
@given(chosen=SETTINGS, seed=st.integers(0, 2**31))
def test_optimizers_are_those_of_torch(chosen, seed):
    name, params = chosen
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(3, 2, 4, generator=generator)
    lr, decay = torch.tensor([0.1, 0.01, 0.05]), torch.tensor([0.0, 0.1, 0.3])
    own = {"kernel": start.clone()}
    stack = StackedOptimizer(
        name, own, lambda values, _: values[:, None, None], [], 1, params,
        lr=lr, lr_decay=torch.zeros(3), weight_decay=decay, l2=torch.zeros(3),
    )  # fmt: skip
    theirs = [nn.Parameter(value.clone()) for value in start]
    optimizers = [
        TORCH[name]([p], lr=rate.item(), weight_decay=share.item(), **params)
        for p, rate, share in zip(theirs, lr, decay, strict=True)
    ]
    for step in range(5):
        gradient = torch.randn(3, 2, 4, generator=generator)
        alive = torch.tensor([True, True, step < 2])  # the third stands still from then on
        stack.update({"kernel": gradient}, alive)
        for p, g, optimizer, lives in zip(theirs, gradient, optimizers, alive.tolist(), strict=True):
            if lives:
                p.grad = g.clone()
                optimizer.step()
    torch.testing.assert_close(own["kernel"], torch.stack([p.detach() for p in theirs]), rtol=1e-4, atol=1e-5)


def test_adam_without_memory_of_gradients():
    run = run_of()
    settings = options(optimizer_params={"betas": (0.0, 0.999)})
    assert_same_model(stacked([run], options=settings).models()[0], alone(run, options=settings).final_model)


def test_l2_leaves_the_output_of_a_perceptron_alone_even_without_hidden_layers():
    run, params = run_of(l2=0.5), {"hidden": ()}
    assert_same_model(stacked([run], model_params=params).models()[0], alone(run, model_params=params).final_model)


# ------------------------------------------------------------------------------------------------------------- refusals


def refused(text, call):
    """A refusal is one sentence that names what was passed."""
    with pytest.raises(ValueError, match=text) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 300


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"scheduler": lambda optimizer: None}, "a stack has no scheduler"),
        ({"clip_norm": 1.0}, "a stack has no clip_norm"),
        ({"checkpoint_dir": "here"}, "a stack has no checkpoint_dir"),
        ({"optimizer": "rmsprop"}, "'adam', 'adamw', 'sgd', got 'rmsprop'"),
        ({"optimizer": torch.optim.SGD}, "needs an optimizer by name.*SGD"),
        ({"optimizer": lambda params: torch.optim.SGD(params, lr=1)}, "needs an optimizer by name"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1)}, "needs an optimizer by name.*SGD"),
        ({"optimizer_params": {"amsgrad": True}}, "may set betas, eps, got 'amsgrad'"),
        ({"optimizer": "sgd", "optimizer_params": {"betas": (0.9, 0.99)}}, "momentum.*got 'betas'"),
    ],
)
def test_options_that_a_stack_lacks_are_refused(changed, text):
    refused(text, lambda: StackTrainer(X, [run_of()], options=options(**changed)))


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (lambda: [], "at least one run, got none"),
        (lambda: [run_of(), run_of(sizes=(60, 44))], r"got sizes \(60, 44\) and \(61, 44\); use train_runs"),
        (lambda: [run_of(), run_of(held_out=([1], [2]))], r"held_out_sizes \(0, 0\) and \(1, 1\)"),
        (lambda: [Run((torch.arange(0), [1]), (0.8, 0.2), 0.5)], r"need rows, got sizes \(0, 1\)"),
        (lambda: [Run(([1, 500], [2]), (0.8, 0.2), 0.5)], "names row 500 of a table of 500 rows"),
        (lambda: [Run(([1, 2], [-7]), (0.8, 0.2), 0.5)], "names row -7"),
        (lambda: [run_of(held_out=([1, 2], [3, 999]))], "names row 999 of"),
    ],
)
def test_runs_that_cannot_be_stacked_are_refused(runs, text):
    refused(text, lambda: StackTrainer(X, runs()))


def test_negative_rows_are_named_in_the_refusal():
    refused("names row -7", lambda: StackTrainer(X, [Run(([1, -7], [3]), (0.8, 0.2), 0.5)]))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"slope": 0.1}, "must be a number ≤ 0, got 0.1"),
        ({"dropout": 1.0}, "dropout of a run must be below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout of a run must be a number ≥ 0, got -0.1"),
        ({"lr": -1.0}, "lr of a run must be a number ≥ 0, got -1.0"),
        ({"lr": math.nan}, "lr of a run must be a number ≥ 0, got nan"),
        ({"l2": math.inf}, "l2 of a run must be a number ≥ 0, got inf"),
        ({"weight_decay": -1}, "weight_decay of a run must be a number ≥ 0, got -1"),
        ({"lr_decay": -1}, "lr_decay of a run must be a number ≥ 0, got -1"),
        ({"method": "best"}, "got 'best'"),
        ({"method": (torch.square, torch.abs)}, "correction square is not the identity"),
        ({"set_priors": (0.4, 0.4)}, "must differ"),
        ({"target_prior": 1.0}, "strictly between 0 and 1, got 1.0"),
        ({"rows": ([0.5], [1])}, r"rows must be two one-dimensional lists of row numbers, got torch.float64 \(1,\)"),
        ({"rows": ([True], [1])}, "rows must be two .* got torch.bool"),
        ({"rows": ([[0]], [1])}, r"rows must be two .* got torch.int64 \(1, 1\)"),
        ({"held_out": ([0.5], [1])}, "held_out must be two one-dimensional lists"),
    ],
)
def test_runs_that_make_no_sense_are_refused(changed, text):
    given = {"rows": ([0], [1]), "set_priors": (0.8, 0.2), "target_prior": 0.5} | changed
    with pytest.raises(ValueError, match=text) as caught:
        Run(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"model": "resnet32"}, "'resnet32'"),
        ({"model": "perceptron"}, "'linear' or 'mlp'.*'perceptron'"),
        ({"model": nn.Linear}, "holds models 'linear' or 'mlp'|cannot be built"),
        ({"model": lambda n_features: nn.Linear(n_features, 1)}, "a stack holds models 'linear' or 'mlp'"),
        ({"model_params": {"layers": 3}}, "correct model_params"),
        ({"X": X[0]}, r"rows and columns, got shape \(6,\)"),
        ({"X": X.reshape(-1, 2, 3)}, r"rows and columns, got shape \(500, 2, 3\)"),
        ({"test": (X, Y[:10])}, r"one label a row, got 500 rows and 10 labels"),
        ({"test": (X[0], Y[:6])}, r"6 columns like X, got shape \(6,\)"),
        ({"loss": "hinge"}, "got 'hinge'"),
        ({"loss": lambda z: -z}, "must be non-negative"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, text):
    arguments = {"X": X, "runs": [run_of()], "options": options()} | arguments
    refused(text, lambda: StackTrainer(**arguments))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: stacked([run_of()], test=(X[:, :3], Y)), "test must have 6 columns"),
        (lambda: stacked([run_of()], test=(X, Y + 5)), "labels must be 1 and 0"),
        (lambda: stacked([run_of()], test=(X[:0], Y[:0])), "got 0 rows"),
        (lambda: stacked([run_of()]).scores(X[:, :3]), "X must have 6 columns"),
        (lambda: stacked([run_of()], loss="zero_one"), "'zero_one' has no gradient"),
        (
            lambda: stacked([run_of()], options=options(optimizer="sgd", optimizer_params={"nesterov": True})),
            "nesterov=True needs a momentum",
        ),
        (lambda: stacked([run_of()], options=options(optimizer_params={"betas": (1.5, 0.9)})), r"betas must lie in"),
        (lambda: stacked([run_of()], options=options(compile=True)), "a stack has no compile"),
        (lambda: stacked([run_of(dropout=0.5)], "linear"), "no hidden units to drop"),
        (lambda: Run(([0], [1], [2]), (0.8, 0.2), 0.5), "rows of a run must be a pair"),
        (lambda: Run(([0],), (0.8, 0.2), 0.5), "rows of a run must be a pair"),
        (lambda: Run(([0], [1]), (0.8, 0.2), 0.5, seed=-1), "seed of a run must be ≥ 0"),
    ],
)
def test_more_that_does_not_fit_is_refused(call, text):
    refused(text, call)


def test_a_stack_is_trained_once():
    stack = stacked([run_of()])
    before = [len(history) for history in stack.histories]
    weights = [p.clone() for p in stack.models()[0].parameters()]
    assert [len(history) for history in stack.run()] == before
    assert all(torch.equal(a, b) for a, b in zip(weights, stack.models()[0].parameters(), strict=True))


def test_no_rows_have_no_scores():
    assert stacked([run_of()]).scores(X[:0]).shape == (1, 0)


def test_a_run_does_not_change_with_the_callers_arrays():
    index = np.arange(40)
    run = Run((index, np.arange(40, 80)), (0.8, 0.2), 0.5)
    index[0] = 99
    assert run.rows[0][0] == 0


def test_batches_that_grow_far_beyond_the_size_asked_for_give_a_warning():
    with pytest.warns(UnevenSetsWarning, match="collect more rows"):
        stacked([run_of(sizes=(200, 1))])


def test_the_models_are_the_named_ones():
    (model,) = stacked([run_of()], options=options(epochs=1)).models()
    assert isinstance(model, MLP)
