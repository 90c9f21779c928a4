"""``model="boosting"``: trees on the corrected risk share folds, calibration, evaluation and persistence."""

import copy
import pickle
import sys
from importlib import metadata

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone

from helpers.manifests import put, rewrite
from uulearn import UUClassifier
from uulearn.data import DenseRows
from uulearn.data.inputs import read_two_tables
from uulearn.estimator import classifier, make_plan
from uulearn.estimator.boosting import BoostingModel, TreeParameters
from uulearn.estimator.learners import MeanModel, ModelTask
from uulearn.exceptions import FailedSettingWarning, ModelFormatError
from uulearn.metrics.calibration import calibration_error
from uulearn.models.trees import BoostedTrees
from uulearn.risk import UURisk, uu_risk
from uulearn.selection import UUClassifierCV, prior_sensitivity
from uulearn.streaming import RowStream
from uulearn.surrogate import SurrogateSetClassifier
from uulearn.training.early_stopping import CrossedEpochs
from uulearn.training.out_of_fold import fold_seed
from uulearn.training.workers import Workers

pytest.importorskip("lightgbm")

PRIORS = (0.35, 0.7)


def draw(rng, n, prior):
    """Rows whose class is decided by a ring in two columns; three columns are noise."""
    y = rng.random(n) < prior
    X = rng.normal(size=(n, 5)).astype(np.float32)
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.where(y, 0.7, 1.6) + 0.2 * rng.normal(size=n)
    X[:, 0], X[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    return X, y


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    (X0, _), (X1, _), (X, y) = draw(rng, 600, PRIORS[0]), draw(rng, 500, PRIORS[1]), draw(rng, 3000, 0.5)
    return X0, X1, X, y


def boosting(**changes):
    parameters = {"model": "boosting", "epochs": 60, "lr": 0.1, "random_state": 0, "progress": False} | changes
    return UUClassifier(PRIORS, 0.5, **parameters)


@pytest.fixture(scope="module")
def fitted(problem):
    return boosting().fit_sets(*problem[:2])


def test_ensemble_is_calibrated_and_evaluated_without_labels(fitted, problem):
    *_, X, y = problem
    assert isinstance(fitted.model_, MeanModel)
    accuracy = (fitted.predict(X) == y).mean()
    assert accuracy > 0.85
    estimate = fitted.out_of_fold_evaluation_.accuracy
    assert abs(estimate.value - accuracy) < 3 * estimate.standard_error
    assert calibration_error(fitted.predict_proba(X)[:, 1], y) < 0.08
    assert "5 models, each trained without one fold" in fitted.summary()
    assert all(model.best_epoch is not None for model in fitted.history_.models)
    trees = [model.trees.values.shape[0] for model in fitted.model_.models]
    assert trees == [model.best_epoch for model in fitted.history_.models]


def test_beats_boosting_on_set_membership(fitted, problem):
    X0, X1, X, y = problem
    membership = SurrogateSetClassifier(PRIORS, 0.5, random_state=0)
    membership.fit(np.concatenate([X0, X1]), np.repeat([0, 1], [len(X0), len(X1)]))
    assert (fitted.predict(X) == y).mean() > (membership.predict(X) == y).mean() + 0.005


def test_trees_of_two_columns_learn_their_interaction():
    rng = np.random.default_rng(0)

    def draw(rows, prior):
        X, positive = rng.uniform(-1, 1, (rows, 2)), rng.random(rows) < prior
        X[:, 1] = np.abs(X[:, 1]) * np.sign(X[:, 0]) * np.where(positive, 1, -1)
        return X, positive

    X0, X1, (X, y) = draw(600, PRIORS[0])[0], draw(600, PRIORS[1])[0], draw(1000, 0.5)
    accuracy = {
        least: (boosting(model_params={"min_features": least}).fit_sets(X0, X1).predict(X) == y).mean()
        for least in (1, 6)
    }
    assert accuracy[6] > 0.9
    if not metadata.version("lightgbm").startswith("4.5."):  # it gives each tree at least two columns
        assert accuracy[1] < 0.6  # a tree with one column cannot combine both
    X0, X1, X = (np.pad(part, [(0, 0), (0, 10)], constant_values=3) for part in (X0, X1, X))
    assert (boosting().fit_sets(X0, X1).predict(X) == y).mean() > 0.9  # constant columns do not count


@pytest.mark.parametrize("sampled", [None, {"bagging_fraction": 0.5, "feature_fraction": 0.5}])
def test_same_seed_gives_the_same_model(problem, sampled):
    X0, X1, X, _ = problem
    asked = boosting(epochs=5, model_params=sampled)
    first, second, other = (
        clone(asked).set_params(random_state=seed).fit_sets(X0, X1).decision_function(X) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_saved_model_is_restored_without_lightgbm(fitted, problem, tmp_path, monkeypatch):
    *_, X, _ = problem
    fitted.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    loaded = UUClassifier.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(loaded.submodel(2).decision_function(X), fitted.submodel(2).decision_function(X))
    assert loaded.out_of_fold_evaluation_ == fitted.out_of_fold_evaluation_
    with pytest.raises(ImportError, match="needs LightGBM for training; install it with pip install lightgbm"):
        loaded.fit_sets(*problem[:2])


def test_damaged_trees_are_refused(problem, tmp_path):
    single = boosting(n_estimators=1, epochs=3).fit_sets(*problem[:2])
    single.trained_ = BoostingModel(BoostedTrees.from_nodes([{"leaf_value": float("nan")}]))
    single.save(tmp_path)
    with pytest.raises(ModelFormatError, match="values that are not finite; train and save the model again"):
        UUClassifier.load(tmp_path)
    rewrite(tmp_path, put("parameters", "model", "linear"))
    with pytest.raises(ModelFormatError, match="of kind 'boosting', got 'network'"):
        UUClassifier.load(tmp_path)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"num_leaves": 64}, "num_leaves must be an integer from 2 to 63, got 64"),
        ({"num_leaves": 7.0}, "num_leaves must be an integer from 2 to 63, got 7.0"),
        ({"min_data_in_leaf": 0}, "min_data_in_leaf must be an integer of at least 1, got 0"),
        ({"min_features": 0}, "min_features must be an integer of at least 1, got 0"),
        ({"bagging_fraction": 0}, "bagging_fraction must be a number above 0 and at most 1, got 0"),
        ({"feature_fraction": "half"}, "feature_fraction must be a number above 0 and at most 1, got 'half'"),
        ({"hidden": (8,)}, "'hidden' is not a parameter of boosting; use num_leaves, min_data_in_leaf"),
    ],
)
def test_invalid_tree_parameters_are_refused(problem, params, message):
    with pytest.raises(ValueError, match=message):
        boosting(model_params=params).fit_sets(*problem[:2])


