"""Corrections of out-of-fold estimates against ensembles of noisy scores with known labels."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from uulearn.metrics import evaluate, evaluate_labeled
from uulearn.metrics.calibration import PlattScaling, calibrate_out_of_fold
from uulearn.metrics.out_of_fold import MAX_SHARPENING, OutOfFoldCorrection

PRIORS, TARGET = (0.7, 0.3), 0.5


def noisy_ensemble(n=20_000, models=5, noise=1.0, seed=0):
    """Return labels, sets, folds and scores (n, models) that share a signal and have independent noise."""
    rng = np.random.default_rng(seed)
    sets = np.repeat([0, 1], n)
    y = rng.random(2 * n) < np.where(sets == 0, *PRIORS)
    shared = rng.normal(np.where(y, 1.0, -1.0))
    scores = shared[:, None] + noise * rng.normal(size=(2 * n, models))
    return y, sets, rng.integers(models, size=2 * n), scores.astype(np.float32)


def corrected(sets, folds, scores, error_scale=1.0):
    """Return out-of-fold decisions, and the correction from the scores of the other models."""
    own = scores[np.arange(len(folds)), folds]
    scaling, decisions = calibrate_out_of_fold(own, sets, folds, PRIORS, TARGET)
    others = scores[folds[:, None] != np.arange(scores.shape[1])].reshape(len(folds), -1)
    sizes = int((sets == 0).sum()), int((sets == 1).sum())
    return decisions, OutOfFoldCorrection.from_scores(others, sizes, scaling, PRIORS, error_scale)


@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_corrected_estimates_describe_the_ensemble(noise):
    y, sets, folds, scores = noisy_ensemble(noise=noise)
    decisions, correction = corrected(sets, folds, scores)
    estimate = evaluate(decisions, sets, PRIORS, TARGET, correction=correction)
    single, together = (evaluate_labeled(own, y, TARGET) for own in (scores[:, 0], scores.mean(axis=1)))
    for name in ("accuracy", "auc", "true_positive_rate"):
        true, found = getattr(together, name).value, getattr(estimate, name)
        assert abs(found.value - true) < 0.012, name
    assert together.accuracy.value - single.accuracy.value > 0.005  # the gain is not zero
    plain = evaluate(decisions, sets, PRIORS, TARGET).accuracy.value
    assert estimate.accuracy.value - plain == pytest.approx(
        together.accuracy.value - single.accuracy.value, rel=0.35, abs=0.004
    )


def test_models_that_agree_need_no_correction():
    _, sets, folds, scores = noisy_ensemble(n=2000, noise=0.0)
    decisions, correction = corrected(sets, folds, scores)
    assert correction.rates(0.0) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert correction.auc() == pytest.approx(0.0, abs=1e-9)
    assert evaluate(decisions, sets, PRIORS, TARGET, correction=correction).accuracy.value == pytest.approx(
        evaluate(decisions, sets, PRIORS, TARGET).accuracy.value
    )


def test_two_models_cannot_show_their_disagreement():
    _, sets, folds, scores = noisy_ensemble(n=2000, models=2)
    _, correction = corrected(sets, folds, scores)
    assert correction.rates(0.0) == (0.0, 0.0)
    assert correction.auc() == 0.0


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 3.0), st.integers(0, 100))
def test_the_slope_grows_by_a_bounded_factor_and_keeps_the_prior(noise, seed):
    _, sets, folds, scores = noisy_ensemble(n=500, noise=noise, seed=seed)
    own = scores[np.arange(len(folds)), folds]
    scaling, _ = calibrate_out_of_fold(own, sets, folds, PRIORS, TARGET)
    _, correction = corrected(sets, folds, scores)
    assert 1 - 1e-9 <= correction.scaling.slope / scaling.slope <= MAX_SHARPENING + 1e-9
    assert correction.scaling.prior == TARGET


def test_standard_errors_are_multiplied():
    _, sets, folds, scores = noisy_ensemble(n=1000)
    decisions, correction = corrected(sets, folds, scores)
    wider = dataclasses.replace(correction, error_scale=1.5)
    first, second = (evaluate(decisions, sets, PRIORS, TARGET, correction=one) for one in (correction, wider))
    for name in ("accuracy", "auc", "false_positive_rate"):
        narrow, wide = getattr(first, name), getattr(second, name)
        assert wide.standard_error == pytest.approx(1.5 * narrow.standard_error)
        assert wide.value == pytest.approx(narrow.value)


@pytest.mark.parametrize(("set_priors", "sizes"), [((0.15, 0.02), (20_000, 20_000)), ((0.8, 0.2), (36_000, 4_000))])
def test_sharper_slope_keeps_the_fraction_of_positives(set_priors, sizes):
    """The prior odds are not multiplied: the mean probability stays the fraction of positives."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], sizes)
    y = rng.random(sum(sizes)) < np.where(sets == 0, *set_priors)
    scores = (rng.normal(np.where(y, 1.0, -1.0))[:, None] + rng.normal(size=(len(y), 4))).astype(np.float32)
    pooled = float(y.mean())
    single = PlattScaling(1.0, float(logit(pooled)), prior=pooled)  # exact: the classes are normal with variance 2
    correction = OutOfFoldCorrection.from_scores(scores, sizes, single, set_priors)
    assert correction.scaling.slope == pytest.approx(MAX_SHARPENING)
    assert correction.positive.mean() == pytest.approx(pooled, abs=0.005)
