"""Calibration without labels, prior shift, and evaluation with and without labels."""

import copy

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import accuracy_score, roc_auc_score

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.exceptions import ModelFormatError
from uulearn.metrics.calibration import PlattScaling, calibration_error


def draw(rng, n, prior, shift=0.8):
    y = rng.random(n) < prior
    return rng.normal(size=(n, 3)) + shift * (2 * y[:, None] - 1), y


@pytest.fixture(scope="module")
def problem():
    """Gaussian classes: the log-odds at class prior π are 2·0.8·(x₁ + x₂ + x₃) + logit π."""
    rng = np.random.default_rng(0)
    (X0, _), (X1, _), (H0, _), (H1, _) = (draw(rng, n, p) for n, p in ((2000, 0.8), (2000, 0.3)) * 2)
    X_test, y_test = draw(rng, 8000, 0.4)
    held_out = np.concatenate([H0, H1]), np.repeat([0, 1], 2000)
    return {"sets": (X0, X1), "held_out": held_out, "X": X_test, "y": y_test, "true": 1.6 * X_test.sum(1)}


TRAINED = {}


def fitted(problem, **changes):
    """Return a fitted classifier; equal settings are trained once."""
    key = tuple(sorted(changes.items()))
    if key not in TRAINED:
        TRAINED[key] = train(problem, **changes)
    return copy.deepcopy(TRAINED[key])


def train(problem, **changes):
    settings = {"model": "linear", "lr": 0.03, "epochs": 60, "batch_size": 500, "random_state": 0, "target_prior": 0.4}
    given = {"validation_data": problem["held_out"]} if changes.get("calibrated") else {}
    return plain_classifier((0.8, 0.3), **settings | changes).fit_sets(*problem["sets"], **given)


@pytest.mark.parametrize(("loss", "method"), [("sigmoid", "abs"), ("logistic", "biased")])
def test_scores_of_any_loss_become_log_odds(problem, loss, method):
    plain = fitted(problem, loss=loss, method=method)
    calibrated = fitted(problem, loss=loss, method=method, calibrated=True)
    assert plain.scaling_ is None
    before, after = (c.predict_proba(problem["X"])[:, 1] for c in (plain, calibrated))
    assert calibration_error(after, problem["y"]) < 0.025
    assert calibration_error(after, problem["y"]) < calibration_error(before, problem["y"])
    log_odds = calibrated.decision_function(problem["X"])
    np.testing.assert_allclose(expit(log_odds), after, atol=1e-6)
    np.testing.assert_array_equal(calibrated.predict(problem["X"]), (after > 0.5).astype(int))
    # The ranking is unchanged, and the log-odds are close to the true ones.
    np.testing.assert_array_equal(np.argsort(plain.decision_function(problem["X"])[:200]), np.argsort(log_odds[:200]))
    assert np.abs(expit(log_odds) - expit(problem["true"] + logit(0.4))).mean() < 0.03


def test_calibrating_after_fit_equals_calibrating_in_fit(problem):
    at_once = fitted(problem, loss="sigmoid", calibrated=True)
    later = fitted(problem, loss="sigmoid").calibrate(*problem["held_out"])
    assert later.scaling_.slope == pytest.approx(at_once.scaling_.slope, rel=1e-4)
    assert later.scaling_.intercept == pytest.approx(at_once.scaling_.intercept, abs=1e-3)
    assert "calibrated without labels" in later.summary()
    assert "calibrated" not in fitted(problem).summary()


def test_fitting_again_discards_calibration(problem):
    classifier = fitted(problem, loss="sigmoid").calibrate(*problem["held_out"])
    classifier.fit_sets(*problem["sets"])
    assert classifier.scaling_ is None


