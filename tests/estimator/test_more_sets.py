"""UUClassifier on more than two sets: training, evaluation and calibration without labels."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import logit
from scipy.stats import norm

from uulearn import UUClassifier, UURisk
from uulearn.data import DenseRows
from uulearn.data.folds import assign_folds
from uulearn.data.groups import SetGroups, pooled_priors, set_sizes
from uulearn.data.holdout import hold_out
from uulearn.exceptions import CheckpointError, ClosePriorsWarning
from uulearn.metrics import evaluate, uu_accuracy, uu_accuracy_difference, uu_auc
from uulearn.metrics.calibration import PlattScaling, fit_platt_scaling
from uulearn.metrics.out_of_fold import OutOfFoldCorrection
from uulearn.metrics.rates import predicted_fractions
from uulearn.priors import merge_bags
from uulearn.selection import UUClassifierCV
from uulearn.streaming import RowStream
from uulearn.training import TrainingOptions

PRIORS, SIZES = (0.2, 0.95, 0.5, 0.05), (300, 400, 200, 300)


def draw(priors, sizes, seed=0, columns=3):
    """Return the rows of each set, with two Gaussian classes; the Bayes accuracy at π = ½ is Φ(√columns)."""
    rng = np.random.default_rng(seed)
    labels = [rng.random(n) < prior for prior, n in zip(priors, sizes, strict=True)]
    return [rng.normal(size=(len(y), columns)) + (2 * y[:, None] - 1) for y in labels]


@pytest.fixture(scope="module")
def tables():
    return draw(PRIORS, SIZES)


@pytest.fixture(scope="module")
def labeled():
    X = draw((1.0, 0.0), (3000, 3000), seed=9)
    return np.concatenate(X), np.repeat([1, 0], 3000)


def classifier(priors=PRIORS, **changes):
    known = {"model": "linear", "epochs": 30, "lr": 0.03, "batch_size": 200, "random_state": 0, "progress": False}
    return UUClassifier(priors, 0.5, **known | changes)


# ------------------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "surrogate"},
        {"model": "mlp", "epochs": 5},
        {"model": "boosting", "epochs": 40, "lr": 0.1},
        {"model": "boosting", "method": "surrogate", "epochs": 40, "lr": 0.1},
        {"n_estimators": 1, "validation_fraction": 0.2},
        {"n_estimators": 1, "validation_fraction": 0.0},
    ],
    ids=str,
)
def test_learns_the_classes(changes, tables, labeled):
    clf = classifier(**changes).fit_sets(*tables)
    accuracy = clf.evaluate(labeled[0], labels=labeled[1]).accuracy.value
    assert accuracy > norm.cdf(3**0.5) - 0.03
    if clf.held_out_sizes_ != (0,) * 4:
        proba = clf.predict_proba(labeled[0])[:, 1]
        assert abs(proba.mean() - 0.5) < 0.03


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.IndistinguishableSetsWarning")
def test_uses_more_information_than_two_of_the_sets():
    """With few rows in each set, all sets together give a lower mean error than two of them."""
    priors, changes = (0.7, 0.3) * 5, {"n_estimators": 1, "validation_fraction": 0.0, "epochs": 20}
    X_new, y_new = np.concatenate(draw((1.0, 0.0), (1000, 1000), seed=99, columns=6)), np.repeat([1, 0], 1000)
    errors = []
    for seed in range(6):
        sets = draw(priors, (20,) * 10, seed, columns=6)
        every = classifier(priors, **changes).fit_sets(*sets)
        two = classifier((0.7, 0.3), **changes).fit_sets(sets[0], sets[1])
        errors.append([(clf.predict(X_new) != y_new).mean() for clf in (every, two)])
    of_all, of_two = np.mean(errors, axis=0)
    assert of_all < 0.7 * of_two


def test_a_set_split_in_two_gives_the_same_risk(tables):
    """Two sets with four numbers and equal priors are trained on the same rows with the same weights."""
    first, second = tables[1], tables[3]
    two = classifier((0.95, 0.05), n_estimators=1, validation_fraction=0.0, batch_size=10_000)
    four = classifier((0.95, 0.95, 0.05, 0.05), n_estimators=1, validation_fraction=0.0, batch_size=10_000)
    two.fit_sets(first, second)
    four.fit_sets(first[:100], first[100:], second[:250], second[250:])
    for name in ("positive", "negative", "objective", "zero_one"):
        assert four.history_.column(name) == pytest.approx(two.history_.column(name), rel=1e-4, abs=1e-6), name
    np.testing.assert_allclose(
        four.decision_function(tables[0]), two.decision_function(tables[0]), rtol=1e-3, atol=1e-4
    )


def test_surrogate_scores_of_one_model_are_log_odds(labeled):
    X = draw(PRIORS, (8000,) * 4, seed=1)
    clf = classifier(
        method="surrogate", n_estimators=1, validation_fraction=0.0, batch_size=1000, lr=0.1, epochs=10
    ).fit_sets(*X)
    scores = clf.decision_function(labeled[0])
    slope, intercept = np.polyfit(labeled[0].sum(1), scores, 1)  # the log-odds are 2·Σx at class prior ½
    assert (slope, intercept) == (pytest.approx(2, abs=0.1), pytest.approx(0, abs=0.1))
    moved = clf.with_target_prior(0.2).decision_function(labeled[0])
    np.testing.assert_allclose(moved, scores + logit(0.2), atol=1e-3)


def test_two_sets_support_the_surrogate_method(tables, labeled):
    clf = classifier((0.95, 0.05), method="surrogate", n_estimators=1).fit_sets(tables[1], tables[3])
    assert clf.evaluate(labeled[0], labels=labeled[1]).accuracy.value > norm.cdf(3**0.5) - 0.03
    assert clf.resolved_params_["loss"] == "logistic"


def test_order_of_the_priors_gives_a_classifier_and_a_lower_bound(labeled):
    """With pure priors, the classifier of the sets has the highest balanced accuracy for all priors in this order."""
    X0, X1 = draw((0.7, 0.4), (2000, 600), seed=3)
    clf = classifier((1.0, 0.0)).fit_sets(X0, X1)
    truth = clf.evaluate(labeled[0], labels=labeled[1])
    assert truth.balanced_accuracy.value > norm.cdf(3**0.5) - 0.03
    for name in ("balanced_accuracy", "auc"):
        between_sets, between_classes = getattr(clf.out_of_fold_evaluation_, name), getattr(truth, name)
        assert between_sets.interval[1] < between_classes.value
        assert between_sets.value - 0.5 == pytest.approx(0.3 * (between_classes.value - 0.5), abs=0.05)


# --------------------------------------------------------------------------------------------------------------- inputs


def test_kinds_of_tables_give_the_same_model(tables):
    wanted = classifier(epochs=2).fit_sets(*tables)
    rows, sets = np.concatenate(tables), np.repeat(range(4), SIZES)
    order = np.argsort(sets, kind="stable")
    tensors = [torch.from_numpy(table) for table in tables]
    matrices = [sparse.csr_array(table) for table in tables]
    for clf in (
        classifier(epochs=2).fit(rows[order], sets[order]),
        classifier(epochs=2).fit_sets(*tensors),
        classifier(epochs=2).fit_sets(*matrices),
    ):
        np.testing.assert_allclose(clf.decision_function(rows), wanted.decision_function(rows), rtol=1e-5, atol=1e-6)
    assert wanted.set_sizes_ == wanted.held_out_sizes_ == SIZES
    assert len(wanted.out_of_fold_scores_) == sum(SIZES)


def test_out_of_fold_scores_are_in_the_order_of_the_sets(tables):
    clf = classifier().fit_sets(*tables)
    parts = np.split(clf.out_of_fold_scores_, np.cumsum(SIZES)[:-1])
    fractions = [(part > 0).mean() for part in parts]
    assert fractions == pytest.approx(PRIORS, abs=0.12)
    known = np.repeat(range(4), SIZES), PRIORS, 0.5
    assert evaluate(clf.out_of_fold_scores_, *known, correction=clf.out_of_fold_correction_) == (
        clf.out_of_fold_evaluation_
    )


def test_data_frames_are_encoded(tables):
    frames = [pd.DataFrame(table, columns=list("abc")) for table in tables]
    for which, frame in enumerate(frames):
        frame["d"] = np.where(frame["a"] > 0, "high", "low")
        frames[which] = frame if which else frame[["d", "c", "b", "a"]]
    clf = classifier(epochs=3).fit_sets(*frames)
    assert clf.encoder_ is not None
    joint = classifier(epochs=3).fit(pd.concat(frames), np.repeat(range(4), SIZES))
    assert (clf.predict(frames[1]) == joint.predict(frames[1])).all()
    with pytest.raises(ValueError, match="column 'd' is not in both X0 and X2"):
        classifier().fit_sets(frames[0], frames[1], frames[2].drop(columns="d"), frames[3])


class Streamed(RowStream):
    n_rows, row_shape, piece_sizes = 10, (3,), (10,)

    def describe(self):
        return "rows"

    def read(self, piece):
        raise AssertionError("no row is read")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "biased"}, "method='biased' treats two sets as classes, but there are 4 sets"),
        ({"self_training_rounds": 1}, "self_training_rounds=1 supports two sets, but set_priors has 4 values"),
        ({"model": "mlp", "consistency": True}, "consistency=True supports two sets, but set_priors has 4 values"),
    ],
    ids=["biased", "self-training", "consistency"],
)
def test_unsupported_parameters(changes, message, tables):
    with pytest.raises(ValueError, match=message):
        classifier(**changes).fit_sets(*tables)


def test_bad_sets(tables):
    rows, sets = np.concatenate(tables), np.repeat(range(4), SIZES)
    with pytest.raises(ValueError, match="fit_sets got 3 tables for 4 set_priors; pass one table per set"):
        classifier().fit_sets(*tables[:3])
    with pytest.raises(ValueError, match="fit_sets got 3 tables for 2 set_priors"):
        classifier((0.8, 0.2)).fit_sets(*tables[:3])
    with pytest.raises(
        ValueError, match="sets must be whole numbers from 0 to 3, because there are 4 set_priors, got 4"
    ):
        classifier().fit(rows, np.where(sets == 2, 4, sets))
    with pytest.raises(ValueError, match="sets must be whole numbers from 0 to 3, .*, got None; use a numeric type"):
        classifier().fit(rows, np.where(sets == 2, None, sets))
    with pytest.raises(ValueError, match=r"sets must have one value per row, whole numbers from 0 to 3, got a table"):
        classifier().fit(rows, np.stack([sets, sets], 1))
    with pytest.raises(ValueError, match="set 2 is empty, but training needs rows of all 4 sets"):
        classifier().fit(rows, np.where(sets == 2, 3, sets))
    with pytest.raises(ValueError, match="X0 has rows of shape .3,., but X3 has shape .2,.; all sets need the same"):
        classifier().fit_sets(*tables[:3], tables[3][:, :2])
    with pytest.raises(ValueError, match="streamed sets support two sets, but set_priors has 4 values"):
        classifier().fit_sets(*[Streamed()] * 4)
    clf = classifier(epochs=1, n_estimators=1).fit_sets(*tables)
    with pytest.raises(ValueError, match="the rows come from 1 of the 4 sets, .* the same class prior .0.95."):
        clf.score(rows[sets == 1], sets[sets == 1])
    with pytest.raises(ValueError, match="validation_data has rows of 2 of the 4 sets, and all of them have high"):
        classifier(n_estimators=1).fit(rows, sets, validation_data=(rows[:900], np.repeat([0, 3], 450)))
    with pytest.raises(ValueError, match="the group of sets with the higher priors has only 1 sample"):
        classifier((0.95, 0.05, 0.05)).fit_sets(tables[1][:1], tables[3], tables[3])


# --------------------------------------------------------------------------------------------------- without any labels


def test_methods_of_a_fitted_classifier(tables, labeled, tmp_path):
    rows, sets = np.concatenate(draw(PRIORS, SIZES, seed=5)), np.repeat(range(4), SIZES)
    clf = classifier().fit_sets(*tables)
    truth = clf.evaluate(labeled[0], labels=labeled[1])
    found = clf.evaluate(rows, sets=sets)
    for name in ("accuracy", "auc", "true_positive_rate"):
        low, high = getattr(found, name).interval
        assert low <= getattr(truth, name).value <= high
    assert clf.score(rows, sets) == pytest.approx(found.accuracy.value, abs=1e-6)
    assert "estimated from 300 + 400 + 200 + 300 rows of the 4 sets" in str(found)
    assert "set 1 has the highest class prior" in clf.summary()
    again = classifier(calibrated=False, n_estimators=1).fit_sets(*tables).calibrate(rows, sets)
    assert abs(again.predict_proba(labeled[0])[:, 1].mean() - 0.5) < 0.05
    clf.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert loaded.set_priors == PRIORS
    assert loaded.set_sizes_ == SIZES
    assert (loaded.decision_function(rows) == clf.decision_function(rows)).all()


def test_estimates_need_rows_of_different_priors_only(tables):
    """Sets without rows do not change a result: it equals that of a classifier for the other sets."""
    rows, sets = np.concatenate(draw(PRIORS, SIZES, seed=5)), np.repeat(range(4), SIZES)
    clf = classifier(n_estimators=1).fit_sets(*tables)
    for used in ([0, 1, 3], [1, 2]):
        inside = np.isin(sets, used)
        priors, fewer = [PRIORS[which] for which in used], np.searchsorted(used, sets[inside])
        found = clf.evaluate(rows[inside], sets=sets[inside])
        scores = clf.decision_function(rows[inside])
        wanted = evaluate(scores, fewer, priors, 0.5)
        for name, estimate in wanted.by_name.items():
            ours = found.by_name[name]
            assert ours.unclipped == pytest.approx(estimate.unclipped)
            tolerance = 0.03 if len(used) == 2 and name == "AUC" else 1e-6
            assert ours.standard_error == pytest.approx(estimate.standard_error, rel=tolerance)
        assert found.sizes == tuple(np.bincount(sets[inside], minlength=4))
        assert clf.score(rows[inside], sets[inside]) == pytest.approx(found.accuracy.value, abs=1e-6)
        ours, theirs = (fit_platt_scaling(scores, *known, 0.5) for known in ((sets[inside], PRIORS), (fewer, priors)))
        assert (ours.slope, ours.intercept) == (pytest.approx(theirs.slope), pytest.approx(theirs.intercept))
        difference = uu_accuracy_difference(scores, scores + 0.1, sets[inside], PRIORS, 0.5)
        assert difference == uu_accuracy_difference(scores, scores + 0.1, fewer, priors, 0.5)
    with pytest.raises(ValueError, match="the rows come from 1 of the 4 sets"):
        evaluate([1.0, 2.0], [2, 2], PRIORS, 0.5)
    with pytest.raises(ValueError, match="the rows come from 0 of the 4 sets; pass rows of sets with different"):
        uu_auc([], [], PRIORS)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("changes", [{}, {"n_estimators": 1, "validation_fraction": 0.2}], ids=["ensemble", "single"])
def test_many_small_sets(size, changes, tmp_path):
    priors = tuple(np.linspace(0.95, 0.05, 60).tolist())
    X_new, y_new = np.concatenate(draw((1.0, 0.0), (500, 500), seed=9)), np.repeat([1, 0], 500)
    clf = classifier(priors, calibrated=True, **changes).fit_sets(*draw(priors, (size,) * 60))
    assert clf.scaling_ is not None
    assert clf.score(X_new, np.repeat([1, 58], 500)) > 0.5
    assert clf.evaluate(X_new, labels=y_new).accuracy.value > 0.6
    assert sum(clf.held_out_sizes_) == (60 * size if not changes else 12 * size)
    clf.save(tmp_path / "model")
    assert (UUClassifier.load(tmp_path / "model").predict(X_new) == clf.predict(X_new)).all()


def test_a_set_with_one_row(tables):
    clf = classifier((0.95, 0.05, 0.5), epochs=2).fit_sets(tables[1], tables[3], tables[2][:1])
    assert clf.out_of_fold_evaluation_.sizes == (400, 300, 1)


@pytest.mark.parametrize("priors", [(0.9, 0.1), (0.9, 0.7, 0.5, 0.2, 0.1)])
def test_other_priors_need_one_value_per_set(priors, tables):
    clf = classifier(epochs=1).fit_sets(*tables)
    rows, sets = np.concatenate(tables), np.repeat(range(4), SIZES)
    message = f"set_priors has {len(priors)} values, but this classifier was trained on 4 sets"
    with pytest.raises(ValueError, match=message):
        clf.with_priors(priors, 0.5, rows, np.minimum(sets, len(priors) - 1))
    assert clf.with_priors((0.3, 0.9, 0.5, 0.1), 0.4, rows, sets).set_priors == (0.3, 0.9, 0.5, 0.1)


def test_validation_data_and_search(tables):
    rows, sets = np.concatenate(draw(PRIORS, SIZES, seed=5)), np.repeat(range(4), SIZES)
    clf = classifier(epochs=3, n_estimators=1).fit_sets(*tables, validation_data=(rows, sets))
    assert clf.held_out_sizes_ == SIZES
    assert all("validation_zero_one" in record for record in clf.history_)
    search = UUClassifierCV(classifier(epochs=2), {"lr": [0.001, 0.1]}).fit_sets(*tables)
    assert search.best_params_ == {"lr": 0.1}


def test_checkpoints_depend_on_the_sets(tables, tmp_path):
    options = {"n_estimators": 1, "training": TrainingOptions(checkpoint_dir=tmp_path)}
    plain = classifier(n_estimators=1, epochs=4).fit_sets(*tables)
    classifier(epochs=2, **options).fit_sets(*tables)
    resumed = classifier(epochs=4, **options).fit_sets(*tables)
    assert resumed.history_.resumed_at == [2]
    assert (resumed.decision_function(tables[0]) == plain.decision_function(tables[0])).all()
    moved = np.concatenate([tables[2], tables[0][:1]])
    with pytest.raises(CheckpointError):
        classifier(epochs=5, **options).fit_sets(tables[0][1:], tables[1], moved, tables[3])


# -------------------------------------------------------------------------------------------------------------- metrics


@pytest.mark.parametrize("split", [(100, 50), (1, 149)])
def test_metrics_of_a_split_set_equal_those_of_two_sets(split):
    rng = np.random.default_rng(0)
    sets, finer = np.repeat([0, 1], [150, 200]), np.repeat([0, 1, 2], [*split, 200])
    scores, others = rng.normal(1.0 - 2 * sets), rng.normal(1.0 - 2 * sets)
    two, three = (sets, (0.8, 0.3)), (finer, (0.8, 0.8, 0.3))
    for metric in (lambda known: uu_accuracy(scores, *known, 0.4), lambda known: uu_auc(scores, *known)):
        assert metric(three).unclipped == pytest.approx(metric(two).unclipped)
    if split == (100, 50):
        assert uu_auc(scores, *three).standard_error == pytest.approx(uu_auc(scores, *two).standard_error, rel=0.05)
    differences = [uu_accuracy_difference(scores, others, *known, 0.4) for known in (two, three)]
    assert differences[0].unclipped == pytest.approx(differences[1].unclipped)
    scalings = [fit_platt_scaling(scores, *known, 0.4) for known in (two, three)]
    assert scalings[0].slope == pytest.approx(scalings[1].slope, rel=1e-4)


def test_intervals_contain_the_true_values():
    rng, hits = np.random.default_rng(1), np.zeros(2)
    sets, truth = np.repeat(range(4), SIZES), (norm.cdf(1), norm.cdf(2**0.5))
    for _ in range(200):
        y = rng.random(len(sets)) < np.repeat(PRIORS, SIZES)
        found = evaluate(rng.normal(2.0 * y - 1), sets, PRIORS, 0.5)
        for which, (estimate, value) in enumerate(zip((found.accuracy, found.auc), truth, strict=True)):
            hits[which] += estimate.interval[0] <= value <= estimate.interval[1]
    assert (hits >= 180).all()  # 190 are expected


@pytest.mark.parametrize("priors", [tuple(np.linspace(0.9, 0.1, 300)), (0.9,) * 20 + (0.2,) * 280], ids=["even", "two"])
def test_auc_interval_of_sets_with_one_row(priors):
    rng, truth, hits, errors = np.random.default_rng(2), norm.cdf(2**-0.5), 0, []
    values = []
    for _ in range(200):
        y = rng.random(300) < priors
        found = uu_auc(rng.normal(y * 1.0), np.arange(300), priors)
        hits += found.interval[0] <= truth <= found.interval[1]
        errors.append(found.standard_error)
        values.append(found.unclipped)
    assert hits >= 180  # 190 are expected
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


@pytest.mark.parametrize(("n_sets", "rows"), [(300, 1), (150, 2), (60, 5), (10, 30)])
def test_intervals_of_many_small_sets(n_sets, rows):
    """The width of an interval depends on the rows, not on the number of sets that they are divided into."""
    rng, priors, sets = np.random.default_rng(4), np.linspace(0.9, 0.1, n_sets), np.repeat(range(n_sets), rows)
    true_values = {"accuracy": norm.cdf(1), "true-positive rate": norm.cdf(1), "false-positive rate": norm.cdf(-1)}
    found = {name: [] for name in true_values}
    for _ in range(200):
        y = rng.random(len(sets)) < priors[sets]
        metrics = evaluate(rng.normal(2.0 * y - 1), sets, priors, 0.5).by_name
        for name, estimates in found.items():
            estimates.append(metrics[name])
    for name, truth in true_values.items():
        inside = [own.interval[0] <= truth <= own.interval[1] for own in found[name]]
        assert sum(inside) >= 180, name  # 190 are expected
        errors, values = [own.standard_error for own in found[name]], [own.unclipped for own in found[name]]
        assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15), name


@pytest.mark.parametrize("rows", [1, 10, 100])
def test_correction_of_out_of_fold_scores_does_not_depend_on_the_size_of_the_sets(rows):
    rng, n_sets = np.random.default_rng(5), 300 // rows
    priors, sets = np.linspace(0.9, 0.1, n_sets), np.repeat(range(n_sets), rows)
    y = rng.random(300) < priors[sets]
    single = rng.normal(2.0 * y[:, None] - 1, 1.5, (300, 4))
    scaling = PlattScaling(1.0, 0.0, prior=0.5)
    correction = OutOfFoldCorrection(scaling, single, single.mean(axis=1), np.clip(y, 0.1, 0.9))
    about = single[:, 0], sets, priors, 0.0, 0.95
    plain, corrected = (predicted_fractions(*about, own).combine(0.5, -0.5, 0.5) for own in (None, correction))
    gain = correction.rates(0.0)
    assert gain[0] - gain[1] > 0.05
    assert corrected.unclipped - plain.unclipped == pytest.approx((gain[0] - gain[1]) / 2)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_difference_of_small_sets(rows):
    rng, found = np.random.default_rng(3), []
    priors, sets = np.linspace(0.9, 0.1, 300 // rows), np.repeat(range(300 // rows), rows)
    for _ in range(200):
        y = rng.random(300) < priors[sets]
        first, second = rng.normal(2.0 * y - 1), rng.normal(1.0 * y - 0.5)
        found.append(uu_accuracy_difference(first, second, sets, priors, 0.5))
    truth = norm.cdf(1) - norm.cdf(0.5)
    assert sum(own.interval[0] <= truth <= own.interval[1] for own in found) >= 180  # 190 are expected
    errors, values = [own.standard_error for own in found], [own.unclipped for own in found]
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_auc_interval_of_sets_that_do_not_overlap():
    """As for two sets, the interval is not empty although the variance within the sets is zero."""
    sets, scores = np.repeat([0, 1, 2], 50), np.repeat([3.0, 1.0, -1.0], 50)
    for values in (scores, scores + np.linspace(0, 0.5, 150)):
        found = uu_auc(values, sets, (1.0, 0.999, 0.0))
        assert found.value == pytest.approx(1, abs=0.001)
        assert 0.95 < found.interval[0] < 0.99
    assert uu_auc([2.0, 1.0, 0.0], [0, 1, 2], (0.9, 0.5, 0.1)).interval[0] < 0.5


def test_many_sets_are_summarized():
    priors = tuple(np.linspace(0.9, 0.1, 12))
    clf = classifier(priors, epochs=1).fit_sets(*draw(priors, [60] * 12))
    text = "12 sets, 720 rows in total, 10.0% to 90.0% positive"
    assert clf.summary().splitlines()[0] == text
    assert text in clf.results_html()
    assert "set 1:" not in clf.summary() + clf.results_html()
    with pytest.warns(ClosePriorsWarning, match=r"all set_priors differ by only 0.02, .* 120,000 rows"):
        UURisk(np.linspace(0.51, 0.49, 12).tolist(), 0.5)


def test_source_of_many_sets():
    rng = np.random.default_rng(0)
    for size, wanted in ((20, "200 rows of 10 sets .20 rows per set."), (35, "215 rows of 10 sets .20 to 35 rows per")):
        sets = np.repeat(range(10), [size] + [20] * 9)
        found = evaluate(rng.normal(size=len(sets)), sets, np.linspace(0.9, 0.1, 10), 0.5)
        assert re.search("no label was used: estimated from " + wanted, str(found))
    found = evaluate(rng.normal(size=20), np.arange(20), np.linspace(0.9, 0.1, 20), 0.5)
    assert found.source.endswith("estimated from 20 rows of 20 sets (1 row per set)")
    sets = np.repeat(range(8), 1000)
    found = evaluate(rng.normal(size=8000), sets, np.linspace(0.9, 0.1, 8), 0.5)
    assert found.source.endswith("1,000 + 1,000 rows of the 8 sets")


# --------------------------------------------------------------------------------------------------------------- groups


def test_groups_keep_the_set_of_every_row():
    rows, sets = DenseRows(torch.arange(1200.0)[:, None]), torch.arange(1200) % 4
    groups = SetGroups.from_sets(sets, PRIORS, 0.5)
    data = groups.split(rows, sets)
    merged = merge_bags(PRIORS, [300] * 4, drop=False)
    assert groups.assignment.tolist() == merged.assignment.tolist()
    assert pooled_priors(data, PRIORS) == pytest.approx(merged.set_priors)
    for part in (data.joined(), data.pick(range(0, 300, 2), range(10)), *hold_out(data, 0.2, 0)):
        for which in (0, 1):
            values = part.take(which, torch.arange(part.sizes[which]))[:, 0].long()
            assert (values % 4 == part.origins[which]).all()
            assert (groups.of_rows(values % 4) == which).all()
    assert set_sizes(hold_out(data, 0.2, 0)[1], 4) == (60,) * 4
    folds = assign_folds(data, 5, 0)
    for fold in range(5):
        inside = torch.cat([own[torch.from_numpy(part == fold)] for own, part in zip(data.origins, folds, strict=True)])
        assert torch.bincount(inside).tolist() == [60] * 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 8, 11])
@pytest.mark.parametrize("copied", [False, True])
def test_folds_and_held_out_rows_of_small_sets_are_balanced(size, copied):
    """Rows that cannot be divided evenly within a set are divided evenly among the sets of a group."""
    n_sets = 60
    values = torch.arange(float(n_sets * size))
    rows = DenseRows((values.remainder(n_sets * size - 10) if copied else values)[:, None])
    sets = torch.arange(n_sets).repeat_interleave(size)
    priors = tuple(np.linspace(0.9, 0.1, n_sets))
    data = SetGroups.from_sets(sets, priors, 0.5).split(rows, sets)
    slack = 10 if copied else 1
    for own, number, total in zip(assign_folds(data, 5, 0), data.origins, data.sizes, strict=True):
        counts = np.bincount(own, minlength=5)
        assert np.abs(counts - total / 5).max() <= slack
        for which in np.unique(number):
            assert np.ptp(np.bincount(own[number.numpy() == which], minlength=5)) <= slack
    training, held_out = hold_out(data, 0.1, 0)
    for inside, out, total in zip(training.sizes, held_out.sizes, data.sizes, strict=True):
        assert inside + out == total
        assert abs(out - total / 10) <= slack
    assert np.ptp(set_sizes(held_out, n_sets)) <= (2 if copied else 1)


def test_messages_about_copies_name_the_group():
    sets = torch.arange(30) % 3
    groups = SetGroups.from_sets(sets, (0.9, 0.5, 0.1), 0.5)
    data = groups.split(DenseRows(torch.ones(30, 1)), sets)
    with pytest.raises(ValueError, match="the group of sets with the higher priors cannot be split into 3 folds"):
        assign_folds(data, 3, 0)
    with pytest.raises(ValueError, match="held out of the .* rows of the group of sets with the .* priors"):
        hold_out(data, 0.1, 0)
