"""Platt scaling without labels, prior shift, Bayes thresholds and the calibration error."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from uulearn.metrics.calibration import (
    PlattScaling,
    bayes_threshold,
    calibrate_out_of_fold,
    calibration_error,
    fit_platt_scaling,
    shift_log_odds,
)

prior = st.floats(0.02, 0.98)


def two_sets(rng, set_priors, sizes, shift=1.0):
    """Draw scores N(±shift, 1) for positives and negatives: the log-odds at class prior π are 2·shift·g + logit π."""
    sets = np.repeat([0, 1], sizes)
    y = rng.random(len(sets)) < np.repeat(set_priors, sizes)
    return rng.normal(shift * (2.0 * y - 1)), sets


@pytest.mark.parametrize(
    ("set_priors", "sizes", "pi"),
    [((0.8, 0.2), (4000, 4000), 0.5), ((0.9, 0.5), (2000, 8000), 0.1), ((0.2, 0.7), (5000, 5000), 0.9)],
)
@pytest.mark.parametrize(("stretch", "move"), [(1.0, 0.0), (7.0, 3.0), (0.01, -0.5)])
def test_recovers_log_odds_at_any_scale_of_the_scores(set_priors, sizes, pi, stretch, move):
    """Includes a π outside the range of the set priors, for which the unbiased risk is not convex."""
    scores, sets = two_sets(np.random.default_rng(0), set_priors, sizes)
    scaling = fit_platt_scaling(stretch * scores + move, sets, set_priors, pi)
    true_slope = 2.0 / stretch
    assert scaling.slope == pytest.approx(true_slope, rel=0.2)
    at = stretch * np.array([-1.0, 0.0, 1.0]) + move
    np.testing.assert_allclose(scaling.log_odds(at), 2 * np.array([-1.0, 0.0, 1.0]) + logit(pi), atol=0.45)
    plain = fit_platt_scaling(scores, sets, set_priors, pi)
    np.testing.assert_allclose(scaling.log_odds(at), plain.log_odds([-1.0, 0.0, 1.0]), atol=1e-3)


def test_error_decreases_with_more_rows():
    errors = []
    for n in (300, 3000, 30_000):
        found = []
        for seed in range(20):
            scores, sets = two_sets(np.random.default_rng(seed), (0.7, 0.3), (n, n))
            found.append(fit_platt_scaling(scores, sets, (0.7, 0.3), 0.5).slope)
        errors.append(np.sqrt(np.mean((np.array(found) - 2) ** 2)))
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2]


def test_probabilities_are_calibrated():
    rng = np.random.default_rng(1)
    scores, sets = two_sets(rng, (0.8, 0.3), (5000, 5000), shift=0.7)
    scaling = fit_platt_scaling(np.tanh(scores / 3) * 5 + 1, sets, (0.8, 0.3), 0.2)
    y = rng.random(20_000) < 0.2
    fresh = np.tanh(rng.normal(0.7 * (2.0 * y - 1)) / 3) * 5 + 1
    assert calibration_error(expit(scaling.log_odds(fresh)), y) < 0.02
    assert calibration_error(expit(fresh), y) > 0.2  # before scaling


@given(st.integers(0, 100), st.sampled_from([(0.8, 0.2), (0.6, 0.4), (0.1, 0.9), (1.0, 0.3)]), prior)
def test_swapping_the_sets_changes_nothing(seed, set_priors, pi):
    scores, sets = two_sets(np.random.default_rng(seed), set_priors, (60, 90))
    one, other = (
        fit_platt_scaling(scores, sets, set_priors, pi),
        fit_platt_scaling(scores, 1 - sets, set_priors[::-1], pi),
    )
    np.testing.assert_allclose(one.log_odds([-1, 0, 1]), other.log_odds([-1, 0, 1]), atol=2e-2)


@given(st.integers(0, 100), prior, prior)
def test_target_prior_changes_the_intercept_only(seed, pi, other_pi):
    scores, sets = two_sets(np.random.default_rng(seed), (0.8, 0.2), (60, 90))
    here, there = fit_platt_scaling(scores, sets, (0.8, 0.2), pi), fit_platt_scaling(scores, sets, (0.8, 0.2), other_pi)
    assert here.slope == there.slope
    np.testing.assert_allclose(here.log_odds(scores, other_pi), there.log_odds(scores), atol=1e-9)


def test_slope_is_finite_for_few_rows_of_separated_classes():
    scores = np.concatenate(
        [np.linspace(4, 5, 20), np.linspace(-5, -4, 5), np.linspace(4, 5, 5), np.linspace(-5, -4, 20)]
    )
    sets = np.repeat([0, 1], 25)
    scaling = fit_platt_scaling(scores, sets, (0.8, 0.2), 0.5)
    assert 0.3 < scaling.slope < 50
    assert scaling.log_odds(4.5) > 2 > -2 > scaling.log_odds(-4.5)


@pytest.mark.parametrize("outlier", [1e6, 1e30, -1e30, 1e300])
def test_one_extreme_score_hardly_changes_the_scaling(outlier):
    scores, sets = two_sets(np.random.default_rng(0), (0.8, 0.2), (100, 100))
    plain = fit_platt_scaling(scores, sets, (0.8, 0.2), 0.5)
    scores[0 if outlier > 0 else -1] = outlier
    scaling = fit_platt_scaling(scores, sets, (0.8, 0.2), 0.5)
    np.testing.assert_allclose(scaling.log_odds([-1, 0, 1]), plain.log_odds([-1, 0, 1]), atol=0.3)


def test_slope_is_near_zero_for_reversed_scores():
    scores, sets = two_sets(np.random.default_rng(0), (0.8, 0.2), (2000, 2000))
    scaling = fit_platt_scaling(-scores, sets, (0.8, 0.2), 0.5)
    assert 0 < scaling.slope < 0.05


def test_mean_probability_is_the_known_class_prior_of_all_rows():
    scores, sets = two_sets(np.random.default_rng(3), (0.6, 0.4), (150, 450))
    scaling = fit_platt_scaling(scores, sets, (0.6, 0.4), 0.45)
    assert expit(scaling.log_odds(scores)).mean() == pytest.approx(0.45, abs=1e-6)  # (150·0.6 + 450·0.4)/600


def test_probabilities_shrink_to_the_class_prior_if_the_rows_cannot_calibrate_them():
    """The spread of the probabilities grows with the number of rows and with the distance of the priors."""
    spreads = []
    for n, priors in ((15, (0.55, 0.45)), (100, (0.6, 0.4)), (2000, (0.8, 0.2))):
        found = []
        for seed in range(20):
            scores, sets = two_sets(np.random.default_rng([seed, 2]), priors, (n, n), shift=1.5)
            found.append(expit(fit_platt_scaling(scores, sets, priors, 0.5).log_odds(scores)).std())
        spreads.append(np.mean(found))
    assert spreads[0] < spreads[1] - 0.02 < spreads[2] - 0.04


def test_few_rows_at_close_priors_are_calibrated():
    """The mean over scores from hardly to well separated, at 100 to 300 rows per set."""
    errors = []
    for place, (n, shift) in enumerate(itertools.product((100, 200, 300), (0.2, 0.4, 0.6, 0.9, 1.3))):
        for seed in range(8):
            rng = np.random.default_rng([place, seed, 9])
            scores, sets = two_sets(rng, (0.6, 0.4), (n, n), shift)
            y = rng.random(5000) < 0.4
            scaling = fit_platt_scaling(scores, sets, (0.6, 0.4), 0.4)
            errors.append(calibration_error(expit(scaling.log_odds(rng.normal(shift * (2.0 * y - 1)))), y))
    assert np.mean(errors) < 0.08


def test_grouped_scores_give_the_same_line(monkeypatch):
    scores, sets = two_sets(np.random.default_rng(4), (0.7, 0.2), (3000, 2000))
    grouped = fit_platt_scaling(scores, sets, (0.7, 0.2), 0.3)
    monkeypatch.setattr("uulearn.metrics.calibration.MAX_POINTS", 10_000)
    exact = fit_platt_scaling(scores, sets, (0.7, 0.2), 0.3)
    np.testing.assert_allclose(grouped.log_odds([-2, 0, 2]), exact.log_odds([-2, 0, 2]), atol=5e-3)


def test_no_row_calibrates_itself():
    scores, sets = two_sets(np.random.default_rng(5), (0.7, 0.3), (300, 300))
    folds = np.arange(600) % 3
    scaling, log_odds = calibrate_out_of_fold(scores, sets, folds, (0.7, 0.3), 0.2)
    assert scaling == fit_platt_scaling(scores, sets, (0.7, 0.3), 0.2)
    inside = folds == 1
    other = fit_platt_scaling(scores[~inside], sets[~inside], (0.7, 0.3), 0.2)
    np.testing.assert_array_equal(log_odds[inside] > 0, other.log_odds(scores[inside]) > 0)
    same = (log_odds > 0) == (scaling.log_odds(scores) > 0)
    np.testing.assert_allclose(log_odds[same], scaling.log_odds(scores)[same], rtol=1e-5, atol=1e-6)
    assert 0 < (~same).sum() < 60
    assert np.abs(log_odds[~same]).max() < 2e-6
    mixed = sets.copy()
    mixed[inside] = np.random.default_rng(6).permutation(sets[inside])
    again = calibrate_out_of_fold(scores, mixed, folds, (0.7, 0.3), 0.2)[1]
    np.testing.assert_array_equal(again[inside] > 0, log_odds[inside] > 0)


@given(st.floats(-20, 20), prior, prior, prior)
def test_prior_shift_follows_bayes_rule_and_composes(log_odds, pi, there, beyond):
    """The reference applies Bayes' rule to the density ratio."""
    p = expit(log_odds)
    ratio = (p / pi) / ((1 - p) / (1 - pi))
    by_bayes = there * ratio / (there * ratio + 1 - there)
    assert expit(shift_log_odds(log_odds, pi, there)) == pytest.approx(by_bayes, rel=1e-6, abs=1e-12)
    onward = shift_log_odds(shift_log_odds(log_odds, pi, there), there, beyond)
    assert onward == pytest.approx(shift_log_odds(log_odds, pi, beyond), abs=1e-9)


