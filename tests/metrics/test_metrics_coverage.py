"""Coverage of the intervals, simulated with classifiers whose true metrics are known."""

import numpy as np
import pytest
from scipy.stats import norm

from uulearn.metrics import evaluate, uu_accuracy, uu_accuracy_difference

NOMINAL = 0.95


def true_metrics(shift, threshold, pi):
    """Metrics of scores that are N(shift, 1) for positives and N(−shift, 1) for negatives."""
    t, f = norm.sf(threshold - shift), norm.sf(threshold + shift)
    return {
        "accuracy": pi * t + (1 - pi) * (1 - f),
        "balanced_accuracy": (t + 1 - f) / 2,
        "auc": norm.cdf(np.sqrt(2) * shift),
        "true_positive_rate": t,
        "false_positive_rate": f,
    }


@pytest.mark.parametrize(
    ("set_priors", "sizes", "shift", "threshold", "pi"),
    [
        ((0.8, 0.2), (300, 300), 1.0, 0.0, 0.5),
        ((0.6, 0.4), (1000, 1000), 1.0, 0.0, 0.5),
        ((0.2, 0.9), (100, 400), 0.5, 0.3, 0.7),
        ((1.0, 0.3), (50, 200), 1.5, 0.0, 0.3),
        ((0.9, 0.1), (60, 60), 2.0, 0.0, 0.5),
        ((0.55, 0.45), (2000, 500), 0.0, 0.0, 0.5),
    ],
)
def test_intervals_cover_the_true_metrics(set_priors, sizes, shift, threshold, pi):
    rng = np.random.default_rng(0)
    truth = true_metrics(shift, threshold, pi)
    sets = np.repeat([0, 1], sizes)
    priors = np.repeat(set_priors, sizes)
    repeats = 500
    covered = dict.fromkeys(truth, 0)
    values = {name: [] for name in truth}
    errors = {name: [] for name in truth}
    for _ in range(repeats):
        positive = rng.random(len(sets)) < priors
        scores = rng.normal(np.where(positive, shift, -shift))
        evaluated = evaluate(scores, sets, set_priors, pi, threshold=threshold, confidence=NOMINAL)
        for name, value in truth.items():
            estimate = getattr(evaluated, name)
            covered[name] += estimate.interval[0] <= value <= estimate.interval[1]
            values[name].append(estimate.unclipped)
            errors[name].append(estimate.standard_error)
    tolerance = 3 * np.sqrt(NOMINAL * (1 - NOMINAL) / repeats)
    for name, value in truth.items():
        assert covered[name] / repeats > NOMINAL - tolerance, name
        measured = np.std(values[name], ddof=1)
        # Unbiased, with a standard error that matches the standard deviation of the estimates.
        assert abs(np.mean(values[name]) - value) < 4 * measured / np.sqrt(repeats), name
        assert np.mean(errors[name]) == pytest.approx(measured, rel=0.15), name


@pytest.mark.parametrize(("set_priors", "sizes", "pi"), [((0.8, 0.2), (400, 400), 0.5), ((0.3, 0.6), (2000, 800), 0.3)])
def test_coverage_of_an_accuracy_difference(set_priors, sizes, pi):
    """The second classifier adds noise to the scores, so the true difference is known."""
    rng = np.random.default_rng(1)
    shift, noise = 1.0, 0.6
    better = true_metrics(shift, 0.0, pi)["accuracy"]
    worse = true_metrics(shift / np.sqrt(1 + noise**2), 0.0, pi)["accuracy"]
    sets, priors = np.repeat([0, 1], sizes), np.repeat(set_priors, sizes)
    covered, values, errors, single = 0, [], [], []
    for _ in range(600):
        positive = rng.random(len(sets)) < priors
        scores = rng.normal(np.where(positive, shift, -shift))
        noisy = scores + noise * rng.normal(size=len(sets))
        difference = uu_accuracy_difference(scores, noisy, sets, set_priors, pi)
        covered += difference.interval[0] <= better - worse <= difference.interval[1]
        values.append(difference.unclipped)
        errors.append(difference.standard_error)
        single.append(uu_accuracy(scores, sets, set_priors, pi).standard_error)
    assert covered / 600 > NOMINAL - 3 * np.sqrt(NOMINAL * (1 - NOMINAL) / 600)
    assert np.mean(values) == pytest.approx(better - worse, abs=4 * np.std(values) / np.sqrt(600))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)
    assert np.mean(errors) < 0.75 * np.mean(single)
