"""`SurrogateSetClassifier`: learning, input types, predictions, weights, scores and errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from uulearn import UUClassifier, uu_risk
from uulearn.exceptions import ClosePriorsWarning, SuspiciousScoreWarning
from uulearn.surrogate import SurrogateSetClassifier, accuracy_weights, estimate_accuracy, shift_prior
from uulearn.surrogate.classifier import CALIBRATIONS


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Gradient boosting is slow if its threads compete with other tests for the cores."""
    with threadpool_limits(1):
        yield


def draw(seed, sizes, priors, shift=1.0, columns=2):
    """Draw rows, sets and labels of two Gaussian classes with means ±shift in the first column.

    At class prior ½ the log-odds are 2·shift·x₁.
    """
    rng = np.random.default_rng(seed)
    sets = np.repeat(np.arange(len(sizes)), sizes)
    y = (rng.random(len(sets)) < np.asarray(priors)[sets]).astype(int)
    X = rng.normal(size=(len(sets), columns))
    X[:, 0] += shift * (2 * y - 1)
    return X, sets, y


def logistic(priors=(0.8, 0.2), pi=0.5, **options):
    return SurrogateSetClassifier(priors, pi, **{"estimator": LogisticRegression(), "random_state": 0} | options)


# ---------------------------------------------------------------------------------- scikit-learn's own estimator checks

# With set_priors = (0, 1), the labels of the checks are valid sets.
NOT_CALLED_Y = "the second argument of fit and score is called sets, because it has no labels"
OTHER_SETS = "the classes of the check are not 0 and 1; sets are numbered from 0"
EXPECTED_FAILURES = {
    "check_fit_score_takes_y": NOT_CALLED_Y,
    "check_n_features_in_after_fitting": NOT_CALLED_Y,
    "check_sample_weight_equivalence_on_dense_data": f"{NOT_CALLED_Y}; see test_weights_equal_repetitions",
    "check_sample_weight_equivalence_on_sparse_data": f"{NOT_CALLED_Y}; see test_weights_equal_repetitions",
    "check_sample_weights_pandas_series": OTHER_SETS,
    "check_sample_weights_not_an_array": OTHER_SETS,
    "check_sample_weights_shape": OTHER_SETS,
    "check_sample_weights_not_overwritten": OTHER_SETS,
    "check_estimators_dtypes": OTHER_SETS,
    "check_classifier_data_not_an_array": OTHER_SETS,
    "check_classifiers_classes": OTHER_SETS,
    "check_fit2d_1feature": OTHER_SETS,
    "check_classifier_not_supporting_multiclass": "a third set is rejected with another message",
}


@parametrize_with_checks(
    [
        SurrogateSetClassifier((0.0, 1.0), cv=2, random_state=0),
        SurrogateSetClassifier((0.0, 1.0), estimator=LogisticRegression(), calibration=None),
        SurrogateSetClassifier((0.0, 1.0), estimator=DecisionTreeClassifier(max_depth=4), calibration="isotonic"),
    ],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_passes_scikit_learn_checks(estimator, check):
    check(estimator)


# ----------------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize(
    "base",
    [None, RandomForestClassifier(30, min_samples_leaf=5, random_state=0), LogisticRegression(), GaussianNB()],
    ids=lambda base: type(base).__name__,
)
def test_any_classifier_learns(base, calibration, gaussians):
    classifier = SurrogateSetClassifier((0.8, 0.2), estimator=base, calibration=calibration, random_state=0)
    classifier.fit(gaussians["X"], gaussians["sets"])
    assert accuracy_score(gaussians["y_test"], classifier.predict(gaussians["X_test"])) > 0.93


@pytest.mark.parametrize("calibration", ["mixture", "sigmoid", "isotonic"])
@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.2, 0.8), (0.9, 0.5, 0.1)])
def test_decision_function_is_sufficient(priors, calibration):
    X, sets, _ = draw(0, [300] * len(priors), priors, shift=1.5)
    classifier = SurrogateSetClassifier(priors, estimator=LinearSVC(), calibration=calibration, random_state=0)
    X_test, _, y_test = draw(1, [1000], [0.5], shift=1.5)
    assert accuracy_score(y_test, classifier.fit(X, sets).predict(X_test)) > 0.91  # the best possible: 0.933


