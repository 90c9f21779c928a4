"""Batched training of many runs: every run ends like a single run."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from helpers.batched_runs import (
    BATCH,
    MODELS,
    SIZES,
    TEST,
    X,
    Y,
    alone,
    assert_each_as_alone,
    assert_same_model,
    assert_same_records,
    histories,
    mixed_runs,
    options,
    rows,
    run_of,
    train_batched,
)
from uulearn import defaults, pn_risk
from uulearn.data import BatchPlan
from uulearn.exceptions import NonFiniteRiskError
from uulearn.models import build_model
from uulearn.training.batched import BatchedTrainer, Run, train_runs
from uulearn.training.batched import trainer as trainer_module
from uulearn.training.batched.network import BatchedNetwork
from uulearn.training.batched.runs import Groups

# ----------------------------------------------------------------------------------------- each run equals a single run

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
def test_batched_run_equals_single_run(kind, optimizer):
    plan = BatchPlan(SIZES, BATCH)
    assert len({plan.counts(batch) for batch in range(plan.n_batches)}) > 1
    batched = assert_each_as_alone(mixed_runs(), kind, options=options(**OPTIMIZERS[optimizer]))
    assert (batched.groups.count, batched.groups.width) == (3, 2)
    assert [run.seed for run in batched.runs] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("loss", ["sigmoid", "ramp", "double_hinge", "squared", lambda z: F.softplus(-2 * z)])
def test_batched_run_equals_single_run_for_any_loss(loss):
    assert_each_as_alone(mixed_runs()[2:], loss=loss)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_each_run_uses_its_own_rates(kind, optimizer):
    runs = [
        run_of(lr=0.05, l2=0.02, weight_decay=0.1, lr_decay=0.1),
        run_of(l2=0.0, weight_decay=0.0, lr=0.0),
        run_of(seed=1, lr_decay=0.02, weight_decay=0.5),
        run_of(seed=1),
    ]
    assert_each_as_alone(runs, kind, options=options(optimizer=optimizer, l2=0.01, weight_decay=0.02, ema=0.9))


def test_learning_rate_of_zero_does_not_change_weights():
    batched = train_batched([run_of(lr=0.0), run_of()], "linear")
    torch.manual_seed(0)
    assert_same_model(batched.models()[0], build_model("linear", (6,)), rtol=0, atol=0)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_held_out_rows_are_recorded(ema):
    def parts(seed, priors=(0.8, 0.2)):
        first, second = (torch.as_tensor(index) for index in rows(priors, seed))
        return {"rows": (first[:45], second[:30]), "held_out": (first[45:], second[30:])}

    runs = [
        Run(**parts(0), set_priors=(0.8, 0.2), target_prior=0.5, method=method, seed=seed)
        for seed, method in ((0, "relu"), (0, "unbiased"), (3, "biased"))
    ]
    runs.append(Run(**parts(1), set_priors=(0.7, 0.1), target_prior=0.2, slope=-2.0))
    batched = assert_each_as_alone(runs, options=options(ema=ema), loss="sigmoid")
    recorded = {name for name in histories(batched)[0][0] if name.startswith("validation_")}
    assert recorded == {f"validation_{name}" for name in ("positive", "negative", "unbiased", "corrected", "zero_one")}


def test_runs_with_different_held_out_rows_are_in_different_groups():
    runs = [run_of(held_out=(index, index)) for index in (range(5), range(5, 10), range(5))]
    assert Groups.of(runs).width == 1
    assert_each_as_alone(runs)


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float64, torch.int64])
def test_accepts_tables_of_any_type(dtype, scale):
    table = (X * 20 + 100).clamp(0, 255).round() if scale != 1 else (X * 2 + 5).clamp(min=0).round()
    runs = [run_of(method="relu"), run_of(method="abs", seed=1)]
    table = table.to(dtype)
    assert_each_as_alone(runs, table=table, test=(table[400:], Y[400:]), options=options(input_scale=scale))


def test_accepts_numpy_arrays():
    runs = [Run(tuple(index.tolist() for index in map(torch.as_tensor, rows())), (0.8, 0.2), 0.5)]
    from_array = train_batched(runs, table=X.numpy(), test=(TEST[0].numpy(), TEST[1].numpy()))
    from_tensor = train_batched([run_of()], test=TEST)
    assert torch.equal(from_array.scores(X.numpy()), from_tensor.scores(X))
    assert without_time(histories(from_array)) == without_time(histories(from_tensor))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("seeds", "shape"),
    [([0], (1, 1)), ([0, 0, 0], (1, 3)), ([0, 1, 2], (3, 1)), ([0, 1, 0, 0], (4, 1)), ([0, 1, 0, 1, 0, 0], (3, 2))],
)
def test_groups_can_have_any_width(kind, seeds, shape):
    runs = [run_of(seed=seed, slope=-0.3 * place) for place, seed in enumerate(seeds)]
    batched = assert_each_as_alone(runs, kind, options=options(epochs=2))
    assert (batched.groups.count, batched.groups.width) == shape


@pytest.mark.parametrize("hidden", [(), (1,), (9, 3, 4)])
def test_supports_any_number_of_hidden_layers(hidden):
    params = {"hidden": hidden, "momentum": 0.3, "eps": 1e-2}
    batched = train_batched([run_of(seed=seed) for seed in (0, 1)], model_params=params)
    for place, model in enumerate(batched.models()):
        assert_same_model(model, alone(run_of(seed=place), model_params=params).final_model)


@pytest.mark.parametrize("sizes", [(1, 1), (40, 3), (20, 20)])
def test_supports_sets_of_any_size(sizes):
    runs = [run_of(sizes=sizes, seed=seed, method="relu") for seed in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # batches grow because the sets are uneven
        assert_each_as_alone(runs, options=options(batch_size=100))
        assert_each_as_alone(runs, options=options(batch_size=7, epochs=2))


def test_half_precision_is_close_to_float32():
    runs = mixed_runs()
    half, full = (train_batched(runs, options=options(precision=precision)) for precision in ("bfloat16", "float32"))
    assert half.dtype == torch.bfloat16
    for one, other in zip(histories(half), histories(full), strict=True):
        np.testing.assert_allclose(one.column("unbiased"), other.column("unbiased"), atol=0.03)
    assert train_batched(runs, "linear", options=options(precision="bfloat16", epochs=1)).dtype == torch.float32


def test_padded_widths_train_the_same_models(monkeypatch):
    """On CUDA, widths are padded with units that must stay zero."""
    runs = mixed_runs()
    plain = {kind: train_batched(runs, kind, options=options(l2=0.01, weight_decay=0.01)) for kind in MODELS}
    monkeypatch.setattr(trainer_module, "BatchedNetwork", lambda *arguments: BatchedNetwork(*arguments[:-1], 8))
    for kind, expected in plain.items():
        padded = train_batched(runs, kind, options=options(l2=0.01, weight_decay=0.01))
        assert padded.network.params["0.kernel"].shape[1] == 8
        for one, other in zip(padded.models(), expected.models(), strict=True):
            assert_same_model(one, other)
        torch.testing.assert_close(padded.scores(X), expected.scores(X), rtol=1e-3, atol=1e-4)


# -------------------------------------------------------------------------------------- properties of all runs together


POOL = [
    *mixed_runs(),
    run_of(method="relu", lr=0.05),
    run_of((0.9, 0.6), 0.7, draws=3, seed=2, l2=0.01),
]


def results(runs, kind="mlp"):
    batched = train_batched(runs, kind, options=options(epochs=2, ema=0.9), test=TEST)
    return histories(batched), batched.models(), batched.scores(X)


@pytest.fixture(scope="module")
def of_the_pool():
    return results(POOL)


@settings(max_examples=15)
@given(chosen=st.lists(st.integers(0, len(POOL) - 1), min_size=1, unique=True))
def test_runs_do_not_depend_on_other_runs_or_their_order(of_the_pool, chosen):
    found, expected = results([POOL[place] for place in chosen]), of_the_pool
    for position, place in enumerate(chosen):
        assert_same_records(found[0][position], expected[0][place])
        assert_same_model(found[1][position], expected[1][place])
        torch.testing.assert_close(found[2][position], expected[2][place], rtol=1e-3, atol=1e-4)


def test_identical_runs_end_identically():
    found, models, scores = results([POOL[3], POOL[0], POOL[3]])
    assert_same_records(found[0], found[2])
    assert_same_model(models[0], models[2])
    torch.testing.assert_close(scores[0], scores[2])


@given(labels=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=12))
def test_groups_share_batches_and_have_the_largest_possible_width(labels):
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
def test_is_reproducible_and_preserves_global_random_state(dropout):
    runs = mixed_runs(dropout=dropout)
    before = torch.get_rng_state()
    first = train_batched(runs, test=TEST)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    second = train_batched(runs, test=TEST)
    assert torch.equal(first.scores(X), second.scores(X))
    assert without_time(histories(first)) == without_time(histories(second))


# ------------------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("ema", [None, 0.9])
def test_scores_equal_scores_of_extracted_models(kind, ema, monkeypatch):
    monkeypatch.setattr("uulearn.training.batched.trainer.EVALUATION_BYTES", 4 * 6 * 64)  # chunks of a few rows
    batched = train_batched(mixed_runs(), kind, options=options(ema=ema, input_scale=0.5))
    assert len(batched._chunks(X, 0)) > 3
    scores, models = batched.scores(X), batched.models()
    assert scores.shape == (6, len(X))
    for model, own in zip(models, scores, strict=True):
        assert not model.training
        assert next(model.parameters()).device.type == "cpu"
        with torch.no_grad():
            torch.testing.assert_close(own, model(X * 0.5), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        next(models[0].parameters()).zero_()  # changing the returned models does not change the trainer
    torch.testing.assert_close(batched.scores(X), scores)


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "sigmoid"])
def test_records_test_accuracy_and_supervised_risk(loss, signs):
    runs = mixed_runs()
    labels = 2 * TEST[1] - 1 if signs else TEST[1]
    batched = train_batched(runs, loss=loss, test=(TEST[0], labels))
    for run, history, scores in zip(runs, histories(batched), batched.scores(TEST[0]), strict=True):
        assert history.labels_used
        assert history[-1]["test_accuracy"] == pytest.approx(((scores > 0) == (TEST[1] == 1)).double().mean().item())
        expected = pn_risk(scores, labels, run.target_prior, loss=loss).total.item()
        assert history[-1]["test_risk"] == pytest.approx(expected, rel=1e-5)


def test_supervised_risk_of_one_class_is_finite():
    batched = train_batched([run_of(pi=0.3)], test=(X[Y == 1], Y[Y == 1]))
    expected = pn_risk(batched.scores(X[Y == 1])[0], Y[Y == 1], 0.3, loss=defaults.LOSS).total.item()
    assert histories(batched)[0][-1]["test_risk"] == pytest.approx(expected, rel=1e-5)


def test_callback_gets_all_records_and_can_stop():
    seen = []

    def stop_at_two(epoch, records):
        seen.append((epoch, records))
        return epoch == 2

    runs = [POOL[place] for place in (1, 0, 3, 5)]
    batched = train_batched(runs, options=options(epochs=9), callback=stop_at_two)
    assert [epoch for epoch, _ in seen] == [1, 2]
    for place, history in enumerate(histories(batched)):
        assert history.stop_reason == "the callback asked to stop"
        assert history.epochs == [records[place] for _, records in seen]
        assert not history.labels_used
    assert [history.stop_reason for history in histories(train_batched(runs, callback=lambda *_: None))] == [
        "all 3 epochs done"
    ] * 4


def test_history_is_consistent_plain_data():
    for history in histories(train_batched(mixed_runs(), test=TEST)):
        assert [record["epoch"] for record in history] == [1, 2, 3]
        for record in history:
            assert all(type(value) in (int, float) for value in record.values())
            assert record["unbiased"] == record["positive"] + record["negative"]
            assert record["seconds"] > 0


# --------------------------------------------------------------------------------------------------------- train_runs


@pytest.mark.parametrize("max_runs", [None, 1, 2])
def test_train_runs_groups_runs_by_size(max_runs, monkeypatch):
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
        "uulearn.training.batched.trainer.BatchedTrainer",
        lambda X, runs, **arguments: built.append(len(runs)) or BatchedTrainer(X, runs, **arguments),
    )
    found = train_runs(X, runs, max_runs=max_runs, model_params={"hidden": (8, 5)}, options=options(), test=TEST)
    assert sorted(built) == {None: [1, 2, 3], 1: [1] * 6, 2: [1, 1, 2, 2]}[max_runs]
    for run, history in zip(runs, found, strict=True):
        assert_same_records(history, alone(run, test=TEST).history)


# ------------------------------------------------------------------------------------------------------------- dropout


def test_dropout_of_one_run_does_not_affect_others():
    runs = [run_of(dropout=0.0), run_of(dropout=0.6), run_of(seed=1)]
    batched = train_batched(runs)
    for place in (0, 2):
        trainer = alone(runs[place])
        assert_same_records(histories(batched)[place], trainer.history)
        assert_same_model(batched.models()[place], trainer.final_model)
    dropped = alone(runs[1])
    assert histories(batched)[1][0]["objective"] != pytest.approx(dropped.history[0]["objective"], rel=1e-3)


@pytest.mark.parametrize("width", [1, 2])
def test_dropout_preserves_expectation_and_drops_requested_fraction(width):
    """Many scores of one row: the mean is the score without dropout, the variance is Σ(w·h)²·p/(1 − p)."""
    rates = [0.2, 0.7]
    runs = [run_of(seed=0 if width == 2 else place, dropout=rate) for place, rate in enumerate(rates)]
    batched = BatchedTrainer(X, runs, model_params=MODELS["plain mlp"][1], options=options())
    network = batched.network
    assert batched.groups.width == width
    with torch.no_grad():
        exact = network.evaluation_scores(network.params, network.buffers, X[:1])[:, 0]
        many = X[:1].expand(batched.groups.count, 20_000, -1)
        drawn, _ = network.training_scores(network.params, many)
        for place, (model, rate) in enumerate(zip(batched.models(), rates, strict=True)):
            variance = (model.hidden(X[:1]) * model.output.weight).square().sum() * rate / (1 - rate)
            variance = variance.item()
            assert drawn[place].mean().item() == pytest.approx(
                exact[place].item(), abs=5 * math.sqrt(variance / 20_000)
            )
            assert drawn[place].var().item() == pytest.approx(variance, rel=0.06)


def test_run_dropout_overrides_model_dropout():
    runs = [run_of(), run_of(dropout=0.0), run_of(dropout=0.5)]
    params = {"hidden": (8,), "dropout": 0.25}
    batched = BatchedTrainer(X, runs, model_params=params, options=options(epochs=1))
    assert batched.network.keep_rates.flatten().tolist() == [0.75, 1.0, 0.5]
    batched.run()
    scores = batched.scores(X)
    for model, own in zip(batched.models(), scores, strict=True):
        with torch.no_grad():
            torch.testing.assert_close(own, model(X), rtol=1e-4, atol=1e-5)
    assert BatchedTrainer(X, runs[:1], model_params={"hidden": (8,)}).network.keep_rates is None


# --------------------------------------------------------------------------------------------- runs that are not finite


@pytest.mark.parametrize("kind", ["linear", "plain mlp"])
@pytest.mark.parametrize("same_group", [True, False])
def test_non_finite_run_does_not_affect_others(kind, same_group):
    wild = run_of(method="unbiased", seed=0 if same_group else 1, lr=1e10)
    runs = [run_of(method="relu"), wild, run_of(method="abs")]
    settings = options(optimizer="sgd", epochs=3, ema=0.9)
    batched = train_batched(runs, kind, loss="squared", options=settings, test=TEST)
    found = histories(batched)
    assert found[1].stop_reason == "the risk was not finite in epoch 1"
    assert len(found[1]) == 0
    with pytest.raises(NonFiniteRiskError, match="in epoch 1"):
        alone(wild, kind, loss="squared", options=settings)
    for place in (0, 2):
        trainer = alone(runs[place], kind, loss="squared", options=settings, test=TEST)
        assert_same_records(found[place], trainer.history)
        assert_same_model(batched.models()[place], trainer.final_model)
        assert batched.scores(X)[place].isfinite().all()


def overflowing(z):
    """Finite while |z| < 8, then infinite."""
    return torch.where(z < -8, torch.inf, F.softplus(-z))


@pytest.mark.parametrize("same_group", [True, False])
def test_non_finite_run_keeps_earlier_records_and_weights(same_group):
    wild = run_of(method="unbiased", seed=0 if same_group else 1, lr=0.6)
    runs = [wild, run_of(lr=0.001)]
    batched = train_batched(runs, "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    broken, sound = histories(batched)
    assert 1 < len(broken) < 20
    assert broken.stop_reason == f"the risk was not finite in epoch {len(broken) + 1}"
    assert all(math.isfinite(record["objective"]) for record in broken)
    assert sound.stop_reason == "all 20 epochs done"
    with pytest.raises(NonFiniteRiskError, match=f"in epoch {len(broken) + 1}"):
        alone(wild, "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    # with one batch per epoch, the weights before the failing step are those of the last recorded epoch
    until_then = alone(wild, "linear", loss=overflowing, options=options(epochs=len(broken), batch_size=200))
    assert_same_model(batched.models()[0], until_then.final_model)
    expected = alone(runs[1], "linear", loss=overflowing, options=options(epochs=20, batch_size=200))
    assert_same_records(sound, expected.history)
    assert_same_model(batched.models()[1], expected.final_model)


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("batch_size", [BATCH, 1000])
def test_overflowing_weights_are_detected_and_discarded(ema, batch_size):
    runs = [run_of(method="unbiased", lr=1e300), run_of(method="relu")]
    settings = options(optimizer="sgd", epochs=1, batch_size=batch_size, ema=ema)
    batched = train_batched(runs, "linear", loss="squared", options=settings)
    assert histories(batched)[0].stop_reason == "the risk was not finite in epoch 1"
    assert len(histories(batched)[0]) == 0
    assert all(p.isfinite().all() for model in batched.models() for p in model.parameters())
    assert batched.scores(X).isfinite().all()
