"""Shared fixtures of the tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from helpers.plain import PLAIN

# The same examples on every run, without a time limit, because machines differ. `make test-fast` tries fewer of them.
MAX_EXAMPLES = 8 if os.environ.get("UULEARN_TEST_TIER") == "fast" else 60
settings.register_profile("deterministic", derandomize=True, deadline=None, max_examples=MAX_EXAMPLES)
settings.load_profile("deterministic")

# Modules whose tests start processes, train for long or simulate: `make test-fast` skips them.
SLOW_MODULES = {
    "app/test_hardening_disk.py", "app/test_hardening_files.py", "app/test_hardening_signals.py",
    "app/test_same_model.py", "cli/test_cli.py", "cli/test_demo.py", "cli/test_fit_command.py",
    "cli/test_fit_progress.py", "cli/test_image_folders.py", "cli/test_torchrun_command.py",
    "data/test_stream_holdout.py", "data/test_streaming.py", "docs/test_examples.py", "docs/test_facts.py",
    "docs/test_hugging_face_page.py", "docs/test_pages.py", "docs/test_site.py", "docs/test_start_pages.py",
    "docs/test_study_coverage.py", "docs/test_study_embeddings.py", "docs/test_study_frames.py",
    "docs/test_study_more_sets.py", "docs/test_study_pages.py", "docs/test_study_refinement.py",
    "docs/test_study_tabular.py", "docs/test_tracking_page.py", "docs/test_wrong_page.py",
    "engines/test_ray_engine.py", "estimator/test_check_rows.py", "estimator/test_estimator_checks.py",
    "estimator/test_resolving.py", "estimator/test_self_training.py", "example_datasets/test_datasets.py",
    "export/test_export.py", "integrations/test_huggingface.py", "io/test_fuzz.py", "io/test_reading.py",
    "metrics/test_calibration.py", "metrics/test_metrics_coverage.py", "models/test_torchvision_networks.py",
    "priors/test_priors_coverage.py", "report/test_report_browser.py", "reproduction/test_committed_results.py",
    "reproduction/test_experiments.py", "reproduction/test_paper_figures.py", "reproduction/test_reproduce.py",
    "reproduction/test_store.py", "risk/test_distributed_risk.py", "selection/test_search_in_one_fit.py",
    "selection/test_search_store.py", "surrogate/test_surrogate.py", "tabular/test_schema.py", "test_hostile.py",
    "theory/test_theory_simulation.py", "training/test_checkpoint.py", "training/test_workers.py",
    "training/test_wrappers.py",
}  # fmt: skip


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).as_posix() in SLOW_MODULES:
            item.add_marker(pytest.mark.slow)


# Processes started by a test must also import the helpers and this checkout.
TESTS = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(TESTS), str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
)

torch.set_num_threads(1)  # pytest-xdist runs two workers on two cores


def pytest_collection_finish():
    """Freeze loaded objects: repeated garbage collection of them takes a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_draws_every_time():
    """Seed the global generators, which modules and estimators without a seed use."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  (what scikit-learn draws from when random_state is None)


@pytest.fixture(scope="session")
def gaussians():
    """Two Gaussian classes as two unlabeled sets at (0.8, 0.2), with a labeled test part."""
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
