"""The effect of wrong priors on classifier and estimate; batched runs equal runs trained one by one."""

import dataclasses
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from helpers.plain import plain_classifier
from uulearn.data import DenseRows, TwoSets, hold_out
from uulearn.estimator import run_plan
from uulearn.estimator.learners import NetworkLearner
from uulearn.estimator.new_rows import NOT_COMPUTED
from uulearn.exceptions import (
    ClosePriorsWarning,
    IndistinguishableSetsWarning,
    NonFiniteRiskError,
    OneSidedPredictionsWarning,
    SwappedPriorsWarning,
    TimeBudgetError,
)
from uulearn.metrics import Estimate, uu_accuracy
from uulearn.risk.coefficients import check_set_priors, check_target_prior
from uulearn.selection import Sensitivity, SensitivityRow, UUScorer, prior_sensitivity, sensitivity
from uulearn.selection.sensitivity import Assumption, Skipped, alter_priors, check_errors, order_by_information
from uulearn.theory import prior_error_effect
from uulearn.training import History

GUESS = Assumption("baseline", 0.0, (0.8, 0.2), 0.5)


def draw(n, priors, seed=0, shift=1.0, columns=2):
    """Draw rows of both sets in random order, the sets, and the hidden labels."""
    rng = np.random.default_rng(seed)
    sets = rng.permutation(np.repeat([0, 1], n))
    y = (rng.random(len(sets)) < np.where(sets == 0, *priors)).astype(int)
    return rng.normal(size=(len(sets), columns)) + shift * (2 * y[:, None] - 1), sets, y


def linear(set_priors=(0.8, 0.2), target_prior=0.5, **changes):
    settings = {"model": "linear", "lr": 0.05, "epochs": 20, "random_state": 0, "progress": False}
    return plain_classifier(set_priors, target_prior, **settings | changes)


def mlp(**changes):
    settings = {"model": "mlp", "model_params": {"hidden": (6,)}, "epochs": 8, "batch_size": 120}
    return linear(**settings | changes)


class Plain(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.layer = nn.Linear(n_features, 1)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture(scope="module")
def data():
    return draw((180, 220), (0.8, 0.2))


@pytest.fixture
def scored(monkeypatch):
    """Record the scores of every run of the latest call, by assumption."""
    seen = {}
    evaluated = sensitivity._evaluate

    def spy(results, study):
        seen.clear()
        seen.update(results)
        return evaluated(results, study)

    monkeypatch.setattr(sensitivity, "_evaluate", spy)
    return seen


def held_out_of(X, sets, fraction, seed=0):
    """Return the row numbers that a classifier holds out."""
    rows = TwoSets.from_membership(DenseRows(torch.from_numpy(X)), torch.from_numpy(sets))
    return torch.cat(hold_out(rows, fraction, seed)[1].index).numpy()


# ------------------------------------------------------------------------------------------------------ one stack


@pytest.mark.parametrize(
    "classifier",
    [
        linear(),
        linear(calibrated=True, loss="sigmoid", validation_fraction=0.3),
        mlp(method="abs"),
        mlp(early_stopping=True, smoothing=2, patience=3, ema=0.8, l2=1e-3),
    ],
    ids=["linear", "calibrated", "mlp", "best epoch"],
)
def test_batched_runs_equal_runs_one_by_one(classifier, data, scored, monkeypatch):
    X, sets, y = data
    arguments = {"errors": (-0.1, 0.1), "test_data": (X[::3], y[::3])}
    monkeypatch.setattr(sensitivity, "is_faster_together", lambda _: True)
    together = prior_sensitivity(classifier, X, sets, **arguments)
    stacked = dict(scored)
    monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: False)
    apart = prior_sensitivity(classifier, X, sets, **arguments)
    assert (together.batched, apart.batched) == (True, False)
    assert list(stacked) == list(scored)
    for assumption, one in scored.items():
        assert one.rows.dtype == stacked[assumption].rows.dtype == np.float32
        np.testing.assert_allclose(one.rows, stacked[assumption].rows, rtol=1e-3, atol=2e-3)
        np.testing.assert_allclose(one.test, stacked[assumption].test, rtol=1e-3, atol=2e-3)
    assert together.seed == apart.seed
    assert together.held_out_sizes == apart.held_out_sizes
    for one, other in zip(together.rows, apart.rows, strict=True):
        assert one.assumption == other.assumption
        assert one.shown.value == pytest.approx(other.shown.value, abs=0.03)  # one or two rows are at the threshold
        assert one.true.value == pytest.approx(other.true.value, abs=0.02)
    assert len({round(float(s.rows.sum()), 3) for s in stacked.values()}) == len(stacked)  # no two runs are the same


@pytest.mark.parametrize(("classifier", "batched"), [(linear(), True), (mlp(), False)], ids=["linear", "mlp"])
def test_only_linear_models_are_trained_together_on_a_cpu(classifier, batched, data):
    X, sets, _ = data
    assert prior_sensitivity(classifier, X, sets, errors=[0.1]).batched is batched


