"""Shared data for the tests, made once."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from helpers.plain import PLAIN

# The same examples on every run, and no limit on their time: machines differ.
settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("deterministic")

# Processes that a test starts import the helpers and this checkout too.
TESTS = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(TESTS), str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

torch.set_num_threads(1)  # pytest-xdist runs two workers on two cores


def pytest_collection_finish():
    """What is loaded by now stays; looking through it for garbage again and again takes a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_draws_every_time():
    """Modules made by a test and estimators without a seed draw from the global generators: fix both."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (what scikit-learn draws from when random_state is None)


@pytest.fixture(scope="session")
def gaussians():
    """Two Gaussian classes as two unlabeled sets at (0.8, 0.2), with a labelled test part."""
    rng = np.random.default_rng(0)

    def draw(n, prior):
        y = (rng.random(n) < prior).astype(int)
        return rng.normal(size=(n, 3)) + 1.5 * (2 * y[:, None] - 1), y

    (X0, _), (X1, _), (X_test, y_test) = draw(400, 0.8), draw(400, 0.2), draw(1000, 0.5)
    X = np.concatenate([X0, X1])
    sets = np.repeat([0, 1], 400)
    order = rng.permutation(800)
    return {"X0": X0, "X1": X1, "X": X[order], "sets": sets[order], "X_test": X_test, "y_test": y_test}


@pytest.fixture
def quick():
    """Arguments of a small, fast, deterministic classifier: one plain run."""
    return PLAIN | {
        "set_priors": (0.8, 0.2),
        "target_prior": 0.5,
        "model_params": {"hidden": (16,)},
        "epochs": 15,
        "lr": 0.01,
        "random_state": 0,
    }