@pytest.mark.parametrize("pi", [0.1, 0.7])
def test_with_target_prior_needs_no_training(problem, pi):
    classifier = fitted(problem, loss="sigmoid", calibrated=True)
    before = classifier.decision_function(problem["X"])
    moved = classifier.with_target_prior(pi)
    assert (classifier.target_prior, moved.target_prior) == (0.4, pi)
    np.testing.assert_array_equal(classifier.decision_function(problem["X"]), before)
    np.testing.assert_allclose(moved.decision_function(problem["X"]), before + logit(pi) - logit(0.4), atol=1e-5)
    X, y = draw(np.random.default_rng(5), 20_000, pi)
    assert calibration_error(moved.predict_proba(X)[:, 1], y) < 0.025
    assert accuracy_score(y, moved.predict(X)) >= accuracy_score(y, classifier.predict(X))
    # The accuracy estimated from the two sets agrees with labeled rows.
    estimate = moved.evaluate(problem["held_out"][0], sets=problem["held_out"][1]).accuracy
    assert estimate.value == pytest.approx(accuracy_score(y, moved.predict(X)), abs=4 * estimate.standard_error)
    assert moved.score(*problem["held_out"]) == pytest.approx(estimate.value, abs=1e-6)
    back = moved.with_target_prior(0.4)
    np.testing.assert_allclose(back.decision_function(problem["X"]), before, atol=1e-5)


def test_with_target_prior_works_uncalibrated_for_logistic_loss(problem):
    classifier = fitted(problem)
    moved = classifier.with_target_prior(0.2)
    shifted = classifier.decision_function(problem["X"]) + logit(0.2) - logit(0.4)
    np.testing.assert_allclose(moved.decision_function(problem["X"]), shifted, atol=1e-5)
    np.testing.assert_allclose(moved.predict_proba(problem["X"])[:, 1], expit(shifted), atol=1e-6)


@pytest.mark.parametrize(("loss", "method"), [("sigmoid", "abs"), ("logistic", "biased"), ("squared", "relu")])
def test_with_target_prior_rejects_scores_that_are_not_log_odds(problem, loss, method):
    with pytest.raises(ValueError, match=r"are not log-odds.*call calibrate"):
        fitted(problem, loss=loss, method=method, epochs=1).with_target_prior(0.2)


@pytest.mark.parametrize("model", ["linear", "boosting"])
def test_with_target_prior_rejects_averages_of_rescaled_scores(problem, model):
    ensemble = fitted(problem, model=model, loss="logistic", n_estimators=2, epochs=5)
    for classifier in (ensemble, ensemble.submodel(1)):
        with pytest.raises(ValueError, match=r"scores of an ensemble, .*, are not log-odds.*call calibrate"):
            classifier.with_target_prior(0.2)
    shifted = ensemble.calibrate(*problem["held_out"]).decision_function(problem["X"]) + logit(0.2) - logit(0.4)
    np.testing.assert_allclose(ensemble.with_target_prior(0.2).decision_function(problem["X"]), shifted, atol=1e-5)


def test_with_target_prior_works_for_compared_models_without_calibration(problem):
    """Each compared model is calibrated before its scores are averaged."""
    compared = fitted(problem, model="auto", loss="logistic", n_estimators=2, epochs=2, model_params=None)
    assert compared.scaling_ is None
    shifted = compared.decision_function(problem["X"]) + logit(0.2) - logit(0.4)
    np.testing.assert_allclose(compared.with_target_prior(0.2).decision_function(problem["X"]), shifted, atol=1e-5)


def test_saved_calibrated_classifier_gives_the_same_probabilities(problem, tmp_path):
    classifier = fitted(problem, loss="sigmoid", calibrated=True).with_target_prior(0.15)
    classifier.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert loaded.scaling_ == classifier.scaling_
    assert loaded.target_prior == 0.15
    np.testing.assert_array_equal(loaded.predict_proba(problem["X"]), classifier.predict_proba(problem["X"]))


def test_load_rejects_invalid_calibration(problem, tmp_path):
    classifier = fitted(problem, epochs=1)
    classifier.scaling_ = PlattScaling(float("nan"), 0.0, 0.5)
    classifier.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="scaling.slope must be a number, got nan"):
        UUClassifier.load(tmp_path / "model")


def test_evaluate_with_and_without_labels(problem):
    classifier = fitted(problem)
    X, sets = problem["held_out"]
    free, plain = classifier.evaluate(X, sets=sets), classifier.evaluate(problem["X"], labels=problem["y"])
    assert (free.labels_used, plain.labels_used) == (False, True)
    assert plain.accuracy.value == accuracy_score(problem["y"], classifier.predict(problem["X"]))
    assert plain.auc.value == pytest.approx(roc_auc_score(problem["y"], classifier.decision_function(problem["X"])))
    assert free.accuracy.value == pytest.approx(classifier.score(X, sets), abs=1e-6)
    assert abs(free.accuracy.value - plain.accuracy.value) < 4 * free.accuracy.standard_error
    assert abs(free.auc.value - plain.auc.value) < 4 * free.auc.standard_error
    for arguments in ({}, {"sets": sets, "labels": sets}):
        with pytest.raises(ValueError, match="either sets .* or labels"):
            classifier.evaluate(X, **arguments)