@pytest.mark.parametrize("changes", [{"calibrated": True}, {"early_stopping": True, "patience": 2}, {"method": "relu"}])
def test_baseline_equals_fitted_classifier(changes, data, scored):
    X, sets, y = data
    classifier = linear(validation_fraction=0.25, **changes)
    found = prior_sensitivity(classifier, X, sets, errors=[0.05], test_data=(X[:50], y[:50]))
    fitted = linear(validation_fraction=0.25, **changes).fit(X, sets)
    held_out = held_out_of(X, sets, 0.25)
    assert found.batched
    assert found.held_out_sizes == fitted.held_out_sizes_ == (45, 55)
    np.testing.assert_allclose(scored[GUESS].rows, fitted.decision_function(X), rtol=1e-3, atol=1e-3)
    expected = fitted.evaluate(X[held_out], sets=sets[held_out]).accuracy
    row = found.baseline
    assert row.shown == row.if_guess_right == row.not_retrained
    assert row.shown.value == pytest.approx(expected.value, abs=1e-6)
    assert row.shown.interval == pytest.approx(expected.interval, abs=1e-6)
    assert row.true.value == pytest.approx(fitted.evaluate(X[:50], labels=y[:50]).accuracy.value)
    assert (row.differing, row.gain.value, row.true_gain.value) == (0, 0, 0)


def test_every_run_equals_classifier_with_changed_priors(data, scored):
    X, sets, _ = data
    found = prior_sensitivity(linear(validation_fraction=0.25), X, sets, errors=[0.05])
    held_out = held_out_of(X, sets, 0.25)
    usual = scored[GUESS].rows[held_out] > 0
    expected = [((0.85, 0.2), 0.5), ((0.8, 0.25), 0.5), ((0.8, 0.2), 0.55)]
    assert [row.assumption[2:] for row in found.rows[1:]] == expected
    for row, (priors, pi) in zip(found.rows[1:], expected, strict=True):
        fitted = linear(priors, pi, validation_fraction=0.25).fit(X, sets)
        scores = fitted.decision_function(X[held_out])
        np.testing.assert_allclose(scored[row.assumption].rows[held_out], scores, rtol=1e-3, atol=1e-3)
        assert row.shown.unclipped == pytest.approx(UUScorer()(fitted, X[held_out], sets[held_out]), abs=1e-6)
        guessed = uu_accuracy(scores, sets[held_out], (0.8, 0.2), 0.5)
        assert row.if_guess_right == guessed
        assert row.not_retrained == uu_accuracy(usual - 0.5, sets[held_out], priors, pi)
        assert row.gain.unclipped == pytest.approx(guessed.unclipped - found.baseline.shown.unclipped)
        assert row.differing == ((scores > 0) != usual).mean()


def test_runs_that_cannot_be_batched_are_trained_one_by_one(data):
    X, sets, y = data
    usual = prior_sensitivity(linear(), X, sets, errors=[0.1], test_data=(X, y))
    as_sparse = prior_sensitivity(
        linear(), sparse.csr_matrix(X), sets, errors=[0.1], test_data=(sparse.csr_matrix(X), y)
    )
    own = prior_sensitivity(linear(model=Plain), torch.from_numpy(X), sets, errors=[0.1])
    models = prior_sensitivity(linear(n_estimators=2), X, sets, errors=[0.1])
    assert [found.batched for found in (usual, as_sparse, own, models)] == [True, False, False, False]
    assert {found.held_out_sizes for found in (usual, as_sparse, own, models)} == {(36, 44)}
    assert [row.true.value for row in as_sparse.rows] == pytest.approx([row.true.value for row in usual.rows], abs=0.01)
    assert all(row.if_guess_right.value > 0.7 for found in (own, models) for row in found.rows)