@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(0, 1000))
def test_bayes_threshold_minimizes_the_expected_cost(false_positive, false_negative, seed):
    p = np.sort(np.random.default_rng(seed).random(50))
    threshold = bayes_threshold(false_positive, false_negative)
    costs = [false_positive * (1 - p[p > t]).sum() + false_negative * p[p <= t].sum() for t in (*p, 0.0, threshold)]
    assert costs[-1] == pytest.approx(min(costs))


def test_calibration_error_by_hand():
    p = np.array([0.1, 0.1, 0.1, 0.1, 0.9, 0.9])
    y = np.array([1, 0, 0, 0, 1, 1])
    assert calibration_error(p, y, bins=2) == pytest.approx((3 * abs(0.1 - 1 / 3) + 3 * abs(1.9 / 3 - 2 / 3)) / 6)
    assert calibration_error(p, y, bins=1) == pytest.approx(abs(p.mean() - 0.5))
    assert calibration_error([0.3], [1]) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: fit_platt_scaling([1.0, 1.0], [0, 1], (0.8, 0.2), 0.5),
            "all scores are 1 and carry no information",
        ),
        (lambda: fit_platt_scaling([1.0, np.inf], [0, 1], (0.8, 0.2), 0.5), "scores must be finite"),
        (lambda: fit_platt_scaling([1.0, 2.0], [0, 0], (0.8, 0.2), 0.5), "no rows from set 1"),
        (lambda: fit_platt_scaling([1.0, 2.0], [0, 1], (0.8, 0.8), 0.5), "set_priors must differ"),
        (lambda: PlattScaling(1.0, 0.0, 0.5).log_odds(0.0, 1.5), "target_prior must be"),
        (lambda: shift_log_odds(0.0, 1.0, 0.5), "from_prior must lie strictly"),
        (lambda: bayes_threshold(0, 1), "false_positive_cost must be a finite number above 0, got 0"),
        (lambda: bayes_threshold(1, float("inf")), "false_negative_cost must be a finite number above 0, got inf"),
        (lambda: calibration_error([0.5], [1, 0]), "one value per row"),
        (lambda: calibration_error([1.5], [1]), r"lie in \[0, 1\], got 1.5"),
    ],
)
def test_rejects_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