def test_calibration_needs_held_out_rows(problem):
    with pytest.raises(ValueError, match="calibrated=True needs held-out rows"):
        plain_classifier((0.8, 0.3), calibrated=True).fit_sets(*problem["sets"])
    with pytest.raises(ValueError, match="no rows from set 1"):
        fitted(problem, epochs=1).calibrate(problem["X"][:5], np.zeros(5))


# ------------------------------------------------------------------------------------------ nothing known but the order


def test_classifier_without_priors_ranks_rows_and_accepts_priors_later(problem, tmp_path):
    X, sets = problem["held_out"]
    ranker = plain_classifier(None, method="biased", model="linear", lr=0.03, epochs=60, batch_size=500, random_state=0)
    ranker.fit_sets(*problem["sets"])
    known = plain_classifier(
        (0.8, 0.3), 0.4, method="biased", model="linear", lr=0.03, epochs=60, batch_size=500, random_state=0
    ).fit_sets(*problem["sets"])
    np.testing.assert_array_equal(ranker.decision_function(X), known.decision_function(X))
    assert roc_auc_score(problem["y"], ranker.decision_function(problem["X"])) > 0.95
    for use in (ranker.predict, ranker.predict_proba, lambda rows: ranker.score(rows, sets[: len(rows)])):
        with pytest.raises(ValueError, match="call with_priors"):
            use(X)
    for use in (
        lambda: ranker.evaluate(X, sets=sets),
        lambda: ranker.calibrate(X, sets),
        lambda: ranker.with_target_prior(0.2),
    ):
        with pytest.raises(ValueError, match="call with_priors"):
            use()
    assert "their class priors are unknown" in ranker.summary()
    ranker.save(tmp_path / "model")
    ranker = UUClassifier.load(tmp_path / "model")
    assert ranker.set_priors is None

    ready = ranker.with_priors((0.8, 0.3), 0.4, X, sets)
    assert ranker.set_priors is None
    assert calibration_error(ready.predict_proba(problem["X"])[:, 1], problem["y"]) < 0.025
    assert (ready.predict(problem["X"]) == problem["y"]).mean() > 0.88
    assert ready.evaluate(X, sets=sets).accuracy.value == pytest.approx(0.9, abs=0.05)
    assert "80.0% positive" in ready.summary()


def test_early_stopping_and_ensembles_need_no_priors(problem):
    settings = {
        "model": "linear",
        "lr": 0.03,
        "epochs": 40,
        "batch_size": 500,
        "random_state": 0,
        "early_stopping": True,
    }
    kept = plain_classifier(None, method="biased", validation_fraction=0.2, **settings).fit_sets(*problem["sets"])
    assert kept.history_.best_epoch
    several = plain_classifier(None, method="biased", n_estimators=3, **settings).fit_sets(*problem["sets"])
    assert several.out_of_fold_evaluation_ is None
    assert roc_auc_score(problem["y"], several.decision_function(problem["X"])) > 0.95
    assert "their class priors are unknown" in several.summary()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "abs"}, "set_priors=None requires method='biased', got method='abs'"),
        ({"calibrated": True, "validation_fraction": 0.2}, "set_priors is None; set calibrated=False"),
        (
            {"n_estimators": 2, "self_training_rounds": 1},
            "set_priors is None; set calibrated=False and self_training_rounds=0",
        ),
    ],
)
def test_rejects_uses_of_priors_if_they_are_unknown(problem, changes, message):
    with pytest.raises(ValueError, match=message):
        plain_classifier(None, **{"method": "biased"} | changes).fit_sets(*problem["sets"])


def test_with_priors_equals_training_with_these_priors(problem):
    classifier = fitted(problem, loss="sigmoid")
    moved = classifier.with_priors((0.75, 0.35), 0.3, *problem["held_out"])
    assert (moved.set_priors, moved.target_prior) == ((0.75, 0.35), 0.3)
    assert classifier.set_priors == (0.8, 0.3)
    assert classifier.scaling_ is None