def test_ensembles_are_evaluated_on_held_out_rows(data, scored):
    X, sets, _ = data
    prior_sensitivity(linear(n_estimators=3, validation_fraction=0.25), X, sets, errors=[0.1])
    held_out = held_out_of(X, sets, 0.25)
    kept = np.setdiff1d(np.arange(len(X)), held_out)
    by_set = np.concatenate([kept[sets[kept] == which] for which in (0, 1)])
    fitted = linear(n_estimators=3).fit(X[by_set], sets[by_set])
    np.testing.assert_allclose(scored[GUESS].rows, fitted.decision_function(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stacked", [True, False])
def test_no_run_trains_on_held_out_rows(stacked, data, scored, monkeypatch):
    X, sets, _ = data
    monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: stacked)
    prior_sensitivity(linear(), X, sets, errors=[0.1])
    before = {assumption: one.rows for assumption, one in scored.items()}
    held_out = held_out_of(X, sets, 0.2)
    kept = np.setdiff1d(np.arange(len(X)), held_out)
    changed = X.copy()
    changed[held_out] *= -3
    place = np.concatenate([[0], np.cumsum(sets)[:-1]])  # number of earlier rows of set 1
    place = np.where(sets == 1, place, np.arange(len(sets)) - place)
    choice = [[place[part][sets[part] == which] for which in (0, 1)] for part in (kept, held_out)]
    monkeypatch.setattr(sensitivity, "hold_out", lambda rows, *_: [rows.pick(*parts) for parts in choice])
    prior_sensitivity(linear(), changed, sets, errors=[0.1])
    for assumption, one in scored.items():
        np.testing.assert_allclose(one.rows[kept], before[assumption][kept], rtol=1e-4, atol=1e-4)
        assert (one.rows[held_out] != before[assumption][held_out]).all()


# ---------------------------------------------------------------------------------------------- the classifier stays


def test_classifier_is_not_changed(data, tmp_path):
    X, sets, _ = data
    state = np.random.RandomState(7)
    classifier = linear(random_state=state, checkpoint_dir=tmp_path / "kept", epochs=3)
    before = dict(classifier.get_params()), state.get_state()[1].copy()
    found = prior_sensitivity(classifier, X, sets, errors=[0.1])
    assert classifier.get_params() == before[0]
    assert (state.get_state()[1] == before[1]).all()
    assert not hasattr(classifier, "model_")
    assert not (tmp_path / "kept").exists()
    assert found.seed == np.random.RandomState(7).randint(2**31 - 1)


def test_fitted_classifier_is_unchanged_and_its_seed_is_used(data, scored):
    X, sets, _ = data
    classifier = linear(random_state=None, validation_fraction=0.25).fit(X, sets)
    model, scores = classifier.model_, classifier.decision_function(X)
    found = prior_sensitivity(classifier, X, sets, errors=[0.1])
    assert classifier.model_ is model
    assert (classifier.decision_function(X) == scores).all()
    assert found.seed == classifier.seed_
    np.testing.assert_allclose(scored[GUESS].rows, scores, rtol=1e-3, atol=1e-3)
    assert prior_sensitivity(classifier.set_params(random_state=3), X, sets, errors=[0.1]).seed == 3


def test_frames_and_tensors_are_read_like_arrays(data):
    X, sets, y = data
    plain = linear().set_params(encoder=None)
    as_arrays = prior_sensitivity(plain, X, sets, errors=[0.1], test_data=(X[:60], y[:60]))
    frame = pd.DataFrame(X, columns=["a", "b"])
    as_frames = prior_sensitivity(plain, frame, pd.Series(sets), errors=[0.1], test_data=(frame[:60], y[:60]))
    labels = torch.from_numpy(2 * y[:60] - 1)
    tensors = torch.from_numpy(X), torch.from_numpy(sets)
    as_tensors = prior_sensitivity(linear(), *tensors, errors=[0.1], test_data=(tensors[0][:60], labels))
    assert as_arrays == as_frames == as_tensors


# ------------------------------------------------------------------------------------------------ what is assumed


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0.01, 0.99),
    st.lists(st.floats(-0.4, 0.4).filter(lambda e: abs(e) > 1e-3), min_size=1, max_size=5, unique=True),
)
def test_one_prior_is_changed_at_a_time_and_stays_valid(theta, theta_prime, pi, errors):
    if abs(theta - theta_prime) < 1e-3:
        return
    guess = Assumption("baseline", 0.0, (theta, theta_prime), pi)
    assumed, skipped = alter_priors(guess, [*errors, 1e-4 if pi < 0.5 else -1e-4])  # one change of π is possible
    assert assumed[0] == guess
    assert len(assumed) - 1 + len(skipped) == 3 * len(errors) + 3
    for altered in assumed[1:]:
        assert check_set_priors(altered.set_priors) == altered.set_priors
        assert check_target_prior(altered.target_prior) == altered.target_prior
        assert (altered.set_priors[0] > altered.set_priors[1]) == (theta > theta_prime)
        differences = np.subtract([*altered.set_priors, altered.target_prior], [theta, theta_prime, pi])
        place = ["theta", "theta_prime", "pi"].index(altered.parameter)
        assert differences == pytest.approx(altered.error * np.eye(3)[place], abs=1e-9)
    for altered, reason in skipped:
        (first, second), share = altered.set_priors, altered.target_prior
        possible = 0 <= first <= 1 and 0 <= second <= 1 and 0 < share < 1
        assert not possible or (first - second) * (theta - theta_prime) < 1e-5
        assert reason


def test_skipped_changes_have_a_reason(data):
    X, sets, _ = data
    found = prior_sensitivity(linear((0.95, 0.8), 0.9, epochs=2), X, sets, errors=(0.1, -0.16, 0.05))
    text = str(found)
    names = ["θ + 0.05", "θ′ − 0.16", "θ′ + 0.05", "θ′ + 0.1", "π − 0.16", "π + 0.05"]
    assert [row.assumption.name for row in found.rows[1:]] == names
    assert found.along("theta")[-1].assumption.set_priors == (1.0, 0.8)
    assert "skipped: θ − 0.16, as set 0 would no longer have the higher prior" in text
    assert "skipped: θ + 0.1, as 1.05 is not between 0 and 1" in text
    assert "skipped: π + 0.1, as π = 1 is not strictly between 0 and 1" in text
    assert text.count("skipped:") == len(found.skipped) == 3


def test_skips_changes_if_set_1_has_the_higher_prior():
    assumed, skipped = alter_priors(Assumption("baseline", 0.0, (0.1, 0.15), 0.5), (-0.12, 0.05))
    assert [altered.name for altered in assumed[1:]] == ["θ′ + 0.05", "π − 0.12", "π + 0.05"]
    assert [reason for _, reason in skipped] == [
        "-0.02 is not between 0 and 1",
        "set 1 would no longer have the higher prior",
        "set 1 would no longer have the higher prior",
    ]


