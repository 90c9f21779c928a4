"""Errors of batched training, each in one sentence."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from helpers.batched_runs import X, Y, options, run_of, train_batched
from uulearn.exceptions import UnevenSetsWarning
from uulearn.models import MLP
from uulearn.training.batched import BatchedTrainer, Run

# --------------------------------------------------------------------------------------------------------------- errors


def refused(text, call):
    """An error is one sentence with the offending value."""
    with pytest.raises(ValueError, match=text) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 300


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"scheduler": lambda optimizer: None}, "batched training does not support scheduler"),
        ({"clip_norm": 1.0}, "batched training does not support clip_norm"),
        ({"checkpoint_dir": "here"}, "batched training does not support checkpoint_dir"),
        ({"optimizer": "rmsprop"}, "'adam', 'adamw', 'sgd', got 'rmsprop'"),
        ({"optimizer": torch.optim.SGD}, "requires optimizer=.*SGD"),
        ({"optimizer": lambda params: torch.optim.SGD(params, lr=1)}, "requires optimizer="),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], lr=1)}, "requires optimizer=.*SGD"),
        ({"optimizer_params": {"amsgrad": True}}, "may contain only betas, eps, got 'amsgrad'"),
        ({"optimizer": "sgd", "optimizer_params": {"betas": (0.9, 0.99)}}, "momentum.*got 'betas'"),
    ],
)
def test_rejects_unsupported_options(changed, text):
    refused(text, lambda: BatchedTrainer(X, [run_of()], options=options(**changed)))


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (lambda: [], "at least one run, got an empty list"),
        (lambda: [run_of(), run_of(sizes=(60, 44))], r"got sizes \(60, 44\) and \(61, 44\); use train_runs"),
        (lambda: [run_of(), run_of(held_out=([1], [2]))], r"held_out_sizes \(0, 0\) and \(1, 1\)"),
        (lambda: [Run((torch.arange(0), [1]), (0.8, 0.2), 0.5)], r"must contain rows, got sizes \(0, 1\)"),
        (lambda: [Run(([1, 500], [2]), (0.8, 0.2), 0.5)], "uses row 500, but the table has 500 rows"),
        (lambda: [Run(([1, 2], [-7]), (0.8, 0.2), 0.5)], "uses row -7"),
        (lambda: [run_of(held_out=([1, 2], [3, 999]))], "uses row 999, but"),
    ],
)
def test_rejects_runs_that_cannot_be_trained_together(runs, text):
    refused(text, lambda: BatchedTrainer(X, runs()))


def test_error_names_negative_row():
    refused("uses row -7", lambda: BatchedTrainer(X, [Run(([1, -7], [3]), (0.8, 0.2), 0.5)]))


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
        (
            {"rows": ([0.5], [1])},
            r"rows must be two 1-D lists of row numbers, got torch.float64 of shape \(1,\)",
        ),
        ({"rows": ([True], [1])}, "rows must be two .* got torch.bool"),
        ({"rows": ([[0]], [1])}, r"rows must be two .* got torch.int64 of shape \(1, 1\)"),
        ({"held_out": ([0.5], [1])}, "held_out must be two 1-D lists"),
    ],
)
def test_rejects_invalid_runs(changed, text):
    given = {"rows": ([0], [1]), "set_priors": (0.8, 0.2), "target_prior": 0.5} | changed
    with pytest.raises(ValueError, match=text) as caught:
        Run(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"model": "resnet32"}, "'resnet32'"),
        ({"model": "MLP"}, "'linear' and 'mlp'.*'MLP'"),
        ({"model": nn.Linear}, "supports only 'linear' and 'mlp' models|cannot be built"),
        (
            {"model": lambda n_features: nn.Linear(n_features, 1)},
            "batched training supports only 'linear' and 'mlp' models",
        ),
        ({"model_params": {"layers": 3}}, "correct model_params"),
        ({"X": X[0]}, r"\(rows, columns\), got shape \(6,\)"),
        ({"X": X.reshape(-1, 2, 3)}, r"\(rows, columns\), got shape \(500, 2, 3\)"),
        ({"test": (X, Y[:10])}, r"one label per row, got 500 rows and 10 labels"),
        ({"test": (X[0], Y[:6])}, r"the same 6 columns as X, got shape \(6,\)"),
        ({"loss": "hinge"}, "got 'hinge'"),
        ({"loss": lambda z: -z}, "must be non-negative"),
    ],
)
def test_rejects_invalid_arguments(arguments, text):
    arguments = {"X": X, "runs": [run_of()], "options": options()} | arguments
    refused(text, lambda: BatchedTrainer(**arguments))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: train_batched([run_of()], test=(X[:, :3], Y)), "test must have the same 6 columns"),
        (lambda: train_batched([run_of()], test=(X, Y + 5)), "labels must be 1 and 0"),
        (lambda: train_batched([run_of()], test=(X[:0], Y[:0])), "got 0 rows"),
        (lambda: train_batched([run_of()]).scores(X[:, :3]), "X must have the same 6 columns"),
        (lambda: train_batched([run_of()], loss="zero_one"), "'zero_one' has no gradient"),
        (
            lambda: train_batched([run_of()], options=options(optimizer="sgd", optimizer_params={"nesterov": True})),
            "optimizer_params=.* cannot be used with 'sgd': Nesterov momentum requires a momentum",
        ),
        (
            lambda: train_batched([run_of()], options=options(optimizer_params={"betas": (1.5, 0.9)})),
            "optimizer_params=.* cannot be used with 'adam': Invalid beta",
        ),
        (lambda: train_batched([run_of()], options=options(compile=True)), "batched training does not support compile"),
        (lambda: train_batched([run_of(dropout=0.5)], "linear"), "no hidden units to drop"),
        (lambda: Run(([0], [1], [2]), (0.8, 0.2), 0.5), "rows of a run must be a pair"),
        (lambda: Run(([0],), (0.8, 0.2), 0.5), "rows of a run must be a pair"),
        (lambda: Run(([0], [1]), (0.8, 0.2), 0.5, seed=-1), "seed of a run must be ≥ 0"),
    ],
)
def test_rejects_invalid_combinations(call, text):
    refused(text, call)


def test_second_call_of_run_does_not_train_again():
    batched = train_batched([run_of()])
    before = [len(history) for history in batched.histories]
    weights = [p.clone() for p in batched.models()[0].parameters()]
    assert [len(history) for history in batched.run()] == before
    assert all(torch.equal(a, b) for a, b in zip(weights, batched.models()[0].parameters(), strict=True))


def test_scores_of_zero_rows_are_empty():
    assert train_batched([run_of()]).scores(X[:0]).shape == (1, 0)


def test_run_copies_index_arrays():
    index = np.arange(40)
    run = Run((index, np.arange(40, 80)), (0.8, 0.2), 0.5)
    index[0] = 99
    assert run.rows[0][0] == 0


def test_warns_if_batches_grow():
    with pytest.warns(UnevenSetsWarning, match="collect more rows"):
        train_batched([run_of(sizes=(200, 1))])


def test_models_have_the_named_classes():
    (model,) = train_batched([run_of()], options=options(epochs=1)).models()
    assert isinstance(model, MLP)
