"""Consistency training: its objective, its ramp, resumed runs, and a problem where it helps."""

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

from helpers.batched_runs import (
    assert_each_as_alone,
    assert_same_records,
    histories,
    mixed_runs,
    options,
    train_batched,
)
from uulearn import UURisk, pn_risk, pseudo_labels, uu_risk
from uulearn.data import DenseRows, TwoSets
from uulearn.exceptions import CheckpointError
from uulearn.models import MLP
from uulearn.training import ConsistencyOptions, History, RunOptions, Trainer, score_rows
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.batched.consistency import BatchedViews
from uulearn.training.batched.out_of_fold import can_be_batched
from uulearn.training.cuda_graphs import GraphedFunction

PRIORS, PI = (0.7, 0.4), 0.3


def two_sets(sizes=(60, 40), columns=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TwoSets(tuple(DenseRows(torch.randn(size, columns, generator=generator) + 0.5 * (0.5 - k))
                         for k, size in enumerate(sizes)))  # fmt: skip


def double(x):
    return 2 * x


def make_trainer(consistency=None, *, dropout=0.0, data=None, model_seed=0, validation=None, **options):
    torch.manual_seed(model_seed)
    arguments = {"epochs": 8, "batch_size": 50, "lr": 0.02, "progress": False, "ema": 0.9} | options
    model = MLP(3, (16, 8), dropout=dropout)
    own = RunOptions(consistency=consistency, **arguments)
    return Trainer(model, data or two_sets(), UURisk(PRIORS, PI), own, validation=validation)


def records(history):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in history]


def state(trainer):
    return torch.cat([value.flatten().double() for value in trainer.final_model.state_dict().values()])


# ------------------------------------------------------------------------------------------------------- the objective