@pytest.mark.parametrize("bad", [0.0, 1.0, -1.5, math.nan, math.inf, "0.1", None, True])
def test_rejects_bad_errors(bad, data):
    X, sets, _ = data
    with pytest.raises(ValueError, match="errors must be numbers between -1 and 1 other than 0, got"):
        prior_sensitivity(linear(), X, sets, errors=(0.05, bad))


def test_rejects_other_bad_input(data):
    X, sets, y = data
    for bad in ((), [0.1, 0.1]):
        with pytest.raises(ValueError, match="errors must contain at least one number and no duplicates"):
            prior_sensitivity(linear(), X, sets, errors=bad)
    with pytest.raises(ValueError, match="got 'much'"):
        check_errors("much")
    assert check_errors(np.array([0.1, -0.1])) == [-0.1, 0.1]
    with pytest.raises(ValueError, match=r"errors=\(0.95,\) give only impossible priors \(θ \+ 0.95: 1.75 is not be"):
        prior_sensitivity(linear(), X, sets, errors=(0.95,))
    with pytest.raises(TypeError, match="must be a UUClassifier, got Pipeline; for a pipeline, pass its last step"):
        prior_sensitivity(make_pipeline(StandardScaler(), linear()), X, sets)
    with pytest.raises(ValueError, match="all rows of test_data are positive"):
        prior_sensitivity(linear(), X, sets, test_data=(X[y == 1], y[y == 1]))
    with pytest.raises(ValueError, match="sets must be 0 or 1"):
        prior_sensitivity(linear(), X, 2 * sets)
    with pytest.raises(ValueError, match="epochs must be"):
        prior_sensitivity(linear(epochs=0), X, sets)
    with pytest.raises(ValueError, match="self_training_rounds=1 needs out-of-fold predictions"):
        prior_sensitivity(linear(self_training_rounds=1), X, sets)
    with pytest.raises(ValueError, match="set 0 is empty"):
        prior_sensitivity(linear(), X[sets == 1], sets[sets == 1])
    with pytest.raises(ValueError, match="parameter must be one of 'theta', 'theta_prime', 'pi', got 'θ'"):
        made().along("θ")


# -------------------------------------------------------------------------------------------------------- labels


def test_labels_are_used_for_true_accuracy_only(data):
    X, sets, y = data
    without = prior_sensitivity(linear(), X, sets, errors=[-0.1, 0.1])
    right = prior_sensitivity(linear(), X, sets, errors=[-0.1, 0.1], test_data=(X, y))
    with pytest.warns(SwappedPriorsWarning):
        wrong = prior_sensitivity(linear(), X, sets, errors=[-0.1, 0.1], test_data=(X, 1 - y))
    assert [found.labels_used for found in (without, right, wrong)] == [False, True, True]
    for blind, one, other in zip(without.rows, right.rows, wrong.rows, strict=True):
        assert blind.true is None
        assert blind.true_gain is None
        assert one.true.value == pytest.approx(1 - other.true.value)
        for name in ("assumption", "shown", "if_guess_right", "not_retrained", "gain", "differing"):
            assert getattr(blind, name) == getattr(one, name) == getattr(other, name)
    for row in right.rows:
        assert row.true_gain.value == pytest.approx(row.true.value - right.baseline.true.value)
    assert "no label was used" in str(without)
    assert "true" not in str(without)
    share = f"{y.mean():.1%}"
    assert f"labels were used only for the true accuracy: 400 test rows, {share} of them positive" in str(right)
    assert "the true accuracy" in right.conclusion
    assert not {name for name in without.to_frame() if "true" in name}


# ----------------------------------------------------------------------------------------------------------- laws


@given(st.integers(0, 50), st.integers(0, 70), st.floats(0.55, 1), st.floats(0, 0.45), st.floats(0.05, 0.95))
def test_estimate_follows_documented_formula(positive, positive_prime, theta, theta_prime, pi):
    scores = np.repeat([1.0, -1.0, 1.0, -1.0], [positive, 50 - positive, positive_prime, 70 - positive_prime])
    shown = uu_accuracy(scores, np.repeat([0, 1], [50, 70]), (theta, theta_prime), pi).unclipped
    q, q_prime = positive / 50, positive_prime / 70
    share = pi * (1 - theta_prime) + (1 - pi) * theta_prime
    expected = (1 - pi) + (2 * pi - 1) * q_prime + share * (q - q_prime) / (theta - theta_prime)
    assert shown == pytest.approx(expected, abs=1e-9)


def test_wrong_target_prior_moves_threshold(scored):
    """One column, classes at ±1 with variance 1: log-odds 2x + ln π/(1 − π), which are 0 at −½·ln π/(1 − π)."""
    X, sets, _ = draw((6000, 6000), (0.8, 0.2), seed=1, columns=1)
    grid = np.linspace(-3, 3, 6001)[:, None]
    classifier = linear(lr=0.1, epochs=80, ema=None, target_prior=0.4)
    found = prior_sensitivity(classifier, X, sets, errors=(-0.2, 0.2), test_data=(grid, grid[:, 0] > 0))
    turns = {}
    for row in found.along("pi"):
        positive = scored[row.assumption].test > 0
        turns[row.assumption.target_prior] = float(grid[np.argmax(positive), 0])
    assert list(turns) == [0.2, 0.4, 0.6]
    for pi, turn in turns.items():
        assert turn == pytest.approx(-0.5 * math.log(pi / (1 - pi)), abs=0.12)