@pytest.mark.parametrize(
    ("priors", "sizes", "pi"),
    [
        ((0.9, 0.3), (3000, 3000), 0.5),
        ((0.2, 0.7), (1000, 5000), 0.2),
        ((0.9, 0.5, 0.2, 0.5), (1500, 500, 3000, 1000), 0.7),
    ],
)
def test_probabilities_are_calibrated_for_any_sizes_and_target_prior(priors, sizes, pi):
    X, sets, _ = draw(0, sizes, priors)
    X_test, _, y_test = draw(1, [20_000], [pi])
    truth = expit(2 * X_test[:, 0] + np.log(pi / (1 - pi)))
    positive = logistic(priors, pi).fit(X, sets).predict_proba(X_test)[:, 1]
    assert np.sqrt(np.mean((positive - truth) ** 2)) < 0.04
    for of_bin in np.array_split(np.argsort(positive), 10):
        assert positive[of_bin].mean() == pytest.approx(y_test[of_bin].mean(), abs=0.06)


@pytest.mark.parametrize(
    ("base", "calibration", "priors"),
    [
        (LogisticRegression(), "mixture", (0.8, 0.3)),
        (KNeighborsClassifier(200), None, (0.8, 0.3)),
        (None, "isotonic", (0.9, 0.2)),
        (KNeighborsClassifier(200), None, (0.8, 0.5, 0.2)),
    ],
)
def test_error_decreases_with_more_rows(base, calibration, priors):
    X_test, _, _ = draw(1, [2000], [0.4], columns=1)
    truth = shift_prior(expit(2 * X_test[:, 0]), 0.5, 0.4)
    errors = []
    for n in (200, 1500, 12_000):
        X, sets, _ = draw(2, [n] * len(priors), priors, columns=1)
        changes = {"estimator__n_neighbors": n // 6} if isinstance(base, KNeighborsClassifier) else {}
        classifier = SurrogateSetClassifier(priors, 0.4, estimator=base, calibration=calibration, random_state=0)
        positive = classifier.set_params(**changes).fit(X, sets).predict_proba(X_test)[:, 1]
        errors.append(np.sqrt(np.mean((positive - truth) ** 2)))
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < min(0.05, errors[0] / 2)


def test_default_base_learns_a_nonlinear_boundary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 4))
    y = (X**2).sum(1) > 3.36
    sets = (rng.random(9000) > np.where(y, 0.8, 0.2)).astype(int)
    classifier = SurrogateSetClassifier((0.8, 0.2), random_state=0).fit(X[:6000], sets[:6000])
    assert accuracy_score(y[6000:], classifier.predict(X[6000:])) > 0.85
    linear = logistic().fit(X[:6000], sets[:6000])
    assert accuracy_score(y[6000:], linear.predict(X[6000:])) < 0.6


@pytest.mark.parametrize("calibration", ["mixture", "sigmoid", "isotonic"])
def test_sorted_tables_are_shuffled(calibration):
    """Rows are sorted by class within their set: folds without shuffling would contain different mixtures."""
    X, sets, y = draw(0, (500, 500), (0.7, 0.3), shift=1.5)
    order = np.lexsort((y, sets))
    X_test, _, y_test = draw(1, [1000], [0.5], shift=1.5)
    classifier = logistic((0.7, 0.3), calibration=calibration).fit(X[order], sets[order])
    assert accuracy_score(y_test, classifier.predict(X_test)) > 0.91
    assert classifier.predict_proba(X_test)[:, 1].mean() == pytest.approx(0.5, abs=0.05)


# --------------------------------------------------------------------------------------------------------- input types


def test_fit_equals_fit_sets(gaussians):
    separate = logistic().fit_sets(gaussians["X0"], gaussians["X1"])
    combined = logistic().fit(np.concatenate([gaussians["X0"], gaussians["X1"]]), np.repeat([0, 1], 400))
    np.testing.assert_array_equal(
        separate.predict_proba(gaussians["X_test"]), combined.predict_proba(gaussians["X_test"])
    )
    assert separate.set_sizes_ == (400, 400)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("kind", [np.ndarray.tolist, sparse.csr_matrix, sparse.coo_array, pd.DataFrame])
