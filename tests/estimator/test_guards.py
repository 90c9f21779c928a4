"""Warnings about data, priors and trained models."""

import re
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.exceptions import (
    BeyondPriorsWarning,
    ClosePriorsWarning,
    IndistinguishableSetsWarning,
    OneSidedPredictionsWarning,
    SuspiciousScoreWarning,
    SwappedPriorsWarning,
    UnevenSetsWarning,
    UUWarning,
)


def fit(X0, X1, set_priors=(0.8, 0.2), **data):
    return plain_classifier(set_priors, 0.5, model="linear", epochs=1, random_state=0).fit_sets(X0, X1, **data)


def test_warns_about_indistinguishable_sets():
    rng = np.random.default_rng(0)
    with pytest.warns(IndistinguishableSetsWarning, match=r"AUC 0\.\d+, no better than chance.*collect"):
        fit(rng.normal(size=(300, 5)), rng.normal(size=(300, 5)))


def test_impossible_priors_are_reported():
    """The sets were drawn at (0.8, 0.2); an accuracy of 100% or more would be a good result by mistake."""
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(400, 3)) + 3 * (rng.random((400, 1)) < prior) for prior in (0.8, 0.2)]
    clf = UUClassifier((0.6, 0.4), 0.5, model="linear", epochs=20, lr=0.03, random_state=0)
    with pytest.warns(BeyondPriorsWarning, match="of the positives would score high, which is impossible") as caught:
        clf.fit_sets(*sets)
    assert caught[0].filename == __file__
    assert re.fullmatch(
        r"unknown \(estimated as 1\.\d+, which is impossible\)", str(clf.out_of_fold_evaluation_.accuracy)
    )
    assert str(clf.set_params(set_priors=(0.8, 0.2)).fit_sets(*sets).out_of_fold_evaluation_.accuracy).startswith("0.9")


def test_few_rows_cannot_show_whether_the_sets_differ():
    X = np.arange(6.0).reshape(6, 1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(X[:3], X[3:] + 9)
    (text,) = (str(warning.message) for warning in caught if warning.category is IndistinguishableSetsWarning)
    assert text == (
        "the two sets have too few rows to show whether they differ: on 6 held-out rows a fast classifier separates "
        "them with AUC 1.000, which can be chance with so few rows; collect more rows."
    )


def test_indistinguishable_sets_are_detected_reliably():
    """At least 9 of 10 pairs with equal distributions are detected, and none of 10 pairs that differ."""
    noticed = {True: 0, False: 0}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for alike in noticed:
            shift = 0.0 if alike else 0.5
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fit(rng.normal(size=(200, 4)) + shift, rng.normal(size=(200, 4)))
            noticed[alike] += any(w.category is IndistinguishableSetsWarning for w in caught)
    assert noticed[True] >= 9
    assert noticed[False] == 0


def test_flag_of_invalid_operations_is_ignored(monkeypatch):
    """Some matrix products set the flag although all numbers are finite; warnings are errors here."""
    measured = LogisticRegression.fit

    def fit_and_set_flag(self, X, y):
        np.subtract(np.full(9, np.inf), np.inf)
        return measured(self, X, y)

    monkeypatch.setattr(LogisticRegression, "fit", fit_and_set_flag)
    rng = np.random.default_rng(0)
    with pytest.warns(IndistinguishableSetsWarning):
        fit(rng.normal(size=(300, 5)), rng.normal(size=(300, 5)))


def test_forest_distinguishes_sets_without_linear_difference():
    """Set 0 is mostly inside a ring and set 1 mostly outside, so every linear score is at chance."""
    rng = np.random.default_rng(0)

    def ring(n, share_inside):
        angle = rng.uniform(0, 2 * np.pi, n)
        radius = np.where(rng.random(n) < share_inside, 1.0, 2.0) + 0.1 * rng.normal(size=n)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UUWarning)
        fit(ring(400, 0.8), ring(400, 0.2))


def test_close_priors_warning_states_cost_for_given_sizes(gaussians):
    with pytest.warns(
        ClosePriorsWarning, match=r"these 400 \+ 400 rows estimate the accuracy with a standard error"
    ) as caught:
        fit(gaussians["X0"], gaussians["X1"], set_priors=(0.52, 0.48))
    assert len(caught) == 1


def test_warns_if_labels_contradict_order_of_priors(gaussians):
    labeled = (gaussians["X_test"][:60], gaussians["y_test"][:60])
    with pytest.warns(
        SwappedPriorsWarning, match=r"set 1, declared to have the higher class prior.*try set_priors=\(0\.8, 0\.2\)"
    ):
        fit(gaussians["X0"], gaussians["X1"], set_priors=(0.2, 0.8), test_data=labeled)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UUWarning)
        fit(gaussians["X0"], gaussians["X1"], test_data=labeled)
        one_class = gaussians["y_test"] == 1
        fit(
            gaussians["X0"],
            gaussians["X1"],
            test_data=(gaussians["X_test"][one_class], gaussians["y_test"][one_class]),
        )