@pytest.mark.parametrize("method", ["abs", "unbiased", "biased"])
def test_step_equals_a_plain_loop(method):
    """One step of gradient descent, written without the trainer; the teacher differs from the model."""
    options = ConsistencyOptions(fraction=0.6, weight=0.7, ramp=(0, 0), strong=double)
    run = make_trainer(options, optimizer="sgd", lr=0.1, l2=0.01, clip_norm=0.5)
    run.risk = UURisk(PRIORS, PI, method=method)
    with torch.no_grad():
        for value in run.average.module.parameters():
            value.add_(0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
    model, teacher = copy.deepcopy(run.model), copy.deepcopy(run.average.module)
    generator = torch.Generator().manual_seed(2)
    x, sets = torch.randn(50, 3, generator=generator), (torch.arange(50) >= 30).long()

    assert run.consistency.start_epoch(1)
    found = run.step(x, (30, 20), (30, 20), run.consistency.strong(x, (30, 20)))

    scores = model.train()(x)
    statistics = copy.deepcopy(dict(model.named_buffers()))
    with torch.no_grad():
        labels = pseudo_labels(teacher.eval()(x), sets, PRIORS, 0.6)
    labeled = labels >= 0
    loss = pn_risk(model(double(x))[labeled], labels[labeled], PI, loss="logistic").total
    risk = uu_risk(scores, sets, PRIORS, PI, method=method)
    objective = risk.objective + 0.7 * loss
    penalty = 0.01 * sum(layer.weight.square().sum() for layer in model.hidden if isinstance(layer, nn.Linear))
    (objective + penalty).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    with torch.no_grad():
        for value in model.parameters():
            value -= 0.1 * value.grad
    for (name, ours), theirs in zip(run.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda said, name=name: f"{name}: {said}")
    for name, ours in run.model.named_buffers():
        torch.testing.assert_close(ours, statistics[name])  # of the weak view alone
    agreement = ((scores > 0)[labeled] == (labels[labeled] == 1)).double().mean()
    expected = [risk.positive, risk.negative, risk.corrected, objective]
    torch.testing.assert_close(found[:4], torch.stack(expected))
    torch.testing.assert_close(found[5:], torch.tensor([loss.item(), agreement.item()]))


def test_strong_view_and_teacher_are_not_used_before_the_ramp():
    calls = []

    def counted(x):
        calls.append(len(x))
        return x

    options = ConsistencyOptions(ramp=(0.5, 0.75), strong=counted)
    run = make_trainer(options, dropout=0.2)
    calls.clear()  # of the test on a few rows
    seen = []
    run.callback = lambda record, _: seen.append((record["epoch"], len(calls))) or False
    run.run()
    assert [n for epoch, n in seen if epoch <= 5] == [0] * 5
    assert calls == [50] * 6  # two batches in each of the epochs 6, 7 and 8
    plain = make_trainer(dropout=0.2).run()
    assert records(run.history)[:5] == records(plain)[:5]
    assert run.history.column("consistency_weight") == [None] * 5 + [0.5, 1.0, 1.0]
    assert records(run.history)[5] != records(plain)[5]
    with pytest.raises(KeyError, match="'consistency_loss' was not recorded"):
        plain.column("consistency_loss")


def test_batch_that_a_view_changes_in_place_is_unchanged_for_the_other_view():
    found = []
    for strong, augment in [(lambda x: x.mul_(2), lambda x: x.add_(1)), (lambda x: x * 2, lambda x: x + 1)]:
        options = ConsistencyOptions(ramp=(0, 0), strong=strong)
        run = make_trainer(options, augment=augment, image_shape=(3, 1, 1))
        found.append(records(run.run()))
    assert found[0] == found[1]


def test_replay_on_static_tensors_equals_plain_steps():
    """The code that a CUDA device captures as a graph, on the CPU."""
    runs = [make_trainer(ConsistencyOptions(ramp=(0.2, 0.6))) for _ in range(2)]
    runs[0]._graphed = GraphedFunction(runs[0]._update_static, runs[0].device, runs[0]._snapshot)
    assert records(runs[0].run()) == records(runs[1].run())
    assert torch.equal(state(runs[0]), state(runs[1]))


@pytest.mark.parametrize(
    ("ramp", "weights", "end"),
    [
        ((0, 0), [1, 1, 1, 1], 1),
        ((0, 0.5), [0, 0.5, 1, 1], 3),
        ((0.5, 0.5), [0, 0, 1, 1], 3),
        ((0.5, 1), [0, 0, 0, 0.5], 4),
    ],
)
def test_ramp(ramp, weights, end):
    options = ConsistencyOptions(ramp=ramp)
    assert [options.weight_at(epoch, 4) for epoch in range(1, 5)] == weights
    assert options.ramp_end(4) == end


# --------------------------------------------------------------------------- early stopping, checkpoints, batched runs


def test_training_does_not_stop_early_before_the_end_of_the_ramp():
    """With a learning rate of almost zero no epoch is better than the first."""
    still = {"lr": 1e-12, "epochs": 20, "early_stopping": True, "patience": 2, "ema": 0.5, "smoothing": 1}
    ends = []
    for consistency in (None, ConsistencyOptions(ramp=(0.3, 0.5))):
        history = make_trainer(consistency, validation=two_sets(seed=1), **still).run()
        ends.append((len(history), history.best_epoch))
    assert ends[0][0] < 10
    assert ends[1][0] == 13  # patience counts from epoch 11, the first with the full weight
    assert ends[1][1] == ends[0][1]  # epochs before the ramp can be the best


@pytest.mark.parametrize(
    ("interrupted_at", "strong", "views"),
    [(2, "swap", {}), (5, "affine:0.2+cutout", {"augment": "affine:0.1", "image_shape": (1, 1, 3)})],
)
def test_resumed_run_equals_uninterrupted_run(interrupted_at, strong, views, tmp_path):
    arguments = {"dropout": 0.2, "validation": two_sets(seed=1), "early_stopping": True, "patience": None, **views}
    make = functools.partial(make_trainer, ConsistencyOptions(ramp=(0.25, 0.75), strong=strong), **arguments)
    whole = make()
    whole.run()

    def interrupt(record, _):
        if record["epoch"] == interrupted_at:
            raise KeyboardInterrupt

    first = make(checkpoint_dir=tmp_path, checkpoint_every=1)
    first.callback = interrupt
    with pytest.raises(KeyboardInterrupt):
        first.run()
    resumed = make(checkpoint_dir=tmp_path, checkpoint_every=1)
    resumed.run()
    assert resumed.history.resumed_at == [interrupted_at - 1]
    assert records(resumed.history) == records(whole.history)
    assert torch.equal(state(resumed), state(whole))
    with pytest.raises(CheckpointError, match=r"another run \(different: epochs\)"):  # the ramp depends on it
        make(checkpoint_dir=tmp_path, epochs=9).run()
    with pytest.raises(CheckpointError, match=r"another run \(different: consistency, epochs\)"):
        make_trainer(checkpoint_dir=tmp_path, **arguments).run()


def test_needs_a_moving_average():
    with pytest.raises(ValueError, match=r"needs the moving average of the weights as teacher, but ema is None; set"):
        make_trainer(ConsistencyOptions(), ema=None)


@pytest.mark.parametrize(
    ("strong", "views"), [("swap", {}), ("affine:1e-8", {"augment": "affine:1e-8", "image_shape": (1, 2, 3)})]
)
def test_batched_runs_equal_single_runs_if_the_strong_view_changes_nothing(strong, views):
    """Random views differ, because all runs share one generator; at this probability or strength, nothing changes."""
    consistency = ConsistencyOptions(fraction=0.6, weight=0.8, ramp=(0.3, 0.7), strong=strong, swap=1e-9)
    own = options(epochs=4, ema=0.9, l2=0.01, consistency=consistency, **views)
    batched = assert_each_as_alone(mixed_runs(), options=own)
    last = histories(batched)[0][-1]
    assert last["consistency_weight"] == pytest.approx(0.8)
    assert last["consistency_loss"] > 0.1
    plain = train_batched(mixed_runs(), options=options(epochs=4, ema=0.9, l2=0.01))
    assert "consistency_loss" not in histories(batched)[0][1]
    early, expected = (History(histories(own)[0][:2]) for own in (batched, plain))
    assert_same_records(early, expected)


@pytest.mark.parametrize(("strong", "augment"), [("auto", "shift"), ("shift+cutout+noise", None), ("swap", "flip")])
def test_batched_views_mix_neither_rows_nor_runs(strong, augment):
    """Every image is constant, so the maximum of a view tells the original image; zeros come from the border."""
    groups, n, counts = 3, 10, (6, 4)
    x = (1 + torch.arange(groups * n)).float().reshape(groups, n, 1).expand(groups, n, 12)
    noise = {"consistency": ConsistencyOptions(ramp=(0, 0), strong=strong, noise=1e-6)}
    run = Run(([0], [1]), PRIORS, PI)
    views = BatchedViews([run], options(ema=0.9, augment=augment, image_shape=(1, 3, 4), **noise), x[0, :2])
    own_set = [0] * counts[0] + [1] * counts[1]
    for group, (rows, strong_rows) in enumerate(zip(views.weak(x), views.strong(x, counts), strict=True)):
        for row in range(n):
            kept = rows[row][rows[row] != 0]
            assert (kept == x[group, row, 0]).all()
            for value in strong_rows[row][strong_rows[row].abs() > 0.5].round().int().tolist():
                place = value - 1 - group * n
                assert own_set[place] == own_set[row] if strong == "swap" else place == row


def test_batched_runs_with_augmentation_learn():
    images = torch.randn(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    sets = torch.arange(400) // 200
    images[:, :, :, 0] += 1.5 * (1 - 2 * sets[:, None, None])
    runs = [Run((torch.arange(200), torch.arange(200, 400)), (0.9, 0.1), 0.5, seed=seed) for seed in range(2)]
    found = {}
    for augment in (None, "flip"):
        settings = options(epochs=30, batch_size=200, augment=augment, image_shape=(1, 4, 4), ema=0.9)
        trainer = BatchedTrainer(images.flatten(1), runs, model="linear", options=settings)
        trainer.run()
        weights = torch.stack([model.output.weight.view(4, 4) for model in trainer.models()]).detach()
        found[augment] = weights[:, :, 0].mean() - weights[:, :, 3].mean()
    assert found[None] > 0.2
    assert abs(found["flip"]) < 0.5 * found[None]  # flips make both sides informative


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"consistency": ConsistencyOptions(strong=double)}, "consistency with a function as strong view; train these"),
        ({"augment": "flip"}, "does not support augment; train these runs one by one with Trainer"),
        ({"augment": double, "image_shape": (3, 1, 1)}, "does not support augment; train these"),
    ],
)
def test_batched_training_rejects_functions(changes, said):
    own = RunOptions(**changes)
    assert not can_be_batched("mlp", two_sets(), own)
    with pytest.raises(ValueError, match=said):
        BatchedTrainer(torch.zeros(4, 3), [Run(([0, 1], [2, 3]), PRIORS, PI)], options=own)
    assert can_be_batched(
        "mlp", two_sets(), RunOptions(consistency=ConsistencyOptions(), augment="flip", image_shape=(3, 1, 1))
    )
    with pytest.raises(ValueError, match="but ema is None"):
        BatchedTrainer(
            torch.zeros(4, 3),
            [Run(([0, 1], [2, 3]), PRIORS, PI)],
            options=RunOptions(consistency=ConsistencyOptions(), ema=None),
        )


