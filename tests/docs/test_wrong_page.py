"""Check the claims of ``docs/what-can-go-wrong.md`` on smaller data, with the functions of its script."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uulearn import UUClassifier, exceptions, uu_risk
from uulearn.exceptions import ClosePriorsWarning, SuspiciousScoreWarning, UUWarning
from uulearn.metrics import uu_accuracy, uu_auc

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "what-can-go-wrong.md").read_text()


@pytest.fixture(scope="module")
def wrong():
    spec = importlib.util.spec_from_file_location("wrong", DOCS / "figures" / "wrong.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["wrong"] = module  # named tuples look up their module there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["wrong"]


# ------------------------------------------------------------------------------------------------------ the page itself


def test_page_shows_the_drawn_figures():
    drawn = re.findall(r'"(wrong-[\w-]+\.png)"', (DOCS / "figures" / "wrong.py").read_text())
    assert sorted(re.findall(r"images/(wrong-[\w-]+\.png)", PAGE)) == sorted(drawn)
    assert len(drawn) == 7


def test_anchors_match_headings():
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


def test_warnings_of_the_page_exist():
    named = set(re.findall(r"`(\w+(?:Warning|Error))`", PAGE))
    assert len(named) == 7
    assert all(hasattr(exceptions, name) for name in named)


# ------------------------------------------------------------------------------------------------------- its sections


def test_sections_1_and_6_negative_risk_and_optimistic_training_rows(wrong):
    runs = wrong.measure_overfitting(n=200, epochs=80, width=50)
    unbiased, corrected = runs["unbiased"], runs["leaky_relu"]
    assert unbiased.history[-1]["unbiased"] < -0.3 < corrected.history[-1]["unbiased"]
    true, kept = unbiased.history.column("test_accuracy"), unbiased.history.best_epoch
    assert true.index(max(true)) + 1 < unbiased.history.first_negative_epoch  # the test error turns first
    assert true[-1] < true[kept - 1] - 0.01
    assert true[-1] < corrected.history[-1]["test_accuracy"]
    assert np.mean(unbiased.on_held_out_rows) == pytest.approx(np.mean(true), abs=0.1)
    assert unbiased.on_training_rows[-1] > true[-1] + 0.1
    assert (
        unbiased.on_training_rows[-1] - true[-1]
        > corrected.on_training_rows[-1] - corrected.history[-1]["test_accuracy"]
    )


def test_section_2_only_labels_reveal_swapped_priors(wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UUWarning)
        (right_order, wrong_order), (X0, X1) = wrong.measure_order(n=400)
    assert abs(right_order.estimate - wrong_order.estimate) < 0.02
    assert right_order.true > 0.9
    assert right_order.true + wrong_order.true == pytest.approx(1, abs=0.02)
    assert wrong.measure_noticed(8, draws=8) == 1
    assert wrong.measure_noticed(2, draws=8) == 0
    with pytest.warns(SuspiciousScoreWarning):
        right_order.fitted.score(*wrong.together(X1, X0))


def test_section_3_too_close_priors_cost_accuracy_with_a_correction(wrong):
    errors, small = (-0.06, 0.0, 0.06), {"n": 3000, "seeds": 2}
    corrected = wrong.measure_wrong_priors((0.8, 0.2), errors=errors, **small)
    unbiased = wrong.measure_wrong_priors((0.8, 0.2), "unbiased", errors=errors, **small)
    close = wrong.measure_wrong_priors((0.6, 0.4), errors=errors, **small)
    assert corrected[0].true < corrected[1].true - 0.02
    assert unbiased[0].true > unbiased[1].true - 0.01
    assert abs(corrected[2].true - corrected[1].true) < 0.01
    # The same predictions, shown as ½ plus something divided by the distance of the shares.
    assert corrected[2].shown == pytest.approx(0.5 + (corrected[1].shown - 0.5) * 0.6 / 0.66, abs=0.01)
    assert close[1].shown - close[2].shown > 2 * (corrected[1].shown - corrected[2].shown)


def test_section_3_held_out_terms_reveal_wrong_priors(wrong):
    unbiased = [wrong.measure_held_out_term(error, "unbiased") for error in (0.0, -0.06)]
    assert unbiased[1] < -0.1 < 0.05 < unbiased[0]
    assert wrong.measure_held_out_term(-0.06, "leaky_relu") > -0.02


def test_section_4_close_priors_increase_the_spread(wrong):
    near, far = (wrong.measure_close_priors(gap, seeds=8, n=500) for gap in (0.1, 0.6))
    assert near.true.std() > 3 * far.true.std()
    assert (near.estimate - near.true).std() > 3 * (far.estimate - far.true).std()
    assert near.true.mean() < far.true.mean() - 0.05


@pytest.mark.parametrize(
    ("priors", "rows", "warned"), [((0.6, 0.4), 80, False), ((0.55, 0.45), 20, False), ((0.54, 0.45), 16, True)]
)
def test_section_4_warnings_about_close_priors(priors, rows, warned, wrong):
    X0, X1 = wrong.draw_files(np.random.default_rng(0), (0.9, 0.1), 1000)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        text = wrong.classifier(priors, **wrong.linear(epochs=1)).fit_sets(X0, X1).summary()
    assert any(warning.category is ClosePriorsWarning for warning in raised) == warned
    assert f"worth {rows:,} labeled" in text


shares = st.floats(0, 1)


@given(st.lists(st.tuples(shares, shares), min_size=2, max_size=6), shares, shares, st.randoms(use_true_random=False))
def test_section_5_priors_limit_the_auc_between_the_sets(classes, theta, theta_prime, random):
    """The limit is exact for any two classes on a few values and any score."""
    positive, negative = (np.array(column) + 1e-3 for column in zip(*classes, strict=True))
    positive, negative = positive / positive.sum(), negative / negative.sum()
    scores = np.array([random.randint(0, 3) for _ in classes])
    first, second = (share * positive + (1 - share) * negative for share in (theta, theta_prime))
    wins = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    auc, between = positive @ wins @ negative, first @ wins @ second
    assert between == pytest.approx(0.5 + (theta - theta_prime) * (auc - 0.5), abs=1e-12)
    assert abs(between - 0.5) <= abs(theta - theta_prime) / 2 + 1e-12


def test_section_5_separable_classes_reach_the_limit():
    sets = np.repeat([0, 1], 500)
    y = np.concatenate([np.arange(500) < 400, np.arange(500) < 100])
    assert uu_auc(y.astype(float), sets, (0.8, 0.2)).value == pytest.approx(1)


def test_section_5_leaking_column_lowers_accuracy_and_raises_the_estimate(wrong):
    without, with_column = (wrong.measure_given_away(strength, seeds=1, n=600) for strength in (0, 2))
    assert with_column.true < without.true - 0.1
    assert with_column.true_unbiased < with_column.true - 0.1
    assert with_column.estimate > 1.05 > without.estimate
    assert with_column.false_positive_rate < 0 < without.false_positive_rate
    assert with_column.auc_between > 0.95 > 0.81 > without.auc_between


def test_section_5_leakage_alarms(wrong):
    assert wrong.measure_alarm(0.0, pairs=25, n=500) == (0, 0)
    assert wrong.measure_alarm(0.0, pairs=25, n=500, shift=1.5) == (0, 0)  # classes at the limit
    by_auc, by_rates = wrong.measure_alarm(0.5, pairs=10, n=1000, shift=0.25)
    assert by_auc < 0.5 < by_rates
    assert wrong.measure_alarm(1.0, pairs=5, n=500) == (1, 1)


@pytest.mark.parametrize(
    ("shares", "impossible"),
    [((1.0, 0.5), True), ((0.5, 0.0), True), ((0.7, 0.3), False)],  # t above 1, f below 0, neither
)
def test_section_5_rates_outside_0_and_1_are_impossible(shares, impossible, wrong):
    scores = np.concatenate([np.arange(1000) < 1000 * share for share in shares]).astype(float)
    assert wrong.has_impossible_rate(scores, np.repeat([0, 1], 1000), (0.8, 0.2)) == impossible


def test_section_6_copies_in_held_out_rows(wrong):
    """Copies of held-out rows in the training rows make the estimate too optimistic."""
    found = wrong.measure_copies(distinct=150, seeds=3, epochs=100)
    flattery = found.split_by_row - found.true_split_by_row
    assert flattery > 0.02
    assert flattery > found.copies_together - found.true_copies_together


def test_section_7_noise_makes_terms_of_small_batches_negative(wrong):
    shares = [wrong.measure_noise((0.8, 0.2), size, draws=1000) for size in (20, 200, 2000)]
    assert shares[0] > shares[1] > shares[2]
    assert wrong.measure_noise((0.6, 0.4), 2000, draws=1000) > 2 * shares[2]
    rng, below, draws = np.random.default_rng(0), 0, 300  # again from rows, computed by the library
    for _ in range(draws):
        X, sets = wrong.together(*wrong.draw_files(rng, (0.8, 0.2), 100))
        scores = torch.from_numpy(2 * wrong.SHIFT * X.sum(1))
        below += float(uu_risk(scores, torch.from_numpy(sets), (0.8, 0.2), 0.5, loss="logistic").positive) < 0
    assert below / draws == pytest.approx(shares[1], abs=4 * (0.25 / draws) ** 0.5)


def test_section_7_corrections_lose_accuracy_in_small_batches(wrong):
    unbiased, leaky_relu, absolute = (wrong.measure_batches(method, 20, seeds=1) for method in wrong.METHODS)
    assert absolute.true < unbiased.true - 0.015
    assert leaky_relu.true < unbiased.true - 0.01
    assert leaky_relu.below_zero > 0.1
    assert leaky_relu.risk_term > 0.1
    assert wrong.measure_batches("leaky_relu", 500, seeds=1).true > leaky_relu.true + 0.01


def test_section_7_smaller_set_limits_accuracy(wrong):
    even, uneven, few = (wrong.measure_uneven(sizes, seeds=3) for sizes in ((1050, 1050), (2000, 100), (200, 200)))
    assert even - uneven > 0.015
    assert abs(uneven - few) < abs(uneven - even)


def test_section_8_best_of_many_is_overestimated(wrong):
    one, many = (wrong.measure_winner(candidates, (0.6, 0.4), draws=60) for candidates in (1, 50))
    assert abs(one.shown - one.true) < 0.02
    assert many.shown - many.true > 0.02
    assert many.fresh == pytest.approx(many.true, abs=0.015)
    assert many.true < many.best


def test_section_8_estimates_equal_uu_accuracy(wrong):
    X, sets = wrong.together(*wrong.draw_files(np.random.default_rng(0), (0.6, 0.4), 50))
    weights = wrong.draw_candidates(np.random.default_rng(1), 1)
    shares = (X @ weights > 0).reshape(2, 50).mean(1)
    value = uu_accuracy(X @ weights[:, 0], sets, (0.6, 0.4), 0.5).value
    assert 0.5 + (shares[0] - shares[1]) / 0.4 == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "said", "lowest", "highest"),
    [
        ("MLP", [], 0.9, 1),
        ("MLP, a column in money", [], 0, 0.8),
        ("linear, a column in money", ["OneSidedPredictionsWarning"], 0, 0.6),
        ("linear, sgd, squared loss, lr 3", ["NonFiniteRiskError", "SuspiciousScoreWarning"], 0, 0.4),
    ],
)
def test_section_9_results_of_unsuitable_settings(name, said, lowest, highest, wrong):
    ending = wrong.measure_ending(name)
    assert lowest < ending.true < highest
    assert ending.estimate == pytest.approx(ending.true, abs=0.04)
    assert ending.warned == said


def test_section_9_linear_model_needs_more_than_200_small_steps(wrong):
    assert wrong.measure_ending("linear, lr 0.03").true - wrong.measure_ending("linear").true > 0.02
    assert UUClassifier((0.8, 0.2)).batch_size == 3000