@pytest.mark.parametrize("n", [8, 12])
def test_few_clear_labels_suffice_to_warn_about_swapped_priors(n, gaussians):
    X = np.repeat([[1.5, 1.5, 1.5], [-1.5, -1.5, -1.5]], n // 2, axis=0) + np.linspace(0, 0.1, n)[:, None]
    y = np.repeat([1, 0], n // 2)
    with pytest.warns(SwappedPriorsWarning):
        fit(gaussians["X0"], gaussians["X1"], set_priors=(0.2, 0.8), test_data=(X, y))


def test_warns_about_very_uneven_sets(gaussians):
    rng = np.random.default_rng(0)
    many = rng.normal(size=(7000, 3)) - 1.5
    with pytest.warns(UnevenSetsWarning, match="batches have up to 3,501 rows instead of 100"):
        plain_classifier((0.8, 0.2), 0.5, model="linear", epochs=1, batch_size=100).fit_sets(gaussians["X0"][:2], many)


def test_warnings_share_a_base_that_can_be_filtered():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UUWarning)
        fit(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), set_priors=(0.5, 0.49))


def test_warns_if_model_predicts_one_class_only(gaussians):
    """A module that ends in an activation is a common mistake."""
    model = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    with pytest.warns(OneSidedPredictionsWarning, match=r"predicts positive for all of 800.*use no activation"):
        plain_classifier((0.8, 0.2), 0.5, model=model, epochs=5, random_state=0).fit_sets(
            gaussians["X0"], gaussians["X1"]
        )


def test_warns_if_labels_are_passed_instead_of_sets(gaussians):
    classifier = plain_classifier((0.8, 0.2), 0.5, model="linear", lr=0.05, random_state=0)
    classifier.fit_sets(gaussians["X0"], gaussians["X1"])
    with pytest.warns(SuspiciousScoreWarning, match="far below chance.*accuracy_score"):
        classifier.score(gaussians["X_test"], gaussians["y_test"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classifier.score(gaussians["X"], gaussians["sets"]) > 0.8


@pytest.mark.parametrize("apart", [False, True])
def test_warnings_point_to_the_line_that_calls_fit(apart):
    rng = np.random.default_rng(0)
    X, sets = rng.normal(size=(60, 2)), np.repeat([0, 1], 30)
    classifier = plain_classifier((0.52, 0.48), model="linear", epochs=1, lr=1e-9, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if apart:
            classifier.fit_sets(X[:30] + 50, X[30:] + 50)
        else:
            classifier.fit(X + 50, sets)
    kinds = {type(warning.message) for warning in caught}
    assert {ClosePriorsWarning, IndistinguishableSetsWarning, OneSidedPredictionsWarning} <= kinds
    assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.parametrize("use", ["score", "evaluate"])
def test_warns_about_accuracy_above_one(use):
    """A leaking column separates the sets better than their class priors allow."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 1000)
    X = rng.normal(size=(2000, 2)) + np.where(sets == 0, 3.0, -3.0)[:, None]
    classifier = plain_classifier((0.7, 0.3), model="linear", lr=0.05, epochs=30, random_state=0).fit(X, sets)
    with pytest.warns(SuspiciousScoreWarning, match="significantly above 1: the sets differ in more"):
        accuracy = classifier.score(X, sets) if use == "score" else classifier.evaluate(X, sets=sets).accuracy.value
    assert accuracy == 1.0  # clipped


@pytest.mark.parametrize("use", ["score", "evaluate"])
def test_no_warning_if_accuracy_exceeds_one_within_noise(use):
    rng = np.random.default_rng(1)
    sets = np.repeat([0, 1], 100)
    y = rng.random(200) < np.where(sets == 0, 0.7, 0.3)
    X = rng.normal(size=(200, 2)) + 3 * (2 * y[:, None] - 1)
    classifier = plain_classifier((0.7, 0.3), model="linear", lr=0.05, epochs=60, random_state=0).fit(X, sets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.score(X, sets) if use == "score" else classifier.evaluate(X, sets=sets)


def test_one_sided_check_uses_calibrated_decisions(monkeypatch):
    """All scores are positive, but half of the calibrated decisions are negative."""
    seen = []
    monkeypatch.setattr("uulearn.estimator.fitting.warn_if_one_sided", lambda scores, *_, **__: seen.append(scores))
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 300)
    X = rng.normal(size=(600, 2)) + 2 * (rng.random(600) < np.where(sets == 0, 0.8, 0.2))[:, None]
    clf = plain_classifier((0.8, 0.2), model="linear", lr=0.1, epochs=30, validation_fraction=0.2, calibrated=True)
    clf.fit(X, sets)
    assert clf.scaling_.slope != 1
    decided = np.sort(clf.decision_function(X))
    assert np.isin(np.round(seen[0], 4), np.round(decided, 4)).all()
