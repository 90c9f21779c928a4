"""Metrics without labels: closed forms, symmetries, reference implementations and error messages."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from uulearn import uu_risk
from uulearn.metrics import (
    Estimate,
    Evaluation,
    Verdict,
    evaluate,
    evaluate_labeled,
    uu_accuracy,
    uu_accuracy_difference,
    uu_auc,
    uu_balanced_accuracy,
    uu_cost,
    uu_rates,
)
from uulearn.metrics.estimates import combine_proportions, two_sided_quantile, wilson_interval
from uulearn.metrics.rates import two_sample_auc

priors = st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)).filter(lambda pair: abs(pair[0] - pair[1]) > 0.05)
prior = st.floats(0.05, 0.95)
seeds = st.integers(0, 2**32 - 1)


def draw(seed, n=(60, 80)):
    rng = np.random.default_rng(seed)
    sets = rng.permutation(np.repeat([0, 1], n))
    return np.round(rng.normal(size=sum(n)) + 0.5 * (sets == 0), 1), sets  # rounded to create ties


# --------------------------------------------------------------------------------------------------------- estimates


@given(seeds, priors, prior)
def test_accuracy_is_one_minus_the_zero_one_risk(seed, set_priors, pi):
    scores, sets = draw(seed)
    tensors = (
        torch.from_numpy(scores - 0.05),
        torch.from_numpy(sets),
    )  # no score of zero, for which the loss is one half
    risk = uu_risk(*tensors, set_priors, pi, loss="zero_one", method="unbiased").unbiased.item()
    assert uu_accuracy(scores - 0.05, sets, set_priors, pi).unclipped == pytest.approx(1 - risk, abs=1e-9)


@given(seeds, prior)
def test_pure_sets_equal_labels(seed, pi):
    """With priors (1, 0), set 0 contains the positives: the metrics equal those of labeled rows."""
    scores, sets = draw(seed)
    free, labeled = evaluate(scores, sets, (1, 0), pi), evaluate_labeled(scores, 1 - sets, pi)
    for name in ("accuracy", "balanced_accuracy", "auc", "true_positive_rate", "false_positive_rate"):
        one, other = getattr(free, name), getattr(labeled, name)
        assert one.value == pytest.approx(other.value)
        assert one.standard_error == pytest.approx(other.standard_error)
        assert one.interval == pytest.approx(other.interval)
    assert free.sizes == labeled.sizes
    assert (free.labels_used, labeled.labels_used) == (False, True)


@given(seeds, priors, prior)
def test_swapping_the_sets_changes_nothing(seed, set_priors, pi):
    scores, sets = draw(seed)
    one, other = evaluate(scores, sets, set_priors, pi), evaluate(scores, 1 - sets, set_priors[::-1], pi)
    for name in ("accuracy", "balanced_accuracy", "auc", "true_positive_rate", "false_positive_rate"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value)
        assert getattr(one, name).interval == pytest.approx(getattr(other, name).interval)


@given(seeds, priors, prior)
def test_swapping_the_classes_mirrors_the_metrics(seed, set_priors, pi):
    """Scores change their sign, and each prior p becomes 1 − p."""
    scores, sets = draw(seed)
    scores = scores + 0.05
    mirrored = tuple(1 - value for value in set_priors)
    one, other = evaluate(scores, sets, set_priors, pi), evaluate(-scores, sets, mirrored, 1 - pi)
    for name in ("accuracy", "balanced_accuracy", "auc"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value)
        assert getattr(one, name).interval == pytest.approx(getattr(other, name).interval)
    assert one.true_positive_rate.value == pytest.approx(1 - other.false_positive_rate.value)


@given(seeds, priors, prior, st.floats(-1, 1))
def test_metrics_are_consistent(seed, set_priors, pi, threshold):
    scores, sets = draw(seed)
    evaluated = evaluate(scores, sets, set_priors, pi, threshold=threshold)
    t, f = evaluated.true_positive_rate.unclipped, evaluated.false_positive_rate.unclipped
    assert evaluated.accuracy.unclipped == pytest.approx(pi * t + (1 - pi) * (1 - f))
    assert evaluated.balanced_accuracy.unclipped == pytest.approx((t + 1 - f) / 2)
    rates = uu_rates(scores, sets, set_priors, threshold=threshold)
    assert (rates.true_positive.unclipped, rates.false_positive.unclipped) == (t, f)
    assert uu_accuracy(scores, sets, set_priors, pi, threshold=threshold) == evaluated.accuracy
    assert uu_balanced_accuracy(scores, sets, set_priors, threshold=threshold) == evaluated.balanced_accuracy
    assert uu_auc(scores, sets, set_priors) == evaluated.auc
    # The rates reproduce the observed fractions.
    for which, theta in enumerate(set_priors):
        assert (scores[sets == which] > threshold).mean() == pytest.approx(theta * t + (1 - theta) * f)


@given(seeds, priors, prior, st.floats(0, 5), st.floats(0, 5))
def test_cost_is_the_sum_over_both_errors(seed, set_priors, pi, false_positive, false_negative):
    scores, sets = draw(seed)
    costs = {"false_positive_cost": false_positive, "false_negative_cost": false_negative}
    found = uu_cost(scores, sets, set_priors, pi, **costs)
    rates = uu_rates(scores, sets, set_priors)
    t, f = rates.true_positive.unclipped, rates.false_positive.unclipped
    assert found.unclipped == pytest.approx(pi * false_negative * (1 - t) + (1 - pi) * false_positive * f, abs=1e-9)
    assert 0 <= found.interval[0] <= found.interval[1] <= pi * false_negative + (1 - pi) * false_positive + 1e-12
    error = uu_cost(scores, sets, set_priors, pi, false_positive_cost=1, false_negative_cost=1)
    accuracy = uu_accuracy(scores, sets, set_priors, pi)
    assert error.unclipped == pytest.approx(1 - accuracy.unclipped)
    assert error.interval == pytest.approx((1 - accuracy.interval[1], 1 - accuracy.interval[0]))


@given(seeds, st.floats(0.55, 1.0))
def test_ranking_by_balanced_accuracy_does_not_depend_on_priors(seed, theta):
    one, other = draw(seed), draw(seed + 1)
    for measure in (uu_balanced_accuracy, uu_auc):
        known = [measure(*data, (theta, 1 - theta)).unclipped for data in (one, other)]
        assumed = [measure(*data, (0.9, 0.3)).unclipped for data in (one, other)]
        assert np.sign(round(known[0] - known[1], 9)) == np.sign(round(assumed[0] - assumed[1], 9))


def test_labeled_metrics_equal_scikit_learn():
    scores, labels = draw(3)
    evaluated = evaluate_labeled(scores, labels)
    assert evaluated.accuracy.value == pytest.approx(((scores > 0) == labels).mean())
    assert evaluated.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(labels, scores > 0))
    assert evaluated.auc.value == pytest.approx(roc_auc_score(labels, scores))
    right = int(((scores > 0) == labels).sum())
    reference = binomtest(right, len(labels)).proportion_ci(method="wilson")
    assert evaluated.accuracy.interval == pytest.approx((reference.low, reference.high))
    signed = evaluate_labeled(scores, np.where(labels == 1, 1, -1))
    assert signed == evaluated


@given(seeds, priors, prior)
def test_accuracy_difference_equals_difference_of_accuracies(seed, set_priors, pi):
    scores, sets = draw(seed)
    other = scores + np.random.default_rng(seed).normal(size=len(scores))
    difference = uu_accuracy_difference(scores, other, sets, set_priors, pi)
    accuracies = [uu_accuracy(values, sets, set_priors, pi).unclipped for values in (scores, other)]
    assert difference.unclipped == pytest.approx(accuracies[0] - accuracies[1])
    reverse = uu_accuracy_difference(other, scores, sets, set_priors, pi)
    assert reverse.unclipped == pytest.approx(-difference.unclipped)
    none = uu_accuracy_difference(scores, 2 * scores, sets, set_priors, pi)
    assert (none.value, none.standard_error) == (0, 0)


def test_accuracy_difference_is_clipped_like_its_interval():
    sets = np.repeat([0, 1], 4)
    scores = np.where(sets == 0, 1.0, -1.0)
    better, worse = (uu_accuracy_difference(s * scores, -s * scores, sets, (0.6, 0.4), 0.5) for s in (1, -1))
    assert (better.value, better.interval, better.unclipped) == (1, (1, 1), pytest.approx(5))
    assert (worse.value, worse.interval, worse.unclipped) == (-1, (-1, -1), pytest.approx(-5))


# ------------------------------------------------------------------------------------------------------- intervals


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_interval_equals_scipy(n, share, confidence):
    successes = round(share * n)
    reference = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes / n, n, two_sided_quantile(confidence)) == pytest.approx(
        (reference.low, reference.high), abs=1e-9
    )


def test_negative_weight_mirrors_the_interval():
    low, high = combine_proportions((0.3,), (50,), (1.0,), 0.0, 0.95).interval
    assert (low, high) == pytest.approx(wilson_interval(0.3, 50, 1.959964))
    assert combine_proportions((0.3,), (50,), (-1.0,), 1.0, 0.95).interval == pytest.approx((1 - high, 1 - low))


def test_interval_is_ordered_and_within_range():
    scores, sets = np.repeat([1.0, -1.0], 20), np.repeat([0, 1], 20)
    evaluated = evaluate(scores, sets, (0.7, 0.3), 0.5)
    assert evaluated.accuracy.unclipped == pytest.approx(1.75)  # unbiased; these scores contradict the priors
    assert str(evaluated.accuracy) == "unknown (estimated as 1.750, which is impossible)"
    assert (evaluated.auc.value, evaluated.true_positive_rate.value, evaluated.false_positive_rate.value) == (1, 1, 0)
    assert evaluated.accuracy.interval == (1.0, 1.0)
    assert evaluated.auc.interval[1] == 1.0
    assert 0 <= evaluated.false_positive_rate.interval[0] <= evaluated.false_positive_rate.interval[1] <= 1


@given(seeds)
def test_auc_counts_pairs(seed):
    scores, sets = draw(seed, (7, 9))
    higher, lower = scores[sets == 0], scores[sets == 1]
    pairs = np.sign(higher[:, None] - lower[None, :]) / 2 + 0.5
    assume(0 < pairs.mean() < 1)
    found = two_sample_auc(higher, lower, 0.95)
    assert found.value == pytest.approx(pairs.mean())
    # DeLong: the variances of the row means and of the column means.
    variance = pairs.mean(1).var(ddof=1) / 7 + pairs.mean(0).var(ddof=1) / 9
    assert found.standard_error == pytest.approx(math.sqrt(variance))
    assert found.interval[0] < found.value < found.interval[1]


def test_perfect_auc_has_an_interval():
    found = two_sample_auc(np.arange(10.0) + 20, np.arange(15.0), 0.95)
    assert found.value == 1
    assert found.interval[0] < 1
    assert found.standard_error > 0


def test_interval_width_follows_confidence_and_rows():
    scores, sets = draw(0)
    widths = []
    for data, confidence in (((scores, sets), 0.8), ((scores, sets), 0.99), (draw(0, (6000, 8000)), 0.99)):
        evaluated = evaluate(*data, (0.8, 0.4), 0.5, confidence=confidence)
        widths.append([evaluated.accuracy.interval[1] - evaluated.accuracy.interval[0], np.ptp(evaluated.auc.interval)])
        assert evaluated.accuracy.confidence == evaluated.auc.confidence == confidence
    assert (np.array(widths[0]) < widths[1]).all()
    assert (np.array(widths[2]) < 0.5 * np.array(widths[1])).all()


@given(seeds, st.floats(0.02, 0.4))
def test_standard_error_is_inversely_proportional_to_the_prior_gap(seed, gap):
    scores, sets = draw(seed)
    near, far = (uu_balanced_accuracy(scores, sets, (0.5 + g / 2, 0.5 - g / 2)).standard_error for g in (gap, 2 * gap))
    assert near == pytest.approx(2 * far)


# ------------------------------------------------------------------------------------------------- inputs and errors


def test_estimate_converts_to_float_and_text():
    estimate = Estimate(0.9, 0.01, (0.88, 0.92), 0.9)
    assert float(estimate) == 0.9
    assert str(estimate) == "0.900 (90% interval 0.880 to 0.920)"
    assert "99.9% interval" in str(Estimate(0.9, 0.01, (0.87, 0.93), 0.999))


def test_accepts_lists_columns_and_tensors():
    scores, sets = draw(1)
    expected = uu_accuracy(scores, sets, (0.8, 0.2), 0.5)
    assert uu_accuracy(scores.tolist(), sets.tolist(), (0.8, 0.2), 0.5) == expected
    assert uu_accuracy(scores[:, None], sets[:, None], (0.8, 0.2), 0.5) == expected
    tensor = torch.from_numpy(scores).requires_grad_()
    assert uu_accuracy(tensor, torch.from_numpy(sets), (0.8, 0.2), 0.5) == expected


def test_printed_evaluation_says_whether_labels_were_used():
    scores, sets = draw(1)
    assert "no label was used: estimated from 60 + 80 rows" in str(evaluate(scores, sets, (0.8, 0.2), 0.5))
    assert "labels were used: 80 positive and 60 negative rows" in str(evaluate_labeled(scores, sets))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: uu_accuracy([1.0, 2.0], [0], (0.8, 0.2), 0.5), "one value per row, got 2 and 1"),
        (lambda: uu_accuracy([1.0, 2.0], [0, 2], (0.8, 0.2), 0.5), "sets must be 0 or 1.*got 2"),
        (lambda: uu_accuracy([1.0, 2.0], [0, 0], (0.8, 0.2), 0.5), "no rows from set 1"),
        (lambda: uu_accuracy([1.0, float("nan")], [0, 1], (0.8, 0.2), 0.5), "nan in row 1"),
        (lambda: uu_accuracy([[1.0, 2.0]], [0, 1], (0.8, 0.2), 0.5), r"shape \(1, 2\)"),
        (lambda: uu_accuracy(["a", "b"], [0, 1], (0.8, 0.2), 0.5), "scores must be numbers"),
        (lambda: uu_accuracy([1.0, 2.0], [0, 1], (0.8, 0.8), 0.5), "set_priors must differ"),
        (lambda: uu_accuracy([1.0, 2.0], [0, 1], (0.8, 0.2), 1.0), "target_prior must be"),
        (lambda: uu_auc([1.0, 2.0], [0, 1], (0.8, 0.2), confidence=95), "confidence must lie .* got 95"),
        (
            lambda: uu_cost([1.0, 2.0], [0, 1], (0.8, 0.2), 0.5, false_positive_cost=-1, false_negative_cost=1),
            "false_positive_cost must be a finite number of at least 0, got -1",
        ),
        (lambda: evaluate_labeled([1.0, 2.0], [1, 1]), "no negative row"),
        (lambda: evaluate_labeled([1.0, 2.0], [0, 0]), "no positive row"),
        (lambda: evaluate_labeled([1.0, 2.0], [1, 3]), "labels must be 1 and 0"),
        (lambda: evaluate_labeled([1.0], [1, 0]), "one value per row, got 1 and 2"),
    ],
)
def test_rejects_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("accuracy", "target_prior", "verdict"),
    [
        (Estimate(0.9, 0.02, (0.86, 0.94)), 0.5, Verdict.BETTER),
        (Estimate(0.9, 0.02, (0.86, 0.94)), 0.86, Verdict.UNCERTAIN),
        (Estimate(0.9, 0.02, (0.86, 0.94)), 0.1, Verdict.UNCERTAIN),
        (Estimate(0.9, 0.02, (0.86, 0.94)), 0.05, Verdict.WORSE),
        (Estimate(1.0, 0.02, (1.0, 1.0), unclipped=1.3), 0.5, Verdict.INCONSISTENT),
        (Estimate(0.0, 0.02, (0.0, 0.0), unclipped=-0.3), 0.5, Verdict.INCONSISTENT),
        (Estimate(1.0, 0.0, (1.0, 1.0)), 0.5, Verdict.BETTER),
        (Estimate(math.nan, math.nan, (math.nan, math.nan)), 0.5, Verdict.UNCERTAIN),
    ],
)
def test_verdict_compares_with_a_constant_prediction(accuracy, target_prior, verdict):
    rest = Estimate(0.5, 0.1, (0.3, 0.7))
    found = Evaluation(accuracy, rest, rest, rest, rest, (100, 100), labels_used=False)
    assert found.verdict(target_prior) is verdict
