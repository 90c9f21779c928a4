"""What ``docs/what-can-go-wrong.md`` claims, on smaller data; `benchmarks/wrong.py` has the experiments."""

import importlib.util
import json
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
from uulearn.estimator import resolve_defaults
from uulearn.exceptions import ClosePriorsWarning, SuspiciousScoreWarning, UUWarning
from uulearn.metrics import uu_accuracy, uu_auc

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "what-can-go-wrong.md").read_text(encoding="utf-8")
STUDY = (ROOT / "docs" / "studies" / "what-can-go-wrong.md").read_text(encoding="utf-8")


def load_module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # named tuples look up their module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wrong():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield load_module("wrong", ROOT / "benchmarks" / "wrong.py")
    sys.path.remove(str(ROOT / "benchmarks"))
    del sys.modules["wrong"]


@pytest.fixture(scope="module")
def figures(wrong):
    yield load_module("wrong_figures", ROOT / "docs" / "figures" / "wrong.py")
    del sys.modules["wrong_figures"]


# ------------------------------------------------------------------------------------------------------------ the pages


def test_the_guide_shows_every_figure(figures):
    assert set(re.findall(r"images/(wrong-[\w-]+\.png)", GUIDE)) == set(figures.FIGURES)
    assert all((ROOT / "docs" / "images" / name).is_file() for name in figures.FIGURES)


def test_figures_are_drawn_from_the_record(figures, tmp_path):
    figures.main(tmp_path)
    drawn = {path.name: path.stat().st_size for path in tmp_path.glob("*.png")}
    assert set(drawn) == set(figures.FIGURES)
    assert min(drawn.values()) > 10_000


@pytest.mark.parametrize("page", [GUIDE, STUDY], ids=["guide", "study"])
def test_anchors_lead_to_headings(page):
    def anchors(text):
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors(page)
    assert set(re.findall(r"studies/what-can-go-wrong\.md#([^)]+)\)", page)) <= anchors(STUDY)


def test_messages_of_the_guide_are_categories_of_uulearn():
    named = set(re.findall(r"`(\w+(?:Warning|Error))`", GUIDE))
    assert named >= {"BeyondPriorsWarning", "SwappedPriorsWarning", "OneSidedPredictionsWarning"}
    assert all(hasattr(exceptions, name) for name in named)


def test_the_record_has_the_configuration_of_the_script(wrong):
    record = json.loads((ROOT / "benchmarks" / "results" / "wrong.json").read_text(encoding="utf-8"))
    expected = {"shift": wrong.SHIFT, "columns": wrong.COLUMNS, "target_prior": wrong.TARGET}
    assert record["configuration"] == expected
    assert list(record["results"]["endings"]) == list(wrong.ENDINGS)
    assert list(record["results"]["batches"]["abs"]) == [str(size) for size in wrong.BATCHES]


# ------------------------------------------------------------------------------------------------------- its sections


def test_1_and_6_the_risk_becomes_negative_and_training_rows_are_optimistic(wrong):
    found = wrong.measure_overfitting(n=200, epochs=80, width=50)
    unbiased, corrected = found["unbiased"], found["leaky_relu"]
    assert unbiased["risk"][-1] < -0.3 < corrected["risk"][-1]
    true, best = unbiased["true"], unbiased["best_epoch"]
    assert true.index(max(true)) + 1 < unbiased["first_negative_epoch"]  # the accuracy falls before
    assert true[-1] < true[best - 1] - 0.01
    assert true[-1] < corrected["true"][-1]
    assert np.mean(unbiased["held_out"]) == pytest.approx(np.mean(true), abs=0.1)
    assert unbiased["training_rows"][-1] > true[-1] + 0.1
    assert unbiased["training_rows"][-1] - true[-1] > corrected["training_rows"][-1] - corrected["true"][-1]


def test_2_only_labels_show_swapped_priors(wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UUWarning)
        correct, swapped = wrong.measure_order(n=400)
    assert abs(correct["estimate"] - swapped["estimate"]) < 0.02
    assert correct["true"] > 0.9
    assert correct["true"] + swapped["true"] == pytest.approx(1, abs=0.02)
    assert wrong.measure_detected_swaps(8, draws=8) == 1
    assert wrong.measure_detected_swaps(2, draws=8) == 0


def test_2_exchanged_files_are_detected_by_score(wrong):
    X0, X1 = wrong.draw_plane(400)
    fitted = wrong.classifier((0.8, 0.2), **wrong.linear()).fit_sets(X0, X1)
    with pytest.warns(SuspiciousScoreWarning):
        fitted.score(*wrong.concatenate(X1, X0))


