"""Conversions of class priors against counted tables and by round trips; merging of bags."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uulearn.priors import (
    from_case_control,
    from_censoring,
    from_mixture_proportions,
    from_noise_rates,
    from_predictive_values,
    from_sensitivity,
    merge_bags,
    to_censoring,
    to_mixture_proportions,
    to_noise_rates,
    to_predictive_values,
    to_sensitivity,
)
from uulearn.risk import estimation_cost

fraction = st.floats(0.01, 0.99)
priors = st.tuples(fraction, fraction).filter(lambda pair: abs(pair[0] - pair[1]) > 1e-3)
counts = st.integers(1, 500)


@given(counts, counts, counts, counts)
def test_noise_rates_equal_a_counted_table(hits, missed, false_alarms, correct_rejections):
    """A table of true and noisy labels gives every quantity directly."""
    marked, unmarked = hits + false_alarms, missed + correct_rejections
    positive, negative = hits + missed, false_alarms + correct_rejections
    everything = positive + negative
    expected = hits / marked, missed / unmarked
    assume(abs(expected[0] - expected[1]) > 1e-4)
    rates = missed / positive, false_alarms / negative
    assert from_noise_rates(*rates, class_prior=positive / everything) == pytest.approx(expected)
    assert from_noise_rates(*rates, marked_fraction=marked / everything) == pytest.approx(expected, rel=1e-6)
    assert from_sensitivity(1 - rates[0], 1 - rates[1], positive / everything) == pytest.approx(expected)
    assert to_noise_rates(expected, marked / everything) == pytest.approx((*rates, positive / everything))
    assert from_predictive_values(hits / marked, correct_rejections / unmarked) == pytest.approx(expected)


@given(priors, fraction)
def test_noise_rates_round_trip(set_priors, marked):
    rates = to_noise_rates(set_priors, marked)
    given_positives = from_noise_rates(rates.rho_plus, rates.rho_minus, class_prior=rates.class_prior)
    given_marks = from_noise_rates(rates.rho_plus, rates.rho_minus, marked_fraction=marked)
    assert given_positives == pytest.approx(set_priors, abs=1e-9)
    assert given_marks == pytest.approx(set_priors, abs=1e-6)


@given(priors, fraction)
def test_sensitivity_and_specificity_round_trip(set_priors, flagged):
    assert from_sensitivity(*to_sensitivity(set_priors, flagged)) == pytest.approx(set_priors, abs=1e-9)


@given(priors)
def test_predictive_values_round_trip(set_priors):
    assert from_predictive_values(*to_predictive_values(set_priors)) == pytest.approx(set_priors)


@given(fraction, fraction)
def test_censoring_round_trip_preserves_the_number_of_positives(class_prior, frequency):
    labeled = class_prior * frequency
    set_priors = from_censoring(labeled, class_prior=class_prior)
    assert from_censoring(labeled, label_frequency=frequency) == pytest.approx(set_priors)
    assert to_censoring(set_priors, labeled) == pytest.approx((class_prior, frequency))
    assert labeled * 1 + (1 - labeled) * set_priors[1] == pytest.approx(class_prior)


@given(fraction, fraction)
def test_censored_labels_equal_noise_on_positives(class_prior, frequency):
    noisy = from_noise_rates(1 - frequency, 0.0, class_prior=class_prior)
    assert from_censoring(class_prior * frequency, class_prior=class_prior) == pytest.approx(noisy)


def test_case_control_is_the_limit_of_rare_labels():
    assert from_case_control(0.3) == (1.0, 0.3)
    assert from_censoring(1e-12, class_prior=0.3) == pytest.approx((1.0, 0.3))


@given(priors)
def test_mixture_proportions_round_trip(set_priors):
    ordered = max(set_priors), min(set_priors)
    assert from_mixture_proportions(*to_mixture_proportions(ordered)) == pytest.approx(ordered)


def test_mixture_proportions_equal_minima_of_density_ratios():
    """The classes share one of three cells; the ratio of the sets is lowest in a pure cell."""
    positive, negative = np.array([0.6, 0.4, 0.0]), np.array([0.0, 0.3, 0.7])
    higher, lower = (theta * positive + (1 - theta) * negative for theta in (0.7, 0.2))
    assert to_mixture_proportions((0.7, 0.2)) == pytest.approx(((higher / lower).min(), (lower / higher).min()))


@pytest.mark.parametrize(
    ("convert", "text"),
    [
        (
            lambda: from_noise_rates(0.4, 0.6, class_prior=0.5),
            r"rho_plus \+ rho_minus must not be 1, got 0\.4 \+ 0\.6",
        ),
        (lambda: from_noise_rates(0.1, 0.1), "pass exactly one of class_prior and marked_fraction"),
        (lambda: from_noise_rates(0.1, 0.1, class_prior=0.5, marked_fraction=0.5), "pass exactly one of"),
        (
            lambda: from_noise_rates(0.2, 0.1, marked_fraction=0.05),
            r"0\.05 is not possible .* between 0\.1 and 0\.8",
        ),
        (lambda: from_noise_rates(0.2, 0.1, marked_fraction=0.9), "is not possible"),
        (lambda: from_noise_rates(1.2, 0.1, class_prior=0.5), r"rho_plus must lie in \[0, 1\], got 1\.2"),
        (lambda: from_noise_rates(0.2, -0.1, class_prior=0.5), r"rho_minus must lie in \[0, 1\], got -0\.1"),
        (lambda: from_noise_rates(0.2, 0.1, class_prior=1.0), "class_prior must lie strictly between 0 and 1"),
        (lambda: to_noise_rates((0.8, 0.2), 0.0), "marked_fraction must lie strictly between"),
        (lambda: to_noise_rates((0.8, 0.8), 0.5), "set_priors must differ"),
        (lambda: from_sensitivity(0.3, 0.7, 0.5), r"sensitivity \+ specificity must not be 1"),
        (lambda: from_sensitivity(80, 0.7, 0.5), r"sensitivity must lie in \[0, 1\], got 80; .*80% as 0\.8"),
        (lambda: from_sensitivity(0.8, 0.7, 0), "prevalence must lie strictly between 0 and 1, got 0"),
        (lambda: to_sensitivity((0.8, 0.2), 1.0), "marked_fraction must lie strictly between"),
        (lambda: from_predictive_values(0.4, 0.6), "set_priors must differ"),
        (lambda: from_predictive_values(0.9, math.nan), "npv must lie in"),
        (lambda: from_predictive_values("high", 0.6), "precision must lie in .* got 'high'"),
        (lambda: from_case_control(1.0), "class_prior must lie strictly between"),
        (
            lambda: from_censoring(0.3, class_prior=0.2),
            r"at least labeled_fraction=0\.3 and below 1.*got 0\.2",
        ),
        (lambda: from_censoring(0.3, label_frequency=0.25), "below 1.*got 1.2"),
        (lambda: from_censoring(0.3, label_frequency=0), "no rows are labeled"),
        (lambda: from_censoring(0.3), "pass exactly one of class_prior"),
        (lambda: from_censoring(0.3, class_prior=0.5, label_frequency=0.6), "pass exactly one of class_prior"),
        (lambda: to_censoring((0.9, 0.2), 0.1), r"its class prior must be 1, got 0\.9"),
        (lambda: from_mixture_proportions(1.0, 0.2), "kappa_10=1 means that the sets are identical"),
        (lambda: from_mixture_proportions(0.5, 1.5), r"kappa_01 must lie in \[0, 1\]"),
        (lambda: to_mixture_proportions((0.2, 0.8)), "set 0 must have the higher prior"),
    ],
)
def test_rejects_impossible_values(convert, text):
    with pytest.raises(ValueError, match=text):
        convert()


# -------------------------------------------------------------------------------------------------------------- bags


def cost(assignment, proportions, sizes, pi):
    """Return the standard error of a split, computed from the definition."""
    rows, priors_found = [], []
    for which in (0, 1):
        mine = assignment == which
        rows.append(int(sizes[mine].sum()))
        priors_found.append(float((proportions * sizes)[mine].sum() / rows[-1]) if rows[-1] else 0.5)
    if min(rows) == 0 or priors_found[0] - priors_found[1] < 1e-6:
        return math.inf
    return estimation_cost(priors_found, pi, tuple(rows)).standard_error


bags = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 300)), min_size=2, max_size=6)


@given(bags, st.sampled_from([0.5, 0.1, 0.9]))
def test_merging_is_optimal(bags, pi):
    """Compare with every assignment of bags to set 0, set 1 or neither."""
    proportions, sizes = (np.array(values) for values in zip(*bags, strict=True))
    assume(np.ptp(proportions) > 1e-3)
    merged = merge_bags(proportions, sizes, target_prior=pi)
    every = [np.array(way) for way in itertools.product((0, 1, -1), repeat=len(bags))]
    best = min(cost(way, proportions, sizes, pi) for way in every)
    assert merged.standard_error == pytest.approx(best, rel=1e-6)
    assert cost(merged.assignment, proportions, sizes, pi) == pytest.approx(merged.standard_error, rel=1e-6)


def test_merged_bags_give_sizes_priors_and_sets():
    merged = merge_bags([0.1, 0.5, 0.95, 0.9], [100, 20_000, 60, 40])
    assert merged.assignment.tolist() == [1, -1, 0, 0]  # the large bag in the middle would bring the priors closer
    assert merged.sizes == (100, 100)
    assert merged.set_priors == pytest.approx((0.93, 0.1))
    assert merged.sets([0, 0, 2, 1, 3]).tolist() == [1, 1, 0, -1, 0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0.5], [10]), "at least two bags"),
        (([0.5, 0.2], [10]), r"got arrays of shape \(2,\) and \(1,\)"),
        (([0.5, 1.2], [10, 10]), r"proportions must lie in \[0, 1\], got 1\.2"),
        (([0.5, math.nan], [10, 10]), "got nan"),
        (([0.5, 0.2], [10, 0]), r"positive integers, got \[10, 0\]"),
        (([0.5, 0.2], [10, 2.5]), "sizes must be positive integers"),
        (([0.5, 0.5], [10, 10]), r"same class prior \(0\.5\)"),
    ],
)
def test_rejects_bad_bags(arguments, text):
    with pytest.raises(ValueError, match=text):
        merge_bags(*arguments)


def test_rejects_bad_target_prior():
    with pytest.raises(ValueError, match="target_prior must be"):
        merge_bags([0.5, 0.2], [10, 10], target_prior=1.0)