def test_streamed_sets_and_images_are_refused(problem):
    class Rows(RowStream):
        row_shape, piece_sizes = (5,), (100,)

        def read(self, piece):
            return torch.zeros(100, 5)

        def describe(self):
            return "zeros"

    with pytest.raises(ValueError, match="model='boosting' needs all rows in memory"):
        boosting().fit_sets(Rows(), Rows())
    with pytest.raises(ValueError, match="dim 4.*<= 2"):
        boosting().fit_sets(np.zeros((20, 3, 4, 4)), np.ones((20, 3, 4, 4)))


def test_several_processes_are_refused(problem, monkeypatch):
    monkeypatch.setattr(classifier, "join_workers", lambda *_: Workers(0, 2))
    with pytest.raises(ValueError, match="'boosting' trains in one process, but there are 2; start one process"):
        boosting().fit_sets(*problem[:2])


def test_summary_does_not_mention_matrix_products(fitted):
    assert "is replaced by its absolute value), loss sigmoid\n" in fitted.summary()


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")
@pytest.mark.parametrize("method", ["biased", "unbiased", "abs", "relu", "leaky_relu", ("relu", torch.abs)])
@pytest.mark.parametrize(
    "loss", ["sigmoid", "logistic", "ramp", "double_hinge", "squared", torch.nn.functional.softplus]
)
def test_every_method_and_loss_reduces_the_objective(problem, method, loss):
    own = (lambda z: loss(-z)) if callable(loss) else loss
    found = boosting(method=method, loss=own, epochs=8, n_estimators=1, validation_fraction=0.0).fit_sets(*problem[:2])
    objective = found.history_.column("objective")
    assert objective[-1] < objective[0]
    assert found.history_.stop_reason in (
        "all 8 epochs done",
        f"no tree improves the risk after tree {len(objective)}",
    )