def test_accepts_lists_sparse_matrices_and_data_frames(kind, calibration, gaussians):
    plain = logistic(calibration=calibration).fit_sets(gaussians["X0"], gaussians["X1"])
    other = logistic(calibration=calibration).fit_sets(kind(gaussians["X0"]), kind(gaussians["X1"]))
    np.testing.assert_allclose(
        other.predict_proba(kind(gaussians["X_test"])), plain.predict_proba(gaussians["X_test"]), atol=1e-3
    )
    assert other.n_features_in_ == 3


def test_tables_of_different_types_and_columns(gaussians):
    mixed = logistic().fit_sets(gaussians["X0"].tolist(), gaussians["X1"])
    assert mixed.set_sizes_ == (400, 400)
    first, second = (pd.DataFrame(gaussians[name], columns=list("abc")) for name in ("X0", "X1"))
    assert logistic().fit_sets(first, second).feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"set 0 and set 1 have different columns, \['a', 'b', 'c'\] and"):
        logistic().fit_sets(first, second[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature names"):
        logistic().fit_sets(first, second).predict(second[["b", "a", "c"]])


def test_accepts_any_input_of_the_base_classifier():
    """Trees accept missing values, a pipeline accepts texts."""
    X, sets, _ = draw(0, (300, 300), (0.9, 0.1), shift=2.0)
    X[::7, 1] = np.nan
    assert SurrogateSetClassifier((0.9, 0.1), random_state=0).fit(X, sets).predict([[2.0, np.nan]]).tolist() == [1]
    good, bad = ["fine day", "fine food", "very fine"], ["awful day", "awful food", "very awful"]
    piles = good * 80 + bad * 20, good * 20 + bad * 80
    base = make_pipeline(CountVectorizer(), LogisticRegression())
    for texts in (lambda pile: pile, np.array):
        classifier = SurrogateSetClassifier((0.8, 0.2), estimator=base, random_state=0)
        classifier.fit_sets(*map(texts, piles))
        assert classifier.predict(texts(["a fine thing", "an awful thing"])).tolist() == [1, 0]


def test_scikit_learn_tools_work_on_rows_and_sets():
    X, sets, _ = draw(0, (300, 200, 400), (0.9, 0.5, 0.1), shift=1.5)
    pipeline = make_pipeline(StandardScaler(), logistic((0.9, 0.5, 0.1)))
    assert cross_val_score(pipeline, X, sets, cv=3).mean() == pytest.approx(0.93, abs=0.08)
    grid = {"estimator__C": [1e-6, 1.0], "calibration": ["mixture", None]}
    search = GridSearchCV(logistic((0.9, 0.5, 0.1)), grid, cv=3).fit(X, sets)
    assert search.best_params_["estimator__C"] == 1.0 or search.best_params_["calibration"] == "mixture"
    copy = clone(search.best_estimator_)
    assert not hasattr(copy, "estimator_")
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(X), search.best_estimator_.predict_proba(X))


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_base_classifier_is_cloned(calibration, gaussians):
    base = LogisticRegression()
    classifier = logistic(estimator=base, calibration=calibration).fit(gaussians["X"], gaussians["sets"])
    assert not hasattr(base, "coef_")
    assert hasattr(classifier.estimator_, "predict_proba")


def test_same_seed_gives_same_result(gaussians):
    one, again, other = (
        SurrogateSetClassifier((0.8, 0.2), random_state=seed)
        .fit(gaussians["X"], gaussians["sets"])
        .decision_function(gaussians["X_test"])
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_accepts_a_splitter(gaussians):
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    assert len(logistic(cv=folds).fit(gaussians["X"], gaussians["sets"]).estimator_.folds_) == 3
    numbered = logistic(cv=3).fit(gaussians["X"], gaussians["sets"])
    np.testing.assert_array_equal(
        logistic(cv=folds).fit(gaussians["X"], gaussians["sets"]).predict_proba(gaussians["X_test"]),
        numbered.predict_proba(gaussians["X_test"]),
    )
    calibrated = logistic(cv=folds, calibration="isotonic").fit(gaussians["X"], gaussians["sets"]).estimator_
    assert isinstance(calibrated, CalibratedClassifierCV)
    assert calibrated.method == "isotonic"
    assert len(calibrated.calibrated_classifiers_) == 3


# ---------------------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("base", [LogisticRegression(), DecisionTreeClassifier(random_state=0)])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_predictions_are_consistent_and_finite(base, calibration, gaussians):
    """A full tree predicts set probabilities of 0 and 1, more extreme than the priors allow."""
    classifier = logistic(estimator=base, calibration=calibration).fit(gaussians["X"], gaussians["sets"])
    X = gaussians["X_test"]
    decision, probability = classifier.decision_function(X), classifier.predict_proba(X)
    assert probability.shape == (1000, 2)
    assert np.isfinite(decision).all()
    assert np.abs(decision).max() <= 36
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(probability[:, 1], expit(decision))
    np.testing.assert_array_equal(classifier.predict(X), (decision > 0).astype(int))
    np.testing.assert_array_equal(classifier.predict(X), probability.argmax(1))
    assert classifier.classes_.tolist() == [0, 1]
    inversion = classifier.invert(X)
    np.testing.assert_array_equal(inversion.positive > 0.5, decision > 0)
    if calibration == "mixture":
        assert inversion.clipped_fraction == 0
    if calibration is None and isinstance(base, DecisionTreeClassifier):
        assert inversion.clipped_fraction == 1
        assert set(np.abs(decision)) == {36.0}


def test_target_prior_can_be_changed_after_fitting(gaussians):
    classifier = logistic().fit(gaussians["X"], gaussians["sets"])
    before = classifier.predict_proba(gaussians["X_test"])[:, 1]
    moved = classifier.set_params(target_prior=0.1).predict_proba(gaussians["X_test"])[:, 1]
    np.testing.assert_allclose(moved, shift_prior(before, 0.5, 0.1), rtol=1e-9)
    fitted = logistic(pi=0.1).fit(gaussians["X"], gaussians["sets"]).predict_proba(gaussians["X_test"])[:, 1]
    np.testing.assert_array_equal(moved, fitted)
    assert moved.mean() < before.mean() - 0.05
    with pytest.raises(ValueError, match="strictly between 0 and 1, got 1"):
        classifier.set_params(target_prior=1).predict(gaussians["X_test"])


def test_set_priors_take_effect_with_the_next_fit(gaussians):
    classifier = logistic().fit(gaussians["X"], gaussians["sets"])
    before = classifier.predict_proba(gaussians["X_test"])
    np.testing.assert_array_equal(
        classifier.set_params(set_priors=(0.9, 0.1)).predict_proba(gaussians["X_test"]), before
    )
    after = classifier.fit(gaussians["X"], gaussians["sets"]).predict_proba(gaussians["X_test"])
    assert np.abs(after - before).max() > 0.01


def test_order_of_the_sets_does_not_matter():
    X, sets, _ = draw(0, (300, 200, 400), (0.9, 0.5, 0.1))
    one = logistic((0.9, 0.5, 0.1), calibration=None).fit(X, sets)
    renumbered = np.array([2, 0, 1])[sets]
    other = logistic((0.5, 0.1, 0.9), calibration=None).fit(X, renumbered)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=2e-3)


def test_four_sets_beat_two_pooled_sets():
    """Compare four sets with the two pools that a classifier of two sets would need."""
    priors = (0.95, 0.55, 0.45, 0.05)
    X_test, _, _ = draw(99, [2000], [0.5])
    truth = expit(2 * X_test[:, 0])
    errors = []
    for seed in range(12):
        X, sets, _ = draw(seed, [60] * 4, priors)
        four = logistic(priors).fit(X, sets)
        pooled = logistic((0.75, 0.25)).fit(X, sets // 2)
        errors.append([np.mean((own.predict_proba(X_test)[:, 1] - truth) ** 2) for own in (four, pooled)])
    four_sets, two_pools = np.mean(errors, axis=0)
    assert four_sets < 0.8 * two_pools


# -------------------------------------------------------------------------------------------------------------- weights


def test_weights_equal_repetitions():
    X, sets, _ = draw(0, (200, 300), (0.8, 0.2))
    count = np.random.default_rng(0).integers(0, 4, 500)
    weighted = logistic(calibration=None).fit(X, sets, sample_weight=count)
    repeated = logistic(calibration=None).fit(np.repeat(X, count, axis=0), np.repeat(sets, count))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(weighted.set_fractions_, repeated.set_fractions_)
    assert weighted.set_sizes_ == (200, 300)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_weighted_sets_keep_class_probabilities(calibration):
    """Weights change the fractions of the sets but not the class probabilities."""
    X, sets, _ = draw(0, (1000, 4000), (0.8, 0.3))
    X_test, _, _ = draw(1, [4000], [0.5])
    plain = logistic((0.8, 0.3), calibration=calibration).fit(X, sets)
    balanced = logistic((0.8, 0.3), calibration=calibration).fit(X, sets, sample_weight=np.where(sets == 0, 4.0, 1.0))
    np.testing.assert_allclose(plain.set_fractions_, [0.2, 0.8])
    np.testing.assert_allclose(balanced.set_fractions_, [0.5, 0.5])
    difference = balanced.predict_proba(X_test)[:, 1] - plain.predict_proba(X_test)[:, 1]
    assert np.abs(difference).mean() < 0.05
    assert balanced.predict_proba(X_test)[:, 1].mean() == pytest.approx(0.5, abs=0.05)


# ------------------------------------------------------------------------------------------------score without labels


def test_score_of_two_sets_equals_one_minus_the_risk(gaussians):
    classifier = logistic(pi=0.3).fit(gaussians["X"], gaussians["sets"])
    scores = torch.from_numpy(classifier.decision_function(gaussians["X"]))
    risk = uu_risk(scores, torch.from_numpy(gaussians["sets"]), (0.8, 0.2), 0.3, loss="zero_one", method="unbiased")
    assert classifier.score(gaussians["X"], gaussians["sets"]) == pytest.approx(1 - risk.unbiased.item(), abs=1e-12)


def test_score_equals_that_of_uu_classifier(gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    own = classifier.score(gaussians["X"], gaussians["sets"])
    decision = classifier.decision_function(gaussians["X"])
    assert estimate_accuracy(decision, gaussians["sets"], (0.8, 0.2), 0.5) == pytest.approx(own, abs=1e-6)


def test_score_of_many_sets_estimates_the_accuracy():
    priors, pi = (0.9, 0.6, 0.4, 0.1), 0.3
    X, sets, _ = draw(0, (800, 800, 800, 800), priors)
    classifier = logistic(priors, pi).fit(X, sets)
    X_test, sets_test, y_test = draw(1, (2000, 1000, 500, 3000), priors)
    correct = classifier.predict(X_test) == y_test
    truth = pi * correct[y_test == 1].mean() + (1 - pi) * correct[y_test == 0].mean()
    error = accuracy_weights(priors, (2000, 1000, 500, 3000), pi).standard_error
    assert classifier.score(X_test, sets_test) == pytest.approx(truth, abs=3 * error)
    assert error < 0.015


def test_score_far_below_chance_warns(gaussians):
    classifier = logistic().fit(gaussians["X"], gaussians["sets"])
    with pytest.warns(SuspiciousScoreWarning, match=r"far below chance: if you passed labels"):
        classifier.score(gaussians["X_test"], gaussians["y_test"])


def test_close_priors_warn_with_precision(gaussians):
    with pytest.warns(
        ClosePriorsWarning,
        match=r"\(0\.52, 0\.48\) differ by only 0\.04, .*: these 400 \+ 400 rows.*equivalent to \d+ labeled rows",
    ):
        logistic((0.52, 0.48)).fit(gaussians["X"], gaussians["sets"])


# --------------------------------------------------------------------------------------------------------------- errors

ROWS = np.random.default_rng(0).normal(size=(60, 2))
SETS = np.repeat([0, 1, 2], 20)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"set_priors": (0.8, 0.2)}, ValueError, r"from 0 to 1, because there are 2 set_priors, got 2; number the"),
        ({"set_priors": (0.8, 0.6, 0.4, 0.2)}, ValueError, r"set 3 is empty"),
        ({"set_priors": (0.4, 0.4, 0.4)}, ValueError, "must differ"),
        ({"set_priors": (0.4, 1.4, 0.4)}, ValueError, r"set 1 must lie in \[0, 1\], got 1\.4"),
        ({"set_priors": 0.4}, ValueError, "two or more numbers"),
        ({"target_prior": 0.0}, ValueError, "strictly between 0 and 1, got 0"),
        ({"calibration": "platt"}, ValueError, r"calibration must be one of 'mixture'.*None, got 'platt'"),
        ({"calibration": 3}, ValueError, "calibration must be one of"),
        ({"cv": 1}, ValueError, "cv must be a whole number of folds, at least 2, or a splitter, got 1"),
        ({"cv": True}, ValueError, "cv must be"),
        ({"cv": 30}, ValueError, r"set 0 has only 20 samples, but calibration by 30-fold.*lower cv"),
        ({"cv": StratifiedKFold(21)}, ValueError, "set 0 has only 20 samples, but calibration by 21-fold"),
        ({"random_state": "x"}, ValueError, "cannot be used to seed"),
        ({"estimator": LogisticRegression}, TypeError, "pass an instance, not a class"),
        ({"estimator": "forest"}, TypeError, "must be a scikit-learn classifier.*got 'forest'"),
        ({"estimator": LinearSVC(), "calibration": None}, TypeError, r"LinearSVC has no predict_proba.*'mixture'"),
        ({"estimator": LinearRegression()}, TypeError, "neither predict_proba nor decision_function"),
        (
            {"estimator": LogisticRegression(class_weight="balanced")},
            ValueError,
            r"class_weight='balanced' of Log.*sample",
        ),
        (
            {"estimator": make_pipeline(StandardScaler(), HistGradientBoostingClassifier(class_weight={0: 2.0}))},
            ValueError,
            r"histgradientboostingclassifier__class_weight=\{0: 2\.0\} of Pipeline",
        ),
        (
            {"estimator": SVC(decision_function_shape="ovo"), "set_priors": (0.8, 0.6, 0.4, 0.2)},
            TypeError,
            r"6 columns for 4",
        ),
    ],
)
def test_rejects_bad_parameters(parameters, error, text):
    classifier = SurrogateSetClassifier(**{"set_priors": (0.8, 0.5, 0.2)} | parameters)
    sets = np.arange(60) % 4 if isinstance(parameters.get("estimator"), SVC) else SETS
    with pytest.raises(error, match=text):
        classifier.fit(ROWS, sets)
    assert not hasattr(classifier, "classes_")


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (None, r"requires y to be passed, but the target y is None: pass sets"),
        (SETS[:50], "X 60, sets 50"),
        (SETS + 1, "from 0 to 2, because there are 3 set_priors, got 3"),
        (SETS - 1, "got -1; number the sets from 0"),
        (np.where(SETS == 0, "a", "b"), "got 'a'"),
        (np.where(SETS == 2, 1, SETS), r"set 2 is empty.*pass rows of this set, or remove its prior"),
        (np.where(SETS == 2, np.nan, SETS), "NaN"),
        (SETS / 4, "Unknown label type"),
    ],
)
def test_rejects_bad_sets(sets, text):
    with pytest.raises(ValueError, match=text):
        logistic((0.8, 0.5, 0.2)).fit(ROWS, sets)