@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.2, 0.8)])
def test_wrong_set_prior_moves_estimate_by_formula(priors):
    """At π = ½ the best classifier predicts the more likely set, for any class priors of the sets."""
    X, sets, y = draw((4000, 4000), priors, seed=2)
    classifier = linear(priors, lr=0.1, epochs=60, loss="sigmoid", method="unbiased")
    found = prior_sensitivity(classifier, X, sets, test_data=(X, y))
    accuracy, gap = found.baseline.shown.value, priors[0] - priors[1]
    assert accuracy == pytest.approx(0.921, abs=0.03)  # Φ(√2)
    for name, effect, toward in zip(
        ("theta", "theta_prime"), prior_error_effect(priors, 0.5, accuracy=accuracy), (1, -1), strict=True
    ):
        for row in found.along(name):
            error = row.assumption.error
            slope = -toward * math.copysign(effect, gap)
            expected = accuracy + slope * error * gap / (gap + toward * error)
            assert row.not_retrained.unclipped == pytest.approx(expected, abs=1e-9)
            assert row.shown.unclipped == pytest.approx(expected, abs=0.02)
            assert row.differing < 0.03
            assert row.true.value == pytest.approx(found.baseline.true.value, abs=0.01)
    assert set(list(found.moved)[:2]) == {"theta", "theta_prime"}
    assert found.moved["pi"] < 0.03


@pytest.mark.parametrize("method", ["abs", "relu", "leaky_relu"])
def test_corrections_lose_accuracy_if_priors_are_assumed_too_close(method):
    """With such priors a good classifier has a negative risk term, which a correction treats as overfitting."""
    X, sets, y = draw((2000, 2000), (0.8, 0.2), seed=2)
    found = prior_sensitivity(linear(lr=0.1, epochs=60, method=method), X, sets, errors=(-0.1, 0.1), test_data=(X, y))
    for name, towards in (("theta", 1), ("theta_prime", -1)):
        closer, _, wider = (row.true_gain for row in found.along(name)[::towards])
        assert closer.value < -0.02
        assert closer.value < -3 * closer.standard_error
        assert wider.value > -0.005
    assert "the true accuracy changes by up to −0.0" in found.conclusion


def test_wrong_set_prior_moves_threshold_for_unbalanced_target(scored):
    """Predictions change where u/u′ = (c + d)/(a + b) of the *assumed* priors; Gaussian classes make that a point."""
    X, sets, _ = draw((6000, 6000), (0.8, 0.2), seed=3, columns=1)
    grid = np.linspace(-3, 3, 6001)[:, None]
    classifier = linear(lr=0.1, epochs=80, ema=None, target_prior=0.3, loss="sigmoid", method="unbiased")
    found = prior_sensitivity(classifier, X, sets, errors=(-0.15, 0.15), test_data=(grid, grid[:, 0] > 0))
    for name in ("theta", "theta_prime"):
        turns = []
        for row in found.along(name):
            (theta, theta_prime), pi = row.assumption[2:]
            ratio = (pi * (1 - theta) + (1 - pi) * theta) / (pi * (1 - theta_prime) + (1 - pi) * theta_prime)
            odds = (ratio * 0.8 - 0.2) / (0.8 - ratio * 0.2)
            turns.append(float(grid[np.argmax(scored[row.assumption].test > 0), 0]))
            assert turns[-1] == pytest.approx(math.log(odds) / 2, abs=0.15)
        assert turns == sorted(turns, reverse=name == "theta_prime")


# ----------------------------------------------------------------------------------- what goes wrong, and is said


def test_raises_if_risk_overflows_for_the_guess(data, monkeypatch):
    X, sets, _ = data
    classifier = linear(loss=lambda z: torch.exp(-z), lr=1e4, epochs=5)
    with pytest.raises(
        NonFiniteRiskError, match=r"with the guessed priors, the risk was not finite in epoch \d; lower lr"
    ):
        prior_sensitivity(classifier, X, sets)
    fits = []
    monkeypatch.setattr(sensitivity, "run_plan", lambda plan, **options: fits.append(plan) or run_plan(plan, **options))
    monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: False)
    with pytest.raises(NonFiniteRiskError, match=r"stopped being finite in epoch \d"):
        prior_sensitivity(classifier, X, sets)
    assert len(fits) == 1  # nothing else is trained


@pytest.mark.parametrize("stacked", [True, False])
def test_run_that_overflows_is_skipped(stacked, data, monkeypatch):
    X, sets, _ = data
    bad = Assumption("pi", 0.1, (0.8, 0.2), 0.6)
    if stacked:
        train = sensitivity._train_all

        def train_all(parameters, assumed, *data):
            study = train(parameters, assumed, *data)
            return dataclasses.replace(study, results=study.results | {bad: "the risk was not finite in epoch 3"})

        monkeypatch.setattr(sensitivity, "_train_all", train_all)
    else:

        def diverging(plan, **options):
            result = run_plan(plan, **options)
            if plan.parameters.target_prior != 0.6:
                return result
            history = History(stop_reason="the risk was not finite in epoch 3")
            return dataclasses.replace(result, history=history, error=NonFiniteRiskError())

        monkeypatch.setattr(sensitivity, "run_plan", diverging)
        monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: False)
    found = prior_sensitivity(linear(), X, sets, errors=[-0.1, 0.1])
    assert found.skipped == (Skipped(bad, "the risk was not finite in epoch 3"),)
    assert [row.assumption.error for row in found.along("pi")] == [-0.1, 0.0]
    assert len(found.rows) == 6