def test_3_priors_assumed_too_close_cost_accuracy_with_a_correction(wrong):
    errors, small = (-0.06, 0.0, 0.06), {"n": 3000, "seeds": 2}
    corrected = wrong.measure_wrong_priors((0.8, 0.2), errors=errors, **small)
    unbiased = wrong.measure_wrong_priors((0.8, 0.2), "unbiased", errors=errors, **small)
    close = wrong.measure_wrong_priors((0.6, 0.4), errors=errors, **small)
    assert corrected[0]["true"] < corrected[1]["true"] - 0.02
    assert unbiased[0]["true"] > unbiased[1]["true"] - 0.01
    assert abs(corrected[2]["true"] - corrected[1]["true"]) < 0.01
    # The same predictions: ½ plus a difference, divided by another distance of the priors.
    expected = 0.5 + (corrected[1]["estimate"] - 0.5) * 0.6 / 0.66
    assert corrected[2]["estimate"] == pytest.approx(expected, abs=0.01)
    lost = corrected[1]["estimate"] - corrected[2]["estimate"]
    assert close[1]["estimate"] - close[2]["estimate"] > 2 * lost


def test_3_held_out_terms_reveal_wrong_priors_without_a_correction(wrong):
    unbiased = [wrong.measure_held_out_term(error, "unbiased") for error in (0.0, -0.06)]
    assert unbiased[1] < -0.1 < 0.05 < unbiased[0]
    assert wrong.measure_held_out_term(-0.06, "leaky_relu") > -0.02


def test_4_results_with_close_priors_vary(wrong):
    near, far = (wrong.measure_close_priors(gap, seeds=8, n=500) for gap in (0.1, 0.6))
    assert np.std(near["true"]) > 3 * np.std(far["true"])
    errors = [np.subtract(own["estimate"], own["true"]) for own in (near, far)]
    assert np.std(errors[0]) > 3 * np.std(errors[1])
    assert np.mean(near["true"]) < np.mean(far["true"]) - 0.05


@pytest.mark.parametrize(
    ("priors", "rows", "warned"), [((0.6, 0.4), 80, False), ((0.55, 0.45), 20, False), ((0.54, 0.45), 16, True)]
)
def test_4_summary_and_warning_of_close_priors(priors, rows, warned, wrong):
    X0, X1 = wrong.draw_files(np.random.default_rng(0), (0.9, 0.1), 1000)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        text = wrong.classifier(priors, **wrong.linear(epochs=1)).fit_sets(X0, X1).summary()
    assert any(warning.category is ClosePriorsWarning for warning in raised) == warned
    assert f"worth {rows:,} labeled" in text


fractions = st.floats(0, 1)


@given(
    st.lists(st.tuples(fractions, fractions), min_size=2, max_size=6),
    fractions,
    fractions,
    st.randoms(use_true_random=False),
)
def test_5_no_score_separates_the_files_better_than_the_priors_allow(classes, theta, theta_prime, random):
    """Exactly, for any two classes on a few values and any score of these."""
    positive, negative = (np.array(column) + 1e-3 for column in zip(*classes, strict=True))
    positive, negative = positive / positive.sum(), negative / negative.sum()
    scores = np.array([random.randint(0, 3) for _ in classes])
    first, second = (prior * positive + (1 - prior) * negative for prior in (theta, theta_prime))
    wins = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    auc, between = positive @ wins @ negative, first @ wins @ second
    assert between == pytest.approx(0.5 + (theta - theta_prime) * (auc - 0.5), abs=1e-12)
    assert abs(between - 0.5) <= abs(theta - theta_prime) / 2 + 1e-12


def test_5_separable_classes_reach_the_limit():
    sets = np.repeat([0, 1], 500)
    y = np.concatenate([np.arange(500) < 400, np.arange(500) < 100])
    assert uu_auc(y.astype(float), sets, (0.8, 0.2)).value == pytest.approx(1)


def test_5_a_leaking_column_lowers_the_accuracy_and_raises_the_estimate(wrong):
    without, with_column = (wrong.measure_leak(strength, seeds=1, n=600) for strength in (0, 2))
    assert with_column["true"] < without["true"] - 0.1
    assert with_column["true_unbiased"] < with_column["true"] - 0.1
    assert with_column["estimate"] > 1.05 > without["estimate"]
    assert with_column["auc_between_files"] > 0.95 > 0.81 > without["auc_between_files"]


def test_5_alarms(wrong):
    assert wrong.measure_alarms(0.0, pairs=25, n=500) == 0
    assert wrong.measure_alarms(0.0, pairs=25, n=500, shift=1.5) == 0  # classes at the limit
    assert wrong.measure_alarms(1.0, pairs=5, n=500) == 1
    assert wrong.measure_alarms(0.25, pairs=10, n=500, shift=0.25) < 0.5  # hard classes hide a weak leak