def test_rounds_are_chosen_for_all_folds_and_a_row_is_scored_at_a_round_that_other_rows_chose(problem):
    """The rounds and scores are those of the rules applied to predictions of all numbers of rounds."""
    given = read_two_tables(*(part[:100] for part in problem[:2]), any_shape=False)
    plan = make_plan(boosting(epochs=40, lr=0.5, patience=None).get_params(deep=False), given)
    task = ModelTask(plan.data, PRIORS, 0.5, 6, folds=plan.folds)
    found = plan.learner.train_folds(task)
    every = make_plan(boosting(epochs=40, lr=0.5, early_stopping=False).get_params(deep=False), given)
    full = every.learner.train_folds(task)
    rows = [plan.data.take(which, torch.arange(size)).numpy() for which, size in enumerate(plan.data.sizes)]
    own = [[part == fold for part in plan.folds] for fold in range(5)]
    held_out = torch.cat([torch.cat([part.scores[which] for part in found]) for which in (0, 1)])
    sizes = plan.data.sizes
    risk = UURisk(PRIORS, 0.5)
    crossed = CrossedEpochs(sizes, [risk.coefficients], [fold_seed(6, 0)], 15, 15)
    errors, scores = [], []
    for count in range(1, 41):
        trees = [BoostedTrees(*(array[:count] for array in vars(part.model.trees).values())) for part in full]
        by_set = [np.concatenate([trees[f].score(rows[which][own[f][which]]) for f in range(5)]) for which in (0, 1)]
        scores.append(torch.from_numpy(np.concatenate(by_set)))
        crossed.update(scores[-1][None], [True])
        sets = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))
        errors.append(uu_risk(scores[-1], sets, PRIORS, 0.5, loss="zero_one").unbiased.item())
    smoothed = [np.mean(errors[last - 15 : last]) for last in range(15, 41)]
    best = int(np.argmin(smoothed)) + 15
    assert {part.history.best_epoch for part in found} == {best}
    assert {part.model.trees.values.shape[0] for part in found} == {best}
    expected = crossed.cross(scores[best - 1][None])[0]
    torch.testing.assert_close(held_out, expected, atol=1e-5, rtol=1e-4)
    assert (expected != scores[best - 1]).any()
    assert {part.history.stop_reason for part in found} == {"all 40 epochs done"}


def test_one_callback_stops_the_models_of_all_folds(problem):
    seen = []

    def callback(record, model):
        seen.append(record["epoch"])
        return len(seen) == 7  # the second model in its second round

    found = boosting(n_estimators=5).fit_sets(*problem[:2], callback=callback)
    assert seen == [1] * 5 + [2] * 5
    assert {len(model) for model in found.history_.models} == {2}


@pytest.mark.parametrize("early_stopping", [True, False])
def test_callback_receives_the_trees_of_its_round(problem, early_stopping):
    """The model can be used at once or later, and copied."""
    X0, X1, X, _ = problem
    kept, at_once, copies = [], {}, {}

    def callback(record, model):
        kept.append(model)
        if record["epoch"] % 3 == 0:
            at_once[record["epoch"]] = model.score(DenseRows(torch.from_numpy(X[:50])))
        if record["epoch"] == 5:
            copies.update(copy=copy.deepcopy(model), pickle=pickle.loads(pickle.dumps(model)))

    single = boosting(n_estimators=1, validation_fraction=0.2, epochs=15, early_stopping=early_stopping, patience=None)
    single.fit_sets(X0, X1, callback=callback)
    trees = single.trained_.trees
    for epoch, model in enumerate(kept, start=1):
        best = model.trees.n_trees
        assert best <= epoch if early_stopping else best == epoch
        np.testing.assert_array_equal(model.trees.score(X[:50]), trees.first(best).score(X[:50]))
        if epoch in at_once:
            np.testing.assert_array_equal(model.trees.score(X[:50]), at_once[epoch])
    assert kept[-1].trees.n_trees == trees.n_trees
    for model in copies.values():
        assert type(model) is BoostingModel
        np.testing.assert_array_equal(model.trees.values, kept[4].trees.values)


@pytest.mark.parametrize("used", [False, True])
def test_callback_reads_every_tree_at_most_once(problem, monkeypatch, used):
    from lightgbm import Booster

    read, dump = [], Booster.dump_model

    def counted(booster, **options):
        dumped = dump(booster, **options)
        read.append(len(dumped["tree_info"]))
        return dumped

    monkeypatch.setattr(Booster, "dump_model", counted)
    callback = (lambda _, model: model.trees.n_trees > 99) if used else (lambda *_: False)
    boosting(n_estimators=2, epochs=8, early_stopping=False, patience=None).fit_sets(*problem[:2], callback=callback)
    assert read == ([1] * 16 if used else [8, 8])


def test_labeled_rows_are_recorded_and_a_callback_stops_training(problem):
    X0, X1, X, y = problem
    seen = []

    def callback(record, model):
        seen.append((record["test_accuracy"], model))
        return record["epoch"] == 3

    single = boosting(n_estimators=1, validation_fraction=0.2)
    single.fit_sets(X0, X1, test_data=(X[:500], y[:500]), callback=callback)
    assert single.history_.labels_used
    assert single.history_.stop_reason == "the callback asked to stop"
    best = seen[single.history_.best_epoch - 1][0]
    assert best == pytest.approx((single.trained_.trees.score(X[:500]) > 0).__eq__(y[:500]).mean())