# ------------------------------------------------------------------------------------------------------ where it helps


def clusters(seed, n=800, columns=20):
    """Two sets with priors 0.6 and 0.4 and labeled test rows; each class has four clusters."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(8, columns))

    def rows(labels):
        place = 2 * rng.integers(4, size=len(labels)) + labels
        return DenseRows(torch.from_numpy(centers[place] + rng.normal(size=(len(labels), columns))).float())

    first, second = ((np.arange(n) < prior * n).astype(int) for prior in (0.6, 0.4))
    test = np.arange(2000) % 2
    return TwoSets((rows(first), rows(second))), (rows(test), torch.from_numpy(test))


def test_improves_the_accuracy_if_the_classes_are_clusters():
    accuracies = {}
    for consistency in (None, ConsistencyOptions()):
        for seed in range(3):
            data, test = clusters(seed)
            torch.manual_seed(seed)
            shared = {"epochs": 60, "batch_size": 400, "lr": 3e-3, "seed": seed, "progress": False}
            trainer = Trainer(
                MLP(20, (64, 64)), data, UURisk((0.6, 0.4), 0.5), RunOptions(consistency=consistency, **shared)
            )
            trainer.run()
            predicted = score_rows(trainer.final_model, test[0]) > 0
            accuracies.setdefault(consistency is None, []).append((predicted == (test[1] == 1)).double().mean())
    assert np.mean(accuracies[False]) > np.mean(accuracies[True]) + 0.06