@pytest.mark.parametrize("stacked", [True, False])
def test_warnings_are_raised_once_for_the_guess(stacked, data, monkeypatch):
    X, sets, _ = data
    if not stacked:
        monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: False)

    def warnings_of(*args, **arguments):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            prior_sensitivity(*args, **arguments)
        return [warning.category for warning in given]

    assert warnings_of(linear((0.6, 0.4), epochs=2), X, sets, errors=[-0.15]) == []
    assert warnings_of(linear((0.55, 0.5), epochs=2), X, sets, errors=[0.1]) == [ClosePriorsWarning]
    noise = np.random.default_rng(0).normal(size=X.shape)
    assert warnings_of(linear(epochs=2), noise, sets, errors=[0.1])[:1] == [IndistinguishableSetsWarning]
    far = X / 1000 + 5
    assert warnings_of(linear(epochs=1, lr=1e-6, random_state=3), far, sets, errors=[0.1]) == [
        OneSidedPredictionsWarning
    ]


# ------------------------------------------------------------------------------------------------------- time budget


@pytest.fixture
def one_by_one(monkeypatch):
    """Fake clock on which every model takes ``clock.step`` seconds; record the priors of the trained models."""

    clock = SimpleNamespace(now=100.0, step=1.0, trained=[])

    def timed(plan, **options):
        clock.now += clock.step
        clock.trained.append((*plan.parameters.set_priors, plan.parameters.target_prior))
        result = run_plan(plan, **options)
        assert result.reference == NOT_COMPUTED  # it would use a part of the budget, but no new rows are compared
        return result

    monkeypatch.setattr(sensitivity, "read_clock", lambda: clock.now)
    monkeypatch.setattr(sensitivity, "run_plan", timed)
    monkeypatch.setattr(NetworkLearner, "can_be_batched", lambda *_: False)
    return clock


def test_most_informative_changes_come_first():
    """The first two changes raise and lower the estimate; closer set priors change it more, so they come first."""
    for priors, first in [((0.8, 0.2), ["θ − 0.1", "θ + 0.1"]), ((0.2, 0.8), ["θ + 0.1", "θ − 0.1"])]:
        guess = GUESS._replace(set_priors=priors)
        ordered = order_by_information(alter_priors(guess, (-0.1, -0.05, 0.05, 0.1))[0])
        names = [assumption.name for assumption in ordered]
        assert names[:3] == ["your guess", *first]
        assert names[5:7] == ["π − 0.1", "π + 0.1"]
        assert names[-2:] == ["π − 0.05", "π + 0.05"]
        assert len(names) == 13


@pytest.mark.parametrize(("seconds", "measured"), [(7.0, 6), (6.9, 5), (4, 3), (3.0, 2)])
def test_runs_that_fit_in_the_budget_are_trained(seconds, measured, one_by_one, data):
    X, sets, _ = data
    found = prior_sensitivity(linear(epochs=1), X, sets, errors=(-0.1, 0.1), seconds=seconds)
    assert len(one_by_one.trained) == 1 + measured == len(found.rows)
    assert one_by_one.trained[:3] == [(0.8, 0.2, 0.5), (0.7, 0.2, 0.5), (0.9, 0.2, 0.5)]
    assert len(found.left_out) == 6 - measured
    note = f"{measured} of 6 changes of the priors were measured in {1 + measured}.0 s; the others did not fit in the "
    note += f"time budget of {seconds:.1f} s"
    assert found.budget_note == (None if measured == 6 else note)
    assert (note in str(found)) == (measured < 6)
    order = [row.assumption for row in found.rows]  # as without a budget
    assert order == [assumption for assumption in alter_priors(GUESS, (-0.1, 0.1))[0] if assumption in order]


def test_slower_models_use_up_the_budget(one_by_one, data, monkeypatch):
    X, sets, _ = data
    timed = sensitivity.run_plan

    def slower(plan, **options):
        one_by_one.step = 1.0 if len(one_by_one.trained) < 3 else 6.0
        return timed(plan, **options)

    monkeypatch.setattr(sensitivity, "run_plan", slower)
    found = prior_sensitivity(linear(epochs=1), X, sets, errors=(-0.1, 0.1), seconds=10)
    assert len(found.rows) == 4
    assert "3 of 6 changes of the priors were measured in 9.0 s" in str(found)


def test_too_short_budget_stops_after_the_guess(one_by_one, data):
    X, sets, _ = data
    message = r"A time budget of 2\.9 s is too short: the analysis trains at least 3 models, and 1 took 1\.0 s"
    with pytest.raises(TimeBudgetError, match=message):
        prior_sensitivity(linear(epochs=1), X, sets, seconds=2.9)
    assert len(one_by_one.trained) == 1