def test_5_uulearn_fit_raises_beyond_priors_warning(wrong):
    found = wrong.measure_command(0.5, "--epochs", "60", "--n-estimators", "2")
    assert found["exit_code"] == 0
    assert [warning["category"] for warning in found["warnings"]] == ["BeyondPriorsWarning"]
    refused = wrong.measure_command(1.0)
    assert refused["exit_code"] == 2
    assert refused["error"].startswith("Column 'scanner' differs between the files by more than the class priors allow")
    assert refused["error"].endswith(
        "Check the class priors first. If they are right, this is a leaking column: leave it out (--drop scanner), or "
        "keep it (--allow-leakage)."
    )


def test_6_copies_among_training_and_held_out_rows_are_optimistic(wrong):
    found = wrong.measure_copies(distinct=150, seeds=3, epochs=100)
    optimism = found["split_by_row"] - found["true_split_by_row"]
    assert optimism > 0.02
    assert optimism > found["copies_together"] - found["true_copies_together"]


def test_7_noise_makes_terms_of_small_batches_negative(wrong):
    found = [wrong.measure_noise((0.8, 0.2), size, draws=1000) for size in (20, 200, 2000)]
    assert found[0] > found[1] > found[2]
    assert wrong.measure_noise((0.6, 0.4), 2000, draws=1000) > 2 * found[2]
    rng, below, draws = np.random.default_rng(0), 0, 300  # the same from rows, by the library
    for _ in range(draws):
        X, sets = wrong.concatenate(*wrong.draw_files(rng, (0.8, 0.2), 100))
        scores = torch.from_numpy(2 * wrong.SHIFT * X.sum(1))
        below += float(uu_risk(scores, torch.from_numpy(sets), (0.8, 0.2), 0.5, loss="logistic").positive) < 0
    assert below / draws == pytest.approx(found[1], abs=4 * (0.25 / draws) ** 0.5)


def test_7_corrections_lose_in_small_batches(wrong):
    unbiased, leaky_relu, absolute = (wrong.measure_batches(method, 20, seeds=1) for method in wrong.METHODS)
    assert absolute["true"] < unbiased["true"] - 0.015
    assert leaky_relu["true"] < unbiased["true"] - 0.01
    assert leaky_relu["below_zero"] > 0.1
    assert leaky_relu["risk_term"] > 0.1
    assert wrong.measure_batches("leaky_relu", 500, seeds=1)["true"] > leaky_relu["true"] + 0.01


def test_7_the_smaller_file_limits_the_accuracy(wrong):
    even, uneven, few = (wrong.measure_sizes(sizes, seeds=3) for sizes in ((1050, 1050), (2000, 100), (200, 200)))
    assert even - uneven > 0.015
    assert abs(uneven - few) < abs(uneven - even)


def test_8_the_estimate_of_the_best_of_many_is_too_high(wrong):
    one, many = (wrong.measure_best_of(candidates, (0.6, 0.4), draws=60) for candidates in (1, 50))
    assert abs(one["estimate"] - one["true"]) < 0.02
    assert many["estimate"] - many["true"] > 0.02
    assert many["fresh_rows"] == pytest.approx(many["true"], abs=0.015)
    assert many["true"] < many["best"]


def test_8_the_estimate_of_all_candidates_at_once_is_uu_accuracy(wrong):
    X, sets = wrong.concatenate(*wrong.draw_files(np.random.default_rng(0), (0.6, 0.4), 50))
    weights = wrong.draw_candidates(np.random.default_rng(1), 1)
    positive = (X @ weights > 0).reshape(2, 50).mean(1)
    value = uu_accuracy(X @ weights[:, 0], sets, (0.6, 0.4), 0.5).value
    assert 0.5 + (positive[0] - positive[1]) / 0.4 == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "messages", "lowest", "highest"),
    [
        ("MLP", [], 0.9, 1),
        ("MLP, one column in money", [], 0, 0.8),
        ("linear model, one column in money", ["OneSidedPredictionsWarning"], 0, 0.6),
        ("linear model, SGD, squared loss, `lr=3`", ["NonFiniteRiskError", "SuspiciousScoreWarning"], 0, 0.4),
    ],
)
def test_9_how_runs_end(name, messages, lowest, highest, wrong):
    ending = wrong.measure_ending(name)
    assert lowest < ending["true"] < highest
    assert ending["estimate"] == pytest.approx(ending["true"], abs=0.04)
    assert ending["messages"] == messages


def test_9_a_linear_model_needs_more_than_200_small_steps(wrong):
    fast, slow = (wrong.measure_ending(f"linear model, `lr={lr}`")["true"] for lr in ("0.03", "0.001"))
    assert fast - slow > 0.02
    assert resolve_defaults(UUClassifier((0.8, 0.2)).get_params(), (300, 300))["batch_size"] == 3000
