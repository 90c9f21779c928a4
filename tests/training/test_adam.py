"""Adam without torch's compiler equals `torch.optim.Adam`, and does not import the compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from uulearn.training.adam import CPUAdam
from uulearn.training.options import RunOptions, build_optimizer


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (4,), ())]


def train(optimizer, weights, steps, first=0):
    for step in range(first, first + steps):
        optimizer.zero_grad()
        used = weights[: 2 + step % 2]  # the last parameter has a gradient in every second step
        sum((weight**2).sum() * (1 + step) for weight in used).backward()
        optimizer.step()


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"betas": (0.5, 0.9), "eps": 1e-3}])
def test_updates_equal_those_of_torch(settings):
    ours, theirs = parameters(), parameters()
    train(CPUAdam(ours, lr=0.05, **settings), ours, 7)
    train(torch.optim.Adam(theirs, lr=0.05, fused=True, **settings), theirs, 7)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)


def test_restored_state_continues_with_the_same_updates():
    ours, others = parameters(), parameters()
    whole = CPUAdam(ours, lr=0.05)
    train(whole, ours, 7)
    begun = CPUAdam(others, lr=0.05)
    train(begun, others, 3)
    continued = CPUAdam(others, lr=0.9)
    continued.load_state_dict(begun.state_dict())
    train(continued, others, 4, first=3)
    for own, other in zip(ours, others, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)


def test_other_settings_use_the_optimizer_of_torch():
    assert isinstance(build_optimizer(RunOptions(), parameters()), CPUAdam)
    amsgrad = RunOptions(optimizer_params={"amsgrad": True})
    scheduled = RunOptions(scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1))
    for options in (amsgrad, scheduled, RunOptions(optimizer="adamw")):
        assert isinstance(build_optimizer(options, parameters()), torch.optim.Optimizer)


def test_default_fit_does_not_import_the_compiler():
    code = (
        "import sys, numpy as np; from uulearn import UUClassifier; "
        "rows = np.random.default_rng(0).normal([[[1.0]], [[-1.0]]], size=(2, 60, 3)); "
        "UUClassifier((0.8, 0.2), epochs=2, progress=False, random_state=0).fit_sets(*rows); "
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