def test_first_process_decides(one_by_one, data, monkeypatch):
    """The clock and the budget of another process are not used: its budget would have ended."""
    X, sets, _ = data

    sent = []

    class Other:
        def broadcast(self, value):
            sent.append(value)
            passed = float(len(one_by_one.trained))  # one second per model in the first process
            return 5.0 if len(sent) == 1 else passed

    one_by_one.step = 50.0
    monkeypatch.setattr(sensitivity, "join_workers", lambda *_: Other())
    found = prior_sensitivity(linear(epochs=1), X, sets, errors=(-0.1, 0.1), seconds=2)
    assert len(found.rows) == 5
    assert sent == [2.0, 50.0, 100.0, 150.0, 200.0, 250.0]


@pytest.mark.parametrize(
    ("seconds", "batches"),
    [(13, [3, 10]), (100, [3, 10]), (7, [3, 4]), (3, [3])],
)
def test_batches_that_fit_in_the_budget_are_trained(seconds, batches, data, monkeypatch):
    """A batch of n models takes n seconds."""
    X, sets, _ = data
    now, sizes, usual = [0.0], [], sensitivity.BatchedTrainer

    class Timed(usual):
        def run(self):
            sizes.append(len(self.runs))
            histories = super().run()
            now[0] += len(self.runs)
            return histories

    monkeypatch.setattr(sensitivity, "read_clock", lambda: now[0])
    monkeypatch.setattr(sensitivity, "BatchedTrainer", Timed)
    found = prior_sensitivity(linear(epochs=3), X, sets, seconds=seconds)
    assert sizes == batches
    assert len(found.rows) == sum(batches)
    assert found.batched
    everything = prior_sensitivity(linear(epochs=3), X, sets)
    assert sizes[len(batches) :] == [13]  # no budget
    same = {row.assumption: row.shown.value for row in everything.rows}
    for row in found.rows:
        assert row.shown.value == pytest.approx(same[row.assumption], abs=1e-6)


@pytest.mark.parametrize("ends", [0, 1])
def test_batch_is_stopped_at_the_end_of_the_budget(ends, data, monkeypatch):
    """If the clock jumps in the first batch, there is no result; in the second batch, the first one is the result."""
    X, sets, _ = data
    now, trainers, usual = [0.0], [], sensitivity.BatchedTrainer

    class Timed(usual):
        def __init__(self, *args, callback, **settings):
            def late(epoch, records):
                now[0] += 1 if len(trainers) <= ends else 100
                return callback(epoch, records)

            trainers.append(self)
            super().__init__(*args, callback=late, **settings)

    monkeypatch.setattr(sensitivity, "read_clock", lambda: now[0])
    monkeypatch.setattr(sensitivity, "BatchedTrainer", Timed)
    if not ends:
        with pytest.raises(TimeBudgetError, match="at least 3 models, and training them took more than that"):
            prior_sensitivity(linear(epochs=3), X, sets, seconds=50)
    else:
        found = prior_sensitivity(linear(epochs=3), X, sets, seconds=50)
        assert len(found.rows) == 3
        assert len(found.left_out) == 10
    assert len(trainers[-1].histories[0]) == 1


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, "10"])
def test_budget_must_be_positive(seconds, data):
    X, sets, _ = data
    with pytest.raises(ValueError, match="seconds must be a positive number or None"):
        prior_sensitivity(linear(), X, sets, seconds=seconds)


# ------------------------------------------------------------------------------------------------- words and figure


def estimate(value, error=0.01):
    return Estimate(value, error, (value - 2 * error, value + 2 * error))


def made(true=False, gain_error=0.01):
    """A hand-made result: θ changes the estimate, π changes the trained model."""

    def row(parameter, error, shown, gain):
        priors = {"theta": 0.8, "theta_prime": 0.2, "pi": 0.5}
        if parameter in priors:
            priors[parameter] = round(priors[parameter] + error, 3)
        return SensitivityRow(
            Assumption(parameter, error, (priors["theta"], priors["theta_prime"]), priors["pi"]),
            estimate(shown),
            estimate(0.9 + gain),
            estimate(shown + 0.002),
            estimate(gain, gain_error),
            abs(gain),
            estimate(0.92 + gain / 2) if true else None,
            estimate(gain / 2, gain_error) if true else None,
        )

    rows = [("baseline", 0.0, 0.9, 0.0), ("theta", -0.1, 0.97, 0.0), ("theta", 0.1, 0.85, -0.02)]
    rows += [("theta_prime", 0.1, 0.86, 0.001), ("pi", -0.1, 0.905, -0.06), ("pi", 0.1, 0.9, 0.03)]
    skipped = (Skipped(Assumption("theta_prime", -0.1, (0.8, -0.1), 0.5), "-0.1 is not between 0 and 1"),)
    return Sensitivity(
        tuple(row(*each) for each in rows), skipped, (40, 60), 200 * true, 0.4 if true else None, True, 0
    )


def test_conclusion_names_most_important_prior():
    assert made().moved == pytest.approx({"theta": 0.07, "theta_prime": 0.04, "pi": 0.005})
    shown = "an error in θ has the largest effect on the accuracy shown, up to 0.070 (θ′: 0.040, π: 0.005); "
    for gain_error in (0.01, 0.001):
        itself = "the accuracy if the guess is right changes by up to −0.060, at π − 0.1."
        assert made(gain_error=gain_error).conclusion == shown + itself
    assert (
        made(true=True, gain_error=0.005).conclusion == shown + "the true accuracy changes by up to −0.030, at π − 0.1."
    )
    assert made(true=True, gain_error=0.02).conclusion == shown + "the true accuracy does not change significantly."
    only = made()
    only = Sensitivity(only.rows[:3], (), only.held_out_sizes, 0, None, True, 0)
    assert only.conclusion.startswith(
        "an error in θ has the largest effect on the accuracy shown, up to 0.070; the accuracy if"
    )


