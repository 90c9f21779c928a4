"""Small batched trainings and the same single runs, for the tests of batched training."""

import dataclasses

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR

from uulearn import UURisk, defaults
from uulearn.data import DenseRows, TwoSets
from uulearn.datasets import make_sets
from uulearn.models import build_model
from uulearn.training import RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run

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
    return RunOptions(**(settings | changed))


def train_batched(runs, kind="mlp", table=X, **arguments):
    model, model_params = MODELS[kind]
    arguments = {"options": options(), "model": model, "model_params": model_params} | arguments
    batched = BatchedTrainer(table, runs, **arguments)
    batched.run()
    return batched


def histories(batched):
    return batched._in_given_order(batched.histories)


def alone(run, kind="mlp", table=X, *, loss=defaults.LOSS, test=None, options=options(), model_params=None):  # noqa: B008
    """Train the same run with `Trainer`."""
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
    """Compare all common metrics. Counts may differ in one epoch, because a score may round to zero."""
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
        if ours.is_floating_point():  # the counters of batch normalization are not used
            torch.testing.assert_close(
                ours, theirs[name], rtol=rtol, atol=atol, msg=lambda text, at=name: f"{at}: {text}"
            )


def assert_each_as_alone(runs, kind="mlp", table=X, *, loss=defaults.LOSS, test=TEST, options=options(), **arguments):  # noqa: B008
    batched = train_batched(runs, kind, table, loss=loss, test=test, options=options, **arguments)
    models, scores = batched.models(), batched.scores(table)
    for place, run in enumerate(runs):
        trainer = alone(run, kind, table, loss=loss, test=test, options=options)
        assert_same_records(histories(batched)[place], trainer.history)
        assert_same_model(models[place], trainer.final_model)
        with torch.no_grad():
            expected = trainer.final_model(table.float() * options.input_scale)
        torch.testing.assert_close(scores[place], expected, rtol=1e-3, atol=1e-4)
    return batched


def steep(x):
    return torch.where(x < 0, -2 * x, x)


def mixed_runs(**others):
    """Every method, two pairs of sets, three groups of two runs that use the same batches."""
    return [
        run_of(method="biased", **others),
        run_of((0.3, 0.9), 0.4, "unbiased", draws=1, seed=1, lr=0.005, **others),
        run_of(method="relu", **others),
        run_of((0.3, 0.9), 0.4, "leaky_relu", draws=1, seed=1, slope=-0.5, **others),
        run_of(method=("relu", steep), seed=2, lr=0.03, **others),
        run_of(pi=0.3, method="abs", seed=2, **others),
    ]