def test_score_rejects_missing_sets():
    classifier = logistic((0.8, 0.5, 0.2)).fit(ROWS, SETS)
    with pytest.raises(ValueError, match="set 1 is empty"):
        classifier.score(ROWS, np.where(SETS == 1, 0, SETS))


def test_rejects_set_with_a_single_row():
    with pytest.raises(ValueError, match="set 1 has only 1 sample, but"):
        logistic().fit(ROWS, (np.arange(60) == 7).astype(int))


def test_rejects_bad_weights():
    with pytest.raises(ValueError, match=r"all rows of set 1 have sample_weight 0"):
        logistic((0.8, 0.5, 0.2)).fit(ROWS, SETS, sample_weight=(SETS != 1).astype(float))
    with pytest.raises(ValueError, match="Negative values"):
        logistic((0.8, 0.5, 0.2)).fit(ROWS, SETS, sample_weight=-np.ones(60))
    with pytest.raises(TypeError, match=r"KNeighborsClassifier.fit has no sample_weight; omit the weights"):
        logistic((0.8, 0.5, 0.2), estimator=KNeighborsClassifier()).fit(ROWS, SETS, sample_weight=np.ones(60))


def test_rejects_wrong_number_of_tables():
    with pytest.raises(ValueError, match=r"fit_sets got 3 tables for 2 set_priors; pass one table per set"):
        logistic().fit_sets(ROWS, ROWS, ROWS)


def test_failed_fit_keeps_the_previous_state(gaussians):
    classifier = logistic().fit(gaussians["X"], gaussians["sets"])
    before = classifier.predict_proba(gaussians["X_test"])
    with pytest.raises(ValueError, match="NaN"):
        classifier.fit(np.full((20, 7), np.nan), np.arange(20) % 2)
    np.testing.assert_array_equal(classifier.predict_proba(gaussians["X_test"]), before)