def test_table_is_aligned_and_ends_with_conclusion():
    text = str(made(true=True))
    lines = text.splitlines()
    assert len(lines) == 1 + 6 + 2 + 1 + 1
    for heading, cells in (
        ("accuracy shown", ["0.900 (0.880 to 0.920)", "0.970 (0.950 to 0.990)"]),
        ("if the guess is right", ["0.900 (0.880 to 0.920)", "0.900 (0.880 to 0.920)"]),
        ("differing", ["0.0%", "0.0%", "2.0%", "0.1%", "6.0%"]),
        ("true accuracy", ["0.920 (0.900 to 0.940)", "0.920 (0.900 to 0.940)", "0.910 (0.890 to 0.930)"]),
        ("π", ["0.5", "0.5", "0.5", "0.5", "0.4", "0.6"]),
    ):
        start = lines[0].index(heading)
        for line, cell in zip(lines[1:], cells, strict=False):
            assert line[start:].startswith(cell)
    assert [line.split("  ")[0] for line in lines[1:3]] == ["your guess", "θ − 0.1"]
    assert "estimated without labels from 40 + 60 held-out rows" in text
    assert "skipped: θ′ − 0.1, as -0.1 is not between 0 and 1" in text
    assert lines[-1] == made(true=True).conclusion


def test_frame_has_every_number():
    frame = made(true=True).to_frame()
    assert len(frame) == 6
    last = frame.iloc[-1]
    assert (last.parameter, last.error, last.theta, last.theta_prime, last.pi) == ("pi", 0.1, 0.8, 0.2, 0.6)
    assert last[["shown", "shown_low", "shown_high"]].tolist() == pytest.approx([0.9, 0.88, 0.92])
    assert last[["if_guess_right", "not_retrained", "gain", "differing"]].tolist() == pytest.approx(
        [0.93, 0.902, 0.03, 0.03]
    )
    assert last[["true", "true_gain"]].tolist() == pytest.approx([0.935, 0.015])
    assert frame.parameter.tolist() == ["baseline", "theta", "theta", "theta_prime", "pi", "pi"]


def lines_of(axis):
    return {line.get_label(): line for line in axis.get_lines() if not line.get_label().startswith("_")}


def test_figure_has_one_panel_per_prior(tmp_path):
    figures = pytest.importorskip("uulearn.selection.figures")
    pytest.importorskip("matplotlib")
    found = made(true=True)
    figure = found.plot(tmp_path / "out" / "figure.png")
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert [axis.get_title() for axis in figure.axes] == ["θ, guessed 0.8", "θ′, guessed 0.2", "π, guessed 0.5"]
    assert [axis.get_xlabel() for axis in figure.axes] == ["error in θ", "error in θ′", "error in π"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["accuracy", "", ""]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(figures.LABELS)
    first = figure.axes[0]
    assert [label.get_text() for label in first.get_xticklabels()] == ["−0.1", "0", "+0.1"]
    drawn = lines_of(first)
    assert list(drawn[figures.LABELS[1]].get_ydata()) == pytest.approx([0.9, 0.9, 0.88])
    assert list(drawn[figures.LABELS[2]].get_xdata()) == [-0.1, 0.0, 0.1]
    assert list(drawn[figures.LABELS[2]].get_ydata()) == pytest.approx([0.92, 0.92, 0.91])
    (shown,) = first.containers
    points, _, (bars,) = shown.lines
    assert list(points.get_ydata()) == pytest.approx([0.97, 0.9, 0.85])
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [
        pytest.approx([value - 0.02, value + 0.02]) for value in (0.97, 0.9, 0.85)
    ]
    assert [len(shown.lines[0].get_xdata()) for axis in figure.axes[1:] for shown in axis.containers] == [2, 3]


def test_figure_without_labels_in_given_axes(tmp_path):
    figures = pytest.importorskip("uulearn.selection.figures")
    matplotlib = pytest.importorskip("matplotlib")
    own = matplotlib.figure.Figure()
    axes = own.subplots(3, 1)
    assert made().plot(tmp_path / "figure.svg", ax=axes) is own
    assert b"<svg" in (tmp_path / "figure.svg").read_bytes()
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == list(figures.LABELS[:2])
    assert figures.LABELS[2] not in lines_of(axes[0])
    with pytest.raises(ValueError, match="ax must be three axes, for θ, θ′ and π, got 2"):
        made().plot(ax=axes[:2])


def test_estimate_outside_its_interval_can_be_drawn():
    pytest.importorskip("matplotlib")
    beyond = made()
    row = beyond.rows[1]
    high = SensitivityRow(row.assumption, Estimate(1.05, 0.1, (0.85, 1.0)), *list(vars(row).values())[2:])
    figure = Sensitivity((beyond.rows[0], high), (), (40, 60), 0, None, True, 0).plot()
    (bars,) = figure.axes[0].containers[0].lines[2]
    assert bars.get_segments()[0][:, 1].tolist() == pytest.approx([0.85, 1.05])