@pytest.mark.parametrize("changes", [{"n_estimators": 2}, {"n_estimators": 1, "validation_fraction": 0.2}])
def test_sparse_rows_give_the_model_of_dense_rows(problem, monkeypatch, changes):
    dense = [np.where(np.abs(X) > 0.5, X, 0).astype(np.float32) for X in problem[:2]]
    labeled = {"test_data": (dense[0][:50], np.tile([0, 1], 25))}
    expected = boosting(epochs=10, **changes).fit_sets(*dense, **labeled)
    monkeypatch.setattr("uulearn.estimator.boosting.SCORED_CELLS", 1000)  # few rows are converted at a time
    both = [sparse.csr_array(X) for X in dense]
    for sets in (both, [both[0], dense[1]]):
        found = boosting(epochs=10, **changes).fit_sets(*sets, **labeled)
        np.testing.assert_array_equal(found.decision_function(both[1]), expected.decision_function(dense[1]))
        assert found.history_.column("test_risk") == expected.history_.column("test_risk")


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")
def test_constant_columns_are_refused_and_few_rows_are_enough():
    single = boosting(n_estimators=1, validation_fraction=0.0, calibrated=False)
    rows = np.zeros((60, 2), dtype=np.float32)
    for table in (rows, sparse.csr_array(rows)):
        with pytest.raises(ValueError, match="every column is constant"):
            single.fit_sets(table, table)
    rows = np.arange(24, dtype=np.float32)[:, None]
    found = single.fit_sets(rows[:12], rows[12:])
    assert (found.predict(rows) == np.repeat([0, 1], 12)).sum() >= 20


def test_a_risk_without_gradient_stops_training_with_a_reason(problem):
    single = boosting(method="relu", loss="squared", lr=1.0, epochs=300, n_estimators=1, validation_fraction=0.0)
    history = single.fit_sets(*problem[:2]).history_
    assert history.stop_reason == f"no tree improves the risk after tree {len(history)}"


def test_search_sensitivity_and_self_training(problem):
    X0, X1, X, y = problem
    base = boosting(epochs=25, n_estimators=3)
    search = UUClassifierCV(base, {"model_params": [{"num_leaves": 2}, {"num_leaves": 15}]}).fit_sets(X0, X1)
    assert search.best_params_ == {"model_params": {"num_leaves": 15}}
    found = prior_sensitivity(base, np.concatenate([X0, X1]), np.repeat([0, 1], [600, 500]), errors=[0.05])
    assert len(found.rows) == 4
    trained = base.set_params(self_training_rounds=1).fit_sets(X0, X1)
    assert (trained.predict(X) == y).mean() > 0.8


def test_search_with_a_store_gives_the_model_of_a_plain_fit(problem, tmp_path):
    """The number of rounds is chosen on all folds, so a job trains all folds even if one model was lost."""
    X0, X1, X, _ = problem
    plain = boosting(epochs=30, n_estimators=3, lr=0.5)
    expected = clone(plain).fit_sets(X0, X1)

    def search():
        return UUClassifierCV(plain, {"l2": [0.0]}, store=tmp_path).fit_sets(X0, X1)

    for _ in range(2):
        found = search().best_estimator_
        np.testing.assert_array_equal(found.decision_function(X), expected.decision_function(X))
        assert len({model.best_epoch for model in found.history_.models}) == 1
        stored = sorted(tmp_path.glob("*.safetensors"))
        assert len(stored) == 3
        stored[1].unlink()
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*.safetensors"))}
    search()
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


def test_a_search_reports_a_setting_whose_risk_is_not_finite(problem):
    base = boosting(epochs=3, n_estimators=3, method="unbiased")
    with pytest.warns(FailedSettingWarning, match="1 of 2 settings failed"):
        found = UUClassifierCV(base, {"loss": ["sigmoid", _exploding]}).fit_sets(*problem[:2])
    assert found.best_params_ == {"loss": "sigmoid"}


def _exploding(z):
    return torch.exp(torch.exp(-40 * z))


def test_defaults(problem):
    assert TreeParameters.from_mapping(None) == TreeParameters()
    resolved = boosting(lr="auto").plan_sets(*problem[:2]).parameters
    assert (resolved.n_estimators, resolved.loss, resolved.l2, resolved.patience) == (5, "sigmoid", 0.0, 50)


def test_rare_flags_do_not_end_training():
    """A draw of columns without a possible split is repeated; all models have the same number of trees."""
    rng = np.random.default_rng(0)

    def rows(prior):
        radius = np.where(rng.random(500) < prior, 0.8, 1.8) + rng.normal(0, 0.2, 500)
        angle = rng.uniform(0, 2 * np.pi, 500)
        flags = rng.random((500, 4)) < 0.01
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), flags]).astype(np.float32)

    found = boosting(epochs=60, patience=None).fit_sets(rows(0.35), rows(0.7))
    assert {history.stop_reason for history in found.history_.models} == {"all 60 epochs done"}
    (best,) = {history.best_epoch for history in found.history_.models}
    # A first round without a split adds a constant tree.
    assert {part.trees.values.shape[0] for part in found.trained_.models} <= {best, best + 1}
