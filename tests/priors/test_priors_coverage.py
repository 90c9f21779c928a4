"""Coverage of every interval of `uulearn.priors`, by simulation."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from helpers.prior_simulation import (
    MIXTURES,
    TARGETS,
    gaussians,
    out_of_fold_coverage,
    reducible,
    simulate,
    simulate_target,
)
from uulearn.priors import priors_from_labels
from uulearn.priors.labels import clopper_pearson, hypergeometric_interval

IDENTIFIED = [
    ("Gaussians, 4 σ apart", (0.8, 0.2), 1000),
    ("Gaussians, 3 σ apart", (0.8, 0.2), 2000),
    ("Gaussians, 2 σ apart", (0.8, 0.2), 2000),
    ("Gaussians, 3 σ apart", (0.6, 0.4), 2000),
    ("Gaussians, 3 σ apart", (0.9, 0.5), 2000),
    ("Gaussians, 3 σ apart", (1.0, 0.3), 1000),
    ("half of each class shared", (0.8, 0.2), 2000),
    ("triangles", (0.8, 0.2), 2000),
]


@pytest.mark.parametrize(("mixture", "set_priors", "size"), IDENTIFIED)
def test_intervals_cover_if_the_classes_separate_in_the_tails(mixture, set_priors, size):
    found = simulate(MIXTURES[mixture], set_priors, size, draws=300)
    assert (found.covered >= 0.9).all(), found
    assert found.bounded >= 0.93
    assert (np.abs(found.bias) <= 0.04).all()


def test_estimates_are_nearly_unbiased_for_pure_tails():
    found = simulate(gaussians(4), (0.8, 0.2), 5000, draws=100)
    assert (np.abs(found.bias) < 0.005).all()
    assert (found.deviation < 0.015).all()
    assert found.warned == 0


def test_overlapping_classes_warn_and_bounds_hold():
    """Pure only in the limit: the estimates are biased toward each other, and a warning reports this."""
    found = simulate(gaussians(1), (0.8, 0.2), 5000, draws=100)
    assert found.bias[0] < -0.03 < 0.03 < found.bias[1]
    assert found.warned >= 0.85
    assert found.bounded >= 0.99


def test_reducible_classes_bias_the_estimate_but_bounds_hold():
    """The limit in docs/studies/priors.md: a wrong estimate, a narrow interval, no warning; the bounds still hold."""
    found = simulate(reducible, (0.8, 0.2), 5000, draws=60)
    assert found.bias == pytest.approx((-0.09, 0.09), abs=0.02)
    assert (found.covered < 0.2).all()
    assert found.warned <= 0.1
    assert found.bounded == 1


def test_intervals_cover_with_out_of_fold_scores():
    covered, bias = out_of_fold_coverage(draws=60, size=600, scorer=LogisticRegression())
    assert (covered >= 0.88).all()
    assert (np.abs(bias) < 0.02).all()


# ------------------------------------------------------------------------------------------------------------ labels


@pytest.mark.parametrize("rows", [10, 50])
def test_exact_intervals_have_at_least_nominal_coverage(rows):
    """The exact coverage: every outcome is weighted by its probability."""
    ends = np.array([clopper_pearson(k, rows) for k in range(rows + 1)])
    priors = np.linspace(0.01, 0.99, 197)
    probability = stats.binom.pmf(np.arange(rows + 1), rows, priors[:, None])
    covered = (probability * ((ends[:, 0] <= priors[:, None]) & (priors[:, None] <= ends[:, 1]))).sum(axis=1)
    assert covered.min() >= 0.95
    assert covered.mean() < 0.99


@pytest.mark.parametrize(("rows", "size"), [(10, 15), (40, 200)])
def test_finite_intervals_have_at_least_nominal_coverage(rows, size):
    ends = np.array([hypergeometric_interval(k, rows, size) for k in range(rows + 1)])
    totals = np.arange(size + 1)
    probability = stats.hypergeom.pmf(np.arange(rows + 1), size, totals[:, None], rows)
    priors = totals[:, None] / size
    covered = (probability * ((ends[:, 0] <= priors + 1e-12) & (priors <= ends[:, 1] + 1e-12))).sum(axis=1)
    assert covered.min() >= 0.95 - 1e-9
    assert covered.mean() < 0.995


def test_intervals_of_priors_from_labels_cover():
    """Labels are drawn without replacement; the interval is for the prior of the finite set."""
    rng = np.random.default_rng(0)
    population = np.repeat([1, 0], [240, 60])
    covered = []
    for _ in range(400):
        labels = rng.permutation(population)[:60], rng.permutation(1 - population)[:60]
        found = priors_from_labels(*labels, sizes=(300, 300))
        covered.append([i.covers(prior) for i, prior in zip(found.intervals, (0.8, 0.2), strict=True)])
    assert (np.mean(covered, axis=0) >= 0.94).all()
    assert (np.mean(covered, axis=0) <= 0.99).all()


# ------------------------------------------------------------------------------------------------------ target prior


@pytest.mark.parametrize(("set_priors", "pi", "sizes", "distance"), TARGETS)
def test_interval_of_the_target_prior_covers(set_priors, pi, sizes, distance):
    bias, _, error, covered, alarms = simulate_target(set_priors, pi, sizes, distance, draws=300)
    assert 0.92 <= covered <= 0.99
    assert abs(bias) < 0.25 * error
    assert alarms <= 0.03
